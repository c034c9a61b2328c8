// From credentials to a principal: the contract of everything that can be given as `auth`.

import type { Principal } from '../principal.js'

/** Why a request is not let in, and what the client is told to do about it. */
export interface Challenge {
  status: 401 | 403 | 503
  message: string
  headers: Record<string, string>
}

export interface Credentials {
  /** The `Authorization` header, as sent. */
  readonly authorization: string | undefined
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

/** Who the caller is; nothing when it may go on without being known; a challenge when it may not. */
export interface Authenticator {
  authenticate (credentials: Credentials): Principal | Challenge | undefined | Promise<Principal | Challenge | undefined>
}

export function isChallenge (outcome: Principal | Challenge | undefined): outcome is Challenge {
  return outcome !== undefined && 'status' in outcome
}

export const UNAUTHORIZED: Challenge = Object.freeze({
  status: 401,
  message: 'Unauthorized',
  headers: Object.freeze({ 'www-authenticate': 'Bearer realm="cloudg-mcp"' })
})
