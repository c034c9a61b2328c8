// examples/cluster: one command up, one command down, and between them one session at three processes.

import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { freePort, withoutRedis } from '../backplane/redis-server.js'
import { request } from '../kit.js'
import { withoutNginx } from './balancer.js'
import { Client } from './client.js'

const run = promisify(execFile)

t.test('the cluster of the example goes up, is replaced under its clients, and goes down', { skip: withoutRedis || withoutNginx }, async (t) => {
  // Five ports in a row: what is free now is most likely free in a moment.
  const port = Math.min(await freePort(), 65_000)
  const env = { ...process.env, PORT: String(port) }
  const cluster = async (command: string): Promise<string> => (await run(process.execPath, ['build/examples/cluster/cluster.js', command], { env })).stdout
  t.teardown(async () => cluster('down').catch(() => {}))
  t.match(await cluster('up'), `http://127.0.0.1:${port}/mcp`)
  const directory = join(tmpdir(), `cloudg-mcp-cluster-${port}`)
  const pids = Object.values(JSON.parse(readFileSync(join(directory, 'pids.json'), 'utf8')) as Record<string, number>)
  t.equal(pids.length, 5)

  const client = new Client({ ports: [port] })
  await client.initialize()
  const askAll = async (): Promise<Set<number>> => {
    const answers = await Promise.all(Array.from({ length: 6 }, async () => client.post(request('tools/call', { name: 'who_serves', arguments: {} }))))
    return new Set(answers.map(({ json }) => json.result.structuredContent.process as number))
  }
  const before = await askAll()
  t.equal(before.size, 3, 'one session, three processes')
  const stream = await client.get()
  t.equal(stream.status, 200)
  const served: number[] = []
  const deployed = new AbortController()
  const traffic = (async () => {
    while (!deployed.signal.aborted) served.push((await client.post(request('ping'))).status)
  })()
  await cluster('deploy')
  deployed.abort()
  await traffic
  t.same([...new Set(served)].filter((status) => status !== 200), [], `of ${served.length} requests during the deploy`)
  await stream.end()
  t.ok(stream.complete)
  const after = await askAll()
  t.equal(after.size, 3)
  t.notOk([...after].some((pid) => before.has(pid)), 'other processes, the same session')

  t.match(await cluster('down'), 'all has ended')
  t.notOk(existsSync(directory))
  for (const pid of pids) t.throws(() => process.kill(pid, 0), { code: 'ESRCH' })
})
