// Who may call what: scopes and the step up to more of them, roles, allow(); sessions and streams that follow the current token.

import t from 'tap'
import { OAuthAuth } from '../../lib/auth/index.js'
import { createLayer, principal } from '../../lib/layer/index.js'
import type { AppLayer, LayerOptions } from '../../lib/layer/index.js'
import type { Principal } from '../../lib/principal.js'
import { bearerToken } from '../../lib/principal.js'
import { ProtocolServer } from '../../lib/protocol/server.js'
import { initialize, modern, modernHeaders, request } from '../kit.js'
import { H, refused, serve } from '../field/wire.js'
import type { Wire } from '../field/wire.js'
import { seconds, startIssuer } from './issuer.js'
import { openLegacy } from './legacy.js'

const AUD = 'https://h/mcp'
const DOCUMENT = 'resource_metadata="https://h/.well-known/oauth-protected-resource/mcp"'
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

/** One of each kind for everybody, with scopes, and with a role; they count how often they ran. */
function guardedLayer (options: Partial<LayerOptions> = {}): { layer: AppLayer, runs: () => number } {
  const layer = createLayer({ name: 'guarded', version: '1.0.0', ...options })
  let count = 0
  const run = <T>(value: T) => (): T => {
    count++
    return value
  }
  const complete = (): string[] => ['one', 'two']
  for (const [name, rules] of Object.entries({
    open: {},
    scoped: { scopes: ['files:read', 'files:write'] },
    role: { roles: ['ops'], scopes: ['files:read'] },
    picky: { allow: (who: Principal) => who.id === 'alice' }
  })) {
    layer.tool(name, rules, run({ ok: true }))
    layer.resource(`test://${name}`, rules, run('text'))
    layer.resourceTemplate(`test://${name}/{id}`, { ...rules, complete: { id: complete } }, run('text'))
    layer.prompt(name, { ...rules, arguments: { who: { required: false, complete } } }, run('Hello'))
  }
  return { layer, runs: () => count }
}

/** Everything that can be done to one primitive of each kind. */
const uses = (name: string): [method: string, params: Record<string, unknown>][] => [
  ['tools/call', { name, arguments: {} }],
  ['resources/read', { uri: `test://${name}` }],
  ['resources/read', { uri: `test://${name}/7` }],
  ['prompts/get', { name }],
  ['completion/complete', { ref: { type: 'ref/prompt', name }, argument: { name: 'who', value: '' } }],
  ['completion/complete', { ref: { type: 'ref/resource', uri: `test://${name}/{id}` }, argument: { name: 'id', value: '' } }]
]
const lists = [['tools/list', 'tools'], ['resources/list', 'resources'], ['resources/templates/list', 'resourceTemplates'], ['prompts/list', 'prompts']] as const

/** Sends it in both eras. */
async function inBoth (wire: Wire, method: string, params: Record<string, unknown>, token: string) {
  const session = await wire.connect(bearer(token))
  const { name, uri } = params as { name?: string, uri?: string }
  return [
    await session.post(request(method, params, 7)),
    await wire.post(modern(method, params, 7), { ...modernHeaders(method, name ?? uri), ...bearer(token) })
  ]
}

t.test('OA-02 a call that lacks a scope is told all that it takes, before anything is committed', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const { layer, runs } = guardedLayer()
  const service = await serve(t, { layer, publicUrl: 'https://h', auth: { oauth: { issuer: issuer.url } } })
  const poor = await issuer.sign({ scope: 'files:read' })
  const rich = await issuer.sign({ scope: 'files:read files:write' })

  for (const [method, params] of uses('scoped')) {
    for (const answer of await inBoth(service, method, params, poor)) {
      t.equal(answer.status, 403, method)
      t.match(answer.headers['content-type'], /^application\/json/, 'no stream was begun')
      t.equal(answer.headers['www-authenticate'],
        `Bearer error="insufficient_scope", error_description="Required scopes: files:read files:write", ${DOCUMENT}, scope="files:read files:write"`)
      t.same(answer.json, { jsonrpc: '2.0', id: 7, error: { code: -31001, message: 'Insufficient scope', data: { scopes: ['files:read', 'files:write'] } } })
    }
  }
  t.equal(runs(), 0)
  for (const [method, params] of uses('scoped')) {
    for (const answer of await inBoth(service, method, params, rich)) {
      t.equal(answer.status, 200)
      t.notOk(answer.reply.error ?? answer.reply.result.isError, method)
    }
  }
  for (const [method, key] of lists) {
    for (const answer of await inBoth(service, method, {}, poor)) t.match(JSON.stringify(answer.reply.result[key]), 'scoped', `${method} shows what a better token could do`)
  }

  const batch = await service.connect(bearer(poor), '2025-03-26')
  const both = await batch.post([request('tools/call', { name: 'open' }, 1), request('tools/call', { name: 'scoped' }, 2), request('prompts/get', { name: 'scoped' }, 3)])
  t.equal(both.status, 403, 'SEC-20 a batch is no way around it')
  t.same(both.json.id, null)
  t.match(both.headers['www-authenticate'], 'scope="files:read files:write"')
  t.equal((await batch.post([request('tools/call', { name: 'open' }, 1)])).status, 200)
})

t.test('what is hidden looks like what is missing, with or without scopes', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const options = { publicUrl: 'https://h', auth: { oauth: { issuer: issuer.url } } }
  const challenging = await serve(t, { layer: guardedLayer().layer, ...options })
  const hiding = await serve(t, { layer: guardedLayer({ scopes: 'hide' }).layer, ...options })
  const token = await issuer.sign({ sub: 'bob', scope: 'files:read' })
  const cases: [string, Wire, string][] = [
    ['a role', challenging, 'role'], ['allow()', challenging, 'picky'], ['a scope, hidden', hiding, 'scoped'], ['a role and a scope', hiding, 'role']
  ]
  for (const [what, wire, name] of cases) {
    for (const [at, [method, params]] of uses(name).entries()) {
      const missing = uses('nothing')[at]!
      const [found, absent] = [await inBoth(wire, method, params, token), await inBoth(wire, missing[0], missing[1], token)]
      for (const era of [0, 1]) {
        t.equal(found[era]!.status, absent[era]!.status)
        t.equal(found[era]!.text.replaceAll(name, '-'), absent[era]!.text.replaceAll('nothing', '-'), `${what}: ${method}`)
      }
    }
    for (const [method, key] of lists) {
      for (const answer of await inBoth(wire, method, {}, token)) t.notMatch(JSON.stringify(answer.reply.result[key]), new RegExp(`"${name}"|//${name}\\b`), `${what}: ${method}`)
    }
  }
  t.throws(() => createLayer({ name: 'x', version: '1', scopes: 'show' as 'hide' }), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION' })
})

t.test('without HTTP, and from within a call, a missing scope is a denied access', async (t) => {
  const { layer, runs } = guardedLayer()
  layer.tool('reads', {}, (_args, ctx) => ctx.readResource('test://scoped'))
  const server = new ProtocolServer(layer)
  t.teardown(() => server.close())
  const session = server.createSession({ principal: principal({ id: 'alice', scopes: ['files:read'] }) })
  await session.handle(initialize())
  for (const [method, params] of uses('scoped')) {
    const reply = await session.handle(request(method, params)) as any
    const told = reply.error ?? { code: reply.result._meta['cloudg/error_code'], message: reply.result.content[0].text }
    t.match(told, { code: -31001, message: 'Required scopes: files:read files:write' }, method)
  }
  t.match(await session.handle(request('tools/call', { name: 'reads' })), { result: { isError: true, _meta: { 'cloudg/error_code': -31001 } } })
  t.equal(runs(), 0)
})

t.test('static tokens have the scopes that they were given; who is anonymous is asked for a token first', async (t) => {
  const issuer = await startIssuer(t, AUD)
  const call = request('tools/call', { name: 'scoped' }, 1)
  const tokens = { rich: { id: 'rich', scopes: ['files:read', 'files:write'] }, poor: { id: 'poor' } }
  const fixed = await serve(t, { layer: guardedLayer().layer, auth: { tokens } })
  t.equal((await (await fixed.connect(bearer('rich'))).post(call)).status, 200)
  const denied = await (await fixed.connect(bearer('poor'))).post(call)
  t.equal(denied.status, 403)
  t.equal(denied.headers['www-authenticate'], 'Bearer error="insufficient_scope", error_description="Required scopes: files:read files:write", scope="files:read files:write"')

  const open = await serve(t, { layer: guardedLayer().layer, publicUrl: 'https://h', auth: { oauth: { issuer: issuer.url }, required: false } })
  const session = await open.connect()
  t.equal((await session.post(request('tools/call', { name: 'open' }))).status, 200)
  const asked = await session.post(call)
  t.equal(asked.status, 401)
  t.equal(asked.headers['www-authenticate'], `Bearer ${DOCUMENT}, scope="files:read files:write"`)
  const closed = await serve(t, { layer: guardedLayer().layer })
  t.equal((await (await closed.connect()).post(call)).status, 403, 'where there is no token to be had, none is asked for')
})

t.test('a session is its issuer\'s, subject\'s and client\'s; a new token of theirs keeps it, with the rights of that token', async (t) => {
  const [issuer, other] = [await startIssuer(t, AUD), await startIssuer(t, AUD)]
  const { layer } = guardedLayer()
  layer.tool('whoami', {}, (_args, ctx) => ({ id: ctx.principal.id, roles: [...ctx.principal.roles] }))
  const service = await serve(t, { layer, publicUrl: 'https://h', auth: { oauth: [{ issuer: issuer.url }, { issuer: other.url }], tokens: ['s3cret::alice'] } })
  const session = await service.connect(bearer(await issuer.sign({ scope: 'files:read' })))
  t.equal((await session.post(request('tools/call', { name: 'scoped' }))).status, 403)

  const refreshed = bearer(await issuer.sign({ scope: 'files:read files:write ops', jti: '2' }))
  t.equal((await session.post(request('tools/call', { name: 'scoped' }), refreshed)).status, 200)
  t.match((await session.post(request('tools/call', { name: 'whoami' }), refreshed)).reply.result.structuredContent, { id: 'alice', roles: ['default', 'files:read', 'files:write', 'ops'] })
  t.match((await session.post(request('tools/list'), refreshed)).text, '"role"', 'lists follow, too')
  t.notMatch((await session.post(request('tools/list'))).text, '"role"', 'and fall back with the old token')

  const strangers = {
    'another subject': await issuer.sign({ sub: 'bob' }),
    'another client': await issuer.sign({ client_id: 'other' }),
    'no client': await issuer.sign({ client_id: undefined }),
    'another issuer': await other.sign(),
    'a static token of the same name': 's3cret'
  }
  for (const [who, token] of Object.entries(strangers)) {
    for (const answer of [
      await session.post(request('ping'), bearer(token)),
      await session.delete(bearer(token)),
      await service.send({ method: 'GET', headers: { accept: 'text/event-stream', 'mcp-session-id': session.id, ...bearer(token) } })
    ]) {
      t.equal(answer.status, 404, who)
      t.same(answer.json, refused('Session not found'))
    }
  }
  t.equal((await session.delete(refreshed)).status, 200)
})

t.test('an open stream ends when its token does', async (t) => {
  // Credentials that end a moment after they were looked at, and some that do not.
  const authenticate = ({ authorization }: { authorization: string | undefined }): Principal =>
    principal({ id: 'alice', ...(bearerToken(authorization) === 'brief' && { expiresAt: Date.now() + 150 }) })
  const service = await serve(t, { layer: guardedLayer().layer, sse: true, auth: { authenticate } })
  const listen = (token: string) => service.open({
    body: modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'l'), headers: { ...H, ...modernHeaders('subscriptions/listen'), ...bearer(token) }
  })
  const session = await service.connect(bearer('brief'))
  const [standalone, listening, old, lasting] = await Promise.all([session.get(), listen('brief'), openLegacy(service.port, 'brief'), listen('long')])
  t.equal(await standalone.end(), true, 'the server ended it')
  t.match(await listening.next(), { method: 'notifications/subscriptions/acknowledged' })
  t.match(await listening.next(), { id: 'l', result: { resultType: 'complete' } })
  t.equal(await listening.end(), true)
  await old.ended()
  t.equal((await session.post(request('ping'), bearer('long'))).status, 200, 'the session waits for a new token')
  service.layer.notifyChanged('tools')
  await lasting.next()
  t.match(await lasting.next(), { method: 'notifications/tools/list_changed' })
  lasting.destroy()

  const issuer = await startIssuer(t, AUD)
  const exp = seconds(60)
  const token = await issuer.sign({ exp })
  for (const [options, expiresAt] of [[{}, exp * 1000 + 30_000], [{ clockTolerance: 0 }, exp * 1000], [{ expireStreams: false }, undefined]] as const) {
    const who = await new OAuthAuth({ issuer: issuer.url, ...options }).authenticate({ authorization: `Bearer ${token}`, resource: AUD }) as Principal
    t.equal(who.expiresAt, expiresAt, JSON.stringify(options))
  }
})
