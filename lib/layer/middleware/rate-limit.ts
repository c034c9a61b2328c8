// How often one principal may call one tool. The generic cell rate algorithm: a burst of the whole limit, then one call
// whenever the next has been earned; one number for each principal and tool.

import { InvalidOptionError } from '../../errors.js'
import { identityOf } from '../../principal.js'
import { RateLimitedError } from '../errors.js'
import type { CallInfo, Middleware } from '../contract.js'

/** `60/minute`: calls in a second, minute, hour or day. */
export type Rate = `${number}/${keyof typeof periods}`

export interface RateLimitOptions {
  /** For every tool that `tools` does not name. @default no limit */
  limit?: Rate
  /** By the name that the tool was registered under; `false` for no limit. */
  tools?: Record<string, Rate | false>
  /** What is limited; resources are counted by template. @default ['tool'] */
  kinds?: readonly CallInfo['kind'][]
  /** Principals and tools that are kept apart; beyond it the one that was quiet longest is forgotten. @default 10000 */
  maxKeys?: number
  /** A clock in ms that never goes back; for tests. @default performance.now */
  now?: () => number
}

const periods = { second: 1000, minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const
const RATE = /^([1-9]\d{0,8})\/(second|minute|hour|day)$/
// Sums of fractions do not come out even.
const TOLERANCE = 1e-3

interface Limit { readonly text: string, readonly period: number, readonly interval: number }

function parse (option: string, rate: unknown): Limit {
  const [, count, unit] = (typeof rate === 'string' ? RATE.exec(rate) : null) ?? []
  if (count === undefined) throw new InvalidOptionError(`rateLimit option \`${option}\` must be like '60/minute' (second, minute, hour or day), got '${String(rate)}'`)
  const period = periods[unit as keyof typeof periods]
  return { text: rate as string, period, interval: period / Number(count) }
}

/**
 * Refuses calls beyond a rate, for each principal and tool. Put it **outside** a cache, so that an answer out of the cache counts too.
 * @throws InvalidOptionError for a rate that is none
 */
export function rateLimit (options: RateLimitOptions = {}): Middleware {
  const { limit, tools = {}, kinds = ['tool'], maxKeys = 10_000, now = () => performance.now() } = options
  const general = limit === undefined ? undefined : parse('limit', limit)
  const named = new Map(Object.entries(tools).map(([name, rate]) => [name, rate === false ? undefined : parse(`tools.${name}`, rate)]))
  // When the principal will have its whole burst again. In the order of use, the longest unused first.
  const restoredAt = new Map<string, number>()

  return async (info, next) => {
    if (!kinds.includes(info.kind)) return next()
    const name = info.template ?? info.name
    const rule = info.kind === 'tool' && named.has(name) ? named.get(name) : general
    if (rule === undefined) return next()
    const key = JSON.stringify([info.kind, name, identityOf(info.principal)])
    const time = now()
    const restored = Math.max(restoredAt.get(key) ?? 0, time) + rule.interval
    const wait = restored - time - rule.period
    if (wait > TOLERANCE) {
      const seconds = Math.round(wait) / 1000
      throw new RateLimitedError(`Rate limit exceeded for ${info.kind} '${name}' (${rule.text}); retry in ${seconds.toFixed(1)}s`,
        { retry_after: seconds, limit: rule.text, scope: info.kind })
    }
    restoredAt.delete(key)
    if (restoredAt.size >= maxKeys) restoredAt.delete(restoredAt.keys().next().value!)
    restoredAt.set(key, restored)
    return next()
  }
}
