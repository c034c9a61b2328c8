// The ctx that a handler gets. It says what the handler may know and do; how it is done is behind CallPort,
// which the protocol engine implements for every request.

import type { Principal, RequestInfo } from '../principal.js'
import { localUser } from '../principal.js'
import type { Era, Version } from '../revisions.js'
import type { Ask, AskOptions, ElicitResult, Question, Root, SamplingParams, SamplingResult } from './ask.js'
import { elicit, elicitUrl, listRoots, sample } from './ask.js'
import type { ResourceContents, ResourceLink, Annotations } from './content.js'
import { MissingCapabilityError } from './errors.js'
import type { InferInput, SchemaInput } from './schema.js'

export const LOG_LEVELS = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const
export type LogLevel = typeof LOG_LEVELS[number]

/** The part of a pino logger that is used. */
export interface Logger {
  debug: (...args: any[]) => void
  info: (...args: any[]) => void
  warn: (...args: any[]) => void
  error: (...args: any[]) => void
  child?: (bindings: Record<string, unknown>) => Logger
}

export const silent: Logger = { debug () {}, info () {}, warn () {}, error () {} }

/** What the engine offers to one call. */
export interface CallPort {
  readonly principal: Principal
  readonly request: RequestInfo
  readonly requestId: string | number
  readonly era: Era
  readonly protocolVersion: Version
  readonly clientCapabilities: Readonly<Record<string, any>>
  readonly signal: AbortSignal
  readonly log: Logger
  /** Aborts the signal; the call itself is answered. */
  stop (reason: Error): void
  /** Another run of the same call begins; after a `stop` it has a signal of its own. */
  renew? (): void
  progress (progress: number, total?: number, message?: string): Promise<void>
  notifyLog (level: string, data: unknown, logger?: string): Promise<void>
  ask (question: Question): Promise<unknown>
  /** Answers to the questions of an explicit `inputRequired()`. */
  readonly inputResponses: Readonly<Record<string, any>>
  /** What an explicit `inputRequired()` wanted back. */
  readonly requestState: unknown
  closeStream (): boolean
  /** Called with the reason when `signal` is aborted; to listen to it costs much more. Returns what takes that back. */
  onAbort? (listener: (reason: Error) => void): () => void
  /** `_meta` of the request, as it was sent. */
  readonly meta?: Readonly<Record<string, unknown>> | undefined
  /** What all calls of one connection have in common: the id of their session, or an object. Nothing where a request stands alone. */
  readonly connection?: string | object | undefined
}

export interface LinkOptions { title?: string, description?: string, mimeType?: string, size?: number, annotations?: Annotations }

export interface Notify {
  /** A log message for the client, if it asked for messages of this level. An unknown level counts as `info`. */
  log: (level: LogLevel | (string & {}), data: unknown, logger?: string) => Promise<void>
}

/** Reads a resource of the layer that the call belongs to. */
export type ResourceReader = (uri: string, port: CallPort, outer: Context) => Promise<ResourceContents[]>

export class Context {
  readonly #port: CallPort
  readonly #read: ResourceReader
  #links: ResourceLink[] | undefined
  /** Of a run that was stopped: it must not see the signal of the next one. */
  #stopped: AbortSignal | undefined
  #asked = false
  readonly #outer: Context | undefined
  #begun = false

  /** @param outer of the call that reads this resource */
  constructor (port: CallPort, read: ResourceReader, outer?: Context) {
    this.#port = port
    this.#read = read
    this.#outer = outer
  }

  /** Who calls. Resolved anew for every request. */
  get principal (): Principal { return this.#port.principal }
  /** Transport, headers, session id and client info of the request. */
  get request (): RequestInfo { return this.#port.request }
  /** The JSON-RPC id of the request, with its type. */
  get requestId (): string | number { return this.#port.requestId }
  get era (): Era { return this.#port.era }
  get protocolVersion (): Version { return this.#port.protocolVersion }
  get clientCapabilities (): Readonly<Record<string, any>> { return this.#port.clientCapabilities }
  /** Aborted when the client cancels or leaves, on a timeout, and when the server closes. */
  get signal (): AbortSignal { return this.#stopped ?? this.#port.signal }
  /** The server's own log, with the request's bindings. The client never sees it. */
  get log (): Logger { return this.#port.log }

  /**
   * Tells the client how far the work is. Sent only when the client asked for progress, and only when `progress` has grown.
   * Resolves when the stream has room, so awaiting it lets a slow reader slow the producer.
   */
  progress (progress: number, total?: number, message?: string): Promise<void> {
    return this.#port.progress(progress, total, message)
  }

  get notify (): Notify {
    return { log: (level, data, logger) => this.#port.notifyLog(level, data, logger) }
  }

  /**
   * Asks the user to fill in a form. In the handshake era the client is asked while the handler waits; in 2026-07-28 the
   * handler ends here and **runs again from its start** once the answer is there, so do nothing before that must not be
   * done twice (or declare the question in the tool's `inputs`).
   * @param schema a flat zod shape or object, or JSON Schema of primitives
   * @throws MissingCapabilityError (2026) or a refusal when the client did not declare elicitation
   */
  elicit<const S extends SchemaInput> (message: string, schema: S, options?: AskOptions): Promise<ElicitResult<InferInput<S>>> {
    return this.ask(elicit(message, schema, options))
  }

  /** Sends the user to a page, for what must not pass through the client. See {@link elicit}. */
  elicitUrl (message: string, url: string, options?: AskOptions & { elicitationId?: string }): Promise<ElicitResult<undefined>> {
    return this.ask(elicitUrl(message, url, options))
  }

  /** Asks the client's model. See {@link elicit}. */
  sample (params: SamplingParams, options?: AskOptions): Promise<SamplingResult> {
    return this.ask(sample(params, options))
  }

  /** The directories that the client lets servers work in. See {@link elicit}. */
  listRoots (options?: AskOptions): Promise<Root[]> {
    return this.ask(listRoots(options))
  }

  /** Asks a question made with `elicit()`, `elicitUrl()`, `sample()` or `listRoots()`. */
  ask<T> (question: Ask<T>): Promise<T> {
    this.#depend()
    // Not for this run: there may be another one.
    if (this.#stopped !== undefined) return rejected(this.#stopped.reason as Error)
    return this.#port.ask(question) as Promise<T>
  }

  /** Answers to the questions of an explicit `inputRequired()`, by key; empty on the first run, and in a resource that another call reads. */
  get inputResponses (): Readonly<Record<string, any>> {
    this.#depend()
    return this.#outer === undefined ? this.#port.inputResponses : {}
  }

  /** What an explicit `inputRequired()` of an earlier run wanted back. */
  get requestState (): unknown {
    this.#depend()
    return this.#outer === undefined ? this.#port.requestState : undefined
  }

  /** What the client says goes into the result: of this call, and of the one that it is part of. */
  #depend (): void {
    this.#asked = true
    if (this.#outer !== undefined) this.#outer.#depend()
  }

  /** @internal Does the result depend on what the client was asked? */
  get asked (): boolean { return this.#asked }

  /**
   * Ends the client's stream while the work goes on: the client comes back for the rest. False where that is not possible
   * (streams are not resumable, or the revision does not know it).
   */
  closeStream (): boolean {
    return this.#port.closeStream()
  }

  /** Reads a resource of the same layer, as the same caller. */
  readResource (uri: string): Promise<ResourceContents[]> {
    return this.#read(uri, this.#port, this)
  }

  /** Appends a link to a resource to the tool's result. */
  link (uri: string, name: string, options: LinkOptions = {}): ResourceLink {
    const link: ResourceLink = { type: 'resource_link', uri, name, ...options }
    this.#links ??= []
    this.#links.push(link)
    return link
  }

  /** @internal */
  stop (reason: Error): void {
    this.#stopped ??= this.#port.signal
    this.#port.stop(reason)
  }

  /** @internal The context of the run that starts now: this one for the first, another for every later one. */
  forRun (): Context {
    if (!this.#begun) {
      this.#begun = true
      return this
    }
    this.#port.renew?.()
    return new Context(this.#port, this.#read, this.#outer).forRun()
  }

  /** @internal */
  takeLinks (): ResourceLink[] | undefined {
    const links = this.#links
    this.#links = undefined
    return links
  }
}

/** Rejected, also when nobody waits for it. */
function rejected (reason: Error): Promise<never> {
  const promise = Promise.reject(reason)
  promise.catch(() => {})
  return promise
}

/** A port for calls that no client made: tests, scripts, exported tools. */
export function localPort (who: Principal = localUser, log: Logger = silent): CallPort {
  let controller = new AbortController()
  return {
    principal: who,
    request: { transport: 'memory', headers: {}, principal: who },
    requestId: 0,
    era: 'modern',
    protocolVersion: '2026-07-28',
    clientCapabilities: {},
    get signal () { return controller.signal },
    log,
    stop (reason) { controller.abort(reason) },
    renew () { if (controller.signal.aborted) controller = new AbortController() },
    async progress () {},
    async notifyLog () {},
    async ask () { throw new MissingCapabilityError({ elicitation: {} }) },
    inputResponses: {},
    requestState: undefined,
    closeStream: () => false
  }
}
