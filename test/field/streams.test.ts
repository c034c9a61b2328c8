// Event streams as they fail in the field: held back by proxies and compressors, silent until somebody cuts them, written
// to after the reader has left, open when the server wants to close.

import compress from '@fastify/compress'
import cors from '@fastify/cors'
import Fastify from 'fastify'
import type { FastifyInstance } from 'fastify'
import { once } from 'node:events'
import { Agent } from 'node:http'
import { connect as http2Connect } from 'node:http2'
import { connect } from 'node:net'
import { performance } from 'node:perf_hooks'
import { mock } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import type { Test } from 'tap'
import { z } from 'zod'
import { sendDirectly } from '../../lib/http/direct.js'
import { EventStream, KeepAlive } from '../../lib/http/stream.js'
import { createLayer } from '../../lib/layer/index.js'
import { createKit, initialize, INITIALIZED, modern, modernHeaders, request } from '../kit.js'
import { nginx, noNginx } from './nginx.js'
import type { Ask, Service } from './wire.js'
import { BOTH, gate, H, PING, pipe, raw, refused, serve, Stream, Wire } from './wire.js'

const STEPS = 4
const OLD_STREAM: Ask = { method: 'GET', path: '/sse', headers: { accept: 'text/event-stream' } }

/** A tool that takes its next step only when the test has seen the one before. */
function stepping (layer = createLayer({ name: 'steps', version: '1' })) {
  const seen = Array.from({ length: STEPS }, () => gate())
  layer.tool('steps', {}, async (_args, ctx) => {
    for (let step = 0; step < STEPS; step++) {
      await ctx.progress(step + 1, STEPS)
      await seen[step]!.opened
    }
    return 'all seen'
  })
  const call = request('tools/call', { name: 'steps', arguments: {}, _meta: { progressToken: 'p' } }, 9)

  /** Every event has to come while the tool waits for it to be seen. */
  async function read (t: Test, stream: Stream): Promise<void> {
    for (let step = 0; step < STEPS; step++) {
      const { method, params } = await stream.next()
      t.same([method, params], ['notifications/progress', { progressToken: 'p', progress: step + 1, total: STEPS }])
      seen[step]!.open()
    }
    t.equal((await stream.next()).result.content[0].text, 'all seen')
    t.ok(await stream.end())
  }

  return { layer, call, read }
}

/** A tool that runs until the test lets it go. */
function waiting (layer = createLayer({ name: 'waits', version: '1' })) {
  const [began, go] = [gate(), gate()]
  layer.tool('wait', {}, async () => {
    began.open()
    await go.opened
    return 'done'
  })
  return { layer, began: began.opened, go: go.open, call: request('tools/call', { name: 'wait', arguments: {} }, 3) }
}

function sseHeaders (t: Test, { headers }: { headers: Record<string, unknown> }): void {
  t.match(headers['content-type'], /^text\/event-stream\b/)
  t.equal(headers['cache-control'], 'no-cache, no-transform')
  t.equal(headers['x-accel-buffering'], 'no')
  t.equal(headers['content-encoding'], undefined)
}

t.test('SSE-01 a stream carries the headers that keep proxies from buffering it', async (t) => {
  const { layer, call, read } = stepping()
  const service = await serve(t, { layer, sse: true })
  const session = await service.connect()
  const [post, get, old] = [await session.open(call), await session.get(), await service.open(OLD_STREAM)]
  for (const stream of [post, get, old]) sseHeaders(t, stream)
  await read(t, post)
  const short = await session.post(request('ping'), { accept: 'text/event-stream' })
  sseHeaders(t, short)
  sseHeaders(t, await service.post(initialize(), { accept: 'text/event-stream' }))
})

t.test('SSE-01 nginx with its defaults passes each event on at once', { skip: noNginx }, async (t) => {
  const { layer, call, read } = stepping(createKit().layer)
  const service = await serve(t, { layer, keepAliveInterval: 200 })
  const proxy = new Wire(await nginx(t, `location /mcp { proxy_pass http://127.0.0.1:${service.port}; }`))
  t.teardown(() => proxy.agent.destroy())
  const session = await proxy.connect()

  const stream = await session.get()
  t.equal(stream.status, 200)
  t.equal(await stream.comment(), 'open')
  t.equal(await stream.comment(), 'keepalive')
  layer.notifyChanged('tools')
  t.same(await stream.next(), { jsonrpc: '2.0', method: 'notifications/tools/list_changed' })

  await read(t, await session.open(call))
  const listen = await proxy.open({
    headers: { ...H, ...modernHeaders('subscriptions/listen') },
    body: modern('subscriptions/listen', { notifications: { promptsListChanged: true } }, 'L')
  })
  t.equal((await listen.next()).method, 'notifications/subscriptions/acknowledged')
  layer.notifyChanged('prompts')
  t.equal((await listen.next()).method, 'notifications/prompts/list_changed')
  listen.destroy()
  stream.destroy()
  t.equal((await session.delete()).status, 200)
})

t.test('SSE-02 a silent stream carries comments, whatever it is for', async (t) => {
  const { layer, began, go, call } = waiting()
  const service = await serve(t, { layer, keepAliveInterval: 150, sse: true })
  const session = await service.connect()
  const listen = modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'L')
  const [post, get, listening, old] = await Promise.all([
    session.open(call), session.get(), service.open({ headers: { ...H, ...modernHeaders(listen.method) }, body: listen }), service.open(OLD_STREAM)
  ])
  await began
  t.equal((await listening.next()).method, 'notifications/subscriptions/acknowledged')
  for (const stream of [post, get, listening, old]) {
    const comments = [await stream.comment(), await stream.comment(), await stream.comment()].filter((comment) => comment !== 'open')
    t.ok(comments.length >= 2)
    t.ok(comments.every((comment) => comment === 'keepalive'))
  }
  go()
  t.equal((await post.next()).id, 3)
  t.ok(await post.end())
  t.notMatch(post.text.slice(post.text.indexOf('"id":3')), 'keepalive', 'no comment follows the answer')
  for (const stream of [get, listening, old]) stream.destroy()
})

t.test('SSE-02 the silence is never longer than the interval', async (t) => {
  mock.timers.enable({ apis: ['setInterval', 'Date'] })
  t.teardown(() => mock.timers.reset())
  const interval = 15_000
  const keepAlive = new KeepAlive(interval)
  for (const pause of [0, 1, 400, 999, 1000, 1001, 3500, 7250, 13_999, 14_001, 14_999]) {
    const stream = new EventStream(keepAlive)
    stream.body.read()
    let [last, longest, comments] = [Date.now(), 0, 0]
    for (let at = 1; at <= 4 * interval; at++) {
      mock.timers.tick(1)
      if (at === pause || at === interval + 2 * pause) await stream.send({ at })
      const text: Buffer | null = stream.body.read()
      if (text === null) continue
      if (text.toString() === ': keepalive\n\n') comments++
      longest = Math.max(longest, Date.now() - last)
      last = Date.now()
    }
    t.ok(longest <= interval, `${longest} ms after a message at ${pause}`)
    t.ok(comments >= 2 && comments <= 5, `${comments} comments`)
    stream.destroy()
  }
  t.equal(keepAlive.size, 0)
})

t.test('a stream that is over before it is sent leaves no client waiting', async (t) => {
  const keepAlive = new KeepAlive(15_000)
  const app = Fastify()
  app.get('/destroyed', { onSend: sendDirectly }, (_request, reply) => {
    const stream = new EventStream(keepAlive)
    stream.destroy()
    void reply.send(stream.body)
  })
  app.get('/finished', { onSend: sendDirectly }, (_request, reply) => {
    const stream = new EventStream(keepAlive)
    stream.finish('data: last\n\n')
    void reply.send(stream.body)
  })
  t.teardown(() => app.close())
  const origin = await app.listen({ host: '127.0.0.1', port: 0 })
  await t.rejects(fetch(`${origin}/destroyed`))
  t.equal(await (await fetch(`${origin}/finished`)).text(), ': open\n\ndata: last\n\n')
  t.equal(keepAlive.size, 0)
})

t.test('SSE-03 the first bytes leave at once, on a silent stream and under a slow call', async (t) => {
  const { layer, call, began, go } = waiting()
  const service = await serve(t, { layer })
  const session = await service.connect()
  const started = performance.now()
  const get = await session.get()
  t.equal(get.status, 200)
  await get.firstByte()
  t.equal(get.text, ': open\n\n')
  t.ok(performance.now() - started < 5000, 'long before a keep-alive')

  const post = await session.open(call)
  await began
  await post.firstByte()
  t.equal(post.text, ': open\n\n', 'the tool has said nothing yet')
  go()
  t.equal((await post.next()).id, 3)
  get.destroy()
})

t.test('SSE-04 a client with a body timeout stays connected', async (t) => {
  const quiet = await serve(t, { keepAliveInterval: 60_000 })
  const kept = await serve(t, { keepAliveInterval: 100 })
  await fetch(`http://127.0.0.1:${kept.port}/healthz`)
  const dispatcher = (globalThis as any)[Symbol.for('undici.globalDispatcher.1')]
  const impatient = new dispatcher.constructor({ bodyTimeout: 1000 })
  t.teardown(() => impatient.destroy())
  async function follow (service: Wire) {
    const session = await service.connect()
    const response = await fetch(`http://127.0.0.1:${service.port}/mcp`, {
      headers: { accept: 'text/event-stream', 'mcp-session-id': session.id }, dispatcher: impatient
    } as RequestInit)
    const reader = response.body!.getReader()
    const text = async (): Promise<string> => Buffer.from((await reader.read()).value!).toString()
    t.equal(await text(), ': open\n\n')
    return text
  }
  const [silent, alive] = [await follow(quiet), await follow(kept)]
  await t.rejects(silent(), { name: 'TypeError', message: 'terminated' }, 'the client gives up on a silent stream')
  for (let comment = 0; comment < 12; comment++) t.match(await alive(), /^(: keepalive\n\n)+$/)
  kept.layer.notifyChanged('tools')
  let last = ''
  while (!last.includes('notifications/tools/list_changed')) last += await alive()
  t.pass('the stream works')
})

t.test('SSE-05 after a broken socket the next GET is let in at once', async (t) => {
  const service = await serve(t)
  const session = await service.connect()
  for (let round = 0; round < 40; round++) {
    const stream = await session.get()
    t.equal(stream.status, 200)
    if (round % 2 === 0) stream.response.socket.resetAndDestroy()
    else stream.destroy()
  }
  const live = await session.get()
  t.equal(live.status, 200)
  const second = await service.send({ method: 'GET', headers: { accept: 'text/event-stream', ...session.headers } })
  t.equal(second.status, 409)
  t.same(second.json, refused('Conflict: a GET stream is already open for this session'))
  service.layer.notifyChanged('tools')
  t.equal((await live.next()).method, 'notifications/tools/list_changed', 'the live one is not disturbed')
  t.equal((await session.post(PING)).status, 200)
  live.destroy()
})

t.test('SSE-05 a reader that has stopped reading gives way', async (t) => {
  const service = await serve(t, { keepAliveInterval: 300 })
  service.layer.tool('shout', {}, async (_args, ctx) => { await ctx.notify.log('error', 'x'.repeat(1024 * 1024)) })
  const session = await service.connect()
  const stalled = await session.get()
  stalled.response.pause()
  // Without a stream of their own, messages of a call go to the session's stream: more than sockets and queues hold.
  for (let shout = 0; shout < 24; shout++) await session.post(request('tools/call', { name: 'shout', arguments: {} }), { accept: 'application/json' })
  let next = await session.get()
  while (next.status === 409) {
    await next.end()
    next = await session.get()
  }
  t.equal(next.status, 200)
  service.layer.notifyChanged('tools')
  let message = await next.next()
  while (message.method === 'notifications/message') message = await next.next()
  t.equal(message.method, 'notifications/tools/list_changed')
  stalled.response.resume()
  t.notOk(await stalled.end(), 'the old one is cut')
  t.equal((await session.post(PING)).status, 200)
  next.destroy()
})

t.test('SSE-06 a compressor of the host neither packs nor holds events', async (t) => {
  const { layer, call, read } = stepping(createKit().layer)
  for (let tool = 0; tool < 60; tool++) layer.tool(`padding_${tool}`, { description: 'So that a list is worth packing' }, () => null)
  const service = await serve(t, { layer }, { before: async (app) => { await app.register(compress, { global: true, threshold: 0 }) } })
  const session = await service.connect({ 'accept-encoding': 'gzip, br' })
  const post = await session.open(call)
  sseHeaders(t, post)
  await read(t, post)
  const get = await session.get()
  sseHeaders(t, get)
  await get.firstByte()
  layer.notifyChanged('tools')
  t.equal((await get.next()).method, 'notifications/tools/list_changed')
  get.destroy()
  const short = await session.post(request('tools/call', { name: 'stats', arguments: {} }))
  sseHeaders(t, short)
  t.equal(short.reply.result.structuredContent.count, 4)
  const list = await session.post(request('tools/list'))
  t.ok(list.headers['content-encoding'], 'what is no stream is the host\'s to compress')
})

t.test('SSE-08 keep-alives are comments, events are messages of one line, and a POST stream ends with its answer', async (t) => {
  const { layer, began, go } = waiting(createKit().layer)
  const service = await serve(t, { layer, keepAliveInterval: 75 })
  const session = await service.connect()
  const get = await session.get()
  const [slow, wait] = [
    await session.open(request('tools/call', { name: 'slow', arguments: {}, _meta: { progressToken: 1 } })),
    await session.open(request('tools/call', { name: 'wait', arguments: {} }, 2))
  ]
  await began
  for (const stream of [get, wait]) while (await stream.comment() !== 'keepalive');
  layer.notifyChanged('tools')
  await get.next()
  go()
  t.ok(await wait.end())
  t.ok(await slow.end())
  get.destroy()
  for (const { text } of [get, slow, wait]) {
    const blocks = text.split('\n\n')
    t.equal(blocks.pop(), '')
    for (const block of blocks) t.match(block, /^(: (open|keepalive)|event: message\ndata: \{.*\})$/)
  }
  t.match(slow.text, /"id":1,[^\n]*\n\n$/, 'nothing follows the answer')
  t.match(wait.text, /"id":2,[^\n]*\n\n$/)
})

t.test('SSE-09 line ends of Unicode leave escaped', async (t) => {
  const service = await serve(t)
  const text = 'a\u2028b\u2029c\u0085d\r\ne'
  service.layer.tool('lines', {}, async (_args, ctx) => {
    await ctx.progress(1, 2, text)
    return { text }
  })
  const session = await service.connect()
  const call = request('tools/call', { name: 'lines', arguments: {}, _meta: { progressToken: text } })
  const answer = await session.post(call)
  t.match(answer.text, '\\u2028')
  t.match(answer.text, '\\u2029')
  t.match(answer.text, '\\u0085')
  t.notMatch(answer.text, /[\u2028\u2029\u0085\r]/)
  t.equal(answer.messages.length, 2)
  t.equal(answer.messages[0].params.message, text)
  t.equal(answer.reply.result.structuredContent.text, text)
  const json = await session.post(call, { accept: 'application/json' })
  t.equal(json.reply.result.structuredContent.text, text)

  const lines = await pipe(service.layer, (write) => {
    write(initialize())
    write(call)
  })
  t.notMatch(lines.join(''), /[\u2028\u2029\u0085\r]/, 'nor on standard output')
  t.same(lines.map((line) => JSON.parse(line)).map(({ id, method }) => method ?? id), ['init', 'notifications/progress', 1])
})

t.test('SSE-11 streams work over HTTP/2, without connection headers', async (t) => {
  const { layer, call, read } = stepping(createKit().layer)
  const { began, call: waits } = waiting(layer)
  const left = gate()
  layer.tool('leave', {}, async (_args, ctx) => {
    await once(ctx.signal, 'abort')
    left.open()
  })
  const warnings: Error[] = []
  const warn = (warning: Error): void => { warnings.push(warning) }
  process.on('warning', warn)
  t.teardown(() => process.off('warning', warn))
  const service = await serve(t, { layer }, { fastify: { http2: true } })
  const client = http2Connect(`http://127.0.0.1:${service.port}`)
  t.teardown(() => client.destroy())

  async function ask (headers: Record<string, string>, body?: unknown) {
    const stream = client.request({ ':path': '/mcp', ':method': body === undefined ? 'GET' : 'POST', ...H, ...headers }, { endStream: body === undefined })
    if (body !== undefined) stream.end(JSON.stringify(body))
    const [head] = await once(stream, 'response') as [Record<string, any>]
    for (const name of ['connection', 'keep-alive', 'transfer-encoding']) t.equal(head[name], undefined, name)
    const response = Object.assign(stream, { statusCode: head[':status'] as number, headers: head, complete: false })
    stream.once('end', () => { response.complete = true })
    return response as any
  }
  const opened = await ask({}, initialize())
  const session = { 'mcp-session-id': opened.headers['mcp-session-id'] }
  opened.resume()
  const accepted = await ask(session, INITIALIZED)
  accepted.resume()
  t.equal(accepted.statusCode, 202)
  const post = new Stream(await ask(session, call))
  sseHeaders(t, post)
  await read(t, post)
  const get = new Stream(await ask({ ...session, accept: 'text/event-stream' }))
  sseHeaders(t, get)
  layer.notifyChanged('tools')
  t.equal((await get.next()).method, 'notifications/tools/list_changed')

  const evil = await ask({ ':authority': 'evil.example' }, PING)
  evil.resume()
  t.equal(evil.statusCode, 421)
  const leaving = client.request({ ':path': '/mcp', ':method': 'POST', ...H, ...modernHeaders('tools/call', 'leave') })
  leaving.end(JSON.stringify(modern('tools/call', { name: 'leave', arguments: {} })))
  await once(leaving, 'response')
  leaving.close(8)
  await left.opened

  const pending = new Stream(await ask(session, waits))
  await began
  const closed = service.app.close()
  t.ok(await get.end(), 'a closing server ends the stream')
  t.ok(await pending.end())
  client.close()
  await closed
  t.same(warnings.filter(({ name }) => name === 'UnsupportedWarning'), [])
})

t.test('SSE-12 a stream has the headers that hooks of the host have set', async (t) => {
  const { layer } = createKit()
  const settings: [string, Record<string, unknown>, (app: FastifyInstance) => void][] = [
    ['the host\'s CORS', { allowedOrigins: ['http://app.example'] }, (app) => { void app.register(cors, { origin: ['http://app.example'], exposedHeaders: ['Mcp-Session-Id'] }) }],
    ['the plugin\'s', { corsOrigins: ['http://app.example'] }, () => {}]
  ]
  for (const [name, options, register] of settings) {
    const service = await serve(t, { layer, ...options }, {
      before: (app) => {
        register(app)
        app.addHook('onRequest', async (_request, reply) => { void reply.header('x-request-id', 'r-1') })
        app.addHook('onSend', async (_request, reply, payload) => { void reply.header('x-sent', 'yes'); return payload })
      }
    })
    const session = await service.connect({ origin: 'http://app.example' })
    const stream = await session.get()
    const answers = [
      stream,
      await session.post(request('tools/call', { name: 'slow', arguments: {} })),
      await session.post(request('tools/list')),
      await session.post(request('tools/call', { name: 'slow', arguments: {} }), { accept: 'application/json' }),
      await service.post(initialize(), { origin: 'http://app.example', accept: 'text/event-stream' })
    ]
    for (const { headers } of answers) {
      t.equal(headers['access-control-allow-origin'], 'http://app.example', name)
      t.match(headers.vary, /\bOrigin\b/i)
      t.match(headers['access-control-expose-headers'], /mcp-session-id/i)
      t.same([headers['x-request-id'], headers['x-sent']], ['r-1', 'yes'])
    }
    t.match(answers[4]!.headers['mcp-session-id'], /^[0-9a-f]{32}$/)
    stream.destroy()
  }
})

t.test('SSE-13 every response is one response to the hooks of the host', async (t) => {
  const responses: string[] = []
  const errors: unknown[] = []
  const service = await serve(t, { layer: createKit().layer }, {
    before: (app) => {
      app.addHook('onSend', async (_request, _reply, payload) => { await turn(); return payload })
      app.addHook('onResponse', async (request, reply) => { responses.push(`${request.method} ${reply.statusCode}`) })
      app.addHook('onError', async (_request, _reply, error) => { errors.push(error) })
    }
  })
  const session = await service.connect()
  const stream = await session.get()
  t.equal(stream.status, 200)
  const answer = await session.post(request('tools/call', { name: 'slow', arguments: {} }))
  t.equal(answer.messages.length, 4)
  t.equal((await service.post(PING, { accept: 'text/html' })).status, 406)
  t.equal((await session.delete()).status, 200)
  t.ok(await stream.end())
  service.agent.destroy()
  await service.app.close()
  t.same(responses.sort(), ['DELETE 200', 'GET 200', 'POST 200', 'POST 200', 'POST 202', 'POST 406'])
  t.same(errors, [])
  t.same(service.logs, [])
})

t.test('SSE-14 readers that leave in the middle break nothing', async (t) => {
  const layer = createLayer({ name: 'chatty', version: '1' })
  const over = gate()
  const [TIMES, MESSAGES] = [200, 40]
  let [ended, aborted] = [0, 0]
  layer.tool('chat', {}, async (_args, ctx) => {
    try {
      for (let at = 1; at <= MESSAGES && !ctx.signal.aborted; at++) {
        void ctx.progress(at)
        await ctx.notify.log('info', at)
        await turn()
      }
      if (ctx.signal.aborted) aborted++
      return 'done'
    } finally {
      if (++ended === TIMES) over.open()
    }
  })
  const service = await serve(t, { layer, maxSessions: TIMES, maxSessionsPerPrincipal: TIMES })
  const bodies = {
    legacy: request('tools/call', { name: 'chat', arguments: {}, _meta: { progressToken: 1 } }),
    modern: modern('tools/call', { name: 'chat', arguments: {}, _meta: { progressToken: 1, 'io.modelcontextprotocol/logLevel': 'info' } })
  }
  async function leave (at: number): Promise<void> {
    const stream = at % 2 === 0
      ? await (await service.connect()).open(bodies.legacy)
      : await service.open({ headers: { ...H, ...modernHeaders('tools/call', 'chat') }, body: bodies.modern })
    for (let message = 0; message < at % 5; message++) await stream.next()
    if (at % 3 === 0) stream.response.socket.resetAndDestroy()
    else stream.destroy()
  }
  await Promise.all(Array.from({ length: TIMES }, (_, at) => leave(at)))
  await over.opened
  t.ok(aborted <= TIMES / 2, 'a handshake call runs on')
  t.equal((await service.post(initialize())).status, 200)
  t.same(service.logs, [])
})

t.test('SSE-14 who leaves while still being checked is not served, and holds nothing', async (t) => {
  const layer = createLayer({ name: 'checked', version: '1' })
  let calls = 0
  layer.tool('run', {}, () => { calls++ })
  let [asked, decided] = [gate(), gate()]
  const before = (app: FastifyInstance): void => {
    app.addHook('preHandler', async () => {
      asked.open()
      await decided.opened
    })
  }
  const service = await serve(t, { layer, maxStreams: 1, sse: true }, { before })
  decided.open()
  const session = await service.connect()
  const call = modern('tools/call', { name: 'run', arguments: {} })
  const listen = modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'L')
  const asks: Ask[] = [
    { headers: { ...H, ...modernHeaders(listen.method) }, body: listen },
    { method: 'GET', headers: { accept: 'text/event-stream', ...session.headers } },
    { headers: { ...H, ...modernHeaders('tools/call', 'run') }, body: call },
    OLD_STREAM
  ]
  /** Resolves when the server has seen the end of the response to the request that comes next. */
  async function nextIsOver ({ app }: Service): Promise<void> {
    const over = gate()
    app.server.once('request', (_request, response) => response.once('close', over.open))
    return over.opened
  }
  async function sendAndLeave (service: Service, send: () => { destroy: () => void }): Promise<void> {
    [asked, decided] = [gate(), gate()]
    const gone = nextIsOver(service)
    const sent = send()
    await asked.opened
    sent.destroy()
    await gone
    decided.open()
    await turn()
  }
  for (const ask of asks) await sendAndLeave(service, () => service.leaving(ask))
  const over = nextIsOver(service)
  const stream = await session.get()
  t.equal(stream.status, 200, 'the only slot is free')
  stream.destroy()
  await over
  const listening = await service.open(asks[0]!)
  t.equal((await listening.next()).method, 'notifications/subscriptions/acknowledged')
  listening.destroy()
  t.equal(calls, 0, 'nobody would read the result')

  const second = await serve(t, { layer, maxStreams: 1, sse: true }, { before, fastify: { http2: true } })
  const client = http2Connect(`http://127.0.0.1:${second.port}`)
  t.teardown(() => client.destroy())
  const ask = (headers: object, body?: string) => {
    const sent = client.request({ ':path': '/mcp', ':method': body === undefined ? 'GET' : 'POST', ...H, ...headers }, { endStream: body === undefined })
    return body === undefined ? sent : sent.end(body)
  }
  const begin = ask({}, JSON.stringify(initialize())).resume()
  const [head] = await once(begin, 'response')
  const ways = [
    () => ask({ 'mcp-session-id': head['mcp-session-id'], accept: 'text/event-stream' }),
    () => ask(modernHeaders(listen.method), JSON.stringify(listen)),
    () => ask({ ':path': '/sse', accept: 'text/event-stream' })
  ]
  for (const way of ways) {
    await sendAndLeave(second, () => {
      const sent = way()
      return { destroy: () => { sent.close(8) } }
    })
  }
  const [first] = await once(ways[1]!(), 'data')
  t.match(String(first), 'notifications/subscriptions/acknowledged', 'over HTTP/2 as well')
})

t.test('SSE-14 a slow reader slows its producer, and what cannot wait is dropped', async (t) => {
  const layer = createLayer({ name: 'flood', version: '1' })
  const text = 'x'.repeat(64 * 1024)
  let [awaited, sent] = [0, 0]
  const stuck = gate()
  layer.tool('patient', {}, async (_args, ctx) => {
    for (; awaited < 4000 && !ctx.signal.aborted; awaited++) await ctx.notify.log('info', text)
  })
  layer.tool('hasty', { input: { done: z.boolean().optional() } }, async (_args, ctx) => {
    for (; sent < 4000; sent++) void ctx.notify.log('info', text)
    stuck.open()
    await turn()
    return 'done'
  })
  const service = await serve(t, { layer })
  const session = await service.connect()
  const patient = await session.open(request('tools/call', { name: 'patient', arguments: {} }))
  patient.response.pause()
  const hasty = await session.open(request('tools/call', { name: 'hasty', arguments: {} }))
  hasty.response.pause()
  await stuck.opened
  // Sockets of both sides hold some megabytes; a quarter of a gigabyte was produced.
  t.ok(awaited < 4000, `${awaited} messages of the one that waits`)
  hasty.response.resume()
  t.ok(await hasty.end())
  t.ok(hasty.unread.length < 1000, `${hasty.unread.length} messages of the one that does not`)
  t.equal(hasty.unread.at(-1).result.content[0].text, 'done', 'the answer is never dropped')
  t.match(service.logs, [{ msg: 'a client reads its stream too slowly: notifications are dropped' }])
  patient.destroy()
})

t.test('SSE-16 without resumption Last-Event-ID is ignored and no event has an id', async (t) => {
  const { layer } = createKit()
  const service = await serve(t, { layer })
  const a = await service.connect()
  const first = await a.get()
  layer.notifyChanged('tools')
  t.equal((await first.next()).method, 'notifications/tools/list_changed')
  t.notMatch(first.text, /^id:/m)
  first.destroy()
  const b = await service.connect()
  for (const id of ['1', '0', `${a.id}:1`, 'x'.repeat(500)]) {
    const stream = await b.get({ 'Last-Event-ID': id })
    t.equal(stream.status, 200)
    await stream.firstByte()
    layer.notifyChanged('prompts')
    const { method } = await stream.next()
    t.equal(method, 'notifications/prompts/list_changed', 'nothing of the other session comes first')
    t.same(stream.unread, [])
    stream.destroy()
  }
})

t.test('SSE-16 with it, an id replays its own stream of its own session and nothing else', async (t) => {
  const { layer } = createKit()
  const service = await serve(t, { layer, resumable: true })
  const [a, b] = [await service.connect(), await service.connect()]
  const call = (id: number) => request('tools/call', { name: 'slow', arguments: {}, _meta: { progressToken: `of ${id}` } }, id)
  const streams = [await a.post(call(1)), await a.post(call(2)), await b.post(call(3))]
  const ids = streams.map(({ text }) => text.match(/^id: (.*)$/m)![1]!)
  t.equal(new Set(ids).size, 3)

  const own = await a.get({ 'Last-Event-ID': ids[0]! })
  t.ok(await own.end())
  t.same(own.unread, streams[0]!.messages, 'what followed the first event of the stream, and not the other call')
  for (const id of [ids[0]!, ids[1]!, 'nonsense', `${ids[2]!}0`, '__proto__']) {
    const foreign = await b.get({ 'Last-Event-ID': id })
    t.equal(foreign.status, 200)
    await foreign.firstByte()
    layer.notifyUpdated('test://nobody')
    layer.notifyChanged('prompts')
    t.equal((await foreign.next()).method, 'notifications/prompts/list_changed', id)
    t.same(foreign.unread, [])
    foreign.destroy()
  }
})

t.test('SSE-18 close() ends streams and calls, and resolves', async (t) => {
  const { layer, entered } = createKit()
  const service = await serve(t, { layer, closeGrace: 100 })
  const session = await service.connect()
  const stream = await session.get()
  const listen = await service.open({
    headers: { ...H, ...modernHeaders('subscriptions/listen') },
    body: modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'L')
  })
  await listen.next()
  const idle = connect(service.port, '127.0.0.1')
  t.teardown(() => idle.destroy())
  idle.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n')
  await once(idle, 'data')
  const began = entered('sleepy')
  const call = await session.open(request('tools/call', { name: 'sleepy', arguments: {} }, 8))
  const { signal } = await began
  const alsoBegan = entered('sleepy')
  const json = session.post(request('tools/call', { name: 'sleepy', arguments: {} }, 9), { accept: 'application/json' })
  await alsoBegan

  const started = performance.now()
  const closed = service.app.close()
  t.ok(await stream.end(), 'the stream ends with its terminating chunk')
  t.same(await listen.next(), {
    jsonrpc: '2.0',
    id: 'L',
    result: {
      resultType: 'complete',
      _meta: { 'io.modelcontextprotocol/subscriptionId': 'L', 'io.modelcontextprotocol/serverInfo': { name: 'kit', version: '1.2.3', title: 'Kit' } }
    }
  })
  t.ok(await listen.end())
  t.same(await call.next(), refused('The server is shutting down', -32603, 8))
  t.ok(await call.end())
  t.same((await json).json, refused('The server is shutting down', -32603, 9))
  t.ok(signal.aborted)
  await closed
  t.ok(performance.now() - started < 1000)
  await service.app.close()
  t.pass('a second close() is harmless')
  await t.rejects(new Wire(service.port).post(PING), { code: 'ECONNREFUSED' })
})

t.test('SSE-18 what finishes within the grace is answered, what comes in it is refused', async (t) => {
  const { layer, call, began, go } = waiting()
  const service = await serve(t, { layer, closeGrace: 10_000 })
  const session = await service.connect()
  const running = session.post(call)
  await began
  const closed = service.app.close()
  const late = await session.post(PING)
  t.equal(late.status, 503)
  go()
  t.equal((await running).reply.result.content[0].text, 'done')
  await closed
})

t.test('SSE-19 a HEAD is 405 at once and holds nothing', async (t) => {
  const service = await serve(t, { maxStreams: 1 })
  const session = await service.connect()
  for (let time = 0; time < 100; time++) {
    const answer = await service.send({ method: 'HEAD', headers: { accept: BOTH, ...session.headers } })
    t.same([answer.status, answer.headers.allow, answer.text], [405, 'GET, POST, DELETE', ''])
  }
  t.equal((await session.get()).status, 200, 'the only slot is free')

  const old = await serve(t, { maxStreams: 1, sse: true })
  for (let time = 0; time < 100; time++) t.equal((await old.send({ method: 'HEAD', path: '/sse', headers: {} })).status, 405)
  t.equal((await old.open(OLD_STREAM)).status, 200)
})

t.test('SSE-20 the timeouts of the host stay as they are', async (t) => {
  for (const fastify of [{}, { keepAliveTimeout: 5000, requestTimeout: 7000, connectionTimeout: 9000 }]) {
    let before: unknown
    const timeouts = ({ server }: FastifyInstance) => [server.keepAliveTimeout, server.headersTimeout, server.requestTimeout, server.timeout]
    const service = await serve(t, {}, { fastify, before: (app) => { before = timeouts(app) } })
    t.same(timeouts(service.app), before)
    t.equal(service.app.server.keepAliveTimeout, fastify.keepAliveTimeout ?? 72_000)

    let connections = 0
    service.app.server.on('connection', () => { connections++ })
    const pooled = new Wire(service.port, new Agent({ keepAlive: true, maxSockets: 1 }))
    t.teardown(() => pooled.agent.destroy())
    const session = await pooled.connect()
    const statuses = new Set<number>()
    for (let time = 0; time < 200; time++) statuses.add((await session.post(PING)).status)
    t.same([...statuses], [200])
    t.equal(connections, 1, 'one connection serves them all')
  }
})

t.test('SSE-20 a refusal in front of an unread body leaves a connection that works, or closes it', async (t) => {
  const service = await serve(t, { maxBodyBytes: 1000, auth: { tokens: ['secret'] } })
  const body = 'x'.repeat(2000)
  const head = (more: string) => `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer secret\r\n${more}\r\n\r\n`
  const tooLarge = await raw(service.port, `${head('Content-Length: 2000')}${body}`)
  t.match(tooLarge, /^HTTP\/1\.1 413 /)
  t.match(tooLarge, /\r\nconnection: close\r\n/i)
  const chunked = await raw(service.port, `${head('Transfer-Encoding: chunked')}7d0\r\n${body}\r\n0\r\n\r\n`)
  t.match(chunked, /^HTTP\/1\.1 413 /)
  t.match(chunked, /\r\nconnection: close\r\n/i)
  const length = await raw(service.port, `${head('Content-Length: 12, 12')}\r\n`)
  t.match(length, /^HTTP\/1\.1 400 /, 'Node refuses it, and closes')

  const single = new Wire(service.port, new Agent({ keepAlive: true, maxSockets: 1 }))
  t.teardown(() => single.agent.destroy())
  const authorized = { authorization: 'Bearer secret' }
  for (const headers of [{}, { ...authorized, 'content-type': 'text/plain' }, { ...authorized, accept: 'text/html' }]) {
    t.not((await single.post('x'.repeat(900), headers)).status, 200)
    t.equal((await single.post(initialize(), authorized)).status, 200)
  }
})

t.test('SSE-22 a GET that will never be served is 405, and streams end cleanly when the server does', async (t) => {
  const stateless = await serve(t, { stateless: true })
  for (const headers of [{}, { 'mcp-session-id': 'x' }, { 'last-event-id': '4' }]) {
    const answer = await stateless.send({ method: 'GET', headers: { accept: 'text/event-stream', ...headers } })
    t.equal(answer.status, 405)
    t.equal(answer.headers.allow, 'POST')
    t.same(answer.json, refused('Method Not Allowed'))
    t.equal((await stateless.send({ method: 'DELETE', headers })).headers.allow, 'POST')
  }

  const service = await serve(t)
  const ends = await Promise.all(Array.from({ length: 20 }, async () => {
    const session = await service.connect()
    const socket = connect(service.port, '127.0.0.1')
    socket.setEncoding('latin1')
    let text = ''
    socket.on('data', (chunk: string) => { text += chunk })
    socket.write(`GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: ${session.id}\r\n\r\n`)
    await once(socket, 'data')
    return { end: once(socket, 'end').then(() => text) }
  }))
  const closed = service.app.close()
  for (const { end } of ends) t.match(await end, /\r\n0\r\n\r\n$/)
  await closed
})
