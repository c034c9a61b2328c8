// Handshake sessions as they fail in the field: ids that are gone, clients that never say goodbye, callers who are not the owner.

import t from 'tap'
import type { Authenticator } from '../../lib/auth/index.js'
import { UNAUTHORIZED } from '../../lib/auth/index.js'
import type { Backplane } from '../../lib/backplane/index.js'
import { memoryBackplane } from '../../lib/backplane/memory.js'
import { bearerToken, principal } from '../../lib/principal.js'
import type { PrincipalSpec } from '../../lib/principal.js'
import { testBackplane } from '../backplane/shared.js'
import { createKit, initialize, INITIALIZED, modern, modernHeaders, request } from '../kit.js'
import { BOTH, Connection, gate, H, JSON_ONLY, PING, refused, serve } from './wire.js'

const NOT_FOUND = refused('Session not found')
const LIST = request('tools/list')
const TWO = { tokens: ['alice-token:analyst:alice', 'bob-token:analyst:bob'] }
const ALICE = { authorization: 'Bearer alice-token' }
const BOB = { authorization: 'Bearer bob-token' }
const kit = () => ({ layer: createKit().layer })

/** Tells when a session has ended, also of those that have ended already. */
function endings (backplane: Backplane): (id: string) => Promise<void> {
  const gates = new Map<string, { opened: Promise<void>, open: () => void }>()
  const of = (id: string) => {
    const known = gates.get(id) ?? gate<void>()
    gates.set(id, known)
    return known
  }
  backplane.onSignal(({ type, session }) => { if (type === 'ended') of(session).open() })
  return (id) => of(id).opened
}

t.test('SES-01 an unknown session is 404, a missing one 400', async (t) => {
  const service = await serve(t)
  const unknown = await service.post(PING, { 'Mcp-Session-Id': 'deadbeef' })
  t.equal(unknown.status, 404)
  t.match(unknown.headers['content-type'], /^application\/json\b/)
  t.same(unknown.json, NOT_FOUND)
  for (const headers of [{}, { 'Mcp-Session-Id': '' }]) {
    const missing = await service.post(PING, headers)
    t.equal(missing.status, 400)
    t.same(missing.json, refused('Bad Request: Mcp-Session-Id header is required'))
  }
})

t.test('SES-02 after a restart an old session is 404, never an outage', async (t) => {
  const first = await serve(t)
  const session = await first.connect()
  t.equal((await session.post(LIST)).status, 200)
  first.agent.destroy()
  await first.app.close()

  const second = await serve(t, {}, { port: first.port })
  const answer = await second.post(LIST, session.headers)
  t.equal(answer.status, 404)
  t.same(answer.json, NOT_FOUND)
  t.equal(answer.headers['retry-after'], undefined)
  t.notOk((await second.post(initialize(), session.headers)).headers['mcp-session-id'] === session.id, 'the client starts anew')
})

t.test('SES-03 every refusal has its status before a stream begins', async (t) => {
  const { layer } = createKit()
  const service = await serve(t, { layer, auth: TWO, maxBodyBytes: 4096 })
  const session = await service.connect(ALICE)
  const call = request('tools/call', { name: 'slow', arguments: {} }, 7)
  const refusals: [number, number, Record<string, string>, unknown][] = [
    [404, -32600, { ...ALICE, 'Mcp-Session-Id': 'gone' }, call],
    [400, -32600, { ...ALICE }, call],
    [421, -32600, { ...ALICE, 'Mcp-Session-Id': session.id, host: 'evil.example' }, call],
    [403, -32600, { ...ALICE, 'Mcp-Session-Id': session.id, origin: 'http://evil.example' }, call],
    [401, -32600, { 'Mcp-Session-Id': session.id }, call],
    [415, -32600, { ...ALICE, 'Mcp-Session-Id': session.id, 'content-type': 'text/plain' }, call],
    [406, -32600, { ...ALICE, 'Mcp-Session-Id': session.id, accept: 'text/html' }, call],
    [400, -32700, { ...ALICE, 'Mcp-Session-Id': session.id }, '{"jsonrpc":'],
    [413, -32600, { ...ALICE, 'Mcp-Session-Id': session.id }, { ...call, padding: 'x'.repeat(5000) }],
    [400, -32600, { ...ALICE, 'Mcp-Session-Id': session.id, 'MCP-Protocol-Version': '1999-01-01' }, call]
  ]
  for (const [status, code, headers, body] of refusals) {
    const answer = await service.send({ headers: { ...H, ...headers }, body })
    t.equal(answer.status, status, answer.text)
    t.match(answer.headers['content-type'], /^application\/json\b/)
    t.match(answer.json, { jsonrpc: '2.0', id: null, error: { code } })
  }
  t.equal((await session.post(call)).headers['content-type'], 'text/event-stream', 'while a good call streams')
})

t.test('SES-05 an initialize that still carries an old session id makes a new session', async (t) => {
  const service = await serve(t)
  const old = await service.connect()
  await old.delete()
  for (const id of ['gone', old.id, '']) {
    const answer = await service.post(initialize(), { 'Mcp-Session-Id': id })
    t.equal(answer.status, 200)
    t.match(answer.headers['mcp-session-id'], /^[0-9a-f]{32}$/)
    t.not(answer.headers['mcp-session-id'], id)
    t.equal(answer.json.result.protocolVersion, '2025-11-25')
  }
  const live = await service.connect()
  const again = await service.post(initialize(), live.headers)
  t.not(again.headers['mcp-session-id'], live.id, 'an id that lives is no reason either')
  t.equal((await live.post(LIST)).status, 200, 'and the older session goes on')
})

t.test('SES-06 a replica that does not know a session says 404 and makes none up', async (t) => {
  const [a, b] = [await serve(t, kit()), await serve(t, kit())]
  const session = await a.connect()
  for (const method of ['POST', 'GET', 'DELETE']) {
    const answer = await b.send({ method, headers: { ...H, 'Mcp-Session-Id': session.id }, body: method === 'POST' ? LIST : undefined })
    t.equal(answer.status, 404)
    t.same(answer.json, NOT_FOUND)
    t.equal(answer.headers['mcp-session-id'], undefined)
  }
  t.equal((await session.post(LIST)).status, 200)

  for (const replica of [a, b]) {
    const answer = await replica.post(modern('tools/list'), modernHeaders('tools/list'))
    t.equal(answer.json.result.tools.length, 8, 'a 2026 client may talk to any replica')
  }
  for (const replica of [await serve(t, { stateless: true, ...kit() }), await serve(t, { stateless: true, ...kit() })]) {
    t.equal((await replica.post(LIST)).json.result.tools.length, 8, 'a stateless one answers without a session')
    t.equal((await replica.post(LIST, { 'Mcp-Session-Id': session.id })).status, 200)
    t.equal((await replica.post(initialize())).headers['mcp-session-id'], undefined)
  }
})

t.test('SES-08 a session is ready when the first byte of its id leaves', async (t) => {
  const service = await serve(t, kit())
  const messages = [INITIALIZED, request('tools/list', {}, 2), request('prompts/list', {}, 3), request('resources/list', {}, 4)]
  for (let round = 0; round < 24; round++) {
    const opened = await service.open({ body: initialize() })
    const session = new Connection(service, opened.headers['mcp-session-id'] as string)
    const order = messages.map((_, at) => messages[(at + round) % 4]!)
    const answers = await Promise.all(order.map((message) => session.post(message)))
    t.same(answers.map(({ status }) => status), order.map((message) => message === INITIALIZED ? 202 : 200))
    t.ok(await opened.end())
  }
})

t.test('SES-09 sessions that nobody ends are reaped', async (t) => {
  const backplane = memoryBackplane()
  t.teardown(() => backplane.close())
  const all = gate()
  let ended = 0
  backplane.onSignal(({ type }) => { if (type === 'ended' && ++ended === 1000) all.open() })
  const service = await serve(t, { backplane, sessionIdleTimeout: 1000, maxSessionsPerPrincipal: 1000 })
  const ids: string[] = []
  for (let made = 0; made < 1000; made += 20) {
    const answers = await Promise.all(Array.from({ length: 20 }, () => service.post(initialize())))
    ids.push(...answers.map(({ headers }) => headers['mcp-session-id'] as string))
  }
  t.equal(new Set(ids).size, 1000)
  await all.opened
  t.equal(await backplane.countSessions(), 0)
  t.equal((await service.post(LIST, { 'Mcp-Session-Id': ids[999]! })).status, 404)
})

t.test('SES-09 a caller at its cap loses the session it has not used for longest, and is refused only when all are streaming', async (t) => {
  const service = await serve(t, { auth: TWO, maxSessionsPerPrincipal: 2, maxSessions: 4 })
  const [first, second] = [await service.connect(ALICE), await service.connect(ALICE)]
  t.equal((await first.post(PING)).status, 200, 'the first was used last')
  const third = await service.connect(ALICE)
  t.same([(await first.post(PING)).status, (await second.post(PING)).status], [200, 404])

  const streams = [await first.get(), await third.get()]
  const refusal = await service.post(initialize(), ALICE)
  t.equal(refusal.status, 503)
  t.equal(refusal.headers['mcp-session-id'], undefined)
  t.same(refusal.json, refused('Too many sessions for this caller'))
  t.ok(Number(refusal.headers['retry-after']) > 0)
  await service.connect(BOB)
  await service.connect(BOB)
  t.equal((await service.post(PING, third.headers)).status, 200, 'others fill their own share')
  streams[0]!.destroy()
})

t.test('SES-09 a refused initialize leaves nothing behind', async (t) => {
  const backplane = testBackplane()
  const service = await serve(t, { backplane, maxSessions: 1 })
  const bad = await service.post(request('initialize', { capabilities: {} }))
  t.equal(bad.headers['mcp-session-id'], undefined)
  t.equal(bad.json.error.code, -32602)
  t.equal(await backplane.countSessions(), 0)
  await service.connect()
  const full = await serve(t, { maxSessions: 1, maxSessionsPerPrincipal: 5 })
  await full.connect()
  const refusal = await full.post(initialize())
  t.equal(refusal.status, 503)
  t.same(refusal.json, refused('Too many sessions'))
})

t.test('SES-11 the end of a session ends its stream and its calls, and a lost socket holds nothing', async (t) => {
  const { layer, entered } = createKit()
  const backplane = memoryBackplane()
  t.teardown(() => backplane.close())
  const ended = endings(backplane)
  const service = await serve(t, { layer, backplane, sessionIdleTimeout: 1000, maxStreams: 1 })
  const session = await service.connect()
  const stream = await session.get()
  const began = entered('sleepy')
  const call = session.open(request('tools/call', { name: 'sleepy', arguments: {} }, 5))
  const ctx = await began
  t.equal((await session.delete()).status, 200)
  t.ok(await stream.end(), 'the stream ends with its terminating chunk')
  t.ok(ctx.signal.aborted)
  const answered = await call
  t.ok(await answered.end())
  t.same(answered.unread, [], 'an aborted call is not answered')

  // Its slot is free, though there is only one. This time the socket breaks.
  const second = await service.connect()
  const lost = await second.get()
  lost.destroy()
  await ended(second.id)
  t.equal(await backplane.countSessions(), 0)
  const third = await service.connect()
  t.equal((await third.get()).status, 200)
})

t.test('SES-11 a session with a live stream or a running call is not idle', async (t) => {
  const { layer, entered } = createKit()
  const backplane = memoryBackplane()
  t.teardown(() => backplane.close())
  const ended = endings(backplane)
  const service = await serve(t, { layer, backplane, sessionIdleTimeout: 800 })
  const streaming = await service.connect()
  const stream = await streaming.get()
  const calling = await service.connect()
  const began = entered('sleepy')
  const call = await calling.open(request('tools/call', { name: 'sleepy', arguments: {} }, 5))
  await began
  // Sessions that come later are reaped, one after the other: by then the first two are far over their time.
  await ended((await service.connect()).id)
  await ended((await service.connect()).id)
  t.same([(await streaming.post(PING)).status, (await calling.post(PING)).status], [200, 200])
  stream.destroy()
  call.destroy()
})

t.test('SES-13 another caller cannot tell a foreign session from an unknown one', async (t) => {
  const { layer } = createKit()
  const service = await serve(t, { layer, auth: TWO })
  const alice = await service.connect(ALICE)
  for (const method of ['POST', 'GET', 'DELETE']) {
    const ask = (id: string) => service.send({ method, headers: { ...H, ...BOB, 'Mcp-Session-Id': id }, body: method === 'POST' ? LIST : undefined })
    const [foreign, unknown] = [await ask(alice.id), await ask('0'.repeat(32))]
    t.equal(foreign.status, 404)
    t.same(foreign.json, NOT_FOUND)
    const plain = ({ date, 'keep-alive': _, ...rest }: Record<string, unknown>) => rest
    t.same([foreign.status, plain(foreign.headers), foreign.text], [unknown.status, plain(unknown.headers), unknown.text])
  }
  const batch = await service.post([LIST], { ...BOB, 'Mcp-Session-Id': alice.id })
  t.equal(batch.status, 404)
  const notification = await service.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }, { ...BOB, 'Mcp-Session-Id': alice.id })
  t.equal(notification.status, 404)
  t.equal((await alice.post(LIST)).json.result.tools.length, 8, 'its owner is not disturbed')
  t.equal((await alice.get()).status, 200)
})

t.test('SES-13 nor on the old transport', async (t) => {
  const service = await serve(t, { ...kit(), auth: TWO, sse: true })
  const stream = await service.open({ method: 'GET', path: '/sse', headers: { accept: 'text/event-stream', ...ALICE } })
  await stream.firstByte()
  const ask = (who: object, path = stream.endpoint!) => service.send({ path, headers: { ...H, ...who }, body: initialize('2024-11-05', 1) })
  const [foreign, unknown] = [await ask(BOB), await ask(BOB, `/messages/?session_id=${'0'.repeat(32)}`)]
  t.same([foreign.status, foreign.text], [404, JSON.stringify(NOT_FOUND)])
  t.same([unknown.status, unknown.text], [404, JSON.stringify(NOT_FOUND)])
  const id = new URL(stream.endpoint!, 'http://localhost').searchParams.get('session_id')!
  t.equal((await service.post(PING, { ...ALICE, 'Mcp-Session-Id': id })).status, 404, 'a session of one transport is none of the other')
  t.equal((await ask(ALICE)).status, 202)
  t.equal((await stream.next()).result.protocolVersion, '2024-11-05')
  stream.destroy()
})

t.test('SES-14 a session is bound to who calls, not to the token', async (t) => {
  const issued: Record<string, PrincipalSpec> = {
    'a-first': { id: 'a', identity: 'i|a', roles: ['viewer'] },
    'a-second': { id: 'a', identity: 'i|a', roles: ['admin'] },
    'a-elsewhere': { id: 'a', identity: 'j|a', roles: ['admin'] }
  }
  const auth: Authenticator = {
    async authenticate ({ authorization }) {
      const spec = issued[bearerToken(authorization) ?? '']
      return spec === undefined ? UNAUTHORIZED : principal(spec)
    }
  }
  const service = await serve(t, { auth })
  service.layer.tool('delete_all', { roles: ['admin'] }, () => 'done')
  service.layer.tool('look', {}, () => 'seen')
  const session = await service.connect({ authorization: 'Bearer a-first' })
  const names = async (token: string) => (await session.post(LIST, { authorization: `Bearer ${token}` })).json.result.tools.map(({ name }: { name: string }) => name)
  t.same(await names('a-first'), ['look'])
  t.same(await names('a-second'), ['delete_all', 'look'], 'the roles are those of the token that came with the request')
  t.same(await names('a-first'), ['look'], 'and only of that')
  const other = await session.post(LIST, { authorization: 'Bearer a-elsewhere' })
  t.equal(other.status, 404, 'the same subject of another issuer is another caller')
  t.equal((await session.post(LIST, { authorization: 'Bearer none' })).status, 401)
})

t.test('SES-16 a DELETE or GET without a body may name any content type', async (t) => {
  const service = await serve(t)
  const types: Record<string, string>[] = [
    { 'content-type': 'application/json' },
    { 'content-type': 'application/json', 'content-length': '0' },
    { 'content-type': 'text/plain' },
    {}
  ]
  for (const headers of types) {
    const session = await service.connect()
    const stream = await session.get(headers)
    t.equal(stream.status, 200)
    const answer = await session.delete(headers)
    t.equal(answer.status, 200)
    t.equal(answer.text, '')
    t.ok(await stream.end())
    t.equal((await session.delete(headers)).status, 404)
  }
})

t.test('SES-18 other verbs are 405 and a GET is never a status page', async (t) => {
  const service = await serve(t)
  const session = await service.connect()
  for (const method of ['PUT', 'PATCH', 'OPTIONS', 'TRACE']) {
    const answer = await service.send({ method, headers: session.headers })
    t.equal(answer.status, 405, method)
    t.equal(answer.headers.allow, 'GET, POST, DELETE')
    t.same(answer.json, refused('Method Not Allowed'))
  }
  const put = await service.send({ method: 'PUT', headers: { 'content-type': 'application/json' }, body: PING })
  t.equal(put.status, 405)
  for (const headers of [{ accept: 'application/json' }, { accept: 'application/json', ...session.headers }]) {
    const answer = await service.send({ method: 'GET', headers })
    t.equal(answer.status, 406)
    t.same(answer.json, refused('Not Acceptable: GET requires Accept: text/event-stream'))
  }
  for (const accept of [BOTH, 'text/event-stream', '*/*']) {
    const probe = await service.send({ method: 'GET', headers: { accept } })
    t.equal(probe.status, 405, 'there is no stream without a session')
    t.equal(probe.headers.allow, 'POST, DELETE')
    t.same(probe.json, refused('Method Not Allowed'))
  }
  t.equal((await service.post(PING, { ...JSON_ONLY, ...session.headers })).status, 200)
})
