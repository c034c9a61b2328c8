// One conversation over a pair of byte streams. What belongs to the life of the connection is handled in the order in which
// it comes; other requests run beside each other, so that a ping or a cancellation gets through while a tool works.

import type { Readable } from 'node:stream'
import { codes, decode, failure, isRequest } from '../jsonrpc.js'
import type { Principal } from '../principal.js'
import type { ProtocolServer } from '../protocol/server.js'
import type { Session } from '../protocol/session.js'
import { isBlank, readLines, TOO_LONG } from './lines.js'
import type { LineWriter } from './output.js'

// Bytes of answers that wait for the reader, and of requests that are at work, above which nothing more is read. Generous:
// a client that writes much before it reads must not wait for a server that waits for it.
const MAX_UNREAD = 16 * 1024 * 1024
const MAX_AT_WORK = 128 * 1024 * 1024

export interface ConnectionOptions {
  input: Readable
  output: LineWriter
  principal: Principal
  maxLineBytes: number
  /** ms for calls in flight after the end of the input */
  grace: number
}

export class Connection {
  readonly #server: ProtocolServer
  readonly #session: Session
  readonly #options: ConnectionOptions
  readonly #atWork = new Set<Promise<void>>()
  #bytesAtWork = 0
  readonly #stopped = new Latch()
  readonly #hurried = new Latch()
  readonly #abandoned = new Latch()

  constructor (server: ProtocolServer, options: ConnectionOptions) {
    this.#server = server
    this.#options = options
    const { output, principal } = options
    this.#session = server.createSession({ transport: 'stdio', principal, send: (message) => output.notify(message) })
  }

  /** Serves until the input ends, or somebody stops it. Resolves when everything that will be said has been said. */
  async run (): Promise<void> {
    await Promise.race([this.#read(), this.#stopped.opened])
    this.#stopped.open()
    await this.#finish()
  }

  /** Reads no more, and ends as at the end of the input. A second call does not wait for calls in flight. */
  stop (): void {
    if (this.#stopped.isOpen) this.#hurried.open()
    this.#stopped.open()
    this.#options.input.destroy()
  }

  /** Ends without waiting for anything: there is nobody left to answer. */
  abandon (): void {
    this.#abandoned.open()
    this.#hurried.open()
    this.stop()
  }

  async #read (): Promise<void> {
    const { input, maxLineBytes } = this.#options
    try {
      for await (const line of readLines(input, maxLineBytes)) {
        if (this.#stopped.isOpen) break
        await this.#take(line)
        await this.#room()
      }
    } catch (error) {
      if (!this.#stopped.isOpen) this.#server.log.error({ err: error }, 'standard input cannot be read')
    }
  }

  /** Resolves when the next line may be taken. */
  async #take (line: Buffer | typeof TOO_LONG): Promise<void> {
    if (line === TOO_LONG) return this.#refuse(`Parse error: the line is longer than ${this.#options.maxLineBytes} bytes`)
    if (isBlank(line)) return
    let message: unknown
    try {
      message = decode(line)
    } catch {
      return this.#refuse('Parse error')
    }
    const answered = this.#answer(message).finally(() => {
      this.#atWork.delete(answered)
      this.#bytesAtWork -= line.length
    })
    this.#atWork.add(answered)
    this.#bytesAtWork += line.length
    const runsBeside = Array.isArray(message) || (isRequest(message) && message.method !== 'initialize')
    if (!runsBeside) await answered
  }

  #refuse (message: string): void {
    void this.#options.output.write(failure(null, { code: codes.parseError, message }))
  }

  async #answer (message: unknown): Promise<void> {
    const { principal, output } = this.#options
    const reply = await this.#session.handle(message, { principal })
    if (reply !== undefined) void output.write(reply)
  }

  async #room (): Promise<void> {
    const { output } = this.#options
    if (output.queued > MAX_UNREAD) await output.room()
    while (this.#bytesAtWork > MAX_AT_WORK) await Promise.race(this.#atWork)
  }

  async #finish (): Promise<void> {
    const { output, grace } = this.#options
    this.#server.closeListens()
    await within(grace, Promise.all(this.#atWork), this.#hurried)
    this.#session.close()
    await within(grace, Promise.all(this.#atWork), this.#abandoned)
    await within(grace, output.flush(), this.#abandoned)
  }
}

/** Waits for the work, but not longer than `ms`, and not when the latch is open. */
async function within (ms: number, work: Promise<unknown>, latch: Latch): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise((resolve) => { timer = setTimeout(resolve, ms) })
  await Promise.race([work, late, latch.opened])
  clearTimeout(timer)
}

/** Something that happens once. */
class Latch {
  open!: () => void
  isOpen = false
  readonly opened = new Promise<void>((resolve) => {
    this.open = () => {
      this.isOpen = true
      resolve()
    }
  })
}
