// What the first requests tell of the way they came, logged once: the Host that was seen, and which option to set where it is
// not the one that clients use. A proxy that is set up halfway works until the day when something depends on the rest.

import type { FastifyRequest } from 'fastify'

export interface SelfCheckOptions {
  publicUrl?: string | undefined
}

const MARKS = ['x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'forwarded', 'via', 'x-real-ip']
// A service without a proxy is not looked at for ever.
const LOOK_AT = 100

/** To be called with every request that reaches the endpoint, refused or not. */
export function selfCheck ({ publicUrl }: SelfCheckOptions): (request: FastifyRequest, host: string | undefined) => void {
  let left = LOOK_AT

  return function checkSelf (request, host) {
    if (left === 0) return
    const { headers, socket } = request.raw
    const first = left-- === LOOK_AT
    if (!MARKS.some((name) => headers[name] !== undefined)) {
      if (first) request.log.info({ host }, 'the first request came without a proxy: behind one, set `publicUrl`')
      return
    }
    left = 0
    const seen = {
      host,
      forwardedHost: headers['x-forwarded-host'],
      forwardedProto: headers['x-forwarded-proto'],
      peer: socket.remoteAddress ?? 'a unix socket'
    }
    const advice = adviceFor(request, host, publicUrl)
    if (advice.length === 0) request.log.info(seen, `requests come through a proxy, for ${publicUrl}`)
    else request.log.warn(seen, `requests come through a proxy: ${advice.join('; ')}`)
  }
}

function adviceFor (request: FastifyRequest, host: string | undefined, publicUrl: string | undefined): string[] {
  const { ips, host: used } = request
  const { remoteAddress } = request.raw.socket
  const trustProxy = `\`trustProxy\` of Fastify to ${remoteAddress === undefined ? 'a function, since it comes over a unix socket' : `'${remoteAddress}'`}`
  const advice: string[] = []
  if (publicUrl === undefined) advice.push(`set \`publicUrl\` to the URL that clients use${ips === undefined ? `, or ${trustProxy}` : ''}`)
  if (ips !== undefined && !isTrusted(request)) advice.push(`what it forwards is not believed: set ${trustProxy}, not to a number of hops`)
  if (publicUrl !== undefined && used !== new URL(publicUrl).host) advice.push(`it has to pass on the Host of the client, and not '${host}'`)
  return advice
}

/** Fastify reads the last value, of peers that it trusts. */
function isTrusted ({ host, protocol, ips = [], raw: { headers } }: FastifyRequest): boolean {
  const last = (name: string): string | undefined => (headers[name] as string | undefined)?.split(',').at(-1)?.trim()
  const said = [[last('x-forwarded-host'), host], [last('x-forwarded-proto'), protocol]].filter(([forwarded]) => forwarded !== undefined)
  return said.length === 0 ? ips.length > 1 : said.every(([forwarded, read]) => forwarded === read)
}
