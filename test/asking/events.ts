// A resumable stream as a client sees it: events with their ids, empty ones too, read as fast or as slowly as a test wants.

import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { request as httpRequest } from 'node:http'
import { createParser } from 'eventsource-parser'
import type { Ask, Connection } from '../field/wire.js'
import { H } from '../field/wire.js'

export interface Event {
  id: string | undefined
  /** What the event says; nothing for an empty one. */
  message: any
  retry: number | undefined
}

export class Events {
  readonly response: IncomingMessage
  /** Everything that has come so far. */
  text = ''
  readonly #events: Event[] = []
  readonly #waiting: (() => void)[] = []
  #over = false

  constructor (response: IncomingMessage) {
    this.response = response
    let retry: number | undefined
    const parser = createParser({
      onRetry: (ms) => { retry = ms },
      onEvent: ({ id, data }) => {
        this.#events.push({ id, message: data === '' ? undefined : JSON.parse(data), retry })
        retry = undefined
      }
    })
    response.setEncoding('utf8')
    response.on('data', (chunk: string) => {
      this.text += chunk
      // The parser takes an event with an empty `data:` for none, and so do browsers: here its id is what counts.
      parser.feed(chunk.replaceAll('data: \n\n', 'data: ""\n\n'))
      this.#wake()
    })
    response.on('error', () => {})
    response.once('close', () => {
      this.#over = true
      this.#wake()
    })
  }

  get status (): number { return this.response.statusCode! }

  /** The next event; nothing when the stream is over. */
  async next (): Promise<Event | undefined> {
    while (this.#events.length === 0 && !this.#over) await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
    const event = this.#events.shift()
    return event?.message === '' ? { ...event, message: undefined } : event
  }

  /** All that is yet to come, until the stream is over. */
  async rest (): Promise<Event[]> {
    const all: Event[] = []
    for (let event = await this.next(); event !== undefined; event = await this.next()) all.push(event)
    return all
  }

  /** Whether the server has ended it (else the connection broke). */
  async end (): Promise<boolean> {
    while (!this.#over) await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
    return this.response.complete
  }

  destroy (): void {
    this.response.destroy()
  }

  #wake (): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }
}

/** @param paused nothing is read until the response is resumed */
export async function openEvents ({ wire, headers: own }: Connection, { method = 'POST', headers, body }: Ask, paused = false): Promise<Events> {
  const sent = httpRequest({ host: '127.0.0.1', port: wire.port, method, path: '/mcp', headers: { ...H, ...own, ...headers }, agent: wire.agent })
  sent.on('error', () => {})
  sent.end(body === undefined ? undefined : JSON.stringify(body))
  const [response] = await once(sent, 'response') as [IncomingMessage]
  const events = new Events(response)
  if (paused) response.pause()
  return events
}

export function postEvents (session: Connection, body: unknown, paused = false): Promise<Events> {
  return openEvents(session, { body }, paused)
}

export function getEvents (session: Connection, lastEventId?: string, paused = false): Promise<Events> {
  return openEvents(session, { method: 'GET', headers: { accept: 'text/event-stream', ...(lastEventId !== undefined && { 'Last-Event-ID': lastEventId }) } }, paused)
}
