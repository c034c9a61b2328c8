// 2026-07-28: a call that has to ask ends with its questions, and runs again with the answers. Everything over the engine alone.

import t from 'tap'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { z } from 'zod'
import { createLayer, elicit, inputRequired, listRoots, principal } from '../../lib/layer/index.js'
import type { AppLayer, Context, Middleware } from '../../lib/layer/index.js'
import type { ProtocolOptions } from '../../lib/protocol/server.js'
import { ProtocolServer } from '../../lib/protocol/server.js'
import { ENV, request } from '../kit.js'
import { settled } from '../protocol/connection.js'
import { createAsking, prompt, said, textOf } from './layer.js'

const KEY = 'k'.repeat(32)
const ALL = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }
const REFUSED = { code: -32602, message: 'Invalid or expired requestState', data: { reason: 'invalid_request_state' } }
const alice = principal({ id: 'alice' })

interface Asked { id?: number, who?: typeof alice, capabilities?: Record<string, unknown>, method?: string, signal?: AbortSignal }

/** A server, and a client that calls it. */
function serverOf (layer: AppLayer, options: ProtocolOptions = {}) {
  const server = new ProtocolServer(layer, { requestState: { keys: [KEY] }, ...options })
  let id = 0

  async function send (method: string, params: Record<string, unknown>, { who = alice, capabilities = ALL, signal }: Asked = {}): Promise<any> {
    const meta = { ...ENV, 'io.modelcontextprotocol/clientCapabilities': capabilities }
    const session = server.createSession({ register: false })
    const reply = await session.handle(request(method, { ...params, _meta: meta }, ++id), { principal: who, signal })
    return reply === undefined ? undefined : JSON.parse(JSON.stringify(reply))
  }

  async function call (name: string, args: Record<string, unknown> = {}, round: Record<string, unknown> = {}, asked: Asked = {}): Promise<any> {
    const { result, error } = await send('tools/call', { name, arguments: args, ...round }, asked)
    return error ?? result
  }
  return { server, send, call }
}

function accept (content: Record<string, unknown>): object {
  return { action: 'accept', content }
}

/** The answers to all that was asked, made from the parameters of each question. */
function answers (result: any, give: (params: any, method: string) => unknown): { inputResponses: Record<string, unknown>, requestState: string } {
  const { inputRequests, requestState } = result
  return { requestState, inputResponses: Object.fromEntries(Object.entries(inputRequests as Record<string, any>).map(([key, { method, params }]) => [key, give(params, method)])) }
}

t.test('RQ-01 the first round asks, under a key and with a sealed state', async (t) => {
  const { layer, runs } = createAsking()
  const { call } = serverOf(layer)
  const { requestState, ...result } = await call('name')
  const [key] = Object.keys(result.inputRequests)
  t.match(key, /^elicitation-[\w-]{8}$/)
  t.same(result, {
    resultType: 'input_required',
    inputRequests: {
      [key!]: {
        method: 'elicitation/create',
        params: {
          message: 'What is your name?',
          requestedSchema: {
            type: 'object',
            properties: { name: { type: 'string', minLength: 2 }, loud: { type: 'boolean', default: false } },
            required: ['name']
          }
        }
      }
    },
    _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'asking', version: '1.0.0' } }
  })
  t.match(requestState, /^v1\./)
  t.notMatch(requestState, /name/)
  t.equal(runs['name'], 1)
})

t.test('RQ-02 the retry runs the handler again, with the answer', async (t) => {
  const { layer, runs } = createAsking()
  const { call } = serverOf(layer)
  const first = await call('name')
  const done = await call('name', {}, answers(first, () => accept({ name: 'Ada', loud: true, more: 'of the client' })))
  t.equal(textOf(done), 'Hello ADA')
  t.equal(done.resultType, 'complete')
  t.equal(done.requestState, undefined)
  t.equal(runs['name'], 2)
  for (const action of ['decline', 'cancel']) t.equal(textOf(await call('name', {}, answers(first, () => ({ action })))), `You said ${action}`)
})

t.test('questions that are asked together go out together, and are answered one by one if need be', async (t) => {
  const { layer } = createAsking()
  const { call } = serverOf(layer)
  const first = await call('both')
  t.same(Object.keys(first.inputRequests), ['name', 'colour'])
  t.same(first.inputRequests.colour.params.requestedSchema, { type: 'object', properties: { colour: { type: 'string', enum: ['red', 'blue'] } }, required: ['colour'] })

  const second = await call('both', {}, { requestState: first.requestState, inputResponses: { name: accept({ name: 'Ada' }) } })
  t.same(Object.keys(second.inputRequests), ['colour'], 'what was answered is not asked again')
  const done = await call('both', {}, { requestState: second.requestState, inputResponses: { colour: accept({ colour: 'red' }) } })
  t.equal(textOf(done), '{"action":"accept","content":{"name":"Ada"}} {"action":"accept","content":{"colour":"red"}}')

  const kinds = await call('everything')
  t.strictSame(new Set(Object.values<any>(kinds.inputRequests).map(({ method }) => method)), new Set(['elicitation/create', 'roots/list', 'sampling/createMessage']))
  t.equal(textOf(await call('everything', {}, answers(kinds, (_params, method) => ({
    'elicitation/create': accept({ sure: true }),
    'sampling/createMessage': { role: 'assistant', content: { type: 'text', text: 'Hi' }, model: 'm' },
    'roots/list': { roots: [{ uri: 'file:///a' }] }
  })[method]))), 'accept m 1')
})

t.test('one question after the other: two rounds, each with a state of its own', async (t) => {
  const { layer, runs } = createAsking()
  const { call } = serverOf(layer)
  const args = { what: 'disk' }
  const first = await call('twice', args)
  const second = await call('twice', args, answers(first, () => accept({ sure: true })))
  t.equal(Object.values<any>(second.inputRequests)[0].params.message, 'Really delete disk?')
  t.not(second.requestState, first.requestState)
  t.equal(textOf(await call('twice', args, answers(second, () => accept({ sure: true })))), 'Deleted disk')
  t.equal(runs['twice'], 3)
  t.equal(textOf(await call('twice', args, answers(first, () => accept({ sure: false })))), 'Kept', 'an earlier round may be taken another way')
})

t.test('prompts and resources ask as tools do', async (t) => {
  const { layer } = createAsking()
  const { send } = serverOf(layer)
  const brief = { name: 'brief', arguments: { topic: 'tea' } }
  const { result: asked } = await send('prompts/get', brief)
  t.equal(asked.resultType, 'input_required')
  const { result: told } = await send('prompts/get', { ...brief, ...answers(asked, () => accept({ detail: 'how it is made' })) })
  t.equal(textOf(told), 'Write about tea: how it is made')

  const { result: which } = await send('resources/read', { uri: 'ask://note' })
  t.same([which.resultType, which.ttlMs], ['input_required', undefined])
  const { result: note } = await send('resources/read', { uri: 'ask://note', ...answers(which, () => accept({ id: 7 })) })
  t.equal(textOf(note), 'Note 7')
  t.match((await send('resources/read', { uri: 'ask://note', ...answers(asked, () => accept({ id: 7 })) })).error, REFUSED, 'a state of one method is none of another')
})

t.test('an answer that is missing, malformed or under another key is asked for again', async (t) => {
  const { layer, runs } = createAsking()
  const { call } = serverOf(layer)
  let round = await call('name')
  const [key] = Object.keys(round.inputRequests) as [string]
  const bad: unknown[] = [
    undefined, 12345, 'text', null, [], {}, { action: 'maybe' }, accept({}), { action: 'accept' }, accept({ name: 1 }), accept({ name: 'A' }),
    { action: 'accept', content: [] }
  ]
  for (const response of bad) {
    const { requestState } = round
    const again = await call('name', {}, { requestState, inputResponses: { ...(response !== undefined && { [key]: response }), other: accept({ name: 'Eve' }) } })
    t.same(again.inputRequests, round.inputRequests, JSON.stringify(response))
    t.not(again.requestState, requestState)
  }
  round = await call('name', {}, { requestState: round.requestState })
  t.equal(round.resultType, 'input_required', 'no answers at all')
  t.equal(textOf(await call('name', {}, { requestState: round.requestState, inputResponses: { [key]: accept({ name: 'Ada' }), toString: 1 } })), 'Hello Ada')
  t.equal(runs['name'], bad.length + 3)

  for (const inputResponses of [null, 'x', [], 1]) {
    t.match(await call('name', {}, { inputResponses }), { code: -32602, message: 'inputResponses must be an object' })
  }
  t.equal(runs['name'], bad.length + 3, 'the handler does not run for what is no map')
})

t.test('an answer counts for the question that was asked: another one is asked anew', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  let files = 3
  layer.tool('clean', {}, async (_args, ctx) => {
    const { action } = await ctx.elicit(`Delete ${files} files?`, {}, { key: 'confirm' })
    return said(`${action} ${files}`)
  })
  const { call } = serverOf(layer)
  const first = await call('clean')
  files = 4
  const second = await call('clean', {}, answers(first, () => ({ action: 'accept' })))
  t.equal(second.inputRequests.confirm.params.message, 'Delete 4 files?', 'nobody said yes to this')
  t.equal(textOf(await call('clean', {}, answers(second, () => ({ action: 'accept' })))), 'accept 4')

  files = 5
  const third = await call('clean', {}, answers(second, () => ({ action: 'accept' })))
  t.equal(third.resultType, 'input_required', 'also when an earlier state comes again')
})

t.test('a question under a key of its own may be answered before it is asked; one without may not', async (t) => {
  const { layer } = createAsking()
  const { call } = serverOf(layer)
  t.equal(textOf(await call('both', {}, { inputResponses: { name: { action: 'decline' }, colour: { action: 'cancel' } } })), '{"action":"decline"} {"action":"cancel"}')
  const first = await call('name')
  t.equal((await call('name', {}, { inputResponses: { [Object.keys(first.inputRequests)[0]!]: accept({ name: 'Ada' }) } })).resultType, 'input_required')
})

t.test('equal questions of one run are kept apart, in their order', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('dice', {}, async (_args, ctx) => {
    const ask = () => ctx.elicit('Roll the dice', { eyes: z.int() })
    const first = await Promise.all([ask(), ask()])
    const last = await ask()
    return said([...first, last].map(({ content }) => content?.eyes).join())
  })
  const { call } = serverOf(layer)
  const first = await call('dice')
  const keys = Object.keys(first.inputRequests)
  t.equal(keys.length, 2)
  t.equal(keys[1], `${keys[0]}#2`)
  const second = await call('dice', {}, { requestState: first.requestState, inputResponses: { [keys[0]!]: accept({ eyes: 1 }), [keys[1]!]: accept({ eyes: 2 }) } })
  t.same(Object.keys(second.inputRequests), [`${keys[0]}#3`])
  t.equal(textOf(await call('dice', {}, answers(second, () => accept({ eyes: 3 })))), '1,2,3')
})

t.test('declared questions are answered before the handler runs, once', async (t) => {
  const { layer, runs } = createAsking()
  const { call } = serverOf(layer)
  const args = { file: 'a.txt' }
  const first = await call('declared', args)
  t.same(Object.keys(first.inputRequests), ['confirm', 'roots'])
  t.equal(first.inputRequests.confirm.params.message, 'Delete a.txt?')
  t.equal(runs['declared'], undefined)
  const give = (_params: unknown, method: string) => method === 'roots/list' ? { roots: [{ uri: 'file:///home' }] } : accept({ sure: true })
  t.equal(textOf(await call('declared', args, answers(first, give))), 'Deleted a.txt of file:///home')
  t.equal(runs['declared'], 1)
  t.match(await call('declared', { file: 1 }), { isError: true }, 'bad arguments are refused before anything is asked')
})

t.test('a handler may state its rounds itself, and gets its own state back', async (t) => {
  const { layer, runs } = createAsking()
  const { call } = serverOf(layer)
  const first = await call('explicit')
  t.same(Object.keys(first.inputRequests), ['step1'])
  t.notMatch(first.requestState, /step/)
  const again = await call('explicit', {}, { requestState: first.requestState, inputResponses: { step9: accept({ value: 'x' }) } })
  t.same(again.inputRequests, first.inputRequests)
  const second = await call('explicit', {}, answers(again, () => accept({ value: 'one' })))
  t.same(Object.keys(second.inputRequests), ['step2'])
  t.equal(textOf(await call('explicit', {}, answers(second, () => accept({ value: 'two' })))), '[{"action":"accept","content":{"value":"one"}},{"action":"accept","content":{"value":"two"}}]')
  t.equal(runs['explicit'], 4)
})

t.test('explicit: a state without questions, both ways of asking in one handler, and only what was declared', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('later', {}, (_args, ctx) => ctx.requestState === 'later' ? said('now') : inputRequired({ state: 'later' }))
  layer.tool('mixed', {}, async (_args, ctx) => {
    const { action } = await ctx.elicit('First?', {}, { key: 'first' })
    if (ctx.inputResponses['second'] === undefined || ctx.requestState !== action) return inputRequired({ requests: { second: listRoots() }, state: action })
    return said(`${action} ${ctx.inputResponses['second'].roots.length}`)
  })
  layer.tool('two', {}, (_args, ctx) => Object.keys(ctx.inputResponses).length > 0
    ? said(Object.keys(ctx.inputResponses).join())
    : inputRequired({ requests: { form: elicit('?', {}), roots: listRoots() } }))
  t.throws(() => inputRequired({}), /needs requests, state, or both/)
  const { call } = serverOf(layer)

  const { requestState, ...later } = await call('later')
  t.same(later.inputRequests, undefined)
  t.equal(textOf(await call('later', {}, { requestState })), 'now')

  const first = await call('mixed')
  const second = await call('mixed', {}, answers(first, () => ({ action: 'decline' })))
  t.same(Object.keys(second.inputRequests), ['second'])
  t.equal(textOf(await call('mixed', {}, answers(second, () => ({ roots: [] })))), 'decline 0')

  t.same(Object.keys((await call('two', {}, {}, { capabilities: { roots: {} } })).inputRequests), ['roots'])
  t.match(await call('two', {}, {}, { capabilities: { sampling: {} } }), { code: -32021, data: { requiredCapabilities: { elicitation: {}, roots: {} } } })
})

t.test('only what the client declared is asked for', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const asks: Record<string, (ctx: Context) => Promise<unknown>> = {
    form: (ctx) => ctx.elicit('?', {}),
    url: (ctx) => ctx.elicitUrl('?', 'https://example.com'),
    sample: (ctx) => ctx.sample(prompt('?')),
    tools: (ctx) => ctx.sample({ ...prompt('?'), tools: [] }),
    choice: (ctx) => ctx.sample({ ...prompt('?'), toolChoice: { mode: 'none' } }),
    context: (ctx) => ctx.sample({ ...prompt('?'), includeContext: 'allServers' }),
    none: (ctx) => ctx.sample({ ...prompt('?'), includeContext: 'none' }),
    roots: (ctx) => ctx.listRoots()
  }
  for (const [name, ask] of Object.entries(asks)) layer.tool(name, {}, async (_args, ctx) => { await ask(ctx) })
  const { call } = serverOf(layer)
  const yes: [string, object][] = [
    ['form', { elicitation: {} }], ['form', { elicitation: { form: {} } }], ['form', { elicitation: { form: {}, url: {} } }], ['url', { elicitation: { url: {} } }],
    ['sample', { sampling: {} }], ['none', { sampling: {} }], ['tools', { sampling: { tools: {} } }], ['choice', { sampling: { tools: {} } }],
    ['context', { sampling: { context: {} } }], ['roots', { roots: {} }], ['roots', { roots: { listChanged: true } }]
  ]
  for (const [name, capabilities] of yes) t.equal((await call(name, {}, {}, { capabilities: capabilities as any })).resultType, 'input_required', `${name} ${JSON.stringify(capabilities)}`)
  const no: [string, object, object][] = [
    ['form', {}, { elicitation: {} }], ['form', { elicitation: { url: {} } }, { elicitation: {} }], ['form', { elicitation: true }, { elicitation: {} }],
    ['url', { elicitation: {} }, { elicitation: { url: {} } }], ['url', { elicitation: { form: {} } }, { elicitation: { url: {} } }],
    ['sample', { elicitation: {} }, { sampling: {} }], ['tools', { sampling: {} }, { sampling: { tools: {} } }], ['choice', { sampling: {} }, { sampling: { tools: {} } }],
    ['context', { sampling: {} }, { sampling: { context: {} } }], ['roots', {}, { roots: {} }]
  ]
  for (const [name, capabilities, requiredCapabilities] of no) {
    t.match(await call(name, {}, {}, { capabilities: capabilities as any }), { code: -32021, data: { requiredCapabilities } }, `${name} ${JSON.stringify(capabilities)}`)
  }
})

t.test('a call asks eight times at most', async (t) => {
  const { layer } = createAsking()
  layer.tool('endless', {}, (_args, ctx) => inputRequired({ state: Number(ctx.requestState ?? 0) + 1 }))
  layer.tool('curious', {}, async (_args, ctx) => {
    for (let n = 1; ; n++) await ctx.elicit(`Question ${n}`, {})
  })
  const { call } = serverOf(layer)
  for (const name of ['name', 'endless', 'curious']) {
    let result = await call(name)
    for (let round = 1; round < 8; round++) {
      result = await call(name, {}, { requestState: result.requestState, inputResponses: answers({ inputRequests: {}, ...result }, () => name === 'curious' ? accept({}) : 12345).inputResponses })
      t.equal(result.resultType, 'input_required', `${name} ${round}`)
    }
    const end = await call(name, {}, { requestState: result.requestState, inputResponses: answers({ inputRequests: {}, ...result }, () => name === 'curious' ? accept({}) : 12345).inputResponses })
    t.match(end, { code: -32603, message: 'The call asked more than 8 times' })
  }
})

t.test('RQ-04 RQ-06 RQ-07 a state of another call, another caller or another time is refused, and the handler does not run', async (t) => {
  const { layer, runs } = createAsking()
  let now = Date.now()
  const { call, send } = serverOf(layer, { requestState: { keys: [KEY], now: () => now } })
  const args = { what: 'disk' }
  const good = answers(await call('twice', args), () => accept({ sure: false }))
  const bob = principal({ id: 'bob' })
  t.same(await call('twice', { what: 'tape' }, good), REFUSED)
  t.same(await call('twice', { ...args, more: 1 }, good), REFUSED)
  t.same(await call('name', args, good), REFUSED)
  t.same(await call('unknown', args, good), REFUSED)
  t.same((await send('prompts/get', { name: 'twice', arguments: args, ...good })).error, REFUSED)
  t.same(await call('twice', args, good, { who: bob }), REFUSED)
  t.same(await call('twice', args, good, { who: principal({ id: 'alice', identity: 'https://issuer alice' }) }), REFUSED)
  for (const requestState of ['', 'v1.', 'x', 1, {}, [good.requestState], `${good.requestState}-TAMPERED`]) t.same(await call('twice', args, { ...good, requestState }), REFUSED)
  now += 600_000
  t.same(await call('twice', args, good), REFUSED)
  t.equal(runs['twice'], 1)
  now -= 1
  t.equal(textOf(await call('twice', args, good)), 'Kept')
  t.equal((await call('twice', args, { requestState: null, inputResponses: {} })).resultType, 'input_required', 'null is none')
})

t.test('RQ-09 another process with the same keys goes on where the first one was; the ring may have turned meanwhile', async (t) => {
  const NEW = 'n'.repeat(32)
  const [a, b, c] = [createAsking(), createAsking(), createAsking()]
  const first = serverOf(a.layer)
  const second = serverOf(b.layer, { requestState: { keys: [NEW, KEY] } })
  const third = serverOf(c.layer, { requestState: { keys: [NEW] } })
  const args = { what: 'disk' }
  const one = answers(await first.call('twice', args), () => accept({ sure: true }))
  t.same(await third.call('twice', args, one), REFUSED)
  const two = answers(await second.call('twice', args, one), () => accept({ sure: true }))
  t.equal(textOf(await third.call('twice', args, two)), 'Deleted disk')
  t.same(await first.call('twice', args, two), REFUSED)
  t.same([a.runs['twice'], b.runs['twice'], c.runs['twice']], [1, 1, 1])
})

t.test('RQ-11 where nothing is asked a requestState is nobody\'s business', async (t) => {
  const { layer } = createAsking()
  const { send } = serverOf(layer)
  for (const method of ['tools/list', 'prompts/list', 'resources/list', 'server/discover']) {
    const { result, error } = await send(method, { requestState: 'whatever', inputResponses: 1 })
    t.equal(error, undefined, method)
    t.equal(result.resultType, 'complete')
  }
})

t.test('a completion cannot ask: it has no way to answer with questions', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const seen: unknown[] = []
  layer.resourceTemplate('x://{id}', {
    complete: {
      id: async (_value, ctx) => {
        try {
          await ctx.elicit('?', {})
        } catch (error) {
          seen.push(error)
        }
        return ['offered']
      }
    }
  }, () => 'x')
  const { send } = serverOf(layer)
  const { result } = await send('completion/complete', { ref: { type: 'ref/resource', uri: 'x://{id}' }, argument: { name: 'id', value: '' } })
  t.same([result.resultType, result.completion.values], ['complete', ['offered']])
  t.match(seen, [{ code: -32600 }])
})

t.test('a handler cannot hold the questions back, whatever it makes of its suspension', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const seen: string[] = []
  const name = (error: any): string => `${error.name}`
  layer.tool('swallows', {}, async (_args, ctx) => {
    await ctx.elicit('?', {}).catch((error) => { seen.push(name(error)) })
    return said('never mind')
  })
  layer.tool('translates', {}, async (_args, ctx) => {
    try {
      await ctx.elicit('?', {})
      return said('answered')
    } catch {
      throw new Error('something else')
    }
  })
  layer.tool('stays', {}, async (_args, ctx) => {
    await ctx.elicit('?', {}).catch(() => new Promise(() => {}))
  })
  layer.tool('insists', {}, async (_args, ctx) => {
    for (let n = 0; n < 3; n++) await ctx.elicit('?', {}).catch((error) => { seen.push(name(error)) })
    throw new Error('still here')
  })
  const errors: unknown[] = []
  const log = { debug () {}, info () {}, warn () {}, error: (...args: unknown[]) => { errors.push(args) } }
  const { call } = serverOf(layer, { log })
  for (const tool of ['swallows', 'translates', 'stays', 'insists']) {
    const asked = await call(tool)
    t.equal(asked.resultType, 'input_required', tool)
    t.equal(Object.keys(asked.inputRequests).length, 1)
  }
  await settled()
  t.same(seen, ['SuspendedError', 'SuspendedError', 'SuspendedError', 'SuspendedError'], 'and asking on is no way out')
  t.same(errors, [], 'what a suspended handler throws is not a failure of the call')
  t.equal(textOf(await call('translates', {}, answers(await call('translates'), () => ({ action: 'accept' })))), 'answered')
})

t.test('a question that comes after the others have gone out waits for the next round', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const late: string[] = []
  layer.tool('late', {}, async (_args, ctx) => {
    const second = async () => {
      await new Promise((resolve) => { setTimeout(resolve, 5) })
      return ctx.elicit('Second?', {}, { key: 'second' })
    }
    const [a, b] = await Promise.all([ctx.elicit('First?', {}, { key: 'first' }), second().catch((error) => { late.push(error.name); throw error })])
    return said(`${a.action} ${b.action}`)
  })
  const { call } = serverOf(layer)
  const first = await call('late')
  t.same(Object.keys(first.inputRequests), ['first'])
  const second = await call('late', {}, answers(first, () => ({ action: 'accept' })))
  t.same(Object.keys(second.inputRequests), ['second'])
  t.equal(textOf(await call('late', {}, answers(second, () => ({ action: 'decline' })))), 'accept decline')
  t.same(late, ['SuspendedError', 'SuspendedError'])
})

t.test('a suspended run is told so: its signal is aborted, and what it says is not sent', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const contexts: Context[] = []
  layer.tool('busy', {}, async (_args, ctx) => {
    contexts.push(ctx)
    await ctx.elicit('?', {}, { key: 'q' })
    return said(String(ctx.signal.aborted))
  })
  const { server, call } = serverOf(layer)
  const sent: unknown[] = []
  const session = server.createSession({ register: false })
  const meta = { ...ENV, 'io.modelcontextprotocol/clientCapabilities': ALL, 'io.modelcontextprotocol/logLevel': 'debug', progressToken: 1 }
  await session.handle(request('tools/call', { name: 'busy', _meta: meta }), { sink: (message) => { sent.push(message) } })
  const [ctx] = contexts as [Context]
  t.equal(ctx.signal.aborted, true)
  t.equal((ctx.signal.reason as Error).name, 'SuspendedError')
  await ctx.progress(1)
  await ctx.notify.log('info', 'still here')
  t.same(sent, [])
  await t.rejects(ctx.elicit('more?', {}), { name: 'SuspendedError' })
  t.equal(textOf(await call('busy', {}, { inputResponses: { q: { action: 'accept' } } })), 'false')
})

t.test('what was asked when a call ended otherwise is not waited for', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const outcomes: string[] = []
  const note = (what: string) => (error: any) => { outcomes.push(`${what}: ${error.message}`) }
  const contexts: Context[] = []
  layer.tool('returns', {}, (_args, ctx) => {
    contexts.push(ctx)
    ctx.elicit('?', {}).catch(note('returns'))
    void ctx.elicit('and?', {})
    return said('done')
  })
  layer.tool('throws', {}, (_args, ctx) => {
    ctx.elicit('?', {}).catch(note('throws'))
    throw new Error('boom')
  })
  layer.tool('half', {}, async (_args, ctx) => {
    await Promise.all([ctx.elicit('?', {}).catch((error) => { note('half')(error); throw error }), ctx.sample(prompt('?'))])
  })
  const { call } = serverOf(layer)
  t.equal(textOf(await call('returns')), 'done')
  t.match(await call('throws'), { isError: true })
  t.match(await call('half', {}, {}, { capabilities: { elicitation: {} } }), { code: -32021, data: { requiredCapabilities: { sampling: {} } } })
  await settled()
  t.same(outcomes, ['returns: The call has ended', 'throws: The call has ended', 'half: The call has ended'])
  await t.rejects(contexts[0]!.elicit('now?', {}), { message: 'The call has ended' })
})

t.test('a client that leaves, or a middleware that gives up, ends the wait of a handler too', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const ends: string[] = []
  const gone = new AbortController()
  layer.tool('waits', {}, async (_args, ctx) => {
    const question = ctx.elicit('?', {})
    gone.abort()
    await question.catch((error) => { ends.push(error.message); throw error })
  })
  const { send } = serverOf(layer)
  t.equal(await send('tools/call', { name: 'waits' }, { signal: gone.signal }), undefined)
  await settled()
  t.same(ends, ['The client has gone'])
})

t.test('another run of the same call asks under the same keys', async (t) => {
  const again: Middleware = async (_info, next) => {
    try {
      return await next()
    } catch (error) {
      if ((error as Error).message !== 'broken') throw error
      return next()
    }
  }
  const layer = createLayer({ name: 'x', version: '1', middleware: [again] })
  let broken = 0
  const run = async (ctx: Context): Promise<string> => {
    const { action } = await ctx.elicit('?', {}, { key: 'q' })
    const { action: unnamed } = await ctx.elicit('And?', {})
    if (broken++ === 0) throw new Error('broken')
    return `${action} ${unnamed}`
  }
  layer.tool('shaky', {}, async (_args, ctx) => said(await run(ctx)))
  layer.prompt('shaky', {}, async (_args, ctx) => run(ctx))
  layer.resource('x://shaky', {}, async (_uri, ctx) => run(ctx))
  const { send } = serverOf(layer)
  for (const [method, params] of [['tools/call', { name: 'shaky' }], ['prompts/get', { name: 'shaky' }], ['resources/read', { uri: 'x://shaky' }]] as const) {
    const { result: first } = await send(method, params)
    const { result: second } = await send(method, { ...params, ...answers(first, () => ({ action: 'accept' })) })
    broken = 0
    const { result: done } = await send(method, { ...params, ...answers(second, () => ({ action: 'decline' })) })
    t.equal(textOf(done), 'accept decline', method)
    t.equal(broken, 2)
  }
})

t.test('a fresh answer goes before a recorded one that is no longer good', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  let least = 1
  layer.tool('count', {}, async (_args, ctx) => {
    const { content: a } = await ctx.elicit('How many?', z.object({ n: z.int() }).refine(({ n }) => n >= least), { key: 'a' })
    const { action } = await ctx.elicit('Sure?', {}, { key: 'b' })
    return said(`${a?.n} ${action}`)
  })
  const { call } = serverOf(layer)
  const first = await call('count')
  const second = await call('count', {}, answers(first, () => accept({ n: 1 })))
  t.same(Object.keys(second.inputRequests), ['b'])
  least = 2
  const third = await call('count', {}, answers(second, () => accept({})))
  t.same(Object.keys(third.inputRequests), ['a'], 'the recorded answer has become a bad one')
  const fourth = await call('count', {}, answers(third, () => accept({ n: 2 })))
  const end = fourth.resultType === 'input_required' ? await call('count', {}, answers(fourth, () => accept({}))) : fourth
  t.equal(textOf(end), '2 accept')
})

t.test('a URL question is the same in every run: 2026 knows no elicitationId', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('page', {}, async (_args, ctx) => said((await ctx.elicitUrl('Sign in', 'https://example.com', { elicitationId: String(Math.random()) })).action))
  const { call } = serverOf(layer)
  const first = await call('page')
  t.same(Object.values(first.inputRequests), [{ method: 'elicitation/create', params: { mode: 'url', message: 'Sign in', url: 'https://example.com' } }])
  t.equal(textOf(await call('page', {}, answers(first, () => ({ action: 'accept' })))), 'accept')
})

t.test('arguments that are nested beyond reason are refused or served, and break nothing', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('deep', { input: { type: 'object', properties: { value: {} } } }, async (_args, ctx) => said((await ctx.elicit('?', {}, { key: 'q' })).action))
  const errors: unknown[] = []
  const log = { debug () {}, info () {}, warn () {}, error: (...args: unknown[]) => { errors.push(args) } }
  const { call } = serverOf(layer, { log })
  const value = JSON.parse('['.repeat(50_000) + ']'.repeat(50_000))
  const shallow = await call('deep', { value: 1 })
  t.same(await call('deep', { value }, answers(shallow, () => ({ action: 'accept' }))), REFUSED)
  const first = await call('deep', { value })
  t.equal(textOf(await call('deep', { value }, answers(first, () => ({ action: 'accept' })))), 'accept')
  t.same(errors, [])
})

t.test('100,000 mutated states have one answer, and the handler never runs', async (t) => {
  // In a thread of its own: the hooks that a test runner puts on every promise take longer than all the rest.
  const [{ refused, others, runs, stillGood }] = await once(new Worker(new URL('fuzz.js', import.meta.url)), 'message')
  t.same(others, [])
  t.ok(refused > 99_000, `${refused} were refused`)
  t.equal(runs, 1)
  t.equal(stillGood, true)
})
