// Who sends wrong tokens faster than any client would, gets its refusals a while later, and nothing more is read from its connection, which
// ends with them: the calls of others are served meanwhile.

import { Socket } from 'node:net'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { PeerBudget } from '../../auth/peer-budget.js'

// Wrong tokens of one peer that are refused at once.
const PER_SECOND = 100
const BURST = 200
// ms for which a refusal is held back at least, and between one and the next: however many there are, so many a second it is.
const DELAY = 500
const PACE = 8
// Refusals that are held back; beyond that they go out at once.
const MAX_HELD = 1000

/** Sends a refusal; with the last one on it the connection ends. */
type Refuse = (last: boolean) => void

export class Tarpit {
  readonly #budget = new PeerBudget(PER_SECOND, BURST)
  readonly #slowed = new WeakSet<object>()
  readonly #held = new Map<() => void, NodeJS.Timeout>()
  #next = 0

  /** Has the request come behind one that is held back? Nothing that was sent after that one is read. */
  isBehind ({ raw: { socket } }: FastifyRequest): boolean {
    return this.#held.size > 0 && this.#slowed.has(socket)
  }

  /** Sends a refusal, now or a while later. */
  send ({ raw, ip }: FastifyRequest, reply: FastifyReply, refuse: Refuse): void {
    const now = Date.now()
    if (raw.headers.authorization === undefined || this.#budget.take(ip ?? '', now)) return refuse(false)
    if (this.#held.size >= MAX_HELD) return refuse(true)
    this.#readNoMore(raw)
    const at = Math.max(now + DELAY, this.#next)
    this.#next = at + PACE
    const answer = (): void => {
      this.#held.delete(answer)
      if (!reply.raw.destroyed) refuse(true)
    }
    this.#held.set(answer, setTimeout(answer, at - now))
  }

  /** Requests that share a connection by streams are not in each other's way. */
  #readNoMore ({ socket, httpVersionMajor }: FastifyRequest['raw']): void {
    if (httpVersionMajor > 1 || !(socket instanceof Socket)) return
    this.#slowed.add(socket)
    // Not at once: Node reads on at the end of each request. What has been read together with this one comes still.
    setImmediate(() => { socket.pause() })
  }

  /** Nobody is held up by those that are held back. */
  close (): void {
    for (const [answer, timer] of this.#held) {
      clearTimeout(timer)
      answer()
    }
  }
}
