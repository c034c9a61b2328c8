// From credentials to a principal: the contract of everything that can be given as `auth`.

import type { Principal } from '../principal.js'

/** Why a request is not let in, and what the client is told to do about it. RFC 6750 3. */
export interface Challenge {
  readonly status: 400 | 401 | 403 | 429 | 503
  readonly message: string
  /** Sent as they are. Where `www-authenticate` is not among them, it is made of what follows. */
  readonly headers?: Readonly<Record<string, string>>
  /** Only where a token was sent. */
  readonly error?: 'invalid_request' | 'invalid_token' | 'insufficient_scope'
  readonly description?: string
  /** All scopes that are needed. */
  readonly scopes?: readonly string[]
  /** For the log, and never sent. */
  readonly reason?: string
}

export interface Credentials {
  /** The `Authorization` header, as sent. */
  readonly authorization: string | undefined
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** The URL of the endpoint as the client typed it, where that can be known: what tokens have to be meant for. */
  readonly resource?: string | undefined
  /** The address of the caller, as far as it is known. */
  readonly peer?: string | undefined
}

/** What clients are told about getting a token (RFC 9728). */
export interface ResourceMetadata {
  readonly authorizationServers: readonly string[]
  readonly scopesSupported?: readonly string[]
}

/** Who the caller is; nothing when it may go on without being known; a challenge when it may not. */
export interface Authenticator {
  authenticate (credentials: Credentials): Principal | Challenge | undefined | Promise<Principal | Challenge | undefined>
  /** Makes the endpoint an OAuth resource: its metadata is served, and challenges lead there. */
  readonly metadata?: ResourceMetadata | undefined
}

export function isChallenge (outcome: Principal | Challenge | undefined): outcome is Challenge {
  return outcome !== undefined && 'status' in outcome
}

export const UNAUTHORIZED: Challenge = Object.freeze({
  status: 401,
  message: 'Unauthorized',
  headers: Object.freeze({ 'www-authenticate': 'Bearer realm="cloudg-mcp"' })
})
