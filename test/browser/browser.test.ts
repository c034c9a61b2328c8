// A real browser: the official client in a page of another origin, in both eras; and a page that is not wanted.

import type { Test } from 'tap'
import t from 'tap'
import { existsSync } from 'node:fs'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { build } from 'esbuild'
import { chromium } from 'playwright-core'
import type { Browser } from 'playwright-core'
import { z } from 'zod'
import { createLayer } from '../../lib/layer/index.js'
import { serve } from '../field/wire.js'
import { startIssuer } from '../auth/issuer.js'
import type { Page } from './page.js'

const CHROMIUM = '/usr/bin/chromium'
const ARGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run']
const skip = existsSync(CHROMIUM) || process.env['CI'] === 'true' ? false : 'chromium is not installed'

declare const mcp: Page

/** A browser to which names lead to ports of this machine; it and the pages' server end with the test. */
async function browse (t: Test, names: Record<string, number>): Promise<Browser> {
  const rules = Object.entries(names).map(([name, port]) => `MAP ${name}:80 127.0.0.1:${port}`).join(', ')
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: [...ARGS, `--host-resolver-rules=${rules}`] })
  t.teardown(() => browser.close())
  return browser
}

/** Serves a page that holds the client, whatever name it is asked under. */
async function pages (t: Test): Promise<number> {
  const { outputFiles } = await build({ entryPoints: ['build/test/browser/page.js'], bundle: true, platform: 'browser', format: 'iife', write: false, logLevel: 'silent' })
  const script = outputFiles[0]!.text
  const server = createServer((request, response) => {
    const isScript = request.url === '/client.js'
    response.writeHead(200, { 'content-type': isScript ? 'text/javascript' : 'text/html' })
    response.end(isScript ? script : '<!doctype html><title>client</title><script src="/client.js"></script>')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

t.test('a page of another origin works in both eras; one that is not wanted gets nowhere', { skip }, async (t) => {
  const issuer = await startIssuer(t, 'http://mcp.example/mcp')
  const layer = createLayer({ name: 'target', version: '1.0.0' })
  let runs = 0
  layer.tool('steps', { input: { steps: z.int() } }, async ({ steps }, ctx) => {
    for (let step = 1; step <= steps; step++) await ctx.progress(step, steps)
    return { runs: ++runs }
  })
  const seen: { host: string | undefined, origin: string | undefined, method: string, status: number }[] = []
  const service = await serve(t, { layer, allowedHosts: ['mcp.example'], corsOrigins: ['http://app.example'], auth: { oauth: { issuer: issuer.url } } }, {
    before: (app) => {
      app.addHook('onResponse', async ({ method, headers: { host, origin } }, reply) => { seen.push({ method, host, origin, status: reply.statusCode }) })
    }
  })
  const site = await pages(t)
  const browser = await browse(t, { 'app.example': site, 'evil.example': site, 'mcp.example': service.port, 'rebound.example': service.port })
  const url = 'http://mcp.example/mcp'
  const token = await issuer.sign()

  const page = await browser.newPage()
  await page.goto('http://app.example/')
  for (const [mode, version, session] of [['legacy', '2025-11-25', true], ['auto', '2026-07-28', false], [{ pin: '2026-07-28' }, '2026-07-28', false]] as const) {
    const done = await page.evaluate(({ url, token, mode }) => mcp.work(url, token, mode), { url, token, mode })
    t.match(done, { version, session, tools: ['steps'], progress: [1, 2, 3], result: { runs: Number } }, JSON.stringify(mode))
  }
  const way = await page.evaluate((url) => mcp.findTheWay(url), url)
  t.equal(way.status, 401)
  t.equal(way.challenge, 'Bearer resource_metadata="http://mcp.example/.well-known/oauth-protected-resource/mcp"')
  t.same(way.document, { resource: url, authorization_servers: [issuer.url], bearer_methods_supported: ['header'] })
  t.ok(seen.some(({ method, status }) => method === 'OPTIONS' && status === 204), 'preflights were made')
  t.equal(runs, 3)

  seen.length = 0
  const evil = await browser.newPage()
  await evil.goto('http://evil.example/')
  t.same(await evil.evaluate(({ url, token }) => mcp.intrude(url, token), { url, token }), [], 'it can read no answer')
  t.ok(seen.length >= 6)
  t.same(seen.filter(({ status }) => status !== 403), [], 'because it got none but refusals')

  const rebound = await evil.goto('http://rebound.example/mcp')
  t.equal(rebound?.status(), 421, 'nor does it help to rebind a name')
  t.equal(await evil.evaluate(({ token }) => fetch('/mcp', {
    method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` }, body: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"steps"}}'
  }).then(({ status }) => status), { token }), 421)
  t.equal(runs, 3)
})
