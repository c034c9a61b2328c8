// A layer inside a server that somebody already runs: of the official SDKs, 1.x and 2.x, or of fastmcp.

import { z } from 'zod'
import { InvalidOptionError } from '../errors.js'
import { isObject } from '../jsonrpc.js'
import type { Logger } from '../layer/context.js'
import { silent } from '../layer/context.js'
import type { Layer } from '../layer/contract.js'
import type { Principal, PrincipalResolver } from '../principal.js'
import { ProtocolServer } from '../protocol/server.js'
import type { RequestStateOptions } from '../protocol/request-state.js'
import { Catalogue } from './catalogue.js'
import type { FastMcp, LowLevelServer } from './detect.js'
import { detectProduct, detectServer } from './detect.js'
import type { EventBus } from './events.js'
import { FanOut } from './fanout.js'
import { FastMcpMount } from './fastmcp.js'
import type { Family, HostNames, Shared } from './mount.js'
import { FAMILIES, Mount } from './mount.js'
import { mountedIn } from './overlay.js'
import { withPrefix } from './scoped.js'

export interface BindOptions {
  /** Put before the layer's tool and prompt names, beside a prefix that the layer has itself. @default none */
  prefix?: string
  /** What of the layer is mounted. @default all: tools, resources, templates, prompts, completions, subscriptions, logging */
  include?: readonly Family[]
  /** The bus that is given to `createMcpHandler` of SDK 2.x: changes of the layer are published there, too. */
  bus?: EventBus
  /** Who calls. @default of an OAuth token its client and scopes, else the local user outside of HTTP, else anonymous */
  principalResolver?: PrincipalResolver
  /** How a 2026 `requestState` is sealed. Several processes need the same keys. @default a random key, 600000 ms */
  requestState?: RequestStateOptions
  /** ms to wait for the client's answer to a question in the handshake era. @default 300000 */
  askTimeout?: number
  /** Put the text of unexpected errors into answers: for development. @default false */
  exposeErrors?: boolean
  log?: Logger
}

export interface Binding {
  /** The layer has started, and what takes time is done. Calls that come before that wait. */
  readonly ready: Promise<void>
  /** Takes the layer out again. */
  uninstall (): void
}

/** A factory whose servers have the layer in them. */
export type BoundFactory<F extends (...args: any[]) => unknown> = ((...args: Parameters<F>) => ReturnType<F> | Promise<Awaited<ReturnType<F>>>) & {
  readonly ready: Promise<void>
  /** Publishes the layer's changes on the bus of a handler that was made from this factory: `publishTo(handler.bus)`. */
  publishTo (bus: EventBus): void
  /** Servers that are made from now on do not have it. */
  uninstall (): void
}

const method = (what: string, ...names: string[]) => z.custom<any>((value) => isObject(value) && names.every((name) => typeof value[name] === 'function'), what)
const schema = z.strictObject({
  prefix: z.string().default(''),
  include: z.array(z.enum(FAMILIES)).default([...FAMILIES]),
  bus: method('a bus with publish() and subscribe()', 'publish').optional(),
  principalResolver: z.custom<PrincipalResolver>((value) => typeof value === 'function', 'a function (RequestInfo => Principal)').optional(),
  requestState: z.custom<RequestStateOptions>(isObject, 'an object').optional(),
  askTimeout: z.number().int().positive().optional(),
  exposeErrors: z.boolean().optional(),
  log: z.custom<Logger>(isObject, 'a logger').optional()
})

interface Users { shared: Shared, key: readonly unknown[], count: number, close: () => void }

// Servers may be made for every request, and bound each time: what they have in common is made once.
const known = new WeakMap<Layer, Users[]>()

function use (layer: Layer, given: BindOptions): Users {
  const checked = schema.safeParse(given)
  if (!checked.success) {
    const { path, message } = checked.error.issues[0]!
    throw new InvalidOptionError(`option ${path.length === 0 ? '' : `\`${path.join('.')}\` `}of a binding: ${message}`)
  }
  // Zod copies what it has as a default: the key has to hold the very same logger every time.
  const { bus, log = silent, ...rest } = checked.data
  const options = { ...rest, log }
  const key = [options.prefix, [...options.include].sort().join(), options.principalResolver, options.requestState, options.askTimeout, options.exposeErrors, options.log]
  const all = known.get(layer) ?? []
  known.set(layer, all)
  let users = all.find((one) => one.key.every((part, at) => part === key[at]))
  if (users === undefined) {
    users = share(layer, options, key, () => { all.splice(all.indexOf(users!), 1) })
    all.push(users)
  }
  users.count++
  if (bus !== undefined) users.shared.fanOut.addBus(bus)
  return users
}

function share (given: Layer, options: Omit<z.output<typeof schema>, 'bus' | 'log'> & { log: Logger }, key: readonly unknown[], forget: () => void): Users {
  const { prefix, include, log } = options
  const layer = withPrefix(given, prefix)
  const protocol = new ProtocolServer(layer, { ...options as object, pageSize: 0, log })
  const catalogue = new Catalogue(layer)
  const fanOut = new FanOut(layer, log)
  fanOut.watch(() => catalogue.clear())
  const ready = Promise.resolve(layer.start?.())
  ready.catch((error) => log.error({ err: error }, 'the layer could not be started'))
  return {
    shared: { layer, protocol, catalogue, fanOut, include: new Set(include), log, ready },
    key,
    count: 0,
    close () {
      if (--this.count > 0) return
      forget()
      fanOut.close()
      ready.then(async () => {
        await protocol.close()
        await layer.stop?.()
      }).catch((error) => log.error({ err: error }, 'the layer could not be stopped'))
    }
  }
}

/**
 * Mounts a layer in a running server: its tools, resources, templates and prompts come after the server's own, and a name that the
 * server has keeps meaning what it meant. May be called before or after the server is connected, and before or after it has got
 * tools of its own.
 *
 * ```ts
 * const server = new McpServer({ name: 'orders', version: '1.0.0' })
 * registerInto(server, layer, { prefix: 'inventory_' })
 * await server.connect(new StdioServerTransport())
 * ```
 * @param server `McpServer` or `Server` of `@modelcontextprotocol/sdk` 1.x or `@modelcontextprotocol/server` 2.x, or a `FastMCP`
 * @throws CLOUDG_MCP_ERR_UNSUPPORTED_SERVER, CLOUDG_MCP_ERR_INVALID_OPTION
 */
export function registerInto (server: object, layer: Layer, options: BindOptions = {}): Binding {
  const found = detectServer(server)
  if (found.kind === 'factory') throw new InvalidOptionError('registerInto() got a function: servers that a function makes are bound with bindFactory()')
  if (found.kind === 'native') {
    if (found.server.layer !== layer) throw new InvalidOptionError('registerInto() got a server of this package that serves another layer')
    return { ready: Promise.resolve(), uninstall () {} }
  }
  const users = use(layer, options)
  const { shared } = users
  try {
    if (found.kind === 'fastmcp') return bindFastMcp(found.server, users)
    const before = mountOf(found.server, shared)
    if (before !== undefined) throw new InvalidOptionError('registerInto(): the layer is mounted in this server already, under the same prefix')
    const mount = new Mount(shared, found.server, { high: found.high })
    mount.install()
    const ready = nobody(shared).then((who) => mount.prepare(who))
    ready.catch(() => {})
    return { ready, uninstall: once(() => { mount.uninstall(); users.close() }) }
  } catch (error) {
    users.close()
    throw error
  }
}

/**
 * Mounts a layer in every server that a factory makes, for what makes servers by itself: `createMcpHandler` and `serveStdio` of
 * SDK 2.x, or your own code with a server for every session.
 *
 * ```ts
 * const handler = createMcpHandler(bindFactory(() => createMyServer(), layer))
 * ```
 */
export function bindFactory<F extends (...args: any[]) => unknown> (factory: F, layer: Layer, options: BindOptions = {}): BoundFactory<F> {
  if (typeof factory !== 'function') throw new InvalidOptionError('bindFactory() needs a function that makes servers')
  const users = use(layer, options)
  const { shared } = users
  const names: HostNames = new Map()
  let installed = true

  const bound = (...args: any[]): unknown => {
    const made = factory(...args)
    if (!installed) return made
    return isPromise(made) ? made.then((product) => mountIn(product, args[0])) : mountIn(made, args[0])
  }
  const mountIn = (product: unknown, context: any): unknown => {
    const found = detectProduct(product)
    if (found.kind === 'fastmcp') throw new InvalidOptionError('bindFactory(): mount a layer in a FastMCP with registerInto()')
    if (mountOf(found.server, shared) !== undefined) return product
    const mount = new Mount(shared, found.server, { high: found.high, names })
    mount.install()
    // The HTTP entry of 2.x compares headers with schemas before it hands a request over.
    return context?.era === 'modern' && found.high !== undefined ? prepared(mount, context, product) : product
  }
  const prepared = async (mount: Mount, { authInfo, requestInfo }: any, product: unknown): Promise<unknown> => {
    const headers = requestInfo?.headers instanceof Headers ? Object.fromEntries(requestInfo.headers) : {}
    await mount.prepare(await shared.protocol.resolvePrincipal({ transport: requestInfo === undefined ? 'stdio' : 'http', headers, ...(authInfo && { accessToken: authInfo }) }))
    return product
  }
  return Object.assign(bound, {
    ready: shared.ready,
    publishTo (bus: EventBus) { shared.fanOut.addBus(bus) },
    uninstall: once(() => {
      installed = false
      users.close()
    })
  }) as BoundFactory<F>
}

function bindFastMcp (server: FastMcp, users: Users): Binding {
  const mount = new FastMcpMount(users.shared, server)
  const ready = mount.install()
  ready.catch((error) => users.shared.log.error({ err: error }, 'the layer could not be mounted in FastMCP'))
  return { ready, uninstall: once(() => { mount.uninstall(); users.close() }) }
}

function mountOf (server: LowLevelServer, shared: Shared): unknown {
  return mountedIn(server).find((mount) => mount instanceof Mount && mount.shared.layer === shared.layer)
}

/** Of a server that is not asked for anybody yet. */
function nobody ({ protocol }: Shared): Promise<Principal> {
  return protocol.resolvePrincipal({ transport: 'http', headers: {} })
}

function isPromise (value: unknown): value is Promise<unknown> {
  return isObject(value) && typeof value.then === 'function'
}

function once (run: () => void): () => void {
  let done = false
  return () => {
    if (done) return
    done = true
    run()
  }
}
