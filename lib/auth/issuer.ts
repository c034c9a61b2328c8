// One issuer of access tokens: its options, checked once, and what it says of a token.

import { z } from 'zod'
import { InvalidOptionError } from '../errors.js'
import type { Principal, PrincipalSpec } from '../principal.js'
import { normalAudience } from './audience.js'
import type { IntrospectionOptions } from './introspection.js'
import { introspect } from './introspection.js'
import type { IssuerAccess } from './issuer-access.js'
import { discover, fetchJson } from './issuer-access.js'
import type { UnverifiedJwt } from './jwt.js'
import { verifyJwt } from './jwt.js'
import { ALGORITHMS, KeySet } from './key-set.js'
import type { Verdict } from './verdict.js'
import { MALFORMED } from './verdict.js'

/** One issuer (authorization server) whose tokens are accepted. */
export interface OAuthOptions {
  /** Its identifier, exactly as in its tokens and metadata. */
  issuer: string
  /** What tokens have to be meant for: any of these. @default the endpoint's own URL, as clients type it */
  audience?: string | readonly string[]
  /** Where its public keys are. @default what its metadata says */
  jwksUri?: string
  /** Its public keys themselves, instead. */
  jwks?: { keys: readonly unknown[] }
  /** Ask the issuer about every token instead of checking signatures. */
  introspection?: IntrospectionOptions
  /** Scopes without which nobody gets in. @default [] */
  requiredScopes?: readonly string[]
  /** Signature algorithms. Never `none` or HMAC. @default RS, PS and ES 256-512, EdDSA */
  algorithms?: readonly string[]
  /** ms by which clocks may differ. @default 30000 */
  clockTolerance?: number
  /** Told to clients. @default `requiredScopes` */
  scopesSupported?: readonly string[]
  /**
   * Who a token stands for; nothing to refuse it. `identity` is always issuer, subject and client; `scopes` stay those of the token unless given.
   * @default the subject, with the role `default` and its scopes as roles
   */
  principal?: (claims: Readonly<Record<string, unknown>>) => Principal | PrincipalSpec | undefined | Promise<Principal | PrincipalSpec | undefined>
  /** End a caller's open streams (`GET`, `subscriptions/listen`) when its token expires. @default true */
  expireStreams?: boolean
  /** ms for which a verified token is not verified again; its own expiry comes first. @default 300000, with introspection 60000 */
  cacheTtl?: number
  /** ms for one answer of the issuer. @default 5000 */
  timeout?: number
  /** Allow plain HTTP to the issuer beyond loopback. @default false */
  allowHttp?: boolean
  /** @default the global one */
  fetch?: typeof fetch
}

// RFC 6749 A.4
const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]+$/
const LOOPBACK = /^http:\/\/(?:localhost|127(?:\.\d+){3}|\[::1\])(?:[:/]|$)/i

const url = z.url({ protocol: /^https?$/ })
const scopes = z.array(z.string().regex(SCOPE, 'a scope: no spaces, quotes or backslashes'))
const milliseconds = z.number().int().nonnegative()
const fn = z.custom<any>((value) => typeof value === 'function', 'a function')
const schema = z.strictObject({
  issuer: url,
  audience: z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]).optional(),
  jwksUri: url.optional(),
  jwks: z.looseObject({ keys: z.array(z.unknown()) }).optional(),
  introspection: z.strictObject({ url, clientId: z.string().min(1), clientSecret: z.string().min(1) }).optional(),
  requiredScopes: scopes.default([]),
  algorithms: z.array(z.enum(ALGORITHMS, `one of ${ALGORITHMS.join(', ')}; never none or HMAC`)).min(1).default([...ALGORITHMS]),
  clockTolerance: milliseconds.default(30_000),
  scopesSupported: scopes.optional(),
  principal: fn.optional(),
  expireStreams: z.boolean().default(true),
  cacheTtl: milliseconds.optional(),
  timeout: milliseconds.default(5000),
  allowHttp: z.boolean().default(false),
  fetch: fn.optional()
})

export interface Issuer {
  readonly issuer: string
  /** In normal form; nothing for the URL of the endpoint. */
  readonly audiences: readonly string[] | undefined
  readonly requiredScopes: readonly string[]
  readonly scopesSupported: readonly string[]
  /** ms */
  readonly clockTolerance: number
  readonly cacheTtl: number
  readonly expireStreams: boolean
  /** It is asked about tokens; they need not be readable here. */
  readonly introspects: boolean
  readonly principal: OAuthOptions['principal']
  verify (token: string, jwt: UnverifiedJwt | undefined, audiences: readonly string[], now: number): Verdict | Promise<Verdict>
}

/** @throws CLOUDG_MCP_ERR_INVALID_OPTION naming the option */
export function createIssuer (given: OAuthOptions): Issuer {
  const parsed = schema.safeParse(given)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    const where = ['auth.oauth', ...issue!.path].join('.')
    throw new InvalidOptionError(issue!.code === 'unrecognized_keys' ? `unknown option ${where}.${issue!.keys.join(', ')}` : `option ${where}: ${issue!.message}`)
  }
  const options = parsed.data
  const { issuer, jwksUri, jwks, introspection, allowHttp, timeout, clockTolerance } = options
  if ([jwksUri, jwks, introspection].filter((one) => one !== undefined).length > 1) {
    throw new InvalidOptionError('option auth.oauth: give one of `jwksUri`, `jwks` and `introspection`')
  }
  const access: IssuerAccess = { issuer, timeout, fetch: options.fetch ?? fetch, insecure: allowHttp || LOOPBACK.test(introspection?.url ?? jwksUri ?? issuer) }
  if (jwks === undefined && !access.insecure) {
    const [name, contacted] = introspection !== undefined ? ['introspection.url', introspection.url] : jwksUri !== undefined ? ['jwksUri', jwksUri] : ['issuer', issuer]
    if (!contacted.startsWith('https:')) throw new InvalidOptionError(`option auth.oauth.${name}: must be https, or allow plain HTTP with \`allowHttp\``)
  }
  const { audience, requiredScopes, scopesSupported = requiredScopes, cacheTtl = introspection === undefined ? 300_000 : 60_000 } = options
  const algorithms: ReadonlySet<string> = new Set(options.algorithms)
  const keys = introspection === undefined ? new KeySet(jwks ?? { load: loader(access, jwksUri) }) : undefined
  return {
    issuer,
    audiences: audience === undefined ? undefined : [audience].flat().map(normalAudience),
    requiredScopes,
    scopesSupported,
    clockTolerance,
    cacheTtl,
    expireStreams: options.expireStreams,
    introspects: introspection !== undefined,
    principal: options.principal,
    verify: (token, jwt, audiences, now) => {
      if (introspection !== undefined) return introspect(token, { access, introspection, clockTolerance }, audiences, now)
      return jwt === undefined ? MALFORMED : verifyJwt(token, jwt, { issuer, algorithms, clockTolerance, keys: keys! }, audiences, now)
    }
  }
}

/** Gets the keys; where they are is looked up again when they were not there. */
function loader (access: IssuerAccess, given: string | undefined): () => Promise<unknown> {
  let uri = given
  return async () => {
    if (uri === undefined) {
      const { jwks_uri: found } = await discover(access)
      if (found === undefined) throw new Error(`the metadata of ${access.issuer} names no jwks_uri`)
      uri = found
    }
    try {
      return await fetchJson(uri, access)
    } catch (error) {
      uri = given
      throw error
    }
  }
}
