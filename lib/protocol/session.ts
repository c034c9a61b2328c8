// One connection: a stdio pipe, a handshake session over HTTP, or the single exchange of a stateless request.
// handle() takes a decoded message, or a batch where the revision has it, and resolves to what has to be answered.

import type { SessionRecord, SessionUpdate } from '../backplane/index.js'
import type { Params, Reply, RequestId, Result } from '../jsonrpc.js'
import { codes, failure, isObject, isRequestId, replyId, RpcError, success } from '../jsonrpc.js'
import type { Principal, RequestInfo, TransportKind } from '../principal.js'
import { identityOf } from '../principal.js'
import type { HandshakeVersion, Version } from '../revisions.js'
import { Roster } from '../runtime/roster.js'
import { featuresOf, LATEST_HANDSHAKE, MODERN } from '../revisions.js'
import { SuspendedError } from '../layer/errors.js'
import { Questions } from './ask.js'
import type { Answer, Exchange, Waiter } from './call.js'
import { Call } from './call.js'
import { MAX_SUBSCRIPTIONS } from './changes.js'
import type { Envelope } from './era.js'
import { envelopeOf, HANDSHAKE_CONNECTION, MODERN_CONNECTION, NO_ENVELOPE, readEnvelope } from './era.js'
import { isCrash } from './errors.js'
import type { Method } from './methods/table.js'
import { methodOf } from './methods/table.js'
import type { ProtocolServer } from './server.js'
import { stamp } from './wire.js'

/**
 * A server-initiated message to the peer; a promise means that there is no room yet. `seen`: with it, the peer has been told
 * of all changes up to there.
 */
export type Send = (message: object, seen?: string) => void | Promise<void>

export interface SessionOptions {
  /** @default `memory` */
  transport?: TransportKind
  /** Where messages go that belong to no request, or to one without a sink. @default nowhere */
  send?: Send | undefined
  /** Is there a reader of what `send` takes? @default true when there is a `send` */
  reachable?: (() => boolean | Promise<boolean>) | undefined
  /** Who calls, where the exchange does not say. @default what the resolver says of the transport */
  principal?: Principal | undefined
  /** Take part in the fan-out of changes. @default true */
  register?: boolean
  /** Serve the handshake era at this version without `initialize` (stateless HTTP). */
  preinitialized?: HandshakeVersion | undefined
  /** The state of a session that lives elsewhere too. @default a new one */
  record?: SessionRecord | undefined
  /** The record is of a session that has yet to be initialized. @default false */
  isNew?: boolean
  /** Called with what has changed in the record, and awaited before the answer. */
  save?: ((part: SessionUpdate) => Promise<void>) | undefined
  /** Keeps subscriptions where the session lives; false when there are too many. @default only here */
  subscribe?: ((uri: string, wanted: boolean) => Promise<boolean>) | undefined
}

export class Session {
  readonly server: ProtocolServer
  readonly transport: TransportKind
  record: SessionRecord
  /** Fixed by the first request. */
  era: 'handshake' | 'modern' | undefined
  /** An `initialize` has been answered, here or elsewhere. */
  #initialized: boolean
  #initializing = false
  #closed = false
  readonly #stateless: boolean
  readonly #principal: Principal | undefined
  readonly #send: Send | undefined
  readonly #reachable: (() => boolean | Promise<boolean>) | undefined
  readonly #save: SessionOptions['save']
  readonly #subscribe: SessionOptions['subscribe']
  // Not by id: a client that uses one twice at once must not lose hold of the first.
  #inflight: Roster<Call> | undefined
  #questions: Questions | undefined
  #subscriptions: Set<string> | undefined

  constructor (server: ProtocolServer, options: SessionOptions) {
    const { transport = 'memory', send, reachable, principal, register = true, preinitialized, record, isNew = false, save, subscribe } = options
    this.server = server
    this.transport = transport
    this.#send = send
    this.#reachable = reachable
    this.#save = save
    this.#subscribe = subscribe
    this.#principal = principal
    this.#stateless = preinitialized !== undefined
    this.#initialized = (record !== undefined && !isNew) || preinitialized !== undefined
    this.record = record ?? newRecord(server.defaultLogLevel, preinitialized)
    this.era = this.#initialized ? 'handshake' : undefined
    if (register && send !== undefined) server.changes.addSession(this)
  }

  /** URIs whose updates it wants, as far as this process has to know: where its stream is. */
  get subscriptions (): Set<string> {
    this.#subscriptions ??= new Set()
    return this.#subscriptions
  }

  set subscriptions (uris: Iterable<string>) {
    const all = new Set(uris)
    this.#subscriptions = all.size === 0 ? undefined : all
  }

  get closed (): boolean { return this.#closed }
  /** Has its `initialize` been answered? */
  get initialized (): boolean { return this.#initialized }
  get protocolVersion (): Version | undefined { return this.era === undefined ? undefined : this.era === 'modern' ? MODERN[0] : this.record.version }
  /** What its calls have in common, for the layer: the id where there is one. A single request over HTTP is no connection. */
  get connection (): string | this | undefined { return this.record.id || (this.transport === 'http' ? undefined : this) }
  /** The handshake era without sessions: no answer of the client would find it. */
  get isStateless (): boolean { return this.#stateless }
  get busy (): boolean { return this.#inflight !== undefined && this.#inflight.size > 0 }
  /** Questions to the client that wait for an answer. */
  get questions (): Questions {
    this.#questions ??= new Questions()
    return this.#questions
  }

  /** Is there a way to the peer beside the streams of requests? */
  reachable (): boolean | Promise<boolean> {
    return this.#reachable === undefined ? this.#send !== undefined : this.#reachable()
  }

  send (message: object, seen?: string): void | Promise<void> {
    return this.#closed ? undefined : this.#send?.(message, seen)
  }

  /** Takes one decoded message or a batch. */
  handle (message: unknown, exchange: Exchange = {}): Promise<Answer> {
    return new Promise((resolve, reject) => this.serve(message, exchange, { answered: resolve, failed: reject }))
  }

  /** Like `handle`, and quicker: a promise that is passed on takes every call a few turns of the microtask queue. */
  serve (message: unknown, exchange: Exchange, waiter: Waiter): void {
    if (Array.isArray(message)) this.#batch(message, exchange).then((answer) => waiter.answered(answer), (error) => waiter.failed(error))
    else this.#single(message, exchange, waiter)
  }

  /** Aborts one call of this session, as its client wants. Unknown ids are ignored: it may have just ended. */
  cancel (id: RequestId, reason?: string): boolean {
    let found = false
    for (const call of this.#inflight ?? []) {
      if (call.requestId !== id) continue
      found = true
      call.abort(new Error(reason ?? 'The client cancelled the request'))
    }
    return found
  }

  /** Ends the session: calls in flight are aborted and not answered, changes no longer reach it. */
  close (reason?: Error): void {
    if (this.#closed) return
    this.#closed = true
    this.server.changes.removeSession(this)
    if (this.connection !== undefined) this.server.layer.disconnect?.(this.connection)
    if (!this.busy && this.#questions === undefined) return
    // Made for those who hear of it: most sessions end at rest.
    const why = reason ?? new Error('The session has ended')
    for (const call of this.#inflight ?? []) call.abort(why)
    this.#questions?.rejectAll(why)
  }

  /** Takes the client's answer to a question that was asked here. */
  settle (response: Params): boolean {
    return this.#questions?.settle(response) === true
  }

  /** Takes the state as another process may have left it. */
  adopt (record: SessionRecord): void {
    this.record = record
    if (record.isNew !== false || this.era !== undefined) return
    this.#initialized = true
    this.era = 'handshake'
  }

  async save (part: SessionUpdate): Promise<void> {
    await this.#save?.(part)
    Object.assign(this.record, part)
  }

  /** False when there are too many subscriptions. */
  async subscribe (uri: string): Promise<boolean> {
    // What is known here of a session that lives elsewhere may be out of date.
    const accepted = this.#subscribe === undefined ? this.subscriptions.has(uri) || this.subscriptions.size < MAX_SUBSCRIPTIONS : await this.#subscribe(uri, true)
    if (accepted) this.subscriptions.add(uri)
    return accepted
  }

  async unsubscribe (uri: string): Promise<void> {
    await this.#subscribe?.(uri, false)
    this.subscriptions.delete(uri)
  }

  // ---- batches

  async #batch (messages: unknown[], exchange: Exchange): Promise<Answer> {
    if (messages.length === 0) return failure(null, { code: codes.invalidRequest, message: 'Invalid Request: empty batch' })
    const version = this.protocolVersion
    if (version === undefined || !featuresOf(version).batch) {
      const why = version === undefined ? 'before initialization' : `by protocol version ${version}`
      return failure(null, { code: codes.invalidRequest, message: `JSON-RPC batches are not supported ${why}` })
    }
    if (messages.length > this.server.maxBatch) {
      return failure(null, { code: codes.invalidRequest, message: `Invalid Request: more than ${this.server.maxBatch} messages in a batch` })
    }
    const replies = await Promise.all(messages.map(async (message) => isInitialize(message)
      ? failure(replyId(message), { code: codes.invalidRequest, message: 'Invalid Request: initialize must not be part of a batch' })
      : new Promise<Answer>((resolve, reject) => this.#single(message, exchange, { answered: resolve, failed: reject }))))
    const answers = replies.flatMap((reply) => reply ?? [])
    return answers.length === 0 ? undefined : answers
  }

  // ---- single messages

  #single (message: unknown, exchange: Exchange, waiter: Waiter): void {
    const problem = invalid(message)
    if (problem !== undefined) return waiter.answered(problem)
    const { id, method, params } = message as { id?: RequestId, method?: string, params?: unknown }
    if (method === undefined) {
      this.#response(message as Params).then(() => waiter.answered(undefined), (error) => waiter.failed(error))
    } else if (params !== undefined && params !== null && !isObject(params)) {
      waiter.answered(id === undefined ? undefined : failure(id, { code: codes.invalidParams, message: 'params must be an object' }))
    } else if (id === undefined) {
      this.#notification(method, (params ?? {}) as Params).then(() => waiter.answered(undefined), (error) => waiter.failed(error))
    } else {
      this.#request(id, method, (params ?? {}) as Params, exchange, waiter)
    }
  }

  #request (id: RequestId, method: string, params: Params, exchange: Exchange, waiter: Waiter): void {
    let call: Call
    let run: Method
    try {
      const envelope = this.#route(method, params)
      const found = methodOf(envelope === undefined ? 'handshake' : 'modern', method, this.server.layer.capabilities)
      if (found === undefined) throw new RpcError(codes.methodNotFound, 'Method not found', method)
      run = found
      call = new Call(this, id, method, params, envelope?.version ?? this.record.version, envelope, exchange.request ?? this.#requestInfo(envelope), exchange, waiter)
    } catch (error) {
      return waiter.answered(this.#failed(id, method, undefined, error))
    }
    this.#serve(call, run, exchange)
  }

  /** From here to the end of the call, which comes once: with its result, with why there is none, or with its abort. */
  #serve (call: Call, run: Method, { principal = this.#principal, signal }: Exchange): void {
    this.#track(call)
    if (signal !== undefined) call.listen(signal)
    if (principal !== undefined) this.#run(call, run, principal)
    else this.server.resolvePrincipal(call.request).then((who) => this.#run(call, run, who), (error) => this.#fail(call, error))
  }

  #run (call: Call, run: Method, principal: Principal): void {
    if (call.ended) return
    call.principal = principal
    try {
      run(call, call.params).then((result) => this.#succeed(call, result), (error) => this.#fail(call, error))
    } catch (error) {
      this.#fail(call, error)
    }
  }

  #succeed (call: Call, result: Result): void {
    if (call.ended) return
    let reply: Reply
    try {
      reply = success(call.requestId, result)
    } catch (error) {
      return this.#fail(call, error)
    }
    this.#end(call, reply)
  }

  #fail (call: Call, error: unknown): void {
    if (!call.ended) this.#end(call, call.cancelled ? undefined : this.#failed(call.requestId, call.method, call, error))
  }

  #end (call: Call, reply: Reply | undefined): void {
    call.end()
    this.#inflight?.delete(call)
    if (call.method === 'initialize') {
      this.#initialized = reply !== undefined && 'result' in reply
      this.#initializing = false
      if (!this.#initialized) this.era = undefined
    }
    call.waiter.answered(reply)
  }

  /** A call that there is no longer a result to wait for. */
  stopped (call: Call, reason: Error): void {
    this.#fail(call, reason)
  }

  /** The answer to a request that came to no result; to a 2026 call that has to ask first, its questions. */
  #failed (id: RequestId, method: string, call: Call | undefined, error: unknown): Reply {
    try {
      if (!(error instanceof SuspendedError) || call?.suspended !== true) throw error
      return success(id, stamp(call.rounds.result(), this.server.serverInfo(call.protocolVersion), undefined))
    } catch (error) {
      if (isCrash(error)) this.server.log.error({ err: error, method }, 'a request failed')
      return failure(id, error instanceof RpcError ? error : { code: codes.internalError, message: 'Internal error' })
    }
  }

  /** Which era serves this request: the envelope of a modern one, nothing for the handshake era. */
  #route (method: string, params: Params): Envelope | undefined {
    if (method === 'initialize') {
      if (this.era === 'modern') {
        const requested: unknown = params.protocolVersion
        throw new RpcError(codes.unsupportedVersion, MODERN_CONNECTION, { supported: MODERN, ...(typeof requested === 'string' && { requested }) })
      }
      if (this.#initialized || this.#initializing) throw new RpcError(codes.invalidRequest, 'Session already initialized')
      this.#initializing = true
      this.era = 'handshake'
      return undefined
    }
    const meta = envelopeOf(params)
    if (meta !== undefined) {
      if (this.era === 'handshake') throw new RpcError(codes.invalidRequest, HANDSHAKE_CONNECTION)
      const envelope = readEnvelope(meta)
      this.era = 'modern'
      return envelope
    }
    if (this.era === 'modern') throw new RpcError(codes.invalidParams, NO_ENVELOPE)
    if (!this.#initialized && method !== 'ping') throw new RpcError(codes.invalidRequest, 'Server not initialized: send initialize first')
    return undefined
  }

  async #notification (method: string, params: Params): Promise<void> {
    if (method === 'notifications/initialized' && this.era === 'handshake' && !this.record.initialized) {
      await this.save({ initialized: true })
    } else if (method === 'notifications/cancelled' && isRequestId(params.requestId)) {
      const reason = typeof params.reason === 'string' ? params.reason : undefined
      if (!this.cancel(params.requestId, reason)) await this.server.cancelElsewhere(this, params.requestId, reason)
    }
  }

  /** An answer to a question of ours: it may have been asked by another process. A stray one is ignored. */
  async #response (message: Params): Promise<void> {
    if (!this.settle(message)) await this.server.answerElsewhere(this, message)
  }

  #requestInfo (envelope: Envelope | undefined): RequestInfo {
    return {
      transport: this.transport,
      headers: {},
      clientInfo: envelope === undefined ? this.record.clientInfo : envelope.clientInfo,
      ...(this.#principal && { principal: this.#principal })
    }
  }

  #track (call: Call): void {
    this.#inflight ??= new Roster()
    this.#inflight.add(call)
  }
}

function newRecord (logLevel: string, version: HandshakeVersion = LATEST_HANDSHAKE): SessionRecord {
  return { id: '', owner: '', kind: 'http', version, initialized: false, capabilities: {}, logLevel }
}

/** The record of a session that is about to be created for a principal. */
export function sessionRecord (id: string, kind: SessionRecord['kind'], owner: Principal, logLevel: string): SessionRecord {
  return { ...newRecord(logLevel), id, kind, owner: identityOf(owner) }
}

function isInitialize (message: unknown): boolean {
  return isObject(message) && message.method === 'initialize'
}

/** The answer to a message that is no JSON-RPC 2.0 message; nothing when it is one. */
function invalid (message: unknown): Reply | undefined {
  if (!isObject(message) || message.jsonrpc !== '2.0') return invalidRequest(message)
  const { method, id } = message
  if (method === undefined && !('method' in message)) return 'result' in message || 'error' in message ? undefined : invalidRequest(message)
  if (typeof method !== 'string') return invalidRequest(message, ': method must be a string')
  if (!isRequestId(id) && 'id' in message) return invalidRequest(undefined, ': bad id')
  return undefined
}

function invalidRequest (message: unknown, detail = ''): Reply {
  return failure(replyId(message), { code: codes.invalidRequest, message: `Invalid Request${detail}` })
}
