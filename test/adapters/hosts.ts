// Servers as their authors would write them, one for each kind that the adapters know, all offering the same: a tool that adds,
// one that reports, one that waits, one that asks, one that says who calls; a resource, a template and a prompt with completions.

import { Server as Server1 } from '@modelcontextprotocol/sdk/server/index.js'
import { McpServer as McpServer1, ResourceTemplate as Template1 } from '@modelcontextprotocol/sdk/server/mcp.js'
import { completable as completable1 } from '@modelcontextprotocol/sdk/server/completable.js'
import {
  CallToolRequestSchema, CompleteRequestSchema, GetPromptRequestSchema, ListPromptsRequestSchema, ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema, ListToolsRequestSchema, McpError, ReadResourceRequestSchema, SubscribeRequestSchema, UnsubscribeRequestSchema
} from '@modelcontextprotocol/sdk/types.js'
import { completable as completable2, inputRequired, McpServer as McpServer2, ProtocolError, ResourceTemplate as Template2, Server as Server2 } from '@modelcontextprotocol/server'
import { FastMCP, UserError } from 'fastmcp'
import { EventEmitter, once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'

/** What the tests hear of what goes on in handlers, of all servers of a kind. */
export class Ears extends EventEmitter {
  /** Aborts that `wait` has seen. */
  aborted = 0
  /** Runs of `ask`. */
  asked = 0

  async entered (tool: string): Promise<void> {
    await once(this, tool)
  }
}

export interface Host {
  /** What is given to the adapters. */
  server: object
  connect (transport: any): Promise<unknown>
  close (): Promise<unknown>
  /** Registers `late`, which answers `late`. */
  addLate (): void
  /** Says that `host://info` has changed, and that the tools have. */
  touch (): Promise<void>
}

export interface Kind {
  name: string
  sdk: 1 | 2
  make (ears: Ears): Host
  /** Unknown tools, as this server alone answers: a result with `isError`, or the code of an error. */
  unknownTool: 'isError' | number
  /** A clash between what the host and a layer call by the same name must be noticed without a look at the host's lists. */
  low: boolean
}

const ITEMS = ['alpha', 'beta', 'gamma', 'delta']
const form = { type: 'object' as const, properties: { name: { type: 'string' as const } }, required: ['name'] }
const text = (value: unknown) => ({ content: [{ type: 'text' as const, text: typeof value === 'string' ? value : JSON.stringify(value) }] })
const startingWith = (prefix: string | undefined) => ITEMS.filter((item) => item.startsWith(prefix ?? ''))

/** Ends when it is aborted; in a real server this would be work that looks at the signal. */
async function waitUntilAborted (signal: AbortSignal, ears: Ears): Promise<string> {
  ears.emit('wait')
  try {
    await sleep(30_000, undefined, { signal })
    return 'waited'
  } catch {
    ears.aborted++
    ears.emit('aborted')
    return 'aborted'
  }
}

// ---- SDK 1.x

function who1 (extra: any) {
  return { client: extra.authInfo?.clientId ?? null, token: extra.authInfo?.token ?? null, agent: extra.requestInfo?.headers['x-agent'] ?? null, session: extra.sessionId !== undefined }
}

async function report1 (extra: any): Promise<string> {
  const progressToken = extra._meta?.progressToken
  for (const progress of [1, 2, 3]) {
    if (progressToken !== undefined) await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: 3, message: `step ${progress}` } })
    await extra.sendNotification({ method: 'notifications/message', params: { level: 'warning', data: `step ${progress}`, logger: 'host' } })
  }
  return 'reported'
}

function mcp1 (ears: Ears): Host {
  const server = new McpServer1({ name: 'host', version: '1.0.0' }, { capabilities: { logging: {} }, instructions: 'Of the host' })
  server.registerTool('add', { title: 'Add', description: 'Adds', inputSchema: { a: z.number(), b: z.number() } }, ({ a, b }) => text(String(a + b)))
  server.registerTool('echo', { description: 'Of the host', inputSchema: { text: z.string() } }, ({ text: said }) => text(`host: ${said}`))
  server.registerTool('report', { description: 'Reports' }, async (extra) => text(await report1(extra)))
  server.registerTool('wait', { description: 'Waits' }, async ({ signal }) => text(await waitUntilAborted(signal, ears)))
  server.registerTool('who', { description: 'Who calls' }, (extra) => text(who1(extra)))
  server.registerTool('ask', { description: 'Asks' }, async () => {
    ears.asked++
    return text(await server.server.elicitInput({ message: 'Your name?', requestedSchema: form }))
  })
  server.registerTool('sample', { description: 'Samples' }, async () => text((await server.server.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: 'Capital?' } }], maxTokens: 10 })).content))
  server.registerTool('roots', { description: 'Roots' }, async () => text((await server.server.listRoots()).roots))
  server.registerTool('fail', { description: 'Fails' }, () => { throw new Error('the host failed') })
  server.registerResource('info', 'host://info', { mimeType: 'text/plain' }, ({ href }) => ({ contents: [{ uri: href, mimeType: 'text/plain', text: 'host info' }] }))
  server.registerResource('item', new Template1('host://items/{id}', { list: undefined, complete: { id: startingWith } }), {}, ({ href }, { id }) => ({ contents: [{ uri: href, text: `item ${String(id)}` }] }))
  server.registerPrompt('hello', { description: 'Says hello', argsSchema: { name: completable1(z.string(), startingWith) } }, ({ name }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Hello ${name}` } }] }))
  return {
    server,
    connect: (transport) => server.connect(transport),
    close: () => server.close(),
    addLate () { server.registerTool('late', { description: 'Late' }, () => text('late')) },
    async touch () {
      await server.server.sendResourceUpdated({ uri: 'host://info' })
      server.sendToolListChanged()
    }
  }
}

function low1 (ears: Ears): Host {
  const server = new Server1({ name: 'host', version: '1.0.0' }, {
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: {}, completions: {}, logging: {} },
    instructions: 'Of the host'
  })
  const tools = new Map<string, { schema: any, run: (args: any, extra: any) => any }>([
    ['add', { schema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] }, run: ({ a, b }) => text(String(a + b)) }],
    ['echo', { schema: { type: 'object', properties: { text: { type: 'string' } } }, run: ({ text: said }) => text(`host: ${said}`) }],
    ['report', { schema: { type: 'object' }, run: async (_args, extra) => text(await report1(extra)) }],
    ['wait', { schema: { type: 'object' }, run: async (_args, { signal }) => text(await waitUntilAborted(signal, ears)) }],
    ['who', { schema: { type: 'object' }, run: (_args, extra) => text(who1(extra)) }],
    ['ask', {
      schema: { type: 'object' },
      run: async () => {
        ears.asked++
        return text(await server.elicitInput({ message: 'Your name?', requestedSchema: form }))
      }
    }],
    ['sample', { schema: { type: 'object' }, run: async () => text((await server.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: 'Capital?' } }], maxTokens: 10 })).content) }],
    ['roots', { schema: { type: 'object' }, run: async () => text((await server.listRoots()).roots) }],
    ['fail', { schema: { type: 'object' }, run: () => ({ ...text('the host failed'), isError: true }) }]
  ])
  const subscribed = new Set<string>()
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [...tools].map(([name, { schema }]) => ({ name, description: name, inputSchema: schema })) }))
  server.setRequestHandler(CallToolRequestSchema, ({ params: { name, arguments: args = {} } }, extra) => {
    const tool = tools.get(name)
    if (tool === undefined) throw new McpError(-32602, `No tool ${name}`, { name })
    return tool.run(args, extra)
  })
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: [{ uri: 'host://info', name: 'info', mimeType: 'text/plain' }] }))
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: [{ uriTemplate: 'host://items/{id}', name: 'item' }] }))
  server.setRequestHandler(ReadResourceRequestSchema, ({ params: { uri } }) => ({ contents: [readHost(uri, () => { throw Object.assign(new Error(`No resource ${uri}`), { code: -32002, data: { uri } }) })] }))
  server.setRequestHandler(ListPromptsRequestSchema, () => ({ prompts: [{ name: 'hello', description: 'Says hello', arguments: [{ name: 'name', required: true }] }] }))
  server.setRequestHandler(GetPromptRequestSchema, ({ params }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Hello ${params.arguments?.name}` } }] }))
  server.setRequestHandler(CompleteRequestSchema, ({ params }) => ({ completion: { values: startingWith(params.argument.value) } }))
  server.setRequestHandler(SubscribeRequestSchema, ({ params }) => { subscribed.add(params.uri); return {} })
  server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => { subscribed.delete(params.uri); return {} })
  return {
    server,
    connect: (transport) => server.connect(transport),
    close: () => server.close(),
    addLate () { tools.set('late', { schema: { type: 'object' }, run: () => text('late') }) },
    async touch () {
      if (subscribed.has('host://info')) await server.sendResourceUpdated({ uri: 'host://info' })
      await server.sendToolListChanged()
    }
  }
}

function readHost (uri: string, missing: () => never) {
  if (uri === 'host://info') return { uri, mimeType: 'text/plain', text: 'host info' }
  const id = /^host:\/\/items\/(.+)$/.exec(uri)?.[1]
  return id === undefined ? missing() : { uri, text: `item ${id}` }
}

// ---- SDK 2.x

function who2 (ctx: any) {
  return { client: ctx.http?.authInfo?.clientId ?? null, token: ctx.http?.authInfo?.token ?? null, agent: ctx.http?.req?.headers.get('x-agent') ?? null, session: ctx.sessionId !== undefined }
}

async function report2 (ctx: any): Promise<string> {
  const progressToken = ctx.mcpReq._meta?.progressToken
  for (const progress of [1, 2, 3]) {
    if (progressToken !== undefined) await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 3, message: `step ${progress}` } })
    await ctx.mcpReq.log('warning', `step ${progress}`, 'host')
  }
  return 'reported'
}

/** One way for both eras: 2.x asks live where the client is of the handshake era. */
function round2 (ctx: any, question: any, read: (answer: any) => unknown) {
  const answer = ctx.mcpReq.inputResponses?.it
  return answer === undefined ? inputRequired({ inputRequests: { it: question } }) : text(read(answer))
}
const questions2 = {
  ask: () => inputRequired.elicit({ message: 'Your name?', requestedSchema: form }),
  sample: () => inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: 'Capital?' } }], maxTokens: 10 }),
  roots: () => inputRequired.listRoots()
}

function mcp2 (ears: Ears): Host {
  const server = new McpServer2({ name: 'host', version: '1.0.0' }, { capabilities: { logging: {} }, instructions: 'Of the host' })
  const none = z.object({})
  server.registerTool('add', { title: 'Add', description: 'Adds', inputSchema: z.object({ a: z.number(), b: z.number() }) }, ({ a, b }) => text(String(a + b)))
  server.registerTool('echo', { description: 'Of the host', inputSchema: z.object({ text: z.string() }) }, ({ text: said }) => text(`host: ${said}`))
  server.registerTool('report', { description: 'Reports', inputSchema: none }, async (_args, ctx) => text(await report2(ctx)))
  server.registerTool('wait', { description: 'Waits', inputSchema: none }, async (_args, ctx) => text(await waitUntilAborted(ctx.mcpReq.signal, ears)))
  server.registerTool('who', { description: 'Who calls', inputSchema: none }, (_args, ctx) => text(who2(ctx)))
  server.registerTool('ask', { description: 'Asks', inputSchema: none }, (_args, ctx) => {
    ears.asked++
    return round2(ctx, questions2.ask(), (answer) => answer) as any
  })
  server.registerTool('sample', { description: 'Samples', inputSchema: none }, (_args, ctx) => round2(ctx, questions2.sample(), ({ content }) => content) as any)
  server.registerTool('roots', { description: 'Roots', inputSchema: none }, (_args, ctx) => round2(ctx, questions2.roots(), ({ roots }) => roots) as any)
  server.registerTool('fail', { description: 'Fails', inputSchema: none }, () => { throw new Error('the host failed') })
  server.registerResource('info', 'host://info', { mimeType: 'text/plain' }, ({ href }) => ({ contents: [{ uri: href, mimeType: 'text/plain', text: 'host info' }] }))
  server.registerResource('item', new Template2('host://items/{id}', { list: undefined, complete: { id: startingWith } }), {}, ({ href }, { id }) => ({ contents: [{ uri: href, text: `item ${String(id)}` }] }))
  server.registerPrompt('hello', { description: 'Says hello', argsSchema: z.object({ name: completable2(z.string(), startingWith) }) }, ({ name }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Hello ${name}` } }] }))
  return {
    server,
    connect: (transport) => server.connect(transport),
    close: () => server.close(),
    addLate () { server.registerTool('late', { description: 'Late', inputSchema: none }, () => text('late')) },
    async touch () {
      await server.server.sendResourceUpdated({ uri: 'host://info' })
      server.sendToolListChanged()
    }
  }
}

function low2 (ears: Ears): Host {
  const server = new Server2({ name: 'host', version: '1.0.0' }, {
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: {}, completions: {}, logging: {} },
    instructions: 'Of the host'
  })
  const tools = new Map<string, { schema: any, run: (args: any, ctx: any) => any }>([
    ['add', { schema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] }, run: ({ a, b }) => text(String(a + b)) }],
    ['echo', { schema: { type: 'object', properties: { text: { type: 'string' } } }, run: ({ text: said }) => text(`host: ${said}`) }],
    ['report', { schema: { type: 'object' }, run: async (_args, ctx) => text(await report2(ctx)) }],
    ['wait', { schema: { type: 'object' }, run: async (_args, ctx) => text(await waitUntilAborted(ctx.mcpReq.signal, ears)) }],
    ['who', { schema: { type: 'object' }, run: (_args, ctx) => text(who2(ctx)) }],
    ['ask', {
      schema: { type: 'object' },
      run: (_args, ctx) => {
        ears.asked++
        return round2(ctx, questions2.ask(), (answer) => answer)
      }
    }],
    ['sample', { schema: { type: 'object' }, run: (_args, ctx) => round2(ctx, questions2.sample(), ({ content }) => content) }],
    ['roots', { schema: { type: 'object' }, run: (_args, ctx) => round2(ctx, questions2.roots(), ({ roots }) => roots) }],
    ['fail', { schema: { type: 'object' }, run: () => ({ ...text('the host failed'), isError: true }) }]
  ])
  const subscribed = new Set<string>()
  server.setRequestHandler('tools/list', () => ({ tools: [...tools].map(([name, { schema }]) => ({ name, description: name, inputSchema: schema })) }))
  server.setRequestHandler('tools/call', ({ params: { name, arguments: args = {} } }, ctx) => {
    const tool = tools.get(name)
    if (tool === undefined) throw new ProtocolError(-32602, `No tool ${name}`, { name })
    return tool.run(args, ctx)
  })
  server.setRequestHandler('resources/list', () => ({ resources: [{ uri: 'host://info', name: 'info', mimeType: 'text/plain' }] }))
  server.setRequestHandler('resources/templates/list', () => ({ resourceTemplates: [{ uriTemplate: 'host://items/{id}', name: 'item' }] }))
  server.setRequestHandler('resources/read', ({ params: { uri } }) => ({ contents: [readHost(uri, () => { throw new ProtocolError(-32002, `No resource ${uri}`, { uri }) })] }))
  server.setRequestHandler('prompts/list', () => ({ prompts: [{ name: 'hello', description: 'Says hello', arguments: [{ name: 'name', required: true }] }] }))
  server.setRequestHandler('prompts/get', ({ params }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Hello ${params.arguments?.name}` } }] }))
  server.setRequestHandler('completion/complete', ({ params }) => ({ completion: { values: startingWith(params.argument.value) } }))
  server.setRequestHandler('resources/subscribe', ({ params }) => { subscribed.add(params.uri); return {} })
  server.setRequestHandler('resources/unsubscribe', ({ params }) => { subscribed.delete(params.uri); return {} })
  return {
    server,
    connect: (transport) => server.connect(transport),
    close: () => server.close(),
    addLate () { tools.set('late', { schema: { type: 'object' }, run: () => text('late') }) },
    async touch () {
      if (subscribed.has('host://info')) await server.sendResourceUpdated({ uri: 'host://info' })
      await server.sendToolListChanged()
    }
  }
}

// ---- fastmcp

function fastmcp (ears: Ears): Host {
  const silent = { debug () {}, error () {}, info () {}, log () {}, warn () {} }
  const server = new FastMCP({ name: 'host', version: '1.0.0', instructions: 'Of the host', logger: silent })
  const sessions: { close: () => Promise<void> }[] = []
  server.addTool({ name: 'add', description: 'Adds', parameters: z.object({ a: z.number(), b: z.number() }), execute: async ({ a, b }) => String(a + b) })
  server.addTool({ name: 'echo', description: 'Of the host', parameters: z.object({ text: z.string() }), execute: async ({ text: said }) => `host: ${said}` })
  server.addTool({
    name: 'report',
    description: 'Reports',
    execute: async (_args, { log, reportProgress }) => {
      for (const progress of [1, 2, 3]) {
        await reportProgress({ progress, total: 3 })
        log.warn(`step ${progress}`)
      }
      return 'reported'
    }
  })
  server.addTool({ name: 'wait', description: 'Waits', execute: async (_args, { signal }) => waitUntilAborted(signal!, ears) })
  server.addTool({
    name: 'who',
    description: 'Who calls',
    execute: async (_args, { session, sessionId }) => JSON.stringify({ client: (session as any)?.clientId ?? null, token: (session as any)?.token ?? null, agent: null, session: sessionId !== undefined })
  })
  server.addTool({
    name: 'ask',
    description: 'Asks',
    execute: async (_args, { elicit }) => {
      ears.asked++
      return JSON.stringify(await elicit({ message: 'Your name?', requestedSchema: form }))
    }
  })
  server.addTool({ name: 'fail', description: 'Fails', execute: async () => { throw new UserError('the host failed') } })
  server.addResource({ uri: 'host://info', name: 'info', mimeType: 'text/plain', load: async () => ({ text: 'host info' }) })
  server.addResourceTemplate({ uriTemplate: 'host://items/{id}', name: 'item', mimeType: 'text/plain', arguments: [{ name: 'id', required: true, complete: async (value) => ({ values: startingWith(value) }) }], load: async ({ id }) => ({ text: `item ${id}` }) })
  server.addPrompt({ name: 'hello', description: 'Says hello', arguments: [{ name: 'name', required: true, complete: async (value) => ({ values: startingWith(value) }) }], load: async ({ name }) => `Hello ${name}` })
  return {
    server,
    async connect (transport) { sessions.push(await server.connect(transport)) },
    async close () { await Promise.all(sessions.map((session) => session.close())) },
    addLate () { server.addTool({ name: 'late', description: 'Late', execute: async () => 'late' }) },
    async touch () {
      await server.sendResourceUpdated('host://info')
      for (const session of server.sessions) await session.triggerListChangedNotification('notifications/tools/list_changed')
    }
  }
}

export const KINDS: readonly Kind[] = [
  { name: 'Server of SDK 1.x', sdk: 1, make: low1, unknownTool: -32602, low: true },
  { name: 'McpServer of SDK 1.x', sdk: 1, make: mcp1, unknownTool: 'isError', low: false },
  { name: 'Server of SDK 2.x', sdk: 2, make: low2, unknownTool: -32602, low: true },
  { name: 'McpServer of SDK 2.x', sdk: 2, make: mcp2, unknownTool: -32602, low: false },
  { name: 'FastMCP 4', sdk: 1, make: fastmcp, unknownTool: -32601, low: true }
]
