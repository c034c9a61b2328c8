// A real identity provider, oidc-provider, and the person who signs in there.

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import Provider from 'oidc-provider'
import type { Test } from 'tap'

export interface IdentityProvider {
  readonly url: string
  /** A client's own token (client credentials). */
  token (resource: string, scope: string): Promise<string>
}

/** Scopes that its resources know. Opaque tokens where `opaque` says so; they are for introspection. */
export async function startProvider (t: Test, opaque: (resource: string) => boolean = () => false): Promise<IdentityProvider> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  // It has much to say to whom wants to use it in production.
  const { warn, info } = console
  console.warn = console.info = () => {}
  t.teardown(() => { Object.assign(console, { warn, info }) })
  const provider = new Provider(url, {
    clients: [{ client_id: 'robot', client_secret: 's3cret', grant_types: ['client_credentials'], redirect_uris: [], response_types: [] }],
    cookies: { keys: ['only for tests'] },
    scopes: ['openid', 'offline_access', 'mcp', 'files:write'],
    // A client that registers for some scopes may still ask for more.
    extraClientMetadata: { properties: ['registered'], validator: (_ctx, _key, _value, metadata) => { delete (metadata as { scope?: string }).scope } },
    pkce: { required: () => true },
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    features: {
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_ctx, resource) => ({
          scope: 'mcp files:write', audience: resource, accessTokenTTL: 300, accessTokenFormat: opaque(resource) ? 'opaque' : 'jwt', jwt: { sign: { alg: 'RS256' } }
        })
      }
    }
  })
  const serve = provider.callback()
  server.on('request', (request, response) => { void serve(request, response) })
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return {
    url,
    token: async (resource, scope) => {
      const response = await fetch(`${url}/token`, {
        method: 'POST',
        headers: { authorization: `Basic ${Buffer.from('robot:s3cret').toString('base64')}` },
        body: new URLSearchParams({ grant_type: 'client_credentials', resource, scope })
      })
      const { access_token: token } = await response.json() as { access_token: string }
      return token
    }
  }
}

/** Goes where an application sends its user, signs in, agrees, and says where the provider sends the user back to. */
export async function signIn (start: URL, login: string, callback: string): Promise<URLSearchParams> {
  const cookies = new Map<string, string>()
  let url = start.href
  let form: Record<string, string> | undefined
  for (let step = 0; step < 12; step++) {
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: Array.from(cookies, ([name, value]) => `${name}=${value}`).join('; ') },
      ...(form && { method: 'POST', body: new URLSearchParams(form) })
    })
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie)!
      cookies.set(name!, value!)
    }
    form = undefined
    const next = response.headers.get('location')
    if (next !== null) {
      url = new URL(next, url).href
      if (url.startsWith(callback)) return new URL(url).searchParams
      continue
    }
    const page = await response.text()
    const action = /<form[^>]* action="([^"]+)" method="post"/.exec(page)
    const prompt = /name="prompt" value="([^"]+)"/.exec(page)
    if (action === null || prompt === null) throw new Error(`no form to fill in at ${url}: ${response.status} ${page}`)
    url = new URL(action[1]!, url).href
    form = { prompt: prompt[1]!, login, password: 'any' }
  }
  throw new Error('the provider sends its user round in circles')
}
