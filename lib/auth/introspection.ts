// Access tokens that only their issuer can read: it is asked about each (RFC 7662).

import * as oauth from 'oauth4webapi'
import { audiencesOf } from './audience.js'
import type { IssuerAccess } from './issuer-access.js'
import type { Claims, Verdict } from './verdict.js'
import { checkTimes, INACTIVE, unavailable, WRONG_AUDIENCE, WRONG_ISSUER } from './verdict.js'

export interface IntrospectionOptions {
  /** The issuer's introspection endpoint. */
  url: string
  /** How this service is known there (HTTP Basic). */
  clientId: string
  clientSecret: string
}

export interface IntrospectionRules {
  readonly access: IssuerAccess
  readonly introspection: IntrospectionOptions
  /** ms */
  readonly clockTolerance: number
}

/**
 * @param audiences any of which the token has to be meant for, in normal form
 * @param now ms
 */
export async function introspect (token: string, rules: IntrospectionRules, audiences: readonly string[], now: number): Promise<Verdict> {
  const { access, introspection, clockTolerance } = rules
  let claims: Claims
  try {
    claims = await ask(token, access, introspection)
  } catch (error) {
    if (error instanceof oauth.ResponseBodyError && error.error === 'unsupported_token_type') return INACTIVE
    const { message, cause } = error as Error
    return unavailable(`the introspection endpoint does not answer: ${cause instanceof Error ? `${message}: ${cause.message}` : message}`)
  }
  // Refresh tokens, too, are active.
  if (claims.active !== true || (typeof claims.token_type === 'string' && claims.token_type.toLowerCase() !== 'bearer')) return INACTIVE
  const untimely = checkTimes(claims, now, clockTolerance)
  if (untimely !== undefined) return untimely
  if (claims.iss !== undefined && claims.iss !== access.issuer) return WRONG_ISSUER
  return audiencesOf(claims.aud).some((one) => audiences.includes(one)) ? { claims } : WRONG_AUDIENCE
}

async function ask (token: string, { issuer, fetch, timeout, insecure }: IssuerAccess, { url, clientId, clientSecret }: IntrospectionOptions): Promise<Claims> {
  const server = { issuer, introspection_endpoint: url }
  const client = { client_id: clientId }
  const response = await oauth.introspectionRequest(server, client, oauth.ClientSecretBasic(clientSecret), token, {
    signal: AbortSignal.timeout(timeout),
    additionalParameters: { token_type_hint: 'access_token' },
    [oauth.customFetch]: fetch as any,
    [oauth.allowInsecureRequests]: insecure
  })
  return oauth.processIntrospectionResponse(server, client, response)
}
