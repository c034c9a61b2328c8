// Bodies that are written to the response itself. Hooks of the host see an ordinary stream, which they may read and replace, and so does
// HTTP/2. What is still ours behind the last of them needs neither a pipe nor what Fastify keeps to watch one, which is as much as all the
// rest of an idle stream.

import type { FastifyBaseLogger, FastifyReply, FastifyRequest } from 'fastify'
import type { OutgoingHttpHeaders } from 'node:http'
import { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'

export abstract class DirectBody extends Readable {
  /** Writes what it has to the response, whose head has been written; nobody reads it after that. */
  abstract writeTo (response: ServerResponse, log: FastifyBaseLogger): void
}

/** A short text and many bytes that others send, too: to put them together would take a copy of all. */
export class TwoPartBody extends DirectBody {
  readonly #head: string
  readonly #rest: Buffer

  constructor (head: string, rest: Buffer) {
    super()
    this.#head = head
    this.#rest = rest
  }

  get size (): number { return Buffer.byteLength(this.#head) + this.#rest.length }

  writeTo (response: ServerResponse): void {
    response.write(this.#head)
    response.end(this.#rest)
  }

  override _read (): void {
    this.push(this.#head)
    this.push(this.#rest)
    this.push(null)
  }
}

/** The last of all onSend hooks: one of the route, whenever the host adds its own. */
export function sendDirectly (_request: FastifyRequest, reply: FastifyReply, body: unknown, done: (error: null, body: unknown) => void): void {
  const { raw } = reply
  if (!(body instanceof DirectBody) || !(raw instanceof ServerResponse)) {
    done(null, body)
    return
  }
  if (raw.destroyed) {
    body.destroy()
    reply.hijack()
    return
  }
  // A header that cannot be sent is an error while the answer is still Fastify's.
  raw.writeHead(reply.statusCode, reply.getHeaders() as OutgoingHttpHeaders)
  reply.hijack()
  body.writeTo(raw, reply.log)
}
