// The shelf behind an endpoint whose calls survive a restart and a broken connection.
import Fastify, { type FastifyInstance, type FastifyServerOptions } from 'fastify'
import cloudgMcp from '../../plugin.js'
import { createShelfLayer } from './layer.js'
import type { Shelf } from './layer.js'

export interface AppOptions {
  shelf?: Shelf
  /** What seals the state of open questions: the newest first, the same ones in every process. @default random, for this process */
  keys?: string[]
  logger?: FastifyServerOptions['logger']
}

export async function buildApp ({ shelf, keys, logger = false }: AppOptions = {}): Promise<FastifyInstance> {
  const app = Fastify({ logger })
  await app.register(cloudgMcp, {
    layer: createShelfLayer(shelf),
    ...(keys && { requestState: { keys } }),
    resumable: true
  })
  return app
}
