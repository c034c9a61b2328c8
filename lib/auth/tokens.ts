// Static bearer tokens. Only digests are kept, and every one is compared in constant time, so that neither a dump of
// memory nor the time taken tells a token.

import * as crypto from 'node:crypto'
import { InvalidOptionError } from '../errors.js'
import type { Principal, PrincipalSpec } from '../principal.js'
import { bearerToken, DEFAULT_ROLE, principal, splitRoles } from '../principal.js'
import type { Authenticator, Challenge, Credentials } from './authenticator.js'
import { UNAUTHORIZED } from './authenticator.js'

/** Roles as text with commas, a list of roles, or a whole principal, which keeps exactly the roles that it has. */
export type TokenValue = string | Iterable<string> | Principal | PrincipalSpec
export type TokenMap = Record<string, TokenValue>

export interface TokenSpec { token: string, principal: Principal }

const DIGEST_BYTES = 32

// Since Node 20.12 there is a way to hash that makes no object of it; a string is much cheaper to get out of it than a Buffer.
const oneShot = (crypto as unknown as { hash?: (algorithm: string, data: string, encoding: 'latin1') => string }).hash

function digest (token: string, into = Buffer.alloc(DIGEST_BYTES)): Buffer {
  if (oneShot === undefined) crypto.createHash('sha256').update(token).digest().copy(into)
  else into.write(oneShot('sha256', token, 'latin1'), 'latin1')
  return into
}

function defaultId (token: string): string {
  return `token-${digest(token).toString('hex').slice(0, 8)}`
}

function bearer (token: string, id: string, roles: Iterable<string>): Principal {
  return principal({ id: id || defaultId(token), roles: new Set([DEFAULT_ROLE, ...roles]), attributes: { auth: 'bearer' } })
}

/**
 * `TOKEN[:ROLES[:ID]]`, read from the right (a token that holds a colon needs both fields, possibly empty), or
 * `env:VAR[:ROLES[:ID]]`, which takes the token from the environment.
 * @throws CLOUDG_MCP_ERR_INVALID_OPTION when there is no token
 */
export function parseTokenSpec (spec: string, env: NodeJS.ProcessEnv = process.env): TokenSpec {
  let token: string
  let roles = ''
  let id = ''
  if (spec.startsWith('env:')) {
    const [variable = '', ...fields] = spec.slice(4).split(':')
    token = env[variable] ?? ''
    roles = fields[0] ?? ''
    id = fields.slice(1).join(':')
    if (token === '') throw new InvalidOptionError(`Environment variable '${variable}' for an auth token is empty`)
  } else {
    const fields = spec.split(':')
    if (fields.length > 2) id = fields.pop()!
    if (fields.length > 1) roles = fields.pop()!
    token = fields.join(':')
    if (token === '') throw new InvalidOptionError('Empty auth token')
  }
  return { token, principal: bearer(token, id, splitRoles(roles)) }
}

export class TokenAuth implements Authenticator {
  /** Refuse callers without a valid token; else they are anonymous. */
  readonly required: boolean
  readonly #entries: { digest: Buffer, principal: Principal }[] = []
  /** What is looked for now. */
  readonly #probe = Buffer.alloc(DIGEST_BYTES)

  /** @param tokens specs (see {@link parseTokenSpec}), or a map from token to what it stands for */
  constructor (tokens: readonly string[] | TokenMap, options: { required?: boolean } = {}) {
    this.required = options.required ?? true
    if (Array.isArray(tokens)) {
      for (const spec of tokens as string[]) {
        const { token, principal: who } = parseTokenSpec(spec)
        this.add(token, who)
      }
    } else {
      for (const [token, value] of Object.entries(tokens as TokenMap)) this.add(token, value)
    }
  }

  get size (): number { return this.#entries.length }

  add (token: string, value: TokenValue): void {
    if (token === '') throw new InvalidOptionError('Empty auth token')
    this.#entries.push({ digest: digest(token), principal: toPrincipal(token, value) })
  }

  /** A copy of the principal that a token stands for. The last entry of a token wins. */
  lookup (token: string): Principal | undefined {
    const found = this.#find(token)
    return found && { ...found, roles: new Set(found.roles) }
  }

  authenticate ({ authorization }: Pick<Credentials, 'authorization'>): Principal | Challenge | undefined {
    const token = bearerToken(authorization)
    const who = token === undefined ? undefined : this.#find(token)
    return who ?? (this.required ? UNAUTHORIZED : undefined)
  }

  #find (token: string): Principal | undefined {
    const probe = digest(token, this.#probe)
    let found: Principal | undefined
    for (const entry of this.#entries) if (crypto.timingSafeEqual(entry.digest, probe)) found = entry.principal
    return found
  }
}

function toPrincipal (token: string, value: TokenValue): Principal {
  if (typeof value === 'string') return bearer(token, '', splitRoles(value))
  if (Symbol.iterator in value) return bearer(token, '', value)
  return principal({ ...value, roles: value.roles ?? [] } as PrincipalSpec)
}
