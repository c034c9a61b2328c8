// Serves the conformance fixture alone, without credentials, on the loopback address. PORT chooses the port, 0 or nothing any free one.
// Prints the address as its only line of output, so that a parent process can read it.

import { fastify } from 'fastify'
import type { AddressInfo } from 'node:net'
import cloudgMcp from '../../plugin.js'
import { createFixture } from './fixture.js'

const app = fastify({ logger: { level: 'warn', stream: process.stderr } })
await app.register(cloudgMcp, { layer: createFixture(), resumable: true })
await app.listen({ host: '127.0.0.1', port: Number(process.env['PORT'] ?? 0) })

for (const event of ['SIGINT', 'SIGTERM', 'disconnect']) process.once(event, () => { void app.close() })

const { port } = app.server.address() as AddressInfo
console.log(`http://127.0.0.1:${port}/mcp`)
