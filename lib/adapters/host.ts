// A server of an official SDK as a layer: it is served like any other, in every revision, and knows nothing of it.

import { InvalidOptionError, UnsupportedServerError } from '../errors.js'
import type { Params, Result } from '../jsonrpc.js'
import { codes, isObject, RpcError } from '../jsonrpc.js'
import type { InputRequired } from '../layer/ask.js'
import type { Completion, CompletionRef } from '../layer/completion.js'
import type { PromptResult, ToolResult } from '../layer/content.js'
import type { CallPort, Logger } from '../layer/context.js'
import { silent } from '../layer/context.js'
import type { HeaderParam } from '../layer/header-params.js'
import { headerParams } from '../layer/header-params.js'
import type { ChangeEvent, ChangeListener, Definition, Layer, ListKind, ServerInfo } from '../layer/contract.js'
import type { ToolDefinition } from '../layer/tool.js'
import type { Principal } from '../principal.js'
import { identityOf } from '../principal.js'
import { META } from '../protocol/era.js'
import { isLevel } from '../protocol/log-levels.js'
import { LATEST_MODERN } from '../revisions.js'
import type { AuthOf } from './caller.js'
import { authInfoOf, extraOf } from './caller.js'
import { detectServer } from './detect.js'
import type { EventBus } from './events.js'
import { changeOf } from './events.js'
import type { Link } from './link.js'
import type { FactoryContext } from './servers.js'
import { implementationOf, objectsOf, Servers, wishOf, wishOfPrincipal } from './servers.js'

export interface HostOptions {
  /** What handlers get as `authInfo` (of fastmcp: as `session`). @default made from the principal and the bearer token */
  auth?: AuthOf
  /** The bus that is given to `createMcpHandler` of SDK 2.x: changes that are published on it are passed on. */
  bus?: EventBus
  /** ms after its last call that the server of a connection is kept. @default 3600000 */
  idleTimeout?: number
  /** Servers that run at once. Above it the one that was idle for longest stops. @default 1000 */
  maxServers?: number
  /**
   * Make a server for every call that comes without a connection (2026 over HTTP, stateless HTTP), instead of keeping some for
   * callers of the same kind: for factories whose servers keep in memory what one caller must not see of another. @default false
   */
  perRequest?: boolean
  log?: Logger
}

const lists: Record<ListKind, { method: string, key: string }> = {
  tools: { method: 'tools/list', key: 'tools' },
  resources: { method: 'resources/list', key: 'resources' },
  templates: { method: 'resources/templates/list', key: 'resourceTemplates' },
  prompts: { method: 'prompts/list', key: 'prompts' }
}
const MAX_PAGES = 1000

/**
 * Serves an `McpServer` or `Server` of `@modelcontextprotocol/sdk` 1.x or `@modelcontextprotocol/server` 2.x, or a `FastMCP`, unchanged.
 *
 * ```ts
 * await app.register(cloudgMcp, { layer: hostServer(() => createMyServer()) })
 * ```
 * @param server a function that makes servers (it may be the one that `createMcpHandler` gets): every session has one of its own.
 * Or one instance for all clients, which cannot ask them anything: see docs/adapters.md
 * @throws CLOUDG_MCP_ERR_UNSUPPORTED_SERVER
 */
export function hostServer (server: object | ((context: FactoryContext) => unknown), options: HostOptions = {}): HostedLayer {
  return new HostedLayer(server, options)
}

export class HostedLayer implements Layer {
  readonly #servers: Servers
  readonly #authOf: AuthOf
  readonly #listeners = new Set<ChangeListener>()
  readonly #pending = new Map<string, ChangeEvent>()
  readonly #bus: EventBus | undefined
  readonly #headers = new Map<string, Promise<Map<string, readonly HeaderParam[]>>>()
  /** Who wants to know of a resource, of those that share the first server. */
  readonly #subscribers = new Map<string, Set<unknown>>()
  #leaveBus: (() => void) | undefined
  #handshake: Result | undefined
  #users = 0

  constructor (server: unknown, options: HostOptions) {
    const { auth = authInfoOf, bus, idleTimeout = 3_600_000, maxServers = 1000, perRequest = false, log = silent } = options
    const source = detectServer(server)
    if (source.kind === 'native') throw new UnsupportedServerError('Found a ProtocolServer: serve its layer as it is')
    for (const [name, value] of Object.entries({ idleTimeout, maxServers })) {
      if (!Number.isSafeInteger(value) || value <= 0) throw new InvalidOptionError(`hostServer option \`${name}\` must be a positive integer`)
    }
    this.#authOf = auth
    this.#bus = bus
    this.#servers = new Servers(source, { authOf: auth, idleTimeout, maxServers, perRequest, log, onChange: (event) => this.#changed(event), onHandshake: (handshake) => { this.#handshake = handshake } })
  }

  /** Hosted servers that run now. */
  get running (): number { return this.#servers.size }

  // ---- what is offered. Known once the layer has started.

  get info (): ServerInfo {
    const info: unknown = this.#handshake?.serverInfo
    return isObject(info) ? info as ServerInfo : { name: 'hosted', version: '0.0.0' }
  }

  get instructions (): string | undefined {
    return this.#handshake?.instructions
  }

  get capabilities (): Layer['capabilities'] {
    // A factory that asks for whom may offer others more than it offers nobody.
    if (this.#handshake === undefined || this.#servers.selective) return undefined
    const { tools, resources, prompts, completions } = this.#handshake.capabilities ?? {}
    return { tools: isObject(tools), resources: isObject(resources), prompts: isObject(prompts), completions: isObject(completions) }
  }

  async list (kind: ListKind, principal: Principal, port?: CallPort): Promise<readonly Definition[]> {
    const seat = await this.#servers.seat(port === undefined ? wishOfPrincipal(principal) : wishOf(port))
    try {
      const items = await this.#walk(seat.link, kind, port)
      // Tasks of 2025-11-25 are gone in 2026, and so is what tools say of them.
      return kind === 'tools' && port?.era === 'modern' ? items.map(({ execution: _, ...item }: Params) => item as Definition) : items
    } finally {
      seat.leave()
    }
  }

  /** All pages: the engine makes its own. */
  async #walk (link: Link, kind: ListKind, port: CallPort | undefined): Promise<Definition[]> {
    const { method, key } = lists[kind]
    const all: Definition[] = []
    let cursor: unknown
    for (let page = 0; page < MAX_PAGES; page++) {
      let result: Result
      try {
        result = await this.#request(link, method, cursor === undefined ? {} : { cursor }, port)
      } catch (error) {
        if (!(error instanceof RpcError) || error.code !== codes.methodNotFound) throw error
        break
      }
      if (Array.isArray(result[key])) all.push(...result[key])
      cursor = result.nextCursor
      if (typeof cursor !== 'string') break
    }
    return all
  }

  /** It may depend on the caller in ways that only the server knows. */
  viewOf (): undefined {
    return undefined
  }

  async headerParams (tool: string, principal: Principal): Promise<readonly HeaderParam[]> {
    const view = this.#servers.selective ? JSON.stringify([identityOf(principal), ...[...principal.roles].sort()]) : ''
    let known = this.#headers.get(view)
    if (known === undefined) {
      if (this.#headers.size >= 1000) this.#headers.clear()
      this.#headers.set(view, known = this.list('tools', principal).then(headersOf))
      known.catch(() => this.#headers.delete(view))
    }
    return (await known).get(tool) ?? []
  }

  // ---- calls

  callTool (name: string, args: Params, port: CallPort): Promise<ToolResult | InputRequired> {
    return this.#call('tools/call', { name, arguments: args }, port)
  }

  async readResource (uri: string, port: CallPort): Promise<Result> {
    try {
      return await this.#call('resources/read', { uri }, port)
    } catch (error) {
      throw port.era === 'modern' ? notFoundInModern(error, uri) : error
    }
  }

  getPrompt (name: string, args: Params, port: CallPort): Promise<PromptResult | InputRequired> {
    return this.#call('prompts/get', { name, arguments: args }, port)
  }

  async complete (ref: CompletionRef, argument: { name: string, value: string }, known: Record<string, string>, port: CallPort): Promise<Completion> {
    const context = Object.keys(known).length === 0 ? {} : { context: { arguments: known } }
    const { completion } = await this.#call('completion/complete', { ref, argument, ...context }, port)
    return completion
  }

  async #call (method: string, params: Params, port: CallPort): Promise<any> {
    const found = this.#servers.seat(wishOf(port))
    const seat = found instanceof Promise ? await found : found
    try {
      return await this.#request(seat.link, method, params, port)
    } finally {
      seat.leave()
    }
  }

  #request (link: Link, method: string, params: Params, port: CallPort | undefined): Promise<Result> {
    const sent = withMeta(link, params, port)
    return port === undefined ? link.request(method, sent) : link.request(method, sent, port, extraOf(port, this.#authOf))
  }

  // ---- changes

  onChange (listener: ChangeListener): () => void {
    this.#listeners.add(listener)
    return () => { this.#listeners.delete(listener) }
  }

  /** Every server of a session tells of the same change: it is passed on once. */
  #changed (event: ChangeEvent): void {
    if (event.kind === 'tools') this.#headers.clear()
    if (this.#pending.size === 0) setImmediate(() => this.#tell())
    this.#pending.set(`${event.kind} ${event.uri}`, event)
  }

  #tell (): void {
    const events = [...this.#pending.values()]
    this.#pending.clear()
    for (const event of events) for (const listener of this.#listeners) listener(event)
  }

  /** A session's own server has to know; who has none is subscribed at the first one. */
  async subscribe (uri: string, port: CallPort): Promise<void> {
    if (this.#hasOwnServer(port)) return this.#tellOwn('resources/subscribe', uri, port)
    await this.#tellFirst('resources/subscribe', uri, port)
    const subscribers = this.#subscribers.get(uri) ?? new Set()
    this.#subscribers.set(uri, subscribers.add(port.connection ?? port))
  }

  async unsubscribe (uri: string, port: CallPort): Promise<void> {
    if (this.#hasOwnServer(port)) return this.#tellOwn('resources/unsubscribe', uri, port)
    await this.#release(uri, port.connection ?? port, port)
  }

  #hasOwnServer ({ era, connection }: CallPort): boolean {
    return era === 'handshake' && connection !== undefined && !this.#servers.single
  }

  async #tellOwn (method: string, uri: string, port: CallPort): Promise<void> {
    const seat = await this.#servers.seat(wishOf(port))
    try {
      await quietly(this.#request(seat.link, method, { uri }, port))
    } finally {
      seat.leave()
    }
  }

  async #tellFirst (method: string, uri: string, port: CallPort | undefined): Promise<void> {
    const link = await this.#servers.first()
    // The call that wanted it may be over by now: it has no part in this.
    await quietly(link.request(method, { uri }, undefined, port && extraOf(port, this.#authOf)))
  }

  /** The last one to go ends it. */
  async #release (uri: string, who: unknown, port?: CallPort): Promise<void> {
    const subscribers = this.#subscribers.get(uri)
    if (subscribers === undefined || !subscribers.delete(who) || subscribers.size > 0) return
    this.#subscribers.delete(uri)
    await this.#tellFirst('resources/unsubscribe', uri, port)
  }

  disconnect (connection: string | object): void {
    this.#servers.disconnect(connection)
    for (const uri of [...this.#subscribers.keys()]) this.#release(uri, connection).catch(() => {})
  }

  // ---- life

  async start (): Promise<void> {
    this.#users++
    try {
      await this.#servers.first()
    } catch (error) {
      this.#users--
      throw error
    }
    this.#leaveBus ??= this.#bus?.subscribe((event) => this.#changed(changeOf(event)))
  }

  async stop (): Promise<void> {
    if (this.#users === 0 || --this.#users > 0) return
    this.#leaveBus?.()
    this.#leaveBus = undefined
    await this.#servers.close()
  }
}

/** Servers that tell of every update have no subscriptions. */
async function quietly (subscription: Promise<unknown>): Promise<void> {
  try {
    await subscription
  } catch (error) {
    if (!(error instanceof RpcError) || error.code !== codes.methodNotFound) throw error
  }
}

/** What goes along with a call: the client's `_meta`, with the envelope where the server serves 2026 by itself, and without where not. */
function withMeta (link: Link, params: Params, port: CallPort | undefined): Params {
  const given = port?.meta
  if (!link.modern) {
    if (given === undefined) return params
    const { [META.protocolVersion]: _v, [META.clientCapabilities]: _c, [META.clientInfo]: _i, [META.logLevel]: _l, ...rest } = given
    return Object.keys(rest).length === 0 ? params : { ...params, _meta: rest }
  }
  const { [META.clientInfo]: clientInfo, [META.logLevel]: logLevel, ...rest } = given ?? {}
  const implementation = implementationOf(clientInfo)
  const _meta = {
    ...rest,
    [META.protocolVersion]: LATEST_MODERN,
    [META.clientCapabilities]: objectsOf(port?.clientCapabilities ?? {}),
    ...(implementation && { [META.clientInfo]: implementation }),
    ...(isLevel(logLevel) && { [META.logLevel]: logLevel })
  }
  const { inputResponses = {}, requestState } = port ?? {}
  return {
    ...params,
    ...(Object.keys(inputResponses).length > 0 && { inputResponses }),
    ...(requestState !== undefined && { requestState }),
    _meta
  }
}

/** 2026 has one code for it, and says what was not found. */
function notFoundInModern (error: unknown, uri: string): unknown {
  if (!(error instanceof RpcError) || (error.code !== codes.resourceNotFound && error.code !== codes.invalidParams)) return error
  return new RpcError(codes.invalidParams, error.message, error.data ?? { uri })
}

function headersOf (tools: readonly Definition[]): Map<string, readonly HeaderParam[]> {
  return new Map(tools.flatMap((tool) => {
    try {
      const declared = headerParams((tool as ToolDefinition).inputSchema, `tool '${tool.name}'`)
      return declared.length === 0 ? [] : [[tool.name, declared] as const]
    } catch {
      // Clients do not use a tool with a bad annotation.
      return []
    }
  }))
}
