// mcp-remote, which brings a server behind HTTP to clients that know stdio alone, as `config --client claude-desktop` sets it up.

import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { directory, LAYER, run, serve } from './command.js'

const require = createRequire(import.meta.url)
const manifest = require.resolve('mcp-remote/package.json')
const { bin } = require(manifest) as { bin: Record<string, string> }
const BRIDGE = join(dirname(manifest), bin['mcp-remote']!)

export async function bridges (t: Test, transport: 'http' | 'sse'): Promise<void> {
  const server = await serve(t, ['--transport', transport, '--auth-token', 's3cret:analyst:alice', LAYER])
  const { stdout } = await run(['config', '--client', 'claude-desktop', '--transport', transport, '--url', server.url, '--token-env', 'TOKEN'])
  const { args, env } = JSON.parse(stdout).mcpServers.cloudg as { args: string[], env: Record<string, string> }
  t.same(args.slice(0, 2), ['-y', 'mcp-remote'])

  const client = new Client({ name: 'test', version: '1' })
  t.teardown(() => client.close())
  await client.connect(new StdioClientTransport({
    command: process.execPath,
    args: [BRIDGE, ...args.slice(2)],
    env: { PATH: process.env['PATH']!, MCP_REMOTE_CONFIG_DIR: await directory(t), AUTH_HEADER: env['AUTH_HEADER']!.replace('<value of TOKEN>', 's3cret') },
    stderr: 'ignore'
  }))
  t.ok((await client.listTools()).tools.some(({ name }) => name === 'slow'))
  t.match((await client.listResources()).resources, [{ uri: 'noisy://one' }])
  const steps: number[] = []
  const onprogress = ({ progress }: { progress: number }): void => {
    steps.push(progress)
    if (progress === 3) void client.callTool({ name: 'seen', arguments: {} })
  }
  t.match(await client.callTool({ name: 'steps', arguments: {} }, { onprogress }), { structuredContent: { done: 3 } })
  t.same(steps, [1, 2, 3])
  t.match(await client.callTool({ name: 'whoami', arguments: {} }), { structuredContent: { id: 'alice', transport } })
  const cancelled = new AbortController()
  await t.rejects(client.callTool({ name: 'endless', arguments: {} }, { signal: cancelled.signal, onprogress: ({ progress }) => { if (progress === 3) cancelled.abort() } }))
  t.match(await client.callTool({ name: 'whoami', arguments: {} }), { structuredContent: { id: 'alice' } })
}
