// Bare Fastify: the same answers from plain routes with response schemas. The yardstick.

import Fastify from 'fastify'
import { plainTools, rows, slowMs } from './data.js'
import { ready } from './harness.js'

const app = Fastify()
const text = { type: 'object', properties: { type: { type: 'string' }, text: { type: 'string' } } }
const envelope = (result: object): object => ({
  200: { type: 'object', properties: { jsonrpc: { type: 'string' }, id: { type: 'integer' }, result } }
})
const echoResult = { type: 'object', properties: { content: { type: 'array', items: text } } }
const listResult = {
  type: 'object',
  properties: {
    tools: { type: 'array', items: { type: 'object', properties: { name: { type: 'string' }, description: { type: 'string' }, inputSchema: { type: 'object', additionalProperties: true } } } }
  }
}
const row = {
  type: 'object',
  properties: { id: { type: 'integer' }, name: { type: 'string' }, region: { type: 'string' }, tags: { type: 'array', items: { type: 'string' } }, score: { type: 'number' } }
}
const bigResult = {
  type: 'object',
  properties: { content: { type: 'array', items: text }, structuredContent: { type: 'object', properties: { rows: { type: 'array', items: row } } } }
}

interface Body { id: number, params: { arguments: { text: string } } }
app.post<{ Body: Body }>('/echo', { schema: { response: envelope(echoResult) } }, async ({ body }) => (
  { jsonrpc: '2.0', id: body.id, result: { content: [{ type: 'text', text: body.params.arguments.text }] } }))
app.post<{ Body: Body }>('/list', { schema: { response: envelope(listResult) } }, async ({ body }) => ({ jsonrpc: '2.0', id: body.id, result: { tools: plainTools } }))
app.post<{ Body: Body }>('/big', { schema: { response: envelope(bigResult) } }, async ({ body }) => (
  { jsonrpc: '2.0', id: body.id, result: { content: [{ type: 'text', text: `${rows.length} rows` }], structuredContent: { rows } } }))
app.post<{ Body: Body }>('/slow', { schema: { response: envelope(echoResult) } }, async ({ body }) => {
  await new Promise((resolve) => { setTimeout(resolve, slowMs) })
  return { jsonrpc: '2.0', id: body.id, result: { content: [{ type: 'text', text: 'done' }] } }
})
await app.listen({ host: '127.0.0.1', port: 0 })
ready((app.server.address() as { port: number }).port)
