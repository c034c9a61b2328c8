// This plugin, as it is used in production: guard, a bearer token, sessions, cancellation, paging, visibility.

import Fastify from 'fastify'
import { z } from 'zod'
import cloudgMcp from '../../plugin.js'
import { plainTools, rows, slowMs, TOKEN } from './data.js'
import { ready } from './harness.js'

const app = Fastify()
await app.register(cloudgMcp, {
  serverInfo: { name: 'bench', version: '1.0.0' },
  auth: { tokens: [`${TOKEN}:bench:bench`] },
  responseMode: process.env.RESPONSE_MODE === 'sse' ? 'sse' : 'auto',
  stateless: process.env.STATELESS === '1',
  maxSessions: 20_000,
  maxSessionsPerPrincipal: 20_000,
  maxStreams: 20_000
})
const { mcp } = app
mcp.tool('echo', { description: 'Echo', input: { text: z.string() } }, async ({ text }) => ({ content: [{ type: 'text', text }] }))
mcp.tool('progress', { description: 'Reports twice', input: { text: z.string() } }, async ({ text }, ctx) => {
  await ctx.progress(1, 2)
  await ctx.progress(2, 2)
  return { content: [{ type: 'text', text }] }
})
const row = z.object({ id: z.number().int(), name: z.string(), region: z.string(), tags: z.array(z.string()), score: z.number() })
mcp.tool('big', { description: '100 KB', output: z.object({ rows: z.array(row) }) }, async () => (
  { content: [{ type: 'text' as const, text: `${rows.length} rows` }], structuredContent: { rows } }))
mcp.tool('slow', { description: 'Takes its time' }, async () => {
  await new Promise((resolve) => { setTimeout(resolve, slowMs) })
  return 'done'
})
if (process.env.TOOLS === '73') for (const { name, description, inputSchema } of plainTools) mcp.tool(name, { description, input: inputSchema }, async () => 'ok')
await app.listen({ host: '127.0.0.1', port: 0 })
ready((app.server.address() as { port: number }).port, ({ type }) => type === 'change' ? mcp.notifyChanged('tools') : undefined)
