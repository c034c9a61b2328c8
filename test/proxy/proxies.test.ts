// Behind nginx, haproxy and caddy as docs/behind-a-proxy.md sets them up: every event arrives when it is sent, clients find
// their way in, and nobody gets in by what they forward.

import type { Test } from 'tap'
import t from 'tap'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fastify from 'fastify'
import type { FastifyServerOptions } from 'fastify'
import { buildApp } from '../../examples/behind-nginx/app.js'
import { createLayer } from '../../lib/layer/index.js'
import { initialize, INITIALIZED, modern, modernHeaders, request } from '../kit.js'
import { gate, H, serve } from '../field/wire.js'
import type { Stream } from '../field/wire.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import cloudgMcp from '../../plugin.js'
import { startIssuer } from '../auth/issuer.js'
import type { TestIssuer } from '../auth/issuer.js'
import type { Kind, Proxy } from './proxy.js'
import { documented, missing, NAME, startProxy } from './proxy.js'

const MCP = `https://${NAME}/mcp`
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const TRUSTING = { fastify: { trustProxy: '127.0.0.1' } }

/** A tool that goes on when it is told to. */
function stepping () {
  const layer = createLayer({ name: 'stepping', version: '1.0.0' })
  let steps = [gate(), gate()]
  layer.tool('steps', {}, async (_args, ctx) => {
    const [first, second] = steps as [ReturnType<typeof gate>, ReturnType<typeof gate>]
    await ctx.progress(1, 2)
    await first.opened
    await ctx.progress(2, 2)
    await second.opened
    steps = [gate(), gate()]
    return { done: true }
  })
  return { layer, next: (step: 0 | 1) => steps[step]!.open() }
}

/** Reads a call of the tool: each event has to be here before the next one is made. */
async function follow (t: Test, stream: Stream, next: (step: 0 | 1) => void): Promise<void> {
  t.equal(stream.status, 200)
  t.match(await stream.next(), { method: 'notifications/progress', params: { progress: 1 } })
  next(0)
  t.match(await stream.next(), { method: 'notifications/progress', params: { progress: 2 } })
  next(1)
  t.match(await stream.next(), { result: { structuredContent: { done: true } } })
  t.equal(await stream.end(), true)
}

const STEPS = { name: 'steps', arguments: {}, _meta: { progressToken: 'p' } }

for (const kind of ['nginx', 'haproxy', 'caddy'] satisfies Kind[]) {
  t.test(`${kind}: every event at once, and the way in`, { skip: missing(kind) }, async (t) => {
    const issuer = await startIssuer(t, MCP)
    const { layer, next } = stepping()
    const service = await serve(t, { layer, allowedHosts: [NAME], auth: { oauth: { issuer: issuer.url } } }, TRUSTING)
    const plain = await startProxy(t, kind, { upstream: `127.0.0.1:${service.port}` })
    await findsTheWay(t, plain, issuer)
    const token = bearer(await issuer.sign())

    const squeezing = await startProxy(t, kind, { upstream: `127.0.0.1:${service.port}`, gzip: true })
    for (const [proxy, more] of [[plain, {}], [squeezing, { 'accept-encoding': 'gzip' }]] as const) {
      const headers = { ...token, ...more }
      const opened = await proxy.send('POST', '/mcp', { ...H, ...headers }, initialize())
      t.equal(opened.status, 200)
      const session = { ...headers, 'mcp-session-id': opened.headers['mcp-session-id']! }
      t.equal((await proxy.send('POST', '/mcp', { ...H, ...session }, INITIALIZED)).status, 202)
      const stream = await proxy.open('GET', '/mcp', session)
      await stream.firstByte()
      layer.notifyChanged('tools')
      t.match(await stream.next(), { method: 'notifications/tools/list_changed' })
      await follow(t, await proxy.open('POST', '/mcp', session, request('tools/call', STEPS, 2)), next)
      const call = await proxy.open('POST', '/mcp', { ...headers, ...modernHeaders('tools/call', 'steps') }, modern('tools/call', STEPS, 3))
      // nginx does not mind `no-transform`.
      if (kind === 'nginx') t.equal(call.headers['content-encoding'], proxy === squeezing ? 'gzip' : undefined)
      await follow(t, call, next)
      t.equal((await proxy.send('DELETE', '/mcp', session)).status, 200)
      t.equal(await stream.end(), true, 'the stream of an ended session ends, through the proxy too')
    }

    const listen = await plain.open('POST', '/mcp', { ...token, ...modernHeaders('subscriptions/listen') }, modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'l'))
    t.match(await listen.next(), { method: 'notifications/subscriptions/acknowledged' })
    listen.destroy()
    t.match(service.logs.filter(({ msg }) => /come through a proxy/.test(msg)), [{ host: NAME, forwardedHost: NAME, forwardedProto: 'https', msg: /set `publicUrl` to the URL/ }], 'said once')
  })
}

/** Nobody has told the service its URL: it comes from the Host and the proxy that is trusted. */
async function findsTheWay (t: Test, proxy: Proxy, issuer: TestIssuer): Promise<void> {
  const forged = { 'x-forwarded-host': 'evil.example', 'x-forwarded-proto': 'http', 'x-forwarded-for': '10.0.0.1' }
  for (const headers of [{}, forged]) {
    const challenge = await proxy.send('POST', '/mcp', { ...H, ...headers }, initialize())
    t.equal(challenge.status, 401)
    t.equal(challenge.headers['www-authenticate'], `Bearer resource_metadata="https://${NAME}/.well-known/oauth-protected-resource/mcp"`)
    const document = await proxy.send('GET', '/.well-known/oauth-protected-resource/mcp', headers)
    t.same(document.json, { resource: MCP, authorization_servers: [issuer.url], bearer_methods_supported: ['header'] })
  }
  const forBare = await proxy.send('POST', '/mcp', { ...H, ...bearer(await issuer.sign({ aud: `http://${NAME}/mcp` })) }, initialize())
  t.equal(forBare.status, 401, 'a token for http:// is for something else')
  const foreign = await proxy.send('POST', '/mcp', { ...H, origin: 'https://evil.example' }, initialize())
  t.equal(foreign.status, 403)
  t.equal((await proxy.send('POST', '/mcp', { ...H, origin: `https://${NAME}`, ...bearer(await issuer.sign()) }, initialize())).status, 200)
}

t.test('nginx: a Host that is not ours', { skip: missing('nginx') }, async (t) => {
  const service = await serve(t, { layer: stepping().layer, allowedHosts: [NAME] }, TRUSTING)
  const proxy = await startProxy(t, 'nginx', { upstream: `127.0.0.1:${service.port}` })
  t.equal((await proxy.send('POST', '/mcp', { ...H, host: 'evil.example' }, initialize())).status, 421)
  t.match(service.logs.at(-1), { host: 'evil.example', msg: /allowedHosts/ })
  t.equal((await proxy.send('POST', '/mcp', H, initialize())).status, 200)
})

t.test('nginx: a prefix that the proxy takes away, and two services behind it', { skip: missing('nginx') }, async (t) => {
  const issuer = await startIssuer(t, `https://${NAME}/services/orders/mcp`)
  const service = await serve(t, { layer: stepping().layer, publicUrl: `https://${NAME}/services/orders`, auth: { oauth: { issuer: issuer.url } } }, TRUSTING)
  const other = await serve(t, { layer: stepping().layer, publicUrl: `https://${NAME}`, auth: { oauth: { issuer: 'https://other.example' } } }, TRUSTING)
  const proxy = await startProxy(t, 'nginx', {
    upstream: `127.0.0.1:${other.port}`,
    locations: documented('nginx-prefix').replaceAll('http://mcp', `http://127.0.0.1:${service.port}`)
  })
  const challenge = await proxy.send('POST', '/services/orders/mcp', H, initialize())
  const document = `https://${NAME}/.well-known/oauth-protected-resource/services/orders/mcp`
  t.equal(challenge.headers['www-authenticate'], `Bearer resource_metadata="${document}"`)
  for (const path of [new URL(document).pathname, '/services/orders/mcp/.well-known/oauth-protected-resource', '/services/orders/.well-known/oauth-protected-resource/mcp']) {
    t.match((await proxy.send('GET', path)).json, { resource: `https://${NAME}/services/orders/mcp`, authorization_servers: [issuer.url] }, path)
  }
  for (const path of ['/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp']) {
    t.match((await proxy.send('GET', path)).json, { resource: MCP, authorization_servers: ['https://other.example'] }, path)
  }
  t.equal((await proxy.send('POST', '/services/orders/mcp', { ...H, ...bearer(await issuer.sign()) }, initialize())).status, 200)
  t.equal((await proxy.send('POST', '/mcp', { ...H, ...bearer(await issuer.sign()) }, initialize())).status, 401)
  t.same(service.logs, [], 'with publicUrl there is nothing to say')
})

/** A service behind nginx on a unix socket. */
async function onSocket (t: Test, options: CloudgMcpOptions, server: FastifyServerOptions = {}): Promise<Proxy> {
  const dir = mkdtempSync(join(tmpdir(), 'cloudg-mcp-unix-'))
  const app = fastify({ ...server })
  await app.register(cloudgMcp, options)
  await app.listen({ path: join(dir, 's') })
  t.teardown(async () => {
    await app.close()
    rmSync(dir, { recursive: true, force: true })
  })
  return startProxy(t, 'nginx', { upstream: `unix:${join(dir, 's')}` })
}

t.test('nginx: over a unix socket', { skip: missing('nginx') }, async (t) => {
  const issuer = await startIssuer(t, MCP)
  const { layer, next } = stepping()
  const auth = { oauth: { issuer: issuer.url } }
  const fixed = await onSocket(t, { layer, publicUrl: `https://${NAME}`, allowedHosts: [NAME], auth })
  const token = bearer(await issuer.sign())
  await follow(t, await fixed.open('POST', '/mcp', { ...token, ...modernHeaders('tools/call', 'steps') }, modern('tools/call', STEPS)), next)
  t.equal((await fixed.send('POST', '/mcp', { ...H, ...token, host: 'evil.example' }, initialize())).status, 421)
  const trusting = await onSocket(t, { layer, allowedHosts: [NAME], auth }, { trustProxy: () => true })
  t.equal((await trusting.send('POST', '/mcp', { ...H, ...token }, initialize())).status, 200)
  const unknown = await onSocket(t, { layer, auth })
  t.equal((await unknown.send('POST', '/mcp', { ...H, ...token }, initialize())).status, 503, 'nobody said what the service is called')
})

t.test('what is set up halfway is told once, with the option to set', { skip: missing('nginx') }, async (t) => {
  const halves: [string, CloudgMcpOptions, FastifyServerOptions, (config: string) => string, RegExp][] = [
    ['nothing is set', {}, {}, (config) => config.replace('proxy_set_header Host $http_host;', ''), /^requests come through a proxy: set `publicUrl` to the URL that clients use, or `trustProxy` of Fastify to '127\.0\.0\.1'$/],
    ['a number of hops', { publicUrl: `https://${NAME}` }, { trustProxy: 1 as unknown as string }, (config) => config, /what it forwards is not believed: set `trustProxy` of Fastify to '127\.0\.0\.1', not to a number of hops$/],
    ['another address', { publicUrl: `https://${NAME}` }, { trustProxy: '10.0.0.0/8' }, (config) => config.replace('proxy_set_header X-Forwarded-Host $http_host;', ''), /is not believed/],
    ['no Host', { publicUrl: `https://${NAME}` }, {}, (config) => config.replace('proxy_set_header Host $http_host;', ''), /: it has to pass on the Host of the client, and not 'mcp'$/]
  ]
  for (const [name, options, server, edit, message] of halves) {
    const service = await serve(t, { layer: stepping().layer, allowedHosts: [NAME, 'mcp'], ...options }, { fastify: server })
    const proxy = await startProxy(t, 'nginx', { upstream: `127.0.0.1:${service.port}`, edit })
    for (let n = 0; n < 2; n++) t.equal((await proxy.send('POST', '/mcp', H, initialize())).status, 200, name)
    t.match(service.logs, [{ level: 40, msg: message, peer: '127.0.0.1' }])
    t.equal(service.logs.length, 1)
  }
})

t.test('examples/behind-nginx', { skip: missing('nginx') }, async (t) => {
  t.match(readFileSync('examples/behind-nginx/nginx.conf', 'utf8'), documented('nginx'), 'the page and the example show the same')
  const issuer = await startIssuer(t, MCP)
  const app = await buildApp({ publicUrl: `https://${NAME}`, issuer: issuer.url })
  t.teardown(() => app.close())
  const upstream = await app.listen({ host: '127.0.0.1', port: 0 })
  const proxy = await startProxy(t, 'nginx', { upstream: new URL(upstream).host })
  const document = await proxy.send('GET', '/.well-known/oauth-protected-resource/mcp')
  t.same(document.json.scopes_supported, ['inventory:read', 'inventory:admin'])
  const call = (name: string, token: string, args = {}) =>
    proxy.send('POST', '/mcp', { ...H, ...bearer(token), ...modernHeaders('tools/call', name) }, modern('tools/call', { name, arguments: args }))
  const reader = await issuer.sign({ scope: 'inventory:read', email: 'alice@example.com' })
  t.equal((await call('dataset_summary', await issuer.sign({ scope: 'other' }))).status, 403)
  t.notOk((await call('dataset_summary', reader)).reply.result.isError)
  const lacking = await call('reset_cache', reader)
  t.equal(lacking.status, 403)
  t.match(lacking.headers['www-authenticate'], 'scope="inventory:read inventory:admin"')
  t.equal((await call('reset_cache', await issuer.sign({ scope: 'inventory:read inventory:admin' }))).status, 200)
})
