// Envelopes, ids and batches: what is a message, what it is answered under, and what is refused how.

import t from 'tap'
import { createLayer } from '../../lib/layer/index.js'
import { createKit, initialize, INITIALIZED, modern, request } from '../kit.js'
import { attach, connect, connectAt, settled } from './connection.js'

const HANDSHAKE = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']

function refusal (id: unknown, code: number, message: string): object {
  return { jsonrpc: '2.0', id, error: { code, message } }
}

t.test('what is no JSON-RPC 2.0 message is refused under its id, if that can be read', async (t) => {
  const cases: [title: string, message: unknown, answer: object | undefined][] = [
    ['JR-01 no jsonrpc', { id: 1, method: 'ping' }, refusal(1, -32600, 'Invalid Request')],
    ['JR-02 another jsonrpc', { jsonrpc: '1.0', id: 1, method: 'ping' }, refusal(1, -32600, 'Invalid Request')],
    ['jsonrpc as a number', { jsonrpc: 2, id: 'a', method: 'ping' }, refusal('a', -32600, 'Invalid Request')],
    ['without an id, under null', { method: 'ping' }, refusal(null, -32600, 'Invalid Request')],
    ['JR-04 the id is a boolean', { jsonrpc: '2.0', id: true, method: 'ping' }, refusal(null, -32600, 'Invalid Request: bad id')],
    ['the id is null', { jsonrpc: '2.0', id: null, method: 'ping' }, refusal(null, -32600, 'Invalid Request: bad id')],
    ['the id is an object', { jsonrpc: '2.0', id: {}, method: 'ping' }, refusal(null, -32600, 'Invalid Request: bad id')],
    ['JR-06 the method is a number', { jsonrpc: '2.0', id: 1, method: 5 }, refusal(1, -32600, 'Invalid Request: method must be a string')],
    ['the method is null', { jsonrpc: '2.0', id: 1, method: null }, refusal(1, -32600, 'Invalid Request: method must be a string')],
    ['the method comes before the id', { jsonrpc: '2.0', id: true, method: 5 }, refusal(null, -32600, 'Invalid Request: method must be a string')],
    ['JR-07 bare text', 'garbage', refusal(null, -32600, 'Invalid Request')],
    ['null', null, refusal(null, -32600, 'Invalid Request')],
    ['a number', 7, refusal(null, -32600, 'Invalid Request')],
    ['an empty object', {}, refusal(null, -32600, 'Invalid Request')],
    ['neither method nor result', { jsonrpc: '2.0', id: 3 }, refusal(3, -32600, 'Invalid Request')],
    ['JR-08 params as a list', { jsonrpc: '2.0', id: 9, method: 'ping', params: [1, 2] }, refusal(9, -32602, 'params must be an object')],
    ['params as text', { jsonrpc: '2.0', id: 9, method: 'ping', params: 'x' }, refusal(9, -32602, 'params must be an object')],
    ['params as a list, in a notification', { jsonrpc: '2.0', method: 'notifications/initialized', params: [1] }, undefined],
    ['JR-10 a result that nobody waits for', { jsonrpc: '2.0', id: 7, result: {} }, undefined],
    ['an error that nobody waits for', { jsonrpc: '2.0', id: 7, error: { code: 1, message: 'x' } }, undefined],
    ['a result without an id', { jsonrpc: '2.0', result: {} }, undefined]
  ]
  for (const era of ['before initialization', '2025-11-25', '2026-07-28']) {
    const { handle, sent } = connect(createKit().layer)
    if (era === '2025-11-25') await handle(initialize())
    if (era === '2026-07-28') await handle(modern('server/discover'))
    for (const [title, message, answer] of cases) t.strictSame(await handle(message), answer, `${title} (${era})`)
    t.same(sent, [])
  }
})

t.test('JR-12 params that are null are no params', async (t) => {
  const { handle } = await connectAt('2025-06-18', createKit().layer)
  const reply = await handle({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: null })
  t.equal(reply.result.tools.length, 8)
})

t.test('JR-14 RPC-01 an id comes back with its type and its value, on answers and on every kind of error', async (t) => {
  const kit = createKit()
  const { handle } = await connectAt('2025-11-25', kit.layer)
  const fresh = connect(kit.layer)
  const stateless = connect(kit.layer)
  await stateless.handle(modern('server/discover'))
  for (const id of ['1', 1, 0, '', 'req-ä', -5, 'x'.repeat(300), 2 ** 53 - 1, -(2 ** 53 - 1), '\u2028', 'null', 'true']) {
    const title = JSON.stringify(id).slice(0, 30).replace(/[^ -~]/g, '.')
    t.strictSame(await handle(request('ping', undefined, id)), { jsonrpc: '2.0', id, result: {} }, title)
    const errors: [unknown, number][] = [
      [handle(request('nope', undefined, id)), -32601],
      [handle(request('tools/call', {}, id)), -32602],
      [handle(request('tools/call', { name: 'nope' }, id)), -32602],
      [handle(request('resources/read', { uri: 'other://x' }, id)), -32002],
      [handle({ jsonrpc: '2.0', id, method: 'ping', params: 1 }), -32602],
      [handle({ id, method: 'ping' }), -32600],
      [handle(modern('tools/list', {}, id)), -32600],
      [fresh.handle(request('tools/list', undefined, id)), -32600],
      [stateless.handle(request('tools/list', undefined, id)), -32602],
      [stateless.handle(initialize('2025-11-25', id)), -32022]
    ]
    for (const [reply, code] of errors) {
      const { jsonrpc, id: under, error } = await reply as any
      t.strictSame({ jsonrpc, id: under, code: error.code }, { jsonrpc: '2.0', id, code }, title)
    }
    t.strictSame((await handle(request('tools/call', { name: 'fail' }, id))).id, id, title)
    t.strictSame((await stateless.handle(modern('tools/call', { name: 'fail' }, id))).id, id, title)
  }
})

t.test('RPC-03 an id that could not be echoed unchanged is refused; 1.0 is 1', async (t) => {
  const { handle } = await connectAt('2025-11-25', createKit().layer)
  for (const id of ['1.5', '9007199254740992', '9007199254740993', '-9007199254740993', '1e400', '-1e400', '0.1']) {
    t.strictSame(await handle(JSON.parse(`{"jsonrpc":"2.0","id":${id},"method":"ping"}`)), refusal(null, -32600, 'Invalid Request: bad id'), id)
  }
  for (const id of ['1.0', '1e0', '10e-1']) {
    t.strictSame(await handle(JSON.parse(`{"jsonrpc":"2.0","id":${id},"method":"ping"}`)), { jsonrpc: '2.0', id: 1, result: {} }, id)
  }
})

t.test('RPC-07 notifications that are unknown, or lack what they should have, are ignored', async (t) => {
  const kit = createKit()
  const { handle, sent } = await connectAt('2025-11-25', kit.layer)
  const stateless = connect(kit.layer)
  await stateless.handle(modern('server/discover'))
  const odd = [
    { method: 'notifications/whatever' },
    { method: 'notifications/cancelled' },
    { method: 'notifications/cancelled', params: null },
    { method: 'notifications/cancelled', params: {} },
    { method: 'notifications/cancelled', params: { requestId: {} } },
    { method: 'notifications/cancelled', params: { requestId: null, reason: 7 } },
    { method: 'notifications/cancelled', params: { requestId: 'nobody', reason: {} } },
    { method: 'notifications/roots/list_changed' },
    { method: 'notifications/progress', params: { progressToken: 1, progress: 'x' } },
    { method: 'notifications/initialized', params: { _meta: 5 } },
    { method: 'notifications/initialized' },
    { method: 'tools/call', params: { name: 'fail' } },
    { method: '' },
    { method: '__proto__' }
  ]
  for (const message of odd) {
    t.equal(await handle({ jsonrpc: '2.0', ...message }), undefined, JSON.stringify(message))
    t.equal(await stateless.handle({ jsonrpc: '2.0', ...message }), undefined)
    t.equal(await connect(kit.layer).handle({ jsonrpc: '2.0', ...message }), undefined)
  }
  t.same(kit.calls, {}, 'a call without an id is not made')
  t.same(sent, [])
  t.match(await handle(request('ping')), { result: {} })
})

t.test('a method is only what the table holds', async (t) => {
  const { handle } = await connectAt('2025-11-25', createKit().layer)
  const stateless = connect(createKit().layer)
  for (const method of ['', 'toString', '__proto__', 'constructor', 'Tools/List', 'tools/list ', 'notifications/initialized', 'rpc.discover']) {
    const answer = { jsonrpc: '2.0', id: 1, error: { code: -32601, message: 'Method not found', data: method } }
    t.strictSame(await handle(request(method)), answer, `'${method}'`)
    t.strictSame(await stateless.handle(modern(method)), answer, `'${method}'`)
  }
})

// ---- batches

t.test('BA-01 a batch is answered in its order, notifications left out', async (t) => {
  const { handle } = await connectAt('2025-03-26', createKit().layer)
  const replies = await handle([request('ping', undefined, 1), { jsonrpc: '2.0', method: 'notifications/progress', params: {} }, request('tools/list', undefined, 2)])
  t.same(replies.map(({ id }: any) => id), [1, 2])
  t.strictSame(replies[0], { jsonrpc: '2.0', id: 1, result: {} })
  t.equal(replies[1].result.tools.length, 8)
})

t.test('a batch runs at once, and keeps its order whoever is done first', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => { open = resolve })
  layer.tool('waits', {}, async () => { await opened; return 'waited' })
  layer.tool('opens', {}, () => { open(); return 'opened' })
  const { handle } = await connectAt('2024-11-05', layer)
  const replies = await handle([request('tools/call', { name: 'waits' }, 'a'), request('tools/call', { name: 'opens' }, 'b')])
  t.same(replies.map(({ id, result }: any) => [id, result.content[0].text]), [['a', 'waited'], ['b', 'opened']])
})

t.test('BA-03 an empty batch is refused in every era', async (t) => {
  const answer = refusal(null, -32600, 'Invalid Request: empty batch')
  for (const version of HANDSHAKE) t.strictSame(await (await connectAt(version, createKit().layer)).handle([]), answer, version)
  const { handle } = connect(createKit().layer)
  t.strictSame(await handle([]), answer, 'before initialization')
  await handle(modern('server/discover'))
  t.strictSame(await handle([]), answer, '2026-07-28')
})

t.test('BA-04 there are no batches before initialization', async (t) => {
  const { handle } = connect(createKit().layer)
  t.strictSame(await handle([initialize()]), refusal(null, -32600, 'JSON-RPC batches are not supported before initialization'))
  t.match(await handle(initialize('2025-03-26')), { result: { protocolVersion: '2025-03-26' } }, 'nothing has happened')
})

t.test('BA-05 there are no batches in 2026-07-28', async (t) => {
  const { handle } = connect(createKit().layer)
  await handle(modern('server/discover'))
  const answer = refusal(null, -32600, 'JSON-RPC batches are not supported by protocol version 2026-07-28')
  t.strictSame(await handle([modern('tools/list')]), answer)
  t.strictSame(await handle([modern('tools/list'), request('ping')]), answer)
})

t.test('RPC-11 batches at every handshake revision', async (t) => {
  const ping = (id: number): object => request('ping', undefined, id)
  const pong = (id: number): object => ({ jsonrpc: '2.0', id, result: {} })
  for (const version of ['2024-11-05', '2025-03-26']) {
    const { handle } = await connectAt(version, createKit().layer)
    t.strictSame(await handle([ping(1), ping(2)]), [pong(1), pong(2)], version)
    t.strictSame(await handle([INITIALIZED]), undefined)
    t.strictSame(await handle([1]), [refusal(null, -32600, 'Invalid Request')])
    t.strictSame(await handle([[]]), [refusal(null, -32600, 'Invalid Request')], 'a batch in a batch')
    t.strictSame(await handle([initialize(version, 5)]), [refusal(5, -32600, 'Invalid Request: initialize must not be part of a batch')])
    t.strictSame(await handle([ping(1), {}, INITIALIZED, { jsonrpc: '2.0', id: 2, result: {} }, { jsonrpc: '2.0', id: null, method: 'ping' }, request('nope', undefined, 3)]), [
      pong(1),
      refusal(null, -32600, 'Invalid Request'),
      refusal(null, -32600, 'Invalid Request: bad id'),
      { jsonrpc: '2.0', id: 3, error: { code: -32601, message: 'Method not found', data: 'nope' } }
    ])
    const thousand = Array.from({ length: 1000 }, (_, n) => ping(n))
    t.strictSame(await handle(thousand), thousand.map((_, n) => pong(n)))
    t.strictSame(await handle([...thousand, ping(1000)]), refusal(null, -32600, 'Invalid Request: more than 1000 messages in a batch'))
    t.strictSame(await handle([ping(1), modern('tools/list', {}, 2)]), [
      pong(1),
      refusal(2, -32600, 'this connection serves the handshake protocol era; requests carrying the 2026-07-28 envelope are not accepted on it')
    ])
  }
  for (const version of ['2025-06-18', '2025-11-25']) {
    const { handle } = await connectAt(version, createKit().layer)
    const answer = refusal(null, -32600, `JSON-RPC batches are not supported by protocol version ${version}`)
    for (const batch of [[ping(1), ping(2)], [INITIALIZED], [1], [initialize(version)]]) t.strictSame(await handle(batch), answer, version)
  }
})

t.test('a cancellation in a batch takes its entry out of the answer', async (t) => {
  const kit = createKit()
  const { handle } = await connectAt('2025-03-26', kit.layer)
  const entered = kit.entered('sleepy')
  const replies = handle([request('tools/call', { name: 'sleepy' }, 1), request('ping', undefined, 2)])
  await entered
  await handle({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } })
  t.strictSame(await replies, [{ jsonrpc: '2.0', id: 2, result: {} }])
  const all = kit.entered('sleepy')
  const none = handle([request('tools/call', { name: 'sleepy' }, 1)])
  await all
  await handle([{ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }])
  t.equal(await none, undefined)
})

t.test('requests that share an id are both ended by a cancellation, and by the end of the session', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const signals: AbortSignal[] = []
  layer.tool('waits', { timeout: 0 }, async (_args, ctx) => {
    signals.push(ctx.signal)
    await new Promise((_resolve, reject) => { ctx.signal.addEventListener('abort', () => reject(new Error('stopped'))) })
  })
  const first = await connectAt('2025-11-25', layer)
  const calls = [1, 1].map((id) => first.handle(request('tools/call', { name: 'waits' }, id)))
  await settled()
  await first.handle({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } })
  t.same(signals.map(({ aborted }) => aborted), [true, true])
  t.strictSame(await Promise.all(calls), [undefined, undefined])
  t.notOk(first.session.busy)

  const second = attach(first.server)
  await second.handle(initialize())
  const others = [1, 1].map((id) => second.handle(request('tools/call', { name: 'waits' }, id)))
  await settled()
  second.session.close()
  t.same(signals.map(({ aborted }) => aborted), [true, true, true, true])
  t.strictSame(await Promise.all(others), [undefined, undefined])
})
