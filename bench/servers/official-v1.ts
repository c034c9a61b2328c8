// The official SDK 1.x: a transport and a server per session, or per request without sessions (STATELESS=1), on node:http.

import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { ready } from './harness.js'
import { buildV1 } from './official-v1-tools.js'

const stateless = process.env.STATELESS === '1'
const sessions = new Map<string, StreamableHTTPServerTransport>()

const server = createServer((request, response) => {
  void (async () => {
    const known = sessions.get(request.headers['mcp-session-id'] as string)
    if (known !== undefined) return known.handleRequest(request, response)
    const transport: StreamableHTTPServerTransport = new StreamableHTTPServerTransport({
      enableJsonResponse: process.env.JSON === '1',
      ...(stateless ? { sessionIdGenerator: undefined } : { sessionIdGenerator: randomUUID, onsessioninitialized: (id: string) => { sessions.set(id, transport) } })
    } as ConstructorParameters<typeof StreamableHTTPServerTransport>[0])
    transport.onclose = () => { sessions.delete(transport.sessionId!) }
    await buildV1().connect(transport as Parameters<ReturnType<typeof buildV1>['connect']>[0])
    return transport.handleRequest(request, response)
  })()
})
server.listen(0, '127.0.0.1', () => ready((server.address() as { port: number }).port, ({ type }) => type === 'sessions' ? sessions.size : undefined))
