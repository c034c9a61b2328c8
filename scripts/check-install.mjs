// What would be published works where it is installed: packed, installed into an empty project, and started there with npx, on stdio
// and over HTTP. Run it after a build. Dependencies come out of npm's cache where they are in it.

import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../', import.meta.url))
const project = await mkdtemp(join(tmpdir(), 'cloudg-mcp-install-'))
const { name, version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
const quiet = ['--no-audit', '--no-fund', '--loglevel', 'error']

try {
  const { stdout } = await run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', project], { cwd: root, maxBuffer: 1e7 })
  const [{ filename, unpackedSize, entryCount }] = Object.values(JSON.parse(stdout))
  await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'empty', version: '1.0.0', private: true }))
  await run('npm', ['install', '--prefer-offline', ...quiet, `./${filename}`], { cwd: project, timeout: 120_000 })

  const asked = [
    { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'check', version: '0' } } },
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'dataset_summary', arguments: {} } }
  ]
  const stdio = npx('serve')
  stdio.stdin.end(asked.map((message) => JSON.stringify(message) + '\n').join(''))
  const answers = []
  for await (const line of createInterface(stdio.stdout)) answers.push(JSON.parse(line))
  const [code] = stdio.exitCode === null ? await once(stdio, 'exit') : [stdio.exitCode]
  expect(code === 0, `npx cloudg-mcp serve ended with exit code ${code}`)
  expect(answers.length === 2 && answers[0].result?.serverInfo?.name === 'cloudg', 'npx cloudg-mcp serve did not answer initialize')
  expect(answers[1]?.result?.structuredContent?.assets === 44, 'npx cloudg-mcp serve does not serve the bundled inventory')

  const http = npx('serve', '--transport', 'http', '--port', '0')
  const [banner] = await once(createInterface(http.stdout), 'line')
  const { pid } = http
  const health = await fetch(new URL('/healthz', /http:\S+/.exec(banner)[0]))
  expect((await health.json()).status === 'ok', 'npx cloudg-mcp serve --transport http is not healthy')
  process.kill(-Number(pid), 'SIGTERM')
  await once(http, 'exit')

  const printed = await run('npx', ['--no-install', name, '--version'], { cwd: project })
  expect(printed.stdout.trim() === version, `npx cloudg-mcp --version says ${printed.stdout.trim()}`)
  console.log(`${filename} (${entryCount} files, ${Math.round(unpackedSize / 1024)} KiB) installs into an empty project and serves there`)
} catch (error) {
  console.error(error.stderr || error.message)
  process.exitCode = 1
} finally {
  await rm(project, { recursive: true, force: true })
}

function npx (...args) {
  // A group of its own: npx does not pass every signal on.
  return spawn('npx', ['--no-install', name, ...args], { cwd: project, stdio: ['pipe', 'pipe', 'inherit'], detached: true })
}

function expect (holds, otherwise) {
  if (!holds) throw new Error(otherwise)
}
