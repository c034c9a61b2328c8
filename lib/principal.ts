// Who calls: the principal of one request, what a resolver gets to see, and the resolver that is built in.

export type TransportKind = 'http' | 'sse' | 'stdio' | 'memory'

/** The caller of one request. */
export interface Principal {
  /** Stable name of the caller; what sessions are bound to unless `identity` says otherwise. */
  readonly id: string
  readonly roles: ReadonlySet<string>
  /** OAuth scopes of the token that the request carried. */
  readonly scopes?: ReadonlySet<string>
  /** What a session is bound to when `id` alone is not unique (OAuth: issuer, subject, client). @default id */
  readonly identity?: string
  /** When its credentials end, in ms since the epoch: streams end then, too. */
  readonly expiresAt?: number
  readonly attributes?: Readonly<Record<string, unknown>>
}

/** A principal as an application writes it: roles as a set, a list, or text with commas. */
export interface PrincipalSpec {
  id: string
  roles?: Iterable<string> | string
  scopes?: Iterable<string>
  identity?: string
  expiresAt?: number
  attributes?: Record<string, unknown>
}

/** What is known of the request beside its message. */
export interface RequestInfo {
  readonly transport: TransportKind
  /** Header names in lower case. Empty outside HTTP. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly sessionId?: string | undefined
  /** What the client calls itself. For display only: never derive rights from it. */
  readonly clientInfo?: Readonly<Record<string, unknown>> | undefined
  /** The principal that the authenticator found, if any. */
  readonly principal?: Principal | undefined
  /** A verified OAuth access token, if an outer layer attached one. */
  readonly accessToken?: AccessToken | undefined
  /** The transport's own request (Fastify's, over HTTP). */
  readonly raw?: unknown
}

export interface AccessToken { clientId?: string, scopes?: Iterable<string> }

/** May see and replace the principal of a request. Nothing returned, or a throw, means the built-in one decides. */
export type PrincipalResolver = (info: RequestInfo) => Principal | undefined | null | Promise<Principal | undefined | null>

export const DEFAULT_ROLE = 'default'

export function principal (spec: PrincipalSpec): Principal {
  const { id, identity, expiresAt, attributes } = spec
  return {
    id,
    roles: new Set(typeof spec.roles === 'string' ? splitRoles(spec.roles) : spec.roles ?? [DEFAULT_ROLE]),
    ...(spec.scopes === undefined ? {} : { scopes: new Set(spec.scopes) }),
    ...(identity === undefined ? {} : { identity }),
    ...(expiresAt === undefined ? {} : { expiresAt }),
    ...(attributes === undefined ? {} : { attributes })
  }
}

export function splitRoles (text: string): string[] {
  return text.split(',').map((role) => role.trim()).filter((role) => role !== '')
}

export const anonymous: Principal = Object.freeze({ id: 'anonymous', roles: new Set([DEFAULT_ROLE]) })
export const localUser: Principal = Object.freeze({ id: 'local', roles: new Set([DEFAULT_ROLE, 'local']) })

/** What sessions, caps and sealed state are bound to. */
export function identityOf (who: Principal): string {
  return who.identity ?? who.id
}

// Node's timers know no more.
const MAX_DELAY = 2 ** 31 - 1
const noop = (): void => {}

/** Calls back when the caller's credentials end. What is returned takes that back. */
export function atExpiry ({ expiresAt }: Principal, callback: () => void): () => void {
  const left = expiresAt === undefined ? Infinity : expiresAt - Date.now()
  if (left > MAX_DELAY) return noop
  const timer = setTimeout(callback, left).unref()
  return () => clearTimeout(timer)
}

/** Order: the authenticator's principal, an access token, the local user on stdio and in memory, anonymous. */
export function defaultResolver (info: RequestInfo): Principal {
  if (info.principal) return info.principal
  const token = info.accessToken
  if (token) {
    const scopes = [...token.scopes ?? []].sort()
    return principal({
      id: token.clientId || 'oauth-client',
      roles: [DEFAULT_ROLE, ...scopes],
      scopes,
      attributes: { auth: 'oauth', scopes }
    })
  }
  return info.transport === 'stdio' || info.transport === 'memory' ? localUser : anonymous
}

/** The bearer token of an `Authorization` value, or nothing. The scheme's case does not matter. */
export function bearerToken (header: string | undefined): string | undefined {
  if (header === undefined || header.length < 8 || header.slice(0, 7).toLowerCase() !== 'bearer ') return undefined
  const token = header.slice(7).trim()
  return token === '' ? undefined : token
}
