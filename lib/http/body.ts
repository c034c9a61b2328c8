// Reading the body of a POST: JSON alone, under our own parser, so that what is wrong with it is said in JSON-RPC.

import type { FastifyInstance, FastifyRequest, RequestPayload } from 'fastify'
import type { Readable } from 'node:stream'
import { decode } from '../jsonrpc.js'
import { RefusalError, refusals } from './refusal.js'

type Done = (error: Error | null, body?: unknown) => void

/** Takes the parsers of the host out of the scope, and puts in the only one that is needed. */
export function useBodyParser (scope: FastifyInstance, bodyLimit: number): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('application/json', (request: FastifyRequest, payload: RequestPayload, done: Done) => {
    if (request.method === 'POST') new Body(payload as Payload, request.raw.headers['content-length'], bodyLimit, done).read()
    else done(null)
  })
  // Only a POST has a body that is read, and it has been refused by now unless it is JSON.
  scope.addContentTypeParser('*', (_request, _payload, done) => { done(null) })
}

const kBody = Symbol('cloudg-mcp.body')

/** What a hook of the host makes of a request says how much of the request that was. */
type Payload = Readable & { receivedEncodedLength?: number, [kBody]?: Body | undefined }

// Listeners are called with the stream that they listen to. To take them off again costs as much as all the rest: what comes after the
// end is not for them.
function onData (this: Payload, chunk: Buffer | string): void { this[kBody]?.take(chunk) }
function onEnd (this: Payload): void { this[kBody]?.end() }
function onError (this: Payload, error: Error & { statusCode?: number }): void { this[kBody]?.fail(error) }

/** A body while it arrives. Fastify's own reader copies each into a buffer of its own, and waits for more of one that a hook has read. */
class Body {
  readonly #payload: Payload
  /** NaN: not said. */
  readonly #declared: number
  readonly #limit: number
  readonly #done: Done
  #chunks: Buffer[] | undefined
  #first: Buffer | undefined
  #length = 0

  constructor (payload: Payload, contentLength: string | undefined, limit: number, done: Done) {
    this.#payload = payload
    this.#declared = Number(contentLength)
    this.#limit = limit
    this.#done = done
  }

  read (): void {
    const payload = this.#payload
    if (payload.readableEnded) return this.#finish(new RefusalError(refusals.parseError))
    if (this.#declared > this.#limit) return this.#finish(new RefusalError(refusals.bodyTooLarge))
    payload[kBody] = this
    payload.on('data', onData).on('end', onEnd).on('error', onError).resume()
  }

  take (chunk: Buffer | string): void {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
    this.#length += bytes.length
    if (Math.max(this.#length, this.#payload.receivedEncodedLength ?? 0) > this.#limit) return this.#finish(new RefusalError(refusals.bodyTooLarge))
    if (this.#first === undefined) this.#first = bytes
    else (this.#chunks ??= [this.#first]).push(bytes)
  }

  end (): void {
    if (!Number.isNaN(this.#declared) && (this.#payload.receivedEncodedLength || this.#length) !== this.#declared) return this.#finish(new RefusalError(refusals.wrongLength))
    let body: unknown
    try {
      body = decode(this.#chunks === undefined ? this.#first ?? EMPTY : Buffer.concat(this.#chunks, this.#length))
    } catch {
      return this.#finish(new RefusalError(refusals.parseError))
    }
    this.#finish(null, body)
  }

  fail (error: Error & { statusCode?: number }): void {
    error.statusCode ??= 400
    this.#finish(error)
  }

  #finish (error: Error | null, body?: unknown): void {
    this.#payload[kBody] = undefined
    this.#done(error, body)
  }
}

const EMPTY = Buffer.alloc(0)
