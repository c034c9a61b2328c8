// The backplane of the tests that serve HTTP: in memory, or on the Redis that `npm run test:redis` starts. The same tests run on both.

import { randomUUID } from 'node:crypto'
import type { Backplane } from '../../lib/backplane/index.js'
import { memoryBackplane } from '../../lib/backplane/memory.js'
import { redisBackplane } from '../../lib/backplane/redis.js'

const url = process.env['CLOUDG_TEST_REDIS']

export const onRedis = url !== undefined

/** A backplane of a service of its own. Whatever serves with it starts and closes it. */
export function testBackplane (): Backplane {
  return url === undefined ? memoryBackplane() : redisBackplane({ url, prefix: `test-${randomUUID()}` })
}
