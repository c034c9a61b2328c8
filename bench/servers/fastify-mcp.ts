// fastify-mcp: the official SDK 1.x as a Fastify plugin, with its sessions.

import Fastify from 'fastify'
import { Sessions, streamableHttp } from 'fastify-mcp'
import { ready } from './harness.js'
import { buildV1 } from './official-v1-tools.js'

const app = Fastify()
const stateful = process.env.STATELESS !== '1'
await app.register(streamableHttp as any, {
  stateful, mcpEndpoint: '/mcp', sessions: new Sessions(), createServer: () => buildV1().server
})
await app.listen({ host: '127.0.0.1', port: 0 })
ready((app.server.address() as { port: number }).port)
