// One process of a service: the plugin on Redis, with tools that tell which process ran them and for whom. Started by nodes.ts, which
// tells it what to do over IPC.

import Fastify from 'fastify'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { redisBackplane } from '../../lib/backplane/redis.js'
import type { RedisBackplaneOptions } from '../../lib/backplane/redis.js'
import cloudgMcp, { createLayer } from '../../plugin.js'
import type { CloudgMcpOptions } from '../../plugin.js'

/** What a process is started with, as JSON. */
export interface NodeConfig {
  port?: number
  /** Without it: in memory. */
  redis?: Omit<RedisBackplaneOptions, 'client'>
  options?: Omit<CloudgMcpOptions, 'layer' | 'backplane'>
  /** Tools that this process has beside the others'. */
  extraTools?: string[]
}

/** What a process is told to do. */
export type Order =
  | { order: 'close' }
  | { order: 'touch', uris: string[] }
  | { order: 'change', kind: 'tools' | 'prompts' | 'resources' }
  | { order: 'usage' }

/** What a process says. */
export type Report =
  | { report: 'listening', port: number }
  | { report: 'failed', code: string | undefined, message: string }
  | { report: 'entered', nonce: string }
  | { report: 'aborted', nonce: string }
  | { report: 'usage', cpu: NodeJS.CpuUsage, rss: number }

const { port = 0, redis, options = {}, extraTools = [] } = JSON.parse(process.env['NODE_CONFIG']!) as NodeConfig

const layer = createLayer({ name: 'cluster', version: '1.0.0' })
const nonce = z.string()
const here = (given: string, caller: string) => ({ nonce: given, caller, process: process.pid })

layer.tool('echo', { input: { nonce } }, (args, ctx) => here(args.nonce, ctx.principal.id))
layer.tool('steps', { input: { nonce, count: z.int(), delay: z.int().default(0) } }, async (args, ctx) => {
  say({ report: 'entered', nonce: args.nonce })
  for (let step = 1; step <= args.count; step++) {
    await ctx.progress(step, args.count, args.nonce)
    if (args.delay > 0) await sleep(args.delay, undefined, { signal: ctx.signal })
  }
  return here(args.nonce, ctx.principal.id)
})
layer.tool('say', { input: { nonce, count: z.int() } }, async (args, ctx) => {
  for (let at = 1; at <= args.count; at++) await ctx.notify.log('info', { nonce: args.nonce, at })
  return here(args.nonce, ctx.principal.id)
})
layer.tool('ask', { input: { nonce } }, async (args, ctx) => {
  const { action, content } = await ctx.elicit(`What about ${args.nonce}?`, { answer: z.string() })
  return { ...here(args.nonce, ctx.principal.id), action, answer: content?.answer ?? null }
})
layer.tool('touch', { input: { nonce, uri: z.string() } }, (args, ctx) => {
  layer.notifyUpdated(args.uri)
  return here(args.nonce, ctx.principal.id)
})
layer.tool('hang', { input: { nonce } }, async (args, ctx) => {
  ctx.signal.addEventListener('abort', () => say({ report: 'aborted', nonce: args.nonce }))
  void ctx.progress(1)
  say({ report: 'entered', nonce: args.nonce })
  await sleep(600_000, undefined, { signal: ctx.signal })
})
for (const name of extraTools) layer.tool(name, {}, () => name)
layer.resource('test://info', { name: 'info' }, () => 'info')

const app = Fastify({ logger: { level: process.env['NODE_LOG'] ?? 'silent' }, forceCloseConnections: 'idle' })

process.on('message', (message: Order) => {
  switch (message.order) {
    case 'close':
      void app.close().then(() => process.exit())
      break
    case 'touch':
      for (const uri of message.uris) layer.notifyUpdated(uri)
      break
    case 'change':
      layer.notifyChanged(message.kind)
      break
    case 'usage':
      say({ report: 'usage', cpu: process.cpuUsage(), rss: process.memoryUsage().rss })
  }
})
// The tests are gone.
process.on('disconnect', () => process.exit())

try {
  await app.register(cloudgMcp, { layer, ...(redis && { backplane: redisBackplane(redis) }), ...options })
  await app.listen({ host: '127.0.0.1', port })
  say({ report: 'listening', port: (app.server.address() as AddressInfo).port })
} catch (error) {
  say({ report: 'failed', code: (error as { code?: string }).code, message: (error as Error).message })
  process.exitCode = 1
  process.disconnect()
}

function say (report: Report): void {
  process.send?.(report)
}
