// The same server twice: hosted by the plugin, where it gains 2026-07-28, sessions and tokens; and by itself, with a layer in it.

import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import Fastify from 'fastify'
import type { FastifyInstance } from 'fastify'
import { hostServer, registerInto } from '../../lib/adapters/index.js'
import { createLayer } from '../../lib/layer/layer.js'
import type { AppLayer } from '../../lib/layer/layer.js'
import cloudgMcp from '../../plugin.js'
import { createWarehouse } from './servers.js'

export async function buildApp (tokens: readonly string[]): Promise<FastifyInstance> {
  const app = Fastify({ logger: { level: 'warn' } })
  await app.register(cloudgMcp, { layer: hostServer(createWarehouse), auth: { tokens } })
  return app
}

export function suppliersLayer (): AppLayer {
  const layer = createLayer({ name: 'suppliers', version: '1.0.0' })
  layer.tool('list_suppliers', { description: 'Who delivers parts', annotations: { readOnlyHint: true } }, () => ({ suppliers: ['Acme', 'Globex'] }))
  return layer
}

export function createExtendedWarehouse (): McpServer {
  const server = createWarehouse()
  registerInto(server, suppliersLayer(), { prefix: 'suppliers_' })
  return server
}
