// CORS: pages of listed origins may read answers. Preflights are answered after the guard, and before anybody is asked who they
// are. WHATWG Fetch "CORS protocol".

import t, { type Test } from 'tap'
import { initialize, modern, modernHeaders, request } from '../kit.js'
import type { Answer, Headers } from './client.js'
import { handshake, JSON_ONLY, listenStream, post, postStream, refused, send, serve, SSE_ONLY } from './client.js'

const APP = 'https://app.example.com'
const CORS = { corsOrigins: [APP, 'http://*.dev.example.com'] }
const EXPOSED = 'Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After'
const MCP_HEADERS = 'authorization,content-type,mcp-protocol-version,mcp-session-id,mcp-method,mcp-name,mcp-param-region,last-event-id'

function preflight (url: string, origin: string | undefined, method = 'POST', more: Headers = {}): Promise<Answer> {
  return send(url, {
    method: 'OPTIONS',
    headers: { ...(origin !== undefined && { origin }), 'access-control-request-method': method, 'access-control-request-headers': MCP_HEADERS, ...more }
  })
}

function corsHeaders ({ headers }: Pick<Answer, 'headers'>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-')))
}

function readable (t: Test, answer: Pick<Answer, 'headers'>, origin = APP): void {
  t.same(corsHeaders(answer), { 'access-control-allow-origin': origin, 'access-control-expose-headers': EXPOSED })
  t.match(answer.headers.vary, /\bOrigin\b/)
}

t.test('CO-01 SEC-12 SEC-13 a preflight of a listed page', async (t) => {
  const app = await serve(t, { ...CORS, auth: { tokens: ['s3cret'] } })
  for (const method of ['GET', 'POST', 'DELETE']) {
    for (const origin of [APP, 'http://a.dev.example.com']) {
      const answer = await preflight(app.url, origin, method)
      t.equal(answer.status, 204)
      t.equal(answer.text, '')
      t.same(corsHeaders(answer), {
        'access-control-allow-origin': origin,
        'access-control-expose-headers': EXPOSED,
        'access-control-allow-methods': 'GET, POST, DELETE, OPTIONS',
        'access-control-allow-headers': MCP_HEADERS,
        'access-control-max-age': '600'
      })
      t.equal(answer.headers.vary, 'Origin, Access-Control-Request-Headers')
    }
  }
  const bare = await send(app.url, { method: 'OPTIONS', headers: { origin: APP } })
  t.equal(bare.status, 204, 'an OPTIONS that asks for nothing in particular')
  t.equal(bare.headers['access-control-allow-methods'], 'GET, POST, DELETE, OPTIONS')
  t.notOk('access-control-allow-headers' in bare.headers)
})

t.test('a preflight of another page', async (t) => {
  const app = await serve(t, CORS)
  refused(t, await preflight(app.url, 'https://evil.example'), 403, 'Forbidden: invalid Origin', { connection: 'close' })
  const local = await preflight(app.url, 'http://localhost:3000')
  refused(t, local, 405, 'Method Not Allowed', { allow: 'GET, POST, DELETE' })
  t.same(corsHeaders(local), {}, 'a page that may talk to us may not read the answers for that')
  const none = await preflight(app.url, undefined)
  refused(t, none, 405, 'Method Not Allowed')
  t.same(corsHeaders(none), {})
})

t.test('CO-02 SEC-14 every answer to a listed page can be read', async (t) => {
  const app = await serve(t, CORS)
  const origin = { origin: APP }
  const json = await post(app, initialize(), origin)
  t.match(json.headers['mcp-session-id'], /^[0-9a-f]{32}$/)
  readable(t, json)
  readable(t, await post(app, initialize(), { ...origin, accept: 'text/event-stream' }))
  readable(t, await post(app, initialize(), { origin: 'http://x.dev.example.com' }), 'http://x.dev.example.com')

  const session = await handshake(app, '2025-11-25', { headers: origin })
  const call = request('tools/call', { name: 'slow', arguments: { steps: 1 }, _meta: { progressToken: 1 } })
  readable(t, await session.post(call))
  readable(t, await session.post(call, JSON_ONLY))
  const streams = [
    await session.get(),
    await listenStream(app, {}, 'L', origin),
    await postStream(app, modern('tools/call', { name: 'sleepy' }), { ...modernHeaders('tools/call', 'sleepy'), ...origin })
  ]
  for (const stream of streams) {
    t.equal(stream.headers['content-type'], 'text/event-stream')
    readable(t, stream)
    stream.leave()
  }
  readable(t, await session.end())
})

t.test('refusals can be read as well', async (t) => {
  const app = await serve(t, { ...CORS, auth: { tokens: ['s3cret'] }, maxBodyBytes: 500, maxSessions: 1 })
  const origin = { origin: APP }
  const known = { ...origin, authorization: 'Bearer s3cret' }
  const unknown = await post(app, initialize(), origin)
  t.equal(unknown.headers['www-authenticate'], 'Bearer realm="cloudg-mcp"')
  const session = await handshake(app, '2025-11-25', { headers: known })
  const stream = await session.get()
  const answers: [number, Answer][] = [
    [401, unknown],
    [405, await send(app.url, { method: 'PUT', headers: known })],
    [415, await post(app, 'x', { ...known, 'content-type': 'text/plain' })],
    [406, await post(app, {}, { ...known, accept: 'text/html' })],
    [400, await post(app, '{', known)],
    [413, await post(app, 'x'.repeat(1000), known)],
    [400, await post(app, request('ping'), known)],
    [404, await post(app, request('ping'), { ...known, 'mcp-session-id': 'gone' })],
    [409, await send(app.url, { method: 'GET', headers: { ...session.headers, ...SSE_ONLY } })],
    [503, await post(app, initialize(), known)],
    [400, await post(app, modern('tools/list'), known)]
  ]
  for (const [status, answer] of answers) {
    t.equal(answer.status, status)
    readable(t, answer)
  }
  stream.leave()
  const foreign = await post(app, initialize(), { ...known, host: 'evil.example' })
  t.equal(foreign.status, 421)
  t.same(corsHeaders(foreign), {}, 'but for the guard\'s')
})

t.test('answers to others say nothing of CORS, but vary', async (t) => {
  const app = await serve(t, CORS)
  for (const headers of [{}, { origin: 'http://localhost:3000' }]) {
    const answer = await post(app, initialize(), headers)
    t.equal(answer.status, 200)
    t.same(corsHeaders(answer), {})
    t.equal(answer.headers.vary, 'Origin')
  }
})

t.test('CO-03 without the option there is no CORS', async (t) => {
  const app = await serve(t, { allowedOrigins: [APP], allowedHosts: ['127.0.0.1'] })
  refused(t, await preflight(app.url, APP), 405, 'Method Not Allowed', { allow: 'GET, POST, DELETE' })
  const answer = await post(app, initialize(), { origin: APP })
  t.equal(answer.status, 200)
  t.same(corsHeaders(answer), {})
  t.notOk('vary' in answer.headers)
})

t.test('a listed origin may talk to us, without being listed twice', async (t) => {
  const app = await serve(t, { ...CORS, allowedOrigins: ['https://only.example.com'] })
  t.equal((await post(app, initialize(), { origin: APP })).status, 200)
  t.equal((await post(app, initialize(), { origin: 'https://only.example.com' })).status, 200)
  refused(t, await post(app, initialize(), { origin: 'http://localhost:3000' }), 403, 'Forbidden: invalid Origin')
})

t.test('health and documents can be read too', async (t) => {
  const app = await serve(t, CORS)
  const health = await send(`${app.origin}/healthz`, { method: 'GET', headers: { origin: APP } })
  t.equal(health.text, '{"status":"ok"}')
  readable(t, health)
})

t.test('CORS is for these routes alone', async (t) => {
  const app = await serve(t, CORS)
  for (const path of ['/orders', '/', '/mcp/x', '/mcpx']) {
    const plain = await serve(t)
    for (const origin of [APP, 'https://evil.example', undefined]) {
      const [answer, without] = [await preflight(app.origin + path, origin), await preflight(plain.origin + path, origin)]
      t.equal(answer.status, 404, `${path} ${origin}`)
      t.equal(answer.text, without.text, 'the host answers as it would without us')
      t.same(corsHeaders(answer), {})
    }
  }
})
