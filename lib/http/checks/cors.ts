// Second check: pages of listed origins may read answers. A preflight carries no credentials, so it is answered here, after the
// guard and before anybody is asked who they are. WHATWG Fetch "CORS protocol".
// Not @fastify/cors: a host that has it cannot have it again for our routes, and its route for preflights is on all paths.

import type { FastifyReply, FastifyRequest } from 'fastify'
import { originMatcher } from './patterns.js'

const METHODS = 'GET, POST, DELETE, OPTIONS'
const EXPOSED = 'Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After'
// Seconds for which a browser may go by the answer to a preflight.
const MAX_AGE = '600'

/** Lets a page read the answer if its origin may. True when the request is the preflight of such a page: it is to be answered. */
export function allowReading (request: FastifyRequest, reply: FastifyReply, readable: (origin: string) => boolean, methods: string): boolean {
  const { origin, 'access-control-request-headers': wanted } = request.headers
  varyBy(reply, 'Origin')
  if (origin === undefined || !readable(origin)) return false
  void reply.headers({ 'access-control-allow-origin': origin, 'access-control-expose-headers': EXPOSED })
  if (request.method !== 'OPTIONS') return false
  void reply.headers({ 'access-control-allow-methods': methods, 'access-control-max-age': MAX_AGE })
  varyBy(reply, 'Access-Control-Request-Headers')
  if (wanted !== undefined) void reply.header('access-control-allow-headers', wanted)
  return true
}

/** The onRequest hook. */
export function corsHook (origins: readonly string[]) {
  const readable = originMatcher(origins)
  return function checkCors (request: FastifyRequest, reply: FastifyReply, done: () => void): void {
    if (allowReading(request, reply, readable, METHODS)) answerPreflight(reply)
    else done()
  }
}

export function answerPreflight (reply: FastifyReply): FastifyReply {
  return reply.code(204).send()
}

/** The host may have said by what its answers vary. */
function varyBy (reply: FastifyReply, name: string): void {
  const said = reply.getHeader('vary')
  const names = (Array.isArray(said) ? said.join(', ') : String(said ?? '')).split(',').map((one) => one.trim()).filter((one) => one !== '')
  if (names.some((one) => one === '*' || one.toLowerCase() === name.toLowerCase())) return
  void reply.header('vary', [...names, name].join(', '))
}
