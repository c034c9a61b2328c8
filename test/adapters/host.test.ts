// Servers of every kind, hosted: what the official clients get of them over HTTP, in every revision that they can speak.

import Fastify from 'fastify'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { hostServer } from '../../lib/adapters/index.js'
import type { HostedLayer, HostOptions } from '../../lib/adapters/index.js'
import cloudgMcp from '../../plugin.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { SPEAKERS } from './clients.js'
import type { Speaker } from './clients.js'
import type { Host, Kind } from './hosts.js'
import { Ears, KINDS } from './hosts.js'

export async function served (t: Test, layer: HostedLayer, options: CloudgMcpOptions = {}): Promise<string> {
  // Node's fetch opens a connection anew after an abort, and never uses it: a server waits for that one.
  const app = Fastify({ forceCloseConnections: true })
  await app.register(cloudgMcp, { layer, auth: { tokens: { 'alice-token': { id: 'alice', roles: ['analyst'] }, 'bob-token': { id: 'bob', roles: [] } } }, ...options })
  t.teardown(async () => {
    await app.close()
    if (layer.running > 0) throw new Error(`${layer.running} servers are left`)
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  return `http://127.0.0.1:${(app.server.address() as AddressInfo).port}/mcp`
}

/** A layer that makes a server of this kind whenever it needs one. */
function hosted (kind: Kind, options: HostOptions = {}) {
  const ears = new Ears()
  const hosts: Host[] = []
  const make = (): object => {
    const host = kind.make(ears)
    hosts.push(host)
    return host.server
  }
  // A FastMCP makes a server for every session by itself.
  const layer = hostServer(kind.name === 'FastMCP 4' ? make() : make, options)
  return { layer, ears, hosts }
}

for (const kind of KINDS) {
  t.test(`${kind.name}, hosted`, async (t) => {
    const { layer, ears, hosts } = hosted(kind)
    const url = await served(t, layer)
    t.same(layer.info.name, 'host')
    t.equal(layer.instructions, 'Of the host')
    for (const speaker of SPEAKERS) await t.test(speaker.name, (t) => conversation(t, kind, speaker, url, ears, hosts))
  })

  t.test(`${kind.name}, calls do not make servers`, async (t) => {
    const { layer } = hosted(kind)
    const url = await served(t, layer)
    const [handshake, modern] = [SPEAKERS[0]!, SPEAKERS.at(-1)!]
    const session = await handshake.connect(t, url)
    for (let n = 0; n < 5; n++) t.equal(await session.text('add', { a: n, b: 1 }), String(n + 1))
    t.equal(layer.running, 2, 'the one that is always there, and the session\'s')
    const single = await modern.connect(t, url)
    for (let n = 0; n < 5; n++) t.equal(await single.text('add', { a: n, b: 1 }), String(n + 1))
    const before = layer.running
    await Promise.all(Array.from({ length: 8 }, async () => single.text('add', { a: 1, b: 1 })))
    for (let n = 0; n < 5; n++) await single.text('add', { a: n, b: 1 })
    const most = layer.running
    for (let n = 0; n < 5; n++) await single.text('add', { a: n, b: 1 })
    t.equal(layer.running, most)
    if (kind.sdk === 2) t.equal(most, before, 'a server of 2.x serves many calls at once')
    else t.ok(most <= before + 7, 'as many as there were calls at once')
  })
}

async function conversation (t: Test, kind: Kind, speaker: Speaker, url: string, ears: Ears, hosts: Host[]): Promise<void> {
  const fastmcp = kind.name === 'FastMCP 4'
  const peer = await speaker.connect(t, url)
  const { client, modern } = peer
  const atLeast = (version: string): boolean => speaker.version >= version

  const { tools } = await client.listTools()
  t.same(tools.map(({ name }: any) => name).slice(0, 5), ['add', 'echo', 'report', 'wait', 'who'])
  t.match(tools[0].inputSchema, { type: 'object', properties: { a: { type: 'number' } }, required: ['a', 'b'] })
  t.equal(await peer.text('add', { a: 2, b: 3 }), '5')
  t.match(await peer.call('fail'), { isError: true, content: [{ text: /the host failed/ }] })

  // progress and log messages, on the stream of the call
  const progress: any[] = []
  const logLevel = modern ? { 'io.modelcontextprotocol/logLevel': 'info' } : undefined
  await peer.call('report', {}, { onprogress: (one: unknown) => { progress.push(one) } }, logLevel)
  t.same(progress.map((one) => one.progress), [1, 2, 3])
  if (atLeast('2025-03-26') && !fastmcp) t.equal(progress[0].message, 'step 1')
  for (const step of [1, 2, 3]) t.match(await peer.hears('notifications/message'), { level: 'warning', data: fastmcp ? { message: `step ${step}` } : `step ${step}` })

  // resources, prompts, completions
  t.match((await client.listResources()).resources, [{ uri: 'host://info', name: 'info', mimeType: 'text/plain' }])
  t.match((await client.listResourceTemplates()).resourceTemplates, [{ uriTemplate: 'host://items/{id}' }])
  t.match(await client.readResource({ uri: 'host://info' }), { contents: [{ uri: 'host://info', text: 'host info' }] })
  t.match(await client.readResource({ uri: 'host://items/7' }), { contents: [{ text: 'item 7' }] })
  t.match((await client.listPrompts()).prompts, [{ name: 'hello', arguments: [{ name: 'name', required: true }] }])
  t.match(await client.getPrompt({ name: 'hello', arguments: { name: 'Ada' } }), { messages: [{ role: 'user', content: { text: 'Hello Ada' } }] })
  if (atLeast('2025-03-26')) {
    const complete = async (ref: any, name: string, value: string) => (await client.complete({ ref, argument: { name, value } })).completion.values
    t.same(await complete({ type: 'ref/prompt', name: 'hello' }, 'name', 'd'), ['delta'])
    t.same(await complete({ type: 'ref/resource', uri: 'host://items/{id}' }, 'id', 'b'), ['beta'])
  }

  // who calls
  t.match(JSON.parse(await peer.text('who')), { client: 'alice', token: 'alice-token', agent: fastmcp ? null : 'tests' })
  if (!fastmcp) t.equal(JSON.parse(await peer.text('who')).session, !modern)

  // questions
  if (atLeast('2025-06-18')) {
    const before = ears.asked
    t.match(JSON.parse(await peer.text('ask')), { action: 'accept', content: { name: 'Ada' } })
    t.equal(ears.asked - before, modern || kind.sdk === 2 ? 2 : 1, 'without a connection to wait on, the handler runs again')
  }
  if (!fastmcp) {
    t.match(JSON.parse(await peer.text('sample')), { text: 'Paris' })
    t.match(JSON.parse(await peer.text('roots')), [{ uri: 'file:///work' }])
  }

  // errors, as the server puts them
  if (kind.unknownTool === 'isError') t.match(await peer.call('nope'), { isError: true, content: [{ text: /nope not found/ }] })
  else await t.rejects(peer.call('nope'), modern && kind.unknownTool === -32601 ? /nope/ : { code: kind.unknownTool, message: /nope/ })
  const missing = client.readResource({ uri: 'host://nowhere' })
  if (fastmcp) await t.rejects(missing, /nowhere/)
  else if (modern) await t.rejects(missing, { code: -32602, data: { uri: 'host://nowhere' } })
  else await t.rejects(missing, { code: kind.name === 'Server of SDK 1.x' && speaker.name.startsWith('client 1') ? -32002 : -32602, message: /host:\/\/nowhere/ }, 'client 2.x knows one code')

  // cancelling
  const cancel = new AbortController()
  const entered = ears.entered('wait')
  const waiting = peer.call('wait', {}, { signal: cancel.signal })
  await entered
  const aborted = ears.entered('aborted')
  cancel.abort()
  await t.rejects(waiting)
  await aborted

  // changes
  const subscription = modern ? await client.listen({ toolsListChanged: true, resourceSubscriptions: ['host://info'] }) : undefined
  if (!modern) await client.subscribeResource({ uri: 'host://info' })
  // Those of sessions that have ended are not connected.
  for (const host of hosts) await host.touch().catch(() => {})
  t.match(await peer.hears('notifications/resources/updated'), { uri: 'host://info' })
  await peer.hears('notifications/tools/list_changed')
  await subscription?.close()
  if (!modern) await client.unsubscribeResource({ uri: 'host://info' })
}
