// Eras: the handshake and its revisions, the stateless revision 2026-07-28, and what one connection serves of them.

import t from 'tap'
import { createLayer } from '../../lib/layer/index.js'
import type { Layer, Logger } from '../../lib/layer/index.js'
import { createKit, ENV, initialize, INITIALIZED, modern, request, TOOLS } from '../kit.js'
import { connect, connectAt } from './connection.js'

const HANDSHAKE = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']
const ALL = [...HANDSHAKE, '2026-07-28']
const SERVER = 'io.modelcontextprotocol/serverInfo'
const CAPABILITIES = {
  tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: { listChanged: true }, logging: {}, completions: {}
}
const STAMP = { resultType: 'complete', _meta: { [SERVER]: { name: 'kit', version: '1.2.3', title: 'Kit' } } }

function refusal (id: unknown, code: number, message: string, data?: unknown): object {
  return { jsonrpc: '2.0', id, error: { code, message, ...(data !== undefined && { data }) } }
}

// ---- the handshake

t.test('LC-01 initialize answers with the revision, what is offered, and who answers', async (t) => {
  const { handle } = connect(createKit().layer)
  t.strictSame(await handle(initialize('2025-06-18', 0)), {
    jsonrpc: '2.0',
    id: 0,
    result: {
      protocolVersion: '2025-06-18',
      capabilities: CAPABILITIES,
      serverInfo: { name: 'kit', version: '1.2.3', title: 'Kit' },
      instructions: 'A kit for tests'
    }
  })
})

t.test('every handshake revision is kept', async (t) => {
  for (const version of HANDSHAKE) {
    const { handle, session } = connect(createKit().layer)
    t.match(await handle(initialize(version)), { result: { protocolVersion: version } })
    t.equal(session.protocolVersion, version)
    t.ok(session.initialized)
  }
})

t.test('LC-02 an unknown revision gets the latest of the handshake', async (t) => {
  for (const version of ['1999-01-01', '2026-07-28', '2099-01-01', '', 'latest', '2025-06-18 ']) {
    const { handle } = connect(createKit().layer)
    t.match(await handle(initialize(version)), { result: { protocolVersion: '2025-11-25' } }, `'${version}'`)
  }
})

t.test('LC-04 2024-11-05 has no completions capability, and no title', async (t) => {
  const { handle } = connect(createKit().layer)
  const { completions: _, ...capabilities } = CAPABILITIES
  t.strictSame(await handle(initialize('2024-11-05', 1)), {
    jsonrpc: '2.0',
    id: 1,
    result: { protocolVersion: '2024-11-05', capabilities, serverInfo: { name: 'kit', version: '1.2.3' }, instructions: 'A kit for tests' }
  })
  t.match(await handle(request('completion/complete', { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'a' } })),
    { result: { completion: { values: ['alpha'] } } }, 'the method is there all the same')
})

t.test('LC-05 LC-06 before initialize only ping is served', async (t) => {
  const { handle, session } = connect(createKit().layer)
  for (const method of ['tools/list', 'tools/call', 'logging/setLevel', 'nope/nope', 'server/discover']) {
    t.strictSame(await handle(request(method, {}, 4)), refusal(4, -32600, 'Server not initialized: send initialize first'), method)
  }
  t.strictSame(await handle(request('ping', undefined, 5)), { jsonrpc: '2.0', id: 5, result: {} })
  await handle(INITIALIZED)
  t.match(await handle(request('tools/list')), { error: { code: -32600 } }, 'the notification alone initializes nothing')
  t.equal(session.era, undefined)
  t.match(await handle(initialize()), { result: { protocolVersion: '2025-11-25' } })
})

t.test('LC-08 initialize needs a revision as text; nothing is initialized without', async (t) => {
  for (const protocolVersion of [undefined, null, 7, {}, ['2025-11-25'], true]) {
    const { handle, session } = connect(createKit().layer)
    t.strictSame(await handle(request('initialize', { protocolVersion }, 2)), refusal(2, -32602, 'initialize requires a protocolVersion string'))
    t.strictSame(await handle({ jsonrpc: '2.0', id: 2, method: 'initialize' }), refusal(2, -32602, 'initialize requires a protocolVersion string'))
    t.notOk(session.initialized)
    t.match(await handle(request('tools/list')), { error: { code: -32600 } })
    t.match(await handle(initialize()), { result: {} }, 'a second try may succeed')
  }
  const { handle, session } = connect(createKit().layer)
  await handle(request('initialize', { protocolVersion: 5 }))
  t.equal(session.era, undefined)
  t.match(await handle(modern('server/discover')), { result: { resultType: 'complete' } }, 'nor is the era decided by one that failed')
})

t.test('a session is initialized once', async (t) => {
  const { handle } = await connectAt('2025-06-18', createKit().layer)
  t.strictSame(await handle(initialize('2025-11-25', 3)), refusal(3, -32600, 'Session already initialized'))
  const twice = connect(createKit().layer)
  const [one, other] = await Promise.all([twice.handle(initialize('2025-06-18', 1)), twice.handle(initialize('2025-11-25', 2))])
  t.strictSame(other, refusal(2, -32600, 'Session already initialized'), 'also while the first is being answered')
  t.match(one, { result: { protocolVersion: '2025-06-18' } })
  t.equal(twice.session.protocolVersion, '2025-06-18')
})

t.test('initialize with odd capabilities and client info is served', async (t) => {
  for (const odd of [null, 'x', 7, [], true]) {
    const { handle, session } = connect(createKit().layer)
    t.match(await handle(request('initialize', { protocolVersion: '2025-11-25', capabilities: odd, clientInfo: odd })), { result: {} })
    t.strictSame(session.record.capabilities, {})
    t.equal(session.record.clientInfo, undefined)
  }
})

t.test('LC-09 an unknown method is refused with its name', async (t) => {
  const { handle } = await connectAt('2025-11-25', createKit().layer)
  t.strictSame(await handle(request('tools/frobnicate', {}, 8)), refusal(8, -32601, 'Method not found', 'tools/frobnicate'))
})

t.test('LC-11 a server without a title, description and instructions sends none', async (t) => {
  const layer = createLayer({ name: 'plain', version: '1', instructions: '' })
  const { handle } = connect(layer)
  const { result } = await handle(initialize())
  t.strictSame(result.serverInfo, { name: 'plain', version: '1' })
  t.notOk('instructions' in result)
  t.notOk('instructions' in (await connect(layer).handle(modern('server/discover'))).result)
})

t.test('RPC-12 once initialize was answered every request is served, with and without `initialized`', async (t) => {
  for (const version of HANDSHAKE) {
    const { handle } = connect(createKit().layer)
    await handle(initialize(version))
    t.strictSame(await handle(request('logging/setLevel', { level: 'error' })), { jsonrpc: '2.0', id: 1, result: {} }, version)
    t.match(await handle(request('tools/list')), { result: { tools: TOOLS.map((name) => ({ name })) } })
    t.match(await handle(request('tools/call', { name: 'stats' })), { result: { isError: false } })
    t.match(await handle(request('resources/subscribe', { uri: 'test://info' })), { result: {} })
  }
})

t.test('a layer that does not offer a family neither advertises it nor answers for it', async (t) => {
  const kit = createKit().layer
  const layer: Layer = {
    info: kit.info,
    capabilities: { prompts: false, completions: false },
    list: (kind, who) => kit.list(kind, who),
    callTool: (name, args, port) => kit.callTool(name, args, port),
    readResource: (uri, port) => kit.readResource(uri, port),
    getPrompt: () => { throw new Error('not offered') },
    complete: () => { throw new Error('not offered') },
    onChange: () => () => {},
    viewOf: () => undefined
  }
  const { handle } = connect(layer)
  const { result } = await handle(initialize())
  t.strictSame(Object.keys(result.capabilities), ['tools', 'resources', 'logging'])
  const stateless = connect(layer)
  t.strictSame(Object.keys((await stateless.handle(modern('server/discover'))).result.capabilities), ['tools', 'resources', 'logging'])
  for (const method of ['prompts/list', 'prompts/get', 'completion/complete']) {
    t.strictSame(await handle(request(method, {}, 1)), refusal(1, -32601, 'Method not found', method))
    t.strictSame(await stateless.handle(modern(method)), refusal(1, -32601, 'Method not found', method))
  }
  t.match(await handle(request('tools/call', { name: 'echo', arguments: { text: 'a' } })), { result: { structuredContent: { text: 'a' } } })
})

t.test('where nothing can carry changes, none are advertised', async (t) => {
  const { handle } = connect(createKit().layer, { changes: false })
  t.strictSame((await handle(initialize())).result.capabilities, { tools: {}, resources: {}, prompts: {}, logging: {}, completions: {} })
})

// ---- 2026-07-28

t.test('MO-01 RPC-18 server/discover tells of every revision', async (t) => {
  const { handle } = connect(createKit().layer)
  t.strictSame(await handle(modern('server/discover', {}, 'd')), {
    jsonrpc: '2.0',
    id: 'd',
    result: { supportedVersions: ALL, capabilities: CAPABILITIES, instructions: 'A kit for tests', ttlMs: 0, cacheScope: 'private', ...STAMP }
  })
})

t.test('MO-02 tools/list is stamped and has cache hints', async (t) => {
  const { handle } = connect(createKit().layer)
  const { result } = await handle(modern('tools/list'))
  t.same(result.tools.map(({ name }: any) => name), TOOLS)
  t.strictSame({ ...result, tools: 0 }, { tools: 0, ttlMs: 0, cacheScope: 'private', ...STAMP })
  for (const [method, key] of [['resources/list', 'resources'], ['resources/templates/list', 'resourceTemplates'], ['prompts/list', 'prompts']] as const) {
    const { result } = await handle(modern(method))
    t.equal(result[key].length, 1)
    t.strictSame({ ...result, [key]: 0 }, { [key]: 0, ttlMs: 0, cacheScope: 'private', ...STAMP }, method)
  }
})

t.test('MO-03 tools/call is stamped and has no cache hints', async (t) => {
  const { handle } = connect(createKit().layer)
  const { result } = await handle(modern('tools/call', { name: 'echo', arguments: { text: 'hi' } }))
  const duration = result._meta['cloudg/duration_ms']
  t.ok(Number.isInteger(duration))
  t.strictSame(result, {
    content: [{ type: 'text', text: '{\n  "text": "hi"\n}' }],
    structuredContent: { text: 'hi' },
    isError: false,
    ...STAMP,
    _meta: { ...STAMP._meta, 'cloudg/duration_ms': duration }
  })
  const failed = await handle(modern('tools/call', { name: 'fail' }))
  t.match(failed, { result: { isError: true, resultType: 'complete', _meta: { ...STAMP._meta, 'cloudg/error_code': 'handler_error' } } }, 'a failed call too')
  t.notOk('ttlMs' in failed.result)
  t.strictSame((await handle(modern('prompts/get', { name: 'greet', arguments: { name: 'Ann' } }))).result,
    { messages: [{ role: 'user', content: { type: 'text', text: 'Hi Ann!' } }], description: 'Greets somebody', ...STAMP })
  t.strictSame((await handle(modern('completion/complete', { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'a' } }))).result,
    { completion: { values: ['alpha'], total: 1, hasMore: false }, ...STAMP })
})

t.test('MO-04 resources/read has cache hints, of the kind that the server is told', async (t) => {
  const read = modern('resources/read', { uri: 'test://info' })
  t.strictSame(await connect(createKit().layer).handle(read), {
    jsonrpc: '2.0',
    id: 1,
    result: {
      contents: [{ uri: 'test://info', mimeType: 'application/json', text: '{\n  "hello": "world"\n}' }],
      ttlMs: 0,
      cacheScope: 'private',
      ...STAMP
    }
  })
  const hinted = connect(createKit().layer, { cache: { ttl: 5000, scope: 'public' } })
  for (const message of [read, modern('tools/list'), modern('server/discover')]) {
    t.match(await hinted.handle(message), { result: { ttlMs: 5000, cacheScope: 'public' } }, message.method)
  }
  const { layer } = createKit()
  layer.tool('for_admins', { roles: ['admin'] }, () => 1)
  const guarded = connect(layer, { cache: { ttl: 5000, scope: 'public' } })
  t.match(await guarded.handle(modern('tools/list')), { result: { ttlMs: 5000, cacheScope: 'private' } }, 'never public where it depends on the caller')
})

t.test('MO-05 an envelope without clientCapabilities is refused by name', async (t) => {
  const { handle, session } = connect(createKit().layer)
  const _meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' }
  t.strictSame(await handle(request('tools/list', { _meta }, 6)),
    refusal(6, -32602, 'params._meta is missing the required envelope key(s): io.modelcontextprotocol/clientCapabilities'))
  t.equal(session.era, undefined, 'and decides nothing')
  t.match(await handle(request('tools/list', { _meta: { ..._meta, 'io.modelcontextprotocol/clientCapabilities': null } })), { result: {} }, 'the key is what counts')
})

t.test('MO-06 RPC-18 a revision that is not served is refused with those that are', async (t) => {
  const { handle, session } = connect(createKit().layer)
  const of = (version: unknown): object => request('tools/list', { _meta: { ...ENV, 'io.modelcontextprotocol/protocolVersion': version } }, 6)
  for (const version of ['2099-01-01', '2025-11-25', '', '2026-07-28 ']) {
    t.strictSame(await handle(of(version)), refusal(6, -32022, `Unsupported protocol version: ${version}`, { supported: ['2026-07-28'], requested: version }), `'${version}'`)
  }
  for (const version of [null, 20260728, {}, ['2026-07-28']]) {
    t.strictSame(await handle(of(version)), refusal(6, -32602, 'the protocol-version envelope value must be a string'))
  }
  t.equal(session.era, undefined)
  t.match(await handle(initialize()), { result: {} }, 'the connection may still shake hands')
})

t.test('MO-07 what 2026 has left behind does not exist in it', async (t) => {
  const { handle } = connect(createKit().layer)
  for (const method of ['ping', 'logging/setLevel', 'resources/subscribe', 'resources/unsubscribe', 'roots/list', 'sampling/createMessage']) {
    t.strictSame(await handle(modern(method, { uri: 'test://info', level: 'info' }, 2)), refusal(2, -32601, 'Method not found', method))
  }
})

t.test('MO-08 a connection that serves 2026 takes no initialize', async (t) => {
  const { handle } = connect(createKit().layer)
  await handle(modern('server/discover'))
  const message = 'connection is serving the 2026-07-28 protocol; initialize is not accepted'
  t.strictSame(await handle(initialize('2025-11-25', 2)), refusal(2, -32022, message, { supported: ['2026-07-28'], requested: '2025-11-25' }))
  t.strictSame(await handle(request('initialize', { protocolVersion: 7 }, 2)), refusal(2, -32022, message, { supported: ['2026-07-28'] }))
  t.strictSame(await handle(modern('initialize', {}, 2)), refusal(2, -32022, message, { supported: ['2026-07-28'] }))
})

t.test('a request without an envelope on a 2026 connection is told what it lacks', async (t) => {
  const { handle } = connect(createKit().layer)
  await handle(modern('server/discover'))
  const message = "params._meta must be an object carrying the required 'io.modelcontextprotocol/protocolVersion' and 'io.modelcontextprotocol/clientCapabilities' envelope keys"
  for (const params of [undefined, {}, { _meta: {} }, { _meta: null }, { _meta: 'x' }, { _meta: [] }, { _meta: { progressToken: 1 } }]) {
    t.strictSame(await handle({ jsonrpc: '2.0', id: 3, method: 'tools/list', ...(params && { params }) }), refusal(3, -32602, message))
  }
  t.strictSame(await handle(request('ping', undefined, 3)), refusal(3, -32602, message))
})

t.test('MO-10 an envelope on a handshake session is refused', async (t) => {
  for (const version of HANDSHAKE) {
    const { handle } = await connectAt(version, createKit().layer)
    t.strictSame(await handle(modern('tools/list', {}, 4)),
      refusal(4, -32600, 'this connection serves the handshake protocol era; requests carrying the 2026-07-28 envelope are not accepted on it'))
  }
})

t.test('MO-11 server/discover is not of the handshake', async (t) => {
  const { handle } = await connectAt('2025-11-25', createKit().layer)
  for (const method of ['server/discover', 'subscriptions/listen']) t.strictSame(await handle(request(method, {}, 4)), refusal(4, -32601, 'Method not found', method))
})

t.test('MO-13 what a handler says of its result stays; an older client never sees it', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('own', {}, () => ({ content: [], resultType: 'com.example/partial', ttlMs: 9, cacheScope: 'public', _meta: { [SERVER]: { name: 'other' }, mine: 1 } }))
  layer.prompt('own', {}, () => ({ messages: [], resultType: 'com.example/partial', ttlMs: 9 }))
  const call = { name: 'own' }
  t.match((await connect(layer).handle(modern('tools/call', call))).result,
    { resultType: 'com.example/partial', ttlMs: 9, cacheScope: 'public', _meta: { [SERVER]: { name: 'other' }, mine: 1 } })
  t.match((await connect(layer).handle(modern('prompts/get', call))).result, { resultType: 'com.example/partial', ttlMs: 9 })
  for (const version of HANDSHAKE) {
    const { handle } = await connectAt(version, layer)
    const { result } = await handle(request('tools/call', call))
    t.strictSame(Object.keys(result).sort(), ['_meta', 'content', 'isError'], version)
    t.strictSame((await handle(request('prompts/get', call))).result, { messages: [] })
  }
})

t.test('nothing of the 2026 stamp is on a handshake result', async (t) => {
  for (const version of HANDSHAKE) {
    const { handle } = await connectAt(version, createKit().layer, { cache: { ttl: 1000, scope: 'public' } })
    const requests = [
      request('tools/list'), request('resources/list'), request('prompts/list'), request('resources/templates/list'), request('resources/read', { uri: 'test://info' }),
      request('tools/call', { name: 'stats' }), request('prompts/get', { name: 'greet', arguments: { name: 'a' } })
    ]
    for (const message of requests) t.notMatch(JSON.stringify(await handle(message)), /resultType|ttlMs|cacheScope|io\.modelcontextprotocol/, `${message.method} ${version}`)
  }
})

t.test('every request of a 2026 connection speaks for itself', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('who', {}, (_args, ctx) => ({ client: ctx.request.clientInfo ?? null, can: ctx.clientCapabilities, era: ctx.era, version: ctx.protocolVersion }))
  const { handle } = connect(layer)
  const call = async (_meta: object): Promise<unknown> => (await handle(modern('tools/call', { name: 'who', _meta }))).result.structuredContent
  const first = { 'io.modelcontextprotocol/clientInfo': { name: 'a', version: '1' }, 'io.modelcontextprotocol/clientCapabilities': { sampling: {} } }
  t.strictSame(await call(first), { client: { name: 'a', version: '1' }, can: { sampling: {} }, era: 'modern', version: '2026-07-28' })
  t.strictSame(await call({}), { client: null, can: {}, era: 'modern', version: '2026-07-28' })
  t.strictSame(await call({ 'io.modelcontextprotocol/clientInfo': 'x', 'io.modelcontextprotocol/clientCapabilities': [] }), { client: null, can: {}, era: 'modern', version: '2026-07-28' })

  const legacy = await connectAt('2025-03-26', layer)
  t.strictSame((await legacy.handle(request('tools/call', { name: 'who' }))).result.content,
    [{ type: 'text', text: JSON.stringify({ client: { name: 'kit-client', version: '0' }, can: {}, era: 'handshake', version: '2025-03-26' }, null, 2) }])
})

t.test('a principal comes from the exchange, else from the session, else from the resolver', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('me', {}, (_args, ctx) => `${ctx.principal.id} ${[...ctx.principal.roles].join(',')}`)
  const me = modern('tools/call', { name: 'me' })
  const text = async (reply: Promise<any>): Promise<string> => (await reply).result.content[0].text
  const named = (id: string): { id: string, roles: Set<string> } => ({ id, roles: new Set(['r']) })
  t.equal(await text(connect(layer).handle(me)), 'local default,local')
  t.equal(await text(connect(layer, {}, { transport: 'http' }).handle(me)), 'anonymous default')
  t.equal(await text(connect(layer, {}, { principal: named('session') }).handle(me)), 'session r')
  t.equal(await text(connect(layer, {}, { principal: named('session') }).handle(me, { principal: named('exchange') })), 'exchange r')
  t.equal(await text(connect(layer, { principalResolver: async ({ transport }) => named(transport) }).handle(me)), 'memory r')
  const errors: unknown[] = []
  const log = { debug () {}, info () {}, warn () {}, error: (...args: unknown[]) => { errors.push(args) } }
  t.equal(await text(connect(layer, { principalResolver: () => { throw new Error('down') }, log }).handle(me)), 'local default,local')
  t.equal(errors.length, 1)
  t.equal(await text(connect(layer, { principalResolver: () => undefined }).handle(me)), 'local default,local')
})

t.test('a crash is logged with its stack, and says nothing to the caller unless that is wanted', async (t) => {
  const logged: any[] = []
  const log: Logger = { debug () {}, info () {}, warn () {}, error: (fields: any, message: string) => { logged.push({ ...fields, message }) }, child: () => log }
  const { layer } = createKit()
  layer.resource('test://crash', {}, () => { throw new Error('boom at /srv/app') })
  layer.prompt('crash', {}, () => { throw new Error('boom at /srv/app') })
  const { handle } = await connectAt('2025-11-25', layer, { log })
  t.match(await handle(request('tools/call', { name: 'fail' })), { result: { content: [{ text: 'Error executing tool fail' }] } })
  t.strictSame(await handle(request('resources/read', { uri: 'test://crash' })), refusal(1, -32603, 'Internal error'))
  t.strictSame(await handle(request('prompts/get', { name: 'crash' })), refusal(1, -32603, 'Internal error'))
  t.same(logged.map(({ err, message }) => [err.message, message]),
    [['boom', 'a tool failed'], ['boom at /srv/app', 'reading a resource failed'], ['boom at /srv/app', 'a prompt failed']])

  const open = await connectAt('2025-11-25', layer, { exposeErrors: true })
  t.match(await open.handle(request('tools/call', { name: 'fail' })), { result: { content: [{ text: 'Error executing tool fail: Error: boom' }] } })
  t.strictSame(await open.handle(request('resources/read', { uri: 'test://crash' })), refusal(1, -32603, 'Internal error: Error: boom at /srv/app'))
})
