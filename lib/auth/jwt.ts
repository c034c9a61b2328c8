// Access tokens that are JWTs (RFC 9068, RFC 8725): what costs nothing is checked first, the signature last.

import { compactVerify } from 'jose'
import { isObject } from '../jsonrpc.js'
import { audiencesOf } from './audience.js'
import type { KeySet } from './key-set.js'
import type { Claims, Verdict } from './verdict.js'
import { checkTimes, MALFORMED, unavailable, WRONG_ALGORITHM, WRONG_AUDIENCE, WRONG_ISSUER, WRONG_SIGNATURE } from './verdict.js'

// Both parts are JSON objects, so both begin like this in Base64.
const JWT = /^eyJ[\w-]*\.eyJ[\w-]*\.[\w-]*$/

export interface UnverifiedJwt {
  readonly header: Readonly<Record<string, unknown>>
  readonly claims: Claims
}

/** What a token says of itself. Nothing when it is no JWT. */
export function readJwt (token: string): UnverifiedJwt | undefined {
  if (!JWT.test(token)) return undefined
  const [head, body] = token.split('.', 2)
  try {
    const header: unknown = JSON.parse(Buffer.from(head!, 'base64url').toString())
    const claims: unknown = JSON.parse(Buffer.from(body!, 'base64url').toString())
    return isObject(header) && isObject(claims) ? { header, claims } : undefined
  } catch {
    return undefined
  }
}

export interface JwtRules {
  readonly issuer: string
  readonly algorithms: ReadonlySet<string>
  /** ms */
  readonly clockTolerance: number
  readonly keys: KeySet
}

/**
 * @param audiences any of which the token has to be meant for, in normal form
 * @param now ms
 */
export function verifyJwt (token: string, { header, claims }: UnverifiedJwt, rules: JwtRules, audiences: readonly string[], now: number): Verdict | Promise<Verdict> {
  const { alg, kid } = header
  if (typeof alg !== 'string' || !rules.algorithms.has(alg)) return WRONG_ALGORITHM
  // Extensions that would have to be understood: there are none. Keys come from the issuer alone, never from the token.
  if (header.crit !== undefined || (kid !== undefined && typeof kid !== 'string')) return MALFORMED
  if (claims.iss !== rules.issuer) return WRONG_ISSUER
  if (claims.exp === undefined) return MALFORMED
  const untimely = checkTimes(claims, now, rules.clockTolerance)
  if (untimely !== undefined) return untimely
  if (!audiencesOf(claims.aud).some((one) => audiences.includes(one))) return WRONG_AUDIENCE
  return checkSignature(token, claims, rules.keys, kid, alg)
}

async function checkSignature (token: string, claims: Claims, set: KeySet, kid: string | undefined, alg: string): Promise<Verdict> {
  const keys = await set.find(kid, alg)
  if (!Array.isArray(keys)) return keys
  for (const key of keys) {
    try {
      await compactVerify(token, key, { algorithms: [alg] })
      return { claims }
    } catch (error) {
      if (!isJoseError(error)) return unavailable(`a signature could not be checked: ${(error as Error).message}`)
    }
  }
  return WRONG_SIGNATURE
}

/** A wrong signature is one of these; a key that does not fit is not, and neither is a fault of the crypto library. */
function isJoseError (error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('ERR_J')
}
