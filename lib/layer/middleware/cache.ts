// Answers that are still good: results of tools that only read, kept for a while for the principal that asked.

import { performance } from 'node:perf_hooks'
import { isObject } from '../../jsonrpc.js'
import { identityOf } from '../../principal.js'
import type { AppLayer } from '../layer.js'
import type { CallInfo, Middleware } from '../contract.js'
import { canonicalJson } from './canonical-json.js'
import { isRepeatable, mayWrite, withMeta } from './repeatable.js'

export interface CacheOptions {
  /** How long a result is good, in ms. @default 60000 */
  ttl?: number
  /** Results kept; beyond it the one that was used longest ago goes. @default 256 */
  max?: number
  /** Characters of JSON that all results may have together. @default 33554432 */
  maxChars?: number
  /** What else a result depends on (a header, a tenant). Nothing returned keeps the call out of the cache. @default nothing else */
  vary?: (info: CallInfo) => string | undefined
  /** A clock in ms that never goes back; for tests. @default performance.now */
  now?: () => number
}

export interface Cache extends Middleware {
  /** Forgets everything: for a change that the layer does not know of. */
  clear (): void
  readonly size: number
}

interface Entry { readonly result: Record<string, unknown>, readonly expires: number, readonly chars: number }

/**
 * Keeps results of tools that are hinted read-only **and** idempotent, apart for every principal (its roles and scopes), revision and set of
 * arguments. A change that the layer tells of, and any tool that does not say that it only reads, empties it. Errors are not kept, nor is what
 * depends on an answer of the client.
 * A result out of the cache says so: `_meta["cloudg/cache"]` is `"hit"`.
 *
 * @example layer.use(cache(layer, { ttl: 10_000 }))
 */
export function cache (layer: Pick<AppLayer, 'onChange'>, options: CacheOptions = {}): Cache {
  const { ttl = 60_000, max = 256, maxChars = 33_554_432, vary = () => '', now = () => performance.now() } = options
  // In the order of use, the longest unused first.
  const entries = new Map<string, Entry>()
  let chars = 0
  // What began before the last change must not be kept after it.
  let generation = 0

  function clear (): void {
    generation++
    entries.clear()
    chars = 0
  }

  function forget (key: string): void {
    const entry = entries.get(key)
    if (entry === undefined) return
    entries.delete(key)
    chars -= entry.chars
  }

  function take (key: string): Entry | undefined {
    const entry = entries.get(key)
    if (entry === undefined) return undefined
    if (entry.expires <= now()) {
      forget(key)
      return undefined
    }
    entries.delete(key)
    entries.set(key, entry)
    return entry
  }

  function keep (key: string, result: Record<string, unknown>): void {
    const size = sizeOf(result)
    if (size === undefined || size > maxChars || max < 1) return
    forget(key)
    while (entries.size >= max || chars + size > maxChars) forget(entries.keys().next().value!)
    entries.set(key, { result: { ...result }, expires: now() + ttl, chars: size })
    chars += size
  }

  async function through (info: CallInfo, next: () => Promise<any>): Promise<any> {
    if (mayWrite(info)) {
      clear()
      try {
        return await next()
      } finally {
        clear()
      }
    }
    const key = isRepeatable(info) ? keyOf(info, vary(info)) : undefined
    if (key === undefined) return next()
    const known = take(key)
    if (known !== undefined) {
      const fresh = withMeta(known.result, 'cloudg/duration_ms', Math.round(performance.now() - info.started))
      return withMeta(fresh, 'cloudg/cache', 'hit')
    }
    const began = generation
    const result: unknown = await next()
    if (began === generation && !info.context.asked && isComplete(result)) keep(key, result)
    return result
  }

  layer.onChange(clear)
  return Object.defineProperty(Object.assign(through, { clear }), 'size', { get: () => entries.size }) as Cache
}

function keyOf ({ principal, context, kind, name, arguments: args }: CallInfo, varied: string | undefined): string | undefined {
  const canonical = canonicalJson(args)
  if (canonical === undefined || varied === undefined) return undefined
  return JSON.stringify([identityOf(principal), [...principal.roles].sort(), [...principal.scopes ?? []].sort(), context.protocolVersion, kind, name, canonical, varied])
}

/** A result that says all there is to say: no error, no question to the client. */
function isComplete (result: unknown): result is Record<string, unknown> {
  return isObject(result) && result.isError !== true && (result.resultType ?? 'complete') === 'complete'
}

/** Characters of its JSON; nothing where it has none. */
function sizeOf (result: unknown): number | undefined {
  try {
    return JSON.stringify(result).length
  } catch {
    return undefined
  }
}
