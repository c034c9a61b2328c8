// The MCP side: the same functions as tools and resources. What the domain refuses is told to the model; everything else stays internal.
import { z } from 'zod'
import { NotFoundError, ToolError } from '../../lib/layer/errors.js'
import { createLayer, type AppLayer } from '../../lib/layer/layer.js'
import { OrderError, STATUSES, type OrderBook } from './orders.js'

const order = z.object({
  id: z.string(),
  customer: z.string(),
  status: z.enum(STATUSES),
  placed_at: z.string(),
  lines: z.array(z.object({ sku: z.string(), quantity: z.number().int(), unit_price: z.number().int() })),
  total: z.number().int().describe('In cents'),
  cancel_reason: z.string().optional()
})

const orderId = z.string().regex(/^\d{1,10}$/, 'Expected digits').describe('Order number, such as 1003')

/** Runs a function of the domain and passes its refusals on. */
function ask<T> (run: () => T): T {
  try {
    return run()
  } catch (error) {
    if (error instanceof OrderError) throw new ToolError(error.message, { code: error.code })
    throw error
  }
}

export function ordersLayer (orders: OrderBook): AppLayer {
  const announce = (id: string) => layer.notifyUpdated(`orders://${id}`)
  const layer = createLayer({
    name: 'orders',
    title: 'Orders',
    version: '1.0.0',
    instructions: 'The orders of the shop. Look an order up before cancelling it, and say what was cancelled and why.',
    // Clients that subscribe to orders://{id} hear of every change, also of those made over REST.
    start: () => { orders.events.on('changed', announce) },
    stop: () => { orders.events.off('changed', announce) }
  })

  layer.tool('list_orders', {
    title: 'List orders',
    description: 'Orders, the newest first, all or those of one status or customer.',
    input: { status: z.enum(STATUSES).optional(), customer: z.string().optional().describe('Customer name') },
    output: z.object({ total: z.number().int(), orders: z.array(order) }),
    annotations: { readOnlyHint: true, openWorldHint: false }
  }, (filter) => {
    const found = orders.list(filter)
    return { total: found.length, orders: found }
  })

  layer.tool('get_order', {
    title: 'Get an order',
    description: 'One order with its lines and its total.',
    input: { id: orderId },
    output: order,
    annotations: { readOnlyHint: true, openWorldHint: false }
  }, ({ id }) => ask(() => orders.get(id)))

  layer.tool('cancel_order', {
    title: 'Cancel an order',
    description: 'Cancels an order that is open or paid. This cannot be undone.',
    input: { id: orderId, reason: z.string().min(1).max(200).describe('Why, as the customer will read it') },
    output: order,
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: false },
    roles: ['support']
  }, ({ id, reason }, ctx) => {
    const cancelled = ask(() => orders.cancel(id, reason))
    ctx.log.info({ order: id, by: ctx.principal.id }, 'order cancelled')
    return cancelled
  })

  layer.resourceTemplate('orders://{id}', {
    name: 'order',
    title: 'Order',
    description: 'One order, by its number.',
    mimeType: 'application/json',
    complete: { id: (prefix) => orders.list().map(({ id }) => id).filter((id) => id.startsWith(prefix)) }
  }, ({ id }) => {
    try {
      return orders.get(id)
    } catch (error) {
      if (error instanceof OrderError) throw new NotFoundError(error.message)
      throw error
    }
  })

  return layer
}
