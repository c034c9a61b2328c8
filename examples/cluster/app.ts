// One process of a service of several. It keeps its sessions on Redis, so that the next request of a client may come to any of them.
import Fastify, { type FastifyInstance, type FastifyServerOptions } from 'fastify'
import { redisBackplane } from '../../lib/backplane/redis.js'
import cloudgMcp from '../../plugin.js'
import { createInventoryLayer } from '../inventory/layer.js'

export interface ClusterOptions {
  /** `redis://…`, the same for all processes. */
  redisUrl: string
  /** What questions to 2026 clients are sealed with, the same for all processes. */
  stateKey: string
  /** What clients connect to: the proxy's URL. */
  publicUrl: string
  logger?: FastifyServerOptions['logger']
}

export async function buildApp ({ redisUrl, stateKey, publicUrl, logger = false }: ClusterOptions): Promise<FastifyInstance> {
  const layer = createInventoryLayer()
  layer.tool('who_serves', { description: 'Says which process answers.', annotations: { readOnlyHint: true } }, () => ({ process: process.pid }))

  const app = Fastify({ logger, trustProxy: '127.0.0.1', forceCloseConnections: 'idle' })
  await app.register(cloudgMcp, {
    layer,
    publicUrl,
    backplane: redisBackplane({ url: redisUrl, prefix: 'inventory-mcp' }),
    requestState: { keys: [stateKey] },
    // Clients come back to streams that broke with their process.
    resumable: true
  })
  return app
}
