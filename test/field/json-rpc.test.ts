// JSON-RPC and the protocol as they fail in the field: ids that came back changed, answers to what was cancelled, lists without
// an end, eras that were guessed.

import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { z } from 'zod'
import type { Context } from '../../lib/layer/index.js'
import { createLayer } from '../../lib/layer/index.js'
import { ProtocolServer } from '../../plugin.js'
import { createKit, ENV, initialize, INITIALIZED, modern, modernHeaders, request } from '../kit.js'
import type { Answer } from './wire.js'
import { Connection, gate, H, PING, pipe, refused, serve } from './wire.js'

const HANDSHAKE = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']
const JSON_ANSWER = { accept: 'application/json' }
const SSE_ANSWER = { accept: 'text/event-stream' }
const kit = () => ({ layer: createKit().layer })

/** The id of the last message, as it is spelled on the wire. */
function spelledId ({ text }: Pick<Answer, 'text'>): string | undefined {
  return text.match(/"id":("(?:[^"\\]|\\.)*"|[^,}]+)/g)?.at(-1)?.slice('"id":'.length)
}

t.test('RPC-01 an id comes back as it was, on every path', async (t) => {
  const service = await serve(t, kit())
  const session = await service.connect()
  const ids = ['1', 1, 0, '', 'req-ä', -5, 'x'.repeat(300), 'a"\\b', 9007199254740991]
  const bodies = [
    request('ping'),
    request('tools/list'),
    request('tools/call', { name: 'echo', arguments: { text: 'a' } }),
    request('tools/call', { name: 'echo', arguments: { times: 9 } }),
    request('tools/call', { name: 'fail', arguments: {} }),
    request('tools/call', { name: 'nope', arguments: {} }),
    request('tools/call'),
    request('resources/read', { uri: 'other://x' }),
    request('tools/list', { cursor: 'garbage' }),
    request('nope/nope'),
    { ...request('ping'), params: [1] }
  ]
  for (const id of ids) {
    const spelled = JSON.stringify(id)
    for (const body of bodies) {
      for (const headers of [JSON_ANSWER, SSE_ANSWER]) {
        const answer = await session.post({ ...body, id }, headers)
        t.equal(answer.status, 200)
        t.equal(spelledId(answer), spelled, `${body.method} ${spelled}`)
      }
    }
    t.equal(spelledId(await session.post({ id, method: 'ping' })), spelled, 'also where the message is no JSON-RPC 2.0')
    t.equal(spelledId(await session.post({ jsonrpc: '2.0', id, method: 5 })), spelled)
    const ladder = [
      await service.post(modern('tools/list', {}, id), modernHeaders('tools/list')),
      await service.post(modern('tools/call', { name: 'nope', arguments: {} }, id), modernHeaders('tools/call', 'nope')),
      await service.post(modern('nope/nope', {}, id), modernHeaders('nope/nope')),
      await service.post(modern('tools/list', {}, id), modernHeaders('tools/call')),
      await service.post({ ...request('tools/list', {}, id) }, modernHeaders('tools/list'))
    ]
    t.same(ladder.map(({ status }) => status), [200, 200, 404, 400, 400])
    for (const answer of ladder) t.equal(spelledId(answer), spelled)
  }

  const [, ...lines] = await pipe(createKit().layer, (write) => {
    write(initialize())
    for (const id of ids) for (const body of bodies) write({ ...body, id })
  })
  const spelled = lines.map((text) => spelledId({ text }))
  for (const id of ids) t.equal(spelled.filter((one) => one === JSON.stringify(id)).length, bodies.length, 'on standard output too')
  t.equal(spelled.length, ids.length * bodies.length)
})

t.test('RPC-03 an id that cannot be echoed unchanged is no id', async (t) => {
  const service = await serve(t)
  const session = await service.connect()
  for (const id of ['1.5', '9007199254740993', '-9007199254740993', '1e400', 'true', 'null', '[1]', '{}']) {
    const body = `{"jsonrpc":"2.0","id":${id},"method":"ping"}`
    const answer = await session.post(body)
    t.equal(answer.status, 200)
    t.same(answer.json, refused('Invalid Request: bad id'), id)
    const era = await service.post(`{"jsonrpc":"2.0","id":${id},"method":"tools/list","params":{"_meta":${JSON.stringify(ENV)}}}`, modernHeaders('tools/list'))
    t.equal(era.status, 400)
    t.match(era.json, { id: null, error: { code: -32600 } })
  }
  t.same((await session.post('{"jsonrpc":"2.0","id":1.0,"method":"ping"}')).json, { jsonrpc: '2.0', id: 1, result: {} })
  t.same((await session.post('{"jsonrpc":"2.0","id":9007199254740991,"method":"ping"}')).json.id, 9007199254740991)
})

t.test('RPC-05 what was cancelled is not answered', async (t) => {
  const { layer, entered } = createKit()
  const service = await serve(t, { layer })
  const session = await service.connect()
  const cancel = (requestId: unknown) => session.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId, reason: 'enough' } })
  async function start (id: number | string, headers: Record<string, string>): Promise<[Context, Promise<Answer>]> {
    const began = entered('sleepy')
    const answer = session.post(request('tools/call', { name: 'sleepy', arguments: {} }, id), headers)
    return [await began, answer]
  }

  const [streaming, events] = await start(9, SSE_ANSWER)
  t.equal((await cancel('9')).status, 202)
  t.notOk(streaming.signal.aborted, 'another id')
  t.equal((await cancel(9)).status, 202)
  const ended = await events
  t.equal(ended.status, 200)
  t.match(ended.headers['content-type'], /^text\/event-stream\b/)
  t.notMatch(ended.text, 'data:', 'the stream just ends')
  t.ok(streaming.signal.aborted)
  t.equal(streaming.signal.reason.message, 'enough')

  const [plain, json] = await start('nine', JSON_ANSWER)
  await cancel('nine')
  const empty = await json
  t.equal(empty.status, 202)
  t.equal(empty.text, '')
  t.ok(plain.signal.aborted)

  const [later, again] = await start(9, SSE_ANSWER)
  t.notOk(later.signal.aborted, 'the id is free again')
  const foreign = await service.connect()
  await foreign.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 9 } })
  t.notOk(later.signal.aborted, 'another session cancels its own')
  await cancel(9)
  await again

  const [batched, both] = await (async () => {
    const old = await service.connect({}, '2025-03-26')
    const began = entered('sleepy')
    const answer = old.post([request('tools/call', { name: 'sleepy', arguments: {} }, 1), request('ping', {}, 2)], JSON_ANSWER)
    const ctx = await began
    await old.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } })
    return [ctx, await answer] as const
  })()
  t.ok(batched.signal.aborted)
  t.same(both.json, [{ jsonrpc: '2.0', id: 2, result: {} }])

  let onPipe: Context | undefined
  const lines = await pipe(layer, async (write) => {
    const began = entered('sleepy')
    write(initialize())
    write(request('tools/call', { name: 'sleepy', arguments: {} }, 9))
    onPipe = await began
    write({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 9 } })
    write(PING)
  })
  t.ok(onPipe!.signal.aborted)
  t.same(lines.map((line) => JSON.parse(line).id), ['init', 1], 'nor on standard output')
})

t.test('RPC-07 a notification that says nothing to us is taken and ignored', async (t) => {
  const service = await serve(t)
  const session = await service.connect()
  const notifications = [
    { method: 'notifications/whatever' },
    { method: 'notifications/cancelled' },
    { method: 'notifications/cancelled', params: {} },
    { method: 'notifications/cancelled', params: { requestId: 1.5 } },
    { method: 'notifications/cancelled', params: { requestId: 'unknown' } },
    { method: 'notifications/cancelled', params: [1] },
    { method: 'notifications/cancelled', params: null },
    { method: 'notifications/roots/list_changed' },
    { method: 'notifications/progress', params: { progressToken: 1, progress: 1 } },
    { method: 'notifications/initialized' },
    { method: 'tools/call', params: { name: 'nope' } },
    { result: {}, id: 77 },
    { error: { code: 1, message: 'x' }, id: 78 }
  ]
  for (const notification of notifications) {
    const answer = await session.post({ jsonrpc: '2.0', ...notification })
    t.equal(answer.status, 202, JSON.stringify(notification))
    t.equal(answer.text, '')
  }
  const modernOne = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1, _meta: ENV } }
  t.equal((await service.post(modernOne, modernHeaders('notifications/cancelled'))).status, 202)
  t.equal((await session.post(PING)).status, 200)
  t.same(service.logs, [])
})

t.test('RPC-09 progress is for the token of the client, grows, and ends with the call', async (t) => {
  const layer = createLayer({ name: 'progress', version: '1' })
  const kept: Context[] = []
  const all = [gate(), gate()]
  layer.tool('report', { input: { from: z.number() } }, async ({ from }, ctx) => {
    kept.push(ctx)
    for (const progress of [from, from, from - 1, NaN, Infinity, from + 1]) await ctx.progress(progress)
    return 'done'
  })
  layer.tool('meet', { input: { at: z.number() } }, async ({ at }, ctx) => {
    all[at]!.open()
    await Promise.all(all.map(({ opened }) => opened))
    await ctx.progress(at + 1)
    return at
  })
  const service = await serve(t, { layer })
  const session = await service.connect()
  const get = await session.get()
  const call = (name: string, args: object, id: number, token?: unknown) =>
    session.post(request('tools/call', { name, arguments: args, ...(token !== undefined && { _meta: { progressToken: token } }) }, id), SSE_ANSWER)
  const told = ({ messages }: Answer) => messages.slice(0, -1).map(({ params }) => [params.progressToken, params.progress])

  t.same(told(await call('report', { from: 5 }, 1, 'p')), [['p', 5], ['p', 6]])
  t.same(told(await call('report', { from: 5 }, 2, 0)), [[0, 5], [0, 6]])
  for (const token of [undefined, null, 1.5, true, {}, '9007199254740993']) {
    const expected = typeof token === 'string' ? [[token, 5], [token, 6]] : []
    t.same(told(await call('report', { from: 5 }, 3, token)), expected, JSON.stringify(token) ?? 'none')
  }
  t.same((await Promise.all([call('meet', { at: 0 }, 4, 'same'), call('meet', { at: 1 }, 5, 'same')])).map(told), [[['same', 1]], [['same', 2]]])
  for (const ctx of kept) {
    await ctx.progress(100)
    await ctx.notify.log('error', 'too late')
  }
  layer.notifyChanged('tools')
  t.equal((await get.next()).method, 'notifications/tools/list_changed', 'and nothing else ever came to the other stream')
  get.destroy()
})

t.test('RPC-11 batches are for the revisions that have them', async (t) => {
  const service = await serve(t, kit())
  const invalid = refused('Invalid Request')
  for (const version of HANDSHAKE) {
    const session = await service.connect({}, version)
    const post = (body: unknown) => session.post(body, JSON_ANSWER)
    const pings = await post([request('ping', {}, 'a'), request('ping', {}, 2)])
    const notified = await post([{ jsonrpc: '2.0', method: 'notifications/whatever' }])
    const empty = await post([])
    t.equal(empty.status, 200)
    t.same(empty.json, refused('Invalid Request: empty batch'))
    if (version > '2025-03-26') {
      const refusal = refused(`JSON-RPC batches are not supported by protocol version ${version}`)
      for (const answer of [pings, notified, await post([initialize()]), await post([request('ping'), 1])]) {
        t.equal(answer.status, 200)
        t.same(answer.json, refusal)
      }
      continue
    }
    t.same(pings.json, [{ jsonrpc: '2.0', id: 'a', result: {} }, { jsonrpc: '2.0', id: 2, result: {} }])
    t.same([notified.status, notified.text], [202, ''])
    const mixed = await post([request('ping', {}, 1), 1, { jsonrpc: '2.0', method: 'notifications/x' }, null, { id: 4, method: 'ping' }, request('nope', {}, 5)])
    t.same(mixed.json, [
      { jsonrpc: '2.0', id: 1, result: {} },
      invalid,
      invalid,
      { ...invalid, id: 4 },
      { jsonrpc: '2.0', id: 5, error: { code: -32601, message: 'Method not found', data: 'nope' } }
    ])
    t.same((await post([initialize('2025-03-26', 'i')])).json, [refused('Invalid Request: initialize must not be part of a batch', -32600, 'i')])
    const many = await post(Array.from({ length: 1000 }, (_, id) => request('ping', {}, id)))
    t.same(many.json.map(({ id }: any) => id), Array.from({ length: 1000 }, (_, id) => id))
    t.match((await post(Array.from({ length: 1001 }, (_, id) => request('ping', {}, id)))).json, { id: null, error: { code: -32600 } })
    const events = await session.post([request('tools/call', { name: 'slow', arguments: { steps: 1 } }, 1), request('ping', {}, 2)], SSE_ANSWER)
    t.same(events.messages.map(({ id, method }) => id ?? method), ['notifications/message', 1, 2])
  }

  const stateless = await serve(t, { stateless: true })
  const pair = [request('ping', {}, 1), request('ping', {}, 2)]
  t.equal((await stateless.post(pair)).json.length, 2, 'no header is 2025-03-26')
  t.equal((await stateless.post(pair, { 'MCP-Protocol-Version': '2024-11-05' })).json.length, 2)
  t.same((await stateless.post(pair, { 'MCP-Protocol-Version': '2025-06-18' })).json, refused('JSON-RPC batches are not supported by protocol version 2025-06-18'))
})

t.test('RPC-12 an answered initialize is all that a client has to wait for', async (t) => {
  const service = await serve(t, kit())
  const opened = await service.post(initialize())
  const session = new Connection(service, opened.headers['mcp-session-id'] as string)
  t.same((await session.post(request('logging/setLevel', { level: 'debug' }))).json.result, {})
  t.equal((await session.post(request('tools/list'))).json.result.tools.length, 8)
  t.equal((await session.post(request('tools/call', { name: 'echo', arguments: { text: 'a' } }))).reply.result.structuredContent.text, 'a')
  t.equal((await session.post(INITIALIZED)).status, 202)
  t.equal((await session.post(INITIALIZED)).status, 202)
  t.same((await session.post(initialize())).status, 200)
  for (const body of [PING, request('tools/list')]) {
    const early = await service.post(body)
    t.equal(early.status, 400, 'over HTTP there is no session to ask in')
  }
  const memory = new ProtocolServer(createKit().layer).createSession()
  t.same(await memory.handle(PING), { jsonrpc: '2.0', id: 1, result: {} })
  t.same(await memory.handle(request('tools/list')), refused('Server not initialized: send initialize first', -32600, 1))
})

t.test('RPC-14 a tool that a tool registers is told of once, to everybody who can hear', async (t) => {
  const layer = createLayer({ name: 'growing', version: '1' })
  layer.tool('grow', {}, () => { layer.tool('grown', {}, () => 'ok') })
  const service = await serve(t, { layer })
  const [a, b] = [await service.connect(), await service.connect()]
  const stream = await a.get()
  const d = await service.open({
    headers: { ...H, ...modernHeaders('subscriptions/listen') }, body: modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'D')
  })
  t.equal((await d.next()).method, 'notifications/subscriptions/acknowledged')
  const names = async (session: Connection) => (await session.post(request('tools/list'))).json.result.tools.map(({ name }: any) => name)
  t.same(await names(b), ['grow'])
  await a.post(request('tools/call', { name: 'grow', arguments: {} }))
  t.same(await names(b), ['grow', 'grown'], 'lists are made when they are asked for')
  const listChanged = { jsonrpc: '2.0', method: 'notifications/tools/list_changed' }
  t.same(await stream.next(), listChanged)
  t.same(await d.next(), { ...listChanged, params: { _meta: { 'io.modelcontextprotocol/subscriptionId': 'D' } } })
  const late = await b.get()
  t.same(await late.next(), listChanged, 'who had no stream hears of it when it opens one')
  layer.notifyChanged('prompts')
  t.equal((await late.next()).method, 'notifications/prompts/list_changed')
  t.equal((await stream.next()).method, 'notifications/prompts/list_changed', 'once')
  layer.tool('third', {}, () => 'ok')
  t.same(await d.next(), { ...listChanged, params: { _meta: { 'io.modelcontextprotocol/subscriptionId': 'D' } } })
  t.same(d.unread, [])
  for (const open of [stream, late, d]) open.destroy()

  const stateless = await serve(t, { layer: createKit().layer, stateless: true })
  const { capabilities } = (await stateless.post(initialize())).json.result
  t.same(capabilities, { tools: {}, resources: {}, prompts: {}, logging: {}, completions: {} })
})

t.test('RPC-15 a list ends, and every cursor moves on', async (t) => {
  for (const [count, pages] of [[0, 1], [1, 1], [100, 1], [101, 2], [250, 3]] as const) {
    const layer = createLayer({ name: 'many', version: '1' })
    for (let at = 0; at < count; at++) {
      layer.tool(`tool_${at}`, {}, () => null)
      layer.resource(`x://${at}`, { name: `r${at}` }, () => '')
      layer.resourceTemplate(`x://${at}/{id}`, { name: `t${at}` }, () => '')
      layer.prompt(`prompt_${at}`, {}, () => '')
    }
    const service = await serve(t, { layer })
    const session = await service.connect()
    for (const [method, key] of [['tools/list', 'tools'], ['resources/list', 'resources'], ['resources/templates/list', 'resourceTemplates'], ['prompts/list', 'prompts']] as const) {
      for (const ask of [
        (params: object) => session.post(request(method, params)),
        (params: object) => service.post(modern(method, params), modernHeaders(method))
      ]) {
        const cursors: string[] = []
        const items: unknown[] = []
        let result: any
        do {
          result = (await ask(cursors.length === 0 ? {} : { cursor: cursors.at(-1) })).json.result
          items.push(...result[key])
          if ('nextCursor' in result) cursors.push(result.nextCursor)
        } while ('nextCursor' in result && cursors.length < 10)
        t.equal(cursors.length, pages - 1, `${count} ${method}`)
        t.equal(new Set(cursors).size, cursors.length)
        t.ok(cursors.every((cursor) => typeof cursor === 'string' && cursor !== ''))
        t.equal(new Set(items.map((item) => JSON.stringify(item))).size, count)
        const first = await ask({ cursor: null })
        t.equal(first.json.result[key].length, Math.min(count, 100))
      }
    }
    if (count !== 250) continue
    const { nextCursor } = (await session.post(request('tools/list'))).json.result
    for (const [method, cursor] of [['tools/list', ''], ['tools/list', 'garbage'], ['tools/list', 5], ['tools/list', '!'], ['prompts/list', nextCursor], ['tools/list', `${nextCursor}=`]]) {
      const answer = await session.post(request(method, { cursor }))
      t.equal(answer.status, 200)
      t.same(answer.json, refused('Invalid cursor', -32602, 1), String(cursor))
    }
  }
})

t.test('RPC-16 an unknown name is an error of the protocol, a failed tool is a result', async (t) => {
  const { layer } = createKit()
  layer.tool('hidden', { roles: ['admin'] }, () => 'secret')
  layer.prompt('hidden', { roles: ['admin'] }, () => 'secret')
  const service = await serve(t, { layer })
  const session = await service.connect()
  for (const name of ['nope', 'hidden']) {
    const call = await session.post(request('tools/call', { name, arguments: {} }), JSON_ANSWER)
    t.equal(call.status, 200)
    t.same(call.json.error, { code: -32602, message: `Unknown tool: ${name}`, data: { name } })
    t.match((await session.post(request('prompts/get', { name }))).reply.error, { code: -32602, message: `Unknown prompt: ${name}` })
    const era = await service.post(modern('tools/call', { name, arguments: {} }), { ...modernHeaders('tools/call', name), ...JSON_ANSWER })
    t.equal(era.status, 200)
    t.same(era.json.error, { code: -32602, message: `Unknown tool: ${name}`, data: { name } })
  }
  const failed = await session.post(request('tools/call', { name: 'fail', arguments: {} }))
  t.match(failed.reply.result, { isError: true, content: [{ type: 'text', text: 'Error executing tool fail' }], _meta: { 'cloudg/error_code': 'handler_error' } })
  t.notMatch(failed.text, 'boom')
})

t.test('RPC-18 the body tells the era, and the headers have to agree', async (t) => {
  const service = await serve(t, kit())
  const discover = modern('server/discover', {}, 3)
  const good = await service.post(discover, { ...modernHeaders('server/discover'), 'Mcp-Session-Id': 'stray' })
  t.equal(good.status, 200)
  t.same(good.json.result.supportedVersions, [...HANDSHAKE, '2026-07-28'])
  t.equal(good.headers['mcp-session-id'], undefined)

  const future = { ...ENV, 'io.modelcontextprotocol/protocolVersion': '2099-01-01' }
  const cases: [unknown, Record<string, string>, number, object][] = [
    [discover, {}, 400, { code: -32020 }],
    [discover, { 'MCP-Protocol-Version': '2025-11-25', 'Mcp-Method': 'server/discover' }, 400, { code: -32020 }],
    [discover, { 'MCP-Protocol-Version': '2026-07-28' }, 400, { code: -32020 }],
    [request('server/discover', {}, 3), modernHeaders('server/discover'), 400, { code: -32602, message: /protocolVersion, .*clientCapabilities$/ }],
    [request('server/discover', { _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' } }, 3), modernHeaders('server/discover'), 400, { code: -32602, message: /clientCapabilities$/ }],
    [modern('server/discover', { _meta: future }, 3), { ...modernHeaders('server/discover'), 'MCP-Protocol-Version': '2099-01-01' }, 400,
      { code: -32022, message: 'Unsupported protocol version: 2099-01-01', data: { supported: ['2026-07-28'], requested: '2099-01-01' } }],
    [modern('server/discover', { _meta: future }, 3), modernHeaders('server/discover'), 400, { code: -32020 }],
    [modern('ping', {}, 3), modernHeaders('ping'), 404, { code: -32601, message: 'Method not found', data: 'ping' }],
    [modern('initialize', {}, 3), modernHeaders('initialize'), 404, { code: -32601 }],
    [modern('logging/setLevel', { level: 'info' }, 3), modernHeaders('logging/setLevel'), 404, { code: -32601 }]
  ]
  for (const [body, headers, status, error] of cases) {
    const answer = await service.post(body, headers)
    t.equal(answer.status, status, answer.text)
    t.match(answer.headers['content-type'], /^application\/json\b/)
    t.match(answer.json, { jsonrpc: '2.0', id: 3, error })
    t.equal(answer.headers['mcp-session-id'], undefined)
  }
  const session = await service.connect()
  t.equal((await session.post(request('tools/list'), { 'Mcp-Method': 'tools/list' })).status, 200, 'a legacy client may send the new headers')
  t.equal((await session.post(request('tools/list'), { 'Mcp-Method': 'prompts/list', 'Mcp-Name': 'x' })).status, 200)
  t.equal((await session.post(request('server/discover'))).json.error.code, -32601)
  t.equal((await service.post(initialize(), { 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': 'initialize' })).status, 200)
})

t.test('RPC-20 completion offers at most a hundred, and nothing for what it does not know', async (t) => {
  const layer = createLayer({ name: 'completing', version: '1' })
  const seen: unknown[] = []
  layer.prompt('pick', {
    arguments: {
      number: { complete: (prefix: string) => Array.from({ length: 250 }, (_, at) => String(at)).filter((one) => one.startsWith(prefix)) },
      city: { complete: (_prefix: string, _ctx: unknown, known: Record<string, string>) => { seen.push(known); return [`${known['country']} city`] } },
      broken: { complete: () => { throw new Error('boom') } },
      silent: {}
    }
  }, () => 'ok')
  const service = await serve(t, { layer })
  const session = await service.connect()
  const complete = async (name: string, value: string, more = {}, ref: object = { type: 'ref/prompt', name: 'pick' }) =>
    (await session.post(request('completion/complete', { ref, argument: { name, value }, ...more }))).json
  const nothing = { values: [], total: 0, hasMore: false }
  const { completion } = (await complete('number', '')).result
  t.equal(completion.values.length, 100)
  t.same([completion.total, completion.hasMore], [250, true])
  t.same((await complete('number', '24')).result.completion, { values: ['24', '240', '241', '242', '243', '244', '245', '246', '247', '248', '249'], total: 11, hasMore: false })
  t.same((await complete('city', '', { context: { arguments: { country: 'NZ' } } })).result.completion.values, ['NZ city'])
  t.same(seen, [{ country: 'NZ' }])
  for (const argument of ['broken', 'silent', 'unknown']) t.same((await complete(argument, '')).result.completion, nothing, argument)
  // Hidden and missing look the same: a reference of a known kind to nothing is no error.
  t.same((await complete('number', '', {}, { type: 'ref/prompt', name: 'nope' })).result.completion, nothing)
  t.same((await complete('number', '', {}, { type: 'ref/x', name: 'pick' })).error, { code: -32602, message: 'Invalid completion ref' })
  t.same((await complete(5 as any, '')).error, { code: -32602, message: 'Invalid completion argument' })

  const without = await serve(t, { layer: Object.assign(createLayer({ name: 'plain', version: '1' }), { capabilities: { completions: false } }) })
  const plain = await without.connect()
  const refusal = await plain.post(request('completion/complete', { ref: { type: 'ref/prompt', name: 'x' }, argument: { name: 'a', value: '' } }))
  t.same(refusal.json.error, { code: -32601, message: 'Method not found', data: 'completion/complete' })
  t.equal((await without.post(initialize())).json.result.capabilities.completions, undefined)
  await turn()
  t.same(without.logs, [])
})
