// A refused request: the status, the JSON-RPC body and the headers that say why. All refusals of our paths are made
// here, those of Fastify itself (parsing, limits, other plugins' hooks) included.

import { Readable } from 'node:stream'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import type { RequestId } from '../jsonrpc.js'
import { codes, encode, failure, RpcError } from '../jsonrpc.js'
import { SSE_HEADERS } from './stream.js'

export interface Refusal {
  readonly status: number
  readonly code: number
  readonly message: string
  readonly data?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** `null` where it could not be read. @default null */
  readonly id?: RequestId | null
}

export const ALLOW = 'GET, POST, DELETE'
export const ALLOW_STATELESS = 'POST'

export function refusal (status: number, message: string, more: Partial<Refusal> = {}): Refusal {
  return { status, code: codes.invalidRequest, message, ...more }
}

export const refusals = {
  invalidHost: refusal(421, 'Invalid Host header', { headers: { connection: 'close' } }),
  invalidOrigin: refusal(403, 'Forbidden: invalid Origin', { headers: { connection: 'close' } }),
  contentType: refusal(415, 'Content-Type must be application/json'),
  contentEncoding: refusal(415, 'Content-Encoding is not supported', { headers: { 'accept-encoding': 'identity' } }),
  notAcceptable: refusal(406, 'Not Acceptable: accept application/json or text/event-stream'),
  getNeedsSse: refusal(406, 'Not Acceptable: GET requires Accept: text/event-stream'),
  listenNeedsSse: refusal(406, 'subscriptions/listen requires Accept: text/event-stream'),
  parseError: refusal(400, 'Parse error', { code: codes.parseError }),
  invalidRequest: refusal(400, 'Invalid Request'),
  bodyTooLarge: refusal(413, 'Request body too large', { headers: { connection: 'close' } }),
  wrongLength: refusal(400, 'Invalid Content-Length', { headers: { connection: 'close' } }),
  sessionRequired: refusal(400, 'Bad Request: Mcp-Session-Id header is required'),
  sessionNotFound: refusal(404, 'Session not found'),
  streamOpen: refusal(409, 'Conflict: a GET stream is already open for this session'),
  tooManySessions: refusal(503, 'Too many sessions', { headers: { 'retry-after': '10' } }),
  tooManyOwnSessions: refusal(503, 'Too many sessions for this caller', { headers: { 'retry-after': '10' } }),
  tooManyStreams: refusal(503, 'Too many open streams', { headers: { 'retry-after': '10' } }),
  unknownResource: refusal(503, 'The URL of this endpoint is not known', { code: codes.internalError, headers: { 'retry-after': '60' } }),
  backplaneAway: refusal(503, 'Sessions are not available at the moment', { code: codes.internalError, headers: { 'retry-after': '2' } }),
  internal: refusal(500, 'Internal error', { code: codes.internalError })
} as const

export function notAllowed (allow: string): Refusal {
  return refusal(405, 'Method Not Allowed', { headers: { allow } })
}

function asItIs (payload: unknown): string {
  return payload as string
}

/** Says that the payload is JSON text. To text that might yet be serialised Fastify adds a charset, which JSON does not have (RFC 8259 11). */
export function jsonReply (reply: FastifyReply): FastifyReply {
  return reply.header('content-type', 'application/json').serializer(asItIs)
}

/** An error of the protocol, under the HTTP status that it has before anything was dispatched. */
export function fromRpcError (error: RpcError, id: RequestId | null, status = 400): Refusal {
  return { status, code: error.code, message: error.message, data: error.data, id }
}

/** Answers with a refusal. HTTP/2 has no connection headers. */
export function refuse (reply: FastifyReply, refused: Refusal): FastifyReply {
  return reply.send(write(reply, refused))
}

function write (reply: FastifyReply, { status, code, message, data, headers, id = null }: Refusal): string {
  void jsonReply(reply.code(status))
  for (const name in headers) {
    if (name !== 'connection' || reply.raw.req?.httpVersionMajor === 1) void reply.header(name, headers[name])
  }
  return encode(failure(id, { code, message, data }))
}

// ms for which what a refused client still sends is read and dropped.
const LINGER = 1000

/**
 * Refuses what is still being sent. All of the answer goes out now, but the connection ends only when the client has said everything, or a
 * moment later: to close it while something is unread resets it, and the answer may be lost (RFC 9112 9.6).
 */
function refuseUnread (request: FastifyRequest, reply: FastifyReply, refused: Refusal): FastifyReply {
  const { raw } = request
  if (raw.httpVersionMajor > 1 || raw.readableEnded) return refuse(reply, refused)
  const text = write(reply, refused)
  const answer = new Readable({ read () {} })
  const end = (): void => {
    clearTimeout(timer)
    answer.push(null)
  }
  const timer = setTimeout(end, LINGER)
  raw.once('end', end).once('close', end).resume()
  answer.push(text)
  return reply.header('content-length', Buffer.byteLength(text)).send(answer)
}

/** Thrown where a refusal cannot be sent directly: in the body parser. */
export class RefusalError extends Error {
  readonly refusal: Refusal
  readonly statusCode: number

  constructor (given: Refusal) {
    super(given.message)
    this.refusal = given
    this.statusCode = given.status
  }
}

const known = new Map<string, Refusal>([
  ['CLOUDG_MCP_ERR_BACKPLANE_UNAVAILABLE', refusals.backplaneAway],
  ['FST_ERR_CTP_INVALID_MEDIA_TYPE', refusals.contentType]
])

/** The scope's error handler. A foreign error (rate limit, pressure) keeps its status; its headers are on the reply already. */
export function handleError (error: FastifyError | RefusalError, request: FastifyRequest, reply: FastifyReply): void {
  // A stream was to be sent, and a hook of the host has refused it.
  for (const [name, value] of Object.entries(SSE_HEADERS)) if (reply.getHeader(name) === value) void reply.removeHeader(name)
  const ours = error instanceof RefusalError ? error.refusal : known.get(error.code)
  if (ours !== undefined) {
    // Fastify closes a connection whose body did not parse. Where it has been read there is no need, and HTTP/2 knows no such header.
    void reply.removeHeader('connection')
    if (ours === refusals.bodyTooLarge) refuseUnread(request, reply, ours)
    else refuse(reply, ours)
    return
  }
  const { statusCode: status = 500 } = error
  if (status >= 400 && status < 500) {
    refuse(reply, refusal(status, error.message))
  } else {
    request.log.error({ err: error }, 'an MCP request failed')
    refuse(reply, status === 503 ? refusal(503, 'Service Unavailable', { code: codes.internalError }) : { ...refusals.internal, status: Math.max(status, 500) })
  }
}
