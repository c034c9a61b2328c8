// Events of resumable streams: one Redis Stream a session for all of its streams, so that bounds, order and ends are one thing.
// A stream that answers calls belongs to the process that runs them. When that process dies, whoever reads the stream takes
// it over and says what is owed.

import type { EventLimits, EventReader, EventReading, EventWriter } from '../index.js'
import { streamOf } from '../index.js'
import { APPEND, CLAIM, END, READ, SET } from './session-scripts.js'
import type { HeldOutbox, Shared, Tail } from './shared.js'
import { channelOf, encodeMessage, fieldsOf, isAlive, repeated, sessionKey } from './shared.js'

const BATCH = 256
/** ms between two looks at a process that seems to be dead: it may just be reconnecting */
const SECOND_LOOK = 500
const ENTRY = /^[1-9]\d{0,15}-(?:0|[1-9]\d{0,15})$/

export class Events {
  readonly #shared: Shared

  constructor (shared: Shared) {
    this.#shared = shared
  }

  write (id: string, stream: string, limits: EventLimits, owed: string | undefined): EventWriter {
    return this.#writer(id, stream, limits, owed === undefined ? 'shared' : 'open', owed ?? '')
  }

  #writer (id: string, stream: string, { maxEvents, maxBytes, ttl }: EventLimits, begin: 'open' | 'own' | 'shared', owed = ''): EventWriter {
    const { process, lease } = this.#shared
    const common = [process, channelOf(this.#shared), encodeMessage('events', id), lease, stream]
    let mode = begin
    return {
      append: async (data, told) => {
        if (told?.by.inDoubt) return ''
        const opens = mode
        if (mode === 'open') mode = 'own'
        const token = told === undefined ? '' : (told.by as HeldOutbox).token
        let entry: string
        try {
          entry = await this.#run(id, APPEND, ...common, data, opens, owed, told?.seen ?? '', maxEvents, maxBytes, ttl, token)
        } catch (error) {
          // Redis may have done it without being heard, and may yet do it.
          if (told !== undefined) told.by.inDoubt = true
          throw error
        }
        if (entry === '') return ''
        this.wake(id)
        return `${stream}_${entry}`
      },
      end: async () => {
        await this.#run(id, END, ...common, mode)
        this.wake(id)
      }
    }
  }

  async read (id: string, from: { after: string } | { stream: string }, reader: EventReader): Promise<EventReading | undefined> {
    const stream = 'stream' in from ? from.stream : streamOf(from.after)
    const after = 'stream' in from ? '' : from.after.slice(stream.length + 1)
    if ('after' in from && !ENTRY.test(after)) return undefined
    const found = await this.#run(id, READ, stream, after) as [string, string] | null
    if (found === null) return undefined
    const [writer, begin] = found
    const tail = new StreamTail(this.#shared, id, stream, begin, writer, reader, (owed) => this.#writer(id, stream, NO_LIMITS, 'own', owed))
    const tails = this.#shared.held.get(id)?.tails
    tails?.add(tail)
    const close = (): void => {
      tails?.delete(tail)
      tail.close()
    }
    try {
      await tail.read()
    } catch (error) {
      close()
      throw error
    }
    tail.check().catch(() => {})
    return { stream, close }
  }

  /** There may be something new for the readers of this process. */
  wake (id: string): void {
    for (const tail of this.#shared.held.get(id)?.tails ?? []) tail.wake()
  }

  #run (id: string, script: typeof READ, ...args: (string | number)[]): Promise<any> {
    return this.#shared.connection.run(script, sessionKey(this.#shared, id), ...args)
  }
}

// Answers in place of a dead process: they are few and small.
const NO_LIMITS: EventLimits = { maxEvents: 1_000_000, maxBytes: 2 ** 40, ttl: 2 ** 40 }

class StreamTail implements Tail {
  readonly #shared: Shared
  readonly #id: string
  readonly #stream: string
  readonly #reader: EventReader
  readonly #takeOver: (owed: string) => EventWriter
  /** The last entry that was looked at, of whichever stream. */
  #cursor: string
  /** The last event that was handed over. */
  #served: string
  #saved: string
  /** The process that writes the stream; none for one that any may write. */
  #writer: string
  #checking = false
  #closed = false

  constructor (shared: Shared, id: string, stream: string, after: string, writer: string, reader: EventReader, takeOver: (owed: string) => EventWriter) {
    this.#shared = shared
    this.#id = id
    this.#stream = stream
    this.#cursor = this.#served = this.#saved = after
    this.#writer = writer.split(' ', 1)[0]!
    this.#reader = reader
    this.#takeOver = takeOver
  }

  wake (): void {
    this.read().catch(() => {})
  }

  /** Reads on, after what is being read already. */
  readonly read = repeated(async () => {
    const key = `${sessionKey(this.#shared, this.#id)}:e`
    let more = true
    while (more && !this.#closed) {
      const entries = await this.#shared.connection.call(async (client) => client.xrange(key, `(${this.#cursor}`, '+', 'COUNT', BATCH))
      for (const [entry, fields] of entries) {
        if (this.#closed) return
        this.#cursor = entry
        const { s: stream, d: data, x: last } = fieldsOf(fields)
        if (stream !== this.#stream) continue
        if (last !== undefined) return this.end()
        if (this.#reader.event({ id: `${stream}_${entry}`, data: data! }) === false) return this.close()
        this.#served = entry
      }
      more = entries.length === BATCH
    }
  })

  end (): void {
    if (this.#closed) return
    this.#closed = true
    this.#reader.ended()
  }

  async check (): Promise<void> {
    const writer = this.#writer
    this.#save()
    if (writer === '' || this.#checking || this.#closed || await isAlive(this.#shared, writer)) return
    this.#checking = true
    try {
      await new Promise((resolve) => { setTimeout(resolve, SECOND_LOOK).unref() })
      if (this.#closed || await isAlive(this.#shared, writer)) return
      const owed = await this.#run(CLAIM, this.#stream, writer, this.#shared.process) as string | null
      this.#writer = ''
      if (owed !== null) this.#reader.orphaned(owed, this.#takeOver(owed))
    } finally {
      this.#checking = false
    }
  }

  /** The next reader of a stream that does not end goes on here. */
  close (): void {
    if (this.#closed) return
    this.#closed = true
    this.#save()
  }

  #save (): void {
    if (this.#writer !== '' || this.#served === this.#saved) return
    this.#saved = this.#served
    this.#run(SET, `served:${this.#stream}`, this.#served).catch(() => {})
  }

  #run (script: typeof READ, ...args: (string | number)[]): Promise<any> {
    return this.#shared.connection.run(script, sessionKey(this.#shared, this.#id), ...args)
  }
}
