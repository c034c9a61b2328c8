// What a session costs Redis: round trips a call, keys a session. `npm run bench:cluster` measures time and bytes.

import t from 'tap'
import { redisBackplane } from '../../lib/backplane/redis.js'
import { RedisServer, withoutRedis } from '../backplane/redis-server.js'
import { eventually } from '../http/client.js'
import { request } from '../kit.js'
import { serveApp } from './app.js'
import { Client } from './client.js'

t.test('a session that is busy takes one round trip a call and a last one, and what needs no session takes none', { skip: withoutRedis }, async (t) => {
  const redis = await RedisServer.start()
  t.teardown(async () => redis.close())
  const admin = redis.client()
  // No heartbeat comes in between.
  const app = await serveApp(t, redisBackplane({ url: redis.url, lease: 600_000 }))
  const client = new Client({ ports: [app.port] })
  await client.initialize()
  const scripts = async (): Promise<number> => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1] ?? 0)
  /** Beside scripts and what they do inside, the admin's own alone. */
  const others = async (): Promise<string[]> => [...(await admin.info('commandstats')).matchAll(/cmdstat_(\w+):/g)].map(([, name]) => name!)
    .filter((name) => !['evalsha', 'info', 'config|resetstat', 'config', 'hmget', 'time', 'pexpire', 'zadd', 'zrem', 'zremrangebyscore', 'zcount', 'hget', 'hset', 'zscore', 'zcard'].includes(name))

  const calls = 50
  const started = Date.now()
  await admin.config('RESETSTAT')
  for (let at = 0; at < calls; at++) {
    const { status } = await client.post(request('tools/call', { name: 'echo', arguments: { text: 'x' } }))
    if (status !== 200) t.equal(status, 200)
  }
  // What tells that the session is free comes once it rests, or a few times if all this takes long: nobody waits for it.
  const rests = 2 + (Date.now() - started) / 200
  await eventually(async () => await admin.zcard(`{cloudg-mcp:${client.id!}}:h`) === 0)
  const taken = await scripts()
  t.ok(taken > calls && taken <= calls + rests, `${taken} round trips for ${calls} calls`)
  t.same(await others(), [])

  await admin.config('RESETSTAT')
  for (let at = 0; at < calls; at++) await client.callModern('echo', { text: 'x' })
  t.equal(await scripts(), 0)
})

t.test('a process that was held up while a session rested takes nothing off its time', { skip: withoutRedis }, async (t) => {
  const redis = await RedisServer.start()
  t.teardown(async () => redis.close())
  const admin = redis.client()
  const backplanes = [redisBackplane({ url: redis.url }), redisBackplane({ url: redis.url })] as const
  for (const backplane of backplanes) await backplane.start({ info: () => {}, warn: () => {} })
  t.teardown(async () => Promise.all(backplanes.map(async (backplane) => backplane.close())))
  const record = { id: 'a'.repeat(32), owner: 'alice', kind: 'http', version: '2025-11-25', initialized: true, capabilities: {}, logLevel: 'info' } as const
  const key = `{cloudg-mcp:${record.id}}`
  await backplanes[0].createSession(record, { maxSessions: 10, maxSessionsPerPrincipal: 10, idleTimeout: 60_000 })
  ;(await backplanes[0].acquire(record.id, 'http', 'alice'))?.release()
  // An hour goes by for this process, and not for the other.
  const { now } = performance
  performance.now = () => now.call(performance) + 3_600_000
  t.teardown(() => { performance.now = now })
  ;(await backplanes[1].acquire(record.id, 'http', 'alice'))?.release()
  await backplanes[1].close()
  await eventually(async () => await admin.zcard(`${key}:h`) === 0)
  const ttl = await admin.pttl(key)
  t.ok(ttl > 59_000 && ttl <= 60_000, `${ttl} ms are left`)
})

t.test('an idle session is one key, and what it leaves goes with it', { skip: withoutRedis }, async (t) => {
  const redis = await RedisServer.start()
  t.teardown(async () => redis.close())
  const admin = redis.client()
  const app = await serveApp(t, redisBackplane({ url: redis.url }), { resumable: true })
  const before = new Set(await admin.keys('*'))
  const clients: Client[] = []
  for (let at = 0; at < 20; at++) {
    const client = new Client({ ports: [app.port] })
    await client.initialize()
    clients.push(client)
  }
  const ofSessions = async (): Promise<string[]> => (await admin.keys('*')).filter((key) => !before.has(key) && !key.startsWith('{cloudg-mcp}'))
  await eventually(async () => (await ofSessions()).length === 20)
  t.ok((await ofSessions()).every((key) => /^\{cloudg-mcp:[0-9a-f]{32}\}$/.test(key)))
  for (const client of clients) {
    await client.post(request('resources/subscribe', { uri: 'test://info' }))
    const stream = await client.get()
    await client.call('slow', {})
    stream.leave()
  }
  for (const client of clients) t.equal((await client.end()).status, 200)
  await eventually(async () => (await ofSessions()).length === 0)
  for (const key of await admin.keys('*')) t.ok(await admin.pttl(key) > 0, `${key} does not stay for ever`)
})
