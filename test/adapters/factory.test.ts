// A layer in servers that something else makes: the HTTP entry and the stdio entry of SDK 2.x, in both eras.

import { Client, InMemoryTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { createMcpHandler, InMemoryServerEventBus, McpServer, Server } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import t, { type Test } from 'tap'
import { z } from 'zod'
import { bindFactory, registerInto } from '../../lib/adapters/index.js'
import { FanOut } from '../../lib/adapters/fanout.js'
import type { Target } from '../../lib/adapters/fanout.js'
import { silent } from '../../lib/layer/context.js'
import { createKit, modern, modernHeaders, TOOLS } from '../kit.js'

const MODERN = { versionNegotiation: { mode: { pin: '2026-07-28' } } } as const

function createHost (): McpServer {
  const server = new McpServer({ name: 'host', version: '1.0.0' })
  server.registerTool('add', { inputSchema: z.object({ a: z.number(), b: z.number() }) }, ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }] }))
  return server
}

async function connected (t: Test, handler: { fetch: (request: Request, options?: any) => Promise<Response> }, options: object, authInfo?: object): Promise<Client> {
  const client = new Client({ name: 'peer', version: '2' }, { capabilities: { elicitation: { form: {} } }, ...options })
  client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: 'Ada' } }))
  const transport = new StreamableHTTPClientTransport(new URL('http://127.0.0.1/mcp'), { fetch: async (url, init) => handler.fetch(new Request(url, init as RequestInit), authInfo && { authInfo }) })
  t.teardown(async () => client.close())
  await client.connect(transport)
  return client
}

for (const [era, options] of [['2026-07-28', MODERN], ['2025-11-25, stateless', {}]] as const) {
  t.test(`createMcpHandler(bindFactory(…)) at ${era}`, async (t) => {
    const { layer } = createKit()
    layer.tool('asking', {}, async (_args, ctx) => (await ctx.elicit('Your name?', { name: z.string() })).content)
    layer.tool('secret', { roles: ['admin'] }, () => 'for admins')
    layer.tool('who', {}, (_args, ctx) => ctx.principal.id)
    const factory = bindFactory(createHost, layer)
    const handler = createMcpHandler(factory)
    t.teardown(async () => {
      await handler.close()
      factory.uninstall()
    })
    const client = await connected(t, handler, options)
    const { tools } = await client.listTools()
    t.same(tools.map(({ name }) => name), ['add', ...TOOLS, 'asking', 'who'])
    t.match(await client.callTool({ name: 'add', arguments: { a: 1, b: 2 } }), { content: [{ text: '3' }] })
    t.match(await client.callTool({ name: 'stats', arguments: {} }), { structuredContent: { count: 4 } })
    const progress: number[] = []
    await client.callTool({ name: 'slow', arguments: { steps: 2 } }, { onprogress: (one) => { progress.push(one.progress) } })
    t.same(progress, [1, 2])
    t.match(await client.readResource({ uri: 'test://items/beta' }), { contents: [{ text: /"index": 1/ }] })
    t.same((await client.complete({ ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'a' } })).completion.values, ['alpha'])
    await t.rejects(client.callTool({ name: 'secret', arguments: {} }), { code: -32602 })
    t.match(await client.callTool({ name: 'who', arguments: {} }), { content: [{ text: 'anonymous' }] })
    if (era === '2026-07-28') t.match(await client.callTool({ name: 'asking', arguments: {} }), { structuredContent: { name: 'Ada' } }, 'asked in a round of its own')

    const admin = await connected(t, handler, options, { token: 't', clientId: 'root', scopes: ['admin'] })
    t.match(await admin.callTool({ name: 'secret', arguments: {} }), { content: [{ text: 'for admins' }] })
    t.match(await admin.callTool({ name: 'who', arguments: {} }), { content: [{ text: 'root' }] })
  })
}

t.test('the host\'s check of headers sees the schemas of the layer', async (t) => {
  const { layer } = createKit()
  layer.tool('routed', { input: { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } } } }, ({ region }: any) => region)
  const factory = bindFactory(createHost, layer)
  const handler = createMcpHandler(factory)
  t.teardown(async () => {
    await handler.close()
    factory.uninstall()
  })
  const call = async (headers: Record<string, string>) => {
    const response = await handler.fetch(new Request('http://127.0.0.1/mcp', {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...modernHeaders('tools/call', 'routed'), ...headers },
      body: JSON.stringify(modern('tools/call', { name: 'routed', arguments: { region: 'eu' } }))
    }))
    return [response.status, await response.json()] as [number, any]
  }
  t.match(await call({}), [400, { error: { code: -32020 } }])
  t.match(await call({ 'Mcp-Param-Region': 'us' }), [400, { error: { code: -32020 } }])
  t.match(await call({ 'Mcp-Param-Region': 'eu' }), [200, { result: { content: [{ text: 'eu' }], _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'host' } } } }])
})

t.test('changes reach listen streams over the bus, once each', async (t) => {
  const { layer } = createKit()
  const bus = new InMemoryServerEventBus()
  const factory = bindFactory(createHost, layer)
  const handler = createMcpHandler(factory, { bus })
  factory.publishTo(handler.bus)
  factory.publishTo(handler.bus)
  t.teardown(async () => {
    await handler.close()
    factory.uninstall()
  })
  const client = await connected(t, handler, MODERN)
  const events: unknown[] = []
  const both = new Promise<void>((resolve) => {
    bus.subscribe((event) => { if (events.push(event) === 2) resolve() })
  })
  const updated = new Promise<unknown>((resolve) => client.setNotificationHandler('notifications/resources/updated', ({ params }) => { resolve(params.uri) }))
  const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: ['test://info'] })
  layer.notifyChanged('tools')
  layer.notifyUpdated('test://info')
  await both
  t.equal(await updated, 'test://info')
  t.same(events, [{ kind: 'tools_list_changed' }, { kind: 'resource_updated', uri: 'test://info' }])
  await subscription.close()
})

t.test('serveStdio(bindFactory(…)): changes on the connection itself', async (t) => {
  const { layer } = createKit()
  const [near, far] = InMemoryTransport.createLinkedPair()
  const factory = bindFactory(createHost, layer)
  const server = serveStdio(factory as never, { transport: far as never })
  const client = new Client({ name: 'peer', version: '2' }, MODERN)
  t.teardown(async () => {
    await client.close()
    await server.close()
    factory.uninstall()
  })
  await client.connect(near)
  t.match(await client.callTool({ name: 'stats', arguments: {} }), { structuredContent: { count: 4 } })
  const changed = new Promise<void>((resolve) => client.setNotificationHandler('notifications/tools/list_changed', () => { resolve() }))
  const subscription = await client.listen({ toolsListChanged: true })
  layer.notifyChanged('tools')
  await changed
  await subscription.close()
})

t.test('servers that are made for every request are not held', async (t) => {
  const { layer } = createKit()
  let listeners = 0
  const { onChange } = layer
  layer.onChange = (listener) => {
    listeners++
    const stop = onChange.call(layer, listener)
    return () => {
      listeners--
      stop()
    }
  }
  const handler = createMcpHandler(() => {
    const server = createHost()
    registerInto(server, layer)
    return server
  })
  const client = await connected(t, handler, MODERN)
  await client.listTools()
  const before = listeners
  for (let n = 0; n < 20; n++) await client.callTool({ name: 'echo', arguments: { text: 'x' } })
  t.equal(listeners, before, 'no listener for each')
  await handler.close()

  const fanOut = new FanOut(layer, silent)
  const connection = { transport: undefined as unknown }
  const target = (): Target => ({ server: connection as never, wants: () => true })
  for (let n = 0; n < 1000; n++) fanOut.add(target())
  t.ok(fanOut.size <= 65, 'what has gone is let go of')
  fanOut.close()
})

t.test('a factory for sessions of SDK 2.x `Server`, and what it may not make', async (t) => {
  const { layer } = createKit()
  const factory = bindFactory(async () => new Server({ name: 'low', version: '1.0.0' }, {}), layer, { include: ['tools'] })
  t.ok(factory() instanceof Promise, 'as async as the factory itself')
  const server = await factory()
  t.same(server.getCapabilities(), { tools: { listChanged: true } })
  factory.uninstall()
  t.same((await factory()).getCapabilities(), {})
  t.throws(() => bindFactory(createHost() as never, layer), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION' })
})
