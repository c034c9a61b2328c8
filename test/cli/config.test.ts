// Snippets for clients: the shapes that the clients document, nothing but JSON on standard output, and a stdio snippet that works.

import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { readFile } from 'node:fs/promises'
import t from 'tap'
import { COMMAND, INVENTORY, LAYER, run } from './command.js'

async function config (...args: string[]): Promise<{ snippet: any, hint: string }> {
  const { code, stdout, stderr } = await run(['config', ...args])
  if (code !== 0) throw new Error(stderr)
  return { snippet: JSON.parse(stdout), hint: stderr }
}

const stdio = { command: 'npx', args: ['-y', 'cloudg-mcp', 'serve'] }
const remote = ['--transport', 'http', '--url', 'https://mcp.example.com/mcp', '--token-env', 'ORDERS_TOKEN', '--name', 'orders']

t.test('stdio', async (t) => {
  const desktop = await config('--client', 'claude-desktop')
  t.same(desktop.snippet, { mcpServers: { cloudg: stdio } })
  t.match(desktop.hint, 'claude_desktop_config.json')
  const code = await config('--client', 'claude-code')
  t.same(code.snippet, { mcpServers: { cloudg: { type: 'stdio', ...stdio } } })
  t.match(code.hint, /\.mcp\.json[^]*claude mcp add cloudg -- npx -y cloudg-mcp serve\n/)
  const cursor = await config('--client', 'cursor')
  t.same(cursor.snippet, { mcpServers: { cloudg: { type: 'stdio', ...stdio } } })
  t.match(cursor.hint, '.cursor/mcp.json')
  const vscode = await config('--client', 'vscode')
  t.same(vscode.snippet, { servers: { cloudg: { type: 'stdio', ...stdio } } })
  t.match(vscode.hint, '.vscode/mcp.json')
})

t.test('http with a token, which is nowhere in the snippet', async (t) => {
  const desktop = await config('--client', 'claude-desktop', ...remote)
  t.same(desktop.snippet, {
    mcpServers: {
      orders: {
        command: 'npx',
        args: ['-y', 'mcp-remote', 'https://mcp.example.com/mcp', '--transport', 'http-only', '--header', 'Authorization:${AUTH_HEADER}'], // eslint-disable-line no-template-curly-in-string -- for the bridge to fill in
        env: { AUTH_HEADER: 'Bearer <value of ORDERS_TOKEN>' }
      }
    }
  })
  const code = await config('--client', 'claude-code', ...remote)
  t.same(code.snippet, { mcpServers: { orders: { type: 'http', url: 'https://mcp.example.com/mcp', headers: { Authorization: `Bearer \${${'ORDERS_TOKEN'}}` } } } })
  t.match(code.hint, 'claude mcp add --transport http orders https://mcp.example.com/mcp --header "Authorization: Bearer $ORDERS_TOKEN"')
  const cursor = await config('--client', 'cursor', ...remote)
  t.same(cursor.snippet, { mcpServers: { orders: { url: 'https://mcp.example.com/mcp', headers: { Authorization: `Bearer \${${'env:ORDERS_TOKEN'}}` } } } })
  const vscode = await config('--client', 'vscode', ...remote)
  t.same(vscode.snippet, {
    inputs: [{ type: 'promptString', id: 'orders-token', description: 'Token for orders (ORDERS_TOKEN)', password: true }],
    servers: { orders: { type: 'http', url: 'https://mcp.example.com/mcp', headers: { Authorization: `Bearer \${${'input:orders-token'}}` } } }
  })
})

t.test('sse, and http without a token', async (t) => {
  const old = ['--transport', 'sse', '--url', 'http://build.example:8765/sse']
  t.same((await config('--client', 'claude-desktop', ...old)).snippet.mcpServers.cloudg,
    { command: 'npx', args: ['-y', 'mcp-remote', 'http://build.example:8765/sse', '--transport', 'sse-only', '--allow-http'] })
  t.same((await config('--client', 'claude-code', ...old)).snippet.mcpServers.cloudg, { type: 'sse', url: 'http://build.example:8765/sse' })
  t.same((await config('--client', 'vscode', ...old)).snippet, { servers: { cloudg: { type: 'sse', url: 'http://build.example:8765/sse' } } })
  t.same((await config('--client', 'claude-desktop', '--transport', 'http', '--url', 'http://127.0.0.1:8765/mcp')).snippet.mcpServers.cloudg.args,
    ['-y', 'mcp-remote', 'http://127.0.0.1:8765/mcp', '--transport', 'http-only'], 'this machine may be talked to in plain text')
})

t.test('what is served is named by its full path', async (t) => {
  const { snippet } = await config('--client', 'claude-desktop', '--dataset', `prod=${INVENTORY}`)
  t.same(snippet.mcpServers.cloudg.args, [...stdio.args, '--dataset', `prod=${INVENTORY}`])
  const module = await config('--client', 'claude-desktop', 'layer.js', '--name', 'noisy')
  t.same(module.snippet.mcpServers.noisy.args, [...stdio.args, 'layer.js'], 'a package stays a package')
})

t.test('the page about clients shows what the command prints', async (t) => {
  const page = await readFile(new URL('../../../docs/connect-a-client.md', import.meta.url), 'utf8')
  const sections = new Map(page.split(/^## /m).map((section) => [section.slice(0, section.indexOf('\n')), [...section.matchAll(/```json\n([^]*?)```/g)].map(([, json]) => JSON.parse(json!))]))
  const local = async (client: string) => (await config('--client', client, '/home/me/orders/layer.js')).snippet
  const distant = async (client: string) => (await config('--client', client, ...remote)).snippet

  const [desktop, bridged] = sections.get('Claude Desktop')!
  t.same(desktop.mcpServers.orders, (await local('claude-desktop')).mcpServers.cloudg)
  const { orders } = (await distant('claude-desktop')).mcpServers
  t.same(bridged.mcpServers.orders, { ...orders, env: { AUTH_HEADER: 'Bearer <the token>' } })
  t.same(sections.get('Claude Code')![0], await distant('claude-code'))
  const [cursor] = sections.get('Cursor')!
  t.same(cursor.mcpServers, { orders: (await distant('cursor')).mcpServers.orders, local: (await local('cursor')).mcpServers.cloudg })
  const [vscode] = sections.get('VS Code')!
  const { inputs, servers } = await distant('vscode')
  t.same(vscode, { inputs: [{ ...inputs[0], description: 'Token for orders' }], servers: { orders: servers.orders, local: (await local('vscode')).servers.cloudg } })

  const { hint } = await config('--client', 'claude-code', '/home/me/orders/layer.js', '--name', 'orders')
  t.ok(page.includes(/or run: (.*)/.exec(hint)![1]!))
})

t.test('a client that is started with the snippet connects', async (t) => {
  const { snippet } = await config('--client', 'claude-desktop', LAYER, '--name', 'noisy')
  const { args } = snippet.mcpServers.noisy as { args: string[] }
  const client = new Client({ name: 'test', version: '1' })
  t.teardown(() => client.close())
  await client.connect(new StdioClientTransport({ command: process.execPath, args: [COMMAND, ...args.slice(2)] }))
  t.equal(client.getServerVersion()?.name, 'noisy')
})
