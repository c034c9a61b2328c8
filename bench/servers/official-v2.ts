// The official SDK 2.x behind its own Node handler, as its documentation shows it: a server per request.

import { createServer } from 'node:http'
import { toNodeHandler } from '@modelcontextprotocol/node'
import { createMcpHandler } from '@modelcontextprotocol/server'
import { ready } from './harness.js'
import { buildV2 } from './official-v2-tools.js'

const mcp = createMcpHandler(buildV2)
const handler = toNodeHandler(mcp)
const server = createServer((request, response) => { void handler(request as Parameters<typeof handler>[0], response) })
server.listen(0, '127.0.0.1', () => ready((server.address() as { port: number }).port, ({ type }) => { if (type === 'change') mcp.notify.toolsChanged() }))
