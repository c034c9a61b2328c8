// `cloudg-mcp serve --flavor sdk|fastmcp`: the same layer in a server of the official SDK or of fastmcp, for comparing and for who
// wants theirs. None of them is a dependency: they are taken from the project in which the command runs.

import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { bindFactory, registerInto } from '../adapters/index.js'
import { authInfoOf } from '../adapters/caller.js'
import { TokenAuth } from '../auth/tokens.js'
import { isChallenge } from '../auth/authenticator.js'
import { onLeave } from '../http/request.js'
import { decode } from '../jsonrpc.js'
import type { Layer } from '../layer/contract.js'
import { readLines, TOO_LONG } from '../stdio/lines.js'
import { stderrLogger } from '../stdio/log.js'
import { LineWriter } from '../stdio/output.js'
import type { Descriptors } from './descriptors.js'
import { UsageError } from './errors.js'
import type { Source } from './load.js'
import { loadAudited } from './load.js'
import type { ServeOptions } from './serve.js'

export type Flavor = 'native' | 'sdk' | 'fastmcp'

const MAX_LINE = 64 * 1024 * 1024

/** What another server does in its own way, or not at all. */
const nativeOnly = ['allowedHost', 'allowedOrigin', 'corsOrigin', 'jsonResponse', 'stateless', 'maxSessions', 'redis', 'pageSize']

export function checkFlavor (flavor: Flavor, options: ServeOptions, given: (name: string) => string | undefined): void {
  if (flavor === 'native') return
  for (const name of nativeOnly) {
    const flag = given(name)
    if (flag !== undefined) throw new UsageError(`${flag} is for --flavor native`)
  }
  if (options.transport === 'sse') throw new UsageError('--transport sse is for --flavor native')
}

export async function serveFlavorStdio (flavor: Flavor, { input, output, onOrphaned }: Descriptors, source: Source, options: ServeOptions): Promise<number> {
  const layer = await loadAudited(source, options.auditLog)
  const log = stderrLogger(options.logLevel)
  const writer = new LineWriter(output, () => {})
  const transport: any = {
    async start () {},
    async send (message: object) { await writer.write(message) },
    async close () { transport.onclose?.() }
  }
  let close: () => Promise<unknown>
  let uninstall: () => void
  if (flavor === 'fastmcp') {
    const server = await newFastMcp(layer)
    const binding = registerInto(server, layer, { log })
    await binding.ready
    // It waits for the handshake, and that waits for the lines below.
    const session = server.connect(transport)
    session.catch(() => {})
    close = async () => (await session).close()
    uninstall = binding.uninstall
  } else {
    const { McpServer } = await peer('@modelcontextprotocol/server', flavor)
    const { serveStdio } = await peer('@modelcontextprotocol/server/stdio', flavor)
    const factory = bindFactory(() => new McpServer(layer.info, { instructions: layer.instructions }), layer, { log })
    const server = serveStdio(factory, { transport })
    close = () => server.close()
    uninstall = factory.uninstall
  }
  onOrphaned(() => input.destroy())
  try {
    for await (const line of readLines(input, MAX_LINE)) {
      if (line === TOO_LONG) continue
      try {
        transport.onmessage?.(decode(line))
      } catch (error) {
        transport.onerror?.(error)
      }
    }
  } catch (error) {
    log.debug({ err: error }, 'standard input cannot be read')
  }
  await close()
  await writer.flush()
  uninstall()
  return 0
}

export async function serveFlavorHttp (flavor: Flavor, source: Source, options: ServeOptions): Promise<void> {
  const layer = await loadAudited(source, options.auditLog)
  const { host, port, path, authToken = [] } = options
  const auth = authToken.length > 0 ? new TokenAuth(authToken) : undefined
  const url = flavor === 'fastmcp' ? await startFastMcp(layer, host, port, path, auth) : await startSdk(layer, host, port, path, auth)
  process.stdout.write(`cloudg-mcp: serving ${url} with ${flavor === 'sdk' ? 'the official SDK' : 'fastmcp'}\n`)
}

/** SDK 2.x: its HTTP entry answers web requests, which Fastify can send. */
async function startSdk (layer: Layer, host: string, port: number, path: string, auth: TokenAuth | undefined): Promise<string> {
  const { McpServer, createMcpHandler, hostHeaderValidationResponse, localhostAllowedHostnames } = await peer('@modelcontextprotocol/server', 'sdk')
  const { fastify } = await import('fastify')
  const factory = bindFactory(() => new McpServer(layer.info, { instructions: layer.instructions }), layer)
  const handler = createMcpHandler(factory)
  factory.publishTo(handler.bus)
  const app = fastify({ forceCloseConnections: true })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: 4 * 1024 * 1024 }, async (_request: unknown, body: Buffer) => body)
  app.all(path, async (request, reply) => {
    const { authorization } = request.headers
    const who = auth?.authenticate({ authorization })
    if (isChallenge(who)) return reply.code(who.status).headers({ ...who.headers }).send({ error: who.message })
    const gone = new AbortController()
    onLeave(reply, () => { if (!reply.raw.writableFinished) gone.abort() })
    const headers = Object.entries(request.headers).flatMap(([name, value]) => value === undefined ? [] : [value].flat().map((one): [string, string] => [name, one]))
    const web = new Request(`http://${request.headers.host ?? 'localhost'}${request.url}`, {
      method: request.method, headers, signal: gone.signal, ...(request.body instanceof Buffer && { body: new Uint8Array(request.body) })
    })
    const refused = isLocal(host) ? hostHeaderValidationResponse(web, localhostAllowedHostnames()) : undefined
    return reply.send(refused ?? await handler.fetch(web, who && { authInfo: authInfoOf(who, { transport: 'http', headers: request.headers }) }))
  })
  await app.listen({ host, port })
  return address(host, (app.server.address() as AddressInfo).port, path)
}

async function startFastMcp (layer: Layer, host: string, port: number, path: string, auth: TokenAuth | undefined): Promise<string> {
  const server = await newFastMcp(layer, auth && {
    async authenticate (request: { headers: { authorization?: string } }) {
      const who = auth.authenticate({ authorization: request.headers.authorization })
      if (who === undefined || isChallenge(who)) throw new Response(null, { status: 401, ...(who !== undefined && { headers: who.headers }) })
      return { clientId: who.id, scopes: [...who.roles] }
    }
  })
  const principalResolver = ({ headers }: { headers: Readonly<Record<string, unknown>> }) => {
    const who = auth?.authenticate({ authorization: typeof headers['authorization'] === 'string' ? headers['authorization'] : undefined })
    return isChallenge(who) ? undefined : who
  }
  await registerInto(server, layer, auth === undefined ? {} : { principalResolver }).ready
  await server.start({ transportType: 'httpStream', httpStream: { host, port, endpoint: path } })
  return address(host, port, path)
}

async function newFastMcp (layer: Layer, more: object = {}): Promise<any> {
  const { FastMCP } = await peer('fastmcp', 'fastmcp')
  const { name, version } = layer.info
  const log = (...args: unknown[]): void => { console.error(...args) }
  const logger = { debug () {}, info () {}, log () {}, warn: log, error: log }
  return new FastMCP({ name, version, instructions: layer.instructions, logger, ping: { enabled: false }, ...more })
}

/** A package of the project that the command runs in, or one that is installed beside this. */
async function peer (name: string, flavor: Flavor): Promise<any> {
  for (const from of [join(process.cwd(), 'package.json'), import.meta.url]) {
    let file: string
    try {
      file = createRequire(from).resolve(name)
    } catch {
      continue
    }
    return import(pathToFileURL(file).href)
  }
  throw new UsageError(`--flavor ${flavor} needs a package that is not installed here: npm install ${name.split('/').slice(0, name.startsWith('@') ? 2 : 1).join('/')}`)
}

function isLocal (host: string): boolean {
  return host === '127.0.0.1' || host === '::1' || host === 'localhost'
}

function address (host: string, port: number, path: string): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}${path}`
}
