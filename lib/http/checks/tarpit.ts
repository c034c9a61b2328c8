// Who sends wrong tokens faster than any client would, gets its refusals a while later, and nothing more is read from its connection, which
// ends with them: the calls of others are served meanwhile.

import { Socket } from 'node:net'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { PeerBudget } from '../../auth/peer-budget.js'
import { waits } from '../request.js'

// Wrong tokens of one peer that are refused at once.
const PER_SECOND = 100
const BURST = 200
// ms for which a refusal is held back at least, and between one and the next: however many there are, so many a second it is.
const DELAY = 500
const PACE = 8
// Refusals that are held back, and requests that came behind them on their connections; beyond that they go out at once, or end theirs.
const MAX_HELD = 1000
const MAX_BEHIND = 4096

/** Sends a refusal; with the last one on it the connection ends. */
type Refuse = (last: boolean) => void

export class Tarpit {
  readonly #budget = new PeerBudget(PER_SECOND, BURST)
  readonly #held = new Map<() => void, NodeJS.Timeout>()
  /** Connections that are read no more, with what was read already. */
  readonly #slowed = new Map<Socket, number>()
  #behind = 0
  #next = 0
  #closed = false

  /** Has the request come behind the last one that its connection is answered? */
  isBehind ({ raw: { socket } }: FastifyRequest): boolean {
    const behind = this.#slowed.size > 0 ? this.#slowed.get(socket) : undefined
    if (behind === undefined) return false
    this.#slowed.set(socket, behind + 1)
    if (++this.#behind > MAX_BEHIND) socket.destroy()
    return true
  }

  /** Sends a refusal, now or a while later. */
  send ({ raw, ip }: FastifyRequest, reply: FastifyReply, refuse: Refuse): void {
    const now = Date.now()
    if (raw.headers.authorization === undefined || this.#budget.take(ip ?? '', now)) return refuse(false)
    if (this.#closed || this.#held.size >= MAX_HELD) return refuse(true)
    // Requests that share a connection by streams are not in each other's way.
    if (raw.httpVersionMajor === 1 && raw.socket instanceof Socket) {
      this.#ignoreWhatFollows(raw.socket)
      // It waits for what came before it, and that has to see its client leave: a connection that is not read does not.
      if (waits(reply)) return refuse(true)
      // Not at once: Node reads on at the end of each request.
      setImmediate(() => { raw.socket.pause() })
    }
    const answer = (): void => {
      this.#held.delete(answer)
      if (!reply.raw.destroyed) refuse(true)
    }
    const at = Math.max(now + DELAY, this.#next)
    this.#next = at + PACE
    this.#held.set(answer, setTimeout(answer, at - now))
  }

  #ignoreWhatFollows (socket: Socket): void {
    // Nobody hears the end of one that has ended.
    if (socket.destroyed || this.#slowed.has(socket)) return
    this.#slowed.set(socket, 0)
    socket.once('close', () => {
      this.#behind -= this.#slowed.get(socket)!
      this.#slowed.delete(socket)
    })
  }

  /** Nobody is held up by those that are held back. */
  close (): void {
    this.#closed = true
    for (const [answer, timer] of this.#held) {
      clearTimeout(timer)
      answer()
    }
  }
}
