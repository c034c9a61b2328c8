// Wrong tokens faster than any client would send them: their answers come later, one to a connection, and nobody else waits.

import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { text } from 'node:stream/consumers'
import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import type { Test } from 'tap'
import { createKit, modern, modernHeaders, request } from '../kit.js'
import { connections, eventually, parseRaw, POST, post, rawRequest, refused, serve, socketTo } from '../http/client.js'
import type { Served } from '../http/client.js'
import type { FastifyHttpOptions } from 'fastify'
import Fastify from 'fastify'
import type { Server } from 'node:http'
import cloudgMcp from '../../plugin.js'

const BODY = JSON.stringify(request('tools/list'))
const GOOD = { authorization: 'Bearer s3cret' }
const AT_ONCE = 200

type Service = Served & { requests: () => number }

async function service (t: Test, host: FastifyHttpOptions<Server> = {}): Promise<Service> {
  const served = await serve(t, { auth: { tokens: ['s3cret:user:alice'] } }, host)
  let requests = 0
  served.app.server.on('request', () => { requests++ })
  return { ...served, requests: () => requests }
}

function wrong (served: Served, count: number, headers: string[] = []): Buffer {
  return Buffer.concat(Array.from({ length: count }, (_, n) => rawRequest(served, [
    'Content-Type: application/json', 'Accept: application/json', `Authorization: Bearer wrong-${n}`, 'Connection: keep-alive', ...headers
  ], BODY)))
}

/** What there is of a budget, and what has come back of it with time. */
async function useUp (t: Test, served: Service, headers: string[] = []): Promise<void> {
  const socket = await socketTo(t, served)
  const before = served.requests()
  socket.write(wrong(served, 250, headers))
  // Not a moment later: it comes back.
  while (served.requests() < before + 250) await turn()
}

/** A caller who may is answered as ever. */
async function goodCall (t: Test, served: Served): Promise<void> {
  const { status } = await post(served, modern('tools/list'), { ...POST, ...modernHeaders('tools/list'), ...GOOD })
  t.equal(status, 200)
}

/** Everything that comes on a connection until it ends, as responses. */
function answersOn (socket: NodeJS.ReadableStream): Promise<ReturnType<typeof parseRaw>[]> {
  return text(socket).then((all) => all.split(/(?=HTTP\/1\.1 )/).map(parseRaw))
}

t.test('the answers come later, each ends its connection, and what was sent after it is not read', async (t) => {
  const served = await service(t)
  const first = await socketTo(t, served)
  const answers = answersOn(first)
  first.write(wrong(served, 300))
  await goodCall(t, served)
  refused(t, await post(served, request('tools/list'), POST), 401, 'Unauthorized')
  const got = await answers
  t.ok(got.length > AT_ONCE && got.length < 300, `${got.length} of 300 were answered`)
  for (const { status, headers, body } of got.slice(0, -1)) {
    if (status !== 401 || headers['connection'] === 'close' || JSON.parse(body).error.message !== 'Unauthorized') t.fail(`${status} ${body}`)
  }
  t.match(got.at(-1), { status: 401, headers: { connection: 'close', 'www-authenticate': 'Bearer' }, body: /Unauthorized/ })

  // What comes back of the budget with time is used up.
  const sockets = await Promise.all(Array.from({ length: 150 }, async () => socketTo(t, served)))
  const all = Promise.all(sockets.map(answersOn))
  await useUp(t, served)
  const before = served.requests()
  for (const socket of sockets) socket.write(wrong(served, 1))
  await eventually(() => served.requests() === before + 150)
  await goodCall(t, served)
  const later = served.requests()
  for (const socket of sockets) socket.write(wrong(served, 20))
  for (let calls = 0; calls < 5; calls++) await goodCall(t, served)
  const answered = await all
  t.ok(answered.every((given) => given.at(-1)!.headers['connection'] === 'close'))
  const slowed = answered.filter((given) => given.length === 1).length
  t.ok(slowed > 50, `${slowed} connections waited from their first request`)
  t.equal(served.requests() - later - 5, 20 * (150 - slowed), 'and nothing more was read from them')
  await goodCall(t, served)
})

t.test('what came behind it takes no memory for long, and hides nobody who leaves', async (t) => {
  const served = await service(t)
  // As small as a request can be, and many of them in what is read at once.
  const tiny = Buffer.from('POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'.repeat(1350))
  const sockets = await Promise.all(Array.from({ length: 8 }, async () => socketTo(t, served)))
  await useUp(t, served)
  const answers = await Promise.all(sockets.map(async (socket) => {
    let answer = ''
    socket.on('error', () => {}).on('data', (chunk) => { answer += String(chunk) })
    // What comes back of the budget meanwhile is less than this.
    socket.write(Buffer.concat([wrong(served, 40), tiny]))
    await once(socket, 'close')
    return answer
  }))
  const cut = answers.filter((answer) => !/connection: close/i.test(answer)).length
  t.ok(cut > 0 && cut < 8, `${cut} of 8 connections ended without a last answer`)

  const left = await socketTo(t, served)
  await useUp(t, served)
  left.write(Buffer.concat([
    rawRequest(served, ['Content-Type: application/json', 'Accept: text/event-stream', 'Authorization: Bearer s3cret', 'Connection: keep-alive', 'MCP-Protocol-Version: 2026-07-28', 'Mcp-Method: subscriptions/listen'],
      JSON.stringify(modern('subscriptions/listen', { notifications: { toolsListChanged: true } }))),
    wrong(served, 3)
  ]))
  await once(left, 'data')
  left.destroy()
  await eventually(async () => await connections(served) === 0)
  await goodCall(t, served)
})

t.test('other peers do not wait, nor do callers without a token', async (t) => {
  const served = await service(t, { trustProxy: true })
  const sockets = await Promise.all(Array.from({ length: 20 }, async () => socketTo(t, served)))
  await useUp(t, served, ['X-Forwarded-For: 192.0.2.1'])
  let over = 0
  const answers = Promise.all(sockets.map(async (socket) => answersOn(socket).then(() => { over++ })))
  for (const socket of sockets) socket.write(wrong(served, 1, ['X-Forwarded-For: 192.0.2.1']))
  for (let n = 0; n < 20; n++) {
    refused(t, await post(served, request('tools/list'), { ...POST, authorization: 'Bearer wrong', 'x-forwarded-for': '192.0.2.2' }), 401, 'Unauthorized')
    refused(t, await post(served, request('tools/list'), { ...POST, 'x-forwarded-for': '192.0.2.1' }), 401, 'Unauthorized')
  }
  t.equal(over, 0)
  for (const socket of sockets) socket.end()
  await answers
})

t.test('beyond a thousand that wait, and when the server closes, they go out at once', async (t) => {
  const { layer } = createKit()
  const app = Fastify()
  await app.register(cloudgMcp, { layer, auth: { tokens: ['s3cret:user:alice'] } })
  await app.ready()
  const counts = { keep: 0, close: 0 }
  const call = async (): Promise<void> => {
    const { statusCode, headers, json } = await app.inject({ method: 'POST', url: '/mcp', headers: { ...POST, host: '127.0.0.1', authorization: 'Bearer wrong' }, payload: BODY })
    if (statusCode !== 401 || json().error.message !== 'Unauthorized') t.fail(`status ${statusCode}`)
    counts[headers.connection === 'close' ? 'close' : 'keep']++
  }
  const all = Promise.all(Array.from({ length: 1700 }, call))
  await eventually(() => counts.close > 0)
  const { close } = counts
  await app.close()
  await all
  t.ok(counts.keep >= AT_ONCE && close > 0 && counts.close >= 1000 + close, `${counts.keep} at once, ${counts.close} late`)
})

t.test('over HTTP/2 the other requests of a connection go on', async (t) => {
  const { layer } = createKit()
  const app = Fastify({ http2: true })
  await app.register(cloudgMcp, { layer, auth: { tokens: ['s3cret:user:alice'] } } as never)
  const origin = await app.listen({ host: '127.0.0.1', port: 0 })
  t.teardown(async () => app.close())
  const client = connectHttp2(origin)
  t.teardown(() => client.close())
  const call = async (token: string, headers: Record<string, string>): Promise<number> => {
    const stream = client.request({ ':method': 'POST', ':path': '/mcp', ...POST, authorization: `Bearer ${token}`, ...headers })
    stream.end(JSON.stringify(modern('tools/list')))
    const status = new Promise<number>((resolve) => { stream.once('response', (given) => resolve(given[':status']!)) })
    await text(stream)
    return status
  }
  const all = Promise.all(Array.from({ length: 260 }, async () => call('wrong', {})))
  t.equal(await call('s3cret', modernHeaders('tools/list')), 200)
  t.ok((await all).every((status) => status === 401))
})
