// The HTTP server of `cloudg-mcp serve`. Here is what a plugin cannot set on somebody else's server: the size of headers, how
// long they and a body may take, and how many connections there may be.

import closeWithGrace from 'close-with-grace'
import { fastify } from 'fastify'
import type { RequestListener, Server } from 'node:http'
import { createServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import cloudgMcp from '../../plugin.js'
import { isLoopback } from '../http/checks/guard.js'
import { codes, encode, failure } from '../jsonrpc.js'
import type { Source } from './load.js'
import { loadAudited } from './load.js'
import type { ServeOptions } from './serve.js'

const MAX_HEADER_BYTES = 64 * 1024
const MAX_CONNECTIONS = 512
// ms
const HEADERS_TIMEOUT = 30_000
const REQUEST_TIMEOUT = 120_000
const KEEP_ALIVE_TIMEOUT = 30_000
const CHECK_INTERVAL = 5000
const CLOSE_GRACE = 5000
const EXIT_GRACE = 10_000

/** Resolves when the server listens. It ends the process, on a signal and with the calls in flight answered. */
export async function serveHttp (source: Source, options: ServeOptions): Promise<void> {
  const layer = await loadAudited(source, options.auditLog)
  const { host, port, path, authToken = [], transport } = options
  const server = limitedServer()
  const app = fastify({
    logger: { level: options.logLevel, stream: process.stderr, redact: ['req.headers.authorization'] },
    serverFactory: server.create,
    clientErrorHandler: (error, socket) => refuseConnection(error, socket)
  })
  await app.register(cloudgMcp, {
    layer,
    path,
    sse: transport === 'sse',
    ...(authToken.length > 0 && { auth: { tokens: authToken } }),
    ...(options.allowedHost && { allowedHosts: options.allowedHost }),
    ...(options.allowedOrigin && { allowedOrigins: options.allowedOrigin }),
    ...(options.corsOrigin && { corsOrigins: options.corsOrigin }),
    ...(options.jsonResponse && { responseMode: 'json' as const }),
    stateless: options.stateless ?? false,
    pageSize: options.pageSize,
    maxSessions: options.maxSessions,
    closeGrace: CLOSE_GRACE,
    ...(options.redis !== undefined && { backplane: await redis(options.redis) })
  })
  app.addHook('preClose', async () => server.dropUnused())
  closeWithGrace({ delay: EXIT_GRACE, logger: app.log }, async ({ err }) => {
    if (err !== undefined) app.log.error({ err }, 'closing after an error')
    await app.close()
  })

  await app.listen({ host, port })
  const addresses = app.addresses() as AddressInfo[]
  if (authToken.length === 0 && !addresses.every(({ address }) => isLoopback(address))) {
    process.stderr.write(`cloudg-mcp: warning: anybody who reaches ${host} can use this server: give --auth-token\n`)
  }
  process.stdout.write(banner(options, addresses[0]!, layer.info.name))
}

function banner ({ transport, host, path, authToken }: ServeOptions, { port }: AddressInfo, name: string): string {
  const named = host === '0.0.0.0' || host === '::' ? 'localhost' : host.includes(':') ? `[${host}]` : host
  const endpoint = transport === 'sse' ? '/sse' : path
  const url = `http://${named}:${port}${endpoint}`
  const header = authToken === undefined ? '' : ' --header "Authorization: Bearer <token>"'
  return `cloudg-mcp: serving ${url} - connect with: claude mcp add --transport ${transport} ${name.replace(/[^\w-]/g, '-')} ${url}${header}\n`
}

async function redis (url: string) {
  const { redisBackplane } = await import('../backplane/redis.js')
  return redisBackplane({ url })
}

interface LimitedServer {
  create (handler: RequestListener): Server
  /** Drops connections that have not asked for anything, now and from now on: `close()` of a server waits for them. */
  dropUnused (): void
}

function limitedServer (): LimitedServer {
  const surplus = new WeakSet<Socket>()
  const unused = new Set<Socket>()
  let connections = 0
  let closing = false

  return {
    create (handler) {
      const server = createServer({
        maxHeaderSize: MAX_HEADER_BYTES,
        headersTimeout: HEADERS_TIMEOUT,
        requestTimeout: REQUEST_TIMEOUT,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT,
        connectionsCheckingInterval: CHECK_INTERVAL
      }, (request, response) => {
        unused.delete(request.socket)
        if (!surplus.has(request.socket)) return handler(request, response)
        const text = body('Too many connections')
        response.writeHead(503, { 'content-type': 'application/json', 'content-length': text.length, connection: 'close', 'retry-after': '10' }).end(text)
      })
      // A connection too many is told so when it asks for something. Beyond twice the number it is dropped.
      server.maxConnections = 2 * MAX_CONNECTIONS
      server.on('connection', (socket: Socket) => {
        if (++connections > MAX_CONNECTIONS) surplus.add(socket)
        unused.add(socket)
        socket.once('close', () => {
          connections--
          unused.delete(socket)
        })
        if (closing) socket.destroy()
      })
      return server
    },
    dropUnused () {
      closing = true
      for (const socket of unused) socket.destroy()
    }
  }
}

/** What cannot be read as HTTP. Who is too slow gets no answer. */
function refuseConnection (error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || error.code === 'ERR_HTTP_REQUEST_TIMEOUT' || !socket.writable) {
    socket.destroy()
    return
  }
  const tooLarge = error.code === 'HPE_HEADER_OVERFLOW'
  const text = body(tooLarge ? 'Request headers too large' : 'Malformed request')
  const status = tooLarge ? '431 Request Header Fields Too Large' : '400 Bad Request'
  socket.end(`HTTP/1.1 ${status}\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\nConnection: close\r\n\r\n${text}`)
}

function body (message: string): string {
  return encode(failure(null, { code: codes.invalidRequest, message }))
}
