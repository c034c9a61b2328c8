// nginx with the configuration of the cluster example: round robin over three ports.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../backplane/redis-server.js'

const env = { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin` }

/** Why the tests that need nginx do not run here; false when they do. */
export const withoutNginx: string | false = process.env['CI'] === undefined && spawnSync('nginx', ['-v'], { env }).error !== undefined
  ? 'nginx is not installed'
  : false

export async function startBalancer (ports: readonly number[]): Promise<{ port: number, stop: () => Promise<void> }> {
  const port = await freePort()
  const directory = mkdtempSync(join(tmpdir(), 'balancer-'))
  const file = join(directory, 'nginx.conf')
  writeFileSync(file, readFileSync('examples/cluster/nginx.conf', 'utf8').replace(/808(\d)/g, (_, last: string) => String(last === '0' ? port : ports[Number(last) - 1])))
  const child = spawn('nginx', ['-e', 'stderr', '-p', directory, '-c', file], { env, stdio: ['ignore', 'ignore', 'inherit'] })
  const exited = once(child, 'exit')
  for (let listening = false; !listening;) {
    if (child.exitCode !== null) throw new Error('nginx did not start')
    const socket = connect(port, '127.0.0.1')
    listening = await once(socket, 'connect').then(() => true, () => false)
    socket.destroy()
    if (!listening) await sleep(10)
  }
  return {
    port,
    stop: async () => {
      child.kill('SIGTERM')
      await exited
      rmSync(directory, { recursive: true, force: true })
    }
  }
}
