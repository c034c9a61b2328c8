// The clients of the official SDK, both generations and every way in which the newer one settles on an era, over real sockets
// and with a bearer token.

import * as v2 from '@modelcontextprotocol/client'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  LoggingMessageNotificationSchema, PromptListChangedNotificationSchema, ResourceUpdatedNotificationSchema, ToolListChangedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js'
import { once } from 'node:events'
import t from 'tap'
import type { Test } from 'tap'
import { memoryBackplane } from '../../lib/backplane/memory.js'
import { FORCE, gate, serve } from '../field/wire.js'
import { createKit, TOOLS } from '../kit.js'

const TOKEN = 'secret'
const INFO = { name: 'test', version: '1' }

interface Call { onprogress?: (progress: { progress: number, total?: number | undefined, message?: string | undefined }) => void, signal?: AbortSignal }

/** What the two generations have in common, and where they differ. */
interface Peer {
  client: ClientV1 | v2.Client
  version: string | undefined
  call: (name: string, args?: Record<string, unknown>, options?: Call) => Promise<any>
  onUpdated (listener: (uri: string) => void): void
  onToolsChanged (listener: () => void): void
  onPromptsChanged (listener: () => void): void
  onLog (listener: (data: unknown) => void): void
  /** From here on changes are told. */
  subscribe (uri: string): Promise<unknown>
  end (): Promise<void>
}

async function connectV1 (url: URL, token = TOKEN): Promise<Peer> {
  const client = new ClientV1(INFO)
  const transport = new TransportV1(url, { requestInit: { headers: { authorization: `Bearer ${token}` } } })
  // The SDK declares an optional property that it sets to undefined.
  await client.connect(transport as Parameters<typeof client.connect>[0])
  return {
    client,
    version: transport.protocolVersion,
    call: (name, args = {}, options = {}) => client.callTool({ name, arguments: args }, undefined, options),
    onUpdated: (listener) => client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => listener(params.uri)),
    onToolsChanged: (listener) => client.setNotificationHandler(ToolListChangedNotificationSchema, listener),
    onPromptsChanged: (listener) => client.setNotificationHandler(PromptListChangedNotificationSchema, listener),
    onLog: (listener) => client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => listener(params.data)),
    subscribe: (uri) => client.subscribeResource({ uri }),
    async end () {
      await transport.terminateSession()
      await client.close()
    }
  }
}

function connectV2 (negotiation: v2.VersionNegotiationOptions | undefined) {
  return async (url: URL, token = TOKEN): Promise<Peer> => {
    const client = new v2.Client(INFO, negotiation && { versionNegotiation: negotiation })
    const transport = new v2.StreamableHTTPClientTransport(url, { requestInit: { headers: { authorization: `Bearer ${token}` } } })
    await client.connect(transport)
    return {
      client,
      version: client.getNegotiatedProtocolVersion(),
      call: (name, args = {}, options = {}) => client.callTool({ name, arguments: args }, options),
      onUpdated: (listener) => client.setNotificationHandler('notifications/resources/updated', ({ params }) => listener(params.uri)),
      onToolsChanged: (listener) => client.setNotificationHandler('notifications/tools/list_changed', listener),
      onPromptsChanged: (listener) => client.setNotificationHandler('notifications/prompts/list_changed', listener),
      onLog: (listener) => client.setNotificationHandler('notifications/message', ({ params }) => listener(params.data)),
      subscribe: (uri) => client.getProtocolEra() === 'modern'
        ? client.listen({ toolsListChanged: true, promptsListChanged: true, resourceSubscriptions: [uri] })
        : client.subscribeResource({ uri }),
      async end () {
        if (client.getProtocolEra() !== 'modern') await transport.terminateSession()
        await client.close()
      }
    }
  }
}

const peers: [string, string, (url: URL, token?: string) => Promise<Peer>][] = [
  ['sdk 1.x', '2025-11-25', connectV1],
  ['client 2.x, legacy', '2025-11-25', connectV2(undefined)],
  ['client 2.x, auto', '2026-07-28', connectV2({ mode: 'auto' })],
  ['client 2.x, pinned', '2026-07-28', connectV2({ mode: { pin: '2026-07-28' } })]
]

/** The kit behind a bearer token, and a way to see what it keeps. */
async function kitService (t: Test, options: { stateless?: boolean } = {}) {
  const kit = createKit()
  const backplane = memoryBackplane()
  t.teardown(() => backplane.close())
  const service = await serve(t, { layer: kit.layer, backplane, auth: { tokens: [`${TOKEN}:analyst:alice`] }, ...options }, FORCE)
  return { ...kit, backplane, service, url: new URL(`http://127.0.0.1:${service.port}/mcp`) }
}

for (const [name, version, connect] of peers) {
  t.test(`${name} lists, calls with progress, reads, prompts and completes`, async (t) => {
    const { url, backplane, service, layer } = await kitService(t)
    layer.tool('whoami', {}, (_args, ctx) => ({ id: ctx.principal.id, roles: [...ctx.principal.roles] }))
    const peer = await connect(url)
    const { client } = peer
    t.equal(peer.version, version)
    t.match(client.getServerVersion(), { name: 'kit', version: '1.2.3', title: 'Kit' })
    t.equal(client.getInstructions(), 'A kit for tests')
    t.same((await client.listTools()).tools.map((tool) => tool.name), [...TOOLS, 'whoami'])

    const told: unknown[] = []
    t.same((await peer.call('slow', { steps: 3 }, { onprogress: (progress) => { told.push(progress) } })).structuredContent, { done: 3 })
    t.same(told, [1, 2, 3].map((progress) => ({ progress, total: 3, message: `step ${progress}` })))
    t.same((await peer.call('stats')).structuredContent, { count: 4, names: ['alpha', 'beta', 'gamma', 'delta'] })
    t.match((await peer.call('whoami')).structuredContent, { id: 'alice', roles: ['default', 'analyst'] })
    t.match(await peer.call('fail'), { isError: true, content: [{ type: 'text', text: 'Error executing tool fail' }] })
    t.match(await peer.call('linked'), { content: [{}, { type: 'resource_link', uri: 'test://items/alpha', name: 'alpha' }] })
    await t.rejects(peer.call('nope'), { code: -32602 })

    t.same((await client.listResources()).resources.map(({ uri }) => uri), ['test://info'])
    t.same((await client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate), ['test://items/{item_id}'])
    const [content] = (await client.readResource({ uri: 'test://items/beta' })).contents as { text: string }[]
    t.same(JSON.parse(content!.text), { id: 'beta', index: 1 })
    await t.rejects(client.readResource({ uri: 'test://items/zeta' }), { message: /No item zeta/, data: { uri: 'test://items/zeta' } })
    t.same((await client.listPrompts()).prompts.map((prompt) => prompt.name), ['greet'])
    t.match((await client.getPrompt({ name: 'greet', arguments: { name: 'Ann' } })).messages, [{ role: 'user', content: { type: 'text', text: 'Hi Ann!' } }])
    const completed = await client.complete({ ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'g' } })
    t.same(completed.completion.values, ['gamma'])

    t.equal(await backplane.countSessions(), version === '2026-07-28' ? 0 : 1)
    await peer.end()
    t.equal(await backplane.countSessions(), 0)
    t.same(service.logs.map(({ err }) => err?.message), ['boom'], 'nothing is logged but what the tool threw')
  })

  t.test(`${name} hears of changes`, async (t) => {
    const { url, layer } = await kitService(t)
    const peer = await connect(url)
    const [updated, tools, prompts] = [gate<string>(), gate(), gate()]
    peer.onUpdated(updated.open)
    peer.onToolsChanged(tools.open)
    peer.onPromptsChanged(prompts.open)
    await peer.subscribe('test://info')
    layer.notifyUpdated('test://other')
    await peer.call('touch', { uri: 'test://info' })
    t.equal(await updated.opened, 'test://info', 'of the resource that it subscribed to, and no other')
    await tools.opened
    layer.prompt('later', {}, () => 'later')
    await prompts.opened
    t.same((await peer.client.listPrompts()).prompts.map((prompt) => prompt.name), ['greet', 'later'])
    await peer.end()
  })

  t.test(`${name} cancels a call`, async (t) => {
    const { url, entered } = await kitService(t)
    const peer = await connect(url)
    const began = entered('sleepy')
    const controller = new AbortController()
    const call = peer.call('sleepy', {}, { signal: controller.signal })
    const { signal } = await began
    controller.abort(new Error('changed my mind'))
    await t.rejects(call)
    if (!signal.aborted) await once(signal, 'abort')
    t.same((await peer.call('echo', { text: 'on' })).structuredContent, { text: 'on' }, 'and goes on')
    await peer.end()
  })

  t.test(`${name} is refused without a valid token`, async (t) => {
    const { url, backplane } = await kitService(t)
    await t.rejects(connect(url, 'wrong'), /401|Unauthorized/i)
    t.equal(await backplane.countSessions(), 0)
  })

  t.test(`${name} works with a stateless service`, async (t) => {
    const { url } = await kitService(t, { stateless: true })
    const peer = await connect(url)
    t.equal(peer.version, version)
    t.equal((await peer.client.listTools()).tools.length, TOOLS.length)
    const told: unknown[] = []
    t.same((await peer.call('slow', { steps: 1 }, { onprogress: ({ progress }) => { told.push(progress) } })).structuredContent, { done: 1 })
    t.same(told, [1])
    await peer.client.close()
  })
}

t.test('a handshake client gets the log messages that it asked for', async (t) => {
  for (const connect of [connectV1, connectV2(undefined)]) {
    const { url } = await kitService(t)
    const peer = await connect(url)
    const seen: unknown[] = []
    peer.onLog((data) => { seen.push(data) })
    await peer.call('slow', { steps: 2 })
    t.same(seen, [{ step: 1 }, { step: 2 }])
    await peer.client.setLoggingLevel('warning')
    await peer.call('slow', { steps: 2 })
    t.equal(seen.length, 2)
    await peer.end()
  }
})

t.test('a session that has ended is one that the client can replace', async (t) => {
  const { url, service } = await kitService(t)
  const peer = await connectV1(url)
  const ended = await service.send({
    method: 'DELETE', headers: { authorization: `Bearer ${TOKEN}`, 'mcp-session-id': (peer.client.transport as TransportV1).sessionId }
  })
  t.equal(ended.status, 200)
  await t.rejects(peer.client.ping(), /404|Session not found/)
  await peer.client.close()
  const again = await connectV1(url)
  t.equal((await again.client.listTools()).tools.length, TOOLS.length)
  await again.end()
})
