// The OAuth 2.1 resource server: bearer tokens of one or several issuers become principals. It issues none and passes none on.
// MCP "Authorization"; RFC 6750, 8707, 9068, 9728.

import type { Principal } from '../principal.js'
import { bearerToken, DEFAULT_ROLE, principal } from '../principal.js'
import { normalAudience } from './audience.js'
import type { Authenticator, Challenge, Credentials, ResourceMetadata } from './authenticator.js'
import type { Issuer, OAuthOptions } from './issuer.js'
import { createIssuer } from './issuer.js'
import type { UnverifiedJwt } from './jwt.js'
import { readJwt } from './jwt.js'
import { PeerBudget } from './peer-budget.js'
import { digestOf, TokenCache } from './token-cache.js'
import type { TokenAuth } from './tokens.js'
import type { Claims, Verdict } from './verdict.js'
import { INACTIVE, MALFORMED, NOBODY, UNKNOWN_KEY, WRONG_ISSUER } from './verdict.js'

export interface OAuthAuthOptions {
  /** Static tokens that are accepted, too. */
  tokens?: TokenAuth | undefined
  /** Refuse callers without a token; else they are anonymous. A wrong token is refused in any case. @default true */
  required?: boolean | undefined
}

type Outcome = Principal | Challenge

const MAX_VERIFIED = 10_000
const MAX_REFUSED = 2000
const REFUSED_FOR = 5000
// Tokens under verification at once: the issuer, and the crypto, are asked for no more than that.
const MAX_PENDING = 256
// Checking a signature, or asking an issuer, costs more than sending a token that is wrong: of one peer so many are checked.
const WRONG_PER_SECOND = 50
const WRONG_AT_ONCE = 100
const MAX_TOKEN = 16 * 1024
// RFC 6750 2.1
const B64_TOKEN = /^[A-Za-z0-9\-._~+/]+=*$/

const BAD_REQUEST: Challenge = Object.freeze({
  status: 400, message: 'Bad Request: malformed Authorization header', error: 'invalid_request', description: 'The access token is malformed'
})
const BUSY = unavailableChallenge('too many tokens are being verified at once', 1)
const TOO_MANY_WRONG: Challenge = Object.freeze({ status: 429, message: 'Too many wrong tokens', headers: Object.freeze({ 'retry-after': '1' }) })
const NO_AUDIENCE = unavailableChallenge('the URL of the endpoint is not known, so no token can be meant for it: set `publicUrl`, or `allowedHosts`', 60)

/**
 * Accepts access tokens of one or several issuers. Usually made by the plugin, of its option `auth.oauth`.
 *
 * @example
 * const auth = new OAuthAuth({ issuer: 'https://login.example.com', requiredScopes: ['mcp'] })
 * await app.register(cloudgMcp, { auth, publicUrl: 'https://mcp.example.com' })
 */
export class OAuthAuth implements Authenticator {
  readonly required: boolean
  readonly metadata: ResourceMetadata
  readonly #issuers: readonly Issuer[]
  readonly #tokens: TokenAuth | undefined
  /** Some issuer's tokens have to be meant for the URL that the client typed. */
  readonly #byResource: boolean
  readonly #requiredScopes: readonly string[]
  readonly #unauthorized: Challenge
  readonly #challenges = new Map<string, Challenge>()
  readonly #verified = new TokenCache<Outcome>(MAX_VERIFIED)
  readonly #refused = new TokenCache<Challenge>(MAX_REFUSED)
  readonly #pending = new Map<string, Promise<Outcome>>()
  readonly #budget = new PeerBudget(WRONG_PER_SECOND, WRONG_AT_ONCE)

  /** @throws CLOUDG_MCP_ERR_INVALID_OPTION naming the option */
  constructor (issuers: OAuthOptions | readonly OAuthOptions[], options: OAuthAuthOptions = {}) {
    this.required = options.required ?? true
    this.#tokens = options.tokens
    this.#issuers = [issuers].flat().map((one) => createIssuer(one as OAuthOptions))
    this.#byResource = this.#issuers.some(({ audiences }) => audiences === undefined)
    // What one issuer calls a scope may be unknown to another: then clients find out with the token that they get.
    const [required = []] = this.#issuers.map(({ requiredScopes }) => requiredScopes)
    this.#requiredScopes = this.#issuers.every(({ requiredScopes }) => sameSet(required, requiredScopes)) ? required : []
    this.#unauthorized = Object.freeze({ status: 401, message: 'Unauthorized', scopes: this.#requiredScopes })
    const scopesSupported = union(this.#issuers.map(({ scopesSupported }) => scopesSupported))
    this.metadata = {
      authorizationServers: union(this.#issuers.map(({ issuer }) => [issuer])),
      ...(scopesSupported.length > 0 && { scopesSupported })
    }
  }

  /** A token that was seen before costs a digest and a look-up. */
  authenticate ({ authorization, resource, peer = '' }: Pick<Credentials, 'authorization' | 'resource' | 'peer'>): Outcome | undefined | Promise<Outcome> {
    const token = bearerToken(authorization)
    if (token === undefined) return this.required ? this.#unauthorized : undefined
    const fixed = this.#tokens?.lookup(token)
    if (fixed !== undefined) return fixed
    if (token.length > MAX_TOKEN) return BAD_REQUEST
    const now = Date.now()
    const digest = digestOf(token)
    const key = this.#byResource && resource !== undefined ? `${digest} ${resource}` : digest
    const known = this.#verified.get(key, now) ?? this.#refused.get(key, now) ?? this.#pending.get(key)
    if (known !== undefined) return known
    if (!B64_TOKEN.test(token)) return BAD_REQUEST
    const verifying = this.#verify(token, key, resource, peer, now)
    if (!(verifying instanceof Promise)) return verifying
    this.#pending.set(key, verifying)
    const over = (): void => { this.#pending.delete(key) }
    verifying.then(over, over)
    return verifying
  }

  /** What can be told at once is no promise. */
  #verify (token: string, key: string, resource: string | undefined, peer: string, now: number): Outcome | Promise<Outcome> {
    const jwt = readJwt(token)
    const iss = jwt?.claims.iss
    const asked = iss === undefined ? this.#issuers.filter(({ introspects }) => introspects) : this.#issuers.filter(({ issuer }) => issuer === iss)
    if (asked.length === 0) return this.#challenge(jwt === undefined ? MALFORMED : WRONG_ISSUER)
    if (resource === undefined && asked.some(({ audiences }) => audiences === undefined)) return NO_AUDIENCE
    if (this.#pending.size >= MAX_PENDING) return BUSY
    if (!this.#budget.take(peer, now)) return TOO_MANY_WRONG
    const verdict = asked.length === 1 ? this.#ask(asked[0]!, token, jwt, resource, now) : this.#askAll(asked, token, jwt, resource, now)
    // What is told without a check costs nothing.
    if (!(verdict instanceof Promise)) {
      this.#budget.giveBack(peer)
      return this.#challenge(verdict)
    }
    return verdict.then((outcome) => {
      if (!('refused' in outcome[0])) this.#budget.giveBack(peer)
      return this.#keep(outcome, key, now)
    })
  }

  #ask (issuer: Issuer, token: string, jwt: UnverifiedJwt | undefined, resource: string | undefined, now: number): Verdict | Promise<[Verdict, Issuer]> {
    const verdict = issuer.verify(token, jwt, issuer.audiences ?? [normalAudience(resource!)], now)
    return verdict instanceof Promise ? verdict.then((given) => [given, issuer]) : verdict
  }

  /** The first issuer to whom it is good; else the answer that says most. */
  async #askAll (issuers: readonly Issuer[], token: string, jwt: UnverifiedJwt | undefined, resource: string | undefined, now: number): Promise<[Verdict, Issuer]> {
    let worst: [Verdict, Issuer] | undefined
    for (const issuer of issuers) {
      const answer = this.#ask(issuer, token, jwt, resource, now)
      const [verdict] = answer instanceof Promise ? await answer : [answer]
      if ('claims' in verdict) return [verdict, issuer]
      // Where one could not be asked, the token may be its.
      if (worst === undefined || 'unavailable' in verdict || worst[0] === INACTIVE) worst = [verdict, issuer]
    }
    return worst!
  }

  async #keep ([verdict, issuer]: [Verdict, Issuer], key: string, now: number): Promise<Outcome> {
    if (!('claims' in verdict)) return this.#refuse(verdict, key, now)
    const who = await toPrincipal(verdict.claims, issuer)
    if (who === undefined) return this.#refuse(NOBODY, key, now)
    const missing = issuer.requiredScopes.some((scope) => !who.scopes!.has(scope))
    const outcome = missing ? insufficientScope(issuer.requiredScopes) : who
    this.#verified.set(key, outcome, Math.min(expiryOf(verdict.claims, issuer) ?? Infinity, now + issuer.cacheTtl))
    return outcome
  }

  #refuse (verdict: Verdict, key: string, now: number): Challenge {
    const challenge = this.#challenge(verdict)
    // A key that is unknown may be known in a moment.
    if (challenge.status === 401 && verdict !== UNKNOWN_KEY) this.#refused.set(key, challenge, now + REFUSED_FOR)
    return challenge
  }

  /** One object for each reason, however many tokens are wrong. */
  #challenge (verdict: Verdict): Challenge {
    if ('unavailable' in verdict) return unavailableChallenge(verdict.unavailable, verdict.retryAfter)
    const description = 'refused' in verdict ? verdict.refused : ''
    let challenge = this.#challenges.get(description)
    if (challenge === undefined) {
      challenge = Object.freeze({ status: 401, message: 'Unauthorized', error: 'invalid_token', description, scopes: this.#requiredScopes })
      this.#challenges.set(description, challenge)
    }
    return challenge
  }
}

/** Static tokens alone know no scopes of their own: `required` names all that the operation needs. */
export function insufficientScope (required: readonly string[]): Challenge {
  return {
    status: 403,
    message: 'Insufficient scope',
    error: 'insufficient_scope',
    description: `Required ${required.length === 1 ? 'scope' : 'scopes'}: ${required.join(' ')}`,
    scopes: required
  }
}

function unavailableChallenge (reason: string, retryAfter: number): Challenge {
  return { status: 503, message: 'Service Unavailable', headers: { 'retry-after': String(retryAfter) }, reason }
}

/** `scope` is text with spaces (RFC 8693); some issuers send a list, or call it `scp`. */
function scopesOf ({ scope, scp }: Claims): string[] {
  const given = scope ?? scp
  if (typeof given === 'string') return given.split(' ').filter((one) => one !== '')
  return Array.isArray(given) ? given.filter((one): one is string => typeof one === 'string') : []
}

function text (...values: unknown[]): string | undefined {
  return values.find((one): one is string => typeof one === 'string' && one !== '')
}

/** ms since the epoch */
function expiryOf ({ exp }: Claims, { clockTolerance }: Issuer): number | undefined {
  return typeof exp === 'number' ? exp * 1000 + clockTolerance : undefined
}

async function toPrincipal (claims: Claims, from: Issuer): Promise<Principal | undefined> {
  const { issuer, principal: map, expireStreams } = from
  const subject = text(claims.sub)
  const client = text(claims.client_id, claims.azp, claims.cid)
  const id = subject ?? client
  if (id === undefined) return undefined
  const scopes = scopesOf(claims).sort()
  const mapped = map === undefined
    ? { id, roles: [DEFAULT_ROLE, ...scopes], attributes: { auth: 'oauth', issuer, ...(client !== undefined && { client }), scopes } }
    : await map(claims)
  if (mapped === undefined || mapped === null) return undefined
  const expiresAt = expireStreams ? expiryOf(claims, from) : undefined
  return Object.freeze({
    ...principal({ ...mapped, scopes: mapped.scopes ?? scopes } as Parameters<typeof principal>[0]),
    identity: JSON.stringify([issuer, subject ?? null, client ?? null]),
    ...(expiresAt !== undefined && { expiresAt })
  })
}

function sameSet (one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((item) => other.includes(item))
}

function union (lists: readonly (readonly string[])[]): string[] {
  return [...new Set(lists.flat())]
}
