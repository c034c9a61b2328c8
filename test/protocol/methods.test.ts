// Lists and their pages, tools, resources, prompts and completions: what is answered, and what each refusal looks like.

import t from 'tap'
import { z } from 'zod'
import { AccessDeniedError, createLayer, InvalidArgumentsError, NotFoundError, principal, RateLimitedError, ToolError } from '../../lib/layer/index.js'
import type { AppLayer, Context, Layer, LayerOptions } from '../../lib/layer/index.js'
import type { ProtocolOptions } from '../../lib/protocol/server.js'
import { createKit, modern, request, TOOLS } from '../kit.js'
import type { Connection } from './connection.js'
import { connect, connectAt, stayAlive } from './connection.js'

const HANDSHAKE = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']

type Ask = (method: string, params?: Record<string, any>) => Promise<any>

function newLayer (options: Partial<LayerOptions> = {}): AppLayer {
  return createLayer({ name: 'x', version: '1', ...options })
}

async function at2025 (layer: Layer, options?: ProtocolOptions): Promise<Ask> {
  const { handle } = await connectAt('2025-11-25', layer, options)
  return (method, params) => handle(request(method, params))
}

/** Both eras: a handshake session of 2025-11-25, and a 2026 connection. */
async function eras (layer: Layer, options?: ProtocolOptions): Promise<[era: string, ask: Ask][]> {
  const { handle } = connect(layer, options)
  return [['handshake', await at2025(layer, options)], ['2026', (method, params) => handle(modern(method, params))]]
}

/** A result without what differs from run to run. */
function steady (result: any): any {
  const { _meta: { 'cloudg/duration_ms': _, ..._meta }, ...rest } = result
  return { ...rest, ...(Object.keys(_meta).length > 0 && { _meta }) }
}

function errorReply (code: number, message: string, data?: unknown): object {
  return { jsonrpc: '2.0', id: 1, error: { code, message, ...(data !== undefined && { data }) } }
}

function namesOf (reply: any): string[] {
  return reply.result.tools.map(({ name }: any) => name)
}

// ---- pages

async function follow (handle: Connection['handle'], method: string, key: string): Promise<{ pages: any[][], cursors: string[] }> {
  const pages: any[][] = []
  const cursors: string[] = []
  for (let cursor: string | undefined; pages.length < 20;) {
    const { result } = await handle(request(method, cursor === undefined ? {} : { cursor }))
    pages.push(result[key])
    if (!('nextCursor' in result)) break
    cursor = result.nextCursor as string
    cursors.push(cursor)
  }
  return { pages, cursors }
}

t.test('PG-01 pages together are the whole list, in order', async (t) => {
  const { layer } = createKit()
  const { handle } = await connectAt('2025-11-25', layer, { pageSize: 3 })
  const { pages } = await follow(handle, 'tools/list', 'tools')
  t.same(pages.map((page) => page.length), [3, 3, 2])
  const ask = await at2025(layer)
  t.strictSame(pages.flat(), (await ask('tools/list')).result.tools)
  t.same(pages.flat().map(({ name }) => name), TOOLS)
})

t.test('PG-02 RPC-15 a cursor that is none is refused, in every list', async (t) => {
  const { handle } = await connectAt('2025-11-25', createKit().layer, { pageSize: 3 })
  const { nextCursor } = (await handle(request('tools/list'))).result
  const bad = [
    'not-a-cursor', '', 5, {}, [], true, 'AAAA', 'bnVsbA', 'W10', 'eyJrIjoidG9vbHMiLCJvIjotMX0', 'eyJrIjoidG9vbHMiLCJvIjoxLjV9',
    'eyJrIjoidG9vbHMifQ', `${nextCursor}é`, 'A'.repeat(5000)
  ]
  for (const cursor of bad) {
    for (const method of ['tools/list', 'resources/list', 'resources/templates/list', 'prompts/list']) {
      t.strictSame(await handle(request(method, { cursor })), errorReply(-32602, 'Invalid cursor'), `${method} ${JSON.stringify(cursor).slice(0, 40)}`)
    }
  }
  t.strictSame(await handle(request('prompts/list', { cursor: nextCursor })), errorReply(-32602, 'Invalid cursor'), 'of another list')
  t.strictSame(await connect(createKit().layer).handle(modern('tools/list', { cursor: 'x' })), errorReply(-32602, 'Invalid cursor'))
  t.equal((await handle(request('tools/list', { cursor: null }))).result.tools.length, 3, 'null is the start')
})

t.test('PG-05 a page size of 0 is one page', async (t) => {
  const ask = await at2025(createKit().layer, { pageSize: 0 })
  const { result } = await ask('tools/list')
  t.equal(result.tools.length, 8)
  t.notOk('nextCursor' in result)
  const paged = await at2025(createKit().layer, { pageSize: 3 })
  const { nextCursor } = (await paged('tools/list')).result
  t.same(namesOf(await ask('tools/list', { cursor: nextCursor })), TOOLS.slice(3), 'from where a cursor says')
})

t.test('RPC-15 the last page has no cursor, each cursor advances, and past the end there is nothing', async (t) => {
  for (const count of [0, 1, 99, 100, 101, 200, 250]) {
    const layer = newLayer()
    for (let n = 0; n < count; n++) layer.prompt(`p${n}`, {}, () => '')
    const { handle } = await connectAt('2025-11-25', layer)
    const { pages, cursors } = await follow(handle, 'prompts/list', 'prompts')
    const sizes = Array.from({ length: Math.max(1, Math.ceil(count / 100)) }, (_, at) => Math.min(100, count - at * 100))
    t.same(pages.map((page) => page.length), sizes, String(count))
    t.equal(new Set(cursors).size, sizes.length - 1)
    t.ok(cursors.every((cursor) => typeof cursor === 'string' && cursor !== ''))
    t.same(pages.flat().map(({ name }) => name), Array.from({ length: count }, (_, n) => `p${n}`))
  }
  const layer = newLayer()
  const tools = Array.from({ length: 101 }, (_, n) => layer.tool(`t${n}`, {}, () => ''))
  const ask = await at2025(layer)
  const { nextCursor } = (await ask('tools/list')).result
  for (const one of tools.slice(50)) one.remove()
  t.strictSame((await ask('tools/list', { cursor: nextCursor })).result, { tools: [] }, 'the list has become shorter meanwhile')
})

t.test('lists show what there is now, in the order of registration', async (t) => {
  const { layer } = createKit()
  const ask = await at2025(layer)
  t.same(namesOf(await ask('tools/list')), TOOLS)
  const late = layer.tool('late', { description: 'one' }, () => 1)
  t.same(namesOf(await ask('tools/list')), [...TOOLS, 'late'])
  late.update({ description: 'two' })
  t.equal((await ask('tools/list')).result.tools.at(-1).description, 'two')
  late.remove()
  t.same(namesOf(await ask('tools/list')), TOOLS)
})

t.test('a page that was being made while the list changed is not kept', async (t) => {
  const { layer } = createKit()
  let release = (): void => {}
  let slow = true
  const asking: Layer = {
    info: layer.info,
    list: async (kind, who) => {
      const list = layer.list(kind, who)
      if (slow) await new Promise<void>((resolve) => { release = resolve })
      return list
    },
    callTool: (name, args, port) => layer.callTool(name, args, port),
    readResource: (uri, port) => layer.readResource(uri, port),
    getPrompt: (name, args, port) => layer.getPrompt(name, args, port),
    complete: (ref, argument, known, port) => layer.complete(ref, argument, known, port),
    onChange: (listener) => layer.onChange(listener),
    viewOf: (who) => layer.viewOf(who)
  }
  const ask = await at2025(asking)
  const before = ask('tools/list')
  await new Promise(setImmediate)
  layer.tool('late', {}, () => 1)
  slow = false
  release()
  await before
  t.same(namesOf(await ask('tools/list')), [...TOOLS, 'late'])
})

t.test('a caller sees, calls and completes what it may; hidden and missing look the same', async (t) => {
  const layer = newLayer({ scopes: 'hide' })
  const analysts = { roles: ['analyst', 'admin'] }
  layer.tool('open', {}, () => 'open')
  layer.tool('by-role', analysts, () => 'role')
  layer.tool('by-scope', { scopes: ['read', 'write'] }, () => 'scope')
  layer.tool('by-rule', { allow: (who) => who.id === 'ann' }, () => 'rule')
  layer.resource('x://secret', analysts, () => 'secret')
  layer.resourceTemplate('x://secret/{id}', { ...analysts, complete: { id: () => ['1'] } }, ({ id }) => id)
  layer.prompt('secret', { ...analysts, arguments: { a: { complete: () => ['1'], required: false } } }, () => 'secret')
  const { handle } = connect(layer)
  const as = (spec: Parameters<typeof principal>[0]): Ask => (method, params) => handle(modern(method, params), { principal: principal(spec) })
  const guest = as({ id: 'guest' })
  const ann = as({ id: 'ann', roles: 'analyst', scopes: ['read', 'write', 'more'] })

  t.same(namesOf(await guest('tools/list')), ['open'])
  t.same(namesOf(await ann('tools/list')), ['open', 'by-role', 'by-scope', 'by-rule'])
  t.same(namesOf(await as({ id: 'x', scopes: ['read'] })('tools/list')), ['open'], 'all scopes are needed')
  t.same(namesOf(await as({ id: 'x', roles: ['admin'] })('tools/list')), ['open', 'by-role'], 'one role is enough')
  t.same(namesOf(await guest('tools/list')), ['open'], 'cached pages are not mixed up')
  for (const name of ['by-role', 'by-scope', 'by-rule', 'missing']) {
    t.strictSame(await guest('tools/call', { name }), errorReply(-32602, `Unknown tool: ${name}`, { name }))
  }
  for (const uri of ['x://secret', 'x://secret/7', 'x://missing']) {
    t.strictSame(await guest('resources/read', { uri }), errorReply(-32602, `Unknown resource: ${uri}`, { uri }))
  }
  for (const name of ['secret', 'missing']) t.strictSame(await guest('prompts/get', { name }), errorReply(-32602, `Unknown prompt: ${name}`))
  for (const ref of [{ type: 'ref/prompt', name: 'secret' }, { type: 'ref/resource', uri: 'x://secret/{id}' }]) {
    const argument = { name: ref.type === 'ref/prompt' ? 'a' : 'id', value: '' }
    t.match(await guest('completion/complete', { ref, argument }), { result: { completion: { values: [], total: 0, hasMore: false } } })
    t.match(await ann('completion/complete', { ref, argument }), { result: { completion: { values: ['1'] } } })
  }
  for (const name of ['by-role', 'by-scope', 'by-rule']) t.match(await ann('tools/call', { name }), { result: { isError: false } })
  t.match(await ann('resources/read', { uri: 'x://secret/7' }), { result: { contents: [{ text: '7' }] } })
  t.match(await ann('prompts/get', { name: 'secret' }), { result: { messages: [{ content: { text: 'secret' } }] } })
  for (const [method, key] of [['resources/list', 'resources'], ['resources/templates/list', 'resourceTemplates'], ['prompts/list', 'prompts']] as const) {
    t.equal((await guest(method)).result[key].length, 0, method)
    t.equal((await ann(method)).result[key].length, 1, method)
  }
})

t.test('a caller whose token lacks a scope sees the tool, and is told what it takes', async (t) => {
  const layer = newLayer()
  layer.tool('by-scope', { scopes: ['read', 'write'] }, () => 'scope')
  layer.resource('x://y', { scopes: ['read'] }, () => 'text')
  const { handle } = connect(layer)
  const as = (scopes: string[]) => async (method: string, params?: object): Promise<any> => handle(modern(method, { ...params }), { principal: principal({ id: 'p', scopes }) })
  const half = as(['read'])
  t.same(namesOf(await half('tools/list')), ['by-scope'])
  t.match(await half('tools/call', { name: 'by-scope' }), {
    result: { isError: true, content: [{ text: 'Required scopes: read write' }], _meta: { 'cloudg/error_code': -31001, 'cloudg/error_data': { scopes: ['read', 'write'] } } }
  })
  t.match(await as(['read', 'write'])('tools/call', { name: 'by-scope' }), { result: { isError: false } })
  t.match(await half('resources/read', { uri: 'x://y' }), { result: { contents: [{ text: 'text' }] } })
  t.strictSame(await as([])('resources/read', { uri: 'x://y' }), errorReply(-31001, 'Required scopes: read', { scopes: ['read'] }))
})

// ---- tools

t.test('TL-01 TL-11 a tool answers with structured content and its text', async (t) => {
  const ask = await at2025(createKit().layer)
  const reply = await ask('tools/call', { name: 'echo', arguments: { text: 'ab', times: 2 } })
  const duration = reply.result._meta['cloudg/duration_ms']
  t.ok(Number.isInteger(duration) && duration >= 0)
  t.strictSame(reply, {
    jsonrpc: '2.0',
    id: 1,
    result: {
      content: [{ type: 'text', text: '{\n  "text": "abab"\n}' }],
      isError: false,
      _meta: { 'cloudg/duration_ms': duration },
      structuredContent: { text: 'abab' }
    }
  })
  t.match(await ask('tools/call', { name: 'echo', arguments: { text: 'a', times: '3' } }), { result: { structuredContent: { text: 'aaa' } } }, 'a number as text')
  t.match(await ask('tools/call', { name: 'echo', arguments: { text: '5' } }), { result: { structuredContent: { text: '5' } } }, 'a text stays one')
})

t.test('TL-02 arguments that do not fit are a result that says so, and repeat no value', async (t) => {
  for (const [era, ask] of await eras(createKit().layer)) {
    const { result } = await ask('tools/call', { name: 'echo', arguments: { times: 97, hunter2: 'secret' } })
    t.match(result, {
      content: [{ type: 'text', text: /^Invalid arguments: .*text: .*times: .*hunter2: Extra inputs are not permitted/ }],
      isError: true,
      _meta: { 'cloudg/error_code': -32602, 'cloudg/error_data': [{ loc: 'text', type: String }, { loc: 'times' }, { loc: 'hunter2', type: 'extra_forbidden' }] }
    }, era)
    t.notOk('structuredContent' in result)
    t.notOk('cloudg/duration_ms' in result._meta)
    t.notMatch(JSON.stringify(result), /secret|97/)
    for (const args of [{ text: 5 }, { text: null }, { text: 'a', times: 0 }, { text: 'a', times: 1.5 }, { text: 'a', times: 'x' }, { text: 'a', times: null }]) {
      t.match(await ask('tools/call', { name: 'echo', arguments: args }), { result: { isError: true, _meta: { 'cloudg/error_code': -32602 } } }, JSON.stringify(args))
    }
    t.match(await ask('tools/call', { name: 'stats', arguments: { a: 1 } }),
      { result: { isError: true, content: [{ text: 'Invalid arguments: a: Extra inputs are not permitted' }] } })
  }
})

t.test('TL-03 RPC-16 a crash is a result without a word of what happened', async (t) => {
  for (const [era, ask] of await eras(createKit().layer)) {
    const { result } = await ask('tools/call', { name: 'fail' })
    t.match(result, { content: [{ type: 'text', text: 'Error executing tool fail' }], isError: true, _meta: { 'cloudg/error_code': 'handler_error' } }, era)
    t.equal(result.content.length, 1)
    t.notMatch(JSON.stringify(result), /boom/)
  }
})

t.test('TL-04 RPC-16 an unknown tool is an error of the protocol, not of a tool', async (t) => {
  for (const [era, ask] of await eras(createKit().layer)) {
    for (const name of ['nope', 'Echo', '__proto__', 'toString', 'x'.repeat(1000)]) {
      t.strictSame(await ask('tools/call', { name, arguments: {} }), errorReply(-32602, `Unknown tool: ${name}`, { name }), era)
    }
  }
})

t.test('TL-05 a call without a usable name or with odd arguments is refused', async (t) => {
  for (const [era, ask] of await eras(createKit().layer)) {
    for (const name of [undefined, null, '', 5, {}, ['echo'], true]) {
      for (const method of ['tools/call', 'prompts/get']) {
        t.strictSame(await ask(method, { name }), errorReply(-32602, 'Missing or invalid parameter: name'), `${method} ${JSON.stringify(name)} ${era}`)
      }
    }
    for (const args of [[], 'x', 5, true, [{ text: 'a' }]]) {
      t.strictSame(await ask('tools/call', { name: 'echo', arguments: args }), errorReply(-32602, 'arguments must be an object'))
      t.strictSame(await ask('prompts/get', { name: 'greet', arguments: args }), errorReply(-32602, 'arguments must be an object'))
    }
    for (const args of [undefined, null, {}]) t.match(await ask('tools/call', { name: 'stats', arguments: args }), { result: { isError: false } })
  }
})

t.test('TL-07 links of the context follow the content', async (t) => {
  const ask = await at2025(createKit().layer)
  const expected = {
    content: [{ type: 'text', text: '{\n  "ok": true\n}' }, { type: 'resource_link', uri: 'test://items/alpha', name: 'alpha' }],
    isError: false,
    structuredContent: { ok: true }
  }
  t.strictSame(steady((await ask('tools/call', { name: 'linked' })).result), expected)
  t.strictSame(steady((await ask('tools/call', { name: 'linked' })).result), expected, 'each call has its own')
})

t.test('TL-08 natural return values', async (t) => {
  const layer = newLayer()
  const png = Buffer.from('89504e470d0a1a0a', 'hex')
  const block = { type: 'audio', data: 'AA==', mimeType: 'audio/wav' } as const
  const shared = { a: 1 }
  const values: [name: string, value: unknown, content: object[], structured?: unknown][] = [
    ['number', 7, [{ type: 'text', text: '{\n  "result": 7\n}' }], { result: 7 }],
    ['text', 'plain\nü', [{ type: 'text', text: 'plain\nü' }]],
    ['empty-text', '', [{ type: 'text', text: '' }]],
    ['flag', false, [{ type: 'text', text: '{\n  "result": false\n}' }], { result: false }],
    ['null', null, [{ type: 'text', text: '{\n  "result": null\n}' }], { result: null }],
    ['nothing', undefined, []],
    ['list', [1, 'a'], [{ type: 'text', text: '{\n  "result": [\n    1,\n    "a"\n  ]\n}' }], { result: [1, 'a'] }],
    ['empty-list', [], [{ type: 'text', text: '{\n  "result": []\n}' }], { result: [] }],
    ['object', { ü: '\u2028' }, [{ type: 'text', text: '{\n  "ü": "\u2028"\n}' }], { ü: '\u2028' }],
    ['twice-the-same', [shared, shared], [{ type: 'text', text: JSON.stringify({ result: [shared, shared] }, null, 2) }], { result: [shared, shared] }],
    ['date', new Date(0), [{ type: 'text', text: '1970-01-01T00:00:00.000Z' }]],
    ['with-date', { at: new Date(0) }, [{ type: 'text', text: '{\n  "at": "1970-01-01T00:00:00.000Z"\n}' }], { at: '1970-01-01T00:00:00.000Z' }],
    ['own-json', { toJSON: () => ({ n: 1 }) }, [{ type: 'text', text: '{\n  "n": 1\n}' }], { n: 1 }],
    ['block', block, [block]],
    ['blocks', [block, { type: 'text', text: 'x' }], [block, { type: 'text', text: 'x' }]],
    ['image', png, [{ type: 'image', data: png.toString('base64'), mimeType: 'image/png' }]],
    ['bytes', new Uint8Array([1, 2]), [{ type: 'resource', resource: { uri: 'data:application/octet-stream', mimeType: 'application/octet-stream', blob: 'AQI=' } }]],
    ['whole', { content: [block], structuredContent: { n: 1 }, _meta: { mine: 1 } }, [block], { n: 1 }]
  ]
  for (const [name, value] of values) {
    layer.tool(name, {}, () => value)
    layer.tool(`${name}-later`, {}, async () => value)
  }
  const ask = await at2025(layer)
  for (const [name, , content, structured] of values) {
    for (const tool of [name, `${name}-later`]) {
      const { result } = await ask('tools/call', { name: tool })
      t.strictSame({ content: result.content, structured: result.structuredContent, isError: result.isError }, { content, structured, isError: false }, tool)
    }
  }
  t.equal((await ask('tools/call', { name: 'whole' })).result._meta.mine, 1)
})

t.test('a value that has no JSON is a failed call, not a broken reply', async (t) => {
  const layer = newLayer()
  const loop: Record<string, unknown> = {}
  loop['self'] = loop
  const values = { bigint: { n: 1n }, loop, function: () => 1, symbol: Symbol('x'), throwing: { get x () { throw new Error('no') } } }
  for (const [name, value] of Object.entries(values)) layer.tool(name, {}, () => value)
  for (const [era, ask] of await eras(layer)) {
    for (const name in values) {
      t.match(await ask('tools/call', { name }), { result: { isError: true, content: [{ text: `Error executing tool ${name}` }] } }, `${name} ${era}`)
    }
  }
})

t.test('TL-09 a tool that takes too long is a result that says so, and its signal is aborted', async (t) => {
  stayAlive(t)
  const layer = newLayer({ timeout: 1, prefix: 'cg_' })
  const signals: AbortSignal[] = []
  const forever = (_args: unknown, ctx: Context): Promise<never> => {
    signals.push(ctx.signal)
    return new Promise(() => {})
  }
  const later = (): Promise<unknown> => new Promise((resolve) => { setTimeout(resolve, 5, 'done') })
  layer.tool('slow', {}, forever)
  layer.tool('own', { timeout: 2 }, forever)
  layer.tool('unlimited', { timeout: 0 }, later)
  layer.tool('infinite', { timeout: Infinity }, later)
  layer.tool('month', { timeout: 30 * 86_400_000 }, later)
  for (const [era, ask] of await eras(layer)) {
    for (const name of ['cg_slow', 'cg_own']) {
      const { result } = await ask('tools/call', { name })
      t.match(result, { content: [{ type: 'text', text: `Tool ${name} timed out` }], isError: true, _meta: { 'cloudg/error_code': 'timeout' } }, era)
      t.ok(signals.at(-1)?.aborted)
    }
    for (const name of ['cg_unlimited', 'cg_infinite', 'cg_month']) t.match(await ask('tools/call', { name }), { result: { content: [{ text: 'done' }], isError: false } }, name)
  }
})

t.test('TL-12 a denial, a rate limit and other refusals carry their code and their data', async (t) => {
  const layer = newLayer()
  const refusals: [string, Error, number | string, unknown][] = [
    ['denied', new AccessDeniedError("Access to tool 'reset' denied", { policy: 'doc-demo', reason: 'category' }), -31001, { policy: 'doc-demo', reason: 'category' }],
    ['limited', new RateLimitedError('Too many', { retry_after: 60, limit: '1/minute', scope: 'tool' }), -31029, { retry_after: 60, limit: '1/minute', scope: 'tool' }],
    ['invalid', new InvalidArgumentsError('No such month'), -32602, undefined],
    ['not-found', new NotFoundError('No order 7', { order: 7 }), -32602, { order: 7 }],
    ['told', new ToolError('The disk is full', { free: 0 }), 'tool_error', { free: 0 }]
  ]
  for (const [name, error] of refusals) {
    layer.tool(name, {}, () => { throw error })
    layer.resource(`x://${name}`, {}, () => { throw error })
    layer.prompt(name, {}, async () => { throw error })
    layer.resourceTemplate(`x://complete/${name}/{v}`, { complete: { v: async () => { throw error } } }, () => '')
  }
  for (const [era, ask] of await eras(layer)) {
    for (const [name, { message }, code, data] of refusals) {
      const { result } = await ask('tools/call', { name })
      const { 'io.modelcontextprotocol/serverInfo': _, ..._meta } = result._meta
      t.strictSame({ ...result, _meta }, {
        content: [{ type: 'text', text: message }],
        isError: true,
        ...(era === '2026' && { resultType: 'complete' }),
        _meta: { 'cloudg/error_code': code, ...(data !== undefined && { 'cloudg/error_data': data }) }
      }, name)
      const [read, got] = [await ask('resources/read', { uri: `x://${name}` }), await ask('prompts/get', { name })]
      if (name === 'not-found') {
        t.strictSame(read, errorReply(era === '2026' ? -32602 : -32002, message, { uri: `x://${name}` }))
        t.strictSame(got, errorReply(-32602, message))
      } else {
        const number = typeof code === 'number' ? code : -32603
        t.strictSame(read, errorReply(number, message, data))
        t.strictSame(got, errorReply(number, message, data))
      }
      const ref = { type: 'ref/resource', uri: `x://complete/${name}/{v}` }
      t.match(await ask('completion/complete', { ref, argument: { name: 'v', value: '' } }), { result: { completion: { values: [], total: 0, hasMore: false } } },
        'a completer that fails completes nothing')
    }
  }
})

t.test('TL-14 a prefix is part of the name for tools and prompts, and of nothing else', async (t) => {
  const { layer } = createKit({ prefix: 'cg_' })
  for (const [era, ask] of await eras(layer)) {
    t.same(namesOf(await ask('tools/list')), TOOLS.map((name) => `cg_${name}`), era)
    t.strictSame(await ask('tools/call', { name: 'echo', arguments: { text: 'a' } }), errorReply(-32602, 'Unknown tool: echo', { name: 'echo' }))
    t.match(await ask('tools/call', { name: 'cg_echo', arguments: { text: 'a' } }), { result: { structuredContent: { text: 'a' } } })
    t.match(await ask('tools/call', { name: 'cg_fail' }), { result: { content: [{ text: 'Error executing tool cg_fail' }] } })
    t.match(await ask('prompts/get', { name: 'cg_greet', arguments: { name: 'Ann' } }), { result: { messages: [{ content: { text: 'Hi Ann!' } }] } })
    t.strictSame(await ask('prompts/get', { name: 'greet', arguments: { name: 'Ann' } }), errorReply(-32602, 'Unknown prompt: greet'))
    t.match(await ask('completion/complete', { ref: { type: 'ref/prompt', name: 'cg_greet' }, argument: { name: 'name', value: 'a' } }), { result: { completion: { values: ['alpha'] } } })
    t.match(await ask('resources/read', { uri: 'test://info' }), { result: { contents: [{ uri: 'test://info' }] } })
  }
  for (const prefix of ['a/b', 'ü', 'x'.repeat(65), 'a\n']) t.throws(() => newLayer({ prefix }), { code: 'CLOUDG_MCP_ERR_INVALID_PREFIX' })
})

t.test('TL-16 TL-17 tools as they are listed: schemas closed, hints as given, and an output schema always, since nothing alters a result after its check', async (t) => {
  const { tools } = (await (await at2025(createKit().layer))('tools/list')).result
  t.strictSame(tools[0], {
    name: 'echo',
    description: 'Says it again',
    inputSchema: {
      type: 'object',
      properties: { text: { type: 'string' }, times: { type: 'integer', minimum: 1, maximum: 5, default: 1 } },
      required: ['text'],
      additionalProperties: false
    },
    annotations: { readOnlyHint: true, idempotentHint: true },
    title: 'Echo'
  })
  t.match(tools[1].outputSchema, { type: 'object', properties: { count: { type: 'integer' }, names: { type: 'array', items: { type: 'string' } } }, required: ['count', 'names'] })
  t.strictSame(tools[4], { name: 'fail', description: 'Crashes', inputSchema: { type: 'object', properties: {}, additionalProperties: false } })
  t.match(tools[5].annotations, { readOnlyHint: false, destructiveHint: true })
})

t.test('a long text is cut, its structured content is not', async (t) => {
  const layer = newLayer({ maxOutputChars: 10 })
  layer.tool('text', {}, () => 'x'.repeat(11))
  layer.tool('exact', {}, () => 'x'.repeat(10))
  layer.tool('object', {}, () => ({ long: 'y'.repeat(50) }))
  layer.tool('own', {}, () => ({ content: [{ type: 'text', text: 'z'.repeat(50) }] }))
  layer.tool('emoji', {}, () => 'x'.repeat(9) + '\ud83d\ude00')
  const ask = await at2025(layer)
  const cut = '\n... [truncated by cloudg mcp layer]'
  const text = async (name: string): Promise<string> => (await ask('tools/call', { name })).result.content[0].text
  t.equal(await text('text'), 'x'.repeat(10) + cut)
  t.equal(await text('exact'), 'x'.repeat(10))
  t.equal(await text('object'), '{\n  "long"' + cut)
  t.equal((await ask('tools/call', { name: 'object' })).result.structuredContent.long.length, 50)
  t.equal(await text('own'), 'z'.repeat(50), 'a whole result is the author\'s')
  t.equal(await text('emoji'), 'x'.repeat(9) + cut, 'no half of a character is left')
})

t.test('SCH-09 names that clients refuse are refused or warned of, on the name that clients see', async (t) => {
  const warnings: string[] = []
  const listen = (warning: Error & { code?: string }): void => { if (warning.code === 'CLOUDG_MCP_WARN_TOOL_NAME') warnings.push(warning.message) }
  process.on('warning', listen)
  t.teardown(() => process.off('warning', listen))
  const layer = newLayer()
  for (const name of ['a/b', 'a b', 'é', '', 'a\n', 'x'.repeat(129), 5 as never]) {
    t.throws(() => layer.tool(name, {}, () => 1), { code: 'CLOUDG_MCP_ERR_INVALID_NAME' }, JSON.stringify(name))
    t.throws(() => layer.prompt(name, {}, () => ''), { code: 'CLOUDG_MCP_ERR_INVALID_NAME' })
  }
  for (const name of ['a', 'A-b_9', 'x'.repeat(64)]) layer.tool(name, {}, () => 1)
  await new Promise(setImmediate)
  t.same(warnings, [])
  layer.tool('a.b', {}, () => 1)
  layer.tool('x'.repeat(65), {}, () => 1)
  const prefixed = newLayer({ prefix: 'p'.repeat(10) })
  prefixed.tool('y'.repeat(54), {}, () => 1)
  prefixed.tool('y'.repeat(55), {}, () => 1)
  t.throws(() => prefixed.tool('y'.repeat(119), {}, () => 1), { code: 'CLOUDG_MCP_ERR_INVALID_NAME' })
  await new Promise(setImmediate)
  t.same(warnings.map((warning) => /'(.*)'/.exec(warning)?.[1]), ['a.b', 'x'.repeat(65), 'p'.repeat(10) + 'y'.repeat(55)])

  t.throws(() => layer.tool('a', {}, () => 1), { code: 'CLOUDG_MCP_ERR_DUPLICATE', message: "Duplicate tool 'a'" })
  layer.prompt('a', {}, () => '')
  t.throws(() => layer.prompt('a', {}, () => ''), { message: "Duplicate prompt 'a'" })
  layer.resource('x://a', {}, () => '')
  t.throws(() => layer.resource('x://a', {}, () => ''), { message: "Duplicate resource 'x://a'" })
  layer.resourceTemplate('x://{a}', {}, () => '')
  t.throws(() => layer.resourceTemplate('x://{a}', {}, () => ''), { message: "Duplicate resource template 'x://{a}'" })
})

t.test('SCH-11 a tool with an output schema sends what fits it, with its text, or an error without it', async (t) => {
  const logged: any[] = []
  const log = { debug () {}, info () {}, warn () {}, error: (fields: any) => { logged.push(fields.err.message) } }
  const layer = newLayer()
  const output = { n: z.number() }
  const wrong = 'x' as never
  layer.tool('throws', { output }, () => { throw new Error('boom') })
  layer.tool('text-only', { output }, () => ({ content: [{ type: 'text', text: 'no' }] }))
  layer.tool('bare-text', { output }, () => wrong)
  layer.tool('nothing', { output }, () => undefined as never)
  layer.tool('mismatch', { output }, () => ({ n: wrong }))
  layer.tool('whole-mismatch', { output }, () => ({ content: [], structuredContent: { n: 'secret' } }))
  layer.tool('is-error', { output }, () => ({ content: [{ type: 'text', text: 'no' }], isError: true, structuredContent: { other: 1 } }))
  layer.tool('fits', { output }, () => ({ n: 1 }))
  layer.tool('whole-fits', { output }, () => ({ content: [], structuredContent: { n: 1 } }))
  for (const [era, ask] of await eras(layer, { log })) {
    for (const name of ['throws', 'text-only', 'bare-text', 'nothing', 'mismatch', 'whole-mismatch']) {
      const { result } = await ask('tools/call', { name })
      t.match(result, { isError: true, content: [{ type: 'text', text: `Error executing tool ${name}` }], _meta: { 'cloudg/error_code': 'handler_error' } }, `${name} ${era}`)
      t.notOk('structuredContent' in result)
    }
    const failed = (await ask('tools/call', { name: 'is-error' })).result
    t.match(failed, { isError: true, content: [{ text: 'no' }] })
    t.notOk('structuredContent' in failed)
    for (const name of ['fits', 'whole-fits']) {
      t.match((await ask('tools/call', { name })).result, { isError: false, structuredContent: { n: 1 }, content: [{ type: 'text', text: '{\n  "n": 1\n}' }] }, `${name} ${era}`)
    }
  }
  t.equal(logged.length, 12)
  t.match(logged[4], /Tool mismatch returned a value that its output schema does not allow: n: /)
})

t.test('SCH-14 nothing that a handler gives is lost or altered on its way', async (t) => {
  const layer = newLayer()
  const sum = 0.1 + 0.2
  const value = {
    sum, integer: 1.7, big: 1e300, tiny: -0.0000001, none: null, flag: false, nested: { deep: [{ union: 'a' }, { union: 5 }, [null, [[]]]] }, ü: '\ud83d\ude00 \u2028 \u0085 "\\', '': 0
  }
  const result = {
    content: [
      { type: 'text', text: 'a', annotations: { audience: ['user'], priority: sum, lastModified: '2026-01-01', 'com.example/x': [1] }, _meta: { a: { b: null } }, extra: 1 },
      { type: 'resource', resource: { uri: 'x://y', text: '', mimeType: 'text/x', _meta: { c: 1 }, more: [0.1] } }
    ],
    structuredContent: value,
    _meta: { 'com.example/deep': value },
    'com.example/extension': value
  }
  layer.tool('value', {}, () => value)
  layer.tool('result', {}, () => result)
  layer.tool('unknown-block', {}, () => ({ content: [{ type: 'hologram', data: 'x' }] }))
  layer.resource('x://y', { _meta: value }, () => [{ uri: 'x://y', text: 't', _meta: value, extra: value }])
  layer.prompt('p', {}, () => ({ messages: [{ role: 'user', content: { type: 'text', text: 'a', _meta: value } }], _meta: value, extra: value }))
  for (const [era, ask] of await eras(layer)) {
    const call = async (name: string): Promise<any> => (await ask('tools/call', { name })).result
    t.strictSame((await call('value')).structuredContent, value, era)
    t.strictSame(JSON.parse((await call('value')).content[0].text), value)
    const got = await call('result')
    for (const key of ['content', 'structuredContent', 'com.example/extension'] as const) t.strictSame(got[key], result[key], key)
    t.strictSame(got._meta['com.example/deep'], value)
    t.strictSame((await call('unknown-block')).structuredContent, { content: [{ type: 'hologram', data: 'x' }] }, 'what is no content is a value')
    t.strictSame((await ask('resources/read', { uri: 'x://y' })).result.contents, [{ uri: 'x://y', text: 't', _meta: value, extra: value }])
    t.strictSame((await ask('resources/list')).result.resources[0]._meta, value)
    t.match((await ask('prompts/get', { name: 'p' })).result, { messages: [{ role: 'user', content: { type: 'text', text: 'a', _meta: value } }], _meta: value, extra: value })
  }
})

// ---- resources

t.test('RS-01 a template reads, and the contents have the URI that was asked for', async (t) => {
  const ask = await at2025(createKit().layer)
  t.strictSame(await ask('resources/read', { uri: 'test://items/beta' }), {
    jsonrpc: '2.0', id: 1, result: { contents: [{ uri: 'test://items/beta', mimeType: 'application/json', text: '{\n  "id": "beta",\n  "index": 1\n}' }] }
  })
  t.strictSame((await ask('resources/list')).result, { resources: [{ uri: 'test://info', name: 'info', mimeType: 'application/json' }] })
})

t.test('RS-02 RS-03 RS-04 what does not exist is refused with its URI, under the code of the era', async (t) => {
  for (const [era, ask] of await eras(createKit().layer)) {
    const code = era === '2026' ? -32602 : -32002
    t.strictSame(await ask('resources/read', { uri: 'test://items/zeta' }), errorReply(code, 'No item zeta', { uri: 'test://items/zeta' }), era)
    for (const uri of ['other://x', 'test://items/', 'test://items/a/b', 'x', 'test://info/', 'TEST://info']) {
      t.strictSame(await ask('resources/read', { uri }), errorReply(code, `Unknown resource: ${uri}`, { uri }), uri)
    }
    for (const uri of [undefined, null, '', 5, {}, ['test://info']]) t.strictSame(await ask('resources/read', { uri }), errorReply(-32602, 'Missing or invalid parameter: uri'))
  }
})

t.test('RS-06 templates as they are listed', async (t) => {
  const ask = await at2025(createKit().layer)
  t.strictSame((await ask('resources/templates/list')).result, { resourceTemplates: [{ uriTemplate: 'test://items/{item_id}', name: 'item', mimeType: 'application/json' }] })
})

t.test('RS-11 bytes are base64, text is text, the rest is JSON; what is contents stays', async (t) => {
  const layer = newLayer()
  const every = Buffer.from(Array.from({ length: 256 }, (_, n) => n))
  const values: [string, unknown, object[]][] = [
    ['bytes', every, [{ uri: 'x://bytes', mimeType: 'image/x', blob: every.toString('base64') }]],
    ['view', every.subarray(1, 3), [{ uri: 'x://view', mimeType: 'image/x', blob: 'AQI=' }]],
    ['text', 'ü', [{ uri: 'x://text', mimeType: 'image/x', text: 'ü' }]],
    ['empty', '', [{ uri: 'x://empty', mimeType: 'image/x', text: '' }]],
    ['object', { a: 1 }, [{ uri: 'x://object', mimeType: 'image/x', text: '{\n  "a": 1\n}' }]],
    ['nothing', undefined, [{ uri: 'x://nothing', mimeType: 'image/x', text: 'null' }]],
    ['list', [1], [{ uri: 'x://list', mimeType: 'image/x', text: '[\n  1\n]' }]],
    ['contents', { uri: 'x://other', text: 'o' }, [{ uri: 'x://other', text: 'o' }]],
    ['several', [{ uri: 'x://1', text: '1' }, { uri: 'x://2', blob: '' }], [{ uri: 'x://1', text: '1' }, { uri: 'x://2', blob: '' }]],
    ['whole', { contents: [{ uri: 'x://1', text: '1' }] }, [{ uri: 'x://1', text: '1' }]]
  ]
  for (const [name, value] of values) layer.resource(`x://${name}`, { mimeType: 'image/x' }, () => value)
  const ask = await at2025(layer)
  for (const [name, , contents] of values) t.strictSame((await ask('resources/read', { uri: `x://${name}` })).result, { contents }, name)
})

t.test('RS-12 a crash of a resource or a prompt says nothing of itself', async (t) => {
  const layer = newLayer()
  layer.resource('x://crash', {}, () => { throw new TypeError('boom at /srv/app/x.js') })
  layer.resourceTemplate('x://crash/{id}', {}, async () => { throw new TypeError('boom') })
  layer.resource('x://loop', {}, () => { const loop: unknown[] = []; loop.push(loop); return loop })
  layer.resource('x://function', {}, () => () => 1)
  layer.prompt('crash', {}, () => { throw new TypeError('boom') })
  for (const [era, ask] of await eras(layer)) {
    for (const uri of ['x://crash', 'x://crash/1', 'x://loop', 'x://function']) t.strictSame(await ask('resources/read', { uri }), errorReply(-32603, 'Internal error'), `${uri} ${era}`)
    t.strictSame(await ask('prompts/get', { name: 'crash' }), errorReply(-32603, 'Internal error'))
  }
})

t.test('SCH-15 exact resources win over templates, and every URI that is listed can be read', async (t) => {
  const layer = newLayer()
  const odd = ['x://A/B', 'x://a/%62', 'x://a/b?q=1', 'x://a/b#f', 'urn:isbn:0451450523', 'x://ü/é', 'x://a/..', 'file:///etc/app']
  layer.resource('x://a/b', {}, () => 'exact')
  layer.resourceTemplate('x://a/{id}', {}, ({ id }) => `template ${id}`)
  for (const uri of odd) layer.resource(uri, {}, (given) => `odd ${given}`)
  for (const [era, ask] of await eras(layer)) {
    const code = era === '2026' ? -32602 : -32002
    const read = async (uri: string): Promise<any> => ask('resources/read', { uri })
    t.match(await read('x://a/b'), { result: { contents: [{ uri: 'x://a/b', text: 'exact' }] } }, era)
    t.match(await read('x://a/c'), { result: { contents: [{ uri: 'x://a/c', text: 'template c' }] } })
    for (const uri of ['x://a/b/c', 'nope:x']) t.strictSame(await read(uri), errorReply(code, `Unknown resource: ${uri}`, { uri }))
    const { resources } = (await ask('resources/list')).result
    t.equal(resources.length, odd.length + 1)
    for (const { uri } of resources) t.match(await read(uri), { result: { contents: [{ uri, text: uri === 'x://a/b' ? 'exact' : `odd ${uri}` }] } }, uri)
  }
})

t.test('a handler reads another resource of its layer, as the same caller', async (t) => {
  const { layer } = createKit()
  layer.resource('test://for-admins', { roles: ['admin'] }, () => 'secret')
  layer.tool('read', { input: { uri: z.string() } }, async ({ uri }, ctx) => (await ctx.readResource(uri))[0]?.text)
  const { handle } = connect(layer)
  const read = async (uri: string, roles: string): Promise<any> =>
    (await handle(modern('tools/call', { name: 'read', arguments: { uri } }), { principal: principal({ id: 'p', roles }) })).result
  t.match(await read('test://items/alpha', 'default'), { content: [{ text: '{\n  "id": "alpha",\n  "index": 0\n}' }] })
  t.match(await read('test://for-admins', 'admin'), { content: [{ text: 'secret' }], isError: false })
  t.match(await read('test://for-admins', 'default'), { isError: true, content: [{ text: 'Unknown resource: test://for-admins' }] },
    'it is the tool that fails: a resource that it did not find is no unknown tool')
})

// ---- prompts

t.test('PC-01 PC-06 a prompt that is text is one message of the user', async (t) => {
  const ask = await at2025(createKit().layer)
  t.strictSame(await ask('prompts/get', { name: 'greet', arguments: { name: 'Ann' } }), {
    jsonrpc: '2.0', id: 1, result: { messages: [{ role: 'user', content: { type: 'text', text: 'Hi Ann!' } }], description: 'Greets somebody' }
  })
  t.match(await ask('prompts/get', { name: 'greet', arguments: { name: 'Ann', style: 'formal', unknown: 'x' } }), { result: { messages: [{ content: { text: 'Good day, Ann.' } }] } })
})

t.test('PC-02 required arguments that are missing or empty are named', async (t) => {
  const layer = newLayer()
  layer.prompt('two', { arguments: { a: {}, b: z.string(), c: z.string().optional(), d: { required: false } } }, () => 'x')
  for (const [era, ask] of await eras(layer)) {
    const get = async (args: unknown): Promise<any> => ask('prompts/get', { name: 'two', arguments: args })
    for (const args of [undefined, {}, { a: '', b: null }, { toString: 'x' }]) {
      t.strictSame(await get(args), errorReply(-32602, 'Missing required prompt arguments: a, b'), era)
    }
    t.strictSame(await get({ a: 'x' }), errorReply(-32602, 'Missing required prompt arguments: b'))
    t.match(await get({ a: 'x', b: 'y' }), { result: { messages: [{}] } })
    t.match(await get({ a: 5, b: 'y' }), { error: { code: -32602, message: /^Invalid arguments: a: / } }, 'arguments are text')
    t.match(await get({ a: 'x', b: [] }), { error: { code: -32602, message: /^Invalid arguments: b: / } })
  }
})

t.test('PC-04 RPC-16 an unknown prompt', async (t) => {
  for (const [era, ask] of await eras(createKit().layer)) {
    for (const name of ['nope', 'constructor', 'Greet']) t.strictSame(await ask('prompts/get', { name }), errorReply(-32602, `Unknown prompt: ${name}`), era)
  }
})

t.test('PC-05 prompts as they are listed', async (t) => {
  const ask = await at2025(createKit().layer)
  t.strictSame((await ask('prompts/list')).result, {
    prompts: [{ name: 'greet', description: 'Greets somebody', arguments: [{ name: 'name', required: true, description: 'Who' }, { name: 'style', required: false }] }]
  })
})

t.test('what a prompt may return', async (t) => {
  const layer = newLayer()
  const block = { type: 'resource', resource: { uri: 'x://y', text: 't' } } as const
  const said = { role: 'assistant', content: { type: 'text', text: 'a' } } as const
  const values: [string, unknown, object[]][] = [
    ['block', block, [{ role: 'user', content: block }]],
    ['message', said, [said]],
    ['mixed', ['q', said, block], [{ role: 'user', content: { type: 'text', text: 'q' } }, said, { role: 'user', content: block }]],
    ['whole', { messages: [said] }, [said]],
    ['object', { a: 1 }, [{ role: 'user', content: { type: 'text', text: '{\n  "a": 1\n}' } }]],
    ['none', [], []]
  ]
  for (const [name, value] of values) layer.prompt(name, {}, () => value)
  const ask = await at2025(layer)
  for (const [name, , messages] of values) t.strictSame((await ask('prompts/get', { name })).result, { messages }, name)
})

// ---- completions

t.test('CP-01 CP-02 completions of template variables and prompt arguments', async (t) => {
  for (const [era, ask] of await eras(createKit().layer)) {
    const complete = async (ref: object, argument: object): Promise<any> => (await ask('completion/complete', { ref, argument })).result.completion
    t.strictSame(await complete({ type: 'ref/resource', uri: 'test://items/{item_id}' }, { name: 'item_id', value: 'a' }), { values: ['alpha'], total: 1, hasMore: false }, era)
    t.strictSame(await complete({ type: 'ref/prompt', name: 'greet' }, { name: 'name', value: 'g' }), { values: ['gamma'], total: 1, hasMore: false })
    t.strictSame(await complete({ type: 'ref/prompt', name: 'greet' }, { name: 'name', value: '' }), { values: ['alpha', 'beta', 'gamma', 'delta'], total: 4, hasMore: false })
    t.equal((await complete({ type: 'ref/prompt', name: 'greet' }, { name: 'name' })).total, 4, 'no value is an empty one')
  }
})

t.test('CP-03 an odd ref or argument is refused', async (t) => {
  for (const [era, ask] of await eras(createKit().layer)) {
    const argument = { name: 'name', value: '' }
    const refs = [undefined, null, 'greet', [], { type: 'ref/x', name: 'greet' }, { type: 'ref/prompt' }, { type: 'ref/prompt', name: 5 }, { type: 'ref/resource', uri: null }, { name: 'greet' }]
    for (const ref of refs) t.strictSame(await ask('completion/complete', { ref, argument }), errorReply(-32602, 'Invalid completion ref'), `${JSON.stringify(ref)} ${era}`)
    const ref = { type: 'ref/prompt', name: 'greet' }
    for (const argument of [undefined, null, 'name', [], {}, { name: 5 }, { value: 'a' }]) {
      t.strictSame(await ask('completion/complete', { ref, argument }), errorReply(-32602, 'Invalid completion argument'), JSON.stringify(argument))
    }
  }
})

t.test('CP-04 RPC-20 what is unknown completes to nothing', async (t) => {
  for (const [era, ask] of await eras(createKit().layer)) {
    const refs: [object, string][] = [
      [{ type: 'ref/prompt', name: 'nope' }, 'name'], [{ type: 'ref/prompt', name: 'greet' }, 'nope'], [{ type: 'ref/prompt', name: 'greet' }, 'style'],
      [{ type: 'ref/prompt', name: 'greet' }, '__proto__'], [{ type: 'ref/resource', uri: 'test://items/{other}' }, 'item_id'],
      [{ type: 'ref/resource', uri: 'test://items/{item_id}' }, 'toString'], [{ type: 'ref/resource', uri: 'test://info' }, 'x']
    ]
    for (const [ref, name] of refs) {
      t.match((await ask('completion/complete', { ref, argument: { name, value: '' } })).result, { completion: { values: [], total: 0, hasMore: false } }, `${JSON.stringify(ref)} ${name} ${era}`)
    }
  }
})

t.test('CP-06 RPC-20 a completer that throws completes nothing; at most 100 values; what is known reaches it', async (t) => {
  const layer = newLayer()
  const seen: unknown[] = []
  layer.prompt('p', {
    arguments: {
      crash: { complete: () => { throw new Error('boom') } },
      many: { complete: () => Array.from({ length: 250 }, (_, n) => n) },
      exact: { complete: async () => Array.from({ length: 100 }, (_, n) => `v${n}`) },
      known: { complete: (prefix, _ctx, known) => { seen.push([prefix, known]); return [] } },
      nothing: { complete: () => undefined as never }
    }
  }, () => '')
  for (const [era, ask] of await eras(layer)) {
    const complete = async (name: string, value: unknown = '', context?: unknown): Promise<any> =>
      (await ask('completion/complete', { ref: { type: 'ref/prompt', name: 'p' }, argument: { name, value }, context })).result.completion
    t.strictSame(await complete('crash'), { values: [], total: 0, hasMore: false }, era)
    t.strictSame(await complete('nothing'), { values: [], total: 0, hasMore: false })
    const many = await complete('many')
    t.strictSame({ ...many, values: many.values.length }, { values: 100, total: 250, hasMore: true })
    t.equal(many.values[99], '99', 'values are text')
    t.strictSame({ ...await complete('exact'), values: 0 }, { values: 0, total: 100, hasMore: false })
    seen.length = 0
    await complete('known', 'x', { arguments: { a: 'b', n: 5, none: null } })
    await complete('known', 7, { arguments: [] })
    await complete('known', null, 'odd')
    await complete('known', { a: [1] })
    t.strictSame(seen, [['x', { a: 'b', n: '5', none: '' }], ['7', {}], ['', {}], ['{"a":[1]}', {}]])
  }
})

t.test('every handshake revision serves every method', async (t) => {
  for (const version of HANDSHAKE) {
    const { handle } = await connectAt(version, createKit().layer)
    const served: [string, object][] = [
      ['ping', {}], ['tools/list', {}], ['tools/call', { name: 'stats' }], ['resources/list', {}], ['resources/templates/list', {}],
      ['resources/read', { uri: 'test://info' }], ['resources/subscribe', { uri: 'test://info' }], ['resources/unsubscribe', { uri: 'test://info' }],
      ['prompts/list', {}], ['prompts/get', { name: 'greet', arguments: { name: 'a' } }], ['logging/setLevel', { level: 'debug' }],
      ['completion/complete', { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: '' } }]
    ]
    for (const [method, params] of served) t.ok('result' in await handle(request(method, params)), `${method} ${version}`)
  }
})
