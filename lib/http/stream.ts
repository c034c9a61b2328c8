// Server-sent events: frames, one stream, and the one timer that keeps all streams of an endpoint alive.
// WHATWG HTML "Server-sent events"; one `data:` line a message, comments as keep-alive.

import { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { encode, oneLine } from '../jsonrpc.js'

export const SSE_HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no'
} as const

const OPEN = ': open\n\n'
const KEEP_ALIVE = ': keepalive\n\n'
// Bytes that may wait for a reader before its producer is asked to wait, and before what is not awaited is dropped.
const HIGH_WATER = 16 * 1024
const MAX_QUEUED = 1024 * 1024

export function frame (message: object): string {
  return `event: message\ndata: ${oneLine(encode(message))}\n\n`
}

/**
 * A stream of events to one client; ended by us, or destroyed when the client leaves. Fastify pipes it into the response, and then it
 * is the response that is written to: a pipe costs each stream some kilobytes. A host may put a stream of its own in between.
 */
export class EventStream extends Readable {
  readonly #keepAlive: KeepAlive
  #response: ServerResponse | undefined
  #finished = false
  #roomAgain: Promise<void> | undefined
  #letGo: (() => void) | undefined
  #fullSince: number | undefined
  /** When something was last handed over, for the keep-alive. */
  wroteAt = Date.now()
  /** Called when more waits for the reader than is kept; what comes now is dropped. */
  onOverflow: (() => void) | undefined

  /** @param first text to begin with; a proxy may hold the headers back until there is some */
  constructor (keepAlive: KeepAlive, first = OPEN) {
    super({ highWaterMark: HIGH_WATER })
    this.#keepAlive = keepAlive
    keepAlive.add(this)
    void this.write(first)
  }

  /** Nothing more can be sent. */
  get over (): boolean { return this.destroyed || this.#finished }
  /** For how many ms the reader has taken nothing although there is much to take. */
  get stalledFor (): number { return this.#fullSince === undefined ? 0 : Date.now() - this.#fullSince }

  /** Sends a message. A promise means that the reader is slow: it resolves when there is room again, or nobody to wait for. */
  send (message: object): void | Promise<void> {
    return this.write(frame(message))
  }

  /** Sends text that is framed already. */
  write (text: string): void | Promise<void> {
    if (this.destroyed || this.#finished) return undefined
    if (this.#queued > MAX_QUEUED) {
      this.onOverflow?.()
      return this.destroyed || this.#finished ? undefined : this.#room()
    }
    this.wroteAt = Date.now()
    if (this.#response === undefined ? this.push(text) : this.#response.write(text)) return undefined
    this.#fullSince ??= Date.now()
    return this.#room()
  }

  comment (): void {
    void this.write(KEEP_ALIVE)
  }

  /** Ends the stream after what is queued; `last` is sent whatever the queue holds. */
  finish (last = ''): void {
    if (this.destroyed || this.#finished) return
    this.#finished = true
    if (this.#response !== undefined) this.#response.end(last)
    else if (last !== '') this.push(last)
    this.push(null)
    // Nobody reads it where the response is written to; it has to end all the same, or its end would count as premature.
    if (this.#response !== undefined) this.resume()
    this.#keepAlive.remove(this)
    this.#release()
  }

  override _read (): void {
    this.#fullSince = undefined
    this.#release()
  }

  override pipe<T extends NodeJS.WritableStream> (destination: T, options?: { end?: boolean }): T {
    if (!(destination instanceof ServerResponse) || this.#finished) return super.pipe(destination, options)
    this.#response = destination
    destination.on('drain', () => this._read())
    const queued = this.read() as Buffer | null
    if (queued !== null) destination.write(queued)
    return destination
  }

  get #queued (): number {
    return this.#response?.writableLength ?? this.readableLength
  }

  override _destroy (error: Error | null, done: (error?: Error | null) => void): void {
    this.#keepAlive.remove(this)
    this.#release()
    done(error)
  }

  /** One promise for all who wait: they may be as many as messages were dropped. */
  #room (): Promise<void> {
    this.#roomAgain ??= new Promise((resolve) => { this.#letGo = resolve })
    return this.#roomAgain
  }

  #release (): void {
    this.#roomAgain = undefined
    this.#letGo?.()
  }
}

const SLOTS = 15

/** A wheel: one timer looks at a fifteenth of the streams at a time, and sends a comment on those that were silent. */
export class KeepAlive {
  readonly #slots: Set<EventStream>[] = Array.from({ length: SLOTS }, () => new Set())
  readonly #slotOf = new WeakMap<EventStream, number>()
  readonly #interval: number
  #timer: NodeJS.Timeout | undefined
  #hand = 0
  #size = 0

  /** @param interval ms of silence after which a comment is sent */
  constructor (interval: number) {
    this.#interval = interval
  }

  get size (): number { return this.#size }

  add (stream: EventStream): void {
    this.#put(stream, this.#hand)
    this.#size++
    this.#timer ??= setInterval(() => this.#turn(), this.#interval / SLOTS).unref()
  }

  remove (stream: EventStream): void {
    const slot = this.#slotOf.get(stream)
    if (slot === undefined || !this.#slots[slot]!.delete(stream)) return
    this.#slotOf.delete(stream)
    if (--this.#size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** All streams, for the end of the endpoint. */
  streams (): EventStream[] {
    return this.#slots.flatMap((slot) => [...slot])
  }

  #put (stream: EventStream, slot: number): void {
    this.#slots[slot]!.add(stream)
    this.#slotOf.set(stream, slot)
  }

  #turn (): void {
    this.#hand = (this.#hand + 1) % SLOTS
    const due = this.#slots[this.#hand]!
    const step = this.#interval / SLOTS
    const now = Date.now()
    for (const stream of [...due]) {
      // A reader that has not taken anything for a whole turn of the wheel is gone.
      if (stream.stalledFor >= this.#interval) {
        stream.destroy()
        continue
      }
      const silent = now - stream.wroteAt
      if (silent + step > this.#interval) {
        stream.comment()
      } else {
        // It has written since: its turn comes just before the silence gets too long.
        const later = Math.min(Math.floor((this.#interval - silent) / step), SLOTS - 1)
        due.delete(stream)
        this.#put(stream, (this.#hand + later) % SLOTS)
      }
    }
  }
}
