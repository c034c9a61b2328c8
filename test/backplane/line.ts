// The way of one process to Redis, where answers can be held up or lost.

import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import type { Test } from 'tap'

export type Kind = 'commands' | 'subscriber'

/** A process has two connections, and each can be held up on its own. */
export class Line {
  readonly #server: Server
  readonly #held = new Map<Kind, (() => void)[]>()
  readonly #text = { commands: '', subscriber: '' }
  readonly #waiting = new Set<() => void>()
  readonly #cuts = new Map<Socket, () => Kind>()
  #isCut = false
  url = ''

  private constructor (target: number) {
    this.#server = createServer((near) => this.#join(near, connect(target, '127.0.0.1')))
  }

  static async to (t: Test, target: number): Promise<Line> {
    const line = new Line(target)
    line.#server.listen(0, '127.0.0.1')
    await once(line.#server, 'listening')
    line.url = `redis://127.0.0.1:${(line.#server.address() as AddressInfo).port}`
    t.teardown(() => line.#server.close())
    return line
  }

  #join (near: Socket, far: Socket): void {
    if (this.#isCut) {
      near.destroy()
      far.destroy()
    }
    let kind: Kind = 'commands'
    this.#cuts.set(near, () => kind)
    near.once('close', () => this.#cuts.delete(near))
    near.setNoDelay()
    far.setNoDelay()
    near.on('data', (data: Buffer) => {
      if (data.includes('subscribe\r\n')) kind = 'subscriber'
      far.write(data)
    })
    far.on('data', (data: Buffer) => {
      this.#text[kind] += String(data)
      const held = this.#held.get(kind)
      if (held === undefined) near.write(data)
      else held.push(() => near.write(data))
      for (const wake of this.#waiting) wake()
    })
    for (const [one, other] of [[near, far], [far, near]] as const) {
      one.on('error', () => other.destroy())
      one.once('close', () => other.destroy())
    }
  }

  hold (kind: Kind): void {
    this.#held.set(kind, [])
    this.#text[kind] = ''
  }

  /** Resolves when Redis has said this, since it is held or listened to. */
  async said (kind: Kind, text: string): Promise<void> {
    await new Promise<void>((resolve) => {
      const look = (): void => {
        if (!this.#text[kind].includes(text)) return
        this.#waiting.delete(look)
        resolve()
      }
      this.#waiting.add(look)
      look()
    })
  }

  listen (kind: Kind): void { this.#text[kind] = '' }

  release (kind: Kind): void {
    const held = this.#held.get(kind) ?? []
    this.#held.delete(kind)
    for (const pass of held) pass()
  }

  /** Breaks connections, of one kind or of both; no new ones are made. What was held up is lost. */
  cut (kind?: Kind): void {
    this.#isCut = true
    this.#held.clear()
    for (const [near, kindOf] of this.#cuts) if (kind === undefined || kindOf() === kind) near.destroy()
  }

  mend (): void { this.#isCut = false }
}
