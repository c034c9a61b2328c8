// The handshake era: a question is a request of the server, and its answer a message of the same session. Nothing of it may hang.

import t from 'tap'
import type { Test } from 'tap'
import { getEventListeners } from 'node:events'
import { z } from 'zod'
import { createLayer, inputRequired } from '../../lib/layer/index.js'
import type { AppLayer, Context } from '../../lib/layer/index.js'
import type { ProtocolOptions } from '../../lib/protocol/server.js'
import type { SessionOptions } from '../../lib/protocol/session.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { onRedis, testBackplane } from '../backplane/shared.js'
import { Connection, gate, H, JSON_ONLY, serve } from '../field/wire.js'
import type { Service, Setting, Wire } from '../field/wire.js'
import { initialize, INITIALIZED, request } from '../kit.js'
import { attach, connect, settled } from '../protocol/connection.js'
import { createAsking, prompt, said, textOf } from './layer.js'

const ALL = { elicitation: { form: {}, url: {} }, sampling: { context: {}, tools: {} }, roots: {} }
const NO_CHANNEL = (method: string) => `Cannot send '${method}': this transport context has no back-channel for server-initiated requests.`
const TWO = { tokens: ['alice-token:analyst:alice', 'bob-token:analyst:bob'] }
const ALICE = { authorization: 'Bearer alice-token' }
const BOB = { authorization: 'Bearer bob-token' }

type Answer = (method: string, params: any) => unknown

/** A connection over the engine alone, to a client that answers. An answer that is an Error is sent as one. */
async function talk (layer: AppLayer, answer: Answer = () => undefined, { version = '2025-11-25', capabilities = ALL as object, options = {} as ProtocolOptions, session = {} as SessionOptions } = {}) {
  const asked: any[] = []
  const connection = connect(layer, options, {
    ...session,
    send: (message: any) => {
      if (message.id === undefined) return
      asked.push(message)
      const result = answer(message.method, message.params)
      if (result === undefined) return
      const response = result instanceof Error ? { error: { code: -1, message: result.message } } : { result }
      setImmediate(() => { void connection.handle({ jsonrpc: '2.0', id: message.id, ...response }) })
    }
  })
  await connection.handle(initialize(version, 'init', capabilities))
  await connection.handle(INITIALIZED)
  let id = 0
  return {
    ...connection,
    asked,
    async send (method: string, params: Record<string, unknown>): Promise<any> {
      const { result, error } = await connection.handle(request(method, params, ++id))
      return error ?? result
    },
    call (name: string, args: Record<string, unknown> = {}): Promise<any> {
      return this.send('tools/call', { name, arguments: args })
    }
  }
}

/** A session over HTTP that declares everything. */
async function sessionOn (wire: Wire, headers: Record<string, string> = {}, version = '2025-11-25'): Promise<Connection> {
  const answer = await wire.post(initialize(version, 'init', ALL), headers)
  const session = new Connection(wire, answer.headers['mcp-session-id'] as string, headers)
  await session.post(INITIALIZED)
  return session
}

const response = (id: unknown, result: unknown) => ({ jsonrpc: '2.0', id, result })
const accept = (content: object = {}) => ({ action: 'accept', content })
const calling = (name: string, args: Record<string, unknown> = {}, id: number | string = 7) => request('tools/call', { name, arguments: args }, id)

/** A service whose tool `ask` asks and tells the test of its context and how it ended. */
async function asker (t: Test, options: CloudgMcpOptions = {}, setting: Setting = {}) {
  const layer = createLayer({ name: 'asker', version: '1' })
  const started = gate<Context>()
  const ended = gate<any>()
  layer.tool('ask', {}, async (_args, ctx) => {
    started.open(ctx)
    try {
      const answer = await ctx.elicit('Go on?', { sure: z.boolean() })
      ended.open(answer)
      return said(JSON.stringify(answer))
    } catch (error) {
      ended.open(error)
      throw error
    }
  })
  return { layer, started: started.opened, ended: ended.opened, ...await serveOn(t, layer, options, setting) }
}

async function serveOn (t: Test, layer: AppLayer, options: CloudgMcpOptions = {}, setting: Setting = {}): Promise<{ service: Service }> {
  return { service: await serve(t, { layer, ...options }, setting) }
}

t.test('a question is a request on the stream of its own call, and its answer a message of the session', async (t) => {
  const { layer, runs } = createAsking()
  const { service } = await serveOn(t, layer)
  const session = await sessionOn(service)
  const stream = await session.open(calling('name'))
  t.equal(stream.headers['content-type'], 'text/event-stream')
  const question = await stream.next()
  t.match(question.id, /^ask-[0-9a-f-]{36}$/)
  t.same(question, {
    jsonrpc: '2.0',
    id: question.id,
    method: 'elicitation/create',
    params: {
      message: 'What is your name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string', minLength: 2 }, loud: { type: 'boolean', default: false } }, required: ['name'] }
    }
  })
  const posted = await session.post(response(question.id, accept({ name: 'Ada' })))
  t.same([posted.status, posted.text], [202, ''])
  const reply = await stream.next()
  t.same([reply.id, textOf(reply.result), reply.result.resultType, reply.result.requestState], [7, 'Hello Ada', undefined, undefined])
  t.equal(await stream.next(), undefined)
  t.equal(runs['name'], 1, 'the handler waits, and runs once')
  t.equal((await session.post(response(question.id, accept({ name: 'Eve' })))).status, 202, 'a second answer is taken and ignored')
})

t.test('one handler serves both eras: forms, pages, the model, roots; declared and explicit questions', async (t) => {
  const { layer, runs } = createAsking()
  const client = await talk(layer, (method, params) => {
    if (method === 'roots/list') return { roots: [{ uri: 'file:///home', name: 'home' }] }
    if (method === 'sampling/createMessage') return { role: 'assistant', model: 'm', content: { type: 'text', text: `So ${params.messages[0].content.text}` } }
    if (params.mode === 'url') return { action: 'accept' }
    const [name] = Object.keys(params.requestedSchema.properties) as [string]
    return accept({ [name]: { sure: true, name: 'Ada', colour: 'red', value: params.message, detail: 'all', id: 7 }[name] })
  })
  t.equal(textOf(await client.call('name')), 'Hello Ada')
  t.equal(textOf(await client.call('both')), '{"action":"accept","content":{"name":"Ada"}} {"action":"accept","content":{"colour":"red"}}')
  t.equal(textOf(await client.call('twice', { what: 'disk' })), 'Deleted disk')
  t.equal(textOf(await client.call('page')), 'The page: accept')
  t.equal(textOf(await client.call('model', { question: 'it is' })), 'm: So it is')
  t.equal(textOf(await client.call('roots')), 'home=file:///home')
  t.equal(textOf(await client.call('everything')), 'accept m 1')
  t.equal(textOf(await client.call('declared', { file: 'a' })), 'Deleted a of file:///home')
  t.equal(textOf(await client.call('explicit')), '[{"action":"accept","content":{"value":"Step 1"}},{"action":"accept","content":{"value":"Step 2"}}]')
  t.equal(textOf(await client.send('prompts/get', { name: 'brief', arguments: { topic: 'tea' } })), 'Write about tea: all')
  t.equal(textOf(await client.send('resources/read', { uri: 'ask://note' })), 'Note 7')
  t.same(runs, { name: 1, both: 1, twice: 1, page: 1, model: 1, roots: 1, everything: 1, declared: 1, explicit: 3, brief: 1, note: 1 })
  t.equal(client.session.questions.size, 0)
})

t.test('an answer that says no, is malformed, or is an error', async (t) => {
  const { layer } = createAsking()
  for (const action of ['decline', 'cancel']) {
    t.equal(textOf(await (await talk(layer, () => ({ action }))).call('name')), `You said ${action}`)
  }
  const replies: unknown[] = [null, 1, 'x', [], {}, { action: 'maybe' }, accept({ name: 1 }), accept({ name: 'Ada' })]
  const patient = await talk(layer, () => replies.shift())
  t.equal(textOf(await patient.call('name')), 'Hello Ada', 'as in 2026 it is asked for again')
  t.equal(patient.asked.length, 8)
  t.equal(new Set(patient.asked.map(({ id }) => id)).size, 8)

  const stubborn = await talk(layer, () => accept({}))
  t.same(await stubborn.call('name'), { code: -32603, message: 'The call asked more than 8 times' })
  t.equal(stubborn.asked.length, 8)

  const unable = await talk(layer, () => new Error('the screen is off'))
  t.match(await unable.call('name'), { isError: true, content: [{ text: 'The client could not answer: the screen is off' }], _meta: { 'cloudg/error_code': 'tool_error' } })
  t.match(await unable.send('prompts/get', { name: 'brief', arguments: { topic: 'tea' } }), { code: -32603, message: 'The client could not answer: the screen is off' })
})

t.test('an empty form is a plain question: no content is needed to accept it', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('sure', {}, async (_args, ctx) => said(JSON.stringify(await ctx.elicit('Sure?', {}))))
  for (const reply of [{ action: 'accept' }, { action: 'accept', content: null }, accept()]) {
    t.equal(textOf(await (await talk(layer, () => reply)).call('sure')), '{"action":"accept","content":{}}')
  }
})

t.test('only what was declared, in a revision that knows it, is asked for', async (t) => {
  const { layer } = createAsking()
  layer.tool('context', {}, async (_args, ctx) => said((await ctx.sample({ ...prompt('?'), includeContext: 'thisServer' })).model))
  layer.tool('tools', {}, async (_args, ctx) => said((await ctx.sample({ ...prompt('?'), tools: [] })).model))
  const yes: Answer = (method) => ({
    'roots/list': { roots: [] },
    'sampling/createMessage': { role: 'assistant', model: 'm', content: { type: 'text', text: '' } },
    'elicitation/create': { action: 'decline' }
  })[method]
  const [form, page, model, roots, context, tools] = ['name', 'page', 'model', 'roots', 'context', 'tools']
  const everything = [form, page, model, roots, context, tools]
  const cases: [string, object, (string | undefined)[]][] = [
    ['2024-11-05', ALL, [model, roots, context, tools]],
    ['2025-03-26', { sampling: {}, roots: {}, elicitation: {} }, [model, roots, context]],
    ['2025-06-18', { ...ALL, sampling: {} }, [form, model, roots, context]],
    ['2025-06-18', { elicitation: {} }, [form]],
    ['2025-11-25', ALL, everything],
    ['2025-11-25', { elicitation: {}, sampling: {} }, [form, model]],
    ['2025-11-25', { elicitation: { url: {} }, sampling: { context: {} } }, [page, model, context]],
    ['2025-11-25', {}, []]
  ]
  for (const [version, capabilities, allowed] of cases) {
    const client = await talk(layer, yes, { version, capabilities })
    for (const name of everything as string[]) {
      const result = await client.call(name, name === 'model' ? { question: '?' } : {})
      const what = `${version} ${JSON.stringify(capabilities)} ${name}`
      if (allowed.includes(name)) t.ok(textOf(result) !== undefined && !result.isError, what)
      else t.match(result, { code: -32600, message: /^Cannot send '[a-zA-Z/]+': the client did not declare the capability (elicitation|sampling|roots)$/ }, what)
    }
    t.equal(client.asked.length, allowed.length, `${version}: nothing else was asked`)
  }
})

t.test('a question is put in the words of the revision', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('page', { input: { id: z.string().optional() } }, async ({ id }, ctx) => said((await ctx.elicitUrl('Sign in', 'https://example.com', id === undefined ? {} : { elicitationId: id })).action))
  const titled = { type: 'object', properties: { size: { type: 'string', description: 'How big', oneOf: [{ const: 's', title: 'Small' }, { const: 'l', title: 'Large' }] }, n: { type: 'integer' } } } as const
  layer.tool('size', {}, async (_args, ctx) => said(JSON.stringify((await ctx.elicit('Which?', titled)).content)))
  const now = await talk(layer, (_method, params) => params.mode === 'url' ? { action: 'accept' } : accept({ size: 'l' }))
  await now.call('page')
  await now.call('page')
  await now.call('page', { id: 'own' })
  const ids = now.asked.map(({ params }) => params.elicitationId)
  t.match(ids, [/^[0-9a-f-]{36}$/, /^[0-9a-f-]{36}$/, 'own'])
  t.not(ids[0], ids[1])
  t.same(now.asked[0].params, { mode: 'url', message: 'Sign in', url: 'https://example.com', elicitationId: ids[0] })
  await now.call('size')
  t.same(now.asked[3].params.requestedSchema.properties, titled.properties)

  const then = await talk(layer, () => accept({ size: 'l' }), { version: '2025-06-18' })
  t.equal(textOf(await then.call('size')), '{"size":"l"}')
  t.same(then.asked[0].params.requestedSchema.properties, {
    size: { type: 'string', description: 'How big', enum: ['s', 'l'], enumNames: ['Small', 'Large'] }, n: { type: 'integer' }
  })
})

t.test('explicit rounds are asked live, with what was declared, eight times at most', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const when = new Date(0)
  layer.tool('state', {}, (_args, ctx) => ctx.requestState === undefined ? inputRequired({ state: { when, none: undefined } }) : said(JSON.stringify([typeof (ctx.requestState as any).when, Object.keys(ctx.requestState as object)])))
  layer.tool('endless', {}, () => inputRequired({ requests: { q: { method: 'roots/list' } } }))
  layer.tool('two', {}, (_args, ctx) => Object.keys(ctx.inputResponses).length > 0
    ? said(Object.keys(ctx.inputResponses).join())
    : inputRequired({ requests: { roots: { method: 'roots/list' }, form: { method: 'elicitation/create', params: { message: '?', requestedSchema: { type: 'object', properties: {} } } } } }))
  const roots: Answer = (method) => method === 'roots/list' ? { roots: [] } : accept()
  const client = await talk(layer, roots)
  t.equal(textOf(await client.call('state')), '["string",["when"]]', 'the state comes back as it would through the client')
  t.match(await client.call('endless'), { code: -32603, message: 'The call asked more than 8 times' })
  t.equal(textOf(await client.call('two')), 'roots,form')
  t.equal(textOf(await (await talk(layer, roots, { capabilities: { elicitation: {} } })).call('two')), 'form')
  t.match(await (await talk(layer, roots, { capabilities: {} })).call('two'), { code: -32600, message: /the client did not declare the capability roots/ })
})

t.test('where no answer could come back, a question is refused at once', async (t) => {
  const { layer } = createAsking()
  const message = NO_CHANNEL('elicitation/create')
  const { service: stateless } = await serveOn(t, layer, { stateless: true })
  for (const headers of [{}, JSON_ONLY]) {
    const answer = await stateless.post(calling('name'), { ...headers, 'mcp-protocol-version': '2025-11-25' })
    t.same([answer.status, answer.reply.error], [200, { code: -32600, message }])
  }
  const { service: json } = await serveOn(t, layer, { responseMode: 'json' })
  const session = await sessionOn(json)
  t.same((await session.post(calling('name'))).json.error, { code: -32600, message })
  const { service: sse } = await serveOn(t, layer)
  const reader = await sessionOn(sse)
  t.same((await reader.post(calling('name'), JSON_ONLY)).json.error, { code: -32600, message }, 'a client that takes no stream')
})

t.test('without a stream of its own a call asks on the stream of the session', async (t) => {
  const { layer } = createAsking()
  const { service } = await serveOn(t, layer, { responseMode: 'json' })
  const session = await sessionOn(service)
  const stream = await session.get()
  const answering = session.post(calling('name'))
  const question = await stream.next()
  t.equal(question.method, 'elicitation/create')
  t.equal((await session.post(response(question.id, accept({ name: 'Ada' })))).status, 202)
  const answer = await answering
  t.match(answer.headers['content-type'], /^application\/json/)
  t.equal(textOf(answer.json.result), 'Hello Ada')
  stream.destroy()
})

t.test('a batch asks as a single call does', async (t) => {
  const { layer } = createAsking()
  const { service } = await serveOn(t, layer)
  const session = await sessionOn(service, {}, '2025-03-26')
  const stream = await session.open([calling('roots', {}, 1), calling('model', { question: '?' }, 2)])
  const asked = [await stream.next(), await stream.next()]
  t.strictSame(new Set(asked.map(({ method }) => method)), new Set(['roots/list', 'sampling/createMessage']))
  const replies = asked.map(({ id, method }) => response(id, method === 'roots/list' ? { roots: [] } : { role: 'assistant', model: 'm', content: { type: 'text', text: 'x' } }))
  t.equal((await session.post(replies)).status, 202, 'and is answered by a batch')
  const results = [await stream.next(), await stream.next()]
  t.strictSame(new Set(results.map(({ id }) => id)), new Set([1, 2]))
})

t.test('a question that is not answered in time is withdrawn, and a late answer changes nothing', async (t) => {
  const { service, ended } = await asker(t, { askTimeout: 30 })
  const session = await sessionOn(service)
  const stream = await session.open(calling('ask'))
  const question = await stream.next()
  t.same(await stream.next(), { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: question.id, reason: 'No longer needed' } })
  const reply = await stream.next()
  t.match(reply.result, { isError: true, content: [{ text: 'The client did not answer within 30 ms' }], _meta: { 'cloudg/error_code': 'timeout' } })
  t.match(await ended, { name: 'TimeoutError' })
  t.equal((await session.post(response(question.id, accept({ sure: true })))).status, 202)
})

t.test('a question may have a time of its own, and one beyond what timers hold is no time at all', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('short', {}, async (_args, ctx) => said((await ctx.elicit('?', {}, { timeout: 10 })).action))
  layer.tool('long', {}, async (_args, ctx) => said((await ctx.elicit('?', {}, { timeout: Infinity })).action))
  const silent = await talk(layer)
  t.match(await silent.call('short'), { isError: true, content: [{ text: 'The client did not answer within 10 ms' }] })
  const slow = await talk(layer, () => accept())
  t.equal(textOf(await slow.call('long')), 'accept')
})

t.test('a call that its client cancels takes its question back', async (t) => {
  const { service, started, ended } = await asker(t)
  const session = await sessionOn(service)
  const stream = await session.open(calling('ask', {}, 'mine'))
  const question = await stream.next()
  const ctx = await started
  await session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'mine', reason: 'never mind' } })
  t.same(await stream.next(), { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: question.id, reason: 'No longer needed' } })
  t.equal(await stream.next(), undefined, 'and is not answered')
  t.match(await ended, { message: 'never mind' })
  t.equal(getEventListeners(ctx.signal, 'abort').length, 0)
  await t.rejects(ctx.elicit('still?', {}), { message: 'never mind' })
})

t.test('a tool that runs out of time takes its question back', async (t) => {
  const layer = createLayer({ name: 'x', version: '1', timeout: 20 })
  layer.tool('ask', {}, async (_args, ctx) => said((await ctx.elicit('?', {})).action))
  const { service } = await serveOn(t, layer)
  const session = await sessionOn(service)
  const stream = await session.open(calling('ask'))
  const question = await stream.next()
  t.match(await stream.next(), { method: 'notifications/cancelled', params: { requestId: question.id } })
  t.match((await stream.next()).result, { isError: true, content: [{ text: 'Tool ask timed out' }] })
})

t.test('a handler that does not wait for its question leaves none behind', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const contexts: Context[] = []
  const outcomes: string[] = []
  layer.tool('hasty', {}, (_args, ctx) => {
    contexts.push(ctx)
    void ctx.elicit('?', {})
    ctx.elicit('and?', {}).catch((error) => { outcomes.push(error.message) })
    return said('done')
  })
  layer.tool('half', {}, async (_args, ctx) => {
    await Promise.all([ctx.elicit('?', {}), Promise.reject(new Error('boom'))])
  })
  const client = await talk(layer)
  t.equal(textOf(await client.call('hasty')), 'done')
  t.match(await client.call('half'), { isError: true })
  t.equal(client.session.questions.size, 0)
  await settled()
  t.same(outcomes, ['The call has ended'])
  await t.rejects(contexts[0]!.elicit('now?', {}), { message: 'The call has ended' })
  t.equal(client.asked.length, 3)

  const { service } = await serveOn(t, layer)
  const stream = await (await sessionOn(service)).open(calling('hasty'))
  const messages = [await stream.next(), await stream.next(), await stream.next(), await stream.next(), await stream.next()]
  t.same(messages.map(({ method, id }) => method ?? id), ['elicitation/create', 'elicitation/create', 'notifications/cancelled', 'notifications/cancelled', 7])
})

t.test('the end of a session ends its questions', async (t) => {
  const { service, ended } = await asker(t)
  const session = await sessionOn(service)
  const stream = await session.open(calling('ask'))
  await stream.next()
  t.equal((await session.delete()).status, 200)
  t.match(await ended, { message: 'The session has ended' })
  while (await stream.next() !== undefined);
  t.equal(await stream.end(), true)
  t.equal((await session.post(response('ask-x', {}))).status, 404)
})

t.test('a client whose connection broke may still answer; one that is gone is asked nothing more', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const first = gate<unknown>()
  const second = gate<unknown>()
  const left = gate()
  layer.tool('two', {}, async (_args, ctx) => {
    first.open(await ctx.elicit('First?', {}))
    await left.opened
    await ctx.elicit('Second?', {}).then(second.open, second.open)
  })
  const { service } = await serveOn(t, layer)
  const gone = gate()
  service.app.server.on('request', (_request, reply) => { reply.on('close', () => { if (!reply.writableFinished) gone.open() }) })
  const session = await sessionOn(service)
  const stream = await session.open(calling('two'))
  const question = await stream.next()
  stream.destroy()
  await gone.opened
  t.equal((await session.post(response(question.id, accept()))).status, 202)
  t.same(await first.opened, accept(), 'a broken connection is no cancellation')
  left.open()
  t.match(await second.opened, { code: -32600, message: NO_CHANNEL('elicitation/create') })
})

t.test('a client whose connection broke is asked on the stream of its session', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const left = gate()
  const answered = gate<unknown>()
  layer.tool('later', {}, async (_args, ctx) => {
    await ctx.notify.log('info', 'here')
    await left.opened
    answered.open(await ctx.elicit('Now?', {}))
  })
  const { service } = await serveOn(t, layer)
  service.app.server.on('request', (_request, reply) => { reply.on('close', () => { if (!reply.writableFinished) left.open() }) })
  const session = await sessionOn(service)
  const standalone = await session.get()
  const stream = await session.open(calling('later'))
  await stream.next()
  stream.destroy()
  const question = await standalone.next()
  t.equal(question.method, 'elicitation/create')
  await session.post(response(question.id, { action: 'decline' }))
  t.same(await answered.opened, { action: 'decline' })
  standalone.destroy()
})

t.test('a server that closes ends its questions, and tells who waits', async (t) => {
  const { service, ended } = await asker(t, { closeGrace: 20 })
  const session = await sessionOn(service)
  const stream = await session.open(calling('ask'))
  const question = await stream.next()
  await service.app.close()
  t.match(await ended, { message: 'The server is shutting down' })
  const rest: any[] = []
  for (let message = await stream.next(); message !== undefined; message = await stream.next()) rest.push(message)
  t.match(rest, [{ method: 'notifications/cancelled', params: { requestId: question.id } }, { id: 7, error: { code: -32603, message: 'The server is shutting down' } }])
})

t.test('an answer settles a question of its own session alone', async (t) => {
  const { service, ended } = await asker(t, { auth: TWO })
  const alice = await sessionOn(service, ALICE)
  const other = await sessionOn(service, ALICE)
  const bob = await sessionOn(service, BOB)
  const stream = await alice.open(calling('ask'))
  const { id } = await stream.next()
  t.equal((await other.post(response(id, accept({ sure: false })))).status, 202)
  t.equal((await bob.post(response(id, accept({ sure: false })))).status, 202)
  const foreign = await service.post(response(id, accept({ sure: false })), { ...BOB, 'mcp-session-id': alice.id })
  t.equal(foreign.status, 404)
  for (const guess of ['ask-', 1, null, [id], { id }]) await alice.post({ ...response(id, accept({ sure: false })), id: guess })
  await alice.post(response(id, accept({ sure: true })))
  t.same(await ended, accept({ sure: true }))
  t.equal(textOf((await stream.next()).result), '{"action":"accept","content":{"sure":true}}')
})

t.test('an answer that arrives at another process finds its question; so does a cancellation', async (t) => {
  const backplane = testBackplane()
  const { layer, runs } = createAsking()
  const a = await serve(t, { layer, backplane, auth: TWO })
  const b = await serve(t, { layer: createAsking().layer, backplane, auth: TWO })
  const session = await sessionOn(a, ALICE)
  const elsewhere = new Connection(b, session.id, ALICE)
  const stream = await session.open(calling('twice', { what: 'disk' }))
  const first = await stream.next()
  t.equal((await new Connection(b, session.id, BOB).post(response(first.id, accept({ sure: false })))).status, 404)
  t.equal((await (await sessionOn(b, ALICE)).post(response(first.id, accept({ sure: false })))).status, 202, 'of another session')
  t.equal((await elsewhere.post(response(first.id, accept({ sure: true })))).status, 202)
  const second = await stream.next()
  t.equal(second.params.message, 'Really delete disk?')
  t.equal((await elsewhere.post(response(second.id, accept({ sure: true })))).status, 202)
  t.equal(textOf((await stream.next()).result), 'Deleted disk')
  t.equal(runs['twice'], 1)

  const again = await session.open(calling('name', {}, 'again'))
  const third = await again.next()
  await elsewhere.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'again' } })
  t.match(await again.next(), { method: 'notifications/cancelled', params: { requestId: third.id } })
  t.equal(await again.next(), undefined)

  const standalone = await elsewhere.get()
  const asking = session.post(calling('name', {}, 'json'), JSON_ONLY)
  const question = await standalone.next()
  await session.post(response(question.id, accept({ name: 'Ada' })))
  t.equal(textOf((await asking).json.result), 'Hello Ada', 'the stream of the session may be at another process, too')
  standalone.destroy()
})

t.test('1,000 sessions with a question that nobody answers: after the timeout nothing is left', async (t) => {
  const contexts: Context[] = []
  const layer = createLayer({ name: 'x', version: '1', timeout: 0 })
  layer.tool('ask', {}, async (_args, ctx) => {
    contexts.push(ctx)
    await Promise.all([ctx.elicit('?', {}), ctx.listRoots()])
  })
  const { server } = connect(layer, { askTimeout: 77_777 })
  const connections = Array.from({ length: 1000 }, () => attach(server))
  await Promise.all(connections.map(({ handle }) => handle(initialize('2025-11-25', 'init', ALL))))
  const timers = handTimers(t)
  const calls = connections.map(({ handle }) => handle(calling('ask')))
  await settled()
  t.equal(contexts.length, 1000)
  t.equal(connections.reduce((sum, { session }) => sum + session.questions.size, 0), 2000)
  t.equal(timers.pending.size, 2000)
  t.ok(contexts.every(({ signal }) => getEventListeners(signal, 'abort').length === 2))

  timers.fire(77_777)
  const replies = await Promise.all(calls)
  t.ok(replies.every(({ result }) => result._meta['cloudg/error_code'] === 'timeout'))
  t.equal(connections.reduce((sum, { session }) => sum + session.questions.size, 0), 0)
  t.notOk(connections.some(({ session }) => session.busy))
  t.equal(timers.pending.size, 0)
  t.equal(contexts.reduce((sum, { signal }) => sum + getEventListeners(signal, 'abort').length, 0), 0)
  t.ok(connections.every(({ sent }) => sent.filter(({ method }) => method === 'notifications/cancelled').length === 2), 'every question was taken back')
})

t.test('the same over HTTP: 1,000 sessions are free again, and the server has nothing to wait for', async (t) => {
  const layer = createLayer({ name: 'x', version: '1', timeout: 0 })
  let running = 0
  layer.tool('ask', {}, async (_args, ctx) => {
    running++
    await ctx.elicit('?', {}).finally(() => { running-- })
  })
  const { service } = await serveOn(t, layer, { maxSessionsPerPrincipal: 1000, maxStreams: 2000, askTimeout: 1000 })
  const inject = (message: unknown, id?: string) => service.app.inject({
    method: 'POST', url: '/mcp', headers: { ...H, host: 'localhost', ...(id !== undefined && { 'mcp-session-id': id }) }, payload: message as object
  })
  const ids: string[] = []
  for (let n = 0; n < 1000; n++) ids.push((await inject(initialize('2025-11-25', 'init', ALL))).headers['mcp-session-id'] as string)
  const timers = timersNow()
  const answers = await Promise.all(ids.map((id) => inject(calling('ask'), id)))
  t.ok(answers.every(({ body }) => body.includes('notifications/cancelled') && body.includes('did not answer within')))
  t.equal(running, 0)
  await settled()
  // The client of a Redis has timers of its own.
  if (!onRedis) t.ok(timersNow() <= timers)
  t.equal((await inject(request('ping'), ids[999])).statusCode, 200)
})

/** Timers that keep this process alive. */
function timersNow (): number {
  return process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
}

/** Timers that run out when the test says so. */
function handTimers (t: Test): { pending: Set<object>, fire: (ms: number) => void } {
  const pending = new Set<{ run: () => void, ms: number }>()
  const setTimer = (run: () => void, ms: number): object => {
    const timer = { run, ms, unref () { return timer } }
    pending.add(timer)
    return timer
  }
  t.intercept(globalThis, 'setTimeout', { value: setTimer, configurable: true, writable: true })
  t.intercept(globalThis, 'clearTimeout', { value: (timer: any) => { pending.delete(timer) }, configurable: true, writable: true })
  return {
    pending,
    fire: (ms) => {
      for (const timer of [...pending]) {
        if (timer.ms !== ms) continue
        pending.delete(timer)
        timer.run()
      }
    }
  }
}
