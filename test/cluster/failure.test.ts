// What fails in a service of many processes, and what its clients get: docs/scaling.md says it, this shows it.

import t from 'tap'
import type { Test } from 'tap'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import type { Change, Signal } from '../../lib/backplane/index.js'
import { redisBackplane } from '../../lib/backplane/redis.js'
import { silent } from '../../lib/layer/context.js'
import { freePort, RedisServer, withoutRedis } from '../backplane/redis-server.js'
import { request } from '../kit.js'
import { Cable, makeApp, serveApp } from './app.js'
import type { Answer } from './client.js'
import { Client } from './client.js'
import { Node } from './nodes.js'

const redis = withoutRedis === false ? await RedisServer.start() : undefined as never
t.teardown(async () => redis?.close())
const test = (name: string, body: (t: Test) => Promise<void>) => t.test(name, { skip: withoutRedis }, body)
let services = 0
const prefixed = () => ({ prefix: `failure-${++services}` })
const PING = request('ping')
const AWAY = 'the connection to Redis is lost'
const BACK = 'Redis is back'

function refusedForNow (t: Test, { status, headers, json }: Answer): void {
  t.equal(status, 503)
  t.equal(headers['retry-after'], '2')
  t.same(json, { jsonrpc: '2.0', id: null, error: { code: -32603, message: 'Sessions are not available at the moment' } })
}

test('Redis is down at the start: the app does not start, and says why', async (t) => {
  const { app } = makeApp(redisBackplane({ url: `redis://127.0.0.1:${await freePort()}`, startTimeout: 300 }))
  await t.rejects(async () => app.ready(), { code: 'CLOUDG_MCP_ERR_BACKPLANE_UNAVAILABLE', statusCode: 503, message: /cannot be reached: .*ECONNREFUSED/ })
  await app.close()
})

test('Redis is down at the start and need not be there: what needs no session is served, and sessions when it comes', async (t) => {
  const later = await RedisServer.start()
  t.teardown(async () => later.close())
  await later.down()
  const app = await serveApp(t, redisBackplane({ url: later.url, startTimeout: 100, required: false }))
  const client = new Client({ ports: [app.port] })
  refusedForNow(t, await client.initialize())
  t.match(await client.callModern('echo', { text: 'hi' }), { reply: { result: { structuredContent: { text: 'hi' } } } })
  client.id = 'f'.repeat(32)
  refusedForNow(t, await client.post(PING))
  client.id = undefined
  await later.up()
  await app.logged(BACK)
  t.equal((await client.initialize()).status, 200)
  t.equal((await client.post(PING)).status, 200)
})

test('Redis is gone for a while: sessions, streams and calls outlive it', async (t) => {
  const cable = await Cable.to(t, redis.port)
  const service = prefixed()
  const here = await serveApp(t, redisBackplane({ url: cable.url, ...service }), { resumable: true })
  const there = await serveApp(t, redisBackplane({ url: redis.url, ...service }), { resumable: true })
  const client = new Client({ ports: [here.port] })
  await client.initialize()
  await client.post(request('resources/subscribe', { uri: 'test://info' }))
  const stream = await client.get()
  const elsewhere = new Client({ ports: [there.port] })
  await elsewhere.initialize()
  const streamThere = await elsewhere.get()
  const modern = await client.listenModern({ toolsListChanged: true })
  await modern.next()
  const entered = here.entered('sleepy')
  const call = await client.open('sleepy', { seconds: 0.4 })
  await entered

  cable.cut()
  await here.logged(AWAY)
  refusedForNow(t, await client.post(PING))
  refusedForNow(t, await new Client({ ports: [here.port] }).initialize())
  t.match(await client.callModern('echo', { text: 'hi' }), { reply: { result: { structuredContent: { text: 'hi' } } } })
  const answer = await call.next()
  t.match(answer?.message, { id: 1, result: { structuredContent: { slept: 0.4 } } }, 'a call in flight is answered')
  here.layer.notifyChanged('tools')
  t.match((await modern.next())?.message, { method: 'notifications/tools/list_changed' }, 'a change here is heard here')

  cable.mend()
  await here.logged(BACK)
  t.equal((await client.post(PING)).status, 200, 'the session is there')
  t.match((await streamThere.next())?.message, { method: 'notifications/tools/list_changed' }, 'and elsewhere once Redis is back')
  there.layer.notifyUpdated('test://info')
  for (let event = await stream.next(); event?.message.method !== 'notifications/resources/updated'; event = await stream.next()) {
    t.match(event?.message, { method: 'notifications/tools/list_changed' })
  }
  t.pass('the stream is the one that was open before')
  for (const one of [stream, streamThere, modern]) one.leave()
})

test('Redis does not answer: nobody waits for longer than the timeout', async (t) => {
  const slow = await RedisServer.start()
  t.teardown(async () => slow.close())
  const app = await serveApp(t, redisBackplane({ url: slow.url, timeout: 200 }))
  const client = new Client({ ports: [app.port] })
  await client.initialize()
  slow.pause()
  const before = performance.now()
  refusedForNow(t, await client.post(PING))
  refusedForNow(t, await client.post(PING))
  t.ok(performance.now() - before < 2000)
  t.match(await client.callModern('echo', { text: 'hi' }), { reply: { result: { structuredContent: { text: 'hi' } } } })
  slow.resume()
  await app.logged(BACK)
  t.equal((await client.post(PING)).status, 200)
})

test('Redis comes back empty: streams end, sessions are unknown, and clients begin anew', async (t) => {
  const empty = await RedisServer.start()
  t.teardown(async () => empty.close())
  const app = await serveApp(t, redisBackplane({ url: empty.url }), { resumable: true })
  const client = new Client({ ports: [app.port] })
  await client.initialize()
  const stream = await client.get()
  const modern = await client.listenModern({ toolsListChanged: true, promptsListChanged: true })
  await modern.next()
  app.layer.notifyChanged('prompts')
  t.match((await modern.next())?.message, { method: 'notifications/prompts/list_changed' })
  await empty.down()
  await app.logged(AWAY)
  await empty.up()
  await app.logged(BACK)
  await stream.next()
  await stream.end()
  t.ok(stream.complete, 'it ends, it is not cut off')
  t.equal((await client.post(PING)).status, 404)
  t.equal((await client.get()).status, 404)
  client.id = undefined
  t.equal((await client.initialize()).status, 200)
  t.equal((await client.post(PING)).status, 200)
  const again = await client.get()
  app.layer.notifyChanged('tools')
  t.match((await again.next())?.message, { method: 'notifications/tools/list_changed' })
  again.leave()
  modern.leave()
})

test('a process is killed while it streams', async (t) => {
  const service = { redis: { url: redis.url, ...prefixed() }, options: { resumable: true } }
  const [one, other] = await Promise.all([Node.start(service), Node.start(service)])
  t.teardown(async () => Promise.all([one.kill(), other.kill()]))
  const client = new Client({ ports: [one.port] })
  await client.initialize()
  await client.post(request('resources/subscribe', { uri: 'test://a' }))
  const stream = await client.get()
  other.tell({ order: 'touch', uris: ['test://a'] })
  const heard = await stream.next()
  t.match(heard?.message, { params: { uri: 'test://a' } })
  const call = await client.open('hang', { nonce: 'lost' })
  const progress = await call.next()
  t.match(progress?.message, { method: 'notifications/progress' })
  await one.kill()
  await Promise.all([stream.end(), call.end()])
  t.notOk(stream.complete || call.complete, 'the connections break')

  other.tell({ order: 'touch', uris: ['test://a'] })
  const rest = await client.get(progress!.id, other.port)
  t.same((await rest.next())?.message, { jsonrpc: '2.0', id: 1, error: { code: -32603, message: 'The process that served this call is gone' } })
  await rest.end()
  t.ok(rest.complete)
  const again = await client.get(heard!.id, other.port)
  t.equal(again.status, 200, 'the place of the dead reader is free at once')
  t.match((await again.next())?.message, { method: 'notifications/resources/updated', params: { uri: 'test://a' } }, 'what was missed comes, and once')
  other.tell({ order: 'change', kind: 'tools' })
  t.match((await again.next())?.message, { method: 'notifications/tools/list_changed' })
  again.leave()
})

test('a process is killed under a reader of its stream at another process', async (t) => {
  const service = { redis: { url: redis.url, lease: 900, ...prefixed() }, options: { resumable: true } }
  const [one, other] = await Promise.all([Node.start(service), Node.start(service)])
  t.teardown(async () => Promise.all([one.kill(), other.kill()]))
  const client = new Client({ ports: [one.port] })
  await client.initialize()
  const call = await client.open('hang', { nonce: 'lost' })
  const progress = await call.next()
  call.leave()
  const rest = await client.get(progress!.id, other.port)
  await one.kill()
  t.match((await rest.next())?.message, { id: 1, error: { message: 'The process that served this call is gone' } })
  await rest.end()
  t.ok(rest.complete)
})

test('without resumable streams a killed process breaks its connections, and the session goes on', async (t) => {
  const service = { redis: { url: redis.url, ...prefixed() } }
  const [one, other] = await Promise.all([Node.start(service), Node.start(service)])
  t.teardown(async () => Promise.all([one.kill(), other.kill()]))
  const client = new Client({ ports: [one.port] })
  await client.initialize()
  const stream = await client.get()
  const call = await client.open('hang', { nonce: 'lost' })
  await one.entered('lost')
  await one.kill()
  await Promise.all([stream.end(), call.end()])
  t.notOk(call.complete)
  const again = await client.get(undefined, other.port)
  t.equal(again.status, 200)
  other.tell({ order: 'change', kind: 'tools' })
  t.match((await again.next())?.message, { method: 'notifications/tools/list_changed' })
  again.leave()
})

test('a process that Redis cuts off for reading too slowly makes up for what it missed, in order and once', async (t) => {
  const service = prefixed()
  const [slow, other] = [redisBackplane({ url: redis.url, ...service }), redisBackplane({ url: redis.url, ...service })]
  for (const backplane of [slow, other]) {
    await backplane.start(silent)
    t.teardown(async () => backplane.close())
  }
  const record = { id: 'a'.repeat(32), owner: 'alice', kind: 'http', version: '2025-11-25', initialized: true, capabilities: {}, logLevel: 'info' } as const
  await other.createSession(record, { maxSessions: 10, maxSessionsPerPrincipal: 10, idleTimeout: 60_000 })
  const use = await slow.acquire(record.id, 'http', 'alice')
  const [changes, signals]: [Change[], Signal[]] = [[], []]
  let wake = (): void => {}
  slow.onChange((change) => {
    changes.push(change)
    wake()
  })
  slow.onSignal((signal) => {
    if (signal.type === 'cancel') signals.push(signal)
    wake()
  })
  const admin = redis.client()
  const [rounds, each] = [8, 40]
  for (let round = 0; round < rounds; round++) {
    // What Redis does to a subscriber whose output buffer is full.
    await admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub')
    for (let at = round * each; at < (round + 1) * each; at++) {
      void other.publish({ kind: 'resource', uri: `test://${at}` })
      void other.signal({ type: 'cancel', session: record.id, requestId: at })
    }
    while (changes.length < (round + 1) * each || signals.length < (round + 1) * each) await new Promise<void>((resolve) => { wake = resolve })
  }
  t.same(changes.map(({ uri }) => uri), Array.from({ length: rounds * each }, (_, at) => `test://${at}`))
  t.same(signals.map((signal) => signal.type === 'cancel' && signal.requestId), Array.from({ length: rounds * each }, (_, at) => at))
  use?.release()
})

test('Redis fails over to its replica: sessions and streams go on', async (t) => {
  const primary = await RedisServer.start('--repl-diskless-sync-delay', '0')
  const replica = await RedisServer.start('--replicaof', '127.0.0.1', String(primary.port))
  t.teardown(async () => Promise.all([primary.close(), replica.close()]))
  const sentinel = await RedisServer.sentinel('service', primary.port)
  t.teardown(async () => sentinel.close())
  const admin = replica.client()
  while (!(await admin.info('replication')).includes('master_link_status:up')) await sleep(20)
  const watcher = sentinel.client()
  while (Number((await watcher.call('SENTINEL', 'REPLICAS', 'service') as any[]).length) === 0) await sleep(20)

  const client = new Redis({ sentinels: [{ host: '127.0.0.1', port: sentinel.port }], name: 'service', lazyConnect: true })
  const app = await serveApp(t, redisBackplane({ client }), { resumable: true })
  const session = new Client({ ports: [app.port] })
  await session.initialize()
  await session.post(request('resources/subscribe', { uri: 'test://info' }))
  const stream = await session.get()
  await primary.client().wait(1, 1000)
  await primary.down()
  await app.logged(AWAY)
  refusedForNow(t, await session.post(PING))
  await app.logged(BACK)
  t.equal((await session.post(PING)).status, 200, 'the replica knows the session')
  app.layer.notifyUpdated('test://info')
  t.match((await stream.next())?.message, { method: 'notifications/resources/updated' })
  t.equal((await session.end()).status, 200)
  client.disconnect()
})
