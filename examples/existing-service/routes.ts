// The REST side, as it was before MCP: an API key on its own routes, JSON schemas, and the domain's functions.
import { createHash, timingSafeEqual } from 'node:crypto'
import type { FastifyPluginAsync } from 'fastify'
import { STATUSES, type OrderBook, type Status } from './orders.js'

export interface RouteOptions { orders: OrderBook, apiKey: string }

const digest = (text: string) => createHash('sha256').update(text).digest()

export const orderRoutes: FastifyPluginAsync<RouteOptions> = async (app, { orders, apiKey }) => {
  const expected = digest(apiKey)

  // In this scope only: a hook on the root instance would also run for routes that other plugins bring.
  app.addHook('onRequest', async (request, reply) => {
    const given = request.headers['x-api-key']
    if (typeof given === 'string' && timingSafeEqual(digest(given), expected)) return
    await reply.code(401).send({ error: 'unauthorized', message: 'Send a valid X-Api-Key header' })
  })

  app.get<{ Querystring: { status?: Status, customer?: string } }>('/orders', {
    schema: {
      querystring: {
        type: 'object',
        properties: { status: { type: 'string', enum: STATUSES }, customer: { type: 'string' } }
      }
    }
  }, async (request) => ({ orders: orders.list(request.query) }))

  app.get<{ Params: { id: string } }>('/orders/:id', async (request) => orders.get(request.params.id))

  app.post<{ Params: { id: string }, Body: { reason: string } }>('/orders/:id/cancel', {
    schema: {
      body: { type: 'object', required: ['reason'], properties: { reason: { type: 'string', minLength: 1, maxLength: 200 } } }
    }
  }, async (request) => orders.cancel(request.params.id, request.body.reason))
}
