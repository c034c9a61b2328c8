// Handshake sessions over HTTP. What a session is lives in the backplane; here is what this process has at work for it:
// calls in flight and the standalone stream, for as long as there are any.

import { randomUUID } from 'node:crypto'
import type { Backplane, EventReading, Outbox, EventWriter, SessionLimits, SessionRecord, SessionUse, Signal } from '../backplane/index.js'
import { streamOf } from '../backplane/index.js'
import { codes, encode, failure, isRequest } from '../jsonrpc.js'
import type { RequestId } from '../jsonrpc.js'
import type { Principal } from '../principal.js'
import { identityOf } from '../principal.js'
import { MAX_SUBSCRIPTIONS } from '../protocol/changes.js'
import type { ProtocolServer } from '../protocol/server.js'
import type { Session } from '../protocol/session.js'
import { sessionRecord } from '../protocol/session.js'
import { featuresOf } from '../revisions.js'
import type { Refusal } from './refusal.js'
import { refusals } from './refusal.js'
import type { ResumableOptions } from './resumable.js'
import { EventLog, eventFrame, STANDALONE } from './resumable.js'
import { EventStream } from './stream.js'
import type { KeepAlive } from './stream.js'

// A stream whose reader has taken nothing for this long (ms) gives way to a new one.
const STALLED = 1000
/** ms after which the client of a stream that ends with its process comes back */
const RETRY = 1000
/** ms for which a session stays at hand after its last use, at most */
const AT_HAND = 1000
const NOT_KEPT = 'a message of a resumable stream could not be kept'

/** A session while this process works for it. */
export interface LiveSession {
  readonly session: Session
  stream: EventStream | undefined
  /** The place of that stream as the reader of the session. */
  outbox: Outbox | undefined
  /** That place is being taken anew. */
  reopening: boolean
  /** Streams of its requests that clients came back to. */
  resumed: Set<EventStream> | undefined
  /** Of the backplane, while there are uses here. */
  use: SessionUse | undefined
  /** Resolves when everything said so far has been kept, where streams are resumable. */
  readonly flush: () => Promise<void>
  uses: number
  release: () => void
}

export class SessionTable {
  readonly #server: ProtocolServer
  readonly #backplane: Backplane
  readonly #limits: SessionLimits
  readonly #keepAlive: KeepAlive
  readonly #live = new Map<string, LiveSession>()
  #resting: NodeJS.Timeout | undefined
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
  get live (): number {
    let count = 0
    for (const { uses } of this.#live.values()) if (uses > 0) count++
    return count
  }

  /** A session that does not exist yet, for its `initialize`: it is kept only when that succeeds. */
  draft (kind: SessionRecord['kind'], owner: Principal): Session {
    const record = sessionRecord(randomUUID().replaceAll('-', ''), kind, owner, this.#server.defaultLogLevel)
    if (kind === 'sse') record.isNew = true
    return this.#server.createSession({ transport: kind, record, register: false, isNew: true })
  }

  /** Keeps a drafted session, within the caps. */
  async keep ({ record }: Session): Promise<Refusal | undefined> {
    const outcome = await this.#backplane.createSession(record, this.#limits)
    return outcome === 'created' ? undefined : outcome === 'full' ? refusals.tooManySessions : refusals.tooManyOwnSessions
  }

  /** Takes a session into use; whoever does so releases it. Nothing when it is unknown, ended or another principal's. */
  acquire (id: string, kind: SessionRecord['kind'], who: Principal): LiveSession | undefined | Promise<LiveSession | undefined> {
    const use = this.#backplane.acquire(id, kind, identityOf(who))
    return use instanceof Promise ? use.then((found) => this.#take(id, found)) : this.#take(id, use)
  }

  #take (id: string, use: SessionUse | undefined): LiveSession | undefined {
    if (use === undefined) return undefined
    let live = this.#live.get(id)
    if (live === undefined) this.#live.set(id, live = this.#revive(use.record))
    else live.session.adopt(use.record)
    if (live.uses++ === 0) live.use = use
    // The first use keeps it.
    else use.release()
    return live
  }

  /** A client that has just called will most often call again: its session stays at hand for a moment. */
  #rest (): void {
    this.#resting ??= setTimeout(() => {
      this.#resting = undefined
      for (const [id, { uses }] of this.#live) if (uses === 0) this.#live.delete(id)
    }, AT_HAND).unref()
  }

  async end (id: string): Promise<boolean> {
    return this.#backplane.deleteSession(id)
  }

  /** The log of the stream that answers a message, where streams are resumable. */
  eventLog (session: string, message: unknown): EventLog | undefined {
    if (this.#resumable === undefined) return undefined
    const owed = (Array.isArray(message) ? message : [message]).filter(isRequest).map(({ id }) => id)
    return new EventLog(this.#backplane, session, this.#resumable, randomUUID().slice(-12), JSON.stringify(owed))
  }

  /**
   * Opens the stream that a GET asks for: the session's standalone one, or, with the id of an event, the rest of the stream
   * that it belongs to. Nothing when the standalone stream is taken; a dead or stalled one gives way.
   */
  async openStream (live: LiveSession, lastEventId: string | undefined): Promise<EventStream | undefined> {
    const stream = new EventStream(this.#keepAlive)
    if (this.#resumable === undefined) return this.#openStandalone(live, stream)
    // It has been kept: the client comes back for it.
    stream.onOverflow = () => stream.finish()
    if (lastEventId !== undefined && streamOf(lastEventId) !== STANDALONE && await this.#resume(live, stream, lastEventId)) return stream
    return this.#openStandalone(live, stream, lastEventId)
  }

  /** Opens the stream of a legacy session, which begins with `first`. */
  async openLegacyStream (live: LiveSession, first: string): Promise<EventStream | undefined> {
    return this.#openStandalone(live, new EventStream(this.#keepAlive, first))
  }

  /** Replays what was missed of a request's stream, which then goes on live. False when there is no such stream. */
  async #resume (live: LiveSession, stream: EventStream, after: string): Promise<boolean> {
    const reading = await this.#read(live, stream, { after })
    if (reading === undefined) return false
    live.uses++
    live.resumed ??= new Set()
    live.resumed.add(stream)
    stream.onClose(() => {
      reading.close()
      live.resumed?.delete(stream)
      live.release()
    })
    return true
  }

  /** What waits for the session comes first, then what it has missed, then what is to come. */
  async #openStandalone (live: LiveSession, stream: EventStream, lastEventId?: string): Promise<EventStream | undefined> {
    const { session } = live
    const outbox = await this.#openOutbox(live, stream)
    if (outbox === undefined || stream.destroyed) {
      stream.destroy()
      await outbox?.close(outbox.seen)
      return undefined
    }
    let reading: EventReading | undefined
    live.stream = stream
    live.uses++
    const catchUp = this.#tellOn(live, outbox)
    stream.onClose(() => {
      reading?.close()
      this.#leave(live, stream)
    })
    try {
      if (session.record.kind === 'http' && this.#resumable !== undefined) {
        const named = { stream: STANDALONE }
        reading = (lastEventId === undefined ? undefined : await this.#read(live, stream, { after: lastEventId })) ?? await this.#read(live, stream, named)
        if (stream.destroyed) reading?.close()
      }
      await catchUp()
    } catch (error) {
      stream.destroy()
      throw error
    }
    return stream
  }

  async #openOutbox ({ session }: LiveSession, stream: EventStream): Promise<Outbox | undefined> {
    return this.#backplane.openOutbox(session.record.id, {
      deliver: (message) => stream.over ? false : stream.send(message),
      stalled: () => stream.over || stream.stalledFor >= STALLED,
      replaced: () => stream.destroy()
    })
  }

  /** Tells the session of changes in the name of its new place. */
  #tellOn (live: LiveSession, outbox: Outbox): () => Promise<void> {
    const { session } = live
    live.outbox = outbox
    session.subscriptions = outbox.subscriptions
    return this.#server.changes.addSession(session, outbox.seen, session.record.kind === 'http' && this.#resumable !== undefined)
  }

  /** Gives the place of a stream back. One that has been replaced has none. */
  #leave (live: LiveSession, stream: EventStream): void {
    const { outbox } = live
    if (live.stream !== stream || outbox === undefined) {
      live.release()
      return
    }
    live.stream = live.outbox = undefined
    const { changes, log } = this.#server
    const seen = changes.removeSession(live.session)
    // What is being kept is the last that this reader has told of.
    live.flush().then(async () => outbox.close(seen)).catch((error) => log.error({ err: error }, 'a session stream could not be given back')).finally(live.release)
  }

  /**
   * The backplane answers again, and a change that could not be kept may have been kept nevertheless, or may yet be. In a new place what is
   * still on its way is refused, and up to where the session has been told is known.
   */
  async #reopen (live: LiveSession, stream: EventStream, doubtful: Outbox): Promise<void> {
    live.reopening = true
    try {
      await doubtful.close('')
      const outbox = await this.#openOutbox(live, stream)
      if (outbox === undefined || live.stream !== stream || stream.destroyed) {
        stream.destroy()
        await outbox?.close(outbox.seen)
        return
      }
      await this.#tellOn(live, outbox)().catch((error) => {
        outbox.inDoubt = true
        throw error
      })
    } finally {
      live.reopening = false
    }
  }

  /** Writes the events of a stream to its new reader, those of the past in one piece. */
  async #read ({ session }: LiveSession, stream: EventStream, from: { after: string } | { stream: string }): Promise<EventReading | undefined> {
    let past: string[] | undefined = []
    let ended = false
    const reading = await this.#backplane.readEvents(session.record.id, from, {
      event: (event) => {
        if (stream.over) return false
        const text = eventFrame(event)
        if (past === undefined) void stream.write(text)
        else past.push(text)
        return true
      },
      ended: () => {
        ended = true
        if (past === undefined) stream.finish()
      },
      orphaned: (owed, writer) => this.#answerFor(owed, writer)
    })
    if (past.length > 0) void stream.write(past.join(''))
    past = undefined
    if (ended) stream.finish()
    return reading
  }

  /** Answers calls of a process that is gone. */
  #answerFor (owed: string, writer: EventWriter): void {
    const answers = (JSON.parse(owed) as RequestId[]).map((id) => failure(id, { code: codes.internalError, message: 'The process that served this call is gone' }))
    Promise.all(answers.map((answer) => writer.append(encode(answer)))).then(() => writer.end()).catch((error) => {
      this.#server.log.error({ err: error }, 'calls of a process that is gone could not be answered')
    })
  }

  /** Ends the streams, each with when to come back; the sessions stay, for the next process. Legacy streams end with their sessions. */
  close (): void {
    for (const { session, stream, resumed = [] } of this.#live.values()) {
      if (session.record.kind === 'sse') continue
      const last = featuresOf(session.record.version).polling ? `retry: ${spread(this.#resumable?.retry ?? RETRY)}\n\n` : ''
      for (const one of [...stream === undefined ? [] : [stream], ...resumed]) one.finish(last)
    }
  }

  /** Nothing is at work any more. */
  stop (): void {
    this.#stopSignals()
    clearTimeout(this.#resting)
  }

  #revive (record: SessionRecord): LiveSession {
    const { id, kind } = record
    const backplane = this.#backplane
    const log = kind === 'http' && this.#resumable !== undefined ? new EventLog(backplane, id, this.#resumable, STANDALONE) : undefined
    const live: LiveSession = {
      session: this.#server.createSession({
        transport: kind,
        record,
        isNew: record.isNew === true,
        register: false,
        send: (message, seen) => {
          if (log === undefined) return live.stream === undefined || live.stream.over ? this.#push(id, message) : live.stream.send(message)
          // Kept first, wherever its reader is.
          if (seen === undefined) {
            return log.append(message).catch((error) => {
              this.#server.log.error({ err: error }, NOT_KEPT)
              return live.stream?.send(message)
            })
          }
          const by = live.outbox
          if (by === undefined) return undefined
          return log.append(message, { told: { seen, by } }).catch((error) => {
            this.#server.log.error({ err: error }, NOT_KEPT)
            // It is told when the backplane answers again, by whoever has the place then.
            if (live.outbox === by) this.#server.changes.removeSession(live.session)
          })
        },
        reachable: () => live.stream !== undefined || backplane.hasReader(id),
        save: (part) => backplane.updateSession(id, part),
        subscribe: async (uri, wanted) => wanted ? backplane.subscribe(id, uri, MAX_SUBSCRIPTIONS) : backplane.unsubscribe(id, uri).then(() => true)
      }),
      stream: undefined,
      outbox: undefined,
      reopening: false,
      resumed: undefined,
      flush: async () => log?.flush(),
      uses: 0,
      use: undefined,
      release: () => {
        if (--live.uses > 0) return
        live.use!.release()
        this.#rest()
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
    } else if (signal.type === 'updated') {
      live.session.adopt({ ...live.session.record, ...signal.part })
      // The heartbeat tells it too.
      const { stream, outbox, reopening } = live
      if (outbox?.inDoubt === true && stream !== undefined && !reopening) {
        this.#reopen(live, stream, outbox).catch((error) => this.#server.log.error({ err: error }, 'a session stream could not be taken up again'))
      }
    } else if (signal.type === 'subscribed') {
      live.session.subscriptions[signal.wanted ? 'add' : 'delete'](signal.uri)
    } else if (signal.type === 'subscriptions') {
      live.session.subscriptions = signal.uris
    } else {
      this.#live.delete(signal.session)
      live.session.close()
      live.stream?.finish()
      for (const stream of live.resumed ?? []) stream.finish()
    }
  }
}

/** Not all at once: a process that ends sends many clients to the others. */
function spread (ms: number): number {
  return Math.round(ms * (0.5 + Math.random()))
}
