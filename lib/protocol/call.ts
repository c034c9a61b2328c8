// One request while it is served: what its handler may know and do (the CallPort), and its end, be it an answer or a cancellation.

import type { Params, Reply, RequestId } from '../jsonrpc.js'
import { isObject, isRequestId } from '../jsonrpc.js'
import type { Question } from '../layer/ask.js'
import type { CallPort, Logger } from '../layer/context.js'
import type { Principal, RequestInfo } from '../principal.js'
import { anonymous } from '../principal.js'
import type { Features, Version } from '../revisions.js'
import { featuresOf } from '../revisions.js'
import type { Member } from '../runtime/roster.js'
import { LayerError } from '../layer/errors.js'
import { ask, Rounds } from './ask.js'
import type { Envelope } from './era.js'
import { reaches, thresholdOf, toLevel } from './log-levels.js'
import { nameParam } from './methods/table.js'
import type { Session } from './session.js'
import type { ProtocolServer } from './server.js'

/** Takes a notification of one request; a promise means that there is no room yet. */
export type Sink = (notification: object) => void | Promise<void>

/** What a transport knows of the exchange that a message came in. */
export interface Exchange {
  // What is called is called as a method of the exchange.
  /** Where notifications of this request go. @default the session's `send` */
  sink?: Sink | undefined
  principal?: Principal | undefined
  request?: RequestInfo | undefined
  /** Aborted when the peer has gone. */
  signal?: AbortSignal | undefined
  /** Does anybody read what `sink` takes, now or later? @default always */
  isRead?: (() => boolean) | undefined
  /** Ends the stream of this exchange early; its client comes back for the rest. False where it cannot. */
  closeStream?: (() => boolean) | undefined
}

/** What a message or a batch is answered with: nothing, where it wants no answer. */
export type Answer = Reply | Reply[] | undefined

/** Whoever waits for what becomes of a message: one of the two is called, once. */
export interface Waiter {
  answered: (answer: Answer) => void
  failed: (error: unknown) => void
}

const ROOM = Promise.resolve()

export class Call implements CallPort, Member {
  /** Among those of its session that are under way. */
  place = -1
  readonly session: Session
  readonly requestId: RequestId
  readonly method: string
  readonly params: Params
  readonly protocolVersion: Version
  /** Nobody in particular until it has been found out: a call can be cancelled before that. */
  principal: Principal = anonymous
  readonly request: RequestInfo
  readonly envelope: Envelope | undefined
  /** The client cancelled it, or has gone: there is nobody to answer. */
  cancelled = false
  /** It is answered with questions: whatever its handler still does is for nobody. */
  suspended = false
  /** What it has open: finished when the call ends, however it does. */
  listening: { finish (): void } | undefined
  /** Handshake era: answers to an explicit `inputRequired()`. */
  answers: { responses: Record<string, unknown>, own: unknown } | undefined
  /** Who is told of its answer. */
  readonly waiter: Waiter
  readonly #exchange: Exchange
  #rounds: Rounds | undefined
  #progress: number | undefined
  #ended = false
  #aborted: Error | undefined
  #listeners: Set<(reason: Error) => void> | undefined
  #controller: AbortController | undefined
  #stopListening: (() => void) | undefined
  #whatWaits: Set<(reason: Error) => void> | undefined

  constructor (session: Session, id: RequestId, method: string, params: Params, version: Version, envelope: Envelope | undefined,
    request: RequestInfo, exchange: Exchange, waiter: Waiter) {
    this.session = session
    this.requestId = id
    this.method = method
    this.params = params
    this.protocolVersion = version
    this.envelope = envelope
    this.request = request
    this.#exchange = exchange
    this.waiter = waiter
  }

  get server (): ProtocolServer { return this.session.server }
  get features (): Features { return featuresOf(this.protocolVersion) }
  get era (): 'handshake' | 'modern' { return this.envelope === undefined ? 'handshake' : 'modern' }
  get clientCapabilities (): Record<string, any> { return this.envelope?.capabilities ?? this.session.record.capabilities }

  get log (): Logger {
    const { log } = this.server
    return log.child?.({ mcp: { method: this.method, id: this.requestId, principal: this.principal.id } }) ?? log
  }

  get signal (): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#aborted !== undefined) this.#controller.abort(this.#aborted)
    }
    return this.#controller.signal
  }

  get meta (): Readonly<Record<string, unknown>> | undefined {
    return isObject(this.params._meta) ? this.params._meta : undefined
  }

  get connection (): string | object | undefined {
    return this.session.connection
  }

  get hasOwnStream (): boolean { return this.#exchange.sink !== undefined && this.#exchange.isRead?.() !== false }
  get ended (): boolean { return this.#ended }

  /** Sends a notification of this request: on its own stream, or on the session's. Nothing goes out after the end. */
  notify (message: object): void | Promise<void> {
    return this.#send(message, this.#exchange.sink !== undefined)
  }

  /** Sends a question: where notifications go, or on the session's stream when nobody reads those any more. */
  question (message: object): void | Promise<void> {
    return this.#send(message, this.hasOwnStream)
  }

  #send (message: object, onOwnStream: boolean): void | Promise<void> {
    if (this.#ended) return undefined
    try {
      const room = onOwnStream ? this.#exchange.sink!(message) : this.session.send(message)
      return room === undefined ? undefined : room.catch((error) => this.#unsent(error))
    } catch (error) {
      return this.#unsent(error)
    }
  }

  // Log data that JSON cannot hold, a pipe that broke: handlers do not wait for a log message, so nobody could catch this.
  #unsent (error: unknown): void {
    this.log.error({ err: error }, 'a notification could not be sent')
  }

  // Not async: a handler that does not wait would keep what it said in memory until there is room.
  progress (progress: number, total?: number, message?: string): Promise<void> {
    const token = this.params._meta?.progressToken
    if (this.cancelled || !isRequestId(token) || !Number.isFinite(progress)) return ROOM
    if (this.#progress !== undefined && progress <= this.#progress) return ROOM
    this.#progress = progress
    return this.notify({
      jsonrpc: '2.0',
      method: 'notifications/progress',
      params: {
        progressToken: token,
        progress,
        ...(total !== undefined && { total }),
        ...(message && this.features.progressMessage && { message })
      }
    }) ?? ROOM
  }

  notifyLog (level: string, data: unknown, logger = this.server.layer.info.name): Promise<void> {
    const threshold = this.envelope === undefined ? this.session.record.logLevel : thresholdOf(this.envelope.logLevel)
    const said = toLevel(level)
    if (this.cancelled || threshold === undefined || !reaches(said, threshold)) return ROOM
    return this.notify({ jsonrpc: '2.0', method: 'notifications/message', params: { level: said, data: data ?? null, logger } }) ?? ROOM
  }

  ask (question: Question): Promise<unknown> {
    return ask(this, question)
  }

  /** Nobody waits for the work: what becomes of it is no failure. */
  get abandoned (): boolean { return this.cancelled || this.suspended }

  /** Has it a way to answer with questions? */
  get hasRounds (): boolean { return this.era === 'modern' && nameParam(this.method) !== undefined }

  /** 2026: what has been asked and answered. Made from the params; a bad `requestState` throws. */
  get rounds (): Rounds {
    this.#rounds ??= new Rounds(this)
    return this.#rounds
  }

  /** Reads what a 2026 client sent back of earlier rounds, if it did: a state that is not ours is refused before anything runs. */
  openRounds (): void {
    if (this.era !== 'modern') return
    const { requestState, inputResponses } = this.params
    if ((requestState !== undefined && requestState !== null) || inputResponses !== undefined) this.#rounds = new Rounds(this)
  }

  get inputResponses (): Readonly<Record<string, any>> {
    return this.hasRounds ? this.rounds.responses : this.answers?.responses ?? {}
  }

  get requestState (): unknown {
    return this.hasRounds ? this.rounds.own : this.answers?.own
  }

  closeStream (): boolean {
    return this.features.polling && this.#exchange.closeStream?.() === true
  }

  onAbort (listener: (reason: Error) => void): () => void {
    if (this.#aborted !== undefined) listener(this.#aborted)
    this.#listeners ??= new Set()
    this.#listeners.add(listener)
    return () => { this.#listeners!.delete(listener) }
  }

  stop (reason: Error): void {
    this.#aborted ??= reason
    this.#controller?.abort(this.#aborted)
    for (const listener of this.#listeners ?? []) listener(this.#aborted)
  }

  renew (): void {
    if (this.abandoned) return
    this.#rounds?.restart()
    if (this.#aborted !== undefined) this.#aborted = this.#controller = undefined
  }

  /** Aborts it with a signal, which may outlive many calls. */
  listen (signal: AbortSignal): void {
    const abort = (): void => this.abort(new Error('The client has gone'))
    if (signal.aborted) return abort()
    signal.addEventListener('abort', abort, { once: true })
    this.#stopListening = () => signal.removeEventListener('abort', abort)
  }

  /** The peer wants no answer, or nobody is there to read it. */
  abort (reason: Error): void {
    if (this.#ended) return
    this.cancelled = true
    this.stop(reason)
    this.session.stopped(this, reason)
  }

  /** The call is answered with questions. Its work is told so, and no longer waited for. */
  suspend (reason: Error): void {
    if (this.#ended) return
    this.suspended = true
    this.stop(reason)
    this.session.stopped(this, reason)
  }

  /** Why nothing can be asked any more; nothing while it can. */
  get over (): Error | undefined {
    return this.#aborted ?? (this.#ended ? new LayerError('The call has ended') : undefined)
  }

  /** Calls `give` when the call is over, unless the returned function is called before. */
  untilOver (give: (reason: Error) => void): () => void {
    const waits = this.#whatWaits ??= new Set()
    waits.add(give)
    return () => { waits.delete(give) }
  }

  /** No more notifications, and no more aborts. */
  end (): void {
    if (this.#whatWaits !== undefined && this.#whatWaits.size > 0) {
      const reason = this.#aborted ?? new LayerError('The call has ended')
      for (const give of this.#whatWaits) give(reason)
    }
    this.#ended = true
    this.#stopListening?.()
    this.listening?.finish()
  }
}
