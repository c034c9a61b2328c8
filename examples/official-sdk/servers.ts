// A server as it might exist already, on SDK 1.x: nothing in it knows of cloudg-mcp, or of 2026-07-28.

import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js'
import { z } from 'zod'

const STOCK = new Map([['bolt', 120], ['nut', 340], ['washer', 15]])

export function createWarehouse (): McpServer {
  const server = new McpServer({ name: 'warehouse', version: '3.1.0' }, { instructions: 'Parts are known by their names.' })
  const names = (prefix: string | undefined): string[] => [...STOCK.keys()].filter((name) => name.startsWith(prefix ?? ''))

  server.registerTool('count_parts', { description: 'How many of a part there are', inputSchema: { part: z.string() } }, ({ part }) => {
    const count = STOCK.get(part)
    if (count === undefined) return { content: [{ type: 'text', text: `There is no part '${part}'` }], isError: true }
    return { content: [{ type: 'text', text: `${count}` }] }
  })

  server.registerTool('order_parts', { description: 'Orders more, once somebody has agreed', inputSchema: { part: z.string(), count: z.int().positive() } }, async ({ part, count }) => {
    const { action, content } = await server.server.elicitInput({
      message: `Order ${count} of ${part}?`,
      requestedSchema: { type: 'object', properties: { agreed: { type: 'boolean', title: 'Agreed' } }, required: ['agreed'] }
    })
    if (action !== 'accept' || content?.agreed !== true) return { content: [{ type: 'text', text: 'Nothing was ordered' }] }
    STOCK.set(part, (STOCK.get(part) ?? 0) + count)
    return { content: [{ type: 'text', text: `Ordered ${count} of ${part}` }] }
  })

  server.registerResource('part', new ResourceTemplate('warehouse://parts/{name}', { list: undefined, complete: { name: names } }), { mimeType: 'application/json' },
    ({ href }, { name }) => ({ contents: [{ uri: href, mimeType: 'application/json', text: JSON.stringify({ name, count: STOCK.get(String(name)) ?? 0 }) }] }))
  return server
}
