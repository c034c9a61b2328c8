// A redis-server of the tests' own, on a free port and without files. Where the binary is missing the tests that need it skip and
// say so; in CI that is a failure.

import { spawn, spawnSync } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Cluster, Redis } from 'ioredis'

const START_TIMEOUT = 15_000
// The server ends with the process that started it, however that ends: its input is closed then.
const GUARDED = 'exec 3<&0; redis-server "$@" < /dev/null & server=$!; echo "pid $server"; exec 2> /dev/null; { read -r _ <&3; kill -9 $server; } & wait $server'

/** Why the tests that need Redis do not run here; false when they do. */
export const withoutRedis: string | false = process.env['CI'] === undefined && spawnSync('redis-server', ['--version']).error !== undefined
  ? 'redis-server is not installed'
  : false

export async function freePort (): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

export class RedisServer {
  readonly port: number
  readonly #args: readonly string[]
  readonly #clients: (Redis | Cluster)[] = []
  #directory: string | undefined
  #child: ChildProcess | undefined
  #pid: number | undefined

  private constructor (port: number, args: readonly string[]) {
    this.port = port
    this.#args = args
  }

  static async start (...args: string[]): Promise<RedisServer> {
    const server = new RedisServer(await freePort(), args)
    await server.up()
    return server
  }

  /** A sentinel that watches a primary, and is alone in deciding that it is down. */
  static async sentinel (name: string, primary: number): Promise<RedisServer> {
    const server = new RedisServer(await freePort(), [])
    const directory = await server.#makeDirectory()
    const file = join(directory, 'sentinel.conf')
    await writeFile(file, [
      `port ${server.port}`, 'bind 127.0.0.1', `dir ${directory}`,
      `sentinel monitor ${name} 127.0.0.1 ${primary} 1`, `sentinel down-after-milliseconds ${name} 500`, `sentinel failover-timeout ${name} 3000`
    ].join('\n'))
    await server.#spawn([file, '--sentinel'], /Sentinel ID is/)
    return server
  }

  get url (): string { return `redis://127.0.0.1:${this.port}` }

  /** Starts it, or starts it again: empty. */
  async up (): Promise<void> {
    const directory = await this.#makeDirectory()
    await this.#spawn(
      ['--port', String(this.port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', directory, ...this.#args],
      /Ready to accept connections/)
  }

  async #makeDirectory (): Promise<string> {
    this.#directory ??= await mkdtemp(join(tmpdir(), 'redis-'))
    return this.#directory
  }

  async #spawn (args: readonly string[], ready: RegExp): Promise<void> {
    const child = spawn('sh', ['-c', GUARDED, 'redis-server', ...args], { stdio: ['pipe', 'pipe', 'inherit'] })
    this.#child = child
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('redis-server did not start')), START_TIMEOUT)
      child.once('error', reject)
      child.once('exit', (code) => reject(new Error(`redis-server ended with code ${code}`)))
      createInterface({ input: child.stdout }).on('line', (line) => {
        if (line.startsWith('pid ')) this.#pid = Number(line.slice(4))
        if (!ready.test(line)) return
        clearTimeout(timer)
        resolve()
      })
    })
    child.removeAllListeners('exit')
  }

  async down (): Promise<void> {
    const child = this.#child
    this.#child = undefined
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    process.kill(this.#pid!, 'SIGKILL')
    await exited
  }

  /** It neither answers nor closes connections. */
  pause (): void { process.kill(this.#pid!, 'SIGSTOP') }
  resume (): void { process.kill(this.#pid!, 'SIGCONT') }

  /** A client that lives as long as the server does. */
  client (): Redis {
    const client = new Redis({ port: this.port, maxRetriesPerRequest: null })
    client.on('error', () => {})
    this.#clients.push(client)
    return client
  }

  async close (): Promise<void> {
    for (const client of this.#clients) client.disconnect()
    await this.down()
    if (this.#directory !== undefined) await rm(this.#directory, { recursive: true, force: true })
  }
}

/** Masters that share all slots. */
export class RedisCluster {
  readonly #servers: RedisServer[]
  readonly #clients: Cluster[] = []

  private constructor (servers: RedisServer[]) {
    this.#servers = servers
  }

  static async start (masters = 3): Promise<RedisCluster> {
    const buses = await Promise.all(Array.from({ length: masters }, freePort))
    const servers = await Promise.all(buses.map(async (bus) => RedisServer.start(
      '--cluster-enabled', 'yes', '--cluster-port', String(bus), '--cluster-node-timeout', '2000', '--cluster-config-file', 'nodes.conf')))
    const admins = servers.map((server) => server.client())
    await Promise.all(admins.map(async (admin, at) => {
      await admin.call('CLUSTER', 'ADDSLOTSRANGE', Math.ceil(16384 * at / masters), Math.ceil(16384 * (at + 1) / masters) - 1)
      await admin.call('CLUSTER', 'MEET', '127.0.0.1', servers[0]!.port, buses[0]!)
    }))
    for (const admin of admins) {
      const deadline = Date.now() + START_TIMEOUT
      // Every node says when it knows an owner of every slot: there is no event to wait for.
      while (!(await admin.cluster('INFO')).includes('cluster_state:ok') || (await admin.cluster('SLOTS')).length < masters) {
        if (Date.now() > deadline) throw new Error('the cluster did not form')
        await new Promise((resolve) => { setTimeout(resolve, 20) })
      }
    }
    return new RedisCluster(servers)
  }

  client (): Cluster {
    const client = new Cluster(this.#servers.map(({ port }) => ({ host: '127.0.0.1', port })))
    client.on('error', () => {})
    this.#clients.push(client)
    return client
  }

  /** All keys, of all nodes. */
  async keys (): Promise<string[]> {
    return (await Promise.all(this.#servers.map(async (server) => server.client().keys('*')))).flat()
  }

  async close (): Promise<void> {
    for (const client of this.#clients) client.disconnect()
    await Promise.all(this.#servers.map(async (server) => server.close()))
  }
}
