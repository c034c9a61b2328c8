// The official SDK 2.x behind its own Node handler, as its documentation shows it: a server per request for 2026-07-28.

import { createServer } from 'node:http'
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import { toNodeHandler } from '@modelcontextprotocol/node'
import { z } from 'zod'
import { plainTools, rows, slowMs } from './data.js'
import { ready } from './harness.js'

const row = z.object({ id: z.number().int(), name: z.string(), region: z.string(), tags: z.array(z.string()), score: z.number() })
const parameters = z.object({
  provider: z.enum(['aws', 'azure', 'gcp']).describe('The cloud provider to look at'),
  region: z.string().min(1).max(64).optional().describe('Region as the provider names it'),
  limit: z.number().int().min(1).max(500).optional().describe('How many entries to return at most'),
  include_tags: z.boolean().optional().describe('Return the tags of every entry too'),
  cursor: z.string().optional().describe('Where the last page ended'),
  severity: z.enum(['low', 'medium', 'high', 'critical']).optional()
})

function build (): McpServer {
  const server = new McpServer({ name: 'bench', version: '1.0.0' })
  server.registerTool('echo', { description: 'Echo', inputSchema: z.object({ text: z.string() }) }, async ({ text }) => ({ content: [{ type: 'text', text }] }))
  server.registerTool('progress', { description: 'Reports twice', inputSchema: z.object({ text: z.string() }) }, async ({ text }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken
    if (progressToken !== undefined) {
      for (const progress of [1, 2]) await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 2 } })
    }
    return { content: [{ type: 'text', text }] }
  })
  server.registerTool('big', { description: '100 KB', outputSchema: z.object({ rows: z.array(row) }) }, async () => (
    { content: [{ type: 'text', text: `${rows.length} rows` }], structuredContent: { rows } }))
  server.registerTool('slow', { description: 'Takes its time' }, async () => {
    await new Promise((resolve) => { setTimeout(resolve, slowMs) })
    return { content: [{ type: 'text', text: 'done' }] }
  })
  if (process.env.TOOLS === '73') {
    for (const { name, description } of plainTools) server.registerTool(name, { description, inputSchema: parameters }, async () => ({ content: [{ type: 'text', text: 'ok' }] }))
  }
  return server
}

const handler = toNodeHandler(createMcpHandler(build))
const server = createServer((request, response) => { void handler(request as Parameters<typeof handler>[0], response) })
server.listen(0, '127.0.0.1', () => ready((server.address() as { port: number }).port))
