// So much for each peer in a second: what costs more to answer than to ask for is bounded by whoever asks for it, and the
// others go on.

const MAX_PEERS = 1000

interface Budget { left: number, at: number }

export class PeerBudget {
  readonly #perSecond: number
  readonly #burst: number
  readonly #peers = new Map<string, Budget>()

  constructor (perSecond: number, burst: number) {
    this.#perSecond = perSecond
    this.#burst = burst
  }

  get size (): number { return this.#peers.size }

  /** Takes one out of a peer's budget. False when there is none left. */
  take (peer: string, now: number): boolean {
    const key = keyOf(peer)
    const budget = this.#peers.get(key) ?? { left: this.#burst, at: now }
    budget.left = Math.min(this.#burst, budget.left + (now - budget.at) * this.#perSecond / 1000)
    budget.at = now
    // The most recent stay when there are too many.
    this.#peers.delete(key)
    if (this.#peers.size >= MAX_PEERS) this.#peers.delete(this.#peers.keys().next().value!)
    this.#peers.set(key, budget)
    if (budget.left < 1) return false
    budget.left--
    return true
  }

  /** It was not needed after all. */
  giveBack (peer: string): void {
    const budget = this.#peers.get(keyOf(peer))
    if (budget !== undefined) budget.left++
  }
}

/** Who has an IPv6 address has a whole /64 of them. */
function keyOf (peer: string): string {
  return peer.includes(':') && !peer.includes('.') ? peer.split(':', 4).join(':') : peer
}
