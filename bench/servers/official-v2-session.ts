// The official SDK 2.x with handshake sessions: a transport and a server per session, on node:http.

import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node'
import { ready } from './harness.js'
import { buildV2 } from './official-v2-tools.js'

const sessions = new Map<string, { transport: NodeStreamableHTTPServerTransport, server: ReturnType<typeof buildV2> }>()

const server = createServer((request, response) => {
  void (async () => {
    const known = sessions.get(request.headers['mcp-session-id'] as string)
    if (known !== undefined) return known.transport.handleRequest(request, response)
    const mcp = buildV2()
    const transport: NodeStreamableHTTPServerTransport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: process.env.JSON === '1',
      onsessioninitialized: (id: string) => { sessions.set(id, { transport, server: mcp }) }
    })
    transport.onclose = () => { sessions.delete(transport.sessionId!) }
    await mcp.connect(transport)
    return transport.handleRequest(request, response)
  })()
})
server.listen(0, '127.0.0.1', () => ready((server.address() as { port: number }).port, ({ type }) => {
  if (type === 'sessions') return sessions.size
  if (type === 'change') for (const { server: one } of sessions.values()) one.sendToolListChanged()
  return undefined
}))
