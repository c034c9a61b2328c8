// The orders of the shop: the service's own domain. It knows neither HTTP nor MCP; both sides call these functions.
import { EventEmitter } from 'node:events'

export const STATUSES = ['open', 'paid', 'shipped', 'cancelled'] as const
export type Status = typeof STATUSES[number]

export interface OrderLine { sku: string, quantity: number, unit_price: number }

export interface Order {
  id: string
  customer: string
  status: Status
  placed_at: string
  lines: OrderLine[]
  /** In cents. */
  total: number
  cancel_reason?: string
}

/** Something the domain refuses. The message is for callers; `statusCode` is what Fastify and the error handler use. */
export class OrderError extends Error {
  readonly code: string
  readonly statusCode: number

  constructor (code: 'ORDER_NOT_FOUND' | 'ORDER_NOT_CANCELLABLE', statusCode: number, message: string) {
    super(message)
    this.code = code
    this.statusCode = statusCode
  }
}

const SEED: Omit<Order, 'total'>[] = [
  { id: '1001', customer: 'ada', status: 'shipped', placed_at: '2026-07-01T09:12:00Z', lines: [{ sku: 'MUG-01', quantity: 2, unit_price: 1250 }] },
  { id: '1002', customer: 'grace', status: 'paid', placed_at: '2026-07-02T14:40:00Z', lines: [{ sku: 'LAMP-07', quantity: 1, unit_price: 8900 }, { sku: 'BULB-02', quantity: 3, unit_price: 450 }] },
  { id: '1003', customer: 'ada', status: 'open', placed_at: '2026-07-03T08:05:00Z', lines: [{ sku: 'DESK-11', quantity: 1, unit_price: 34900 }] },
  { id: '1004', customer: 'linus', status: 'cancelled', placed_at: '2026-07-03T11:30:00Z', lines: [{ sku: 'MUG-01', quantity: 12, unit_price: 1250 }], cancel_reason: 'ordered twice' }
]

/** Orders in memory. Emits `changed` with the id of an order after it has changed, whoever changed it. */
export class OrderBook {
  readonly #orders: Map<string, Order>
  readonly events = new EventEmitter<{ changed: [id: string] }>()

  constructor (seed = SEED) {
    this.#orders = new Map(seed.map((order) => {
      const total = order.lines.reduce((sum, line) => sum + line.quantity * line.unit_price, 0)
      return [order.id, { ...structuredClone(order), total }]
    }))
  }

  /** Newest first. */
  list ({ status, customer }: { status?: Status | undefined, customer?: string | undefined } = {}): Order[] {
    return [...this.#orders.values()]
      .filter((order) => status === undefined || order.status === status)
      .filter((order) => customer === undefined || order.customer === customer)
      .sort((a, b) => a.placed_at < b.placed_at ? 1 : -1)
  }

  /** @throws {OrderError} ORDER_NOT_FOUND */
  get (id: string): Order {
    const order = this.#orders.get(id)
    if (order === undefined) throw new OrderError('ORDER_NOT_FOUND', 404, `There is no order ${id}`)
    return order
  }

  /** @throws {OrderError} ORDER_NOT_FOUND, or ORDER_NOT_CANCELLABLE once it is shipped or cancelled. */
  cancel (id: string, reason: string): Order {
    const order = this.get(id)
    if (order.status !== 'open' && order.status !== 'paid') {
      throw new OrderError('ORDER_NOT_CANCELLABLE', 409, `Order ${id} is ${order.status} and cannot be cancelled`)
    }
    const cancelled: Order = { ...order, status: 'cancelled', cancel_reason: reason }
    this.#orders.set(id, cancelled)
    this.events.emit('changed', id)
    return cancelled
  }
}
