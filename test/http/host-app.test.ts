// The plugin as a guest: what the host has and does stays as it is, what the host's plugins do holds for the guest's answers,
// and the host may be built in any order, over HTTP/1.1 or HTTP/2.

import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { Agent } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import compress from '@fastify/compress'
import cors from '@fastify/cors'
import helmet from '@fastify/helmet'
import rateLimit from '@fastify/rate-limit'
import Fastify from 'fastify'
import type { FastifyInstance, FastifyReply } from 'fastify'
import t, { type Test } from 'tap'
import cloudgMcp, { createLayer } from '../../plugin.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { createKit, initialize, modern, modernHeaders, request } from '../kit.js'
import type { Answer, Stream } from './client.js'
import { captureLog, eventually, handshake, listen, listenStream, openStream, parseEvents, post, postModern, postStream, raw, rawRequest, refused, send, serve, SSE_ONLY } from './client.js'

const slow = modern('tools/call', { name: 'slow', arguments: { steps: 1 }, _meta: { progressToken: 1 } })
const slowHeaders = modernHeaders('tools/call', 'slow')

interface Hosted { app: FastifyInstance, origin: string, url: string, layer: ReturnType<typeof createKit>['layer'] }

/** A host as the test builds it, with the kit at /mcp unless the test mounts it itself. */
async function host (t: Test, app: FastifyInstance, options: CloudgMcpOptions | null = {}): Promise<Hosted> {
  const { layer } = createKit()
  if (options !== null) await app.register(cloudgMcp, { layer, ...options })
  const origin = `http://127.0.0.1:${await listen(t, app)}`
  return { app, origin, url: `${origin}/mcp`, layer }
}

async function serves (t: Test, url: string): Promise<void> {
  const answer = await postModern({ url }, 'tools/call', { name: 'echo', arguments: { text: 'x' } })
  t.equal(answer.status, 200)
  t.same(answer.messages[0].result.structuredContent, { text: 'x' }, `${url} is served`)
}

const tells = modern('tools/call', { name: 'tells', _meta: { progressToken: 1 } })
const tellsHeaders = modernHeaders('tools/call', 'tells')

/** A tool whose call, `tells`, is a stream, and a list that is long. */
function addLong (layer: Hosted['layer']): void {
  for (let n = 0; n < 20; n++) layer.tool(`tool_${n}`, { description: 'x'.repeat(2000) }, () => 'ok')
  layer.tool('tells', {}, async (_args, ctx) => {
    await new Promise(setImmediate)
    await ctx.progress(1, 2)
    for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate)
    return 'done'
  })
}

/** One answer of every way in which the plugin answers. */
async function allAnswers (url: string, headers: Record<string, string> = {}): Promise<Record<string, Pick<Answer | Stream, 'status' | 'headers'>>> {
  const session = await handshake({ url }, '2025-11-25', { headers: { ...headers, 'accept-encoding': 'identity' } })
  const stream = await session.get(headers)
  const listening = await listenStream({ url }, {}, 'L', headers)
  stream.leave()
  listening.leave()
  return {
    json: session.initialized,
    refusal: await post({ url }, '{', { ...headers, 'accept-encoding': 'identity' }),
    'an event with its length': await postModern({ url }, 'tools/call', { name: 'echo', arguments: { text: 'x' } }, headers),
    'a stream of a call': await post({ url }, slow, { ...slowHeaders, ...headers }),
    'the standalone stream': stream,
    'a listen': listening
  }
}

t.test('routes, parsers, error handlers and not-found handlers of the host stay its own', async (t) => {
  const app = Fastify({ bodyLimit: 100 })
  app.setErrorHandler((error: Error, _request, reply) => reply.code(599).send({ mine: error.message }))
  app.setNotFoundHandler((_request, reply) => reply.code(404).type('text/html').send('<h1>mine</h1>'))
  app.setReplySerializer((payload) => JSON.stringify({ wrapped: payload }))
  app.removeContentTypeParser('application/json')
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, body, done) => done(null, `text: ${body as string}`))
  app.addContentTypeParser('application/x-own', { parseAs: 'string' }, (_request, body, done) => done(null, `own: ${body as string}`))
  app.post('/orders', async ({ body }) => ({ body }))
  app.get('/fails', async () => { throw new Error('host error') })
  const { origin, url } = await host(t, app)

  const order = (type: string, body = '{"a":1}') => send(`${origin}/orders`, { headers: { 'content-type': type }, body })
  t.equal((await order('application/json')).text, '{"wrapped":{"body":"text: {\\"a\\":1}"}}')
  t.equal((await order('application/x-own')).text, '{"wrapped":{"body":"own: {\\"a\\":1}"}}')
  t.equal((await order('text/plain')).text, '{"wrapped":{"body":"{\\"a\\":1}"}}')
  t.equal((await order('application/zip')).status, 599, 'an unknown type is the host\'s error')
  t.match((await order('application/json', 'x'.repeat(101))).text, /^\{"wrapped":\{"mine":"Request body is too large"/)
  t.equal((await send(`${origin}/fails`, { method: 'GET' })).text, '{"wrapped":{"mine":"host error"}}')
  for (const path of ['/nowhere', '/mcp/nowhere', '/.well-known/security.txt']) t.equal((await send(origin + path, { method: 'GET' })).text, '<h1>mine</h1>')
  t.equal((await send(`${origin}/orders`, { method: 'GET' })).text, '<h1>mine</h1>')

  await serves(t, url)
  t.equal((await post({ url }, { ...request('tools/list'), params: { pad: 'x'.repeat(200) } })).status, 400, 'a body over the host\'s limit is read by the endpoint')
  refused(t, await post({ url }, '{'), 400, { code: -32700, message: 'Parse error' })
  refused(t, await post({ url }, 'x', { 'content-type': 'application/x-own' }), 415, 'Content-Type must be application/json')
  for (const path of ['/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp', '/.well-known/oauth-authorization-server', '/.well-known/openid-configuration', '/mcp/.well-known/openid-configuration']) {
    refused(t, await send(origin + path, { method: 'GET' }), 404, 'Not Found')
  }
})

t.test('a host without any parser, and one whose hooks touch every request', async (t) => {
  const app = Fastify()
  app.removeAllContentTypeParsers()
  const seen: string[] = []
  app.addHook('onRequest', async (request) => { seen.push(`onRequest ${request.method}`) })
  app.addHook('preParsing', async (_request, _reply, payload) => payload)
  app.addHook('preValidation', async () => { seen.push('preValidation') })
  app.addHook('preSerialization', async (_request, _reply, payload) => {
    seen.push('preSerialization')
    return payload
  })
  app.addHook('onSend', async (_request, _reply, payload) => {
    seen.push(`onSend ${typeof payload}`)
    return payload
  })
  app.addHook('onResponse', async (_request, reply) => { seen.push(`onResponse ${reply.statusCode}`) })
  app.addHook('onError', async () => { seen.push('onError') })
  const { url } = await host(t, app)
  await serves(t, url)
  t.same(seen.splice(0), ['onRequest POST', 'preValidation', 'onSend string', 'onResponse 200'])
  const told = await post({ url }, slow, slowHeaders)
  t.equal(told.messages.length, 2)
  t.equal((await post({ url }, 'x', { 'content-type': 'text/plain' })).status, 415)
  t.same(seen.filter((one) => one !== 'preValidation'), ['onRequest POST', 'onSend string', 'onResponse 200', 'onRequest POST', 'onSend string', 'onResponse 415'])
})

t.test('what a hook of the host makes of a body is what is read', async (t) => {
  const app = Fastify()
  const message = JSON.stringify(modern('tools/call', { name: 'echo', arguments: { text: 'ü'.repeat(100) } }))
  const bytes = Buffer.from(message)
  // The body says what it is to become.
  const made: Record<string, () => Readable> = {
    text: () => Object.assign(Readable.from([message.slice(0, 50), message.slice(50)], { objectMode: false, encoding: 'utf8' }), { receivedEncodedLength: 4 }),
    pieces: () => Object.assign(Readable.from([...bytes].map((byte) => Buffer.from([byte]))), { receivedEncodedLength: 6 }),
    other: () => Readable.from([bytes]),
    large: () => Object.assign(Readable.from([bytes, Buffer.alloc(2000, ' ')]), { receivedEncodedLength: 5 }),
    packed: () => Object.assign(Readable.from([bytes]), { receivedEncodedLength: 5000 }),
    broken: () => new Readable({ read () { this.destroy(new Error('it broke')) } }),
    refused: () => new Readable({ read () { this.destroy(Object.assign(new Error('too much of it'), { statusCode: 413 })) } })
  }
  app.addHook('preParsing', async (_request, _reply, payload) => made[(await text(payload)).trim()]!())
  const { url } = await host(t, app, { maxBodyBytes: 2000 })
  const tell = async (what: string): Promise<Answer> => post({ url }, what, modernHeaders('tools/call', 'echo'))
  for (const what of ['text', 'pieces']) t.same((await tell(what)).messages[0].result.structuredContent, { text: 'ü'.repeat(100) }, what)
  refused(t, await tell('other'), 400, 'Invalid Content-Length', { connection: 'close' })
  for (const what of ['large', 'packed']) refused(t, await tell(what), 413, 'Request body too large', { connection: 'close' })
  refused(t, await tell('broken'), 400, 'it broke', { connection: 'close' })
  refused(t, await tell('refused'), 413, 'too much of it', { connection: 'close' })
})

t.test('hooks of the host see streams as streams, and may send something else, however late they are added', async (t) => {
  const spec = { description: 'x'.repeat(2000) }
  const seen: string[] = []
  const targets: Hosted[] = []
  for (const hooks of [false, true]) {
    const { layer } = createKit()
    for (let n = 0; n < 20; n++) layer.tool(`tool_${n}`, spec, () => 'ok')
    const app = Fastify()
    await app.register(cloudgMcp, { layer })
    if (hooks) {
      app.addHook('onSend', async (_request, reply, payload) => {
        if (!(payload instanceof Readable)) return payload
        seen.push(reply.getHeader('content-type') as string)
        return payload.pipe(new PassThrough())
      })
      app.addHook('onResponse', async (request, reply) => { seen.push(`${request.method} ${reply.statusCode}`) })
    }
    const origin = `http://127.0.0.1:${await listen(t, app)}`
    targets.push({ app, origin, url: `${origin}/mcp`, layer })
  }
  const [direct, hooked] = targets as [Hosted, Hosted]
  const answers = await Promise.all(targets.map(async ({ url, layer }) => {
    const list = await postModern({ url }, 'tools/list')
    const told = await post({ url }, slow, slowHeaders)
    const session = await handshake({ url })
    const stream = await session.get()
    const listening = await listenStream({ url }, { toolsListChanged: true })
    await listening.next()
    layer.notifyChanged('tools')
    const changes = [await stream.next(), await listening.next()]
    stream.leave()
    listening.leave()
    return { list: list.messages, length: list.headers['content-length'], told: told.messages.map(({ method, id }) => method ?? id), changes }
  }))
  t.same(answers[1], answers[0])
  t.equal(answers[0]!.list[0].result.tools.length, 28)
  t.equal(Number(answers[0]!.length), Buffer.byteLength(JSON.stringify(answers[0]!.list[0])))
  await eventually(() => seen.length >= 7)
  t.same(seen.sort(), ['POST 200', 'POST 200', 'POST 200', 'POST 202', 'application/json', 'text/event-stream', 'text/event-stream'])
  for (const { app } of [direct, hooked]) t.equal((await app.inject({ method: 'POST', url: '/mcp', headers: { host: '127.0.0.1', 'content-type': 'application/json', accept: 'application/json', ...modernHeaders('tools/list') }, payload: modern('tools/list') })).json().result.tools.length, 28)
})

t.test('a hook of the host may look at a stream before it lets it go', async (t) => {
  const app = Fastify()
  app.addHook('onSend', async (request, _reply, payload) => {
    if (payload instanceof Readable && request.headers['x-look'] !== undefined) await once(payload, 'readable')
    return payload
  })
  const { url, layer } = await host(t, app)
  const answer = await post({ url }, slow, { ...slowHeaders, 'x-look': 'yes' })
  t.same(answer.messages.map(({ method, id }) => method ?? id), ['notifications/progress', 1])
  const listening = await listenStream({ url }, { toolsListChanged: true }, 'L', { 'x-look': 'yes' })
  t.equal((await listening.next()).method, 'notifications/subscriptions/acknowledged')
  layer.notifyChanged('tools')
  t.equal((await listening.next()).method, 'notifications/tools/list_changed')
  listening.leave()
})

t.test('what plugins of the host add to every route holds for what is long and for streams', async (t) => {
  const app = Fastify()
  await app.register(compress, { global: true, threshold: 0 })
  app.addHook('onRoute', (route) => {
    const mark = async (_request: unknown, reply: FastifyReply, payload: unknown): Promise<unknown> => {
      void reply.header('x-route', 'yes')
      return payload
    }
    route.onSend = [...[route.onSend ?? []].flat(), mark]
  })
  const { url, layer } = await host(t, app)
  addLong(layer)
  const ask = async (message: object, headers: Record<string, string>): Promise<Response> => fetch(url, {
    method: 'POST', body: JSON.stringify(message), headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', 'accept-encoding': 'gzip', ...headers }
  })
  const text = 'é'.repeat(30_000)
  const long = await ask(modern('tools/call', { name: 'echo', arguments: { text } }), { ...modernHeaders('tools/call', 'echo'), accept: 'application/json' })
  t.equal((await long.json() as any).result.structuredContent.text, text)
  const list = await ask(modern('tools/list'), modernHeaders('tools/list'))
  t.equal((await list.json() as any).result.tools.length, 29)
  const stream = await ask(tells, tellsHeaders)
  t.equal(parseEvents(await stream.text()).length, 2)
  for (const { headers } of [long, list]) t.same([headers.get('content-encoding'), headers.get('vary')], ['gzip', 'accept-encoding'])
  t.equal(stream.headers.get('content-encoding'), null)
  for (const { headers } of [long, list, stream]) t.equal(headers.get('x-route'), 'yes')
})

t.test('a hook of the host may leave an answer without its body, whatever it is', async (t) => {
  const app = Fastify()
  app.addHook('onSend', async (request, reply, payload) => {
    if (request.headers['x-empty'] !== undefined) void reply.code(Number(request.headers['x-empty']))
    return payload
  })
  const { url, layer } = await host(t, app, { maxStreams: 1 })
  addLong(layer)
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())
  for (const [status, message, headers] of [
    ['204', modern('tools/call', { name: 'echo', arguments: { text: 'x'.repeat(20_000) } }), modernHeaders('tools/call', 'echo')],
    ['304', modern('tools/call', { name: 'echo', arguments: { text: 'x'.repeat(20_000) } }), modernHeaders('tools/call', 'echo')],
    ['204', modern('tools/list'), modernHeaders('tools/list')],
    ['204', tells, tellsHeaders],
    ['204', modern('subscriptions/listen', { notifications: { toolsListChanged: true } }), modernHeaders('subscriptions/listen')]
  ] as const) {
    const answer = await send(url, { agent, body: message, headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers, 'x-empty': status } })
    t.equal(answer.status, Number(status))
    t.equal(answer.text, '')
    if (status === '204') t.notOk('content-length' in answer.headers || 'content-type' in answer.headers)
    t.equal((await send(url, { agent, body: modern('tools/list'), headers: { 'content-type': 'application/json', accept: 'application/json', ...modernHeaders('tools/list') } })).status, 200, 'the connection is there for the next')
  }
  const session = await handshake({ url })
  const stream = await session.get()
  t.equal(stream.status, 200, 'the listen has gone')
  stream.leave()
})

t.test('hooks of the host that listen to a stream hear all of it, and its end', async (t) => {
  const app = Fastify()
  const heard: Record<string, string> = {}
  const ended: string[] = []
  // Not async: what listens to data has to be heard before it flows.
  app.addHook('onSend', (request, _reply, payload, done) => {
    if (payload instanceof Readable) {
      const name = String(request.headers['x-name'])
      heard[name] = ''
      if (name !== 'listen') payload.on('data', (chunk: Buffer) => { heard[name] += chunk.toString() })
      payload.once('close', () => { ended.push(name) })
    }
    done(null, payload)
  })
  const { url, layer } = await host(t, app)
  addLong(layer)
  const told = await post({ url }, tells, { ...tellsHeaders, 'x-name': 'call' })
  t.equal(told.messages.length, 2)
  const list = await postModern({ url }, 'tools/list', {}, { 'x-name': 'list' })
  t.equal(list.messages[0].result.tools.length, 29)
  const listening = await listenStream({ url }, { toolsListChanged: true }, 'L', { 'x-name': 'listen' })
  await listening.next()
  listening.leave()
  await eventually(() => ended.length === 3)
  t.same(ended.sort(), ['call', 'list', 'listen'])
  t.same([heard['call'], heard['list']], [told.text, list.text])
})

t.test('a stream that is over before the host lets it go arrives whole, in its turn', async (t) => {
  const app = Fastify()
  let isOver = (): void => {}
  app.addHook('onSend', async (_request, _reply, payload) => {
    if (payload instanceof Readable) await new Promise<void>((resolve) => { isOver = resolve })
    return payload
  })
  const { url, layer } = await host(t, app)
  const message = '漢'.repeat(40_000)
  layer.tool('tells', {}, async (_args, ctx) => {
    await new Promise(setImmediate)
    void ctx.progress(1, 2, message)
    await new Promise(setImmediate)
    void ctx.progress(2, 2, message)
    setImmediate(setImmediate, () => isOver())
    return 'done'
  })
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())
  for (let round = 0; round < 2; round++) {
    const { messages } = await send(url, { agent, body: tells, headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...tellsHeaders } })
    t.same(messages.map(({ params, id }) => params?.message === message ? params.progress : id), [1, 2, 1])
  }
})

t.test('a stream that begins with much text is no stalled one once it has been read', async (t) => {
  const { url, layer } = await host(t, Fastify(), { keepAliveInterval: 60 })
  let finish = (): void => {}
  layer.tool('tells', {}, async (_args, ctx) => {
    await new Promise(setImmediate)
    await ctx.progress(1, 2, '漢'.repeat(40_000))
    await new Promise<void>((resolve) => { finish = resolve })
    return 'done'
  })
  const stream = await postStream({ url }, tells, tellsHeaders)
  t.equal((await stream.next()).params.progress, 1)
  for (let n = 0; n < 3; n++) t.match(await stream.comment(), 'keepalive')
  finish()
  t.equal((await stream.next()).id, 1)
})

t.test('whoever waits for room in a stream that the host holds up goes on once it is let go', async (t) => {
  // As large as that of the Nodes to come: what has waited fits in at once, and no 'drain' follows.
  const app = Fastify({ http: { highWaterMark: 1024 * 1024 } })
  let letGo = (): void => {}
  const told = new Promise<void>((resolve) => { letGo = resolve })
  app.addHook('onSend', async (_request, _reply, payload) => {
    if (payload instanceof Readable) await told
    return payload
  })
  const { url, layer } = await host(t, app)
  layer.tool('tells', {}, async (_args, ctx) => {
    await new Promise(setImmediate)
    await ctx.progress(1, 3, 'x'.repeat(20_000))
    await new Promise(setImmediate)
    const second = ctx.progress(2, 3, 'x'.repeat(20_000))
    letGo()
    await second
    return 'done'
  })
  const { messages } = await post({ url }, tells, tellsHeaders)
  t.same(messages.map(({ params, id }) => params?.progress ?? id), [1, 2, 1])
})

t.test('a stream that a hook of the host refuses takes no place', async (t) => {
  const app = Fastify()
  app.addHook('onSend', async (request, _reply, payload) => {
    if (request.headers['x-refuse'] !== undefined && payload instanceof Readable) throw Object.assign(new Error('no streams here'), { statusCode: 403 })
    return payload
  })
  const { url } = await host(t, app, { maxStreams: 1 })
  const session = await handshake({ url })
  const refusing = { 'x-refuse': 'yes' }
  for (let round = 0; round < 3; round++) {
    const listening = post({ url }, modern('subscriptions/listen', { notifications: { toolsListChanged: true } }), { ...modernHeaders('subscriptions/listen'), ...refusing })
    refused(t, await listening, 403, 'no streams here')
    refused(t, await send(url, { method: 'GET', headers: { ...session.headers, ...SSE_ONLY, ...refusing } }), 403, 'no streams here')
  }
  const stream = await session.get()
  t.equal(stream.status, 200)
  stream.leave()
})

t.test('a header of the host that cannot be sent is an error of that answer, whatever is answered', async (t) => {
  const app = Fastify()
  app.addHook('onSend', async (request, reply, payload) => {
    if (request.headers['x-break'] !== undefined && !reply.hasHeader('x-tried')) void reply.header('x-tried', 'yes').header('x-broken', 'a\nb')
    else void reply.removeHeader('x-broken')
    return payload
  })
  const { url, layer } = await host(t, app, { maxStreams: 1 })
  addLong(layer)
  const breaking = { 'x-break': 'yes' }
  const session = await handshake({ url })
  for (let round = 0; round < 2; round++) {
    for (const answer of [
      await postModern({ url }, 'tools/call', { name: 'echo', arguments: { text: 'x' } }, breaking),
      await postModern({ url }, 'tools/call', { name: 'echo', arguments: { text: 'x'.repeat(20_000) } }, breaking),
      await postModern({ url }, 'tools/list', {}, breaking),
      await post({ url }, modern('subscriptions/listen', { notifications: { toolsListChanged: true } }), { ...modernHeaders('subscriptions/listen'), ...breaking }),
      await send(url, { method: 'GET', headers: { ...session.headers, ...SSE_ONLY, ...breaking } })
    ]) refused(t, answer, 500, { code: -32603, message: 'Internal error' })
  }
  const stream = await session.get()
  t.equal(stream.status, 200)
  stream.leave()
})

t.test('the log of the host says whose client has left, once, and nothing of those that were told', async (t) => {
  const log = captureLog()
  const said = (): number => log.of('info').filter((line) => line === 'stream closed prematurely').length
  const { app, url } = await host(t, Fastify({ loggerInstance: log.logger }))
  const session = await handshake({ url })
  const told = await post({ url }, slow, slowHeaders)
  t.equal(told.messages.length, 2)
  const streams = [await session.get(), await listenStream({ url }, { toolsListChanged: true })]
  t.equal(said(), 0)
  for (const stream of streams) stream.leave()
  await eventually(() => said() === 2)
  const last = await listenStream({ url }, { toolsListChanged: true })
  await app.close()
  await last.ended
  t.equal(said(), 2)
})

t.test('what is long goes out whole and in its turn, however much is asked for at once', async (t) => {
  const app = await serve(t)
  for (let n = 0; n < 20; n++) app.layer.tool(`tool_${n}`, { description: 'ü'.repeat(1000) }, () => 'ok')
  const asked = [
    modern('tools/list', {}),
    ...['x'.repeat(40_000), 'é'.repeat(40_000), '漢'.repeat(40_000), '😀'.repeat(10_000)].map((text) => modern('tools/call', { name: 'echo', arguments: { text } }))
  ]
  const headersOf = ({ method, params }: any): Record<string, string> => ({ 'content-type': 'application/json', accept: 'application/json', ...modernHeaders(method, params.name) })
  const expected = await Promise.all(asked.map(async (message) => (await post(app, message, headersOf(message))).messages[0]))
  t.equal(expected[0].result.tools.length, 28)
  t.same(expected.slice(1).map(({ result }) => result.structuredContent), asked.slice(1).map(({ params }) => params?.arguments))
  const rounds = Array.from({ length: 40 }, (_, at) => ({ id: 'i'.repeat(at), which: at % asked.length }))
  const text = await raw(t, app, Buffer.concat(rounds.map(({ id, which }, at) => {
    const message = { ...asked[which], id }
    const lines = Object.entries(headersOf(message)).map(([name, value]) => `${name}: ${value}`)
    return rawRequest(app, [...lines, ...at === rounds.length - 1 ? [] : ['Connection: keep-alive']], JSON.stringify(message))
  })))
  let rest = Buffer.from(text, 'latin1')
  for (const { id, which } of rounds) {
    const head = rest.indexOf('\r\n\r\n') + 4
    const length = Number(/content-length: (\d+)/i.exec(rest.toString('latin1', 0, head))?.[1])
    const { result: { _meta: { 'cloudg/duration_ms': duration, ...meta }, ...result }, ...answer } = JSON.parse(rest.toString('utf8', head, head + length))
    const { result: { _meta: { 'cloudg/duration_ms': other, ...expectedMeta }, ...expectedResult } } = expected[which]
    t.same({ ...answer, meta, result }, { jsonrpc: '2.0', id, meta: expectedMeta, result: expectedResult })
    rest = rest.subarray(head + length)
  }
  t.equal(rest.length, 0)
})

t.test('a hook of the host sees a long answer as the text that it is, and may change it', async (t) => {
  const app = Fastify()
  const seen: unknown[] = []
  app.addHook('onSend', async (request, _reply, payload) => {
    if (request.headers['x-change'] === undefined) return payload
    seen.push(payload)
    return (payload as string).replaceAll('é', 'ü')
  })
  const { url } = await host(t, app)
  const text = 'é'.repeat(20_000)
  const answer = await postModern({ url }, 'tools/call', { name: 'echo', arguments: { text } }, { 'x-change': 'yes' })
  t.equal(answer.messages[0].result.structuredContent.text, text.replaceAll('é', 'ü'))
  t.equal(Number(answer.headers['content-length']), Buffer.byteLength(seen[0] as string))
})

t.test('SSE-12 what hooks and plugins of the host put on answers is on all of ours', async (t) => {
  const app = Fastify()
  await app.register(helmet)
  await app.register(rateLimit, { max: 1000, timeWindow: 60_000 })
  await app.register(compress, { global: true, threshold: 0 })
  await app.register(cors, { origin: ['https://app.example.com'], exposedHeaders: ['x-own'] })
  app.addHook('onRequest', async (_request, reply) => { void reply.header('x-request-id', 'r1').header('vary', 'Accept-Language') })
  app.addHook('onSend', async (_request, reply) => { void reply.header('x-sent', 'yes') })
  const { url } = await host(t, app, { allowedOrigins: ['https://app.example.com'] })
  const answers = await allAnswers(url, { origin: 'https://app.example.com', 'accept-encoding': 'gzip, br' })
  for (const [name, { headers }] of Object.entries(answers)) {
    t.match(headers, { 'x-request-id': 'r1', 'x-sent': 'yes', 'x-content-type-options': 'nosniff', 'x-ratelimit-limit': '1000', 'access-control-allow-origin': 'https://app.example.com' }, name)
    if (headers['content-type'] === 'text/event-stream') t.notOk('content-encoding' in headers, `${name} is not compressed`)
  }
})

t.test('a rate limit of the host is answered in JSON-RPC, with its headers', async (t) => {
  const app = Fastify()
  await app.register(rateLimit, { max: 2, timeWindow: 60_000 })
  const { url } = await host(t, app)
  await serves(t, url)
  await serves(t, url)
  const limited = await post({ url }, slow, slowHeaders)
  refused(t, limited, 429, 'Rate limit exceeded, retry in 1 minute')
  t.match(limited.headers, { 'retry-after': '60', 'x-ratelimit-limit': '2', 'x-ratelimit-remaining': '0' })
})

t.test('CORS of the host and CORS of the plugin, whichever is registered first', async (t) => {
  for (const first of ['host', 'plugin']) {
    const app = Fastify()
    const own = { origin: ['https://host.example.com'] }
    const { layer } = createKit()
    if (first === 'host') await app.register(cors, own)
    await app.register(cloudgMcp, { layer, corsOrigins: ['https://app.example.com'], allowedOrigins: ['https://host.example.com'] })
    if (first === 'plugin') await app.register(cors, own)
    app.get('/orders', async () => 'ok')
    const { origin, url } = await host(t, app, null)
    const preflight = (to: string, from: string) => send(to, { method: 'OPTIONS', headers: { origin: from, 'access-control-request-method': 'GET' } })
    t.equal((await preflight(`${origin}/orders`, 'https://host.example.com')).headers['access-control-allow-origin'], 'https://host.example.com')
    t.notOk('access-control-allow-origin' in (await preflight(`${origin}/orders`, 'https://app.example.com')).headers)
    const page = await post({ url }, initialize(), { origin: 'https://app.example.com' })
    t.equal(page.headers['access-control-allow-origin'], 'https://app.example.com')
    t.match(page.headers['access-control-expose-headers'], 'Mcp-Session-Id')
  }
})

t.test('two mounts in one host, each with its own layer, sessions and options', async (t) => {
  const app = Fastify()
  const [one, two] = [createKit(), createKit({ name: 'second' })]
  await app.register(cloudgMcp, { layer: one.layer, prefix: '/one', auth: { tokens: ['s3cret'] } })
  await app.register(cloudgMcp, { layer: two.layer, prefix: '/two', path: '/rpc', responseMode: 'json' })
  await app.register(cloudgMcp, { layer: two.layer, prefix: '/three', stateless: true })
  const { origin } = await host(t, app, null)
  const urls = { one: `${origin}/one/mcp`, two: `${origin}/two/rpc`, three: `${origin}/three/mcp/` }
  refused(t, await post({ url: urls.one }, initialize()), 401, 'Unauthorized')
  await serves(t, urls.two)
  await serves(t, urls.three)
  const session = await handshake({ url: urls.two })
  t.equal(session.initialized.json.result.serverInfo.name, 'second')
  refused(t, await post({ url: urls.one }, request('ping'), { ...session.headers, authorization: 'Bearer s3cret' }), 404, 'Session not found')
  const listening = [await listenStream({ url: urls.two }, { toolsListChanged: true }), await listenStream({ url: urls.three }, { toolsListChanged: true })]
  for (const stream of listening) await stream.next()
  two.layer.notifyChanged('tools')
  for (const stream of listening) t.equal((await stream.next()).method, 'notifications/tools/list_changed')
  for (const prefix of ['one', 'two', 'three']) t.equal((await send(`${origin}/${prefix}/healthz`, { method: 'GET' })).text, '{"status":"ok"}')
  for (const path of ['/mcp', '/rpc', '/healthz', '/one/rpc']) t.equal((await send(origin + path, { method: 'GET' })).status, 404)
  for (const stream of listening) stream.leave()
})

t.test('in an encapsulated plugin it stays there, decorator and all', async (t) => {
  const app = Fastify()
  let inside: FastifyInstance | undefined
  await app.register(async function api (scope) {
    await scope.register(cloudgMcp, { serverInfo: { name: 'inner', version: '1.0.0' } })
    scope.mcp.tool('hello', {}, () => 'hi')
    inside = scope
  }, { prefix: '/api/v1' })
  await app.register(async function other (scope) {
    await scope.register(cloudgMcp, { prefix: '/deep', serverInfo: { name: 'other', version: '1.0.0' } })
  }, { prefix: '/v2' })
  t.equal(inside!.mcp.info.name, 'inner')
  t.notOk('mcp' in app)
  const { origin } = await host(t, app, null)
  const answer = await postModern({ url: `${origin}/api/v1/mcp` }, 'tools/call', { name: 'hello' })
  t.same(answer.messages[0].result.content, [{ type: 'text', text: 'hi' }])
  t.equal((await post({ url: `${origin}/v2/deep/mcp` }, initialize())).json.result.serverInfo.name, 'other')
  t.equal((await send(`${origin}/mcp`)).status, 404)
})

t.test('without a layer it makes one, once in a scope', async (t) => {
  const app = Fastify()
  await app.register(cloudgMcp, { serverInfo: { name: 'own', version: '2.0.0' }, instructions: 'Do' })
  app.mcp.tool('late', {}, () => 'x')
  const { url } = await host(t, app, null)
  const { result } = (await post({ url }, initialize())).json
  t.same([result.serverInfo, result.instructions], [{ name: 'own', version: '2.0.0' }, 'Do'])
  t.ok(app.hasPlugin('cloudg-mcp'))
  const twice = Fastify()
  t.teardown(() => twice.close())
  await twice.register(cloudgMcp)
  await t.rejects(async () => { await twice.register(cloudgMcp, { prefix: '/two' }) }, { code: 'FST_ERR_DEC_ALREADY_PRESENT', message: /mcp/ })
})

t.test('a host that has a principal of its own keeps it', async (t) => {
  const decorate: Record<string, (app: FastifyInstance) => void> = {
    value: (app) => {
      app.decorateRequest('principal', null as never)
      app.addHook('onRequest', async (request) => { request.principal = 'the host\'s' as never })
    },
    getter: (app) => { app.decorateRequest('principal', { getter: () => 'the host\'s' as never }) }
  }
  for (const [kind, make] of Object.entries(decorate)) {
    for (const first of ['host', 'plugin']) {
      const app = Fastify()
      const seen: unknown[] = []
      app.addHook('onSend', async (request) => { seen.push(request.principal) })
      app.get('/orders', async (request) => ({ principal: request.principal }))
      const { layer } = createKit()
      if (first === 'host') make(app)
      await app.register(cloudgMcp, { layer, auth: { tokens: ['s3cret::alice'] } })
      if (first === 'plugin') make(app)
      const { origin, url } = await host(t, app, null)
      const answer = await postModern({ url }, 'tools/call', { name: 'echo', arguments: { text: 'x' } }, { authorization: 'Bearer s3cret' })
      t.equal(answer.status, 200, `${kind}, ${first} first`)
      if (first === 'host') t.same(seen, ['the host\'s'])
      t.equal((await send(`${origin}/orders`, { method: 'GET' })).text, '{"principal":"the host\'s"}')
    }
  }
  const app = Fastify()
  let seen: any
  app.addHook('onSend', async (request) => { seen = request.principal })
  const { url } = await host(t, app, { auth: { tokens: ['s3cret::alice'] } })
  await postModern({ url }, 'server/discover', {}, { authorization: 'Bearer s3cret' })
  t.equal(seen.id, 'alice', 'else it is who calls')
})

t.test('a host that tells of its health itself keeps doing so', async (t) => {
  for (const first of ['host', 'plugin', 'plugin, not awaited']) {
    const app = Fastify()
    const { layer } = createKit()
    if (first === 'host') app.get('/healthz', async () => 'mine')
    if (first === 'plugin, not awaited') void app.register(cloudgMcp, { layer })
    else await app.register(cloudgMcp, { layer })
    if (first !== 'host') app.get('/healthz', async () => 'mine')
    const { origin, url } = await host(t, app, null)
    t.equal((await send(`${origin}/healthz`, { method: 'GET' })).text, 'mine', `${first} first`)
    await serves(t, url)
  }
})

t.test('a host with documents of its own, or routes for all of them, keeps those', async (t) => {
  const app = Fastify()
  await app.register(cloudgMcp)
  app.get('/.well-known/oauth-authorization-server', async () => 'mine')
  app.get('/.well-known/*', async () => 'all mine')
  app.get('/*', async () => 'page')
  const { origin, url } = await host(t, app, null)
  const get = async (path: string) => (await send(origin + path, { method: 'GET' })).text
  t.equal(await get('/.well-known/oauth-authorization-server'), 'mine')
  t.equal(await get('/.well-known/acme-challenge/x'), 'all mine')
  t.equal(await get('/anything'), 'page')
  t.match(await get('/.well-known/oauth-protected-resource'), /"Not Found"/)
  t.equal((await post({ url }, initialize())).status, 200)
})

t.test('router options of the host', async (t) => {
  for (const routerOptions of [{ ignoreTrailingSlash: true }, { ignoreDuplicateSlashes: true }, { caseSensitive: false }]) {
    const app = Fastify({ routerOptions })
    const { url } = await host(t, app)
    await serves(t, url)
    await serves(t, `${url}/`)
    t.equal((await send(url, { method: 'PUT' })).status, 405)
  }
  const bare = Fastify({ exposeHeadRoutes: false })
  const { url } = await host(t, bare)
  t.equal((await send(url, { method: 'HEAD' })).status, 405)
})

t.test('an endpoint at the root of a host', async (t) => {
  const { origin } = await host(t, Fastify(), { path: '/' })
  await serves(t, `${origin}/`)
  await serves(t, origin)
  t.equal((await send(`${origin}/healthz`, { method: 'GET' })).text, '{"status":"ok"}')
  t.equal((await send(`${origin}/other`, { method: 'GET' })).status, 404)
})

t.test('a deadline of the host does not cut streams', async (t) => {
  const app = Fastify({ handlerTimeout: 150, connectionTimeout: 0 })
  app.get('/hangs', async () => new Promise(() => {}))
  const { origin, url, layer } = await host(t, app, { keepAliveInterval: 60 })
  const session = await handshake({ url })
  const streams = [await session.get(), await listenStream({ url }, { toolsListChanged: true }), await postStream({ url }, modern('tools/call', { name: 'sleepy' }), modernHeaders('tools/call', 'sleepy'))]
  t.equal((await send(`${origin}/hangs`, { method: 'GET' })).status, 503, 'the deadline has passed')
  for (const stream of streams) {
    await stream.comment()
    await stream.comment()
  }
  layer.notifyChanged('tools')
  t.equal((await streams[0]!.next()).method, 'notifications/tools/list_changed')
  for (const stream of streams) stream.leave()
})

t.test('an HTTP/2 host', async (t) => {
  const app = Fastify({ http2: true })
  const { layer } = createKit()
  for (let n = 0; n < 20; n++) layer.tool(`tool_${n}`, { description: 'x'.repeat(2000) }, () => 'ok')
  await app.register(cloudgMcp, { layer, auth: { tokens: ['s3cret::alice'] }, maxBodyBytes: 4096 })
  const warnings: Error[] = []
  const onWarning = (warning: Error): void => { warnings.push(warning) }
  process.on('warning', onWarning)
  t.teardown(() => process.off('warning', onWarning))
  const port = await listen(t, app as unknown as FastifyInstance)
  const client = connectHttp2(`http://127.0.0.1:${port}`)
  t.teardown(() => client.destroy())
  const ask = (body: unknown, headers: OutgoingHttpHeaders = {}) => h2(client, { ':method': 'POST', ':path': '/mcp', 'content-type': 'application/json', accept: '*/*', authorization: 'Bearer s3cret', ...headers }, body)

  const init = await ask(initialize())
  t.equal(init.status, 200)
  t.match(init.headers['mcp-session-id'], /^[0-9a-f]{32}$/)
  const told = await ask(slow, slowHeaders)
  t.equal(told.headers['content-type'], 'text/event-stream')
  t.equal(parseEvents(told.text).length, 2)
  const list = await ask(modern('tools/list'), modernHeaders('tools/list'))
  t.equal(JSON.parse(list.text).result.tools.length, 28)
  t.equal(list.headers['content-length'], `${Buffer.byteLength(list.text)}`)
  for (const [headers, status, message] of [
    [{ ':authority': 'evil.example' }, 421, 'Invalid Host header'],
    [{ origin: 'https://evil.example' }, 403, 'Forbidden: invalid Origin'],
    [{ authorization: 'Bearer x' }, 401, 'Unauthorized'],
    [{ 'content-type': 'text/plain' }, 415, 'Content-Type must be application/json'],
    [{ ':method': 'PUT' }, 405, 'Method Not Allowed'],
    [{ 'x-pad': '1' }, 413, 'Request body too large']
  ] as const) {
    const answer = await ask('x-pad' in headers ? 'x'.repeat(5000) : request('ping'), headers)
    t.equal(answer.status, status)
    t.equal(answer.text, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"${message}"}}`)
    t.notOk('connection' in answer.headers || 'transfer-encoding' in answer.headers)
  }

  const broken = client.request({ ':method': 'POST', ':path': '/mcp', 'content-type': 'application/json', authorization: 'Bearer s3cret' })
  broken.end('{')
  const [refusal] = await once(broken, 'response') as [IncomingHttpHeaders & { ':status': number }]
  t.equal(refusal[':status'], 400)
  t.notOk('connection' in refusal)
  broken.resume()

  const leaving = client.request({ ':method': 'POST', ':path': '/mcp', 'content-type': 'application/json', accept: 'text/event-stream', authorization: 'Bearer s3cret', ...modernHeaders('subscriptions/listen') })
  leaving.end(JSON.stringify(modern('subscriptions/listen', { notifications: { toolsListChanged: true } })))
  await once(leaving, 'data')
  leaving.close()
  await once(leaving, 'close')
  const stream = client.request({ ':method': 'GET', ':path': '/mcp', accept: 'text/event-stream', authorization: 'Bearer s3cret', 'mcp-session-id': init.headers['mcp-session-id'] as string })
  const first = await once(stream, 'data')
  t.equal(String(first[0]), ': open\n\n')
  const ended = once(stream, 'end')
  stream.resume()
  const closed = app.close()
  await ended
  client.close()
  await closed
  t.same(warnings, [])
})

async function h2 (client: ClientHttp2Session, headers: OutgoingHttpHeaders, body: unknown): Promise<{ status: number, headers: IncomingHttpHeaders, text: string }> {
  const stream: ClientHttp2Stream = client.request(headers)
  stream.end(JSON.stringify(body))
  const [answered] = await once(stream, 'response') as [IncomingHttpHeaders & { ':status': number }]
  let text = ''
  for await (const chunk of stream) text += String(chunk)
  return { status: answered[':status'], headers: answered, text }
}

t.test('a CommonJS host can require it', async (t) => {
  const require = createRequire(import.meta.url)
  const compiled = join(import.meta.dirname, '..', '..', 'plugin.js')
  const required = require(compiled)
  t.equal(required.default, cloudgMcp)
  t.equal(required.cloudgMcp, cloudgMcp)
  t.equal(required.createLayer, createLayer)
  const app = Fastify()
  await app.register(required, { serverInfo: { name: 'cjs', version: '1.0.0' } })
  const { url } = await host(t, app, null)
  t.equal((await post({ url }, initialize())).json.result.serverInfo.name, 'cjs')
  const built = join(import.meta.dirname, '..', '..', '..', 'dist', 'plugin.js')
  if (existsSync(built)) t.type(require('cloudg-mcp').default, 'function', 'and by the name of the package')
})

t.test('a wrong option is refused at registration, by its name', async (t) => {
  const wrong: [object, RegExp][] = [
    [{ maxSession: 5 }, /unknown option maxSession$/],
    [{ sessions: 1, other: 2 }, /unknown option sessions, other$/],
    [{ path: 'mcp' }, /option path: .*starts with \//],
    [{ path: '/a?b' }, /option path: /],
    [{ path: 5 }, /option path: /],
    [{ healthPath: true }, /option healthPath: /],
    [{ publicUrl: 'mcp.example.com' }, /option publicUrl: /],
    [{ publicUrl: 'ftp://mcp.example.com' }, /option publicUrl: /],
    [{ allowedHosts: 'localhost' }, /option allowedHosts: /],
    [{ allowedHosts: [''] }, /option allowedHosts\.0: /],
    [{ allowedOrigins: [5] }, /option allowedOrigins\.0: /],
    [{ corsOrigins: true }, /option corsOrigins: /],
    [{ auth: {} }, /option auth/],
    [{ auth: { tokens: 5 } }, /option auth/],
    [{ auth: { tokens: [':x'] } }, /Empty auth token/],
    [{ auth: { tokens: ['x'], require: true } }, /option auth/],
    [{ principalResolver: 'x' }, /option principalResolver: a function/],
    [{ responseMode: 'stream' }, /option responseMode: /],
    [{ stateless: 'yes' }, /option stateless: /],
    [{ maxBodyBytes: 0 }, /option maxBodyBytes: /],
    [{ maxBodyBytes: '4mb' }, /option maxBodyBytes: /],
    [{ sessionIdleTimeout: -1 }, /option sessionIdleTimeout: /],
    [{ maxSessions: 1.5 }, /option maxSessions: /],
    [{ maxStreams: NaN }, /option maxStreams: /],
    [{ keepAliveInterval: Infinity }, /option keepAliveInterval: /],
    [{ pageSize: -1 }, /option pageSize: /],
    [{ cache: { ttl: -1 } }, /option cache\.ttl: /],
    [{ cache: { scope: 'shared' } }, /option cache\.scope: /],
    [{ cache: { tll: 1 } }, /unknown option cache\.tll/],
    [{ defaultLogLevel: 'loud' }, /option defaultLogLevel: a syslog level/],
    [{ backplane: {} }, /option backplane: /],
    [{ layer: {} }, /option layer: a layer/],
    [{ serverInfo: { name: 'x' } }, /option serverInfo\.version: /],
    [{ serverInfo: { name: '', version: '1' } }, /option serverInfo\.name: /],
    [{ serverInfo: { name: 'x', version: '1', url: 'y' } }, /unknown option serverInfo\.url/],
    [{ instructions: 5 }, /option instructions: /],
    [{ closeGrace: -1 }, /option closeGrace: /],
    [{ exposeErrors: 1 }, /option exposeErrors: /]
  ]
  for (const [options, message] of wrong) {
    const app = Fastify()
    await t.rejects(async () => { await app.register(cloudgMcp, options as CloudgMcpOptions) }, { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message }, JSON.stringify(options))
    await app.close()
  }
})

t.test('a layer is started once it is served and stopped with the last of its servers', async (t) => {
  const life: string[] = []
  const layer = createLayer({ name: 'x', version: '1', start: () => { life.push('start') }, stop: () => { life.push('stop') } })
  const [one, two] = [Fastify(), Fastify()]
  await one.register(cloudgMcp, { layer })
  await one.register(cloudgMcp, { layer, prefix: '/again' })
  await two.register(cloudgMcp, { layer })
  t.same(life, [])
  await Promise.all([one.ready(), two.ready()])
  t.same(life, ['start'])
  await one.close()
  t.same(life, ['start'])
  await two.close()
  t.same(life, ['start', 'stop'])
  const never = Fastify()
  await never.register(cloudgMcp, { layer })
  await never.close()
})

t.test('a layer that cannot start stops the start of the host', async (t) => {
  const app = Fastify()
  t.teardown(() => app.close())
  await app.register(cloudgMcp, { layer: createLayer({ name: 'x', version: '1', start: () => { throw new Error('no database') } }) })
  await t.rejects(async () => { await app.ready() }, { message: 'no database' })
})

t.test('SSE-18 closing twice, and closing with everything open', async (t) => {
  const app = Fastify()
  const { url } = await host(t, app, { closeGrace: 10 })
  const session = await handshake({ url })
  const stream = await session.get()
  const listening = await listenStream({ url }, {})
  const call = await openStream(url, { headers: { ...SSE_ONLY, 'content-type': 'application/json', ...modernHeaders('tools/call', 'sleepy') }, body: modern('tools/call', { name: 'sleepy' }) })
  await Promise.all([app.close(), app.close()])
  await Promise.all([stream.ended, listening.ended, call.ended])
  t.match(await call.ended, 'The server is shutting down')
})
