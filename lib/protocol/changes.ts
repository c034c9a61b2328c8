// Change fan-out: from the layer through the backplane to handshake sessions and 2026 listen streams of this process.
// A reader that is slow loses nothing: what it has not read yet is kept once per list and once per URI.

import type { Change, LoggedChange } from '../backplane/index.js'
import { remember } from '../jsonrpc.js'
import type { RpcNotification } from '../jsonrpc.js'
import type { ProtocolServer } from './server.js'
import type { Session } from './session.js'

/** Resources that one session may subscribe to. */
export const MAX_SUBSCRIPTIONS = 1024
const MAX_PENDING = 1024
// Readers served before the event loop gets a turn, so that a fan-out to thousands blocks nobody for long.
const BATCH = 50

/** The notification that tells of a change. A list change has no params before 2026. */
export function changeNotification (change: Change, meta?: Record<string, unknown>): RpcNotification {
  const params = { ...(change.kind === 'resource' && { uri: change.uri }), ...(meta && { _meta: meta }) }
  const method = change.kind === 'resource' ? 'notifications/resources/updated' : `notifications/${change.kind}/list_changed`
  return Object.keys(params).length === 0 ? { jsonrpc: '2.0', method } : { jsonrpc: '2.0', method, params }
}

function keyOf (change: Change): string {
  return change.uri === undefined ? change.kind : `${change.kind} ${change.uri}`
}

/** Where the log of changes is: at this change, and at the one before it. */
export interface Place { position: string, before: string }

/** Someone who is told of changes, at its own pace. There are thousands: what each has of its own are methods, not functions. */
export abstract class Subscriber {
  /** What waits, while there is something to wait for: room, or what was missed. */
  #pending: Map<string, { change: Change, before: string }> | undefined
  #latest = ''
  /** Where it was when it began, until it has caught up. */
  #from: string | undefined
  /** It is told of what is in the log, and of nothing else: up to where it has been told has to be exact. */
  readonly #loggedOnly: boolean
  /** What it has been told of before that was in the log. */
  #ahead: Set<string> | undefined
  #overflowed = false
  #closed = false

  /** @param from where it has to catch up from */
  constructor (from?: string, loggedOnly = false) {
    this.#from = from
    this.#loggedOnly = loggedOnly
    if (from !== undefined) this.#pending = new Map()
  }

  protected abstract wants (change: Change): boolean

  /**
   * A promise where the reader is slow: it resolves when there is room.
   * @param seen up to where everything has been delivered, this change included
   */
  protected abstract deliver (change: Change, seen: string): void | Promise<void>

  /** More waits for the reader than is kept. */
  protected abstract overflowed (): void

  /** False for changes that it has been told of, perhaps by a process that was ahead of this one. */
  protected isNew (_position: string): boolean { return true }

  /** @param place none where it is not in the log yet; it is offered again when it is */
  offer (change: Change, place?: Place): void {
    if (place === undefined) {
      if (this.#closed || this.#loggedOnly || !this.wants(change)) return
      this.#ahead ??= new Set()
      this.#ahead.add(keyOf(change))
      this.#take(change, this.seen)
      return
    }
    if (this.#closed || !this.isNew(place.position)) return
    this.#latest = place.position
    if (!this.wants(change) || this.#ahead?.delete(keyOf(change)) === true) return
    this.#take(change, place.before)
  }

  #take (change: Change, before: string): void {
    if (this.#pending !== undefined) {
      this.#keep(this.#pending, change, before)
      return
    }
    const room = this.#tell(change)
    if (room !== undefined) this.#wait(room)
  }

  /** What was missed goes first, then what has come in the meantime. */
  catchUp (missed: readonly LoggedChange[], upTo: string): void {
    if (this.#closed || this.#from === undefined) return
    const pending = new Map<string, { change: Change, before: string }>()
    let before = this.#from
    for (const { change, position } of missed) {
      if (this.wants(change)) this.#keep(pending, change, before)
      before = position
    }
    for (const { change, before } of this.#pending!.values()) this.#keep(pending, change, before)
    this.#pending = pending
    this.#latest ||= this.isNew(upTo) ? upTo : this.#from
    this.#from = undefined
    this.#drain()
  }

  #keep (pending: Map<string, { change: Change, before: string }>, change: Change, before: string): void {
    const key = keyOf(change)
    if (pending.has(key)) return
    if (pending.size < MAX_PENDING) {
      pending.set(key, { change, before })
    } else if (!this.#overflowed) {
      this.#overflowed = true
      this.overflowed()
    }
  }

  /** Up to where everything that was offered has been delivered. */
  get seen (): string {
    if (this.#from !== undefined) return this.#from
    const [first] = this.#pending?.values() ?? []
    return first?.before ?? this.#latest
  }

  /** It is told no more: what waits is for whoever goes on from `seen`. */
  close (): void {
    this.#closed = true
    this.#pending?.clear()
  }

  /** A reader that fails is its transport's affair, and nobody else's. */
  #tell (change: Change): void | Promise<void> {
    try {
      return this.deliver(change, this.seen)
    } catch {
      return undefined
    }
  }

  #wait (room: Promise<void>): void {
    this.#pending ??= new Map()
    room.then(() => this.#drain(), () => this.#drain())
  }

  #drain (): void {
    for (const [key, { change }] of this.#pending!) {
      this.#pending!.delete(key)
      const room = this.#tell(change)
      if (room !== undefined) return this.#wait(room)
    }
    this.#pending = undefined
    this.#overflowed = false
  }
}

/** An open `subscriptions/listen`. */
export interface Listen extends Subscriber { finish (): void }

/** A session of the handshake era, with what its stream is told of. */
class SessionSubscriber extends Subscriber {
  readonly #changes: Changes
  readonly #session: Session
  readonly #after: string | undefined

  constructor (changes: Changes, session: Session, from: string | undefined, loggedOnly: boolean) {
    super(from, loggedOnly)
    this.#changes = changes
    this.#session = session
    this.#after = from
  }

  protected wants ({ kind, uri }: Change): boolean {
    const { era, record } = this.#session
    return era === 'handshake' && record.initialized && (kind !== 'resource' || this.#session.subscriptions.has(uri!))
  }

  protected deliver (change: Change, seen: string): void | Promise<void> {
    return this.#session.send(this.#changes.sharedNotification(change), seen)
  }

  protected overflowed (): void {
    this.#changes.warnOverflow('session')
  }

  protected override isNew (position: string): boolean {
    return this.#after === undefined || this.#session.server.backplane.isAfter(position, this.#after)
  }
}

export class Changes {
  readonly #server: ProtocolServer
  readonly #maxListens: number
  readonly #sessions = new Map<Session, Subscriber>()
  readonly #listens = new Set<Listen>()
  readonly #queue: { change: Change, position: string | undefined }[] = []
  #draining = false
  #announcing = false
  /** Of the newest change that has been offered to all who were there. */
  #told: string
  readonly #stop: (() => void)[]
  // One object for all sessions, so that its text is made once.
  readonly #shared = new Map<string, RpcNotification>()

  constructor (server: ProtocolServer, maxListens: number) {
    this.#server = server
    this.#maxListens = maxListens
    const { layer, backplane } = server
    this.#told = backplane.position
    this.#stop = [
      layer.onChange((event) => {
        if (event.kind !== 'resource') server.pages.clear()
        if (!this.#announcing) this.#enqueue(event, backplane.position)
        else backplane.publish(event).catch((error) => server.log.error({ err: error }, 'a change could not be published'))
      }),
      backplane.onChange((change, position) => this.#enqueue(change, position))
    ]
  }

  /**
   * From here on changes are told to the other processes. What an application registers while it starts is told as one: the
   * lists change for the clients of all processes where this one offers something else than another.
   */
  async start (): Promise<void> {
    const { backplane, layer, log } = this.#server
    this.#told = backplane.position
    this.#announcing = true
    const offers = layer.offers?.()
    if (offers !== undefined) await backplane.offer(offers).catch((error) => log.error({ err: error }, 'what is offered could not be announced'))
  }

  get listens (): number { return this.#listens.size }

  /**
   * Tells a session of changes from now on.
   * @param from up to where it has been told before, when it has to catch up
   * @param loggedOnly up to where it has been told has to be exact
   * @returns tells it what it has missed until now, each change once, under the rules of the live ones
   */
  addSession (session: Session, from?: string, loggedOnly = false): () => Promise<void> {
    const subscriber = new SessionSubscriber(this, session, from, loggedOnly)
    this.#sessions.get(session)?.close()
    this.#sessions.set(session, subscriber)
    const upTo = this.#told
    return async () => {
      if (from !== undefined) subscriber.catchUp(await this.#missed(session, from, upTo), upTo)
    }
  }

  /** Up to where the session has been told. */
  removeSession (session: Session): string {
    const subscriber = this.#sessions.get(session)
    const seen = subscriber?.seen || this.#told
    this.#sessions.delete(session)
    subscriber?.close()
    return seen
  }

  /** False when no more listens are admitted. */
  addListen (listen: Listen): boolean {
    if (this.#listens.size >= this.#maxListens) return false
    this.#listens.add(listen)
    return true
  }

  removeListen (listen: Listen): void {
    this.#listens.delete(listen)
  }

  /** @internal */
  warnOverflow (what: string): void {
    this.#server.log.warn(`a ${what} reads too slowly: changes beyond ${MAX_PENDING} are dropped`)
  }

  closeListens (): void {
    for (const listen of [...this.#listens]) listen.finish()
  }

  close (): void {
    for (const stop of this.#stop) stop()
  }

  /** @internal */
  sharedNotification (change: Change): RpcNotification {
    const key = keyOf(change)
    let message = this.#shared.get(key)
    if (message === undefined) {
      if (this.#shared.size >= MAX_PENDING) this.#shared.clear()
      this.#shared.set(key, message = remember(changeNotification(change)))
    }
    return message
  }

  async #missed (session: Session, from: string, upTo: string): Promise<LoggedChange[]> {
    const { changes, complete } = await this.#server.backplane.changesBetween(from, upTo)
    if (complete) return changes
    const all: Change[] = [{ kind: 'tools' }, { kind: 'resources' }, { kind: 'prompts' }, ...Array.from(session.subscriptions, (uri): Change => ({ kind: 'resource', uri }))]
    return all.map((change) => ({ change, position: from }))
  }

  #enqueue (change: Change, position?: string): void {
    this.#queue.push({ change, position })
    if (!this.#draining) this.#drain()
  }

  /** Changes in order, each to all readers; a few readers at once, many with turns of the event loop in between. */
  #drain (): void {
    this.#draining = true
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      const { position } = next
      const place = position === undefined ? undefined : { position, before: this.#told }
      this.#told = position ?? this.#told
      const readers = [...this.#sessions.values(), ...this.#listens]
      if (!this.#tellAll(next.change, place, readers, 0)) return
    }
    this.#draining = false
  }

  /** False when the rest is told in a later turn, and the queue after that. */
  #tellAll (change: Change, place: Place | undefined, readers: readonly Subscriber[], from: number): boolean {
    const end = Math.min(from + BATCH, readers.length)
    for (let at = from; at < end; at++) readers[at]!.offer(change, place)
    if (end === readers.length) return true
    setImmediate(() => { if (this.#tellAll(change, place, readers, end)) this.#drain() })
    return false
  }
}
