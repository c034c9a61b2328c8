// With a real identity provider and the official client: nothing is configured but a URL.

import t from 'tap'
import type { OAuthClientInformationMixed, OAuthClientProvider, OAuthDiscoveryState, OAuthTokens, VersionNegotiationMode } from '@modelcontextprotocol/client'
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client'
import { createLayer } from '../../lib/layer/index.js'
import { request } from '../kit.js'
import { serve } from '../field/wire.js'
import { signIn, startProvider } from './provider.js'

const CALLBACK = 'http://127.0.0.1:1/callback'
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

function files () {
  const layer = createLayer({ name: 'files', version: '1.0.0' })
  layer.tool('whoami', { scopes: ['mcp'] }, (_args, ctx) => ({ id: ctx.principal.id, scopes: [...ctx.principal.scopes!] }))
  layer.tool('write', { scopes: ['mcp', 'files:write'] }, () => ({ written: true }))
  return layer
}

t.test('a client on its own behalf: client credentials, as JWT and by introspection', async (t) => {
  const provider = await startProvider(t, (resource) => resource.endsWith('/opaque'))
  const jwt = await serve(t, { layer: files(), path: '/jwt', auth: { oauth: { issuer: provider.url, requiredScopes: ['mcp'] } } })
  const opaque = await serve(t, {
    layer: files(),
    path: '/opaque',
    auth: { oauth: { issuer: provider.url, introspection: { url: `${provider.url}/token/introspection`, clientId: 'robot', clientSecret: 's3cret' } } }
  })
  for (const [service, path, looks] of [[jwt, '/jwt', /^eyJ/], [opaque, '/opaque', /^[\w-]{20,60}$/]] as const) {
    const resource = `http://127.0.0.1:${service.port}${path}`
    const token = await provider.token(resource, 'mcp')
    t.match(token, looks)
    const call = (name: string, by: string) => service.send({
      path,
      headers: { 'content-type': 'application/json', 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': name, ...bearer(by) },
      body: request('tools/call', { name, arguments: {}, _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} } })
    })
    for (let n = 0; n < 2; n++) t.same((await call('whoami', token)).reply.result.structuredContent, { id: 'robot', scopes: ['mcp'] })
    const lacking = await call('write', token)
    t.equal(lacking.status, 403)
    t.match(lacking.headers['www-authenticate'], 'scope="mcp files:write"')
    t.equal((await call('write', await provider.token(resource, 'mcp files:write'))).status, 200)
    t.equal((await call('whoami', await provider.token('https://other.example/mcp', 'mcp'))).status, 401, 'a token for another resource')
  }
})

/** What an application keeps for its user, and the user, who signs in when sent to do so. */
class Alice implements OAuthClientProvider {
  readonly redirectUrl = CALLBACK
  readonly clientMetadata = {
    client_name: 'test', redirect_uris: [CALLBACK], grant_types: ['authorization_code'], response_types: ['code'], token_endpoint_auth_method: 'none', application_type: 'native'
  }

  sentTo: URL | undefined
  #client: OAuthClientInformationMixed | undefined
  #tokens: OAuthTokens | undefined
  #discovered: OAuthDiscoveryState | undefined
  #verifier = ''

  clientInformation () { return this.#client }
  saveClientInformation (client: OAuthClientInformationMixed) { this.#client = client }
  tokens () { return this.#tokens }
  saveTokens (tokens: OAuthTokens) { this.#tokens = tokens }
  discoveryState () { return this.#discovered }
  saveDiscoveryState (state: OAuthDiscoveryState) { this.#discovered = state }
  codeVerifier () { return this.#verifier }
  saveCodeVerifier (verifier: string) { this.#verifier = verifier }
  redirectToAuthorization (url: URL) { this.sentTo = url }

  async signIn (transport: StreamableHTTPClientTransport): Promise<void> {
    const back = await signIn(this.sentTo!, 'alice', CALLBACK)
    await transport.finishAuth(back.get('code')!, back.get('iss')!)
  }
}

for (const mode of ['legacy', 'auto', { pin: '2026-07-28' }] satisfies VersionNegotiationMode[]) {
  t.test(`from a bare 401 to a tool call, and up to a scope that it lacks: ${JSON.stringify(mode)}`, async (t) => {
    const provider = await startProvider(t)
    const service = await serve(t, { layer: files(), auth: { oauth: { issuer: provider.url, requiredScopes: ['mcp'] } } })
    const url = new URL(`http://127.0.0.1:${service.port}/mcp`)
    const alice = new Alice()
    const connect = async () => {
      const client = new Client({ name: 'test', version: '1.0.0' }, { versionNegotiation: { mode } })
      const transport = new StreamableHTTPClientTransport(url, { authProvider: alice })
      t.teardown(() => client.close())
      return { client, transport, connected: client.connect(transport) }
    }
    const first = await connect()
    await t.rejects(first.connected, UnauthorizedError)
    t.equal(alice.sentTo?.origin, provider.url)
    t.equal(alice.sentTo?.searchParams.get('resource'), url.href)
    t.equal(alice.sentTo?.searchParams.get('scope'), 'mcp', 'asks for no more than it needs')
    t.equal(alice.sentTo?.searchParams.get('code_challenge_method'), 'S256')
    await alice.signIn(first.transport)

    const { client, transport, connected } = await connect()
    await connected
    t.match((await client.callTool({ name: 'whoami', arguments: {} })).structuredContent, { id: 'alice', scopes: ['mcp'] })
    t.same((await client.listTools()).tools.map(({ name }) => name), ['whoami', 'write'])

    alice.sentTo = undefined
    await t.rejects(client.callTool({ name: 'write', arguments: {} }), UnauthorizedError)
    t.same(alice.sentTo!.searchParams.get('scope')?.split(' ').sort(), ['files:write', 'mcp'])
    await alice.signIn(transport)
    t.match((await client.callTool({ name: 'write', arguments: {} })).structuredContent, { written: true }, 'the same connection goes on with the new token')
  })
}
