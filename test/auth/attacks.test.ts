// Known attacks, each with its one right answer. A call that gets through would run the tool: it never does.

import t from 'tap'
import { createPublicKey } from 'node:crypto'
import type { CryptoKey } from 'jose'
import { base64url, CompactEncrypt, exportSPKI, importJWK, SignJWT, UnsecuredJWT } from 'jose'
import { createLayer } from '../../lib/layer/index.js'
import { initialize, request } from '../kit.js'
import { H, raw, serve } from '../field/wire.js'
import type { Service } from '../field/wire.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { pair, seconds, startIssuer } from './issuer.js'
import { openLegacy } from './legacy.js'

const AUD = 'https://h/mcp'
const RUN = request('tools/call', { name: 'run' }, 1)
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

function counting () {
  const layer = createLayer({ name: 'target', version: '1.0.0' })
  let runs = 0
  layer.tool('run', {}, () => ({ runs: ++runs }))
  return { layer, runs: () => runs }
}

const json = (value: unknown): string => base64url.encode(JSON.stringify(value))

t.test('forged, stolen and misplaced tokens', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const evil = await startIssuer(t, AUD)
  const rsa = await pair('rsa', 'RS256')
  issuer.keys.push(rsa.jwk)
  const target = counting()
  const service = await serve(t, { layer: target.layer, publicUrl: 'https://h', auth: { oauth: { issuer: issuer.url } } })
  const claims = { iss: issuer.url, aud: AUD, sub: 'admin', client_id: 'agent', exp: seconds(300) }
  const good = await issuer.sign()
  const [head, body, signature] = good.split('.') as [string, string, string]
  const mallory = await pair('k1')
  const publicPem = await exportSPKI(await importJWK(rsa.jwk, 'RS256') as CryptoKey)
  const publicDer = createPublicKey(publicPem).export({ type: 'spki', format: 'der' })
  const hmac = (secret: Uint8Array | string, kid: string) => new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid }).sign(typeof secret === 'string' ? Buffer.from(secret) : secret)
  const encrypted = await new CompactEncrypt(Buffer.from(JSON.stringify(claims))).setProtectedHeader({ alg: 'dir', enc: 'A128GCM' }).encrypt(Buffer.alloc(16))
  const forge = (header: Record<string, unknown>) => issuer.sign(claims, header, mallory)

  const tokens: Record<string, string> = {
    expired: await issuer.sign({ exp: seconds(-31) }),
    'expired long ago': await issuer.sign({ exp: 1 }),
    'never expires': await issuer.sign({ exp: undefined }),
    'not yet valid': await issuer.sign({ nbf: seconds(60) }),
    'of another issuer, with its key': await evil.sign(),
    'of another issuer that claims to be ours': await evil.sign({ iss: issuer.url }),
    'of an issuer that only starts like ours': await issuer.sign({ iss: `${issuer.url}/` }),
    'without an issuer': await issuer.sign({ iss: undefined }),
    'for another resource': await issuer.sign({ aud: 'https://other/mcp' }),
    'for the client (an ID token)': await issuer.sign({ aud: 'agent' }),
    'for nobody': await issuer.sign({ aud: undefined }),
    'alg none': new UnsecuredJWT(claims).encode(),
    'alg None': `${json({ alg: 'None' })}.${json(claims)}.`,
    'alg none with a signature': `${json({ alg: 'none', kid: 'k1' })}.${json(claims)}.${signature}`,
    'no alg': `${json({ kid: 'k1' })}.${json(claims)}.${signature}`,
    'alg a list': `${json({ alg: ['ES256'], kid: 'k1' })}.${body}.${signature}`,
    'HS256 with the public key as PEM': await hmac(publicPem, 'rsa'),
    'HS256 with the public key as DER': await hmac(publicDer, 'rsa'),
    'HS256 with the modulus': await hmac(rsa.jwk.n!, 'rsa'),
    'ES256 that names the RSA key': `${json({ alg: 'ES256', kid: 'rsa' })}.${body}.${signature}`,
    'RS256 that names the EC key': `${json({ alg: 'RS256', kid: 'k1' })}.${body}.${signature}`,
    'signed by somebody else': await forge({}),
    'an unknown kid': await forge({ kid: 'k2' }),
    'kid a path': await forge({ kid: '../../../../dev/null' }),
    'kid a URL': await forge({ kid: `${evil.url}/jwks` }),
    'kid a prototype key': await forge({ kid: '__proto__' }),
    'kid no text': `${json({ alg: 'ES256', kid: { $ne: null } })}.${body}.${signature}`,
    'jku to another key set': await forge({ jku: `${evil.url}/jwks` }),
    'x5u to another certificate': await forge({ x5u: `${evil.url}/cert` }),
    'its own key inside': await forge({ jwk: mallory.jwk }),
    'no kid': await forge({ kid: undefined }),
    'a critical extension': `${json({ alg: 'ES256', kid: 'k1', crit: ['exp'] })}.${body}.${signature}`,
    'a payload that is not encoded': `${json({ alg: 'ES256', kid: 'k1', b64: false, crit: ['b64'] })}.${body}.${signature}`,
    'the signature stripped': `${head}.${body}.`,
    'the signature cut': good.slice(0, -1),
    'a signature of zeros': `${head}.${body}.${base64url.encode(new Uint8Array(64))}`,
    'a signature of somebody else\'s token': `${head}.${json(claims)}.${signature}`,
    'two parts': `${head}.${body}`,
    'four parts': `${good}.${signature}`,
    'an encrypted token': encrypted,
    'claims a list': `${head}.${json([claims])}.${signature}`,
    'claims no JSON': `${head}.eyJh.${signature}`,
    'a JSON token': Buffer.from(JSON.stringify({ protected: head, payload: body, signature })).toString('base64'),
    'very long': 'a'.repeat(8000)
  }
  for (const [name, token] of Object.entries(tokens)) {
    const answer = await service.send({ headers: { ...H, ...bearer(token), 'mcp-session-id': 'x' }, body: RUN })
    t.equal(answer.status, 401, name)
    t.match(answer.headers['www-authenticate'], /^Bearer error="invalid_token", error_description="The [a-z ]+", resource_metadata=/)
    t.same(answer.json, { jsonrpc: '2.0', id: null, error: { code: -32600, message: 'Unauthorized' } })
  }
  t.same(evil.hits, {}, 'nobody followed a token to its key')

  const elsewhere = await service.send({ path: `/mcp?access_token=${good}`, body: RUN })
  t.equal(elsewhere.status, 401, 'a token in the query')
  t.notMatch(elsewhere.headers['www-authenticate'], 'error=', 'is no token at all')
  t.equal((await service.send({ headers: { ...H, 'content-type': 'application/x-www-form-urlencoded' }, body: `access_token=${good}` })).status, 401, 'a token in the body')
  for (const [name, value, status] of [
    ['two tokens in one header', `Bearer ${good}, Bearer ${good}`, 400],
    ['another scheme', `DPoP ${good}`, 401],
    ['no scheme', good, 401]
  ] as const) t.equal((await service.post(RUN, { authorization: value })).status, status, name)
  const session = await service.connect({ authorization: `bEaReR ${good}` })
  t.equal((await session.post(RUN)).status, 200, 'while a good one gets in')
  t.equal(target.runs(), 1)
})

t.test("another principal's session, on every verb and message", async (t) => {
  const issuer = await startIssuer(t, AUD)
  const target = counting()
  const service = await serve(t, { layer: target.layer, sse: true, publicUrl: 'https://h', auth: { oauth: { issuer: issuer.url, audience: [AUD, 'https://h/sse'] } } })
  const session = await service.connect(bearer(await issuer.sign()))
  const thief = { ...bearer(await issuer.sign({ sub: 'mallory' })), 'mcp-session-id': session.id }
  const asks = {
    POST: { method: 'POST', headers: { ...H, ...thief }, body: RUN },
    'POST of a notification': { method: 'POST', headers: { ...H, ...thief }, body: { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } } },
    'POST of an answer': { method: 'POST', headers: { ...H, ...thief }, body: { jsonrpc: '2.0', id: 'ask-1', result: {} } },
    GET: { method: 'GET', headers: { accept: 'text/event-stream', ...thief } },
    'GET with an event id': { method: 'GET', headers: { accept: 'text/event-stream', 'last-event-id': 'get-1', ...thief } },
    DELETE: { method: 'DELETE', headers: thief }
  }
  const answers = []
  for (const [name, ask] of Object.entries(asks)) {
    const answer = await service.send(ask)
    t.equal(answer.status, 404, name)
    answers.push(answer.text)
    const unknown = await service.send({ ...ask, headers: { ...ask.headers, 'mcp-session-id': '0'.repeat(32) } })
    t.same([unknown.status, unknown.text], [answer.status, answer.text], `${name}: not to be told from a session that never was`)
  }

  const old = await openLegacy(service.port, await issuer.sign({ aud: 'https://h/sse' }))
  const messages = old.endpoint
  for (const path of [messages, `/messages/?session_id=${session.id}`]) {
    t.equal((await service.send({ path, headers: { ...H, authorization: thief.authorization }, body: RUN })).status, 404, '/messages/')
  }
  t.equal((await service.send({ path: messages, headers: H, body: RUN })).status, 401, '/messages/ without a token')
  t.equal((await service.send({ path: messages, headers: { ...H, ...bearer(await issuer.sign({ jti: '2' })) }, body: initialize() })).status, 202)
  old.close()

  const stolen = await service.post(initialize(), thief)
  t.equal(stolen.status, 200)
  t.not(stolen.headers['mcp-session-id'], session.id, 'an initialize makes another session')
  t.equal((await session.post(RUN)).status, 200, 'the owner notices nothing')
  t.equal(target.runs(), 1)
})

// ---- what the guard is for: bytes as they come

interface Shot { target?: string, version?: string, headers: readonly string[] }

/** One call on a socket of its own: the status, and the head and body of the answer. */
async function shoot (port: number, { target = '/mcp', version = '1.1', headers }: Shot): Promise<{ status: number, text: string }> {
  const body = JSON.stringify(initialize())
  const lines = [`POST ${target} HTTP/${version}`, ...headers, 'Content-Type: application/json', 'Accept: application/json', `Content-Length: ${body.length}`, 'Connection: close']
  const text = await raw(port, `${lines.join('\r\n')}\r\n\r\n${body}`)
  return { status: Number(text.split(' ', 2)[1]), text }
}

const ACAO = /access-control-allow-origin/i

t.test('rebinding, smuggled Hosts and foreign pages', async (t) => {
  const layer = () => counting().layer
  const loopback = await serve(t, { layer: layer() })
  const cors = await serve(t, { layer: layer(), corsOrigins: ['https://app.example', 'https://*.apps.example'] })
  const wide = await serve(t, { layer: layer() }, { host: '0.0.0.0' })
  const listed = await serve(t, { layer: layer(), allowedHosts: ['mcp.example.com'] }, { host: '0.0.0.0' })
  const wary = await serve(t, { layer: layer(), allowedHosts: ['mcp.example.com'] }, { fastify: { trustProxy: '10.0.0.0/8' } })
  const trusting = await serve(t, { layer: layer() }, { fastify: { trustProxy: true } })
  const own = `127.0.0.1:${loopback.port}`

  const cases: [name: string, service: Service, shot: Shot, status: number][] = [
    ['a page that rebound its name to loopback', loopback, { headers: ['Host: evil.example', 'Origin: http://evil.example'] }, 421],
    ['the same without an Origin', loopback, { headers: ['Host: evil.example'] }, 421],
    ['a name that contains ours', loopback, { headers: ['Host: localhost.evil.example'] }, 421],
    ['a name that ends like ours', loopback, { headers: ['Host: evil-localhost'] }, 421],
    ['an address that only looks like loopback', loopback, { headers: ['Host: 127.0.0.1.evil.example'] }, 421],
    ['a foreign page at our own name', loopback, { headers: [`Host: ${own}`, 'Origin: https://evil.example'] }, 403],
    ['a page of a name that starts like ours', loopback, { headers: [`Host: ${own}`, 'Origin: http://localhost.evil.example'] }, 403],
    ['a sandboxed page', loopback, { headers: [`Host: ${own}`, 'Origin: null'] }, 403],
    ['an empty Origin', loopback, { headers: [`Host: ${own}`, 'Origin: '] }, 403],
    ['two Origins', loopback, { headers: [`Host: ${own}`, `Origin: http://${own}`, 'Origin: https://evil.example'] }, 400],
    ['two Origins in one line', loopback, { headers: [`Host: ${own}`, `Origin: http://${own}, https://evil.example`] }, 403],
    ['a page of this machine', loopback, { headers: [`Host: ${own}`, 'Origin: http://localhost:3000'] }, 200],

    ['a rebound page on an open bind', wide, { headers: ['Host: evil.example', 'Origin: http://evil.example'] }, 403],
    ['a caller that is no page, on an open bind', wide, { headers: ['Host: mcp.example.com'] }, 200],
    ['a rebound page where hosts are listed', listed, { headers: ['Host: evil.example', 'Origin: http://evil.example'] }, 421],
    ['a page of the listed host', listed, { headers: ['Host: mcp.example.com', 'Origin: https://mcp.example.com'] }, 200],

    ['an absolute target that names another host', loopback, { target: 'http://evil.example/mcp', headers: [`Host: ${own}`] }, 421],
    ['an absolute target with a Host that is not ours', loopback, { target: `http://${own}/mcp`, headers: ['Host: evil.example'] }, 421],
    ['an absolute target with credentials', loopback, { target: `http://x@${own}/mcp`, headers: [`Host: ${own}`] }, 421],
    ['an absolute target that agrees', loopback, { target: `http://${own}/mcp`, headers: [`Host: ${own}`] }, 200],
    ['two Hosts', loopback, { headers: [`Host: ${own}`, 'Host: evil.example'] }, 400],
    ['the same two the other way', loopback, { headers: ['Host: evil.example', `Host: ${own}`] }, 400],
    ['one Host twice', loopback, { headers: [`Host: ${own}`, `Host: ${own}`] }, 400],
    ['a Host with a user', loopback, { headers: ['Host: a@b'] }, 421],
    ['our Host with a user', loopback, { headers: [`Host: evil.example@${own}`] }, 421],
    ['our Host and more', loopback, { headers: [`Host: ${own}, evil.example`] }, 421],
    ['a Host with a path', loopback, { headers: [`Host: ${own}/x`] }, 421],
    ['an open bind and a Host with a user', wide, { headers: ['Host: a@b'] }, 421],
    ['no Host at all', loopback, { version: '1.0', headers: [] }, 421],

    ['a forwarded Host from whom nobody trusts', wary, { headers: ['Host: evil.example', 'X-Forwarded-Host: mcp.example.com', 'X-Forwarded-For: 10.0.0.1'] }, 421],
    ['a forwarded Host that is wrong, from whom nobody trusts', wary, { headers: ['Host: mcp.example.com', 'X-Forwarded-Host: evil.example'] }, 200],
    ['Forwarded is not read', wary, { headers: ['Host: evil.example', 'Forwarded: host=mcp.example.com;proto=https'] }, 421],
    ['a rebound page that forwards for itself', trusting, { headers: ['Host: evil.example', 'X-Forwarded-Host: localhost', 'Origin: http://evil.example'] }, 421],
    ['a trusted proxy that forwards another host', trusting, { headers: [`Host: ${own}`, 'X-Forwarded-Host: evil.example'] }, 421],
    ['a list of forwarded hosts', trusting, { headers: [`Host: ${own}`, 'X-Forwarded-Host: localhost, evil.example'] }, 421],

    ['CORS for whom it is not', cors, { headers: [`Host: ${own}`, 'Origin: https://evil.example'] }, 403],
    ['CORS for a name that ends otherwise', cors, { headers: [`Host: ${own}`, 'Origin: https://app.example.evil.io'] }, 403],
    ['CORS for a name that begins otherwise', cors, { headers: [`Host: ${own}`, 'Origin: https://evilapp.example'] }, 403],
    ['CORS for another scheme', cors, { headers: [`Host: ${own}`, 'Origin: http://app.example'] }, 403],
    ['CORS for another port', cors, { headers: [`Host: ${own}`, 'Origin: https://app.example:444'] }, 403],
    ['CORS for null', cors, { headers: [`Host: ${own}`, 'Origin: null'] }, 403],
    ['CORS through a wildcard with a dot too many', cors, { headers: [`Host: ${own}`, 'Origin: https://x.apps.example.evil.io'] }, 403],
    ['CORS through a wildcard with a list', cors, { headers: [`Host: ${own}`, 'Origin: https://evil.example,https://x.apps.example'] }, 403],
    ['a page that was let in', cors, { headers: [`Host: ${own}`, 'Origin: https://app.example'] }, 200]
  ]
  for (const [name, service, shot, status] of cases) {
    const answer = await shoot(service.port, { ...shot, headers: shot.headers.map((line) => line.replace(own, `127.0.0.1:${service.port}`)), ...(shot.target !== undefined && { target: shot.target.replace(own, `127.0.0.1:${service.port}`) }) })
    t.equal(answer.status, status, `${name}: ${answer.text.split('\r\n', 1)[0]!}`)
    if (status !== 200) t.notMatch(answer.text, ACAO, 'and no page can read it')
    else if (service === cors) t.match(answer.text, /access-control-allow-origin: https:\/\/app\.example\r/i)
  }

  for (const [origin, status] of [['https://evil.example', 403], ['null', 403], ['https://app.example', 204]] as const) {
    const preflight = await cors.send({
      method: 'OPTIONS', headers: { origin, 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization' }
    })
    t.equal(preflight.status, status, `a preflight of ${origin}`)
    t.equal(preflight.headers['access-control-allow-origin'], status === 204 ? origin : undefined)
    t.equal(preflight.headers['access-control-allow-credentials'], undefined)
  }
})

t.test('two Authorization headers', async (t) => {
  const options: CloudgMcpOptions = { layer: counting().layer, auth: { tokens: ['one', 'two'] } }
  const { port } = await serve(t, options)
  const host = `Host: 127.0.0.1:${port}`
  t.equal((await shoot(port, { headers: [host, 'Authorization: Bearer one', 'Authorization: Bearer two'] })).status, 400)
  t.equal((await shoot(port, { headers: [host, 'Authorization: Bearer wrong', 'Authorization: Bearer two'] })).status, 400)
  t.equal((await shoot(port, { headers: [host, 'Authorization: Bearer one', 'Authorization: Bearer one'] })).status, 200)
})
