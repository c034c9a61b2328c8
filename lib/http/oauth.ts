// The endpoint as an OAuth resource: the URL that clients know it by, the document that tells them where to get a token
// (RFC 9728), and the challenges that lead there (RFC 6750 3).

import type { FastifyRequest } from 'fastify'
import type { TLSSocket } from 'node:tls'
import type { Challenge, ResourceMetadata } from '../auth/authenticator.js'
import { mcpOf } from './request.js'

export const DOCUMENT = '/.well-known/oauth-protected-resource'

const MAX_REMEMBERED = 256

export class ProtectedResource {
  readonly metadata: ResourceMetadata | undefined
  /** Of the endpoint behind the origin, without a trailing slash: in this server, and, where a proxy rewrites it, as clients see it. */
  readonly paths: readonly string[]
  readonly #publicPath: string
  /** What `publicUrl` says. */
  readonly #fixed: string | undefined
  readonly #urls = new Map<string, string | undefined>()
  // Of challenges there are few, and each is sent often.
  readonly #made = new WeakMap<Challenge, { resource: string | undefined, headers: Readonly<Record<string, string>> }>()

  /** @param path of the endpoint in this server, all prefixes included */
  constructor (metadata: ResourceMetadata | undefined, path: string, publicUrl: string | undefined) {
    const local = path.replace(/\/+$/, '')
    const base = publicUrl === undefined ? undefined : new URL(publicUrl)
    this.metadata = metadata
    this.#publicPath = (base === undefined ? '' : base.pathname.replace(/\/+$/, '')) + local
    this.#fixed = base && base.origin + this.#publicPath
    this.paths = this.#publicPath === local ? [local] : [local, this.#publicPath]
  }

  /** The endpoint's URL as the client typed it. Nothing where it would be the client's word alone: any Host is accepted. */
  urlOf (request: FastifyRequest): string | undefined {
    if (this.#fixed !== undefined) return this.#fixed
    const { knownHost } = mcpOf(request)
    if (knownHost === undefined) return undefined
    const origin = `${schemeOf(request)}://${knownHost}`
    if (this.#urls.has(origin)) return this.#urls.get(origin)
    if (this.#urls.size >= MAX_REMEMBERED) this.#urls.clear()
    const url = URL.canParse(origin) ? new URL(origin).origin + this.#publicPath : undefined
    this.#urls.set(origin, url)
    return url
  }

  /** The document as JSON; nothing where there is none. */
  document (request: FastifyRequest): string | undefined {
    const resource = this.urlOf(request)
    if (this.metadata === undefined || resource === undefined) return undefined
    const { authorizationServers, scopesSupported } = this.metadata
    return JSON.stringify({
      resource,
      authorization_servers: authorizationServers,
      ...(scopesSupported !== undefined && { scopes_supported: scopesSupported }),
      bearer_methods_supported: ['header']
    })
  }

  /** The headers of a challenge, `WWW-Authenticate` among them. */
  challengeHeaders (challenge: Challenge, request: FastifyRequest): Readonly<Record<string, string>> {
    const { status, headers } = challenge
    if (status === 503 || status === 429 || headers?.['www-authenticate'] !== undefined) return headers ?? {}
    const resource = this.metadata === undefined ? undefined : this.urlOf(request)
    const known = this.#made.get(challenge)
    if (known !== undefined && known.resource === resource) return known.headers
    const made = { ...headers, 'www-authenticate': wwwAuthenticate(challenge, resource) }
    this.#made.set(challenge, { resource, headers: made })
    return made
  }
}

function wwwAuthenticate ({ error, description, scopes }: Challenge, resource: string | undefined): string {
  const parameters: string[] = []
  if (error !== undefined) parameters.push(`error=${quoted(error)}`)
  if (description !== undefined) parameters.push(`error_description=${quoted(description)}`)
  if (resource !== undefined) parameters.push(`resource_metadata=${quoted(documentUrl(resource))}`)
  if (scopes !== undefined && scopes.length > 0) parameters.push(`scope=${quoted(scopes.join(' '))}`)
  return parameters.length === 0 ? 'Bearer realm="cloudg-mcp"' : `Bearer ${parameters.join(', ')}`
}

/** RFC 9728 3.1: between the origin and the path. */
function documentUrl (resource: string): string {
  const { origin } = new URL(resource)
  return origin + DOCUMENT + resource.slice(origin.length)
}

/** RFC 9110 5.6.4, without what no header may hold. */
function quoted (value: string): string {
  return `"${value.replace(/[^\x20-\x7e]/g, '?').replace(/["\\]/g, '\\$&')}"`
}

/**
 * What the client typed. A proxy that Fastify trusts may say that it was https; other schemes are nobody's, and of several
 * hops the one with TLS is the client's.
 */
function schemeOf (request: FastifyRequest): 'http' | 'https' {
  if ((request.raw.socket as TLSSocket).encrypted) return 'https'
  if (request.protocol === 'https') return 'https'
  // Fastify reads the last hop. It names more addresses than the socket's only where it trusts that one.
  const said = request.raw.headers['x-forwarded-proto']
  if (typeof said !== 'string' || request.ips === undefined || request.ips.length < 2) return 'http'
  const hops = said.split(',').map((one) => one.trim())
  return hops.includes('https') && hops.every((one) => one === 'https' || one === 'http') ? 'https' : 'http'
}
