// Second check: who calls. Runs before the body is read; the principal is resolved anew for every request.
// An authenticator that fails or hangs says nothing about the token: that is 503, never 401 and never a way in.

import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Authenticator, Challenge, Credentials } from '../../auth/authenticator.js'
import { isChallenge } from '../../auth/authenticator.js'
import { codes } from '../../jsonrpc.js'
import type { Principal, TransportKind } from '../../principal.js'
import { anonymous } from '../../principal.js'
import type { ProtocolServer } from '../../protocol/server.js'
import { HEADER } from '../headers.js'
import type { ProtectedResource } from '../oauth.js'
import { refusal, refuse } from '../refusal.js'
import { header, mcpOf } from '../request.js'
import type { Tarpit } from './tarpit.js'

export interface BearerOptions {
  server: ProtocolServer
  authenticator: Authenticator | undefined
  /** ms that an authenticator may take */
  timeout: number
  /** There is a `principalResolver` to be asked. */
  customResolver: boolean
  resource: ProtectedResource
  tarpit: Tarpit
  transport?: TransportKind
}

type Outcome = Principal | Challenge | undefined

const WARN_EVERY = 1000

/** The URL of the endpoint is made only for authenticators that look at it. */
class RequestCredentials implements Credentials {
  readonly #request: FastifyRequest
  readonly #resource: ProtectedResource

  constructor (request: FastifyRequest, resource: ProtectedResource) {
    this.#request = request
    this.#resource = resource
  }

  get authorization (): string | undefined { return this.#request.raw.headers.authorization }
  get headers (): Credentials['headers'] { return this.#request.raw.headers }
  get resource (): string | undefined { return this.#resource.urlOf(this.#request) }
  get peer (): string | undefined { return this.#request.ip }
}

export function bearerHook ({ server, authenticator, timeout, customResolver, resource, tarpit, transport = 'http' }: BearerOptions) {
  let warnedAt = 0

  function checkBearer (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void {
    if (tarpit.isBehind(request)) {
      // Its connection ends before it.
      reply.hijack()
      return
    }
    let outcome: Outcome | Promise<Outcome>
    try {
      outcome = authenticator?.authenticate(new RequestCredentials(request, resource))
    } catch (error) {
      return fail(error, request, reply)
    }
    if (!(outcome instanceof Promise)) return admit(outcome, request, reply, done)
    // Whichever comes first.
    let over = false
    const once = (next: () => void) => (): void => {
      if (over) return
      over = true
      clearTimeout(timer)
      next()
    }
    const timer = setTimeout(once(() => fail(new Error(`the authenticator took longer than ${timeout} ms`), request, reply)), timeout)
    outcome.then(
      (found) => once(() => admit(found, request, reply, done))(),
      (error) => once(() => fail(error, request, reply))()
    )
  }

  function admit (outcome: Outcome, request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void {
    if (isChallenge(outcome)) return challenge(outcome, request, reply)
    if (!customResolver) return accept(outcome ?? anonymous, request, done)
    const info = {
      transport,
      headers: request.raw.headers,
      sessionId: header(request, HEADER.sessionId),
      raw: request,
      ...(outcome && { principal: outcome })
    }
    server.resolvePrincipal(info).then((who) => accept(who, request, done), done)
  }

  function accept (who: Principal, request: FastifyRequest, done: () => void): void {
    mcpOf(request).principal = who
    done()
  }

  function challenge (given: Challenge, request: FastifyRequest, reply: FastifyReply): void {
    const { status, message, reason } = given
    if (reason !== undefined) warn(request, { reason })
    const code = status === 503 ? codes.internalError : status === 429 ? codes.rateLimited : codes.invalidRequest
    const answer = (last: boolean): void => {
      const headers = resource.challengeHeaders(given, request)
      refuse(reply, refusal(status, message, { code, headers: last ? { ...headers, connection: 'close' } : headers }))
    }
    if (status === 503) answer(false)
    else tarpit.send(request, reply, answer)
  }

  function fail (error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    warn(request, { err: error })
    challenge({ status: 503, message: 'Service Unavailable', headers: { 'retry-after': '5' } }, request, reply)
  }

  /** Once a second at most: while the issuer is down, every request has the same to say. */
  function warn (request: FastifyRequest, why: object): void {
    const now = Date.now()
    if (now - warnedAt < WARN_EVERY) return
    warnedAt = now
    request.log.error(why, 'callers cannot be authenticated')
  }

  return checkBearer
}
