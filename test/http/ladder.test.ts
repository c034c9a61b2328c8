// The 2026-07-28 header ladder: what decides the era of a POST, which rung answers, and what a 2026 exchange looks like.

import t, { type Test } from 'tap'
import { ENV, INITIALIZED, initialize, modern, modernHeaders, request } from '../kit.js'
import { handshake, JSON_ONLY, listenStream, openStream, post, postModern, postStream, raw, rawAnswer, rawRequest, refused, send, serve, SSE_ONLY } from './client.js'

const VERSION = 'io.modelcontextprotocol/protocolVersion'
const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities'
const SERVER_INFO = { name: 'kit', version: '1.2.3', title: 'Kit' }

const versionMismatch = "MCP-Protocol-Version header does not match the request envelope's protocol version"
const methodMismatch = "Mcp-Method header does not match the request body's method"
const nameMismatch = (parameter: string): string => `Mcp-Name header does not match the request body's '${parameter}' parameter`
const missing = (...keys: string[]): string => `params._meta is missing the required envelope key(s): ${keys.join(', ')}`

interface Case { title: string, message?: object, headers: Record<string, string | undefined>, expect: { code: number, message: string, data?: unknown, status?: number, id?: string | number } }

const list = modern('tools/list', {}, 7)
const echo = (params: Record<string, any> = { name: 'echo', arguments: { text: 'a' } }) => modern('tools/call', params, 7)
const dated = (version: string, method = 'tools/list') => ({ jsonrpc: '2.0', id: 7, method, params: { _meta: { ...ENV, [VERSION]: version } } })
const meta = (_meta: unknown, method = 'tools/list') => ({ jsonrpc: '2.0', id: 7, method, params: { _meta } })

const cases: Case[] = [
  { title: 'HL-01 no headers', headers: {}, expect: { code: -32020, message: versionMismatch } },
  { title: 'HL-02 only the version header', headers: { 'mcp-protocol-version': '2026-07-28' }, expect: { code: -32020, message: methodMismatch } },
  { title: 'HL-03 only Mcp-Method', headers: { 'mcp-method': 'tools/list' }, expect: { code: -32020, message: versionMismatch } },
  { title: 'HL-04 the version header of another era', headers: { ...modernHeaders('tools/list'), 'MCP-Protocol-Version': '2025-11-25' }, expect: { code: -32020, message: versionMismatch } },
  { title: 'HL-05 the method of another request', headers: modernHeaders('prompts/list'), expect: { code: -32020, message: methodMismatch } },
  { title: 'methods are compared with their case', headers: modernHeaders('TOOLS/LIST'), expect: { code: -32020, message: methodMismatch } },
  { title: 'HL-07 tools/call without Mcp-Name', message: echo(), headers: modernHeaders('tools/call'), expect: { code: -32020, message: nameMismatch('name') } },
  { title: 'HL-08 the name of another tool', message: echo(), headers: modernHeaders('tools/call', 'stats'), expect: { code: -32020, message: nameMismatch('name') } },
  { title: 'prompts/get without Mcp-Name', message: modern('prompts/get', { name: 'greet' }, 7), headers: modernHeaders('prompts/get'), expect: { code: -32020, message: nameMismatch('name') } },
  { title: 'HL-11 the URI of another resource', message: modern('resources/read', { uri: 'test://info' }, 7), headers: modernHeaders('resources/read', 'test://other'), expect: { code: -32020, message: nameMismatch('uri') } },
  { title: 'HL-14 an envelope without client capabilities', message: meta({ [VERSION]: '2026-07-28' }), headers: modernHeaders('tools/list'), expect: { code: -32602, message: missing(CAPABILITIES) } },
  { title: 'HL-15 a version that nobody serves', message: dated('2027-01-01'), headers: { ...modernHeaders('tools/list'), 'MCP-Protocol-Version': '2027-01-01' }, expect: { code: -32022, message: 'Unsupported protocol version: 2027-01-01', data: { supported: ['2026-07-28'], requested: '2027-01-01' } } },
  { title: 'a handshake version in an envelope', message: dated('2025-11-25'), headers: { ...modernHeaders('tools/list'), 'MCP-Protocol-Version': '2025-11-25' }, expect: { code: -32022, message: 'Unsupported protocol version: 2025-11-25', data: { supported: ['2026-07-28'], requested: '2025-11-25' } } },
  { title: 'HL-22 a method that does not exist', message: modern('nope/nope', {}, 7), headers: modernHeaders('nope/nope'), expect: { status: 404, code: -32601, message: 'Method not found', data: 'nope/nope' } },
  { title: 'HL-23 ping is no method of 2026', message: modern('ping', {}, 7), headers: modernHeaders('ping'), expect: { status: 404, code: -32601, message: 'Method not found', data: 'ping' } },
  { title: 'initialize is no method of 2026', message: modern('initialize', { protocolVersion: '2025-11-25' }, 7), headers: modernHeaders('initialize'), expect: { status: 404, code: -32601, message: 'Method not found', data: 'initialize' } },
  { title: 'the 2026 header without an envelope', message: request('tools/list', undefined, 7), headers: modernHeaders('tools/list'), expect: { code: -32602, message: missing(VERSION, CAPABILITIES) } },
  { title: 'the 2026 header with half an envelope', message: meta({ [CAPABILITIES]: {} }), headers: modernHeaders('tools/list'), expect: { code: -32602, message: missing(VERSION) } },
  { title: 'the 2026 header with a _meta that is no object', message: meta([]), headers: modernHeaders('tools/list'), expect: { code: -32602, message: missing(VERSION, CAPABILITIES) } },
  { title: 'a version that is no string never equals the header', message: meta({ ...ENV, [VERSION]: 20260728 }), headers: modernHeaders('tools/list'), expect: { code: -32020, message: versionMismatch } },
  { title: 'a version that is null', message: meta({ ...ENV, [VERSION]: null }), headers: modernHeaders('tools/list'), expect: { code: -32020, message: versionMismatch } },
  { title: 'two sentinels are compared as what they stand for', message: echo(), headers: modernHeaders('tools/call', '=?base64?c3RhdHM=?='), expect: { code: -32020, message: nameMismatch('name') } },
  { title: 'params that are no object', message: { jsonrpc: '2.0', id: 7, method: 'tools/list', params: [1] }, headers: modernHeaders('tools/list'), expect: { code: -32602, message: 'params must be an object' } },
  { title: 'a method that is no string', message: { jsonrpc: '2.0', id: 7, method: 5, params: { _meta: ENV } }, headers: modernHeaders('tools/list'), expect: { code: -32600, message: 'Invalid Request: method must be a string' } },
  { title: 'another version of JSON-RPC', message: { jsonrpc: '1.0', id: 7, method: 'tools/list', params: { _meta: ENV } }, headers: modernHeaders('tools/list'), expect: { code: -32600, message: 'Invalid Request' } }
]

t.test('a rung that fails answers with JSON, whatever the client accepts', async (t) => {
  const app = await serve(t)
  for (const { title, message = list, headers, expect: { status = 400, ...expected } } of cases) {
    await t.test(title, async (t) => {
      for (const accept of ['application/json, text/event-stream', 'application/json', 'text/event-stream', '*/*']) {
        refused(t, await post(app, message, { ...headers, accept }), status, { id: 7, ...expected })
      }
    })
  }
})

t.test('the first rung that fails is the one that answers', async (t) => {
  const app = await serve(t)
  const call = (params: object) => ({ jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: 'echo', ...params } })
  const body = (version: unknown) => call({ _meta: { ...ENV, [VERSION]: version } })
  const wrong = { 'mcp-protocol-version': '2099-01-01', 'mcp-method': 'tools/list', 'mcp-name': 'stats' }
  const climb: [message: object, headers: Record<string, string>, code: number, message: string][] = [
    [call({ _meta: { [VERSION]: '2027-01-01' } }), wrong, -32602, missing(CAPABILITIES)],
    [body('2027-01-01'), wrong, -32020, versionMismatch],
    [body('2027-01-01'), { ...wrong, 'mcp-protocol-version': '2026-07-28' }, -32020, versionMismatch],
    [body('2027-01-01'), { ...wrong, 'mcp-protocol-version': '2027-01-01' }, -32020, methodMismatch],
    [body('2027-01-01'), { ...wrong, 'mcp-protocol-version': '2027-01-01', 'mcp-method': 'tools/call' }, -32020, nameMismatch('name')]
  ]
  for (const [message, headers, code, text] of climb) refused(t, await post(app, message, headers), 400, { id: 7, code, message: text })
  refused(t, await post(app, body('2027-01-01'), { 'mcp-protocol-version': '2027-01-01', 'mcp-method': 'tools/call', 'mcp-name': 'echo' }), 400,
    { id: 7, code: -32022, message: 'Unsupported protocol version: 2027-01-01', data: { supported: ['2026-07-28'], requested: '2027-01-01' } })
})

t.test('HL-09 a name in Base64', async (t) => {
  const app = await serve(t)
  const answer = await postModern(app, 'tools/call', { name: 'echo', arguments: { text: 'ab', times: 2 } }, { 'Mcp-Name': '=?base64?ZWNobw==?=' })
  t.equal(answer.status, 200)
  t.same(answer.messages[0].result.structuredContent, { text: 'abab' })
})

t.test('HL-10 the Base64 form is read strictly, and only between its markers', async (t) => {
  const { layer, ...app } = await serve(t)
  const names = ['Hello', 'résumé', 'SGVsbG8=', '=?base64?SGVsbG8=', '=?BASE64?SGVsbG8=?=', '=?base64?literal?=', '=?base64?=', '']
  const sentinel = (text: string | Buffer): string => `=?base64?${Buffer.from(text).toString('base64')}?=`
  const read = (name: string, header: string) => postModern(app, 'prompts/get', { name, arguments: {} }, { 'Mcp-Name': header, accept: 'application/json' })
  for (const name of names) {
    const answer = await read(name, sentinel(name))
    t.equal(answer.status, 200, `${name} passes in Base64`)
    t.match(answer.json.error.message, name === '' ? /^Missing or invalid parameter: name$/ : `Unknown prompt: ${name}`)
  }
  for (const literal of ['SGVsbG8=', '=?base64?SGVsbG8=', '=?BASE64?SGVsbG8=?=', '=?base64?=']) t.equal((await read(literal, literal)).status, 200, `${literal} is literal`)
  const wrong = ['=?base64?SGVsbG8?=', '=?base64?SGVs!!!bG8=?=', '=?base64?SGVsbG9=?=', '=?base64?SGVsbG8==?=', '=?base64? SGVsbG8=?=', '=?base64?SGVsbG8=?= ?=', '=?base64?SGVs_G8=?=']
  for (const header of wrong) refused(t, await read('Hello', header), 400, { id: 1, code: -32020, message: nameMismatch('name') })
  refused(t, await read('Hell\ufffd', sentinel(Buffer.from('Hell\xff', 'latin1'))), 400, { id: 1, code: -32020, message: nameMismatch('name') })
  refused(t, await read('=?base64?literal?=', '=?base64?literal?='), 400, { id: 1, code: -32020, message: nameMismatch('name') })
})

t.test('Mcp-Name is compared where the body has a name, and nowhere else', async (t) => {
  const app = await serve(t)
  for (const params of [{}, { name: null }]) {
    const answer = await post(app, modern('tools/call', params), { ...modernHeaders('tools/call'), ...JSON_ONLY })
    t.equal(answer.status, 200, 'a missing name is left to the method')
    t.same(answer.json.error, { code: -32602, message: 'Missing or invalid parameter: name' })
  }
  refused(t, await post(app, modern('tools/call', { name: 7 }), modernHeaders('tools/call', '7')), 400, { id: 1, code: -32020, message: nameMismatch('name') })
  t.equal((await post(app, list, modernHeaders('tools/list', 'whatever'))).status, 200)
  t.equal((await post(app, modern('completion/complete', { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'g' } }), modernHeaders('completion/complete'))).status, 200)
})

t.test('white space around header values is no part of them', async (t) => {
  const app = await serve(t)
  const answer = await rawAnswer(t, app, rawRequest(app, [
    'Content-Type: application/json', 'Accept: application/json', 'mcp-protocol-version: \t 2026-07-28 \t', 'MCP-METHOD:tools/call', 'mCP-nAME:   echo  '
  ], JSON.stringify(echo())))
  t.equal(answer.status, 200)
  t.same(answer.json.result.structuredContent, { text: 'a' })
})

t.test('a repeated header line collapses when it is equal and is refused when it is not', async (t) => {
  const app = await serve(t)
  const lines = ['Content-Type: application/json', 'Accept: application/json']
  const twice = (...more: string[]) => rawAnswer(t, app, rawRequest(app, [...lines, ...more], JSON.stringify(echo())))
  const own = ['Mcp-Protocol-Version: 2026-07-28', 'Mcp-Method: tools/call', 'Mcp-Name: echo']
  const equal = await twice(...own, ...own, ...own.map((line) => line.toUpperCase().replace(/:.*/, '') + line.replace(/^[^:]*/, '')))
  t.equal(equal.status, 200)
  t.same(equal.json.result.structuredContent, { text: 'a' })
  for (const [line, name] of [['MCP-Protocol-Version: 2025-11-25', 'mcp-protocol-version'], ['Mcp-Method: tools/list', 'mcp-method'], ['Mcp-Name: stats', 'mcp-name']] as const) {
    refused(t, await twice(...own, line), 400, { id: 7, code: -32020, message: `${name} header appears more than once` }, { connection: 'close' })
    refused(t, await twice(line, ...own), 400, { id: 7, code: -32020, message: `${name} header appears more than once` }, { connection: 'close' })
  }
})

t.test('HTT-10 repeated handshake headers: equal ones collapse, different ones are refused', async (t) => {
  const app = await serve(t)
  const { id } = await handshake(app)
  const ping = (...more: string[]) => rawAnswer(t, app, rawRequest(app, ['Content-Type: application/json', 'Accept: application/json', ...more], JSON.stringify(request('ping', {}, 3))))
  const good = await ping(`Mcp-Session-Id: ${id}`, `MCP-Session-Id: ${id}`, 'MCP-Protocol-Version: 2025-11-25', 'mcp-protocol-version: 2025-11-25')
  t.equal(good.status, 200)
  t.equal(good.text, '{"jsonrpc":"2.0","id":3,"result":{}}')
  refused(t, await ping(`Mcp-Session-Id: ${id}`, 'Mcp-Session-Id: deadbeef'), 400, 'Bad Request: mcp-session-id header appears more than once')
  refused(t, await ping(`Mcp-Session-Id: ${id}`, 'MCP-Protocol-Version: 2025-11-25', 'MCP-Protocol-Version: 2025-06-18'), 400, 'Bad Request: mcp-protocol-version header appears more than once')
})

t.test('BA-05 batches have no place in 2026, by envelope or by header', async (t) => {
  const app = await serve(t)
  const why = 'JSON-RPC batches are not supported by protocol version 2026-07-28'
  refused(t, await post(app, [list]), 400, why)
  refused(t, await post(app, [list], modernHeaders('tools/list')), 400, why)
  refused(t, await post(app, [request('tools/list'), list]), 400, why)
  refused(t, await post(app, [request('tools/list')], modernHeaders('tools/list')), 400, why)
  const { id } = await handshake(app, '2025-03-26')
  refused(t, await post(app, [request('ping'), list], { 'mcp-session-id': id, 'mcp-protocol-version': '2025-03-26' }), 400, why)
})

t.test('an id is echoed with its type', async (t) => {
  const app = await serve(t)
  for (const id of [0, -1, 1, '1', '', 'ä', Number.MAX_SAFE_INTEGER]) {
    const answer = await postModern(app, 'server/discover', {}, {}, id)
    t.equal(answer.status, 200)
    t.equal(answer.json.id, id)
    refused(t, await postModern(app, 'nope', {}, {}, id), 404, { id, code: -32601, message: 'Method not found', data: 'nope' })
  }
  for (const id of [null, true, 1.5, {}, [], 2 ** 60]) {
    refused(t, await post(app, { ...list, id }, modernHeaders('tools/list')), 400, 'Invalid Request')
  }
})

t.test('an initialize without an envelope is a handshake, whatever its headers say', async (t) => {
  const app = await serve(t)
  for (const headers of [modernHeaders('initialize'), { 'mcp-protocol-version': '2099-01-01' }, { 'mcp-protocol-version': '2025-03-26' }, { 'mcp-session-id': 'gone' }]) {
    const answer = await post(app, initialize('2025-06-18'), headers)
    t.equal(answer.status, 200)
    t.equal(answer.json.result.protocolVersion, '2025-06-18')
    t.match(answer.headers['mcp-session-id'], /^[0-9a-f]{32}$/)
  }
})

t.test('Mcp-Method alone does not make a 2026 request', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  const answer = await session.post(request('ping', undefined, 9), { 'mcp-method': 'tools/list', 'mcp-name': 'x' })
  t.equal(answer.text, '{"jsonrpc":"2.0","id":9,"result":{}}')
})

t.test('a 2026 notification is taken and dropped', async (t) => {
  const app = await serve(t)
  const note = (method: string, params: object = {}) => ({ jsonrpc: '2.0', method, params: { _meta: ENV, ...params } })
  for (const message of [note('notifications/progress'), note('nope'), INITIALIZED, { jsonrpc: '2.0', id: 1, result: {} }]) {
    const answer = await post(app, message, modernHeaders('notifications/whatever'))
    t.equal(answer.status, 202)
    t.equal(answer.text, '')
    t.equal(answer.headers['content-type'], undefined)
  }
  t.equal((await post(app, note('notifications/cancelled'))).status, 202, 'without any header')

  const running = app.entered('sleepy')
  const stream = await postStream(app, modern('tools/call', { name: 'sleepy', arguments: { seconds: 30 } }, 'mine'), modernHeaders('tools/call', 'sleepy'))
  const { signal } = await running
  t.equal((await post(app, note('notifications/cancelled', { requestId: 'mine' }), modernHeaders('notifications/cancelled'))).status, 202)
  t.notOk(signal.aborted, 'a posted cancellation reaches nobody')
  stream.leave()
  await new Promise((resolve) => { signal.addEventListener('abort', resolve, { once: true }) })
})

t.test('what is no JSON-RPC message is not taken for a notification', async (t) => {
  const app = await serve(t)
  for (const message of [{}, { jsonrpc: '2.0' }, { jsonrpc: '1.0', method: 'x' }, { method: 'x' }, { jsonrpc: '2.0', params: { _meta: ENV } }]) {
    refused(t, await post(app, message, modernHeaders('x')), 400, 'Invalid Request')
  }
  refused(t, await post(app, { jsonrpc: '2.0', method: 5 }, modernHeaders('x')), 400, 'Invalid Request: method must be a string')
})

t.test('HL-25 a 2026 answer has no session, and a session id on the request is not looked at', async (t) => {
  const app = await serve(t)
  for (const headers of [{}, { 'mcp-session-id': 'gone' }, { 'last-event-id': '5' }]) {
    const answer = await postModern(app, 'tools/list', {}, headers)
    t.equal(answer.status, 200)
    t.equal(answer.headers['content-type'], 'application/json')
    t.equal(answer.headers['content-length'], String(Buffer.byteLength(answer.text)))
    t.notOk('mcp-session-id' in answer.headers)
    const { tools, ...rest } = answer.json.result
    t.equal(tools.length, 8)
    t.same(rest, { resultType: 'complete', ttlMs: 0, cacheScope: 'private', _meta: { 'io.modelcontextprotocol/serverInfo': SERVER_INFO } })
  }
})

t.test('HL-29 GET and DELETE have nothing to do in 2026', async (t) => {
  const app = await serve(t)
  const headers = { 'mcp-protocol-version': '2026-07-28' }
  refused(t, await send(app.url, { method: 'GET', headers: { ...headers, ...SSE_ONLY } }), 405, 'Method Not Allowed', { allow: 'POST, DELETE' })
  refused(t, await send(app.url, { method: 'DELETE', headers }), 400, 'Bad Request: Mcp-Session-Id header is required')
})

t.test('HL-30 a tool that says nothing on its way is answered at once, as one event or as JSON', async (t) => {
  const app = await serve(t)
  const result = {
    content: [{ type: 'text', text: '{\n  "text": "a"\n}' }],
    isError: false,
    structuredContent: { text: 'a' },
    _meta: { 'io.modelcontextprotocol/serverInfo': SERVER_INFO },
    resultType: 'complete'
  }
  const check = (t: Test, { id, result: { _meta, ...rest } }: any): void => {
    t.equal(id, 7)
    const { 'cloudg/duration_ms': ms, ...meta } = _meta
    t.ok(Number.isInteger(ms) && ms >= 0)
    t.same({ ...rest, _meta: meta }, result)
  }
  const headers = modernHeaders('tools/call', 'echo')
  for (const accept of [undefined, '*/*', 'text/event-stream', 'application/json, text/event-stream']) {
    const answer = await post(app, echo(), { ...headers, accept })
    t.equal(answer.status, 200)
    t.match(answer.headers, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no', 'content-length': String(Buffer.byteLength(answer.text)) })
    t.match(answer.text, /^event: message\ndata: \{.*\}\n\n$/)
    check(t, answer.messages[0])
  }
  const answer = await post(app, echo(), { ...headers, ...JSON_ONLY })
  t.equal(answer.headers['content-type'], 'application/json')
  t.notOk('cache-control' in answer.headers)
  check(t, answer.json)
})

t.test('MO-07 MO-11 methods of the other era do not exist', async (t) => {
  const app = await serve(t)
  for (const method of ['initialize', 'ping', 'logging/setLevel', 'resources/subscribe', 'resources/unsubscribe', 'notifications/initialized', 'tasks/list', 'constructor', '__proto__', 'toString']) {
    refused(t, await postModern(app, method), 404, { id: 1, code: -32601, message: 'Method not found', data: method })
  }
  const session = await handshake(app)
  for (const method of ['server/discover', 'subscriptions/listen', 'tools/frobnicate', 'constructor', 'hasOwnProperty']) {
    const answer = await session.post(request(method, {}, 4))
    t.equal(answer.status, 200)
    t.same(answer.messages, [{ jsonrpc: '2.0', id: 4, error: { code: -32601, message: 'Method not found', data: method } }])
  }
})

t.test('an envelope on a handshake session goes its own way', async (t) => {
  const app = await serve(t)
  const session = await handshake(app)
  refused(t, await session.post(list), 400, { id: 7, code: -32020, message: versionMismatch })
  const answer = await session.post(list, modernHeaders('tools/list'))
  t.equal(answer.json.result.resultType, 'complete', 'and is served as what it is')
})

t.test('what fails behind the ladder is a 200, but for the errors whose status is fixed', async (t) => {
  const { layer, ...app } = await serve(t)
  const { MissingCapabilityError } = await import('../../lib/layer/index.js')
  layer.tool('needy', {}, () => { throw new MissingCapabilityError({ sampling: {} }) })
  layer.tool('late', {}, async (_args, ctx) => {
    await ctx.progress(1)
    throw new MissingCapabilityError({ sampling: {} })
  })
  const fails: [method: string, params: object, error: object][] = [
    ['tools/call', { name: 'nope' }, { code: -32602, message: 'Unknown tool: nope', data: { name: 'nope' } }],
    ['tools/list', { cursor: 'x' }, { code: -32602, message: 'Invalid cursor' }],
    ['resources/read', { uri: 'test://items/zeta' }, { code: -32602, message: 'No item zeta', data: { uri: 'test://items/zeta' } }],
    ['prompts/get', { name: 'greet' }, { code: -32602, message: 'Missing required prompt arguments: name' }]
  ]
  for (const [method, params, error] of fails) {
    for (const accept of ['application/json', '*/*']) {
      const answer = await postModern(app, method, params, { accept })
      t.equal(answer.status, 200)
      t.same(answer.messages, [{ jsonrpc: '2.0', id: 1, error }])
    }
  }
  const needs = { id: 1, code: -32021, message: 'Client did not declare the required capability: sampling', data: { requiredCapabilities: { sampling: {} } } }
  refused(t, await postModern(app, 'tools/call', { name: 'needy' }), 400, needs)
  const { id, ...error } = needs
  const late = await postModern(app, 'tools/call', { name: 'late', _meta: { progressToken: 1 } })
  t.equal(late.status, 200, 'a stream that has begun cannot take its status back')
  t.same(late.messages.at(-1), { jsonrpc: '2.0', id, error })
})

t.test('LS-05 a listen needs somebody who reads events', async (t) => {
  const app = await serve(t)
  const listen = modern('subscriptions/listen', { notifications: {} }, 'L')
  refused(t, await post(app, listen, { ...modernHeaders('subscriptions/listen'), ...JSON_ONLY }), 406, 'subscriptions/listen requires Accept: text/event-stream')
})

t.test('LS-01 LS-02 LS-06 a listen is a stream in every mode, and tells what was asked for', async (t) => {
  for (const responseMode of ['sse', 'auto', 'json'] as const) {
    const { layer, ...app } = await serve(t, { responseMode })
    const filter = { toolsListChanged: true, promptsListChanged: false, resourceSubscriptions: ['test://info'] }
    const stream = await listenStream(app, filter, 'L1')
    const tag = { 'io.modelcontextprotocol/subscriptionId': 'L1' }
    t.equal(stream.status, 200)
    t.equal(stream.headers['content-type'], 'text/event-stream')
    t.same(await stream.next(), {
      jsonrpc: '2.0',
      method: 'notifications/subscriptions/acknowledged',
      params: { notifications: { toolsListChanged: true, resourceSubscriptions: ['test://info'] }, _meta: tag }
    })
    layer.notifyChanged('prompts')
    layer.notifyUpdated('test://other')
    layer.notifyChanged('resources')
    layer.notifyChanged('tools')
    layer.notifyUpdated('test://info')
    t.same(await stream.next(), { jsonrpc: '2.0', method: 'notifications/tools/list_changed', params: { _meta: tag } })
    t.same(await stream.next(), { jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri: 'test://info', _meta: tag } })
    const closed = app.app.close()
    t.same(await stream.next(), { jsonrpc: '2.0', id: 'L1', result: { _meta: { 'io.modelcontextprotocol/serverInfo': SERVER_INFO, ...tag }, resultType: 'complete' } })
    await stream.ended
    await closed
  }
})

t.test('a listen that cannot be is refused before anything is acknowledged', async (t) => {
  const app = await serve(t)
  for (const params of [{}, { notifications: null }, { notifications: [] }, { notifications: 'all' }]) {
    const answer = await postModern(app, 'subscriptions/listen', params)
    t.equal(answer.status, 200)
    t.same(answer.messages, [{ jsonrpc: '2.0', id: 1, error: { code: -32602, message: 'subscriptions/listen requires a notifications filter' } }])
  }
})

t.test('every POST is on its own: no answer reaches another connection', async (t) => {
  const app = await serve(t)
  const texts = Array.from({ length: 50 }, (_, at) => `caller ${at}`)
  const answers = await Promise.all(texts.map((text) => postModern(app, 'tools/call', { name: 'echo', arguments: { text } }, {}, 2)))
  t.same(answers.map(({ messages }) => messages[0].result.structuredContent.text), texts)
})

t.test('the socket stays open for the next request after a rung has failed', async (t) => {
  const app = await serve(t)
  const bad = rawRequest(app, ['Content-Type: application/json', 'Connection: keep-alive'], JSON.stringify(list))
  const good = rawRequest(app, ['Content-Type: application/json', 'Accept: application/json', 'MCP-Protocol-Version: 2026-07-28', 'Mcp-Method: server/discover'], JSON.stringify(modern('server/discover')))
  const text = await raw(t, app, Buffer.concat([bad, good]))
  t.match(text, /^HTTP\/1\.1 400 [^]*-32020[^]*HTTP\/1\.1 200 [^]*supportedVersions/)
  const open = await openStream(app.url, { method: 'GET', headers: SSE_ONLY })
  t.equal(open.status, 405)
  open.leave()
})
