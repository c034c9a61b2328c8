// Patterns for hosts and origins: `*` is the only special character and stays inside one host and port.

/** A host as it is compared: lower case, IPv6 in its normal form. Nothing when it is no host. */
export interface Host { name: string, port: string }

const HOST = /^(\[[0-9a-f:.%]+\]|[^\s,/@:[\]?#\\]+)(?::(\d{1,5}))?$/

export function parseHost (value: string): Host | undefined {
  const match = HOST.exec(value.toLowerCase())
  if (match === null) return undefined
  const name = match[1]!
  if (!name.startsWith('[')) return { name, port: match[2] ?? '' }
  const normal = URL.canParse(`http://${name}/`) ? new URL(`http://${name}/`).hostname : undefined
  return normal === undefined ? undefined : { name: normal, port: match[2] ?? '' }
}

function compile (pattern: string): RegExp {
  const escaped = pattern.replace(/[\\^$.|?+()[\]{}]/g, '\\$&').replace(/\*+/g, '[^,\\s/@]*')
  return new RegExp(`^${escaped}$`)
}

/** Matches a host with its port. A pattern without a port stands for every port. */
export function hostMatcher (patterns: readonly string[]): (host: Host) => boolean {
  const compiled = patterns.map((pattern) => {
    const lower = normalPattern(pattern.toLowerCase())
    const hasPort = /:(?:\d+|\*)$/.test(lower)
    return { test: compile(lower), hasPort }
  })
  return ({ name, port }) => compiled.some(({ test, hasPort }) => test.test(hasPort ? `${name}:${port}` : name))
}

/** Matches an origin, `scheme://host[:port]`, as browsers send it. */
export function originMatcher (patterns: readonly string[]): (origin: string) => boolean {
  const compiled = patterns.map((pattern) => {
    const [scheme, rest] = pattern.toLowerCase().split('://')
    return compile(rest === undefined ? scheme! : `${scheme}://${normalPattern(rest)}`)
  })
  return (origin) => {
    const [scheme, rest] = origin.toLowerCase().split('://')
    const host = rest === undefined ? undefined : parseHost(rest)
    if (host === undefined) return false
    const normal = `${scheme}://${host.name}${host.port === '' ? '' : `:${host.port}`}`
    return compiled.some((test) => test.test(normal))
  }
}

/** IPv6 addresses in patterns in the form in which they are compared. */
function normalPattern (pattern: string): string {
  return pattern.replace(/^\[([0-9a-f:.]+)\]/, (whole) => parseHost(whole)?.name ?? whole)
}
