// A process hears of the others on one connection and asks Redis on another. Whichever of the two is late, what it knows goes forward
// only, each change comes once, and no later than what it was subscribed for.

import t from 'tap'
import type { Test } from 'tap'
import type { Backplane, Change, Signal } from '../../lib/backplane/index.js'
import { redisBackplane } from '../../lib/backplane/redis.js'
import { silent } from '../../lib/layer/context.js'
import { Line } from './line.js'
import { RedisServer, withoutRedis } from './redis-server.js'

const redis = withoutRedis === false ? await RedisServer.start() : undefined as never
t.teardown(async () => redis?.close())
const test = (name: string, body: (t: Test) => Promise<void>) => t.test(name, { skip: withoutRedis }, body)
let services = 0
const LIMITS = { maxSessions: 10, maxSessionsPerPrincipal: 10, idleTimeout: 60_000 }
const RECORD = { id: 'a'.repeat(32), owner: 'alice', kind: 'http', version: '2025-11-25', initialized: false, capabilities: {}, logLevel: 'info' } as const
const READER = { deliver () {}, stalled: () => false, replaced () {} }

class Heard {
  readonly changes: Change[] = []
  readonly signals: Signal[] = []
  /** Both, in their order. */
  readonly all: string[] = []
  readonly #waiting = new Set<() => void>()

  constructor (backplane: Backplane) {
    backplane.onChange((change) => this.#take(this.changes, change, change.uri ?? change.kind))
    backplane.onSignal((signal) => this.#take(this.signals, signal, signal.type))
  }

  #take<T> (list: T[], item: T, name: string): void {
    list.push(item)
    this.all.push(name)
    for (const wake of this.#waiting) wake()
  }

  async until (condition: () => boolean): Promise<void> {
    await new Promise<void>((resolve) => {
      const look = (): void => {
        if (!condition()) return
        this.#waiting.delete(look)
        resolve()
      }
      this.#waiting.add(look)
      look()
    })
  }
}

/** One process behind a line, whose heart beats often, and another. */
async function start (t: Test) {
  const line = await Line.to(t, redis.port)
  const prefix = `order-${++services}`
  const [here, other] = [redisBackplane({ url: line.url, prefix, lease: 300 }), redisBackplane({ url: redis.url, prefix })]
  for (const backplane of [here, other]) {
    await backplane.start(silent)
    t.teardown(async () => backplane.close())
  }
  return { line, here, other, heard: new Heard(here) }
}

const resource = (uri: string): Change => ({ kind: 'resource', uri })

test('an answer of Redis that is late does not take a process back in the log of changes', async (t) => {
  const { line, here, other, heard } = await start(t)
  await other.publish(resource('test://1'))
  await heard.until(() => heard.changes.length === 1)
  line.hold('commands')
  await line.said('commands', here.position)
  await other.publish(resource('test://2'))
  await heard.until(() => heard.changes.length === 2)
  const { position } = here
  line.release('commands')
  await other.publish(resource('test://3'))
  await heard.until(() => heard.changes.some(({ uri }) => uri === 'test://3'))
  t.same(heard.changes.map(({ uri }) => uri), ['test://1', 'test://2', 'test://3'])
  t.ok(here.isAfter(here.position, position))
})

test('changes that Redis has yet to take are kept once each', async (t) => {
  const { line, here, heard } = await start(t)
  line.hold('commands')
  const published = Array.from({ length: 5000 }, async (_, at) => here.publish(resource(`test://${at % 10}`)))
  const last = here.publish(resource('test://last'))
  line.release('commands')
  await Promise.all([...published, last])
  await heard.until(() => heard.changes.at(-1)?.uri === 'test://last')
  t.ok(heard.changes.length < 500, `${heard.changes.length} changes`)
  t.same(new Set(heard.changes.slice(-11).map(({ uri }) => uri)), new Set([...Array.from({ length: 10 }, (_, at) => `test://${at}`), 'test://last']), 'the last of each is among them')
})

test('a heartbeat that is answered late takes back nothing that a session has become since', async (t) => {
  const { line, here, other, heard } = await start(t)
  await other.createSession(RECORD, LIMITS)
  const use = await here.acquire(RECORD.id, 'http', 'alice')
  t.teardown(() => use?.release())
  await here.openOutbox(RECORD.id, READER)
  line.hold('commands')
  await other.subscribe(RECORD.id, 'test://a', 10)
  await line.said('commands', 'test://a')
  await other.subscribe(RECORD.id, 'test://b', 10)
  await other.updateSession(RECORD.id, { initialized: true })
  await heard.until(() => heard.signals.some((signal) => signal.type === 'updated' && signal.part.initialized === true))
  const before = heard.signals.length
  const acquired = here.acquire(RECORD.id, 'http', 'alice')
  line.release('commands')
  const again = await acquired
  t.equal(again?.record.initialized, true)
  again?.release()
  await heard.until(() => heard.signals.slice(before).some((signal) => signal.type === 'subscriptions' && signal.uris.includes('test://b')))
  for (const signal of heard.signals.slice(before)) {
    if (signal.type === 'updated') t.equal(signal.part.initialized, true)
    if (signal.type === 'subscriptions') t.same([...signal.uris].sort(), ['test://a', 'test://b'])
  }
})

test('a place that is given late comes with all subscriptions until then', async (t) => {
  const { line, here, other, heard } = await start(t)
  await other.createSession(RECORD, LIMITS)
  const use = await here.acquire(RECORD.id, 'http', 'alice')
  t.teardown(() => use?.release())
  for (const uri of ['test://a', 'test://b']) await other.subscribe(RECORD.id, uri, 10)
  await heard.until(() => heard.signals.filter(({ type }) => type === 'subscribed').length === 2)
  line.hold('commands')
  const opened = here.openOutbox(RECORD.id, READER)
  await line.said('commands', 'test://b')
  await other.subscribe(RECORD.id, 'test://c', 10)
  await other.unsubscribe(RECORD.id, 'test://a')
  await heard.until(() => heard.signals.filter(({ type }) => type === 'subscribed').length === 4)
  line.release('commands')
  t.same([...(await opened)!.subscriptions].sort(), ['test://b', 'test://c'])
})

test('a change that is found in the log is told after the subscription that came before it', async (t) => {
  const { line, here, other, heard } = await start(t)
  await other.createSession(RECORD, LIMITS)
  const use = await here.acquire(RECORD.id, 'http', 'alice')
  t.teardown(() => use?.release())
  line.hold('subscriber')
  await other.subscribe(RECORD.id, 'test://a', 10)
  line.listen('commands')
  await other.publish(resource('test://a'))
  await line.said('commands', '{"kind":"resource","uri":"test://a"}')
  // What is asked for later is answered later: the head of the log is known, and then what is in it.
  for (let answers = 0; answers < 2; answers++) await here.changesBetween('0-0', '1-0')
  line.release('subscriber')
  await heard.until(() => heard.changes.length > 0 && heard.signals.some(({ type }) => type === 'subscribed'))
  t.same(heard.all.filter((name) => name === 'subscribed' || name === 'test://a'), ['subscribed', 'test://a'])
})
