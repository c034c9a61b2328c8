// mcp-lite on @hono/node-server.

import { serve } from '@hono/node-server'
import { InMemorySessionAdapter, McpServer, StreamableHttpTransport } from 'mcp-lite'
import { z } from 'zod'
import { plainTools } from './data.js'
import { ready } from './harness.js'
import { big, bigShape, echoShape, manyTools, pause, plainShape, said } from './tools.js'

const mcp = new McpServer({ name: 'bench', version: '1.0.0', schemaAdapter: (schema) => z.toJSONSchema(schema as z.ZodType) })
mcp.tool('echo', { description: 'Echo', inputSchema: z.object(echoShape), handler: async ({ text }) => said(text) })
mcp.tool('progress', {
  description: 'Reports twice',
  inputSchema: z.object(echoShape),
  handler: async ({ text }, ctx) => {
    for (const progress of [1, 2]) await ctx.progress?.({ progress, total: 2 })
    return said(text)
  }
})
mcp.tool('big', { description: '100 KB', inputSchema: z.object({}), outputSchema: z.object(bigShape), handler: async () => big() as never })
mcp.tool('slow', {
  description: 'Takes its time',
  inputSchema: z.object({}),
  handler: async () => {
    await pause()
    return said('done')
  }
})
if (manyTools) for (const { name, description } of plainTools) mcp.tool(name, { description, inputSchema: z.object(plainShape), handler: async () => said('ok') })
const transport = new StreamableHttpTransport(process.env.STATELESS === '1' ? {} : { sessionAdapter: new InMemorySessionAdapter({ maxEventBufferSize: 1024 }) })
const handle = transport.bind(mcp)
serve({ fetch: (request) => handle(request), port: 0, hostname: '127.0.0.1' }, ({ port }) => ready(port))
