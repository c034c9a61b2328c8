// Errors that a handler or a middleware throws to say something to the caller. What they become on the wire
// (a tool result with `isError`, a JSON-RPC error, a code) is decided in one table: protocol/errors.ts.

import type { Issue } from './schema.js'
import { describeIssues } from './schema.js'

/** Base of all errors whose message may reach the caller. */
export class LayerError extends Error {
  /** More for the caller, as JSON. */
  readonly data: unknown

  constructor (message: string, data?: unknown) {
    super(message)
    this.name = new.target.name
    this.data = data
  }
}

/** A tool could not do it, and the model should read why. */
export class ToolError extends LayerError {}

/** What was asked for does not exist (or the caller may not know that it does). */
export class NotFoundError extends LayerError {}

export type PrimitiveKind = 'tool' | 'resource' | 'prompt' | 'completion'

/** No such tool, resource or prompt for this caller: hidden and missing look the same. */
export class UnknownPrimitiveError extends NotFoundError {
  readonly kind: PrimitiveKind

  constructor (kind: PrimitiveKind, name: string) {
    super(`Unknown ${kind}: ${name}`, kind === 'resource' ? { uri: name } : { name })
    this.kind = kind
  }
}

/** The arguments do not fit. Give it text, or the issues of a schema. */
export class InvalidArgumentsError extends LayerError {
  constructor (problem: string | readonly Issue[], data?: unknown) {
    super(typeof problem === 'string' ? problem : `Invalid arguments: ${describeIssues(problem)}`, data ?? (typeof problem === 'string' ? undefined : problem))
  }
}

export class AccessDeniedError extends LayerError {}

/** Too many calls. `data.retry_after` is in seconds. */
export class RateLimitedError extends LayerError {
  // eslint-disable-next-line @typescript-eslint/no-useless-constructor -- it narrows the type of `data`
  constructor (message: string, data?: { retry_after?: number, limit?: number | string, scope?: string }) {
    super(message, data)
  }
}

export class TimeoutError extends LayerError {}

/** What a tool returned does not fit its own output schema: the author's fault, logged and not shown. */
export class InvalidOutputError extends Error {
  constructor (tool: string, issues: readonly Issue[]) {
    super(`Tool ${tool} returned a value that its output schema does not allow: ${describeIssues(issues)}`)
    this.name = 'InvalidOutputError'
  }
}

/** The client did not declare what the handler needs of it (elicitation, sampling, roots). */
export class MissingCapabilityError extends LayerError {
  readonly required: Record<string, unknown>

  constructor (required: Record<string, unknown>) {
    super(`Client did not declare the required capability: ${Object.keys(required).join(', ')}`, { requiredCapabilities: required })
    this.required = required
  }
}

/** Ends a run of a handler in 2026-07-28: its questions are on their way to the client, and the handler runs again with the answers. Not for handlers to catch. */
export class SuspendedError extends LayerError {
  constructor () {
    super('The call waits for answers of the client: the handler runs again when they are there')
  }
}
