// The official clients, of both generations, over stdio: they find out what is spoken, list everything, call with progress
// and cancel.

import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport as StdioClientTransportV1 } from '@modelcontextprotocol/sdk/client/stdio.js'
import type { Test } from 'tap'
import t from 'tap'
import { COMMAND, LAYER } from './peer.js'

const server = { command: process.execPath, args: [COMMAND, 'serve', LAYER], stderr: 'ignore' as const }
const info = { name: 'test', version: '1.0.0' }

// What the two generations have in common.
interface AnyClient {
  listTools (): Promise<{ tools: { name: string }[] }>
  listResources (): Promise<{ resources: { uri: string }[] }>
  listPrompts (): Promise<{ prompts: { name: string }[] }>
  readResource (params: { uri: string }): Promise<{ contents: unknown[] }>
  getPrompt (params: { name: string, arguments: Record<string, string> }): Promise<{ messages: unknown[] }>
}
type Call = (name: string, options: { signal?: AbortSignal, onprogress?: (progress: { progress: number }) => void }) => Promise<unknown>

async function useAll (t: Test, client: AnyClient, call: Call): Promise<void> {
  t.ok((await client.listTools()).tools.some(({ name }) => name === 'slow'))
  t.match((await client.listResources()).resources, [{ uri: 'noisy://one' }])
  t.match((await client.listPrompts()).prompts, [{ name: 'greet' }])
  t.match((await client.readResource({ uri: 'noisy://one' })).contents, [{ text: 'one' }])
  t.match((await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } })).messages, [{ content: { text: 'Greet Ada' } }])

  const steps: number[] = []
  const onprogress = ({ progress }: { progress: number }): void => {
    steps.push(progress)
    if (progress === 3) void call('seen', {})
  }
  t.match(await call('steps', { onprogress }), { structuredContent: { done: 3 } })
  t.same(steps, [1, 2, 3])
  t.match(await call('noisy', {}), { content: [{ text: 'quiet' }] })

  const cancelled = new AbortController()
  const endless = call('endless', { signal: cancelled.signal, onprogress: ({ progress }) => { if (progress === 3) cancelled.abort() } })
  await t.rejects(endless)
  t.match(await call('whoami', {}), { structuredContent: { id: 'local' } }, 'the connection goes on')
}

for (const [mode, version] of [['auto', '2026-07-28'], ['legacy', '2025-11-25']] as const) {
  t.test(`the official client, ${mode}, speaks ${version}`, async (t) => {
    const client = new Client(info, { versionNegotiation: { mode } })
    t.teardown(() => client.close())
    await client.connect(new StdioClientTransport(server))
    t.equal(client.getNegotiatedProtocolVersion(), version)
    await useAll(t, client, async (name, options) => client.callTool({ name, arguments: {} }, options))
  })
}

t.test('the official SDK of the first generation speaks 2025-11-25', async (t) => {
  const client = new ClientV1(info)
  t.teardown(() => client.close())
  await client.connect(new StdioClientTransportV1(server))
  await useAll(t, client, async (name, options) => client.callTool({ name, arguments: {} }, undefined, options))
})
