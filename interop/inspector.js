// The MCP Inspector's page against the demo layer, with a bearer token: it connects, lists the tools and calls one.
// Needs Chromium, and `npm run build` in the project.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import fastify from 'fastify'
import { chromium } from 'playwright-core'
import cloudgMcp from '../dist/plugin.js'
import { createInventoryLayer } from '../dist/examples/inventory/layer.js'

const TOKEN = 's3cret'
const inspector = new URL('node_modules/@modelcontextprotocol/inspector/', import.meta.url)
const ending = []

async function freePort () {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  return port
}

/** Resolves when it says that it is ready. */
async function start (file, ready, env) {
  const child = spawn(process.execPath, [fileURLToPath(new URL(file, inspector))], { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] })
  ending.push(() => child.kill())
  await new Promise((resolve, reject) => {
    child.stdout.on('data', (chunk) => { if (ready.test(String(chunk))) resolve() })
    child.once('exit', (code) => reject(new Error(`${file} ended with ${code}`)))
  })
}

async function main () {
  const app = fastify()
  await app.register(cloudgMcp, { layer: createInventoryLayer(), auth: { tokens: [TOKEN] } })
  const url = `${await app.listen({ host: '127.0.0.1', port: 0 })}/mcp`
  ending.push(() => app.close())

  const [proxy, ui] = [await freePort(), await freePort()]
  await start('server/build/index.js', /listening/i, { SERVER_PORT: proxy, PORT: proxy, CLIENT_PORT: ui, DANGEROUSLY_OMIT_AUTH: 'true' })
  await start('client/bin/client.js', /running/i, { PORT: ui })

  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run']
  })
  ending.push(() => browser.close())
  const page = await browser.newPage()
  page.setDefaultTimeout(15_000)
  await page.goto(`http://localhost:${ui}/?MCP_PROXY_FULL_ADDRESS=${encodeURIComponent(`http://127.0.0.1:${proxy}`)}&transport=streamable-http&serverUrl=${encodeURIComponent(url)}`)
  try {
    await page.getByRole('button', { name: 'Authentication' }).click()
    await page.getByPlaceholder('Bearer Token').fill(TOKEN)
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.getByText('Connected', { exact: true }).waitFor()
    await page.getByRole('tab', { name: 'Tools' }).click()
    await page.getByRole('button', { name: 'List Tools' }).click()
    await page.getByText('dataset_summary').first().click()
    await page.getByRole('button', { name: 'Run Tool' }).click()
    await page.getByText(/Tool Result: Success/).waitFor()
    console.log('The Inspector connects, lists and calls.')
  } catch (error) {
    await page.screenshot({ path: 'inspector.png' })
    throw error
  }
}

try {
  await main()
} finally {
  for (const end of ending.reverse()) await end()
}
