// A layer in one server of an official SDK. Its handlers are wrapped where a request looks for them, so that what the host
// registers, before or after, is found as ever: it comes first, and the layer is there for the rest. What is the layer's goes
// through the protocol engine, which knows nothing of the SDK.

import type { Params, Result } from '../jsonrpc.js'
import { codes, isObject, RpcError } from '../jsonrpc.js'
import { nothing } from '../layer/completion.js'
import type { Logger } from '../layer/context.js'
import type { ChangeEvent, Definition, Layer, ListKind } from '../layer/contract.js'
import type { Principal } from '../principal.js'
import { META } from '../protocol/era.js'
import { isLevel } from '../protocol/log-levels.js'
import type { ProtocolServer } from '../protocol/server.js'
import { isModern } from '../revisions.js'
import { advertise } from './advertise.js'
import type { Catalogue } from './catalogue.js'
import { keyOf } from './catalogue.js'
import type { Handler, HighLevelServer, LowLevelServer } from './detect.js'
import type { Facts } from './facts.js'
import { engineSession, factsOf } from './facts.js'
import type { FanOut, Target } from './fanout.js'
import { below, push, remove } from './overlay.js'

export const FAMILIES = ['tools', 'resources', 'templates', 'prompts', 'completions', 'subscriptions', 'logging'] as const
export type Family = typeof FAMILIES[number]

/** What all servers share that a layer is mounted in under the same options. */
export interface Shared {
  readonly layer: Layer
  readonly protocol: ProtocolServer
  readonly catalogue: Catalogue
  readonly fanOut: FanOut
  readonly include: ReadonlySet<Family>
  readonly log: Logger
  /** The layer has started. */
  readonly ready: Promise<void>
}

/** Names of the host, by list. Servers that are made by one factory have the same. */
export type HostNames = Map<ListKind, Set<string>>

const MAX_SUBSCRIPTIONS = 1024
const lists: Record<ListKind, { method: string, key: string }> = {
  tools: { method: 'tools/list', key: 'tools' },
  resources: { method: 'resources/list', key: 'resources' },
  templates: { method: 'resources/templates/list', key: 'resourceTemplates' },
  prompts: { method: 'prompts/list', key: 'prompts' }
}

type Run = (request: { method: string, params?: Params }, context: any, host: Handler | undefined) => Promise<Result>

export interface MountOptions {
  high?: HighLevelServer | undefined
  names?: HostNames
  /** Of what the host lists, that which stands there for the layer. */
  isStandIn?: (kind: ListKind, key: string) => boolean
  /** What the host is known to have, whatever it listed last. */
  isHosts?: (kind: ListKind, key: string) => boolean
}

export class Mount implements Target {
  readonly server: LowLevelServer
  readonly shared: Shared
  readonly #high: HighLevelServer | undefined
  readonly #names: HostNames
  readonly #isStandIn: (kind: ListKind, key: string) => boolean
  readonly #isHosts: (kind: ListKind, key: string) => boolean
  readonly #runs: ReadonlyMap<string, Run>
  readonly #undo: (() => void)[] = []
  readonly #warned = new Set<string>()
  readonly #subscriptions = new Set<string>()
  #schemas: ReadonlyMap<string, Params> | undefined
  #version: string | undefined
  #level: string | undefined

  constructor (shared: Shared, server: LowLevelServer, { high, names = new Map(), isStandIn = () => false, isHosts = () => false }: MountOptions = {}) {
    this.shared = shared
    this.server = server
    this.#high = high
    this.#names = names
    this.#isStandIn = isStandIn
    this.#isHosts = isHosts
    this.#runs = this.#table()
  }

  install (): void {
    push(this.server, this)
    this.#undo.push(advertise(this.server, this.shared.include, this.shared.layer.capabilities), this.#showSchemas())
    if (this.server.transport !== undefined) this.shared.fanOut.add(this)
  }

  uninstall (): void {
    remove(this.server, this)
    for (const undo of this.#undo.splice(0)) undo()
    this.#subscriptions.clear()
  }

  /** Loads what the host's own check of `Mcp-Param-*` headers has to see at once. */
  async prepare (who: Principal): Promise<void> {
    await this.shared.ready
    const tools = this.shared.include.has('tools') ? await this.shared.catalogue.all('tools', who) : []
    this.#schemas = new Map(tools.flatMap((tool) => 'inputSchema' in tool ? [[tool.name, tool.inputSchema]] : []))
  }

  /** The handler of a method, with the layer in it. */
  wrap (method: string, host: Handler | undefined): Handler | undefined {
    const run = this.#runs.get(method)
    return run === undefined ? host : (request, context) => run(request, context, host)
  }

  wants ({ kind, uri }: ChangeEvent): boolean {
    const { include } = this.shared
    if (kind === 'resource') return include.has('subscriptions') && (this.#subscriptions.has(uri!) || isModern(this.server.getNegotiatedProtocolVersion?.()))
    return include.has(kind) || (kind === 'resources' && include.has('templates'))
  }

  // ---- the methods

  #table (): Map<string, Run> {
    const { include, layer: { capabilities = {} } } = this.shared
    const runs = new Map<string, Run>([['initialize', (...all) => this.#initialize(...all)]])
    const add = (family: Family, offered: boolean | undefined, ...entries: [string, Run][]): void => {
      if (include.has(family) && offered !== false) for (const [method, run] of entries) runs.set(method, run)
    }
    const list = (kind: ListKind): [string, Run] => [lists[kind].method, (...all) => this.#list(kind, ...all)]
    add('tools', capabilities.tools, list('tools'), ['tools/call', (...all) => this.#named('tools', ...all)])
    add('prompts', capabilities.prompts, list('prompts'), ['prompts/get', (...all) => this.#named('prompts', ...all)])
    add('resources', capabilities.resources, list('resources'), ['resources/read', (...all) => this.#read(...all)])
    add('templates', capabilities.resources, list('templates'), ['resources/read', (...all) => this.#read(...all)])
    add('completions', capabilities.completions, ['completion/complete', (...all) => this.#complete(...all)])
    add('subscriptions', capabilities.resources,
      ['resources/subscribe', (...all) => this.#subscribe(true, ...all)],
      ['resources/unsubscribe', (...all) => this.#subscribe(false, ...all)])
    add('logging', true, ['logging/setLevel', (...all) => this.#setLevel(...all)])
    return runs
  }

  /** A new client: 1.x does not keep the version that was agreed on. */
  async #initialize (request: { params?: Params }, context: any, host: Handler | undefined): Promise<Result> {
    const result = await host!(request as never, context)
    this.#version = result.protocolVersion
    this.#level = undefined
    this.#subscriptions.clear()
    this.shared.fanOut.add(this)
    return result
  }

  async #list (kind: ListKind, request: { method: string, params?: Params }, context: any, host: Handler | undefined): Promise<Result> {
    const { key } = lists[kind]
    const theirs = host === undefined ? {} : await orNothing(host(request as never, context))
    const entries: unknown[] = Array.isArray(theirs[key]) ? theirs[key] : []
    const names = this.#note(kind, entries, request.params?.cursor === undefined)
    // Their pages are theirs: the layer's entries come after the last one.
    if (theirs.nextCursor !== undefined) return theirs
    const facts = this.#facts(request, context)
    const { cursor: _, ...params } = facts.params
    const who = await this.#principal(facts)
    const own = await this.#serve(lists[kind].method, { ...facts, params }, who)
    const added = own[key].filter((entry: Definition) => !names.has(keyOf(kind, entry)!) || this.#clash(kind, keyOf(kind, entry)!))
    const shown = entries.filter((entry) => !this.#isStandIn(kind, keyOf(kind, entry) ?? ''))
    // What depends on the caller must not be kept for others, whatever the host says of its own.
    const scope = theirs.cacheScope === 'public' && this.shared.layer.viewOf(who) !== '' ? { cacheScope: 'private' } : {}
    return { ...theirs, ...scope, [key]: [...shown, ...added] }
  }

  async #named (kind: 'tools' | 'prompts', request: { method: string, params?: Params }, context: any, host: Handler | undefined): Promise<Result> {
    const facts = this.#facts(request, context)
    const name: unknown = facts.params.name
    return this.#route(request, context, host, facts, async (who) =>
      typeof name === 'string' && await this.shared.catalogue.has(kind, name, who) && !await this.#hostHas(kind, name, context))
  }

  async #read (request: { method: string, params?: Params }, context: any, host: Handler | undefined): Promise<Result> {
    const facts = this.#facts(request, context)
    const uri: unknown = facts.params.uri
    return this.#route(request, context, host, facts, async (who) => typeof uri === 'string' && this.#ownsResource(uri, who, context))
  }

  async #complete (request: { method: string, params?: Params }, context: any, host: Handler | undefined): Promise<Result> {
    const facts = this.#facts(request, context)
    const ref: Params = facts.params.ref ?? {}
    const kind = ref.type === 'ref/prompt' ? 'prompts' : 'templates'
    const key: unknown = kind === 'prompts' ? ref.name : ref.uri
    const who = await this.#principal(facts)
    const owned = typeof key === 'string' && await this.shared.catalogue.has(kind, key, who) && !await this.#hostHas(kind, key, context)
    if (owned) return this.#serve(request.method, facts, who)
    return host === undefined ? { completion: nothing } : host(request as never, context)
  }

  /** Noted here, and told to the host: either may be the one who knows of updates. */
  async #subscribe (wanted: boolean, request: { method: string, params?: Params }, context: any, host: Handler | undefined): Promise<Result> {
    const facts = this.#facts(request, context)
    const uri: unknown = facts.params.uri
    if (typeof uri !== 'string') throw failed(codes.invalidParams, 'Missing or invalid parameter: uri')
    if (wanted && this.#subscriptions.size >= MAX_SUBSCRIPTIONS) throw failed(codes.invalidParams, `A session may subscribe to ${MAX_SUBSCRIPTIONS} resources at most`)
    const who = await this.#principal(facts)
    const owned = await this.#ownsResource(uri, who, context)
    if (owned && this.shared.layer.subscribe !== undefined) await this.#serve(request.method, facts, who)
    if (wanted) this.#subscriptions.add(uri)
    else this.#subscriptions.delete(uri)
    if (host === undefined) return {}
    try {
      return await host(request as never, context)
    } catch (error) {
      if (owned) return {}
      this.#subscriptions.delete(uri)
      throw error
    }
  }

  async #setLevel (request: { method: string, params?: Params }, context: any, host: Handler | undefined): Promise<Result> {
    const level: unknown = request.params?.level
    if (!isLevel(level)) throw failed(codes.invalidParams, `Invalid log level: ${JSON.stringify(level)}`)
    this.#level = level
    if (host !== undefined) return host(request as never, context)
    this.server._loggingLevels?.set(this.#facts(request, context).sessionId, level)
    return {}
  }

  // ---- whose it is

  async #route (request: { method: string, params?: Params }, context: any, host: Handler | undefined, facts: Facts, owns: (who: Principal) => Promise<boolean>): Promise<Result> {
    const who = await this.#principal(facts)
    // What nobody has is refused by the host, in its own words, or by the engine.
    return host === undefined || await owns(who) ? this.#serve(request.method, facts, who) : host(request as never, context)
  }

  async #ownsResource (uri: string, who: Principal, context: any): Promise<boolean> {
    return await this.shared.catalogue.serves(uri, who) && !await this.#hostHas('resources', uri, context)
  }

  /** The names of a list that the host has shown, without those that stand in for the layer. */
  #note (kind: ListKind, entries: readonly unknown[], fromStart: boolean): Set<string> {
    let names = this.#names.get(kind)
    if (names === undefined || fromStart) this.#names.set(kind, names = new Set())
    for (const entry of entries) {
      const key = keyOf(kind, entry)
      if (key !== undefined && !this.#isStandIn(kind, key)) names.add(key)
    }
    return names
  }

  async #hostHas (kind: ListKind, key: string, context: any): Promise<boolean> {
    const registered = registryOf(this.#high, kind)
    if (registered?.(key) === true || this.#isHosts(kind, key)) return true
    const names = this.#names.get(kind)
    if (names !== undefined) return names.has(key)
    if (registered !== undefined) return false
    const host = below(this.server, this, lists[kind].method)
    return host !== undefined && (await this.#learn(kind, host, context)).has(key)
  }

  async #learn (kind: ListKind, host: Handler, context: any): Promise<Set<string>> {
    const { method, key } = lists[kind]
    let cursor: string | undefined
    do {
      const request = { jsonrpc: '2.0', id: 0, method, params: cursor === undefined ? {} : { cursor } }
      const page = await orNothing(host(request, context))
      this.#note(kind, Array.isArray(page[key]) ? page[key] : [], cursor === undefined)
      cursor = typeof page.nextCursor === 'string' ? page.nextCursor : undefined
    } while (cursor !== undefined)
    return this.#names.get(kind)!
  }

  #clash (kind: ListKind, key: string): false {
    if (!this.#warned.has(`${kind} ${key}`)) {
      this.#warned.add(`${kind} ${key}`)
      this.shared.log.warn(`the host server has '${key}' among its ${kind}: that of the layer is left out`)
    }
    return false
  }

  // ---- the engine

  #facts (request: { params?: Params }, context: any): Facts {
    const facts = factsOf(this.server, request, context, this.#version)
    // A 2026 connection that lives on has no handshake to be noticed by.
    if (isModern(facts.version) && !facts.oneShot) this.shared.fanOut.add(this)
    return facts
  }

  async #principal (facts: Facts): Promise<Principal> {
    await this.shared.ready
    return this.shared.protocol.resolvePrincipal(facts.request)
  }

  async #serve (method: string, facts: Facts, principal: Principal): Promise<Result> {
    const { protocol, log } = this.shared
    const { params, id, request, signal, capabilities } = facts
    const session = engineSession(protocol, facts, { capabilities, logLevel: this.#level ?? protocol.defaultLogLevel })
    const questions = new Map<unknown, AbortController>()
    const sink = (message: Params): void | Promise<void> => {
      if (message.id !== undefined) {
        const asking = new AbortController()
        questions.set(message.id, asking)
        // The engine's own time limit is the one that counts.
        facts.ask({ method: message.method, params: message.params }, { timeout: protocol.askTimeout + 1000, signal: asking.signal }).then(
          (result) => session.settle({ id: message.id, result }),
          (error) => session.settle({ id: message.id, error: { message: error.message } })
        )
      } else if (message.method === 'notifications/cancelled') {
        questions.get(message.params.requestId)?.abort(message.params.reason)
      } else {
        return facts.notify({ method: message.method, params: message.params }).catch((error) => log.debug({ err: error }, 'a notification could not be sent'))
      }
      return undefined
    }
    const reply = await session.handle({ jsonrpc: '2.0', id, method, params }, { sink: sink as (message: object) => void, principal, request, signal })
    // Cancelled: the SDK answers nothing either.
    if (reply === undefined || Array.isArray(reply)) throw signal.reason ?? new Error('The call was cancelled')
    if ('error' in reply) throw failed(reply.error.code, reply.error.message, reply.error.data)
    return withoutIdentity(reply.result)
  }

  /** 2.x checks headers against the schemas of its own registry. */
  #showSchemas (): () => void {
    const high = this.#high
    if (typeof high?.toolInputSchemaJson !== 'function') return () => {}
    const own = high.toolInputSchemaJson
    const shown = (name: string): Params | undefined => own.call(high, name) ?? this.#schemas?.get(name)
    high.toolInputSchemaJson = shown
    return () => { if (high.toolInputSchemaJson === shown) high.toolInputSchemaJson = own }
  }
}

/** An error as both SDKs send it, without words of their own before it. */
function failed (code: number, message: string, data?: unknown): Error {
  return new RpcError(code, message, data)
}

/** The server is the host: it puts its own name to what it sends. */
function withoutIdentity (result: Result): Result {
  if (!isObject(result._meta) || result._meta[META.serverInfo] === undefined) return result
  const { _meta: { [META.serverInfo]: _, ...meta }, ...rest } = result
  return Object.keys(meta).length === 0 ? rest : { ...rest, _meta: meta }
}

/** A host that lists nothing of a kind may not even know the method. */
async function orNothing (listing: Promise<Result>): Promise<Result> {
  try {
    return await listing
  } catch (error) {
    if ((error as { code?: unknown }).code === codes.methodNotFound) return {}
    throw error
  }
}

/** Where `McpServer` keeps what it has; nothing where that cannot be seen. */
function registryOf (high: HighLevelServer | undefined, kind: ListKind): ((key: string) => boolean) | undefined {
  if (high === undefined) return undefined
  const { _registeredTools: tools, _registeredResources: resources, _registeredResourceTemplates: templates, _registeredPrompts: prompts } = high
  const registry: unknown = { tools, resources, templates, prompts }[kind]
  if (!isObject(registry)) return undefined
  if (kind !== 'templates') return (key) => Object.hasOwn(registry, key) && registry[key].enabled !== false
  return (key) => Object.values(registry).some((entry) => String(entry?.resourceTemplate?.uriTemplate) === key)
}
