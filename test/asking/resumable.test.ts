// Streams that a client can come back to: ids, priming, replay and going on live; each within its session and its stream.

import t from 'tap'
import type { Test } from 'tap'
import type { FastifyInstance } from 'fastify'
import type { Socket } from 'node:net'
import { mock } from 'node:test'
import { z } from 'zod'
import { createLayer } from '../../lib/layer/index.js'
import type { Context } from '../../lib/layer/index.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { onRedis, testBackplane } from '../backplane/shared.js'
import { Connection, gate, JSON_ONLY, serve } from '../field/wire.js'
import type { Service } from '../field/wire.js'
import { initialize, INITIALIZED, request } from '../kit.js'
import { settled } from '../protocol/connection.js'
import type { Event, Events } from './events.js'
import { getEvents, postEvents } from './events.js'
import { said, textOf } from './layer.js'

const VERSIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']
const OLDER = VERSIONS.slice(0, 3)
const calling = (name: string, args: Record<string, unknown> = {}, id: number | string = 7) => request('tools/call', { name, arguments: args }, id)

async function sessionOn (service: Service, version = '2025-11-25', headers: Record<string, string> = {}): Promise<Connection> {
  const answer = await service.post(initialize(version, 'init', { elicitation: {} }), headers)
  const session = new Connection(service, answer.headers['mcp-session-id'] as string, headers)
  await session.post(INITIALIZED)
  return session
}

/** Logs a number, then waits for the test before it logs the next. */
function createSteps () {
  const layer = createLayer({ name: 'steps', version: '1' })
  const steps = Array.from({ length: 5 }, () => gate())
  const started = gate<Context>()
  layer.tool('steps', { input: { count: z.int().default(3), close: z.boolean().default(false) } }, async ({ count, close }, ctx) => {
    started.open(ctx)
    if (close) ctx.closeStream()
    for (let n = 1; n <= count; n++) {
      await ctx.notify.log('info', n)
      await steps[n - 1]!.opened
    }
    return said('all done')
  })
  layer.tool('quick', {}, async (_args, ctx) => {
    await ctx.notify.log('info', 'on the way')
    return said('quick')
  })
  layer.tool('closable', {}, (_args, ctx) => said(String(ctx.closeStream())))
  return { layer, started: started.opened, step: (n: number) => steps[n - 1]!.open() }
}

/** What each event says: a log's data, the method of another notification, a reply's text, or `-` for an empty event. */
function told (events: readonly (Event | undefined)[]): unknown[] {
  return events.map((event) => {
    if (event === undefined) return undefined
    if (event.message === undefined) return '-'
    const { method, params, result } = event.message
    return method === undefined ? textOf(result) : params?.data ?? method
  })
}

const ids = (events: readonly (Event | undefined)[]): unknown[] => events.map((event) => event?.id)

t.test('EV-01 from 2025-11-25 on a stream begins with an id and a retry, and every event has an id', async (t) => {
  const { layer } = createSteps()
  const service = await start(t, { layer, resumable: { retry: 250 } })
  const session = await sessionOn(service)
  const stream = await postEvents(session, calling('quick'))
  const events = await stream.rest()
  t.same(told(events), ['-', 'on the way', 'quick'])
  t.same(events.map(({ retry }) => retry), [250, undefined, undefined])
  const [first] = events as [Event]
  const stem = /^[0-9a-f]{12}_/.exec(first.id!)![0]
  t.ok(events.every(({ id }) => id!.startsWith(stem)))
  t.equal(new Set(ids(events)).size, 3)
  t.match(stream.text.replace(/^: open\n\n/, ''), new RegExp(`^id: ${first.id}\\nretry: 250\\ndata: \\n\\nevent: message\\nid: `))
  t.equal(stream.response.headers['content-type'], 'text/event-stream')
})

t.test('EV-01 older revisions get ids, but never an empty event', async (t) => {
  const { layer } = createSteps()
  const service = await start(t, { layer, resumable: true })
  for (const version of OLDER) {
    const stream = await postEvents(await sessionOn(service, version), calling('quick'))
    const events = await stream.rest()
    t.same(told(events), ['on the way', 'quick'], version)
    t.ok(events.every(({ id }) => id !== undefined))
    t.notMatch(stream.text, /retry:|data: \n/)
  }
})

t.test('EV-02 GET with Last-Event-ID gives what was missed of that stream alone, under the same ids, and goes on live', async (t) => {
  for (const version of VERSIONS) {
    const { layer, step, started } = createSteps()
    const service = await start(t, { layer, resumable: true })
    const session = await sessionOn(service, version)
    const stream = await postEvents(session, calling('steps'))
    if (version === '2025-11-25') t.equal((await stream.next())!.message, undefined)
    const first = await stream.next()
    stream.destroy()
    await started
    const other = await (await postEvents(session, calling('quick', {}, 'other'))).rest()
    step(1)
    await settled()
    const resumed = await getEvents(session, first!.id)
    t.equal(resumed.status, 200)
    const second = await resumed.next()
    step(2)
    const third = await resumed.next()
    step(3)
    const rest = await resumed.rest()
    t.same(told([first, second, third, ...rest]), [1, 2, 3, 'all done'], version)
    t.equal(await resumed.end(), true, 'it ends with its answer')
    const stem = first!.id!.split('_')[0]
    t.ok([second, third, ...rest].every((event) => event!.id!.startsWith(`${stem}_`)))
    t.ok(other.every(({ id }) => !id!.startsWith(`${stem}_`)))

    const again = await (await getEvents(session, first!.id)).rest()
    t.same(ids(again), ids([second, third, ...rest]), 'and may be read again')
    t.same(told(await (await getEvents(session, rest.at(-1)!.id)).rest()), [], 'after the last event there is nothing more')
  }
})

t.test('a client that came only as far as the priming event starts from there', async (t) => {
  const { layer, step } = createSteps()
  const service = await start(t, { layer, resumable: true })
  const session = await sessionOn(service)
  const stream = await postEvents(session, calling('steps', { count: 1 }))
  const { id } = (await stream.next())!
  stream.destroy()
  step(1)
  t.same(told(await (await getEvents(session, id)).rest()), [1, 'all done'])
})

t.test('closeStream() ends the stream and not the call; the client comes back for the rest', async (t) => {
  const { layer, step, started } = createSteps()
  const service = await start(t, { layer, resumable: { retry: 10 } })
  const session = await sessionOn(service)
  const stream = await postEvents(session, calling('steps', { close: true, count: 2 }))
  const before = await stream.rest()
  t.equal(await stream.end(), true, 'it is ended, not broken')
  t.same(told(before)[0], '-')
  t.equal(before[0]!.retry, 10)
  t.equal((await started).signal.aborted, false)
  step(1)
  step(2)
  const after = await (await getEvents(session, before.at(-1)!.id)).rest()
  t.same([...told(before), ...told(after)], ['-', 1, 2, 'all done'])
})

t.test('closeStream() says when it cannot', async (t) => {
  const { layer } = createSteps()
  const resumable = await start(t, { layer, resumable: true })
  const plain = await start(t, { layer })
  const json = await start(t, { layer, resumable: true, responseMode: 'json' })
  t.equal(textOf((await (await postEvents(await sessionOn(resumable), calling('closable'))).rest()).at(-1)?.message?.result ?? {}), undefined)
  for (const version of OLDER) t.equal(textOf((await (await postEvents(await sessionOn(resumable, version), calling('closable'))).rest())[0]!.message.result), 'false', version)
  t.equal(textOf((await (await sessionOn(plain)).post(calling('closable'))).reply.result), 'false')
  t.equal(textOf((await (await sessionOn(json)).post(calling('closable'))).json.result), 'false')
  t.equal(textOf((await (await sessionOn(resumable)).post(calling('closable'), JSON_ONLY)).json.result), 'false', 'a client that takes JSON alone')
})

t.test('the standalone stream is replayed and goes on too', async (t) => {
  const { layer } = createSteps()
  layer.resource('test://watched', {}, () => 'x')
  const service = await start(t, { layer, resumable: true })
  const session = await sessionOn(service)
  const stream = await getEvents(session)
  layer.notifyChanged('tools')
  const first = await stream.next()
  layer.notifyChanged('prompts')
  const second = await stream.next()
  t.same(told([first, second]), ['notifications/tools/list_changed', 'notifications/prompts/list_changed'])
  t.ok(first!.id !== undefined && second!.id !== undefined)
  await leave(service, stream)
  const resumed = await getEvents(session, first!.id)
  const missed = await resumed.next()
  t.same([told([missed])[0], missed!.id], ['notifications/prompts/list_changed', second!.id])
  layer.notifyChanged('resources')
  const live = await resumed.next()
  t.same(told([live]), ['notifications/resources/list_changed'])
  t.not(live!.id, second!.id)
  resumed.destroy()
})

t.test('what came while nobody read the standalone stream waits for the next reader', async (t) => {
  const { layer } = createSteps()
  const service = await start(t, { layer, resumable: true })
  const session = await sessionOn(service)
  const stream = await getEvents(session)
  layer.notifyChanged('tools')
  const first = await stream.next()
  await leave(service, stream)
  for (const lastEventId of [first!.id, undefined, undefined]) {
    layer.notifyChanged('prompts')
    const next = await getEvents(session, lastEventId)
    t.same(told([await next.next()]), ['notifications/prompts/list_changed'], `Last-Event-ID: ${lastEventId}`)
    await leave(service, next)
  }
})

t.test('SSE-16 replay is scoped to the session and the stream: a foreign or unknown id replays nothing', async (t) => {
  const { layer, step } = createSteps()
  const backplane = testBackplane()
  const auth = { tokens: ['alice-token:analyst:alice', 'bob-token:analyst:bob'] }
  const service = await start(t, { layer, backplane, resumable: true, auth })
  const [alice, bob] = [{ authorization: 'Bearer alice-token' }, { authorization: 'Bearer bob-token' }]
  const mine = await sessionOn(service, '2025-11-25', alice)
  const stream = await postEvents(mine, calling('steps', { count: 1 }))
  const primed = await stream.next()
  step(1)
  await stream.rest()
  const { id } = primed!

  for (const session of [await sessionOn(service, '2025-11-25', alice), await sessionOn(service, '2025-11-25', bob)]) {
    const opened = await getEvents(session, id)
    t.equal(opened.status, 200)
    layer.notifyChanged('tools')
    t.same(told([await opened.next()]), ['notifications/tools/list_changed'], 'another session gets its own stream, and nothing else')
    opened.destroy()
  }
  t.equal((await getEvents(new Connection(service, mine.id, bob), id)).status, 404)

  const stem = id!.split('_')[0]!
  const drained = await getEvents(mine)
  await drained.next()
  await leave(service, drained)
  const strange = [`${stem}_99`, `${stem}_0`, `${stem}_-1`, `${stem}_1.5`, `${stem}_1e0`, `${stem}_01`, `${stem}`, `${stem}_`, '_', '_1', 'get', '__proto___1', 'constructor_1', ' ', '%00', 'x'.repeat(2000)]
  for (const unknown of strange) {
    const opened = await getEvents(mine, unknown)
    layer.notifyChanged('prompts')
    t.same(told([await opened.next()]), ['notifications/prompts/list_changed'], `${unknown.slice(0, 30)} means nothing`)
    await leave(service, opened)
  }
})

t.test('without the option nothing has an id, and Last-Event-ID is ignored', async (t) => {
  const { layer } = createSteps()
  for (const resumable of [undefined, false] as const) {
    const service = await start(t, { layer, ...(resumable !== undefined && { resumable }) })
    const session = await sessionOn(service)
    const stream = await postEvents(session, calling('quick'))
    t.same(ids(await stream.rest()), [undefined, undefined])
    t.notMatch(stream.text, /^id:|^retry:/m)
    const standalone = await getEvents(session, 'abc_1')
    layer.notifyChanged('tools')
    const event = await standalone.next()
    t.same([told([event])[0], event!.id], ['notifications/tools/list_changed', undefined])
    standalone.destroy()
  }
})

t.test('2026 has no resumption: its streams stay as they are', async (t) => {
  const { layer } = createSteps()
  const service = await start(t, { layer, resumable: true })
  const meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {}, 'io.modelcontextprotocol/logLevel': 'info' }
  const answer = await service.post(request('tools/call', { name: 'quick', arguments: {}, _meta: meta }), { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'quick', 'Last-Event-ID': 'x_1' })
  t.equal(textOf(answer.reply.result), 'quick')
  t.notMatch(answer.text, /^id:|^retry:/m)
})

t.test('every answer of a session may be come back for; the one to initialize is not part of it yet', async (t) => {
  const { layer } = createSteps()
  const service = await start(t, { layer, resumable: true })
  t.match((await service.post(initialize())).headers['content-type'], /^application\/json/)
  const session = await sessionOn(service)
  for (const message of [request('tools/list', {}, 1), request('ping', {}, 2), request('nonsense', {}, 3)]) {
    const events = await (await postEvents(session, message)).rest()
    t.equal(events[0]!.message, undefined)
    t.equal(events[1]!.message.id, message.id)
    const again = await (await getEvents(session, events[0]!.id)).rest()
    t.same(again.map((event) => event.message), [events[1]!.message])
  }
})

t.test('a question goes to a client that polls, and its answer ends the wait', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('ask', {}, async (_args, ctx) => {
    ctx.closeStream()
    return said((await ctx.elicit('Go on?', {})).action)
  })
  const service = await start(t, { layer, resumable: true })
  const session = await sessionOn(service)
  const before = await (await postEvents(session, calling('ask'))).rest()
  const back = await getEvents(session, before[0]!.id)
  const question = before[1] ?? await back.next()
  t.equal(question!.message.method, 'elicitation/create')
  t.equal((await session.post({ jsonrpc: '2.0', id: question!.message.id, result: { action: 'accept' } })).status, 202)
  t.same(told([(await back.rest()).at(-1)]), ['accept'])
})

t.test('what is kept is bounded by count and by bytes', async (t) => {
  const many = createLayer({ name: 'x', version: '1' })
  many.tool('many', { input: { count: z.int(), size: z.int() } }, async ({ count, size }, ctx) => {
    for (let n = 1; n <= count; n++) await ctx.notify.log('info', n + '.'.repeat(size))
    return said('done')
  })
  const byCount = await replayOf(await start(t, { layer: many, resumable: { maxEvents: 5 } }), { count: 20, size: 0 })
  t.same(byCount, ['17', '18', '19', '20', 'done'])

  const byBytes = await replayOf(await start(t, { layer: many, resumable: { maxBytes: 5000 } }), { count: 20, size: 1000 })
  t.ok(byBytes.length >= 4 && byBytes.length <= 5, String(byBytes.length))
  t.equal(byBytes.at(-1), 'done')
})

// The clock of a Redis is not this one's.
t.test('what is too old is not kept', { skip: onRedis }, async (t) => {
  const many = createLayer({ name: 'x', version: '1' })
  many.tool('many', { input: { count: z.int(), size: z.int() } }, async ({ count }, ctx) => {
    for (let n = 1; n <= count; n++) await ctx.notify.log('info', n)
    return said('done')
  })
  const service = await start(t, { layer: many, resumable: { ttl: 60_000 } })
  mock.timers.enable({ apis: ['Date'], now: Date.now() })
  t.teardown(() => mock.timers.reset())
  const session = await sessionOn(service)
  const [old] = await (await postEvents(session, calling('many', { count: 2, size: 0 }))).rest()
  t.equal((await (await getEvents(session, old!.id)).rest()).length, 3)
  mock.timers.tick(60_001)
  const [young] = await (await postEvents(session, calling('many', { count: 1, size: 0 }))).rest()
  t.equal((await (await getEvents(session, young!.id)).rest()).length, 2)
  const opened = await getEvents(session, old!.id)
  many.notifyChanged('tools')
  t.same(told([await opened.next()]), ['notifications/tools/list_changed'], 'what is too old is gone, and so is its stream')
  await leave(service, opened)

  mock.timers.tick(60_001)
  const late = await getEvents(session, young!.id)
  many.notifyChanged('prompts')
  t.same(told([await late.next()]), ['notifications/prompts/list_changed'], 'also when nothing new has come')
  late.destroy()
})

t.test('a slow reader loses nothing: its stream ends, and it comes back for the rest', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const sent = gate()
  const COUNT = 200
  const FILL = '.'.repeat(20_000)
  layer.tool('flood', {}, async (_args, ctx) => {
    // Not awaited: this producer waits for nobody.
    const all = Array.from({ length: COUNT }, (_, n) => ctx.notify.log('info', n + FILL))
    sent.open()
    await Promise.all(all)
    return said('done')
  })
  const service = await start(t, { layer, resumable: { maxEvents: 10_000, maxBytes: 64 * 1024 * 1024 } })
  const session = await sessionOn(service)
  const stream = await postEvents(session, calling('flood'), true)
  await sent.opened
  const got: unknown[] = []
  let last: string | undefined
  let connections = 0
  for (let reader = stream; ;) {
    connections++
    reader.response.resume()
    const events = await reader.rest()
    got.push(...told(events).map((what) => String(what).split('.')[0]))
    last = events.at(-1)?.id ?? last
    if (got.at(-1) === 'done') break
    reader = await getEvents(session, last)
  }
  // Elsewhere keeping an event takes so long that the connection takes it meanwhile.
  if (!onRedis) t.ok(connections > 1, `it came back ${connections - 1} times`)
  t.same(got, ['-', ...Array.from({ length: COUNT }, (_, n) => String(n)), 'done'])
})

t.test('a session that ends takes its streams with it', async (t) => {
  const { layer, started } = createSteps()
  const service = await start(t, { layer, resumable: true })
  const session = await sessionOn(service)
  const stream = await postEvents(session, calling('steps'))
  const first = await stream.next()
  await started
  const resumed = await getEvents(session, first!.id)
  t.equal((await session.delete()).status, 200)
  await Promise.all([stream.rest(), resumed.rest()])
  t.equal(await resumed.end(), true)
  t.equal((await getEvents(session, first!.id)).status, 404)
})

t.test('closing the server ends resumed streams as well, says when to come back, and keeps the last answer for that', async (t) => {
  const backplane = testBackplane()
  const { layer } = createSteps()
  const a = await start(t, { layer, backplane, resumable: true, closeGrace: 10 })
  const b = await start(t, { layer: createSteps().layer, backplane, resumable: true })
  const session = await sessionOn(a)
  const stream = await postEvents(session, calling('steps'))
  const first = await stream.next()
  stream.destroy()
  const resumed = await getEvents(session, first!.id)
  await a.app.close()
  t.equal(await resumed.end(), true, 'it is ended, not broken')
  t.match(resumed.text, /^retry: \d+$/m)

  const elsewhere = await (await getEvents(new Connection(b, session.id), first!.id)).rest()
  t.match(elsewhere.at(-1)!.message, { id: 7, error: { code: -32603, message: 'The server is shutting down' } })
})

t.test('a stream may be resumed at another process', async (t) => {
  const backplane = testBackplane()
  const { layer, step } = createSteps()
  const a = await start(t, { layer, backplane, resumable: true })
  const b = await start(t, { layer: createSteps().layer, backplane, resumable: true })
  const session = await sessionOn(a)
  const stream = await postEvents(session, calling('steps', { count: 2 }))
  const first = await stream.next()
  stream.destroy()
  const resumed = await getEvents(new Connection(b, session.id), first!.id)
  t.same(told([await resumed.next()]), [1])
  step(1)
  t.same(told([await resumed.next()]), [2])
  const begun = performance.now()
  step(2)
  t.same(told(await resumed.rest()), ['all done'])
  // A process looks after its readers every 5 s: that is for what is lost on the way, and this must not be.
  t.ok(performance.now() - begun < 4000, 'the end is told when it comes')
})

/** What is left of a call when it has ended, from its first event on. */
async function replayOf (service: Service, args: { count: number, size: number }): Promise<string[]> {
  const session = await sessionOn(service)
  const [first] = await (await postEvents(session, calling('many', args))).rest()
  const replayed = await (await getEvents(session, first!.id)).rest()
  return told(replayed).map((what) => String(what).split('.')[0]!)
}

const sockets = new WeakMap<Service, Map<number, Socket>>()

/** A service of which a test can see that a client has left. */
async function start (t: Test, options: CloudgMcpOptions): Promise<Service> {
  const open = new Map<number, Socket>()
  const after = (app: FastifyInstance): void => { app.server.on('connection', (socket: Socket) => { open.set(socket.remotePort!, socket) }) }
  const service = await serve(t, options, { after })
  sockets.set(service, open)
  return service
}

/** Breaks the connection, and waits until the server has seen it. */
async function leave (service: Service, { response }: Events): Promise<void> {
  const socket = sockets.get(service)!.get(response.socket.localPort!)!
  response.destroy()
  if (!socket.closed) await new Promise((resolve) => { socket.once('close', resolve) })
  await settled()
}
