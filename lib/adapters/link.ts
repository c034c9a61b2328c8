// One connection to a hosted server, within this process: the transport that an SDK's server is connected to, and the calls that
// are under way on it. It speaks the SDK's own protocol, so that nothing of the server has to be known. Contract: `Transport` of
// the official SDKs.

import type { Params, Result } from '../jsonrpc.js'
import { codes, isObject, RpcError } from '../jsonrpc.js'
import type { CallPort, Logger } from '../layer/context.js'
import { MissingCapabilityError, SuspendedError } from '../layer/errors.js'
import type { ChangeEvent } from '../layer/contract.js'
import type { HandshakeVersion } from '../revisions.js'
import type { MessageExtra } from './caller.js'

type Message = Record<string, any>

export interface LinkOptions {
  /** Of a server that has been told to serve 2026 no handshake is made. */
  version: HandshakeVersion | 'modern'
  capabilities: Params
  clientInfo: Params | undefined
  sessionId?: string | undefined
  /** All calls are those of one client: what the server sends on its own account is for it. */
  exclusive: boolean
  onChange: (event: ChangeEvent) => void
  log: Logger
}

interface Call {
  port: CallPort | undefined
  resolve: (result: Result) => void
  reject: (error: Error) => void
  /** Ends listening for an abort. */
  release: () => void
  /** 2026: it asked for what the client has not declared. */
  missing?: MissingCapabilityError
}

const SENT = Promise.resolve()
const questions = new Set<unknown>(['elicitation/create', 'sampling/createMessage', 'roots/list'])
const changes: Record<string, ChangeEvent['kind']> = {
  'notifications/tools/list_changed': 'tools',
  'notifications/resources/list_changed': 'resources',
  'notifications/prompts/list_changed': 'prompts',
  'notifications/resources/updated': 'resource'
}

export class Link {
  // The transport's side: set by the server that is connected.
  onmessage?: (message: Message, extra?: MessageExtra) => void
  onclose?: () => void
  onerror?: (error: Error) => void
  readonly sessionId?: string

  /** What the server answered to `initialize`. */
  handshake: Result = {}
  /** A call was given up while its handler may still run: what the server sends can no longer be told apart. */
  spoiled = false
  readonly #options: LinkOptions
  readonly #calls = new Map<number, Call>()
  #lastId = 0
  #closed = false

  constructor (options: LinkOptions) {
    this.#options = options
    if (options.sessionId !== undefined) this.sessionId = options.sessionId
  }

  /** The server serves 2026 by itself. */
  get modern (): boolean { return this.#options.version === 'modern' }
  get closed (): boolean { return this.#closed }
  get busy (): boolean { return this.#calls.size > 0 }

  /** The server is connected when the handshake has been made, so that it never sees a client that says nothing of itself. */
  async start (): Promise<void> {
    const { version, capabilities, clientInfo = { name: 'unknown', version: '0' } } = this.#options
    if (version === 'modern') return
    this.handshake = await this.request('initialize', { protocolVersion: version, capabilities, clientInfo })
    this.onmessage?.({ jsonrpc: '2.0', method: 'notifications/initialized' })
  }

  async close (): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.onclose?.()
    const gone = new RpcError(codes.internalError, 'The hosted server has closed the connection')
    for (const { reject, release } of this.#calls.values()) {
      release()
      reject(gone)
    }
    this.#calls.clear()
  }

  /** Makes a request of the server. Its JSON-RPC errors are thrown as they are. */
  request (method: string, params: Params, port?: CallPort, extra?: MessageExtra): Promise<Result> {
    const { onmessage } = this
    if (this.#closed || onmessage === undefined) return Promise.reject(new RpcError(codes.internalError, 'The hosted server has closed the connection'))
    const id = ++this.#lastId
    if (port === undefined) {
      return new Promise((resolve, reject) => {
        this.#calls.set(id, { port, resolve, reject, release: nothing })
        onmessage({ jsonrpc: '2.0', id, method, params }, extra)
      })
    }
    const meta = port.meta?.progressToken === undefined ? params._meta : { ...params._meta, progressToken: id }
    return new Promise((resolve, reject) => {
      const call: Call = { port, resolve, reject, release: nothing }
      this.#calls.set(id, call)
      call.release = onAbort(port, (reason) => this.#giveUp(id, reason))
      // It may have been aborted before.
      if (this.#calls.has(id)) onmessage({ jsonrpc: '2.0', id, method, params: meta === undefined ? params : { ...params, _meta: meta } }, extra)
    })
  }

  /** Takes what the server sends. The promise resolves when there is room for more. */
  send (message: Message, options?: { relatedRequestId?: unknown }): Promise<void> {
    if (this.#closed) return SENT
    if (message.method === undefined) this.#settle(message)
    else if (message.id === undefined) return this.#notified(message, options?.relatedRequestId)
    else void this.#asked(message, options?.relatedRequestId)
    return SENT
  }

  #settle ({ id, result, error }: Message): void {
    const call = this.#calls.get(id)
    // A call that was given up is answered all the same by some handlers.
    if (call === undefined) return
    this.#calls.delete(id)
    call.release()
    // A handler that can do without goes on; of one that cannot, the client has to know why.
    if (call.missing !== undefined && (isObject(error) || result?.isError === true)) call.reject(call.missing)
    else if (isObject(error)) call.reject(new RpcError(Number.isSafeInteger(error.code) ? error.code : codes.internalError, String(error.message), error.data))
    else call.resolve(result)
  }

  /** Tells the server that nobody waits for an answer any more. */
  #giveUp (id: number, reason: unknown): void {
    const call = this.#calls.get(id)
    if (call === undefined) return
    this.#calls.delete(id)
    call.release()
    this.spoiled = true
    const why = reason instanceof Error ? reason : new Error('The call was aborted')
    this.onmessage?.({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id, reason: why.message } })
    call.reject(why)
  }

  /** The call that a message of the server belongs to: the one it names, or, where all are of one client, the latest. */
  #callOf (related: unknown): [number, CallPort] | undefined {
    if (related !== undefined) {
      const port = this.#calls.get(related as number)?.port
      return port && [related as number, port]
    }
    if (!this.#options.exclusive) return undefined
    let latest: [number, CallPort] | undefined
    for (const [id, { port }] of this.#calls) if (port !== undefined) latest = [id, port]
    return latest
  }

  async #notified ({ method, params = {} }: Message, related: unknown): Promise<void> {
    const kind = changes[method]
    if (kind !== undefined) {
      if (kind !== 'resource') this.#options.onChange({ kind })
      else if (typeof params.uri === 'string') this.#options.onChange({ kind, uri: params.uri })
    } else if (method === 'notifications/progress') {
      await this.#calls.get(params.progressToken)?.port?.progress(params.progress, params.total, params.message)
    } else if (method === 'notifications/message') {
      await this.#callOf(related)?.[1].notifyLog(params.level, params.data, params.logger)
    }
  }

  async #asked (message: Message, related: unknown): Promise<void> {
    const answer = await this.#answerTo(message, related)
    this.onmessage?.({ jsonrpc: '2.0', id: message.id, ...answer })
  }

  async #answerTo ({ method, params = {} }: Message, related: unknown): Promise<{ result: Result } | { error: { code: number, message: string, data?: unknown } }> {
    if (method === 'ping') return { result: {} }
    if (!questions.has(method)) return { error: { code: codes.methodNotFound, message: `Method not found: a hosted server cannot send '${method}'` } }
    if (!this.#options.exclusive && related === undefined) return { error: { code: codes.invalidRequest, message: SHARED } }
    // What a server asks as soon as it is connected is asked in the name of the call that it was connected for, which is on its way.
    if (!this.busy) await new Promise((resolve) => { setImmediate(resolve) })
    const call = this.#callOf(related)
    if (call === undefined) return { error: { code: codes.invalidRequest, message: 'The client can be asked during one of its calls only' } }
    const [id, port] = call
    try {
      return { result: await port.ask({ method, params: stable(params, port), read: (response) => isObject(response) ? response : undefined }) as Result }
    } catch (error) {
      // The call is over until the client has answered; it then runs again, from its start.
      if (error instanceof SuspendedError) this.#giveUp(id, error)
      const asking = this.#calls.get(id)
      if (error instanceof MissingCapabilityError && asking !== undefined) asking.missing = error
      return { error: errorOf(error) }
    }
  }
}

function nothing (): void {}

function onAbort (port: CallPort, listener: (reason: unknown) => void): () => void {
  if (port.onAbort !== undefined) return port.onAbort(listener)
  const { signal } = port
  const told = (): void => listener(signal.reason)
  if (signal.aborted) told()
  else signal.addEventListener('abort', told, { once: true })
  return () => signal.removeEventListener('abort', told)
}

const SHARED = 'This server is one instance for all clients, so it cannot ask one of them: give hostServer() a function that makes a server'

/** Without what differs from run to run, or 2026 does not know: a question is found again by its text. */
function stable ({ _meta, ...params }: Params, port: CallPort): Params {
  if (port.era === 'modern') delete params.elicitationId
  return params
}

function errorOf (error: unknown): { code: number, message: string, data?: unknown } {
  if (error instanceof RpcError) return { code: error.code, message: error.message, data: error.data }
  if (error instanceof MissingCapabilityError) return { code: codes.missingClientCapability, message: error.message, data: error.data }
  return { code: codes.internalError, message: error instanceof Error ? error.message : String(error) }
}
