// The kit layer mounted in one server of each kind: what the host had stays as it was, and the layer is there beside it.

import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import t, { type Test } from 'tap'
import { z } from 'zod'
import { bindFactory, registerInto } from '../../lib/adapters/index.js'
import type { BindOptions } from '../../lib/adapters/index.js'
import { ProtocolServer } from '../../lib/protocol/server.js'
import { createKit, TOOLS } from '../kit.js'
import type { Kit } from '../kit.js'
import type { Host, Kind } from './hosts.js'
import { Ears, KINDS } from './hosts.js'

const HOST_TOOLS = ['add', 'echo', 'report', 'wait', 'who', 'ask', 'sample', 'roots', 'fail']

/** A client of a host, and what it has been told. */
class Peer {
  readonly client = new Client({ name: 'peer', version: '1' }, { capabilities: { elicitation: {} } })
  readonly told: { method: string, params?: any }[] = []
  readonly #waiting: (() => void)[] = []

  constructor () {
    this.client.fallbackNotificationHandler = async (notification) => {
      this.told.push(notification as never)
      for (const resolve of this.#waiting.splice(0)) resolve()
    }
    this.client.setRequestHandler(ElicitRequestSchema, ({ params }) => ({ action: 'accept', content: { name: params.message } }))
  }

  async connect (t: Test, host: Host): Promise<this> {
    const [near, far] = InMemoryTransport.createLinkedPair()
    await Promise.all([host.connect(far), this.client.connect(near)])
    t.teardown(async () => {
      await this.client.close()
      await host.close()
    })
    return this
  }

  /** Resolves when the client has been told so. */
  async hears (method: string, matching: (params: any) => boolean = () => true): Promise<any> {
    for (;;) {
      const found = this.told.findIndex((one) => one.method === method && matching(one.params))
      if (found !== -1) return this.told.splice(found, 1)[0]!.params
      await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
    }
  }

  async toolNames (): Promise<string[]> {
    return (await this.client.listTools()).tools.map(({ name }) => name)
  }

  async text (name: string, args: Record<string, unknown> = {}): Promise<string> {
    const result: any = await this.client.callTool({ name, arguments: args })
    return result.content[0].text
  }
}

async function mounted (t: Test, kind: Kind, options: BindOptions = {}) {
  const kit = createKit()
  const ears = new Ears()
  const host = kind.make(ears)
  const warnings: string[] = []
  const log = { debug () {}, info () {}, warn: (message: string) => { warnings.push(message) }, error: t.fail.bind(t) }
  const binding = registerInto(host.server, kit.layer, { log, ...options })
  await binding.ready
  return { kit, ears, host, binding, warnings, peer: await new Peer().connect(t, host) }
}

for (const kind of KINDS) {
  t.test(`mounted in ${kind.name}`, async (t) => {
    const { kit, ears, host, binding, warnings, peer } = await mounted(t, kind)
    const { client } = peer
    const hostTools = HOST_TOOLS.filter((name) => kind.name !== 'FastMCP 4' || !['sample', 'roots'].includes(name))

    t.test('EX-01 lists come from both, the host first, and the host keeps a name that both have', async (t) => {
      const { tools } = await client.listTools()
      t.same(tools.map(({ name }) => name), [...hostTools, ...TOOLS.filter((name) => !hostTools.includes(name))])
      t.match(tools.find(({ name }) => name === 'echo')?.description, /^(Of the host|echo)$/)
      t.match(warnings, [/'echo' among its tools/, /'fail' among its tools/])
      t.match(tools.find(({ name }) => name === 'stats'), { outputSchema: { type: 'object' }, annotations: { readOnlyHint: true } }, 'the layer keeps all that it says')
      const { resources } = await client.listResources()
      t.same(resources.map(({ uri }) => uri), ['host://info', 'test://info'])
      const { resourceTemplates } = await client.listResourceTemplates()
      t.same(resourceTemplates.map(({ uriTemplate }) => uriTemplate), ['host://items/{id}', 'test://items/{item_id}'])
      const { prompts } = await client.listPrompts()
      t.same(prompts.map(({ name }) => name), ['hello', 'greet'])
    })

    t.test('calls go to whoever owns the name', async (t) => {
      t.equal(await peer.text('add', { a: 2, b: 3 }), '5')
      t.equal(await peer.text('echo', { text: 'x' }), 'host: x')
      t.same((await client.callTool({ name: 'stats', arguments: {} })).structuredContent, { count: 4, names: ['alpha', 'beta', 'gamma', 'delta'] })
      t.equal(kit.calls['echo'], undefined)
      t.match((await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } })).messages[0], { content: { text: 'Hi Ada!' } })
      t.match((await client.getPrompt({ name: 'hello', arguments: { name: 'Ada' } })).messages[0], { content: { text: 'Hello Ada' } })
    })

    t.test('an exact result, error and all', async (t) => {
      t.match(await client.callTool({ name: 'fail', arguments: {} }), { isError: true, content: [{ text: 'the host failed' }] })
      t.match(await client.callTool({ name: 'linked', arguments: {} }), { content: [{ type: 'text' }, { type: 'resource_link', uri: 'test://items/alpha' }], _meta: { 'cloudg/duration_ms': Number } })
      t.match(await client.callTool({ name: 'sleepy', arguments: { seconds: 'soon' } }), { isError: true, _meta: { 'cloudg/error_code': -32602 } })
    })

    t.test('progress and log messages reach the caller', async (t) => {
      const progress: unknown[] = []
      await client.callTool({ name: 'slow', arguments: { steps: 2 } }, undefined, { onprogress: (one) => { progress.push(one) } })
      t.same(progress, [{ progress: 1, total: 2, message: 'step 1' }, { progress: 2, total: 2, message: 'step 2' }])
      t.same(await peer.hears('notifications/message'), { level: 'info', data: { step: 1 }, logger: 'kit' })
      await client.setLoggingLevel('error')
      peer.told.length = 0
      await peer.text('slow', { steps: 1 })
      await client.ping()
      t.same(peer.told, [], 'the level counts for the layer')
      await client.setLoggingLevel('debug')
    })

    t.test('resources are read where they are', async (t) => {
      t.match(await client.readResource({ uri: 'test://info' }), { contents: [{ uri: 'test://info', text: /"hello": "world"/ }] })
      t.match(await client.readResource({ uri: 'test://items/beta' }), { contents: [{ text: /"index": 1/ }] })
      t.match(await client.readResource({ uri: 'host://info' }), { contents: [{ text: 'host info' }] })
      t.match(await client.readResource({ uri: 'host://items/9' }), { contents: [{ text: 'item 9' }] })
      await t.rejects(client.readResource({ uri: 'test://items/nope' }), { code: kind.sdk === 1 ? -32002 : -32602, message: /No item nope/, data: { uri: 'test://items/nope' } })
    })

    t.test('completions', async (t) => {
      const complete = async (ref: any, name: string, value: string) => (await client.complete({ ref, argument: { name, value } })).completion.values
      t.same(await complete({ type: 'ref/prompt', name: 'greet' }, 'name', 'a'), ['alpha'])
      t.same(await complete({ type: 'ref/resource', uri: 'test://items/{item_id}' }, 'item_id', 'g'), ['gamma'])
      t.same(await complete({ type: 'ref/prompt', name: 'hello' }, 'name', 'd'), ['delta'])
      t.same(await complete({ type: 'ref/resource', uri: 'host://items/{id}' }, 'id', 'b'), ['beta'])
    })

    t.test('subscriptions: updates of what was asked for, of the layer and of the host', async (t) => {
      await client.subscribeResource({ uri: 'test://info' })
      await client.subscribeResource({ uri: 'host://info' })
      kit.layer.notifyUpdated('test://other')
      kit.layer.notifyUpdated('test://info')
      t.same(await peer.hears('notifications/resources/updated'), { uri: 'test://info' })
      await host.touch()
      t.same(await peer.hears('notifications/resources/updated'), { uri: 'host://info' })
      await client.unsubscribeResource({ uri: 'test://info' })
      peer.told.length = 0
      kit.layer.notifyUpdated('test://info')
      await client.ping()
      t.same(peer.told, [])
    })

    t.test('changes of the layer\'s lists are told', async (t) => {
      const added = kit.layer.tool('extra', { description: 'Added later' }, () => 'here')
      await peer.hears('notifications/tools/list_changed')
      t.ok((await peer.toolNames()).includes('extra'))
      t.equal(await peer.text('extra'), 'here')
      added.remove()
      await peer.hears('notifications/tools/list_changed')
      t.notOk((await peer.toolNames()).includes('extra'))
    })

    t.test('a tool of the layer asks the client', async (t) => {
      const asking = kit.layer.tool('asking', { description: 'Asks' }, async (_args, ctx) => ctx.elicit('Your name?', { name: z.string() }))
      t.same((await client.callTool({ name: 'asking', arguments: {} })).structuredContent, { action: 'accept', content: { name: 'Your name?' } })
      asking.remove()
    })

    t.test('cancelling reaches the handler', async (t) => {
      for (const tool of ['sleepy', 'wait'] as const) {
        const cancel = new AbortController()
        const entered = tool === 'sleepy' ? kit.entered('sleepy') : ears.entered('wait')
        const call = client.callTool({ name: tool, arguments: {} }, undefined, { signal: cancel.signal })
        const ctx = await entered
        const aborted = ctx === undefined
          ? new Promise<void>((resolve) => { ears.once('aborted', resolve) })
          : new Promise<void>((resolve) => { ctx.signal.addEventListener('abort', () => resolve()) })
        cancel.abort()
        await t.rejects(call)
        await aborted
      }
    })

    t.test('what nobody has is refused in the words of the host', async (t) => {
      if (kind.unknownTool === 'isError') t.match(await client.callTool({ name: 'nope', arguments: {} }), { isError: true })
      else await t.rejects(client.callTool({ name: 'nope', arguments: {} }), { code: kind.unknownTool })
      await t.rejects(client.readResource({ uri: 'x://nowhere' }))
      await t.rejects(client.getPrompt({ name: 'nope', arguments: {} }).then(({ messages }) => {
        // Low-level hosts answer every prompt.
        if (kind.low && kind.name !== 'FastMCP 4') throw new Error('as written')
        return messages
      }))
    })

    t.test('the host may register more', async (t) => {
      host.addLate()
      const names = await peer.toolNames()
      t.ok(names.includes('late'))
      t.ok(names.indexOf('late') < names.indexOf('stats'), 'the host first')
      t.equal(await peer.text('late'), 'late')
    })

    t.test('uninstalled, the host is as it was', async (t) => {
      binding.uninstall()
      binding.uninstall()
      t.same((await peer.toolNames()).sort(), [...hostTools, 'late'].sort())
      t.same((await client.listPrompts()).prompts.map(({ name }) => name), ['hello'])
      if (kind.unknownTool === 'isError') t.match(await client.callTool({ name: 'stats', arguments: {} }), { isError: true })
      else await t.rejects(client.callTool({ name: 'stats', arguments: {} }), { code: kind.unknownTool })
      peer.told.length = 0
      kit.layer.notifyChanged('tools')
      await client.ping()
      t.same(peer.told, [])
    })
  })

  t.test(`a part of the layer under a prefix in ${kind.name}`, async (t) => {
    const { peer, kit } = await mounted(t, kind, { prefix: 'kit_', include: ['tools'] })
    const names = await peer.toolNames()
    t.same(names.filter((name) => name.startsWith('kit_')), TOOLS.map((name) => `kit_${name}`), 'nothing clashes')
    t.equal(await peer.text('echo', { text: 'x' }), 'host: x')
    t.equal(JSON.parse(await peer.text('kit_echo', { text: 'x' })).text, 'x')
    t.same((await peer.client.listResources()).resources.map(({ uri }) => uri), ['host://info'])
    const hidden = kit.layer.tool('secret', { roles: ['admin'] }, () => 'secret')
    t.notOk((await peer.toolNames()).includes('kit_secret'))
    if (kind.unknownTool === 'isError') t.match(await peer.client.callTool({ name: 'kit_secret', arguments: {} }), { isError: true })
    else await t.rejects(peer.client.callTool({ name: 'kit_secret', arguments: {} }), { code: kind.unknownTool })
    hidden.remove()
  })

  t.test(`mounted late in ${kind.name}`, async (t) => {
    const kit: Kit = createKit()
    const host = kind.make(new Ears())
    const peer = await new Peer().connect(t, host)
    const { ready } = registerInto(host.server, kit.layer)
    await ready
    t.ok((await peer.toolNames()).includes('stats'))
    t.match(await peer.client.callTool({ name: 'stats', arguments: {} }), { structuredContent: { count: 4 } })
    kit.layer.notifyChanged('tools')
    await peer.hears('notifications/tools/list_changed')
  })
}

t.test('EX-02 a page of the host with a next one is returned untouched', async (t) => {
  const { Server } = await import('@modelcontextprotocol/sdk/server/index.js')
  const { ListToolsRequestSchema } = await import('@modelcontextprotocol/sdk/types.js')
  const server = new Server({ name: 'paged', version: '1.0.0' }, { capabilities: { tools: {} } })
  const tool = (name: string) => ({ name, inputSchema: { type: 'object' as const } })
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => params?.cursor === undefined
    ? { tools: [tool('one'), tool('stats')], nextCursor: 'two', _meta: { page: 1 } }
    : { tools: [tool('two')] })
  registerInto(server, createKit().layer, { include: ['tools'] })
  const peer = await new Peer().connect(t, { server, connect: (transport) => server.connect(transport), close: () => server.close(), addLate () {}, async touch () {} })
  t.same(await peer.client.listTools(), { tools: [tool('one'), tool('stats')], nextCursor: 'two', _meta: { page: 1 } })
  const { tools } = await peer.client.listTools({ cursor: 'two' })
  t.same(tools.map(({ name }) => name), ['two', ...TOOLS.filter((name) => name !== 'stats')], 'a name of an earlier page is the host\'s as well')
})

t.test('EX-04 only what exists can be included', async (t) => {
  const { McpServer } = await import('@modelcontextprotocol/sdk/server/mcp.js')
  const server = new McpServer({ name: 'x', version: '1' })
  t.throws(() => registerInto(server, createKit().layer, { include: ['tools', 'nope' as never] }), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message: /include\.1/ })
  t.throws(() => registerInto(server, createKit().layer, { prefix: 'no spaces' }), { code: 'CLOUDG_MCP_ERR_INVALID_PREFIX' })
  t.throws(() => registerInto(server, createKit().layer, { nope: true } as never), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message: /nope/ })
})

t.test('EX-05 our own server has its layer already', async (t) => {
  const { layer } = createKit()
  const server = new ProtocolServer(layer)
  t.throws(() => registerInto(server, createKit().layer), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message: /serves another layer/ })
  await registerInto(server, layer).ready
  await server.close()
})

t.test('what cannot be mounted in says what it is', async (t) => {
  const { layer } = createKit()
  class Unlike { start () {} }
  t.throws(() => registerInto(new Unlike(), layer), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /class Unlike with start.*McpServer and Server/ })
  t.throws(() => registerInto(undefined as never, layer), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /Found undefined/ })
  t.throws(() => registerInto(Unlike, layer), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /the class Unlike.*Give an instance/ })
  t.throws(() => registerInto(layer, layer), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /This is a layer/ })
  t.throws(() => registerInto(() => {}, layer), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message: /bindFactory/ })
  t.throws(() => bindFactory(() => new Unlike(), layer)(), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /The factory made/ })
  const future = { connect () {}, close () {}, setRequestHandler () {}, registerCapabilities () {}, getClientCapabilities () {}, _requestHandlers: {} }
  t.throws(() => registerInto(future, layer), { code: 'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', message: /not known here/ })
})
