// One exchange: a message goes to a session, and what comes back becomes the payload of the HTTP response.
// SSE is committed late: until the first notification has had a turn of the event loop, or 100 ms have passed, the answer
// may still be one string with a Content-Length, or JSON with a status of its own.

import type { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import type { Reply } from '../jsonrpc.js'
import { codes, encode, encodeBytes, failure, replyId } from '../jsonrpc.js'
import type { Principal, RequestInfo } from '../principal.js'
import type { Exchange as SessionExchange } from '../protocol/call.js'
import type { Session } from '../protocol/session.js'
import { jsonReply } from './refusal.js'
import { hasLeft } from './request.js'
import type { EventLog } from './resumable.js'
import { EventStream, frame, SSE_HEADERS } from './stream.js'
import type { KeepAlive } from './stream.js'

/** The body of a response; nothing for an empty one. */
export type Payload = string | Buffer | Readable | undefined

/** `json`: no stream; `sse`: one; `auto`: one if there is something to stream. */
export type Mode = 'json' | 'sse' | 'auto'

export interface ExchangeOptions {
  reply: FastifyReply
  session: Session
  message: unknown
  mode: Mode
  principal: Principal
  request: RequestInfo
  /** The client's leaving aborts the work (2026, and every listen). */
  abortOnLeave: boolean
  /** Makes the stream one that the client can come back to; it is committed at once then. */
  log?: EventLog | undefined
  /** Begin with an event that has an id and nothing else. */
  prime?: boolean
  /** Called when the exchange is over, however it ended. */
  done: () => void
}

// Errors of the 2026 era whose HTTP status the specification fixes.
const fixedStatus = new Map<number, number>([
  [codes.methodNotFound, 404],
  [codes.missingClientCapability, 400],
  [codes.headerMismatch, 400],
  [codes.unsupportedVersion, 400]
])

const COMMIT_AFTER = 100
const MAX_BUFFERED = 64 * 1024
// An aborted call is answered within a turn of the event loop; what does not end even then is left behind.
const AFTER_ABORT = 100

/** Exchanges that are under way, so that a closing server can end them. */
export class Exchanges {
  readonly #keepAlive: KeepAlive
  readonly #open = new Set<Exchange>()

  constructor (keepAlive: KeepAlive) {
    this.#keepAlive = keepAlive
  }

  get size (): number { return this.#open.size }

  /** Resolves to the payload of the response; status and headers are on the reply by then. */
  run (options: ExchangeOptions): Promise<Payload> {
    const exchange = new Exchange(options, this.#keepAlive, () => this.#open.delete(exchange))
    this.#open.add(exchange)
    return exchange.run()
  }

  /** Ends all work within `grace` ms: what is not answered by then is aborted, and its client told. */
  async close (grace: number): Promise<void> {
    await this.#settled(grace)
    for (const exchange of this.#open) exchange.shutDown()
    await this.#settled(AFTER_ABORT)
  }

  /** Resolves when nothing is under way any more, or after `ms`. */
  async #settled (ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<boolean>((resolve) => { timer = setTimeout(resolve, ms, true) })
    while (this.#open.size > 0 && await Promise.race([late, ...Array.from(this.#open, ({ done }) => done)]) !== true);
    clearTimeout(timer)
  }
}

class Exchange {
  readonly #options: ExchangeOptions
  readonly #keepAlive: KeepAlive
  readonly #forget: () => void
  #respond!: (payload: Payload) => void
  #frames: string[] = []
  #buffered = 0
  #stream: EventStream | undefined
  #timer: NodeJS.Timeout | undefined
  #responded = false
  #shutDown = false
  #left = false
  #overflowed = false
  #done: Promise<void> | undefined
  #markDone: (() => void) | undefined

  constructor (options: ExchangeOptions, keepAlive: KeepAlive, forget: () => void) {
    this.#options = options
    this.#keepAlive = keepAlive
    this.#forget = forget
  }

  /** Resolves when the exchange is over. */
  get done (): Promise<void> {
    this.#done ??= new Promise((resolve) => { this.#markDone = resolve })
    return this.#done
  }

  run (): Promise<Payload> {
    return new Promise((resolve, reject) => {
      this.#respond = resolve
      void this.#serve(reject)
    })
  }

  async #serve (reject: (error: unknown) => void): Promise<void> {
    const { reply, session, message, mode, principal, request, abortOnLeave, log, prime, done } = this.#options
    try {
      if (hasLeft(reply)) {
        this.#onClose()
        if (abortOnLeave) return
      } else {
        reply.raw.once('close', () => this.#onClose())
      }
      const exchange: SessionExchange = { principal, request }
      if (mode !== 'json') exchange.sink = (notification) => this.#take(notification)
      if (log !== undefined) {
        this.#commit()
        exchange.closeStream = () => this.#leaveStream(log)
        if (prime === true) void log.prime(this.#write).catch(this.#lost)
      } else if (mode !== 'json') {
        exchange.isRead = () => !this.#left
        this.#timer = setTimeout(this.#commit, COMMIT_AFTER)
      }
      const kept = this.#finish(await session.handle(message, exchange))
      if (kept !== undefined) await kept
    } catch (error) {
      reject(error)
    } finally {
      clearTimeout(this.#timer)
      this.#forget()
      done()
      this.#markDone?.()
    }
  }

  /** The server closes: the work is aborted, and a client that waits is told. */
  shutDown (): void {
    this.#shutDown = true
    this.#options.session.close(new Error('The server is shutting down'))
  }

  #take (notification: object): void | Promise<void> {
    const { log } = this.#options
    if (log !== undefined) return log.append(notification, { write: this.#write }).catch(this.#lost)
    if (this.#stream !== undefined) return this.#stream.send(notification)
    const text = frame(notification)
    if (this.#frames.push(text) === 1) setImmediate(this.#commit)
    this.#buffered += text.length
    if (this.#buffered > MAX_BUFFERED) this.#commit()
    return undefined
  }

  get #write (): (text: string) => void | Promise<void> {
    return (text) => this.#stream?.write(text)
  }

  get #lost (): (error: unknown) => void {
    return (error) => this.#options.reply.log.error({ err: error }, 'a message of a resumable stream could not be kept')
  }

  /** Ends the stream, not the work: the rest is kept for the client that comes back. */
  #leaveStream (log: EventLog): boolean {
    void log.flush().then(() => this.#stream?.finish())
    return true
  }

  /** From here on it is a stream of events, with status 200. */
  readonly #commit = (): void => {
    if (this.#responded) return
    this.#stream = new EventStream(this.#keepAlive, this.#frames.length === 0 ? undefined : this.#frames.join(''))
    this.#stream.onOverflow = () => this.#onOverflow()
    this.#frames = []
    this.#answer(this.#stream, SSE_HEADERS)
  }

  #onOverflow (): void {
    const { reply, log } = this.#options
    // What is kept is not lost: the client comes back for it.
    if (log !== undefined) this.#stream!.finish()
    else if (!this.#overflowed) reply.log.warn('a client reads its stream too slowly: notifications are dropped')
    this.#overflowed = true
  }

  /** A promise where the answer is kept before it is sent. */
  #finish (answer: Reply | Reply[] | undefined): void | Promise<void> {
    const { mode, message, session } = this.#options
    const replies = this.#shutDown && answer === undefined
      ? [failure(replyId(message), { code: codes.internalError, message: 'The server is shutting down' })]
      : answer === undefined ? [] : Array.isArray(answer) ? answer : [answer]
    const { log } = this.#options
    if (log !== undefined) {
      for (const one of replies) void log.append(one, { write: this.#write }).catch(this.#lost)
      return log.end().catch(this.#lost).then(() => this.#stream?.finish())
    }
    if (this.#stream !== undefined) {
      this.#stream.finish(replies.map(frame).join(''))
      return undefined
    }
    if (this.#responded) return undefined
    const only = replies.length === 1 && !Array.isArray(answer) ? replies[0]! : undefined
    const status = session.era === 'modern' && only !== undefined && 'error' in only ? fixedStatus.get(only.error.code) : undefined
    const asJson = mode === 'json' || (this.#frames.length === 0 && (mode === 'auto' || status !== undefined))
    if (!asJson) {
      this.#answer(this.#frames.join('') + replies.map(frame).join(''), SSE_HEADERS)
    } else if (replies.length === 0) {
      void this.#options.reply.code(202)
      this.#answer(undefined, {})
    } else {
      if (status !== undefined) void this.#options.reply.code(status)
      void jsonReply(this.#options.reply)
      this.#answer(only === undefined ? `[${replies.map(encode).join(',')}]` : encodeBytes(only), {})
    }
    return undefined
  }

  #answer (payload: Payload, headers: Record<string, string>): void {
    const { reply } = this.#options
    this.#responded = true
    for (const name in headers) void reply.header(name, headers[name])
    this.#respond(payload)
  }

  #onClose (): void {
    const { reply, session, abortOnLeave } = this.#options
    // Over HTTP/2 a response counts as finished when its client resets it: what tells is that it was never ended.
    if (reply.raw.writableEnded) return
    this.#left = true
    clearTimeout(this.#timer)
    if (abortOnLeave) session.close(new Error('The client has gone'))
    if (this.#responded) return
    this.#responded = true
    this.#respond(undefined)
  }
}
