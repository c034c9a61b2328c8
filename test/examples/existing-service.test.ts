// A service that had routes, keys and handlers before the plugin: all of that still behaves, and MCP works beside it.
import { request as httpRequest } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js'
import t, { type Test } from 'tap'
import { buildApp } from '../../examples/existing-service/app.js'
import { OrderBook } from '../../examples/existing-service/orders.js'

const KEY = { 'x-api-key': 'key-1' }
const SUPPORT = 'tok-support'
const READER = 'tok-reader'

async function service (t: Test, orders?: OrderBook) {
  const app = await buildApp({ apiKey: 'key-1', mcpTokens: [`${SUPPORT}:support:sam`, `${READER}::rita`], ...(orders && { orders }) })
  t.teardown(() => app.close())
  return app
}

function call (name: string, args: Record<string, unknown>, token = SUPPORT) {
  return {
    method: 'POST',
    url: '/api/mcp',
    headers: {
      host: 'localhost',
      'content-type': 'application/json',
      accept: 'application/json',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': name,
      ...(token !== '' && { authorization: `Bearer ${token}` })
    },
    payload: {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: {
        name,
        arguments: args,
        _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} }
      }
    }
  } as const
}

t.test('the routes, their key and both handlers behave as before', async (t) => {
  const app = await service(t)
  t.same((await app.inject('/health')).json(), { status: 'up' })

  const listed = await app.inject({ url: '/orders?customer=ada', headers: KEY })
  t.same(listed.json().orders.map((order: { id: string }) => order.id), ['1003', '1001'])
  t.equal((await app.inject({ url: '/orders/1002', headers: KEY })).json().total, 10250)

  const anonymous = await app.inject('/orders')
  t.equal(anonymous.statusCode, 401)
  t.same(anonymous.json(), { error: 'unauthorized', message: 'Send a valid X-Api-Key header' })
  t.equal((await app.inject({ url: '/orders', headers: { authorization: `Bearer ${SUPPORT}` } })).statusCode, 401, 'an MCP token opens nothing here')

  const unknown = await app.inject({ url: '/orders/9', headers: KEY })
  t.equal(unknown.statusCode, 404)
  t.same(unknown.json(), { error: 'ORDER_NOT_FOUND', message: 'There is no order 9' })

  const invalid = await app.inject({ url: '/orders?status=odd', headers: KEY })
  t.equal(invalid.statusCode, 400)
  t.equal(invalid.json().error, 'invalid_request')

  const unsupported = await app.inject({ method: 'POST', url: '/orders/1003/cancel', headers: { ...KEY, 'content-type': 'text/csv' }, payload: 'a,b' })
  t.equal(unsupported.statusCode, 415)
  t.same(Object.keys(unsupported.json()), ['error', 'message'])
  const malformed = await app.inject({ method: 'POST', url: '/orders/1003/cancel', headers: { ...KEY, 'content-type': 'application/json' }, payload: '{"reason":' })
  t.equal(malformed.statusCode, 400)
  t.same(Object.keys(malformed.json()), ['error', 'message'], 'the body is parsed by the host\'s own parser')

  for (const url of ['/nothing', '/mcp', '/healthz', '/api/nothing']) {
    const nowhere = await app.inject(url)
    t.equal(nowhere.statusCode, 404, url)
    t.same(nowhere.json(), { error: 'not_found', message: `Nothing at ${url}` })
  }
})

t.test('an unexpected error keeps its text inside, on both sides', async (t) => {
  const orders = new OrderBook()
  orders.get = () => { throw new Error('connection to db-7 lost') }
  const app = await service(t, orders)
  const rest = await app.inject({ url: '/orders/1001', headers: KEY })
  t.equal(rest.statusCode, 500)
  t.same(rest.json(), { error: 'internal', message: 'Something went wrong' })
  const { result } = (await app.inject(call('get_order', { id: '1001' }))).json()
  t.equal(result.isError, true)
  t.same(result.content, [{ type: 'text', text: 'Error executing tool get_order' }])
})

t.test('MCP answers under the prefix, with its own tokens and its own errors', async (t) => {
  const app = await service(t)
  t.equal((await app.inject('/api/healthz')).json().status, 'ok')
  const stranger = await app.inject(call('get_order', { id: '1001' }, ''))
  t.equal(stranger.statusCode, 401)
  t.match(stranger.headers['www-authenticate'], /^Bearer realm="/)
  t.same(stranger.json(), { jsonrpc: '2.0', id: null, error: { code: -32600, message: 'Unauthorized' } })
  t.equal((await app.inject({ ...call('get_order', { id: '1001' }, ''), headers: { ...call('get_order', {}, '').headers, ...KEY } })).statusCode, 401, 'the API key opens nothing here')

  const broken = await app.inject({ ...call('get_order', {}), payload: '{"jsonrpc":' })
  t.equal(broken.statusCode, 400)
  t.match(broken.json(), { jsonrpc: '2.0', id: null, error: { code: -32700 } })

  const { result } = (await app.inject(call('get_order', { id: '1002' }))).json()
  t.match(result.structuredContent, { id: '1002', status: 'paid', total: 10250 })
  const open = (await app.inject(call('list_orders', { status: 'open' }))).json().result.structuredContent
  t.same([open.total, open.orders[0].id], [1, '1003'])
  const missing = (await app.inject(call('get_order', { id: '9' }))).json().result
  t.same([missing.isError, missing.content[0].text], [true, 'There is no order 9'])
})

t.test('an order cancelled by a tool is cancelled in the service', async (t) => {
  const app = await service(t)
  const hidden = (await app.inject(call('cancel_order', { id: '1003', reason: 'changed my mind' }, READER))).json()
  t.same(hidden.error, { code: -32602, message: 'Unknown tool: cancel_order', data: { name: 'cancel_order' } })
  const { result } = (await app.inject(call('cancel_order', { id: '1003', reason: 'changed my mind' }))).json()
  t.match(result.structuredContent, { status: 'cancelled', cancel_reason: 'changed my mind' })
  t.equal((await app.inject({ url: '/orders/1003', headers: KEY })).json().status, 'cancelled')
  const again = await app.inject({ method: 'POST', url: '/orders/1003/cancel', headers: KEY, payload: { reason: 'twice' } })
  t.equal(again.statusCode, 409)
  const shipped = (await app.inject(call('cancel_order', { id: '1001', reason: 'late' }))).json().result
  t.same([shipped.isError, shipped.content[0].text], [true, 'Order 1001 is shipped and cannot be cancelled'])
})

t.test('an MCP client reads, subscribes and hears of a change that was made over REST', async (t) => {
  const app = await service(t)
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = app.server.address() as AddressInfo
  const client = new Client({ name: 'test', version: '1' })
  t.teardown(() => client.close())
  await client.connect(new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/api/mcp`), { requestInit: { headers: { authorization: `Bearer ${SUPPORT}` } } }))
  t.same((await client.listTools()).tools.map((tool) => tool.name), ['list_orders', 'get_order', 'cancel_order'])
  t.same((await client.complete({ ref: { type: 'ref/resource', uri: 'orders://{id}' }, argument: { name: 'id', value: '100' } })).completion.values.sort(), ['1001', '1002', '1003', '1004'])
  const [content] = (await client.readResource({ uri: 'orders://1002' })).contents as { text: string }[]
  t.equal(JSON.parse(content!.text).status, 'paid')
  await t.rejects(client.readResource({ uri: 'orders://9' }), { code: -32002 })

  const updated = new Promise((resolve) => client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve(params.uri)))
  await client.subscribeResource({ uri: 'orders://1002' })
  const cancelled = httpRequest({ port, path: '/orders/1002/cancel', method: 'POST', headers: { ...KEY, 'content-type': 'application/json' } })
  cancelled.end('{"reason":"out of stock"}')
  const [response] = await once(cancelled, 'response')
  response.resume()
  t.equal(response.statusCode, 200)
  t.equal(await updated, 'orders://1002')
})
