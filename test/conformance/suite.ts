// Drives the official conformance suite, which is a command and has no other interface, and reads what it leaves behind:
// the SUMMARY lines for the counts (a scenario that throws is only there), a checks.json per scenario for the messages.

import { spawn } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface Check {
  id: string
  status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'SKIPPED' | 'INFO'
  description?: string
  errorMessage?: string
}

export interface Scenario {
  name: string
  passed: number
  failed: number
  /** Every check that failed or was warned about. */
  faults: Check[]
}

const COMMAND = fileURLToPath(import.meta.resolve('@modelcontextprotocol/conformance/dist/index.js'))
// The compiled file runs from build/test/conformance; the shim is plain JavaScript and stays in the source tree.
const SHIM = new URL('../../../test/conformance/fs-glob-shim.mjs', import.meta.url).href

// The suite gives each scenario 30 s; a healthy run of one revision takes less than 10.
const RUN_TIMEOUT_MS = 300_000

/** Runs every scenario that applies to `revision` against the server at `url`. `directory` must be empty; the suite writes into it. */
export async function runSuite (url: string, revision: string, directory: string, signal: AbortSignal): Promise<Scenario[]> {
  const { stdout, stderr } = await runCommand([
    'server', '--url', url, '--suite', 'all', '--spec-version', revision, '-o', directory
  ], AbortSignal.any([signal, AbortSignal.timeout(RUN_TIMEOUT_MS)]))

  const [, summary] = stdout.split('=== SUMMARY ===')
  if (summary === undefined) throw new Error(`The suite ended without a summary:\n${stderr.slice(-2000) || stdout.slice(-2000)}`)

  const checks = await readChecks(directory)
  const scenarios: Scenario[] = []
  for (const [, name, passed, failed] of summary.matchAll(/^[✓✗] (\S+): (\d+) passed, (\d+) failed$/gm)) {
    const recorded = checks.get(name!) ?? [thrown(name!, stderr)]
    const faults = recorded.filter(({ status }) => status === 'FAILURE' || status === 'WARNING')
    scenarios.push({ name: name!, passed: Number(passed), failed: Number(failed), faults })
  }
  return scenarios
}

function runCommand (args: string[], signal: AbortSignal): Promise<{ stdout: string, stderr: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--import', SHIM, COMMAND, ...args], { stdio: ['ignore', 'pipe', 'pipe'], signal })
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', (chunk) => { stdout += chunk })
    child.stderr.setEncoding('utf8').on('data', (chunk) => { stderr += chunk })
    child.once('error', reject)
    // The exit code says only whether something failed, which the counts say better.
    child.once('close', () => { resolve({ stdout, stderr }) })
  })
}

async function readChecks (directory: string): Promise<Map<string, Check[]>> {
  const found = new Map<string, Check[]>()
  for (const entry of await readdir(directory)) {
    const name = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(entry)?.[1]
    const file = join(directory, entry, 'checks.json')
    const text = name === undefined ? undefined : await readFile(file, 'utf8').catch(() => undefined)
    if (name !== undefined && text !== undefined) found.set(name, JSON.parse(text) as Check[])
  }
  return found
}

function thrown (name: string, stderr: string): Check {
  const [, after = ''] = stderr.split(`Failed to run scenario ${name}: `)
  return { id: name, status: 'FAILURE', errorMessage: after.split('\n', 1)[0] || 'The scenario could not be run' }
}
