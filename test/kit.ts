// The layer that the acceptance cases are written against: eight tools, a resource, a template and a prompt, in this order,
// built with nothing but the public API. Beside it the messages that tests send most.

import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { createLayer, NotFoundError } from '../lib/layer/index.js'
import type { AppLayer, Context, LayerOptions } from '../lib/layer/index.js'

export const ITEMS = ['alpha', 'beta', 'gamma', 'delta'] as const
export const TOOLS = ['echo', 'stats', 'slow', 'sleepy', 'fail', 'touch', 'linked', 'noisy'] as const

/** `params._meta` of a 2026 request that declares nothing. */
export const ENV = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {}
} as const

type Id = string | number
export interface Message { jsonrpc: '2.0', id: Id, method: string, params?: Record<string, any> }

/** A request without an envelope. */
export function request (method: string, params?: Record<string, any>, id: Id = 1): Message {
  return { jsonrpc: '2.0', id, method, ...(params && { params }) }
}

/** A 2026 request. A `_meta` in the params is added to the envelope. */
export function modern (method: string, params: Record<string, any> = {}, id: Id = 1): Message {
  return { jsonrpc: '2.0', id, method, params: { ...params, _meta: { ...ENV, ...params['_meta'] } } }
}

/** The headers that a 2026 request repeats of its body. */
export function modernHeaders (method: string, name?: string): Record<string, string> {
  return { 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': method, ...(name !== undefined && { 'Mcp-Name': name }) }
}

export function initialize (protocolVersion = '2025-11-25', id: Id = 'init', capabilities: Record<string, any> = {}): Message {
  return request('initialize', { protocolVersion, capabilities, clientInfo: { name: 'kit-client', version: '0' } }, id)
}

export const INITIALIZED = { jsonrpc: '2.0', method: 'notifications/initialized' } as const

export interface Kit {
  layer: AppLayer
  /** How often each tool has run. */
  calls: Record<string, number>
  /** Resolves with the context of the next run of this tool, once its handler has begun. */
  entered (tool: typeof TOOLS[number]): Promise<Context>
}

export function createKit (options: Partial<LayerOptions> = {}): Kit {
  const layer = createLayer({ name: 'kit', version: '1.2.3', title: 'Kit', instructions: 'A kit for tests', ...options })
  const calls: Record<string, number> = {}
  const waiting = new Map<string, ((ctx: Context) => void)[]>()

  function enter (tool: typeof TOOLS[number], ctx: Context): void {
    calls[tool] = (calls[tool] ?? 0) + 1
    for (const resolve of waiting.get(tool) ?? []) resolve(ctx)
    waiting.delete(tool)
  }

  layer.tool('echo', {
    title: 'Echo',
    description: 'Says it again',
    input: { text: z.string(), times: z.int().min(1).max(5).default(1) },
    annotations: { readOnlyHint: true, idempotentHint: true }
  }, ({ text, times }, ctx) => {
    enter('echo', ctx)
    return { text: text.repeat(times) }
  })

  layer.tool('stats', {
    description: 'Counts the items',
    output: { count: z.int(), names: z.array(z.string()) },
    annotations: { readOnlyHint: true }
  }, (_args, ctx) => {
    enter('stats', ctx)
    return { count: ITEMS.length, names: [...ITEMS] }
  })

  layer.tool('slow', { description: 'Tells of every step', input: { steps: z.int().default(3) } }, async ({ steps }, ctx) => {
    enter('slow', ctx)
    for (let step = 1; step <= steps; step++) {
      await ctx.progress(step, steps, `step ${step}`)
      await ctx.notify.log('info', { step })
    }
    return { done: steps }
  })

  layer.tool('sleepy', { description: 'Sleeps until it is cancelled', input: { seconds: z.number().default(30) } }, async ({ seconds }, ctx) => {
    enter('sleepy', ctx)
    await sleep(seconds * 1000, undefined, { signal: ctx.signal })
    return { slept: seconds }
  })

  layer.tool('fail', { description: 'Crashes' }, (_args, ctx) => {
    enter('fail', ctx)
    throw new Error('boom')
  })

  layer.tool('touch', {
    description: 'Says that a resource and the tools have changed',
    input: { uri: z.string().default('test://info') },
    annotations: { readOnlyHint: false, destructiveHint: true }
  }, ({ uri }, ctx) => {
    enter('touch', ctx)
    layer.notifyUpdated(uri)
    layer.notifyChanged('tools')
    return { touched: uri }
  })

  layer.tool('linked', { description: 'Links to an item' }, (_args, ctx) => {
    enter('linked', ctx)
    ctx.link('test://items/alpha', 'alpha')
    return { ok: true }
  })

  layer.tool('noisy', { description: 'Writes to standard output' }, (_args, ctx) => {
    enter('noisy', ctx)
    console.log('noise of a handler')
    process.stdout.write('more noise of a handler\n')
    return { ok: true }
  })

  layer.resource('test://info', { name: 'info', mimeType: 'application/json' }, () => ({ hello: 'world' }))

  const complete = (prefix: string): string[] => ITEMS.filter((item) => item.startsWith(prefix))

  layer.resourceTemplate('test://items/{item_id}', { name: 'item', mimeType: 'application/json', complete: { item_id: complete } }, ({ item_id: id }) => {
    const index = ITEMS.findIndex((item) => item === id)
    if (index === -1) throw new NotFoundError(`No item ${id}`)
    return { id, index }
  })

  layer.prompt('greet', {
    description: 'Greets somebody',
    arguments: { name: { description: 'Who', complete }, style: { required: false } }
  }, ({ name, style }) => style === 'formal' ? `Good day, ${name}.` : `Hi ${name}!`)

  return {
    layer,
    calls,
    entered: (tool) => new Promise((resolve) => { waiting.set(tool, [...waiting.get(tool) ?? [], resolve]) })
  }
}
