// tmcp with its HTTP transport on @hono/node-server; it serves both eras.

import { serve } from '@hono/node-server'
import { ZodJsonSchemaAdapter } from '@tmcp/adapter-zod'
import { HttpTransport } from '@tmcp/transport-http'
import { McpServer } from 'tmcp'
import { z } from 'zod'
import { plainTools } from './data.js'
import { ready } from './harness.js'
import { big, bigShape, echoShape, manyTools, pause, plainShape, said } from './tools.js'

const server: any = new McpServer({ name: 'bench', version: '1.0.0', description: 'bench' }, {
  adapter: new ZodJsonSchemaAdapter() as never, capabilities: { tools: { listChanged: true } }
})
server.tool({ name: 'echo', description: 'Echo', schema: z.object(echoShape) }, async ({ text }: { text: string }) => said(text))
server.tool({ name: 'progress', description: 'Reports twice', schema: z.object(echoShape) }, async ({ text }: { text: string }) => {
  for (const progress of [1, 2]) await server.progress(progress, 2)
  return said(text)
})
server.tool({ name: 'big', description: '100 KB', outputSchema: z.object(bigShape) }, async () => big())
server.tool({ name: 'slow', description: 'Takes its time' }, async () => {
  await pause()
  return said('done')
})
if (manyTools) for (const { name, description } of plainTools) server.tool({ name, description, schema: z.object(plainShape) }, async () => said('ok'))
const transport = new HttpTransport(server, { path: '/mcp' })
serve({ fetch: async (request) => await transport.respond(request) ?? new Response(null, { status: 404 }), port: 0, hostname: '127.0.0.1' }, ({ port }) => ready(port))
