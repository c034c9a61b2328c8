// Who may reach the endpoint, and who gets to see what: answers that went to somebody else, identities that were kept too long,
// pages that are not ours.

import { once } from 'node:events'
import { connect } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { z } from 'zod'
import type { Authenticator } from '../../lib/auth/index.js'
import { UNAUTHORIZED } from '../../lib/auth/index.js'
import type { AppLayer } from '../../lib/layer/index.js'
import { createLayer } from '../../lib/layer/index.js'
import { bearerToken, principal } from '../../lib/principal.js'
import { createKit, initialize, modern, modernHeaders, request } from '../kit.js'
import type { Answer, Service } from './wire.js'
import { BOTH, gate, H, PING, raw, refused, serve } from './wire.js'

const CALLERS = 50
const tokens = Array.from({ length: CALLERS }, (_, at) => `token-${at}:user:caller-${at}`)
const bearer = (at: number) => ({ authorization: `Bearer token-${at}` })

/** A tool that answers nobody before all have called, and then in an order of its own. */
function assembly (): AppLayer {
  const layer = createLayer({ name: 'assembly', version: '1' })
  let waiting: (() => void)[] = []
  layer.tool('whoami', {}, async (_args, ctx) => {
    await ctx.progress(1, 2, ctx.principal.id)
    await new Promise<void>((resolve) => {
      if (waiting.push(resolve) === CALLERS) void release()
    })
    await ctx.notify.log('info', ctx.principal.id)
    return { who: ctx.principal.id }
  })
  async function release (): Promise<void> {
    const all = waiting
    waiting = []
    // 7 and 50 have no common divisor: each is let go once, neighbours far apart.
    for (let at = 0; at < CALLERS; at++) {
      all[(at * 7) % CALLERS]!()
      if (at % 3 === 0) await turn()
    }
  }
  return layer
}

t.test('SEC-01 no answer reaches another caller, whatever ids they share', async (t) => {
  const call = request('tools/call', { name: 'whoami', arguments: {}, _meta: { progressToken: 'p' } }, 2)
  const envelope = modern('tools/call', { name: 'whoami', arguments: {}, _meta: { progressToken: 'p', 'io.modelcontextprotocol/logLevel': 'info' } }, 2)
  const ways: [string, { stateless?: boolean }, (service: Service, at: number) => Promise<Answer>][] = [
    ['sessions', {}, async (service, at) => (await service.connect(bearer(at))).post(call)],
    ['sessions, JSON', {}, async (service, at) => (await service.connect(bearer(at))).post(call, { accept: 'application/json' })],
    ['stateless', { stateless: true }, (service, at) => service.post(call, { ...bearer(at), 'mcp-protocol-version': '2025-11-25' })],
    ['2026', {}, (service, at) => service.post(envelope, { ...modernHeaders('tools/call', 'whoami'), ...bearer(at) })]
  ]
  for (const [name, options, ask] of ways) {
    const service = await serve(t, { layer: assembly(), auth: { tokens }, ...options })
    const answers = await Promise.all(Array.from({ length: CALLERS }, (_, at) => ask(service, at)))
    answers.forEach((answer, at) => {
      const caller = `caller-${at}`
      t.same([answer.reply.id, answer.reply.result.structuredContent], [2, { who: caller }], name)
      const notices = answer.messages.slice(0, -1).map(({ params }) => params.message ?? params.data)
      t.same(notices, name === 'sessions, JSON' ? [] : [caller, caller])
    })
  }
})

t.test('SEC-03 what belongs to a call stays on its stream, whoever connects meanwhile', async (t) => {
  const layer = createLayer({ name: 'slow', version: '1' })
  const steps = [gate(), gate()]
  layer.tool('slow', {}, async (_args, ctx) => {
    for (const [at, step] of steps.entries()) {
      await ctx.progress(at + 1)
      await ctx.notify.log('error', `step ${at}`)
      await step.opened
    }
    return 'done'
  })
  const service = await serve(t, { layer, auth: { tokens } })
  const a = await service.connect(bearer(0))
  const call = await a.open(request('tools/call', { name: 'slow', arguments: {}, _meta: { progressToken: 'a' } }, 1))
  t.equal((await call.next()).method, 'notifications/progress')
  const others = [await service.connect(bearer(1)), await service.connect(bearer(0))]
  const streams = await Promise.all([...others, a].map((session) => session.get()))
  for (const step of steps) {
    step.open()
    await turn()
  }
  t.ok(await call.end())
  t.same(call.unread.map(({ method, id }) => method ?? id), ['notifications/message', 'notifications/progress', 'notifications/message', 1])
  layer.notifyChanged('tools')
  for (const stream of streams) {
    t.equal((await stream.next()).method, 'notifications/tools/list_changed', 'nothing came before it')
    stream.destroy()
  }
})

t.test('SEC-04 identity, roles and headers are those of the request, never those of the session', async (t) => {
  const auth: Authenticator = {
    authenticate ({ authorization, headers }) {
      const role = bearerToken(authorization)
      return role === undefined ? UNAUTHORIZED : principal({ id: 'a', roles: [role], attributes: { tenant: headers['x-tenant'] } })
    }
  }
  const service = await serve(t, { auth })
  service.layer.tool('read', {}, () => 'ok')
  service.layer.tool('wipe', { roles: ['admin'] }, (_args, ctx) => ({
    roles: [...ctx.principal.roles], tenant: ctx.principal.attributes?.['tenant'], seen: ctx.request.headers['x-req'], raw: (ctx.request.raw as any).headers['x-req']
  }))
  service.layer.resource('x://secret', { name: 'secret', roles: ['admin'] }, () => 'text')
  const session = await service.connect({ authorization: 'Bearer viewer', 'x-req': '1', 'x-tenant': 'one' })
  const as = (role: string, body: unknown, more = {}) => session.post(body, { authorization: `Bearer ${role}`, 'x-req': '2', 'x-tenant': 'two', ...more })
  const wipe = request('tools/call', { name: 'wipe', arguments: {} })
  t.same((await as('viewer', wipe)).reply.error, { code: -32602, message: 'Unknown tool: wipe', data: { name: 'wipe' } })
  t.same((await as('admin', wipe)).reply.result.structuredContent, { roles: ['admin'], tenant: 'two', seen: '2', raw: '2' })
  t.equal((await as('viewer', wipe)).reply.error.code, -32602, 'and the next request is a viewer\'s again')
  t.same((await as('admin', request('tools/list'))).json.result.tools.map(({ name }: any) => name), ['read', 'wipe'])
  t.same((await as('viewer', request('tools/list'))).json.result.tools.map(({ name }: any) => name), ['read'])
  t.equal((await as('viewer', request('resources/read', { uri: 'x://secret' }))).reply.error.code, -32002)
  t.equal((await as('admin', request('resources/read', { uri: 'x://secret' }))).reply.result.contents[0].text, 'text')
  t.equal((await session.post(wipe, { authorization: '' })).status, 401)
})

t.test('SEC-06 a rebound name and a foreign page are refused before anything else', async (t) => {
  const service = await serve(t, { auth: { tokens: ['secret'] }, sse: true })
  const evil = `evil.example:${service.port}`
  const paths = [['POST', '/mcp'], ['GET', '/mcp'], ['DELETE', '/mcp'], ['OPTIONS', '/mcp'], ['GET', '/healthz'], ['GET', '/sse'], ['POST', '/messages/?session_id=0'],
    ['GET', '/.well-known/oauth-protected-resource'], ['GET', '/mcp/.well-known/oauth-authorization-server']] as const
  for (const [method, path] of paths) {
    for (const headers of [{ host: evil }, { host: evil, origin: `http://${evil}` }]) {
      const answer = await service.send({ method, path, headers })
      t.equal(answer.status, 421, `${method} ${path}`)
      t.same(answer.json, refused('Invalid Host header'))
      t.equal(answer.headers.connection, 'close')
      t.equal(answer.headers['www-authenticate'], undefined)
    }
    for (const origin of ['http://evil.example', `http://${evil}`]) {
      const answer = await service.send({ method, path, headers: { origin } })
      t.equal(answer.status, 403, `${method} ${path}`)
      t.same(answer.json, refused('Forbidden: invalid Origin'))
    }
  }
  t.ok(service.logs.every(({ msg }) => /allowedHosts|allowedOrigins/.test(msg)))
  // The answer comes though the body never does.
  const socket = connect(service.port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.write('POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n')
  const [head] = await once(socket, 'data')
  t.match(String(head), /^HTTP\/1\.1 421 /)
})

t.test('SEC-06 on an open bind a matching pair of Host and Origin proves nothing', async (t) => {
  const service = await serve(t, {}, { host: '0.0.0.0' })
  const headers = { ...H, host: 'evil.example', origin: 'http://evil.example' }
  const answer = await service.send({ headers, body: initialize() })
  t.equal(answer.status, 403)
  t.same(answer.json, refused('Forbidden: invalid Origin'))
  const listed = await serve(t, { allowedHosts: ['mcp.example.com'] }, { host: '0.0.0.0' })
  const pair = { ...H, host: 'mcp.example.com', origin: 'https://mcp.example.com' }
  t.equal((await listed.send({ headers: pair, body: initialize() })).status, 200, 'unless the host is a listed one')
})

t.test('SEC-06 behind a trusted proxy the forwarded host has to pass too, and never instead', async (t) => {
  const service = await serve(t, { allowedHosts: ['localhost', 'mcp.example.com'] }, { fastify: { trustProxy: true } })
  const status = async (host: string, forwarded: string) => (await service.post(initialize(), { host, 'x-forwarded-host': forwarded })).status
  t.equal(await status('localhost', 'mcp.example.com'), 200)
  t.equal(await status('localhost', 'evil.example'), 421)
  t.equal(await status('evil.example', 'localhost'), 421)
  t.equal(await status('localhost', 'localhost, evil.example'), 421)
})

t.test('SEC-07 a listed host passes with and without a port, whole, in any case', async (t) => {
  const loopback = await serve(t)
  const listed = await serve(t, { allowedHosts: ['mcp.example.com', '*.internal.example', 'pinned.example:8443', '[2001:db8::1]'] })
  const hosts: [Service, string, number][] = [
    [loopback, '127.0.0.1', 200], [loopback, `127.0.0.1:${loopback.port}`, 200], [loopback, 'localhost:9', 200], [loopback, 'LOCALHOST', 200],
    [loopback, '[::1]', 200], [loopback, '[::1]:80', 200], [loopback, '[0:0:0:0:0:0:0:1]:80', 200],
    [loopback, 'localhost.evil.io', 421], [loopback, 'evil-localhost', 421], [loopback, '127.0.0.1.evil.io', 421], [loopback, '127.0.0.2', 421],
    [loopback, 'localhost:80:80', 421], [loopback, 'user@localhost', 421], [loopback, 'localhost, evil.example', 421], [loopback, 'localhost.', 421],
    [listed, 'mcp.example.com', 200], [listed, 'mcp.example.com:443', 200], [listed, 'MCP.Example.COM:1', 200],
    [listed, 'a.internal.example', 200], [listed, 'a.b.internal.example:99', 200], [listed, 'pinned.example:8443', 200], [listed, '[2001:DB8:0::1]:8', 200],
    // A name with a dot at its end is not the listed one.
    [listed, 'mcp.example.com.', 421], [listed, 'mcp.example.com.evil.io', 421], [listed, 'evilmcp.example.com', 421],
    [listed, 'pinned.example', 421], [listed, 'pinned.example:8444', 421], [listed, 'internal.example', 421], [listed, 'localhost', 421]
  ]
  for (const [service, host, status] of hosts) {
    t.equal((await service.post(initialize(), { host })).status, status, host)
  }
  t.match(await raw(loopback.port, 'POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'), /^HTTP\/1\.1 4\d\d /)
})

t.test('SEC-08 on an open bind any host is served and the log says so once; a list holds', async (t) => {
  const open = await serve(t, {}, { host: '0.0.0.0' })
  for (const host of ['192.168.50.10:8000', 'mcp.example.com', 'localhost']) t.equal((await open.post(initialize(), { host })).status, 200, host)
  t.equal(open.logs.filter(({ msg }) => /allowedHosts/.test(msg)).length, 1)
  const listed = await serve(t, { allowedHosts: ['mcp.example.com'] }, { host: '0.0.0.0' })
  t.equal((await listed.post(initialize(), { host: 'mcp.example.com' })).status, 200)
  t.same(listed.logs, [])
  t.equal((await listed.post(initialize(), { host: '192.168.50.10:8000' })).status, 421)
  t.match(listed.logs, [{ host: '192.168.50.10:8000', msg: /`allowedHosts`.*`publicUrl`/ }])
  const published = await serve(t, { publicUrl: 'https://mcp.example.com/base' })
  t.equal((await published.post(initialize(), { host: 'mcp.example.com', origin: 'https://mcp.example.com' })).status, 200, 'publicUrl is a name of ours')
  t.equal((await published.post(initialize(), { host: 'localhost' })).status, 200)
})

t.test('SEC-10 an Origin passes when it is absent, local or listed', async (t) => {
  const service = await serve(t)
  const origins: [string, number][] = [
    ['null', 403], ['', 403], ['http://localhost.evil.io', 403], ['http://evil.example', 403], ['vscode-webview://x', 403], ['file://', 403],
    ['http://localhost@evil.example', 403], ['http://localhost, http://evil.example', 403], ['localhost', 403], ['https://localhost:1234/path', 403],
    ['https://localhost:1234', 200], ['http://127.0.0.1:5173', 200], ['http://[::1]:3000', 200], ['HTTP://LOCALHOST', 200]
  ]
  for (const [origin, status] of origins) {
    const answer = await service.post(initialize(), { origin })
    t.equal(answer.status, status, origin)
    if (status === 403) t.same(answer.json, refused('Forbidden: invalid Origin'))
  }
  t.equal((await service.post(initialize())).status, 200)
  const two = await service.post(initialize(), { origin: ['http://localhost', 'http://evil.example'] as any })
  t.equal(two.status, 400)
  const listed = await serve(t, { allowedOrigins: ['vscode-webview://*', 'https://app.example'] })
  for (const [origin, status] of [['vscode-webview://x', 200], ['https://app.example', 200], ['https://app.example:444', 403], ['http://localhost:3000', 403]] as const) {
    t.equal((await listed.post(initialize(), { origin })).status, status, origin)
  }
})

t.test('SEC-12 a preflight is answered without a token, for every header of MCP', async (t) => {
  const service = await serve(t, { auth: { tokens: ['secret'] }, corsOrigins: ['http://app.example'] })
  const names = 'authorization,content-type,mcp-protocol-version,mcp-session-id,mcp-method,mcp-name,last-event-id,mcp-param-region'
  const ask = (origin: string) => service.send({
    method: 'OPTIONS', headers: { origin, 'access-control-request-method': 'POST', 'access-control-request-headers': names }
  })
  const answer = await ask('http://app.example')
  t.equal(answer.status, 204)
  t.equal(answer.text, '')
  t.equal(answer.headers['access-control-allow-origin'], 'http://app.example')
  const allowed = String(answer.headers['access-control-allow-headers']).toLowerCase().split(/,\s*/)
  for (const name of names.split(',')) t.ok(allowed.includes(name), name)
  const foreign = await ask('http://evil.example')
  t.equal(foreign.status, 403)
  t.equal(foreign.headers['access-control-allow-origin'], undefined)
  t.same(foreign.json, refused('Forbidden: invalid Origin'))
  const local = await ask('http://localhost:3000')
  t.equal(local.headers['access-control-allow-origin'], undefined, 'a local page may call, not read')
  const unauthorized = await service.post(initialize(), { origin: 'http://app.example' })
  t.equal(unauthorized.status, 401)
  t.equal(unauthorized.headers['access-control-allow-origin'], 'http://app.example', 'so that a page can read the challenge')
})

t.test('SEC-13 a preflight allows DELETE, may be kept, and varies', async (t) => {
  const service = await serve(t, { corsOrigins: ['http://app.example'] })
  const { status, headers } = await service.send({ method: 'OPTIONS', headers: { origin: 'http://app.example', 'access-control-request-method': 'DELETE' } })
  t.equal(status, 204)
  t.same(String(headers['access-control-allow-methods']).split(/,\s*/).sort(), ['DELETE', 'GET', 'OPTIONS', 'POST'])
  t.match(headers.vary, /\bOrigin\b/)
  t.match(headers.vary, /\bAccess-Control-Request-Headers\b/)
  t.ok(Number(headers['access-control-max-age']) > 0)
  t.equal(headers['access-control-allow-credentials'], undefined)
})

t.test('SEC-14 a page can read the headers it needs, of every answer', async (t) => {
  const service = await serve(t, { corsOrigins: ['http://*.app.example'], layer: createKit().layer })
  const origin = 'http://one.app.example'
  const session = await service.connect({ origin })
  const stream = await session.get()
  const answers = [
    await service.post(initialize(), { origin, accept: 'application/json' }),
    await service.post(initialize(), { origin, accept: 'text/event-stream' }),
    await session.post(request('tools/call', { name: 'slow', arguments: {} })),
    await session.post(PING, { 'mcp-session-id': 'gone' }),
    await session.post(PING, { accept: 'text/html' }),
    await session.post('{'),
    stream
  ]
  t.same(answers.map(({ status }) => status), [200, 200, 200, 404, 406, 400, 200])
  for (const { headers } of answers) {
    t.equal(headers['access-control-allow-origin'], origin)
    const exposed = String(headers['access-control-expose-headers']).toLowerCase().split(/,\s*/)
    for (const name of ['mcp-session-id', 'www-authenticate', 'mcp-protocol-version']) t.ok(exposed.includes(name), name)
  }
  stream.destroy()
  const plain = await service.post(initialize())
  t.equal(plain.headers['access-control-allow-origin'], undefined)
  const elsewhere = await service.send({ method: 'GET', path: '/elsewhere', headers: { origin } })
  t.equal(elsewhere.headers['access-control-allow-origin'], undefined, 'the other routes of the host have no CORS from us')
})

t.test('SEC-16 what a caller writes in forwarded headers shows up nowhere', async (t) => {
  const injected = 'a", error="insufficient_scope", scope="admin'
  for (const trustProxy of [false, true]) {
    const service = await serve(t, { auth: { tokens: ['secret'] }, allowedHosts: ['localhost'] }, { fastify: { trustProxy } })
    const answer = await service.post(initialize(), { host: 'localhost', 'x-forwarded-host': injected, 'x-forwarded-proto': 'javascript' })
    t.equal(answer.status, trustProxy ? 421 : 401)
    t.notMatch(JSON.stringify(answer.headers) + answer.text, /insufficient_scope|javascript|admin/)
    const proto = await service.post(initialize(), { host: 'localhost', 'x-forwarded-proto': 'javascript' })
    t.equal(proto.status, 401)
    t.match(proto.headers['www-authenticate'], /^Bearer realm="cloudg-mcp"/)
    t.notMatch(JSON.stringify(proto.headers) + proto.text, /javascript/)
    t.equal((await service.post(initialize(), { host: 'evil' })).status, 421)
  }
})

t.test('SEC-18 names that every object has are names like others', async (t) => {
  const service = await serve(t, { layer: createKit().layer })
  const session = await service.connect()
  const inherited = ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'valueOf', 'prototype']
  for (const name of inherited) {
    const error = async (method: string, params: Record<string, any>) => (await session.post(request(method, params))).reply.error
    t.same(await error('tools/call', { name, arguments: {} }), { code: -32602, message: `Unknown tool: ${name}`, data: { name } })
    t.same(await error('prompts/get', { name }), { code: -32602, message: `Unknown prompt: ${name}` })
    t.match(await error('resources/read', { uri: name }), { code: -32002, data: { uri: name } })
    t.same(await error(name, {}), { code: -32601, message: 'Method not found', data: name })
    const complete = async (ref: object, argument: string) =>
      (await session.post(request('completion/complete', { ref, argument: { name: argument, value: '' } }))).reply.result.completion
    const nothing = { values: [], total: 0, hasMore: false }
    t.same(await complete({ type: 'ref/prompt', name }, 'name'), nothing)
    t.same(await complete({ type: 'ref/prompt', name: 'greet' }, name), nothing)
    t.same(await complete({ type: 'ref/resource', uri: 'test://items/{item_id}' }, name), nothing)
    t.equal((await service.post(PING, { 'mcp-session-id': name })).status, 404)
    const modernCall = modern('tools/call', { name, arguments: {} })
    t.same((await service.post(modernCall, modernHeaders('tools/call', name))).reply.error, { code: -32602, message: `Unknown tool: ${name}`, data: { name } })
    t.equal((await service.post(modern(name), modernHeaders(name))).status, 404)
  }
  t.equal((await session.post('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"__proto__":{"text":"x"}}}}')).status, 400)
  t.equal(({} as any).text, undefined)
  const ctor = await session.post(request('tools/call', { name: 'echo', arguments: { text: 'x', constructor: 'y' } }))
  t.equal(ctor.reply.result.isError, true, 'an argument may be called so; this tool has no such argument')
})

t.test('SEC-20 every part of a batch passes the checks of a single message', async (t) => {
  const layer = createLayer({ name: 'guarded', version: '1' })
  const seen: string[] = []
  layer.use(async (info, next) => { seen.push(`${info.principal.id} ${info.name}`); return next() })
  layer.tool('read', { input: { n: z.number() } }, ({ n }) => `${n}`)
  layer.tool('wipe', { roles: ['admin'] }, () => 'gone')
  const service = await serve(t, { layer, auth: { tokens: ['t-viewer:viewer:vera', 't-admin:admin:adam'] } })
  const vera = await service.connect({ authorization: 'Bearer t-viewer' }, '2025-03-26')
  const batch = [request('tools/call', { name: 'read', arguments: { n: 5 } }, 1), request('tools/call', { name: 'wipe', arguments: {} }, 2), request('tools/list', {}, 3)]
  const answers = async (body: unknown) => (await vera.post(body, { accept: 'application/json' })).json
  const [read, wipe, list] = await answers(batch)
  t.equal(read.result.content[0].text, '5')
  t.same(wipe.error, { code: -32602, message: 'Unknown tool: wipe', data: { name: 'wipe' } })
  t.same(list.result.tools.map(({ name }: any) => name), ['read'])
  t.same(seen, ['vera read'])
  t.same((await answers(` \r\n\t${JSON.stringify(batch)}`)).map(({ id }: any) => id), [1, 2, 3])
  t.same(seen, ['vera read', 'vera read'])

  const enveloped = await vera.post([batch[0], modern('tools/call', { name: 'wipe', arguments: {} }, 9)])
  t.equal(enveloped.status, 400)
  t.same(enveloped.json, refused('JSON-RPC batches are not supported by protocol version 2026-07-28'))
  for (const version of ['2025-06-18', '2025-11-25']) {
    const session = await service.connect({ authorization: 'Bearer t-admin' }, version)
    const answer = await session.post(batch)
    t.equal(answer.status, 200)
    t.same(answer.reply, refused(`JSON-RPC batches are not supported by protocol version ${version}`))
  }
  t.equal(seen.length, 2, 'none of them ran')
  t.equal((await service.post(batch, { authorization: 'Bearer t-admin', accept: BOTH })).status, 400, 'nor without a session')
})
