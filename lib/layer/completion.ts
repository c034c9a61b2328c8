// Completions of prompt arguments and template variables.

import type { Context } from './context.js'

/** Other arguments that the client has already filled in are in `known`. */
export type Completer = (prefix: string, ctx: Context, known: Readonly<Record<string, string>>) =>
  readonly (string | number)[] | Promise<readonly (string | number)[]>

export interface Completion { values: string[], total: number, hasMore: boolean }

export type CompletionRef = { type: 'ref/prompt', name: string } | { type: 'ref/resource', uri: string }

const MOST = 100

export function toCompletion (values: readonly (string | number)[] | undefined | null): Completion {
  const all = values ?? []
  return { values: all.slice(0, MOST).map(String), total: all.length, hasMore: all.length > MOST }
}

export const nothing: Completion = Object.freeze({ values: [], total: 0, hasMore: false })
