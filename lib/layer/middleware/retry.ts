// A second chance for reads that failed for a reason that may pass: a timeout, a connection that broke.

import { isObject } from '../../jsonrpc.js'
import { TimeoutError } from '../errors.js'
import type { Middleware } from '../contract.js'
import { isRepeatable, withMeta } from './repeatable.js'

export interface RetryOptions {
  /** Runs after the first. @default 2 */
  retries?: number
  /** Wait before the n-th retry (from 0), in ms. @default 500 · 2^n */
  backoff?: (retry: number) => number
  /** What may pass. @default timeouts and broken connections */
  isTransient?: (error: unknown) => boolean
  /** Waits; for tests. */
  wait?: (ms: number, signal: AbortSignal | undefined) => Promise<void>
}

const broken = new Set([
  'ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'EAI_AGAIN',
  'UND_ERR_SOCKET', 'UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'
])

/** `fetch` hides the reason in `cause`; a chain longer than this is none of its making. */
const MAX_CAUSES = 5

function isTransientError (error: unknown): boolean {
  let at: unknown = error
  for (let depth = 0; at instanceof Error && depth < MAX_CAUSES; depth++) {
    if (at instanceof TimeoutError || at.name === 'TimeoutError' || broken.has(String((at as NodeJS.ErrnoException).code))) return true
    at = at.cause
  }
  return false
}

function isTimeoutResult (result: unknown): boolean {
  return isObject(result) && result.isError === true && isObject(result._meta) && result._meta['cloudg/error_code'] === 'timeout'
}

/**
 * Runs tools again that are hinted read-only **and** idempotent, when they time out or lose a connection.
 * The result says how often in `_meta["cloudg/retries"]`.
 */
export function retry (options: RetryOptions = {}): Middleware {
  const { retries = 2, backoff = (retry) => 500 * 2 ** retry, isTransient = isTransientError, wait = pause } = options

  return async (info, next) => {
    if (!isRepeatable(info)) return next()
    for (let done = 0; ; done++) {
      const last = done >= retries
      try {
        const result: unknown = await next()
        if (last || !isTimeoutResult(result)) return done === 0 ? result : withMeta(result, 'cloudg/retries', done)
      } catch (error) {
        if (last || !isTransient(error)) throw error
      }
      // The signal of a run that timed out says no more than that.
      const { signal } = info.context
      if (signal.aborted && !(signal.reason instanceof TimeoutError)) throw signal.reason
      await wait(backoff(done), signal.aborted ? undefined : signal)
    }
  }
}

function pause (ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    }, ms).unref()
    const onAbort = (): void => {
      clearTimeout(timer)
      reject(new Error('The call was cancelled', { cause: signal?.reason }))
    }
    signal?.addEventListener('abort', onAbort, { once: true })
  })
}
