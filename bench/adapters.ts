// node build/bench/adapters.js: CPU of a small call to a server of an official SDK, called in process without HTTP, against the same
// server hosted as a layer, and the same call through the whole protocol engine; interleaved, as the median of ratios. And what
// a mounted layer costs the host's own calls. ROUNDS (9), CALLS (3000) per round.

import { McpServer as McpServer1 } from '@modelcontextprotocol/sdk/server/mcp.js'
import { McpServer as McpServer2 } from '@modelcontextprotocol/server'
import { z } from 'zod'
import { hostServer, registerInto } from '../lib/adapters/index.js'
import { createLayer, localPort } from '../lib/layer/index.js'
import type { CallPort } from '../lib/layer/index.js'
import { localUser } from '../lib/principal.js'
import { ProtocolServer } from '../lib/protocol/server.js'

const rounds = Number(process.env['ROUNDS'] ?? 9)
const calls = Number(process.env['CALLS'] ?? 3000)
const LIMIT = 1.5

const add = ({ a, b }: { a: number, b: number }) => ({ content: [{ type: 'text' as const, text: String(a + b) }] })
const make1 = (): McpServer1 => {
  const server = new McpServer1({ name: 'one', version: '1.0.0' })
  server.registerTool('add', { description: 'Adds', inputSchema: { a: z.number(), b: z.number() } }, add)
  return server
}
const make2 = (): McpServer2 => {
  const server = new McpServer2({ name: 'two', version: '2.0.0' })
  server.registerTool('add', { description: 'Adds', inputSchema: z.object({ a: z.number(), b: z.number() }) }, add)
  return server
}
const ENVELOPE = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} }

type Call = (n: number) => Promise<unknown>

/** The least that can be between a caller and a server: a transport that hands messages over. */
async function inProcess (server: { connect: (transport: any) => Promise<void> }, modern = false): Promise<Call> {
  const waiting = new Map<number, (message: any) => void>()
  let next = 0
  const transport: any = {
    async start () {},
    async close () {},
    async send (message: any) {
      waiting.get(message.id)?.(message)
      waiting.delete(message.id)
    }
  }
  if (modern) (server as any).server._negotiatedProtocolVersion = '2026-07-28'
  await server.connect(transport)
  const request = (method: string, params: object): Promise<any> => new Promise((resolve) => {
    const id = ++next
    waiting.set(id, resolve)
    transport.onmessage({ jsonrpc: '2.0', id, method, params })
  })
  if (!modern) {
    await request('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bench', version: '1' } })
    transport.onmessage({ jsonrpc: '2.0', method: 'notifications/initialized' })
  }
  return async (n) => request('tools/call', { name: 'add', arguments: { a: n, b: 1 }, ...(modern && { _meta: ENVELOPE }) })
}

/** The layer as the engine calls it, on one connection or without any. */
async function hosted (make: () => object, modern: boolean): Promise<Call> {
  const layer = hostServer(make)
  await layer.start()
  // One port for all calls: making one is the engine's business, which is measured beside this.
  const port: CallPort = { ...localPort(), onAbort: () => () => {}, ...(modern ? {} : { era: 'handshake', protocolVersion: '2025-11-25', connection: {} }) }
  return async (n) => layer.callTool('add', { a: n, b: 1 }, port)
}

/** From a decoded message to its answer. */
async function engine (make: () => object, modern: boolean): Promise<Call> {
  const layer = hostServer(make)
  await layer.start()
  const server = new ProtocolServer(layer)
  const session = server.createSession({ transport: 'memory', principal: localUser, send () {} })
  if (!modern) {
    await session.handle({ jsonrpc: '2.0', id: 'i', method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bench', version: '1' } } })
    return async (n) => session.handle({ jsonrpc: '2.0', id: n, method: 'tools/call', params: { name: 'add', arguments: { a: n, b: 1 } } })
  }
  return async (n) => server.createSession({ transport: 'http', register: false }).handle(
    { jsonrpc: '2.0', id: n, method: 'tools/call', params: { name: 'add', arguments: { a: n, b: 1 }, _meta: ENVELOPE } }, { principal: localUser })
}

async function mounted (server: McpServer1 | McpServer2): Promise<Call> {
  const layer = createLayer({ name: 'layer', version: '1.0.0' })
  layer.tool('other', {}, () => 'other')
  await registerInto(server, layer).ready
  return inProcess(server)
}

/** CPU in µs of one call. */
async function cost (call: Call): Promise<number> {
  const before = process.cpuUsage()
  for (let n = 0; n < calls; n++) await call(n)
  const { user, system } = process.cpuUsage(before)
  return (user + system) / calls
}

const median = (values: number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!

const groups: [string, Record<string, Call>][] = [
  ['SDK 1.x, 2025-11-25', { alone: await inProcess(make1()), hosted: await hosted(make1, false), engine: await engine(make1, false), mounted: await mounted(make1()) }],
  ['SDK 1.x, 2026-07-28', { alone: await inProcess(make1()), hosted: await hosted(make1, true), engine: await engine(make1, true) }],
  ['SDK 2.x, 2025-11-25', { alone: await inProcess(make2()), hosted: await hosted(make2, false), engine: await engine(make2, false), mounted: await mounted(make2()) }],
  ['SDK 2.x, 2026-07-28', { alone: await inProcess(make2(), true), hosted: await hosted(make2, true), engine: await engine(make2, true) }]
]

console.log('| | alone, µs | hosted | hosted, with the engine | a mounted layer, on the host\'s calls |\n|---|---|---|---|---|')
let worst = 0
for (const [name, variants] of groups) {
  for (const call of Object.values(variants)) await cost(call)
  const ratios: Record<string, number[]> = {}
  const alone: number[] = []
  for (let round = 0; round < rounds; round++) {
    const base = await cost(variants['alone']!)
    alone.push(base)
    for (const [variant, call] of Object.entries(variants)) if (variant !== 'alone') (ratios[variant] ??= []).push(await cost(call) / base)
  }
  const ratio = (variant: string): string => ratios[variant] === undefined ? '' : median(ratios[variant]).toFixed(2)
  worst = Math.max(worst, median(ratios['hosted']!))
  console.log(`| ${name} | ${median(alone).toFixed(1)} | ${ratio('hosted')} | ${ratio('engine')} | ${ratio('mounted')} |`)
}
console.log(`\nA hosted call costs at most ${worst.toFixed(2)} times what it costs alone; the limit is ${LIMIT}.`)
process.exit(worst <= LIMIT ? 0 : 1)
