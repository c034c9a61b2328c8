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
import type { ResumableOptions } from './resumable.js'
import { EventLog, eventFrame, STANDALONE } from './resumable.js'
import { EventStream } from './stream.js'
import type { KeepAlive } from './stream.js'

// A stream whose reader has taken nothing for this long (ms) gives way to a new one.
const STALLED = 1000

/** A session while this process works for it. */
export interface LiveSession {
  readonly session: Session
  stream: EventStream | undefined
  /** Sends a message on the stream, while there is one. */
  deliver: ((message: object) => void | Promise<void>) | undefined
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

  readonly #resumable: ResumableOptions | undefined

  constructor (server: ProtocolServer, limits: SessionLimits, keepAlive: KeepAlive, resumable?: ResumableOptions) {
    this.#server = server
    this.#backplane = server.backplane
    this.#limits = limits
    this.#resumable = resumable
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

  /** The log of a new resumable stream of a session, where streams are resumable. */
  eventLog (session: string, stream?: string): EventLog | undefined {
    return this.#resumable && new EventLog(this.#backplane, session, this.#resumable, stream)
  }

  /**
   * Opens the stream that a GET asks for: the session's standalone one, or, with the id of an event, the rest of the stream
   * that it belongs to. Nothing when the standalone stream is taken; a dead or stalled one gives way.
   */
  async openStream (live: LiveSession, lastEventId: string | undefined): Promise<EventStream | undefined> {
    const stream = new EventStream(this.#keepAlive)
    if (this.#resumable !== undefined && lastEventId !== undefined && await this.#resume(live, stream, lastEventId)) return stream
    return await this.#openStandalone(live, stream) ? stream : undefined
  }

  /** Replays what was missed. True when it was a request's stream, which then goes on live. */
  async #resume (live: LiveSession, stream: EventStream, lastEventId: string): Promise<boolean> {
    const missed: string[] = []
    let replayed = false
    let ended = false
    const reader = await this.#backplane.readEvents(live.session.record.id, lastEventId, (event) => {
      if (!replayed) event === undefined ? ended = true : missed.push(eventFrame(event))
      else if (event === undefined) stream.finish()
      else void stream.write(eventFrame(event))
    })
    replayed = true
    if (missed.length > 0) void stream.write(missed.join(''))
    if (reader === undefined) return false
    if (reader.stream === STANDALONE) {
      reader.close()
      return false
    }
    stream.onOverflow = () => stream.destroy()
    live.uses++
    stream.once('close', () => {
      reader.close()
      live.release()
    })
    if (ended) stream.finish()
    return true
  }

  /** What waits for the session comes first, then what it has missed, then what is to come. */
  async #openStandalone (live: LiveSession, stream: EventStream): Promise<boolean> {
    const { session, stream: old } = live
    const { id } = session.record
    const log = this.eventLog(id, STANDALONE)
    const deliver = log === undefined
      ? (message: object) => stream.send(message)
      : (message: object) => log.append(message, (text) => stream.write(text)).catch((error) => {
          this.#server.log.error({ err: error }, 'a message of a resumable stream could not be kept')
        })
    const free = old === undefined || old.destroyed || old.stalledFor >= STALLED
    if (free) old?.destroy()
    const outbox = free ? await this.#backplane.openOutbox(id, (message) => { void deliver(message) }, old !== undefined) : undefined
    if (outbox === undefined) {
      stream.destroy()
      return false
    }
    if (log !== undefined) stream.onOverflow = () => stream.destroy()
    live.stream = stream
    live.deliver = deliver
    live.uses++
    const { changes } = this.#server
    changes.addSession(session)
    stream.once('close', () => {
      if (live.stream === stream) {
        live.stream = live.deliver = undefined
        changes.removeSession(session)
      }
      live.release()
      this.#backplane.head().then((seen) => outbox.close(seen)).catch((error) => {
        this.#server.log.error({ err: error }, 'a session stream could not be given back')
      })
    })
    changes.tell(session, await changes.missed(session))
    return true
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
          if (live.deliver !== undefined) return live.deliver(message)
          return this.#push(id, message)
        },
        reachable: () => live.stream !== undefined || this.#backplane.hasReader(id),
        save: (part) => this.#backplane.updateSession(id, part)
      }),
      stream: undefined,
      deliver: undefined,
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
    } else if (signal.type === 'reply') {
      live.session.settle(signal.message)
    } else if (signal.type === 'ended') {
      this.#live.delete(signal.session)
      live.session.close()
      live.stream?.finish()
    }
  }
}
