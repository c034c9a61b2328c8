// HTTP for tests of the endpoint: an app on a real socket, requests that nothing normalises, event streams read one message
// at a time, and checks of whole answers. What is opened here is closed with the test.

import { Agent, request as httpRequest } from 'node:http'
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage, Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { connect } from 'node:net'
import { createParser } from 'eventsource-parser'
import Fastify from 'fastify'
import type { FastifyHttpOptions, FastifyInstance } from 'fastify'
import type { Test } from 'tap'
import cloudgMcp from '../../plugin.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { testBackplane } from '../backplane/shared.js'
import { createKit, INITIALIZED, initialize, modern, modernHeaders } from '../kit.js'
import type { Kit } from '../kit.js'

export type Headers = Record<string, string | string[]>

export const BOTH = 'application/json, text/event-stream'
/** What every POST of a client says of itself. */
export const POST: Headers = { 'content-type': 'application/json', accept: BOTH }
export const JSON_ONLY: Headers = { accept: 'application/json' }
export const SSE_ONLY: Headers = { accept: 'text/event-stream' }

export interface Served extends Kit { app: FastifyInstance, port: number, origin: string, url: string }
export type Target = Pick<Served, 'port' | 'url'>

/** An app with the plugin and the kit's layer, listening on a free loopback port. */
export async function serve (t: Test, options: CloudgMcpOptions = {}, host: FastifyHttpOptions<Server> = {}, bind = '127.0.0.1'): Promise<Served> {
  const kit = createKit()
  const app = Fastify(host)
  await app.register(cloudgMcp, { layer: kit.layer, ...(!options.stateless && { backplane: testBackplane() }), ...options })
  const port = await listen(t, app, bind)
  const origin = `http://127.0.0.1:${port}`
  return { ...kit, app, port, origin, url: `${origin}${options.prefix ?? ''}${options.path ?? '/mcp'}` }
}

/** Listens on a free port until the test ends. */
export async function listen (t: Test, app: FastifyInstance, host = '127.0.0.1'): Promise<number> {
  t.teardown(() => app.close())
  await app.listen({ host, port: 0 })
  return (app.server.address() as AddressInfo).port
}

/** A logger that keeps what is said, as Fastify's `loggerInstance`. */
export function captureLog () {
  const lines: { level: string, msg: string }[] = []
  const make = (): any => {
    const logger: any = { level: 'trace', child: () => logger }
    for (const level of ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']) {
      logger[level] = (first: unknown, second?: string) => lines.push({ level, msg: String(typeof first === 'string' ? first : second ?? (first as Error).message) })
    }
    return logger
  }
  return { lines, logger: make(), of: (level: string) => lines.filter((line) => line.level === level).map((line) => line.msg) }
}

// ---- one request

export interface Answer {
  status: number
  headers: IncomingHttpHeaders
  rawHeaders: string[]
  text: string
  /** The body as JSON; nothing when it is none. */
  json: any
  /** The messages of the body: of every event, or the one of a JSON body. */
  messages: any[]
}

export interface Send {
  method?: string
  headers?: Headers
  /** Text and bytes go out as they are, anything else as JSON. */
  body?: unknown
  agent?: Agent | false
}

function begin (url: string, { method = 'POST', headers = {}, body, agent = false }: Send): ClientRequest {
  const request = httpRequest(url, { method, headers, agent })
  const payload = body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body)
  request.end(payload)
  return request
}

function response (request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => { request.once('response', resolve).once('error', reject) })
}

/** Sends a request as it is given and reads the whole answer. */
export async function send (url: string, options: Send = {}): Promise<Answer> {
  const incoming = await response(begin(url, options))
  const chunks: Buffer[] = []
  for await (const chunk of incoming) chunks.push(chunk)
  return toAnswer(incoming, Buffer.concat(chunks).toString())
}

function toAnswer ({ statusCode, headers, rawHeaders }: IncomingMessage, text: string): Answer {
  const type = headers['content-type'] ?? ''
  const json = type.startsWith('application/json') && text !== '' ? JSON.parse(text) : undefined
  const messages = type.startsWith('text/event-stream') ? parseEvents(text).map(({ data }) => JSON.parse(data)) : json === undefined ? [] : [json]
  return { status: statusCode!, headers, rawHeaders, text, json, messages }
}

export function parseEvents (text: string): { event: string | undefined, id: string | undefined, data: string }[] {
  const events: { event: string | undefined, id: string | undefined, data: string }[] = []
  createParser({ onEvent: ({ event, id, data }) => events.push({ event, id, data }) }).feed(text)
  return events
}

/** POST of a message, with the headers of a client. An `undefined` header is left out. */
export function post ({ url }: Pick<Target, 'url'>, body: unknown, headers: Record<string, string | string[] | undefined> = {}): Promise<Answer> {
  return send(url, { headers: merged(headers), body })
}

function merged (headers: Record<string, string | string[] | undefined>): Headers {
  const all = new Map(Object.entries(POST))
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined) all.delete(name.toLowerCase())
    else all.set(name.toLowerCase(), value)
  }
  return Object.fromEntries(all)
}

/** POST of a 2026 request with the headers that go with it. */
export function postModern (target: Pick<Target, 'url'>, method: string, params: Record<string, any> = {}, headers: Record<string, string | undefined> = {}, id: string | number = 1): Promise<Answer> {
  const name = params['name'] ?? params['uri']
  return post(target, modern(method, params, id), { ...modernHeaders(method, typeof name === 'string' ? name : undefined), ...headers })
}

// ---- sessions

export interface ClientSession {
  id: string
  headers: Headers
  initialized: Answer
  post (body: unknown, headers?: Record<string, string | string[] | undefined>): Promise<Answer>
  get (headers?: Headers): Promise<Stream>
  end (headers?: Headers): Promise<Answer>
}

/** The handshake: `initialize`, and `notifications/initialized` unless it is left out. */
export async function handshake (target: Pick<Target, 'url'>, version = '2025-11-25', { headers = {}, confirm = true }: { headers?: Headers, confirm?: boolean } = {}): Promise<ClientSession> {
  const initialized = await post(target, initialize(version), headers)
  const id = initialized.headers['mcp-session-id']
  if (typeof id !== 'string') throw new Error(`no session: ${initialized.status} ${initialized.text}`)
  const own: Headers = { ...headers, 'mcp-session-id': id, 'mcp-protocol-version': version }
  const session: ClientSession = {
    id,
    headers: own,
    initialized,
    post: (body, more = {}) => post(target, body, { ...own, ...more }),
    get: (more = {}) => openStream(target.url, { method: 'GET', headers: { ...own, ...SSE_ONLY, ...more } }),
    end: (more = {}) => send(target.url, { method: 'DELETE', headers: { ...own, ...more } })
  }
  if (confirm) await session.post(INITIALIZED)
  return session
}

// ---- streams

export interface Stream {
  status: number
  headers: IncomingHttpHeaders
  /** The next message of the stream; rejects when it ends first. */
  next (): Promise<any>
  /** The next comment. */
  comment (): Promise<string>
  /** Resolves to the raw text when the server has ended the stream; rejects when it was cut off. */
  ended: Promise<string>
  /** Everything that has arrived so far. */
  readonly text: string
  /** Leaves without a word. */
  leave (): void
}

/** Things that arrive, in the order in which somebody asks for them. */
class Arrivals<T> {
  readonly #here: T[] = []
  readonly #waiting: { resolve: (value: T) => void, reject: (error: Error) => void }[] = []
  #over: Error | undefined

  add (value: T): void {
    const waiting = this.#waiting.shift()
    if (waiting === undefined) this.#here.push(value)
    else waiting.resolve(value)
  }

  end (error: Error): void {
    this.#over = error
    for (const { reject } of this.#waiting.splice(0)) reject(error)
  }

  next (): Promise<T> {
    if (this.#here.length > 0) return Promise.resolve(this.#here.shift()!)
    if (this.#over !== undefined) return Promise.reject(this.#over)
    return new Promise((resolve, reject) => { this.#waiting.push({ resolve, reject }) })
  }
}

/** Opens a stream and leaves it open. An answer that is no stream is one that has no messages. */
export async function openStream (url: string, options: Send): Promise<Stream> {
  const request = begin(url, options)
  const incoming = await response(request)
  const messages = new Arrivals<any>()
  const comments = new Arrivals<string>()
  let text = ''
  const parser = createParser({
    onEvent: ({ data }) => messages.add(JSON.parse(data)),
    onComment: (comment) => comments.add(comment)
  })
  incoming.setEncoding('utf8')
  incoming.on('data', (chunk: string) => {
    text += chunk
    parser.feed(chunk)
  })
  const ended = new Promise<string>((resolve, reject) => {
    incoming.once('end', () => resolve(text))
    incoming.once('error', reject)
    incoming.once('close', () => {
      messages.end(new Error(`the stream is over: ${text}`))
      comments.end(new Error(`the stream is over: ${text}`))
      reject(new Error('the stream was cut off'))
    })
  })
  ended.catch(() => {})
  return {
    status: incoming.statusCode!,
    headers: incoming.headers,
    next: () => messages.next(),
    comment: () => comments.next(),
    ended,
    get text () { return text },
    leave: () => request.destroy()
  }
}

/** POST whose answer is read while it comes. */
export function postStream ({ url }: Pick<Target, 'url'>, body: unknown, headers: Record<string, string | undefined> = {}): Promise<Stream> {
  return openStream(url, { headers: merged(headers), body })
}

export function listenStream (target: Pick<Target, 'url'>, notifications: Record<string, unknown>, id: string | number = 'L1', headers: Record<string, string> = {}): Promise<Stream> {
  return postStream(target, modern('subscriptions/listen', { notifications }, id), { ...modernHeaders('subscriptions/listen'), ...headers })
}

// ---- raw sockets

/** A socket to the server, closed with the test. */
export async function socketTo (t: Test, { port }: Pick<Target, 'port'>): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1' })
  t.teardown(() => socket.destroy())
  socket.on('error', () => {})
  await new Promise<void>((resolve, reject) => { socket.once('connect', resolve).once('error', reject) })
  return socket
}

/** Writes these bytes and reads until the server closes, or until `until` has come. */
export async function raw (t: Test, target: Pick<Target, 'port'>, bytes: string | Buffer, until?: RegExp): Promise<string> {
  const socket = await socketTo(t, target)
  let text = ''
  const done = new Promise<string>((resolve) => {
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1')
      if (until?.test(text)) {
        socket.destroy()
        resolve(text)
      }
    })
    socket.once('close', () => resolve(text))
  })
  socket.write(bytes)
  return done
}

/** A request as bytes. `Host` and `Content-Length` are right unless they are given; header lines stay as they are. */
export function rawRequest ({ port }: Pick<Target, 'port'>, lines: readonly string[], body: string | Buffer = '', start = 'POST /mcp HTTP/1.1'): Buffer {
  const has = (name: string): boolean => lines.some((line) => line.toLowerCase().startsWith(`${name}:`))
  const head = [start, ...(has('host') ? [] : [`Host: 127.0.0.1:${port}`]), ...lines]
  if (!has('content-length') && !has('transfer-encoding') && body.length > 0) head.push(`Content-Length: ${Buffer.byteLength(body)}`)
  if (!has('connection')) head.push('Connection: close')
  return Buffer.concat([Buffer.from(head.join('\r\n') + '\r\n\r\n', 'latin1'), Buffer.from(body)])
}

export function parseRaw (text: string): { status: number, headers: Record<string, string>, body: string } {
  const [head = '', ...rest] = text.split('\r\n\r\n')
  const [status = '', ...lines] = head.split('\r\n')
  const headers = Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]))
  return { status: Number(status.split(' ')[1]), headers, body: rest.join('\r\n\r\n') }
}

/** The JSON-RPC answer to bytes on a socket. */
export async function rawAnswer (t: Test, target: Pick<Target, 'port'>, bytes: string | Buffer): Promise<Answer> {
  const { status, headers, body } = parseRaw(await raw(t, target, bytes))
  return toAnswer({ statusCode: status, headers, rawHeaders: [] as string[] } as IncomingMessage, Buffer.from(body, 'latin1').toString())
}

/** How many sockets the server has open. */
export function connections ({ app }: Pick<Served, 'app'>): Promise<number> {
  return new Promise((resolve, reject) => app.server.getConnections((error, count) => error === null ? resolve(count) : reject(error)))
}

// ---- checks

export interface Expected { code?: number, message: string, data?: unknown, id?: string | number | null }

/** A refusal in full: its status, JSON with a length, no session, and exactly this body. */
export function refused (t: Test, answer: Answer, status: number, expected: Expected | string, headers: Record<string, string> = {}): void {
  const { code = -32600, message, data, id = null } = typeof expected === 'string' ? { message: expected } : expected
  const body = JSON.stringify({ jsonrpc: '2.0', id, error: { code, message, ...(data !== undefined && { data }) } })
  t.equal(answer.status, status, `${status} ${message}`)
  t.equal(answer.text, body)
  const all = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)), ...headers }
  for (const [name, value] of Object.entries(all)) t.equal(answer.headers[name], value, name)
  t.notOk('mcp-session-id' in answer.headers || 'cache-control' in answer.headers, 'the headers are those of a refusal')
}

/** Resolves once this holds; for what follows an event that no client can see. */
export async function eventually (what: () => boolean | Promise<boolean>, within = 5000): Promise<void> {
  const deadline = Date.now() + within
  while (!await what()) {
    if (Date.now() > deadline) throw new Error(`not within ${within} ms: ${String(what)}`)
    await new Promise((resolve) => { setImmediate(resolve) })
  }
}
