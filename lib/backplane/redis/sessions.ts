// Sessions in Redis: records with their idle time as time to live, uses by process with a lease, and the index behind the caps.
// The index is in one slot, each session in its own. It may know a session a little longer than the session lives; what it
// says is checked against the sessions where it matters, at a cap.

import { createHash } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { Created, SessionLimits, SessionRecord, SessionUpdate, SessionUse, Signal } from '../index.js'
import { COUNT, FORGET, RESERVE, TOUCH } from './service-scripts.js'
import { ACQUIRE, BEAT, CREATE, DELETE, PROBE, RELEASE, SIGNAL, SUBSCRIBE, UNSUBSCRIBE, UPDATE } from './session-scripts.js'
import type { Held, Shared } from './shared.js'
import { channelOf, encodeMessage, isAfter, serviceKey, sessionKey } from './shared.js'

// Sessions that are looked at when a cap is reached; the least recently used are among the first of the index.
const CANDIDATES = 128
const ATTEMPTS = 8
// Sessions that are counted one by one, and answers larger than what is kept for a process that is just reconnecting.
const COUNTED = 1024
const MAX_KEPT_SIGNAL = 16 * 1024
const BEATS_AT_ONCE = 100
/**
 * ms for which a session stays in use after its last use, at most: one that is busy is not released after every call. Longer than this it
 * cannot stand in the way of another at a cap.
 */
const REST = 200

type Probed = [ttl: number, busy: number, usedAt: number]
type Found = [due: number, now: number, idle: string, revision: string]
type Stored = [version: string, initialized: string, capabilities: string, clientInfo: string | null, logLevel: string, isNew: string | null]

export class Sessions {
  readonly #shared: Shared
  /** Sessions that were released within this rest. */
  #resting: { id: string, entry: Held }[] = []
  #rest: NodeJS.Timeout | undefined
  #revisions = 0

  constructor (shared: Shared) {
    this.#shared = shared
  }

  async create (record: SessionRecord, { idleTimeout, maxSessions, maxSessionsPerPrincipal }: SessionLimits): Promise<Created> {
    const { id, owner, kind, ...rest } = record
    let gone: string[] = []
    let waited = false
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const [outcome, more] = await this.#service(RESERVE, id, ownerKey(owner), this.#indexed(idleTimeout), maxSessions, maxSessionsPerPrincipal, CANDIDATES, ...gone) as [Created, any]
      if (outcome === 'created') {
        await this.#session(id, CREATE, idleTimeout, 'revision', this.#revision(), 'who', whoOf(kind, owner), 'seen', more as string, ...fieldsOf(rest))
        return 'created'
      }
      gone = await this.#makeRoom(outcome, more as string[])
      if (gone.length > 0) continue
      if (outcome === 'full' || waited) return outcome
      // Some may only be resting, in other processes.
      await pause(2 * REST, undefined, { ref: false })
      waited = true
    }
    return 'full'
  }

  /** Sessions that the index may forget: those that have expired, or the least recently used idle one of the owner. */
  async #makeRoom (outcome: Created, candidates: string[]): Promise<string[]> {
    this.#releaseRested()
    const states = await Promise.all(candidates.map(async (id) => {
      const [ttl, busy, usedAt] = await this.#session(id, PROBE) as Probed
      return { id, ttl, busy: busy === 1, usedAt }
    }))
    const gone = states.filter(({ ttl }) => ttl < 0).map(({ id }) => id)
    if (gone.length > 0 || outcome === 'full') return gone
    const idle = states.filter(({ busy }) => !busy).sort((one, other) => one.usedAt - other.usedAt)
    for (const { id, ttl } of idle) {
      if (await this.#end(id, ttl) !== null) return [id]
    }
    return []
  }

  async acquire (id: string, kind: SessionRecord['kind'], owner: string): Promise<SessionUse | undefined> {
    const { held, process, lease } = this.#shared
    let entry = held.get(id)
    if (entry === undefined) held.set(id, entry = newlyHeld(owner))
    // It counts before it is asked for, so that a release of another use does not undo it.
    entry.uses++
    const { known } = entry
    const updated: SessionUpdate = {}
    entry.reading.add(updated)
    let answer: number | [...found: Found, ...Stored] | null
    try {
      answer = await this.#session(id, ACQUIRE, whoOf(kind, owner), process, lease, known?.revision ?? '')
    } catch (error) {
      this.#release(id, entry)
      throw error
    } finally {
      entry.reading.delete(updated)
    }
    if (answer === null) {
      if (--entry.uses === 0 && !entry.resting) held.delete(id)
      return undefined
    }
    if (typeof answer === 'number') {
      if (answer === 1) this.#touch(id, owner, entry.idle)
    } else {
      const [due, now, idle, revision, ...stored] = answer
      if (entry.signal === '') entry.signal = `${now - 1}-0`
      entry.owner = owner
      entry.idle = Number(idle)
      entry.known = { revision, record: { id, owner, kind, ...readRecord(stored) } }
      if (due === 1) this.#touch(id, owner, entry.idle)
    }
    const { record } = entry.known!
    let used = true
    return {
      record: Object.keys(updated).length === 0 ? record : { ...record, ...updated },
      release: () => {
        if (!used) return
        used = false
        this.#release(id, entry)
      }
    }
  }

  #release (id: string, entry: Held): void {
    if (--entry.uses > 0) return
    entry.usedAt = performance.now()
    if (entry.resting) return
    entry.resting = true
    this.#resting.push({ id, entry })
    this.#rest ??= setTimeout(() => this.#releaseRested(), restOf(entry)).unref()
  }

  #releaseRested (): void {
    clearTimeout(this.#rest)
    this.#rest = undefined
    // In the order of their last uses, which is that of the moments that Redis makes of them.
    const rested = this.#resting.sort((one, other) => one.entry.usedAt - other.entry.usedAt)
    this.#resting = []
    const { held } = this.#shared
    const now = performance.now()
    for (const { id, entry } of rested) {
      entry.resting = false
      if (entry.uses > 0) continue
      if (held.get(id) === entry) held.delete(id)
      // A process that was held up for longer says nothing of how others used it meanwhile.
      this.#giveBack(id, Math.min(now - entry.usedAt, restOf(entry)))
    }
  }

  /** What is not released is free when its lease has ended. `idleFor` is in ms. */
  #giveBack (id: string, idleFor: number): void {
    this.#session(id, RELEASE, this.#shared.process, Math.round(idleFor * 1000)).catch(() => {})
  }

  /** This process is about to leave. */
  releaseAll (): void {
    const { held } = this.#shared
    this.#releaseRested()
    for (const id of held.keys()) this.#giveBack(id, 0)
    held.clear()
  }

  async update (id: string, part: SessionUpdate): Promise<void> {
    const { process } = this.#shared
    await this.#session(id, UPDATE, process, channelOf(this.#shared), encodeMessage('updated', id, part), 'revision', this.#revision(), ...fieldsOf(part))
    this.noteUpdate(id, part)
  }

  /** Never the same again, not even where a replica that has taken over knows less. */
  #revision (): string {
    return `${this.#shared.process}.${++this.#revisions}`
  }

  /** A record that is on its way from Redis may be older than this. */
  noteUpdate (id: string, part: SessionUpdate): void {
    for (const updated of this.#shared.held.get(id)?.reading ?? []) Object.assign(updated, part)
  }

  async subscribe (id: string, uri: string, limit: number): Promise<boolean> {
    const { process, lease } = this.#shared
    const state = await this.#session(id, SUBSCRIBE, process, channelOf(this.#shared), subscribedMessage(id, uri, true), lease, uri, limit) as number | null
    if (state === null) return false
    this.#noteSubscribed(id, uri, true, state)
    return true
  }

  async unsubscribe (id: string, uri: string): Promise<void> {
    const state = await this.#session(id, UNSUBSCRIBE, this.#shared.process, channelOf(this.#shared), subscribedMessage(id, uri, false), uri) as number
    this.#noteSubscribed(id, uri, false, state)
  }

  /** A list of subscriptions that is on its way from Redis may be older than this. */
  #noteSubscribed (id: string, uri: string, wanted: boolean, state: number): void {
    const entry = this.#shared.held.get(id)
    if (entry === undefined) return
    entry.newest = Math.max(entry.newest, state)
    for (const since of entry.opening) if (state >= (since.get(uri)?.state ?? 0)) since.set(uri, { wanted, state })
  }

  /** From another process. */
  takeSubscribed (id: string, uri: string, wanted: boolean, state: number): void {
    // It may be older than the list that is known.
    if (state <= (this.#shared.held.get(id)?.subscribed ?? 0)) return
    this.#noteSubscribed(id, uri, wanted, state)
    this.#shared.tell({ type: 'subscribed', session: id, uri, wanted })
  }

  async delete (id: string): Promise<boolean> {
    const who = await this.#end(id)
    if (who === null) return false
    await this.#service(FORGET, id, ownerKey(who.slice(who.indexOf(':') + 1)))
    return true
  }

  /** Ends a session; with a time to live only when it has been idle since. Resolves to whose it was. */
  async #end (id: string, ttl?: number): Promise<string | null> {
    const { process } = this.#shared
    const who = await this.#session(id, DELETE, process, channelOf(this.#shared), encodeMessage('ended', id), ttl ?? '') as string | null
    if (who !== null) this.ended(id)
    return who
  }

  /** It is no more. */
  ended (id: string): void {
    this.#shared.tell({ type: 'ended', session: id })
    for (const tail of this.#shared.held.get(id)?.tails ?? []) tail.end()
  }

  async count (): Promise<number> {
    const [count, ids] = await this.#service(COUNT, COUNTED) as [number, string[]]
    if (ids.length === 0) return count
    const states = await Promise.all(ids.map(async (id) => this.#session(id, PROBE) as Promise<Probed>))
    return states.filter(([ttl]) => ttl >= 0).length
  }

  async signal (signal: Signal & { type: 'cancel' | 'reply' }): Promise<void> {
    this.#shared.tell(signal)
    const text = JSON.stringify(signal)
    // The message is made around the id that the entry gets.
    const message = encodeMessage('signal', signal.session, '', signal)
    const gap = message.indexOf('""') + 1
    await this.#session(signal.session, SIGNAL, this.#shared.process, channelOf(this.#shared), message.slice(0, gap), message.slice(gap), text, text.length <= MAX_KEPT_SIGNAL ? 1 : 0)
  }

  /** A signal from another process; it may come twice. */
  takeSignal (id: string, position: string, signal: Signal): void {
    const entry = this.#shared.held.get(id)
    if (entry === undefined) return
    if (position !== '') {
      if (entry.signal !== '' && !isAfter(position, entry.signal)) return
      entry.signal = position
    }
    this.#shared.tell(signal)
  }

  /** Renews what this process uses, and makes up for what it may have missed. */
  async beat (): Promise<void> {
    const ids = [...this.#shared.held.keys()]
    for (let at = 0; at < ids.length; at += BEATS_AT_ONCE) {
      await Promise.all(ids.slice(at, at + BEATS_AT_ONCE).map(async (id) => this.#beatOne(id)))
    }
  }

  async #beatOne (id: string): Promise<void> {
    const { process, lease, held } = this.#shared
    const entry = held.get(id)
    if (entry === undefined || entry.signal === '') return
    const { place } = entry
    const updated: SessionUpdate = {}
    entry.reading.add(updated)
    let answer: [due: number, replaced: number, signals: [string, string[]][], subscribed: string, subscriptions: string[], ...Stored] | null
    try {
      answer = await this.#session(id, BEAT, process, lease, place?.token ?? '', entry.signal, entry.subscribed)
    } finally {
      entry.reading.delete(updated)
    }
    if (held.get(id) !== entry) {
      // Released in the meantime: the beat may have come after the release.
      if (answer !== null && !held.has(id)) this.#giveBack(id, 0)
      return
    }
    if (answer === null) {
      this.ended(id)
      return
    }
    const [due, replaced, signals, subscribed, subscriptions, ...stored] = answer
    if (due === 1) this.#touch(id, entry.owner, entry.idle)
    this.#shared.tell({ type: 'updated', session: id, part: { ...readRecord(stored), ...updated } })
    for (const [position, [, text]] of signals) this.takeSignal(id, position, JSON.parse(text!) as Signal)
    if (place !== undefined && entry.place === place) {
      if (replaced === 1) {
        place.reader.replaced()
      } else {
        const state = Number(subscribed)
        // A list that is older than what has been told since is for the next beat to make up for.
        if (state > entry.subscribed && state >= entry.newest) {
          entry.subscribed = entry.newest = state
          this.#shared.tell({ type: 'subscriptions', session: id, uris: subscriptions })
        }
        place.drain().catch(() => {})
      }
    }
    for (const tail of entry.tails) {
      tail.wake()
      await tail.check()
    }
  }

  /** The index learns that a session lives: rarely, since its entries live longer than the sessions. */
  #touch (id: string, owner: string, idleTimeout: number): void {
    this.#service(TOUCH, id, ownerKey(owner), this.#indexed(idleTimeout)).catch(() => {})
  }

  #indexed (idleTimeout: number): number {
    return Math.ceil(Math.max(idleTimeout, this.#shared.lease) + idleTimeout / 10 + 1000)
  }

  #session (id: string, ...[script, ...args]: Parameters<Run>): Promise<any> {
    return this.#shared.connection.run(script, sessionKey(this.#shared, id), ...args)
  }

  #service (...[script, ...args]: Parameters<Run>): Promise<any> {
    return this.#shared.connection.run(script, serviceKey(this.#shared), ...args)
  }
}

type Run = (script: typeof CREATE, ...args: (string | number)[]) => Promise<any>

function newlyHeld (owner: string): Held {
  return {
    owner, idle: 0, uses: 0, usedAt: 0, resting: false, known: undefined, reading: new Set(), signal: '', place: undefined, subscribed: 0, newest: 0, opening: new Set(), tails: new Set()
  }
}

function restOf ({ idle }: Held): number {
  return Math.min(REST, idle / 10)
}

function whoOf (kind: SessionRecord['kind'], owner: string): string {
  return `${kind}:${owner}`
}

/** What another process is told, without its end: the script adds the state. */
function subscribedMessage (id: string, uri: string, wanted: boolean): string {
  return encodeMessage('subscribed', id, uri, wanted, 0).slice(0, -'0]'.length)
}

/** Owners are of any length and any characters; names of keys better are not. */
function ownerKey (owner: string): string {
  return createHash('sha256').update(owner).digest('base64url').slice(0, 22)
}

function fieldsOf (part: SessionUpdate): string[] {
  return Object.entries(part).flatMap(([name, value]) => value === undefined ? [] : [name, typeof value === 'string' ? value : JSON.stringify(value)])
}

function readRecord ([version, initialized, capabilities, clientInfo, logLevel, isNew]: Stored): Omit<SessionRecord, 'id' | 'owner' | 'kind'> {
  return {
    version: version as SessionRecord['version'],
    initialized: initialized === 'true',
    capabilities: JSON.parse(capabilities) as Record<string, unknown>,
    ...(clientInfo !== null && { clientInfo: JSON.parse(clientInfo) as Record<string, unknown> }),
    logLevel,
    ...(isNew !== null && { isNew: isNew === 'true' })
  }
}
