// How many calls run at once. The rest wait their turn, in the order in which they came, and for so long only.

import { InvalidOptionError } from '../../errors.js'
import { identityOf } from '../../principal.js'
import { LayerError } from '../errors.js'
import type { CallInfo, Middleware } from '../contract.js'

export interface ConcurrencyOptions {
  /** Calls that run at once. @default 8 */
  limit?: number
  /** Of these, calls of one principal. @default no limit of its own */
  perPrincipal?: number
  /** Longest wait for a turn, in ms. @default 30000 */
  queueTimeout?: number
  /** Calls that may wait; more are refused at once. @default 1024 */
  maxQueue?: number
  /** What is counted. A tool that reads a resource through `ctx` holds its own place meanwhile, so count both only with room to spare. @default ['tool'] */
  kinds?: readonly CallInfo['kind'][]
}

interface Waiting { readonly who: string, readonly start: () => void }

const BUSY = 'Server busy: too many concurrent MCP calls'

/**
 * Limits how many calls run at once. A call that finds no place in time is refused; a call that its client cancels leaves the queue.
 * A place is free again when the handler has ended, not when its client has gone.
 */
export function concurrency (options: ConcurrencyOptions = {}): Middleware {
  const { limit = 8, perPrincipal = Infinity, queueTimeout = 30_000, maxQueue = 1024, kinds = ['tool'] } = options
  for (const [name, value] of Object.entries({ limit, perPrincipal })) {
    if (typeof value !== 'number' || !(value >= 1)) throw new InvalidOptionError(`concurrency option \`${name}\` must be a number of calls, 1 or more, got ${String(value)}`)
  }
  const running = new Map<string, number>()
  const queue = new Set<Waiting>()
  let total = 0

  function admits (who: string): boolean {
    return total < limit && (running.get(who) ?? 0) < perPrincipal
  }

  function enter (who: string): void {
    total++
    running.set(who, (running.get(who) ?? 0) + 1)
  }

  function leave (who: string): void {
    total--
    const left = running.get(who)! - 1
    if (left > 0) running.set(who, left)
    else running.delete(who)
    for (const waiting of queue) {
      if (total >= limit) return
      if (admits(waiting.who)) waiting.start()
    }
  }

  /** Resolves with the place taken. */
  function turn (who: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        queue.delete(waiting)
        clearTimeout(timer)
        signal.removeEventListener('abort', onAbort)
      }
      const onAbort = (): void => {
        end()
        reject(new Error('The call was cancelled', { cause: signal.reason }))
      }
      const waiting = {
        who,
        start: () => {
          end()
          enter(who)
          resolve()
        }
      }
      const timer = setTimeout(() => {
        end()
        reject(new LayerError(BUSY))
      }, queueTimeout).unref()
      signal.addEventListener('abort', onAbort, { once: true })
      queue.add(waiting)
    })
  }

  return async (info, next) => {
    if (!kinds.includes(info.kind)) return next()
    const who = identityOf(info.principal)
    if (admits(who)) {
      enter(who)
    } else {
      const { signal } = info.context
      if (queue.size >= maxQueue || queueTimeout <= 0) throw new LayerError(BUSY)
      signal.throwIfAborted()
      await turn(who, signal)
    }
    try {
      return await next()
    } finally {
      leave(who)
    }
  }
}
