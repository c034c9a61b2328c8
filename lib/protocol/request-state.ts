// Sealing requestState: what a handler wants back travels through the client, who must neither read nor change it, nor use
// it for another call, another caller, or after its time. AES-256-GCM under a key derived with HKDF-SHA256.
// MCP 2026-07-28 "Multi round-trip requests / requestState".

import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto'
import { InvalidOptionError } from '../errors.js'
import { codes, isObject, RpcError } from '../jsonrpc.js'

export interface RequestStateOptions {
  /** Secrets of at least 32 bytes; the first seals, all of them open. @default one random key per process */
  keys?: readonly (string | Uint8Array)[] | undefined
  /** ms that a state is good for. @default 600000 */
  ttl?: number | undefined
  /** Binds states to a service; services that share keys need different ones. @default the layer's name */
  audience?: string | undefined
  /** @internal */
  now?: () => number
}

/** What a state is bound to. */
export interface Binding {
  readonly principal: string
  readonly method: string
  /** The name or URI that is called. */
  readonly target: string
  readonly arguments: unknown
}

const PREFIX = 'v1.'
const CONTEXT = 'mcp/request-state/v1/aes-256-gcm'
const KEY_ID = 'mcp/request-state/v1/kid:'
const PRINCIPAL = 'mcp/request-state/principal:'
const KID = 4
const NONCE = 12
const TAG = 16
const SALT = 8
const CLOCK_SKEW = 60

interface Key { secret: Buffer, kid: Buffer }

/** The only answer to a state that is not accepted, whatever is wrong with it. */
export function invalidState (): RpcError {
  return new RpcError(codes.invalidParams, 'Invalid or expired requestState', { reason: 'invalid_request_state' })
}

export class RequestState {
  readonly #keys: readonly Key[]
  readonly #ttl: number
  readonly #audience: string
  readonly #now: () => number

  constructor (audience: string, options: RequestStateOptions = {}) {
    const { keys = [randomBytes(32)], ttl = 600_000, now = Date.now } = options
    if (keys.length === 0) throw new InvalidOptionError('option requestState.keys must hold at least one key')
    if (!Number.isFinite(ttl) || ttl <= 0) throw new InvalidOptionError('option requestState.ttl must be a positive number of ms')
    this.#keys = keys.map(deriveKey)
    if (new Set(this.#keys.map(({ kid }) => kid.toString('hex'))).size < keys.length) throw new InvalidOptionError('option requestState.keys holds a key twice')
    this.#ttl = ttl / 1000
    this.#audience = options.audience ?? audience
    this.#now = now
  }

  seal (state: string, { principal, method, target, arguments: args }: Binding): string {
    const [{ secret, kid }] = this.#keys as [Key]
    const now = this.#now() / 1000
    const salt = randomBytes(SALT)
    const claims = {
      v: 1, iat: now, exp: now + this.#ttl, m: method, t: target, a: digest(canonical(args)), s: state, aud: this.#audience, p: principalClaim(salt, principal)
    }
    const nonce = randomBytes(NONCE)
    const cipher = createCipheriv('aes-256-gcm', secret, nonce).setAAD(aad(kid))
    const sealed = Buffer.concat([kid, nonce, cipher.update(JSON.stringify(claims)), cipher.final(), cipher.getAuthTag()])
    return PREFIX + sealed.toString('base64url')
  }

  /**
   * What was sealed.
   * @throws RpcError always the same one; `reason` (for the log) gets to know why
   */
  open (token: unknown, binding: Binding, reason: (why: string) => void = () => {}): string {
    const claims = this.#decrypt(token)
    const why = typeof claims === 'string' ? claims : this.#refuted(claims, binding)
    if (why !== undefined) {
      reason(why)
      throw invalidState()
    }
    return (claims as Record<string, any>).s
  }

  /** The claims, or why there are none. */
  #decrypt (token: unknown): Record<string, any> | string {
    if (typeof token !== 'string' || !token.startsWith(PREFIX)) return 'not a sealed state'
    const text = token.slice(PREFIX.length)
    const bytes = Buffer.from(text, 'base64url')
    // Node reads Base64 leniently; a second spelling of a token would be a second token.
    if (bytes.toString('base64url') !== text || bytes.length < KID + NONCE + TAG) return 'bad encoding'
    const kid = bytes.subarray(0, KID)
    const key = this.#keys.find((one) => one.kid.equals(kid))
    if (key === undefined) return 'unknown key'
    try {
      const decipher = createDecipheriv('aes-256-gcm', key.secret, bytes.subarray(KID, KID + NONCE)).setAAD(aad(kid)).setAuthTag(bytes.subarray(-TAG))
      const text = Buffer.concat([decipher.update(bytes.subarray(KID + NONCE, -TAG)), decipher.final()]).toString()
      const claims: unknown = JSON.parse(text)
      return isObject(claims) ? claims : 'claims are no object'
    } catch {
      return 'does not decrypt'
    }
  }

  #refuted (claims: Record<string, any>, { principal, method, target, arguments: args }: Binding): string | undefined {
    const now = this.#now() / 1000
    if (claims.v !== 1) return 'version'
    if (typeof claims.iat !== 'number' || claims.iat > now + CLOCK_SKEW) return 'issued in the future'
    if (typeof claims.exp !== 'number' || now >= claims.exp) return 'expired'
    if (claims.m !== method || claims.t !== target) return 'another call'
    if (claims.a !== digest(canonical(args))) return 'other arguments'
    if (claims.aud !== this.#audience) return 'another audience'
    if (typeof claims.s !== 'string' || !samePrincipal(claims.p, principal)) return 'another caller'
    return undefined
  }
}

function deriveKey (given: string | Uint8Array): Key {
  const bytes = Buffer.from(given as Uint8Array)
  if (bytes.length < 32) throw new InvalidOptionError('option requestState.keys: a key must have at least 32 bytes')
  const secret = Buffer.from(hkdfSync('sha256', bytes, Buffer.alloc(0), CONTEXT, 32))
  const kid = createHash('sha256').update(KEY_ID).update(secret).digest().subarray(0, KID)
  return { secret, kid }
}

function aad (kid: Buffer): Buffer {
  return Buffer.concat([Buffer.from(PREFIX), kid])
}

/** A short digest of text, as text. */
export function digest (text: string): string {
  return createHash('sha256').update(text).digest().subarray(0, 16).toString('base64url')
}

/** JSON with sorted keys, so that equal values have equal text. Not recursive: a caller's arguments may be nested deeper than the stack is. */
export function canonical (value: unknown): string {
  const text: string[] = []
  // What is yet to be written, the next one last: text as it is, and values in a box.
  const todo: (string | [unknown])[] = [[value]]
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    if (typeof next === 'string') {
      text.push(next)
      continue
    }
    const [one] = next
    if (Array.isArray(one)) {
      todo.push(']')
      for (let at = one.length - 1; at >= 0; at--) todo.push([one[at]], at === 0 ? '[' : ',')
      if (one.length === 0) todo.push('[')
    } else if (isObject(one)) {
      const keys = Object.keys(one).filter((key) => one[key] !== undefined).sort()
      todo.push('}')
      for (let at = keys.length - 1; at >= 0; at--) todo.push([one[keys[at]!]], `${at === 0 ? '{' : ','}${JSON.stringify(keys[at])}:`)
      if (keys.length === 0) todo.push('{')
    } else {
      text.push(JSON.stringify(one) ?? 'null')
    }
  }
  return text.join('')
}

function principalClaim (salt: Buffer, principal: string): string {
  const hash = createHash('sha256').update(PRINCIPAL).update(salt).update(principal).digest().subarray(0, 16)
  return Buffer.concat([salt, hash]).toString('base64url')
}

function samePrincipal (claim: unknown, principal: string): boolean {
  if (typeof claim !== 'string') return false
  const bytes = Buffer.from(claim, 'base64url')
  if (bytes.length !== SALT + 16) return false
  return timingSafeEqual(bytes, Buffer.from(principalClaim(bytes.subarray(0, SALT), principal), 'base64url'))
}
