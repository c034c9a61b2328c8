// What middleware sees of a call that asks: in 2026 every round is a call of its own, and one that ends with questions is neither
// a success nor a failure, and not to be tried again, kept, or held.

import t from 'tap'
import { Writable } from 'node:stream'
import { audit, cache, concurrency, createLayer, elicit, inputRequired, metrics, retry } from '../../lib/layer/index.js'
import type { AppLayer, Context, Middleware } from '../../lib/layer/index.js'
import { initialize, INITIALIZED, modern, request } from '../kit.js'
import { connect, settled } from '../protocol/connection.js'
import { said, textOf } from './layer.js'

const READ = { annotations: { readOnlyHint: true, idempotentHint: true } }
const CAPABILITIES = { elicitation: {} }

/** A layer with tools that end a round in every way there is. */
function layerWith (...middleware: Middleware[]) {
  const layer = createLayer({ name: 'x', version: '1', middleware })
  const runs: Record<string, number> = {}
  const tool = (name: string, run: (ctx: Context) => unknown): void => {
    layer.tool(name, READ, (_args, ctx) => {
      runs[name] = (runs[name] ?? 0) + 1
      return run(ctx)
    })
  }
  const ask = (ctx: Context) => ctx.elicit('Go on?', {}, { key: 'q' })
  tool('asks', async (ctx) => said((await ask(ctx)).action))
  tool('states', (ctx) => ctx.inputResponses['q'] === undefined ? inputRequired({ requests: { q: elicit('Go on?', {}) } }) : said('stated'))
  tool('swallows', async (ctx) => ask(ctx).then(({ action }) => said(action), () => said('as if nothing had been')))
  tool('translates', async (ctx) => ask(ctx).then(({ action }) => said(action), () => { throw Object.assign(new Error('broken'), { code: 'ECONNRESET' }) }))
  return { layer, runs }
}
const TOOLS = ['asks', 'states', 'swallows', 'translates']

async function call (layer: AppLayer, name: string, answers?: Record<string, unknown>): Promise<any> {
  const { handle } = connect(layer)
  const reply = await handle(modern('tools/call', { name, ...(answers && { inputResponses: answers }), _meta: { 'io.modelcontextprotocol/clientCapabilities': CAPABILITIES } }))
  // What a handler still does after its call was answered has been done by then.
  await settled()
  return reply.result
}

const yes = { q: { action: 'accept' } }

t.test('a round that ends with questions is input_required, whatever the handler made of it', async (t) => {
  let written = ''
  const stream = new Writable({
    write (chunk: Buffer, _encoding, done) {
      written += chunk.toString()
      done()
    }
  })
  const trail = audit({ stream })
  const counted = metrics()
  const { layer } = layerWith(trail, counted)
  for (const name of TOOLS) {
    t.equal((await call(layer, name)).resultType, 'input_required', name)
    t.equal((await call(layer, name, yes)).resultType, 'complete', name)
  }
  await trail.close()
  const lines = written.trim().split('\n').map((line) => JSON.parse(line))
  t.same(lines.map(({ name, outcome, error }) => [name, outcome, error]), TOOLS.flatMap((name) => [[name, 'input_required', undefined], [name, 'ok', undefined]]))
  for (const name of TOOLS) t.match(counted.snapshot().calls[`tool:${name}`], { calls: 2, outcomes: { input_required: 1, ok: 1, cancelled: 0, exception: 0 } })
  t.equal(counted.snapshot().running, 0)
})

t.test('a round that ends with questions is not tried again', async (t) => {
  const { layer, runs } = layerWith(retry({ backoff: () => 0, isTransient: () => true }))
  for (const name of TOOLS) t.equal((await call(layer, name)).resultType, 'input_required', name)
  t.same(runs, { asks: 1, states: 1, swallows: 1, translates: 1 })
})

t.test('neither questions nor what was made of their answers is kept', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const kept = cache(layer)
  const tools = layerWith()
  tools.layer.use(kept)
  for (const name of TOOLS) {
    await call(tools.layer, name)
    t.equal(textOf(await call(tools.layer, name, yes)), name === 'states' ? 'stated' : 'accept')
    t.equal((await call(tools.layer, name)).resultType, 'input_required', `${name}: the next call asks again`)
  }

  // What a resource asks goes into the result of the tool that reads it.
  tools.layer.resource('x://inner', { mimeType: 'text/plain' }, async (_uri, ctx) => (await ctx.elicit('Go on?', {}, { key: 'q' })).action)
  tools.layer.tool('reads', READ, async (_args, ctx) => said((await ctx.readResource('x://inner'))[0]!.text!))
  t.equal(textOf(await call(tools.layer, 'reads', yes)), 'accept')
  t.equal(kept.size, 0)
})

t.test('a suspended run gives its place back', async (t) => {
  const { layer } = layerWith(concurrency({ limit: 1, queueTimeout: 0 }))
  for (let round = 0; round < 3; round++) {
    for (const name of TOOLS) t.equal((await call(layer, name)).resultType, 'input_required', name)
  }
})

t.test('a middleware that runs the handler of a suspended call once more gets no further', async (t) => {
  const seen: string[] = []
  const stubborn: Middleware = async (_info, next) => {
    try {
      return await next()
    } catch (error) {
      seen.push((error as Error).name)
      return next().catch((again) => { seen.push(again.name); throw again })
    }
  }
  const { layer } = layerWith(stubborn)
  const result = await call(layer, 'asks')
  t.equal(result.resultType, 'input_required')
  t.same(Object.keys(result.inputRequests), ['q'])
  t.same(seen, ['SuspendedError', 'SuspendedError'])
})

t.test('in the handshake era the call is one, and ends as it ends', async (t) => {
  const counted = metrics()
  const { layer, runs } = layerWith(counted)
  const connection = connect(layer, {}, {
    send: (message: any) => { if (message.id !== undefined) setImmediate(() => { void connection.handle({ jsonrpc: '2.0', id: message.id, result: { action: 'decline' } }) }) }
  })
  await connection.handle(initialize('2025-11-25', 'init', CAPABILITIES))
  await connection.handle(INITIALIZED)
  t.equal(textOf((await connection.handle(request('tools/call', { name: 'asks' }))).result), 'decline')
  t.match(counted.snapshot().calls['tool:asks'], { calls: 1, outcomes: { ok: 1, input_required: 0 } })
  t.equal(textOf((await connection.handle(request('tools/call', { name: 'states' }))).result), 'stated')
  t.match(counted.snapshot().calls['tool:states'], { calls: 2, outcomes: { ok: 1, input_required: 1 } }, 'explicit rounds are runs of their own')
  t.equal(runs['states'], 2)
})
