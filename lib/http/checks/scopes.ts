// Last check before the handler: does the caller's token have the scopes of what it wants to use? If not, it is told which,
// all at once, while the answer can still be a status: no stream has begun and nothing has run. MCP "Authorization / scope challenge".

import type { FastifyRequest } from 'fastify'
import type { Challenge } from '../../auth/authenticator.js'
import { insufficientScope } from '../../auth/oauth.js'
import { codes, isObject, isRequest, replyId } from '../../jsonrpc.js'
import type { Layer, ScopedKind } from '../../layer/contract.js'
import { anonymous } from '../../principal.js'
import type { ProtocolServer } from '../../protocol/server.js'
import type { ProtectedResource } from '../oauth.js'
import { refusal } from '../refusal.js'
import { mcpOf } from '../request.js'
import type { MessageCheck } from './message.js'

export function scopesCheck ({ layer }: ProtocolServer, resource: ProtectedResource): MessageCheck {
  return function checkScopes (request) {
    const { body } = request
    const needed = layer.missingScopes === undefined ? undefined : Array.isArray(body) ? ofBatch(layer, body, request) : ofMessage(layer, body, request)
    if (needed === undefined || needed.length === 0) return undefined
    const { principal } = mcpOf(request)
    request.log.info({ principal: principal.id, scopes: needed }, 'refused a call that lacks a scope')
    // Who sent no token has none to be exchanged for a better one.
    const challenge: Challenge = principal === anonymous && resource.metadata !== undefined && request.raw.headers.authorization === undefined
      ? { status: 401, message: 'Unauthorized', scopes: needed }
      : insufficientScope(needed)
    const { status, message } = challenge
    return refusal(status, message, {
      code: codes.accessDenied, id: replyId(body), data: { scopes: needed }, headers: resource.challengeHeaders(challenge, request)
    })
  }
}

function ofBatch (layer: Layer, messages: readonly unknown[], request: FastifyRequest): readonly string[] {
  return [...new Set(messages.flatMap((message) => ofMessage(layer, message, request) ?? []))]
}

function ofMessage (layer: Layer, message: unknown, request: FastifyRequest): readonly string[] | undefined {
  if (!isRequest(message) || !isObject(message.params)) return undefined
  const [kind, name] = target(message.method, message.params)
  return kind === undefined || typeof name !== 'string' ? undefined : layer.missingScopes!(kind, name, mcpOf(request).principal)
}

/** What a request wants to use. */
function target (method: string, params: Record<string, unknown>): [kind?: ScopedKind | undefined, name?: unknown] {
  switch (method) {
    case 'tools/call': return ['tool', params.name]
    case 'prompts/get': return ['prompt', params.name]
    case 'resources/read': return ['resource', params.uri]
    case 'completion/complete': {
      const ref = isObject(params.ref) ? params.ref : {}
      return ref.type === 'ref/prompt' ? ['prompt', ref.name] : ref.type === 'ref/resource' ? ['template', ref.uri] : []
    }
    default: return []
  }
}
