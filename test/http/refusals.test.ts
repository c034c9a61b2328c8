// Refusals: in which order they come, that all of them are JSON-RPC, and that none tells more than it should.

import Fastify from 'fastify'
import t from 'tap'
import cloudgMcp from '../../plugin.js'
import { createKit, modern, modernHeaders, request } from '../kit.js'
import type { Headers } from './client.js'
import { captureLog, handshake, listen, post, postModern, refused, send, serve } from './client.js'

t.test('the first check that fails answers', async (t) => {
  const app = await serve(t, { auth: { tokens: ['s3cret'] }, maxBodyBytes: 2000 })
  const session = await handshake(app, '2025-11-25', { headers: { authorization: 'Bearer s3cret' } })
  // Everything is wrong with this one. Each step mends what was refused, and the next check speaks.
  const wrong: Headers = { host: 'evil.example', origin: 'https://evil.example', 'content-type': 'text/plain', 'content-encoding': 'gzip', accept: 'text/html', 'mcp-session-id': 'gone', 'mcp-protocol-version': '2099-01-01' }
  let headers = wrong
  let body = `{${'x'.repeat(3000)}`
  const mend = (more: Headers): void => { headers = { ...headers, ...more } }
  const refuses = async (status: number, message: string, code = -32600): Promise<void> => refused(t, await send(app.url, { headers, body }), status, { code, message })
  await refuses(421, 'Invalid Host header')
  mend({ host: 'localhost' })
  await refuses(403, 'Forbidden: invalid Origin')
  mend({ origin: 'http://localhost' })
  await refuses(401, 'Unauthorized')
  mend({ authorization: 'Bearer s3cret' })
  refused(t, await send(app.url, { method: 'PUT', headers, body }), 405, 'Method Not Allowed')
  await refuses(415, 'Content-Type must be application/json')
  mend({ 'content-type': 'application/json' })
  await refuses(415, 'Content-Encoding is not supported')
  mend({ 'content-encoding': 'identity' })
  await refuses(406, 'Not Acceptable: accept application/json or text/event-stream')
  mend({ accept: '*/*' })
  await refuses(413, 'Request body too large')
  body = '{'
  await refuses(400, 'Parse error', -32700)
  body = '"text"'
  await refuses(400, 'Invalid Request')
  body = JSON.stringify(request('ping', undefined, 5))
  await refuses(400, 'Unsupported MCP-Protocol-Version: 2099-01-01')
  mend({ 'mcp-protocol-version': '2025-06-18' })
  await refuses(404, 'Session not found')
  mend({ 'mcp-session-id': session.id })
  await refuses(400, 'MCP-Protocol-Version 2025-06-18 does not match the negotiated version 2025-11-25')
  mend({ 'mcp-protocol-version': '2025-11-25' })
  t.equal((await send(app.url, { headers, body })).text, '{"jsonrpc":"2.0","id":5,"result":{}}')
})

t.test('an error that a hook of the host makes keeps its status and its headers, and is JSON-RPC', async (t) => {
  const app = Fastify()
  const errors: Record<string, () => Error> = {
    busy: () => Object.assign(new Error('Slow down'), { statusCode: 429 }),
    under: () => Object.assign(new Error('database secret'), { statusCode: 503 }),
    crash: () => new Error('secret'),
    odd: () => Object.assign(new Error('secret'), { statusCode: 200 }),
    teapot: () => Object.assign(new Error('no coffee'), { statusCode: 418 })
  }
  app.addHook('onRequest', async (request, reply) => {
    const error = errors[String(request.headers['x-error'])]
    if (error === undefined) return
    void reply.header('retry-after', '7')
    throw error()
  })
  await app.register(cloudgMcp)
  const url = `http://127.0.0.1:${await listen(t, app)}/mcp`
  const fails = (error: string) => post({ url }, request('ping'), { 'x-error': error })
  const retry = { 'retry-after': '7' }
  refused(t, await fails('busy'), 429, 'Slow down', retry)
  refused(t, await fails('teapot'), 418, 'no coffee', retry)
  refused(t, await fails('under'), 503, { code: -32603, message: 'Service Unavailable' }, retry)
  refused(t, await fails('crash'), 500, { code: -32603, message: 'Internal error' }, retry)
  const odd = await fails('odd')
  t.ok(odd.status >= 500, 'an error is never a success')
  t.equal(odd.text, '{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"Internal error"}}')
})

t.test('RX-01 a path that leaves its place is no resource, in either era', async (t) => {
  const { layer } = createKit()
  const read: string[] = []
  layer.resourceTemplate('file://docs/{name}', { mimeType: 'text/plain' }, ({ name }) => {
    read.push(name)
    return name
  })
  layer.resourceTemplate('file://{+path}', { mimeType: 'text/plain' }, ({ path }) => {
    read.push(path)
    return path
  })
  const app = await serve(t, { layer })
  const session = await handshake(app)
  const values = ['..%2F..%2Fetc%2Fpasswd', '..', '%2E%2E', '..%5C..%5Csecret', '%2Fetc%2Fpasswd', '%5C%5Cserver%5Cshare', 'C%3A%5Cwindows', 'key%00.txt', 'a%2F..%2F..%2Fb', '%2e%2e%2f']
  const uris = [...values.map((value) => `file://docs/${value}`), 'file:///etc/passwd', 'file://../etc/passwd', 'file:////etc/passwd']
  for (const uri of uris) {
    const modernly = await postModern(app, 'resources/read', { uri })
    t.equal(modernly.status, 200)
    t.same(modernly.messages, [{ jsonrpc: '2.0', id: 1, error: { code: -32602, message: `Unknown resource: ${uri}`, data: { uri } } }])
    const old = await session.post(request('resources/read', { uri }))
    t.equal(old.status, 200)
    t.same(old.messages, [{ jsonrpc: '2.0', id: 1, error: { code: -32002, message: `Unknown resource: ${uri}`, data: { uri } } }])
  }
  t.same(read, [], 'and no other template is tried')
  for (const name of ['guide.md', 'a..b', '...', 'a%20b']) {
    const answer = await postModern(app, 'resources/read', { uri: `file://docs/${name}` })
    t.equal(answer.messages[0].result.contents[0].text, decodeURIComponent(name))
  }
})

t.test('RX-04 unless its author says that the value names no file', async (t) => {
  const { layer } = createKit()
  layer.resourceTemplate('ref://{value}', { mimeType: 'text/plain', anyValue: ['value'] }, ({ value }) => value)
  const app = await serve(t, { layer })
  for (const value of ['../../etc/passwd', '..', '/etc', 'C:\\x']) {
    const answer = await postModern(app, 'resources/read', { uri: `ref://${encodeURIComponent(value)}` })
    t.equal(answer.messages[0].result.contents[0].text, value)
  }
})

t.test('what a handler throws stays in the log', async (t) => {
  const { layer } = createKit()
  const secret = 'postgres://user:hunter2@10.0.0.7/db'
  layer.resource('test://crash', {}, () => { throw new Error(secret) })
  layer.prompt('crash', {}, () => { throw new TypeError(secret) })
  layer.tool('crash', {}, () => { throw new Error(secret) })
  layer.tool('odd', {}, () => { throw secret })
  layer.prompt('complete', { arguments: { a: { complete: () => { throw new Error(secret) } } } }, () => 'x')
  layer.tool('output', { output: { n: (await import('zod')).z.int() } }, () => ({ n: secret }) as any)
  const log = captureLog()
  const app = await serve(t, { layer }, { loggerInstance: log.logger })
  const session = await handshake(app)
  const asks: [string, object][] = [
    ['resources/read', { uri: 'test://crash' }], ['prompts/get', { name: 'crash' }], ['tools/call', { name: 'crash' }], ['tools/call', { name: 'odd' }],
    ['tools/call', { name: 'output' }], ['completion/complete', { ref: { type: 'ref/prompt', name: 'complete' }, argument: { name: 'a', value: '' } }]
  ]
  for (const [method, params] of asks) {
    for (const answer of [await postModern(app, method, params), await session.post(request(method, params))]) {
      t.equal(answer.status, 200)
      t.notMatch(answer.text, 'hunter2')
      t.notMatch(answer.text, 'at ')
    }
  }
  t.same((await session.post(request('tools/call', { name: 'crash' }))).messages[0].result,
    { content: [{ type: 'text', text: 'Error executing tool crash' }], isError: true, _meta: { 'cloudg/error_code': 'handler_error' } })
  t.same((await session.post(request('resources/read', { uri: 'test://crash' }))).messages[0].error, { code: -32603, message: 'Internal error' })
  t.ok(log.of('error').length >= 12, 'which has all of it')

  const open = await serve(t, { layer, exposeErrors: true })
  t.equal((await postModern(open, 'tools/call', { name: 'crash' })).messages[0].result.content[0].text, `Error executing tool crash: Error: ${secret}`)
  t.equal((await postModern(open, 'prompts/get', { name: 'crash' })).messages[0].error.message, `Internal error: TypeError: ${secret}`)
})

t.test('names that every object has are unknown like any other', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  for (const name of ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf']) {
    t.same((await session.post(request('tools/call', { name }))).messages[0].error, { code: -32602, message: `Unknown tool: ${name}`, data: { name } })
    t.same((await session.post(request('prompts/get', { name }))).messages[0].error, { code: -32602, message: `Unknown prompt: ${name}` })
    t.same((await session.post(request('resources/read', { uri: name }))).messages[0].error, { code: -32002, message: `Unknown resource: ${name}`, data: { uri: name } })
    for (const ref of [{ type: 'ref/prompt', name }, { type: 'ref/prompt', name: 'greet' }, { type: 'ref/resource', uri: name }, { type: 'ref/resource', uri: 'test://items/{item_id}' }]) {
      t.same((await session.post(request('completion/complete', { ref, argument: { name, value: '' } }))).json.result, { completion: { values: [], total: 0, hasMore: false } })
    }
    t.same((await post(app, modern(name), modernHeaders(name))).json.error, { code: -32601, message: 'Method not found', data: name })
  }
})
