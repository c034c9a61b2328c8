// npm run bench:auth: what a token costs, and what a flood of wrong ones does to the calls of others.
// BENCH_RATE (10000 a second), BENCH_MS (5000).

import { once } from 'node:events'
import { connect } from 'node:net'
import os from 'node:os'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { OAuthAuth, TokenAuth } from '../lib/auth/index.js'
import { Child } from './children.js'
import type { FloodJob, FloodResult } from './flood.js'

const rate = Number(process.env.BENCH_RATE ?? 10_000)
const ms = Number(process.env.BENCH_MS ?? 5000)
const issuer = 'https://idp.example'
const audience = 'http://127.0.0.1/mcp'
const { privateKey, publicKey } = await generateKeyPair('RS256', { extractable: true })
const { privateKey: strangersKey } = await generateKeyPair('RS256')
const jwks = { keys: [{ ...await exportJWK(publicKey), kid: 'k', alg: 'RS256' }] }
const sign = (claims: Record<string, unknown> = {}, key = privateKey): Promise<string> =>
  new SignJWT({ iss: issuer, aud: audience, sub: 'alice', client_id: 'agent', scope: 'mcp files:read', ...claims })
    .setProtectedHeader({ alg: 'RS256', kid: 'k', typ: 'at+jwt' }).setIssuedAt().setExpirationTime(claims.exp as number ?? '1h').sign(key)

console.log(`\n${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${os.cpus().length} × ${os.cpus()[0]?.model ?? 'unknown CPU'}`)

// ---- one token

/** µs of CPU for one run, the best of several rounds. */
function cost (run: () => unknown, count = 50_000): number {
  let best = Infinity
  for (let round = 0; round < 8; round++) {
    const before = process.cpuUsage()
    for (let n = 0; n < count; n++) run()
    const { user, system } = process.cpuUsage(before)
    best = Math.min(best, (user + system) / count)
  }
  return best
}

const auth = new OAuthAuth({ issuer, audience, jwks })
const fixed = new TokenAuth(['s3cret:analyst:alice'])
const good = `Bearer ${await sign()}`
const forged = await sign({}, strangersKey)
const asked = async (authorization: string, peer = ''): Promise<unknown> => auth.authenticate({ authorization, peer })
await asked(good)
await asked(`Bearer ${forged}`)

async function firstUse (make: (n: number) => string | Promise<string>, count = 500): Promise<number> {
  const tokens = await Promise.all(Array.from({ length: count }, async (_, n) => `Bearer ${await make(n)}`))
  await asked(`Bearer ${await sign({ jti: 'warm' })}`)
  const before = process.cpuUsage()
  for (const [n, token] of tokens.entries()) await asked(token, String(n))
  const { user, system } = process.cpuUsage(before)
  return (user + system) / count
}

const rows: [string, number][] = [
  ['verified before', cost(() => auth.authenticate({ authorization: good }))],
  ['refused before', cost(() => auth.authenticate({ authorization: `Bearer ${forged}` }))],
  ['garbage', cost(() => auth.authenticate({ authorization: 'Bearer garbage-that-is-no-token' }))],
  ['static token', cost(() => fixed.authenticate({ authorization: 'Bearer s3cret' }))],
  ['none', cost(() => auth.authenticate({ authorization: undefined }))],
  ['verified now (RS256)', await firstUse((n) => sign({ jti: String(n) }))],
  ['forged, refused now (RS256)', await firstUse((n) => forged.slice(0, -6) + n.toString(36).padStart(6, 'A'))]
]
console.log('\n| a token that is | CPU µs |\n|---|---|')
for (const [name, value] of rows) console.log(`| ${name} | ${value.toFixed(2)} |`)

// ---- a flood

const CALL = JSON.stringify({
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name: 'echo', arguments: { text: 'hello' }, _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} } }
})

/** Latencies of calls that are made one after the other on some connections, with a pause between them. */
async function calls (port: number, token: string, duration: number): Promise<{ p50: number, p99: number, count: number }> {
  const request = `POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${CALL.length}\r\n\r\n${CALL}`
  const latencies: number[] = []
  const end = performance.now() + duration
  await Promise.all(Array.from({ length: 4 }, async () => {
    const socket = connect({ host: '127.0.0.1', port, noDelay: true })
    await once(socket, 'connect')
    while (performance.now() < end) {
      const begin = performance.now()
      socket.write(request)
      const [answer] = await once(socket, 'data') as [Buffer]
      latencies.push(performance.now() - begin)
      if (!answer.includes(' 200 ') || !answer.includes('hello')) throw new Error(`a call was not answered: ${answer.toString()}`)
      await new Promise((resolve) => { setTimeout(resolve, 2) })
    }
    socket.destroy()
  }))
  latencies.sort((a, b) => a - b)
  const at = (part: number): number => latencies[Math.floor(latencies.length * part)] ?? 0
  return { p50: at(0.5), p99: at(0.99), count: latencies.length }
}

const expired = await sign({ exp: 1 })
const all = ['no-token-at-all-xxxxxx', expired, forged]
const kinds: Record<string, Partial<FloodJob> & { tokens: string[] }> = {
  garbage: { tokens: [all[0]!] },
  expired: { tokens: [expired] },
  forged: { tokens: [forged] },
  'all three': { tokens: all },
  'all three, 1000 connections': { tokens: all, connections: 1000 },
  'all three, without waiting for answers': { tokens: all, pipeline: true }
}
const server = new Child('./servers/oauth.js', { JWKS: JSON.stringify(jwks) })
const sink = new Child('./servers/sink.js')
const flooder = new Child('./flood.js')
try {
  const port = await server.port
  await flooder.port
  const token = await sign()
  await calls(port, token, 2000)
  const mib = (bytes: number): string => (bytes / 1024 / 1024).toFixed(1)
  console.log(`\n| ${rate} wrong tokens a second | calls | p50 ms | p99 ms | refused | server CPU | CPU µs a request | heap MiB | RSS MiB |\n|---|---|---|---|---|---|---|---|---|`)
  const idle = async (name: string): Promise<void> => {
    const before = await server.cpu()
    const { p50, p99, count } = await calls(port, token, ms)
    const cpu = await server.cpu() - before
    const { heap, rss } = await server.usage()
    console.log(`| none, ${name} | ${count} | ${p50.toFixed(2)} | ${p99.toFixed(2)} | | ${(cpu / ms / 10).toFixed(0)} % | ${(cpu / count).toFixed(0)} | ${mib(heap)} | ${mib(rss)} |`)
  }
  const flooded = async (name: string, target: number, kind: Partial<FloodJob> & { tokens: string[] }): Promise<void> => {
    const before = await server.cpu()
    const job: FloodJob = { port: target, rate, duration: ms, connections: 100, ...kind }
    const [{ p50, p99, count }, { statuses, sent, answered }] = await Promise.all([calls(port, token, ms), flooder.ask<FloodResult>({ job })])
    const cpu = await server.cpu() - before
    const { heap, rss } = await server.usage()
    const refusals = Object.entries(statuses).map(([status, times]) => `${times} × ${status}`).join(', ')
    console.log(`| ${name} | ${count} | ${p50.toFixed(2)} | ${p99.toFixed(2)} | ${refusals} of ${sent} | ${(cpu / ms / 10).toFixed(0)} % | ${(cpu / (count + answered)).toFixed(0)} | ${mib(heap)} | ${mib(rss)} |`)
  }
  await idle('before')
  // Three processes on two cores: so much of it is the machine.
  for (const connections of [100, 1000]) await flooded(`the same, to another process, ${connections} connections`, await sink.port, { tokens: all, connections, pipeline: true })
  for (const [name, kind] of Object.entries(kinds)) await flooded(name, port, kind)
  await idle('after')
} finally {
  await sink.end()
  await server.end()
  await flooder.end()
}
