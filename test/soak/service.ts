// A service in a process of its own: what it holds can be counted there, and it has to end by itself. Imported, this file
// starts one; run, it is one.

import fastify from 'fastify'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { performance } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { queryObjects } from 'node:v8'
import type { Test } from 'tap'
import { memoryBackplane } from '../../lib/backplane/memory.js'
import { EventStream } from '../../lib/http/stream.js'
import { Call } from '../../lib/protocol/call.js'
import { Subscriber } from '../../lib/protocol/changes.js'
import { Session } from '../../lib/protocol/session.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import cloudgMcp from '../../plugin.js'
import { createKit } from '../kit.js'

/** What the process holds, after a garbage collection. */
export interface Held {
  sessions: number
  heap: number
  /** Objects that live as long as a session, a call or a stream does. */
  objects: { sessions: number, calls: number, streams: number, subscribers: number }
  /** Timers that keep the process alive. */
  timers: number
}

interface Asks {
  held: Held
  /** Resolves when this many sessions have ended since the start. */
  ended: true
  /** How long `app.close()` took, in ms; the channel is closed after this. */
  close: number
}

export interface Child {
  port: number
  ask<K extends keyof Asks> (what: K, count?: number): Promise<Asks[K]>
  /** The exit code. */
  exited: Promise<number | null>
}

const self = fileURLToPath(import.meta.url)

export async function start (t: Test, options: CloudgMcpOptions): Promise<Child> {
  const child = fork(self, [JSON.stringify(options)], { execArgv: ['--expose-gc', '--disable-warning=ExperimentalWarning'], env: { PATH: process.env['PATH'] } })
  t.teardown(() => { child.kill('SIGKILL') })
  const exited = once(child, 'exit').then(([code]) => code as number | null)
  const [port] = await once(child, 'message') as [number]
  return {
    port,
    exited,
    async ask (what, count) {
      child.send({ what, count })
      const [answer] = await once(child, 'message')
      return answer
    }
  }
}

function count (constructor: Function): number {
  return queryObjects(constructor, { format: 'count' })
}

async function serve (options: CloudgMcpOptions): Promise<void> {
  // The prototypes of the kinds of subscribers pass for subscribers.
  const kinds = count(Subscriber)
  const backplane = memoryBackplane()
  const app = fastify()
  const { layer } = createKit()
  // It ignores its signal and would run for ever.
  layer.tool('endless', {}, async () => new Promise(() => {}))
  await app.register(cloudgMcp, { layer, backplane, ...options })
  app.addHook('onClose', () => backplane.close())
  let ended = 0
  let awaited = Infinity
  const told = (): void => {
    if (ended < awaited) return
    awaited = Infinity
    process.send!(true)
  }
  backplane.onSignal(({ type }) => {
    if (type === 'ended') ended++
    told()
  })

  async function held (): Promise<Held> {
    const objects = { sessions: count(Session), calls: count(Call), streams: count(EventStream), subscribers: count(Subscriber) - kinds }
    globalThis.gc!()
    return {
      sessions: await backplane.countSessions(),
      heap: process.memoryUsage().heapUsed,
      objects,
      timers: process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
    }
  }

  async function close (): Promise<void> {
    const started = performance.now()
    await app.close()
    process.send!(performance.now() - started)
    process.disconnect()
  }

  process.on('message', ({ what, count }: { what: keyof Asks, count: number }) => {
    if (what === 'held') {
      void held().then((found) => process.send!(found))
    } else if (what === 'ended') {
      awaited = count
      told()
    } else {
      void close()
    }
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  process.send!((app.server.address() as AddressInfo).port)
}

if (process.argv[1] === self) await serve(JSON.parse(process.argv[2]!))
