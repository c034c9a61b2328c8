// Streams of single requests: when they are committed, what their frames are, and how they end, be it by the reply, the client's
// leaving, or a handler that does what no handler should.

import { once } from 'node:events'
import { connect } from 'node:net'
import { PassThrough, Readable } from 'node:stream'
import Fastify from 'fastify'
import t, { type Test } from 'tap'
import cloudgMcp from '../../plugin.js'
import { MissingCapabilityError, NotFoundError, ToolError } from '../../lib/layer/index.js'
import type { Context } from '../../lib/layer/index.js'
import { createKit, modern, modernHeaders, request } from '../kit.js'
import { captureLog, connections, eventually, handshake, JSON_ONLY, listen, listenStream, parseEvents, post, postModern, postStream, raw, rawRequest, serve } from './client.js'

const call = (name: string, args: object = {}, id: string | number = 2) => request('tools/call', { name, arguments: args, _meta: { progressToken: 't' } }, id)
const modernCall = (name: string, args: object = {}, id: string | number = 2) => modern('tools/call', { name, arguments: args, _meta: { progressToken: 't' } }, id)
const internal = (id: string | number) => ({ jsonrpc: '2.0', id, error: { code: -32603, message: 'Internal error' } })

/** A kit with one more tool, `held`, whose handler is the test. */
async function serveHeld (t: Test, handler: (ctx: Context) => unknown) {
  const { layer } = createKit()
  layer.tool('held', {}, (_args, ctx) => handler(ctx))
  return serve(t, { layer })
}

function gate () {
  let open!: () => void
  const opened = new Promise<void>((resolve) => { open = resolve })
  return { open, opened }
}

t.test('an answer that takes its time begins with a comment, so that a proxy sees a first byte', async (t) => {
  let held = gate()
  const app = await serveHeld(t, async () => {
    await held.opened
    return 'done'
  })
  const session = await handshake(app)
  for (const [body, headers] of [[call('held'), session.headers], [modernCall('held'), modernHeaders('tools/call', 'held')]] as const) {
    held = gate()
    const began = Date.now()
    const stream = await postStream(app, body, headers as Record<string, string>)
    t.equal(await stream.comment(), 'open')
    t.ok(Date.now() - began >= 90, 'not at once: until then the status is open')
    t.equal(stream.status, 200)
    t.match(stream.headers, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' })
    t.notOk('content-length' in stream.headers)
    held.open()
    t.same((await stream.next()).result.content, [{ type: 'text', text: 'done' }])
    t.match(await stream.ended, /^: open\n\nevent: message\ndata: \{[^\n]*\}\n\n$/)
  }
})

t.test('a fixed status is kept until the stream is committed, and not after', async (t) => {
  const { open, opened } = gate()
  let when: 'early' | 'told' | 'late' = 'early'
  const app = await serveHeld(t, async (ctx) => {
    if (when === 'told') void ctx.progress(1)
    if (when === 'late') await opened
    throw new MissingCapabilityError({ roots: {} })
  })
  const error = { code: -32021, message: 'Client did not declare the required capability: roots', data: { requiredCapabilities: { roots: {} } } }
  const early = await post(app, modernCall('held'), modernHeaders('tools/call', 'held'))
  t.equal(early.status, 400)
  t.same(early.json, { jsonrpc: '2.0', id: 2, error })
  when = 'told'
  const told = await post(app, modernCall('held'), modernHeaders('tools/call', 'held'))
  t.equal(told.status, 200)
  t.same(told.messages.map(({ method, error }) => method ?? error), ['notifications/progress', error])
  when = 'late'
  const late = await postStream(app, modernCall('held'), modernHeaders('tools/call', 'held'))
  t.equal(late.status, 200)
  open()
  t.same(await late.next(), { jsonrpc: '2.0', id: 2, error })
})

t.test('SSE-09 nothing in a message ends its line', async (t) => {
  const text = 'a\u2028b\u2029c\u0085d\r\ne\nf\0g"\\\ud800 😀 data: x\n\nevent: y'
  const app = await serveHeld(t, async (ctx) => {
    await ctx.notify.log('error', text)
    await ctx.progress(1, 2, text)
    return { [text]: text }
  })
  const session = await handshake(app)
  const answer = await session.post(call('held'))
  t.same(answer.messages.slice(0, 2).map(({ params }) => params.data ?? params.message), [text, text])
  t.same(answer.messages[2].result.structuredContent, { [text]: text })
  t.notMatch(answer.text, /[\u0085\u2028\u2029\r]/)
  t.equal(answer.text.split('\n').filter((line) => line.startsWith('data: ')).length, 3)
  t.same(parseEvents(answer.text).map(({ event, id }) => [event, id]), Array(3).fill(['message', undefined]))
})

t.test('notifications come in order, before the reply, and none after it', async (t) => {
  let kept: Context | undefined
  const app = await serveHeld(t, async (ctx) => {
    kept = ctx
    for (let at = 1; at <= 500; at++) void ctx.progress(at)
    void ctx.progress(500)
    void ctx.progress(3)
    void ctx.progress(NaN)
    return 'done'
  })
  const session = await handshake(app)
  const answer = await session.post(call('held'))
  t.same(answer.messages.map(({ params, id }) => params?.progress ?? id), [...Array.from({ length: 500 }, (_, at) => at + 1), 2])
  await kept!.progress(1000)
  await kept!.notify.log('error', 'late')
  t.equal((await session.post(request('ping'))).status, 200)
})

t.test('a large reply is whole, as events and as JSON', async (t) => {
  const big = { text: 'ä😀'.repeat(500_000) }
  const { open, opened } = gate()
  let wait = false
  const app = await serveHeld(t, async () => {
    if (wait) await opened
    return big
  })
  const session = await handshake(app)
  t.same((await session.post(call('held'))).messages[0].result.structuredContent, big)
  t.same((await session.post(call('held'), JSON_ONLY)).json.result.structuredContent, big)
  wait = true
  const stream = await postStream(app, call('held'), session.headers as Record<string, string>)
  await stream.comment()
  open()
  t.same((await stream.next()).result.structuredContent, big, 'and on a stream that is open already')
  await stream.ended
})

t.test('a result that JSON cannot hold is an internal error, and the server goes on', async (t) => {
  const circle: any = {}
  circle.self = circle
  const results: Record<string, () => unknown> = {
    big: () => ({ content: [{ type: 'text', text: '', annotations: { priority: 1n } }] }),
    circle: () => ({ content: [], _meta: circle }),
    throws: () => ({ content: [], extra: { toJSON () { throw new Error('secret') } } })
  }
  const app = await serveHeld(t, async (ctx) => {
    if (ctx.request.headers['x-tell']) await ctx.progress(1)
    return results[String(ctx.request.headers['x-result'])]!()
  })
  const session = await handshake(app, '2025-03-26')
  for (const result of Object.keys(results)) {
    for (const more of [{}, { 'x-tell': '1' }]) {
      const headers = { 'x-result': result, ...more }
      t.same((await session.post(call('held'), headers)).messages.at(-1), internal(2), `${result} as an event`)
      t.same((await session.post(call('held'), { ...headers, accept: 'application/json' })).json, internal(2))
      t.same((await session.post([call('held'), request('ping', {}, 'p')], headers)).messages.slice(-2), [internal(2), { jsonrpc: '2.0', id: 'p', result: {} }])
      t.same((await post(app, modernCall('held'), { ...modernHeaders('tools/call', 'held'), ...headers })).messages.at(-1), internal(2))
    }
  }
})

t.test('neither does what JSON cannot hold in the data of an error, or in a log message', async (t) => {
  const { layer } = createKit()
  layer.tool('data', {}, () => { throw new ToolError('no', { n: 1n }) })
  layer.resource('test://data', {}, () => { throw new NotFoundError('gone', { n: 1n }) })
  layer.prompt('data', {}, () => { throw new ToolError('no', { n: 1n }) })
  layer.tool('log', {}, (_args, ctx) => {
    void ctx.notify.log('error', { n: 1n })
    void ctx.notify.log('error', 'heard')
    return 'done'
  })
  const app = await serve(t, { layer })
  const session = await handshake(app)
  t.same((await session.post(call('data'))).messages, [internal(2)])
  t.same((await session.post(request('resources/read', { uri: 'test://data' }))).messages[0].error, { code: -32002, message: 'gone', data: { uri: 'test://data' } })
  t.same((await session.post(request('prompts/get', { name: 'data' }))).messages[0].error, { code: -32603, message: 'no' })
  const logged = await session.post(call('log'))
  t.same(logged.messages.map(({ params, result }) => params?.data ?? result.content[0].text), ['heard', 'done'])
})

t.test('SSE-14 clients that leave in the middle do no harm', async (t) => {
  const left: Promise<unknown>[] = []
  const app = await serveHeld(t, async (ctx) => {
    left.push(once(ctx.signal, 'abort'))
    for (let at = 1; !ctx.signal.aborted; at++) {
      await ctx.progress(at)
      await new Promise((resolve) => { setImmediate(resolve) })
    }
    await ctx.progress(Number.MAX_SAFE_INTEGER)
    throw new Error('after the end')
  })
  await Promise.all(Array.from({ length: 50 }, async () => {
    const stream = await postStream(app, modernCall('held'), modernHeaders('tools/call', 'held'))
    await stream.next()
    stream.leave()
  }))
  await Promise.all(left)
  t.equal(left.length, 50, 'every call was told')
  await eventually(async () => await connections(app) === 0)
  t.equal((await postModern(app, 'server/discover')).status, 200)
})

t.test('a 2026 client that leaves before the answer has begun aborts its call', async (t) => {
  for (const accept of ['application/json', 'text/event-stream']) {
    const app = await serve(t)
    const running = app.entered('sleepy')
    const body = JSON.stringify(modernCall('sleepy'))
    const text = rawRequest(app, ['Content-Type: application/json', `Accept: ${accept}`, ...Object.entries(modernHeaders('tools/call', 'sleepy')).map((line) => line.join(': '))], body)
    const { connect } = await import('node:net')
    const socket = connect(app.port, '127.0.0.1')
    socket.write(text)
    const { signal } = await running
    const aborted = once(signal, 'abort')
    socket.destroy()
    await aborted
  }
})

t.test('a listen ends with its client', async (t) => {
  const app = await serve(t, { maxStreams: 1 })
  const stream = await listenStream(app, { toolsListChanged: true })
  await stream.next()
  t.equal((await postModern(app, 'subscriptions/listen', { notifications: {} })).status, 503)
  stream.leave()
  await eventually(async () => {
    const next = await listenStream(app, {})
    next.leave()
    return next.status === 200
  })
})

t.test('an old client that knows no chunks is served', async (t) => {
  const app = await serve(t)
  const lines = ['Content-Type: application/json', 'Host: localhost', 'Accept: text/event-stream', ...Object.entries(modernHeaders('tools/call', 'slow')).map((line) => line.join(': '))]
  const text = await raw(t, app, rawRequest(app, lines, JSON.stringify(modernCall('slow')), 'POST /mcp HTTP/1.0'))
  t.match(text, /^HTTP\/1\.1 200 /)
  t.notMatch(text.toLowerCase(), 'transfer-encoding')
  t.equal(parseEvents(text.slice(text.indexOf('\r\n\r\n') + 4)).length, 4)
})

t.test('equal ids at the same time do not mix', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const answers = await Promise.all(Array.from({ length: 20 }, (_, at) => session.post(call('echo', { text: `${at}` }, 1))))
  t.same(answers.map(({ messages }) => messages[0].result.structuredContent.text), Array.from({ length: 20 }, (_, at) => `${at}`))
})

t.test('a stream that the server ends has ended, as Fastify and its log see it', async (t) => {
  const { layer } = createKit()
  layer.tool('streams', {}, async (_args, ctx) => {
    await ctx.progress(1)
    for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => { setImmediate(resolve) })
    return 'done'
  })
  const log = captureLog()
  const app = await serve(t, { layer }, { loggerInstance: log.logger })
  const session = await handshake(app)
  const count = () => log.of('info').filter((msg) => msg === 'request completed').length
  const before = count()
  for (const [body, headers] of [[call('streams'), session.headers], [modernCall('streams'), modernHeaders('tools/call', 'streams')]] as const) {
    const { messages, headers: { 'content-length': length } } = await post(app, body, headers as Record<string, string>)
    t.equal(length, undefined, 'it was streamed')
    t.equal(messages.length, 2)
  }
  const standalone = await session.get()
  await session.end()
  await standalone.ended
  await eventually(() => count() === before + 4)
  t.same(log.lines.filter(({ msg }) => msg.includes('prematurely')), [])
})

t.test('a host may put a stream of its own between ours and the response', async (t) => {
  const { layer } = createKit()
  const held = gate()
  layer.tool('held', {}, async (_args, ctx) => {
    await ctx.progress(1)
    await held.opened
    return 'done'
  })
  const host = Fastify()
  host.addHook('onSend', async (_request, _reply, payload) => payload instanceof Readable ? payload.pipe(new PassThrough()) : payload)
  await host.register(cloudgMcp, { layer })
  const url = `http://127.0.0.1:${await listen(t, host)}/mcp`
  const stream = await postStream({ url }, modernCall('held'), modernHeaders('tools/call', 'held'))
  t.match(await stream.next(), { method: 'notifications/progress' }, 'each event at once')
  held.open()
  t.match(await stream.next(), { result: { content: [{ text: 'done' }] } })
  await stream.ended
})

for (const what of ['listen', 'standalone stream', 'call']) {
  t.test(`who leaves while a ${what} waits behind another request on its connection has left`, async (t) => {
    const { layer } = createKit()
    const [held, begun, aborted] = [gate(), gate(), gate()]
    layer.tool('held', {}, async () => held.opened)
    layer.tool('second', {}, async (_args, ctx) => new Promise((resolve) => {
      ctx.signal.addEventListener('abort', () => {
        aborted.open()
        resolve('aborted')
      })
      begun.open()
    }))
    const app = await serve(t, { layer, maxStreams: 1 })
    const session = await handshake(app)
    const lines = (headers: object): string[] => ['Connection: keep-alive', 'Content-Type: application/json', 'Accept: application/json, text/event-stream', ...Object.entries(headers).map((line) => line.join(': '))]
    const listening = modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'L')
    const second = what === 'listen'
      ? rawRequest(app, lines(modernHeaders('subscriptions/listen')), JSON.stringify(listening))
      : what === 'call'
        ? rawRequest(app, lines(modernHeaders('tools/call', 'second')), JSON.stringify(modernCall('second')))
        : rawRequest(app, ['Connection: keep-alive', 'Accept: text/event-stream', `Mcp-Session-Id: ${session.id}`], '', 'GET /mcp HTTP/1.1')
    const status = async (): Promise<number> => {
      const stream = await listenStream(app, { toolsListChanged: true })
      stream.leave()
      return stream.status
    }
    const socket = connect(app.port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write(Buffer.concat([rawRequest(app, lines(session.headers), JSON.stringify(call('held'))), second]))
    if (what === 'call') await begun.opened
    else await eventually(async () => await status() === 503)
    socket.destroy()
    if (what === 'call') await aborted.opened
    else await eventually(async () => await status() === 200)
    held.open()
  })
}
