// `npm run test:redis`: the tests of the HTTP side once more, with sessions on a Redis of their own.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { RedisServer } from './redis-server.js'

const FILES = ['build/test/http/*.test.js', 'build/test/field/*.test.js', 'build/test/asking/{live,resumable}.test.js']

const server = await RedisServer.start()
try {
  const files = process.argv.length > 2 ? process.argv.slice(2) : FILES
  const tap = spawn(process.execPath, ['node_modules/.bin/tap', 'run', '--disable-coverage', ...files], {
    stdio: 'inherit',
    env: { ...process.env, CLOUDG_TEST_REDIS: server.url }
  })
  const [code] = await once(tap, 'exit') as [number | null]
  process.exitCode = code ?? 1
} finally {
  await server.close()
}
