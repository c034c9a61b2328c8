// A McpServer of the official SDK 2.x with the tools of the benchmark.

import { McpServer } from '@modelcontextprotocol/server'
import { z } from 'zod'
import { plainTools } from './data.js'
import { big, bigShape, echoShape, manyTools, pause, plainShape, said } from './tools.js'

const echo = z.object(echoShape)
const rows = z.object(bigShape)
const parameters = z.object(plainShape)

export function buildV2 (): McpServer {
  const server = new McpServer({ name: 'bench', version: '1.0.0' })
  server.registerTool('echo', { description: 'Echo', inputSchema: echo }, async ({ text }) => said(text))
  server.registerTool('progress', { description: 'Reports twice', inputSchema: echo }, async ({ text }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken
    if (progressToken !== undefined) {
      for (const progress of [1, 2]) await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 2 } })
    }
    return said(text)
  })
  server.registerTool('big', { description: '100 KB', outputSchema: rows }, async () => big())
  server.registerTool('slow', { description: 'Takes its time' }, async () => {
    await pause()
    return said('done')
  })
  if (manyTools) for (const { name, description } of plainTools) server.registerTool(name, { description, inputSchema: parameters }, async () => said('ok'))
  return server
}
