// The backplane of one process: Maps. The reference for what the contract means.

import { SessionEvents } from './events.js'
import type { Backplane, Change, Created, EventLimits, EventReader, Outbox, SessionLimits, SessionRecord, Signal, StreamEvent } from './index.js'

interface Entry {
  record: SessionRecord
  idleTimeout: number
  usedAt: number
  holds: number
  outbox: object[]
  reader: ((message: object) => void) | undefined
  events: SessionEvents | undefined
}

const MAX_OUTBOX = 512
const MAX_CHANGES = 1024

export function memoryBackplane (): Backplane {
  return new MemoryBackplane()
}

class MemoryBackplane implements Backplane {
  // Oldest use first: reading a session moves it to the end.
  readonly #sessions = new Map<string, Entry>()
  readonly #perOwner = new Map<string, number>()
  readonly #changeListeners = new Set<(change: Change) => void>()
  readonly #signalListeners = new Set<(signal: Signal) => void>()
  readonly #changes: Change[] = []
  #position = 0
  #reaper: NodeJS.Timeout | undefined
  #reaperInterval = Infinity

  async createSession (record: SessionRecord, limits: SessionLimits): Promise<Created> {
    const { owner, id } = record
    const full = (): boolean => this.#sessions.size >= limits.maxSessions
    if (full()) this.#reap()
    if ((this.#perOwner.get(owner) ?? 0) >= limits.maxSessionsPerPrincipal) {
      const idle = this.#leastRecentlyUsed(owner)
      if (idle === undefined) return 'owner-full'
      this.#end(idle)
    }
    if (full()) return 'full'
    this.#sessions.set(id, { record, idleTimeout: limits.idleTimeout, usedAt: Date.now(), holds: 0, outbox: [], reader: undefined, events: undefined })
    this.#perOwner.set(owner, (this.#perOwner.get(owner) ?? 0) + 1)
    this.#watch(limits.idleTimeout)
    return 'created'
  }

  async getSession (id: string): Promise<SessionRecord | undefined> {
    const entry = this.#sessions.get(id)
    if (entry === undefined) return undefined
    const now = Date.now()
    if (isIdle(entry, now)) {
      this.#end(id)
      return undefined
    }
    entry.usedAt = now
    this.#sessions.delete(id)
    this.#sessions.set(id, entry)
    return entry.record
  }

  async updateSession (id: string, part: Partial<SessionRecord>): Promise<void> {
    const entry = this.#sessions.get(id)
    if (entry !== undefined) Object.assign(entry.record, part)
  }

  async deleteSession (id: string): Promise<boolean> {
    return this.#end(id)
  }

  hold (id: string): () => void {
    const entry = this.#sessions.get(id)
    if (entry === undefined) return () => {}
    entry.holds++
    let held = true
    return () => {
      if (!held) return
      held = false
      entry.holds--
      entry.usedAt = Date.now()
    }
  }

  async countSessions (): Promise<number> {
    return this.#sessions.size
  }

  async push (id: string, message: object): Promise<void> {
    const entry = this.#sessions.get(id)
    if (entry === undefined) return
    if (entry.reader !== undefined) return entry.reader(message)
    if (entry.outbox.length >= MAX_OUTBOX) entry.outbox.shift()
    entry.outbox.push(message)
  }

  async openOutbox (id: string, deliver: (message: object) => void, takeOver = false): Promise<Outbox | undefined> {
    const entry = this.#sessions.get(id)
    if (entry === undefined || (entry.reader !== undefined && !takeOver)) return undefined
    entry.reader = deliver
    for (const message of entry.outbox.splice(0)) deliver(message)
    return {
      close: async (seen) => {
        if (entry.reader !== deliver) return
        entry.reader = undefined
        entry.record.seen = seen
      }
    }
  }

  async hasReader (id: string): Promise<boolean> {
    return this.#sessions.get(id)?.reader !== undefined
  }

  async appendEvent (session: string, stream: string, data: string, limits: EventLimits): Promise<string> {
    const entry = this.#sessions.get(session)
    if (entry === undefined) return ''
    entry.events ??= new SessionEvents()
    return entry.events.append(stream, data, limits)
  }

  async endEvents (session: string, stream: string): Promise<void> {
    this.#sessions.get(session)?.events?.end(stream)
  }

  async readEvents (session: string, after: string, deliver: (event: StreamEvent | undefined) => void): Promise<EventReader | undefined> {
    return this.#sessions.get(session)?.events?.read(after, deliver)
  }

  async publish (change: Change): Promise<void> {
    this.#position++
    this.#changes.push(change)
    if (this.#changes.length > MAX_CHANGES) this.#changes.shift()
    for (const listener of this.#changeListeners) listener(change)
  }

  onChange (listener: (change: Change) => void): () => void {
    this.#changeListeners.add(listener)
    return () => { this.#changeListeners.delete(listener) }
  }

  async head (): Promise<string> {
    return String(this.#position)
  }

  async changesSince (position: string): Promise<{ changes: Change[], complete: boolean }> {
    const missed = this.#position - Number(position)
    return { changes: missed > 0 ? this.#changes.slice(-missed) : [], complete: missed <= this.#changes.length }
  }

  async signal (signal: Signal): Promise<void> {
    for (const listener of this.#signalListeners) listener(signal)
  }

  onSignal (listener: (signal: Signal) => void): () => void {
    this.#signalListeners.add(listener)
    return () => { this.#signalListeners.delete(listener) }
  }

  async close (): Promise<void> {
    clearInterval(this.#reaper)
    for (const id of [...this.#sessions.keys()]) this.#end(id)
  }

  #end (id: string): boolean {
    const entry = this.#sessions.get(id)
    if (entry === undefined) return false
    this.#sessions.delete(id)
    const { owner } = entry.record
    const left = this.#perOwner.get(owner)! - 1
    if (left > 0) this.#perOwner.set(owner, left)
    else this.#perOwner.delete(owner)
    for (const listener of this.#signalListeners) listener({ type: 'ended', session: id })
    return true
  }

  #leastRecentlyUsed (owner: string): string | undefined {
    for (const [id, entry] of this.#sessions) if (entry.record.owner === owner && entry.holds === 0) return id
    return undefined
  }

  #reap (): void {
    const now = Date.now()
    for (const [id, entry] of this.#sessions) {
      if (isIdle(entry, now)) this.#end(id)
    }
  }

  /** One timer for all sessions; it ticks twice in the shortest idle time seen, and never keeps the process alive. */
  #watch (idleTimeout: number): void {
    const interval = Math.min(Math.max(idleTimeout / 2, 20), 60_000)
    if (interval >= this.#reaperInterval) return
    this.#reaperInterval = interval
    clearInterval(this.#reaper)
    this.#reaper = setInterval(() => this.#reap(), interval).unref()
  }
}

function isIdle (entry: Entry, now: number): boolean {
  return entry.holds === 0 && now - entry.usedAt > entry.idleTimeout
}
