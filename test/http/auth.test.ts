// Static bearer tokens and principals: specs, who is let in, whose a session is, and what a handler gets to know.

import t from 'tap'
import { parseTokenSpec, TokenAuth, UNAUTHORIZED } from '../../lib/auth/index.js'
import type { Authenticator } from '../../lib/auth/index.js'
import { anonymous, bearerToken, defaultResolver, localUser, principal } from '../../lib/principal.js'
import { createKit, initialize, modern, request } from '../kit.js'
import { captureLog, handshake, JSON_ONLY, post, postModern, rawAnswer, rawRequest, refused, send, serve, SSE_ONLY } from './client.js'

const PING = request('ping', undefined, 5)
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const CHALLENGE = { 'www-authenticate': 'Bearer realm="cloudg-mcp"' }

/** A kit with a tool that says who calls it. */
function whoKit () {
  const kit = createKit()
  kit.layer.tool('who', {}, (_args, { principal: { id, roles, attributes } }) => ({ id, roles: [...roles].sort(), attributes: attributes ?? null }))
  return kit
}

async function whoami (target: { url: string }, headers: Record<string, string> = {}): Promise<any> {
  const answer = await postModern(target, 'tools/call', { name: 'who' }, { ...headers, ...JSON_ONLY as Record<string, string> })
  return answer.json.result?.structuredContent
}

t.test('AU-01 without a token that is known nobody gets in', async (t) => {
  const app = await serve(t, { auth: { tokens: ['s3cret:analyst:alice'] } })
  const session = await handshake(app, '2025-11-25', { headers: bearer('s3cret') })
  const wrong: (string | undefined)[] = [undefined, '', 'Bearer', 'Bearer ', 'Bearer wrong', 'Bearer s3cret:analyst:alice', 'Bearer s3cre', 'Bearer s3crett', 'Basic czNjcmV0', 's3cret', 'Bearers3cret', 'Bearer  ', 'Bearer s3cret s3cret']
  for (const authorization of wrong) {
    const headers = { ...session.headers, authorization } as Record<string, string>
    if (authorization === undefined) delete headers['authorization']
    for (const answer of [
      await post(app, PING, headers),
      await post(app, initialize(), headers),
      await post(app, modern('tools/list'), headers),
      await post(app, '{not json', headers),
      await post(app, PING, { ...headers, 'content-type': 'text/plain' }),
      await send(app.url, { method: 'GET', headers: { ...headers, ...SSE_ONLY } }),
      await send(app.url, { method: 'DELETE', headers }),
      await send(app.url, { method: 'PUT', headers })
    ]) refused(t, answer, 401, 'Unauthorized', CHALLENGE)
  }
  for (const authorization of ['Bearer s3cret', 'bearer s3cret', 'BEARER s3cret', 'Bearer   s3cret', 'Bearer s3cret  ']) t.equal((await session.post(PING, { authorization })).status, 200, authorization)
  t.equal((await send(app.url, { method: 'OPTIONS' })).status, 405, 'OPTIONS carries no credentials, so it is not asked for any')
})

t.test('a token is asked for before a body is read', async (t) => {
  const app = await serve(t, { auth: { tokens: ['s3cret'] }, maxBodyBytes: 100 })
  refused(t, await rawAnswer(t, app, rawRequest(app, ['Content-Type: application/json', 'Content-Length: 100000'])), 401, 'Unauthorized', CHALLENGE)
})

t.test('two different Authorization lines are refused, equal ones are one', async (t) => {
  const app = await serve(t, { auth: { tokens: ['s3cret', 'other'] } })
  const lines = ['Content-Type: application/json', 'Accept: application/json']
  const twice = (one: string, two: string) => rawAnswer(t, app, rawRequest(app, [...lines, `Authorization: Bearer ${one}`, `authorization: Bearer ${two}`], JSON.stringify(initialize())))
  refused(t, await twice('s3cret', 'other'), 400, 'Bad Request: authorization header appears more than once', { connection: 'close' })
  t.equal((await twice('s3cret', 's3cret')).status, 200)
})

t.test('AU-02 a session is its principal\'s, on every verb', async (t) => {
  const app = await serve(t, { auth: { tokens: ['a::alice', 'b::bob', 'a2:ops:alice'] } })
  const session = await handshake(app, '2025-11-25', { headers: bearer('a') })
  refused(t, await session.post(request('tools/list'), bearer('b')), 404, 'Session not found')
  refused(t, await session.end(bearer('b')), 404, 'Session not found')
  refused(t, await send(app.url, { method: 'GET', headers: { ...session.headers, ...bearer('b'), ...SSE_ONLY } }), 404, 'Session not found')
  t.equal((await session.post(PING)).status, 200, 'alice noticed nothing')
  t.equal((await session.post(PING, bearer('a2'))).status, 200, 'and is alice with any of her tokens')
})

t.test('AU-03 health is told without a token', async (t) => {
  const app = await serve(t, { auth: { tokens: ['s3cret'] } })
  const answer = await send(`${app.origin}/healthz`, { method: 'GET' })
  t.equal(answer.status, 200)
  t.equal(answer.text, '{"status":"ok"}')
})

t.test('AU-04 roles reach middleware and handlers, and are those of the request', async (t) => {
  const { layer } = whoKit()
  const seen: unknown[] = []
  layer.use(async ({ principal: { id, roles } }, next) => {
    seen.push([id, [...roles].sort()])
    return next()
  })
  const app = await serve(t, { layer, auth: { tokens: ['t1:analyst', 't2:ops,admin:alice', 't3:viewer:alice'] } })
  const id = `token-${(await import('node:crypto')).createHash('sha256').update('t1').digest('hex').slice(0, 8)}`
  t.same(await whoami(app, bearer('t1')), { id, roles: ['analyst', 'default'], attributes: { auth: 'bearer' } })
  t.same(await whoami(app, bearer('t2')), { id: 'alice', roles: ['admin', 'default', 'ops'], attributes: { auth: 'bearer' } })
  t.same(seen, [[id, ['analyst', 'default']], ['alice', ['admin', 'default', 'ops']]])
  const session = await handshake(app, '2025-11-25', { headers: bearer('t2') })
  const who = request('tools/call', { name: 'who' })
  t.same((await session.post(who)).messages[0].result.structuredContent.roles, ['admin', 'default', 'ops'])
  t.same((await session.post(who, bearer('t3'))).messages[0].result.structuredContent.roles, ['default', 'viewer'], 'another token, other roles')
})

t.test('a tool for some roles does not exist for others', async (t) => {
  const { layer } = createKit()
  layer.tool('audit', { roles: ['admin'] }, () => 'secret')
  const app = await serve(t, { layer, auth: { tokens: ['a:admin', 'b'] } })
  const names = async (token: string): Promise<string[]> => (await postModern(app, 'tools/list', {}, bearer(token))).json.result.tools.map(({ name }: any) => name)
  t.ok((await names('a')).includes('audit'))
  t.notOk((await names('b')).includes('audit'))
  t.same((await postModern(app, 'tools/call', { name: 'audit' }, bearer('b'))).messages[0].error, { code: -32602, message: 'Unknown tool: audit', data: { name: 'audit' } })
  t.same((await postModern(app, 'tools/call', { name: 'audit' }, bearer('a'))).messages[0].result.content, [{ type: 'text', text: 'secret' }])
})

t.test('AU-05 AU-06 AU-07 AU-09 AU-10 token specs', async (t) => {
  const env = { VAR: 'value', COLON: 'a:b' }
  const spec = (text: string) => {
    const { token, principal: { id, roles, attributes } } = parseTokenSpec(text, env)
    return { token, id, roles: [...roles].sort(), attributes }
  }
  const made = (token: string, id: string, ...roles: string[]) => ({ token, id, roles, attributes: { auth: 'bearer' } })
  t.same(spec('s3cret:analyst,admin:ci-bot'), made('s3cret', 'ci-bot', 'admin', 'analyst', 'default'), 'AU-05')
  t.same(spec('s3cret'), made('s3cret', 'token-1ec1c26b', 'default'), 'AU-06')
  t.same(spec('s3cret:analyst'), made('s3cret', 'token-1ec1c26b', 'analyst', 'default'))
  t.same(spec('s3cret::alice'), made('s3cret', 'alice', 'default'), 'AU-07')
  t.same(spec('abc:def::'), made('abc:def', 'token-ec595285', 'default'), 'a token with a colon in the full form')
  t.same(spec('abc:def:analyst:'), made('abc:def', 'token-ec595285', 'analyst', 'default'))
  t.same(spec('abc:def'), made('abc', 'token-ba7816bf', 'def', 'default'), 'the trap of a token with a colon')
  t.same(spec('a:b:c:analyst:svc'), made('a:b:c', 'svc', 'analyst', 'default'), 'AU-09')
  t.same(spec('s3cret: a , ,b :x'), made('s3cret', 'x', 'a', 'b', 'default'), 'roles are trimmed')
  t.same(spec('env:VAR:viewer'), made('value', 'token-cd42404d', 'default', 'viewer'), 'AU-10')
  t.same(spec('env:VAR::bot'), made('value', 'bot', 'default'))
  t.same(spec('env:COLON:viewer:bot'), made('a:b', 'bot', 'default', 'viewer'))
  for (const [text, message] of [
    ['env:UNSET', "Environment variable 'UNSET' for an auth token is empty"], ['env:', "Environment variable '' for an auth token is empty"],
    [':role', 'Empty auth token'], ['', 'Empty auth token'], ['::x', 'Empty auth token']
  ] as const) t.throws(() => spec(text), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION', message }, text)
})

t.test('AU-12 what a header stands for', async (t) => {
  const auth = new TokenAuth({ t1: 'analyst', t2: ['ops', 'analyst'], t3: { id: 'admin-1', roles: ['admin'] }, t4: principal({ id: 'p', roles: [] }), t5: { id: 'bare' } })
  const roles = (token: string): string[] => [...auth.lookup(token)!.roles].sort()
  t.equal(bearerToken('Basic dDE='), undefined)
  t.equal(bearerToken(undefined), undefined)
  t.equal(bearerToken('bearer  t1 '), 't1')
  t.same([roles('t1'), roles('t2'), roles('t3'), roles('t4'), roles('t5')], [['analyst', 'default'], ['analyst', 'default', 'ops'], ['admin'], [], []], 'a whole principal keeps exactly its roles')
  t.same(auth.authenticate({ authorization: 'Basic dDE=' }), UNAUTHORIZED)
  t.equal(auth.size, 5)
  const found = auth.lookup('t1')!;
  (found.roles as Set<string>).add('root')
  t.same(roles('t1'), ['analyst', 'default'], 'what is given out is a copy')
  auth.add('t1', 'late')
  t.same(roles('t1'), ['default', 'late'], 'the last entry of a token wins')
  t.throws(() => auth.add('', 'x'), { code: 'CLOUDG_MCP_ERR_INVALID_OPTION' })
})

t.test('AU-15 tokens that are not required make no difference but for those who have one', async (t) => {
  const { layer } = whoKit()
  const app = await serve(t, { layer, auth: { tokens: ['s3cret:analyst:alice'], required: false } })
  for (const headers of [{}, bearer('wrong'), { authorization: 'Basic x' }]) {
    t.same(await whoami(app, headers), { id: 'anonymous', roles: ['default'], attributes: null })
  }
  t.equal((await whoami(app, bearer('s3cret'))).id, 'alice')
  const anonymously = await handshake(app)
  refused(t, await anonymously.post(PING, bearer('s3cret')), 404, 'Session not found')
  const open = await serve(t, { layer, auth: { tokens: [] } })
  t.equal((await whoami(open)).id, 'anonymous', 'and no tokens at all are no authentication')
})

t.test('AU-16 who is believed to call: the authenticator, an access token, the local user, nobody', async (t) => {
  const who = principal({ id: 'p' })
  const accessToken = { clientId: 'c1', scopes: ['b', 'a'] }
  const http = { transport: 'http', headers: {} } as const
  t.equal(defaultResolver({ ...http, principal: who, accessToken }), who)
  t.same(defaultResolver({ ...http, accessToken }), { id: 'c1', roles: new Set(['default', 'a', 'b']), scopes: new Set(['a', 'b']), attributes: { auth: 'oauth', scopes: ['a', 'b'] } })
  t.equal(defaultResolver({ ...http, accessToken: {} }).id, 'oauth-client')
  t.equal(defaultResolver({ transport: 'stdio', headers: {}, accessToken }).id, 'c1')
  t.equal(defaultResolver({ transport: 'stdio', headers: {} }), localUser)
  t.equal(defaultResolver({ transport: 'memory', headers: {} }), localUser)
  t.equal(defaultResolver(http), anonymous)
  t.equal(defaultResolver({ transport: 'sse', headers: {} }), anonymous)
})

t.test('a resolver sees the request and has the last word; nothing said or a throw leave it to the built-in one', async (t) => {
  const { layer } = whoKit()
  const infos: any[] = []
  const log = captureLog()
  const app = await serve(t, {
    layer,
    auth: { tokens: ['a:x:alice'] },
    principalResolver (info) {
      infos.push(info)
      const as = info.headers['x-as']
      if (as === 'throw') throw new Error('resolver secret')
      return typeof as === 'string' ? principal({ id: as, roles: ['chosen'] }) : undefined
    }
  }, { loggerInstance: log.logger })
  t.same(await whoami(app, { ...bearer('a'), 'x-as': 'carol' }), { id: 'carol', roles: ['chosen'], attributes: null })
  t.equal((await whoami(app, bearer('a'))).id, 'alice')
  t.equal((await whoami(app, { ...bearer('a'), 'x-as': 'throw' })).id, 'alice')
  t.same(log.of('error'), ['the principalResolver failed; the built-in one decides'])
  t.match(infos[0], { transport: 'http', headers: { 'x-as': 'carol' }, principal: { id: 'alice' } })
  t.equal(infos[0].raw.method, 'POST', 'with the request of the framework')
  const carols = await handshake(app, '2025-11-25', { headers: { ...bearer('a'), 'x-as': 'carol' } })
  refused(t, await carols.post(PING, { 'x-as': 'dave' }), 404, 'Session not found')
  t.equal((await carols.post(PING)).status, 200)
})

t.test('anything that turns credentials into principals can be given', async (t) => {
  const { layer } = whoKit()
  const authenticator: Authenticator = {
    async authenticate ({ authorization, headers }) {
      if (headers['x-key'] === 'weak') return { status: 403, message: 'Forbidden', headers: { 'www-authenticate': 'Bearer error="insufficient_scope"' } }
      return authorization === undefined ? undefined : principal({ id: authorization })
    }
  }
  const app = await serve(t, { layer, auth: authenticator })
  t.equal((await whoami(app, { authorization: 'X' })).id, 'X')
  t.equal((await whoami(app)).id, 'anonymous')
  refused(t, await post(app, PING, { 'x-key': 'weak' }), 403, 'Forbidden', { 'www-authenticate': 'Bearer error="insufficient_scope"' })
})
