// What a body may be, what a client can read, and the verbs and paths of the endpoint: the checks between the guard and the
// message itself. RFC 9110 8.3, 12.5.1, 15.5.6, 15.5.14.

import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import Fastify from 'fastify'
import t from 'tap'
import { initialize, INITIALIZED, modern, modernHeaders, request } from '../kit.js'
import { BOTH, handshake, listen, parseRaw, post, postModern, raw, rawAnswer, rawRequest, refused, send, serve, socketTo, SSE_ONLY } from './client.js'
import cloudgMcp from '../../plugin.js'

const PING = request('ping', undefined, 5)
const PONG = '{"jsonrpc":"2.0","id":5,"result":{}}'
const WRONG_TYPE = 'Content-Type must be application/json'

t.test('HT-01 HTT-04 another content type is 415 and never reaches a parser', async (t) => {
  const app = await serve(t)
  const types = ['text/plain', 'text/plain; application/json', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/jsonx', 'application/json-patch+json', 'application/json, text/plain', 'json', '', undefined]
  for (const type of types) refused(t, await post(app, '{not even json', { 'content-type': type }), 415, WRONG_TYPE)
  for (const charset of ['utf-16', 'latin1', '"utf-16"']) refused(t, await post(app, PING, { 'content-type': `application/json; charset=${charset}` }), 415, WRONG_TYPE)
  refused(t, await rawAnswer(t, app, rawRequest(app, ['Content-Type: text/plain', 'Content-Type: application/json'], JSON.stringify(PING))), 400,
    'Bad Request: content-type header appears more than once', { connection: 'close' })
})

t.test('HT-02 HTT-03 JSON with a charset that is JSON\'s', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  for (const type of ['application/json', 'application/json; charset=utf-8', 'application/json;charset="UTF-8"', 'Application/JSON ; Charset=UTF-8', 'application/json; profile=x', 'application/json;', 'application/json; charset=us-ascii']) {
    const answer = await session.post(PING, { 'content-type': type })
    t.equal(answer.status, 200, type)
    t.equal(answer.text, PONG)
  }
  const twice = await rawAnswer(t, app, rawRequest(app, ['Content-Type: application/json', 'content-type: application/json', `Mcp-Session-Id: ${session.id}`], JSON.stringify(PING)))
  t.equal(twice.text, PONG, 'two equal lines are one')
})

t.test('HT-03 HTT-01 a client that can read neither JSON nor events is told so', async (t) => {
  const app = await serve(t)
  for (const accept of ['text/html', 'text/plain, image/*', 'application/xml', 'text/*;q=0', 'application/json;q=0', 'nonsense', ';;;']) {
    refused(t, await post(app, '{not even json', { accept }), 406, 'Not Acceptable: accept application/json or text/event-stream')
  }
})

t.test('HT-04 the way of answering follows Accept', async (t) => {
  const app = await serve(t)
  const call = request('tools/call', { name: 'echo', arguments: { text: 'x' } }, 2)
  const json = ['application/json', 'application/*', 'text/html, application/json;q=0.1', 'application/json, text/event-stream;q=0', 'application/json; charset=utf-8', 'APPLICATION/JSON']
  const events = [undefined, '', ' ', '*/*', 'text/*', 'text/event-stream', BOTH, 'text/event-stream, application/json', 'application/json;q=0.5;x=y, text/event-stream;version=1', 'text/html, */*;q=0.1']
  const session = await handshake(app)
  for (const accept of json) {
    const answer = await session.post(call, { accept })
    t.equal(answer.status, 200, accept)
    t.equal(answer.headers['content-type'], 'application/json')
    t.same(answer.json.result.structuredContent, { text: 'x' })
  }
  for (const accept of events) {
    const answer = await session.post(call, { accept })
    t.equal(answer.status, 200, String(accept))
    t.equal(answer.headers['content-type'], 'text/event-stream')
    t.same(answer.messages.map(({ id, result }) => [id, result.structuredContent]), [[2, { text: 'x' }]])
  }
  for (const accept of [undefined, '*/*', BOTH]) t.equal((await session.post(PING, { accept })).headers['content-type'], 'application/json', 'there is nothing to stream in a ping')
  const only = await session.post(PING, { accept: 'text/event-stream' })
  t.equal(only.headers['content-type'], 'text/event-stream')
  t.equal(only.text, `event: message\ndata: ${PONG}\n\n`)
})

t.test('an initialize is answered to every kind of reader, with its session', async (t) => {
  const app = await serve(t)
  for (const accept of [undefined, '*/*', 'application/json', 'text/event-stream', BOTH]) {
    const answer = await post(app, initialize('2025-06-18'), { accept })
    t.equal(answer.status, 200)
    t.match(answer.headers['mcp-session-id'], /^[0-9a-f]{32}$/)
    t.equal(answer.headers['content-type'], accept === 'text/event-stream' ? accept : 'application/json')
    t.same(answer.messages, [{
      jsonrpc: '2.0',
      id: 'init',
      result: {
        protocolVersion: '2025-06-18',
        capabilities: { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: { listChanged: true }, logging: {}, completions: {} },
        serverInfo: { name: 'kit', version: '1.2.3', title: 'Kit' },
        instructions: 'A kit for tests'
      }
    }])
  }
})

t.test('responseMode says what a client that reads both gets', async (t) => {
  const call = (name: string, steps = 0) => request('tools/call', { name, arguments: name === 'slow' ? { steps } : { text: 'x' }, _meta: { progressToken: 't' } }, 2)
  const expected = {
    sse: { silent: 'text/event-stream', telling: 'text/event-stream' },
    auto: { silent: 'application/json', telling: 'text/event-stream' },
    json: { silent: 'application/json', telling: 'application/json' }
  } as const
  for (const mode of ['sse', 'auto', 'json'] as const) {
    const app = await serve(t, { responseMode: mode })
    const session = await handshake(app)
    t.equal((await session.post(call('echo'))).headers['content-type'], expected[mode].silent, mode)
    const telling = await session.post(call('slow', 2))
    t.equal(telling.headers['content-type'], expected[mode].telling, mode)
    t.equal(telling.messages.filter(({ method }) => method === 'notifications/progress').length, mode === 'json' ? 0 : 2)
    t.same(telling.messages.at(-1).result.structuredContent, { done: 2 })
    t.equal((await session.post(call('echo'), { accept: 'application/json' })).headers['content-type'], 'application/json')
    t.equal((await session.post(call('echo'), { accept: 'text/event-stream' })).headers['content-type'], mode === 'json' ? 'application/json' : 'text/event-stream')
  }
})

t.test('HT-05 HTT-08 what is no JSON is a parse error', async (t) => {
  const app = await serve(t)
  for (const body of ['{not json', '', ' ', '{"jsonrpc":', 'undefined', '{"a":1}{"b":2}', "{'a':1}", '\ufeff', '[1,]', 'NaN']) {
    refused(t, await post(app, body), 400, { code: -32700, message: 'Parse error' })
  }
})

t.test('JSON that is neither an object nor an array', async (t) => {
  const app = await serve(t)
  for (const body of ['"garbage"', '5', 'null', 'true']) refused(t, await post(app, body), 400, 'Invalid Request')
})

t.test('HT-07 a body over the limit is refused before it is read', async (t) => {
  const app = await serve(t, { maxBodyBytes: 2048 })
  const padded = (bytes: number): string => JSON.stringify({ ...PING, params: { pad: '' } }).replace('""', `"${'x'.repeat(bytes - JSON.stringify({ ...PING, params: { pad: '' } }).length)}"`)
  refused(t, await post(app, padded(5000)), 413, 'Request body too large', { connection: 'close' })
  refused(t, await post(app, padded(2049)), 413, 'Request body too large', { connection: 'close' })
  const session = await handshake(app)
  t.equal((await session.post(padded(2048))).text, PONG)

  const socket = await socketTo(t, app)
  socket.write(rawRequest(app, ['Content-Type: application/json', 'Content-Length: 99999999', 'Connection: keep-alive']))
  let text = ''
  for await (const chunk of socket) text += String(chunk)
  t.match(text, /^HTTP\/1\.1 413 [^]*"Request body too large"/, 'the length alone decides')
})

t.test('HT-09 so is a chunked body that grows over it', async (t) => {
  const app = await serve(t, { maxBodyBytes: 2048 })
  const chunk = 'x'.repeat(1000)
  const text = await raw(t, app, rawRequest(app, ['Content-Type: application/json', 'Transfer-Encoding: chunked'], `3e8\r\n${chunk}\r\n`.repeat(4)))
  t.match(text, /^HTTP\/1\.1 413 Payload Too Large\r\n/)
  t.match(text, '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Request body too large"}}')
  const session = await handshake(app)
  const parts = JSON.stringify(PING).split('').map((char) => `1\r\n${char}\r\n`).join('')
  const good = await raw(t, app, rawRequest(app, ['Content-Type: application/json', `Mcp-Session-Id: ${session.id}`, 'Transfer-Encoding: chunked'], `${parts}0\r\nX-Trailer: 1\r\n\r\n`))
  t.match(good, PONG)
})

t.test('who is still sending hears that it is too much', async (t) => {
  const app = await serve(t, { maxBodyBytes: 2048 })
  const piece = Buffer.alloc(64 * 1024, ' ')
  const pieces = 64
  for (const length of [`Content-Length: ${pieces * piece.length}`, 'Transfer-Encoding: chunked']) {
    for (let round = 0; round < 5; round++) {
      const socket = await socketTo(t, app)
      const answer = text(socket)
      socket.write(rawRequest(app, ['Content-Type: application/json', length, 'Connection: keep-alive']))
      // It listens once everything is sent, as many clients do.
      socket.pause()
      for (let sent = 0; sent < pieces; sent++) {
        const chunk = length.startsWith('T') ? Buffer.concat([Buffer.from('10000\r\n'), piece, Buffer.from('\r\n')]) : piece
        await new Promise((resolve) => { socket.write(chunk, resolve) })
      }
      if (length.startsWith('T')) socket.write('0\r\n\r\n')
      socket.resume()
      t.match(parseRaw(await answer), { status: 413, headers: { connection: 'close' }, body: /"Request body too large"/ })
    }
  }
  // Nor does one that never stops keep the connection.
  const socket = await socketTo(t, app)
  const closed = once(socket, 'close')
  socket.on('error', () => {})
  socket.write(rawRequest(app, ['Content-Type: application/json', 'Content-Length: 99999999999', 'Connection: keep-alive']))
  const more = (): void => { if (!socket.destroyed) socket.write(piece, () => setImmediate(more)) }
  more()
  socket.resume()
  await closed
})

t.test('the default limit is 4 MiB', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const text = 'x'.repeat(4 * 1024 * 1024 - 200)
  const echo = request('tools/call', { name: 'echo', arguments: { text: '' } }, 1)
  const body = JSON.stringify(echo).replace('"text":""', `"text":"${text}"`)
  t.ok(body.length < 4 * 1024 * 1024)
  t.equal((await session.post(body, { accept: 'application/json' })).json.result.structuredContent.text.length, text.length)
  refused(t, await session.post(body + ' '.repeat(200)), 413, 'Request body too large', { connection: 'close' })
})

t.test('HT-10 SES-18 other verbs are 405 and say which there are', async (t) => {
  const app = await serve(t)
  for (const method of ['PUT', 'PATCH', 'TRACE', 'OPTIONS']) {
    refused(t, await send(app.url, { method }), 405, 'Method Not Allowed', { allow: 'GET, POST, DELETE' })
    refused(t, await send(`${app.url}/`, { method }), 405, 'Method Not Allowed', { allow: 'GET, POST, DELETE' })
  }
  refused(t, await send(app.url, { method: 'PUT', headers: { 'content-type': 'text/plain' }, body: 'x' }), 405, 'Method Not Allowed')
})

t.test('HT-11 SSE-19 HEAD is 405 and opens nothing', async (t) => {
  const app = await serve(t)
  const { headers } = await handshake(app)
  for (const accept of [undefined, SSE_ONLY.accept]) {
    const answer = await send(app.url, { method: 'HEAD', headers: { ...headers, ...(accept !== undefined && { accept }) } })
    t.equal(answer.status, 405)
    t.equal(answer.headers.allow, 'GET, POST, DELETE')
    t.equal(answer.text, '')
  }
})

t.test('HT-12 other paths are the host\'s', async (t) => {
  const app = await serve(t)
  for (const path of ['/elsewhere', '/', '/mcpx', '/mcp/x', '/sse', '/messages/']) {
    const answer = await send(app.origin + path, { method: 'GET' })
    t.equal(answer.status, 404)
    t.same(answer.json, { message: `Route GET:${path} not found`, error: 'Not Found', statusCode: 404 }, 'the answer is Fastify\'s own')
  }
})

t.test('HT-13 HTT-14 health is told to everybody', async (t) => {
  const app = await serve(t, { auth: { tokens: ['s3cret'] } })
  for (const headers of [{}, { authorization: 'Bearer wrong' }, { accept: 'text/html' }]) {
    const answer = await send(`${app.origin}/healthz`, { method: 'GET', headers })
    t.equal(answer.status, 200)
    t.equal(answer.text, '{"status":"ok"}')
    t.equal(answer.headers['content-type'], 'application/json')
    t.equal(answer.headers['content-length'], '15')
  }
  t.equal((await send(`${app.origin}/healthz`, { method: 'GET', headers: { host: 'evil.example' } })).status, 421, 'of this host')
  const elsewhere = await serve(t, { healthPath: '/internal/up' })
  t.equal((await send(`${elsewhere.origin}/internal/up`, { method: 'GET' })).text, '{"status":"ok"}')
  t.equal((await send(`${elsewhere.origin}/healthz`, { method: 'GET' })).status, 404)
  const off = await serve(t, { healthPath: false })
  t.equal((await send(`${off.origin}/healthz`, { method: 'GET' })).status, 404)
})

t.test('HT-16 how many connections there may be is up to the host: Node drops those beyond', async (t) => {
  const app = await serve(t)
  app.app.server.maxConnections = 1
  const first = await socketTo(t, app)
  const dropped = new Promise((resolve) => { app.app.server.once('drop', resolve) })
  t.equal(await raw(t, app, rawRequest(app, [], '', 'GET /healthz HTTP/1.1')), '', 'without an answer')
  await dropped
  const closed = new Promise((resolve) => { first.once('close', resolve) })
  first.end()
  await closed
  t.match(await raw(t, app, rawRequest(app, [], '', 'GET /healthz HTTP/1.1')), /^HTTP\/1\.1 200 /)
})

t.test('HT-20 HTT-05 the path is served with and without a trailing slash, and without a redirect', async (t) => {
  const app = await serve(t, { auth: { tokens: ['s3cret::alice'] } })
  const alice = { authorization: 'Bearer s3cret' }
  const { headers } = await handshake({ url: `${app.url}/` }, '2025-11-25', { headers: alice })
  for (const url of [app.url, `${app.url}/`, `${app.url}?x=1`, `${app.url}/?x=1`]) {
    t.equal((await post({ url }, PING, headers)).text, PONG, url)
    refused(t, await post({ url }, PING), 401, 'Unauthorized', { 'www-authenticate': 'Bearer realm="cloudg-mcp"' })
  }
})

t.test('HT-21 how large a head may be is up to the host as well', async (t) => {
  const big = (bytes: number) => rawRequest({ port: 1 }, [`X-Padding: ${'x'.repeat(bytes)}`, 'Host: localhost'], '', 'GET /healthz HTTP/1.1')
  const app = await serve(t)
  t.match(await raw(t, app, big(17 * 1024)), /^HTTP\/1\.1 431 /, 'Node\'s own limit is 16 KiB')
  const wide = Fastify({ http: { maxHeaderSize: 64 * 1024 } })
  await wide.register(cloudgMcp)
  const port = await listen(t, wide)
  t.match(await raw(t, { port }, big(60 * 1024)), /^HTTP\/1\.1 200 /)
  t.match(await raw(t, { port }, big(70 * 1024)), /^HTTP\/1\.1 431 /)
})

t.test('a compressed body is refused as what it is', async (t) => {
  const app = await serve(t)
  const { gzipSync } = await import('node:zlib')
  for (const encoding of ['gzip', 'br', 'deflate', 'gzip, identity']) {
    refused(t, await send(app.url, { headers: { 'content-type': 'application/json', 'content-encoding': encoding }, body: gzipSync(JSON.stringify(PING)) }), 415, 'Content-Encoding is not supported', { 'accept-encoding': 'identity' })
  }
  const session = await handshake(app)
  t.equal((await session.post(PING, { 'content-encoding': 'identity' })).text, PONG)
})

t.test('what wants no answer gets 202 and no body', async (t) => {
  const app = await serve(t)
  const session = await handshake(app, '2025-03-26', { confirm: false })
  const notes: unknown[] = [
    INITIALIZED,
    { jsonrpc: '2.0', method: 'notifications/unheard-of', params: null },
    { jsonrpc: '2.0', method: 'notifications/progress', params: [1] },
    { jsonrpc: '2.0', id: 9, result: {} },
    { jsonrpc: '2.0', id: 'x', error: { code: 1, message: 'no' } },
    [INITIALIZED, { jsonrpc: '2.0', id: 9, result: {} }]
  ]
  for (const note of notes) {
    for (const accept of [BOTH, 'application/json', 'text/event-stream']) {
      const answer = await session.post(note, { accept })
      t.equal(answer.status, 202)
      t.equal(answer.text, '')
      t.notOk('content-type' in answer.headers)
    }
  }
  t.equal((await postModern(app, 'tools/list')).status, 200)
  t.equal((await post(app, { jsonrpc: '2.0', method: 'x' }, modernHeaders('x'))).status, 202)
  t.equal((await post(app, modern('tools/list'), { ...modernHeaders('tools/list'), accept: undefined })).status, 200)
})
