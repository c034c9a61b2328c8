// The backplane of one process: Maps. The reference for what the contract means.

import { SessionEvents } from './events.js'
import type {
  Backplane, Change, Created, EventLimits, EventReader, EventReading, EventWriter, LoggedChange, Outbox, OutboxReader,
  SessionLimits, SessionRecord, SessionUpdate, SessionUse, Signal
} from './index.js'

interface Entry {
  record: SessionRecord
  /** Up to where it has been told of changes. */
  seen: string
  idleTimeout: number
  usedAt: number
  /** Which of all uses its last one was. Not the order of the Map: to move in it at every use would have its table made anew time and again. */
  lastUse: number
  uses: number
  subscriptions: Set<string> | undefined
  outbox: object[]
  reader: OutboxReader | undefined
  place: Outbox | undefined
  events: SessionEvents | undefined
}

const MAX_OUTBOX = 512
const MAX_CHANGES = 1024

export function memoryBackplane (): Backplane {
  return new MemoryBackplane()
}

class MemoryBackplane implements Backplane {
  readonly #sessions = new Map<string, Entry>()
  readonly #perOwner = new Map<string, number>()
  readonly #changeListeners = new Set<(change: Change, position?: string) => void>()
  readonly #signalListeners = new Set<(signal: Signal) => void>()
  readonly #changes: Change[] = []
  #position = 0
  #uses = 0
  #reaper: NodeJS.Timeout | undefined
  #reaperInterval = Infinity

  async start (): Promise<void> {}

  async close (): Promise<void> {
    clearInterval(this.#reaper)
    this.#reaperInterval = Infinity
  }

  // ---- sessions

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
    this.#sessions.set(id, {
      record: { ...record },
      seen: this.position,
      idleTimeout: limits.idleTimeout,
      usedAt: Date.now(),
      lastUse: ++this.#uses,
      uses: 0,
      subscriptions: undefined,
      outbox: [],
      reader: undefined,
      place: undefined,
      events: undefined
    })
    this.#perOwner.set(owner, (this.#perOwner.get(owner) ?? 0) + 1)
    this.#watch(limits.idleTimeout)
    return 'created'
  }

  acquire (id: string, kind: SessionRecord['kind'], owner: string): SessionUse | undefined {
    const entry = this.#sessions.get(id)
    if (entry === undefined || entry.record.kind !== kind || entry.record.owner !== owner) return undefined
    if (isIdle(entry, Date.now())) {
      this.#end(id)
      return undefined
    }
    entry.uses++
    this.#touch(entry)
    let used = true
    return {
      record: entry.record,
      release: () => {
        if (!used) return
        used = false
        entry.uses--
        this.#touch(entry)
      }
    }
  }

  async updateSession (id: string, part: SessionUpdate): Promise<void> {
    const entry = this.#sessions.get(id)
    if (entry === undefined) return
    Object.assign(entry.record, part)
    this.#tell({ type: 'updated', session: id, part })
  }

  async subscribe (id: string, uri: string, limit: number): Promise<boolean> {
    const entry = this.#sessions.get(id)
    if (entry === undefined || entry.subscriptions?.has(uri) === true) return true
    entry.subscriptions ??= new Set()
    if (entry.subscriptions.size >= limit) return false
    entry.subscriptions.add(uri)
    this.#tell({ type: 'subscribed', session: id, uri, wanted: true })
    return true
  }

  async unsubscribe (id: string, uri: string): Promise<void> {
    if (this.#sessions.get(id)?.subscriptions?.delete(uri) === true) this.#tell({ type: 'subscribed', session: id, uri, wanted: false })
  }

  async deleteSession (id: string): Promise<boolean> {
    return this.#end(id)
  }

  async countSessions (): Promise<number> {
    return this.#sessions.size
  }

  // ---- a session's standalone stream

  async push (id: string, message: object): Promise<void> {
    const entry = this.#sessions.get(id)
    if (entry === undefined) return
    if (entry.reader !== undefined && entry.reader.deliver(message) !== false) return
    if (entry.outbox.length >= MAX_OUTBOX) entry.outbox.shift()
    entry.outbox.push(message)
  }

  async openOutbox (id: string, reader: OutboxReader): Promise<Outbox | undefined> {
    const entry = this.#sessions.get(id)
    if (entry === undefined) return undefined
    const before = entry.reader
    if (before !== undefined) {
      if (!before.stalled()) return undefined
      before.replaced()
    }
    entry.reader = reader
    while (entry.outbox.length > 0 && reader.deliver(entry.outbox[0]!) !== false) entry.outbox.shift()
    const outbox: Outbox = {
      subscriptions: [...entry.subscriptions ?? []],
      seen: entry.seen,
      inDoubt: false,
      close: async (seen) => {
        if (entry.place !== outbox) return
        entry.reader = entry.place = undefined
        if (!outbox.inDoubt) entry.seen = seen
      }
    }
    entry.place = outbox
    return outbox
  }

  async hasReader (id: string): Promise<boolean> {
    return this.#sessions.get(id)?.reader !== undefined
  }

  // ---- events

  writeEvents (session: string, stream: string, limits: EventLimits): EventWriter {
    const events = (): SessionEvents | undefined => {
      const entry = this.#sessions.get(session)
      return entry && (entry.events ??= new SessionEvents())
    }
    return {
      append: async (data, told) => {
        if (told !== undefined && this.#sessions.get(session)?.place !== told.by) return ''
        const id = events()?.append(stream, data, limits) ?? ''
        if (id !== '' && told !== undefined) this.#sessions.get(session)!.seen = told.seen
        return id
      },
      end: async () => { events()?.end(stream) }
    }
  }

  async readEvents (session: string, from: { after: string } | { stream: string }, reader: EventReader): Promise<EventReading | undefined> {
    const entry = this.#sessions.get(session)
    if (entry === undefined) return undefined
    entry.events ??= new SessionEvents()
    return entry.events.read(from, reader)
  }

  // ---- changes

  async offer (): Promise<void> {}

  get position (): string { return String(this.#position) }

  async publish (change: Change): Promise<void> {
    this.#position++
    this.#changes.push(change)
    if (this.#changes.length > MAX_CHANGES) this.#changes.shift()
    const { position } = this
    for (const listener of this.#changeListeners) listener(change, position)
  }

  onChange (listener: (change: Change, position?: string) => void): () => void {
    this.#changeListeners.add(listener)
    return () => { this.#changeListeners.delete(listener) }
  }

  isAfter (position: string, other: string): boolean {
    return Number(position) > Number(other)
  }

  async changesBetween (after: string, upTo: string): Promise<{ changes: LoggedChange[], complete: boolean }> {
    const oldest = this.#position - this.#changes.length
    const from = Math.max(Number(after), oldest)
    const changes = this.#changes.slice(from - oldest, Math.max(Number(upTo) - oldest, 0))
    return { changes: changes.map((change, at) => ({ change, position: String(from + at + 1) })), complete: Number(after) >= oldest }
  }

  // ---- signals

  async signal (signal: Signal & { type: 'cancel' | 'reply' }): Promise<void> {
    this.#tell(signal)
  }

  onSignal (listener: (signal: Signal) => void): () => void {
    this.#signalListeners.add(listener)
    return () => { this.#signalListeners.delete(listener) }
  }

  #tell (signal: Signal): void {
    for (const listener of this.#signalListeners) listener(signal)
  }

  // ---- idle sessions

  #touch (entry: Entry): void {
    entry.usedAt = Date.now()
    entry.lastUse = ++this.#uses
  }

  #end (id: string): boolean {
    const entry = this.#sessions.get(id)
    if (entry === undefined) return false
    this.#sessions.delete(id)
    const { owner } = entry.record
    const left = this.#perOwner.get(owner)! - 1
    if (left > 0) this.#perOwner.set(owner, left)
    else this.#perOwner.delete(owner)
    this.#tell({ type: 'ended', session: id })
    entry.events?.close()
    return true
  }

  #leastRecentlyUsed (owner: string): string | undefined {
    let found: string | undefined
    let earliest = Infinity
    for (const [id, { record, uses, lastUse }] of this.#sessions) {
      if (record.owner !== owner || uses > 0 || lastUse >= earliest) continue
      found = id
      earliest = lastUse
    }
    return found
  }

  #reap (): void {
    const now = Date.now()
    for (const [id, entry] of this.#sessions) {
      if (isIdle(entry, now)) this.#end(id)
      else entry.events?.expire(now)
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
  return entry.uses === 0 && now - entry.usedAt > entry.idleTimeout
}
