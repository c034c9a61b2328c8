// What every backplane keeps, for one process and for several. The memory backplane is the reference: its "processes" share one object.

import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import type { Test } from 'tap'
import type { Backplane, Change, EventWriter, Outbox, OutboxReader, SessionLimits, SessionRecord, Signal, StreamEvent } from '../../lib/backplane/index.js'
import { memoryBackplane } from '../../lib/backplane/memory.js'
import { redisBackplane } from '../../lib/backplane/redis.js'
import { silent } from '../../lib/layer/context.js'
import { RedisCluster, RedisServer, withoutRedis } from './redis-server.js'

/** Backplanes of processes that share what is behind them. */
type Join = () => Promise<Backplane>

const LIMITS: SessionLimits = { maxSessions: 1000, maxSessionsPerPrincipal: 100, idleTimeout: 60_000 }
const EVENTS = { maxEvents: 100, maxBytes: 100_000, ttl: 60_000 }

let named = 0
function session (owner = 'alice', more: Partial<SessionRecord> = {}): SessionRecord {
  return {
    id: (++named).toString(16).padStart(32, '0'),
    owner,
    kind: 'http',
    version: '2025-11-25',
    initialized: false,
    capabilities: { elicitation: { form: {} } },
    clientInfo: { name: 'a client', version: '1' },
    logLevel: 'info',
    ...more
  }
}

class Reader implements OutboxReader {
  readonly got: any[] = []
  free = false
  /** It takes nothing any more. */
  gone = false
  replacements = 0
  readonly #waiting: (() => void)[] = []
  deliver (message: object): void | false {
    if (this.gone) return false
    this.got.push(message)
    for (const wake of this.#waiting.splice(0)) wake()
  }

  stalled (): boolean { return this.free }
  replaced (): void { this.replacements++ }

  async has (count: number): Promise<any[]> {
    while (this.got.length < count) await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
    return this.got
  }
}

/** Collects what comes, and waits for it. */
class Collected<T> {
  readonly items: T[] = []
  readonly #waiting: (() => void)[] = []
  readonly add = (item: T): void => {
    this.items.push(item)
    for (const wake of this.#waiting.splice(0)) wake()
  }

  async has (count: number): Promise<T[]> {
    return this.until((items) => items.length >= count)
  }

  async until (done: (items: T[]) => boolean): Promise<T[]> {
    while (!done(this.items)) await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
    return this.items
  }
}

function eventReader (events: Collected<StreamEvent | 'end' | { owed: string }>) {
  return {
    event: (event: StreamEvent) => events.add(event),
    ended: () => events.add('end'),
    orphaned: (owed: string) => events.add({ owed })
  }
}

async function created (backplane: Backplane, record: SessionRecord, limits = LIMITS): Promise<SessionRecord> {
  const outcome = await backplane.createSession(record, limits)
  if (outcome !== 'created') throw new Error(outcome)
  return record
}

async function opened (backplane: Backplane, id: string, reader: OutboxReader): Promise<Outbox> {
  const outbox = await backplane.openOutbox(id, reader)
  if (outbox === undefined) throw new Error('the place is taken')
  return outbox
}

t.test('in memory', async (t) => {
  await contract(t, async () => {
    const backplane = memoryBackplane()
    return async () => {
      await backplane.start(silent)
      return backplane
    }
  })
})

t.test('on Redis', { skip: withoutRedis }, async (t) => {
  const server = await RedisServer.start()
  t.teardown(async () => server.close())
  await contract(t, joining(server))
})

t.test('on a Redis Cluster', { skip: withoutRedis }, async (t) => {
  const cluster = await RedisCluster.start()
  t.teardown(async () => cluster.close())
  await contract(t, joining(cluster), 'each node of a cluster has a clock of its own')
})

function joining (server: RedisServer | RedisCluster): (t: Test) => Promise<Join> {
  let services = 0
  return async (t) => {
    const prefix = `test-${++services}`
    return async () => {
      const backplane = redisBackplane({ client: server.client(), prefix, lease: 1000 })
      await backplane.start(silent)
      t.teardown(async () => backplane.close())
      return backplane
    }
  }
}

async function contract (t: Test, service: (t: Test) => Promise<Join>, clocks: string | false = false): Promise<void> {
  // ---- sessions

  await t.test('a session is there for its owner, from every process', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const record = await created(one, session())
    for (const backplane of [one, other]) {
      const use = await backplane.acquire(record.id, 'http', 'alice')
      t.match(use?.record, record)
      use?.release()
      t.equal(await backplane.acquire(record.id, 'http', 'bob'), undefined, 'not for somebody else')
      t.equal(await backplane.acquire(record.id, 'sse', 'alice'), undefined, 'not over another transport')
      t.equal(await backplane.acquire('0'.repeat(32), 'http', 'alice'), undefined)
      t.equal(await backplane.countSessions(), 1)
    }
  })

  await t.test('what is updated is read by all, and told to those that use the session', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session('alice', { isNew: true }))
    const signals = new Collected<Signal>()
    other.onSignal(signals.add)
    const use = await other.acquire(id, 'http', 'alice')
    await one.updateSession(id, { initialized: true, isNew: false })
    await one.updateSession(id, { logLevel: 'debug', clientInfo: { name: 'ü "quoted"' } })
    const told = await signals.until((all) => all.some((signal) => signal.type === 'updated' && signal.part.logLevel === 'debug'))
    t.match(told.find(({ type }) => type === 'updated'), { session: id, part: { initialized: true } })
    use?.release()
    const again = await other.acquire(id, 'http', 'alice')
    t.match(again?.record, { initialized: true, isNew: false, logLevel: 'debug', version: '2025-11-25', clientInfo: { name: 'ü "quoted"' } })
    again?.release()
    await one.updateSession('f'.repeat(32), { initialized: true })
    t.equal(await one.acquire('f'.repeat(32), 'http', 'alice'), undefined, 'an update makes no session')
  })

  await t.test('a deleted session is gone, and whoever uses it is told', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    const signals = new Collected<Signal>()
    other.onSignal(signals.add)
    await other.acquire(id, 'http', 'alice')
    t.equal(await one.deleteSession(id), true)
    await signals.until((all) => all.some(({ type }) => type === 'ended'))
    t.equal(await one.deleteSession(id), false)
    t.equal(await other.acquire(id, 'http', 'alice'), undefined)
    t.equal(await one.countSessions(), 0)
  })

  await t.test('a session that nobody uses goes idle; one in use does not', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const limits = { ...LIMITS, idleTimeout: 600 }
    const idle = await created(one, session(), limits)
    const used = await created(one, session(), limits)
    const asked = await created(one, session(), limits)
    const use = await other.acquire(used.id, 'http', 'alice')
    for (let round = 0; round < 5; round++) {
      await sleep(200)
      ;(await other.acquire(asked.id, 'http', 'alice'))?.release()
      await one.acquire(idle.id, 'http', 'mallory')
    }
    t.equal(await one.acquire(idle.id, 'http', 'alice'), undefined, 'a stranger does not keep it alive')
    const lives = await other.acquire(asked.id, 'http', 'alice')
    t.ok(lives, 'one that is asked for lives')
    lives?.release()
    const taken = await one.acquire(used.id, 'http', 'alice')
    t.ok(taken, 'one in use elsewhere lives')
    taken?.release()
    use?.release()
    await sleep(1500)
    t.equal(await one.acquire(used.id, 'http', 'alice'), undefined)
    t.equal(await one.countSessions(), 0)
  })

  await t.test("at the owner's cap the least recently used idle session ends", async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const limits = { ...LIMITS, maxSessionsPerPrincipal: 3 }
    const ids: string[] = []
    for (let at = 0; at < 3; at++) {
      ids.push((await created(at % 2 === 0 ? one : other, session(), limits)).id)
      await sleep(5)
    }
    await created(one, session('bob'), limits)
    ;(await other.acquire(ids[0]!, 'http', 'alice'))?.release()
    await sleep(5)
    const held = await other.acquire(ids[1]!, 'http', 'alice')
    t.equal(await one.createSession(session(), limits), 'created')
    t.equal(await one.acquire(ids[2]!, 'http', 'alice'), undefined, 'neither the one used last nor the one in use')
    for (const id of ids.slice(0, 2)) {
      const use = await one.acquire(id, 'http', 'alice')
      t.ok(use)
      use?.release()
    }
    held?.release()
    t.equal(await one.countSessions(), 4)
  })

  await t.test('where all sessions of an owner are in use there is no room', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const limits = { ...LIMITS, maxSessionsPerPrincipal: 2 }
    const uses = []
    for (const backplane of [one, other]) {
      const { id } = await created(one, session(), limits)
      uses.push(await backplane.acquire(id, 'http', 'alice'))
    }
    t.equal(await other.createSession(session(), limits), 'owner-full')
    t.equal(await other.createSession(session('bob'), limits), 'created')
    uses[0]?.release()
    t.equal(await one.createSession(session(), limits), 'created')
    t.equal(await one.countSessions(), 3)
    uses[1]?.release()
  })

  await t.test('a session that any process has just released is idle', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const limits = { ...LIMITS, maxSessionsPerPrincipal: 2 }
    const [first, second] = [await created(one, session(), limits), await created(one, session(), limits)]
    const held = await one.acquire(first.id, 'http', 'alice')
    for (const backplane of [one, other]) {
      // Busy, at both; whoever asks for what is not theirs changes nothing.
      for (let use = 0; use < 3; use++) (await backplane.acquire(second.id, 'http', 'alice'))?.release()
      t.equal(await backplane.acquire(second.id, 'http', 'bob'), undefined)
    }
    const { id } = await created(one, session(), limits)
    t.equal(await one.acquire(second.id, 'http', 'alice'), undefined, 'it made room')
    ;(await other.acquire(id, 'http', 'alice'))?.release()
    t.equal(await other.createSession(session(), limits), 'created')
    t.equal(await one.acquire(id, 'http', 'alice'), undefined)
    held?.release()
    t.equal(await one.countSessions(), 2)
  })

  await t.test('it is the least recently used one that ends, however close the uses are to each other', { skip: clocks }, async (t) => {
    const one = await (await service(t))()
    const limits = { ...LIMITS, maxSessionsPerPrincipal: 2 }
    const [first, second] = [await created(one, session(), limits), await created(one, session(), limits)]
    let [older, newer] = [first.id, second.id]
    for (let round = 0; round < 30; round++) {
      const [given, kept] = round % 2 === 0 ? [newer, older] : [older, newer]
      for (const id of [given, kept]) (await one.acquire(id, 'http', 'alice'))?.release()
      const { id } = await created(one, session(), limits)
      t.equal(await one.acquire(given, 'http', 'alice'), undefined)
      ;[older, newer] = [kept, id]
    }
  })

  await t.test('the cap of the service holds, and expired sessions make room', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const limits = { ...LIMITS, maxSessions: 2, idleTimeout: 1000 }
    await created(one, session('alice'), limits)
    await created(other, session('bob'), limits)
    t.equal(await one.createSession(session('carol'), limits), 'full')
    await sleep(2000)
    t.equal(await other.createSession(session('carol'), limits), 'created')
    t.equal(await one.countSessions(), 1)
  })

  await t.test('many creations at once never exceed a cap', async (t) => {
    const join = await service(t)
    const backplanes = [await join(), await join(), await join()]
    const limits = { ...LIMITS, maxSessions: 10, maxSessionsPerPrincipal: 4 }
    const outcomes = await Promise.all(Array.from({ length: 60 }, async (_, at) =>
      backplanes[at % 3]!.createSession(session(`owner-${at % 4}`), limits)))
    const count = await backplanes[0]!.countSessions()
    t.ok(count <= 10, `${count} sessions`)
    t.ok(count >= 4, 'and all owners have some')
    t.ok(outcomes.filter((outcome) => outcome === 'created').length >= count)
  })

  await t.test('uses and creations in any interleaving lose no session that is in use', async (t) => {
    const join = await service(t)
    const backplanes = [await join(), await join()]
    const step = fc.record({ at: fc.nat(1), pick: fc.nat(5), what: fc.constantFrom('create', 'use', 'release', 'delete') })
    await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const owner = `owner-${named}`
      const limits = { ...LIMITS, maxSessionsPerPrincipal: 3 }
      const ids: string[] = []
      const uses = new Map<string, (() => void)[]>()
      for (const { at, pick, what } of steps) {
        const backplane = backplanes[at]!
        const id = ids[pick % Math.max(ids.length, 1)]
        if (what === 'create') {
          const record = session(owner)
          if (await backplane.createSession(record, limits) === 'created') ids.push(record.id)
        } else if (id !== undefined && what === 'use') {
          const use = await backplane.acquire(id, 'http', owner)
          if (use !== undefined) uses.set(id, [...uses.get(id) ?? [], use.release])
        } else if (id !== undefined && what === 'release') {
          uses.get(id)?.pop()?.()
        } else if (id !== undefined && what === 'delete') {
          await backplane.deleteSession(id)
          uses.delete(id)
        }
      }
      let alive = 0
      for (const id of ids) {
        const use = await backplanes[0]!.acquire(id, 'http', owner)
        if (use !== undefined) alive++
        else if ((uses.get(id)?.length ?? 0) > 0) throw new Error('a session in use is gone')
        use?.release()
      }
      if (alive > 3) throw new Error(`${alive} sessions`)
    }), { numRuns: 15, seed: 6 })
    t.pass()
  })

  // ---- subscriptions

  await t.test('subscriptions of several processes add up, to a limit', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    const uses = [await one.acquire(id, 'http', 'alice'), await other.acquire(id, 'http', 'alice')]
    const signals = new Collected<Signal>()
    other.onSignal(signals.add)
    await Promise.all(Array.from({ length: 10 }, async (_, at) => [one, other][at % 2]!.subscribe(id, `test://${at}`, 10)))
    t.equal(await one.subscribe(id, 'test://10', 10), false)
    t.equal(await one.subscribe(id, 'test://3', 10), true, 'again')
    await one.unsubscribe(id, 'test://0')
    await one.unsubscribe(id, 'test://none')
    await signals.until((all) => all.some((signal) => signal.type === 'subscribed' && !signal.wanted))
    const outbox = await opened(other, id, new Reader())
    t.same([...outbox.subscriptions].sort(), Array.from({ length: 9 }, (_, at) => `test://${at + 1}`))
    for (const use of uses) use?.release()
  })

  // ---- standalone streams

  await t.test('what is pushed waits for the reader, comes in order, and comes once', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    const uses = [await one.acquire(id, 'http', 'alice'), await other.acquire(id, 'http', 'alice')]
    t.equal(await one.hasReader(id), false)
    for (let at = 0; at < 5; at++) await one.push(id, { at })
    const first = new Reader()
    const outbox = await opened(other, id, first)
    t.same(first.got, [0, 1, 2, 3, 4].map((at) => ({ at })), 'before it is open')
    t.equal(await one.hasReader(id), true)
    for (let at = 5; at < 300; at++) void (at % 2 === 0 ? one : other).push(id, { at })
    const got = await first.has(300)
    for (const parity of [0, 1]) {
      const mine = got.map(({ at }) => at as number).filter((at) => at % 2 === parity)
      t.same(mine, [...mine].sort((a, b) => a - b), 'each process in its order')
    }
    t.equal(new Set(got.map(({ at }) => at)).size, 300)
    await outbox.close('')
    await one.push(id, { at: 'later' })
    const second = new Reader()
    await opened(one, id, second)
    t.same(await second.has(1), [{ at: 'later' }])
    t.equal(first.got.length, 300)
    for (const use of uses) use?.release()
  })

  await t.test('what a reader does not take any more is for the next one', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    const uses = [await one.acquire(id, 'http', 'alice'), await other.acquire(id, 'http', 'alice')]
    const [first, second] = [new Reader(), new Reader()]
    await opened(one, id, first)
    await other.push(id, { at: 0 })
    await first.has(1)
    first.gone = first.free = true
    await one.push(id, { at: 1 })
    await other.push(id, { at: 2 })
    await opened(other, id, second)
    t.same(await second.has(2), [{ at: 1 }, { at: 2 }])
    t.equal(first.got.length, 1)

    const writer = one.writeEvents(id, 'get', EVENTS)
    const offered = new Collected<StreamEvent>()
    const event = (one: StreamEvent): boolean => {
      offered.add(one)
      return offered.items.length === 1
    }
    await one.readEvents(id, { stream: 'get' }, { event, ended () {}, orphaned () {} })
    for (const data of ['a', 'b', 'c']) await writer.append(data)
    const events = new Collected<StreamEvent | 'end' | { owed: string }>()
    await offered.has(2)
    await one.readEvents(id, { stream: 'get' }, eventReader(events))
    t.match(await events.has(2), [{ data: 'b' }, { data: 'c' }])
    for (const use of uses) use?.release()
  })

  await t.test('the oldest messages go when too many wait', async (t) => {
    const join = await service(t)
    const backplane = await join()
    const { id } = await created(backplane, session())
    const use = await backplane.acquire(id, 'http', 'alice')
    for (let at = 0; at < 600; at++) await backplane.push(id, { at })
    const reader = new Reader()
    await opened(backplane, id, reader)
    t.same((await reader.has(512)).map(({ at }) => at), Array.from({ length: 512 }, (_, at) => at + 88))
    use?.release()
  })

  await t.test('a session has one reader; one that has stalled gives way', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    for (const [here, there] of [[one, other], [one, one], [other, one]] as const) {
      const uses = [await here.acquire(id, 'http', 'alice'), await there.acquire(id, 'http', 'alice')]
      const [first, second] = [new Reader(), new Reader()]
      const outbox = await opened(here, id, first)
      t.equal(await there.openOutbox(id, second), undefined)
      t.equal(first.replacements, 0)
      first.free = true
      const next = await opened(there, id, second)
      await outbox.close('')
      t.equal(await here.hasReader(id), true, 'the one that was replaced closes nothing')
      await here.push(id, { hello: 1 })
      t.same(await second.has(1), [{ hello: 1 }])
      t.equal(first.got.length, 0)
      await next.close('')
      t.equal(await here.hasReader(id), false)
      for (const use of uses) use?.release()
    }
    t.equal(await one.openOutbox('f'.repeat(32), new Reader()), undefined, 'no session, no reader')
  })

  await t.test('of many that want to read at once one does', async (t) => {
    const join = await service(t)
    const backplanes = [await join(), await join(), await join()]
    const { id } = await created(backplanes[0]!, session())
    const uses = await Promise.all(backplanes.map(async (backplane) => backplane.acquire(id, 'http', 'alice')))
    const outboxes = await Promise.all(Array.from({ length: 12 }, async (_, at) => backplanes[at % 3]!.openOutbox(id, new Reader())))
    t.equal(outboxes.filter((outbox) => outbox !== undefined).length, 1)
    for (const use of uses) use?.release()
  })

  // ---- events

  await t.test('events are read from any process, after any of them, and go on live', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    const uses = [await one.acquire(id, 'http', 'alice'), await other.acquire(id, 'http', 'alice')]
    const writer = one.writeEvents(id, 'a1', EVENTS, '[1]')
    const noise = one.writeEvents(id, 'b2', EVENTS, '[2]')
    const written: StreamEvent[] = []
    const write = async (data: string): Promise<void> => {
      written.push({ id: await writer.append(data), data })
      await noise.append('of another stream')
    }
    for (let at = 0; at < 5; at++) await write(`event ${at}`)
    t.ok(written.every((event) => event.id.startsWith('a1_')))
    for (const backplane of [one, other]) {
      const events = new Collected<StreamEvent | 'end' | { owed: string }>()
      const reading = await backplane.readEvents(id, { after: written[1]!.id }, eventReader(events))
      t.equal(reading?.stream, 'a1')
      t.same(events.items, written.slice(2), 'what is there, before it resolves')
      await write('live')
      await events.has(written.length - 2)
      t.same(events.items, written.slice(2))
      reading?.close()
      await write('after')
      t.equal(events.items.length, written.length - 3)
    }
    const events = new Collected<StreamEvent | 'end' | { owed: string }>()
    await other.readEvents(id, { after: written.at(-2)!.id }, eventReader(events))
    await writer.end()
    await events.until((all) => all.includes('end'))
    t.match(events.items, [{ data: 'after' }, 'end'])
    t.equal(await writer.append('too late'), '')
    const late = new Collected<StreamEvent | 'end' | { owed: string }>()
    await one.readEvents(id, { after: written[0]!.id }, eventReader(late))
    t.same(late.items, [...written.slice(1), 'end'], 'a stream that has ended says so')
    for (const use of uses) use?.release()
  })

  await t.test('ids of other sessions and made-up ids mean nothing', async (t) => {
    const join = await service(t)
    const backplane = await join()
    const [mine, theirs] = [await created(backplane, session()), await created(backplane, session('bob'))]
    for (const { id, owner } of [mine, theirs]) await backplane.acquire(id, 'http', owner)
    await backplane.writeEvents(mine.id, 'a1', EVENTS).append('mine')
    const event = await backplane.writeEvents(theirs.id, 'b2', EVENTS).append('theirs')
    const events = new Collected<StreamEvent | 'end' | { owed: string }>()
    for (const after of [event, 'a1_99999999999999-9', 'a1_', 'a1_x', '_', '', 'nonsense', `${event}'`, 'a1_1 2']) {
      t.equal(await backplane.readEvents(mine.id, { after }, eventReader(events)), undefined, after)
    }
    t.same(events.items, [])
  })

  await t.test('events are bounded by count, bytes and age, of all streams together', async (t) => {
    const join = await service(t)
    const backplane = await join()
    const kept = async (limits: Partial<typeof EVENTS>, size: number, wait = 0): Promise<number> => {
      const { id } = await created(backplane, session())
      const use = await backplane.acquire(id, 'http', 'alice')
      const writers = ['a1', 'b2'].map((stream) => backplane.writeEvents(id, stream, { ...EVENTS, ...limits }))
      const first = await writers[0]!.append('x'.repeat(size))
      for (let at = 1; at < 20; at++) {
        if (at === 10) await sleep(wait)
        await writers[at % 2]!.append('x'.repeat(size))
      }
      const events = new Collected<StreamEvent | 'end' | { owed: string }>()
      await backplane.readEvents(id, { after: first }, eventReader(events))
      await backplane.readEvents(id, { stream: 'b2' }, eventReader(events))
      use?.release()
      return events.items.length
    }
    t.equal(await kept({}, 10), 19)
    t.equal(await kept({ maxEvents: 8 }, 10), 8)
    t.equal(await kept({ maxBytes: 1000 }, 200), 5)
    t.equal(await kept({ maxBytes: 100 }, 200), 1, 'the newest is always there')
    t.equal(await kept({ ttl: 500 }, 10, 1000), 10)
  })

  await t.test('a named stream goes on where its last reader stopped', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    const uses = [await one.acquire(id, 'http', 'alice'), await other.acquire(id, 'http', 'alice')]
    const writers = [one, other].map((backplane) => backplane.writeEvents(id, 'get', EVENTS))
    await writers[0]!.append('0')
    await writers[1]!.append('1')
    const first = new Collected<StreamEvent | 'end' | { owed: string }>()
    const reading = await other.readEvents(id, { stream: 'get' }, eventReader(first))
    t.match(first.items, [{ data: '0' }, { data: '1' }])
    const last = await writers[0]!.append('2')
    await first.has(3)
    reading?.close()
    await writers[1]!.append('3')
    const second = new Collected<StreamEvent | 'end' | { owed: string }>()
    await one.readEvents(id, { stream: 'get' }, eventReader(second))
    t.match(second.items, [{ data: '3' }])
    const third = new Collected<StreamEvent | 'end' | { owed: string }>()
    await one.readEvents(id, { after: last }, eventReader(third))
    t.match(third.items, [{ data: '3' }])
    for (const use of uses) use?.release()
  })

  await t.test('what is read of a session ends with it', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    const uses = [await one.acquire(id, 'http', 'alice'), await other.acquire(id, 'http', 'alice')]
    const after = await one.writeEvents(id, 'a1', EVENTS, '[1]').append('first')
    const readers = [one, other].map(() => new Collected<StreamEvent | 'end' | { owed: string }>())
    for (const [at, backplane] of [one, other].entries()) t.ok(await backplane.readEvents(id, { after }, eventReader(readers[at]!)))
    await other.deleteSession(id)
    for (const events of readers) t.same(await events.has(1), ['end'])
    t.equal(await one.readEvents(id, { after }, eventReader(readers[0]!)), undefined)
    for (const use of uses) use?.release()
  })

  await t.test('of changes tells who has the reader, and with the event goes how far it has told', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    const uses = [await one.acquire(id, 'http', 'alice'), await other.acquire(id, 'http', 'alice')]
    const [here, there] = [one, other].map((backplane) => backplane.writeEvents(id, 'get', EVENTS)) as [EventWriter, EventWriter]
    const first = new Reader()
    const outbox = await opened(one, id, first)
    t.not(await here.append('a change', { seen: 'place 1', by: outbox }), '')
    first.free = true
    const second = new Reader()
    const next = await opened(other, id, second)
    t.equal(next.seen, 'place 1')
    t.equal(await here.append('a change', { seen: 'place 2', by: outbox }), '', 'its place is another process now')
    t.not(await there.append('a change', { seen: 'place 2', by: next }), '')
    second.free = true
    const last = await opened(other, id, new Reader())
    t.equal(last.seen, 'place 2')
    t.equal(await there.append('a change', { seen: 'place 3', by: next }), '', 'its place is another, of the same process')
    t.not(await there.append('a change', { seen: 'place 3', by: last }), '')
    for (const old of [outbox, next]) await old.close('place 0')
    last.inDoubt = true
    await last.close('place 5')
    t.equal(await there.append('a change', { seen: 'place 4', by: last }), '', 'nobody reads')
    const again = await opened(one, id, new Reader())
    t.equal(again.seen, 'place 3', 'what is in doubt is not taken over')
    await again.close('place 6')
    t.equal((await opened(one, id, new Reader())).seen, 'place 6')
    t.not(await there.append('no change'), '', 'anything else is told by all')
    for (const use of uses) use?.release()
  })

  // ---- changes

  await t.test('changes come to all in one order, with their places', async (t) => {
    const join = await service(t)
    const backplanes = [await join(), await join(), await join()]
    const heard = backplanes.map((backplane) => {
      const changes = new Collected<{ change: Change, position: string }>()
      backplane.onChange((change, position) => changes.add({ change, position: position! }))
      return changes
    })
    const before = backplanes.map(({ position }) => position)
    await Promise.all(Array.from({ length: 60 }, async (_, at) => backplanes[at % 3]!.publish({ kind: 'resource', uri: `test://${at}` })))
    await backplanes[1]!.publish({ kind: 'tools' })
    const all = await Promise.all(heard.map(async (changes) => changes.has(61)))
    t.equal(new Set(all[0]!.map(({ change }) => change.uri ?? change.kind)).size, 61)
    for (const other of all.slice(1)) t.same(other, all[0])
    for (const [at, backplane] of backplanes.entries()) {
      t.equal(backplane.position, all[0]!.at(-1)!.position)
      t.same(await backplane.changesBetween(before[at]!, backplane.position), { changes: all[0]!, complete: true })
      t.same(await backplane.changesBetween(all[0]![10]!.position, all[0]![12]!.position), { changes: [all[0]![11]!, all[0]![12]!], complete: true })
      t.same(await backplane.changesBetween(backplane.position, backplane.position), { changes: [], complete: true })
    }
  })

  await t.test('the log of changes reaches back 1024 of them, and says when that is not enough', async (t) => {
    const join = await service(t)
    const backplane = await join()
    const heard = new Collected<Change>()
    backplane.onChange(heard.add)
    const before = backplane.position
    await backplane.publish({ kind: 'tools' })
    await heard.has(1)
    const { position } = backplane
    await Promise.all(Array.from({ length: 1024 }, async (_, at) => backplane.publish({ kind: 'resource', uri: `test://${at}` })))
    await heard.has(1025)
    const recent = await backplane.changesBetween(position, backplane.position)
    t.equal(recent.complete, true)
    t.equal(recent.changes.length, 1024)
    t.equal((await backplane.changesBetween(before, backplane.position)).complete, false)
  })

  await t.test('a session begins up to date', async (t) => {
    const join = await service(t)
    const backplane = await join()
    const heard = new Collected<Change>()
    backplane.onChange(heard.add)
    await backplane.publish({ kind: 'tools' })
    const { id } = await created(backplane, session())
    await backplane.publish({ kind: 'prompts' })
    await heard.has(2)
    const use = await backplane.acquire(id, 'http', 'alice')
    const outbox = await opened(backplane, id, new Reader())
    t.same(await backplane.changesBetween(outbox.seen, backplane.position), { changes: [{ change: { kind: 'prompts' }, position: backplane.position }], complete: true })
    await outbox.close(backplane.position)
    t.equal((await opened(backplane, id, new Reader())).seen, backplane.position)
    use?.release()
  })

  // ---- signals

  await t.test('a signal reaches every process that uses the session, in order and once', async (t) => {
    const join = await service(t)
    const [one, other] = [await join(), await join()]
    const { id } = await created(one, session())
    const use = await other.acquire(id, 'http', 'alice')
    const signals = new Collected<Signal>()
    other.onSignal(signals.add)
    for (let at = 0; at < 50; at++) void one.signal({ type: 'cancel', session: id, requestId: at })
    await one.signal({ type: 'reply', session: id, message: { id: 'ask', result: { text: 'ü\0"\\u0000""' } } })
    const all = (await signals.has(51)).filter(({ session }) => session === id)
    t.same(all.flatMap((signal) => signal.type === 'cancel' ? [signal.requestId] : []), Array.from({ length: 50 }, (_, at) => at))
    t.same(all.at(-1), { type: 'reply', session: id, message: { id: 'ask', result: { text: 'ü\0"\\u0000""' } } })
    await one.signal({ type: 'reply', session: id, message: { result: 'x'.repeat(100_000) } })
    await signals.has(52)
    t.equal(signals.items.length, 52)
    use?.release()
  })
}
