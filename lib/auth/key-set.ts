// The public keys of one issuer (RFC 7517). They are fetched again when they are old, in the background, and when a token
// names a key that is not among them, but not more often than the cooldown allows. While the issuer is down, old keys serve
// for a bounded time.

import { importJWK } from 'jose'
import type { CryptoKey, JWK } from 'jose'
import { isObject } from '../jsonrpc.js'
import type { Verdict } from './verdict.js'
import { unavailable, UNKNOWN_KEY } from './verdict.js'

export interface KeySetOptions {
  /** Fetches the document. */
  load: () => Promise<unknown>
  /** ms between two attempts to fetch. @default 30000 */
  cooldown?: number
  /** ms after which keys are fetched again. @default 600000 */
  maxAge?: number
  /** ms beyond `maxAge` for which keys serve when they cannot be fetched. @default 3600000 */
  staleFor?: number
  now?: () => number
}

const MAX_CANDIDATES = 3
const SECRET_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']
const RSA = /^(?:RS|PS)(?:256|384|512)$/
const CURVES: Record<string, readonly string[]> = {
  ES256: ['P-256'], ES384: ['P-384'], ES512: ['P-521'], EdDSA: ['Ed25519'], Ed25519: ['Ed25519']
}

/** The algorithms that a public key can check. */
export const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'] as const

interface Key { readonly jwk: JWK, readonly imported: Map<string, Promise<CryptoKey | undefined>> }

export class KeySet {
  readonly #load: (() => Promise<unknown>) | undefined
  readonly #cooldown: number
  readonly #maxAge: number
  readonly #staleFor: number
  readonly #now: () => number
  #keys: readonly Key[] | undefined
  #loadedAt = -Infinity
  #triedAt = -Infinity
  #failure: string | undefined
  #loading: Promise<void> | undefined

  /** @param source the keys themselves, or how to get them */
  constructor (source: { keys: readonly unknown[] } | KeySetOptions) {
    const options: Partial<KeySetOptions> = 'keys' in source ? {} : source
    this.#load = options.load
    this.#cooldown = options.cooldown ?? 30_000
    this.#maxAge = options.maxAge ?? 600_000
    this.#staleFor = options.staleFor ?? 3_600_000
    this.#now = options.now ?? Date.now
    if ('keys' in source) this.#keys = source.keys.flatMap(toKey)
  }

  /** The keys that may have signed a token; or why there are none. */
  async find (kid: string | undefined, alg: string): Promise<CryptoKey[] | Verdict> {
    if (this.#load === undefined) return this.#imported(this.#select(kid, alg), alg)
    const age = this.#now() - this.#loadedAt
    if (this.#keys === undefined || age > this.#maxAge + this.#staleFor) {
      // Old keys are worth nothing by now.
      if (!await this.#refresh()) return this.#unavailable()
    } else if (age > this.#maxAge) {
      void this.#refresh()
    }
    let found = this.#select(kid, alg)
    if (found.length === 0) {
      const fresh = await this.#refresh()
      if (!fresh && this.#failure !== undefined) return this.#unavailable()
      found = this.#select(kid, alg)
    }
    return this.#imported(found, alg)
  }

  /** True when keys have been fetched: now, or, within the cooldown, by the last attempt. */
  async #refresh (): Promise<boolean> {
    if (this.#loading === undefined) {
      if (this.#now() - this.#triedAt < this.#cooldown) return this.#failure === undefined
      this.#triedAt = this.#now()
      this.#loading = this.#fetch().finally(() => { this.#loading = undefined })
    }
    await this.#loading
    return this.#failure === undefined
  }

  async #fetch (): Promise<void> {
    try {
      const document = await this.#load!()
      if (!isObject(document) || !Array.isArray(document.keys)) throw new Error('it is not a set of keys')
      this.#keys = document.keys.flatMap(toKey)
      this.#loadedAt = this.#now()
      this.#failure = undefined
    } catch (error) {
      const { message, cause } = error as Error
      this.#failure = cause instanceof Error ? `${message}: ${cause.message}` : message
    }
  }

  #unavailable (): Verdict {
    const wait = this.#triedAt + this.#cooldown - this.#now()
    return unavailable(`the keys of the issuer cannot be had: ${this.#failure}`, Math.max(1, Math.ceil(wait / 1000)))
  }

  #select (kid: string | undefined, alg: string): Key[] {
    const kty = RSA.test(alg) ? 'RSA' : alg.startsWith('ES') ? 'EC' : 'OKP'
    const fits = ({ jwk }: Key): boolean => jwk.kty === kty &&
      (kid === undefined || jwk.kid === kid) &&
      (jwk.alg === undefined || jwk.alg === alg) &&
      (kty === 'RSA' || CURVES[alg]?.includes(jwk.crv!) === true)
    return (this.#keys ?? []).filter(fits).slice(0, MAX_CANDIDATES)
  }

  async #imported (keys: readonly Key[], alg: string): Promise<CryptoKey[] | Verdict> {
    const imported = await Promise.all(keys.map(({ jwk, imported }) => {
      let one = imported.get(alg)
      if (one === undefined) imported.set(alg, one = importJWK(jwk, alg).then((key) => key as CryptoKey, () => undefined))
      return one
    }))
    const usable = imported.filter((key) => key !== undefined)
    return usable.length === 0 ? UNKNOWN_KEY : usable
  }
}

/** Public keys for signatures, without what does not belong into a published set. Symmetric keys are none. */
function toKey (jwk: unknown): Key[] {
  if (!isObject(jwk) || !['RSA', 'EC', 'OKP'].includes(jwk.kty)) return []
  if (jwk.use !== undefined && jwk.use !== 'sig') return []
  if (Array.isArray(jwk.key_ops) && !jwk.key_ops.includes('verify')) return []
  const { key_ops: _ops, ext: _ext, ...open } = jwk
  for (const member of SECRET_MEMBERS) delete open[member]
  return [{ jwk: open as JWK, imported: new Map() }]
}
