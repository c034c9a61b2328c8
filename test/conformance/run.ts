// `npm run conformance`: the official suite against our fixture, for every revision that it knows, held against floor.json.
// Revisions as arguments run only those; --url measures a server that is already running, without a floor unless --floor asks for it.

import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { judge } from './floor.js'
import type { Fault, Floor, Verdict } from './floor.js'
import { runSuite } from './suite.js'

const REVISIONS = ['2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28']
const START_TIMEOUT_MS = 20_000

interface Row extends Verdict {
  revision: string
  scenarios: number
  floor: number | undefined
}

const { values, positionals } = parseArgs({ options: { url: { type: 'string' }, floor: { type: 'boolean' } }, allowPositionals: true })
const unknown = positionals.filter((revision) => !REVISIONS.includes(revision))
if (unknown.length > 0) throw new Error(`Unknown revision ${unknown.join(', ')}: the suite has ${REVISIONS.join(', ')}`)

const stopping = new AbortController()
for (const event of ['SIGINT', 'SIGTERM']) process.once(event, () => { stopping.abort() })

const held = values.url === undefined || values.floor === true
const floors = held ? await readFloors() : {}
const server = values.url === undefined ? await startServer() : undefined
const rows: Row[] = []
try {
  for (const revision of positionals.length > 0 ? positionals : REVISIONS) {
    rows.push(await measure(values.url ?? server!.url, revision))
  }
} finally {
  await server?.stop()
}
report(rows)

async function measure (url: string, revision: string): Promise<Row> {
  const floor = floors[revision]
  if (floor === undefined && held) throw new Error(`floor.json has no floor for ${revision}`)
  const directory = await mkdtemp(join(tmpdir(), 'conformance-'))
  try {
    const scenarios = await runSuite(url, revision, directory, stopping.signal)
    return { revision, scenarios: scenarios.length, floor: floor?.passed, ...judge(scenarios, floor) }
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

async function readFloors (): Promise<Record<string, Floor>> {
  const file = new URL('../../../test/conformance/floor.json', import.meta.url)
  return JSON.parse(await readFile(file, 'utf8')) as Record<string, Floor>
}

// A process of its own: the suite's timing windows must not depend on what the runner is doing, and a crash must not take it along.
async function startServer (): Promise<{ url: string, stop: () => Promise<void> }> {
  const child = fork(new URL('serve.js', import.meta.url), {
    env: { ...process.env, PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc']
  })
  const lines = createInterface({ input: child.stdout! })
  const line = await Promise.race([
    once(lines, 'line', { signal: AbortSignal.timeout(START_TIMEOUT_MS) }).then(([first]) => first as string),
    once(child, 'exit').then(([code]) => { throw new Error(`The fixture server ended with code ${code} before it listened`) })
  ])
  return { url: line, stop: () => stop(child) }
}

async function stop (child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  const force = setTimeout(() => { child.kill('SIGKILL') }, 5_000)
  child.kill('SIGTERM')
  await exited
  clearTimeout(force)
}

function report (rows: Row[]): void {
  const table = [
    ['revision', 'scenarios', 'passed', 'failed', 'warnings', 'floor'],
    ...rows.map((row) => [row.revision, row.scenarios, row.passed, row.failed, row.warned, row.floor ?? '-'].map(String))
  ]
  for (const cells of table) console.log(cells.map((cell, column) => column === 0 ? cell.padEnd(12) : cell.padStart(11)).join(''))

  for (const { revision, faults, complaints, passed, floor } of rows) {
    if (faults.length > 0) console.log(`\n${revision}`)
    for (const fault of faults) console.log(describe(fault))
    for (const complaint of complaints) console.error(`\n${revision}: ${complaint}`)
    if (floor !== undefined && passed > floor) console.log(`\n${revision}: the floor can be raised from ${floor} to ${passed}`)
  }

  const passed = rows.reduce((total, row) => total + row.passed, 0)
  const failed = rows.reduce((total, row) => total + row.failed, 0)
  if (rows.some(({ complaints }) => complaints.length > 0)) process.exitCode = 1
  console.log(`\n${passed} passed, ${failed} failed`)
}

function describe ({ scenario, id, status, allowed, errorMessage, description }: Fault): string {
  const word = status === 'WARNING' ? 'warned' : 'failed'
  return `  ${word}${allowed ? ' (allowed)' : ''}  ${scenario}:${id}\n    ${errorMessage ?? description ?? 'no message'}`
}
