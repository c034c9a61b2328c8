// A layer whose handlers ask, each in one way: what the cases of every transport and client are run against.

import { z } from 'zod'
import { createLayer, elicit, inputRequired, listRoots } from '../../lib/layer/index.js'
import type { AppLayer, ContentBlock, LayerOptions, SamplingParams } from '../../lib/layer/index.js'

export const COLOURS = { type: 'object', properties: { colour: { type: 'string', enum: ['red', 'blue'] } }, required: ['colour'] } as const

export interface Asking {
  layer: AppLayer
  /** How often each handler has begun, under its name. */
  runs: Record<string, number>
}

export function createAsking (options: Partial<LayerOptions> = {}): Asking {
  const layer = createLayer({ name: 'asking', version: '1.0.0', ...options })
  const runs: Record<string, number> = {}
  const ran = (name: string): void => { runs[name] = (runs[name] ?? 0) + 1 }

  layer.tool('name', { description: 'Asks for a name' }, async (_args, ctx) => {
    ran('name')
    const { action, content } = await ctx.elicit('What is your name?', { name: z.string().min(2), loud: z.boolean().default(false) })
    return said(action === 'accept' ? `Hello ${content.loud ? content.name.toUpperCase() : content.name}` : `You said ${action}`)
  })

  layer.tool('both', { description: 'Asks two things at once' }, async (_args, ctx) => {
    ran('both')
    const [name, colour] = await Promise.all([
      ctx.elicit('What is your name?', { name: z.string() }, { key: 'name' }),
      ctx.elicit('Which colour?', COLOURS, { key: 'colour' })
    ])
    return said(`${JSON.stringify(name)} ${JSON.stringify(colour)}`)
  })

  layer.tool('twice', { description: 'Asks one thing after the other', input: { what: z.string() } }, async ({ what }, ctx) => {
    ran('twice')
    const first = await ctx.elicit(`Delete ${what}?`, { sure: z.boolean() })
    if (first.action !== 'accept' || !first.content.sure) return said('Kept')
    const second = await ctx.elicit(`Really delete ${what}?`, { sure: z.boolean() })
    return said(second.action === 'accept' && second.content.sure ? `Deleted ${what}` : 'Kept after all')
  })

  layer.tool('page', { description: 'Sends the user to a page' }, async (_args, ctx) => {
    ran('page')
    const { action } = await ctx.elicitUrl('Please sign in', 'https://example.com/sign-in?for=you')
    return said(`The page: ${action}`)
  })

  layer.tool('model', { description: 'Asks the client\'s model', input: { question: z.string() } }, async ({ question }, ctx) => {
    ran('model')
    const { content, model } = await ctx.sample(prompt(question))
    return said(`${model}: ${content.text}`)
  })

  layer.tool('roots', { description: 'Asks for the roots' }, async (_args, ctx) => {
    ran('roots')
    return said((await ctx.listRoots()).map(({ uri, name }) => `${name}=${uri}`).join(' '))
  })

  layer.tool('everything', { description: 'Asks for one thing of each kind, at once' }, async (_args, ctx) => {
    ran('everything')
    const [{ action }, { model }, roots] = await Promise.all([ctx.elicit('Go on?', { sure: z.boolean() }), ctx.sample(prompt('Hi')), ctx.listRoots()])
    return said(`${action} ${model} ${roots.length}`)
  })

  layer.tool('declared', {
    description: 'Declares what it asks',
    input: { file: z.string() },
    inputs: {
      confirm: ({ file }) => elicit(`Delete ${file}?`, { sure: z.boolean() }),
      roots: listRoots()
    }
  }, ({ file }, _ctx, { confirm, roots }) => {
    ran('declared')
    return said(confirm.action === 'accept' && confirm.content.sure ? `Deleted ${file} of ${roots[0]?.uri}` : `Kept ${file}`)
  })

  layer.tool('explicit', { description: 'States its own rounds' }, (_args, ctx) => {
    ran('explicit')
    const { step, seen = [] } = (ctx.requestState ?? { step: 0 }) as { step: number, seen?: unknown[] }
    const answer = ctx.inputResponses[`step${step}`]
    const all = answer === undefined ? seen : [...seen, answer]
    if (step === 2 && answer !== undefined) return said(JSON.stringify(all))
    const next = answer === undefined && step > 0 ? step : step + 1
    return inputRequired({ requests: { [`step${next}`]: elicit(`Step ${next}`, { value: z.string() }) }, state: { step: next, seen: all } })
  })

  layer.prompt('brief', { description: 'Asks for its context', arguments: { topic: z.string() } }, async ({ topic }, ctx) => {
    ran('brief')
    const { action, content } = await ctx.elicit(`What of ${topic}?`, { detail: z.string() })
    return `Write about ${topic}: ${action === 'accept' ? content.detail : action}`
  })

  layer.resource('ask://note', { name: 'note', mimeType: 'text/plain' }, async (_uri, ctx) => {
    ran('note')
    const { action, content } = await ctx.elicit('Which note?', { id: z.int() })
    return action === 'accept' ? `Note ${content.id}` : `No note: ${action}`
  })

  return { layer, runs }
}

export function prompt (question: string): SamplingParams {
  return { messages: [{ role: 'user', content: { type: 'text', text: question } }], maxTokens: 50 }
}

export function said (text: string): ContentBlock[] {
  return [{ type: 'text', text }]
}

/** The text of a result: of a tool, a prompt, or a resource. */
export function textOf (result: any): string {
  return result.content?.[0]?.text ?? result.messages?.[0]?.content?.text ?? result.contents?.[0]?.text
}
