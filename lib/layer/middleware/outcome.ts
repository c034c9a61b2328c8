// How a call ended, in one word: what an audit trail and metrics say of it.

import { isObject } from '../../jsonrpc.js'
import { isInputRequired } from '../ask.js'
import { AccessDeniedError, LayerError, RateLimitedError, SuspendedError, TimeoutError, ToolError } from '../errors.js'
import type { CallInfo } from '../contract.js'

export const OUTCOMES = ['ok', 'input_required', 'error', 'denied', 'rate_limited', 'rejected', 'cancelled', 'exception'] as const
export type Outcome = typeof OUTCOMES[number]

export interface Ending {
  readonly outcome: Outcome
  /** The kind of failure. Never its message: that may quote what the caller sent. */
  readonly error?: string
}

/** A call that returned. */
export function returned (info: CallInfo, result: unknown): Ending {
  if (asks(result, info)) return { outcome: 'input_required' }
  if (isCancelled(info)) return { outcome: 'cancelled' }
  return { outcome: isObject(result) && result.isError === true ? 'error' : 'ok' }
}

/** A call that threw. */
export function threw (info: CallInfo, thrown: unknown): Ending {
  if (asks(thrown, info)) return { outcome: 'input_required' }
  if (isCancelled(info)) return { outcome: 'cancelled' }
  return { outcome: outcomeOf(thrown), error: thrown instanceof Error ? thrown.name : typeof thrown }
}

/** It asks the client, and runs again with the answers: whatever the handler made of that. */
function asks (end: unknown, { context: { signal } }: CallInfo): boolean {
  return end instanceof SuspendedError || isInputRequired(end) || signal.reason instanceof SuspendedError
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
