// A real nginx on a free port, with nothing but the given lines in its server block.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'

const env = { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin` }
const installed = spawnSync('nginx', ['-v'], { env }).status === 0

/** Why its tests are left out; they never are in CI. */
export const noNginx = installed || process.env['CI'] === 'true' ? false : 'nginx is not installed'

async function freePort (): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** Resolves to its port once it listens; it ends with the test. */
export async function nginx (t: Test, server: string): Promise<number> {
  const port = await freePort()
  const dir = mkdtempSync(join(tmpdir(), 'cloudg-mcp-nginx-'))
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${dir}/${name};`)
  writeFileSync(join(dir, 'nginx.conf'), `daemon off; master_process off; pid ${dir}/nginx.pid; error_log stderr;
    events { worker_connections 128; }
    http { access_log off; ${temporary.join(' ')} server { listen 127.0.0.1:${port}; ${server} } }`)
  const child = spawn('nginx', ['-e', 'stderr', '-p', dir, '-c', join(dir, 'nginx.conf')], { env, stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr.on('data', (chunk) => { said += chunk })
  const exited = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGTERM')
    await exited
    rmSync(dir, { recursive: true })
  })
  while (child.exitCode === null) {
    const socket = connect(port, '127.0.0.1')
    try {
      await once(socket, 'connect')
      return port
    } catch {
      await sleep(10)
    } finally {
      socket.destroy()
    }
  }
  throw new Error(`nginx did not start: ${said}`)
}
