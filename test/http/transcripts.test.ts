// The transcripts of the source documents (MCP.md 6.2 and 6.4), replayed against the demo layer behind a token: statuses, headers
// and bodies as they are shown, ids and durations aside. Where the product has decided otherwise, the decision is what is asserted.

import Fastify from 'fastify'
import t, { type Test } from 'tap'
import { createInventoryLayer } from '../../examples/inventory/layer.js'
import { splitTokenSpecs } from '../../examples/inventory/token-specs.js'
import cloudgMcp from '../../plugin.js'
import type { Answer, ClientSession, Headers, Target } from './client.js'
import { BOTH, listen, openStream, parseEvents, rawAnswer, rawRequest, send } from './client.js'

// The documents print the JSON of refusals with spaces; that is Python's way, not part of the protocol.
const compact = (printed: string): string => JSON.stringify(JSON.parse(printed))

const M = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
const JSON_TYPE = { 'content-type': 'application/json' }
const BEARER = { authorization: 'Bearer s3cret' }
const INITIALIZE = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}'
const PING = '{"jsonrpc":"2.0","id":9,"method":"ping"}'
const CAPABILITIES = '{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{}}'

/** The demo server with `CLOUDG_MCP_TOKENS=s3cret:analyst:alice`. */
async function demo (t: Test): Promise<Target> {
  const app = Fastify({ http: { maxHeaderSize: 64 * 1024 } })
  await app.register(cloudgMcp, { layer: createInventoryLayer(), auth: { tokens: splitTokenSpecs('s3cret:analyst:alice') } })
  const port = await listen(t, app)
  return { port, url: `http://127.0.0.1:${port}/mcp` }
}

function curl (target: Target, body: string | undefined, headers: Headers = {}, method = 'POST'): Promise<Answer> {
  return send(target.url, { method, headers: { ...JSON_TYPE, accept: BOTH, ...BEARER, ...headers }, body })
}

async function connected (target: Target): Promise<Pick<ClientSession, 'id' | 'headers'>> {
  const answer = await curl(target, INITIALIZE)
  const id = String(answer.headers['mcp-session-id'])
  return { id, headers: { 'mcp-session-id': id, 'mcp-protocol-version': '2025-11-25' } }
}

function shows (t: Test, answer: Answer, status: number, printed: string): void {
  t.equal(answer.status, status)
  t.equal(answer.text, compact(printed))
  t.equal(answer.headers['content-type'], 'application/json')
  t.equal(answer.headers['content-length'], String(Buffer.byteLength(answer.text)))
}

t.test('6.2 initialize without a token', async (t) => {
  const app = await demo(t)
  const answer = await send(app.url, { headers: { ...JSON_TYPE, accept: BOTH }, body: INITIALIZE })
  shows(t, answer, 401, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Unauthorized"}}')
  t.equal(answer.headers['www-authenticate'], 'Bearer realm="cloudg-mcp"')
})

t.test('6.2 initialize with a token', async (t) => {
  const app = await demo(t)
  const answer = await curl(app, INITIALIZE)
  t.equal(answer.status, 200)
  t.equal(answer.headers['content-type'], 'application/json')
  t.equal(answer.headers['content-length'], String(Buffer.byteLength(answer.text)))
  t.match(answer.headers['mcp-session-id'], /^[0-9a-f]{32}$/)
  const { version } = answer.json.result.serverInfo
  t.match(version, /^\d+\.\d+\.\d+/)
  t.ok(answer.text.startsWith(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":${CAPABILITIES},"serverInfo":{"name":"cloudg","version":"${version}","title":"cloudg"},"instructions":"cloudg exposes a multi-cloud `),
    'key by key in the order that is shown')
})

t.test('6.2 notifications/initialized and a call that streams', async (t) => {
  const app = await demo(t)
  const { headers } = await connected(app)
  const noted = await curl(app, '{"jsonrpc":"2.0","method":"notifications/initialized"}', headers)
  t.equal(noted.status, 202)
  t.equal(noted.text, '')
  const answer = await curl(app, '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"count_assets","arguments":{"group_by":"provider"},"_meta":{"progressToken":"p1"}}}', headers)
  t.equal(answer.status, 200)
  t.match(answer.headers, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' })
  t.equal(answer.headers['content-length'], String(Buffer.byteLength(answer.text)), 'all is known at once, so it has a length where the document shows chunks')
  const events = parseEvents(answer.text)
  t.same(events.map(({ event }) => event), ['message'])
  const structured = '{"dataset":"prod","group_by":"provider","total":44,"group_count":3,"groups":{"AWS":36,"AZURE":5,"GCP":3},"truncated":false}'
  const text = JSON.stringify(JSON.stringify(JSON.parse(structured), null, 2))
  t.equal(events[0]!.data.replace(/"cloudg\/duration_ms":\d+/, '"cloudg/duration_ms":14'),
    `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":${text}}],"isError":false,"structuredContent":${structured},"_meta":{"cloudg/duration_ms":14}}}`)
})

t.test('6.2 the failures of the table', async (t) => {
  const app = await demo(t)
  const { headers } = await connected(app)
  shows(t, await curl(app, PING, { ...headers, origin: 'https://evil.example' }), 403, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Forbidden: invalid Origin"}}')
  shows(t, await curl(app, PING, { ...headers, host: `attacker.example:${app.port}` }), 421, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Invalid Host header"}}')
  shows(t, await curl(app, PING, { ...headers, origin: `http://127.0.0.1:${app.port}` }), 200, '{"jsonrpc":"2.0","id":9,"result":{}}')
  shows(t, await curl(app, PING), 400, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Bad Request: Mcp-Session-Id header is required"}}')
  shows(t, await curl(app, PING, { 'mcp-session-id': 'deadbeef' }), 404, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Session not found"}}')
  shows(t, await curl(app, PING, { ...headers, 'mcp-protocol-version': '2025-06-18' }), 400,
    '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "MCP-Protocol-Version 2025-06-18 does not match the negotiated version 2025-11-25"}}')
  shows(t, await curl(app, PING, { ...headers, 'mcp-protocol-version': '2099-01-01' }), 400, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Unsupported MCP-Protocol-Version: 2099-01-01"}}')
  shows(t, await curl(app, PING, { ...headers, 'content-type': 'text/plain' }), 415, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Content-Type must be application/json"}}')
  shows(t, await curl(app, undefined, { ...headers, accept: 'application/json' }, 'GET'), 406, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Not Acceptable: GET requires Accept: text/event-stream"}}')
  const put = await curl(app, PING, headers, 'PUT')
  shows(t, put, 405, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Method Not Allowed"}}')
  t.equal(put.headers.allow, 'GET, POST, DELETE')
  shows(t, await curl(app, `[${PING}]`, headers), 200, '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"JSON-RPC batches are not supported by protocol version 2025-11-25"}}')
  const ended = await curl(app, undefined, headers, 'DELETE')
  t.equal(ended.status, 200)
  t.equal(ended.text, '')
  shows(t, await curl(app, PING, headers), 404, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Session not found"}}')
})

t.test('6.2 the reason phrases are those of HTTP', async (t) => {
  const app = await demo(t)
  const { raw } = await import('./client.js')
  const status = async (...lines: string[]) => (await raw(t, app, rawRequest(app, ['Content-Type: application/json', ...lines], PING))).split('\r\n')[0]
  t.equal(await status('Host: attacker.example:8799'), 'HTTP/1.1 421 Misdirected Request')
  t.equal(await status('Origin: https://evil.example'), 'HTTP/1.1 403 Forbidden')
  t.equal(await status(), 'HTTP/1.1 401 Unauthorized')
  t.equal(await status('Authorization: Bearer s3cret'), 'HTTP/1.1 400 Bad Request')
})

t.test('6.4 server/discover without and with its headers', async (t) => {
  const app = await demo(t)
  const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{${M}}}`
  const only = { accept: 'application/json' }
  shows(t, await curl(app, discover, only), 400, '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32020, "message": "MCP-Protocol-Version header does not match the request envelope\'s protocol version"}}')
  const answer = await curl(app, discover, { ...only, 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'server/discover' })
  t.equal(answer.status, 200)
  const { instructions, _meta: { 'io.modelcontextprotocol/serverInfo': { version } } } = answer.json.result
  t.match(instructions, /^cloudg exposes a multi-cloud /)
  t.equal(answer.text, '{"jsonrpc":"2.0","id":1,"result":{' +
    '"supportedVersions":["2024-11-05","2025-03-26","2025-06-18","2025-11-25","2026-07-28"],' +
    `"capabilities":${CAPABILITIES},"instructions":${JSON.stringify(instructions)},"resultType":"complete","ttlMs":0,"cacheScope":"private",` +
    `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"cloudg","version":"${version}","title":"cloudg"}}}}`)
})

t.test('6.4 the ladder', async (t) => {
  const app = await demo(t)
  const ask = (body: string, method: string, more: Headers = {}) => curl(app, body, { accept: 'application/json', 'mcp-protocol-version': '2026-07-28', 'mcp-method': method, ...more })
  const count = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count_assets","arguments":{"group_by":"provider"},${M}}}`
  shows(t, await ask(count, 'tools/call'), 400, '{"jsonrpc": "2.0", "id": 2, "error": {"code": -32020, "message": "Mcp-Name header does not match the request body\'s \'name\' parameter"}}')
  const { id, result } = (await ask(count, 'tools/call', { 'mcp-name': 'count_assets' })).json
  t.equal(id, 2)
  t.same(result.structuredContent.groups, { AWS: 36, AZURE: 5, GCP: 3 })
  t.equal(result.resultType, 'complete')
  t.match(result._meta['io.modelcontextprotocol/serverInfo'], { name: 'cloudg', title: 'cloudg' })

  shows(t, await ask(`{"jsonrpc":"2.0","id":4,"method":"prompts/list","params":{${M}}}`, 'tools/list'), 400, '{"jsonrpc": "2.0", "id": 4, "error": {"code": -32020, "message": "Mcp-Method header does not match the request body\'s method"}}')
  shows(t, await ask('{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}', 'tools/list'), 400,
    '{"jsonrpc": "2.0", "id": 5, "error": {"code": -32602, "message": "params._meta is missing the required envelope key(s): io.modelcontextprotocol/clientCapabilities"}}')
  shows(t, await ask(`{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{${M.replace('2026-07-28', '2027-01-01')}}}`, 'tools/list', { 'mcp-protocol-version': '2027-01-01' }), 400,
    '{"jsonrpc": "2.0", "id": 6, "error": {"code": -32022, "message": "Unsupported protocol version: 2027-01-01", "data": {"supported": ["2026-07-28"], "requested": "2027-01-01"}}}')
  shows(t, await ask(`{"jsonrpc":"2.0","id":7,"method":"ping","params":{${M}}}`, 'ping'), 404, '{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method not found","data":"ping"}}')
  shows(t, await ask(`[{"jsonrpc":"2.0","id":8,"method":"tools/list","params":{${M}}}]`, 'tools/list'), 400,
    '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "JSON-RPC batches are not supported by protocol version 2026-07-28"}}')
})

t.test('6.4 progress while the ontology is built for the first time', async (t) => {
  const app = await demo(t)
  const body = `{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"ontology_stats","arguments":{},${M.replace('{', '{"progressToken":"tok-1",')}}}`
  const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'ontology_stats' }
  const first = await curl(app, body, headers)
  t.ok(first.text.startsWith([
    'event: message',
    'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok-1","progress":0,"total":1,"message":"building ontology for 44 assets"}}',
    '',
    'event: message',
    'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok-1","progress":1,"total":1,"message":"ontology built"}}',
    '',
    'event: message',
    'data: {"jsonrpc":"2.0","id":11,"result":{"content":[{"type":"text","text":"{\\n  \\"dataset\\": \\"prod\\",\\n  \\"built_now\\": true,\\n  \\"total_triples\\": 1185,'
  ].join('\n')), first.text.slice(0, 700))
  const second = await curl(app, body, headers)
  t.same(second.messages.map(({ result }) => result.structuredContent.built_now), [false], 'the second time there is nothing to wait for')
})

t.test('6.4 a second client loads a dataset while a listen is open', async (t) => {
  const app = await demo(t)
  const headers = { ...JSON_TYPE, accept: BOTH, ...BEARER, 'mcp-protocol-version': '2026-07-28' }
  const stream = await openStream(app.url, {
    headers: { ...headers, 'mcp-method': 'subscriptions/listen' },
    body: `{"jsonrpc":"2.0","id":"listen-1","method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true,"toolsListChanged":true,"resourceSubscriptions":["cloudg://workspace"]},${M}}}`
  })
  t.equal(stream.status, 200)
  await stream.next()
  const loaded = await curl(app, `{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"load_dataset","arguments":{"name":"staging","path":"inventory-map.json"},${M}}}`,
    { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'load_dataset' })
  t.same(loaded.messages[0].result.structuredContent, { dataset: 'staging', kind: 'inventory', assets: 44, relations: 56, findings: 12 })
  await stream.next()
  await stream.next()
  t.equal(stream.text, [
    'event: message',
    'data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["cloudg://workspace"]},"_meta":{"io.modelcontextprotocol/subscriptionId":"listen-1"}}}',
    '',
    'event: message',
    'data: {"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"listen-1"}}}',
    '',
    'event: message',
    'data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"cloudg://workspace","_meta":{"io.modelcontextprotocol/subscriptionId":"listen-1"}}}',
    '',
    ''
  ].join('\n'))
  stream.leave()
  t.equal((await rawAnswer(t, app, rawRequest(app, ['Accept: */*'], '', 'GET /healthz HTTP/1.1'))).text, '{"status":"ok"}')
})
