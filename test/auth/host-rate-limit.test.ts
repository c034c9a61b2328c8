// @fastify/rate-limit of the host on our routes, by who calls or by what is called; and what refused calls leave in the log.

import t from 'tap'
import rateLimit from '@fastify/rate-limit'
import type { FastifyRequest } from 'fastify'
import { createKit, modern, modernHeaders } from '../kit.js'
import { serve } from '../field/wire.js'

const auth = { tokens: ['alice-token::alice', 'bob-token::bob'] }
const call = (name: string, token: string) => [
  modern('tools/call', { name, arguments: {} }), { ...modernHeaders('tools/call', name), authorization: `Bearer ${token}` }
] as const

t.test('a rate limit by principal: one caller does not use up what another has', async (t) => {
  const service = await serve(t, { layer: createKit().layer, auth }, {
    before: async (app) => { await app.register(rateLimit, { max: 2, timeWindow: 60_000, hook: 'preHandler', keyGenerator: ({ principal }: FastifyRequest) => principal.id }) }
  })
  const statuses = async (token: string) => [
    (await service.post(...call('stats', token))).status, (await service.post(...call('linked', token))).status, (await service.post(...call('stats', token))).status
  ]
  t.same(await statuses('alice-token'), [200, 200, 429])
  t.same(await statuses('bob-token'), [200, 200, 429])
  const limited = await service.post(...call('stats', 'bob-token'))
  t.match(limited.json, { jsonrpc: '2.0', error: { code: -32600, message: /Rate limit exceeded/ } })
  t.equal(limited.headers['retry-after'], '60')
  t.equal((await service.post(...call('stats', 'wrong'))).status, 401, 'who is nobody is told so first')
})

t.test('a rate limit by Mcp-Name: a tool has its own, and no header gets around it', async (t) => {
  const service = await serve(t, { layer: createKit().layer, auth }, {
    before: async (app) => {
      await app.register(rateLimit, {
        max: 1, timeWindow: 60_000, hook: 'preHandler', keyGenerator: ({ principal, headers }: FastifyRequest) => `${principal.id} ${String(headers['mcp-name'])}`
      })
    }
  })
  t.equal((await service.post(...call('stats', 'alice-token'))).status, 200)
  t.equal((await service.post(...call('linked', 'alice-token'))).status, 200)
  t.equal((await service.post(...call('stats', 'alice-token'))).status, 429)
  const [body, headers] = call('stats', 'alice-token')
  const spoofed = await service.post(body, { ...headers, 'Mcp-Name': 'other' })
  t.equal(spoofed.status, 400, 'the header has to be that of the body')
  t.equal(spoofed.json.error.code, -32020)
})
