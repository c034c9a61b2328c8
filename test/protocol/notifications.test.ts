// What is sent beside an answer: progress, log messages, changes and listen streams; and calls that are not answered because
// their client cancelled them.

import t from 'tap'
import { getEventListeners } from 'node:events'
import { createLayer } from '../../lib/layer/index.js'
import type { Context } from '../../lib/layer/index.js'
import { createKit, initialize, INITIALIZED, modern, request } from '../kit.js'
import type { Connection } from './connection.js'
import { attach, connect, connectAt, settled, shakeHands } from './connection.js'

const HANDSHAKE = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']
const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId'
const LOG_LEVEL = 'io.modelcontextprotocol/logLevel'

function progress (progressToken: unknown, at: number, total?: number, message?: string): object {
  return { jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, progress: at, ...(total !== undefined && { total }), ...(message !== undefined && { message }) } }
}

function logged (level: string, data: unknown, logger = 'kit'): object {
  return { jsonrpc: '2.0', method: 'notifications/message', params: { level, data, logger } }
}

function listChanged (kind: string, params?: object): object {
  return { jsonrpc: '2.0', method: `notifications/${kind}/list_changed`, ...(params && { params }) }
}

function updated (uri: string, more: object = {}): object {
  return { jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri, ...more } }
}

function cancelled (requestId: unknown, reason?: unknown): object {
  return { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId, ...(reason !== undefined && { reason }) } }
}

function slow (token?: unknown, steps = 3): Record<string, any> {
  return { name: 'slow', arguments: { steps }, ...(token !== undefined && { _meta: { progressToken: token } }) }
}

/** A tool whose handler is the test's. */
function toolOf (handler: (ctx: Context) => unknown) {
  const layer = createLayer({ name: 'kit', version: '1' })
  layer.tool('tool', { timeout: 0 }, (_args, ctx) => handler(ctx))
  return layer
}

// ---- progress and log messages

t.test('PL-01 progress and log messages come in order, before the answer', async (t) => {
  for (const token of ['tok', 0, 7, '']) {
    const { handle, sent } = await connectAt('2025-06-18', createKit().layer)
    const reply = await handle(request('tools/call', slow(token)))
    t.match(reply, { result: { structuredContent: { done: 3 } } })
    t.strictSame(sent, [1, 2, 3].flatMap((step) => [progress(token, step, 3, `step ${step}`), logged('info', { step })]))
  }
  const { handle, sent } = await connectAt('2024-11-05', createKit().layer)
  await handle(request('tools/call', slow('tok', 1)))
  t.strictSame(sent, [progress('tok', 1, 1), logged('info', { step: 1 })], 'the first revision knows no message of progress')
})

t.test('PL-02 without a usable token there is no progress', async (t) => {
  for (const token of [undefined, null, true, {}, [1], 1.5]) {
    const { handle, sent } = await connectAt('2025-11-25', createKit().layer)
    await handle(request('tools/call', slow(token)))
    t.strictSame(sent, [1, 2, 3].map((step) => logged('info', { step })), JSON.stringify(token))
  }
  const { handle, sent } = await connectAt('2025-11-25', createKit().layer)
  for (const _meta of [null, 'progressToken', [], 5]) await handle(request('tools/call', { name: 'slow', arguments: { steps: 1 }, _meta }))
  t.notMatch(JSON.stringify(sent), /progress/)
})

t.test('PL-04 progress only grows', async (t) => {
  const layer = toolOf(async (ctx) => {
    for (const [at, total, message] of [[1], [1], [0], [NaN], [Infinity], [-5], [1.5, 3], [1.4, 3], [2, undefined, ''], [2, 9, 'late']] as [number, number?, string?][]) {
      await ctx.progress(at, total, message)
    }
  })
  const { handle, sent } = await connectAt('2025-11-25', layer)
  await handle(request('tools/call', { name: 'tool', _meta: { progressToken: 1 } }))
  t.strictSame(sent, [progress(1, 1), progress(1, 1.5, 3), progress(1, 2)])
  sent.length = 0
  await handle(request('tools/call', { name: 'tool', _meta: { progressToken: 1 } }))
  t.equal(sent.length, 3, 'for each request anew')
})

t.test('progress may start below zero, and is told by resources and prompts too', async (t) => {
  const layer = createLayer({ name: 'kit', version: '1' })
  layer.resource('x://y', {}, async (_uri, ctx) => { await ctx.progress(-1); await ctx.progress(0); return '' })
  layer.prompt('p', {}, async (_args, ctx) => { await ctx.progress(0.5); return '' })
  const { handle, sent } = await connectAt('2025-11-25', layer)
  await handle(request('resources/read', { uri: 'x://y', _meta: { progressToken: 'r' } }))
  await handle(request('prompts/get', { name: 'p', _meta: { progressToken: 'p' } }))
  t.strictSame(sent, [progress('r', -1), progress('r', 0), progress('p', 0.5)])
})

t.test('PL-06 a threshold holds from when it is set, also for calls that run', async (t) => {
  const { handle, sent } = await connectAt('2025-11-25', createKit().layer)
  t.strictSame(await handle(request('logging/setLevel', { level: 'warning' })), { jsonrpc: '2.0', id: 1, result: {} })
  await handle(request('tools/call', slow()))
  t.strictSame(sent, [])

  const layer = toolOf(async (ctx) => {
    await ctx.notify.log('debug', 1)
    await connection.handle(request('logging/setLevel', { level: 'debug' }))
    await ctx.notify.log('debug', 2)
  })
  const connection = await connectAt('2025-11-25', layer)
  await connection.handle(request('tools/call', { name: 'tool' }))
  t.strictSame(connection.sent, [logged('debug', 2)])
})

t.test('PL-07 a level that does not exist is refused', async (t) => {
  const { handle } = await connectAt('2025-11-25', createKit().layer)
  const levels: [unknown, string][] = [['loud', "'loud'"], ['INFO', "'INFO'"], ['warn', "'warn'"], ['', "''"], [undefined, 'undefined'], [null, 'null'], [5, '5'], [{}, 'an object'], [['info'], 'a list'], ['toString', "'toString'"]]
  for (const [level, said] of levels) {
    t.strictSame(await handle(request('logging/setLevel', { level })), { jsonrpc: '2.0', id: 1, error: { code: -32602, message: `Invalid log level: ${said}` } }, said)
  }
  const { error } = await handle(request('logging/setLevel', { level: 'x'.repeat(100_000) }))
  t.ok(error.message.length < 200, 'and is not repeated at length')
})

t.test('every level has its place, aliases have one too, and what is unknown is info', async (t) => {
  const levels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']
  const layer = toolOf(async (ctx) => {
    for (const level of [...levels, 'warn', 'fatal', 'exception', 'trace', 'loud', 'constructor']) await ctx.notify.log(level, level, 'own')
  })
  for (const [at, threshold] of levels.entries()) {
    const { handle, sent } = await connectAt('2025-11-25', layer, { defaultLogLevel: 'emergency' })
    await handle(request('logging/setLevel', { level: threshold }))
    await handle(request('tools/call', { name: 'tool' }))
    const all = [...levels.map((level) => [level, level]), ['warning', 'warn'], ['critical', 'fatal'], ['error', 'exception'], ['debug', 'trace'], ['info', 'loud'], ['info', 'constructor']]
    t.strictSame(sent, all.filter(([level]) => levels.indexOf(level!) >= at).map(([level, data]) => logged(level!, data, 'own')), threshold)
  }
  const { handle, sent } = await connectAt('2025-11-25', layer, { defaultLogLevel: 'alert' })
  await handle(request('tools/call', { name: 'tool' }))
  t.strictSame(sent, [logged('alert', 'alert', 'own'), logged('emergency', 'emergency', 'own')], 'the default is an option')
})

t.test('log data is any JSON; none is null', async (t) => {
  const layer = toolOf(async (ctx) => {
    for (const data of [undefined, null, 'text', 0, [1], { a: { b: 1 } }]) await ctx.notify.log('info', data)
  })
  const { handle, sent } = await connectAt('2025-11-25', layer)
  await handle(request('tools/call', { name: 'tool' }))
  t.strictSame(sent.map(({ params }) => params.data), [null, null, 'text', 0, [1], { a: { b: 1 } }])
})

t.test('PL-08 PL-09 PL-10 a 2026 request says for itself what it wants to hear', async (t) => {
  const { handle, sent } = connect(createKit().layer)
  const call = async (_meta: object): Promise<object[]> => {
    sent.length = 0
    await handle(modern('tools/call', { ...slow(undefined, 1), _meta }))
    return sent.slice()
  }
  t.strictSame(await call({}), [])
  t.strictSame(await call({ [LOG_LEVEL]: 'debug', progressToken: 'tok' }), [progress('tok', 1, 1, 'step 1'), logged('info', { step: 1 })])
  t.strictSame(await call({ [LOG_LEVEL]: 'error' }), [])
  for (const level of ['loud', '', null, 5, {}, 'INFO']) t.strictSame(await call({ [LOG_LEVEL]: level }), [], JSON.stringify(level))
  t.strictSame(await call({ [LOG_LEVEL]: 'info' }), [logged('info', { step: 1 })])
})

t.test('notifications of a request go to its own stream, if it has one', async (t) => {
  for (const connection of [await connectAt('2025-11-25', createKit().layer), connect(createKit().layer)]) {
    const own: object[][] = [[], []]
    const message = connection.session.era === 'handshake' ? request : modern
    await Promise.all(own.map((sink, n) => connection.handle(message('tools/call', slow('same token', 2), n), { sink: (notification) => { sink.push(notification) } })))
    for (const sink of own) t.strictSame(sink.filter(({ method }: any) => method === 'notifications/progress'), [progress('same token', 1, 2, 'step 1'), progress('same token', 2, 2, 'step 2')])
    t.strictSame(connection.sent, [])
  }
})

t.test('a handler that awaits its progress is as fast as its reader', async (t) => {
  let done = 0
  const layer = toolOf(async (ctx) => {
    for (let step = 1; step <= 3; step++) {
      await ctx.progress(step)
      done = step
    }
  })
  const readers: (() => void)[] = []
  const { handle } = await connectAt('2025-11-25', layer)
  const reply = handle(request('tools/call', { name: 'tool', _meta: { progressToken: 1 } }), { sink: () => new Promise((resolve) => { readers.push(resolve) }) })
  for (let step = 1; step <= 3; step++) {
    await settled()
    t.equal(done, step - 1)
    t.equal(readers.length, step)
    readers.at(-1)!()
  }
  t.match(await reply, { result: { isError: false } })
})

t.test('RPC-09 nothing is sent for a request after its answer', async (t) => {
  let late!: Context
  const layer = toolOf((ctx) => { late = ctx; return 'done' })
  const { handle, sent } = await connectAt('2025-11-25', layer)
  await handle(request('tools/call', { name: 'tool', _meta: { progressToken: 'tok' } }))
  await late.progress(1)
  await late.notify.log('error', 'late')
  t.strictSame(sent, [])
})

// ---- cancellation

t.test('CX-01 RPC-05 a cancelled call is not answered; its signal is aborted with the reason', async (t) => {
  for (const version of HANDSHAKE) {
    const kit = createKit()
    const { handle, session, sent } = await connectAt(version, kit.layer)
    const entered = kit.entered('sleepy')
    const reply = handle(request('tools/call', { name: 'sleepy' }, 'slow-1'))
    const ctx = await entered
    t.notOk(ctx.signal.aborted)
    t.ok(session.busy)
    t.equal(await handle(cancelled('slow-1', 'the user left')), undefined)
    t.equal(await reply, undefined, version)
    t.ok(ctx.signal.aborted)
    t.equal(ctx.signal.reason.message, 'the user left')
    t.notOk(session.busy)
    t.match(await handle(request('ping', undefined, 'slow-1')), { id: 'slow-1', result: {} }, 'the id is free again')
    t.strictSame(sent, [])
  }
})

t.test('CX-01 the same on a 2026 connection, and for a client that has gone', async (t) => {
  const kit = createKit()
  const { handle } = connect(kit.layer)
  const first = kit.entered('sleepy')
  const reply = handle(modern('tools/call', { name: 'sleepy' }, 4))
  const ctx = await first
  await handle(cancelled(4))
  t.equal(await reply, undefined)
  t.ok(ctx.signal.aborted)

  const controller = new AbortController()
  const second = kit.entered('sleepy')
  const other = handle(modern('tools/call', { name: 'sleepy' }, 5), { signal: controller.signal })
  const gone = await second
  controller.abort()
  t.equal(await other, undefined)
  t.ok(gone.signal.aborted)
  t.equal(await handle(modern('tools/call', { name: 'stats' }, 6), { signal: controller.signal }), undefined, 'one that had gone before')
  t.notOk('stats' in kit.calls, 'is not even begun')
})

t.test('CX-01 a cancellation that comes right behind its call, while the principal is still being looked up, is not lost', async (t) => {
  for (const principalResolver of [undefined, () => undefined, () => new Promise<undefined>((resolve) => { setImmediate(resolve, undefined) })]) {
    const kit = createKit()
    const { handle, session, server } = await connectAt('2025-11-25', kit.layer, { principalResolver })
    const replies = [handle(request('tools/call', { name: 'sleepy' }, 1)), handle(request('tools/call', { name: 'stats' }, 2)), handle(cancelled(1)), handle(cancelled(2))]
    t.strictSame(await Promise.all(replies), [undefined, undefined, undefined, undefined])
    t.notOk(session.busy)
    t.same(kit.calls, {}, 'nothing was begun')

    const other = attach(server)
    await other.handle(initialize())
    const reply = other.handle(request('tools/call', { name: 'stats' }, 1))
    other.session.close()
    t.equal(await reply, undefined, 'nor is the end of the session')
  }
})

t.test('a call leaves nothing behind on the signal of its exchange', async (t) => {
  const { handle } = await connectAt('2025-11-25', createKit().layer)
  const { signal } = new AbortController()
  for (let n = 0; n < 5; n++) await handle(request('tools/call', { name: 'stats' }, n), { signal })
  t.equal(getEventListeners(signal, 'abort').length, 0)
})

t.test('CX-02 unknown ids, ids of another type and odd ones cancel nothing', async (t) => {
  const kit = createKit()
  const { handle, session } = await connectAt('2025-11-25', kit.layer)
  const entered = kit.entered('sleepy')
  const reply = handle(request('tools/call', { name: 'sleepy' }, 1))
  const ctx = await entered
  for (const id of ['1', 2, 1.5, null, undefined, {}, [1], true, '']) t.equal(await handle(cancelled(id)), undefined)
  t.notOk(ctx.signal.aborted)
  const other = attach(connect(kit.layer).server)
  await other.handle(initialize())
  await other.handle(cancelled(1))
  t.notOk(ctx.signal.aborted, 'nor does another session')
  t.ok(session.busy)
  await handle(cancelled(1))
  t.equal(await reply, undefined)
  t.equal(await handle(cancelled(1)), undefined, 'twice')
})

t.test('CX-03 RPC-05 while one call is cancelled others are served, whatever the handler makes of its signal', async (t) => {
  const seen: string[] = []
  const layer = createLayer({ name: 'x', version: '1' })
  let finish = (): void => {}
  const unfinished = new Promise<void>((resolve) => { finish = resolve })
  layer.tool('deaf', { timeout: 0 }, async () => { await unfinished; seen.push('deaf to the end'); return 'late' })
  layer.tool('crashing', { timeout: 0 }, (_args, ctx) => new Promise((_resolve, reject) => { ctx.signal.addEventListener('abort', () => reject(new Error('crash'))) }))
  layer.tool('answering', { timeout: 0 }, (_args, ctx) => new Promise((resolve) => { ctx.signal.addEventListener('abort', () => resolve('sorry')) }))
  const errors: unknown[] = []
  const log = { debug () {}, info () {}, warn () {}, error: (...args: unknown[]) => { errors.push(args) } }
  const { handle, session } = await connectAt('2025-11-25', layer, { log })
  const calls = ['deaf', 'crashing', 'answering'].map((name) => handle(request('tools/call', { name }, name)))
  await settled()
  for (const name of ['deaf', 'crashing', 'answering']) await handle(cancelled(name))
  t.match(await handle(request('ping')), { result: {} })
  t.strictSame(await Promise.all(calls), [undefined, undefined, undefined])
  t.notOk(session.busy)
  finish()
  await settled()
  t.same(seen, ['deaf to the end'])
  t.same(errors, [], 'and that is no crash to be logged')
})

t.test('RPC-09 nothing is sent for a request after it was cancelled, not even from its signal', async (t) => {
  const layer = toolOf(async (ctx) => {
    await new Promise<void>((resolve) => {
      ctx.signal.addEventListener('abort', () => {
        void ctx.progress(1)
        void ctx.notify.log('error', 'aborted')
        resolve()
      })
    })
    await ctx.progress(2)
    await ctx.notify.log('error', 'after')
  })
  for (const own of [false, true]) {
    const sink: object[] = []
    const { handle, sent } = await connectAt('2025-11-25', layer)
    const reply = handle(request('tools/call', { name: 'tool', _meta: { progressToken: 1 } }, 9), own ? { sink: (message) => { sink.push(message) } } : {})
    await settled()
    await handle(cancelled(9))
    t.equal(await reply, undefined)
    await settled()
    t.strictSame([...sent, ...sink], [])
  }
})

t.test('a session that ends aborts what is in flight, and answers nothing of it', async (t) => {
  const kit = createKit()
  const connection = await connectAt('2025-11-25', kit.layer)
  const entered = kit.entered('sleepy')
  const reply = connection.handle(request('tools/call', { name: 'sleepy' }))
  const ctx = await entered
  connection.session.close()
  connection.session.close()
  t.equal(await reply, undefined)
  t.ok(ctx.signal.aborted)
  kit.layer.notifyChanged('tools')
  await settled()
  t.strictSame(connection.sent, [])
})

// ---- changes

t.test('CH-01 a session hears of lists, and of the resources that it subscribed to', async (t) => {
  const { layer } = createKit()
  const { handle, sent } = await connectAt('2025-11-25', layer)
  t.strictSame(await handle(request('resources/subscribe', { uri: 'test://info' })), { jsonrpc: '2.0', id: 1, result: {} })
  await handle(request('resources/subscribe', { uri: 'test://info' }))
  layer.notifyUpdated('test://info')
  layer.notifyUpdated('test://other')
  for (const kind of ['tools', 'prompts', 'resources'] as const) layer.notifyChanged(kind)
  await settled()
  t.strictSame(sent, [updated('test://info'), listChanged('tools'), listChanged('prompts'), listChanged('resources')])
})

t.test('CH-02 after unsubscribing nothing of a resource is heard', async (t) => {
  const { layer } = createKit()
  const { handle, sent } = await connectAt('2025-11-25', layer)
  for (const uri of ['test://info', 'anything, since it is not looked at']) {
    await handle(request('resources/subscribe', { uri }))
    t.strictSame(await handle(request('resources/unsubscribe', { uri })), { jsonrpc: '2.0', id: 1, result: {} })
    t.strictSame(await handle(request('resources/unsubscribe', { uri })), { jsonrpc: '2.0', id: 1, result: {} }, 'twice')
    layer.notifyUpdated(uri)
  }
  await settled()
  t.strictSame(sent, [])
  for (const uri of [undefined, null, '', 5, {}, ['x']]) {
    for (const method of ['resources/subscribe', 'resources/unsubscribe']) {
      t.strictSame(await handle(request(method, { uri })), { jsonrpc: '2.0', id: 1, error: { code: -32602, message: 'Missing or invalid parameter: uri' } })
    }
  }
})

t.test('CH-04 RPC-14 what a handler changes is heard, once, by every session that is initialized', async (t) => {
  const { layer } = createKit()
  layer.tool('register', {}, () => { layer.tool('another', {}, () => 1); return 'done' })
  const first = await connectAt('2025-11-25', layer)
  const others = Array.from({ length: 3 }, () => attach(first.server))
  for (const { handle } of others.slice(0, 2)) await shakeHands({ handle })
  await others[2]!.handle(initialize())
  await first.handle(request('resources/subscribe', { uri: 'test://info' }))
  await first.handle(request('tools/call', { name: 'touch' }))
  await settled()
  t.strictSame(first.sent, [updated('test://info'), listChanged('tools')])
  t.strictSame(others.map(({ sent }) => sent), [[listChanged('tools')], [listChanged('tools')], []], 'before `initialized` nothing is sent')

  await first.handle(request('tools/call', { name: 'register' }))
  await settled()
  t.strictSame(others[0]!.sent, [listChanged('tools'), listChanged('tools')])
  t.match((await others[0]!.handle(request('tools/list'))).result.tools.at(-1), { name: 'another' }, 'and the list is the new one')
  await others[2]!.handle(INITIALIZED)
  layer.notifyChanged('prompts')
  await settled()
  t.strictSame(others[2]!.sent, [listChanged('prompts')])
})

t.test('what counts as a change', async (t) => {
  const { layer } = createKit()
  const { handle, sent } = await connectAt('2025-11-25', layer)
  await handle(request('resources/subscribe', { uri: 'test://info' }))
  const heard = async (act: () => unknown): Promise<string[]> => {
    sent.length = 0
    await act()
    await settled()
    return sent.map(({ method }) => method.slice('notifications/'.length))
  }
  t.same(await heard(() => layer.notifyChanged('resources', 'test://info')), ['resources/list_changed', 'resources/updated'])
  t.same(await heard(() => layer.notifyChanged('resource', 'test://info')), ['resources/updated'])
  t.same(await heard(() => layer.notifyChanged('resource')), [])
  t.same(await heard(() => layer.notifyChanged('nonsense' as never, 'test://info')), [])
  const resource = layer.resource('test://new', {}, () => '')
  t.same(await heard(() => resource.update({ title: 'New' })), ['resources/list_changed'])
  t.same(await heard(() => resource.remove()), ['resources/list_changed'])
  t.same(await heard(() => resource.remove()), [], 'what is gone cannot go')
  t.throws(() => resource.update({}), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION' })
  t.same(await heard(() => layer.resourceTemplate('test://new/{id}', {}, () => '')), ['resources/list_changed'])
  t.same(await heard(() => layer.prompt('new', {}, () => '')), ['prompts/list_changed'])
  t.same(await heard(() => layer.onChange(() => { throw new Error('a listener of the application') })), [])
  t.same(await heard(() => layer.notifyChanged('tools')), ['tools/list_changed'], 'a listener that throws keeps nothing from others')
})

t.test('a reader that is slow is told once of what has changed meanwhile', async (t) => {
  const { layer } = createKit()
  const warnings: string[] = []
  const log = { debug () {}, info () {}, warn: (message: string) => { warnings.push(message) }, error () {} }
  const sent: any[] = []
  let release: (() => void) | undefined
  const releaseAll = async (): Promise<void> => {
    while (release !== undefined) {
      const next = release
      release = undefined
      next()
      await settled()
    }
  }
  const { handle, server } = connect(layer, { log }, {
    send: (message) => { sent.push(message); return new Promise((resolve) => { release = resolve }) }
  })
  await shakeHands({ handle })
  const quick = attach(server)
  await shakeHands(quick)
  for (let n = 0; n < 1024; n++) await handle(request('resources/subscribe', { uri: `x://${n}` }))
  layer.notifyChanged('tools')
  for (let n = 0; n < 50; n++) for (const kind of ['tools', 'prompts', 'resources'] as const) layer.notifyChanged(kind)
  await settled()
  t.equal(sent.length, 1)
  t.equal(quick.sent.length, 151)
  await releaseAll()
  t.same(sent.map(({ method }) => method.split('/')[1]), ['tools', 'tools', 'prompts', 'resources'])

  sent.length = 0
  layer.notifyChanged('tools')
  for (let n = 0; n < 1024; n++) layer.notifyUpdated(`x://${n}`)
  t.same(warnings, [])
  for (let n = 0; n < 2; n++) layer.notifyChanged('prompts')
  t.same(warnings, ['a session reads too slowly: changes beyond 1024 are dropped'], 'and there is an end to what is remembered')
  await releaseAll()
  t.equal(sent.length, 1025)
})

t.test('a session subscribes to so many resources at most', async (t) => {
  const { handle } = await connectAt('2025-11-25', createKit().layer)
  for (let n = 0; n < 1024; n++) t.ok('result' in await handle(request('resources/subscribe', { uri: `x://${n}` })))
  t.match(await handle(request('resources/subscribe', { uri: 'x://more' })), { error: { code: -32602, message: 'A session may subscribe to 1024 resources at most' } })
  t.match(await handle(request('resources/subscribe', { uri: 'x://5' })), { result: {} }, 'one that it has is not one more')
  await handle(request('resources/unsubscribe', { uri: 'x://5' }))
  t.match(await handle(request('resources/subscribe', { uri: 'x://more' })), { result: {} })
})

t.test('a reader that fails keeps nothing from the others', async (t) => {
  const { layer } = createKit()
  const first = await connectAt('2025-11-25', layer)
  const failing = [
    attach(first.server, { send: () => { throw new Error('broken pipe') } }),
    attach(first.server, { send: () => Promise.reject(new Error('broken pipe')) })
  ]
  for (const connection of failing) await shakeHands(connection)
  const last = attach(first.server)
  await shakeHands(last)
  for (let n = 0; n < 2; n++) {
    layer.notifyChanged('tools')
    await settled()
  }
  t.strictSame([first.sent, last.sent], [[listChanged('tools'), listChanged('tools')], [listChanged('tools'), listChanged('tools')]])
  const sinks = [() => { throw new Error('broken pipe') }, () => Promise.reject(new Error('broken pipe'))]
  for (const [at, sink] of sinks.entries()) {
    const modernOne = attach(first.server)
    void modernOne.handle(modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, `L${at}`), { sink })
    await settled()
    layer.notifyChanged('tools')
    await settled()
  }
  t.equal(last.sent.length, 4)
})

t.test('thousands of changes to hundreds of readers are told in order', async (t) => {
  const { layer } = createKit()
  const first = await connectAt('2025-11-25', layer)
  const others = Array.from({ length: 300 }, () => attach(first.server))
  for (const connection of others) await shakeHands(connection)
  for (const { handle } of [first, others[299]!]) for (let n = 0; n < 1000; n++) await handle(request('resources/subscribe', { uri: `x://${n}` }))
  for (let n = 0; n < 20_000; n++) layer.notifyUpdated(`x://${n}`)
  // The rest of the queue then goes to a few readers, without a turn in between.
  for (const { session } of others.slice(0, 299)) session.close()
  while (others[299]!.sent.length < 1000) await new Promise(setImmediate)
  t.strictSame(others[299]!.sent, Array.from({ length: 1000 }, (_, n) => updated(`x://${n}`)))
  t.strictSame(first.sent, others[299]!.sent)
})

// ---- listen

function listen (filter: unknown, id: string | number = 'L1'): object {
  return modern('subscriptions/listen', { notifications: filter }, id)
}

function acknowledged (notifications: object, id: unknown = 'L1'): object {
  return { jsonrpc: '2.0', method: 'notifications/subscriptions/acknowledged', params: { notifications, _meta: { [SUBSCRIPTION]: id } } }
}

t.test('LS-01 a listen is acknowledged with what of it is honoured, in a fixed order', async (t) => {
  const uris = Array.from({ length: 1100 }, (_, n) => `x://${n}`)
  const filters: [unknown, object][] = [
    [{ toolsListChanged: true, promptsListChanged: false, resourceSubscriptions: ['test://info'] }, { toolsListChanged: true, resourceSubscriptions: ['test://info'] }],
    [{ resourceSubscriptions: [], resourcesListChanged: true, promptsListChanged: true, toolsListChanged: true }, { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true }],
    [{}, {}],
    [{ toolsListChanged: 'true', promptsListChanged: 1, resourcesListChanged: {}, resourceSubscriptions: 'test://info', other: true }, {}],
    [{ resourceSubscriptions: ['a', 5, null, 'b', {}] }, { resourceSubscriptions: ['a', 'b'] }],
    [{ resourceSubscriptions: uris }, { resourceSubscriptions: uris.slice(0, 1024) }]
  ]
  for (const [filter, honoured] of filters) {
    for (const id of ['L1', 0, '']) {
      const { handle, sent, server } = connect(createKit().layer)
      const reply = handle(listen(filter, id))
      await settled()
      t.strictSame(JSON.stringify(sent), JSON.stringify([acknowledged(honoured, id)]))
      t.equal(server.changes.listens, 1)
      await server.close()
      t.match(await reply, { id, result: { resultType: 'complete' } })
    }
  }
})

t.test('LS-02 RPC-14 a listen hears what it asked for, each time with its id, and nothing else', async (t) => {
  const { layer } = createKit()
  const { handle, sent, server } = connect(layer)
  const silent = attach(server)
  await silent.handle(modern('server/discover'))
  void handle(listen({ toolsListChanged: true, promptsListChanged: false, resourceSubscriptions: ['test://info'] }))
  void handle(listen({ promptsListChanged: true }, 7))
  await settled()
  sent.length = 0
  layer.notifyChanged('tools')
  layer.notifyChanged('prompts')
  layer.notifyChanged('resources')
  layer.notifyUpdated('test://info')
  layer.notifyUpdated('test://other')
  await settled()
  t.strictSame(sent, [
    listChanged('tools', { _meta: { [SUBSCRIPTION]: 'L1' } }),
    listChanged('prompts', { _meta: { [SUBSCRIPTION]: 7 } }),
    updated('test://info', { _meta: { [SUBSCRIPTION]: 'L1' } })
  ])
  t.strictSame(silent.sent, [], 'who does not listen hears nothing')
})

t.test('LS-03 the server ends all listens with a final result', async (t) => {
  const { handle, server } = connect(createKit().layer)
  const replies = [handle(listen({ toolsListChanged: true })), handle(listen({}, 2))]
  await settled()
  server.closeListens()
  const info = { 'io.modelcontextprotocol/serverInfo': { name: 'kit', version: '1.2.3', title: 'Kit' } }
  t.strictSame(await Promise.all(replies), [
    { jsonrpc: '2.0', id: 'L1', result: { _meta: { ...info, [SUBSCRIPTION]: 'L1' }, resultType: 'complete' } },
    { jsonrpc: '2.0', id: 2, result: { _meta: { ...info, [SUBSCRIPTION]: 2 }, resultType: 'complete' } }
  ])
  t.equal(server.changes.listens, 0)
})

t.test('a listen that is cancelled, or whose client has gone, ends without a word', async (t) => {
  const { layer } = createKit()
  const { handle, sent, server, session } = connect(layer)
  const controller = new AbortController()
  const replies = [handle(listen({ toolsListChanged: true }, 1)), handle(listen({ toolsListChanged: true }, 2), { signal: controller.signal }), handle(listen({ toolsListChanged: true }, 3))]
  await settled()
  await handle({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } })
  t.equal(await replies[0], undefined)
  controller.abort()
  t.equal(await replies[1], undefined)
  t.equal(server.changes.listens, 1)
  sent.length = 0
  layer.notifyChanged('tools')
  await settled()
  t.strictSame(sent, [listChanged('tools', { _meta: { [SUBSCRIPTION]: 3 } })])
  session.close()
  t.equal(await replies[2], undefined)
  t.equal(server.changes.listens, 0)
})

t.test('LS-10 a listen is not of the handshake, and needs a filter', async (t) => {
  const legacy = await connectAt('2025-11-25', createKit().layer)
  t.strictSame(await legacy.handle(request('subscriptions/listen', { notifications: {} })), { jsonrpc: '2.0', id: 1, error: { code: -32601, message: 'Method not found', data: 'subscriptions/listen' } })
  const { handle, sent } = connect(createKit().layer)
  for (const filter of [undefined, null, [], 'tools', 5, true]) {
    t.strictSame(await handle(listen(filter)), { jsonrpc: '2.0', id: 'L1', error: { code: -32602, message: 'subscriptions/listen requires a notifications filter' } }, JSON.stringify(filter))
  }
  t.strictSame(sent, [])
})

t.test('LS-11 there is an end to the listens that are open at once', async (t) => {
  const { handle, server, sent } = connect(createKit().layer, { maxListens: 2 })
  const refused = { jsonrpc: '2.0', id: 'L3', error: { code: -32603, message: 'Subscription limit reached' } }
  const first = handle(listen({}, 'L1'))
  void handle(listen({}, 'L2'))
  await settled()
  t.strictSame(await handle(listen({}, 'L3')), refused)
  t.equal(sent.length, 2, 'no acknowledgement')
  await handle({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'L1' } })
  await first
  void handle(listen({}, 'L3'))
  await settled()
  t.equal(sent.length, 3)
  t.equal(server.changes.listens, 2)

  const full = connect(createKit().layer)
  const streams = Array.from({ length: 1024 }, (_, n) => full.handle(listen({}, n)))
  await settled()
  t.strictSame(await full.handle(listen({}, 'L3')), refused, 'by default 1024')
  full.server.closeListens()
  t.equal((await Promise.all(streams)).length, 1024)
})

t.test('a slow listener is told once of what has changed meanwhile', async (t) => {
  const { layer } = createKit()
  const connection: Connection = connect(layer)
  const got: any[] = []
  let release = (): void => {}
  void connection.handle(listen({ toolsListChanged: true, promptsListChanged: true }), { sink: (message) => { got.push(message); return new Promise((resolve) => { release = resolve }) } })
  await settled()
  release()
  for (let n = 0; n < 100; n++) {
    layer.notifyChanged('tools')
    layer.notifyChanged('prompts')
  }
  await settled()
  for (let n = 0; n < 5; n++) {
    release()
    await settled()
  }
  t.same(got.map(({ method }) => method.split('/')[1]), ['subscriptions', 'tools', 'prompts', 'tools'])
})

t.test('a session that subscribes to nothing keeps nothing of what it is told', async (t) => {
  const { layer } = createKit()
  const { session, sent } = await connectAt('2025-11-25', layer)
  let looked = 0
  const { get } = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(session), 'subscriptions')!
  Object.defineProperty(session, 'subscriptions', { get: () => { looked++; return get!.call(session) } })
  for (const kind of ['tools', 'prompts', 'resources'] as const) layer.notifyChanged(kind)
  await settled()
  t.equal(sent.length, 3)
  t.equal(looked, 0, 'to look makes a set')
})
