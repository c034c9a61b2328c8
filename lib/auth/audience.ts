// Is a token meant for this resource? RFC 8707, RFC 7519 4.1.3.

const URL_PARTS = /^(https?):\/\/([^/?#@\\\s]+)(\/[^?#]*)?$/i
const DEFAULT_PORT: Record<string, string> = { http: ':80', https: ':443' }

/**
 * An audience as it is compared. Of a URL the scheme's and the host's case, the default port and the slash of an empty path do
 * not matter; the path does, its trailing slash included. Anything else is text.
 */
export function normalAudience (audience: string): string {
  const match = URL_PARTS.exec(audience)
  if (match === null) return audience
  const scheme = match[1]!.toLowerCase()
  const host = match[2]!.toLowerCase()
  const port = DEFAULT_PORT[scheme]!
  return `${scheme}://${host.endsWith(port) ? host.slice(0, -port.length) : host}${match[3] ?? '/'}`
}

/** The `aud` of a token, as it is compared. Nothing where it has none that can be read. */
export function audiencesOf (aud: unknown): readonly string[] {
  if (typeof aud === 'string') return [normalAudience(aud)]
  return Array.isArray(aud) && aud.every((one) => typeof one === 'string') ? aud.map(normalAudience) : []
}
