// examples/cluster: one command up, one command down, and between them one session at three processes.

import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { withoutRedis } from '../backplane/redis-server.js'
import { request } from '../kit.js'
import { withoutNginx } from './balancer.js'
import { Client } from './client.js'

const run = promisify(execFile)

/** The first of some ports in a row that are free, below those that the system gives to connections. */
async function freeRow (count: number): Promise<number> {
  for (;;) {
    const first = 20_000 + Math.floor(Math.random() * 10_000)
    const servers = Array.from({ length: count }, () => createServer())
    const taken = await Promise.all(servers.map(async (server, at) => once(server.listen(first + at, '127.0.0.1'), 'listening').then(() => false, () => true)))
    await Promise.all(servers.filter(({ listening }) => listening).map(async (server) => once(server.close(), 'close')))
    if (!taken.includes(true)) return first
  }
}

t.test('the cluster of the example goes up, is replaced under its clients, and goes down', { skip: withoutRedis || withoutNginx }, async (t) => {
  const port = await freeRow(5)
  const env = { ...process.env, PORT: String(port) }
  const cluster = async (command: string): Promise<string> => (await run(process.execPath, ['build/examples/cluster/cluster.js', command], { env })).stdout
  t.teardown(async () => cluster('down').catch(() => {}))
  await t.rejects(cluster('deploy'), { code: 1, stderr: 'nothing is up: `npm run cluster:up` starts it\n' })
  t.match(await cluster('up'), `http://127.0.0.1:${port}/mcp`)
  await t.rejects(cluster('up'), { code: 1, stderr: 'it is up already: `npm run cluster:down` ends it\n' })
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
  t.notMatch(readFileSync(join(directory, 'one.log'), 'utf8'), /"level":[45]0/, 'nothing to warn of')
  t.notOk([...after].some((pid) => before.has(pid)), 'other processes, the same session')

  t.match(await cluster('down'), 'all has ended')
  t.match(await cluster('down'), 'nothing was up')
  t.notOk(existsSync(directory))
  for (const pid of pids) t.throws(() => process.kill(pid, 0), { code: 'ESRCH' })
})
