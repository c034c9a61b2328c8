// This plugin as an OAuth resource server whose issuer's keys are given, so that nothing but the plugin is measured.

import Fastify from 'fastify'
import { z } from 'zod'
import cloudgMcp from '../../plugin.js'
import { ready } from './harness.js'

const app = Fastify()
await app.register(cloudgMcp, {
  publicUrl: 'http://127.0.0.1',
  auth: { oauth: { issuer: 'https://idp.example', jwks: JSON.parse(process.env.JWKS!) as { keys: unknown[] } } }
})
app.mcp.tool('echo', { input: { text: z.string() } }, async ({ text }) => ({ content: [{ type: 'text', text }] }))
await app.listen({ host: '127.0.0.1', port: 0 })
ready((app.server.address() as { port: number }).port)
