// Handshake sessions over HTTP. What a session is lives in the backplane; here is what this process has at work for it:
// calls in flight and the standalone stream, for as long as there are any.

import { randomBytes } from 'node:crypto'
import type { Backplane, SessionLimits, SessionRecord, Signal } from '../backplane/index.js'
import type { Principal } from '../principal.js'
import { identityOf } from '../principal.js'
import type { ProtocolServer } from '../protocol/server.js'
import type { Session } from '../protocol/session.js'
import { sessionRecord } from '../protocol/session.js'
import type { Refusal } from './refusal.js'
import { refusals } from './refusal.js'
import { EventStream } from './stream.js'
import type { KeepAlive } from './stream.js'

// A stream whose reader has taken nothing for this long (ms) gives way to a new one.
const STALLED = 1000

/** A session while this process works for it. */
export interface LiveSession {
  readonly session: Session
  stream: EventStream | undefined
  uses: number
  release: () => void
}

export class SessionTable {
  readonly #server: ProtocolServer
  readonly #backplane: Backplane
  readonly #limits: SessionLimits
  readonly #keepAlive: KeepAlive
  readonly #live = new Map<string, LiveSession>()
  readonly #stopSignals: () => void

  constructor (server: ProtocolServer, limits: SessionLimits, keepAlive: KeepAlive) {
    this.#server = server
    this.#backplane = server.backplane
    this.#limits = limits
    this.#keepAlive = keepAlive
    this.#stopSignals = this.#backplane.onSignal((signal) => this.#onSignal(signal))
  }

  /** Sessions that this process has something at work for. */
  get live (): number { return this.#live.size }

  /** A session that does not exist yet, for its `initialize`: it is kept only when that succeeds. */
  async draft (kind: SessionRecord['kind'], owner: Principal): Promise<Session> {
    const record = sessionRecord(randomBytes(16).toString('hex'), kind, owner, this.#server.defaultLogLevel, await this.#backplane.head())
    return this.#server.createSession({ transport: kind, record, register: false, isNew: true })
  }

  /** Keeps a drafted session, within the caps. */
  async keep ({ record }: Session): Promise<Refusal | undefined> {
    const outcome = await this.#backplane.createSession(record, this.#limits)
    return outcome === 'created' ? undefined : outcome === 'full' ? refusals.tooManySessions : refusals.tooManyOwnSessions
  }

  /** Takes a session into use; whoever does so releases it. Nothing when it is unknown, ended or another principal's. */
  async acquire (id: string, kind: SessionRecord['kind'], who: Principal): Promise<LiveSession | undefined> {
    const record = await this.#backplane.getSession(id)
    if (record === undefined || record.kind !== kind || record.owner !== identityOf(who)) return undefined
    let live = this.#live.get(id)
    if (live === undefined) {
      live = this.#revive(record)
      this.#live.set(id, live)
    } else {
      live.session.record = record
    }
    live.uses++
    return live
  }

  async end (id: string): Promise<boolean> {
    return this.#backplane.deleteSession(id)
  }

  /** Opens the session's standalone stream: what waits for it comes first. A dead or stalled stream gives way. */
  async openStream (live: LiveSession): Promise<EventStream | undefined> {
    const { session, stream: old } = live
    const { id } = session.record
    if (old !== undefined && !old.destroyed && old.stalledFor < STALLED) return undefined
    old?.destroy()
    const stream = new EventStream(this.#keepAlive)
    const outbox = await this.#backplane.openOutbox(id, (message) => { void stream.send(message) }, old !== undefined)
    if (outbox === undefined) {
      stream.destroy()
      return undefined
    }
    live.stream = stream
    live.uses++
    this.#server.changes.addSession(session)
    stream.once('close', () => {
      if (live.stream === stream) {
        live.stream = undefined
        this.#server.changes.removeSession(session)
      }
      live.release()
      this.#backplane.head().then((seen) => outbox.close(seen)).catch((error) => {
        this.#server.log.error({ err: error }, 'a session stream could not be given back')
      })
    })
    this.#server.changes.tell(session, await this.#server.changes.missed(session))
    return stream
  }

  /** Ends the streams; the sessions themselves stay, for the next process. */
  close (): void {
    this.#stopSignals()
    for (const { stream } of this.#live.values()) stream?.finish()
  }

  #revive (record: SessionRecord): LiveSession {
    const { id } = record
    const unhold = this.#backplane.hold(id)
    const live: LiveSession = {
      session: this.#server.createSession({
        transport: record.kind,
        record,
        register: false,
        send: (message) => {
          if (live.stream !== undefined) return live.stream.send(message)
          return this.#push(id, message)
        },
        save: (part) => this.#backplane.updateSession(id, part)
      }),
      stream: undefined,
      uses: 0,
      release: () => {
        if (--live.uses > 0) return
        unhold()
        if (this.#live.get(id) === live) this.#live.delete(id)
      }
    }
    return live
  }

  #push (id: string, message: object): void {
    this.#backplane.push(id, message).catch((error) => this.#server.log.error({ err: error }, 'a message to a session was lost'))
  }

  #onSignal (signal: Signal): void {
    const live = this.#live.get(signal.session)
    if (live === undefined) return
    if (signal.type === 'cancel') {
      live.session.cancel(signal.requestId, signal.reason)
    } else if (signal.type === 'ended') {
      this.#live.delete(signal.session)
      live.session.close()
      live.stream?.finish()
    }
  }
}
