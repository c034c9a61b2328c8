// Redis, three processes and nginx in front of them, in the background: `up`, `deploy` (one process after the other is replaced), `down`.
// PORT is where nginx listens (8080); the processes have the three ports after it, and Redis the fourth.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

const port = Number(process.env['PORT'] ?? 8080)
const redisPort = port + 4
const names = ['one', 'two', 'three']
const directory = join(tmpdir(), `cloudg-mcp-cluster-${port}`)
const pidFile = join(directory, 'pids.json')
const configuration = new URL('../../../examples/cluster/nginx.conf', import.meta.url)
const server = fileURLToPath(new URL('server.js', import.meta.url))

const commands: Record<string, () => Promise<void>> = { up, deploy, down }
const command = commands[process.argv[2] ?? '']
if (command === undefined) {
  console.error(`usage: cluster.js ${Object.keys(commands).join('|')}`)
  process.exitCode = 1
} else {
  await command().catch((error: Error) => {
    console.error(error.message)
    process.exitCode = 1
  })
}

async function up (): Promise<void> {
  if (isUp()) throw new Error('it is up already: `npm run cluster:down` ends it')
  for (const one of [port, port + 1, port + 2, port + 3, redisPort]) {
    if (await listens(one)) throw new Error(`port ${one} is taken: choose others with PORT`)
  }
  mkdirSync(directory, { recursive: true })
  writeFileSync(pidFile, '{}')
  start('redis', 'redis-server', ['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', directory])
  await until(async () => listens(redisPort), 'Redis')
  await Promise.all(names.map(startProcess))
  const file = join(directory, 'nginx.conf')
  writeFileSync(file, readFileSync(configuration, 'utf8').replace(/808(\d)/g, (_, last: string) => String(port + Number(last))))
  start('nginx', 'nginx', ['-e', join(directory, 'error.log'), '-p', directory, '-c', file])
  await until(async () => listens(port), 'nginx')
  console.log(`http://127.0.0.1:${port}/mcp, served by ${names.length} processes; logs are in ${directory}`)
}

async function deploy (): Promise<void> {
  if (!isUp()) throw new Error('nothing is up: `npm run cluster:up` starts it')
  for (const [at, name] of names.entries()) {
    await stop(name)
    await startProcess(name, at)
    console.log(`${name} has been replaced`)
  }
}

async function down (): Promise<void> {
  const wasUp = isUp()
  for (const name of ['nginx', ...names, 'redis']) await stop(name)
  rmSync(directory, { recursive: true, force: true })
  console.log(wasUp ? 'all has ended' : 'nothing was up')
}

async function startProcess (name: string, at: number): Promise<void> {
  start(name, process.execPath, [server], {
    PORT: String(port + 1 + at), REDIS_URL: `redis://127.0.0.1:${redisPort}`, PUBLIC_URL: `http://127.0.0.1:${port}`
  })
  await until(async () => (await fetch(`http://127.0.0.1:${port + 1 + at}/healthz`)).ok, name)
}

/** Starts something that outlives this command. */
function start (name: string, binary: string, args: string[], env: Record<string, string> = {}): void {
  const log = openSync(join(directory, `${name}.log`), 'a')
  const child = spawn(binary, args, { detached: true, stdio: ['ignore', log, log], env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin`, ...env } })
  child.once('error', ({ message }) => {
    console.error(`${binary} cannot be started: ${message}`)
    process.exit(1)
  })
  child.unref()
  writeFileSync(pidFile, JSON.stringify({ ...pids(), [name]: child.pid }))
}

async function stop (name: string): Promise<void> {
  const { [name]: pid, ...others } = pids()
  if (pid === undefined) return
  if (lives(pid)) process.kill(pid, 'SIGTERM')
  await until(async () => !lives(pid), `the end of ${name}`)
  writeFileSync(pidFile, JSON.stringify(others))
}

/** What has been started and not ended; nothing when there is no cluster. */
function pids (): Record<string, number> {
  return !existsSync(pidFile) ? {} : JSON.parse(readFileSync(pidFile, 'utf8')) as Record<string, number>
}

function isUp (): boolean {
  return Object.values(pids()).some(lives)
}

function lives (pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

async function listens (at: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(at, '127.0.0.1')
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false)).once('connect', () => socket.destroy())
  })
}

async function until (done: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + 30_000
  while (!await done().catch(() => false)) {
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}: see ${directory}`)
    await sleep(50)
  }
}
