// How a call ended, in one word: what an audit trail and metrics say of it.

import { isObject } from '../../jsonrpc.js'
import { AccessDeniedError, LayerError, RateLimitedError, SuspendedError, TimeoutError, ToolError } from '../errors.js'
import type { CallInfo } from '../layer.js'

export const OUTCOMES = ['ok', 'error', 'denied', 'rate_limited', 'rejected', 'cancelled', 'exception'] as const
export type Outcome = typeof OUTCOMES[number]

export interface Ending {
  readonly outcome: Outcome
  /** The kind of failure. Never its message: that may quote what the caller sent. */
  readonly error?: string
}

/** A call that returned. */
export function returned (info: CallInfo, result: unknown): Ending {
  if (isCancelled(info)) return { outcome: 'cancelled' }
  return { outcome: isObject(result) && result.isError === true ? 'error' : 'ok' }
}

/** A call that threw. */
export function threw (info: CallInfo, thrown: unknown): Ending {
  // It asks the client, and runs again with the answers.
  if (thrown instanceof SuspendedError) return { outcome: 'ok' }
  if (isCancelled(info)) return { outcome: 'cancelled' }
  return { outcome: outcomeOf(thrown), error: thrown instanceof Error ? thrown.name : typeof thrown }
}

function outcomeOf (thrown: unknown): Outcome {
  if (thrown instanceof AccessDeniedError) return 'denied'
  if (thrown instanceof RateLimitedError) return 'rate_limited'
  if (thrown instanceof ToolError || thrown instanceof TimeoutError) return 'error'
  return thrown instanceof LayerError ? 'rejected' : 'exception'
}

function isCancelled ({ context: { signal } }: CallInfo): boolean {
  return signal.aborted && !(signal.reason instanceof TimeoutError)
}
