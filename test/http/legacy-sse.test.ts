// The deprecated HTTP+SSE transport: where messages go, what comes on the stream, and the same checks as on the endpoint.

import { Client, SSEClientTransport } from '@modelcontextprotocol/client'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport as SSEClientTransportV1 } from '@modelcontextprotocol/sdk/client/sse.js'
import { createParser } from 'eventsource-parser'
import Fastify from 'fastify'
import { request as httpRequest } from 'node:http'
import type { IncomingHttpHeaders } from 'node:http'
import { Writable } from 'node:stream'
import type { Test } from 'tap'
import t from 'tap'
import { createLayer } from '../../lib/layer/index.js'
import cloudgMcp from '../../plugin.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { testBackplane } from '../backplane/shared.js'
import { createKit, INITIALIZED, initialize, modern, request } from '../kit.js'
import type { Answer, Headers, Served } from './client.js'
import { connections, eventually, handshake, listen, refused, send, serve } from './client.js'

const JSON_TYPE: Headers = { 'content-type': 'application/json' }

interface Legacy {
  status: number
  headers: IncomingHttpHeaders
  /** The path that the `endpoint` event named. */
  endpoint: string
  id: string
  /** Everything that has come so far, byte by byte. */
  readonly text: string
  next (): Promise<any>
  comment (): Promise<string>
  reply (id: unknown): Promise<any>
  post (body: unknown, headers?: Headers): Promise<Answer>
  /** The stream is over; true when the server has ended it in order. */
  ended: Promise<boolean>
  leave (): void
  pause (): void
  resume (): void
}

/** Opens a stream as old clients do, and reads its first event. */
async function open ({ origin }: Pick<Served, 'origin'>, { path = '/sse', headers = {} }: { path?: string, headers?: Headers } = {}): Promise<Legacy> {
  const asked = httpRequest(origin + path, { headers: { accept: 'text/event-stream', ...headers }, agent: false }).end()
  const response = await new Promise<import('node:http').IncomingMessage>((resolve, reject) => { asked.once('response', resolve).once('error', reject) })
  const messages: any[] = []
  const comments: string[] = []
  let endpoint: string | undefined
  let over = false
  let text = ''
  let waiting: (() => void)[] = []
  const wake = (): void => { for (const resolve of waiting.splice(0)) resolve() }
  const parser = createParser({
    onEvent: ({ event, data }) => { event === 'endpoint' ? endpoint = data : messages.push(JSON.parse(data)) },
    onComment: (comment) => { comments.push(comment) }
  })
  response.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
    parser.feed(chunk)
    wake()
  }).on('error', () => {})
  const ended = new Promise<boolean>((resolve) => {
    response.once('close', () => {
      over = true
      wake()
      resolve(response.complete)
    })
  })
  const until = async (condition: () => boolean): Promise<void> => {
    while (!condition()) {
      if (over) throw new Error(`the stream is over: ${text}`)
      await new Promise<void>((resolve) => { waiting = [...waiting, resolve] })
    }
  }
  await until(() => endpoint !== undefined)
  return {
    status: response.statusCode!,
    headers: response.headers,
    endpoint: endpoint!,
    id: new URL(endpoint!, origin).searchParams.get('session_id')!,
    get text () { return text },
    async next () {
      await until(() => messages.length > 0)
      return messages.shift()
    },
    async comment () {
      await until(() => comments.length > 0)
      return comments.shift()!
    },
    async reply (id) {
      await until(() => messages.some((message) => message.id === id && !('method' in message)))
      return messages.splice(messages.findIndex((message) => message.id === id && !('method' in message)), 1)[0]
    },
    post: (body, more = {}) => send(origin + endpoint, { headers: { ...JSON_TYPE, ...headers, ...more }, body }),
    ended,
    leave: () => asked.destroy(),
    pause: () => response.pause(),
    resume: () => response.resume()
  }
}

async function connect (served: Pick<Served, 'origin'>, version = '2025-11-25', options: { path?: string, headers?: Headers } = {}, capabilities = {}): Promise<Legacy> {
  const legacy = await open(served, options)
  await legacy.post(initialize(version, 'init', capabilities))
  await legacy.reply('init')
  await legacy.post(INITIALIZED)
  return legacy
}

function accepted (t: Test, answer: Answer): void {
  t.equal(answer.status, 202)
  t.equal(answer.text, '')
}

t.test('SS-01 it is off unless asked for', async (t) => {
  const served = await serve(t)
  t.equal((await send(`${served.origin}/sse`, { method: 'GET' })).status, 404)
  t.equal((await send(`${served.origin}/messages/?session_id=a`, { headers: JSON_TYPE, body: request('ping') })).status, 404)
})

t.test('SS-02 the first event says where messages go', async (t) => {
  const served = await serve(t, { sse: true })
  const legacy = await open(served)
  t.match(legacy.text, /^event: endpoint\ndata: \/messages\/\?session_id=[0-9a-f]{32}\n\n/)
  t.equal(legacy.status, 200)
  t.match(legacy.headers, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' })
  t.notOk('mcp-session-id' in legacy.headers)
  legacy.leave()
})

t.test('SS-03 answers come on the stream, in order, and a POST is 202 and empty', async (t) => {
  const served = await serve(t, { sse: true })
  const legacy = await open(served)
  accepted(t, await legacy.post(initialize('2024-11-05', 1)))
  accepted(t, await legacy.post(INITIALIZED))
  accepted(t, await legacy.post(request('tools/list', undefined, 2)))
  t.match(await legacy.next(), { id: 1, result: { protocolVersion: '2024-11-05', serverInfo: { name: 'kit' } } })
  t.match(await legacy.next(), { id: 2, result: { tools: [{ name: 'echo' }] } })
  t.match(legacy.text, /\n\nevent: message\ndata: \{"jsonrpc":"2\.0","id":1,/)
  legacy.leave()
})

t.test('SS-04 an unknown session is 404', async (t) => {
  const served = await serve(t, { sse: true })
  refused(t, await send(`${served.origin}/messages/?session_id=${'0'.repeat(32)}`, { headers: JSON_TYPE, body: request('ping') }), 404, 'Session not found')
})

t.test('LEG-01 the endpoint event knows the prefix, the paths and the public URL', async (t) => {
  const behind = (options: CloudgMcpOptions) => async (t: Test) => {
    const app = Fastify()
    await app.register(async (scope) => { await scope.register(cloudgMcp, { layer: createKit().layer, ...options }) }, { prefix: '/api' })
    return { origin: `http://127.0.0.1:${await listen(t, app)}` }
  }
  for (const [make, path, endpoint] of [
    [(t: Test) => serve(t, { sse: true, prefix: '/api/v1' }), '/api/v1/sse', '/api/v1/messages/?session_id='],
    [behind({ sse: true, prefix: '/v2' }), '/api/v2/sse', '/api/v2/messages/?session_id='],
    [(t: Test) => serve(t, { sse: { path: '/old/events', messagePath: '/old/post' } }), '/old/events', '/old/post?session_id='],
    [(t: Test) => serve(t, { sse: true, publicUrl: 'https://mcp.example.com' }), '/sse', '/messages/?session_id=']
  ] as const) {
    const served = await make(t)
    const legacy = await open(served, { path })
    t.ok(legacy.endpoint.startsWith(endpoint), legacy.endpoint)
    accepted(t, await legacy.post(initialize()))
    t.match(await legacy.next(), { id: 'init', result: {} })
    legacy.leave()
  }

  // A proxy that takes a part of the path away: what clients see is not what arrives here.
  const served = await serve(t, { sse: true, publicUrl: 'https://example.com/tools/', prefix: '/v1' })
  const legacy = await open(served, { path: '/v1/sse' })
  t.ok(legacy.endpoint.startsWith('/tools/v1/messages/?session_id='), legacy.endpoint)
  accepted(t, await send(`${served.origin}/v1/messages/?session_id=${legacy.id}`, { headers: JSON_TYPE, body: initialize() }))
  legacy.leave()
})

t.test('LEG-03 sessions that are gone, missing or somebody else\'s', async (t) => {
  const auth = { tokens: ['a:analyst:alice', 'b:analyst:bob'] }
  const alice = { authorization: 'Bearer a' }
  const first = await serve(t, { sse: true, auth })
  const legacy = await connect(first, undefined, { headers: alice })
  const message = (path: string, headers: Headers = {}) => send(first.origin + path, { headers: { ...JSON_TYPE, ...alice, ...headers }, body: request('ping') })

  refused(t, await message('/messages/'), 400, 'session_id query parameter is required')
  refused(t, await message('/messages/?session_id='), 400, 'session_id query parameter is required')
  refused(t, await message(legacy.endpoint, { authorization: 'Bearer b' }), 404, 'Session not found')
  accepted(t, await message(legacy.endpoint.replace('/messages/?', '/messages?')))
  accepted(t, await message(legacy.endpoint.replace('?', '?other=1&')))
  t.match(await legacy.reply(1), { result: {} })

  const streamable = await handshake(first, undefined, { headers: alice })
  refused(t, await message(`/messages/?session_id=${streamable.id}`), 404, 'Session not found')
  refused(t, await send(first.url, { headers: { ...JSON_TYPE, ...alice, accept: '*/*', 'mcp-session-id': legacy.id }, body: request('ping') }), 404, 'Session not found')

  await first.app.close()
  t.equal(await legacy.ended, true)
  const second = await serve(t, { sse: true, auth })
  refused(t, await send(second.origin + legacy.endpoint, { headers: { ...JSON_TYPE, ...alice }, body: request('ping') }), 404, 'Session not found')
})

t.test('LEG-05 the answer is on the stream alone, and the checks are those of the endpoint', async (t) => {
  const served = await serve(t, { sse: true, auth: { tokens: ['a:analyst:alice'] } })
  const authorization = 'Bearer a'
  const legacy = await connect(served, undefined, { headers: { authorization } })
  accepted(t, await legacy.post(request('tools/list', undefined, 5)))
  t.match(await legacy.reply(5), { result: { tools: [{ name: 'echo' }] } })

  const stream = (headers: Headers) => send(`${served.origin}/sse`, { method: 'GET', headers: { authorization, ...headers } })
  const message = (headers: Headers, body: unknown = request('ping')) => legacy.post(body, headers)
  for (const ask of [stream, message]) {
    refused(t, await ask({ host: 'evil.example:80' }), 421, 'Invalid Host header')
    refused(t, await ask({ origin: 'http://evil.example' }), 403, 'Forbidden: invalid Origin')
    const anonymous = await ask({ authorization: 'Bearer wrong' })
    t.equal(anonymous.status, 401)
    t.match(anonymous.headers['www-authenticate'], /^Bearer realm="cloudg-mcp"/)
  }
  refused(t, await message({ 'content-type': 'text/plain' }), 415, 'Content-Type must be application/json')
  refused(t, await message({ 'content-type': 'application/json; charset=utf-16' }), 415, 'Content-Type must be application/json')
  t.equal((await message({ 'content-encoding': 'gzip' })).status, 415)
  refused(t, await message({}, JSON.stringify({ text: 'x'.repeat(5 * 1024 * 1024) })), 413, 'Request body too large')
  refused(t, await message({}, '{"jsonrpc":'), 400, { code: -32700, message: 'Parse error' })
  refused(t, await message({}, ''), 400, { code: -32700, message: 'Parse error' })
  refused(t, await message({}, '"text"'), 400, 'Invalid Request')
  accepted(t, await message({ accept: 'text/html', 'mcp-protocol-version': '2025-11-25' }))
  accepted(t, await message({ 'mcp-protocol-version': '1999-01-01' }))
  legacy.leave()
})

t.test('LEG-05 closing the stream frees everything', async (t) => {
  const backplane = testBackplane()
  const served = await serve(t, { sse: true, backplane })
  const legacy = await connect(served)
  t.equal(await backplane.countSessions(), 1)
  const entered = served.entered('sleepy')
  await legacy.post(request('tools/call', { name: 'sleepy', arguments: {} }, 1))
  const { signal } = await entered
  legacy.leave()
  await eventually(() => signal.aborted)
  await eventually(async () => await backplane.countSessions() === 0)
  refused(t, await legacy.post(request('ping')), 404, 'Session not found')
  await eventually(async () => await connections(served) === 0)
})

t.test('a request before initialize is answered on the stream, the probe of a 2026 client too', async (t) => {
  const served = await serve(t, { sse: true })
  const early = await open(served)
  accepted(t, await early.post(request('tools/list')))
  t.same(await early.reply(1), { jsonrpc: '2.0', id: 1, error: { code: -32600, message: 'Server not initialized: send initialize first' } })
  accepted(t, await early.post(request('ping', undefined, 2)))
  t.same(await early.reply(2), { jsonrpc: '2.0', id: 2, result: {} })
  accepted(t, await early.post(initialize()))
  t.match(await early.reply('init'), { result: { protocolVersion: '2025-11-25' } })
  early.leave()

  const probing = await open(served)
  accepted(t, await probing.post(modern('server/discover'), { 'mcp-protocol-version': '2026-07-28' }))
  t.match(await probing.reply(1), { result: { resultType: 'complete', supportedVersions: ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'] } })
  accepted(t, await probing.post(modern('tools/call', { name: 'stats', arguments: {} }, 2)))
  t.match(await probing.reply(2), { result: { structuredContent: { count: 4 } } })
  probing.leave()
})

t.test('other verbs are 405 and never a stream', async (t) => {
  const served = await serve(t, { sse: true })
  for (const path of ['/sse', '/sse/']) {
    for (const method of ['HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS']) {
      const answer = await send(served.origin + path, { method, ...(method === 'POST' && { headers: JSON_TYPE, body: initialize() }) })
      t.equal(answer.status, 405, `${method} ${path}`)
      t.equal(answer.headers.allow, 'GET')
    }
  }
  for (const path of ['/messages', '/messages/']) {
    for (const method of ['HEAD', 'GET', 'PUT', 'DELETE', 'OPTIONS']) {
      const answer = await send(`${served.origin}${path}?session_id=a`, { method })
      t.equal(answer.status, 405, `${method} ${path}`)
      t.equal(answer.headers.allow, 'POST')
    }
  }
  const slash = await open(served, { path: '/sse/' })
  slash.leave()
})

t.test('pages of allowed origins may use it', async (t) => {
  const served = await serve(t, { sse: true, corsOrigins: ['https://app.example'] })
  const origin = 'https://app.example'
  for (const [path, method] of [['/sse', 'GET'], ['/messages/', 'POST']] as const) {
    const preflight = await send(served.origin + path, { method: 'OPTIONS', headers: { origin, 'access-control-request-method': method, 'access-control-request-headers': 'content-type' } })
    t.equal(preflight.status, 204)
    t.equal(preflight.headers['access-control-allow-origin'], origin)
  }
  const legacy = await open(served, { headers: { origin } })
  t.equal(legacy.headers['access-control-allow-origin'], origin)
  t.equal((await legacy.post(initialize(), { origin })).headers['access-control-allow-origin'], origin)
  legacy.leave()
})

t.test('progress, logs and cancellation', async (t) => {
  const served = await serve(t, { sse: true })
  const legacy = await connect(served)
  accepted(t, await legacy.post(request('tools/call', { name: 'slow', arguments: { steps: 2 }, _meta: { progressToken: 7 } }, 1)))
  t.same([await legacy.next(), await legacy.next(), await legacy.next(), await legacy.next(), await legacy.next()].map(({ id, method, params }) => id ?? [method, params.progress ?? params.data.step]), [
    ['notifications/progress', 1], ['notifications/message', 1], ['notifications/progress', 2], ['notifications/message', 2], 1])

  const entered = served.entered('sleepy')
  accepted(t, await legacy.post(request('tools/call', { name: 'sleepy', arguments: {} }, 2)))
  const { signal } = await entered
  accepted(t, await legacy.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 2 } }))
  t.ok(signal.aborted)
  accepted(t, await legacy.post(request('ping', undefined, 3)))
  t.same(await legacy.next(), { jsonrpc: '2.0', id: 3, result: {} }, 'and it is not answered')
  legacy.leave()
})

t.test('batches, on a revision that has them', async (t) => {
  const served = await serve(t, { sse: true })
  const legacy = await connect(served, '2025-03-26')
  accepted(t, await legacy.post([request('ping', undefined, 1), INITIALIZED, request('ping', undefined, 2)]))
  t.same([await legacy.next(), await legacy.next()].map(({ id }) => id), [1, 2])
  legacy.leave()
})

t.test('changes are told on the stream', async (t) => {
  const served = await serve(t, { sse: true })
  const legacy = await connect(served)
  await legacy.post(request('resources/subscribe', { uri: 'test://info' }, 1))
  await legacy.reply(1)
  served.layer.notifyUpdated('test://other')
  served.layer.notifyUpdated('test://info')
  served.layer.notifyChanged('tools')
  t.match(await legacy.next(), { method: 'notifications/resources/updated', params: { uri: 'test://info' } })
  t.match(await legacy.next(), { method: 'notifications/tools/list_changed' })
  legacy.leave()
})

t.test('the client is asked on the stream and answers with a POST', async (t) => {
  const layer = createLayer({ name: 'l', version: '1' })
  layer.tool('ask', {}, async (_args, ctx) => await ctx.elicit('Your name?', { type: 'object', properties: { name: { type: 'string' } } }))
  const served = await serve(t, { sse: true, layer })
  const legacy = await connect(served, undefined, {}, { elicitation: {} })
  accepted(t, await legacy.post(request('tools/call', { name: 'ask', arguments: {} }, 1)))
  const question = await legacy.next()
  t.match(question, { method: 'elicitation/create', params: { message: 'Your name?' } })
  accepted(t, await legacy.post({ jsonrpc: '2.0', id: question.id, result: { action: 'accept', content: { name: 'Ada' } } }))
  t.match(await legacy.reply(1), { result: { structuredContent: { action: 'accept', content: { name: 'Ada' } } } })
  legacy.leave()
})

t.test('its sessions count, and one with a stream is never ended for another', async (t) => {
  const auth = { tokens: ['a::alice', 'b::bob'] }
  const full = await serve(t, { sse: true, auth, maxSessionsPerPrincipal: 1, maxSessions: 2 })
  const alice = { headers: { authorization: 'Bearer a' } }
  const first = await open(full, alice)
  refused(t, await send(`${full.origin}/sse`, { method: 'GET', ...alice }), 503, 'Too many sessions for this caller', { 'retry-after': '10' })
  first.leave()
  await eventually(async () => await connections(full) === 0)
  const again = await open(full, alice)
  again.leave()

  const small = await serve(t, { sse: true, maxSessions: 1 })
  const one = await open(small)
  refused(t, await send(`${small.origin}/sse`, { method: 'GET' }), 503, 'Too many sessions', { 'retry-after': '10' })
  one.leave()

  const narrow = await serve(t, { sse: true, maxStreams: 1 })
  const only = await open(narrow)
  refused(t, await send(`${narrow.origin}/sse`, { method: 'GET' }), 503, 'Too many open streams', { 'retry-after': '10' })
  only.leave()
})

t.test('an open stream keeps its session, and is kept alive', async (t) => {
  const served = await serve(t, { sse: true, sessionIdleTimeout: 50, keepAliveInterval: 30 })
  const legacy = await connect(served)
  for (let at = 0; at < 5; at++) t.equal(await legacy.comment(), 'keepalive')
  await legacy.post(request('ping', undefined, 1))
  t.match(await legacy.reply(1), { result: {} })
  legacy.leave()
})

t.test('a closing server lets calls finish, and ends the streams', async (t) => {
  const layer = createLayer({ name: 'l', version: '1' })
  const begun: (() => void)[] = []
  let release!: () => void
  const released = new Promise<void>((resolve) => { release = resolve })
  layer.tool('wait', {}, async () => {
    for (const tell of begun) tell()
    await released
    return 'released'
  })
  t.teardown(() => release())
  const served = await serve(t, { sse: true, layer, closeGrace: 60_000 })
  const legacy = await connect(served)
  const running = new Promise<void>((resolve) => { begun.push(resolve) })
  await legacy.post(request('tools/call', { name: 'wait', arguments: {} }, 1))
  await running
  const closing = served.app.close()
  release()
  t.match(await legacy.reply(1), { result: { content: [{ text: 'released' }] } })
  t.equal(await legacy.ended, true)
  await closing
})

t.test('what does not finish in time is told so', async (t) => {
  const served = await serve(t, { sse: true, closeGrace: 10 })
  const legacy = await connect(served)
  const entered = served.entered('sleepy')
  await legacy.post(request('tools/call', { name: 'sleepy', arguments: {} }, 1))
  const { signal } = await entered
  const closing = served.app.close()
  t.same(await legacy.reply(1), { jsonrpc: '2.0', id: 1, error: { code: -32603, message: 'The server is shutting down' } })
  t.ok(signal.aborted)
  t.equal(await legacy.ended, true)
  await closing
})

t.test('the session id reaches no log line', async (t) => {
  for (const serializers of [undefined, { req: (req: any) => ({ line: `${req.method} ${req.url}`, query: req.query, raw: { url: req.raw.url } }) }]) {
    let log = ''
    const stream = new Writable({
      write (chunk, _encoding, done) {
        log += String(chunk)
        done()
      }
    })
    const app = Fastify({ logger: { level: 'trace', stream, ...(serializers && { serializers }) } })
    app.addHook('onResponse', async (req) => { req.log.info({ url: req.url }, 'done') })
    await app.register(cloudgMcp, { layer: createKit().layer, sse: true })
    const served = { app, origin: `http://127.0.0.1:${await listen(t, app)}` }
    const legacy = await connect(served)
    await legacy.post(request('tools/call', { name: 'fail', arguments: {} }, 1))
    await legacy.reply(1)
    await legacy.post('{"', {})
    await send(served.origin + legacy.endpoint, { method: 'GET' })
    await send(served.origin + legacy.endpoint, { headers: { ...JSON_TYPE, origin: 'http://evil.example' }, body: request('ping') })
    legacy.leave()
    await app.close()
    t.match(log, /\/messages\/\?session_id=\*\*\*/)
    t.notOk(log.includes(legacy.id), log.split('\n').find((line) => line.includes(legacy.id)) ?? 'nowhere')
  }
})

t.test('a slow reader loses no answer', async (t) => {
  const served = await serve(t, { sse: true, layer: bigLayer() })
  const legacy = await connect(served)
  legacy.pause()
  // 200 answers of 64 KB: far more than is ever queued. Posting waits with the reader.
  const posts = Array.from({ length: 200 }, async (_, id) => legacy.post(request('tools/call', { name: 'big', arguments: {} }, id)))
  await Promise.race(posts)
  legacy.resume()
  const seen = new Set<number>()
  while (seen.size < 200) seen.add((await legacy.next()).id)
  t.equal(seen.size, 200)
  for (const answer of await Promise.all(posts)) t.equal(answer.status, 202)
  legacy.leave()
})

function bigLayer () {
  const layer = createLayer({ name: 'big', version: '1' })
  layer.tool('big', {}, () => 'x'.repeat(64 * 1024))
  return layer
}

t.test('messages may arrive at another process than the one with the stream', async (t) => {
  const backplane = testBackplane()
  const reader = await serve(t, { sse: true, backplane })
  const writer = await serve(t, { sse: true, backplane })
  const legacy = await open(reader)
  const post = async (body: unknown) => accepted(t, await send(writer.origin + legacy.endpoint, { headers: JSON_TYPE, body }))
  await post(initialize('2025-06-18'))
  t.match(await legacy.reply('init'), { result: { protocolVersion: '2025-06-18' } })
  await post(INITIALIZED)
  await post(request('tools/call', { name: 'slow', arguments: { steps: 1 }, _meta: { progressToken: 1 } }, 1))
  t.match(await legacy.next(), { method: 'notifications/progress' })
  t.match(await legacy.reply(1), { result: { structuredContent: { done: 1 } } })
  accepted(t, await legacy.post(request('tools/list', undefined, 2)))
  t.match(await legacy.reply(2), { result: { tools: [{ name: 'echo' }] } }, 'the process with the stream knows that initialize has been answered')
  legacy.leave()
  await eventually(async () => await backplane.countSessions() === 0)
})

t.test('it needs sessions', async (t) => {
  const app = Fastify()
  await t.rejects(async () => app.register(cloudgMcp, { layer: createKit().layer, sse: true, stateless: true }), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message: /option sse: needs sessions/ })
  await t.rejects(async () => Fastify().register(cloudgMcp, { sse: { paths: '/x' } as never }), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION' })
})

t.test('the official clients, with a bearer token', async (t) => {
  const served = await serve(t, { sse: true, layer: clientLayer(), auth: { tokens: ['s3cret:analyst:alice'] } })
  const url = new URL(`${served.origin}/sse`)
  const requestInit = { headers: { Authorization: 'Bearer s3cret' } }
  const info = { name: 'test', version: '1' }

  for (const [mode, version] of [['auto', '2026-07-28'], ['legacy', '2025-11-25']] as const) {
    const client = new Client(info, { versionNegotiation: { mode } })
    await client.connect(new SSEClientTransport(url, { requestInit }))
    t.equal(client.getNegotiatedProtocolVersion(), version)
    await useAll(t, client, async (name, options) => client.callTool({ name, arguments: {} }, options))
    await client.close()
  }
  const client = new ClientV1(info)
  await client.connect(new SSEClientTransportV1(url, { requestInit }))
  await useAll(t, client, async (name, options) => client.callTool({ name, arguments: {} }, undefined, options))
  await client.close()
  // Node's fetch opens connections before it needs them, and a server waits for those that have never asked for anything.
  served.app.server.closeAllConnections()
})

function clientLayer () {
  const layer = createLayer({ name: 'clients', version: '1' })
  layer.tool('steps', {}, async (_args, ctx) => {
    for (let step = 1; step <= 3; step++) {
      await ctx.progress(step, 3)
      await new Promise((resolve) => { setTimeout(resolve, 20) })
    }
    return { done: 3 }
  })
  layer.tool('endless', {}, async (_args, ctx) => {
    for (let step = 1; !ctx.signal.aborted; step++) {
      await ctx.progress(step)
      await new Promise((resolve) => { setTimeout(resolve, 5) })
    }
  })
  layer.tool('whoami', {}, (_args, ctx) => ({ id: ctx.principal.id, transport: ctx.request.transport }))
  layer.resource('test://one', { name: 'one' }, () => 'one')
  layer.prompt('greet', {}, () => 'Greet')
  return layer
}

type Call = (name: string, options: { signal?: AbortSignal, onprogress?: (progress: { progress: number }) => void }) => Promise<unknown>
interface AnyClient {
  listTools (): Promise<{ tools: { name: string }[] }>
  listResources (): Promise<{ resources: unknown[] }>
  listPrompts (): Promise<{ prompts: unknown[] }>
}

async function useAll (t: Test, client: AnyClient, call: Call): Promise<void> {
  t.match((await client.listTools()).tools, [{ name: 'steps' }, { name: 'endless' }, { name: 'whoami' }])
  t.match((await client.listResources()).resources, [{ uri: 'test://one' }])
  t.match((await client.listPrompts()).prompts, [{ name: 'greet' }])
  const steps: number[] = []
  t.match(await call('steps', { onprogress: ({ progress }) => { steps.push(progress) } }), { structuredContent: { done: 3 } })
  t.same(steps, [1, 2, 3])
  const cancelled = new AbortController()
  await t.rejects(call('endless', { signal: cancelled.signal, onprogress: ({ progress }) => { if (progress === 3) cancelled.abort() } }))
  t.match(await call('whoami', {}), { structuredContent: { id: 'alice', transport: 'sse' } })
}
