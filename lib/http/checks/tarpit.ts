// Who sends wrong tokens faster than any client would, gets its refusals a moment later: on each of its connections it has to
// wait for one before it can send the next, and the calls of others are served meanwhile.

import type { FastifyReply, FastifyRequest } from 'fastify'
import { PeerBudget } from '../../auth/peer-budget.js'

// Wrong tokens of one peer that are refused at once.
const PER_SECOND = 100
const BURST = 200
// ms; at random up to twice as long, or all would come back at once.
const DELAY = 100
// Refusals that are held back; beyond that they go out, too.
const MAX_HELD = 1000

export class Tarpit {
  readonly #budget = new PeerBudget(PER_SECOND, BURST)
  #held = 0

  /** Sends a refusal, now or a little later. */
  send (request: FastifyRequest, reply: FastifyReply, refuse: () => void): void {
    if (request.raw.headers.authorization === undefined || this.#budget.take(request.ip ?? '', Date.now()) || this.#held >= MAX_HELD) return refuse()
    this.#held++
    setTimeout(() => {
      this.#held--
      if (!reply.raw.destroyed) refuse()
    }, DELAY + Math.random() * DELAY)
  }
}
