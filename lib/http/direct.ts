// Bodies that are written to the response itself. Hooks of the host see an ordinary stream, which they may read and replace, and so does
// HTTP/2. What is still ours behind the last of them needs neither a pipe nor what Fastify keeps to watch one, which is as much as all the
// rest of an idle stream. So is a long text: joined to the head of its response, as Node does, all of it would be copied once more.

import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { OutgoingHttpHeaders } from 'node:http'
import { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { LONG } from '../jsonrpc.js'

export abstract class DirectBody extends Readable {
  /** A hook of the host listens to it, to its data or to its end. */
  get isHeard (): boolean {
    return this.readableFlowing !== null || this.listenerCount('end') > 0 || this.listenerCount('close') > 0 || this.listenerCount('error') > 0
  }

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

/** The last onSend hook of the plugin's routes: what plugins of the host add to a route in their onRoute hooks comes before it. */
export function useDirect (scope: FastifyInstance): void {
  scope.addHook('onRoute', (route) => {
    // Fastify tells twice of a route that it has with and without a slash at its end.
    if (route.config?.mcp === true) route.onSend = [...[route.onSend ?? []].flat().filter((hook) => hook !== sendDirectly), sendDirectly]
  })
}

export function sendDirectly (_request: FastifyRequest, reply: FastifyReply, body: unknown, done: (error: null, body: unknown) => void): void {
  const { raw } = reply
  if (!(raw instanceof ServerResponse) || isBodiless(raw.statusCode)) {
    done(null, body)
  } else if (body instanceof DirectBody && !body.isHeard) {
    if (takeOver(reply, raw)) body.writeTo(raw, reply.log)
    else body.destroy()
  } else if (typeof body === 'string' && body.length >= LONG) {
    sendText(reply, raw, body)
  } else {
    done(null, body)
  }
}

/** A status whose responses have no body, whatever there is to send (RFC 9110 6.4.1): Fastify knows what to leave out. */
function isBodiless (status: number): boolean {
  return status < 200 || status === 204 || status === 304
}

function sendText (reply: FastifyReply, response: ServerResponse, text: string): void {
  const size = Buffer.byteLength(text)
  if (!takeOver(reply.header('content-length', size), response)) return
  // Not the response: a corked one holds its text back, and may end before it.
  response.socket?.cork()
  response.flushHeaders()
  // As many bytes as characters: it is ASCII, which is quicker to write as Latin-1.
  response.end(text, size === text.length ? 'latin1' : 'utf8')
}

/** Writes the head of a response and takes it from Fastify; `false` where its client has gone. */
function takeOver (reply: FastifyReply, response: ServerResponse): boolean {
  const there = !response.destroyed
  // A header that cannot be sent is an error while the answer is still Fastify's.
  if (there) response.writeHead(reply.statusCode, reply.getHeaders() as OutgoingHttpHeaders)
  reply.hijack()
  return there
}
