// Checking a signature, or asking an issuer, costs more than sending a token that is wrong. Each peer may have a number of
// wrong ones checked in a second; beyond that its new tokens have to wait, while those that are known, and all of other peers, go on.

const PER_SECOND = 50
const BURST = 100
const MAX_PEERS = 1000

interface Budget { left: number, at: number }

export class FailureBudget {
  readonly #peers = new Map<string, Budget>()

  get size (): number { return this.#peers.size }

  /** Takes one check out of a peer's budget. False when it has none left. */
  take (peer: string, now: number): boolean {
    const key = keyOf(peer)
    const budget = this.#peers.get(key) ?? { left: BURST, at: now }
    budget.left = Math.min(BURST, budget.left + (now - budget.at) * PER_SECOND / 1000)
    budget.at = now
    // The most recent stay when there are too many.
    this.#peers.delete(key)
    if (this.#peers.size >= MAX_PEERS) this.#peers.delete(this.#peers.keys().next().value!)
    this.#peers.set(key, budget)
    if (budget.left < 1) return false
    budget.left--
    return true
  }

  /** The token was good, or it could not be told. */
  giveBack (peer: string): void {
    const budget = this.#peers.get(keyOf(peer))
    if (budget !== undefined) budget.left++
  }
}

/** Who has an IPv6 address has a whole /64 of them. */
function keyOf (peer: string): string {
  return peer.includes(':') && !peer.includes('.') ? peer.split(':', 4).join(':') : peer
}
