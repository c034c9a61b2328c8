// Second check: who calls. Runs before the body is read; the principal is resolved anew for every request.

import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Authenticator, Challenge } from '../../auth/authenticator.js'
import { isChallenge } from '../../auth/authenticator.js'
import type { Principal } from '../../principal.js'
import { anonymous } from '../../principal.js'
import type { ProtocolServer } from '../../protocol/server.js'
import { HEADER } from '../headers.js'
import { refusal, refuse } from '../refusal.js'
import { header, mcpOf } from '../request.js'

export function bearerHook (server: ProtocolServer, authenticator: Authenticator | undefined, customResolver: boolean) {
  function checkBearer (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void {
    const { headers } = request.raw
    const outcome = authenticator?.authenticate({ authorization: headers.authorization, headers })
    if (outcome instanceof Promise) outcome.then((found) => admit(found, request, reply, done), done)
    else admit(outcome, request, reply, done)
  }

  function admit (outcome: Principal | Challenge | undefined, request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void {
    if (isChallenge(outcome)) {
      refuse(reply, refusal(outcome.status, outcome.message, { headers: outcome.headers }))
      return
    }
    if (!customResolver) return accept(outcome ?? anonymous, request, done)
    const info = {
      transport: 'http' as const,
      headers: request.raw.headers,
      sessionId: header(request, HEADER.sessionId),
      raw: request,
      ...(outcome && { principal: outcome })
    }
    server.resolvePrincipal(info).then((who) => accept(who, request, done), done)
  }

  function accept (who: Principal, request: FastifyRequest, done: () => void): void {
    mcpOf(request).principal = who
    request.principal = who
    done()
  }

  return checkBearer
}
