// A rolling deploy: one process after the other ends in good order and comes back, and no client loses its session.

import t from 'tap'
import type { Test } from 'tap'
import { RedisServer, withoutRedis } from '../backplane/redis-server.js'
import { modern, modernHeaders, request } from '../kit.js'
import type { Events } from './client.js'
import { Client } from './client.js'
import type { NodeConfig } from './node.js'
import { Node } from './nodes.js'

const redis = withoutRedis === false ? await RedisServer.start() : undefined as never
t.teardown(async () => redis?.close())
let services = 0
const test = (name: string, body: (t: Test) => Promise<void>) => t.test(name, { skip: withoutRedis }, body)

async function start (t: Test, count: number, config: Partial<NodeConfig> = {}): Promise<Node[]> {
  const prefix = `handover-${++services}`
  const nodes = await Promise.all(Array.from({ length: count }, async () => Node.start({ ...config, redis: { url: redis.url, prefix, ...config.redis } })))
  t.teardown(async () => Promise.all(nodes.map(async (node) => node.kill())))
  return nodes
}

test('a process that ends hands its sessions and streams to the others', async (t) => {
  const [one, other] = await start(t, 2, { options: { resumable: { retry: 400 }, closeGrace: 5000 } }) as [Node, Node]
  const client = new Client({ ports: [one.port] })
  await client.initialize()
  await client.post(request('resources/subscribe', { uri: 'test://a' }))
  const stream = await client.get()
  one.tell({ order: 'change', kind: 'tools' })
  const first = await stream.next()
  t.match(first?.message, { method: 'notifications/tools/list_changed' })
  const call = await client.open('steps', { nonce: 'last', count: 20, delay: 10 })
  await one.entered('last')
  const closing = one.close()
  await stream.end()
  t.ok(stream.complete, 'the stream ends, it is not cut off')
  t.ok(stream.retry! >= 200 && stream.retry! <= 600, `with when to come back: ${stream.retry} ms`)
  const next = await client.get(first!.id, other.port)
  t.equal(next.status, 200, 'its place is free at once')
  other.tell({ order: 'touch', uris: ['test://a'] })
  t.match((await next.next())?.message, { method: 'notifications/resources/updated' })
  for (let step = 1; step <= 20; step++) t.match((await call.next())?.message, { params: { progress: step } })
  t.match((await call.next())?.message, { result: { structuredContent: { nonce: 'last' } } }, 'a call in flight is answered')
  await closing
  t.equal((await client.post(request('ping'), {}, other.port)).status, 200)
  next.leave()
})

test('what is said while nobody reads waits for the next reader', async (t) => {
  await Promise.all([false, true].map(async (resumable) => {
    const [one, other] = await start(t, 2, { options: { resumable } }) as [Node, Node]
    const client = new Client({ ports: [one.port] })
    await client.initialize()
    await client.post(request('resources/subscribe', { uri: 'test://a' }))
    const stream = await client.get()
    await one.close()
    await stream.end()
    await client.post(request('tools/call', { name: 'say', arguments: { nonce: 'between', count: 3 } }), {}, other.port)
    other.tell({ order: 'touch', uris: ['test://a'] })
    other.tell({ order: 'change', kind: 'prompts' })
    const next = await client.get(undefined, other.port)
    const got: any[] = []
    for (let at = 0; at < 5; at++) got.push((await next.next())?.message)
    t.same(got.filter(({ method }) => method === 'notifications/message').map(({ params }) => params.data.at), [1, 2, 3])
    t.equal(got.filter(({ method }) => method === 'notifications/resources/updated').length, 1)
    t.equal(got.filter(({ method }) => method === 'notifications/prompts/list_changed').length, 1)
    next.leave()
  }))
})

test('a revision that knows no polling gets no event without a message', async (t) => {
  const [one] = await start(t, 1, { options: { resumable: true } }) as [Node]
  const client = new Client({ ports: [one.port], version: '2025-06-18' })
  await client.initialize()
  const stream: Events = await client.get()
  await one.close()
  await stream.end()
  t.ok(stream.complete)
  t.equal(stream.retry, undefined)
})

test('a call that does not end within the grace is answered with an error', async (t) => {
  const [one] = await start(t, 1, { options: { closeGrace: 100 } }) as [Node]
  const client = new Client({ ports: [one.port] })
  await client.initialize()
  const call = await client.open('hang', { nonce: 'late' })
  await one.entered('late')
  const closing = one.close()
  for (let event = await call.next(); event !== undefined; event = await call.next()) {
    if (event.message.id === 1) t.match(event.message, { error: { code: -32603, message: 'The server is shutting down' } })
  }
  t.ok(call.complete)
  await closing
})

test('all processes are replaced while clients work', async (t) => {
  const nodes = await start(t, 2, { options: { resumable: true } })
  const ports = nodes.map(({ port }) => port)
  const clients = await Promise.all(Array.from({ length: 6 }, async (_, at) => {
    const client = new Client({ ports }, at)
    await client.initialize()
    return client
  }))
  const deployed = new AbortController()
  let answered = 0
  const work = clients.map(async (client, at) => {
    for (let call = 0; !deployed.signal.aborted; call++) {
      const nonce = `${at}-${call}`
      const outcome = await client.call('steps', { nonce, count: 3, delay: 5 })
      if ('failed' in outcome) {
        // What a balancer takes to the next process: the request has not been taken.
        if (!/ECONNREFUSED|ECONNRESET|socket hang up|status 503/.test(outcome.failed)) throw new Error(outcome.failed)
      } else if (outcome.reply.result?.structuredContent?.nonce === nonce) {
        answered++
      } else {
        throw new Error(JSON.stringify(outcome.reply))
      }
    }
  })
  for (const node of nodes) {
    await node.close()
    await node.up()
  }
  deployed.abort()
  await Promise.all(work)
  t.ok(answered > 20, `${answered} calls`)
  for (const client of clients) t.equal((await client.post(request('ping'))).status, 200, 'its first session is still its session')
})

test('a deploy that changes the tools tells clients so; one that does not, does not', async (t) => {
  const options = { resumable: true }
  const [one, other] = await start(t, 2, { options }) as [Node, Node]
  const client = new Client({ ports: [one.port] })
  await client.initialize()
  const stream = await client.get()
  await other.close()
  await other.up()
  one.tell({ order: 'change', kind: 'prompts' })
  t.match((await stream.next())?.message, { method: 'notifications/prompts/list_changed' }, 'the same again is no change')
  const renewed = await Node.start({ options, extraTools: ['new'], redis: one.config.redis! })
  t.teardown(async () => renewed.kill())
  t.match((await stream.next())?.message, { method: 'notifications/tools/list_changed' }, 'one that offers more has come')
  await other.close()
  t.match((await stream.next())?.message, { method: 'notifications/tools/list_changed' }, 'one of the others has gone')
  await one.close()
  await stream.end()
  const rest = await client.get(stream.lastId, renewed.port)
  t.match((await rest.next())?.message, { method: 'notifications/tools/list_changed' }, 'and the last of them')
  const { tools } = (await client.post(request('tools/list'), {}, renewed.port)).json.result
  t.ok(tools.some(({ name }: { name: string }) => name === 'new'))
  await renewed.close()
  await rest.end()
  t.equal(await rest.next(), undefined, 'nothing else was told')
})

test('a question of 2026 is answered at another process that has the keys', async (t) => {
  const keys = ['a key that all processes of the service share']
  const [one, other] = await start(t, 2, { options: { requestState: { keys } } }) as [Node, Node]
  const [stranger] = await start(t, 1) as [Node]
  const client = new Client({ ports: [one.port] })
  const meta = { 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} } }
  const call = (more: object, port: number) => client.post(modern('tools/call', { name: 'ask', arguments: { nonce: 'moved' }, ...more, _meta: meta }), modernHeaders('tools/call', 'ask'), port)
  const asked = (await call({}, one.port)).json.result
  t.equal(asked.resultType, 'input_required')
  const [key] = Object.keys(asked.inputRequests)
  const retry = { requestState: asked.requestState, inputResponses: { [key!]: { action: 'accept', content: { answer: 'yes' } } } }
  t.match((await call(retry, other.port)).json, { result: { structuredContent: { nonce: 'moved', answer: 'yes', process: other.pid } } })
  t.match((await call(retry, stranger.port)).json, { error: { code: -32602, message: 'Invalid or expired requestState' } })
})
