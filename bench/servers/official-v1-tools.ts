// A McpServer of the official SDK 1.x with the tools of the benchmark.

import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { plainTools } from './data.js'
import { big, bigShape, echoShape, manyTools, pause, plainShape, said } from './tools.js'

export function buildV1 (): McpServer {
  const server = new McpServer({ name: 'bench', version: '1.0.0' })
  server.registerTool('echo', { description: 'Echo', inputSchema: echoShape }, async ({ text }) => said(text))
  server.registerTool('progress', { description: 'Reports twice', inputSchema: echoShape }, async ({ text }, extra) => {
    const progressToken = extra._meta?.progressToken
    if (progressToken !== undefined) {
      for (const progress of [1, 2]) await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: 2 } })
    }
    return said(text)
  })
  server.registerTool('big', { description: '100 KB', outputSchema: bigShape }, async () => big())
  server.registerTool('slow', { description: 'Takes its time' }, async () => {
    await pause()
    return said('done')
  })
  if (manyTools) for (const { name, description } of plainTools) server.registerTool(name, { description, inputSchema: plainShape }, async () => said('ok'))
  return server
}
