// The same layer in other servers: what a client gets is the layer, whoever's server it is.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { COMMAND, run, serve } from './command.js'

async function asks (t: Test, client: Client): Promise<void> {
  const { tools } = await client.listTools()
  t.ok(tools.some(({ name }) => name === 'count_assets'))
  t.match(await client.callTool({ name: 'count_assets', arguments: { group_by: 'provider' } }), { structuredContent: Object })
  t.ok((await client.listResources()).resources.length > 0)
}

for (const flavor of ['sdk', 'fastmcp']) {
  t.test(`--flavor ${flavor} over stdio`, async (t) => {
    const client = new Client({ name: 'peer', version: '2' })
    const transport = new StdioClientTransport({ command: process.execPath, args: [COMMAND, 'serve', '--flavor', flavor], stderr: 'inherit' })
    t.teardown(async () => client.close())
    await client.connect(transport)
    t.equal(client.getNegotiatedProtocolVersion(), '2025-11-25')
    await asks(t, client)
  })

  t.test(`--flavor ${flavor} over HTTP, with a token`, async (t) => {
    const server = await serve(t, ['--flavor', flavor, '--port', String(await freePort()), '--auth-token', 's3cret:analyst:alice'])
    t.equal((await fetch(server.url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' })).status, 401)
    const modern = flavor === 'sdk'
    const client = new Client({ name: 'peer', version: '2' }, modern ? { versionNegotiation: { mode: { pin: '2026-07-28' } } } : {})
    t.teardown(async () => client.close())
    await client.connect(new StreamableHTTPClientTransport(new URL(server.url), { requestInit: { headers: { authorization: 'Bearer s3cret' } } }))
    await asks(t, client)
  })
}

t.test('what is not there for another flavor', async (t) => {
  t.match(await run(['serve', '--flavor', 'sdk', '--transport', 'http', '--stateless']), { code: 2, stderr: 'cloudg-mcp: --stateless is for --flavor native\n' })
  t.match(await run(['serve', '--flavor', 'fastmcp', '--transport', 'sse']), { code: 2, stderr: 'cloudg-mcp: --transport sse is for --flavor native\n' })
  t.match(await run(['serve', '--flavor', 'vanilla']), { code: 2, stderr: /Allowed choices are native, sdk, fastmcp/ })
})

/** fastmcp does not say which port it took. */
async function freePort (): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => { server.listen(0, '127.0.0.1', resolve) })
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => { server.close(resolve) })
  return port
}
