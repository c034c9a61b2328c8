// The other side of OAuth: where an issuer has its keys, and getting documents from it. RFC 8414, OpenID Connect Discovery.

import * as oauth from 'oauth4webapi'

export interface IssuerAccess {
  readonly issuer: string
  readonly fetch: typeof fetch
  /** ms for one answer. */
  readonly timeout: number
  /** Plain HTTP is allowed. */
  readonly insecure: boolean
}

const MAX_BYTES = 1024 * 1024

/** @throws when the issuer does not answer, or not with its own metadata */
export async function discover (access: IssuerAccess): Promise<oauth.AuthorizationServer> {
  const { issuer, timeout, insecure } = access
  const url = new URL(issuer)
  let failure: unknown
  for (const algorithm of ['oauth2', 'oidc'] as const) {
    try {
      const response = await oauth.discoveryRequest(url, {
        algorithm,
        signal: AbortSignal.timeout(timeout),
        [oauth.customFetch]: access.fetch as any,
        [oauth.allowInsecureRequests]: insecure
      })
      return await oauth.processDiscoveryResponse(url, response)
    } catch (error) {
      failure ??= error
    }
  }
  throw new Error(`the metadata of ${issuer} cannot be read`, { cause: failure })
}

/** @throws when it is not JSON, is too big, or does not come in time */
export async function fetchJson (url: string, { fetch, timeout }: IssuerAccess): Promise<unknown> {
  const response = await fetch(url, { redirect: 'error', headers: { accept: 'application/json' }, signal: AbortSignal.timeout(timeout) })
  if (response.status !== 200) {
    await response.body?.cancel()
    throw new Error(`${url} answers ${response.status}`)
  }
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of response.body ?? []) {
    size += chunk.length
    if (size > MAX_BYTES) throw new Error(`${url} answers with more than ${MAX_BYTES} bytes`)
    chunks.push(chunk)
  }
  return JSON.parse(Buffer.concat(chunks).toString())
}
