// The guard: requests that are not meant for this server (Host) and pages that may not talk to it (Origin) are turned away
// before anything else is looked at. Host goes first.

import { networkInterfaces } from 'node:os'
import t, { type Test } from 'tap'
import type { CloudgMcpOptions } from '../../plugin.js'
import { modern, modernHeaders, request } from '../kit.js'
import type { Answer, Target } from './client.js'
import { captureLog, parseRaw, post, raw, rawAnswer, rawRequest, refused, send, serve, SSE_ONLY } from './client.js'

const HOST = 'Invalid Host header'
const ORIGIN = 'Forbidden: invalid Origin'
const CLOSE = { connection: 'close' }
const body = JSON.stringify(modern('server/discover'))

interface Try { host?: string, origin?: string, more?: string[] }

/** A request that is served when the guard lets it pass, with exactly these header lines. */
function knock (t: Test, app: Target, { host = `127.0.0.1:${app.port}`, origin, more = [] }: Try = {}): Promise<Answer> {
  const lines = ['Content-Type: application/json', 'Accept: application/json', ...Object.entries(modernHeaders('server/discover')).map((line) => line.join(': ')), `Host: ${host}`, ...more]
  return rawAnswer(t, app, rawRequest(app, origin === undefined ? lines : [...lines, `Origin: ${origin}`], body))
}

async function passes (t: Test, app: Target, ...tries: Try[]): Promise<void> {
  for (const one of tries) t.equal((await knock(t, app, one)).status, 200, `passes: ${JSON.stringify(one)}`)
}

async function badHost (t: Test, app: Target, ...tries: Try[]): Promise<void> {
  for (const one of tries) refused(t, await knock(t, app, one), 421, HOST, CLOSE)
}

async function badOrigin (t: Test, app: Target, ...tries: Try[]): Promise<void> {
  for (const one of tries) refused(t, await knock(t, app, one), 403, ORIGIN, CLOSE)
}

t.test('GU-01 GU-02 GU-03 on a loopback bind only loopback names pass, with any port', async (t) => {
  const app = await serve(t)
  const names = ['127.0.0.1:8765', '127.0.0.1', 'localhost', 'localhost:1', 'LocalHost:9', '[::1]', '[::1]:8765', '[0:0:0:0:0:0:0:1]:3', '[0000::0001]']
  await passes(t, app, {}, ...names.map((host) => ({ host })))
  const others = ['evil.example', 'evil.example:8765', 'localhost.evil.example', 'evillocalhost', '127.0.0.1.evil.example', '127.0.0.1.nip.io', 'localhost.', '1:3', '[::2]', '[::1', '::1', 'localhost:', 'localhost:x', 'localhost:123456',
    'localhost, evil.example', 'localhost evil', 'user@localhost', 'localhost/x', 'http://localhost', '0', '2130706433', '0x7f.1', '192.168.0.1', '0.0.0.0']
  await badHost(t, app, ...others.map((host) => ({ host })))
  await badOrigin(t, app, { host: 'localhost:1', origin: 'https://evil.example' })
  await badHost(t, app, { host: 'evil.example', origin: 'https://evil.example' })
})

t.test('GU-10 loopback origins pass, whatever their scheme and port', async (t) => {
  const app = await serve(t)
  const origins = ['http://localhost:3000', 'https://localhost', 'http://127.0.0.1', 'http://[::1]:3000', 'https://[::1]', 'HTTP://LOCALHOST:1']
  await passes(t, app, ...origins.map((origin) => ({ origin })), { host: 'localhost:5', origin: 'http://localhost:5' })
  const others = ['null', '', 'http://localhost.evil.io', 'http://evil.io:3000', 'https://localhost@evil.io', 'http://localhost:3000, http://evil.io', 'http://evil.io/http://localhost', 'vscode-webview://localhost', 'file://', 'localhost', 'http://localhost/', 'http://localhost:x']
  await badOrigin(t, app, ...others.map((origin) => ({ origin })))
})

t.test('GU-04 GU-07 elsewhere every host passes, and a matching origin proves nothing', async (t) => {
  const log = captureLog()
  const app = await serve(t, {}, { loggerInstance: log.logger }, '0.0.0.0')
  await passes(t, app, { host: 'mcp.example.com' }, { host: '192.168.50.10:8000' }, { host: 'mcp.example.com', origin: 'http://localhost:3000' })
  await badOrigin(t, app, { host: 'mcp.example.com', origin: 'http://mcp.example.com' }, { host: 'evil.example', origin: 'http://evil.example' })
  t.same(log.of('warn').filter((line) => line.includes('allowedHosts')), ['the MCP endpoint is reachable beyond loopback and checks no Host header: set `allowedHosts`'], 'which is said once')
})

t.test('GU-08 listed hosts on any bind, and their own pages', async (t) => {
  const app = await serve(t, { allowedHosts: ['mcp.example.com'] }, {}, '0.0.0.0')
  await passes(t, app, { host: 'mcp.example.com' }, { host: 'mcp.example.com:443' }, { host: 'MCP.example.com' },
    { host: 'mcp.example.com', origin: 'https://mcp.example.com' }, { host: 'mcp.example.com:8080', origin: 'http://MCP.example.com:8080' })
  await badHost(t, app, { host: '127.0.0.1' }, { host: 'mcp.example.com.evil.io' }, { host: 'evilmcp.example.com' }, { host: 'mcp.example.com.' }, { host: 'x.mcp.example.com' })
  await badOrigin(t, app, { host: 'mcp.example.com', origin: 'https://other.example.com' }, { host: 'mcp.example.com', origin: 'https://mcp.example.com:8443' })
})

t.test('GU-09 own lists replace the defaults', async (t) => {
  const app = await serve(t, { allowedHosts: ['mcp.example.com'], allowedOrigins: ['https://app.example.com'] })
  await badHost(t, app, {}, { host: 'localhost' })
  await passes(t, app, { host: 'mcp.example.com' }, { host: 'mcp.example.com', origin: 'https://app.example.com' })
  await badOrigin(t, app, { host: 'mcp.example.com', origin: 'http://localhost:3000' }, { host: 'mcp.example.com', origin: 'http://app.example.com' }, { host: 'mcp.example.com', origin: 'https://app.example.com:444' })
})

t.test('a star stays inside one host and port', async (t) => {
  const options: CloudgMcpOptions = { allowedHosts: ['*.example.com', 'api.example.net:*', 'exact.example.net:8080', '[::1]:*', '[fe80::*]'], allowedOrigins: ['https://*.example.com', 'http://localhost:*', 'vscode-webview://*'] }
  const app = await serve(t, options)
  const host = 'a.example.com'
  await passes(t, app, { host }, { host: 'a.b.example.com:1' }, { host: 'api.example.net:5' }, { host: 'exact.example.net:8080' }, { host: '[::1]:8765' }, { host: '[0:0::1]:5' }, { host: '[fe80::abcd]' })
  await badHost(t, app, { host: 'example.com' }, { host: 'a.example.com.evil.io' }, { host: 'evil.io,a.example.com' }, { host: 'evil.io/a.example.com' }, { host: 'evil.io a.example.com' }, { host: 'evil@a.example.com' }, { host: 'exact.example.net:8081' }, { host: 'exact.example.net' }, { host: 'aXexample.com' }, { host: '1:3' })
  await passes(t, app, { host, origin: 'https://x.example.com' }, { host, origin: 'http://localhost:5' }, { host, origin: 'vscode-webview://abc123' })
  await badOrigin(t, app, { host, origin: 'http://x.example.com' }, { host, origin: 'https://evil.io,https://x.example.com' }, { host, origin: 'https://evil.io/.example.com' }, { host, origin: 'https://x.example.com.evil.io' })
  const any = await serve(t, { allowedHosts: ['*'] })
  await passes(t, any, { host: 'whatever.example' }, { host: '[::7]:1' })
  await badHost(t, any, { host: 'a, b' }, { host: 'a/b' })
})

t.test('GU-11 a request without Host', async (t) => {
  const lines = ['Content-Type: application/json', 'Accept: application/json', ...Object.entries(modernHeaders('server/discover')).map((line) => line.join(': ')), `Content-Length: ${body.length}`, 'Connection: close']
  const without = (version: string, host: string[] = []): string => [`POST /mcp HTTP/${version}`, ...host, ...lines, '', body].join('\r\n')
  const answer = async (app: Target, text: string) => parseRaw(await raw(t, app, text))
  const app = await serve(t, {}, { http: { requireHostHeader: false } })
  for (const text of [without('1.0'), without('1.1'), without('1.1', ['Host:']), without('1.1', ['Host:  '])]) {
    const { status, headers, body } = await answer(app, text)
    t.equal(status, 421)
    t.equal(headers['connection'], 'close')
    t.equal(body, '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Host header"}}')
  }
  const strict = await serve(t)
  t.equal((await answer(strict, without('1.0'))).status, 421)
  t.equal((await answer(strict, without('1.1'))).status, 400, 'where HTTP demands a Host, Node refuses by itself')
  const wide = await serve(t, {}, {}, '0.0.0.0')
  t.equal((await answer(wide, without('1.0'))).status, 200, 'it is missed only where it is checked')
})

t.test('repeated lines of Host and Origin cannot be obeyed', async (t) => {
  const app = await serve(t)
  refused(t, await knock(t, app, { more: ['Host: evil.example'] }), 400, 'Bad Request: host header appears more than once', CLOSE)
  refused(t, await knock(t, app, { host: 'evil.example', more: [`Host: 127.0.0.1:${app.port}`] }), 400, 'Bad Request: host header appears more than once', CLOSE)
  refused(t, await knock(t, app, { origin: 'http://localhost', more: ['Origin: http://evil.example'] }), 400, 'Bad Request: origin header appears more than once', CLOSE)
  await passes(t, app, { origin: 'http://localhost', more: ['origin: http://localhost'] })
})

t.test('a forwarded host has to pass too, and never instead', async (t) => {
  const app = await serve(t, {}, { trustProxy: true })
  const forwarded = (host: string): string[] => [`X-Forwarded-Host: ${host}`]
  await passes(t, app, { more: forwarded('localhost:1') })
  await badHost(t, app, { host: 'evil.example', more: forwarded('localhost') }, { more: forwarded('evil.example') }, { more: forwarded('localhost, evil.example') })
  const plain = await serve(t)
  await passes(t, plain, { more: forwarded('evil.example') })
  await badHost(t, plain, { host: 'evil.example', more: forwarded('localhost') })
})

t.test('the public URL is one of the hosts and origins', async (t) => {
  const app = await serve(t, { publicUrl: 'https://mcp.example.com/base' })
  await passes(t, app, {}, { host: 'mcp.example.com' }, { host: 'mcp.example.com:443' }, { origin: 'https://mcp.example.com' }, { host: 'mcp.example.com', origin: 'http://localhost' })
  await badHost(t, app, { host: 'other.example.com' })
  await badOrigin(t, app, { origin: 'http://mcp.example.com' })
  const ported = await serve(t, { publicUrl: 'http://mcp.example.com:8080' })
  await passes(t, ported, { host: 'mcp.example.com:8080', origin: 'http://mcp.example.com:8080' })
})

t.test('the guard is the first to look, on every path of ours', async (t) => {
  const app = await serve(t, { auth: { tokens: ['s3cret'] }, corsOrigins: ['https://app.example.com'], maxBodyBytes: 10 })
  const asks = [
    { method: 'POST', path: '/mcp', headers: { 'content-type': 'text/plain' }, body: 'x'.repeat(1000) },
    { method: 'POST', path: '/mcp', headers: { 'content-type': 'application/json', authorization: 'Bearer s3cret' }, body: '{nope' },
    { method: 'GET', path: '/mcp', headers: SSE_ONLY },
    { method: 'DELETE', path: '/mcp/' },
    { method: 'PUT', path: '/mcp' },
    { method: 'OPTIONS', path: '/mcp' },
    { method: 'GET', path: '/healthz' },
    { method: 'GET', path: '/.well-known/oauth-protected-resource' },
    { method: 'GET', path: '/.well-known/oauth-authorization-server/mcp' },
    { method: 'GET', path: '/mcp/.well-known/openid-configuration' }
  ]
  for (const { path, ...ask } of asks) {
    const foreign = await send(app.origin + path, { ...ask, headers: { ...ask.headers, host: 'evil.example', origin: 'https://app.example.com' } })
    refused(t, foreign, 421, HOST, CLOSE)
    const page = await send(app.origin + path, { ...ask, headers: { ...ask.headers, origin: 'https://evil.example' } })
    refused(t, page, 403, ORIGIN, CLOSE)
    for (const answer of [foreign, page]) t.notOk('access-control-allow-origin' in answer.headers || 'www-authenticate' in answer.headers)
  }
  t.equal((await send(`${app.origin}/elsewhere`, { method: 'GET', headers: { host: 'evil.example' } })).status, 404, 'other paths are none of its business')
})

t.test('a refusal tells the log which option to set', async (t) => {
  const log = captureLog()
  const app = await serve(t, {}, { loggerInstance: log.logger })
  await badHost(t, app, { host: 'evil.example' })
  await badOrigin(t, app, { origin: 'https://evil.example' })
  t.same(log.of('warn'), ['refused a Host: list it in `allowedHosts`, or set `publicUrl`', 'refused an Origin: list it in `allowedOrigins`, or in `corsOrigins` for pages that read answers'])
})

t.test('what passed is remembered within bounds, and what did not is not', async (t) => {
  const app = await serve(t, { allowedHosts: ['*.example.com', 'localhost'] })
  for (let at = 0; at < 600; at++) {
    const answer = await post(app, request('ping'), { host: `h${at}.example.com` })
    if (answer.status !== 400) t.equal(answer.status, 400)
  }
  await badHost(t, app, { host: 'h1.example.org' })
  await badHost(t, app, { host: 'h1.example.org' })
  await passes(t, app, { host: 'h1.example.com' })
})

t.test('an IPv6 loopback bind is a loopback bind', { skip: Object.values(networkInterfaces()).flat().some((one) => one?.address === '::1') ? false : 'no IPv6 here' }, async (t) => {
  const app = await serve(t, {}, {}, '::1')
  const url = `http://[::1]:${app.port}/mcp`
  const headers = modernHeaders('server/discover')
  t.equal((await post({ url }, modern('server/discover'), headers)).status, 200)
  refused(t, await post({ url }, modern('server/discover'), { ...headers, host: 'evil.example' }), 421, HOST, CLOSE)
})
