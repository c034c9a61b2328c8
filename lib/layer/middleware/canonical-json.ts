// One text for one value, whatever the order of its keys: for cache keys and for hashes.

// Arguments may be nested deeper than the stack is.
const MAX_DEPTH = 100

/** Compact JSON with sorted keys; nothing for what is no plain JSON value, or nested deeper than 100 levels. */
export function canonicalJson (value: unknown, depth = 0): string | undefined {
  if (depth > MAX_DEPTH || typeof value === 'bigint') return undefined
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value)) return joined('[', value.map((item) => canonicalJson(item ?? null, depth + 1)), ']')
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) return undefined
  const fields = Object.entries(value).filter(([, field]) => field !== undefined).sort(([a], [b]) => a < b ? -1 : 1)
  return joined('{', fields.map(([key, field]) => {
    const text = canonicalJson(field, depth + 1)
    return text === undefined ? undefined : `${JSON.stringify(key)}:${text}`
  }), '}')
}

function joined (open: string, parts: readonly (string | undefined)[], close: string): string | undefined {
  return parts.includes(undefined) ? undefined : open + parts.join(',') + close
}
