// A layer in a FastMCP that is really served: over HTTP with sessions, and without, where fastmcp never says that anybody is there.

import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js'
import { FastMCP } from 'fastmcp'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { z } from 'zod'
import { registerInto } from '../../lib/adapters/index.js'
import { createKit, TOOLS } from '../kit.js'
import type { Kit } from '../kit.js'

const silent = { debug () {}, error () {}, info () {}, log () {}, warn () {} }

async function served (t: Test, stateless: boolean): Promise<{ kit: Kit, server: FastMCP, client: Client }> {
  const kit = createKit()
  const server = new FastMCP({ name: 'host', version: '1.0.0', logger: silent, ping: { enabled: false } })
  server.addTool({ name: 'add', description: 'Adds', parameters: z.object({ a: z.number(), b: z.number() }), execute: async ({ a, b }) => String(a + b) })
  server.addTool({ name: 'echo', description: 'Of the host', parameters: z.object({ text: z.string() }), execute: async ({ text }) => `host: ${text}` })
  await registerInto(server, kit.layer).ready
  const port = await freePort()
  await server.start({ transportType: 'httpStream', httpStream: { host: '127.0.0.1', port, stateless } })
  const client = new Client({ name: 'peer', version: '1' })
  t.teardown(async () => {
    await client.close()
    await server.stop()
  })
  await client.connect(new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`)) as never)
  return { kit, server, client }
}

for (const stateless of [false, true]) {
  t.test(stateless ? 'without sessions' : 'with sessions', async (t) => {
    const { kit, server, client } = await served(t, stateless)
    const { tools } = await client.listTools()
    t.same(tools.map(({ name }) => name), ['add', 'echo', ...TOOLS.filter((name) => name !== 'echo')])
    t.match(await client.callTool({ name: 'echo', arguments: { text: 'x' } }), { content: [{ text: 'host: x' }] }, 'the host keeps its name')
    t.match(await client.callTool({ name: 'stats', arguments: {} }), { structuredContent: { count: 4 }, content: [{ type: 'text' }] })
    t.match(await client.callTool({ name: 'sleepy', arguments: { seconds: 'soon' } }), { isError: true, content: [{ text: /^Invalid arguments/ }] })
    const progress: number[] = []
    await client.callTool({ name: 'slow', arguments: { steps: 2 } }, undefined, { onprogress: (one) => { progress.push(one.progress) } })
    t.same(progress, [1, 2])
    t.match(await client.readResource({ uri: 'test://info' }), { contents: [{ text: /"hello": "world"/ }] })
    t.match(await client.readResource({ uri: 'test://items/beta' }), { contents: [{ text: /"index": 1/ }] })
    t.match(await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } }), { messages: [{ content: { text: 'Hi Ada!' } }] })
    t.same((await client.complete({ ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'a' } })).completion.values, ['alpha'])
    // From now on it is the host's.
    server.addTool({ name: 'stats', description: 'Of the host', execute: async () => 'host stats' })
    // Told apart before any list is asked for again; the client would hold the result to the schema that it saw.
    t.match(await client.request({ method: 'tools/call', params: { name: 'stats', arguments: {} } }, CallToolResultSchema), { content: [{ text: 'host stats' }] })
    t.same((await client.listTools()).tools.filter(({ name }) => name === 'stats').map(({ description }) => description), ['Of the host'])
    t.equal(kit.calls['stats'], 1)
  })
}

/** fastmcp does not say which port it took. */
async function freePort (): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => { server.listen(0, '127.0.0.1', resolve) })
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => { server.close(resolve) })
  return port
}
