// Which hosted server serves whom: what one client may never get of another, and what one instance for all cannot do.

import { Server as Server1 } from '@modelcontextprotocol/sdk/server/index.js'
import { McpServer as McpServer1 } from '@modelcontextprotocol/sdk/server/mcp.js'
import { CallToolRequestSchema, ElicitResultSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { createMcpHandler, fromJsonSchema, InMemoryServerEventBus, inputRequired, McpServer as McpServer2 } from '@modelcontextprotocol/server'
import t, { type Test } from 'tap'
import { hostServer } from '../../lib/adapters/index.js'
import type { FactoryContext, HostedLayer } from '../../lib/adapters/index.js'
import type { Principal } from '../../lib/principal.js'
import { principal } from '../../lib/principal.js'
import { ProtocolServer } from '../../lib/protocol/server.js'
import type { Session } from '../../lib/protocol/session.js'
import { createKit, initialize, INITIALIZED, modern, request } from '../kit.js'

const alice = principal({ id: 'alice', roles: ['analyst'] })
const bob = principal({ id: 'bob' })
const ASKS = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} } }
const form = { type: 'object' as const, properties: { name: { type: 'string' as const } } }
const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] })

async function serving (t: Test, layer: HostedLayer): Promise<ProtocolServer> {
  const server = new ProtocolServer(layer)
  await layer.start()
  t.teardown(async () => {
    await server.close()
    await layer.stop()
    if (layer.running > 0) throw new Error(`${layer.running} servers are left`)
  })
  return server
}

/** A 2026 request over HTTP: nothing connects it with any other. */
async function single (server: ProtocolServer, who: Principal, message: ReturnType<typeof modern>, headers = {}): Promise<any> {
  const session = server.createSession({ transport: 'http', register: false })
  return session.handle(message, { principal: who, request: { transport: 'http', headers, principal: who } })
}

const call = (name: string, args = {}, more = {}) => modern('tools/call', { name, arguments: args, ...more })

/** A handshake connection that answers what it is asked. */
async function connection (server: ProtocolServer, who: Principal, capabilities: Record<string, any> = {}): Promise<Session> {
  const session: Session = server.createSession({
    transport: 'memory',
    principal: who,
    send: ({ id, method }: any) => { if (method === 'elicitation/create') setImmediate(() => { void session.handle({ jsonrpc: '2.0', id, result: { action: 'accept', content: { name: who.id } } }) }) }
  })
  await session.handle(initialize('2025-11-25', 'init', capabilities))
  await session.handle(INITIALIZED)
  return session
}

/** Counts in the instance, as a server with a session of its own may do. */
function counting (): McpServer1 {
  let count = 0
  const server = new McpServer1({ name: 'counting', version: '1.0.0' })
  server.registerTool('count', {}, () => text(String(++count)))
  server.registerTool('ask', {}, async () => text(JSON.stringify(await server.server.elicitInput({ message: 'Who?', requestedSchema: form }))))
  return server
}

t.test('every connection has a server of its own, which goes with it', async (t) => {
  const layer = hostServer(counting)
  const server = await serving(t, layer)
  const [one, two] = [await connection(server, alice), await connection(server, alice)]
  const count = async (session: Session): Promise<string> => (await session.handle(request('tools/call', { name: 'count' })) as any).result.content[0].text
  t.equal(await count(one), '1')
  t.equal(await count(one), '2')
  t.equal(await count(two), '1')
  t.equal(layer.running, 3)
  one.close()
  t.equal(await count(two), '2')
  await new Promise((resolve) => { setImmediate(resolve) })
  t.equal(layer.running, 2)
  two.close()
})

t.test('without a connection, callers are kept apart by who they are and what their clients can do', async (t) => {
  const server = await serving(t, hostServer(counting))
  const count = async (who: Principal, message = call('count')): Promise<string> => (await single(server, who, message)).result.content[0].text
  t.equal(await count(alice), '1')
  t.equal(await count(bob), '1', 'another principal')
  t.equal(await count(alice), '2')
  t.equal(await count(alice, call('count', {}, { _meta: ASKS })), '1', 'another client')
})

t.test('a server for every call, where nothing may be kept', async (t) => {
  const layer = hostServer(counting, { perRequest: true })
  const server = await serving(t, layer)
  for (let n = 0; n < 3; n++) t.equal((await single(server, alice, call('count'))).result.content[0].text, '1')
  await new Promise((resolve) => { setImmediate(resolve) })
  t.equal(layer.running, 1)
})

t.test('a factory that asks for whom gets to know, and other rights are another server', async (t) => {
  const contexts: FactoryContext[] = []
  const layer = hostServer((context: FactoryContext) => {
    contexts.push(context)
    const server = new McpServer1({ name: 'selective', version: '1.0.0' })
    server.registerTool('anyone', {}, () => text('yes'))
    if (context.principal?.roles.has('admin') === true) server.registerTool('reset', {}, () => text('done'))
    return server
  })
  const server = await serving(t, layer)
  const admin = principal({ id: 'alice', roles: ['admin'] })
  const tools = async (who: Principal, headers = {}) => (await single(server, who, modern('tools/list'), headers)).result.tools.map(({ name }: any) => name)
  t.same(await tools(alice), ['anyone'])
  t.same(await tools(admin, { authorization: 'Bearer new' }), ['anyone', 'reset'])
  t.same(await tools(alice), ['anyone'], 'rights that were taken back are gone')
  t.same(contexts[0], { era: 'legacy' }, 'the first one says what there is')
  t.match(contexts[2], { era: 'legacy', principal: admin, authInfo: { token: 'new', clientId: 'alice', scopes: ['admin'] } })
  t.equal(contexts[2]!.requestInfo!.headers.get('authorization'), 'Bearer new')
  t.equal(contexts.length, 3)

  const session = await connection(server, alice)
  const live = async (who: Principal) => ((await session.handle(request('tools/list'), { principal: who })) as any).result.tools.length
  t.equal(await live(alice), 1)
  t.equal(await live(admin), 2)
  t.equal(await live(alice), 1)
  session.close()
})

t.test('servers that wait do not pile up', async (t) => {
  const layer = hostServer(counting, { maxServers: 4 })
  const server = await serving(t, layer)
  for (let n = 0; n < 12; n++) {
    t.notOk((await single(server, principal({ id: `caller-${n}` }), call('count'))).error)
    t.ok(layer.running <= 4)
  }
  t.throws(() => hostServer(counting, { maxServers: 0 }), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message: /maxServers/ })
})

t.test('a question of 1.x ends the call, cancels the handler, and is answered in a run of its own', async (t) => {
  const runs: { aborted: boolean }[] = []
  const server = await serving(t, hostServer(() => {
    const mcp = new McpServer1({ name: 'asking', version: '1.0.0' })
    mcp.registerTool('two', {}, async ({ signal }) => {
      const run = { aborted: false }
      runs.push(run)
      signal.addEventListener('abort', () => { run.aborted = true })
      const first = await mcp.server.elicitInput({ message: 'First?', requestedSchema: form })
      const second = await mcp.server.elicitInput({ message: 'Second?', requestedSchema: form })
      return text([first, second].map(({ content }) => String(content?.['name'])).join(' '))
    })
    return mcp
  }))
  const round = async (answer?: string, state?: string, asked: Record<string, any> = {}): Promise<any> => {
    const inputResponses = Object.fromEntries(Object.keys(asked).map((key) => [key, { action: 'accept', content: { name: answer } }]))
    return (await single(server, alice, call('two', {}, { _meta: ASKS, ...(state && { requestState: state, inputResponses }) }))).result
  }
  const one = await round()
  t.match(one, { resultType: 'input_required', requestState: String })
  t.match(Object.values(one.inputRequests), [{ method: 'elicitation/create', params: { message: 'First?' } }])
  const two = await round('Ada', one.requestState, one.inputRequests)
  t.match(Object.values(two.inputRequests), [{ params: { message: 'Second?' } }])
  const three = await round('Lovelace', two.requestState, two.inputRequests)
  t.match(three, { resultType: 'complete', content: [{ text: 'Ada Lovelace' }] })
  t.same(runs.map(({ aborted }) => aborted), [true, true, false])
})

t.test('a question that the client cannot be asked', async (t) => {
  const server = await serving(t, hostServer(() => {
    const mcp = new McpServer1({ name: 'asking', version: '1.0.0' })
    mcp.registerTool('needs', {}, async () => text(JSON.stringify(await mcp.server.createMessage({ messages: [], maxTokens: 1 }))))
    mcp.registerTool('tries', {}, async () => {
      await mcp.server.createMessage({ messages: [], maxTokens: 1 }).catch(() => {})
      return text('did without')
    })
    return mcp
  }))
  t.match((await single(server, alice, call('needs'))).error, { code: -32021, data: { requiredCapabilities: { sampling: {} } } })
  t.match((await single(server, alice, call('tries'))).result, { content: [{ text: 'did without' }] })
  const session = await connection(server, alice)
  t.match((await session.handle(request('tools/call', { name: 'needs' })) as any).result, { isError: true, content: [{ text: /did not declare the capability sampling/ }] })
  session.close()
})

// ---- one instance for all

function lowInstance (): Server1 {
  const server = new Server1({ name: 'one', version: '1.0.0' }, { capabilities: { tools: {}, logging: {} } })
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [{ name: 'any', inputSchema: { type: 'object' } }] }))
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    switch (params.name) {
      case 'elicit': return text(JSON.stringify(await server.elicitInput({ message: 'Who?', requestedSchema: form })))
      case 'sample': return text(JSON.stringify(await server.createMessage({ messages: [], maxTokens: 1 })))
      case 'roots': return text(JSON.stringify(await server.listRoots()))
      case 'related': return text(JSON.stringify(await extra.sendRequest({ method: 'elicitation/create', params: { message: 'Who?', requestedSchema: form } }, ElicitResultSchema)))
      default: return text(`${extra.sessionId} ${extra.authInfo?.clientId}`)
    }
  })
  return server
}

t.test('one instance serves all clients, and refuses at once what it cannot do', async (t) => {
  const layer = hostServer(lowInstance())
  const server = await serving(t, layer)
  for (const who of [alice, bob]) t.match((await single(server, who, call('any'))).result, { content: [{ text: `undefined ${who.id}` }] }, 'each call has its own caller')
  const session = await connection(server, alice, { elicitation: {}, sampling: {}, roots: {} })
  const outcome = async (name: string) => (await session.handle(request('tools/call', { name })) as any)
  t.match((await outcome('elicit')).error, { code: -32603, message: /does not support form elicitation/ }, 'the SDK knows of no client')
  for (const name of ['sample', 'roots']) t.match((await outcome(name)).error, { code: -32600, message: /one instance for all clients.*function that makes a server/ })
  t.match((await outcome('related')).result, { content: [{ text: /"name":"alice"/ }] }, 'a question that names its call finds its client')
  t.equal(layer.running, 1)
  session.close()
})

t.test('an instance of 2.x, too', async (t) => {
  const mcp = new McpServer2({ name: 'one', version: '2.0.0' })
  mcp.registerTool('ask', {}, () => inputRequired({ inputRequests: { who: inputRequired.elicit({ message: 'Who?', requestedSchema: form }) } }) as any)
  const server = await serving(t, hostServer(mcp))
  t.match((await single(server, alice, call('ask', {}, { _meta: ASKS }))).result, { isError: true, content: [{ text: /did not declare the required capability/ }] })
})

t.test('an instance may be stopped and started', async (t) => {
  const instance = lowInstance()
  const layer = hostServer(instance)
  for (let n = 0; n < 2; n++) {
    await layer.start()
    t.equal(layer.info.name, 'one')
    await layer.stop()
    t.equal(instance.transport, undefined)
  }
})

// ---- what is not there, and what goes wrong

t.test('what cannot be hosted says so', async (t) => {
  t.throws(() => hostServer(createKit().layer), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /This is a layer/ })
  t.throws(() => hostServer(createMcpHandler(() => new McpServer2({ name: 'x', version: '1' }))), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /give the factory that it was made from/ })
  t.throws(() => hostServer(McpServer1), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /class McpServer.*new McpServer/ })
  await t.rejects(hostServer(() => ({ nothing: true })).start(), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /The factory made.*nothing/ })
  const connected = lowInstance()
  await connected.connect({ async start () {}, async send () {}, async close () {} } as never)
  await t.rejects(hostServer(connected).start(), { message: /connected already/ })
  await connected.close()
})

t.test('all pages of a list are one, and unknown methods are empty lists', async (t) => {
  const paged = new Server1({ name: 'paged', version: '1.0.0' }, { capabilities: { tools: {}, resources: {} } })
  const tool = (name: string) => ({ name, inputSchema: { type: 'object' as const }, execution: { taskSupport: 'optional' as const } })
  paged.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
    const page = Number(params?.cursor ?? 0)
    return { tools: [tool(`tool-${page}`)], ...(page < 3 && { nextCursor: String(page + 1) }) }
  })
  const server = await serving(t, hostServer(paged))
  const { tools } = (await single(server, alice, modern('tools/list'))).result
  t.same(tools, [0, 1, 2, 3].map((page) => ({ name: `tool-${page}`, inputSchema: { type: 'object' } })), '2026 knows no tasks')
  t.same((await single(server, alice, modern('resources/templates/list'))).result.resourceTemplates, [])
  const session = await connection(server, alice)
  t.same((await session.handle(request('tools/list')) as any).result.tools[0], tool('tool-0'), 'untouched')
  session.close()
})

t.test('the bus of SDK 2.x, and parameters in headers', async (t) => {
  const bus = new InMemoryServerEventBus()
  const layer = hostServer(() => {
    const mcp = new McpServer2({ name: 'two', version: '2.0.0' })
    mcp.registerTool('routed', { inputSchema: fromJsonSchema({ type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } } } as never) }, () => text('routed'))
    return mcp
  }, { bus })
  await serving(t, layer)
  t.same(await layer.headerParams('routed', alice), [{ header: 'mcp-param-region', name: 'Region', path: ['region'], type: 'string' }])
  t.same(await layer.headerParams('other', alice), [])
  const events: unknown[] = []
  const told = new Promise<void>((resolve) => {
    layer.onChange((event) => { if (events.push(event) === 2) resolve() })
  })
  for (let n = 0; n < 3; n++) bus.publish({ kind: 'prompts_list_changed' })
  bus.publish({ kind: 'resource_updated', uri: 'x://y' })
  await told
  t.same(events, [{ kind: 'prompts' }, { kind: 'resource', uri: 'x://y' }], 'each change once')
})
