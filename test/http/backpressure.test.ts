// Back-pressure: a client that reads slowly slows the producer that awaits it, and costs a bounded amount of memory whatever is
// produced for it. Streams that nobody reads do not hold up those of others.

import { once } from 'node:events'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t, { type Test } from 'tap'
import type { Context } from '../../lib/layer/index.js'
import { createKit, modern, modernHeaders, request } from '../kit.js'
import type { Served, Target } from './client.js'
import { eventually, handshake, listenStream, postModern, rawRequest, serve, socketTo } from './client.js'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as () => void

const MB = 1024 * 1024
const CHUNK = 64 * 1024
const PRODUCED = 60 * MB

/** A kit whose tool `produce` is the test. */
async function serveProducer (t: Test, produce: (ctx: Context) => Promise<unknown>, host: Parameters<typeof serve>[2] = {}): Promise<Served> {
  const { layer } = createKit()
  layer.tool('produce', {}, (_args, ctx) => produce(ctx))
  return serve(t, { layer }, host)
}

function produceRequest (target: Target): Buffer {
  const message = modern('tools/call', { name: 'produce', _meta: { progressToken: 'p', 'io.modelcontextprotocol/logLevel': 'info' } }, 'produced')
  const lines = ['Content-Type: application/json', 'Accept: text/event-stream', ...Object.entries(modernHeaders('tools/call', 'produce')).map((line) => line.join(': '))]
  return rawRequest(target, lines, JSON.stringify(message))
}

/** A client that has asked and reads nothing. */
async function stalled (t: Test, target: Target) {
  const socket = await socketTo(t, target)
  socket.pause()
  socket.write(produceRequest(target))
  return socket
}

/** MB that this process keeps beside the garbage. The other end of the sockets is in it as well. */
async function memory (): Promise<number> {
  let kept = Infinity
  for (;;) {
    gc()
    await sleep(10)
    const { heapUsed, external } = process.memoryUsage()
    if (heapUsed + external > kept - MB / 10) return kept / MB
    kept = heapUsed + external
  }
}

/** Reads what comes until the end: how often something is in it, how long it is, and how it ends. */
async function readOn (socket: Socket, counted: string): Promise<{ count: number, length: number, end: string }> {
  const chunks: Buffer[] = []
  socket.on('data', (chunk) => { chunks.push(chunk) })
  socket.resume()
  await once(socket, 'close')
  const all = Buffer.concat(chunks)
  let count = 0
  for (let at = all.indexOf(counted); at !== -1; at = all.indexOf(counted, at + 1)) count++
  return { count, length: all.length, end: all.subarray(-1000).toString() }
}

/** Resolves when a number has not changed for a while: nothing else tells that a producer is held up. */
async function settled (value: () => number): Promise<number> {
  for (let before = -1; before !== value();) {
    before = value()
    await sleep(150)
  }
  return value()
}

t.test('progress waits for a reader that has stopped, and goes on with it', async (t) => {
  const message = 'x'.repeat(CHUNK)
  const total = PRODUCED / CHUNK
  let produced = 0
  const app = await serveProducer(t, async (ctx) => {
    for (let at = 1; at <= total; at++) {
      await ctx.progress(at, total, message)
      produced = at
    }
    return { produced }
  })
  const before = await memory()
  const socket = await stalled(t, app)
  await eventually(() => produced > 0)
  const held = await settled(() => produced)
  t.ok(held < total, `the producer waits after ${(held * CHUNK / MB).toFixed(1)} MB`)
  const grown = await memory() - before
  t.ok(grown < 8, `${grown.toFixed(1)} MB are kept for the reader`)
  t.equal((await postModern(app, 'tools/call', { name: 'echo', arguments: { text: 'x' } })).status, 200, 'others are served meanwhile')

  const { count, end } = await readOn(socket, '"method":"notifications/progress"')
  t.equal(produced, total)
  t.equal(count, total, 'nothing was dropped')
  t.match(end, `"structuredContent":{"produced":${total}}`)
})

t.test('progress waits no longer than for the reader where the host lets more wait than we do', async (t) => {
  const total = PRODUCED / CHUNK
  let produced = 0
  const app = await serveProducer(t, async (ctx) => {
    for (let at = 1; at <= total; at++) {
      await ctx.progress(at, total, 'x'.repeat(CHUNK))
      produced = at
    }
    return { produced }
  }, { http: { highWaterMark: 4 * MB } })
  const socket = await stalled(t, app)
  await eventually(() => produced > 0)
  t.ok(await settled(() => produced) < total, 'the producer waits')
  const { count, end } = await readOn(socket, '"method":"notifications/progress"')
  t.equal(count, total, 'nothing was dropped')
  t.match(end, `"structuredContent":{"produced":${total}}`)
})

t.test('a reader that leaves lets the producer go', async (t) => {
  let aborted = false
  let produced = 0
  const app = await serveProducer(t, async (ctx) => {
    while (!ctx.signal.aborted) await ctx.progress(++produced, undefined, 'x'.repeat(CHUNK))
    aborted = true
  })
  const socket = await stalled(t, app)
  await eventually(() => produced > 0)
  await settled(() => produced)
  t.notOk(aborted)
  socket.resetAndDestroy()
  await eventually(() => aborted)
})

t.test('what nobody waits for is bounded: it is dropped, and the answer is not', async (t) => {
  let produced = 0
  const app = await serveProducer(t, async (ctx) => {
    for (; produced < PRODUCED; produced += CHUNK) {
      void ctx.notify.log('info', 'y'.repeat(CHUNK))
      if (produced % MB === 0) await new Promise((resolve) => { setImmediate(resolve) })
    }
    return { done: true }
  })
  const before = await memory()
  const socket = await stalled(t, app)
  await eventually(() => produced === PRODUCED)
  const grown = await memory() - before
  t.ok(grown < 8, `${grown.toFixed(1)} MB are kept of ${PRODUCED / MB}`)
  const { length, end } = await readOn(socket, 'notifications/message')
  t.ok(length < 10 * MB)
  t.match(end, '"structuredContent":{"done":true}')
})

t.test('a listen that is not read keeps each change once, and harms no other', async (t) => {
  const app = await serve(t)
  const uris = Array.from({ length: 200 }, (_, at) => `test://${at}/${'z'.repeat(1000)}`)
  const filter = { toolsListChanged: true, resourceSubscriptions: uris }
  const socket = await socketTo(t, app)
  socket.pause()
  const lines = ['Content-Type: application/json', 'Accept: text/event-stream', ...Object.entries(modernHeaders('subscriptions/listen')).map((line) => line.join(': '))]
  socket.write(rawRequest(app, lines, JSON.stringify(modern('subscriptions/listen', { notifications: filter }, 'slow'))))
  const reader = await listenStream(app, { toolsListChanged: true }, 'quick')
  await reader.next()
  /** The quick one has heard of a change, and so of everything that was told before it. */
  async function told (): Promise<void> {
    app.layer.notifyChanged('tools')
    t.equal((await reader.next()).method, 'notifications/tools/list_changed')
  }
  const before = await memory()
  for (let round = 0; round < 300; round++) {
    for (const uri of uris) app.layer.notifyUpdated(uri)
    if (round % 100 === 0) await told()
    await new Promise((resolve) => { setImmediate(resolve) })
  }
  // What is still on its way is kept for nobody yet.
  await told()
  const grown = await memory() - before
  t.ok(grown < 8, `${grown.toFixed(1)} MB are kept of ${(300 * uris.length * 1100 / MB).toFixed(0)}`)
  app.layer.notifyChanged('tools')
  let text = ''
  socket.on('data', (chunk) => { text += String(chunk) })
  socket.resume()
  await eventually(() => uris.every((uri) => text.includes(uri)) && text.includes('tools/list_changed'))
  t.ok(text.split('resources/updated').length < 300 * uris.length, 'the slow one has missed repetitions, and nothing else')
  reader.leave()
})

t.test('a session stream that is not read does not hold up the calls of its session', async (t) => {
  const { layer } = createKit()
  layer.tool('tell', {}, async (_args, ctx) => {
    for (let at = 0; at < 600; at++) void ctx.notify.log('info', 'w'.repeat(CHUNK))
    return 'told'
  })
  const app = await serve(t, { layer })
  const session = await handshake(app)
  const socket = await socketTo(t, app)
  socket.write(rawRequest(app, ['Accept: text/event-stream', `Mcp-Session-Id: ${session.id}`], '', 'GET /mcp HTTP/1.1'))
  await once(socket, 'data')
  socket.pause()
  const before = await memory()
  const answer = await session.post(request('tools/call', { name: 'tell' }), { accept: 'application/json' })
  t.same(answer.json.result.content, [{ type: 'text', text: 'told' }])
  const grown = await memory() - before
  t.ok(grown < 8, `${grown.toFixed(1)} MB are kept of ${600 * CHUNK / MB}`)
})
