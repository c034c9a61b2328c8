// fastmcp on its HTTP stream transport.

import { createServer } from 'node:net'
import { FastMCP } from 'fastmcp'
import { z } from 'zod'
import { plainTools } from './data.js'
import { ready } from './harness.js'
import { big, echoShape, manyTools, pause, plainShape, said } from './tools.js'

const server = new FastMCP({ name: 'bench', version: '1.0.0' })
server.addTool({ name: 'echo', description: 'Echo', parameters: z.object(echoShape), execute: async ({ text }) => said(text) })
server.addTool({
  name: 'progress',
  description: 'Reports twice',
  parameters: z.object(echoShape),
  execute: async ({ text }, { reportProgress }) => {
    for (const progress of [1, 2]) await reportProgress({ progress, total: 2 })
    return said(text)
  }
})
server.addTool({ name: 'big', description: '100 KB', execute: async () => big() as never })
server.addTool({
  name: 'slow',
  description: 'Takes its time',
  execute: async () => {
    await pause()
    return said('done')
  }
})
if (manyTools) for (const { name, description } of plainTools) server.addTool({ name, description, parameters: z.object(plainShape), execute: async () => said('ok') })

// It wants a port number: one that the system has just given and taken back.
const probe = createServer()
const port = await new Promise<number>((resolve) => { probe.listen(0, '127.0.0.1', () => resolve((probe.address() as { port: number }).port)) })
await new Promise((resolve) => { probe.close(resolve) })
await server.start({ transportType: 'httpStream', httpStream: { port, host: '127.0.0.1', stateless: process.env.STATELESS === '1', enableJsonResponse: process.env.JSON === '1' } as never })
ready(port)
