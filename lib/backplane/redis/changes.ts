// The log of changes. A change is appended and published in one step, with its position and the one before: a process that gets them in
// this order has missed nothing, and one that sees a gap reads the log.

import type { Change, LoggedChange } from '../index.js'
import { PUBLISH } from './service-scripts.js'
import type { Shared } from './shared.js'
import { fieldsOf, isAfter, repeated, serviceKey } from './shared.js'

// One more than the log promises: it shows that nothing is missing before the others.
const MAX_CHANGES = 1025
const MAX_UNSENT = 1024
// Changes on their way to Redis. What comes while it is slower than that waits here, once each.
const MAX_SENDING = 256
/** ms; longer than any session that could still ask is idle */
const MIN_LIFE = 24 * 3_600_000
const EVERYTHING: readonly Change[] = [{ kind: 'tools' }, { kind: 'resources' }, { kind: 'prompts' }]

export function changesChannel ({ prefix }: Shared): string {
  return `${prefix}:changes`
}

export class ChangeLog {
  readonly #shared: Shared
  readonly #listeners = new Set<(change: Change, position?: string) => void>()
  /** Changes of this process that Redis may not know yet; the listeners here do. Each with what it is known by. */
  readonly #unsent = new Map<string, { change: Change, name: string }>()
  /** What is being published, until it is known to be in the log. */
  readonly #underWay = new Set<string>()
  readonly #waiting = new Map<string, { sent: Promise<void>, send: () => void }>()
  #sending = 0
  #published = 0
  #life = MIN_LIFE
  #paused = false
  position = ''

  constructor (shared: Shared) {
    this.#shared = shared
  }

  /** The log has to reach back as far as sessions live. */
  liveFor (idleTimeout: number): void {
    this.#life = Math.max(this.#life, 2 * idleTimeout)
  }

  onChange (listener: (change: Change, position?: string) => void): () => void {
    this.#listeners.add(listener)
    return () => { this.#listeners.delete(listener) }
  }

  async publish (change: Change): Promise<void> {
    const key = `${change.kind} ${change.uri ?? ''}`
    if (this.#sending < MAX_SENDING) return this.#send(change, key)
    const waiting = this.#waiting.get(key)
    if (waiting !== undefined) return waiting.sent
    let send!: () => void
    const sent = new Promise<void>((resolve) => { send = () => resolve(this.#send(change, key)) })
    this.#waiting.set(key, { sent, send })
    return sent
  }

  async #send (change: Change, key: string): Promise<void> {
    this.#sending++
    const name = `${this.#shared.process}.${++this.#published}`
    this.#underWay.add(name)
    try {
      await this.#append(change, name)
    } catch {
      // It has come back already.
      if (!this.#underWay.has(name)) return
      // Those who are here learn of it at once, the others when Redis is back.
      const kept = this.#unsent.size < MAX_UNSENT || this.#unsent.has(key)
      if (kept) this.#unsent.set(key, { change, name })
      this.#tell(change, kept ? undefined : this.position)
    } finally {
      this.#underWay.delete(name)
      this.#sending--
      const [next] = this.#waiting
      if (next !== undefined) {
        this.#waiting.delete(next[0])
        next[1].send()
      }
    }
  }

  async between (after: string, upTo: string): Promise<{ changes: LoggedChange[], complete: boolean }> {
    const { changes, complete } = await this.#read(after, upTo)
    return { changes: changes.map(({ change, position }) => ({ change, position })), complete }
  }

  /** Nothing arrives. What arrives next comes after a gap. */
  pause (): void {
    this.#paused = true
  }

  async resume (): Promise<void> {
    this.#paused = false
    await this.catchUp()
  }

  /** A cluster's client does not say when it has subscribed anew, somewhere else. */
  async check (): Promise<void> {
    if (!this.#paused) await this.catchUp()
  }

  /** `previous position name change`, as it was published. */
  take (text: string): void {
    if (this.#paused) return
    const [previous, position, name] = text.split(' ', 3) as [string, string, string]
    if (this.position !== '' && !isAfter(position, this.position)) return
    if (previous !== this.position) {
      this.catchUp().catch(() => {})
      return
    }
    this.#advance(position, name, JSON.parse(text.slice(previous.length + position.length + name.length + 3)) as Change)
  }

  /** Reads what has been missed, and sends what could not be sent. */
  readonly catchUp = repeated(async () => {
    // Changes arrive meanwhile: the head may be behind where this process is by the time that it is known.
    const asked = this.position
    const head = await this.#head()
    if (this.position === '') {
      this.position = head
    } else if (isAfter(asked, head)) {
      // The log has begun anew: what was in it and did not get here is unknown.
      this.position = head
      for (const change of EVERYTHING) this.#tell(change, head)
    } else {
      const { changes, complete } = await this.#read(this.position, head)
      // What has been published before these changes arrives before they are told: a session may have subscribed to them just now.
      if (changes.length > 0) await this.#shared.connection.arrived()
      // Too much has been missed: that the lists have changed is all that can be said.
      if (!complete) for (const change of EVERYTHING) this.#tell(change, this.position)
      for (const { position, name, change } of changes) if (isAfter(position, this.position)) this.#advance(position, name, change)
    }
    for (const [key, unsent] of this.#unsent) {
      await this.#append(unsent.change, unsent.name, true)
      if (this.#unsent.get(key) === unsent) this.#unsent.delete(key)
    }
  })

  #advance (position: string, name: string, change: Change): void {
    this.position = position
    this.#underWay.delete(name)
    this.#tell(change, position)
  }

  #tell (change: Change, position?: string): void {
    for (const listener of this.#listeners) listener(change, position)
  }

  /** @param again it may be in the log already, or may yet get there */
  async #append (change: Change, name: string, again = false): Promise<void> {
    const text = JSON.stringify(change)
    await this.#shared.connection.run(PUBLISH, serviceKey(this.#shared), changesChannel(this.#shared), text, name, MAX_CHANGES, this.#life, again ? 1 : 0)
  }

  async #head (): Promise<string> {
    const last = await this.#shared.connection.call(async (client) => client.xrevrange(this.#key, '+', '-', 'COUNT', 1))
    return last[0]?.[0] ?? '0-0'
  }

  async #read (after: string, upTo: string): Promise<{ changes: (LoggedChange & { name: string })[], complete: boolean }> {
    if (!isAfter(upTo, after)) return { changes: [], complete: true }
    const [entries, first, length] = await this.#shared.connection.call(async (client) => Promise.all([
      client.xrange(this.#key, `(${after}`, upTo),
      client.xrange(this.#key, '-', '+', 'COUNT', 1),
      client.xlen(this.#key)
    ]))
    const changes = entries.map(([position, fields]) => {
      const { c: text, n: name } = fieldsOf(fields)
      return { position, name: name!, change: JSON.parse(text!) as Change }
    })
    // Only a log that is full has dropped something.
    return { changes, complete: length < MAX_CHANGES || first[0] === undefined || !isAfter(first[0][0], after) }
  }

  get #key (): string { return `${serviceKey(this.#shared)}:c` }
}
