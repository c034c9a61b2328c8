// The OAuth 2.1 resource server against an issuer that changes keys, hangs and goes down: what gets in, what does not, and
// what clients are told.

import t from 'tap'
import { OAuthAuth, isChallenge } from '../../lib/auth/index.js'
import type { Challenge, OAuthOptions } from '../../lib/auth/index.js'
import { KeySet } from '../../lib/auth/key-set.js'
import { PeerBudget } from '../../lib/auth/peer-budget.js'
import { TokenCache } from '../../lib/auth/token-cache.js'
import type { Principal } from '../../lib/principal.js'
import { bearerToken, principal } from '../../lib/principal.js'
import { createKit, modern, modernHeaders, request } from '../kit.js'
import { refused, serve } from '../field/wire.js'
import { pair, seconds, startIssuer } from './issuer.js'

const LIST = request('tools/list')
const AUD = 'https://h/mcp'
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const kit = () => ({ layer: createKit().layer })

/** What becomes of a token. */
async function outcome (auth: OAuthAuth, token: string, resource = AUD, peer = '192.0.2.1'): Promise<{ who?: Principal, challenge?: Challenge }> {
  const given = await auth.authenticate({ authorization: `Bearer ${token}`, resource, peer })
  return isChallenge(given) ? { challenge: given } : { who: given! }
}

t.test('OA-01 a call without a token is told where to get one', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const service = await serve(t, { ...kit(), publicUrl: 'https://h', auth: { oauth: { issuer: issuer.url, requiredScopes: ['mcp'], scopesSupported: ['mcp', 'admin'] } } })
  for (const headers of [{}, { authorization: 'Basic dDE=' }, { authorization: 'Bearer' }]) {
    const answer = await service.post(LIST, headers)
    t.equal(answer.status, 401)
    t.equal(answer.headers['www-authenticate'], 'Bearer resource_metadata="https://h/.well-known/oauth-protected-resource/mcp", scope="mcp"', 'and no error: no token was sent')
    t.same(answer.json, refused('Unauthorized'))
  }
  for (const method of ['GET', 'DELETE']) t.equal((await service.send({ method, headers: { accept: 'text/event-stream' } })).status, 401)
  t.same(issuer.hits, {}, 'nobody was asked')
})

t.test('OA-05 AUT-01 the document is where clients look, and says what they typed', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const oauth: OAuthOptions = { issuer: issuer.url, scopesSupported: ['mcp', 'admin'] }
  const service = await serve(t, { ...kit(), publicUrl: 'https://h', corsOrigins: ['https://app.example'], auth: { oauth } })
  const expected = { resource: 'https://h/mcp', authorization_servers: [issuer.url], scopes_supported: ['mcp', 'admin'], bearer_methods_supported: ['header'] }
  const paths = ['/.well-known/oauth-protected-resource/mcp', '/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp/', '/mcp/.well-known/oauth-protected-resource']
  for (const path of paths) {
    const answer = await service.send({ method: 'GET', path, headers: { origin: 'https://app.example' } })
    t.equal(answer.status, 200, path)
    t.match(answer.headers['content-type'], /^application\/json/)
    t.equal(answer.headers['access-control-allow-origin'], 'https://app.example', 'a page may read it')
    t.same(answer.json, expected)
  }
  const preflight = await service.send({
    method: 'OPTIONS', path: paths[0]!, headers: { origin: 'https://app.example', 'access-control-request-method': 'GET', 'access-control-request-headers': 'mcp-protocol-version' }
  })
  t.equal(preflight.status, 204)
  t.equal(preflight.headers['access-control-allow-headers'], 'mcp-protocol-version')
  for (const path of ['/.well-known/oauth-protected-resource/other', '/.well-known/oauth-authorization-server/mcp', '/.well-known/openid-configuration', '/.well-known/oauth-protected-resource/mcp/x']) {
    const answer = await service.send({ method: 'GET', path, headers: {} })
    t.equal(answer.status, 404, path)
    t.same(answer.json, refused('Not Found'))
  }
  t.equal((await service.send({ method: 'GET', path: paths[0]!, headers: { origin: 'https://evil.example' } })).status, 403)

  const typed = await serve(t, { ...kit(), auth: { oauth } })
  for (const host of [`127.0.0.1:${typed.port}`, `localhost:${typed.port}`, `[::1]:${typed.port}`]) {
    const answer = await typed.send({ method: 'GET', path: paths[0]!, headers: { host } })
    t.equal(answer.json.resource, `http://${host}/mcp`, 'without publicUrl it is the Host that was let through')
  }
  t.equal((await typed.send({ method: 'GET', path: paths[0]!, headers: { host: 'LOCALHOST:80' } })).json.resource, 'http://localhost/mcp')
})

t.test('AUT-02 the old transport has a URL of its own, and a document', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const service = await serve(t, { ...kit(), sse: true, publicUrl: 'https://h', auth: { oauth: { issuer: issuer.url } } })
  const document = 'https://h/.well-known/oauth-protected-resource/sse'
  for (const ask of [{ method: 'GET', path: '/sse', headers: {} }, { path: '/messages/?session_id=0', body: LIST }]) {
    const answer = await service.send(ask)
    t.equal(answer.status, 401)
    t.equal(answer.headers['www-authenticate'], `Bearer resource_metadata="${document}"`)
  }
  for (const path of [new URL(document).pathname, '/sse/.well-known/oauth-protected-resource']) {
    t.equal((await service.send({ method: 'GET', path, headers: {} })).json.resource, 'https://h/sse')
  }
  t.equal((await service.send({ method: 'GET', path: '/.well-known/oauth-protected-resource', headers: {} })).json.resource, 'https://h/mcp')
  t.equal((await service.send({ method: 'GET', path: '/sse', headers: bearer(await issuer.sign()) })).status, 401, 'a token for /mcp is not one for /sse')
})

t.test('AUT-02 every mount has its own document, and none answers for another', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const options = { publicUrl: 'https://h/x', auth: { oauth: { issuer: issuer.url } } }
  const service = await serve(t, { ...kit(), ...options, prefix: '/api/a' }, {
    after: async (app) => {
      await app.register(async (inner) => {
        const { default: plugin } = await import('../../plugin.js')
        await inner.register(plugin, { ...kit(), ...options, healthPath: false, prefix: '/b' })
        await inner.register(async (open) => { await open.register(plugin, { ...kit(), healthPath: false, prefix: '/open' }) })
      }, { prefix: '/api' })
    }
  })
  for (const [local, resource] of [['/api/a/mcp', 'https://h/x/api/a/mcp'], ['/api/b/mcp', 'https://h/x/api/b/mcp']] as const) {
    const challenge = await service.send({ path: local, body: LIST })
    t.equal(challenge.headers['www-authenticate'], `Bearer resource_metadata="https://h/.well-known/oauth-protected-resource/x${local}"`)
    // With and without the prefix that a proxy strips.
    for (const path of [`/x${local}`, local]) {
      const answer = await service.send({ method: 'GET', path: `/.well-known/oauth-protected-resource${path}`, headers: {} })
      t.equal(answer.json.resource, resource)
    }
    t.equal((await service.send({ method: 'GET', path: `${local}/.well-known/oauth-protected-resource`, headers: {} })).json.resource, resource)
  }
  for (const path of ['', '/', '/api/open/mcp', '/mcp', '/api', '/x']) {
    t.equal((await service.send({ method: 'GET', path: `/.well-known/oauth-protected-resource${path}`, headers: {} })).status, 404, `${path} is nobody's`)
  }
  t.equal((await service.send({ path: '/api/open/mcp', body: LIST })).status, 400, 'the open one stays open')
})

t.test('AUT-03 SEC-16 what proxies say is believed of trusted ones alone, and only http and https', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const open = { ...kit(), allowedHosts: ['mcp.example.com', '127.0.0.1'], auth: { oauth: { issuer: issuer.url } } }
  const resourceOf = async (service: Awaited<ReturnType<typeof serve>>, headers: Record<string, string>): Promise<string> => {
    const answer = await service.send({ method: 'GET', path: '/.well-known/oauth-protected-resource/mcp', headers })
    return answer.json.resource ?? `${answer.status}`
  }
  const trusting = await serve(t, open, { fastify: { trustProxy: '127.0.0.1' } })
  const host = 'mcp.example.com'
  const cases: [string, Record<string, string>, string][] = [
    ['TLS ends at the proxy', { host, 'x-forwarded-proto': 'https' }, 'https://mcp.example.com/mcp'],
    ['two hops', { host, 'x-forwarded-proto': 'https,http', 'x-forwarded-for': '192.0.2.1, 192.0.2.2' }, 'https://mcp.example.com/mcp'],
    ['another scheme', { host, 'x-forwarded-proto': 'javascript' }, 'http://mcp.example.com/mcp'],
    ['another scheme among hops', { host, 'x-forwarded-proto': 'https, javascript', 'x-forwarded-for': '192.0.2.1' }, 'http://mcp.example.com/mcp'],
    ['the host, too', { 'x-forwarded-host': host, 'x-forwarded-proto': 'https' }, 'https://mcp.example.com/mcp'],
    ['a host that is not listed', { 'x-forwarded-host': 'evil.example', 'x-forwarded-proto': 'https' }, '421'],
    ['a host with a header in it', { 'x-forwarded-host': 'a", error="insufficient_scope", scope="admin' }, '421'],
    ['a bad port', { 'x-forwarded-host': 'mcp.example.com:99999' }, '503']
  ]
  for (const [name, headers, expected] of cases) t.equal(await resourceOf(trusting, headers), expected, name)

  for (const trustProxy of [undefined, '10.0.0.0/8', 1 as unknown as string]) {
    const wary = await serve(t, open, trustProxy === undefined ? {} : { fastify: { trustProxy } })
    t.equal(await resourceOf(wary, { host, 'x-forwarded-proto': 'https', 'x-forwarded-host': 'evil.example' }), 'http://mcp.example.com/mcp', `trustProxy ${trustProxy}`)
  }
  const fixed = await serve(t, { ...open, publicUrl: 'https://mcp.example.com' }, { fastify: { trustProxy: true } })
  t.equal(await resourceOf(fixed, { host, 'x-forwarded-proto': 'http', 'x-forwarded-host': '127.0.0.1' }), 'https://mcp.example.com/mcp', 'publicUrl is never downgraded')

  const anyHost = await serve(t, { ...open, allowedHosts: ['*'] })
  const token = await issuer.sign({ aud: 'http://other.example/mcp' })
  const lured = await anyHost.post(LIST, { host: 'other.example', ...bearer(token) })
  t.equal(lured.status, 503, 'a token for another service does not get in by naming its Host')
  t.match(anyHost.logs, [{ reason: /publicUrl/ }])
  t.equal(await resourceOf(anyHost, { host: 'other.example' }), '503')
})

t.test('AUT-07 the audience is compared as a resource, and only a whole one', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const cases: [string, unknown, boolean][] = [
    ['https://h', 'https://h/', true], ['https://h', 'https://h', true], ['https://h/', 'https://h', true],
    ['https://h/mcp', 'https://h/mcp/', false], ['https://h/mcp', 'https://H/mcp', true], ['https://h/mcp', 'HTTPS://h:443/mcp', true],
    ['http://h/mcp', 'http://h:80/mcp', true], ['https://h/mcp', 'https://h:80/mcp', false], ['https://h/mcp', ['api', 'https://h/mcp'], true],
    ['https://h/mcp', 'https://h', false], ['https://h/mcp', 'https://h/mcp2', false], ['https://h/mcp', 'https://h/MCP', false],
    ['https://h/mcp', 'https://h/x/../mcp', false], ['https://h/mcp', 'https://u@h/mcp', false], ['https://h/mcp', 'https://h/mcp#f', false],
    ['https://h/mcp', 'https://h/mcp?a', false], ['https://h/mcp', 'https://h\\mcp', false], ['https://h/mcp', [], false],
    ['https://h/mcp', undefined, false], ['https://h/mcp', 7, false], ['https://h/mcp', ['https://h/mcp', 7], false], ['https://h/mcp', '', false],
    ['api://default', 'api://default', true], ['api://default', 'API://default', false]
  ]
  for (const [resource, aud, good] of cases) {
    const fixed = new OAuthAuth({ issuer: issuer.url, audience: resource })
    const { who } = await outcome(fixed, await issuer.sign({ aud }))
    t.equal(who !== undefined, good, `audience ${resource}, aud ${JSON.stringify(aud)}`)
    if (!resource.startsWith('http')) continue
    const typed = await outcome(new OAuthAuth({ issuer: issuer.url }), await issuer.sign({ aud }), resource)
    t.equal(typed.who !== undefined, good, `resource ${resource}, aud ${JSON.stringify(aud)}`)
  }
  const narrow = new OAuthAuth({ issuer: issuer.url, audience: AUD, algorithms: ['RS256'] })
  t.match((await outcome(narrow, await issuer.sign())).challenge, { description: /algorithm that is not accepted/ }, 'ES256 where only RS256 is')
  const both = new OAuthAuth({ issuer: issuer.url, audience: ['a', 'b'] })
  t.ok((await outcome(both, await issuer.sign({ aud: 'b' }))).who)
  const auth = new OAuthAuth({ issuer: issuer.url })
  const token = await issuer.sign()
  t.ok((await outcome(auth, token)).who)
  t.match((await outcome(auth, token, 'https://h/other')).challenge, { status: 401, description: /another resource/ }, 'a token that is known for one endpoint is not known for its neighbour')
})

t.test('OA-03 AUT-05 a wrong token is 401 invalid_token; an issuer in trouble is 503', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const options = { ...kit(), publicUrl: 'https://h' }
  const service = await serve(t, { ...options, auth: { oauth: { issuer: issuer.url, requiredScopes: ['mcp'], timeout: 100 } } })
  const wrong: [string, string][] = [
    ['garbage', 'The access token is malformed'],
    [await issuer.sign({ exp: seconds(-60) }), 'The access token expired'],
    [await issuer.sign({ exp: undefined }), 'The access token is malformed'],
    [await issuer.sign({ exp: '9999999999' }), 'The access token is malformed'],
    [await issuer.sign({ nbf: seconds(60) }), 'The access token is not valid yet'],
    [await issuer.sign({ aud: 'https://other' }), 'The access token is meant for another resource'],
    [await issuer.sign({ sub: undefined, client_id: undefined }), 'The access token names nobody'],
    [(await issuer.sign()).slice(0, -4) + 'AAAA', 'The signature of the access token is not valid']
  ]
  for (const [token, description] of wrong) {
    for (let again = 0; again < 2; again++) {
      const answer = await service.post(LIST, bearer(token))
      t.equal(answer.status, 401)
      t.equal(answer.headers['www-authenticate'],
        `Bearer error="invalid_token", error_description="${description}", resource_metadata="https://h/.well-known/oauth-protected-resource/mcp", scope="mcp"`)
      t.same(answer.json, refused('Unauthorized'))
    }
  }
  t.ok((await service.connect(bearer(await issuer.sign({ exp: seconds(-20) })))).id, 'clocks may differ a little')
  const malformed = await service.post(LIST, { authorization: 'Bearer a b' })
  t.equal(malformed.status, 400)
  t.match(malformed.headers['www-authenticate'], /^Bearer error="invalid_request"/)

  for (const state of ['down', 'hang'] as const) {
    const lost = await startIssuer(t, AUD)
    lost.state = state
    const broken = await serve(t, { ...options, auth: { oauth: { issuer: lost.url, timeout: 50 } } })
    const answer = await broken.post(LIST, bearer(await lost.sign()))
    t.equal(answer.status, 503, state)
    t.match(answer.headers['retry-after'], /^[1-9]\d*$/)
    t.equal(answer.headers['www-authenticate'], undefined, 'no new token would help')
    t.same(answer.json, refused('Service Unavailable', -32603))
    t.match(broken.logs, [{ level: 50, reason: /keys of the issuer/ }])
    t.notMatch(answer.text, /127\.0\.0\.1|stack|jwks/)
  }
  const failing = {
    throws: () => { throw new Error('secret detail') },
    rejects: async () => { throw new Error('secret detail') },
    hangs: () => new Promise<never>(() => {})
  }
  for (const [name, authenticate] of Object.entries(failing)) {
    const broken = await serve(t, { ...options, auth: { authenticate }, authTimeout: 50 })
    const answer = await broken.post(LIST, bearer('x'))
    t.equal(answer.status, 503, `an authenticator that ${name}`)
    t.notMatch(answer.text, /secret/)
    t.match(answer.headers['retry-after'], /^\d+$/)
  }
  const mapping = await serve(t, { ...options, auth: { oauth: { issuer: issuer.url, principal: () => { throw new Error('secret detail') } } } })
  t.equal((await mapping.post(LIST, bearer(await issuer.sign()))).status, 503)
})

t.test('keys are fetched once, again when they are old or one is unknown, and serve for a while without the issuer', async (t) => {
  const [one, two] = [await pair('one'), await pair('two')]
  let now = 0
  let loads = 0
  let document: unknown = { keys: [one.jwk] }
  const set = new KeySet({
    now: () => now,
    cooldown: 30,
    maxAge: 600,
    staleFor: 3600,
    load: async () => {
      loads++
      if (document instanceof Error) throw document
      return document
    }
  })
  const find = async (kid: string | undefined, alg = 'ES256') => {
    const found = await set.find(kid, alg)
    return Array.isArray(found) ? found.length : Object.keys(found)[0]
  }
  t.same(await Promise.all([find('one'), find('one'), find(undefined)]), [1, 1, 1])
  t.equal(loads, 1, 'callers share one request')
  t.equal(await find('one', 'RS256'), 'refused', 'a key of another kind does not fit')
  document = { keys: [one.jwk, two.jwk] }
  t.equal(await find('two'), 'refused', 'not asked again within the cooldown')
  t.equal(loads, 1)
  now = 40
  t.equal(await find('two'), 1)
  t.equal(loads, 2)
  now = 80
  for (let n = 0; n < 50; n++) await find(`forged-${n}`)
  t.equal(loads, 3, 'a flood of unknown keys asks once')

  document = new Error('down')
  now = 120
  t.equal(await find('three'), 'unavailable', 'whether it is a new key cannot be told')
  now = 700
  t.equal(await find('one'), 1, 'old keys serve, fetched anew behind the scenes')
  t.equal(loads, 5)
  now = 80 + 600 + 3600 + 1
  t.equal(await find('one'), 'unavailable', 'but not for ever')
  t.equal(await find('one'), 'unavailable')
  t.equal(loads, 6, 'the cooldown holds while it is down')
  document = { keys: [two.jwk] }
  now += 31
  t.equal(await find('two'), 1)
  t.equal(await find('one'), 'refused', 'a key that was withdrawn is gone')
  document = 'no keys'
  now += 40
  t.equal(await find('one'), 'unavailable')

  const fixed = new KeySet({ keys: [{ ...one.jwk, d: 'AAAA' }, { kty: 'oct', k: 'c2VjcmV0', kid: 'h' }, { ...two.jwk, use: 'enc' }, { ...two.jwk, key_ops: ['sign'] }, null, { kty: 'RSA', kid: 'bad' }] })
  t.equal(((await fixed.find('one', 'ES256')) as unknown[]).length, 1)
  for (const [kid, alg] of [['h', 'ES256'], ['two', 'ES256'], ['bad', 'RS256']] as const) t.ok('refused' in await fixed.find(kid, alg), kid)
})

t.test('introspection: what the issuer says holds, for no longer than it says', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const auth = (more: Partial<OAuthOptions> = {}): OAuthAuth => new OAuthAuth({
    issuer: issuer.url, audience: AUD, introspection: { url: `${issuer.url}/introspect`, clientId: 'rs', clientSecret: 's3cret' }, ...more
  })
  const good = { active: true, sub: 'alice', client_id: 'agent', scope: 'mcp admin', aud: AUD, iss: issuer.url, token_type: 'Bearer', exp: seconds(60) }
  issuer.known.set('opaque', good)
  const one = auth()
  const asked = await Promise.all([outcome(one, 'opaque'), outcome(one, 'opaque')])
  t.match(asked, [{ who: { id: 'alice', expiresAt: Number } }, { who: { id: 'alice' } }])
  t.same([...asked[0].who!.roles], ['default', 'admin', 'mcp'])
  t.equal(asked[0].who!.identity, JSON.stringify([issuer.url, 'alice', 'agent']))
  await outcome(one, 'opaque')
  t.equal(issuer.hits['/introspect'], 1, 'asked once for all three')

  const others: [string, Record<string, unknown> | undefined, string][] = [
    ['unknown', undefined, 'The access token is not active'],
    ['inactive', { ...good, active: false }, 'The access token is not active'],
    ['refresh', { ...good, token_type: 'refresh_token' }, 'The access token is not active'],
    ['expired', { ...good, exp: seconds(-60) }, 'The access token expired'],
    ['early', { ...good, nbf: seconds(60) }, 'The access token is not valid yet'],
    ['foreign', { ...good, iss: 'https://other' }, 'The access token is of another issuer'],
    ['elsewhere', { ...good, aud: 'https://other' }, 'The access token is meant for another resource'],
    ['anywhere', { ...good, aud: undefined }, 'The access token is meant for another resource']
  ]
  for (const [token, answer, description] of others) {
    if (answer !== undefined) issuer.known.set(token, answer)
    t.match((await outcome(one, token)).challenge, { status: 401, error: 'invalid_token', description }, token)
  }
  const before = issuer.hits['/introspect']
  await outcome(one, 'unknown')
  t.equal(issuer.hits['/introspect'], before, 'a wrong token is remembered for a moment')

  issuer.known.set('short', { ...good, exp: undefined })
  const brief = auth({ cacheTtl: 0 })
  for (let n = 0; n < 2; n++) t.ok((await outcome(brief, 'short')).who)
  t.equal(issuer.hits['/introspect'], before! + 2, 'a cache that keeps nothing')

  for (const [name, broken] of Object.entries({
    secret: auth({ introspection: { url: `${issuer.url}/introspect`, clientId: 'rs', clientSecret: 'wrong' } }),
    url: auth({ introspection: { url: `${issuer.url}/nowhere`, clientId: 'rs', clientSecret: 's3cret' } })
  })) t.match((await outcome(broken, 'opaque')).challenge, { status: 503, reason: /introspection/ }, name)
  issuer.state = 'down'
  t.match((await outcome(one, 'new')).challenge, { status: 503, headers: { 'retry-after': '5' } })
  t.ok((await outcome(one, 'opaque')).who, 'known tokens go on')

  // A flood of unknown tokens does not become a flood at the issuer.
  issuer.state = 'hang'
  const flooded = auth({ timeout: 200 })
  const flood = Array.from({ length: 400 }, (_, n) => outcome(flooded, `t${n}`, AUD, `192.0.2.${n % 50}`))
  const outcomes = await Promise.all(flood)
  t.equal(outcomes.filter(({ challenge }) => challenge?.headers?.['retry-after'] === '1').length, 400 - 256)
  t.ok(outcomes.every(({ challenge }) => challenge?.status === 503))
})

t.test('wrong tokens that cost a check are checked for a peer within a budget', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const auth = new OAuthAuth({ issuer: issuer.url, audience: AUD })
  const forged = await issuer.sign({}, {}, await pair('k1'))
  const known = await issuer.sign()
  t.ok((await outcome(auth, known)).who)
  // All within one turn of the event loop: hardly any budget comes back meanwhile.
  const statuses = (await Promise.all(Array.from({ length: 300 }, (_, n) => outcome(auth, forged.slice(0, -4) + `${n}`.padStart(4, 'A')))))
    .map(({ challenge }) => challenge!.status)
  const checked = statuses.filter((status) => status === 401).length
  t.ok(checked >= 100 && checked < 200, `${checked} were checked`)
  t.equal(statuses.filter((status) => status === 429).length, 300 - checked)
  t.ok((await outcome(auth, known)).who, 'a token that is known goes on')
  const good = await Promise.all(Array.from({ length: 120 }, (_, n) => issuer.sign({ jti: `${n}` })))
  for (const token of good) t.ok((await outcome(auth, token, AUD, '192.0.2.2')).who, 'other peers do, and good tokens cost them nothing')

  const { layer } = createKit()
  const challenge: Challenge = { status: 429, message: 'Too many wrong tokens', headers: { 'retry-after': '1' } }
  const peers: (string | undefined)[] = []
  const service = await serve(t, { layer, auth: { authenticate: ({ peer }) => { peers.push(peer); return challenge } } }, { fastify: { trustProxy: '127.0.0.1' } })
  const told = await service.post(LIST, { 'x-forwarded-for': '192.0.2.9' })
  t.equal(told.status, 429)
  t.equal(told.headers['retry-after'], '1')
  t.equal(told.headers['www-authenticate'], undefined)
  t.same(told.json, refused('Too many wrong tokens', -31029))
  t.same(peers, ['192.0.2.9'], 'the address is that of the caller, where the proxy is trusted')
})

t.test('a budget is per peer, comes back with time, and is kept for so many peers', (t) => {
  const budget = new PeerBudget(50, 100)
  const takes = (peer: string, now: number): number => {
    let count = 0
    while (budget.take(peer, now)) count++
    return count
  }
  t.equal(takes('a', 0), 100)
  t.equal(takes('a', 1000), 50)
  t.equal(takes('a', 100_000), 100)
  t.equal(takes('2001:db8:1:2:3::4', 0), 100)
  t.equal(takes('2001:db8:1:2:9::9', 0), 0, 'one network of one caller')
  t.equal(takes('2001:db8:1:3::', 0), 100)
  t.equal(takes('::ffff:192.0.2.1', 0), 100)
  t.equal(takes('::ffff:192.0.2.2', 0), 100)
  for (let n = 0; n < 5000; n++) budget.take(`p${n}`, 0)
  t.equal(budget.size, 1000)
  budget.giveBack('gone')
  t.equal(budget.size, 1000)
  t.end()
})

t.test('several issuers, static tokens beside them, and an authenticator of one\'s own', async (t) => {
  const [one, two, opaque] = [await startIssuer(t, AUD), await startIssuer(t, AUD), await startIssuer(t, AUD)]
  const key = await pair('fixed', 'PS256')
  const oauth: OAuthOptions[] = [
    { issuer: one.url, requiredScopes: ['mcp'] },
    { issuer: two.url, jwksUri: `${two.url}/jwks`, principal: ({ sub }) => sub === 'ghost' ? undefined : { id: `two:${sub as string}`, roles: ['ops'], scopes: ['extra'] } },
    { issuer: 'https://never-asked.example', jwks: { keys: [key.jwk] } },
    { issuer: opaque.url, introspection: { url: `${opaque.url}/introspect`, clientId: 'rs', clientSecret: 's3cret' } }
  ]
  const seen: Principal[] = []
  const { layer } = createKit()
  layer.tool('whoami', {}, (_args, ctx) => {
    seen.push(ctx.principal)
    return { id: ctx.principal.id }
  })
  const service = await serve(t, { layer, publicUrl: 'https://h', auth: { oauth, tokens: ['s3cret:analyst:svc'] } })
  const who = async (token: string) => {
    const answer = await service.post(modern('tools/call', { name: 'whoami', arguments: {} }), { ...modernHeaders('tools/call', 'whoami'), ...bearer(token) })
    return answer.status === 200 ? answer.reply.result.structuredContent?.id : answer.status
  }
  opaque.known.set('handle', { active: true, client_id: 'robot', aud: AUD })
  t.equal(await who(await one.sign()), 'alice')
  t.equal(await who(await two.sign()), 'two:alice')
  t.equal(await who(await two.sign({ sub: 'ghost' })), 401, 'somebody who is not known here')
  t.equal(await who(await one.sign({ iss: 'https://never-asked.example', sub: undefined }, {}, key)), 'agent', 'a client on its own behalf')
  t.equal(await who('handle'), 'robot')
  t.equal(await who('s3cret'), 'svc')
  t.equal(await who(await one.sign({ iss: two.url })), 401, 'one issuer does not sign for another')
  t.equal(await who(await one.sign({ iss: 'https://else.example' })), 401)
  t.equal(await who('unknown'), 401)
  t.match(seen[1], { id: 'two:alice', identity: JSON.stringify([two.url, 'alice', 'agent']) })
  t.same([...seen[1]!.roles, ...seen[1]!.scopes!], ['ops', 'extra'])
  t.match(seen[0]!.attributes, { auth: 'oauth', issuer: one.url, client: 'agent', scopes: ['mcp'] })

  const document = await service.send({ method: 'GET', path: '/.well-known/oauth-protected-resource', headers: {} })
  t.same(document.json.authorization_servers, oauth.map(({ issuer }) => issuer))
  t.notMatch((await service.post(LIST)).headers['www-authenticate'], 'scope=', 'what one of them calls a scope is not asked of the others')
  const lacking = await service.post(LIST, bearer(await one.sign({ scope: 'other' })))
  t.equal(lacking.status, 403)
  t.match(lacking.headers['www-authenticate'], 'error="insufficient_scope", error_description="Required scope: mcp"')

  for (const [scope, roles] of [[{ scope: ['a', 'b'] }, 'a,b'], [{ scope: undefined, scp: 'b a' }, 'a,b'], [{ scope: undefined, scp: ['a', 7] }, 'a'], [{ scope: undefined }, '']] as const) {
    const found = await outcome(new OAuthAuth({ issuer: one.url }), await one.sign(scope))
    t.equal([...found.who!.scopes!].join(), roles)
  }

  const own = await serve(t, {
    ...kit(),
    auth: {
      metadata: { authorizationServers: ['https://idp.example'] },
      authenticate: ({ authorization, resource }) => bearerToken(authorization) === resource
        ? principal({ id: 'me' })
        : { status: 401, message: 'Who are you?', error: 'invalid_token', description: 'not "that" one\\' }
    }
  })
  const url = `http://127.0.0.1:${own.port}/mcp`
  t.equal((await own.post(request('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: '1' } }), bearer(url))).status, 200)
  const turned = await own.post(LIST, bearer('x'))
  t.equal(turned.headers['www-authenticate'],
    `Bearer error="invalid_token", error_description="not \\"that\\" one\\\\", resource_metadata="http://127.0.0.1:${own.port}/.well-known/oauth-protected-resource/mcp"`)

  const optional = await serve(t, { ...kit(), publicUrl: 'https://h', auth: { oauth: { issuer: one.url }, required: false } })
  t.ok((await optional.connect()).id, 'anonymous callers may be let in')
  t.equal((await optional.post(LIST, bearer('wrong'))).status, 401, 'a wrong token is wrong all the same')
})

t.test('options that cannot work are refused by name', async (t) => {
  const issuer = 'https://idp.example'
  const introspection = { url: 'https://idp.example/i', clientId: 'c', clientSecret: 's' }
  const wrong: [unknown, RegExp][] = [
    [{}, /auth\.oauth\.issuer/],
    [{ issuer: 'idp.example' }, /auth\.oauth\.issuer/],
    [{ issuer: 'http://idp.example' }, /auth\.oauth\.issuer: must be https/],
    [{ issuer: 'http://localhost.evil.example' }, /must be https/],
    [{ issuer, jwksUri: 'http://idp.example/jwks' }, /auth\.oauth\.jwksUri: must be https/],
    [{ issuer, introspection: { ...introspection, url: 'http://idp.example/i' } }, /introspection\.url: must be https/],
    [{ issuer, algorithms: ['none'] }, /auth\.oauth\.algorithms\.0: .*never none or HMAC/],
    [{ issuer, algorithms: ['HS256'] }, /never none or HMAC/],
    [{ issuer, algorithms: [] }, /algorithms/],
    [{ issuer, jwks: { keys: [] }, introspection }, /give one of/],
    [{ issuer, requiredScopes: ['a b'] }, /requiredScopes\.0: a scope/],
    [{ issuer, requiredScopes: ['a"b'] }, /requiredScopes/],
    [{ issuer, audiences: 'x' }, /unknown option auth\.oauth\.audiences/],
    [{ issuer, principal: 'x' }, /auth\.oauth\.principal/]
  ]
  for (const [oauth, message] of wrong) {
    t.throws(() => new OAuthAuth(oauth as OAuthOptions), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message }, JSON.stringify(oauth))
  }
  await t.rejects(serve(t, { ...kit(), auth: {} }), { message: /tokens.*oauth/ })
  for (const good of [{ issuer: 'http://localhost:1' }, { issuer: 'http://[::1]:1' }, { issuer: 'http://idp', allowHttp: true }, { issuer: 'http://idp', jwks: { keys: [] } }]) {
    t.doesNotThrow(() => new OAuthAuth(good), JSON.stringify(good))
  }
})

t.test('what is remembered of tokens is bounded and ends with them', async (t) => {
  const cache = new TokenCache<string>(2)
  cache.set('a', 'A', 100)
  cache.set('b', 'B', 100)
  t.equal(cache.get('a', 50), 'A')
  cache.set('c', 'C', 100)
  t.same(['a', 'b', 'c'].map((key) => cache.get(key, 50)), ['A', undefined, 'C'], 'the one that was not used goes')
  t.equal(cache.get('a', 100), undefined)
  t.equal(cache.size, 1)
  for (let n = 0; n < 1000; n++) cache.set(`${n}`, '', 100)
  t.equal(cache.size, 2)

  const issuer = await startIssuer(t, AUD)
  const auth = new OAuthAuth({ issuer: issuer.url, clockTolerance: 0 })
  const token = await issuer.sign()
  t.type(auth.authenticate({ authorization: `Bearer ${token}`, resource: AUD }), Promise)
  await outcome(auth, token)
  t.notOk(auth.authenticate({ authorization: `Bearer ${token}`, resource: AUD }) instanceof Promise, 'the second time nothing is awaited')
})
