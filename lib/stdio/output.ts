// Messages to lines on the way out: one JSON text each, complete or not at all, and never more than the reader takes.

import type { Writable } from 'node:stream'
import { encode, oneLine } from '../jsonrpc.js'

// Bytes that may wait for the reader before notifications that nobody waited for are dropped.
const MAX_QUEUED = 16 * 1024 * 1024

export class LineWriter {
  readonly #output: Writable
  #gone = false
  #waiters: (() => void)[] = []
  /** Called once when something had to be dropped. */
  onDrop: (() => void) | undefined

  /** @param onGone called once, when there is nobody left to read */
  constructor (output: Writable, onGone: () => void) {
    this.#output = output
    const gone = (): void => {
      if (this.#gone) return
      this.#gone = true
      this.#release()
      onGone()
    }
    // Stays for good: what is still in the pipe may fail after we have stopped to care.
    output.on('error', gone)
    output.on('close', gone)
    output.on('drain', () => this.#release())
  }

  get gone (): boolean { return this.#gone }
  /** Bytes that wait for the reader. */
  get queued (): number { return this.#output.writableLength }

  /** Writes one message, or a batch as one line. A promise means that the pipe is full: it resolves when there is room. */
  write (message: object | readonly object[]): void | Promise<void> {
    if (this.#gone) return undefined
    const text = Array.isArray(message) ? `[${message.map(encode).join(',')}]` : encode(message)
    return this.#output.write(oneLine(text) + '\n') ? undefined : this.room()
  }

  /** Writes what does not have to arrive: dropped when the reader has left too much behind. */
  notify (message: object): void | Promise<void> {
    if (this.queued <= MAX_QUEUED || 'id' in message) return this.write(message)
    this.onDrop?.()
    this.onDrop = undefined
    return this.room()
  }

  /** Resolves when the reader has caught up, or there is none. */
  room (): Promise<void> {
    if (this.#gone || !this.#output.writableNeedDrain) return Promise.resolve()
    return new Promise((resolve) => { this.#waiters.push(resolve) })
  }

  /** Resolves when all that was written has left this process. */
  flush (): Promise<void> {
    if (this.#gone || this.#output.writableLength === 0) return Promise.resolve()
    return new Promise((resolve) => {
      this.#waiters.push(resolve)
      this.#output.write('', () => resolve())
    })
  }

  #release (): void {
    for (const resolve of this.#waiters.splice(0)) resolve()
  }
}
