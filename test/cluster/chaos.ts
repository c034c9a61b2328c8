// Chaos, bounded and seeded: clients of both eras at work while processes are killed, closed and started, and Redis stops answering for
// a moment. What must hold is checked on every answer and, at the end, on everything that was to be heard.
// `npm run chaos [seconds] [clients] [seed]` runs it for longer than the test does.

import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { RedisServer } from '../backplane/redis-server.js'
import { request } from '../kit.js'
import type { Event, Events, Outcome } from './client.js'
import { Client } from './client.js'
import { Node } from './nodes.js'

export interface ChaosOptions {
  seconds: number
  clients: number
  seed: number
  /** ms between two things that happen to a process */
  every?: number
}

export interface ChaosResult {
  /** Everything that went against what must hold; empty when it held. */
  violations: string[]
  counts: Record<string, number>
}

const PROCESSES = 3
/** ms that Redis does not answer */
const PAUSE = 1000
const IDLE = 10_000
const LEASE = 3000
/** ms in which the clients come */
const RAMP = 3000
/** ms for what is under way at the end */
const SETTLE = 30_000

interface Reading { stop: () => void, done: Promise<void> }
interface Heard { events: Set<string>, said: Map<string, number>, updated: Map<string, number> }

export async function chaos ({ seconds, clients: count, seed, every = 2000 }: ChaosOptions): Promise<ChaosResult> {
  const random = generator(seed)
  const violations: string[] = []
  const counts: Record<string, number> = {}
  const add = (what: string, by = 1): void => { counts[what] = (counts[what] ?? 0) + by }
  const violated = (what: string): void => { if (violations.length < 50) violations.push(what) }

  const redis = await RedisServer.start()
  const prefix = 'chaos'
  const tokens = Array.from({ length: count }, (_, at) => `token-${at}:user:client-${at}`)
  const config = {
    redis: { url: redis.url, prefix, lease: LEASE },
    options: { resumable: true, auth: { tokens }, sessionIdleTimeout: IDLE, maxStreams: 10 * count, keepAliveInterval: 1000 }
  }
  const nodes = await Promise.all(Array.from({ length: PROCESSES }, async () => Node.start(config)))
  const ports = nodes.map(({ port }) => port)
  const over = new AbortController()
  const silence = new AbortController()

  const clients = Array.from({ length: count }, (_, at) => at % 4 === 3 ? modernClient(at) : handshakeClient(at))
  const happened = trouble()
  await sleep(seconds * 1000)
  over.abort()
  await happened
  const settled = await Promise.race([Promise.all(clients), sleep(SETTLE)])
  if (settled === undefined) violated(`something was still under way ${SETTLE} ms after the end: ${[...underWay].join(', ')}`)
  silence.abort()
  await expectNothingLeft()
  await Promise.all(nodes.map(async (node) => node.close()))
  const admin = redis.client()
  for (const key of await admin.keys('*')) {
    if (key !== `{${prefix}}:c`) violated(`left in Redis: ${key}`)
    else if (await admin.pttl(key) <= 0) violated('the log of changes lives for ever')
  }
  await redis.close()
  return { violations, counts }

  // ---- what happens to the service

  async function trouble (): Promise<void> {
    const turns = Math.floor(seconds * 1000 / every) - 1
    let starting: Promise<void> | undefined
    for (let turn = 1; turn <= turns; turn++) {
      await sleep(every)
      if (turn === Math.ceil(turns / 2)) {
        redis.pause()
        setTimeout(() => redis.resume(), PAUSE)
        add('pauses of Redis')
      }
      if (starting !== undefined) continue
      const down = nodes.find((node) => !node.running)
      if (down !== undefined) {
        starting = down.up().then(() => {
          starting = undefined
          add('starts')
        })
        continue
      }
      const node = nodes[Math.floor(random() * PROCESSES)]!
      if (random() < 0.6) {
        await node.kill()
        add('kills')
      } else {
        await node.close()
        add('closings')
      }
    }
    await starting
    for (const node of nodes) if (!node.running) await node.up()
  }

  // ---- clients

  async function handshakeClient (at: number): Promise<void> {
    const mine = generator(seed + at + 1)
    await sleep(mine() * RAMP)
    const client = new Client({ ports, token: `token-${at}`, version: at % 5 === 0 ? '2025-06-18' : '2025-11-25' }, at)
    await client.connect()
    const heard: Heard = { events: new Set(), said: new Map(), updated: new Map() }
    /** What has to be heard, and how often it may be. */
    const due = { said: new Map<string, number>(), updated: new Map<string, number>() }
    const follower = follow(client, heard)
    // Whoever has had an event can come back for those that follow.
    for (let call = 0; heard.events.size === 0 && !over.signal.aborted; call++) {
      due.said.set(`${at}/first ${call}`, -1)
      await inJson(client, 'say', { nonce: `${at}/first ${call}`, count: 1 })
      for (let waited = 0; heard.events.size === 0 && waited < 500; waited += 20) await sleep(20)
    }

    for (let call = 0; !over.signal.aborted; call++) {
      await sleep(mine() * 1500)
      const nonce = `${at}/${call}`
      const name = ['echo', 'steps', 'steps', 'ask', 'say', 'touch'][Math.floor(mine() * 6)]!
      const uri = `test://${nonce}`
      if (name === 'touch' && !await persistently(client, request('resources/subscribe', { uri }))) continue
      const args = { nonce, ...(name === 'steps' && { count: 5, delay: 20 }), ...(name === 'say' && { count: 3 }), ...(name === 'touch' && { uri }) }
      underWay.add(`${name} ${nonce}`)
      const outcome = name === 'say'
        ? await inJson(client, name, args)
        : await client.call(name, args, ({ params }) => ({ action: 'accept', content: { answer: params.message } }))
      underWay.delete(`${name} ${nonce}`)
      const answered = check(outcome, name, nonce, at)
      if (name === 'steps' && answered) checkProgress(outcome, 5, nonce)
      if (name === 'ask' && answered && (outcome as any).reply.result.structuredContent.answer !== `What about ${nonce}?`) violated(`${nonce}: the answer to another question`)
      if (name === 'say') due.said.set(nonce, answered ? 3 : -3)
      if (name === 'touch') due.updated.set(uri, answered ? 1 : -1)
    }

    // Quiet now: what was said has to arrive.
    const missing = () => [
      ...[...due.said].filter(([nonce, times]) => (heard.said.get(nonce) ?? 0) < times).map(([nonce]) => nonce),
      ...[...due.updated].filter(([uri, times]) => (heard.updated.get(uri) ?? 0) < times).map(([uri]) => uri)
    ]
    for (let waited = 0; missing().length > 0 && waited < 10_000; waited += 50) await sleep(50)
    for (const what of missing()) violated(`client ${at} never heard of ${what}`)
    for (const [kind, all] of Object.entries(heard) as [keyof Heard, Map<string, number>][]) {
      if (kind === 'events') continue
      for (const [what, times] of all) if (times > Math.abs(due[kind].get(what) ?? 0)) violated(`client ${at} heard ${times} times of ${what}`)
    }
    add('heard', heard.events.size)
    follower.stop()
    await follower.done
    if (at % 2 === 0) await end(client)
  }

  /** Reads the standalone stream, wherever it is. */
  function follow (client: Client, heard: Heard): Reading {
    let lastId: string | undefined
    return readOn(async () => {
      const events = await client.get(lastId)
      if (events.status === 404) violated(`${client.id}: the session is gone`)
      return events
    }, ({ id, message }) => {
      if (id === undefined || heard.events.has(id)) violated(`${client.id}: event ${id} came twice, or without an id`)
      else heard.events.add(id)
      lastId = id ?? lastId
      const { nonce } = message.params?.data ?? {}
      if (message.method === 'notifications/message') heard.said.set(nonce, (heard.said.get(nonce) ?? 0) + 1)
      else if (message.method === 'notifications/resources/updated') heard.updated.set(message.params.uri, (heard.updated.get(message.params.uri) ?? 0) + 1)
    })
  }

  /** Reads one stream after the other, until it is told to stop. */
  function readOn (open: () => Promise<Events>, take: (event: Event) => void): Reading {
    const stopped = new AbortController()
    let leave = (): void => {}
    const done = (async () => {
      while (!stopped.signal.aborted) {
        const events = await open().catch(() => undefined)
        if (events?.status !== 200) {
          events?.leave()
          await sleep(50)
          continue
        }
        leave = () => events.leave()
        if (stopped.signal.aborted) leave()
        for (let event = await events.next(); event !== undefined; event = await events.next()) take(event)
        add('streams that ended')
        if (!stopped.signal.aborted) await sleep(20)
      }
    })()
    return {
      done,
      stop: () => {
        stopped.abort()
        leave()
      }
    }
  }

  async function modernClient (at: number): Promise<void> {
    const mine = generator(seed + at + 1)
    await sleep(mine() * RAMP)
    const client = new Client({ ports, token: `token-${at}` }, at)
    const listening = listen(client)
    for (let call = 0; !over.signal.aborted; call++) {
      await sleep(mine() * 1500)
      const nonce = `${at}/${call}`
      const name = mine() < 0.5 ? 'echo' : 'steps'
      underWay.add(`${name} ${nonce}`)
      check(await client.callModern(name, { nonce, ...(name === 'steps' && { count: 5, delay: 20 }) }), name, nonce, at)
      underWay.delete(`${name} ${nonce}`)
    }
    listening.stop()
    await listening.done
  }

  function listen (client: Client): Reading {
    return readOn(async () => client.listenModern({ toolsListChanged: true }, undefined, client.headers()), () => add('heard by listens'))
  }

  /** A call with a JSON answer: what its tool says goes to the standalone stream. */
  async function inJson (client: Client, name: string, args: object): Promise<Outcome> {
    try {
      const { status, json } = await client.post(request('tools/call', { name, arguments: args }))
      return status === 200 ? { reply: json, notifications: [] } : { failed: `status ${status}` }
    } catch (error) {
      return { failed: (error as Error).message }
    }
  }

  /** Something that may be said again, until it is answered. */
  async function persistently (client: Client, message: object): Promise<boolean> {
    while (!silence.signal.aborted) {
      underWay.add(`${JSON.stringify(message)} of ${client.id}`)
      const answer = await client.post(message).catch(() => undefined)
      underWay.delete(`${JSON.stringify(message)} of ${client.id}`)
      if (answer?.status === 200) return true
      if (answer?.status === 404) {
        violated(`${client.id}: the session is gone`)
        return false
      }
      await sleep(50)
    }
    return false
  }

  async function end (client: Client): Promise<void> {
    underWay.add(`the end of ${client.id}`)
    for (let attempt = 1; ; attempt++) {
      const status = (await client.end().catch(() => undefined))?.status
      if (status === 404 && attempt === 1) violated(`${client.id}: the session is gone`)
      // An attempt without an answer may have ended it.
      if (status === 200 || status === 404) break
      await sleep(50)
    }
    underWay.delete(`the end of ${client.id}`)
  }

  // ---- what must hold

  /** True when the call was answered with its result. */
  function check (outcome: Outcome, name: string, nonce: string, at: number): boolean {
    add('calls')
    if ('failed' in outcome) {
      if (/twice|however often/.test(outcome.failed)) violated(`${nonce}: ${outcome.failed}`)
      if (outcome.failed === 'status 404') violated(`${nonce}: the session is gone`)
      add('calls refused or broken')
      return false
    }
    const { error, result } = outcome.reply
    if (error !== undefined) {
      if (!/is gone|shutting down/.test(error.message)) violated(`${name} ${nonce}: ${error.message}`)
      add('calls answered with an error')
      return false
    }
    if (result.isError) {
      violated(`${name} ${nonce}: ${JSON.stringify(result.content)}`)
      return false
    }
    const { nonce: theirs, caller } = result.structuredContent
    if (theirs !== nonce || caller !== `client-${at}`) violated(`${nonce} of client-${at} got the answer to ${theirs} of ${caller}`)
    add('calls answered')
    return true
  }

  function checkProgress (outcome: Outcome, steps: number, nonce: string): void {
    const told = (outcome as { notifications: any[] }).notifications.map(({ params }) => params.progress as number)
    if (told.length !== steps || told.some((progress, at) => progress !== at + 1)) violated(`${nonce}: progress ${told.join()} of ${steps}`)
  }

  async function expectNothingLeft (): Promise<void> {
    const admin = redis.client()
    const left = async () => (await admin.keys('*')).filter((key) => ![`{${prefix}}:c`, `{${prefix}}:p`, `{${prefix}}:v`].includes(key))
    // Those that nobody ended go when their time is over.
    const deadline = performance.now() + 2 * (IDLE + LEASE) + 5000
    while ((await left()).length > 0 && performance.now() < deadline) await sleep(100)
    for (const key of await left()) violated(`left in Redis: ${key}`)
  }
}

const underWay = new Set<string>()

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function generator (seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6D2B79F5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [seconds = 120, clients = 200, seed = Date.now() % 1_000_000] = process.argv.slice(2).map(Number)
  console.log(`${clients} clients for ${seconds} s, seed ${seed}`)
  const { violations, counts } = await chaos({ seconds, clients, seed })
  for (const [what, times] of Object.entries(counts)) console.log(`${String(times).padStart(8)}  ${what}`)
  for (const violation of violations) console.error(violation)
  console.log(violations.length === 0 ? 'everything held' : `${violations.length} violations`)
  process.exit(violations.length === 0 ? 0 : 1)
}
