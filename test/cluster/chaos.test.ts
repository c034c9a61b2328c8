// Chaos for as long as a test may take. For longer: `npm run chaos`.

import t from 'tap'
import { withoutRedis } from '../backplane/redis-server.js'
import { chaos } from './chaos.js'

t.test('200 clients, three processes that come and go, and a Redis that stops for a moment', { skip: withoutRedis, timeout: 110_000 }, async (t) => {
  const { violations, counts } = await chaos({ seconds: 15, clients: 200, seed: 2026 })
  t.same(violations, [])
  t.comment(JSON.stringify(counts))
  t.ok(counts['calls answered']! > 100)
  t.ok((counts['kills'] ?? 0) + (counts['closings'] ?? 0) > 0)
  t.equal(counts['pauses of Redis'], 1)
})
