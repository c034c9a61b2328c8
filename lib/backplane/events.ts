// Events of the resumable streams of one session, in memory: bounded by count, bytes and age.

import type { EventLimits, EventReader, EventReading, StreamEvent } from './index.js'
import { streamOf } from './index.js'

interface Kept extends StreamEvent { stream: string, seq: number, expires: number }

export class SessionEvents {
  // Of all streams, oldest first.
  #kept: Kept[] = []
  #bytes = 0
  readonly #last = new Map<string, number>()
  readonly #readers = new Map<string, Set<EventReader>>()
  readonly #ended = new Set<string>()
  /** Up to where the readers of a stream have been served. */
  readonly #served = new Map<string, number>()

  append (stream: string, data: string, { maxEvents, maxBytes, ttl }: EventLimits): string {
    if (this.#ended.has(stream)) return ''
    const seq = (this.#last.get(stream) ?? 0) + 1
    this.#last.set(stream, seq)
    const now = Date.now()
    const event = { id: `${stream}_${seq}`, data, stream, seq, expires: now + ttl }
    this.#kept.push(event)
    this.#bytes += data.length
    const last = this.#kept.length - 1
    this.#dropWhile((at) => at < last && (last + 1 - at > maxEvents || this.#bytes > maxBytes || this.#kept[at]!.expires < now))
    for (const reader of this.#readers.get(stream) ?? []) this.#serve(reader, event)
    return event.id
  }

  end (stream: string): void {
    this.#ended.add(stream)
    const readers = this.#readers.get(stream)
    this.#readers.delete(stream)
    for (const reader of readers ?? []) reader.ended()
  }

  /** The session has ended, and with it all of its streams. */
  close (): void {
    for (const stream of [...this.#readers.keys()]) this.end(stream)
  }

  read (from: { after: string } | { stream: string }, reader: EventReader): EventReading | undefined {
    this.expire(Date.now())
    const position = 'stream' in from ? { stream: from.stream, seq: this.#served.get(from.stream) ?? 0 } : this.#positionOf(from.after)
    if (position === undefined) return undefined
    const { stream, seq } = position
    for (const event of this.#kept) if (event.stream === stream && event.seq > seq) this.#serve(reader, event)
    if (this.#ended.has(stream)) {
      reader.ended()
      return { stream, close () {} }
    }
    const readers = this.#readers.get(stream) ?? new Set()
    this.#readers.set(stream, readers.add(reader))
    return { stream, close: () => { readers.delete(reader) } }
  }

  /** Drops what is too old. */
  expire (now: number): void {
    this.#dropWhile((at) => at < this.#kept.length && this.#kept[at]!.expires < now)
  }

  #positionOf (id: string): { stream: string, seq: number } | undefined {
    const stream = streamOf(id)
    const seq = Number(id.slice(stream.length + 1))
    const last = this.#last.get(stream)
    return last === undefined || !Number.isInteger(seq) || seq < 1 || seq > last || id !== `${stream}_${seq}` ? undefined : { stream, seq }
  }

  #serve (reader: EventReader, { id, data, stream, seq }: Kept): void {
    if (reader.event({ id, data }) === false) return
    this.#served.set(stream, Math.max(seq, this.#served.get(stream) ?? 0))
  }

  #dropWhile (isTooMuch: (at: number) => boolean): void {
    let gone = 0
    while (isTooMuch(gone)) this.#bytes -= this.#kept[gone++]!.data.length
    if (gone > 0) this.#forget(gone)
  }

  /** A stream that has ended and of which nothing is left is no stream any more. */
  #forget (count: number): void {
    const dropped = new Set(this.#kept.splice(0, count).map(({ stream }) => stream))
    for (const { stream } of this.#kept) dropped.delete(stream)
    for (const stream of dropped) {
      if (!this.#ended.delete(stream)) continue
      this.#last.delete(stream)
      this.#served.delete(stream)
    }
  }
}
