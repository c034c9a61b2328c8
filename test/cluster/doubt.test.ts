// Redis may do what it is asked without being heard. Whether it has, is known when it answers again; sessions hear of each change once.

import t from 'tap'
import type { Test } from 'tap'
import { redisBackplane } from '../../lib/backplane/redis.js'
import { Line } from '../backplane/line.js'
import { RedisServer, withoutRedis } from '../backplane/redis-server.js'
import { eventually } from '../http/client.js'
import { request } from '../kit.js'
import { serveApp } from './app.js'
import type { Events } from './client.js'
import { Client } from './client.js'

const redis = withoutRedis === false ? await RedisServer.start() : undefined as never
t.teardown(async () => redis?.close())
const test = (name: string, body: (t: Test) => Promise<void>) => t.test(name, { skip: withoutRedis }, body)
let services = 0
const AWAY = 'the connection to Redis is lost'
const BACK = 'Redis is back'
const INFO = 'test://info'

/** Two processes, one of them behind a line, and at each a session that reads. */
async function start (t: Test) {
  const line = await Line.to(t, redis.port)
  const prefix = `doubt-${++services}`
  // No heartbeat comes in between, but when Redis is back.
  const here = await serveApp(t, redisBackplane({ url: line.url, prefix, lease: 600_000 }), { resumable: true })
  const there = await serveApp(t, redisBackplane({ url: redis.url, prefix, lease: 600_000 }), { resumable: true })
  const [near, far] = await Promise.all([here, there].map(async ({ port }) => {
    const client = new Client({ ports: [port] })
    await client.initialize()
    await client.post(request('resources/subscribe', { uri: INFO }))
    const stream = await client.get()
    t.equal(stream.status, 200)
    t.teardown(() => stream.leave())
    return { client, stream }
  })) as [{ client: Client, stream: Events }, { client: Client, stream: Events }]
  const listen = await near.client.listenModern({ toolsListChanged: true, resourceSubscriptions: [INFO] })
  await listen.next()
  t.teardown(() => listen.leave())
  const admin = redis.client()
  return {
    line,
    here,
    there,
    near,
    far,
    listen,
    lost: async () => here.logged(AWAY),
    mended: async () => {
      line.mend()
      await here.logged(BACK)
    },
    /** Events that are kept for the session. */
    kept: async ({ client }: { client: Client }) => admin.xlen(`{${prefix}:${client.id}}:e`),
    published: async () => admin.xlen(`{${prefix}}:c`)
  }
}

/** What a stream says until the lists of tools have changed. */
async function heard (stream: Events): Promise<string[]> {
  const methods: string[] = []
  for (let event = await stream.next(); event !== undefined; event = await stream.next()) {
    methods.push(event.message.method.replace('notifications/', ''))
    if (methods.at(-1) === 'tools/list_changed') break
  }
  return methods
}

const ONCE = ['resources/updated', 'tools/list_changed']

test('a change that was kept for a session without the process knowing', async (t) => {
  const { line, lost, mended, there, near, kept } = await start(t)
  line.hold('commands')
  there.layer.notifyUpdated(INFO)
  await eventually(async () => await kept(near) === 1)
  line.cut()
  await lost()
  await mended()
  there.layer.notifyChanged('tools')
  t.same(await heard(near.stream), ONCE)
  t.equal(await kept(near), 2)
})

test('a change that arrives while nothing can be kept', async (t) => {
  const { line, lost, mended, there, near, far, listen, kept } = await start(t)
  line.cut('commands')
  await lost()
  there.layer.notifyUpdated(INFO)
  t.match((await listen.next())?.message, { method: 'notifications/resources/updated' })
  t.match((await far.stream.next())?.message, { method: 'notifications/resources/updated' })
  await mended()
  there.layer.notifyChanged('tools')
  t.same(await heard(near.stream), ONCE)
  t.equal(await kept(near), 2)
})

test('a change that arrives while nothing can be kept, for a session that goes elsewhere', async (t) => {
  const { line, lost, mended, there, near, listen } = await start(t)
  line.cut('commands')
  await lost()
  there.layer.notifyUpdated(INFO)
  await listen.next()
  near.stream.leave()
  await mended()
  let stream = await near.client.get(undefined, there.port)
  while (stream.status !== 200) stream = await near.client.get(undefined, there.port)
  there.layer.notifyChanged('tools')
  t.same(await heard(stream), ONCE)
  stream.leave()
})

test('a change that was published without the process knowing', async (t) => {
  const { line, lost, mended, here, there, near, far, listen, published } = await start(t)
  line.hold('commands')
  here.layer.notifyUpdated(INFO)
  t.match((await far.stream.next())?.message, { method: 'notifications/resources/updated' })
  line.cut()
  await lost()
  await mended()
  there.layer.notifyChanged('tools')
  t.same(await heard(near.stream), ONCE)
  t.same(await heard(listen), ONCE)
  t.same(await heard(far.stream), ONCE.slice(1))
  t.equal(await published(), 2)
})

test('a change of a process that cannot publish', async (t) => {
  const { line, lost, mended, here, there, near, far, listen, published } = await start(t)
  line.cut()
  await lost()
  here.layer.notifyUpdated(INFO)
  t.match((await listen.next())?.message, { method: 'notifications/resources/updated' }, 'who can be told is told at once')
  await mended()
  there.layer.notifyChanged('tools')
  t.same(await heard(near.stream), ONCE)
  t.same(await heard(far.stream), ONCE)
  t.same(await heard(listen), ONCE.slice(1))
  t.equal(await published(), 2)
})
