// `npm run conformance:cluster`: the official suite through nginx, round robin over three processes on Redis, held against the same floor
// as one process. Arguments are passed on: revisions, for those alone.

import { fork, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { RedisServer } from '../backplane/redis-server.js'
import { startBalancer } from './balancer.js'

const redis = await RedisServer.start()
const servers: ChildProcess[] = []
let balancer: Awaited<ReturnType<typeof startBalancer>> | undefined
try {
  const ports = await Promise.all(Array.from({ length: 3 }, startServer))
  balancer = await startBalancer(ports)
  const script = fileURLToPath(new URL('../conformance/run.js', import.meta.url))
  const run = spawn(process.execPath, [script, '--url', `http://127.0.0.1:${balancer.port}/mcp`, '--floor', ...process.argv.slice(2)], { stdio: 'inherit' })
  const [code] = await once(run, 'exit') as [number | null]
  process.exitCode = code ?? 1
} finally {
  await balancer?.stop()
  for (const server of servers) server.kill('SIGKILL')
  await redis.close()
}

async function startServer (): Promise<number> {
  const child = fork(new URL('../conformance/serve.js', import.meta.url), {
    env: { ...process.env, PORT: '0', REDIS_URL: redis.url },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc']
  })
  servers.push(child)
  const gone = new AbortController()
  child.once('exit', () => gone.abort())
  const [line] = await once(createInterface({ input: child.stdout! }), 'line', { signal: gone.signal }) as [string]
  return Number(new URL(line).port)
}
