// The example in both directions: the warehouse hosted, and the warehouse with a layer in it.

import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js'
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { buildApp, createExtendedWarehouse } from '../../examples/official-sdk/app.js'

t.test('hosted, a client of 2026 is asked and gets its order', async (t) => {
  const app = await buildApp(['dev-token:support:dev'])
  t.teardown(async () => app.close())
  await app.listen({ host: '127.0.0.1', port: 0 })
  const client = new Client({ name: 'peer', version: '2' }, { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: 'auto' } })
  t.teardown(async () => client.close())
  const questions: string[] = []
  client.setRequestHandler('elicitation/create', ({ params }) => {
    questions.push(params.message)
    return { action: 'accept', content: { agreed: true } }
  })
  const url = new URL(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}/mcp`)
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers: { authorization: 'Bearer dev-token' } } }))
  t.equal(client.getNegotiatedProtocolVersion(), '2026-07-28')
  t.match(await client.callTool({ name: 'order_parts', arguments: { part: 'bolt', count: 5 } }), { content: [{ text: 'Ordered 5 of bolt' }] })
  t.same(questions, ['Order 5 of bolt?'])
  t.match(await client.callTool({ name: 'count_parts', arguments: { part: 'bolt' } }), { content: [{ text: '125' }] })
  t.same((await client.complete({ ref: { type: 'ref/resource', uri: 'warehouse://parts/{name}' }, argument: { name: 'name', value: 'w' } })).completion.values, ['washer'])
})

t.test('extended, it has the layer\'s tools beside its own', async (t) => {
  const server = createExtendedWarehouse()
  const client = new Client1({ name: 'peer', version: '1' })
  const [near, far] = InMemoryTransport.createLinkedPair()
  t.teardown(async () => {
    await client.close()
    await server.close()
  })
  await Promise.all([server.connect(far), client.connect(near)])
  t.same((await client.listTools()).tools.map(({ name }) => name), ['count_parts', 'order_parts', 'suppliers_list_suppliers'])
  t.match(await client.callTool({ name: 'suppliers_list_suppliers', arguments: {} }), { structuredContent: { suppliers: ['Acme', 'Globex'] } })
})
