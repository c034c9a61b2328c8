// What the middlewares that answer twice or run twice agree on: which calls may be repeated, and how a result says that it was.

import { isObject } from '../../jsonrpc.js'
import type { CallInfo } from '../contract.js'
import type { ToolSpec } from '../tool.js'

function hintsOf ({ kind, spec }: CallInfo): NonNullable<ToolSpec['annotations']> {
  return kind === 'tool' ? (spec as ToolSpec).annotations ?? {} : {}
}

/** A tool that says of itself that it only reads, and that reading it again is the same. */
export function isRepeatable (info: CallInfo): boolean {
  const { readOnlyHint, idempotentHint } = hintsOf(info)
  return readOnlyHint === true && idempotentHint === true
}

/** A tool that does not say that it only reads. */
export function mayWrite (info: CallInfo): boolean {
  return info.kind === 'tool' && hintsOf(info).readOnlyHint !== true
}

/** A copy of a result with one more thing said in its `_meta`. */
export function withMeta (result: unknown, key: string, value: unknown): unknown {
  return isObject(result) ? { ...result, _meta: { ...result._meta, [key]: value } } : result
}
