// Header names of MCP over HTTP, repeated header lines, and the Base64 form of values that a header cannot hold.
// MCP 2026-07-28 "Streamable HTTP / request headers".

import { isUtf8 } from 'node:buffer'
import type { IncomingHttpHeaders } from 'node:http'

export const HEADER = {
  protocolVersion: 'mcp-protocol-version',
  sessionId: 'mcp-session-id',
  method: 'mcp-method',
  name: 'mcp-name',
  lastEventId: 'last-event-id'
} as const
export const PARAM_PREFIX = 'mcp-param-'

/** Headers that mean one thing: several different lines of them cannot be obeyed. Node joins or drops such lines. */
const single = new Map(['host', 'origin', 'content-type', 'authorization', ...Object.values(HEADER)].map((name, at) => [name, 1 << at]))
const singleLengths = new Set(Array.from(single.keys(), (name) => name.length))

/** Repeated headers of a request: equal lines collapse into one value, different ones are a conflict (`null`). */
export type Repeated = ReadonlyMap<string, string | null>

export function findRepeated (raw: readonly string[], headers: IncomingHttpHeaders): Repeated | undefined {
  // Every name that comes once is a key: as many keys as lines means that none is repeated.
  if (Object.keys(headers).length * 2 === raw.length) return undefined
  let seen = 0
  for (let at = 0; at < raw.length; at += 2) {
    const spelled = raw[at]!
    if (!singleLengths.has(spelled.length) && spelled.length <= PARAM_PREFIX.length) continue
    const name = spelled.toLowerCase()
    const bit = single.get(name)
    if (bit === undefined ? name.startsWith(PARAM_PREFIX) : (seen & bit) !== 0) return compareLines(raw)
    if (bit !== undefined) seen |= bit
  }
  return undefined
}

function compareLines (raw: readonly string[]): Repeated | undefined {
  const seen = new Map<string, string>()
  let repeated: Map<string, string | null> | undefined
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at]!.toLowerCase()
    if (!single.has(name) && !name.startsWith(PARAM_PREFIX)) continue
    const value = raw[at + 1]!
    const earlier = seen.get(name)
    if (earlier === undefined) {
      seen.set(name, value)
    } else {
      (repeated ??= new Map()).set(name, earlier === value && repeated?.get(name) !== null ? value : null)
    }
  }
  return repeated
}

/** The value of a header that means one thing. */
export function headerValue (headers: IncomingHttpHeaders, name: string, repeated: Repeated | undefined): string | undefined {
  const collapsed = repeated?.get(name)
  return collapsed ?? headers[name] as string | undefined
}

const SENTINEL_START = '=?base64?'
const SENTINEL_END = '?='
const CANONICAL_BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** What a header value stands for; nothing when it has the Base64 markers around something that is not strict Base64 of UTF-8. */
export function decodeHeader (value: string): string | undefined {
  if (!value.startsWith(SENTINEL_START) || !value.endsWith(SENTINEL_END) || value.length < SENTINEL_START.length + SENTINEL_END.length) return value
  const text = value.slice(SENTINEL_START.length, -SENTINEL_END.length)
  if (!CANONICAL_BASE64.test(text)) return undefined
  const bytes = Buffer.from(text, 'base64')
  return bytes.toString('base64') === text && isUtf8(bytes) ? bytes.toString() : undefined
}
