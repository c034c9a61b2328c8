// Streams that a client can come back to (handshake era). Every message is kept before it is sent, under an id that names
// its stream within its session; `GET` with `Last-Event-ID` gets what was missed and then what is to come.
// MCP 2025-11-25 "Streamable HTTP / resumability and redelivery".

import type { Backplane, EventLimits, EventWriter, StreamEvent, Told } from '../backplane/index.js'
import { encode, oneLine } from '../jsonrpc.js'

export interface ResumableOptions extends EventLimits {
  /** ms after which a client comes back. */
  retry: number
}

/** The standalone stream of a session; streams of answers have random names. */
export const STANDALONE = 'get'

type Write = (frame: string) => void | Promise<void>

export class EventLog {
  readonly #writer: EventWriter
  readonly #retry: number
  // Appending takes a moment: one after the other, so that the order on the stream is the order of sending.
  #tail: Promise<unknown> = Promise.resolve()

  /** @param owed what readers are told when this process dies; without it any process may write to the stream */
  constructor (backplane: Backplane, session: string, options: ResumableOptions, stream: string, owed?: string) {
    this.#writer = backplane.writeEvents(session, stream, options, owed)
    this.#retry = options.retry
  }

  /**
   * Keeps a message and hands over its frame, in order. One that could not be kept is handed over without an id.
   * @param told up to where the session has been told of changes with this message, and by whom
   */
  append (message: object, { write, told }: { write?: Write, told?: Told } = {}): Promise<void> {
    return this.#keep(oneLine(encode(message)), write, told)
  }

  /** An event without a message: a client that has it can come back from the very start. */
  prime (write: Write): Promise<void> {
    return this.#keep('', write, undefined, this.#retry)
  }

  async end (): Promise<void> {
    await this.flush()
    await this.#writer.end()
  }

  /** Resolves when everything so far has been kept and handed over. */
  async flush (): Promise<void> {
    await this.#tail
  }

  async #keep (data: string, write: Write | undefined, told?: Told, retry?: number): Promise<void> {
    const room: Promise<void>[] = []
    const hand = (frame: string): void => {
      // A slow reader holds up its producer, not what is kept.
      const full = write?.(frame)
      if (full !== undefined) room.push(full)
    }
    const kept = this.#tail.then(async () => {
      try {
        const id = await this.#writer.append(data, told)
        if (id !== '') hand(eventFrame({ id, data }, retry))
      } catch (error) {
        if (data !== '') hand(`event: message\ndata: ${data}\n\n`)
        throw error
      }
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
