// `stateless: true`: the handshake era without sessions, so that any process answers any request.

import t from 'tap'
import { INITIALIZED, initialize, modern, modernHeaders, request } from '../kit.js'
import { BOTH, listenStream, post, refused, send, serve, SSE_ONLY } from './client.js'

const PING = request('ping', undefined, 5)

t.test('SL-01 a call needs no session, only perhaps a version', async (t) => {
  const app = await serve(t, { stateless: true, responseMode: 'json' })
  const slow = request('tools/call', { name: 'slow', arguments: { steps: 1 } }, 3)
  const answer = await post(app, slow, { 'mcp-protocol-version': '2025-06-18' })
  t.equal(answer.status, 200)
  t.equal(answer.headers['content-type'], 'application/json')
  t.notOk('mcp-session-id' in answer.headers)
  const { id, result: { _meta, ...result } } = answer.json
  t.equal(id, 3)
  t.same(result, { content: [{ type: 'text', text: '{\n  "done": 1\n}' }], isError: false, structuredContent: { done: 1 } })
})

t.test('SL-02 initialize is answered, without a session', async (t) => {
  const app = await serve(t, { stateless: true })
  for (const version of ['2024-11-05', '2025-11-25']) {
    const answer = await post(app, initialize(version))
    t.equal(answer.status, 200)
    t.notOk('mcp-session-id' in answer.headers)
    const { completions, ...capabilities } = answer.json.result.capabilities
    t.same(capabilities, { tools: {}, resources: {}, prompts: {}, logging: {} }, 'nothing is promised that nothing could carry')
    t.same({ ...answer.json.result, capabilities: 0 }, { protocolVersion: version, capabilities: 0, serverInfo: { name: 'kit', version: '1.2.3', ...(version !== '2024-11-05' && { title: 'Kit' }) }, instructions: 'A kit for tests' })
    t.equal((await post(app, initialize(version), { 'mcp-protocol-version': '2099-01-01' })).status, 200, 'a handshake negotiates from its body')
  }
  const noted = await post(app, INITIALIZED)
  t.equal(noted.status, 202)
  t.equal(noted.text, '')
})

t.test('without a version header it is 2025-03-26', async (t) => {
  const app = await serve(t, { stateless: true })
  const batch = [PING, { ...PING, id: 6 }]
  t.equal((await post(app, batch)).text, '[{"jsonrpc":"2.0","id":5,"result":{}},{"jsonrpc":"2.0","id":6,"result":{}}]', 'which has batches')
  t.equal((await post(app, batch, { 'mcp-protocol-version': '2025-06-18' })).text,
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"JSON-RPC batches are not supported by protocol version 2025-06-18"}}')
  const stats = request('tools/call', { name: 'stats' }, 1)
  t.notOk('structuredContent' in (await post(app, stats)).messages[0].result, 'and no structured content')
  t.ok('structuredContent' in (await post(app, stats, { 'mcp-protocol-version': '2025-06-18' })).messages[0].result)
  refused(t, await post(app, PING, { 'mcp-protocol-version': '2099-01-01' }), 400, 'Unsupported MCP-Protocol-Version: 2099-01-01')
})

t.test('a session id is not looked at', async (t) => {
  const app = await serve(t, { stateless: true })
  for (const id of ['', 'gone', '0'.repeat(32)]) {
    const answer = await post(app, PING, { 'mcp-session-id': id })
    t.equal(answer.status, 200)
    t.equal(answer.text, '{"jsonrpc":"2.0","id":5,"result":{}}')
  }
})

t.test('a call still streams what it has to tell', async (t) => {
  const app = await serve(t, { stateless: true })
  const answer = await post(app, request('tools/call', { name: 'slow', arguments: { steps: 2 }, _meta: { progressToken: 'x' } }, 3))
  t.equal(answer.headers['content-type'], 'text/event-stream')
  t.same(answer.messages.map(({ method, id }) => method ?? id), ['notifications/progress', 'notifications/message', 'notifications/progress', 'notifications/message', 3])
})

t.test('GET, DELETE and the rest are 405 and leave POST', async (t) => {
  const app = await serve(t, { stateless: true })
  for (const method of ['GET', 'DELETE', 'PUT', 'PATCH', 'OPTIONS']) {
    for (const headers of [{}, SSE_ONLY, { accept: BOTH, 'mcp-session-id': 'x' }, { 'mcp-protocol-version': '2026-07-28' }]) {
      refused(t, await send(app.url, { method, headers }), 405, 'Method Not Allowed', { allow: 'POST' })
    }
  }
})

t.test('what fails is answered as ever', async (t) => {
  const app = await serve(t, { stateless: true })
  for (const [message, error] of [
    [request('tools/call', { name: 'nope' }), { code: -32602, message: 'Unknown tool: nope', data: { name: 'nope' } }],
    [request('nope'), { code: -32601, message: 'Method not found', data: 'nope' }],
    [{ ...PING, id: true }, { code: -32600, message: 'Invalid Request: bad id' }]
  ] as const) {
    const answer = await post(app, message)
    t.equal(answer.status, 200)
    t.same(answer.messages.map((one) => one.error), [error])
  }
  refused(t, await post(app, {}), 400, 'Invalid Request')
})

t.test('the 2026 era is as it is elsewhere: it has listens and tells of changes', async (t) => {
  const app = await serve(t, { stateless: true })
  const { result } = (await post(app, modern('server/discover'), modernHeaders('server/discover'))).json
  t.same(result.capabilities.tools, { listChanged: true })
  const stream = await listenStream(app, { toolsListChanged: true })
  await stream.next()
  app.layer.notifyChanged('tools')
  t.equal((await stream.next()).method, 'notifications/tools/list_changed')
  stream.leave()
  refused(t, await post(app, modern('tools/list')), 400, { id: 1, code: -32020, message: "MCP-Protocol-Version header does not match the request envelope's protocol version" })
})
