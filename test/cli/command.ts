// The command as a terminal runs it.

import { spawn } from 'node:child_process'
import type { SpawnOptions } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'

export const COMMAND = fileURLToPath(new URL('../../lib/cli/main.js', import.meta.url))
export const LAYER = fileURLToPath(new URL('../stdio/layer.js', import.meta.url))
export const INVENTORY = fileURLToPath(new URL('../../../examples/inventory/inventory-map.json', import.meta.url))

export interface Outcome { code: number | null, stdout: string, stderr: string }

/** Runs the command to its end. */
export async function run (args: readonly string[], options: SpawnOptions & { nodeArgs?: readonly string[] } = {}): Promise<Outcome> {
  const child = spawn(process.execPath, [...options.nodeArgs ?? [], COMMAND, ...args], { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
  let stdout = ''
  let stderr = ''
  child.stdout!.setEncoding('utf8').on('data', (text: string) => { stdout += text })
  child.stderr!.setEncoding('utf8').on('data', (text: string) => { stderr += text })
  const [code] = await once(child, 'close')
  return { code, stdout, stderr }
}

/** What the command prints, where it succeeds and prints JSON. */
export async function json (args: readonly string[]): Promise<any> {
  const { code, stdout, stderr } = await run(args)
  if (code !== 0) throw new Error(stderr)
  return JSON.parse(stdout)
}

export interface HttpServer {
  /** What it printed when it began to listen. */
  banner: string
  url: string
  origin: string
  readonly stderr: string
  /** Sends a signal and resolves to how it ended. */
  stop (signal?: NodeJS.Signals): Promise<{ code: number | null, signal: string | null }>
  readonly pid: number
}

// A test that is killed must not leave a server behind: its standard input ends with the test.
const WITH_THE_TEST = `data:text/javascript,${encodeURIComponent("process.stdin.resume().on('close', () => process.exit())")}`

/** Starts an HTTP server on a free port and resolves when it listens. */
export async function serve (t: Test, args: readonly string[] = [], options: SpawnOptions = {}): Promise<HttpServer> {
  const transport = args.includes('--transport') ? [] : ['--transport', 'http']
  const port = args.includes('--port') ? [] : ['--port', '0']
  const child = spawn(process.execPath, ['--import', WITH_THE_TEST, COMMAND, 'serve', ...transport, ...port, ...args], { ...options, stdio: ['pipe', 'pipe', 'pipe'] })
  const ended = once(child, 'close').then(([code, signal]) => ({ code, signal }))
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  let stdout = ''
  let stderr = ''
  child.stderr!.setEncoding('utf8').on('data', (text: string) => { stderr += text })
  const banner = await new Promise<string>((resolve, reject) => {
    child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
      if (stdout.endsWith('\n')) resolve(stdout)
    })
    void ended.then(({ code }) => reject(new Error(`exit ${code}: ${stderr}`)))
  })
  const url = /http:\S+/.exec(banner)![0]
  return {
    banner,
    url,
    origin: new URL(url).origin,
    get stderr () { return stderr },
    stop (signal = 'SIGTERM') {
      child.kill(signal)
      return ended
    },
    pid: child.pid!
  }
}

export async function directory (t: Test): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'cloudg-mcp-'))
  t.teardown(() => rm(path, { recursive: true, force: true }))
  return path
}
