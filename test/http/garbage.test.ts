// Whatever comes in: the caller gets a clear refusal (or Node hangs up on what is no HTTP), nothing crashes, nothing is called an
// internal error that the caller made, and the next request is served.

import { once } from 'node:events'
import { Agent } from 'node:http'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { createKit, ENV, INITIALIZED, initialize, modern, modernHeaders, request } from '../kit.js'
import type { Answer, Headers, Served } from './client.js'
import { connections, eventually, handshake, parseRaw, post, postModern, postStream, raw, rawAnswer, rawRequest, refused, send, serve, socketTo } from './client.js'

const DEPTH = 100_000
// Put into JSON text in place of a string, since no serialiser would make it.
const RAW: Record<string, string> = {
  '@deep-array': '['.repeat(DEPTH) + ']'.repeat(DEPTH),
  '@deep-object': '{"a":'.repeat(DEPTH) + '1' + '}'.repeat(DEPTH),
  '@huge-integer': '9'.repeat(5000),
  '@huge-negative': '-' + '9'.repeat(5000),
  '@tiny': '1e-5000',
  '@long-fraction': '0.' + '1'.repeat(5000)
}
const LIGHT: unknown[] = [
  null, true, 0, -1, 1.5, 2 ** 53, '', 'x', '__proto__', '\u0000', '\ud800', [], [null], [1, 'x'], {}, { constructor: { prototype: {} } }, { toString: 1, toJSON: 1, then: 1 },
  '@huge-integer', '@huge-negative', '@tiny', '@long-fraction'
]
// Only the upper places of some methods get these: reading them takes a while, wherever they are.
const HEAVY: unknown[] = ['x'.repeat(70_000), '@deep-array', '@deep-object']
const heavy = new Set(['tools/call', 'resources/read', 'completion/complete', 'subscriptions/listen'])

function junkFor (method: string, path: readonly unknown[]): unknown[] {
  return path.length > 3 || !heavy.has(method) ? LIGHT : [...LIGHT, ...HEAVY]
}

function textOf (message: unknown): string {
  return JSON.stringify(message).replace(/"(@[a-z-]+)"/g, (whole, name: string) => RAW[name] ?? whole)
}

/** All places in a message, as paths. */
function places (value: unknown, path: (string | number)[] = []): (string | number)[][] {
  const below = typeof value === 'object' && value !== null ? Object.entries(value).flatMap(([key, one]) => places(one, [...path, Array.isArray(value) ? Number(key) : key])) : []
  return path.length === 0 ? below : [path, ...below]
}

function replaced (value: any, [key, ...rest]: (string | number)[], by: unknown): any {
  const copy = Array.isArray(value) ? [...value] : { ...value }
  copy[key!] = rest.length === 0 ? by : replaced(copy[key!], rest, by)
  return copy
}

/** As a reader of JSON understands it. */
function idOf (text: string): unknown {
  return (JSON.parse(text) as { id: unknown }).id
}

async function serveKit (t: Test): Promise<Served> {
  const { layer } = createKit()
  layer.tool('mirror', { input: { type: 'object' } }, (args) => args)
  layer.tool('routed', { input: { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } } } }, () => 'x')
  return serve(t, { layer, maxSessionsPerPrincipal: 100_000, maxSessions: 100_000 })
}

async function alive (t: Test, app: Served): Promise<void> {
  const answer = await postModern(app, 'tools/call', { name: 'echo', arguments: { text: 'alive' } })
  t.equal(answer.messages[0]?.result?.structuredContent?.text, 'alive', 'the next request is served')
}

/** The answer is one of JSON-RPC: of this message, with a status that fits, and not our fault. */
function problemOf (answer: Answer, id: unknown): string | undefined {
  const { status, text, messages } = answer
  if (status === 202) return text === '' ? undefined : 'a 202 with a body'
  if (![200, 400, 404, 406].includes(status)) return `status ${status}`
  if (messages.length === 0) return 'no message'
  for (const one of messages) {
    if (one.method !== undefined) continue
    if (one.jsonrpc !== '2.0') return 'no JSON-RPC'
    if (one.id !== id && one.id !== null) return `id ${JSON.stringify(one.id)}`
    if (('result' in one) === ('error' in one)) return 'neither result nor error, or both'
    if (one.error !== undefined && ![-32700, -32600, -32601, -32602, -32002, -32020, -32022].includes(one.error.code)) return `code ${one.error.code}`
    if (one.error !== undefined && (typeof one.error.message !== 'string' || one.error.message === '')) return 'no words'
  }
  return undefined
}

t.setTimeout(110_000)
const failures: unknown[] = []
const remember = (error: unknown): void => { failures.push(error) }
process.on('unhandledRejection', remember).on('uncaughtExceptionMonitor', remember)
t.teardown(() => { process.off('unhandledRejection', remember).off('uncaughtExceptionMonitor', remember) })

const both = {
  'tools/list': { cursor: 'x' },
  'tools/call': { name: 'echo', arguments: { text: 'x', times: 2 } },
  'resources/list': { cursor: 'x' },
  'resources/templates/list': { cursor: 'x' },
  'resources/read': { uri: 'test://items/alpha' },
  'prompts/list': {},
  'prompts/get': { name: 'greet', arguments: { name: 'Ann', style: 'formal' } },
  'completion/complete': { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'g' }, context: { arguments: { style: 'x' } } }
}
const handshakeOnly = {
  initialize: { protocolVersion: '2025-11-25', capabilities: { roots: { listChanged: true } }, clientInfo: { name: 'x', version: '1' } },
  ping: {},
  'resources/subscribe': { uri: 'test://info' },
  'resources/unsubscribe': { uri: 'test://info' },
  'logging/setLevel': { level: 'info' },
  'notifications/cancelled': { requestId: 1, reason: 'x' },
  'nope/nope': { x: 1 }
}
const modernOnly = {
  'server/discover': {},
  'nope/nope': { x: 1 },
  'completion/complete ': { ref: { type: 'ref/resource', uri: 'test://items/{item_id}' }, argument: { name: 'item_id', value: 'a' } },
  'tools/call ': { name: 'routed', arguments: { region: 'us' } },
  'prompts/get ': { name: 'greet', arguments: { name: 'Ann' }, requestState: 'v1.x', inputResponses: { k: { action: 'accept', content: { x: 1 } } } }
}

/** Puts junk into every place of a message, and tells what was answered wrongly. */
async function problemsOf (app: Served, message: { method: string }, headers: Headers): Promise<string[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: 4 })
  const problems: string[] = []
  for (const path of places(message)) {
    await Promise.all(junkFor(message.method, path).map(async (junk) => {
      const body = textOf(replaced(message, path, junk))
      const answer = await send(app.url, { headers: { 'content-type': 'application/json', accept: 'application/json', ...headers }, body, agent })
      const problem = problemOf(answer, path[0] === 'id' ? idOf(body) : 'id')
      if (problem !== undefined) problems.push(`${path.join('.')} = ${textOf(junk).slice(0, 40)}: ${problem}: ${answer.text.slice(0, 200)}`)
    }))
  }
  agent.destroy()
  return problems
}

t.test('junk in every place of every message of the handshake era', async (t) => {
  const app = await serveKit(t)
  for (const [method, params] of Object.entries({ ...both, ...handshakeOnly })) {
    const session = await handshake(app)
    t.same(await problemsOf(app, request(method, { ...params, _meta: { progressToken: 't', x: 1 } }, 'id'), session.headers), [], method)
    t.equal((await session.post(request('ping', {}, 5))).text, '{"jsonrpc":"2.0","id":5,"result":{}}')
  }
  await alive(t, app)
})

t.test('junk in every place of every message of 2026', async (t) => {
  const app = await serveKit(t)
  const _meta = { progressToken: 't', 'io.modelcontextprotocol/logLevel': 'info', 'io.modelcontextprotocol/clientInfo': { name: 'x', version: '1' } }
  for (const [spelled, params] of Object.entries({ ...both, ...modernOnly })) {
    const method = spelled.trim()
    const name = (params as any).name ?? (params as any).uri
    t.same(await problemsOf(app, modern(method, { ...params, _meta }, 'id'), { ...modernHeaders(method, name), 'mcp-param-region': 'us' }), [], spelled)
  }
  await alive(t, app)
})

t.test('junk in a listen', async (t) => {
  const app = await serveKit(t)
  const message = modern('subscriptions/listen', { notifications: { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true, resourceSubscriptions: ['test://info'] } }, 'id')
  const problems: string[] = []
  for (const path of places(message)) {
    for (const junk of junkFor(message.method, path)) {
      const stream = await postStream(app, textOf(replaced(message, path, junk)), modernHeaders('subscriptions/listen'))
      if (stream.headers['content-type'] === 'text/event-stream') {
        const first = await stream.next()
        if (first.method !== 'notifications/subscriptions/acknowledged' && first.error?.code !== -32602) problems.push(`${path.join('.')} = ${textOf(junk).slice(0, 40)}: ${JSON.stringify(first)}`)
      } else if (![400, 404, 202].includes(stream.status)) {
        problems.push(`${path.join('.')} = ${textOf(junk).slice(0, 40)}: ${stream.status}`)
      }
      stream.leave()
    }
  }
  t.same(problems, [])
  await eventually(async () => await connections(app) === 0)
  await alive(t, app)
})

t.test('the whole message, and batches of it', async (t) => {
  const app = await serveKit(t)
  const sessions = [await handshake(app, '2025-03-26'), await handshake(app)]
  for (const session of sessions) {
    for (const junk of [...LIGHT, ...HEAVY]) {
      for (const body of [junk, [junk], [junk, request('ping', {}, 1), junk]]) {
        const answer = await session.post(textOf(body), { accept: 'application/json' })
        t.ok([200, 202, 400].includes(answer.status), `${answer.status} ${textOf(body).slice(0, 30)}`)
        for (const one of answer.messages.flat()) t.ok(one.result !== undefined || one.error.code === -32600, answer.text.slice(0, 200))
      }
    }
  }
  const [first] = sessions
  const many = await first!.post(Array(1001).fill(request('ping')))
  t.equal(many.text, '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: more than 1000 messages in a batch"}}')
  t.equal((await first!.post(Array(1000).fill(request('ping')))).json.length, 1000)
  await alive(t, app)
})

t.test('a mirror of what is too deep to be told', async (t) => {
  const app = await serveKit(t)
  for (const deep of ['@deep-array', '@deep-object']) {
    const body = textOf(modern('tools/call', { name: 'mirror', arguments: { deep } }))
    for (const accept of ['application/json', 'text/event-stream']) {
      const answer = await post(app, body, { ...modernHeaders('tools/call', 'mirror'), accept })
      t.equal(answer.status, 200)
      t.match(answer.messages[0].result, { isError: true, content: [{ text: 'Error executing tool mirror' }] })
    }
  }
  await alive(t, app)
})

t.test('keys that are prototypes elsewhere', async (t) => {
  const app = await serveKit(t)
  const proto = (text: string) => text.replaceAll('PROTO', '__proto__')
  for (const body of [
    '{"jsonrpc":"2.0","id":1,"method":"ping","PROTO":{"x":1}}', '{"PROTO":null}', '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x","PROTO":{"times":3}}}}',
    '[{"PROTO":1}]', '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"\\u005f_proto__":{}}}}'
  ]) {
    refused(t, await post(app, proto(body)), 400, { code: -32700, message: 'Parse error' })
  }
  const mirrored = await post(app, modern('tools/call', { name: 'mirror', arguments: { constructor: { prototype: { x: 1 } }, a: '__proto__', hasOwnProperty: 1 } }), { ...modernHeaders('tools/call', 'mirror'), accept: 'application/json' })
  t.equal(JSON.stringify(mirrored.json.result.structuredContent), '{"constructor":{"prototype":{"x":1}},"a":"__proto__","hasOwnProperty":1}', 'but for this one they are names like any other')
  t.equal(({} as any).x, undefined)
  await alive(t, app)
})

t.test('bytes that are no text, and text that begins with a mark', async (t) => {
  const app = await serveKit(t)
  const ping = JSON.stringify(request('ping', {}, 5))
  const around = (...bytes: number[]): Buffer => Buffer.concat([Buffer.from('{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"'), Buffer.from(bytes), Buffer.from('"}}')])
  const bad: Buffer[] = [
    around(0xff), around(0xc0, 0x80), around(0xed, 0xa0, 0x80), around(0xe2, 0x82), around(0xf5, 0x80, 0x80, 0x80), around(0x80), around(0), around(0x0a),
    Buffer.from(ping, 'utf16le'), Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(ping, 'utf16le')]), Buffer.from('\ufeff\ufeff' + ping), gzipSync(ping), Buffer.alloc(1000), Buffer.alloc(1000, 0xff)
  ]
  for (const body of bad) refused(t, await send(app.url, { headers: { 'content-type': 'application/json', accept: '*/*' }, body }), 400, { code: -32700, message: 'Parse error' })
  const session = await handshake(app)
  t.equal((await session.post('\ufeff' + ping)).text, '{"jsonrpc":"2.0","id":5,"result":{}}', 'one byte order mark is let go')
  for (const [sent, echoed] of [['"\\ud800"', '"\\ud800"'], ['"\\u0000"', '"\\u0000"'], ['"😀"', '"😀"'], ['1e2', '100'], ['-0', '0'], ['1.0', '1']]) {
    t.equal((await session.post(ping.replace('5', sent!))).text, `{"jsonrpc":"2.0","id":${echoed},"result":{}}`)
  }
  await alive(t, app)
})

t.test('lengths that lie', async (t) => {
  const app = await serveKit(t)
  const head = ['Content-Type: application/json', 'Accept: application/json']
  const ping = JSON.stringify(request('ping', {}, 5))

  const short = await raw(t, app, rawRequest(app, [...head, 'Content-Length: 10', 'Connection: keep-alive'], ping))
  t.match(short, /^HTTP\/1\.1 400 /, 'what is left over is no request: Node refuses it and closes')
  t.notMatch(short, ' 200 ')

  const long = await socketTo(t, app)
  long.write(rawRequest(app, [...head, `Content-Length: ${ping.length + 10}`], ping))
  long.end()
  let text = ''
  for await (const chunk of long) text += String(chunk)
  t.notMatch(text, ' 200 ', 'half a body is never served')

  for (const length of ['-1', 'x', '1e3', '0x10', '+5', '5, 6', '9'.repeat(30), '5 5', '']) {
    const { status } = parseRaw(await raw(t, app, rawRequest(app, [...head, `Content-Length: ${length}`], ping)))
    t.ok(status === 400 || status === 413, `${length}: ${status}`)
  }
  for (const lines of [[`Content-Length: ${ping.length}`, 'Content-Length: 5'], [`Content-Length: ${ping.length}`, 'Transfer-Encoding: chunked'], ['Transfer-Encoding: chunked', 'Transfer-Encoding: identity'], ['Transfer-Encoding: xchunked'], ['Transfer-Encoding: chunked, identity']]) {
    const { status } = parseRaw(await raw(t, app, rawRequest(app, [...head, ...lines], ping)))
    t.ok(status >= 400, `${lines.join(' + ')}: ${status}`)
  }
  await alive(t, app)
})

t.test('chunks that are none', async (t) => {
  const app = await serveKit(t)
  const head = ['Content-Type: application/json', 'Accept: application/json', 'Transfer-Encoding: chunked']
  const ping = JSON.stringify(request('ping', {}, 5))
  const size = ping.length.toString(16)
  for (const body of [`zz\r\n${ping}\r\n0\r\n\r\n`, `-5\r\n${ping}\r\n0\r\n\r\n`, `ffffffffffffffffff\r\n${ping}\r\n0\r\n\r\n`, `${size}\n${ping}\n0\n\n`, `1\r\n${ping}\r\n0\r\n\r\n`, `\r\n\r\n${ping}`]) {
    t.notMatch(await raw(t, app, rawRequest(app, head, body)), ' 200 ', JSON.stringify(body.slice(0, 20)))
  }
  refused(t, await rawAnswer(t, app, rawRequest(app, head, '0\r\n\r\n')), 400, { code: -32700, message: 'Parse error' })
  const extended = await rawAnswer(t, app, rawRequest(app, head, `${size};x=y\r\n${ping}\r\n0\r\nMcp-Session-Id: x\r\n\r\n`))
  refused(t, extended, 400, 'Bad Request: Mcp-Session-Id header is required', {})
  await alive(t, app)
})

t.test('half a request, and then nobody', async (t) => {
  const app = await serveKit(t)
  const whole = rawRequest(app, ['Content-Type: application/json', 'Accept: application/json, text/event-stream', 'Connection: keep-alive', ...Object.entries(modernHeaders('tools/call', 'slow')).map((line) => line.join(': '))], JSON.stringify(modern('tools/call', { name: 'slow' })))
  for (let at = 0; at < whole.length; at += 7) {
    const socket = await socketTo(t, app)
    socket.write(whole.subarray(0, at))
    if (at % 2 === 0) socket.destroy()
    else socket.resetAndDestroy()
  }
  const socket = await socketTo(t, app)
  socket.write(whole)
  socket.end()
  let text = ''
  for await (const chunk of socket) text += String(chunk)
  t.match(text, '"done"', 'who has said all and waits is answered')
  await eventually(async () => await connections(app) === 0)
  await alive(t, app)
})

t.test('heads that are none, too large, or try to be two', async (t) => {
  const app = await serveKit(t)
  const ping = JSON.stringify(request('ping', {}, 5))
  const head = ['Content-Type: application/json', 'Accept: application/json']
  const refusedByNode = [
    'GARBAGE\r\n\r\n', 'POST /mcp\r\n\r\n', 'POST /mcp HTTP/9.9\r\n\r\n', 'BREW /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n', '\u0016\u0003\u0001\u0002\u0000\u0001', 'POST /mcp HTTP/1.1\r\nno colon\r\n\r\n',
    `POST /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Method: a\u0000b\r\nContent-Length: ${ping.length}\r\n\r\n${ping}`, 'POST /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Name : x\r\n\r\n'
  ]
  for (const text of refusedByNode) t.ok([400, 421].includes(parseRaw(await raw(t, app, Buffer.from(text, 'latin1'))).status), JSON.stringify(text.slice(0, 30)))
  t.equal(parseRaw(await raw(t, app, rawRequest(app, [...head, `Mcp-Name: ${'x'.repeat(20_000)}`], ping))).status, 431)
  t.equal(parseRaw(await raw(t, app, rawRequest(app, [...head, ...Array.from({ length: 3000 }, (_, at) => `X-H${at}: y`)], ping))).status, 431)
  t.equal(parseRaw(await raw(t, app, `POST /mcp?${'x'.repeat(20_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`)).status, 431)

  // What is echoed of a header is inside JSON, and cannot become a header.
  const echo = await rawAnswer(t, app, rawRequest(app, [...head, 'MCP-Protocol-Version: 2099"}\\r\\nSet-Cookie: a=b'], ping))
  refused(t, echo, 400, 'Unsupported MCP-Protocol-Version: 2099"}\\r\\nSet-Cookie: a=b')
  t.notOk('set-cookie' in echo.headers)
  const latin = await rawAnswer(t, app, rawRequest(app, [...head, 'MCP-Protocol-Version: \u00e9\u00ff'], ping))
  refused(t, latin, 400, 'Unsupported MCP-Protocol-Version: \u00e9\u00ff')
  const method = 'x\r\nSet-Cookie: a=b'
  const named = await post(app, modern(method), { ...modernHeaders('x') })
  refused(t, named, 400, { id: 1, code: -32020, message: "Mcp-Method header does not match the request body's method" })

  const wide = 'x'.repeat(10_000)
  for (const name of ['Accept', 'Mcp-Session-Id', 'Mcp-Method', 'Last-Event-ID', 'Authorization', 'MCP-Protocol-Version', 'Origin', 'X-Forwarded-For', 'Cookie', 'Content-Type']) {
    for (const value of [wide, ','.repeat(10_000), ';'.repeat(10_000), '; q='.repeat(2500), `${' '.repeat(9000)}x`, '"'.repeat(9999), '*/*,'.repeat(2500), '%'.repeat(10_000)]) {
      const began = performance.now()
      const { status } = parseRaw(await raw(t, app, rawRequest(app, [...name === 'Content-Type' ? [] : [head[0]!], ...name === 'Accept' ? [] : [head[1]!], `${name}: ${value}`], ping)))
      t.ok([400, 403, 404, 406, 415].includes(status) && performance.now() - began < 1000, `${name}: ${value.slice(0, 10)}: ${status}`)
    }
  }
  await alive(t, app)
})

t.test('targets and upgrades that are not ours', async (t) => {
  const app = await serveKit(t)
  const ping = JSON.stringify(request('ping', {}, 5))
  const head = ['Content-Type: application/json', 'Accept: application/json']
  for (const target of ['/mcp%00', '/mcp%2F', '/MCP', '//mcp', '/./mcp/../x', '/mcp/%', '/mcp%', '/%6dcp%zz', '/mcp;x', '/mcp\\']) {
    const { status } = parseRaw(await raw(t, app, rawRequest(app, head, ping, `POST ${target} HTTP/1.1`)))
    t.ok([400, 404].includes(status), `${target}: ${status}`)
  }
  for (const target of ['*', 'localhost:80']) t.ok(parseRaw(await raw(t, app, rawRequest(app, head, ping, `POST ${target} HTTP/1.1`))).status >= 400, target)
  for (const lines of [['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Key: x'], ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: x'], ['Expect: 100-continue'], ['Expect: nonsense'], ['TE: trailers', 'Connection: close, TE']]) {
    const text = await raw(t, app, rawRequest(app, [...head, ...lines, ...lines.some((line) => line.startsWith('Connection')) ? [] : ['Connection: close']], ping), /"error"|HTTP\/1\.1 4\d\d/)
    t.match(text, /HTTP\/1\.1 4\d\d/, lines.join(' '))
  }
  const large = await raw(t, app, rawRequest(app, [...head, 'Expect: 100-continue', 'Content-Length: 99999999']))
  t.match(large, /413/)
  await alive(t, app)
})

t.test('garbage between good requests on one socket', async (t) => {
  const app = await serveKit(t)
  const lines = ['Content-Type: application/json', 'Accept: application/json', 'Connection: keep-alive', ...Object.entries(modernHeaders('server/discover')).map((line) => line.join(': '))]
  const good = rawRequest(app, lines, JSON.stringify(modern('server/discover')))
  const bad = rawRequest(app, lines, '{"nope')
  const last = rawRequest(app, lines.map((line) => line.replace('keep-alive', 'close')), '[]')
  const text = await raw(t, app, Buffer.concat([good, bad, good, bad, last]))
  t.same(text.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 200', 'HTTP/1.1 400', 'HTTP/1.1 200', 'HTTP/1.1 400', 'HTTP/1.1 400'])
  await alive(t, app)
})

t.test('a flood of clients that write and leave', async (t) => {
  const app = await serveKit(t)
  const session = await handshake(app)
  const bodies = ['{', JSON.stringify(initialize()), JSON.stringify(INITIALIZED), JSON.stringify(modern('tools/list')), JSON.stringify({ jsonrpc: '2.0', method: 'x', params: { _meta: ENV } }), 'x'.repeat(100_000)]
  await Promise.all(Array.from({ length: 120 }, async (_, at) => {
    const socket = await socketTo(t, app)
    socket.write(rawRequest(app, ['Content-Type: application/json', `Mcp-Session-Id: ${session.id}`, 'Connection: keep-alive'], bodies[at % bodies.length]!))
    if (at % 3 === 0) await once(socket, 'data').catch(() => {})
    socket.resetAndDestroy()
  }))
  await eventually(async () => await connections(app) === 0)
  t.equal((await session.post(request('ping', {}, 5))).text, '{"jsonrpc":"2.0","id":5,"result":{}}')
  await alive(t, app)
})

t.test('nothing was left unhandled', async (t) => {
  t.same(failures, [])
})
