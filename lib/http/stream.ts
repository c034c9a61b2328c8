// Server-sent events: frames, one stream, and the one timer that keeps all streams of an endpoint alive.
// WHATWG HTML "Server-sent events"; one `data:` line a message, comments as keep-alive.

import type { FastifyBaseLogger } from 'fastify'
import type { ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import { encode, oneLine } from '../jsonrpc.js'
import { DirectBody } from './direct.js'

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

/** What a stream writes to: the response, or what is read in its place. */
interface Sink {
  readonly writableLength: number
  /** From here on there is no room until it has been read. */
  readonly writableHighWaterMark: number
  write (text: string): boolean
  end (last: string): unknown
  destroy (): unknown
}

/** A stream of events to one client; ended by us, or destroyed when the client leaves. */
export class EventStream {
  readonly #keepAlive: KeepAlive
  #sink: Sink
  #finished = false
  #roomAgain: Promise<void> | undefined
  #letGo: (() => void) | undefined
  #fullSince: number | undefined
  #onClose: (() => void) | undefined
  #log: FastifyBaseLogger | undefined
  destroyed = false
  /** Where it is on the wheel of the keep-alive. */
  slot = 0
  /** When something was last handed over, for the keep-alive. */
  wroteAt = Date.now()
  /** Called when more waits for the reader than is kept; what comes now is dropped. */
  onOverflow: (() => void) | undefined

  /** @param first text to begin with; a proxy may hold the headers back until there is some */
  constructor (keepAlive: KeepAlive, first = OPEN) {
    this.#keepAlive = keepAlive
    this.#sink = new EventBody(this)
    keepAlive.add(this)
    void this.write(first)
  }

  /** What Fastify sends. Sent once. */
  get body (): Readable { return this.#sink as EventBody }

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
    if (this.over) return undefined
    // Never less than what the host lets wait: only behind that it is told when there is room again.
    if (this.#sink.writableLength > Math.max(MAX_QUEUED, this.#sink.writableHighWaterMark)) {
      this.onOverflow?.()
      return this.over ? undefined : this.#room()
    }
    this.wroteAt = Date.now()
    if (this.#sink.write(text)) return undefined
    this.#fullSince ??= Date.now()
    return this.#room()
  }

  comment (): void {
    void this.write(KEEP_ALIVE)
  }

  /** Ends the stream after what is queued; `last` is sent whatever the queue holds. */
  finish (last = ''): void {
    if (this.over) return
    this.#finished = true
    this.#sink.end(last)
    this.#close()
  }

  /** Nobody reads it any more. */
  destroy (): void {
    if (this.destroyed) return
    this.destroyed = true
    this.#sink.destroy()
    if (this.#finished) return
    // As Fastify says it of streams that it pipes.
    this.#log?.info('stream closed prematurely')
    this.#close()
  }

  /** Calls back when it is over, after whatever ended it. */
  onClose (callback: () => void): void {
    const before = this.#onClose
    this.#onClose = before === undefined ? callback : () => { before(); callback() }
  }

  #close (): void {
    this.#keepAlive.remove(this)
    this.hasRoom()
    process.nextTick(() => this.#onClose?.())
  }

  /** The reader has taken what there was. */
  hasRoom (): void {
    this.#fullSince = undefined
    this.#roomAgain = undefined
    this.#letGo?.()
  }

  /** Writes to the response itself from here on. */
  attach (response: ServerResponse, log: FastifyBaseLogger): void {
    if (this.destroyed) {
      response.destroy()
      return
    }
    const body = this.#sink as EventBody
    body.stream = undefined
    this.#sink = response
    this.#log = log
    const leave = (): void => this.destroy()
    response.on('drain', () => this.hasRoom()).on('error', leave).on('close', leave)
    // Not the response: a corked one may end before what it holds back, and forgets that somebody waits for room.
    const { socket } = response
    socket?.cork()
    // Joined to the first text, the head would keep all the pieces that Node made it of for as long as the stream lasts.
    response.flushHeaders()
    const queued = body.unsent()
    // Whoever waited for a reader waits on for the socket at most.
    if (queued === null || response.write(queued)) this.hasRoom()
    if (this.#finished) response.end()
    else socket?.uncork()
  }

  /** One promise for all who wait: they may be as many as messages were dropped. */
  #room (): Promise<void> {
    this.#roomAgain ??= new Promise((resolve) => { this.#letGo = resolve })
    return this.#roomAgain
  }
}

/** A stream of events while it is none of ours to write to the response. */
class EventBody extends DirectBody implements Sink {
  /** Nothing once it writes to the response itself. */
  stream: EventStream | undefined
  /** What came before anybody read. */
  #queued = ''
  #read = false
  #ended = false

  constructor (stream: EventStream) {
    super({ highWaterMark: HIGH_WATER })
    this.stream = stream
  }

  get writableLength (): number { return this.#queued.length + this.readableLength }
  get writableHighWaterMark (): number { return this.readableHighWaterMark }

  write (text: string): boolean {
    if (this.#read) return this.push(text)
    this.#queued += text
    return this.#queued.length < HIGH_WATER
  }

  end (last: string): void {
    if (last !== '') this.write(last)
    this.#ended = true
    if (this.#read) this.push(null)
  }

  /** What is yet to be sent: a hook of the host may have begun to read. */
  unsent (): string | Buffer | null {
    return this.#read ? this.read() as Buffer | null : this.#queued
  }

  writeTo (response: ServerResponse, log: FastifyBaseLogger): void {
    this.stream!.attach(response, log)
  }

  override _read (): void {
    if (this.#read) {
      this.stream?.hasRoom()
      return
    }
    this.#read = true
    this.push(this.#queued)
    this.#queued = ''
    if (this.#ended) this.push(null)
  }

  override _destroy (error: Error | null, done: (error?: Error | null) => void): void {
    this.stream?.destroy()
    done(error)
  }
}

const SLOTS = 15

/** A wheel: one timer looks at a fifteenth of the streams at a time, and sends a comment on those that were silent. */
export class KeepAlive {
  readonly #slots: Set<EventStream>[] = Array.from({ length: SLOTS }, () => new Set())
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
    if (!this.#slots[stream.slot]!.delete(stream)) return
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
    stream.slot = slot
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
