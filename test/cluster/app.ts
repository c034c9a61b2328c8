// A service in the process of the test, on a backplane of its own; what it logs can be waited for.

import Fastify from 'fastify'
import type { FastifyInstance } from 'fastify'
import { connect, createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import { once } from 'node:events'
import type { Test } from 'tap'
import type { Backplane } from '../../lib/backplane/index.js'
import cloudgMcp from '../../plugin.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { createKit } from '../kit.js'
import type { Kit } from '../kit.js'

export interface App extends Kit {
  app: FastifyInstance
  port: number
  /** Resolves when this has been logged once more. */
  logged (message: string): Promise<void>
}

export function makeApp (backplane: Backplane, options: CloudgMcpOptions = {}): { app: FastifyInstance, kit: Kit, logged: (message: string) => Promise<void> } {
  const waiting = new Map<string, (() => void)[]>()
  const seen = new Map<string, number>()
  const write = (line: string): void => {
    const { msg } = JSON.parse(line) as { msg: string }
    const next = waiting.get(msg)?.shift()
    if (next === undefined) seen.set(msg, (seen.get(msg) ?? 0) + 1)
    else next()
  }
  const app = Fastify({ logger: { level: 'info', stream: { write } }, forceCloseConnections: 'idle' })
  const kit = createKit()
  void app.register(cloudgMcp, { layer: kit.layer, backplane, ...options })
  const logged = async (message: string): Promise<void> => {
    const before = seen.get(message) ?? 0
    if (before > 0) {
      seen.set(message, before - 1)
      return
    }
    await new Promise<void>((resolve) => { waiting.set(message, [...waiting.get(message) ?? [], resolve]) })
  }
  return { app, kit, logged }
}

export async function serveApp (t: Test, backplane: Backplane, options: CloudgMcpOptions = {}): Promise<App> {
  const { app, kit, logged } = makeApp(backplane, options)
  t.teardown(async () => app.close())
  await app.listen({ host: '127.0.0.1', port: 0 })
  return { ...kit, app, logged, port: (app.server.address() as AddressInfo).port }
}

/** The way to a server, which can be cut. */
export class Cable {
  readonly #target: number
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isCut = false
  port = 0

  private constructor (target: number) {
    this.#target = target
    this.#server = createServer((near) => {
      if (this.#isCut) {
        near.destroy()
        return
      }
      const far = connect(this.#target, '127.0.0.1')
      for (const [socket, other] of [[near, far], [far, near]] as const) {
        this.#sockets.add(socket)
        socket.setNoDelay()
        socket.pipe(other)
        socket.on('error', () => other.destroy())
        socket.once('close', () => {
          this.#sockets.delete(socket)
          other.destroy()
        })
      }
    })
  }

  static async to (t: Test, target: number): Promise<Cable> {
    const cable = new Cable(target)
    cable.#server.listen(0, '127.0.0.1')
    await once(cable.#server, 'listening')
    cable.port = (cable.#server.address() as AddressInfo).port
    t.teardown(() => {
      cable.cut()
      cable.#server.close()
    })
    return cable
  }

  get url (): string { return `redis://127.0.0.1:${this.port}` }

  cut (): void {
    this.#isCut = true
    for (const socket of this.#sockets) socket.destroy()
  }

  mend (): void { this.#isCut = false }
}
