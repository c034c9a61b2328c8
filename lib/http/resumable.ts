// Streams that a client can come back to (handshake era). Every message is kept before it is sent, under an id that names
// its stream within its session; `GET` with `Last-Event-ID` gets what was missed and then what is to come.
// MCP 2025-11-25 "Streamable HTTP / resumability and redelivery".

import { randomBytes } from 'node:crypto'
import type { Backplane, EventLimits, StreamEvent } from '../backplane/index.js'
import { encode, oneLine } from '../jsonrpc.js'

export interface ResumableOptions extends EventLimits {
  /** ms after which a client comes back. */
  retry: number
}

/** The standalone stream of a session; streams of requests have random names. */
export const STANDALONE = 'get'

export class EventLog {
  readonly #backplane: Backplane
  readonly #session: string
  readonly #options: ResumableOptions
  readonly #stream: string
  // Appending takes a moment: one after the other, so that the order on the stream is the order of sending.
  #tail: Promise<unknown> = Promise.resolve()

  constructor (backplane: Backplane, session: string, options: ResumableOptions, stream = randomBytes(6).toString('hex')) {
    this.#backplane = backplane
    this.#session = session
    this.#options = options
    this.#stream = stream
  }

  /** Keeps a message and hands over its frame, in order. */
  append (message: object, write: (frame: string) => void | Promise<void>): Promise<void> {
    return this.#keep(oneLine(encode(message)), write)
  }

  /** An event without a message: a client that has it can come back from the very start. */
  prime (write: (frame: string) => void | Promise<void>): Promise<void> {
    return this.#keep('', write, this.#options.retry)
  }

  async end (): Promise<void> {
    await this.flush()
    await this.#backplane.endEvents(this.#session, this.#stream)
  }

  /** Resolves when everything so far has been kept and handed over. */
  async flush (): Promise<void> {
    await this.#tail
  }

  async #keep (data: string, write: (frame: string) => void | Promise<void>, retry?: number): Promise<void> {
    const room: Promise<void>[] = []
    const kept = this.#tail.then(async () => {
      const id = await this.#backplane.appendEvent(this.#session, this.#stream, data, this.#options)
      // A slow reader holds up its producer, not what is kept.
      const full = write(eventFrame({ id, data }, retry))
      if (full !== undefined) room.push(full)
    })
    // Whoever sent it gets to know of a failure; those that come after it go on.
    this.#tail = kept.catch(() => {})
    await kept
    await room[0]
  }
}

export function eventFrame ({ id, data }: StreamEvent, retry?: number): string {
  if (data === '') return `id: ${id}\n${retry === undefined ? '' : `retry: ${retry}\n`}data: \n\n`
  return `event: message\nid: ${id}\ndata: ${data}\n\n`
}
