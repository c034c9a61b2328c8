// A service that was there before: its own routes, error handler and not-found handler. The plugin is one more registration at the end,
// and changes nothing about the rest.
import Fastify, { type FastifyError, type FastifyInstance, type FastifyServerOptions } from 'fastify'
import cloudgMcp from '../../plugin.js'
import { ordersLayer } from './mcp.js'
import { OrderBook, OrderError } from './orders.js'
import { orderRoutes } from './routes.js'

export interface AppOptions {
  /** What callers of the REST routes send in `X-Api-Key`. */
  apiKey: string
  /** Specs (`TOKEN[:ROLES[:ID]]`) of those who may use the MCP endpoint. */
  mcpTokens: string[]
  orders?: OrderBook
  logger?: FastifyServerOptions['logger']
}

export async function buildApp ({ apiKey, mcpTokens, orders = new OrderBook(), logger = false }: AppOptions): Promise<FastifyInstance> {
  const app = Fastify({ logger })

  app.setErrorHandler<FastifyError>((error, request, reply) => {
    if (error instanceof OrderError) return reply.code(error.statusCode).send({ error: error.code, message: error.message })
    if (error.validation !== undefined) return reply.code(400).send({ error: 'invalid_request', message: error.message })
    const status = error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500 ? error.statusCode : 500
    if (status === 500) request.log.error(error)
    return reply.code(status).send({ error: status === 500 ? 'internal' : error.code, message: status === 500 ? 'Something went wrong' : error.message })
  })
  app.setNotFoundHandler((request, reply) => reply.code(404).send({ error: 'not_found', message: `Nothing at ${request.url}` }))

  app.get('/health', async () => ({ status: 'up' }))
  await app.register(orderRoutes, { orders, apiKey })

  await app.register(cloudgMcp, {
    prefix: '/api',
    layer: ordersLayer(orders),
    auth: { tokens: mcpTokens }
  })
  return app
}
