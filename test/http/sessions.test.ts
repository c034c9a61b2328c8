// Handshake sessions over HTTP: how they begin, whose they are, what they refuse, how they end, and their standalone stream.

import t, { type Test } from 'tap'
import { testBackplane } from '../backplane/shared.js'
import { createKit, INITIALIZED, initialize, request } from '../kit.js'
import type { ClientSession } from './client.js'
import { BOTH, connections, eventually, handshake, JSON_ONLY, post, postStream, refused, send, serve, SSE_ONLY } from './client.js'

const PING = request('ping', undefined, 5)
const PONG = '{"jsonrpc":"2.0","id":5,"result":{}}'
const call = (name: string, args: object = {}, id: string | number = 2, _meta?: object) => request('tools/call', { name, arguments: args, ...(_meta && { _meta }) }, id)
const listChanged = (kind: string) => ({ jsonrpc: '2.0', method: `notifications/${kind}/list_changed` })
const updated = (uri: string) => ({ jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri } })

async function alive (t: Test, session: ClientSession): Promise<void> {
  const answer = await session.post(PING)
  t.equal(answer.status, 200)
  t.equal(answer.text, PONG)
}

async function gone (t: Test, session: ClientSession): Promise<void> {
  refused(t, await session.post(PING), 404, 'Session not found')
}

t.test('HS-01 a handshake makes a session', async (t) => {
  const app = await serve(t)
  for (const version of ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']) {
    const session = await handshake(app, version, { confirm: false })
    t.equal(session.initialized.status, 200)
    t.equal(session.initialized.headers['content-type'], 'application/json')
    t.match(session.id, /^[0-9a-f]{32}$/)
    t.equal(session.initialized.json.result.protocolVersion, version)
    const confirmed = await session.post(INITIALIZED)
    t.equal(confirmed.status, 202)
    t.equal(confirmed.text, '')
    t.notOk('mcp-session-id' in confirmed.headers)
  }
})

t.test('HS-02 a request on a session', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const answer = await session.post(request('tools/list', undefined, 3))
  t.equal(answer.status, 200)
  t.equal(answer.headers['content-type'], 'application/json')
  t.equal(answer.headers['content-length'], String(Buffer.byteLength(answer.text)))
  t.equal(answer.json.id, 3)
  t.same(Object.keys(answer.json.result), ['tools'])
  t.same(answer.json.result.tools.slice(0, 2).map(({ name }: any) => name), ['echo', 'stats'])
})

t.test('HS-03 a tool that tells of its progress streams it before its result', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const answer = await session.post(call('slow', { steps: 2 }, 's', { progressToken: 't1' }))
  t.equal(answer.status, 200)
  t.match(answer.headers, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' })
  const progress = (step: number) => ({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: 't1', progress: step, total: 2, message: `step ${step}` } })
  const log = (step: number) => ({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: { step }, logger: 'kit' } })
  t.same(answer.messages.slice(0, -1), [progress(1), log(1), progress(2), log(2)])
  const { id, result: { _meta, ...result } } = answer.messages.at(-1)
  t.equal(id, 's')
  t.same(result, { content: [{ type: 'text', text: '{\n  "done": 2\n}' }], isError: false, structuredContent: { done: 2 } })
  t.match(answer.text, /^(?:event: message\ndata: [^\n]+\n\n)+$/, 'every frame is one event of one line, and nothing has an id')
})

t.test('HS-04 with JSON alone, notifications go to the standalone stream', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const stream = await session.get()
  const answer = await session.post(call('slow', { steps: 1 }, 2, { progressToken: 7 }), JSON_ONLY)
  t.equal(answer.headers['content-type'], 'application/json')
  t.same(answer.json.result.structuredContent, { done: 1 })
  t.same((await stream.next()).params, { progressToken: 7, progress: 1, total: 1, message: 'step 1' })
  t.same((await stream.next()).params, { level: 'info', data: { step: 1 }, logger: 'kit' })
  stream.leave()
})

t.test('HS-05 DELETE ends a session, its stream and its calls', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const stream = await session.get()
  const running = app.entered('sleepy')
  const waiting = session.post(call('sleepy'))
  const { signal } = await running
  const ended = await session.end()
  t.equal(ended.status, 200)
  t.equal(ended.text, '')
  t.equal(ended.headers['content-length'], '0')
  t.ok(signal.aborted, 'the call was aborted')
  t.same((await waiting).messages, [], 'and is not answered')
  t.equal(await stream.ended, ': open\n\n', 'the stream is over')
  await gone(t, session)
  refused(t, await session.end(), 404, 'Session not found')
  refused(t, await send(app.url, { method: 'GET', headers: { ...session.headers, ...SSE_ONLY } }), 404, 'Session not found')
})

t.test('HS-06 without a session id', async (t) => {
  const app = await serve(t)
  const required = 'Bad Request: Mcp-Session-Id header is required'
  for (const message of [PING, call('echo'), INITIALIZED, [PING], { jsonrpc: '2.0', method: 'initialize' }, { jsonrpc: '2.0', id: 1, result: {} }]) {
    refused(t, await post(app, message), 400, required)
    refused(t, await post(app, message, { 'mcp-session-id': '' }), 400, required)
  }
  refused(t, await send(app.url, { method: 'DELETE' }), 400, required)
  for (const accept of ['text/event-stream', '*/*', BOTH]) {
    refused(t, await send(app.url, { method: 'GET', headers: { accept } }), 405, 'Method Not Allowed', { allow: 'POST, DELETE' })
  }
})

t.test('HS-07 with the id of no session', async (t) => {
  const app = await serve(t)
  for (const id of ['deadbeef', '0'.repeat(32), '__proto__', 'constructor', 'ä', 'x'.repeat(5000)]) {
    refused(t, await post(app, call('slow'), { 'mcp-session-id': id }), 404, 'Session not found')
    refused(t, await send(app.url, { method: 'GET', headers: { 'mcp-session-id': id, ...SSE_ONLY } }), 404, 'Session not found')
    refused(t, await send(app.url, { method: 'DELETE', headers: { 'mcp-session-id': id } }), 404, 'Session not found')
  }
})

t.test('HS-08 the version of another revision', async (t) => {
  const app = await serve(t)
  const session = await handshake(app, '2025-06-18')
  const mismatch = 'MCP-Protocol-Version 2025-11-25 does not match the negotiated version 2025-06-18'
  refused(t, await session.post(PING, { 'mcp-protocol-version': '2025-11-25' }), 400, mismatch)
  refused(t, await session.end({ 'mcp-protocol-version': '2025-11-25' }), 400, mismatch)
  const stream = await session.get({ 'mcp-protocol-version': '2025-11-25' })
  t.equal(stream.status, 400)
  await alive(t, session)
})

t.test('HS-09 a version that there is not', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  for (const version of ['1999-01-01', '2099-01-01', '', 'latest', '2025-11-25, 2025-11-25']) {
    refused(t, await session.post(PING, { 'mcp-protocol-version': version }), 400, `Unsupported MCP-Protocol-Version: ${version}`)
    refused(t, await session.end({ 'mcp-protocol-version': version }), 400, `Unsupported MCP-Protocol-Version: ${version}`)
    refused(t, await send(app.url, { method: 'GET', headers: { ...session.headers, ...SSE_ONLY, 'mcp-protocol-version': version } }), 400, `Unsupported MCP-Protocol-Version: ${version}`)
  }
  await alive(t, session)
})

t.test('HS-10 no version at all is the negotiated one', async (t) => {
  const app = await serve(t)
  const session = await handshake(app, '2025-06-18')
  const answer = await session.post(PING, { 'mcp-protocol-version': undefined })
  t.equal(answer.status, 200)
  t.equal(answer.text, PONG)
})

t.test('HS-11 the standalone stream tells of changes', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  t.equal((await session.post(request('resources/subscribe', { uri: 'test://info' }, 1))).text, '{"jsonrpc":"2.0","id":1,"result":{}}')
  const stream = await session.get()
  t.equal(stream.status, 200)
  t.match(stream.headers, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no', 'transfer-encoding': 'chunked' })
  t.notOk('mcp-session-id' in stream.headers)
  t.equal(await stream.comment(), 'open')
  await session.post(call('touch'))
  t.same(await stream.next(), updated('test://info'))
  t.same(await stream.next(), listChanged('tools'))
  await session.post(call('touch', { uri: 'test://items/alpha' }))
  t.same(await stream.next(), listChanged('tools'), 'of what was not subscribed to nothing is told')
  await session.post(request('resources/unsubscribe', { uri: 'test://info' }, 1))
  await session.post(call('touch'))
  t.same(await stream.next(), listChanged('tools'))
  stream.leave()
})

t.test('what changed while nobody listened is told on the next stream, each once', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  await session.post(request('resources/subscribe', { uri: 'test://info' }, 1))
  await session.post(call('touch'))
  await session.post(call('touch'))
  app.layer.notifyChanged('prompts')
  const stream = await session.get()
  t.same(await stream.next(), updated('test://info'))
  t.same(await stream.next(), listChanged('tools'))
  t.same(await stream.next(), listChanged('prompts'))
  app.layer.notifyChanged('resources')
  t.same(await stream.next(), listChanged('resources'))
  stream.leave()
})

t.test('nothing is told before notifications/initialized, nor to another session', async (t) => {
  const app = await serve(t)
  const early = await handshake(app, '2025-11-25', { confirm: false })
  const other = await handshake(app)
  const earlyStream = await early.get()
  const otherStream = await other.get()
  app.layer.notifyChanged('tools')
  t.same(await otherStream.next(), listChanged('tools'))
  await early.post(INITIALIZED)
  app.layer.notifyChanged('prompts')
  t.same(await earlyStream.next(), listChanged('prompts'), 'the change before it was not for this session')
  await early.post(call('slow', { steps: 1 }), JSON_ONLY)
  t.equal((await earlyStream.next()).method, 'notifications/message')
  app.layer.notifyChanged('resources')
  t.same(await otherStream.next(), listChanged('prompts'))
  t.same(await otherStream.next(), listChanged('resources'))
  earlyStream.leave()
  otherStream.leave()
})

t.test('HS-12 a second stream is a conflict, and harms nobody', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const stream = await session.get()
  refused(t, await send(app.url, { method: 'GET', headers: { ...session.headers, ...SSE_ONLY } }), 409, 'Conflict: a GET stream is already open for this session')
  app.layer.notifyChanged('tools')
  t.same(await stream.next(), listChanged('tools'))
  stream.leave()
  await eventually(async () => {
    const again = await session.get()
    again.leave()
    return again.status === 200
  })
})

t.test('HS-14 GET for somebody who does not read events', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  for (const accept of ['application/json', 'text/html', 'text/event-stream;q=0']) {
    refused(t, await send(app.url, { method: 'GET', headers: { ...session.headers, accept } }), 406, 'Not Acceptable: GET requires Accept: text/event-stream')
  }
  for (const accept of ['*/*', 'text/*']) {
    const stream = await session.get({ accept })
    t.equal(stream.status, 200)
    await session.end()
    await stream.ended
    Object.assign(session, await handshake(app))
  }
})

t.test('HS-15 a session that nobody uses ends; a stream or a call in flight is use', async (t) => {
  const backplane = testBackplane()
  const app = await serve(t, { sessionIdleTimeout: 400, backplane })
  const [idle, streaming, calling] = await Promise.all([handshake(app), handshake(app), handshake(app)])
  t.equal(await backplane.countSessions(), 3)
  const stream = await streaming.get()
  const running = app.entered('sleepy')
  const waiting = await postStream(app, call('sleepy'), calling.headers as Record<string, string>)
  const { signal } = await running
  await eventually(async () => await backplane.countSessions() === 2)
  await gone(t, idle)
  await alive(t, streaming)
  await alive(t, calling)
  t.notOk(signal.aborted)
  stream.leave()
  await eventually(async () => await backplane.countSessions() === 1)
  await gone(t, streaming)
  await calling.end()
  await waiting.ended
  t.equal(await backplane.countSessions(), 0)
})

t.test('HS-16 no more sessions than there may be', async (t) => {
  const app = await serve(t, { maxSessions: 1 })
  const first = await handshake(app)
  const second = await post(app, initialize())
  refused(t, second, 503, 'Too many sessions', { 'retry-after': '10' })
  const streamed = await post(app, initialize(), { accept: 'text/event-stream' })
  t.equal(streamed.status, 503)
  t.equal(streamed.text, second.text)
  t.equal(streamed.headers['content-type'], 'application/json')
  await alive(t, first)
  await first.end()
  await alive(t, await handshake(app))
})

t.test('at its own cap a caller loses the session that it has not used for longest', async (t) => {
  const app = await serve(t, { maxSessionsPerPrincipal: 2, auth: { tokens: ['a::alice', 'b::bob'] } })
  const alice = { headers: { authorization: 'Bearer a' } }
  const [first, second] = [await handshake(app, '2025-11-25', alice), await handshake(app, '2025-11-25', alice)]
  const bobs = await handshake(app, '2025-11-25', { headers: { authorization: 'Bearer b' } })
  await alive(t, first)
  const third = await handshake(app, '2025-11-25', alice)
  await gone(t, second)
  const streams = [await first.get(), await third.get()]
  refused(t, await post(app, initialize(), alice.headers), 503, 'Too many sessions for this caller', { 'retry-after': '10' })
  await alive(t, first)
  await alive(t, third)
  await alive(t, bobs)
  for (const stream of streams) stream.leave()
})

t.test('an initialize that fails leaves no session', async (t) => {
  const backplane = testBackplane()
  const app = await serve(t, { backplane })
  const { protocolVersion: _, ...params } = initialize().params!
  const bad: [object, object][] = [
    [request('initialize', params, 1), { id: 1, error: { code: -32602, message: 'initialize requires a protocolVersion string' } }],
    [request('initialize', { ...params, protocolVersion: 20251125 }, 1), { id: 1, error: { code: -32602, message: 'initialize requires a protocolVersion string' } }],
    [{ ...initialize(), params: [] }, { id: 'init', error: { code: -32602, message: 'params must be an object' } }],
    [{ ...initialize(), jsonrpc: '1.0' }, { id: 'init', error: { code: -32600, message: 'Invalid Request' } }],
    [{ ...initialize(), id: null }, { id: null, error: { code: -32600, message: 'Invalid Request: bad id' } }]
  ]
  for (const [message, expected] of bad) {
    const answer = await post(app, message)
    t.equal(answer.status, 200)
    t.same(answer.messages, [{ jsonrpc: '2.0', ...expected }])
    t.notOk('mcp-session-id' in answer.headers)
  }
  t.equal(await backplane.countSessions(), 0)
})

t.test('an initialize always makes a new session; a second one on a session does not', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const again = await post(app, initialize(), session.headers as Record<string, string>)
  t.equal(again.status, 200)
  t.match(again.headers['mcp-session-id'], /^[0-9a-f]{32}$/)
  t.not(again.headers['mcp-session-id'], session.id)
  await alive(t, session)
})

t.test('unknown versions are answered with the latest handshake version', async (t) => {
  const app = await serve(t)
  for (const version of ['1999-01-01', '2026-07-28', '']) {
    t.equal((await post(app, initialize(version))).json.result.protocolVersion, '2025-11-25')
  }
})

t.test('HS-20 a stream that is silent is kept alive by comments', async (t) => {
  const app = await serve(t, { keepAliveInterval: 60 })
  const session = await handshake(app)
  const stream = await session.get()
  t.equal(await stream.comment(), 'open')
  t.equal(await stream.comment(), 'keepalive')
  t.equal(await stream.comment(), 'keepalive')
  t.equal(stream.text, ': open\n\n: keepalive\n\n: keepalive\n\n')
  const waiting = await postStream(app, call('sleepy'), session.headers as Record<string, string>)
  t.equal(await waiting.comment(), 'open')
  t.equal(await waiting.comment(), 'keepalive')
  await session.end()
  await Promise.all([stream.ended, waiting.ended])
})

t.test('BA-01 BA-03 a batch, where the revision has it', async (t) => {
  const app = await serve(t)
  for (const version of ['2024-11-05', '2025-03-26']) {
    const session = await handshake(app, version)
    const mixed = await session.post([request('ping', undefined, 1), { jsonrpc: '2.0', method: 'notifications/progress' }, request('nope', undefined, 'n'), request('tools/list', undefined, 2)])
    t.equal(mixed.status, 200)
    t.equal(mixed.headers['content-type'], 'application/json')
    t.same(mixed.json.map(({ id }: any) => id), [1, 'n', 2], 'answers in order, notifications without')
    t.same(mixed.json[1].error, { code: -32601, message: 'Method not found', data: 'nope' })
    const streamed = await session.post([call('slow', { steps: 1 }, 'a', { progressToken: 1 }), call('echo', { text: 'x' }, 'b')])
    t.equal(streamed.headers['content-type'], 'text/event-stream')
    t.same(streamed.messages.map(({ id, method }) => id ?? method), ['notifications/progress', 'notifications/message', 'a', 'b'])
    const empty = await session.post([])
    t.equal(empty.status, 200)
    t.equal(empty.text, '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: empty batch"}}')
    t.same((await session.post([{}, 5, [], null])).json, Array(4).fill({ jsonrpc: '2.0', id: null, error: { code: -32600, message: 'Invalid Request' } }))
    t.same((await session.post([initialize()])).json, [{ jsonrpc: '2.0', id: 'init', error: { code: -32600, message: 'Invalid Request: initialize must not be part of a batch' } }])
    const notes = await session.post([INITIALIZED])
    t.equal(notes.status, 202)
    t.equal(notes.text, '')
  }
})

t.test('a batch, where the revision does not have it', async (t) => {
  const app = await serve(t)
  for (const version of ['2025-06-18', '2025-11-25']) {
    const session = await handshake(app, version)
    for (const batch of [[PING], [INITIALIZED], [call('echo')]]) {
      const answer = await session.post(batch, JSON_ONLY)
      t.equal(answer.status, 200)
      t.equal(answer.text, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"JSON-RPC batches are not supported by protocol version ${version}"}}`)
    }
  }
})

t.test('CX-01 CX-02 a cancelled call is not answered', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const cancel = (requestId: unknown) => session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId, reason: 'enough' } })
  for (const accept of [BOTH, 'application/json']) {
    const running = app.entered('sleepy')
    const waiting = session.post(call('sleepy', {}, 'slow-1'), { accept })
    const { signal } = await running
    for (const id of ['slow-2', 1, null, {}]) t.equal((await cancel(id)).status, 202)
    t.notOk(signal.aborted)
    t.equal((await cancel('slow-1')).status, 202)
    t.ok(signal.aborted)
    const answer = await waiting
    t.equal(answer.status, accept === BOTH ? 200 : 202)
    t.same(answer.messages, [])
  }
  const other = await handshake(app)
  const running = app.entered('sleepy')
  const waiting = other.post(call('sleepy', {}, 'slow-1'))
  const { signal } = await running
  await cancel('slow-1')
  t.notOk(signal.aborted, 'nobody cancels the calls of another session')
  await other.end()
  await waiting
})

t.test('a call runs on when its client has gone', async (t) => {
  const { layer } = createKit()
  let finish!: () => void
  let over!: (aborted: boolean) => void
  const result = new Promise<boolean>((resolve) => { over = resolve })
  layer.tool('long', {}, async (_args, ctx) => {
    await ctx.progress(1)
    await new Promise<void>((resolve) => { finish = resolve })
    over(ctx.signal.aborted)
  })
  const app = await serve(t, { layer })
  const session = await handshake(app)
  const stream = await postStream(app, call('long', {}, 1, { progressToken: 1 }), session.headers as Record<string, string>)
  await stream.next()
  stream.leave()
  await eventually(async () => await connections(app) === 0)
  finish()
  t.equal(await result, false)
})

t.test('no more streams than there may be', async (t) => {
  const app = await serve(t, { maxStreams: 1 })
  const [first, second] = [await handshake(app), await handshake(app)]
  const stream = await first.get()
  refused(t, await send(app.url, { method: 'GET', headers: { ...second.headers, ...SSE_ONLY } }), 503, 'Too many open streams', { 'retry-after': '10' })
  t.equal((await second.post(call('echo', { text: 'x' }))).status, 200, 'calls are served still')
  stream.leave()
  await eventually(async () => {
    const next = await second.get()
    next.leave()
    return next.status === 200
  })
})

t.test('closing the server ends streams and calls in flight, and says so', async (t) => {
  const app = await serve(t, { closeGrace: 20 })
  const session = await handshake(app)
  const stream = await session.get()
  const running = app.entered('sleepy')
  const waiting = session.post(call('sleepy', {}, 'long'))
  await running
  const alsoRunning = app.entered('sleepy')
  const plain = session.post(call('sleepy', {}, 'plain'), JSON_ONLY)
  await alsoRunning
  await app.app.close()
  await stream.ended
  t.same((await waiting).messages, [{ jsonrpc: '2.0', id: 'long', error: { code: -32603, message: 'The server is shutting down' } }])
  t.same((await plain).messages, [{ jsonrpc: '2.0', id: 'plain', error: { code: -32603, message: 'The server is shutting down' } }])
})
