// First check: is this request meant for us (Host), and does it come from a page that may talk to us (Origin)?
// Keeps DNS rebinding and foreign pages out. MCP "Streamable HTTP / security".

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Repeated } from '../headers.js'
import { findRepeated, headerValue } from '../headers.js'
import type { Refusal } from '../refusal.js'
import { refusal, refusals, refuse } from '../refusal.js'
import { beginRequest, mcpOf } from '../request.js'
import { hostMatcher, originMatcher, parseHost } from './patterns.js'
import { selfCheck } from './self-check.js'

export interface GuardOptions {
  /** Host patterns. @default the loopback names on a loopback bind, none checked elsewhere */
  allowedHosts?: readonly string[] | undefined
  /** Origin patterns. @default the loopback origins */
  allowedOrigins?: readonly string[] | undefined
  /** Origins beside those, from `corsOrigins`. */
  corsOrigins?: readonly string[]
  /** Its host and origin are allowed. */
  publicUrl?: string | undefined
}

export const LOOPBACK_NAMES = ['localhost', '127.0.0.1', '[::1]']
const loopbackOrigins = LOOPBACK_NAMES.flatMap((name) => ['http', 'https'].flatMap((scheme) => [`${scheme}://${name}`, `${scheme}://${name}:*`]))

export function isLoopback (address: string): boolean {
  const bare = address.replace(/^\[|\]$/g, '').toLowerCase()
  return bare === '' || bare === 'localhost' || bare === '::1' || bare.startsWith('127.') || bare.startsWith('::ffff:127.')
}

/** The guard of one bind: `check` says nothing, or why not. */
export interface Guard {
  /** Only listed hosts pass; a list that any host fits is none. */
  readonly knowsHosts: boolean
  check: (host: string | undefined, origin: string | undefined) => Refusal | undefined
}

const MAX_REMEMBERED = 256
const ANY_HOST = /^\*+(?::(?:\*+|\d+))?$/

export function createGuard (options: GuardOptions, loopback: boolean): Guard {
  const { allowedHosts, allowedOrigins = loopbackOrigins, corsOrigins = [], publicUrl } = options
  const url = publicUrl === undefined ? undefined : new URL(publicUrl)
  const listed = allowedHosts ?? (loopback ? LOOPBACK_NAMES : undefined)
  const hostAllowed = listed === undefined ? undefined : hostMatcher(url === undefined ? listed : [...listed, url.host])
  const originAllowed = originMatcher([...allowedOrigins, ...corsOrigins, ...(url === undefined ? [] : [url.origin])])
  const goodHosts = new Set<string>()
  const goodOrigins = new Set<string>()

  function isGoodHost (host: string): boolean {
    if (goodHosts.has(host)) return true
    const parsed = parseHost(host)
    if (parsed === undefined || hostAllowed?.(parsed) === false) return false
    remember(goodHosts, host)
    return true
  }

  function isGoodOrigin (origin: string, host: string | undefined): boolean {
    if (goodOrigins.has(origin)) return true
    if (originAllowed(origin)) {
      remember(goodOrigins, origin)
      return true
    }
    // A matching pair proves nothing where any Host is accepted: a rebound page controls both.
    return hostAllowed !== undefined && host !== undefined && origin.toLowerCase().replace(/^https?:\/\//, '') === host.toLowerCase()
  }

  return {
    knowsHosts: listed !== undefined && !listed.some((pattern) => ANY_HOST.test(pattern)),
    check (host, origin) {
      if (host === undefined || host === '' ? hostAllowed !== undefined : !isGoodHost(host)) return refusals.invalidHost
      if (origin !== undefined && !isGoodOrigin(origin, host)) return refusals.invalidOrigin
      return undefined
    }
  }
}

function remember (set: Set<string>, value: string): void {
  if (set.size >= MAX_REMEMBERED) set.clear()
  set.add(value)
}

/** Different lines of these are refused before anything else is looked at. */
const early = ['host', 'origin', 'authorization', 'content-type']

/** Of Host there is one line, whatever it says (RFC 9112 3.2). */
function conflicting (repeated: Repeated): Refusal | undefined {
  const name = early.find((one) => repeated.get(one) === null || (one === 'host' && repeated.has(one)))
  return name === undefined ? undefined : refusal(400, `Bad Request: ${name} header appears more than once`, { headers: { connection: 'close' } })
}

/** A request target with an authority of its own has to name the same host: whoever routes by it has seen another one (RFC 9112 3.2.2). */
function isMisdirected (target: string, host: string | undefined): boolean {
  if (target.startsWith('/') || target === '*') return false
  const authority = /^https?:\/\/([^/?#]*)/i.exec(target)?.[1]
  return authority?.toLowerCase() !== host?.toLowerCase()
}

/** The onRequest hook. The bind is known once the server listens, so the guard is made at the first request after that. */
export function guardHook (app: FastifyInstance, options: GuardOptions) {
  let guard: Guard | undefined
  let warned = false
  const checkSelf = selfCheck(options)

  function current (request: FastifyRequest): Guard {
    if (guard !== undefined) return guard
    const addresses = app.addresses().map((one) => typeof one === 'string' ? 'unix' : one.address)
    const made = createGuard(options, addresses.every(isLoopback))
    if (addresses.length > 0) guard = made
    if (!addresses.every(isLoopback) && options.allowedHosts === undefined && !warned) {
      warned = true
      request.log.warn('the MCP endpoint is reachable beyond loopback and checks no Host header: set `allowedHosts`')
    }
    return made
  }

  return function checkGuard (request: FastifyRequest, reply: FastifyReply, done: () => void): void {
    const { headers, rawHeaders } = request.raw
    const repeated = findRepeated(rawHeaders, headers)
    beginRequest(request, repeated)
    const host = headerValue(headers, 'host', repeated) ?? headers[':authority'] as string | undefined
    const origin = headerValue(headers, 'origin', repeated)
    let refused = repeated === undefined ? undefined : conflicting(repeated)
    checkSelf(request, host)
    const guard = current(request)
    refused ??= isMisdirected(request.raw.url!, host) ? refusals.invalidHost : guard.check(host, origin)
    // A proxy that Fastify trusts names the host that the client used: it has to pass too, never instead.
    const used = request.host
    if (refused === undefined && used !== host && used !== '') refused = guard.check(used, undefined)
    if (refused === undefined) {
      if (guard.knowsHosts && used !== '') mcpOf(request).knownHost = used
      return done()
    }
    if (refused === refusals.invalidHost) request.log.warn({ host, ...(request.host !== host && { forwarded: request.host }) }, 'refused a Host: list it in `allowedHosts`, or set `publicUrl`')
    if (refused === refusals.invalidOrigin) request.log.warn({ origin }, 'refused an Origin: list it in `allowedOrigins`, or in `corsOrigins` for pages that read answers')
    refuse(reply, refused)
  }
}
