// What is known of tokens, for a while: who a good one stands for, and that a wrong one is wrong. Bounded, and keyed by digest,
// so that a dump of memory tells no token. Wrong tokens have a cache of their own: a flood of them pushes no good one out.

import * as crypto from 'node:crypto'

/** One-shot hashing is in Node from 20.12 on. */
export const digestOf: (token: string) => string = typeof crypto.hash === 'function'
  ? (token) => crypto.hash('sha256', token, 'base64')
  : (token) => crypto.createHash('sha256').update(token).digest('base64')

interface Entry<V> { readonly value: V, readonly until: number }

/** The least recently used entry goes first. */
export class TokenCache<V> {
  readonly #max: number
  readonly #entries = new Map<string, Entry<V>>()

  constructor (max: number) {
    this.#max = max
  }

  get size (): number { return this.#entries.size }

  get (key: string, now: number): V | undefined {
    const entry = this.#entries.get(key)
    if (entry === undefined) return undefined
    this.#entries.delete(key)
    if (entry.until <= now) return undefined
    this.#entries.set(key, entry)
    return entry.value
  }

  /** @param until ms since the epoch */
  set (key: string, value: V, until: number): void {
    this.#entries.delete(key)
    if (this.#entries.size >= this.#max) this.#entries.delete(this.#entries.keys().next().value!)
    this.#entries.set(key, { value, until })
  }
}
