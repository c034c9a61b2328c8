// What clients, proxies and frameworks really send and expect around the JSON: media types, repeated lines, odd verbs, probes.

import type { FastifyInstance } from 'fastify'
import fastify from 'fastify'
import { text } from 'node:stream/consumers'
import t from 'tap'
import cloudgMcp from '../../plugin.js'
import { createKit, initialize, INITIALIZED, modern, modernHeaders, request } from '../kit.js'
import { BOTH, Connection, H, JSON_ONLY, PING, raw, refused, serve, SSE_ONLY, Wire } from './wire.js'

const kit = () => ({ layer: createKit().layer })
const LIST = request('tools/list')
const UNACCEPTABLE = refused('Not Acceptable: accept application/json or text/event-stream')
const WRONG_TYPE = refused('Content-Type must be application/json')
const PARSE_ERROR = refused('Parse error', -32700)

t.test('HTT-01 whatever a client can read is what it gets', async (t) => {
  const service = await serve(t)
  const json = /^application\/json\b/
  const sse = /^text\/event-stream\b/
  const clients: [string | undefined, RegExp][] = [
    [undefined, json],
    ['', json],
    ['*/*', json],
    ['application/json', json],
    ['application/*', json],
    ['APPLICATION/JSON', json],
    ['application/json;q=0.9, text/plain', json],
    ['application/json; charset=utf-8', json],
    [BOTH, json],
    ['text/event-stream,application/json', json],
    ['text/event-stream', sse],
    ['text/event-stream;q=0.5', sse],
    ['text/*', sse]
  ]
  for (const [accept, type] of clients) {
    const answer = await service.send({ headers: { 'content-type': 'application/json', ...(accept !== undefined && { accept }) }, body: initialize() })
    t.equal(answer.status, 200, String(accept))
    t.match(answer.headers['content-type'], type, String(accept))
    t.equal(answer.reply.result.protocolVersion, '2025-11-25')
    t.match(answer.headers['mcp-session-id'], /^[0-9a-f]{32}$/)
  }
  for (const accept of ['text/html', 'image/*', 'application/xml, text/plain', 'application/json;q=0']) {
    const answer = await service.post(initialize(), { accept })
    t.equal(answer.status, 406, accept)
    t.same(answer.json, UNACCEPTABLE)
    t.equal(answer.headers['mcp-session-id'], undefined)
  }
  const listen = modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'L')
  const refusal = await service.post(listen, { ...modernHeaders(listen.method), accept: 'application/json' })
  t.equal(refusal.status, 406)
  t.match(refusal.json, { error: { code: -32600, message: 'subscriptions/listen requires Accept: text/event-stream' } })
})

t.test('HTT-01 a call is a stream for those who read streams, and JSON for those who only read JSON', async (t) => {
  const service = await serve(t, kit())
  const session = await service.connect()
  const call = request('tools/call', { name: 'slow', arguments: {}, _meta: { progressToken: 1 } })
  t.same((await session.post(call, JSON_ONLY)).messages.map(({ id }) => id), [1])
  for (const headers of [H, SSE_ONLY, { ...H, accept: '*/*' }]) {
    const answer = await session.post(call, headers)
    t.match(answer.headers['content-type'], /^text\/event-stream\b/)
    t.equal(answer.messages.length, 7)
    t.same(answer.reply.result.structuredContent, { done: 3 })
  }
})

t.test('HTT-03 a charset is no other media type, unless it is another charset', async (t) => {
  const service = await serve(t)
  for (const type of ['application/json; charset=utf-8', 'application/json;charset="UTF-8"', 'Application/JSON', 'application/json ; charset=utf-8', 'application/json; profile=x']) {
    t.equal((await service.post(initialize(), { 'content-type': type })).status, 200, type)
  }
  for (const type of ['application/json; charset=utf-16', 'application/json;charset=iso-8859-1', 'application/json; x=1; charset="utf-16le"']) {
    const answer = await service.post(initialize(), { 'content-type': type })
    t.equal(answer.status, 415, type)
    t.same(answer.json, WRONG_TYPE)
  }
})

t.test('HTT-04 only JSON is executed, and the parsers of the host stay where they are', async (t) => {
  let calls = 0
  const service = await serve(t, {}, {
    before: (app) => {
      app.addContentTypeParser('application/x-own', { parseAs: 'string' }, (_request, body, done) => { done(null, `own ${String(body)}`) })
      app.post('/host', async ({ body }) => ({ body }))
    }
  })
  service.layer.tool('run', {}, () => { calls++ })
  const session = await service.connect()
  const call = request('tools/call', { name: 'run', arguments: {} })
  const types = ['text/plain', 'text/plain;charset=utf-8', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x',
    'application/jsonx', 'application/json-patch+json', 'application/x-own', 'text/json', 'application/json, text/plain', '']
  for (const type of types) {
    const answer = await session.post(call, { 'content-type': type })
    t.equal(answer.status, 415, type)
    t.same(answer.json, WRONG_TYPE)
  }
  const none = await service.send({ headers: { accept: BOTH, ...session.headers }, body: call })
  t.equal(none.status, 415)
  t.same(none.json, WRONG_TYPE)
  const packed = await session.post(call, { 'content-encoding': 'gzip' })
  t.equal(packed.status, 415)
  for (const lines of [['text/plain', 'application/json'], ['application/json', 'text/plain']]) {
    const two = await session.post(call, { 'content-type': lines as any })
    t.ok(two.status === 400 || two.status === 415)
    t.match(two.json, { jsonrpc: '2.0', id: null, error: { code: -32600 } })
  }
  t.equal(calls, 0)
  t.equal((await session.post(call, { 'content-type': ['application/json', 'application/json'] as any })).status, 200)
  t.equal(calls, 1)

  const host = (type: string, body: string) => service.send({ path: '/host', headers: { 'content-type': type }, body })
  t.same((await host('text/plain', 'hi')).json, { body: 'hi' })
  t.same((await host('application/x-own', 'hi')).json, { body: 'own hi' })
  t.same((await host('application/json', '{"a":1}')).json, { body: { a: 1 } })
  t.equal((await host('application/json', '{')).json.code, 'FST_ERR_CTP_INVALID_JSON_BODY', 'its errors have their own shape')
})

t.test('HTT-05 with and without a trailing slash it is the same endpoint', async (t) => {
  for (const [prefix, path] of [['', '/mcp'], ['/api/v1', '/rpc']] as const) {
    const service = await serve(t, { prefix, path, auth: { tokens: ['secret'] } })
    const answers = await Promise.all([`${prefix}${path}`, `${prefix}${path}/`].map(async (path) => {
      const challenge = await service.send({ path, body: initialize() })
      const authorized = { ...H, authorization: 'Bearer secret' }
      const opened = await service.send({ path, headers: authorized, body: initialize() })
      const session = { ...authorized, 'mcp-session-id': opened.headers['mcp-session-id'] }
      const stream = await service.open({ method: 'GET', path, headers: { ...session, accept: 'text/event-stream' } })
      const put = await service.send({ method: 'PUT', path, headers: authorized })
      const ended = await service.send({ method: 'DELETE', path, headers: session })
      return {
        statuses: [challenge.status, opened.status, stream.status, put.status, ended.status],
        challenge: challenge.headers['www-authenticate'],
        location: [challenge, opened].map(({ headers }) => headers.location)
      }
    }))
    t.same(answers[0]!.statuses, [401, 200, 200, 405, 200])
    t.match(answers[0]!.challenge, /^Bearer /)
    t.same(answers[0]!.location, [undefined, undefined])
    t.same(answers[1], answers[0])
  }
})

t.test('HTT-07 a host that parses bodies in its own way does not get in ours', async (t) => {
  const hosts: ((app: FastifyInstance) => void)[] = [
    (app) => { app.removeAllContentTypeParsers() },
    (app) => {
      app.removeContentTypeParser('application/json')
      app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, body, done) => { done(null, body) })
    },
    (app) => { app.addContentTypeParser('*', (_request, _payload, done) => { done(null, 'anything') }) }
  ]
  for (const before of hosts) {
    const service = await serve(t, kit(), { before: (app) => { before(app) } })
    const session = await service.connect()
    t.equal((await session.post(LIST)).json.result.tools.length, 8)
    const broken = await session.post('{"jsonrpc":')
    t.equal(broken.status, 400)
    t.same(broken.json, PARSE_ERROR)
    t.equal((await session.post(LIST, { 'content-type': 'text/plain' })).status, 415)
  }
})

t.test('HTT-07 a hook of the host that has read the body leaves a parse error, not a request that hangs', async (t) => {
  const service = await serve(t, {}, {
    before: (app) => {
      app.addHook('preParsing', async (_request, _reply, payload) => { await text(payload) })
    }
  })
  const answer = await service.post(initialize())
  t.equal(answer.status, 400)
  t.same(answer.json, PARSE_ERROR)
  const probes = [
    await service.send({ method: 'GET', headers: { accept: 'text/event-stream' } }),
    await service.send({ method: 'DELETE', headers: { 'content-type': 'application/json', 'mcp-session-id': 'gone' } })
  ]
  t.same(probes.map(({ status }) => status), [405, 404])
})

t.test('HTT-08 every refusal on our paths is a JSON-RPC body', async (t) => {
  const service = await serve(t, { maxBodyBytes: 300 })
  const session = await service.connect()
  const refusals = [
    await session.post('{"jsonrpc":'),
    await session.post(''),
    await session.post('{"jsonrpc":"2.0"} x'),
    await session.post(Buffer.from([0x22, 0xff, 0x22])),
    await session.post('{"__proto__":{}}'),
    await session.post('"garbage"'),
    await session.post('7'),
    await session.post('null'),
    await session.post({ ...PING, padding: 'x'.repeat(300) }),
    await session.post(PING, { 'content-type': 'text/plain' }),
    await session.post(PING, { accept: 'text/html' }),
    await service.send({ method: 'PUT' }),
    await service.send({ method: 'GET', headers: { accept: 'text/event-stream' } })
  ]
  t.same(refusals.map(({ status, json }) => [status, json.error.code]), [
    ...Array.from({ length: 5 }, () => [400, -32700]),
    ...Array.from({ length: 3 }, () => [400, -32600]),
    [413, -32600], [415, -32600], [406, -32600], [405, -32600], [405, -32600]
  ])
  for (const { headers, json, text } of refusals) {
    t.match(headers['content-type'], /^application\/json\b/)
    t.equal(Number(headers['content-length']), Buffer.byteLength(text))
    t.same(Object.keys(json), ['jsonrpc', 'id', 'error'])
    t.same([json.jsonrpc, json.id], ['2.0', null])
  }
})

t.test('HTT-08 what other plugins refuse is in our shape on our paths, and keeps its status and headers', async (t) => {
  const service = await serve(t, {}, {
    before: (app) => {
      app.addHook('onRequest', async (request, reply) => {
        const status = Number(request.headers['x-refuse'])
        if (!(status >= 400)) return
        void reply.header('retry-after', '7')
        throw Object.assign(new Error(`internal detail ${status}`), { statusCode: status })
      })
    }
  })
  for (const [status, message] of [[429, 'internal detail 429'], [503, 'Service Unavailable'], [500, 'Internal error']] as const) {
    const answer = await service.post(initialize(), { 'x-refuse': String(status) })
    t.equal(answer.status, status)
    t.equal(answer.headers['retry-after'], '7')
    t.same(answer.json, refused(message, status < 500 ? -32600 : -32603))
  }
})

t.test('HTT-10 repeated lines collapse when they are equal, and are refused when they are not', async (t) => {
  const service = await serve(t, kit())
  const session = await service.connect()
  const lines = (name: string, ...values: string[]) => ({ [name]: values as any })
  t.equal((await session.post(LIST, lines('MCP-Protocol-Version', '2025-11-25', '2025-11-25'))).status, 200)
  t.equal((await service.post(LIST, lines('Mcp-Session-Id', session.id, session.id))).status, 200)
  const conflicts = [
    await session.post(LIST, lines('MCP-Protocol-Version', '2025-11-25', '2025-06-18')),
    await session.post(LIST, lines('MCP-Protocol-Version', '2025-11-25', '2026-07-28')),
    await service.post(LIST, lines('Mcp-Session-Id', session.id, 'other')),
    await session.get(lines('MCP-Protocol-Version', '2025-11-25', '2025-06-18')),
    await session.delete(lines('MCP-Protocol-Version', '2025-11-25', '2025-06-18'))
  ]
  for (const { status } of conflicts) t.equal(status, 400)
  t.match((conflicts[0] as any).json, { jsonrpc: '2.0', id: null, error: { code: -32600, message: /^Bad Request: mcp-protocol-version header/ } })
  t.equal((await session.post(LIST)).status, 200, 'the session was not harmed')

  const spelled = (first: string, second: string) => raw(service.port, [
    'POST /mcp HTTP/1.1', 'Host: localhost', 'Content-Type: application/json', `Accept: ${BOTH}`, 'Connection: close', `Mcp-Session-Id: ${session.id}`,
    `MCP-Protocol-Version: ${first}`, `mcp-protocol-version: ${second}`, `Content-Length: ${JSON.stringify(LIST).length}`, '', JSON.stringify(LIST)
  ].join('\r\n'))
  t.match(await spelled('2025-11-25', '2025-11-25'), /^HTTP\/1\.1 200 /, 'both spellings, as one client sends them')
  t.match(await spelled('2025-11-25', '2026-07-28'), /^HTTP\/1\.1 400 /)

  const call = modern('tools/call', { name: 'echo', arguments: { text: 'a' } }, 5)
  const names: Record<string, string> = modernHeaders('tools/call', 'echo')
  for (const name of Object.keys(names)) {
    t.equal((await service.post(call, { ...names, ...lines(name, names[name]!, names[name]!) })).status, 200, name)
    const answer = await service.post(call, { ...names, ...lines(name, names[name]!, 'other') })
    t.equal(answer.status, 400, name)
    t.match(answer.json, { jsonrpc: '2.0', id: 5, error: { code: -32020 } })
  }
})

t.test('HTT-11 an initialize negotiates from its body, whatever version header it carries', async (t) => {
  const service = await serve(t)
  const asks: [string, string, string][] = [
    ['2099-01-01', '2099-01-01', '2025-11-25'],
    ['2025-06-18', '2025-11-25', '2025-06-18'],
    ['2024-11-05', '2026-07-28', '2024-11-05'],
    ['2025-11-25', 'nonsense', '2025-11-25'],
    ['2025-11-25', '', '2025-11-25']
  ]
  for (const [body, header, agreed] of asks) {
    const answer = await service.post(initialize(body), { 'MCP-Protocol-Version': header })
    t.equal(answer.status, 200, header)
    t.equal(answer.json.result.protocolVersion, agreed)
    const session = new Connection(service, answer.headers['mcp-session-id'] as string)
    t.equal((await session.post(INITIALIZED, { 'MCP-Protocol-Version': agreed })).status, 202)
  }
})

t.test('HTT-12 after initialize the header may be absent, and has to agree when it is there', async (t) => {
  const service = await serve(t, kit())
  const session = await service.connect()
  t.equal((await session.post(LIST)).status, 200)
  t.equal((await session.post(LIST, { 'MCP-Protocol-Version': '2025-11-25' })).status, 200)
  const wrong: [string, string][] = [
    ['1999-01-01', 'Unsupported MCP-Protocol-Version: 1999-01-01'],
    ['', 'Unsupported MCP-Protocol-Version: '],
    ['2025-06-18', 'MCP-Protocol-Version 2025-06-18 does not match the negotiated version 2025-11-25']
  ]
  for (const [version, message] of wrong) {
    for (const method of ['POST', 'GET', 'DELETE']) {
      const answer = await service.send({
        method, headers: { ...H, accept: BOTH, ...session.headers, 'MCP-Protocol-Version': version }, body: method === 'POST' ? LIST : undefined
      })
      t.equal(answer.status, 400, `${method} ${version}`)
      t.same(answer.json, refused(message))
    }
  }
  t.equal((await session.post(LIST)).status, 200, 'a refused DELETE deletes nothing')

  const stateless = await serve(t, { stateless: true })
  stateless.layer.tool('version', {}, (_args, ctx) => ctx.protocolVersion)
  const call = request('tools/call', { name: 'version', arguments: {} })
  for (const [headers, version] of [[{}, '2025-03-26'], [{ 'MCP-Protocol-Version': '2025-06-18' }, '2025-06-18']] as const) {
    t.equal((await stateless.post(call, headers)).reply.result.content[0].text, version)
  }
  const refusal = await stateless.post(call, { 'MCP-Protocol-Version': '1999-01-01' })
  t.equal(refusal.status, 400)
  t.same(refusal.json, refused('Unsupported MCP-Protocol-Version: 1999-01-01'))
})

t.test('HTT-14 probes get a quick answer, and never a stream', async (t) => {
  const service = await serve(t, { auth: { tokens: ['secret'] } }, {
    after: (app) => { app.setNotFoundHandler(async (_request, reply) => reply.code(404).send({ mine: true })) }
  })
  const authorized = { authorization: 'Bearer secret' }
  for (const accept of ['*/*', 'text/event-stream', BOTH]) {
    const probe = await service.send({ method: 'GET', headers: { accept, ...authorized } })
    t.equal(probe.status, 405, accept)
    t.same(probe.json, refused('Method Not Allowed'))
  }
  const health = await service.send({ method: 'GET', path: '/healthz', headers: {} })
  t.equal(health.status, 200)
  t.same(health.json, { status: 'ok' })
  t.equal((await service.send({ method: 'GET', path: '/healthz', headers: { host: 'evil.example' } })).status, 421, 'the guard is before everything')
  const icon = await service.send({ method: 'GET', path: '/favicon.ico', headers: {} })
  t.equal(icon.status, 404)
  t.same(icon.json, { mine: true })
  const options = await service.send({ method: 'OPTIONS', headers: { origin: 'http://localhost:3000', 'access-control-request-method': 'POST' } })
  t.equal(options.status, 405, 'no CORS, no preflight')
  t.equal(options.headers.allow, 'GET, POST, DELETE')
  t.equal(options.headers['access-control-allow-origin'], undefined)
  const off = await serve(t, { healthPath: false })
  t.equal((await off.send({ method: 'GET', path: '/healthz', headers: {} })).status, 404)
})

t.test('HTT-15 discovery probes get a JSON 404, though the host answers everything with a page', async (t) => {
  const page = (app: FastifyInstance): void => {
    app.setNotFoundHandler(async (_request, reply) => reply.code(200).type('text/html').send('<!doctype html>'))
  }
  const wild = (app: FastifyInstance): void => {
    app.get('/*', async (_request, reply) => reply.type('text/html').send('<!doctype html>'))
  }
  const paths = ['/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp', '/.well-known/oauth-authorization-server',
    '/.well-known/oauth-authorization-server/mcp', '/.well-known/openid-configuration', '/.well-known/openid-configuration/mcp',
    '/mcp/.well-known/oauth-protected-resource', '/mcp/.well-known/oauth-authorization-server', '/mcp/.well-known/openid-configuration']
  for (const host of [page, wild]) {
    const service = await serve(t, { auth: { tokens: ['secret'] } }, { after: host })
    for (const path of paths) {
      const answer = await service.send({ method: 'GET', path, headers: { accept: '*/*' } })
      t.equal(answer.status, 404, path)
      t.match(answer.headers['content-type'], /^application\/json\b/)
      t.equal(answer.headers['www-authenticate'], undefined)
      t.same(answer.json, refused('Not Found'))
    }
    t.equal((await service.send({ method: 'GET', path: '/.well-known/security.txt', headers: {} })).status, 200, 'other documents are the host\'s')
    t.equal((await service.send({ method: 'GET', path: '/anything', headers: {} })).text, '<!doctype html>')
  }
})

t.test('HTT-15 a document that the host serves itself stays what it is', async (t) => {
  const app = fastify()
  app.get('/.well-known/oauth-authorization-server', async () => ({ issuer: 'mine' }))
  await app.register(cloudgMcp)
  await app.listen({ host: '127.0.0.1', port: 0 })
  const client = new Wire((app.server.address() as { port: number }).port)
  t.teardown(() => { client.agent.destroy(); return app.close() })
  t.same((await client.send({ method: 'GET', path: '/.well-known/oauth-authorization-server', headers: {} })).json, { issuer: 'mine' })
  t.equal((await client.send({ method: 'GET', path: '/.well-known/oauth-protected-resource', headers: {} })).status, 404)
})

t.test('HTT-16 an odd forwarded address harms nobody and counts for nothing', async (t) => {
  const addresses = ['160.79.106.36:38914', 'unknown', '[::1]:5', ','.repeat(2048), '', '::1, 10.0.0.1', 'a"b\u00e9'.normalize()]
  for (const trustProxy of ['loopback', true, false] as const) {
    const service = await serve(t, { maxSessionsPerPrincipal: 2 }, { fastify: { trustProxy } })
    service.layer.tool('who', {}, (_args, ctx) => ctx.principal.id)
    for (const address of addresses) {
      const headers = { 'x-forwarded-for': Buffer.from(address).toString('latin1') }
      const session = await service.connect(headers)
      const answer = await session.post(request('tools/call', { name: 'who', arguments: {} }))
      t.equal(answer.reply.result.content[0].text, 'anonymous', address.slice(0, 40))
    }
    const sessions = [await service.connect({ 'x-forwarded-for': '10.0.0.1' }), await service.connect({ 'x-forwarded-for': '10.0.0.2' }), await service.connect()]
    t.same(await Promise.all(sessions.map(async (session) => (await session.post(PING)).status)), [404, 200, 200], 'caps are those of the principal')
  }
})
