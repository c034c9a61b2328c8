// serveStdio over streams of the test's own: what is said on the wire, in which order, and how it ends.

import { PassThrough, Writable } from 'node:stream'
import type { Test } from 'tap'
import t from 'tap'
import { createLayer } from '../../lib/layer/index.js'
import type { AppLayer } from '../../lib/layer/index.js'
import { ToolError } from '../../lib/layer/index.js'
import type { StdioOptions } from '../../lib/stdio/index.js'
import { serveStdio } from '../../lib/stdio/index.js'
import { ENVELOPE } from './peer.js'

type Message = Record<string, any>

interface Gate { open: () => void, opened: Promise<void> }

function gate (): Gate {
  let open!: () => void
  const opened = new Promise<void>((resolve) => { open = resolve })
  return { open, opened }
}

/** A layer whose tool `wait` is held until the test lets it go, and says when it has begun. */
function heldLayer (t: Test) {
  const layer = createLayer({ name: 'held', version: '1.0.0' })
  const begun = gate()
  const release = gate()
  let aborted = false
  t.teardown(() => release.open())
  layer.tool('echo', { input: { type: 'object' } }, (args: any) => args.text)
  layer.tool('wait', {}, async (_args, ctx) => {
    begun.open()
    ctx.signal.addEventListener('abort', () => { aborted = true })
    await release.opened
    return 'released'
  })
  layer.tool('steps', {}, async (_args, ctx) => {
    for (let step = 1; step <= 3; step++) await ctx.progress(step, 3)
    return 'done'
  })
  layer.tool('whoami', {}, (_args, ctx) => ({ id: ctx.principal.id, roles: [...ctx.principal.roles], transport: ctx.request.transport }))
  layer.tool('refuse', {}, () => { throw new ToolError('a\u2028b\u2029c\u0085d') })
  return { layer, begun, release, wasAborted: () => aborted }
}

async function connect (t: Test, layer: AppLayer = heldLayer(t).layer, options: Partial<StdioOptions> = {}) {
  const input = new PassThrough()
  const output = new PassThrough({ highWaterMark: 64 * 1024 * 1024 })
  const server = await serveStdio(layer, { input, output, ...options })
  t.teardown(async () => server.abandon())
  const lines: string[] = []
  let waiting: (() => void)[] = []
  let rest = ''
  output.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n')
    rest = parts.pop()!
    lines.push(...parts)
    for (const wake of waiting.splice(0)) wake()
  })
  const messages = (): Message[] => lines.map((line) => JSON.parse(line))
  async function message (fits: (message: Message) => boolean): Promise<Message> {
    for (;;) {
      const found = messages().flat().find(fits)
      if (found !== undefined) return found
      await new Promise<void>((resolve) => { waiting = [...waiting, resolve] })
    }
  }
  const send = (...given: unknown[]): void => { input.write(given.map((one) => (typeof one === 'string' ? one : JSON.stringify(one)) + '\n').join('')) }
  const reply = async (id: unknown): Promise<Message> => message((one) => one.id === id && !('method' in one))
  const initialize = async (protocolVersion = '2025-11-25'): Promise<Message> => {
    send(
      { jsonrpc: '2.0', id: 'init', method: 'initialize', params: { protocolVersion, capabilities: {}, clientInfo: { name: 't', version: '1' } } },
      { jsonrpc: '2.0', method: 'notifications/initialized' })
    return reply('init')
  }
  return { server, input, output, lines, messages, send, reply, message, initialize }
}

const call = (id: unknown, name: string, params: object = {}): Message => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, ...params } })
const modern = (id: unknown, method: string, params: object = {}): Message => ({ jsonrpc: '2.0', id, method, params: { ...params, _meta: ENVELOPE } })

t.test('IO-03 blank lines are ignored', async (t) => {
  const { send, initialize, lines, reply } = await connect(t)
  send('', '   ', '\r', '\t')
  await initialize()
  send('', { jsonrpc: '2.0', id: 1, method: 'ping' })
  t.same(await reply(1), { jsonrpc: '2.0', id: 1, result: {} })
  t.equal(lines.length, 2)
})

t.test('IO-05 an envelope first makes the connection a 2026 one', async (t) => {
  const { send, reply } = await connect(t)
  send(modern(1, 'server/discover'))
  const { result } = await reply(1)
  t.same(result.supportedVersions, ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'])
  t.equal(result.resultType, 'complete')
  send({ jsonrpc: '2.0', id: 2, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } } })
  t.match((await reply(2)).error, { code: -32022, data: { supported: ['2026-07-28'], requested: '2025-11-25' } })
  send({ jsonrpc: '2.0', id: 3, method: 'tools/list' })
  t.equal((await reply(3)).error.code, -32602, 'every request carries the envelope')
})

t.test('an initialize first makes it a connection of the handshake era', async (t) => {
  const { send, reply, initialize } = await connect(t)
  t.equal((await initialize('2024-11-05')).result.protocolVersion, '2024-11-05')
  send(modern(1, 'tools/list'))
  t.equal((await reply(1)).error.code, -32600)
})

t.test('initialize, notifications and requests that are pipelined are taken in order', async (t) => {
  const { send, reply, messages } = await connect(t)
  send(
    { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 't', version: '1' } } },
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    { jsonrpc: '2.0', id: 2, method: 'tools/list' },
    { jsonrpc: '2.0', id: 3, method: 'ping' })
  t.ok((await reply(2)).result.tools.length > 0)
  t.same((await reply(3)).result, {})
  t.same(new Set(messages().map(({ id }) => id)), new Set([1, 2, 3]))
  t.equal(messages()[0]!.id, 1)
})

t.test('STD-05 a line that is no message is answered and the next one served', async (t) => {
  const { send, reply, initialize, messages } = await connect(t)
  await initialize()
  const bad = ['& "$env:LO', '[1,2', '{"jsonrpc":"2.0","id":7,"method":"ping","params":{"__proto__":{"a":1}}}', 'nul', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]).toString('latin1')]
  send(...bad, { jsonrpc: '2.0', id: 1, method: 'ping' })
  await reply(1)
  const failures = messages().filter(({ error }) => error !== undefined)
  t.equal(failures.length, 5)
  t.same(failures[0], { jsonrpc: '2.0', id: null, error: { code: -32700, message: 'Parse error' } })
  t.same(failures.map(({ error }) => error.code), [-32700, -32700, -32700, -32700, -32700])
  send('42', '"text"', 'null', '{}', { jsonrpc: '1.0', id: 2, method: 'ping' })
  send({ jsonrpc: '2.0', id: 3, method: 'ping' })
  await reply(3)
  t.same(messages().slice(-6).map(({ error }) => error?.code), [-32600, -32600, -32600, -32600, -32600, undefined])
})

t.test('bytes that are no UTF-8 are a parse error', async (t) => {
  const { input, message } = await connect(t)
  input.write(Buffer.from([0x22, 0xc3, 0x28, 0x22, 0x0a]))
  t.same(await message(({ error }) => error !== undefined), { jsonrpc: '2.0', id: null, error: { code: -32700, message: 'Parse error' } })
})

t.test('STD-05 a line over the cap is refused while it comes, and no more of it is held', async (t) => {
  const { input, send, reply, message, initialize } = await connect(t, undefined, { maxLineBytes: 1024 * 1024 })
  await initialize()
  const part = 'x'.repeat(256 * 1024)
  for (let at = 0; at < 5; at++) input.write(part)
  t.same(await message(({ error }) => error !== undefined),
    { jsonrpc: '2.0', id: null, error: { code: -32700, message: 'Parse error: the line is longer than 1048576 bytes' } })
  for (let at = 0; at < 80; at++) input.write(part)
  send('', { jsonrpc: '2.0', id: 1, method: 'ping' })
  t.same((await reply(1)).result, {})
})

t.test('CRLF, a byte order mark and split characters are understood', async (t) => {
  const { input, reply, initialize } = await connect(t)
  await initialize()
  const text = '\ufeff' + JSON.stringify(call(1, 'echo', { arguments: { text: '日本🎉—' } })) + '\r\n'
  for (const byte of Buffer.from(text)) input.write(Buffer.from([byte]))
  t.equal((await reply(1)).result.content[0].text, '日本🎉—')
})

t.test('line separators leave escaped, one line a message', async (t) => {
  const { send, reply, lines, initialize } = await connect(t)
  await initialize()
  send(call(1, 'refuse'))
  t.equal((await reply(1)).result.content[0].text, 'a\u2028b\u2029c\u0085d')
  t.match(lines.at(-1), /a\\u2028b\\u2029c\\u0085d/)
  t.notMatch(lines.at(-1), /[\u2028\u2029\u0085\r]/)
})

t.test('ids come back with their type', async (t) => {
  const { send, reply, initialize } = await connect(t)
  await initialize()
  for (const id of ['1', 1, 0, '', 'req-ä', -5, 'x'.repeat(300)]) {
    send({ jsonrpc: '2.0', id, method: 'ping' })
    t.same(await reply(id), { jsonrpc: '2.0', id, result: {} })
  }
})

t.test('CX-03 a call that is cancelled is not answered, while others go on', async (t) => {
  const { layer, begun, wasAborted } = heldLayer(t)
  const { send, reply, messages, initialize, input, server } = await connect(t, layer)
  await initialize()
  send(call(9, 'wait'))
  await begun.opened
  send({ jsonrpc: '2.0', id: 10, method: 'ping' }, { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 9, reason: 'enough' } }, { jsonrpc: '2.0', id: 11, method: 'ping' })
  await reply(10)
  await reply(11)
  t.ok(wasAborted())
  input.end()
  await server.closed
  t.notOk(messages().some(({ id }) => id === 9))
})

t.test('a call and its cancellation in one write', async (t) => {
  const { layer } = heldLayer(t)
  const { send, reply, messages, initialize } = await connect(t, layer)
  await initialize()
  send(call(1, 'wait'), { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }, { jsonrpc: '2.0', id: 2, method: 'ping' })
  await reply(2)
  send({ jsonrpc: '2.0', id: 3, method: 'ping' })
  await reply(3)
  t.notOk(messages().some(({ id }) => id === 1))
})

t.test('progress comes before the reply, in order, with the token', async (t) => {
  const { send, reply, messages, initialize } = await connect(t)
  await initialize()
  send(call(1, 'steps', { _meta: { progressToken: 'tok' } }))
  await reply(1)
  t.same(messages().slice(1).map(({ id, params }) => id ?? [params.progressToken, params.progress]), [['tok', 1], ['tok', 2], ['tok', 3], 1])
})

t.test('a batch is answered on one line, on a revision that has batches', async (t) => {
  const { send, lines, reply, initialize } = await connect(t)
  await initialize('2025-03-26')
  send([{ jsonrpc: '2.0', id: 1, method: 'ping' }, { jsonrpc: '2.0', method: 'notifications/roots/list_changed' }, call('two', 'echo', { arguments: { text: 'x' } })])
  await reply('two')
  const batch = JSON.parse(lines.at(-1)!)
  t.same(batch.map(({ id }: Message) => id), [1, 'two'])

  const newer = await connect(t)
  await newer.initialize('2025-11-25')
  newer.send([{ jsonrpc: '2.0', id: 1, method: 'ping' }])
  t.match(await newer.message(({ error }) => error !== undefined), { id: null, error: { code: -32600 } })
})

t.test('changes are told to a session, and to a listen stream under its id', async (t) => {
  const { layer } = heldLayer(t)
  const old = await connect(t, layer)
  await old.initialize()
  const listening = await connect(t, layer)
  listening.send(modern('listen', 'subscriptions/listen', { notifications: { toolsListChanged: true } }))
  await listening.message(({ method }) => method === 'notifications/subscriptions/acknowledged')
  layer.notifyChanged('tools')
  t.same(await old.message(({ method }) => method !== undefined), { jsonrpc: '2.0', method: 'notifications/tools/list_changed' })
  t.same(await listening.message(({ method }) => method === 'notifications/tools/list_changed'),
    { jsonrpc: '2.0', method: 'notifications/tools/list_changed', params: { _meta: { 'io.modelcontextprotocol/subscriptionId': 'listen' } } })

  listening.input.end()
  await listening.server.closed
  t.match(await listening.reply('listen'), { result: { resultType: 'complete', _meta: { 'io.modelcontextprotocol/subscriptionId': 'listen' } } }, 'the end of the input ends it with its result')
})

t.test('a listen stream is cancelled by notification', async (t) => {
  const { layer } = heldLayer(t)
  const { send, message, reply, messages } = await connect(t, layer)
  send(modern(1, 'subscriptions/listen', { notifications: { toolsListChanged: true } }))
  await message(({ method }) => method === 'notifications/subscriptions/acknowledged')
  send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }, modern(2, 'tools/list'))
  await reply(2)
  layer.notifyChanged('tools')
  send(modern(3, 'tools/list'))
  await reply(3)
  t.same(messages().map(({ id, method }) => id ?? method), ['notifications/subscriptions/acknowledged', 2, 3])
})

t.test('the client is asked while a call runs, and its answer is taken', async (t) => {
  const { layer } = heldLayer(t)
  layer.tool('ask', {}, async (_args, ctx) => await ctx.elicit('Your name?', { type: 'object', properties: { name: { type: 'string' } } }))
  const { send, reply, message } = await connect(t, layer)
  send({ jsonrpc: '2.0', id: 'init', method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: { elicitation: {} }, clientInfo: { name: 't', version: '1' } } },
    { jsonrpc: '2.0', method: 'notifications/initialized' }, call(1, 'ask'))
  const question = await message(({ method }) => method === 'elicitation/create')
  send({ jsonrpc: '2.0', id: question['id'], result: { action: 'accept', content: { name: 'Ada' } } })
  t.same((await reply(1)).result.structuredContent, { action: 'accept', content: { name: 'Ada' } })

  const modernClient = await connect(t, layer)
  const _meta = { ...ENVELOPE, 'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } } }
  modernClient.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'ask', arguments: {}, _meta } })
  const { result } = await modernClient.reply(1)
  t.equal(result.resultType, 'input_required')
  const inputResponses = Object.fromEntries(Object.keys(result.inputRequests).map((key) => [key, { action: 'accept', content: { name: 'Ada' } }]))
  modernClient.send({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'ask', arguments: {}, inputResponses, requestState: result.requestState, _meta } })
  t.same((await modernClient.reply(2)).result.structuredContent, { action: 'accept', content: { name: 'Ada' } })
})

t.test('the caller is the local user', async (t) => {
  const { send, reply, initialize } = await connect(t)
  await initialize()
  send(call(1, 'whoami'))
  t.same((await reply(1)).result.structuredContent, { id: 'local', roles: ['default', 'local'], transport: 'stdio' })

  const named = await connect(t, undefined, { principal: { id: 'alice', roles: new Set(['ops']) } })
  await named.initialize()
  named.send(call(1, 'whoami'))
  t.same((await named.reply(1)).result.structuredContent, { id: 'alice', roles: ['ops'], transport: 'stdio' })

  const resolved = await connect(t, undefined, { principalResolver: ({ transport }) => ({ id: `on ${transport}`, roles: new Set() }) })
  await resolved.initialize()
  resolved.send(call(1, 'whoami'))
  t.equal((await resolved.reply(1)).result.structuredContent.id, 'on stdio')
})

t.test('the end of the input lets a call finish', async (t) => {
  const { layer, begun, release } = heldLayer(t)
  const { send, input, server, messages, initialize } = await connect(t, layer)
  await initialize()
  send(call(1, 'wait'))
  await begun.opened
  input.end()
  release.open()
  await server.closed
  t.equal(messages().at(-1)!.result.content[0].text, 'released')
})

t.test('a call that outlives the grace is aborted and not answered', async (t) => {
  const { layer, begun, wasAborted } = heldLayer(t)
  const { send, input, server, messages, initialize } = await connect(t, layer, { grace: 20 })
  await initialize()
  send(call(1, 'wait'))
  await begun.opened
  input.end()
  await server.closed
  t.ok(wasAborted())
  t.equal(messages().length, 1)
})

t.test('close() ends it as the end of the input does; asked twice, it does not wait', async (t) => {
  const { layer, begun } = heldLayer(t)
  const { send, server, initialize } = await connect(t, layer, { grace: 60_000 })
  await initialize()
  send(call(1, 'wait'))
  await begun.opened
  const closing = server.close()
  t.equal(await Promise.race([closing, Promise.resolve('waits')]), 'waits')
  await server.close()
  await closing
})

t.test('the layer is started before the first line and stopped after the last', async (t) => {
  const events: string[] = []
  const layer = createLayer({ name: 'l', version: '1', start: () => { events.push('start') }, stop: () => { events.push('stop') } })
  layer.tool('note', {}, () => { events.push('call') })
  const { send, reply, input, server, initialize } = await connect(t, layer)
  await initialize()
  send(call(1, 'note'))
  await reply(1)
  input.end()
  await server.closed
  t.same(events, ['start', 'call', 'stop'])

  const broken = createLayer({ name: 'l', version: '1', start: () => { throw new Error('no database') } })
  await t.rejects(serveStdio(broken, { input: new PassThrough(), output: new PassThrough() }), { message: 'no database' })
})

t.test('STD-07 when the reader has gone nothing more is written, and serving ends', async (t) => {
  const { layer } = heldLayer(t)
  let writes = 0
  const output = new Writable({
    write (_chunk, _encoding, done) {
      writes++
      done(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
    }
  })
  const input = new PassThrough()
  const server = await serveStdio(layer, { input, output, grace: 60_000 })
  input.write(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } } }) + '\n')
  await server.closed
  t.equal(writes, 1)
  t.ok(input.destroyed)
})

t.test('a reader that takes nothing stops the reading of requests, and then gets every answer once', async (t) => {
  const requests = 10_000
  let calls = 0
  const layer = createLayer({ name: 'big', version: '1', maxOutputChars: 1_000_000 })
  const text = 'x'.repeat(8 * 1024)
  layer.tool('big', {}, () => {
    calls++
    return text
  })
  const seen = new Set<number>()
  let rest = ''
  let held: (() => void) | undefined
  let flowing = false
  const output = new Writable({
    decodeStrings: false,
    write (chunk, _encoding, done) {
      const lines = (rest + String(chunk)).split('\n')
      rest = lines.pop()!
      for (const line of lines) seen.add(JSON.parse(line).id)
      if (flowing) return done()
      held = done
    }
  })
  const input = new PassThrough()
  const server = await serveStdio(layer, { input, output })
  input.write(JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } } }) + '\n')
  for (let id = 1; id <= requests; id++) input.write(JSON.stringify(call(id, 'big')) + '\n')
  input.end()

  let turns = 0
  for (let before = -1; turns < 50; turns = calls === before ? turns + 1 : 0) {
    before = calls
    await new Promise((resolve) => { setImmediate(resolve) })
  }
  t.ok(calls > 500 && calls < requests / 3, `${calls} calls were made before anything was read`)
  t.ok(output.writableLength < 40 * 1024 * 1024, `${output.writableLength} bytes wait`)

  flowing = true
  held!()
  await server.closed
  t.equal(calls, requests)
  t.equal(seen.size, requests + 1)
})

t.test('a tool that waits for its progress to be taken is as fast as the reader', async (t) => {
  const taken: (() => void)[] = []
  let notified = 0
  const layer = createLayer({ name: 'l', version: '1' })
  layer.tool('stream', {}, async (_args, ctx) => {
    for (let step = 1; step <= 1000; step++) {
      await ctx.progress(step, 1000, 'x'.repeat(1000))
      notified++
    }
    return 'done'
  })
  const lines: string[] = []
  const output = new Writable({
    decodeStrings: false,
    highWaterMark: 16 * 1024,
    write (chunk, _encoding, done) {
      lines.push(...String(chunk).split('\n').filter((line) => line !== ''))
      taken.push(done)
    }
  })
  const input = new PassThrough()
  const server = await serveStdio(layer, { input, output })
  input.write(JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } } }) + '\n')
  input.write(JSON.stringify(call(1, 'stream', { _meta: { progressToken: 1 } })) + '\n')
  let most = 0
  while (!lines.some((line) => JSON.parse(line).id === 1)) {
    await new Promise((resolve) => { setImmediate(resolve) })
    most = Math.max(most, notified - lines.length)
    for (const done of taken.splice(0)) done()
  }
  t.ok(most < 50, `${most} notifications were ahead of the reader`)
  t.equal(lines.length, 1002)
  server.abandon()
  await server.closed
})
