// npm run bench:special: what is no stream of equal requests. W6 initialize + DELETE cycles, W7 idle streams and a change to
// all of them, W8 many slow calls at once.
// BENCH_ONLY (W6;W7;W8), BENCH_STREAMS (1000,5000), BENCH_CYCLES (5000), BENCH_PEERS=0 (without the other servers),
// BENCH_CHECK=1 (this plugin alone, with gates).

import { connect } from 'node:net'
import type { Socket } from 'node:net'
import os from 'node:os'
import { Child } from './children.js'
import { openSession, OURS, ownHeaders, sessionServers, V2 } from './workloads.js'

const check = process.env.BENCH_CHECK === '1'
const only = process.env.BENCH_ONLY?.split(';')
const wanted = (name: string): boolean => only === undefined || only.includes(name)
const BOTH = 'application/json, text/event-stream'
const META = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} }

interface Server { name: string, file: string, env?: Record<string, string>, headers?: Record<string, string> }
const ours: Server = { name: 'cloudg-mcp', file: OURS, headers: ownHeaders }

const broken: string[] = []
function hold ({ name, file }: { name: string, file: string }, what: string, value: number, most: number): void {
  if (check && file === OURS && value > most) broken.push(`NOT OK: ${name}, ${what}: ${value.toFixed(0)} (at most ${most})`)
}

async function withServer<T> ({ file, env = {} }: Server, run: (child: Child, port: number) => Promise<T>): Promise<T> {
  const child = new Child(file, env)
  try {
    return await run(child, await child.port)
  } finally {
    await child.end()
  }
}

console.log(`\n${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${os.cpus().length} × ${os.cpus()[0]?.model ?? 'unknown CPU'}`)

if (wanted('W6')) {
  const cycles = Number(process.env.BENCH_CYCLES ?? 5000)
  console.log(`\n| W6 ${cycles} cycles of initialize, initialized, DELETE | CPU µs/cycle | heap left, bytes/cycle |\n|---|---|---|`)
  for (const server of [ours, ...(check || process.env.BENCH_PEERS === '0' ? [] : sessionServers)]) {
    await withServer(server, async (child, port) => {
      const cycle = async (): Promise<void> => {
        const session = await openSession(port, server.headers ?? {})
        const response = await fetch(`http://127.0.0.1:${port}/mcp`, { method: 'DELETE', headers: { 'mcp-session-id': session, ...server.headers } })
        await response.text()
      }
      const run = async (count: number): Promise<void> => {
        let left = count
        await Promise.all(Array.from({ length: 16 }, async () => { while (left-- > 0) await cycle() }))
      }
      const count = server.name === 'fastmcp' ? Math.min(cycles, 100) : cycles
      // Until what runs is compiled: before that a cycle costs twice as much.
      await run(count)
      const before = await child.usage()
      await run(count)
      const after = await child.usage()
      hold(server, 'heap left, bytes/cycle', (after.heap - before.heap) / count, 1024)
      console.log(`| ${server.name} | ${((after.cpu - before.cpu) / count).toFixed(0)} | ${((after.heap - before.heap) / count).toFixed(0)} |`)
    })
  }
}

if (wanted('W7')) {
  console.log('\n| W7 idle streams | streams | RSS KB/stream | heap KB/stream | change to all, ms | loop blocked, ms |\n|---|---|---|---|---|---|')
  for (const count of (process.env.BENCH_STREAMS ?? '1000,5000').split(',').map(Number)) {
    for (const server of [{ ...ours, name: 'cloudg-mcp, listen' }, { ...ours, name: 'cloudg-mcp, session' }, ...(check || process.env.BENCH_PEERS === '0' ? [] : [{ name: 'official v2, listen', file: V2 }])]) {
      const session = server.name.endsWith('session')
      await withServer(server, async (child, port) => {
        // Sockets that read and no more: what a client makes of events is not what is measured.
        const open = async (n: number): Promise<Socket> => {
          const id = session ? await openSession(port, server.headers ?? {}) : undefined
          const body = session ? '' : JSON.stringify({ jsonrpc: '2.0', id: n, method: 'subscriptions/listen', params: { notifications: { toolsListChanged: true }, _meta: META } })
          const headers = session
            ? { accept: 'text/event-stream', 'mcp-session-id': id!, ...server.headers }
            : { accept: BOTH, 'content-type': 'application/json', 'content-length': body.length, 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen', ...server.headers }
          return new Promise((resolve, reject) => {
            const socket = connect(port, '127.0.0.1').setEncoding('latin1')
            socket.once('error', reject).once('data', (text: string) => {
              if (text.startsWith('HTTP/1.1 200 ')) resolve(socket)
              else reject(new Error(`${server.name}: ${text}`))
            })
            socket.write(`${session ? 'GET' : 'POST'} /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n${Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${body}`)
          })
        }
        await open(0)
        const before = await child.usage()
        const sockets: Socket[] = []
        const limit = server.file === V2 ? Math.min(count, 1000) : count
        while (sockets.length < limit) sockets.push(...await Promise.all(Array.from({ length: Math.min(50, limit - sockets.length) }, (_, n) => open(sockets.length + n + 1))))
        const after = await child.usage()
        const change = async (): Promise<number> => {
          const told = sockets.map((socket) => new Promise<void>((resolve) => {
            const hear = (text: string): void => {
              if (!text.includes('list_changed')) return
              socket.removeListener('data', hear)
              resolve()
            }
            socket.on('data', hear)
          }))
          const begin = performance.now()
          await child.ask({ type: 'change' })
          await Promise.all(told)
          return performance.now() - begin
        }
        const times: number[] = []
        for (let round = 0; round < 7; round++) times.push(await change())
        const [, , , ms = NaN] = times.sort((one, other) => one - other)
        // To watch the loop keeps it busy: in a round of its own.
        const [longest] = await Promise.all([child.ask<number>({ type: 'blocked' }), change()])
        console.log(`| ${server.name} | ${limit} | ${((after.rss - before.rss) / limit / 1024).toFixed(1)} | ${((after.heap - before.heap) / limit / 1024).toFixed(1)} | ${ms.toFixed(0)} | ${longest?.toFixed(1) ?? '-'} |`)
        if (limit >= 5000) {
          hold(server, 'RSS KB/stream', (after.rss - before.rss) / limit / 1024, 24)
          hold(server, 'change to all, ms', ms, 250)
        }
        for (const socket of sockets) socket.destroy()
      })
    }
  }
}

if (wanted('W8')) {
  console.log('\n| W8 500 × 4 calls of 200 ms | wall ms | p50 ms | p99 ms | CPU µs/call |\n|---|---|---|---|---|')
  const modernHeaders = { accept: BOTH, 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'slow' }
  const body = JSON.stringify({ jsonrpc: '2.0', id: '$id', method: 'tools/call', params: { name: 'slow', arguments: {}, _meta: META } })
  const generator = new Child('./load.js')
  const targets = [
    { name: 'bare Fastify', file: './servers/fastify.js', path: '/slow', headers: { accept: BOTH } },
    { name: 'cloudg-mcp', file: OURS, path: '/mcp', headers: { ...modernHeaders, ...ownHeaders } },
    { name: 'official v2', file: V2, path: '/mcp', headers: modernHeaders },
    { name: 'tmcp', file: './servers/tmcp.js', path: '/mcp', headers: modernHeaders }
  ]
  for (const target of targets.filter(({ file }) => !check || file === OURS)) {
    await withServer(target, async (child, port) => {
      const job = { port, path: target.path, headers: target.headers, body, expect: 'done' }
      // Once to warm up: a service in production has run before.
      await generator.load({ ...job, connections: 500, requests: 2000 })
      const before = await child.cpu()
      const { ms, p50, p99, requests, bad } = await generator.load({ ...job, connections: 500, requests: 2000 })
      const cpu = (await child.cpu() - before) / requests
      if (bad > 0) throw new Error(`${target.name}: ${bad} bad answers`)
      hold(target, '500 × 4 calls of 200 ms, wall ms', ms, 1200)
      console.log(`| ${target.name} | ${ms.toFixed(0)} | ${p50.toFixed(0)} | ${p99.toFixed(0)} | ${cpu.toFixed(0)} |`)
    })
  }
  await generator.end()
}
if (check) console.log(`\n${broken.length === 0 ? 'all gates hold' : broken.join('\n')}`)
process.exit(broken.length > 0 ? 1 : 0)
