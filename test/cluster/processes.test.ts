// Two processes on one Redis: whatever a session needs works at either of them.

import t from 'tap'
import { RedisServer, withoutRedis } from '../backplane/redis-server.js'
import { initialize, INITIALIZED, request } from '../kit.js'
import { Client, Events } from './client.js'
import { Node } from './nodes.js'

t.test('any process serves any session', { skip: withoutRedis }, async (t) => {
  const redis = await RedisServer.start()
  t.teardown(async () => redis.close())
  const config = { redis: { url: redis.url }, options: { resumable: true, sse: true, auth: { tokens: ['a:user:alice', 'b:user:bob'] } } }
  const nodes = await Promise.all([Node.start(config), Node.start(config)])
  t.teardown(async () => Promise.all(nodes.map(async (node) => node.kill())))
  const [one, other] = nodes as [Node, Node]
  const ports = nodes.map(({ port }) => port)
  const alice = (): Client => new Client({ ports, token: 'a' })

  t.test('calls, one after the other at each', async (t) => {
    const client = alice()
    await client.initialize()
    const pids = new Set<number>()
    for (let at = 0; at < 4; at++) {
      const outcome = await client.call('echo', { nonce: `n${at}` })
      t.match(outcome, { reply: { result: { structuredContent: { nonce: `n${at}`, caller: 'alice' } } } })
      pids.add((outcome as any).reply.result.structuredContent.process)
    }
    t.same(pids, new Set(nodes.map(({ pid }) => pid)))
    const bob = new Client({ ports, token: 'b' })
    bob.id = client.id
    for (const port of ports) t.equal((await bob.post(request('ping'), {}, port)).status, 404, 'a foreign session is unknown everywhere')
  })

  t.test('an end at one is an end at the other, with calls and streams', async (t) => {
    const client = alice()
    await client.initialize(one.port)
    const stream = await client.get(undefined, one.port)
    const call = await client.open('hang', { nonce: 'ended' }, one.port)
    await one.entered('ended')
    t.equal((await client.end(other.port)).status, 200)
    await one.report('aborted')
    await stream.end()
    t.ok(stream.complete)
    await call.end()
    t.ok(call.complete)
    for (const port of ports) t.equal((await client.post(request('ping'), {}, port)).status, 404)
  })

  t.test('a cancellation finds its call', async (t) => {
    const client = alice()
    await client.initialize(one.port)
    const call = await client.open('hang', { nonce: 'cancelled' }, one.port)
    await one.entered('cancelled')
    await client.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }, {}, other.port)
    await one.report('aborted')
    await call.end()
    t.ok(call.complete)
  })

  t.test('a question is answered at the other process', async (t) => {
    const client = alice()
    await client.initialize()
    for (let at = 0; at < 4; at++) {
      const outcome = await client.call('ask', { nonce: `q${at}` }, ({ params }) => ({ action: 'accept', content: { answer: params.message } }))
      t.match(outcome, { reply: { result: { structuredContent: { nonce: `q${at}`, action: 'accept', answer: `What about q${at}?` } } } })
    }
  })

  t.test('a question without a stream of its own goes to the standalone stream, wherever that is', async (t) => {
    const client = alice()
    await client.initialize(one.port)
    const stream = await client.get(undefined, one.port)
    for (const port of ports) {
      const call = client.post(request('tools/call', { name: 'ask', arguments: { nonce: 'elsewhere' } }, `ask at ${port}`), {}, other.port)
      const question = (await stream.next())!.message
      t.match(question, { method: 'elicitation/create', params: { message: 'What about elsewhere?' } })
      await client.post({ jsonrpc: '2.0', id: question.id, result: { action: 'accept', content: { answer: `at ${port}` } } }, {}, port)
      t.match((await call).json, { id: `ask at ${port}`, result: { structuredContent: { answer: `at ${port}`, process: other.pid } } })
    }
    stream.leave()
  })

  t.test('messages of the old transport are taken by any process, answers come on the one stream', async (t) => {
    const client = alice()
    const stream = new Events(await client.ask('GET', undefined, { accept: 'text/event-stream' }, one.port, '/sse'))
    const endpoint = (await stream.next())!.data
    const send = async (message: object, port: number): Promise<number | undefined> => {
      const response = await client.ask('POST', message, {}, port, endpoint)
      response.resume()
      return response.statusCode
    }
    t.equal(await send(initialize('2024-11-05', 1, {}), other.port), 202)
    t.match((await stream.next())?.message, { id: 1, result: { protocolVersion: '2024-11-05' } })
    t.equal(await send(INITIALIZED, one.port), 202)
    for (const [at, port] of [...ports, ...ports].entries()) {
      const id = at + 2
      t.equal(await send(request('tools/call', { name: 'steps', arguments: { nonce: 'old', count: 3 }, _meta: { progressToken: id } }, id), port), 202)
      for (let step = 1; step <= 3; step++) t.match((await stream.next())?.message, { method: 'notifications/progress', params: { progressToken: id, progress: step } })
      const { id: answered, result } = (await stream.next())!.message
      t.equal(answered, id)
      t.match(JSON.parse(result.content[0].text), { nonce: 'old', process: nodes[at % 2]!.pid })
    }
    other.tell({ order: 'change', kind: 'tools' })
    t.match((await stream.next())?.message, { method: 'notifications/tools/list_changed' })
    stream.leave()
    await stream.end()
    let status = await send(request('ping', undefined, 99), other.port)
    while (status === 202) status = await send(request('ping', undefined, 99), other.port)
    t.equal(status, 404, 'the stream is the session')
  })

  t.test('a stream at one hears of what is subscribed, changed and said at the other', async (t) => {
    const client = alice()
    await client.initialize(one.port)
    const stream = await client.get(undefined, one.port)
    await client.post(request('resources/subscribe', { uri: 'test://a' }), {}, other.port)
    other.tell({ order: 'touch', uris: ['test://b', 'test://a'] })
    t.match((await stream.next())?.message, { method: 'notifications/resources/updated', params: { uri: 'test://a' } })
    other.tell({ order: 'change', kind: 'prompts' })
    t.match((await stream.next())?.message, { method: 'notifications/prompts/list_changed' })
    await client.post(request('logging/setLevel', { level: 'warning' }), {}, one.port)
    await client.post(request('tools/call', { name: 'say', arguments: { nonce: 'quiet', count: 1 } }), {}, other.port)
    await client.post(request('logging/setLevel', { level: 'debug' }), {}, one.port)
    await client.post(request('tools/call', { name: 'say', arguments: { nonce: 'loud', count: 2 } }), {}, other.port)
    for (const at of [1, 2]) t.match((await stream.next())?.message, { method: 'notifications/message', params: { data: { nonce: 'loud', at } } })
    await client.post(request('resources/unsubscribe', { uri: 'test://a' }), {}, other.port)
    other.tell({ order: 'touch', uris: ['test://a'] })
    other.tell({ order: 'change', kind: 'tools' })
    t.match((await stream.next())?.message, { method: 'notifications/tools/list_changed' })
    stream.leave()
  })

  t.test('a stream of 2026 hears of changes everywhere', async (t) => {
    const streams = await Promise.all(ports.map(async (port) => alice().listenModern({ toolsListChanged: true }, port)))
    for (const stream of streams) t.match((await stream.next())?.message, { method: 'notifications/subscriptions/acknowledged' })
    one.tell({ order: 'change', kind: 'tools' })
    for (const stream of streams) {
      t.match((await stream.next())?.message, { method: 'notifications/tools/list_changed' })
      stream.leave()
    }
  })

  t.test('a session has one standalone stream, at whichever process', async (t) => {
    const client = alice()
    await client.initialize(one.port)
    const stream = await client.get(undefined, one.port)
    t.equal(stream.status, 200)
    t.equal((await client.get(undefined, other.port)).status, 409)
    stream.leave()
    await stream.end()
    let next = await client.get(undefined, other.port)
    // The first process learns from the socket that its reader has gone: that takes a moment.
    while (next.status === 409) next = await client.get(undefined, other.port)
    t.equal(next.status, 200)
    next.leave()
  })

  t.test('a call whose stream broke is come back for at the other process, while it runs', async (t) => {
    const client = alice()
    await client.initialize(one.port)
    const call = await client.open('steps', { nonce: 'broken', count: 40, delay: 10 }, one.port)
    const first = await call.next()
    t.match(first?.message, { method: 'notifications/progress', params: { progress: 1 } })
    call.leave()
    const rest = await client.get(first!.id, other.port)
    for (let step = 2; step <= 40; step++) t.match((await rest.next())?.message, { params: { progress: step } })
    t.match((await rest.next())?.message, { id: 1, result: { structuredContent: { nonce: 'broken', process: one.pid } } })
    await rest.end()
    t.ok(rest.complete)
  })
})
