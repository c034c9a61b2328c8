// The middlewares that come with the layer. The first added is the outermost; the order in which they do what they say is
//   audit, metrics, rateLimit, concurrency, cache, retry
// so that refusals are written down and counted, answers out of the cache count against a rate, and a retry holds one place.

export { audit } from './audit.js'
export type { Audit, AuditOptions, AuditRecord } from './audit.js'
export { cache } from './cache.js'
export type { Cache, CacheOptions } from './cache.js'
export { concurrency } from './concurrency.js'
export type { ConcurrencyOptions } from './concurrency.js'
export { metrics } from './metrics.js'
export type { CallStats, Metrics, MetricsOptions, MetricsSnapshot } from './metrics.js'
export type { Outcome } from './outcome.js'
export { rateLimit } from './rate-limit.js'
export type { Rate, RateLimitOptions } from './rate-limit.js'
export { retry } from './retry.js'
export type { RetryOptions } from './retry.js'
