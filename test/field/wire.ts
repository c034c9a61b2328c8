// A service on a real port, and a client that shows what is on the wire: header lines as they are sent, raw bytes, one event
// at a time. A test that waits, waits for something to arrive.

import { createParser } from 'eventsource-parser'
import fastify from 'fastify'
import type { FastifyInstance, FastifyServerOptions } from 'fastify'
import { once } from 'node:events'
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage, OutgoingHttpHeaders } from 'node:http'
import { Agent, request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { connect } from 'node:net'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { Test } from 'tap'
import { silent } from '../../lib/layer/context.js'
import type { AppLayer } from '../../lib/layer/index.js'
import { serveStdio } from '../../lib/stdio/index.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import cloudgMcp from '../../plugin.js'
import { testBackplane } from '../backplane/shared.js'
import { initialize, INITIALIZED, request } from '../kit.js'

export const BOTH = 'application/json, text/event-stream'
export const H = { 'content-type': 'application/json', accept: BOTH } as const
export const JSON_ONLY = { ...H, accept: 'application/json' } as const
export const SSE_ONLY = { ...H, accept: 'text/event-stream' } as const
export const PING = request('ping')

/** The body of a refusal. */
export function refused (message: string, code = -32600, id: string | number | null = null) {
  return { jsonrpc: '2.0', id, error: { code, message } }
}

/** A promise that a test settles by hand. */
export function gate<T = void> (): { opened: Promise<T>, open: (value: T) => void } {
  let open!: (value: T) => void
  const opened = new Promise<T>((resolve) => { open = resolve })
  return { opened, open }
}

export interface Ask {
  method?: string
  path?: string
  headers?: OutgoingHttpHeaders
  /** Text is sent as it is, anything else as JSON. */
  body?: unknown
}

/** A whole response. */
export class Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string

  constructor (response: IncomingMessage, text: string) {
    this.status = response.statusCode!
    this.headers = response.headers
    this.text = text
  }

  get json (): any { return JSON.parse(this.text) }
  /** The messages of an event stream, or the one of a JSON body. */
  get messages (): any[] {
    if (!this.headers['content-type']?.startsWith('text/event-stream')) return [this.json]
    const found: any[] = []
    createParser({ onEvent: ({ data }) => { if (data !== '') found.push(JSON.parse(data)) } }).feed(this.text)
    return found
  }

  /** The last message: the reply. */
  get reply (): any { return this.messages.at(-1) }
}

/** A response that is read as it comes. */
export class Stream {
  readonly response: IncomingMessage
  /** Everything that has come so far. */
  text = ''
  /** Where messages go, on a stream of the old transport. */
  endpoint: string | undefined
  readonly #messages: any[] = []
  readonly #comments: string[] = []
  readonly #waiting: (() => void)[] = []
  #over = false

  constructor (response: IncomingMessage) {
    this.response = response
    const parser = createParser({
      onEvent: ({ event, data }) => {
        if (event === 'endpoint') this.endpoint = data
        else if (data !== '') this.#messages.push(JSON.parse(data))
      },
      onComment: (comment) => { this.#comments.push(comment.trim()) }
    })
    response.setEncoding('utf8')
    response.on('data', (chunk: string) => {
      this.text += chunk
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
  get headers (): IncomingHttpHeaders { return this.response.headers }
  /** Messages that have come and were not asked for yet. */
  get unread (): readonly any[] { return this.#messages }

  /** The next message; nothing when the stream is over. */
  async next (): Promise<any> {
    await this.#until(() => this.#messages.length > 0)
    return this.#messages.shift()
  }

  async comment (): Promise<string | undefined> {
    await this.#until(() => this.#comments.length > 0)
    return this.#comments.shift()
  }

  /** Some bytes of the body. */
  async firstByte (): Promise<void> {
    await this.#until(() => this.text !== '')
  }

  /** True when the server has ended it, false when the connection broke. */
  async end (): Promise<boolean> {
    await this.#until(() => this.#over)
    return this.response.complete
  }

  destroy (): void {
    this.response.destroy()
  }

  async #until (condition: () => boolean): Promise<void> {
    while (!condition() && !this.#over) await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
  }

  #wake (): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }
}

/** A client of one port. */
export class Wire {
  readonly port: number
  readonly agent: Agent

  constructor (port: number, agent = new Agent({ keepAlive: true })) {
    this.port = port
    this.agent = agent
  }

  /** Sends a request; whoever sends it so may leave before there is an answer. */
  leaving ({ method = 'POST', path = '/mcp', headers = H, body }: Ask): ClientRequest {
    const sent = httpRequest({ host: '127.0.0.1', port: this.port, method, path, headers, agent: this.agent })
    sent.on('error', () => {})
    sent.end(body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body))
    return sent
  }

  async #request (ask: Ask): Promise<IncomingMessage> {
    const [response] = await once(this.leaving(ask), 'response') as [IncomingMessage]
    return response
  }

  async send (ask: Ask): Promise<Answer> {
    const response = await this.#request(ask)
    const chunks: Buffer[] = []
    for await (const chunk of response) chunks.push(chunk)
    return new Answer(response, Buffer.concat(chunks).toString())
  }

  async open (ask: Ask): Promise<Stream> {
    return new Stream(await this.#request(ask))
  }

  post (body: unknown, headers: OutgoingHttpHeaders = {}): Promise<Answer> {
    return this.send({ body, headers: { ...H, ...headers } })
  }

  /** A handshake session that is ready for work. */
  async connect (headers: OutgoingHttpHeaders = {}, version = '2025-11-25'): Promise<Connection> {
    const answer = await this.post(initialize(version), headers)
    const id = answer.headers['mcp-session-id']
    if (typeof id !== 'string') throw new Error(`no session: ${answer.status} ${answer.text}`)
    const connection = new Connection(this, id, headers)
    await connection.post(INITIALIZED)
    return connection
  }
}

/** One session of one client. */
export class Connection {
  readonly wire: Wire
  readonly id: string
  readonly headers: OutgoingHttpHeaders

  constructor (wire: Wire, id: string, headers: OutgoingHttpHeaders = {}) {
    this.wire = wire
    this.id = id
    this.headers = { ...headers, 'mcp-session-id': id }
  }

  post (body: unknown, headers: OutgoingHttpHeaders = {}): Promise<Answer> {
    return this.wire.post(body, { ...this.headers, ...headers })
  }

  open (body: unknown, headers: OutgoingHttpHeaders = {}): Promise<Stream> {
    return this.wire.open({ body, headers: { ...H, ...this.headers, ...headers } })
  }

  /** The standalone stream. */
  get (headers: OutgoingHttpHeaders = {}): Promise<Stream> {
    return this.wire.open({ method: 'GET', headers: { accept: 'text/event-stream', ...this.headers, ...headers } })
  }

  delete (headers: OutgoingHttpHeaders = {}): Promise<Answer> {
    return this.wire.send({ method: 'DELETE', headers: { ...this.headers, ...headers } })
  }
}

export interface Service extends Wire {
  app: FastifyInstance
  layer: AppLayer
  /** What was logged at `warn` and above. */
  logs: Record<string, any>[]
}

export interface Setting {
  /** Options of Fastify itself. */
  fastify?: FastifyServerOptions & { http2?: true }
  host?: string
  port?: number
  /** What the host has registered before the plugin. */
  before?: (app: FastifyInstance) => void | Promise<void>
  after?: (app: FastifyInstance) => void | Promise<void>
}

/**
 * For clients on `fetch`: it opens connections that it never uses, and Node counts those as active, so that a server waits for
 * them when it closes.
 */
export const FORCE: Setting = { fastify: { forceCloseConnections: true } }

/** A service with the plugin, listening; it ends with the test. */
export async function serve (t: Test, options: CloudgMcpOptions = {}, setting: Setting = {}): Promise<Service> {
  const logs: Record<string, any>[] = []
  const logger = { level: 'warn', stream: { write: (line: string) => { logs.push(JSON.parse(line)) } } }
  const app: FastifyInstance = fastify({ logger, ...setting.fastify } as FastifyServerOptions)
  await setting.before?.(app)
  await app.register(cloudgMcp, { backplane: testBackplane(), ...options })
  await setting.after?.(app)
  await app.listen({ host: setting.host ?? '127.0.0.1', port: setting.port ?? 0 })
  const service = Object.assign(new Wire((app.server.address() as AddressInfo).port), { app, logs, layer: (options.layer ?? app.mcp) as AppLayer })
  t.teardown(async () => {
    service.agent.destroy()
    await app.close()
  })
  return service
}

/** Text on a socket, and what comes back until the server closes it. */
export async function raw (port: number, text: string): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.setEncoding('utf8')
  socket.write(text)
  let answer = ''
  for await (const chunk of socket) answer += chunk
  return answer
}

/** A layer on a pipe: messages go in, and the lines that came out are there when the input has ended. */
export async function pipe (layer: AppLayer, feed: (write: (message: object) => void) => void | Promise<void>): Promise<string[]> {
  const [input, output] = [new PassThrough(), new PassThrough()]
  const written = text(output)
  const stdio = await serveStdio(layer, { input, output, log: silent })
  await feed((message) => input.write(`${JSON.stringify(message)}\n`))
  input.end()
  await stdio.closed
  output.end()
  return (await written).trimEnd().split('\n')
}
