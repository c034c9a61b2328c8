// One exchange: a message goes to a session, and what comes back becomes the payload of the HTTP response.
// SSE is committed late: until the first notification has had a turn of the event loop, or 100 ms have passed, the answer
// may still be one string with a Content-Length, or JSON with a status of its own.

import type { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import type { Reply } from '../jsonrpc.js'
import { codes, encode, encodeParts, failure, replyId } from '../jsonrpc.js'
import type { Principal, RequestInfo } from '../principal.js'
import type { Answer, Exchange as SessionExchange, Waiter } from '../protocol/call.js'
import type { Session } from '../protocol/session.js'
import { featuresOf } from '../revisions.js'
import type { Member } from '../runtime/roster.js'
import { Roster } from '../runtime/roster.js'
import type { Lasting } from '../runtime/turn.js'
import { afterTurn } from '../runtime/turn.js'
import { TwoPartBody } from './direct.js'
import { jsonReply } from './refusal.js'
import { hasLeft, HttpRequest, mcpOf, onLeave } from './request.js'
import type { EventLog } from './resumable.js'
import { EventStream, frame, SSE_HEADERS } from './stream.js'
import type { KeepAlive } from './stream.js'

/** The body of a response. */
export type Body = string | Readable

/** `json`: no stream; `sse`: one; `auto`: one if there is something to stream. */
export type Mode = 'json' | 'sse' | 'auto'

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

export interface ExchangeOptions {
  /** Makes the stream one that the client can come back to; it is committed at once then. */
  log?: EventLog | undefined
  /** Sends the answer; its status and headers are on the reply by then. @default as it is */
  send?: ((body: Body) => void) | undefined
  /** Called when the exchange is over, however it ended. */
  done?: (() => void) | undefined
}

/** Exchanges that are under way, so that a closing server can end them. */
export class Exchanges {
  readonly keepAlive: KeepAlive
  /** What has no answer by now gets one that says why. */
  shutDown = false
  readonly #open = new Roster<Exchange>()

  constructor (keepAlive: KeepAlive) {
    this.keepAlive = keepAlive
  }

  get size (): number { return this.#open.size }

  run (reply: FastifyReply, session: Session, mode: Mode, options: ExchangeOptions): void {
    const exchange = new Exchange(this, reply, session, mode, options)
    this.#open.add(exchange)
    exchange.run()
  }

  /** @internal */
  forget (exchange: Exchange): void {
    this.#open.delete(exchange)
  }

  /** Ends all work within `grace` ms: what is not answered by then is aborted, and its client told. */
  async close (grace: number): Promise<void> {
    await this.#settled(grace)
    this.shutDown = true
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

// Also what the session knows of it: its sink, who calls, whether anybody reads. A class without closures of its own: what is made
// anew for every request, literals too, V8 may come to keep for long.
class Exchange implements Member, Lasting, SessionExchange, Waiter {
  place = -1
  readonly principal: Principal
  readonly request: RequestInfo
  sink: SessionExchange['sink']
  closeStream: SessionExchange['closeStream']
  readonly #all: Exchanges
  readonly #reply: FastifyReply
  readonly #session: Session
  readonly #message: unknown
  readonly #mode: Mode
  readonly #log: EventLog | undefined
  readonly #send: ((body: Body) => void) | undefined
  readonly #onEnd: (() => void) | undefined
  /** The client's leaving aborts the work (2026, and every listen). */
  readonly #abortOnLeave: boolean
  #frames: string | undefined
  #stream: EventStream | undefined
  #timer: NodeJS.Timeout | undefined
  #responded = false
  #left = false
  #overflowed = false
  #over = false
  /** The turn of the event loop that it began in is over. */
  #outlasted = false
  #done: Promise<void> | undefined
  #markDone: (() => void) | undefined

  constructor (all: Exchanges, reply: FastifyReply, session: Session, mode: Mode, { log, send, done }: ExchangeOptions) {
    const { request } = reply
    this.#all = all
    this.#reply = reply
    this.#session = session
    this.#message = request.body
    this.#mode = mode
    this.#log = log
    this.#send = send
    this.#onEnd = done
    const { principal, modern } = mcpOf(request)
    this.#abortOnLeave = modern
    this.principal = principal
    this.request = new HttpRequest(request, session)
  }

  /** Resolves when the exchange is over. */
  get done (): Promise<void> {
    this.#done ??= new Promise((resolve) => { this.#markDone = resolve })
    return this.#done
  }

  run (): void {
    try {
      this.#begin()
    } catch (error) {
      this.failed(error)
    }
  }

  #begin (): void {
    if (hasLeft(this.#reply)) {
      this.#onClose()
      if (this.#abortOnLeave) return this.#end()
    }
    const log = this.#log
    if (this.#mode !== 'json') this.sink = this.#take
    if (log !== undefined) {
      this.#commit()
      this.closeStream = this.#leaveStream
      // An event that has an id and nothing else: what came before the first message can be come back for.
      if (featuresOf(this.#session.record.version).polling) void log.prime(this.#write).catch(this.#lost)
    }
    afterTurn(this)
    this.#session.serve(this.#message, this, this)
  }

  answered (answer: Answer): void {
    try {
      const kept = this.#finish(answer)
      if (kept === undefined) this.#end()
      else kept.then(() => this.#end(), (error) => this.failed(error))
    } catch (error) {
      this.failed(error)
    }
  }

  failed (error: unknown): void {
    if (this.#responded) this.#reply.log.error({ err: error }, 'an exchange failed after its answer had begun')
    else void this.#reply.send(error)
    this.#responded = true
    this.#end()
  }

  #end (): void {
    this.#over = true
    clearTimeout(this.#timer)
    this.#all.forget(this)
    this.#onEnd?.()
    this.#markDone?.()
  }

  lasts (): void {
    if (this.#over || this.#left) return
    if (hasLeft(this.#reply)) return this.#onClose()
    this.#outlasted = true
    onLeave(this.#reply, () => this.#onClose())
    if (this.#mode === 'json' || this.#responded) return
    if (this.#frames !== undefined) this.#commit()
    else this.#timer = setTimeout(() => this.#commit(), COMMIT_AFTER)
  }

  /** The server closes: the work is aborted, and a client that waits is told. */
  shutDown (): void {
    this.#session.close(new Error('The server is shutting down'))
  }

  isRead (): boolean {
    return this.#log !== undefined || !this.#left
  }

  #take (notification: object): void | Promise<void> {
    const log = this.#log
    if (log !== undefined) return log.append(notification, { write: this.#write }).catch(this.#lost)
    if (this.#stream !== undefined) return this.#stream.send(notification)
    const text = frame(notification)
    if (this.#frames === undefined && this.#outlasted) setImmediate(() => this.#commit())
    this.#frames = this.#frames === undefined ? text : this.#frames + text
    if (this.#frames.length > MAX_BUFFERED) this.#commit()
    return undefined
  }

  get #write (): (text: string) => void | Promise<void> {
    return (text) => this.#stream?.write(text)
  }

  get #lost (): (error: unknown) => void {
    return (error) => this.#reply.log.error({ err: error }, 'a message of a resumable stream could not be kept')
  }

  /** Ends the stream, not the work: the rest is kept for the client that comes back. */
  #leaveStream (): boolean {
    void this.#log!.flush().then(() => this.#stream?.finish())
    return true
  }

  /** From here on it is a stream of events, with status 200. */
  #commit (): void {
    if (this.#responded) return
    this.#stream = new EventStream(this.#all.keepAlive, this.#frames)
    this.#stream.onOverflow = () => this.#onOverflow()
    this.#frames = undefined
    this.#answer(this.#stream.body, SSE_HEADERS)
  }

  #onOverflow (): void {
    // What is kept is not lost: the client comes back for it.
    if (this.#log !== undefined) this.#stream!.finish()
    else if (!this.#overflowed) this.#reply.log.warn('a client reads its stream too slowly: notifications are dropped')
    this.#overflowed = true
  }

  /** A promise where the answer is kept before it is sent. */
  #finish (answer: Answer): void | Promise<void> {
    const log = this.#log
    if (answer === undefined && this.#all.shutDown) answer = failure(replyId(this.#message), { code: codes.internalError, message: 'The server is shutting down' })
    if (log !== undefined) {
      for (const one of repliesOf(answer)) void log.append(one, { write: this.#write }).catch(this.#lost)
      return log.end().catch(this.#lost).then(() => this.#stream?.finish())
    }
    if (this.#stream !== undefined) {
      this.#stream.finish(framesOf(answer))
      return undefined
    }
    if (this.#responded) return undefined
    const status = this.#session.era === 'modern' && answer !== undefined && 'error' in answer ? fixedStatus.get(answer.error.code) : undefined
    const asJson = this.#mode === 'json' || (this.#frames === undefined && (this.#mode === 'auto' || status !== undefined))
    if (!asJson) {
      this.#answer((this.#frames ?? '') + framesOf(answer), SSE_HEADERS)
    } else if (answer === undefined) {
      this.#responded = true
      void this.#reply.code(202).send()
    } else {
      if (status !== undefined) void this.#reply.code(status)
      void jsonReply(this.#reply)
      this.#answer(this.#jsonBody(answer))
    }
    return undefined
  }

  #jsonBody (answer: Reply | Reply[]): Body {
    if (Array.isArray(answer)) return `[${answer.map(encode).join(',')}]`
    const parts = encodeParts(answer)
    if (typeof parts === 'string') return parts
    const body = new TwoPartBody(...parts)
    void this.#reply.header('content-length', body.size)
    return body
  }

  #answer (body: Body, headers?: Record<string, string>): void {
    this.#responded = true
    if (headers !== undefined) void this.#reply.headers(headers)
    if (this.#send === undefined) void this.#reply.send(body)
    else this.#send(body)
  }

  #onClose (): void {
    // Over HTTP/2 a response counts as finished when its client resets it: what tells is that it was never ended. One that has ended
    // before its stream was somebody else's: a hook of the host has refused the stream.
    if (this.#reply.raw.writableEnded && this.#stream?.over !== false) return
    this.#left = true
    clearTimeout(this.#timer)
    this.#stream?.destroy()
    if (this.#abortOnLeave) this.#session.close(new Error('The client has gone'))
    if (this.#responded) return
    this.#responded = true
    void this.#reply.send()
  }
}

function framesOf (answer: Answer): string {
  return answer === undefined ? '' : Array.isArray(answer) ? answer.map(frame).join('') : frame(answer)
}

function repliesOf (answer: Answer): Reply[] {
  return answer === undefined ? [] : Array.isArray(answer) ? answer : [answer]
}
