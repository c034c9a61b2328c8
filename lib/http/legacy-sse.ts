// The transport of 2024-11-05, HTTP+SSE, for clients that know no other: a GET opens a stream that is the session, its first
// event says where messages go, and everything that is answered comes on the stream. Deprecated; off unless asked for.
// MCP 2024-11-05 "Transports / HTTP with SSE".

import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler, RouteShorthandOptions } from 'fastify'
import type { Reply } from '../jsonrpc.js'
import { codes, failure, isObject, isRequest, replyId } from '../jsonrpc.js'
import type { Principal, RequestInfo } from '../principal.js'
import { atExpiry } from '../principal.js'
import type { ProtocolServer } from '../protocol/server.js'
import type { MessageCheck } from './checks/message.js'
import { checked } from './checks/message.js'
import { checkJson } from './checks/negotiate.js'
import { notAllowed, refusal, refusals, refuse } from './refusal.js'
import { hasLeft, HttpRequest, mcpOf, onLeave } from './request.js'
import type { LiveSession, SessionTable } from './sessions.js'
import type { KeepAlive } from './stream.js'
import { SSE_HEADERS } from './stream.js'

const PARAMETER = 'session_id'
// ms that readers get to be told that their calls are aborted
const LAST_WORDS = 100

export interface LegacySseOptions {
  path: string
  messagePath: string
  publicUrl?: string | undefined
  maxStreams: number
}

interface Work { live: LiveSession, message: unknown, done: Promise<void> }

export class LegacySse {
  readonly #server: ProtocolServer
  readonly #sessions: SessionTable
  readonly #keepAlive: KeepAlive
  readonly #options: LegacySseOptions
  readonly #atWork = new Set<Work>()
  readonly #open = new Set<LiveSession>()
  // Answers leave one after the other, each when there is room for it: none is dropped however slow the reader is.
  readonly #lastAnswer = new WeakMap<LiveSession, Promise<void>>()
  readonly #ids = new WeakMap<FastifyRequest, string>()
  #closing = false

  constructor (server: ProtocolServer, sessions: SessionTable, keepAlive: KeepAlive, options: LegacySseOptions) {
    this.#server = server
    this.#sessions = sessions
    this.#keepAlive = keepAlive
    this.#options = options
  }

  /** Adds the routes; the scope brings the guard, CORS, the body parser and the error handler. */
  mount (scope: FastifyInstance, bearer: onRequestHookHandler, scopes: MessageCheck, route: RouteShorthandOptions): void {
    const { path, messagePath } = this.#options
    const publicPath = this.#options.publicUrl === undefined ? '' : new URL(this.#options.publicUrl).pathname.replace(/\/$/, '')
    const endpoint = `${publicPath}${scope.prefix}${messagePath}?${PARAMETER}=`

    mountPath(scope, path, 'GET', { ...route, onRequest: [bearer], handler: async (request, reply) => this.#stream(request, reply, endpoint) })
    mountPath(scope, messagePath.replace(/(?<=.)\/$/, ''), 'POST', {
      ...route,
      logSerializers: { req: withoutId(scope) },
      onRequest: [bearer, checkJson],
      handler: checked([scopes], async (request, reply) => this.#message(request, reply))
    })
  }

  async #stream (request: FastifyRequest, reply: FastifyReply, endpoint: string): Promise<FastifyReply> {
    // Whoever has gone takes no place from others, not even while it opens.
    if (this.#closing || hasLeft(reply) || this.#keepAlive.size >= this.#options.maxStreams) return refuse(reply, refusals.tooManyStreams)
    const { principal } = mcpOf(request)
    const draft = this.#sessions.draft('sse', principal)
    const refused = await this.#sessions.keep(draft)
    if (refused !== undefined) return refuse(reply, refused)
    const { id } = draft.record
    const live = await this.#sessions.acquire(id, 'sse', principal)
    if (live === undefined) return refuse(reply, refusals.tooManySessions)
    const stream = await this.#sessions.openLegacyStream(live, `event: endpoint\ndata: ${endpoint}${id}\n\n`).catch((error: unknown) => {
      live.release()
      throw error
    })
    if (stream === undefined) {
      live.release()
      return refuse(reply, refusals.tooManySessions)
    }
    this.#open.add(live)
    stream.onOverflow = () => {
      stream.onOverflow = undefined
      request.log.warn('a client reads its stream too slowly: notifications are dropped')
    }
    const keep = atExpiry(principal, () => stream.finish())
    // The stream is the session.
    stream.onClose(() => {
      keep()
      this.#open.delete(live)
      live.session.close(new Error('The client has gone'))
      live.release()
      this.#sessions.end(id).catch((error: unknown) => request.log.error({ err: error }, 'a session could not be ended'))
    })
    // It takes a moment to open: whoever asked for it may have gone.
    if (hasLeft(reply)) stream.destroy()
    onLeave(reply, () => stream.destroy())
    return reply.headers(SSE_HEADERS).send(stream.body)
  }

  async #message (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { body: message } = request
    const { principal } = mcpOf(request)
    const id = this.#ids.get(request)
    if (id === undefined) return refuse(reply, refusal(400, `${PARAMETER} query parameter is required`))
    const live = await this.#sessions.acquire(id, 'sse', principal)
    if (live === undefined) return refuse(reply, refusals.sessionNotFound)
    if (!isObject(message) && !Array.isArray(message)) {
      live.release()
      return refuse(reply, refusals.invalidRequest)
    }
    const info = new HttpRequest(request, live.session, 'sse')
    const work: Work = { live, message, done: this.#work(live, message, principal, info).finally(() => this.#atWork.delete(work)) }
    this.#atWork.add(work)
    // What changes the session has done so before the next message can come; anything else runs beside it.
    const runsBeside = Array.isArray(message) || (isRequest(message) && message.method !== 'initialize')
    if (!runsBeside) await work.done
    // Who does not read is not asked for more.
    await live.stream?.write('')
    return reply.code(202).send()
  }

  async #work (live: LiveSession, message: unknown, principal: Principal, request: RequestInfo): Promise<void> {
    const { session } = live
    try {
      const answer = await session.handle(message, { principal, request })
      if (session.record.isNew && session.initialized) await session.save({ isNew: false })
      const told = answer ?? (this.#closing && isRequest(message) ? failure(replyId(message), { code: codes.internalError, message: 'The server is shutting down' }) : undefined)
      if (told !== undefined) await this.#answer(live, Array.isArray(told) ? told : [told])
    } catch (error) {
      this.#server.log.error({ err: error }, 'an answer could not be delivered')
    } finally {
      live.release()
    }
  }

  #answer (live: LiveSession, replies: readonly Reply[]): Promise<void> {
    const sent = (this.#lastAnswer.get(live) ?? Promise.resolve()).then(async () => {
      for (const reply of replies) {
        await live.stream?.write('')
        if (live.stream !== undefined) void live.stream.send(reply)
        else await this.#server.backplane.push(live.session.record.id, reply)
      }
    })
    this.#lastAnswer.set(live, sent.catch(() => {}))
    return sent
  }

  /** Ends all work within `grace` ms, and then the streams: what is not answered by then is aborted, and its client told. */
  async close (grace: number): Promise<void> {
    this.#closing = true
    await this.#idle(grace)
    for (const { live } of this.#atWork) live.session.close(new Error('The server is shutting down'))
    await this.#idle(LAST_WORDS)
    for (const { stream } of this.#open) stream?.finish()
  }

  /** Resolves when nothing is at work, or after `ms`. */
  async #idle (ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise((resolve) => { timer = setTimeout(resolve, ms) })
    await Promise.race([late, Promise.all(Array.from(this.#atWork, ({ done }) => done))])
    clearTimeout(timer)
  }

  /** Reads the session id and takes it out of the URL, before anything else is done: whoever can read it can post as this client. */
  readonly takeId: onRequestHookHandler = (request, _reply, done) => {
    const id = idOf(request.raw.url)
    if (id !== undefined) {
      this.#ids.set(request, id)
      request.raw.url = request.raw.url!.replaceAll(id, HIDDEN)
    }
    done()
  }
}

// As we give it out: hex digits, never in need of an escape.
const ID = new RegExp(`[?&]${PARAMETER}=([^&#]+)`)
const HIDDEN = '***'

function mountPath (scope: FastifyInstance, path: string, method: 'GET' | 'POST', route: RouteShorthandOptions & { handler: (request: FastifyRequest, reply: FastifyReply) => void | Promise<FastifyReply> }): void {
  const refuseMethod = async (_request: FastifyRequest, reply: FastifyReply) => refuse(reply, notAllowed(method))
  void scope.register(async function legacyScope (inner) {
    inner.route({ ...route, method, url: '/' })
    const others = inner.supportedMethods.filter((one) => one !== method)
    inner.route({ ...route, method: others, url: '/', onRequest: refuseMethod, handler: refuseMethod })
  }, { prefix: path })
}

function idOf (url = ''): string | undefined {
  return ID.exec(url)?.[1]
}

/** The host's own serializer of requests, or Fastify's, with the session id taken out of whatever it makes. */
function withoutId (scope: FastifyInstance): (request: FastifyRequest) => unknown {
  const own = (scope.log as any)[Symbol.for('pino.serializers')]?.req as ((request: FastifyRequest) => unknown) | undefined
  return function serializeWithoutId (request) {
    const made = own === undefined ? { method: request.method, url: request.url } : own(request)
    const id = idOf(request.raw?.url)
    return id === undefined ? made : JSON.parse(JSON.stringify(made).replaceAll(id, HIDDEN))
  }
}
