// Rounds of 2026 over HTTP: status codes, other callers, other calls, other processes, and clients that leave.

import t from 'tap'
import type { Test } from 'tap'
import { createLayer, inputRequired } from '../../lib/layer/index.js'
import type { Context } from '../../lib/layer/index.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { gate, H, JSON_ONLY, serve } from '../field/wire.js'
import type { Answer, Wire } from '../field/wire.js'
import { modern, modernHeaders } from '../kit.js'
import { createAsking, said, textOf } from './layer.js'

const KEY = 'k'.repeat(32)
const NEW_KEY = 'n'.repeat(32)
const ALICE = { authorization: 'Bearer alice-token' }
const BOB = { authorization: 'Bearer bob-token' }
const auth = { tokens: ['alice-token:analyst:alice', 'bob-token:analyst:bob'] }
const REFUSED = { code: -32602, message: 'Invalid or expired requestState', data: { reason: 'invalid_request_state' } }
const SURE = { action: 'accept', content: { sure: true } }

interface Round { inputResponses?: unknown, requestState?: unknown }

function bodyOf (name: string, args: object, round: Round, capabilities: object): object {
  return modern('tools/call', { name, arguments: args, ...round, _meta: { 'io.modelcontextprotocol/clientCapabilities': capabilities } })
}

async function call (wire: Wire, name: string, args: object = {}, round: Round = {}, headers: Record<string, string> = {}, capabilities: object = { elicitation: {} }): Promise<Answer> {
  return wire.post(bodyOf(name, args, round, capabilities), { ...modernHeaders('tools/call', name), ...headers })
}

function answersTo (answer: Answer, give: unknown = SURE): Round {
  const { inputRequests, requestState } = answer.reply.result
  return { requestState, inputResponses: Object.fromEntries(Object.keys(inputRequests).map((key) => [key, give])) }
}

async function start (t: Test, options: CloudgMcpOptions = {}) {
  const asking = createAsking()
  return { ...asking, service: await serve(t, { layer: asking.layer, requestState: { keys: [KEY] }, ...options }) }
}

t.test('questions are a result like any other, as an event or as JSON; what was not declared is 400', async (t) => {
  for (const responseMode of ['sse', 'auto', 'json'] as const) {
    const { service } = await start(t, { responseMode })
    for (const headers of [{}, JSON_ONLY]) {
      const first = await call(service, 'name', {}, {}, headers)
      t.equal(first.status, 200)
      t.equal(first.reply.result.resultType, 'input_required')
      t.equal(first.headers['mcp-session-id'], undefined)
      t.equal(textOf((await call(service, 'name', {}, answersTo(first, { action: 'decline' }), headers)).reply.result), 'You said decline')

      const refused = await call(service, 'name', {}, {}, headers, { sampling: {} })
      t.equal(refused.status, 400, responseMode)
      t.match(refused.headers['content-type'], /^application\/json/)
      t.same(refused.json, {
        jsonrpc: '2.0',
        id: 1,
        error: { code: -32021, message: 'Client did not declare the required capability: elicitation', data: { requiredCapabilities: { elicitation: {} } } }
      })
      t.match((await call(service, 'page', {}, {}, headers)).json, { error: { code: -32021, data: { requiredCapabilities: { elicitation: { url: {} } } } } })
    }
  }
})

t.test('RQ-06 RQ-07 a state is good for its caller and its call, whatever is presented with it', async (t) => {
  const { service, runs } = await start(t, { auth })
  const args = { what: 'disk' }
  const round = answersTo(await call(service, 'twice', args, {}, ALICE))
  for (const refused of [
    await call(service, 'twice', args, round, BOB),
    await call(service, 'twice', { what: 'tape' }, round, ALICE),
    await call(service, 'name', args, round, ALICE),
    await call(service, 'twice', args, { ...round, requestState: `${round.requestState as string}A` }, ALICE)
  ]) {
    t.equal(refused.status, 200)
    t.same(refused.reply.error, REFUSED)
  }
  t.equal((await call(service, 'twice', args, round)).status, 401)
  t.equal(runs['twice'], 1)
  t.equal(runs['name'], undefined)
  t.equal((await call(service, 'twice', args, round, ALICE)).reply.result.resultType, 'input_required')
})

t.test('RQ-07 a state of nobody is none of somebody, and the other way round', async (t) => {
  const { service } = await start(t, { auth: { ...auth, required: false } })
  const args = { what: 'disk' }
  const anonymous = answersTo(await call(service, 'twice', args))
  const alices = answersTo(await call(service, 'twice', args, {}, ALICE))
  t.same((await call(service, 'twice', args, anonymous, ALICE)).reply.error, REFUSED)
  t.same((await call(service, 'twice', args, alices)).reply.error, REFUSED)
  t.equal((await call(service, 'twice', args, anonymous)).reply.result.resultType, 'input_required')
})

t.test('RQ-09 two instances with the same keys, a restart between the rounds, and a ring that turns', async (t) => {
  const args = { what: 'disk' }
  const a = await start(t)
  const first = answersTo(await call(a.service, 'twice', args))
  a.service.agent.destroy()
  await a.service.app.close()

  const b = await start(t, { requestState: { keys: [KEY, NEW_KEY] } })
  const second = answersTo(await call(b.service, 'twice', args, first))
  const c = await start(t, { requestState: { keys: [NEW_KEY, KEY] } })
  t.equal(textOf((await call(c.service, 'twice', args, second)).reply.result), 'Deleted disk')
  const sealedWithNew = answersTo(await call(c.service, 'twice', args))
  t.equal((await call(b.service, 'twice', args, sealedWithNew)).reply.result.resultType, 'input_required', 'who has not turned yet opens it too')
  const d = await start(t, { requestState: { keys: [NEW_KEY] } })
  t.same((await call(d.service, 'twice', args, second)).reply.error, REFUSED, 'the old key is gone')

  const other = await start(t, { requestState: { keys: [KEY], audience: 'another service' } })
  t.same((await call(other.service, 'twice', args, second)).reply.error, REFUSED, 'services that share keys have another audience')
  const random = await start(t, { requestState: {} })
  t.same((await call(random.service, 'twice', args, second)).reply.error, REFUSED)
  t.same([a.runs['twice'], b.runs['twice'], c.runs['twice'], d.runs['twice']], [1, 2, 2, undefined])
})

t.test('RQ-12 a ring that cannot work stops the plugin from loading', async (t) => {
  for (const requestState of [{ keys: [] }, { keys: ['short'] }, { keys: [KEY, KEY] }, { ttl: 0 }, { ttl: NaN }, { ttl: Infinity }]) {
    await t.rejects(serve(t, { requestState }), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message: /requestState/ }, JSON.stringify(requestState))
  }
})

t.test('nested beyond the stack, arguments are answered like any other', async (t) => {
  const { service } = await start(t)
  const round = answersTo(await call(service, 'twice', { what: 'disk' }))
  const body = JSON.stringify(bodyOf('twice', { what: 'HERE' }, round, { elicitation: {} })).replace('"HERE"', `${'['.repeat(100_000)}${']'.repeat(100_000)}`)
  const answer = await service.send({ body, headers: { ...H, ...modernHeaders('tools/call', 'twice') } })
  t.equal(answer.status, 200)
  t.same(answer.reply.error, REFUSED)
})

t.test('a client of 2026 that leaves ends the wait for it', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const contexts = gate<Context>()
  const ended = gate<string>()
  layer.tool('busy', {}, async (_args, ctx) => {
    contexts.open(ctx)
    await ctx.notify.log('info', 'here')
    await new Promise((resolve) => { ctx.signal.addEventListener('abort', resolve) })
    await ctx.elicit('?', {}).catch((error) => { ended.open(error.message) })
  })
  const service = await serve(t, { layer })
  const stream = await service.open({
    body: modern('tools/call', { name: 'busy', arguments: {}, _meta: { 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} }, 'io.modelcontextprotocol/logLevel': 'info' } }),
    headers: { ...H, ...modernHeaders('tools/call', 'busy') }
  })
  await stream.next()
  stream.destroy()
  t.equal(await ended.opened, 'The client has gone')
  await t.rejects((await contexts.opened).elicit('still?', {}), { message: 'The client has gone' })
})

t.test('a resource that is read within a call asks as part of it, and gets no answers that were not for it', async (t) => {
  const layer = createLayer({ name: 'x', version: '1' })
  const seen: unknown[] = []
  layer.resource('x://inner', { mimeType: 'text/plain' }, async (_uri, ctx) => {
    seen.push([ctx.inputResponses, ctx.requestState])
    const { action } = await ctx.elicit('Inner?', {}, { key: 'inner' })
    return action
  })
  layer.tool('outer', {}, async (_args, ctx) => {
    if (ctx.requestState === undefined) return inputRequired({ requests: { own: { method: 'roots/list' } }, state: 'own' })
    const [contents] = await ctx.readResource('x://inner')
    return said(`${ctx.requestState as string} ${contents!.text}`)
  })
  const service = await serve(t, { layer, requestState: { keys: [KEY] } })
  const capabilities = { elicitation: {}, roots: {} }
  const first = await call(service, 'outer', {}, {}, {}, capabilities)
  const second = await call(service, 'outer', {}, answersTo(first, { roots: [] }), {}, capabilities)
  t.same(Object.keys(second.reply.result.inputRequests), ['inner'])
  const third = await call(service, 'outer', {}, answersTo(second, { action: 'decline' }), {}, capabilities)
  t.equal(textOf(third.reply.result), 'own decline')
  t.same(seen, [[{}, undefined], [{}, undefined]])
})
