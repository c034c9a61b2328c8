// Tool parameters that 2026 clients repeat in `Mcp-Param-*` headers: compared before anything is committed, and refused at
// registration where no client could send them. MCP 2026-07-28 "Streamable HTTP / x-mcp-header", SEP-2243.

import t, { type Test } from 'tap'
import { z } from 'zod'
import { createKit, modern, modernHeaders, request } from '../kit.js'
import { handshake, post, postModern, rawAnswer, rawRequest, refused, serve } from './client.js'

const route = {
  type: 'object',
  properties: {
    region: { type: 'string', 'x-mcp-header': 'Region' },
    count: { type: 'integer', 'x-mcp-header': 'Count' },
    dry: { type: 'boolean', 'x-mcp-header': 'Dry-Run' },
    outer: { type: 'object', properties: { inner: { type: 'string', 'x-mcp-header': 'Inner' } } },
    plain: { type: 'string' }
  }
}

async function serveRoute (t: Test) {
  const { layer } = createKit()
  const seen: unknown[] = []
  layer.tool('route', { input: route }, (args) => {
    seen.push(args)
    return { args }
  })
  const app = await serve(t, { layer })
  return {
    ...app,
    seen,
    call: (args: unknown, headers: Record<string, string> = {}, accept?: string) => postModern(app, 'tools/call', { name: 'route', ...(args !== undefined && { arguments: args }) }, { ...headers, ...(accept !== undefined && { accept }) })
  }
}

const mismatch = (name: string) => ({ id: 1, code: -32020, message: `Mcp-Param-${name} header does not match the request body's argument` })
const absent = (name: string) => ({ id: 1, code: -32020, message: `Mcp-Param-${name} header is missing` })
const surplus = (name: string) => ({ id: 1, code: -32020, message: `Mcp-Param-${name} header is present, but the argument is not` })
const malformed = (name: string) => ({ id: 1, code: -32020, message: `Mcp-Param-${name} header holds a malformed base64 sentinel` })
const base64 = (text: string | Buffer) => `=?base64?${Buffer.from(text).toString('base64')}?=`

t.test('XP-01 a parameter that its header repeats, as it is or in Base64', async (t) => {
  const { call } = await serveRoute(t)
  const good: [object, Record<string, string>][] = [
    [{ region: 'Tōkyō' }, { 'Mcp-Param-Region': '=?base64?VMWNa3nFjQ==?=' }],
    [{ region: 'us' }, { 'Mcp-Param-Region': 'us' }],
    [{ region: 'us' }, { 'mcp-param-region': base64('us') }],
    [{ region: '' }, { 'Mcp-Param-Region': '' }],
    [{ region: ' x ' }, { 'Mcp-Param-Region': base64(' x ') }],
    [{ region: 'us', count: 1, dry: false, outer: { inner: 'y' } }, { 'Mcp-Param-Region': 'us', 'Mcp-Param-Count': '1', 'Mcp-Param-Dry-Run': 'false', 'Mcp-Param-Inner': 'y' }]
  ]
  for (const [args, headers] of good) {
    const answer = await call(args, headers)
    t.equal(answer.status, 200, JSON.stringify(args))
    t.same(answer.messages[0].result.structuredContent, { args })
  }
})

t.test('XP-02 XP-03 a header that says something else, or nothing, is refused before the tool runs', async (t) => {
  const { call, seen } = await serveRoute(t)
  for (const accept of ['application/json, text/event-stream', 'text/event-stream', 'application/json']) {
    refused(t, await call({ region: 'us' }, { 'Mcp-Param-Region': 'eu' }, accept), 400, mismatch('Region'))
    refused(t, await call({ region: 'us' }, { 'Mcp-Param-Region': 'US' }, accept), 400, mismatch('Region'))
    refused(t, await call({ region: 'us' }, {}, accept), 400, absent('Region'))
  }
  t.same(seen, [])
})

t.test('XP-05 neither is nothing, and a header alone is too much', async (t) => {
  const { call } = await serveRoute(t)
  for (const args of [undefined, {}, { plain: 'x' }]) t.equal((await call(args)).status, 200, 'both absent')
  for (const args of [undefined, {}, { region: null }]) refused(t, await call(args, { 'Mcp-Param-Region': 'us' }), 400, surplus('Region'))
  t.equal((await call({ region: null })).status, 200, 'what is wrong with null is for the tool to say')
})

t.test('integers are compared as numbers', async (t) => {
  const { call } = await serveRoute(t)
  for (const [count, header] of [[42, '42'], [42, '42.0'], [0, '0'], [-1, '-1'], [1000, '1000'], [42, base64('42')]] as const) t.equal((await call({ count }, { 'Mcp-Param-Count': header })).status, 200, header)
  for (const [count, header] of [[42, '43'], [42, '0x2a'], [42, '4.2e1'], [42, ''], [42, 'x'], [42, '+42'], [0, ''], [42, '42,42']] as const) refused(t, await call({ count }, { 'Mcp-Param-Count': header }), 400, mismatch('Count'))
})

t.test('XP-09 booleans are true and false', async (t) => {
  const { call } = await serveRoute(t)
  t.equal((await call({ dry: true }, { 'Mcp-Param-Dry-Run': 'true' })).status, 200)
  t.equal((await call({ dry: false }, { 'Mcp-Param-Dry-Run': 'false' })).status, 200)
  for (const header of ['True', 'TRUE', '1', 'false', '', 'yes']) refused(t, await call({ dry: true }, { 'Mcp-Param-Dry-Run': header }), 400, mismatch('Dry-Run'))
})

t.test('XP-10 the Base64 form is read strictly', async (t) => {
  const { call } = await serveRoute(t)
  for (const header of ['=?base64?dXM?=', '=?base64?dX!M=?=', '=?base64?dXN=?=', base64(Buffer.from([0xff]))]) refused(t, await call({ region: 'us' }, { 'Mcp-Param-Region': header }), 400, malformed('Region'))
  refused(t, await call({ region: 'us' }, { 'Mcp-Param-Region': '=?BASE64?dXM=?=' }), 400, mismatch('Region'))
})

t.test('XP-11 a header that no parameter declares is not looked at', async (t) => {
  const { call, ...app } = await serveRoute(t)
  t.equal((await call({ plain: 'x' }, { 'Mcp-Param-Foo': 'bar', 'Mcp-Param-Plain': 'y' })).status, 200)
  t.equal((await postModern(app, 'tools/call', { name: 'echo', arguments: { text: 'x' } }, { 'Mcp-Param-Text': 'y' })).status, 200)
  t.equal((await postModern(app, 'tools/list', {}, { 'Mcp-Param-Region': 'us' })).status, 200)
  const unknown = await postModern(app, 'tools/call', { name: 'nope', arguments: { region: 'us' } })
  t.same(unknown.messages[0].error, { code: -32602, message: 'Unknown tool: nope', data: { name: 'nope' } })
})

t.test('lines that differ are refused, equal ones are one', async (t) => {
  const app = await serveRoute(t)
  const body = JSON.stringify(modern('tools/call', { name: 'route', arguments: { region: 'us' } }))
  const send = (...lines: string[]) => rawAnswer(t, app, rawRequest(app, ['Content-Type: application/json', 'Accept: application/json', ...Object.entries(modernHeaders('tools/call', 'route')).map((line) => line.join(': ')), ...lines], body))
  t.equal((await send('Mcp-Param-Region: us', 'mcp-param-region: us')).status, 200)
  refused(t, await send('Mcp-Param-Region: us', 'Mcp-Param-Region: eu'), 400, { id: 1, code: -32020, message: 'mcp-param-region header appears more than once' })
  refused(t, await send('Mcp-Param-Region: eu', 'Mcp-Param-Region: us'), 400, { id: 1, code: -32020, message: 'mcp-param-region header appears more than once' })
})

t.test('XP-13 a nested parameter is compared where it is', async (t) => {
  const { call } = await serveRoute(t)
  t.equal((await call({ outer: { inner: 'y' } }, { 'Mcp-Param-Inner': 'y' })).status, 200)
  refused(t, await call({ outer: { inner: 'y' } }, { 'Mcp-Param-Inner': 'z' }), 400, mismatch('Inner'))
  refused(t, await call({ outer: { inner: 'y' } }), 400, absent('Inner'))
  refused(t, await call({ outer: {} }, { 'Mcp-Param-Inner': 'y' }), 400, surplus('Inner'))
  refused(t, await call({ inner: 'y' }, { 'Mcp-Param-Inner': 'y' }), 400, surplus('Inner'))
  for (const outer of ['text', [], null, 5]) refused(t, await call({ outer }, { 'Mcp-Param-Inner': 'y' }), 400, surplus('Inner'))
})

t.test('a value of another type than declared is compared as text, and then is the tool\'s to refuse', async (t) => {
  const { call, seen } = await serveRoute(t)
  refused(t, await call({ region: ['us'] }, { 'Mcp-Param-Region': 'eu' }), 400, mismatch('Region'))
  const answer = await call({ region: 5 }, { 'Mcp-Param-Region': '5' })
  t.equal(answer.status, 200)
  t.equal(answer.messages[0].result.isError, true)
  t.equal((await call({ region: { toString: 'x' } }, { 'Mcp-Param-Region': 'x' })).status, 400, 'even where it has no text')
  t.same(seen, [])
})

t.test('the rungs before it answer first, and the handshake era knows nothing of it', async (t) => {
  const { call, ...app } = await serveRoute(t)
  const wrong = { 'Mcp-Param-Region': 'eu' }
  refused(t, await call({ region: 'us' }, { ...wrong, 'Mcp-Name': 'echo' }), 400, { id: 1, code: -32020, message: "Mcp-Name header does not match the request body's 'name' parameter" })
  const old = modern('tools/call', { name: 'route', arguments: { region: 'us' }, _meta: { 'io.modelcontextprotocol/protocolVersion': '2027-01-01' } })
  refused(t, await post(app, old, { ...modernHeaders('tools/call', 'route'), 'MCP-Protocol-Version': '2027-01-01', ...wrong }), 400,
    { id: 1, code: -32022, message: 'Unsupported protocol version: 2027-01-01', data: { supported: ['2026-07-28'], requested: '2027-01-01' } })
  const session = await handshake(app)
  const answer = await session.post(request('tools/call', { name: 'route', arguments: { region: 'us' } }), wrong)
  t.same(answer.messages[0].result.structuredContent, { args: { region: 'us' } })
})

t.test('a tool that the caller may not see gives nothing away', async (t) => {
  const { layer } = createKit()
  layer.tool('hidden', { input: route, roles: ['admin'] }, () => 'x')
  const app = await serve(t, { layer, auth: { tokens: ['a:admin', 'b'] } })
  const call = (token: string) => postModern(app, 'tools/call', { name: 'hidden', arguments: { region: 'us' } }, { authorization: `Bearer ${token}` })
  refused(t, await call('a'), 400, absent('Region'))
  t.same((await call('b')).messages[0].error, { code: -32602, message: 'Unknown tool: hidden', data: { name: 'hidden' } })
})

t.test('a zod schema can declare it too, and a prefixed name is found', async (t) => {
  const { layer } = createKit({ prefix: 'p_' })
  layer.tool('route', { input: { region: z.string().meta({ 'x-mcp-header': 'Region' }) } }, ({ region }) => ({ region }))
  const app = await serve(t, { layer })
  refused(t, await postModern(app, 'tools/call', { name: 'p_route', arguments: { region: 'us' } }), 400, absent('Region'))
  t.equal((await postModern(app, 'tools/call', { name: 'p_route', arguments: { region: 'us' } }, { 'Mcp-Param-Region': 'us' })).status, 200)
  const list = await postModern(app, 'tools/list')
  t.equal(list.json.result.tools.find(({ name }: any) => name === 'p_route').inputSchema.properties.region['x-mcp-header'], 'Region')
})

t.test('XP-14 what no client could send is refused at registration', async (t) => {
  const { layer } = createKit()
  const register = (input: object) => () => { layer.tool('bad', { input: input as any }, () => 'x') }
  const property = (schema: object) => register({ type: 'object', properties: { p: schema } })
  const bad: [string, () => void][] = [
    ['object', property({ type: 'object', 'x-mcp-header': 'P' })],
    ['array', property({ type: 'array', 'x-mcp-header': 'P' })],
    ['number', property({ type: 'number', 'x-mcp-header': 'P' })],
    ['null', property({ type: 'null', 'x-mcp-header': 'P' })],
    ['no type', property({ 'x-mcp-header': 'P' })],
    ['a union of types', property({ type: ['string', 'null'], 'x-mcp-header': 'P' })],
    ['inside allOf', register({ type: 'object', allOf: [{ properties: { p: { type: 'string', 'x-mcp-header': 'P' } } }] })],
    ['inside anyOf of a property', property({ anyOf: [{ type: 'string', 'x-mcp-header': 'P' }] })],
    ['inside items', property({ type: 'array', items: { type: 'string', 'x-mcp-header': 'P' } })],
    ['inside $defs', register({ type: 'object', $defs: { d: { type: 'string', 'x-mcp-header': 'P' } }, properties: { p: { $ref: '#/$defs/d' } } })],
    ['inside patternProperties', register({ type: 'object', patternProperties: { '^p': { type: 'string', 'x-mcp-header': 'P' } } })],
    ['on the root', register({ type: 'object', 'x-mcp-header': 'P' })],
    ...['', ' ', 'a b', 'ä', 'a:b', 'a\r\nb', 'a/b'].map((name): [string, () => void] => [`named ${JSON.stringify(name)}`, property({ type: 'string', 'x-mcp-header': name })]),
    ['named 5', property({ type: 'string', 'x-mcp-header': 5 })],
    ['twice', register({ type: 'object', properties: { a: { type: 'string', 'x-mcp-header': 'P' }, b: { type: 'object', properties: { c: { type: 'string', 'x-mcp-header': 'p' } } } } })]
  ]
  for (const [title, run] of bad) t.throws(run, { code: 'CLOUDG_MCP_ERR_INVALID_SCHEMA', message: /x-mcp-header/ }, title)
  t.equal(layer.list('tools', { id: 'x', roles: new Set() }).length, 8)
})
