// How often, how well and how fast: counts of calls and their ends, and how long the last ones took.

import type { AppLayer } from '../layer.js'
import type { CallInfo, Handle, Middleware } from '../contract.js'
import type { ResourceSpec } from '../resource.js'
import type { Outcome } from './outcome.js'
import { OUTCOMES, returned, threw } from './outcome.js'

export interface CallStats {
  calls: number
  outcomes: Record<Outcome, number>
  /** In ms: mean and maximum of all calls, the 95th percentile of the last 256. */
  duration_ms: { mean: number, p95: number, max: number }
}

export interface MetricsSnapshot {
  /** ISO 8601, when counting began */
  since: string
  /** Calls that run now. */
  running: number
  /** By kind and registered name: `tool:echo`, `resource:cloudg://asset/{id}`. */
  calls: Record<string, CallStats>
}

export interface Metrics extends Middleware {
  snapshot (): MetricsSnapshot
  /** Offers the snapshot as a resource. Say in `spec` who may read it. @param uri default `cloudg://metrics` */
  expose (layer: Pick<AppLayer, 'resource'>, spec?: ResourceSpec, uri?: string): Handle<ResourceSpec>
}

export interface MetricsOptions {
  /** Names that are counted apart; what comes later is counted together as `kind:*`. @default 1024 */
  maxNames?: number
  /** A clock in ms that never goes back; for tests. @default performance.now */
  now?: () => number
}

const WINDOW = 256

class Series {
  #calls = 0
  #sum = 0
  #max = 0
  readonly #last: number[] = []
  readonly #outcomes = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, 0])) as Record<Outcome, number>

  add (outcome: Outcome, duration: number): void {
    this.#last[this.#calls % WINDOW] = duration
    this.#calls++
    this.#outcomes[outcome]++
    this.#sum += duration
    this.#max = Math.max(this.#max, duration)
  }

  stats (): CallStats {
    const sorted = this.#last.toSorted((a, b) => a - b)
    const p95 = sorted[Math.ceil(sorted.length * 0.95) - 1] ?? 0
    return { calls: this.#calls, outcomes: { ...this.#outcomes }, duration_ms: { mean: rounded(this.#sum / this.#calls), p95: rounded(p95), max: rounded(this.#max) } }
  }
}

function rounded (ms: number): number {
  return Math.round(ms * 100) / 100
}

/** Counts calls. Put it where what it should see has been through: outside a cache it counts hits too. */
export function metrics (options: MetricsOptions = {}): Metrics {
  const { maxNames = 1024, now = () => performance.now() } = options
  const since = new Date().toISOString()
  const series = new Map<string, Series>()
  let running = 0

  function seriesOf (info: CallInfo): Series {
    const name = `${info.kind}:${info.template ?? info.name}`
    const key = series.has(name) || series.size < maxNames ? name : `${info.kind}:*`
    let one = series.get(key)
    if (one === undefined) series.set(key, one = new Series())
    return one
  }

  async function through (info: CallInfo, next: () => Promise<any>): Promise<any> {
    const began = now()
    running++
    try {
      const result: unknown = await next()
      seriesOf(info).add(returned(info, result).outcome, now() - began)
      return result
    } catch (error) {
      seriesOf(info).add(threw(info, error).outcome, now() - began)
      throw error
    } finally {
      running--
    }
  }

  function snapshot (): MetricsSnapshot {
    return { since, running, calls: Object.fromEntries(Array.from(series, ([name, one]) => [name, one.stats()])) }
  }

  function expose (layer: Pick<AppLayer, 'resource'>, spec: ResourceSpec = {}, uri = 'cloudg://metrics'): Handle<ResourceSpec> {
    return layer.resource(uri, { name: 'metrics', description: 'Calls, how they ended and how long they took', ...spec }, snapshot)
  }

  return Object.assign(through, { snapshot, expose })
}
