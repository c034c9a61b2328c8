// npm run bench: every workload against every server that can do it, interleaved, as CPU per request of the server process
// and as a ratio to bare Fastify in the same run. Answers are checked before anything is timed.
// Many short turns: a machine that others share is fast and slow by turns.
// BENCH_ROUNDS (9), BENCH_MS (600), BENCH_ONLY (beginnings of workload names, joined with ;), BENCH_PEERS=0 (without the other servers),
// BENCH_CHECK=1 (fewer servers, gates of docs/performance.md).

import os from 'node:os'
import { Child } from './children.js'
import { type Gate, gates, type Target, workloads } from './workloads.js'

const rounds = Number(process.env.BENCH_ROUNDS ?? 9)
const ms = Number(process.env.BENCH_MS ?? 600)
const only = process.env.BENCH_ONLY?.split(';')
const check = process.env.BENCH_CHECK === '1'
const CONNECTIONS = 32

interface Row { workload: string, target: string, bytes: number, cpu: number[], p50: number, p99: number, ratio: number[] }

function median (values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? NaN
}

async function measure (generator: Child, child: Child, target: Target, duration: number) {
  const port = await child.port
  const before = await child.cpu()
  const result = await generator.load({ port, connections: CONNECTIONS, duration, ...target.job })
  const after = await child.cpu()
  if (result.bad > 0) throw new Error(`${target.name}: ${result.bad} bad answers, such as ${result.sample}`)
  return { ...result, cpu: (after - before) / result.requests }
}

const rows: Row[] = []
const generator = new Child('./load.js')
for (const workload of workloads) {
  if (only !== undefined && !only.some((name) => workload.name.startsWith(name))) continue
  const gated = (name: string): boolean => check && gates.some((gate) => gate.workload === workload.name && gate.target === name)
  const targets = workload.targets.filter(({ peer, name }) => !(check || process.env.BENCH_PEERS === '0') || peer !== true || gated(name))
  const children = new Map<Target, Child>()
  try {
    for (const target of targets) {
      const child = new Child(target.file, target.env)
      children.set(target, child)
      const port = await child.port
      if (target.prepare !== undefined) Object.assign(target.job, await target.prepare(port))
      // Warm up, and see that the answer is right.
      await measure(generator, child, target, 1500)
      rows.push({ workload: workload.name, target: target.name, bytes: 0, cpu: [], p50: 0, p99: 0, ratio: [] })
    }
    for (let round = 0; round < rounds; round++) {
      const order = round % 2 === 0 ? targets : [...targets].reverse()
      const figures = new Map<Target, number>()
      for (const target of order) {
        const { cpu, p50, p99, bytes } = await measure(generator, children.get(target)!, target, ms)
        figures.set(target, cpu)
        const row = rows.find((one) => one.workload === workload.name && one.target === target.name)!
        row.cpu.push(cpu)
        Object.assign(row, { p50, p99, bytes })
      }
      for (const target of targets) {
        const row = rows.find((one) => one.workload === workload.name && one.target === target.name)!
        row.ratio.push(figures.get(target)! / figures.get(targets[0]!)!)
      }
    }
  } finally {
    for (const child of children.values()) await child.end()
  }
}
await generator.end()

console.log(`\n${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${os.cpus().length} × ${os.cpus()[0]?.model ?? 'unknown CPU'}, ${rounds} rounds of ${ms} ms, ${CONNECTIONS} connections\n`)
console.log('| workload | server | bytes | CPU µs/request (min–max) | ratio to bare Fastify (min–max) | p50 ms | p99 ms |')
console.log('|---|---|---|---|---|---|---|')
const span = (values: number[], digits: number): string => `${median(values).toFixed(digits)} (${Math.min(...values).toFixed(digits)}–${Math.max(...values).toFixed(digits)})`
for (const { workload, target, bytes, cpu, ratio, p50, p99 } of rows) {
  console.log(`| ${workload} | ${target} | ${bytes} | ${span(cpu, 1)} | ${span(ratio, 2)} | ${p50.toFixed(2)} | ${p99.toFixed(2)} |`)
}

let failed = 0
if (check) {
  console.log('')
  const ratioOf = ({ workload, target }: Pick<Gate, 'workload' | 'target'>): number | undefined => {
    const row = rows.find((one) => one.workload === workload && one.target === target)
    return row && median(row.ratio)
  }
  for (const gate of gates) {
    const [ratio, other] = [ratioOf(gate), gate.of === undefined ? 1 : ratioOf(gate.of)]
    if (ratio === undefined || other === undefined) continue
    const value = ratio / other
    const holds = value <= (gate.most ?? Infinity) && value >= (gate.least ?? 0)
    if (!holds) failed++
    const bound = gate.most === undefined ? `at least ${gate.least}` : `at most ${gate.most}`
    console.log(`${holds ? 'ok' : 'NOT OK'}: ${gate.workload} ${gate.target}, to ${gate.of?.workload ?? 'bare Fastify'}: ${value.toFixed(2)} (${bound})`)
  }
}
process.exit(failed > 0 ? 1 : 0)
