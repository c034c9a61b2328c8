// Events of the resumable streams of one session, in memory: bounded by count, bytes and age.

import type { EventLimits, EventReader, StreamEvent } from './index.js'

interface Kept extends StreamEvent { stream: string, seq: number, at: number }
type Deliver = (event: StreamEvent | undefined) => void

export class SessionEvents {
  // Of all streams, oldest first.
  #kept: Kept[] = []
  #bytes = 0
  readonly #next = new Map<string, number>()
  readonly #readers = new Map<string, Set<Deliver>>()
  readonly #ended = new Set<string>()

  append (stream: string, data: string, { maxEvents, maxBytes, ttl }: EventLimits): string {
    const seq = (this.#next.get(stream) ?? 0) + 1
    this.#next.set(stream, seq)
    const event = { id: `${stream}_${seq}`, data, stream, seq, at: Date.now() }
    this.#kept.push(event)
    this.#bytes += data.length
    const oldest = event.at - ttl
    let gone = 0
    while (gone < this.#kept.length - 1 && (this.#kept.length - gone > maxEvents || this.#bytes > maxBytes || this.#kept[gone]!.at < oldest)) {
      this.#bytes -= this.#kept[gone++]!.data.length
    }
    if (gone > 0) this.#forget(gone)
    for (const deliver of this.#readers.get(stream) ?? []) deliver(event)
    return event.id
  }

  end (stream: string): void {
    this.#ended.add(stream)
    const readers = this.#readers.get(stream)
    this.#readers.delete(stream)
    for (const deliver of readers ?? []) deliver(undefined)
  }

  read (after: string, deliver: Deliver): EventReader | undefined {
    const cut = after.lastIndexOf('_')
    const stream = after.slice(0, cut)
    const seq = Number(after.slice(cut + 1))
    const next = this.#next.get(stream)
    if (next === undefined || !Number.isSafeInteger(seq) || seq < 1 || seq > next) return undefined
    for (const event of this.#kept) if (event.stream === stream && event.seq > seq) deliver(event)
    if (this.#ended.has(stream)) {
      deliver(undefined)
      return { stream, close () {} }
    }
    const readers = this.#readers.get(stream) ?? new Set()
    this.#readers.set(stream, readers.add(deliver))
    return { stream, close: () => { readers.delete(deliver) } }
  }

  /** A stream that has ended and of which nothing is left is no stream any more. */
  #forget (count: number): void {
    const dropped = new Set(this.#kept.splice(0, count).map(({ stream }) => stream))
    for (const { stream } of this.#kept) dropped.delete(stream)
    for (const stream of dropped) {
      if (this.#ended.delete(stream)) this.#next.delete(stream)
    }
  }
}
