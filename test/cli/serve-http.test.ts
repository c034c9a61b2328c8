// serve --transport http | sse: a server of its own, with what a plugin cannot set, and the options on their way to the plugin.

import { readFile, stat } from 'node:fs/promises'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import type { Test } from 'tap'
import { RedisServer, withoutRedis } from '../backplane/redis-server.js'
import { INITIALIZED, initialize, modern, modernHeaders, request } from '../kit.js'
import { handshake, openStream, parseRaw, post, postModern, refused, send } from '../http/client.js'
import { directory, INVENTORY, LAYER, serve } from './command.js'
import type { HttpServer } from './command.js'

async function raw (t: Test, { origin }: HttpServer): Promise<Socket> {
  const socket = connect(Number(new URL(origin).port), '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.on('error', () => {})
  await new Promise<void>((resolve, reject) => { socket.once('connect', resolve).once('error', reject) })
  return socket
}

function read (socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    let text = ''
    socket.setEncoding('utf8').on('data', (chunk: string) => { text += chunk }).once('close', () => resolve(text))
  })
}

t.test('by default', async (t) => {
  const server = await serve(t)

  await t.test('it says in one line where it is and how to connect', async (t) => {
    t.match(server.banner, /^cloudg-mcp: serving http:\/\/127\.0\.0\.1:\d+\/mcp - connect with: claude mcp add --transport http cloudg http:\/\/127\.0\.0\.1:\d+\/mcp\n$/)
    t.match((await postModern(server, 'tools/call', { name: 'count_assets', arguments: { group_by: 'provider' } })).messages[0].result, { structuredContent: { total: 44 } })
    t.same((await send(`${server.origin}/healthz`, { method: 'GET' })).json, { status: 'ok' })
    t.equal((await send(`${server.origin}/sse`, { method: 'GET' })).status, 404)
  })

  await t.test('headers up to 64 KiB are read, and beyond that refused', async (t) => {
    t.equal((await send(`${server.origin}/healthz`, { method: 'GET', headers: { 'x-long': 'x'.repeat(60 * 1024) } })).status, 200)
    const socket = await raw(t, server)
    socket.write(`GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ${'x'.repeat(70 * 1024)}\r\n\r\n`)
    const { status, headers, body } = parseRaw(await read(socket))
    t.equal(status, 431)
    t.match(headers, { 'content-type': 'application/json', connection: 'close' })
    t.same(JSON.parse(body), { jsonrpc: '2.0', id: null, error: { code: -32600, message: 'Request headers too large' } })
  })

  await t.test('what is no HTTP is answered once', async (t) => {
    const socket = await raw(t, server)
    socket.write('\x00\x01 not http\r\n\r\n')
    const { status, body } = parseRaw(await read(socket))
    t.equal(status, 400)
    t.same(JSON.parse(body).error, { code: -32600, message: 'Malformed request' })
  })

  await t.test('the 513th connection is told that there are too many', async (t) => {
    const sockets = await Promise.all(Array.from({ length: 512 }, async () => raw(t, server)))
    refused(t, await send(`${server.origin}/healthz`, { method: 'GET' }), 503, 'Too many connections', { connection: 'close', 'retry-after': '10' })
    const closed = read(sockets[0]!)
    sockets[0]!.end()
    await closed
    sockets[1]!.write('GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n')
    t.match(await read(sockets[1]!), /^HTTP\/1\.1 200 /, 'those before it are served')
    t.equal((await send(`${server.origin}/healthz`, { method: 'GET' })).status, 200)
  })

  t.equal(server.stderr, '')
  t.same(await server.stop('SIGINT'), { code: 0, signal: null })
})

t.test('with tokens, a log, an audit trail, and old clients', async (t) => {
  const file = join(await directory(t), 'audit.jsonl')
  const server = await serve(t, ['--transport', 'sse', '--auth-token', 's3cret:analyst:alice', '--path', '/api/mcp', '--audit-log', file, '--log-level', 'debug', LAYER])
  const mcp = { url: `${server.origin}/api/mcp` }
  const authorization = 'Bearer s3cret'
  t.match(server.banner, /serving (http:\/\/127\.0\.0\.1:\d+\/sse) - connect with: claude mcp add --transport sse noisy \1 --header "Authorization: Bearer <token>"\n$/)
  t.equal((await post(mcp, initialize())).status, 401)
  t.match((await postModern(mcp, 'tools/call', { name: 'whoami', arguments: {} }, { authorization })).messages[0].result.structuredContent, { id: 'alice', roles: ['default', 'analyst'] })

  const legacy = await fetch(`${server.origin}/sse`, { headers: { authorization } })
  const [first, rest] = legacy.body!.pipeThrough(new TextDecoderStream()).tee()
  const { value = '' } = await first.getReader().read()
  const endpoint = /data: (\S+)/.exec(value)![1]!
  for (const body of [initialize(), INITIALIZED]) t.equal((await send(server.origin + endpoint, { headers: { 'content-type': 'application/json', authorization }, body })).status, 202)

  await t.test('SIGTERM lets calls finish, ends streams, and ends it with exit code 0', async (t) => {
    const session = await handshake(mcp, undefined, { headers: { authorization } })
    const stream = await session.get()
    const unused = read(await raw(t, server))
    const running = await openStream(mcp.url, {
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', authorization, ...modernHeaders('tools/call', 'slow') },
      body: modern('tools/call', { name: 'slow', arguments: { steps: 20 }, _meta: { progressToken: 1 } })
    })
    t.match(await running.next(), { method: 'notifications/progress', params: { progress: 1 } })
    const stopped = server.stop('SIGTERM')
    t.match((await running.ended).split('\n').filter((line) => line.startsWith('data: ')).at(-1), '"done":20')
    await stream.ended
    let text = ''
    for await (const chunk of rest) text += chunk
    t.match(text, /^event: endpoint\n[^]*"id":"init"/)
    t.equal(await unused, '')
    t.same(await stopped, { code: 0, signal: null })
  })

  await t.test('every call is in the audit trail, the last ones too', async (t) => {
    const lines = (await readFile(file, 'utf8')).trimEnd().split('\n').map((line) => JSON.parse(line))
    t.match(lines, [
      { event: 'mcp.call', kind: 'tool', name: 'whoami', principal: { id: 'alice' }, outcome: 'ok', argument_keys: [] },
      { event: 'mcp.call', kind: 'tool', name: 'slow', principal: { id: 'alice' }, outcome: 'ok', argument_keys: ['steps'] }
    ])
    t.equal((await stat(file)).mode & 0o777, 0o600)
  })

  t.match(server.stderr, '"msg":"incoming request"')
  t.match(server.stderr, 'session_id=***')
  t.notMatch(server.stderr, /session_id=(\w+)/.exec(endpoint)![1]!)
  t.notMatch(server.stderr, 's3cret')
})

t.test('it warns where anybody may call', async (t) => {
  const server = await serve(t, ['--host', '0.0.0.0', '--stateless'])
  t.match(server.banner, /serving http:\/\/localhost:\d+\/mcp /)
  t.match(server.stderr, /^cloudg-mcp: warning: anybody who reaches 0\.0\.0\.0 can use this server: give --auth-token$/m)
  const url = server.url.replace('localhost', '127.0.0.1')
  const initialized = await post({ url }, initialize())
  t.equal(initialized.status, 200)
  t.notOk('mcp-session-id' in initialized.headers, '--stateless')
  t.equal((await post({ url }, request('ping'))).status, 200)
})

t.test('the options of the guard and of CORS', async (t) => {
  const server = await serve(t, ['--host', '0.0.0.0', '--auth-token', 's3cret', '--allowed-host', '127.0.0.1', '--allowed-host', '*.example.com',
    '--allowed-origin', 'https://a.example', '--allowed-origin', 'https://b.example', '--cors-origin', 'https://page.example'])
  t.notMatch(server.stderr, /warning/)
  const url = server.url.replace('localhost', '127.0.0.1')
  const ask = (headers: Record<string, string>) => post({ url }, initialize(), { authorization: 'Bearer s3cret', ...headers })
  t.equal((await ask({ host: 'mcp.example.com' })).status, 200)
  t.equal((await ask({ host: 'localhost' })).status, 421)
  for (const origin of ['https://a.example', 'https://b.example', 'https://page.example']) t.equal((await ask({ origin })).status, 200)
  t.equal((await ask({ origin: 'https://c.example' })).status, 403)
  t.equal((await ask({ origin: 'https://page.example' })).headers['access-control-allow-origin'], 'https://page.example')
})

t.test('--dataset, --json-response, --page-size and --max-sessions', async (t) => {
  const server = await serve(t, ['--dataset', `one=${INVENTORY}`, '--dataset', `two=${INVENTORY}`, '--json-response', '--page-size', '3', '--max-sessions', '1'])
  const answer = await postModern(server, 'tools/call', { name: 'workspace_status', arguments: {} })
  t.match(answer.headers['content-type'], /^application\/json/)
  t.match(answer.json.result.structuredContent, { default_dataset: 'one', datasets: [{ name: 'one' }, { name: 'two' }] })
  t.equal((await postModern(server, 'tools/list')).json.result.tools.length, 3)
  t.equal((await post(server, initialize())).status, 200)
  refused(t, await post(server, initialize()), 503, 'Too many sessions', { 'retry-after': '10' })
})

t.test('--redis: two processes serve the same session', { skip: withoutRedis }, async (t) => {
  const redis = await RedisServer.start()
  t.teardown(() => redis.close())
  const args = ['--redis', redis.url, '--transport', 'sse', LAYER]
  const [first, second] = [await serve(t, args), await serve(t, args)]
  const session = await handshake({ url: `${first.origin}/mcp` })
  const answer = await post({ url: `${second.origin}/mcp` }, request('tools/list'), session.headers)
  t.equal(answer.status, 200)
  t.match(answer.messages[0].result.tools, [{ name: 'echo' }])

  // The stream of an old client at one, its messages to the other.
  const controller = new AbortController()
  const stream = await fetch(`${first.origin}/sse`, { signal: controller.signal })
  let text = ''
  const arrived = (what: string) => new Promise<void>((resolve) => { waiting.push({ what, resolve }) })
  const waiting: { what: string, resolve: () => void }[] = []
  const look = (): void => { for (const { what, resolve } of waiting) if (text.includes(what)) resolve() }
  const reading = (async () => {
    for await (const chunk of stream.body!.pipeThrough(new TextDecoderStream())) {
      text += chunk
      look()
    }
  })().catch(() => {})
  const until = async (what: string): Promise<void> => {
    const here = arrived(what)
    look()
    await here
  }
  await until('\n\n')
  const endpoint = second.origin + /data: (\S+)/.exec(text)![1]!
  for (const body of [initialize(), INITIALIZED, request('tools/call', { name: 'whoami', arguments: {} }, 'who')]) {
    t.equal((await send(endpoint, { headers: { 'content-type': 'application/json' }, body })).status, 202)
  }
  await until('"id":"who"')
  t.match(text, /"id":"init"[^]*"transport":"sse"/)
  controller.abort()
  await reading
  for (const server of [first, second]) t.same(await server.stop(), { code: 0, signal: null })
})
