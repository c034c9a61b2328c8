// POST, GET and DELETE on the MCP path. By the time a handler runs, the checks have found out who calls, what the client can
// read, and which era the message belongs to.

import type { FastifyReply, FastifyRequest } from 'fastify'
import type { RpcFailure } from '../jsonrpc.js'
import { isRequest } from '../jsonrpc.js'
import { atExpiry } from '../principal.js'
import { isStreaming } from '../protocol/methods/table.js'
import type { ProtocolServer } from '../protocol/server.js'
import type { Session } from '../protocol/session.js'
import { DEFAULT_HTTP_VERSION, isHandshake } from '../revisions.js'
import { HEADER } from './headers.js'
import type { Refusal } from './refusal.js'
import { ALLOW_STATELESS, notAllowed, refusal, refusals, refuse } from './refusal.js'
import type { Body, ExchangeOptions, Exchanges, Mode } from './reply.js'
import { hasLeft, header, HttpRequest, mcpOf, onLeave } from './request.js'
import type { LiveSession, SessionTable } from './sessions.js'
import type { KeepAlive } from './stream.js'
import { SSE_HEADERS } from './stream.js'

export interface EndpointOptions {
  responseMode: Mode
  stateless: boolean
  maxStreams: number
}

export function createEndpoint (server: ProtocolServer, sessions: SessionTable, exchanges: Exchanges, keepAlive: KeepAlive, options: EndpointOptions) {
  const { responseMode, stateless, maxStreams } = options

  function post (request: FastifyRequest, reply: FastifyReply): void {
    const message = request.body
    if (mcpOf(request).modern) postModern(request, reply)
    else if (stateless) postStateless(request, reply)
    else if (isRequest(message) && message.method === 'initialize') postInitialize(request, reply)
    else postSession(request, reply)
  }

  function postSession (request: FastifyRequest, reply: FastifyReply): void {
    const found = findSession(request)
    if (found instanceof Promise) void serveLater(request, reply, found)
    else serveSession(request, reply, found)
  }

  async function serveLater (request: FastifyRequest, reply: FastifyReply, found: Promise<LiveSession | Refusal>): Promise<void> {
    try {
      serveSession(request, reply, await found)
    } catch (error) {
      void reply.send(error)
    }
  }

  function serveSession (request: FastifyRequest, reply: FastifyReply, live: LiveSession | Refusal): void {
    if ('status' in live) refuse(reply, live)
    else answer(request, reply, live.session, { done: live.release })
  }

  /** A 2026 request carries all that it needs. A notification has nothing to act on: it is taken and dropped. */
  function postModern (request: FastifyRequest, reply: FastifyReply): void {
    answer(request, reply, server.createSession({ transport: 'http', register: false }))
  }

  /** The handshake era without sessions: every request is served as if its handshake had been made. */
  function postStateless (request: FastifyRequest, reply: FastifyReply): void {
    const { body } = request
    const version = header(request, HEADER.protocolVersion)
    const preinitialized = isRequest(body) && body.method === 'initialize' ? undefined : isHandshake(version) ? version : DEFAULT_HTTP_VERSION
    answer(request, reply, server.createSession({ transport: 'http', register: false, preinitialized }))
  }

  function postInitialize (request: FastifyRequest, reply: FastifyReply): void {
    const session = sessions.draft('http', mcpOf(request).principal)
    const keep = async (): Promise<Refusal | undefined> => session.initialized ? sessions.keep(session) : undefined
    const send = (body: Body): void => {
      keep().then((refused) => {
        if (refused !== undefined) return refuse(reply, refused)
        return (session.initialized ? reply.header(HEADER.sessionId, session.record.id) : reply).send(body)
      }).catch((error) => reply.send(error))
    }
    answer(request, reply, session, { send })
  }

  async function get (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    if (stateless) return refuse(reply, notAllowed(ALLOW_STATELESS))
    if (!mcpOf(request).acceptsSse) return refuse(reply, refusals.getNeedsSse)
    // Clients probe like this and give up on a 400: there is no stream outside a session.
    if (header(request, HEADER.sessionId) === undefined) return refuse(reply, notAllowed('POST, DELETE'))
    const live = await findSession(request)
    if ('status' in live) return refuse(reply, live)
    try {
      // Whoever has gone takes no place from others, not even while it opens.
      if (hasLeft(reply) || keepAlive.size >= maxStreams) return refuse(reply, refusals.tooManyStreams)
      const stream = await sessions.openStream(live, header(request, HEADER.lastEventId))
      if (stream === undefined) return refuse(reply, refusals.streamOpen)
      const keep = atExpiry(mcpOf(request).principal, () => stream.finish())
      const leave = (): void => {
        keep()
        stream.destroy()
      }
      // It takes a moment to open: whoever asked for it may have gone.
      if (hasLeft(reply)) leave()
      onLeave(reply, leave)
      return reply.headers(SSE_HEADERS).send(stream.body)
    } finally {
      live.release()
    }
  }

  async function del (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    if (stateless) return refuse(reply, notAllowed(ALLOW_STATELESS))
    const live = await findSession(request)
    if ('status' in live) return refuse(reply, live)
    await sessions.end(live.session.record.id)
    live.release()
    return reply.code(200).send()
  }

  /** The session that a request names, taken into use; or why not. */
  function findSession (request: FastifyRequest): LiveSession | Refusal | Promise<LiveSession | Refusal> {
    const id = header(request, HEADER.sessionId)
    if (id === undefined || id === '') return refusals.sessionRequired
    const found = sessions.acquire(id, 'http', mcpOf(request).principal)
    return found instanceof Promise ? checkLater(request, found) : checkFound(request, found)
  }

  async function checkLater (request: FastifyRequest, found: Promise<LiveSession | undefined>): Promise<LiveSession | Refusal> {
    return checkFound(request, await found)
  }

  function checkFound (request: FastifyRequest, live: LiveSession | undefined): LiveSession | Refusal {
    if (live === undefined) return refusals.sessionNotFound
    const version = header(request, HEADER.protocolVersion)
    const negotiated = live.session.record.version
    if (version === undefined || version === negotiated || !isHandshake(version)) return live
    live.release()
    return refusal(400, `MCP-Protocol-Version ${version} does not match the negotiated version ${negotiated}`)
  }

  function answer (request: FastifyRequest, reply: FastifyReply, session: Session, options: ExchangeOptions = {}): void {
    const { body: message } = request
    const { principal, acceptsJson, acceptsSse, modern } = mcpOf(request)
    const batch = Array.isArray(message)
    if (!batch && !isRequest(message)) {
      session.handle(message, { principal, request: new HttpRequest(request, session) }).finally(options.done)
        .then((problem) => problem === undefined ? reply.code(202).send() : refuse(reply, fromFailure(problem as RpcFailure)))
        .catch((error) => reply.send(error))
      return
    }
    const listens = modern && !batch && message.method === 'subscriptions/listen'
    const refused = !listens ? undefined : !acceptsSse ? refusals.listenNeedsSse : keepAlive.size >= maxStreams ? refusals.tooManyStreams : undefined
    if (refused !== undefined) {
      refuse(reply, refused)
      return
    }
    const expectsReply = !batch || message.length === 0 || message.some(isRequest)
    // Where streams are resumable every answer of a session can be come back for, not only that of a call that streams.
    const resumable = expectsReply && acceptsSse && responseMode !== 'json' && !modern && session.initialized && session.record.id !== ''
    if (resumable) options.log = sessions.eventLog(session.record.id, message)
    const streams = batch ? message.some(isStreaming) : isStreaming(message)
    const mode = options.log !== undefined ? 'sse' : expectsReply ? modeOf(acceptsJson, acceptsSse, streams, listens) : 'json'
    exchanges.run(reply, session, mode, options)
  }

  function modeOf (acceptsJson: boolean, acceptsSse: boolean, streams: boolean, listens: boolean): Mode {
    if (listens) return 'sse'
    if (!acceptsSse) return 'json'
    if (responseMode === 'json') return 'json'
    if (!acceptsJson) return 'sse'
    return streams ? responseMode : 'json'
  }

  return { post, get, delete: del }
}

/** What cannot be taken and wants no reply is refused by status. */
function fromFailure ({ id, error }: RpcFailure): Refusal {
  return refusal(400, error.message, { code: error.code, data: error.data, id })
}
