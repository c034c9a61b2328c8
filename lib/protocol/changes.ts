// Change fan-out: from the layer through the backplane to handshake sessions and 2026 listen streams of this process.
// A reader that is slow loses nothing: what it has not read yet is kept once per list and once per URI.

import type { Change } from '../backplane/index.js'
import { remember } from '../jsonrpc.js'
import type { RpcNotification } from '../jsonrpc.js'
import type { ProtocolServer } from './server.js'
import type { Session } from './session.js'

const MAX_PENDING = 1024
// Readers served before the event loop gets a turn, so that a fan-out to thousands blocks nobody for long.
const BATCH = 200

/** The notification that tells of a change. A list change has no params before 2026. */
export function changeNotification (change: Change, meta?: Record<string, unknown>): RpcNotification {
  const params = { ...(change.kind === 'resource' && { uri: change.uri }), ...(meta && { _meta: meta }) }
  const method = change.kind === 'resource' ? 'notifications/resources/updated' : `notifications/${change.kind}/list_changed`
  return Object.keys(params).length === 0 ? { jsonrpc: '2.0', method } : { jsonrpc: '2.0', method, params }
}

function keyOf (change: Change): string {
  return change.uri === undefined ? change.kind : `${change.kind} ${change.uri}`
}

/** Someone who is told of changes, at its own pace. */
export class Subscriber {
  readonly #wants: (change: Change) => boolean
  readonly #deliver: (change: Change) => void | Promise<void>
  readonly #onOverflow: () => void
  #pending: Map<string, Change> | undefined
  #overflowed = false

  constructor (wants: (change: Change) => boolean, deliver: (change: Change) => void | Promise<void>, onOverflow: () => void) {
    this.#wants = wants
    this.#deliver = deliver
    this.#onOverflow = onOverflow
  }

  offer (change: Change): void {
    if (!this.#wants(change)) return
    if (this.#pending === undefined) {
      const room = this.#deliver(change)
      if (room !== undefined) this.#wait(room)
    } else if (this.#pending.size < MAX_PENDING || this.#pending.has(keyOf(change))) {
      this.#pending.set(keyOf(change), change)
    } else if (!this.#overflowed) {
      this.#overflowed = true
      this.#onOverflow()
    }
  }

  #wait (room: Promise<void>): void {
    this.#pending ??= new Map()
    room.then(() => this.#drain(), () => this.#drain())
  }

  #drain (): void {
    for (const [key, change] of this.#pending!) {
      this.#pending!.delete(key)
      const room = this.#deliver(change)
      if (room !== undefined) return this.#wait(room)
    }
    this.#pending = undefined
    this.#overflowed = false
  }
}

/** An open `subscriptions/listen`. */
export interface Listen { subscriber: Subscriber, close: () => void }

export class Changes {
  readonly #server: ProtocolServer
  readonly #maxListens: number
  readonly #sessions = new Map<Session, Subscriber>()
  readonly #listens = new Set<Listen>()
  readonly #queue: Change[] = []
  #draining = false
  readonly #stop: (() => void)[]
  // One object for all sessions, so that its text is made once.
  readonly #shared = new Map<string, RpcNotification>()

  constructor (server: ProtocolServer, maxListens: number) {
    this.#server = server
    this.#maxListens = maxListens
    const { layer, backplane } = server
    this.#stop = [
      layer.onChange((event) => {
        if (event.kind !== 'resource') server.pages.clear()
        backplane.publish(event).catch((error) => server.log.error({ err: error }, 'a change could not be published'))
      }),
      backplane.onChange((change) => this.#enqueue(change))
    ]
  }

  get listens (): number { return this.#listens.size }

  addSession (session: Session): void {
    const wants = (change: Change): boolean => session.era === 'handshake' && session.record.initialized &&
      (change.kind !== 'resource' || session.record.subscriptions.includes(change.uri!))
    this.#sessions.set(session, new Subscriber(wants, (change) => session.send(this.#sharedNotification(change)), () => this.#warn('session')))
  }

  removeSession (session: Session): void {
    this.#sessions.delete(session)
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

  warnOverflow (): void {
    this.#warn('listen stream')
  }

  closeListens (): void {
    for (const listen of [...this.#listens]) listen.close()
  }

  close (): void {
    for (const stop of this.#stop) stop()
  }

  #warn (what: string): void {
    this.#server.log.warn(`a ${what} reads too slowly: changes beyond ${MAX_PENDING} are dropped`)
  }

  #sharedNotification (change: Change): RpcNotification {
    const key = keyOf(change)
    let message = this.#shared.get(key)
    if (message === undefined) {
      if (this.#shared.size >= MAX_PENDING) this.#shared.clear()
      this.#shared.set(key, message = remember(changeNotification(change)))
    }
    return message
  }

  /** What a session has missed since it was last up to date, each once. */
  async missed (session: Session): Promise<Change[]> {
    const { subscriptions, seen } = session.record
    const { changes, complete } = await this.#server.backplane.changesSince(seen)
    const all: Change[] = complete
      ? changes
      : [{ kind: 'tools' }, { kind: 'resources' }, { kind: 'prompts' }, ...subscriptions.map((uri): Change => ({ kind: 'resource', uri }))]
    return [...new Map(all.map((change) => [keyOf(change), change])).values()]
  }

  /** Offers changes to one session, under the rules of the live ones. */
  tell (session: Session, changes: readonly Change[]): void {
    const subscriber = this.#sessions.get(session)
    for (const change of changes) subscriber?.offer(change)
  }

  #enqueue (change: Change): void {
    this.#queue.push(change)
    if (!this.#draining) this.#drain()
  }

  /** Changes in order, each to all readers; a few readers at once, many with turns of the event loop in between. */
  #drain (): void {
    const change = this.#queue.shift()
    this.#draining = change !== undefined
    if (change === undefined) return
    this.#tellAll(change, [...this.#sessions.values(), ...Array.from(this.#listens, (listen) => listen.subscriber)], 0)
  }

  #tellAll (change: Change, readers: readonly Subscriber[], from: number): void {
    const end = Math.min(from + BATCH, readers.length)
    for (let at = from; at < end; at++) readers[at]!.offer(change)
    if (end < readers.length) setImmediate(() => this.#tellAll(change, readers, end))
    else this.#drain()
  }
}
