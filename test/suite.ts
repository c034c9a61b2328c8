// `npm test`: all tests, or the files that are named. `--http`: those of the HTTP side; `--redis`: these with sessions on a Redis of their own.
// Under Node's runner: tap's own puts a loader into every process that a test starts, which takes longer than most of them live.

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { run } from 'node:test'
import { spec as Spec, tap } from 'node:test/reporters'
import { RedisServer } from './backplane/redis-server.js'

const ROOT = 'build/test'
const HTTP = /^(http|field)[\\/]|^asking[\\/](live|resumable)\./
/** ms for a file */
const TIMEOUT = 300_000

const onRedis = process.argv.includes('--redis')
const onlyHttp = onRedis || process.argv.includes('--http')
const named = process.argv.slice(2).filter((argument) => !argument.startsWith('--'))
const all = readdirSync(ROOT, { recursive: true }).map(String).filter((file) => file.endsWith('.test.js') && (!onlyHttp || HTTP.test(file))).sort()
const files = named.length > 0 ? named : all.map((file) => join(ROOT, file))

const server = onRedis ? await RedisServer.start() : undefined
if (server !== undefined) process.env['CLOUDG_TEST_REDIS'] = server.url
// tap's own limit is for what a test may take, and that of the runner for a file: the same here.
process.env['TAP_TIMEOUT'] ??= String(TIMEOUT / 1000)
const results = run({ files, concurrency: 2, timeout: TIMEOUT })
results.on('test:fail', () => { process.exitCode = 1 })
results.once('end', () => { void server?.close() })
results.compose(process.stdout.isTTY ? new Spec() : tap).pipe(process.stdout)
