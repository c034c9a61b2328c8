// What Redis costs: CPU of a session call beside the same call in memory, commands of Redis a call, the way of one change to the streams of
// three processes, and what a session takes in Redis. The numbers of docs/scaling.md. `npm run bench:cluster`.

import { Agent, request as httpRequest } from 'node:http'
import { RedisServer } from '../backplane/redis-server.js'
import { request } from '../kit.js'
import { Client } from './client.js'
import { Node } from './nodes.js'

const ROUNDS = 15
const CALLS = 1500
const CONNECTIONS = 32
const STREAMS = 1000
const SESSIONS = 1000

const redis = await RedisServer.start()
const admin = redis.client()
try {
  await calls()
  await fanOut()
  await sizes()
} finally {
  await redis.close()
}
process.exit()

// ---- a session call

async function calls (): Promise<void> {
  const options = { maxSessionsPerPrincipal: 10_000, maxSessions: 10_000 }
  const [memory, shared] = await Promise.all([Node.start({ options }), Node.start({ redis: { url: redis.url, prefix: 'calls' }, options })])
  const ids = new Map<Node, string[]>()
  for (const node of [memory, shared]) {
    ids.set(node, await Promise.all(Array.from({ length: CONNECTIONS }, async () => {
      const client = new Client({ ports: [node.port] })
      await client.initialize()
      return client.id!
    })))
    await load(node, ids.get(node)!, CALLS)
  }
  const [inMemory, onRedis]: [number[], number[]] = [[], []]
  // Turn by turn: what else the machine does hits both.
  for (let round = 0; round < ROUNDS; round++) {
    inMemory.push(await cpuOf(memory, async () => load(memory, ids.get(memory)!, CALLS)))
    onRedis.push(await cpuOf(shared, async () => load(shared, ids.get(shared)!, CALLS)))
  }
  const ratios = onRedis.map((cpu, round) => cpu / inMemory[round]!)
  console.log(`a session call, CPU of the process: ${us(median(inMemory))} in memory, ${us(median(onRedis))} on Redis (least ${us(Math.min(...inMemory))} and ${us(Math.min(...onRedis))}); ratio ${median(ratios).toFixed(2)}`)
  const client = new Client({ ports: [shared.port] })
  await client.initialize()
  await admin.config('RESETSTAT')
  for (let call = 0; call < 500; call++) await client.post(request('tools/call', { name: 'echo', arguments: { nonce: 'x' } }))
  const stats = await admin.info('commandstats')
  const evalsha = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(stats)!
  console.log(`round trips to Redis a call: ${(Number(evalsha[1]) / 500).toFixed(2)}, of which it waits for one; ${(Number(evalsha[2]) / 500).toFixed(1)} µs of Redis a call`)
  await Promise.all([memory.kill(), shared.kill()])
}

async function cpuOf (node: Node, work: () => Promise<void>): Promise<number> {
  const before = await usage(node)
  await work()
  const after = await usage(node)
  return (after.cpu.user + after.cpu.system - before.cpu.user - before.cpu.system) / CALLS
}

async function usage (node: Node) {
  node.tell({ order: 'usage' })
  return node.report('usage')
}

async function load (node: Node, ids: string[], count: number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS })
  let left = count
  await Promise.all(ids.map(async (id) => {
    while (left-- > 0) await post(node.port, agent, id)
  }))
  agent.destroy()
}

async function post (port: number, agent: Agent, id: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', 'mcp-session-id': id }
    const sent = httpRequest({ host: '127.0.0.1', port, path: '/mcp', method: 'POST', headers, agent }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`))
      response.resume().once('end', resolve)
    })
    sent.on('error', reject)
    sent.end(JSON.stringify(request('tools/call', { name: 'echo', arguments: { nonce: 'x' } })))
  })
}

// ---- one change to many streams

async function fanOut (): Promise<void> {
  const options = { maxSessionsPerPrincipal: 10_000, maxSessions: 10_000, maxStreams: 10_000 }
  const nodes = await Promise.all(Array.from({ length: 3 }, async () => Node.start({ redis: { url: redis.url, prefix: 'fan-out' }, options })))
  const streams = await Promise.all(nodes.flatMap((node) => Array.from({ length: STREAMS }, async (_, at) => {
    await new Promise((resolve) => { setTimeout(resolve, at * 5) })
    const client = new Client({ ports: [node.port] })
    await client.connect()
    return client.get()
  })))
  const times: { first: number, all: number, cpu: number }[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const cpu = async () => (await Promise.all(nodes.map(usage))).reduce((sum, { cpu: { user, system } }) => sum + user + system, 0)
    const before = await cpu()
    const start = performance.now()
    let first = 0
    const heard = Promise.all(streams.map(async (stream) => {
      await stream.next()
      first ||= performance.now() - start
    }))
    nodes[0]!.tell({ order: 'change', kind: 'tools' })
    await heard
    times.push({ first, all: performance.now() - start, cpu: (await cpu()) - before })
  }
  const of = (key: 'first' | 'all' | 'cpu'): number => median(times.map((time) => time[key]))
  console.log(`one change to 3 processes with ${STREAMS} streams each: the first after ${of('first').toFixed(1)} ms, all after ${of('all').toFixed(0)} ms; CPU of a process ${(of('cpu') / 3000).toFixed(1)} ms`)
  const idle = await Promise.all(nodes.map(usage))
  await new Promise((resolve) => { setTimeout(resolve, 10_000) })
  const later = await Promise.all(nodes.map(usage))
  const share = later.map(({ cpu }, at) => (cpu.user + cpu.system - idle[at]!.cpu.user - idle[at]!.cpu.system) / 10_000_000)
  console.log(`${STREAMS} streams that are silent: ${(100 * median(share)).toFixed(1)} % of a core for a process, leases and keep-alives included`)
  for (const stream of streams) stream.leave()
  await Promise.all(nodes.map(async (node) => node.kill()))
}

// ---- what a session takes

async function sizes (): Promise<void> {
  await admin.flushall()
  const node = await Node.start({ redis: { url: redis.url, prefix: 'sizes' }, options: { maxSessionsPerPrincipal: 10_000, maxSessions: 10_000, maxStreams: 10_000, resumable: true } })
  const used = async () => Number(/used_memory:(\d+)/.exec(await admin.info('memory'))![1])
  await new Client({ ports: [node.port] }).initialize()
  const tell = async (what: string, work: () => Promise<unknown>): Promise<void> => {
    const [keys, bytes] = [await admin.dbsize(), await used()]
    await work()
    // Those that are at rest are in use no more.
    await new Promise((resolve) => { setTimeout(resolve, 1000) })
    const [moreKeys, moreBytes] = [await admin.dbsize(), await used()]
    console.log(`${what}: ${((moreKeys - keys) / SESSIONS).toFixed(2)} keys and ${((moreBytes - bytes) / SESSIONS).toFixed(0)} bytes a session`)
  }
  const clients: Client[] = []
  await tell('an idle session', async () => {
    for (let at = 0; at < SESSIONS; at++) {
      const client = new Client({ ports: [node.port] })
      await client.initialize()
      clients.push(client)
    }
  })
  await tell('a subscription more', async () => Promise.all(clients.map(async (client) => client.post(request('resources/subscribe', { uri: 'test://a-resource/of-common-length' })))))
  await tell('an open stream more', async () => {
    for (const client of clients) await client.get()
  })
  await tell('ten kept events of 120 bytes more', async () => {
    for (const client of clients) await client.post(request('tools/call', { name: 'say', arguments: { nonce: 'x', count: 10 } }))
  })
  await node.kill()
}

function median (values: number[]): number {
  return [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)]!
}

function us (value: number): string {
  return `${value.toFixed(1)} µs`
}
