// A client of a service of many processes. It goes from one process to the next as a balancer without stickiness would send it, and
// comes back for what it has missed when a stream breaks.

import { createParser } from 'eventsource-parser'
import { Agent, request as httpRequest } from 'node:http'
import type { IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { initialize, INITIALIZED, modern, modernHeaders, request } from '../kit.js'

/** `message` where the data are JSON. */
export interface Event { id: string | undefined, data: string, message: any }
export interface Answer { status: number, headers: IncomingMessage['headers'], json: any }
/** How a call ended: with the client's answer, or without. */
export type Outcome = { reply: any, notifications: any[] } | { failed: string }

const BOTH = 'application/json, text/event-stream'

/** A stream of events while it is read. */
export class Events {
  readonly response: IncomingMessage
  lastId: string | undefined
  retry: number | undefined
  readonly #here: Event[] = []
  readonly #waiting: (() => void)[] = []
  #over = false

  constructor (response: IncomingMessage) {
    this.response = response
    const parser = createParser({
      onEvent: ({ id, data }) => {
        if (id !== undefined) this.lastId = id
        if (data !== '') this.#here.push({ id, data, message: data.startsWith('{') ? JSON.parse(data) : undefined })
      },
      onRetry: (retry) => { this.retry = retry }
    })
    response.setEncoding('utf8')
    response.on('data', (chunk: string) => {
      parser.feed(chunk)
      this.#wake()
    })
    response.on('error', () => {})
    response.once('close', () => {
      this.#over = true
      this.#wake()
    })
  }

  get status (): number { return this.response.statusCode! }
  /** The server ended it, and it was not cut off. */
  get complete (): boolean { return this.response.complete }

  /** The next event; nothing at the end. */
  async next (): Promise<Event | undefined> {
    while (this.#here.length === 0 && !this.#over) await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
    return this.#here.shift()
  }

  async end (): Promise<void> {
    while (!this.#over) await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
  }

  leave (): void { this.response.destroy() }

  #wake (): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }
}

export interface ClientOptions {
  /** Ports, asked one after the other. */
  ports: readonly number[]
  token?: string
  version?: string
  capabilities?: Record<string, any>
}

export class Client {
  readonly options: ClientOptions
  id: string | undefined
  #turn: number
  #requests = 0
  readonly #agent = new Agent({ keepAlive: false })

  constructor (options: ClientOptions, first = 0) {
    this.options = options
    this.#turn = first
  }

  get nextPort (): number {
    const { ports } = this.options
    return ports[this.#turn++ % ports.length]!
  }

  headers (more: Record<string, string> = {}): Record<string, string> {
    const { token } = this.options
    return {
      'content-type': 'application/json',
      accept: BOTH,
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(this.id !== undefined && { 'mcp-session-id': this.id }),
      ...more
    }
  }

  async ask (method: string, body: unknown, headers: Record<string, string> = {}, port = this.nextPort, path = '/mcp'): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const sent = httpRequest({ host: '127.0.0.1', port, path, method, headers: this.headers(headers), agent: this.#agent }, resolve)
      sent.on('error', reject)
      sent.end(body === undefined ? undefined : JSON.stringify(body))
    })
  }

  /** A POST, with the whole answer. */
  async post (body: unknown, headers: Record<string, string> = {}, port?: number): Promise<Answer> {
    const response = await this.ask('POST', body, { accept: 'application/json', ...headers }, port)
    const text = await textOf(response)
    return { status: response.statusCode!, headers: response.headers, json: text === '' ? undefined : JSON.parse(text) }
  }

  async initialize (port?: number): Promise<Answer> {
    const { version = '2025-11-25', capabilities = { elicitation: {} } } = this.options
    const answer = await this.post(initialize(version, 'init', capabilities), {}, port)
    const id = answer.headers['mcp-session-id']
    if (typeof id !== 'string') return answer
    this.id = id
    await this.post(INITIALIZED)
    return answer
  }

  /** The same, however often a process is down. */
  async connect (): Promise<void> {
    while (this.id === undefined) {
      await this.initialize().catch(() => {})
      if (this.id === undefined) await sleep(50)
    }
    // Without it nothing is told; it may be said twice.
    while ((await this.post(INITIALIZED).catch(() => undefined))?.status !== 202) await sleep(50)
  }

  async end (port?: number): Promise<Answer> {
    const response = await this.ask('DELETE', undefined, {}, port)
    await textOf(response)
    return { status: response.statusCode!, headers: response.headers, json: undefined }
  }

  /** The standalone stream, or the rest of another. */
  async get (lastEventId?: string, port?: number): Promise<Events> {
    return new Events(await this.ask('GET', undefined, { accept: 'text/event-stream', ...(lastEventId !== undefined && { 'last-event-id': lastEventId }) }, port))
  }

  /** A call whose answer is read as it comes. */
  async open (name: string, args: object, port?: number): Promise<Events> {
    const id = ++this.#requests
    return new Events(await this.ask('POST', request('tools/call', { name, arguments: args, _meta: { progressToken: id } }, id), {}, port))
  }

  /**
   * A call, from wherever its stream breaks on at another process. Questions are answered, each at another process too.
   * @param onQuestion makes the answer
   */
  async call (name: string, args: object, onQuestion?: (message: any) => object): Promise<Outcome> {
    let events: Events
    const notifications: any[] = []
    const seen = new Set<string>()
    let lastId: string | undefined
    try {
      events = await this.open(name, args)
    } catch (error) {
      return { failed: (error as Error).message }
    }
    for (let attempt = 0; attempt < 200; attempt++) {
      if (events.status !== 200) {
        events.leave()
        if (events.status !== 503 || lastId === undefined) return { failed: `status ${events.status}` }
      }
      for (let event = await events.next(); event !== undefined; event = await events.next()) {
        const { id, message } = event
        if (id !== undefined) {
          if (seen.has(id)) return { failed: `event ${id} came twice` }
          seen.add(id)
          lastId = id
        }
        if (message.method === undefined) return { reply: message, notifications }
        if (message.id === undefined) notifications.push(message)
        else void this.#answer({ jsonrpc: '2.0', id: message.id, result: onQuestion?.(message) ?? { action: 'decline' } })
      }
      lastId = events.lastId ?? lastId
      if (lastId === undefined) return { failed: 'the stream broke before there was anything to come back for' }
      try {
        events = await this.get(lastId)
      } catch {
        // This process is down: the next one.
        await sleep(20)
      }
    }
    return { failed: 'no answer, however often it was asked for' }
  }

  async #answer (message: object): Promise<void> {
    for (let attempt = 0; attempt < 100; attempt++) {
      const answer = await this.post(message).catch(() => undefined)
      if (answer !== undefined && answer.status !== 503) return
      await sleep(20)
    }
  }

  /** A 2026 call: it needs no session. */
  async callModern (name: string, args: object): Promise<Outcome> {
    const headers = { ...modernHeaders('tools/call', name), ...this.headers() }
    delete (headers as Record<string, string>)['mcp-session-id']
    try {
      const events = new Events(await this.ask('POST', modern('tools/call', { name, arguments: args }, ++this.#requests), headers))
      const notifications: any[] = []
      for (let event = await events.next(); event !== undefined; event = await events.next()) {
        if (event.message.method === undefined) return { reply: event.message, notifications }
        notifications.push(event.message)
      }
      return { failed: `status ${events.status}, and no answer` }
    } catch (error) {
      return { failed: (error as Error).message }
    }
  }

  async listenModern (notifications: object, port?: number, headers: Record<string, string> = {}): Promise<Events> {
    return new Events(await this.ask('POST', modern('subscriptions/listen', { notifications }, 'L'), { ...headers, ...modernHeaders('subscriptions/listen') }, port))
  }
}

async function textOf (response: IncomingMessage): Promise<string> {
  let text = ''
  response.setEncoding('utf8')
  for await (const chunk of response) text += chunk as string
  return text
}
