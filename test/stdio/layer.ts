// What the stdio tests serve: tools that make noise, take their time, or tell about the process that they run in.

import { spawnSync } from 'node:child_process'
import fs, { writeSync } from 'node:fs'
import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import type { AppLayer } from '../../lib/layer/index.js'
import { createLayer } from '../../lib/layer/index.js'

export default function noisyLayer (): AppLayer {
  const layer = createLayer({ name: 'noisy', version: '1.0.0' })

  layer.tool('echo', { input: { text: z.string(), times: z.number().int().default(1) } }, ({ text, times }) => text.repeat(times))

  layer.tool('noisy', {}, () => {
    console.log('noise: console.log')
    console.table([{ noise: 'console.table' }])
    process.stdout.write('noise: process.stdout.write\n')
    writeSync(1, 'noise: fs.writeSync\n')
    fs.writeSync(1, 'noise: fs.writeSync of the default export\n')
    return 'quiet'
  })

  layer.tool('child', {}, () => {
    const { status } = spawnSync('/bin/sh', ['-c', 'echo noise: child; cat; echo "noise: raw" >&1; (echo noise: three >&3) 2>/dev/null; true'], { stdio: 'inherit' })
    return `exit ${status}`
  })

  layer.tool('flood', { input: { ms: z.number() } }, async ({ ms }) => {
    const end = Date.now() + ms
    let lines = 0
    while (Date.now() < end) {
      for (let at = 0; at < 100; at++) process.stdout.write(`{"jsonrpc":"2.0","id":${lines++},"result":"flood"}\n`)
      await new Promise((resolve) => { setImmediate(resolve) })
    }
    return String(lines)
  })

  layer.tool('slow', { input: { steps: z.number().int().default(3) } }, async ({ steps }, ctx) => {
    for (let step = 1; step <= steps; step++) {
      await ctx.progress(step, steps, `step ${step}`)
      await sleep(20, undefined, { signal: ctx.signal })
    }
    return { done: steps }
  })

  // Is done when the client says that it has seen the last step: an answer right behind it may be handled first.
  let seen!: () => void
  layer.tool('steps', {}, async (_args, ctx) => {
    const acknowledged = new Promise<void>((resolve) => { seen = resolve })
    for (let step = 1; step <= 3; step++) await ctx.progress(step, 3)
    await acknowledged
    return { done: 3 }
  })
  layer.tool('seen', {}, () => { seen() })

  // Progress without end, no faster than the reader takes it.
  layer.tool('endless', {}, async (_args, ctx) => {
    for (let step = 1; !ctx.signal.aborted; step++) await Promise.all([ctx.progress(step), sleep(1)])
    return 'aborted'
  })

  // Holds the process with a timer, and does not care about signals of any kind.
  layer.tool('sleepy', {}, async () => {
    await sleep(60_000)
    return 'awake'
  })

  layer.tool('held', {}, () => {
    setInterval(() => {}, 1000)
    return 'an interval is alive'
  })

  layer.tool('process', {}, () => ({
    pid: process.pid,
    maxRss: process.resourceUsage().maxRSS * 1024,
    cpu: process.cpuUsage().user + process.cpuUsage().system,
    fastify: Object.keys(createRequire(import.meta.url).cache).some((file) => /node_modules[\\/]fastify[\\/]/.test(file)),
    marked: Object.keys(process.env).filter((name) => name.startsWith('CLOUDG_MCP_'))
  }))

  layer.tool('whoami', {}, (_args, ctx) => ({ id: ctx.principal.id, roles: [...ctx.principal.roles], transport: ctx.request.transport }))

  layer.tool('change', {}, () => {
    layer.notifyChanged('tools')
    return 'changed'
  })

  layer.resource('noisy://one', { name: 'one' }, () => 'one')
  layer.prompt('greet', { arguments: { name: z.string() } }, ({ name }) => `Greet ${name}`)
  return layer
}
