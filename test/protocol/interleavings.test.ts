// Calls, cancellations, changes and ends in any order: each request is answered once or, when it was cancelled, never; and
// nothing is sent for it after that. At random, and the same at every run.

import t from 'tap'
import fc from 'fast-check'
import { z } from 'zod'
import { createLayer } from '../../lib/layer/index.js'
import { decodeCursor, encodeCursor } from '../../lib/protocol/pages.js'
import { initialize, INITIALIZED, modern, request } from '../kit.js'
import { attach, connect, settled } from './connection.js'

type Step =
  | { do: 'call', as: 'list' | 'wait' | 'deaf' | 'crash' | 'unknown' }
  | { do: 'release' | 'cancel', which: number }
  | { do: 'change', kind: 'tools' | 'prompts' | 'resource' }
  | { do: 'turn' }

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('call' as const), as: fc.constantFrom('list' as const, 'wait' as const, 'deaf' as const, 'crash' as const, 'unknown' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('release' as const, 'cancel' as const), which: fc.nat(30) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('change' as const), kind: fc.constantFrom('tools' as const, 'prompts' as const, 'resource' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('turn' as const) }) }
)

interface Request { id: number, as: string, reply?: any, answered: boolean, released: boolean, cancelled: boolean, maybeAnswered: boolean, sent: any[], sentAfter: number }

async function run (steps: readonly Step[], era: 'handshake' | 'modern', end: 'release' | 'close'): Promise<void> {
  const gates = new Map<number, () => void>()
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('wait', { input: { key: z.number() }, timeout: 0 }, async ({ key }, ctx) => {
    await ctx.progress(1)
    await new Promise<void>((resolve, reject) => {
      gates.set(key, resolve)
      ctx.signal.addEventListener('abort', () => { void ctx.progress(99); reject(new Error('stopped')) })
    })
    await ctx.progress(2)
    return { key }
  })
  layer.tool('deaf', { input: { key: z.number() }, timeout: 0 }, async ({ key }, ctx) => {
    await new Promise<void>((resolve) => { gates.set(key, resolve) })
    await ctx.progress(1)
    return { key }
  })
  layer.tool('crash', { input: { key: z.number() } }, () => { throw new Error('boom') })

  const connection = connect(layer)
  const { handle, session, server } = connection
  const message = era === 'modern' ? modern : request
  if (era === 'handshake') {
    await handle(initialize())
    await handle(INITIALIZED)
    await handle(request('resources/subscribe', { uri: 'x://y' }))
  }
  const requests: Request[] = []
  const pending: Promise<void>[] = []
  const changes = { tools: 0, prompts: 0, resource: 0 }
  let closed = false

  for (const one of steps) {
    if (one.do === 'turn') await settled()
    else if (one.do === 'change') {
      changes[one.kind]++
      layer.notifyChanged(one.kind, 'x://y')
    } else if (one.do === 'call') {
      const id = requests.length
      const params = one.as === 'list' ? {} : { name: one.as, arguments: { key: id }, _meta: { progressToken: id } }
      const entry: Request = { id, as: one.as, answered: false, released: false, cancelled: false, maybeAnswered: false, sent: [], sentAfter: 0 }
      requests.push(entry)
      const sink = (notification: object): void => {
        entry.sent.push(notification)
        if (entry.answered || entry.cancelled || closed) entry.sentAfter++
      }
      pending.push(handle(message(one.as === 'list' ? 'tools/list' : 'tools/call', params, id), { sink }).then((reply) => {
        entry.reply = reply
        entry.answered = true
      }))
    } else {
      const entry = requests[one.which]
      if (entry === undefined) continue
      if (one.do === 'release') {
        entry.released = gates.has(entry.id)
        gates.get(entry.id)?.()
      } else if (!entry.answered && !entry.cancelled) {
        // What is not held by a gate may be done already, with its answer on the way.
        entry.maybeAnswered = entry.released || !['wait', 'deaf'].includes(entry.as)
        entry.cancelled = true
        await handle({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: entry.id } })
      }
    }
  }
  await settled()
  const open = requests.filter(({ answered }) => !answered)
  if (end === 'close') {
    closed = true
    session.close()
  } else {
    for (const release of gates.values()) release()
  }
  await Promise.all(pending)
  for (const release of gates.values()) release()
  await settled()

  for (const entry of requests) {
    const { id, as, reply, cancelled, maybeAnswered, sentAfter, sent } = entry
    const what = `${as} ${id}: ${JSON.stringify(reply)}`
    if (sentAfter > 0) throw new Error(`${what}: sent after the end: ${JSON.stringify(sent)}`)
    if (cancelled && !maybeAnswered && reply !== undefined) throw new Error(`${what}: answered, though it was cancelled`)
    if (end === 'close' && open.includes(entry) && reply !== undefined) throw new Error(`${what}: answered after the session had ended`)
    if (!cancelled && !(end === 'close' && open.includes(entry)) && reply === undefined) throw new Error(`${what}: not answered`)
    if (reply === undefined) continue
    if (reply.id !== id) throw new Error(`${what}: answered under another id`)
    if (as === 'unknown' ? reply.error?.code !== -32602 : as === 'crash' ? reply.result?.isError !== true : reply.result === undefined) throw new Error(`${what}: an odd answer`)
    if (as === 'wait' || as === 'deaf') {
      if (reply.result.structuredContent.key !== id) throw new Error(`${what}: the answer of another call`)
      const told = sent.map(({ params }) => params.progress)
      if (JSON.stringify(told) !== (as === 'wait' ? '[1,2]' : '[1]')) throw new Error(`${what}: progress ${JSON.stringify(told)}`)
    }
  }
  if (session.busy) throw new Error('something is still in flight')
  const heard = connection.sent.map(({ method }) => method)
  const count = (method: string): number => heard.filter((one) => one === method).length
  const expected = era === 'handshake' ? changes : { tools: 0, prompts: 0, resource: 0 }
  if (count('notifications/tools/list_changed') !== expected.tools || count('notifications/prompts/list_changed') !== expected.prompts ||
    count('notifications/resources/updated') !== expected.resource || heard.length !== expected.tools + expected.prompts + expected.resource) {
    throw new Error(`changes ${JSON.stringify(changes)}, heard ${JSON.stringify(heard)}`)
  }
  const next = attach(server)
  if ((await next.handle(initialize())).result === undefined) throw new Error('no other session is served')
  await server.close()
}

for (const era of ['handshake', 'modern'] as const) {
  for (const end of ['release', 'close'] as const) {
    t.test(`whatever happens in which order (${era}, ${end})`, async (t) => {
      await t.resolves(fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 30 }), (steps) => run(steps, era, end)), { seed: 20251125, numRuns: 150 }))
    })
  }
}

t.test('a cursor stands for its list and its place, and for nothing else', async (t) => {
  const kinds = ['tools', 'resources', 'templates', 'prompts'] as const
  fc.assert(fc.property(fc.constantFrom(...kinds), fc.nat(), fc.constantFrom(...kinds), (kind, offset, other) => {
    const cursor = encodeCursor(kind, offset)
    if (!/^[A-Za-z0-9_-]+$/.test(cursor)) throw new Error('not opaque text')
    if (decodeCursor(kind, cursor) !== offset) throw new Error('another place')
    if (kind === other) return
    try {
      decodeCursor(other, cursor)
    } catch {
      return
    }
    throw new Error('taken by another list')
  }), { seed: 1, numRuns: 500 })
  fc.assert(fc.property(fc.oneof(fc.string(), fc.base64String(), fc.jsonValue(), fc.string().map((text) => Buffer.from(text).toString('base64url'))), (cursor) => {
    try {
      const offset = decodeCursor('tools', cursor)
      return cursor === null || (Number.isSafeInteger(offset) && offset >= 0)
    } catch (error: any) {
      return error.code === -32602 && error.message === 'Invalid cursor'
    }
  }), { seed: 2, numRuns: 1000 })
  t.pass()
})
