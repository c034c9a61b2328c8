// A small authorization server that does what a test wants of one: it signs anything, changes its keys, answers introspection,
// goes down and comes back. Real ones are in provider.ts.

import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { CryptoKey, JWK } from 'jose'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import type { Test } from 'tap'

export interface Pair { kid: string, alg: string, privateKey: CryptoKey, jwk: JWK }

export async function pair (kid: string, alg = 'ES256'): Promise<Pair> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true })
  return { kid, alg, privateKey, jwk: { ...await exportJWK(publicKey), kid, alg, use: 'sig' } }
}

export interface TestIssuer {
  readonly url: string
  /** The key that signs. */
  key: Pair
  /** What the key document holds. */
  keys: JWK[]
  /** Requests by path. */
  readonly hits: Record<string, number>
  /** Opaque tokens that it knows. */
  readonly known: Map<string, Record<string, unknown>>
  /** `hang`: connections are taken and not answered. */
  state: 'up' | 'down' | 'hang'
  /** A token with these claims over the usual ones; `undefined` takes one away. */
  sign (claims?: Record<string, unknown>, header?: Record<string, unknown>, key?: Pair): Promise<string>
}

export const seconds = (from = 0): number => Math.floor(Date.now() / 1000) + from

/** @param audience of its tokens, unless they say otherwise */
export async function startIssuer (t: Test, audience: string): Promise<TestIssuer> {
  const key = await pair('k1')
  const server = createServer((request, response) => { void answer(request, response) })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const issuer: TestIssuer = {
    url,
    key,
    keys: [key.jwk],
    hits: {},
    known: new Map(),
    state: 'up',
    sign: async (claims = {}, header = {}, by = issuer.key) => {
      const all = { iss: url, aud: audience, sub: 'alice', client_id: 'agent', scope: 'mcp', iat: seconds(), exp: seconds(300), ...claims }
      const payload = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined))
      return new SignJWT(payload).setProtectedHeader({ alg: by.alg, kid: by.kid, typ: 'at+jwt', ...header }).sign(by.privateKey)
    }
  }

  async function answer (request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url!
    issuer.hits[path] = (issuer.hits[path] ?? 0) + 1
    if (issuer.state === 'hang') return
    let status = issuer.state === 'down' ? 500 : 200
    let body: unknown = { error: 'server_error' }
    if (status === 200 && path.startsWith('/.well-known/oauth-authorization-server')) {
      body = { issuer: url, jwks_uri: `${url}/jwks`, authorization_endpoint: `${url}/auth`, token_endpoint: `${url}/token`, response_types_supported: ['code'] }
    } else if (status === 200 && path === '/jwks') {
      body = { keys: issuer.keys }
    } else if (status === 200 && path === '/introspect') {
      const chunks: Buffer[] = []
      for await (const chunk of request) chunks.push(chunk)
      const authorized = request.headers.authorization === `Basic ${Buffer.from('rs:s3cret').toString('base64')}`
      const token = new URLSearchParams(Buffer.concat(chunks).toString()).get('token')!
      if (authorized) body = issuer.known.get(token) ?? { active: false }
      else status = 401
    } else if (status === 200) {
      status = 404
    }
    response.writeHead(status, { 'content-type': 'application/json' })
    response.end(JSON.stringify(body))
  }
  return issuer
}
