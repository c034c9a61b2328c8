import t from 'tap'
import { createHmac } from 'node:crypto'
import { mkdir, readFile, rename, rm, rmdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { mock } from 'node:test'
import { z } from 'zod'
import {
  AccessDeniedError, audit, cache, concurrency, createLayer, inputRequired, InvalidArgumentsError, LayerError, listRoots, localPort, metrics, principal,
  rateLimit, RateLimitedError, retry, TimeoutError, ToolError
} from '../../lib/layer/index.js'
import type { AppLayer, AuditRecord, CallPort, Middleware, Principal, Rate } from '../../lib/layer/index.js'
import { modern, request } from '../kit.js'
import { connect, connectAt, settled, stayAlive } from '../protocol/connection.js'

const READ = { readOnlyHint: true, idempotentHint: true }
const alice = principal({ id: 'alice' })
const bob = principal({ id: 'bob' })

function port (who: Principal = alice, over: Partial<CallPort> = {}): CallPort {
  return Object.assign(localPort(who), over)
}

function layerWith (...middleware: Middleware[]): AppLayer {
  return createLayer({ name: 'x', version: '1', middleware })
}

/** A clock that goes when it is told to. */
function handClock (): { now: () => number, pass: (ms: number) => void } {
  let time = 1000
  return { now: () => time, pass: (ms) => { time += ms } }
}

/** A promise with its handles outside. */
function gate (): { open: () => void, opened: Promise<void> } {
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => { open = resolve })
  return { open, opened }
}

async function metaOf (result: unknown): Promise<Record<string, unknown>> {
  return (await result as { _meta: Record<string, unknown> })._meta
}

// ---- the chain

t.test('middleware runs outermost first, sees what it may, and holds from the next call on', async (t) => {
  const seen: string[] = []
  const spy = (name: string): Middleware => async (info, next) => {
    seen.push(`${name}> ${info.kind} ${info.name}${info.template === undefined ? '' : ` by ${info.template}`} ${JSON.stringify(info.arguments)} ${info.principal.id}`)
    const result = await next()
    seen.push(`<${name}`)
    return result
  }
  const layer = createLayer({ name: 'x', version: '1', prefix: 'p_', middleware: [spy('a')] })
  layer.tool('tool', { input: { n: z.number() } }, ({ n }) => n)
  layer.resource('x://static', {}, () => 'text')
  layer.resourceTemplate('x://of/{id}', { complete: { id: () => ['1'] } }, ({ id }) => id)
  layer.prompt('prompt', {}, () => 'hi')
  await layer.callTool('p_tool', { n: '1' }, port())
  layer.use(spy('b'))
  await layer.callTool('p_tool', { n: 1 }, port())
  await layer.readResource('x://static', port())
  await layer.readResource('x://of/7', port())
  await layer.getPrompt('p_prompt', {}, port())
  await layer.complete({ type: 'ref/resource', uri: 'x://of/{id}' }, { name: 'id', value: '' }, { other: 'o' }, port())
  const both = (what: string): string[] => [`a> ${what} alice`, `b> ${what} alice`, '<b', '<a']
  t.same(seen, [
    'a> tool tool {"n":"1"} alice', '<a',
    ...both('tool tool {"n":1}'),
    ...both('resource x://static {}'),
    ...both('resource x://of/7 by x://of/{id} {"id":"7"}'),
    ...both('prompt prompt {}'),
    ...both('completion x://of/{id} {"argument":"id","value":"","context":{"other":"o"}}')
  ])
})

t.test('a middleware may change the arguments, replace the result, and refuse', async (t) => {
  const layer = layerWith(async (info, next) => {
    if (info.arguments['n'] === 'no') throw new AccessDeniedError('not you', { reason: 'policy' })
    info.arguments['n'] = Number(info.arguments['n']) + 1
    const result = await next()
    return { ...result, content: [{ type: 'text', text: `<${result.content[0].text}>` }] }
  })
  layer.tool('tool', { input: { n: z.number() } }, ({ n }) => String(n))
  const { handle } = connect(layer)
  const call = async (n: unknown): Promise<any> => (await handle(modern('tools/call', { name: 'tool', arguments: { n } }))).result
  t.match(await call(1), { content: [{ type: 'text', text: '<2>' }], isError: false })
  t.match(await call('no'), {
    content: [{ type: 'text', text: 'not you' }], isError: true, _meta: { 'cloudg/error_code': -31001, 'cloudg/error_data': { reason: 'policy' } }
  })
})

/** Runs the rest once more when it has timed out. */
const again: Middleware = async (_info, next) => {
  try {
    return await next()
  } catch (error) {
    if (error instanceof TimeoutError) return next()
    throw error
  }
}

t.test('a middleware that calls next again after a timeout starts a run of its own: a fresh signal, and no links of the first', async (t) => {
  stayAlive(t)
  const layer = layerWith(again)
  const signals: AbortSignal[] = []
  const late: boolean[] = []
  layer.tool('twice', { timeout: 1, annotations: READ }, (_args, ctx) => {
    signals.push(ctx.signal)
    ctx.link(`x://run/${signals.length}`, 'run')
    if (signals.length === 2) return 'done'
    return new Promise<string>((resolve) => {
      ctx.signal.addEventListener('abort', () => setImmediate(() => {
        late.push(ctx.signal.aborted)
        resolve('too late')
      }))
    })
  })
  const result = await layer.callTool('twice', {}, port())
  t.same(signals.map((signal) => signal.aborted), [true, false])
  t.match(result, { content: [{ type: 'text', text: 'done' }, { type: 'resource_link', uri: 'x://run/2', name: 'run' }] })
  await settled()
  t.same(late, [true], 'the run that timed out still sees that it was told to stop')

  signals.length = 0
  const { handle } = connect(layer)
  t.match(await handle(modern('tools/call', { name: 'twice' })), { result: { isError: false } })
  t.same(signals.map((signal) => signal.aborted), [true, false], 'the same through the engine')
})

// ---- cache

t.test('MW-01 cache: the second call with equal arguments is a hit, whatever the order of its keys', async (t) => {
  const layer = layerWith()
  const kept = cache(layer)
  layer.use(kept)
  let runs = 0
  layer.tool('read', { input: { a: z.number(), b: z.number().optional() }, annotations: READ }, ({ a, b }, ctx) => {
    runs++
    ctx.link('x://y', 'y')
    return { sum: a + (b ?? 0) }
  })
  const { handle } = await connectAt('2025-11-25', layer)
  const call = async (args: object): Promise<any> => (await handle(request('tools/call', { name: 'read', arguments: args }))).result
  const first = await call({ a: 1, b: 2 })
  const second = await call({ b: 2, a: 1 })
  t.notOk('cloudg/cache' in first._meta)
  t.equal(second._meta['cloudg/cache'], 'hit')
  t.ok(Number.isInteger(second._meta['cloudg/duration_ms']))
  t.same({ ...second, _meta: 0 }, { ...first, _meta: 0 }, 'nothing else differs')
  t.equal(runs, 1)
  t.equal((await call({ a: 1, b: 2 }))._meta['cloudg/cache'], 'hit')
  t.notOk((await call({ a: 1 }))._meta['cloudg/cache'], 'other arguments')
  t.equal(runs, 2)
  t.equal(kept.size, 2)
})

t.test('MW-02 cache: principals are apart; a change or a tool that may write empties it', async (t) => {
  const layer = layerWith()
  layer.use(cache(layer))
  let runs = 0
  layer.tool('read', { annotations: READ }, (_args, ctx) => { runs++; return ctx.principal.id })
  layer.tool('write', {}, () => 'written')
  layer.tool('crash', { annotations: { readOnlyHint: false } }, () => { throw new Error('half done') })
  layer.tool('look', { annotations: { readOnlyHint: true } }, () => 'seen')
  const isHit = async (who: Principal, over?: Partial<CallPort>): Promise<boolean> => (await metaOf(layer.callTool('read', {}, port(who, over))))['cloudg/cache'] === 'hit'

  t.notOk(await isHit(alice))
  t.ok(await isHit(alice))
  t.notOk(await isHit(bob), 'another principal')
  t.notOk(await isHit(principal({ id: 'alice', identity: 'issuer2 alice' })), 'the same name of another issuer')
  t.notOk(await isHit(principal({ id: 'alice', roles: ['default', 'admin'] })), 'other roles')
  t.ok(await isHit(principal({ id: 'alice', roles: ['admin', 'default'] })), 'the order of roles says nothing')
  t.notOk(await isHit(principal({ id: 'alice', scopes: ['read'] })), 'other scopes')
  t.notOk(await isHit(alice, { protocolVersion: '2025-06-18' }), 'another revision')
  t.equal(runs, 6)

  const empties = async (what: string, act: () => unknown): Promise<void> => {
    await isHit(alice)
    t.ok(await isHit(alice))
    await act()
    t.notOk(await isHit(alice), what)
  }
  await empties('a list change', () => layer.notifyChanged('tools'))
  await empties('an update of a resource', () => layer.notifyUpdated('x://y'))
  await empties('a registration', () => layer.tool('new', {}, () => 1))
  await empties('a tool that may write', () => layer.callTool('write', {}, port(bob)))
  await empties('one that failed half way', () => layer.callTool('crash', {}, port()).catch(() => {}))
  await isHit(alice)
  await layer.callTool('look', {}, port())
  t.ok(await isHit(alice), 'a tool that only reads leaves it alone')
})

t.test('cache keeps neither errors, nor half answers, nor what is not hinted read-only and idempotent', async (t) => {
  const layer = layerWith()
  const kept = cache(layer)
  layer.use(kept)
  layer.tool('throws', { annotations: READ }, () => { throw new ToolError('no') })
  layer.tool('fails', { annotations: READ }, () => ({ content: [], isError: true }))
  layer.tool('asks', { annotations: READ }, () => ({ content: [], resultType: 'input_required', inputRequests: {} }))
  layer.tool('not-idempotent', { annotations: { readOnlyHint: true } }, () => 1)
  layer.tool('silent', {}, () => 1)
  layer.resource('x://y', {}, () => 'text')
  layer.prompt('hi', { arguments: { name: { complete: () => ['a'] } } }, () => 'hi')
  for (const name of ['throws', 'fails', 'asks', 'not-idempotent', 'silent']) await layer.callTool(name, {}, port()).catch(() => {})
  await layer.readResource('x://y', port())
  await layer.getPrompt('hi', { name: 'a' }, port())
  await layer.complete({ type: 'ref/prompt', name: 'hi' }, { name: 'name', value: '' }, {}, port())
  t.equal(kept.size, 0)
})

t.test('cache: results end with their time, and the one used longest ago goes first', async (t) => {
  const layer = layerWith()
  const clock = handClock()
  const kept = cache(layer, { ttl: 1000, max: 2, now: clock.now })
  layer.use(kept)
  layer.tool('read', { input: { n: z.number() }, annotations: READ }, ({ n }) => n)
  const isHit = async (n: number): Promise<boolean> => (await metaOf(layer.callTool('read', { n }, port())))['cloudg/cache'] === 'hit'
  t.notOk(await isHit(1))
  clock.pass(999)
  t.ok(await isHit(1))
  clock.pass(1)
  t.notOk(await isHit(1), 'a hit does not prolong it')
  t.notOk(await isHit(2))
  t.ok(await isHit(1))
  t.notOk(await isHit(3), 'throws out 2')
  t.ok(await isHit(1))
  t.notOk(await isHit(2))
  t.equal(kept.size, 2)
  kept.clear()
  t.equal(kept.size, 0)
})

t.test('cache: what it holds is bounded in characters too', async (t) => {
  const layer = layerWith()
  const kept = cache(layer, { maxChars: 1000 })
  layer.use(kept)
  layer.tool('read', { input: { size: z.number() }, annotations: READ }, ({ size }) => 'x'.repeat(size))
  layer.tool('big', { annotations: READ }, () => ({ content: [], structuredContent: { n: 1n } }))
  const read = (size: number): Promise<unknown> => layer.callTool('read', { size }, port())
  await read(2000)
  t.equal(kept.size, 0, 'one that is larger than all is not kept')
  await layer.callTool('big', {}, port())
  t.equal(kept.size, 0, 'nor one without a JSON form')
  for (const size of [200, 201, 202]) await read(size)
  t.equal(kept.size, 3)
  await read(600)
  t.ok(kept.size < 3)
  t.equal((await metaOf(read(600)))['cloudg/cache'], 'hit')
})

t.test('cache: what began before a change is not kept after it, and shared results stay as they were', async (t) => {
  const layer = layerWith()
  const kept = cache(layer)
  layer.use(async (_info, next) => {
    const result = await next()
    result._meta.touched = 'by an outer middleware'
    return result
  })
  layer.use(kept)
  const { open, opened } = gate()
  layer.tool('read', { annotations: READ }, async () => { await opened; return 'old' })
  const reading = layer.callTool('read', {}, port())
  await settled()
  layer.notifyChanged('resources')
  open()
  await reading
  t.equal(kept.size, 0)
  await layer.callTool('read', {}, port())
  const meta = await metaOf(layer.callTool('read', {}, port()))
  t.equal(meta['cloudg/cache'], 'hit')
})

t.test('cache: `vary` keeps apart what depends on more, and keeps out what it cannot name; so does nesting beyond reason', async (t) => {
  const layer = layerWith()
  const kept = cache(layer, { vary: ({ context }) => context.request.headers['x-tenant'] as string | undefined })
  layer.use(kept)
  layer.tool('read', { input: z.looseObject({}), annotations: READ }, () => 'x')
  const of = (tenant?: string): Partial<CallPort> => ({ request: { transport: 'memory', headers: { 'x-tenant': tenant } } })
  await layer.callTool('read', {}, port(alice, of('a')))
  await layer.callTool('read', {}, port(alice, of('b')))
  t.equal(kept.size, 2)
  await layer.callTool('read', {}, port(alice, of()))
  t.equal(kept.size, 2)
  const deep: unknown = JSON.parse('['.repeat(5000) + ']'.repeat(5000))
  await layer.callTool('read', { deep }, port(alice, of('a')))
  await layer.callTool('read', { date: new Date(0) }, port(alice, of('a')))
  await layer.callTool('read', { big: 1n }, port(alice, of('a')))
  t.equal(kept.size, 2)
})

t.test('cache: what a client was asked for is no answer to the next call', async (t) => {
  const layer = layerWith()
  const kept = cache(layer)
  layer.use(kept)
  layer.tool('asks', { annotations: READ }, async (_args, ctx) => {
    const answer = await ctx.elicit('Which account?', { account: z.string() })
    return answer.content ?? 'none'
  })
  layer.tool('explicit', { annotations: READ }, (_args, ctx) => ctx.inputResponses['q'] === undefined ? inputRequired({ requests: { q: listRoots() } }) : 'roots')
  const answering = (account: string): CallPort => port(alice, { ask: async () => ({ action: 'accept', content: { account } }) })
  t.match(await layer.callTool('asks', {}, answering('one')), { structuredContent: { account: 'one' } })
  t.match(await layer.callTool('asks', {}, answering('two')), { structuredContent: { account: 'two' } })
  t.match(await layer.callTool('explicit', {}, port()), { resultType: 'input_required' })
  t.match(await layer.callTool('explicit', {}, port(alice, { inputResponses: { q: { roots: [] } } })), { content: [{ text: 'roots' }] })
  t.equal(kept.size, 0)
})

// ---- rate limit

t.test('TL-13 MW-03 a rate limit refuses the second call of a minute, answers out of the cache included', async (t) => {
  const layer = layerWith()
  const clock = handClock()
  layer.use(rateLimit({ tools: { boom: '1/minute' }, now: clock.now })).use(cache(layer))
  let runs = 0
  layer.tool('boom', { annotations: READ }, () => { runs++; return 'ok' })
  const { handle } = await connectAt('2025-11-25', layer)
  const call = async (): Promise<any> => handle(request('tools/call', { name: 'boom' }, 7))
  t.match(await call(), { result: { isError: false } })
  const refused = {
    jsonrpc: '2.0',
    id: 7,
    result: {
      content: [{ type: 'text', text: "Rate limit exceeded for tool 'boom' (1/minute); retry in 60.0s" }],
      isError: true,
      _meta: { 'cloudg/error_code': -31029, 'cloudg/error_data': { retry_after: 60, limit: '1/minute', scope: 'tool' } }
    }
  }
  t.strictSame(await call(), refused)
  clock.pass(59_500)
  t.match(await call(), { result: { isError: true, _meta: { 'cloudg/error_data': { retry_after: 0.5 } } } })
  clock.pass(500)
  t.match(await call(), { result: { _meta: { 'cloudg/cache': 'hit' } } })
  t.equal(runs, 1)
})

t.test('a rate limit is a burst first, then one call whenever it is earned; principals and tools are apart', async (t) => {
  const layer = layerWith()
  const clock = handClock()
  layer.use(rateLimit({ limit: '3/second', tools: { free: false }, now: clock.now }))
  for (const name of ['a', 'b', 'free']) layer.tool(name, {}, () => 'ok')
  layer.resource('x://y', {}, () => 'text')
  const call = async (name: string, who = alice): Promise<string> => {
    try {
      await layer.callTool(name, {}, port(who))
      return 'ok'
    } catch (error) {
      if (!(error instanceof RateLimitedError)) throw error
      return error.message
    }
  }
  const all = async (name: string, times: number, who?: Principal): Promise<string[]> => {
    const results: string[] = []
    for (let n = 0; n < times; n++) results.push(await call(name, who))
    return results
  }
  t.same(await all('a', 4), ['ok', 'ok', 'ok', "Rate limit exceeded for tool 'a' (3/second); retry in 0.3s"])
  t.same(await all('a', 3, bob), ['ok', 'ok', 'ok'])
  t.same(await all('b', 3), ['ok', 'ok', 'ok'])
  t.same(await all('free', 9), Array(9).fill('ok'))
  for (let n = 0; n < 9; n++) await layer.readResource('x://y', port())
  for (let n = 0; n < 30; n++) {
    clock.pass(1000 / 3)
    t.equal(await call('a'), 'ok')
  }
  t.not(await call('a'), 'ok')
  clock.pass(60_000)
  t.same((await all('a', 4)).map((answer) => answer === 'ok'), [true, true, true, false], 'no more than the burst is saved up')
})

t.test('a rate limit counts resources by their template, and forgets what was quiet longest', async (t) => {
  const clock = handClock()
  const layer = layerWith(rateLimit({ limit: '1/hour', kinds: ['resource'], maxKeys: 2, now: clock.now }))
  layer.resourceTemplate('x://{id}', {}, ({ id }) => id)
  await layer.readResource('x://1', port())
  await t.rejects(layer.readResource('x://2', port()), { message: "Rate limit exceeded for resource 'x://{id}' (1/hour); retry in 3600.0s", data: { scope: 'resource' } })
  await layer.readResource('x://1', port(bob))
  await t.rejects(layer.readResource('x://1', port()), RateLimitedError)
  await layer.readResource('x://1', port(principal({ id: 'carol' })))
  await t.resolves(layer.readResource('x://1', port()), 'alice was used least recently')
})

t.test('a rate that is none is refused at once', async (t) => {
  for (const limit of ['0/minute', '1/week', 'x', '', '1 / minute', '-1/second', '1.5/second', '1/minutes']) {
    t.throws(() => rateLimit({ limit: limit as Rate }), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message: /`limit` must be like '60\/minute'/ }, limit)
  }
  t.throws(() => rateLimit({ tools: { boom: 5 as never } }), { message: /`tools\.boom`/ })
})

// ---- concurrency

t.test('MW-04 concurrency: a call that finds no place in time is refused as busy', async (t) => {
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  const layer = layerWith(concurrency({ limit: 1, queueTimeout: 50 }))
  const first = gate()
  layer.tool('work', { input: { wait: z.boolean().default(false) }, timeout: 0 }, async ({ wait }) => { if (wait) await first.opened; return 'done' })
  layer.resource('x://y', {}, () => 'text')
  const { handle } = await connectAt('2025-11-25', layer)
  const running = handle(request('tools/call', { name: 'work', arguments: { wait: true } }, 1))
  const waiting = handle(request('tools/call', { name: 'work' }, 2))
  await settled()
  t.match(await handle(request('resources/read', { uri: 'x://y' }, 3)), { result: { contents: [{ text: 'text' }] } }, 'reads are not counted')
  mock.timers.tick(50)
  t.strictSame(await waiting, {
    jsonrpc: '2.0',
    id: 2,
    result: { content: [{ type: 'text', text: 'Server busy: too many concurrent MCP calls' }], isError: true, _meta: { 'cloudg/error_code': -32603 } }
  })
  first.open()
  t.match(await running, { result: { content: [{ text: 'done' }] } })
  t.match(await handle(request('tools/call', { name: 'work' }, 4)), { result: { isError: false } }, 'the place is free again')
})

t.test('concurrency: the limit holds, the order is kept, and a failure frees its place', async (t) => {
  const layer = layerWith(concurrency({ limit: 2 }))
  const gates = [0, 1, 2, 3].map(gate)
  const log: string[] = []
  layer.tool('work', { input: { n: z.number() } }, async ({ n }) => {
    log.push(`start ${n}`)
    await gates[n]!.opened
    log.push(`end ${n}`)
    if (n === 0) throw new Error('failed')
    return n
  })
  const calls = [0, 1, 2, 3].map((n) => layer.callTool('work', { n }, port()).catch(() => 'failed'))
  await settled()
  t.same(log, ['start 0', 'start 1'])
  gates[0]!.open()
  await settled()
  t.same(log, ['start 0', 'start 1', 'end 0', 'start 2'])
  for (const { open } of gates) open()
  await Promise.all(calls)
  t.equal(log.filter((line) => line.startsWith('end')).length, 4)
})

t.test('concurrency: one principal with a limit of its own does not keep others waiting', async (t) => {
  const layer = layerWith(concurrency({ limit: 3, perPrincipal: 1 }))
  const { open, opened } = gate()
  const started: string[] = []
  layer.tool('work', {}, async (_args, ctx) => { started.push(ctx.principal.id); await opened; return 1 })
  const calls = [alice, alice, alice, bob].map((who) => layer.callTool('work', {}, port(who)))
  await settled()
  t.same(started, ['alice', 'bob'])
  open()
  await Promise.all(calls)
  t.same(started, ['alice', 'bob', 'alice', 'alice'])
})

t.test('RPC-05 concurrency: a cancelled call leaves the queue, and a cancelled handler frees its place', async (t) => {
  const layer = layerWith(concurrency({ limit: 1 }))
  const started: number[] = []
  layer.tool('work', { input: { n: z.number() } }, ({ n }, ctx) => {
    started.push(n)
    return n === 3 ? 'done' : new Promise<never>((_resolve, reject) => { ctx.signal.addEventListener('abort', () => reject(new Error('stopped'))) })
  })
  const { handle } = await connectAt('2025-11-25', layer)
  const calls = [1, 2, 3].map((n) => handle(request('tools/call', { name: 'work', arguments: { n } }, n)))
  await settled()
  const cancel = (requestId: number): Promise<unknown> => handle({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } })
  await cancel(2)
  await cancel(1)
  t.equal(await calls[0], undefined)
  t.equal(await calls[1], undefined)
  t.match(await calls[2], { id: 3, result: { content: [{ text: 'done' }] } })
  t.same(started, [1, 3])
})

t.test('concurrency: the queue has an end, and none at all is an option', async (t) => {
  const layer = layerWith(concurrency({ limit: 1, maxQueue: 1 }))
  const { open, opened } = gate()
  layer.tool('work', {}, async () => { await opened; return 1 })
  const calls = [1, 2].map(() => layer.callTool('work', {}, port()))
  await settled()
  await t.rejects(layer.callTool('work', {}, port()), { message: 'Server busy: too many concurrent MCP calls' })
  open()
  await Promise.all(calls)

  const impatient = layerWith(concurrency({ limit: 1, queueTimeout: 0 }))
  const second = gate()
  impatient.tool('work', {}, async () => { await second.opened; return 1 })
  const call = impatient.callTool('work', {}, port())
  await settled()
  await t.rejects(impatient.callTool('work', {}, port()), LayerError)
  second.open()
  await call
  for (const limit of [0, -1, NaN, '2' as never]) t.throws(() => concurrency({ limit }), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION' }, String(limit))
})

// ---- retry

function waits (): { waited: number[], wait: (ms: number) => Promise<void> } {
  const waited: number[] = []
  return { waited, wait: async (ms) => { waited.push(ms) } }
}

t.test('MW-05 retry: a tool that times out runs again, and its result says so', async (t) => {
  stayAlive(t)
  const { waited, wait } = waits()
  const layer = layerWith(retry({ wait }))
  let runs = 0
  layer.tool('flaky', { timeout: 1, annotations: READ }, (_args, ctx) => {
    ctx.signal.throwIfAborted()
    return ++runs > 1 ? { ok: true } : new Promise<never>(() => {})
  })
  const { handle } = await connectAt('2025-11-25', layer)
  const reply = await handle(request('tools/call', { name: 'flaky' }))
  t.match(reply, { result: { structuredContent: { ok: true }, isError: false, _meta: { 'cloudg/retries': 1 } } })
  t.same(waited, [500])
  t.notOk('cloudg/retries' in (await handle(request('tools/call', { name: 'flaky' }))).result._meta)
})

t.test('retry: a timeout that came as a result counts; after the last the failure stands', async (t) => {
  const { waited, wait } = waits()
  const layer = layerWith(retry({ wait }))
  let runs = 0
  layer.use(async () => {
    runs++
    return { content: [], isError: true, _meta: { 'cloudg/error_code': 'timeout' } }
  })
  layer.tool('slow', { annotations: READ }, () => 1)
  t.same(await layer.callTool('slow', {}, port()), { content: [], isError: true, _meta: { 'cloudg/error_code': 'timeout', 'cloudg/retries': 2 } })
  t.equal(runs, 3)
  t.same(waited, [500, 1000])
})

t.test('retry: broken connections are tried again, also those that fetch wraps; nothing else is', async (t) => {
  const { wait } = waits()
  const layer = layerWith(retry({ wait }))
  const errors: [string, unknown, number][] = [
    ['reset', Object.assign(new Error('read'), { code: 'ECONNRESET' }), 3],
    ['fetch', new TypeError('fetch failed', { cause: Object.assign(new Error('x'), { code: 'UND_ERR_SOCKET' }) }), 3],
    ['signal', AbortSignal.timeout(0).reason ?? new DOMException('late', 'TimeoutError'), 3],
    ['timeout', new TimeoutError('late'), 3],
    ['bug', new TypeError('x is not a function'), 1],
    ['tool', new ToolError('no'), 1],
    ['busy', new LayerError('busy'), 1],
    ['notfound', Object.assign(new Error('no such file'), { code: 'ENOENT' }), 1],
    ['text', 'thrown text', 1]
  ]
  for (const [name, error, expected] of errors) {
    let runs = 0
    layer.tool(name, { annotations: READ }, () => { runs++; throw error })
    await layer.callTool(name, {}, port()).then(() => t.fail('must fail'), (thrown) => t.equal(thrown, error))
    t.equal(runs, expected, name)
  }
  let runs = 0
  layer.tool('write', { annotations: { readOnlyHint: false, idempotentHint: true } }, () => { runs++; throw new TimeoutError('late') })
  layer.tool('read', { annotations: { readOnlyHint: true } }, () => { runs++; throw new TimeoutError('late') })
  layer.resource('x://y', {}, () => { runs++; throw new TimeoutError('late') })
  await t.rejects(layer.callTool('write', {}, port()))
  await t.rejects(layer.callTool('read', {}, port()))
  await t.rejects(layer.readResource('x://y', port()))
  t.equal(runs, 3)
})

t.test('retry: a call that is cancelled meanwhile does not run again', async (t) => {
  const layer = layerWith(retry({ backoff: () => 3_600_000 }))
  const controller = new AbortController()
  let runs = 0
  layer.tool('flaky', { annotations: READ }, () => { runs++; throw new TimeoutError('late') })
  const call = layer.callTool('flaky', {}, Object.defineProperty(localPort(), 'signal', { value: controller.signal }))
  await settled()
  controller.abort(new Error('gone'))
  await t.rejects(call)
  await t.rejects(layer.callTool('flaky', {}, Object.defineProperty(localPort(), 'signal', { value: controller.signal })), { message: 'gone' })
  t.equal(runs, 2)
})

t.test('retry waits half a second, then a second, without keeping the process alive', async (t) => {
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  const layer = layerWith(retry())
  let runs = 0
  layer.tool('flaky', { annotations: READ, timeout: 0 }, () => { if (++runs < 3) throw new TimeoutError('late'); return 'ok' })
  const call = layer.callTool('flaky', {}, port())
  for (const [ms, expected] of [[499, 1], [1, 2], [999, 2], [1, 3]] as const) {
    await settled()
    mock.timers.tick(ms)
    await settled()
    t.equal(runs, expected)
  }
  t.equal((await metaOf(call))['cloudg/retries'], 2)
})

// ---- audit

const SALT = 'a salt for tests'

function hash (json: string): string {
  return createHmac('sha256', SALT).update(json).digest('hex').slice(0, 16)
}

function memory (): { stream: Writable, lines: () => any[] } {
  const chunks: string[] = []
  const stream = new Writable({ write: (chunk, _encoding, done) => { chunks.push(String(chunk)); done() } })
  return { stream, lines: () => chunks.join('').split('\n').slice(0, -1).map((line) => JSON.parse(line)) }
}

t.test('MW-06 audit: a line says who, what and how, with hashes for values, in a file that is nobody else\'s', async (t) => {
  const path = join(t.testdir(), 'audit.jsonl')
  const trail = audit({ file: path, salt: SALT, now: () => new Date(0) })
  const layer = layerWith(trail)
  layer.tool('find', { input: { password: z.string(), filter: z.looseObject({}) } }, () => 'the result')
  const { handle } = connect(layer, {}, { principal: principal({ id: 'alice', roles: ['viewer', 'analyst'] }) })
  await handle(modern('tools/call', { name: 'find', arguments: { password: 'hunter2', filter: { b: [1, null], a: 'ü' } } }, 'req-1'))
  await trail.close()
  const text = await readFile(path, 'utf8')
  const { duration_ms: duration, ...line } = JSON.parse(text) as AuditRecord
  t.ok(Number.isInteger(duration) && duration >= 0)
  t.strictSame(line, {
    ts: '1970-01-01T00:00:00.000Z',
    event: 'mcp.call',
    kind: 'tool',
    name: 'find',
    era: 'modern',
    request_id: 'req-1',
    principal: { id: 'alice', roles: ['analyst', 'viewer'] },
    argument_keys: ['filter', 'password'],
    argument_hashes: { filter: hash('{"a":"ü","b":[1,null]}'), password: hash('"hunter2"') },
    outcome: 'ok'
  })
  t.match(hash('"hunter2"'), /^[0-9a-f]{16}$/)
  t.notMatch(text, /hunter2|ü|the result/)
  t.equal(text.indexOf('\n'), text.length - 1, 'one line')
  t.equal((await stat(path)).mode & 0o777, 0o600)
})

t.test('audit: every way in which a call can end has its word, and no message is repeated', async (t) => {
  const { stream, lines } = memory()
  const layer = layerWith(audit({ stream, salt: SALT }))
  const failures: [string, () => unknown, string, string | undefined][] = [
    ['ok', () => 1, 'ok', undefined],
    ['is-error', () => ({ content: [], isError: true }), 'error', undefined],
    ['tool-error', () => { throw new ToolError('secret') }, 'error', 'ToolError'],
    ['timeout', () => { throw new TimeoutError('secret') }, 'error', 'TimeoutError'],
    ['denied', () => { throw new AccessDeniedError('secret') }, 'denied', 'AccessDeniedError'],
    ['limited', () => { throw new RateLimitedError('secret') }, 'rate_limited', 'RateLimitedError'],
    ['rejected', () => { throw new InvalidArgumentsError('secret') }, 'rejected', 'InvalidArgumentsError'],
    ['exception', () => { throw new RangeError('secret') }, 'exception', 'RangeError'],
    // eslint-disable-next-line no-throw-literal -- somebody will
    ['thrown-text', () => { throw 'secret' }, 'exception', 'string']
  ]
  for (const [name, handler] of failures) {
    layer.tool(name, {}, handler)
    await layer.callTool(name, {}, port()).catch(() => {})
  }
  t.same(lines().map(({ name, outcome, error }) => [name, outcome, error]), failures.map(([name, , outcome, error]) => [name, outcome, error]))
  t.notMatch(JSON.stringify(lines()), /secret/)

  await layer.callTool('ok', { surprise: 1 }, port()).catch(() => {})
  t.match(lines().at(-1), { outcome: 'rejected', argument_keys: ['surprise'] }, 'arguments that do not fit')

  layer.tool('asks', {}, async (_args, ctx) => ctx.elicit('who?', { name: z.string() }))
  const { handle } = connect(layer)
  const envelope = { 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} } }
  t.match(await handle(modern('tools/call', { name: 'asks', _meta: envelope })), { result: { resultType: 'input_required' } })
  await settled()
  t.match(lines().at(-1), { name: 'asks', outcome: 'input_required', error: undefined })
})

t.test('audit: a cancelled call is written down as that, one that timed out is not', async (t) => {
  stayAlive(t)
  const { stream, lines } = memory()
  const layer = layerWith(audit({ stream }))
  const started = gate()
  layer.tool('sleepy', {}, async (_args, ctx) => {
    started.open()
    await new Promise((_resolve, reject) => { ctx.signal.addEventListener('abort', () => reject(new Error('stopped'))) })
  })
  layer.tool('late', { timeout: 1 }, () => new Promise<never>(() => {}))
  const { handle } = await connectAt('2025-06-18', layer)
  const call = handle(request('tools/call', { name: 'sleepy' }, 9))
  await started.opened
  await handle({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 9 } })
  t.equal(await call, undefined)
  await handle(request('tools/call', { name: 'late' }, 10))
  t.match(lines(), [{ name: 'sleepy', era: 'handshake', request_id: 9, outcome: 'cancelled' }, { name: 'late', outcome: 'error', error: 'TimeoutError' }])
})

t.test('audit: resources go by their template, completions by what is completed; values are hashed all the same', async (t) => {
  const { stream, lines } = memory()
  const layer = layerWith(audit({ stream, salt: SALT, kinds: ['resource', 'completion'] }))
  layer.resourceTemplate('x://of/{id}', { complete: { id: () => [] } }, ({ id }) => id)
  layer.resource('x://static', {}, () => '')
  layer.tool('tool', {}, () => 1)
  await layer.readResource('x://of/secret', port())
  await layer.readResource('x://static', port())
  await layer.callTool('tool', {}, port())
  await layer.complete({ type: 'ref/resource', uri: 'x://of/{id}' }, { name: 'id', value: 'secret' }, {}, port())
  t.match(lines(), [
    { kind: 'resource', name: 'x://of/{id}', argument_keys: ['id'], argument_hashes: { id: hash('"secret"') } },
    { kind: 'resource', name: 'x://static', argument_keys: [] },
    { kind: 'completion', name: 'x://of/{id}', argument_keys: ['argument', 'context', 'value'] }
  ])
  t.equal(lines().length, 3)
  t.notMatch(JSON.stringify(lines()), /secret/)
})

t.test('audit: what a caller sends does not make a line long, or break it', async (t) => {
  const { stream, lines } = memory()
  const layer = layerWith(audit({ stream }))
  layer.tool('any', { input: z.looseObject({}) }, () => 1)
  const many = Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`key ${n}\n`, n]))
  await layer.callTool('any', { ...many, ['k'.repeat(100_000)]: 1 }, port())
  await layer.callTool('any', { deep: JSON.parse('['.repeat(5000) + ']'.repeat(5000)), ['__proto__']: 1 }, port())
  const [first, second] = lines()
  t.equal(first.argument_keys.length, 64)
  t.ok(JSON.stringify(first).length < 20_000)
  t.strictSame(second.argument_hashes.deep, null)
})

t.test('audit: a file that was rotated away or removed is opened anew', async (t) => {
  const path = join(t.testdir(), 'audit.jsonl')
  const trail = audit({ file: path })
  const layer = layerWith(trail)
  layer.tool('work', { input: { n: z.number() } }, ({ n }) => n)
  // The handle stays open between lines: nothing of close() is needed for a rotation to be seen.
  const written = async (file: string, count: number): Promise<void> => {
    for (;;) {
      const text = await readFile(file, 'utf8').catch(() => '')
      if (text.split('\n').length - 1 >= count) return
    }
  }
  await layer.callTool('work', { n: 1 }, port())
  await written(path, 1)
  await rename(path, `${path}.1`)
  await layer.callTool('work', { n: 2 }, port())
  await written(path, 1)
  await rm(path)
  await Promise.all([3, 4, 5].map((n) => layer.callTool('work', { n }, port())))
  await trail.close()
  t.equal((await readFile(`${path}.1`, 'utf8')).split('\n').length, 2)
  t.equal((await readFile(path, 'utf8')).split('\n').length, 4)
  t.equal((await stat(path)).mode & 0o777, 0o600)
  await layer.callTool('work', { n: 6 }, port())
  await trail.close()
  t.equal((await readFile(path, 'utf8')).split('\n').length, 5, 'close ends nothing: a later line opens the file again')
})

t.test('audit: when it cannot be written, calls go on, the failure is told once, and it recovers', async (t) => {
  const path = join(t.testdir(), 'audit.jsonl')
  await mkdir(path)
  const errors: Error[] = []
  const trail = audit({ file: path, onError: (error) => errors.push(error) })
  const layer = layerWith(trail)
  layer.tool('work', {}, () => 'done')
  for (let n = 0; n < 3; n++) {
    t.match(await layer.callTool('work', {}, port()), { isError: false })
    await trail.close()
  }
  t.equal(errors.length, 1)
  t.match(errors[0], { code: 'EISDIR' })
  await rmdir(path)
  await layer.callTool('work', {}, port())
  await trail.close()
  t.equal((await readFile(path, 'utf8')).trim().split('\n').length, 1)
})

t.test('audit: lines that a stalled stream has no room for are lost and counted', async (t) => {
  const chunks: string[] = []
  let release: (() => void) | undefined
  const stream = new Writable({ highWaterMark: 1, write: (chunk, _encoding, done) => { chunks.push(String(chunk)); release = done } })
  const layer = layerWith(audit({ stream, maxPending: 1000 }))
  layer.tool('work', {}, () => 'done')
  for (let n = 0; n < 20; n++) await layer.callTool('work', {}, port())
  const kept = Math.floor(1000 / (chunks[0]!.length))
  t.ok(stream.writableLength <= 1000)
  while (stream.writableLength > 0) {
    release!()
    await settled()
  }
  await layer.callTool('work', {}, port())
  await settled()
  while (stream.writableLength > 0) {
    release!()
    await settled()
  }
  const lines = chunks.join('').trim().split('\n').map((line) => JSON.parse(line))
  t.same(lines.map(({ event }) => event), [...Array(kept).fill('mcp.call'), 'mcp.audit.gap', 'mcp.call'])
  t.equal(lines[kept].lost, 20 - kept)
})

t.test('audit: a stream that broke or ended stops nothing', async (t) => {
  const errors: Error[] = []
  const stream = new Writable({ write: (_chunk, _encoding, done) => done(new Error('pipe')) })
  const trail = audit({ stream, onError: (error) => errors.push(error) })
  const layer = layerWith(trail)
  layer.tool('work', {}, () => 'done')
  for (let n = 0; n < 3; n++) {
    t.match(await layer.callTool('work', {}, port()), { isError: false })
    await settled()
  }
  await trail.close()
  t.same(errors.map(({ message }) => message), ['pipe'])
  for (const options of [{ stream, salt: '' }, {}, { stream, file: 'x' }]) t.throws(() => audit(options), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION' })
})

t.test('audit: without an onError a process warning tells of a failure', async (t) => {
  const warned = new Promise<Error>((resolve) => process.once('warning', resolve))
  const trail = audit({ file: t.testdir() })
  const layer = layerWith(trail)
  layer.tool('work', {}, () => 'done')
  await layer.callTool('work', {}, port())
  await trail.close()
  t.match(await warned, { code: 'CLOUDG_MCP_WARN_AUDIT', message: /audit trail cannot be written/ })
})

// ---- metrics

t.test('metrics: calls, how they ended, and how long they took', async (t) => {
  const clock = handClock()
  const counted = metrics({ now: clock.now })
  const layer = layerWith(counted)
  layer.tool('work', { input: { ms: z.number() } }, ({ ms }) => {
    clock.pass(ms)
    if (ms === 100) throw new Error('late')
    t.equal(counted.snapshot().running, 1)
    return 'done'
  })
  layer.resourceTemplate('x://of/{id}', {}, ({ id }) => id)
  for (let ms = 1; ms <= 100; ms++) await layer.callTool('work', { ms }, port()).catch(() => {})
  await layer.readResource('x://of/1', port())
  await layer.readResource('x://of/2', port())
  const { since, ...rest } = counted.snapshot()
  const none = { ok: 0, input_required: 0, error: 0, denied: 0, rate_limited: 0, rejected: 0, cancelled: 0, exception: 0 }
  t.match(since, /^\d{4}-\d\d-\d\dT/)
  t.strictSame(rest, {
    running: 0,
    calls: {
      'tool:work': { calls: 100, outcomes: { ...none, ok: 99, exception: 1 }, duration_ms: { mean: 50.5, p95: 95, max: 100 } },
      'resource:x://of/{id}': { calls: 2, outcomes: { ...none, ok: 2 }, duration_ms: { mean: 0, p95: 0, max: 0 } }
    }
  })
  for (let n = 0; n < 256; n++) await layer.callTool('work', { ms: 2 }, port())
  t.match(counted.snapshot().calls['tool:work'], { calls: 356, duration_ms: { p95: 2, max: 100 } }, 'the percentile is of the last 256')
})

t.test('metrics: a resource shows them to whom it may; names are bounded', async (t) => {
  const counted = metrics({ maxNames: 1 })
  const layer = layerWith(counted)
  layer.tool('a', {}, () => 1)
  layer.tool('b', {}, () => 1)
  layer.tool('c', {}, () => 1)
  counted.expose(layer, { roles: ['ops'] })
  for (const name of ['a', 'b', 'c']) await layer.callTool(name, {}, port())
  t.same(Object.keys(counted.snapshot().calls), ['tool:a', 'tool:*'])
  await t.rejects(layer.readResource('cloudg://metrics', port()), { message: 'Unknown resource: cloudg://metrics' })
  const [contents] = await layer.readResource('cloudg://metrics', port(principal({ id: 'op', roles: ['ops'] }))) as { text: string }[]
  t.match(JSON.parse(contents!.text), { calls: { 'tool:a': { calls: 1 }, 'tool:*': { calls: 2 } } })
})

// ---- together

t.test('the built-in order: refusals are written down, hits count, and a retry holds one place', async (t) => {
  const { stream, lines } = memory()
  const layer = layerWith()
  const counted = metrics()
  const clock = handClock()
  layer.use(audit({ stream })).use(counted).use(rateLimit({ limit: '2/minute', now: clock.now }))
    .use(concurrency({ limit: 1 })).use(cache(layer)).use(retry({ wait: async () => {} }))
  let runs = 0
  layer.tool('read', { annotations: READ }, () => { if (++runs === 1) throw new TimeoutError('late'); return 'ok' })
  const results = []
  for (let n = 0; n < 3; n++) results.push(await layer.callTool('read', {}, port()).then((result) => result._meta, (error) => error.name))
  t.match(results, [{ 'cloudg/retries': 1 }, { 'cloudg/retries': 1, 'cloudg/cache': 'hit' }, 'RateLimitedError'])
  t.same(lines().map(({ outcome }) => outcome), ['ok', 'ok', 'rate_limited'])
  t.match(counted.snapshot().calls['tool:read'], { calls: 3, outcomes: { ok: 2, rate_limited: 1 } })
  t.equal(runs, 2)
})
