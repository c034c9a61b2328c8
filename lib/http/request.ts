// What the checks find out about a request, for those that come after them.

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Http2ServerResponse } from 'node:http2'
import type { Socket } from 'node:net'
import type { Principal, RequestInfo } from '../principal.js'
import { anonymous } from '../principal.js'
import type { Session } from '../protocol/session.js'
import type { Repeated } from './headers.js'
import { headerValue } from './headers.js'

const kMcp = Symbol('cloudg-mcp.request')

// A class, like all that belongs to one request: V8 may come to keep literals made on this path for long.
export class McpRequest {
  readonly repeated: Repeated | undefined
  /** The host that the client used, where the guard lets only listed ones pass. */
  knownHost: string | undefined
  principal: Principal = anonymous
  acceptsJson = false
  acceptsSse = false
  /** A 2026 message, by its envelope or its version header. */
  modern = false

  constructor (repeated: Repeated | undefined) {
    this.repeated = repeated
  }
}

/** Requests of the plugin's scope have one shape, and say who calls unless the host has a `principal` of its own. */
export function decorateRequests (scope: FastifyInstance): void {
  scope.decorateRequest(kMcp, null)
  if (scope.hasRequestDecorator('principal')) return
  // Accessors, so that a host may decorate its requests after this, and do as it likes with the property.
  scope.decorateRequest('principal', {
    getter (this: FastifyRequest) { return (mcpOf(this) as McpRequest | null)?.principal ?? anonymous },
    setter (this: FastifyRequest, value: Principal) {
      Object.defineProperty(this, 'principal', { value, writable: true, configurable: true, enumerable: true })
    }
  })
}

export function beginRequest (request: FastifyRequest, repeated: Repeated | undefined): void {
  (request as any)[kMcp] = new McpRequest(repeated)
}

export function mcpOf (request: FastifyRequest): McpRequest {
  return (request as any)[kMcp]
}

/** What a handler gets to see of a request. */
export class HttpRequest implements RequestInfo {
  readonly transport: 'http' | 'sse'
  readonly headers: RequestInfo['headers']
  readonly sessionId: string | undefined
  readonly clientInfo: RequestInfo['clientInfo']
  readonly principal: Principal
  readonly raw: FastifyRequest

  constructor (request: FastifyRequest, { record }: Session, transport: 'http' | 'sse' = 'http') {
    this.transport = transport
    this.headers = request.raw.headers
    this.sessionId = record.id || undefined
    this.clientInfo = record.clientInfo
    this.principal = mcpOf(request).principal
    this.raw = request
  }
}

/** Has the client gone already? Over HTTP/2 only the stream under a response can tell. */
export function hasLeft (reply: FastifyReply): boolean {
  const { raw } = reply
  return raw.destroyed || (raw as unknown as Partial<Http2ServerResponse>).stream?.destroyed === true || (waits(reply) && reply.request.raw.socket.destroyed)
}

/**
 * Calls back once, when the response is over or the client has left. Node tells that to the response that is being sent; one that waits
 * behind it, for a request that was pipelined, hears of nothing but the end of the connection.
 */
export function onLeave (reply: FastifyReply, callback: () => void): void {
  const { raw } = reply
  let forget: (() => void) | undefined
  const leave = (): void => {
    forget?.()
    raw.removeListener('close', leave)
    callback()
  }
  raw.on('close', leave)
  if (waits(reply)) forget = onClose(reply.request.raw.socket, leave)
}

/** Is it yet to have the connection? */
export function waits ({ raw, request }: FastifyReply): boolean {
  return raw.socket === null && request.raw.httpVersionMajor === 1
}

const waiting = new WeakMap<Socket, Set<() => void>>()

/** One listener a connection, however many requests wait on it. */
function onClose (socket: Socket, callback: () => void): () => void {
  let all = waiting.get(socket)
  if (all === undefined) {
    const callbacks = all = new Set()
    waiting.set(socket, callbacks)
    socket.once('close', () => { for (const one of [...callbacks]) one() })
  }
  const known = all
  known.add(callback)
  return () => { known.delete(callback) }
}

/** A header that means one thing, with equal repetitions collapsed. */
export function header (request: FastifyRequest, name: string): string | undefined {
  return headerValue(request.raw.headers, name, mcpOf(request).repeated)
}
