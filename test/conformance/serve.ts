// Serves the conformance fixture alone, without credentials, on the loopback address. PORT chooses the port, 0 or nothing any free one;
// REDIS_URL makes it one of several processes.
// Prints the address as its only line of output, so that a parent process can read it.

import { fastify } from 'fastify'
import type { AddressInfo } from 'node:net'
import { redisBackplane } from '../../lib/backplane/redis.js'
import cloudgMcp from '../../plugin.js'
import { createFixture } from './fixture.js'

const app = fastify({ logger: { level: 'warn', stream: process.stderr } })
const { PORT = '0', REDIS_URL: url } = process.env
const shared = url === undefined ? {} : { backplane: redisBackplane({ url }), requestState: { keys: ['a key that all processes of the suite share'] } }
await app.register(cloudgMcp, { layer: createFixture(), resumable: true, ...shared })
await app.listen({ host: '127.0.0.1', port: Number(PORT) })

for (const event of ['SIGINT', 'SIGTERM', 'disconnect']) process.once(event, () => { void app.close() })

const { port } = app.server.address() as AddressInfo
console.log(`http://127.0.0.1:${port}/mcp`)
