// A layer in a FastMCP (fastmcp 4). It is mounted in the server of each session, as in any SDK server, when fastmcp says that the
// session is there. Stateless HTTP never says so, and other transports say it late: for those everything is registered as a
// component of fastmcp too, which knows less (no titles, icons or annotations, schemas without additional properties).

import type { Params, Result } from '../jsonrpc.js'
import { codes, isObject } from '../jsonrpc.js'
import { silent } from '../layer/context.js'
import type { Definition, ListKind } from '../layer/contract.js'
import type { PromptDefinition } from '../layer/prompt.js'
import type { ResourceDefinition, TemplateDefinition } from '../layer/resource.js'
import type { ToolDefinition } from '../layer/tool.js'
import { UriTemplate } from '../layer/uri-template.js'
import type { RequestInfo } from '../principal.js'
import { LATEST_HANDSHAKE } from '../revisions.js'
import { keyOf } from './catalogue.js'
import type { FastMcp, FastMcpSession } from './detect.js'
import { engineSession } from './facts.js'
import { Link } from './link.js'
import type { Shared } from './mount.js'
import { Mount } from './mount.js'

const kinds: readonly ListKind[] = ['tools', 'resources', 'templates', 'prompts']
const calls = {
  tools: { add: 'addTool', addAll: 'addTools', remove: 'removeTool', removeAll: 'removeTools', list: 'tools/list', key: 'tools' },
  resources: { add: 'addResource', addAll: 'addResources', remove: 'removeResource', removeAll: 'removeResources', list: 'resources/list', key: 'resources' },
  templates: { add: 'addResourceTemplate', addAll: 'addResourceTemplates', remove: 'removeResourceTemplate', removeAll: 'removeResourceTemplates', list: 'resources/templates/list', key: 'resourceTemplates' },
  prompts: { add: 'addPrompt', addAll: 'addPrompts', remove: 'removePrompt', removeAll: 'removePrompts', list: 'prompts/list', key: 'prompts' }
} as const

interface Component { definition: string, name: string }

export class FastMcpMount {
  readonly #shared: Shared
  readonly #server: FastMcp
  readonly #mounts = new WeakMap<FastMcpSession, Mount>()
  /** What is registered for the layer, by what it is known by. */
  readonly #components = new Map(kinds.map((kind) => [kind, new Map<string, Component>()]))
  /** What ever was: a list that fastmcp has begun to make still shows what was taken out meanwhile. */
  readonly #standIns = new Map(kinds.map((kind) => [kind, new Set<string>()]))
  /** What the host has, by name (that is how fastmcp tells its own apart) and by what a client knows it by. */
  readonly #host = new Map(kinds.map((kind) => [kind, new Set<string>()]))
  /** fastmcp's own methods, past the watch that is kept over them. */
  readonly #originals = new Map<string, (given: any) => void>()
  readonly #undo: (() => void)[] = []
  #syncing: Promise<void> = Promise.resolve()
  #installed = true

  constructor (shared: Shared, server: FastMcp) {
    this.#shared = shared
    this.#server = server
  }

  async install (): Promise<void> {
    const onConnect = ({ session }: { session: FastMcpSession }): void => this.#mountIn(session)
    this.#server.on('connect', onConnect)
    this.#undo.push(() => this.#server.off('connect', onConnect), this.#shared.fanOut.watch(() => { void this.#sync() }))
    for (const session of this.#server.sessions) this.#mountIn(session)
    await this.#learnHost()
    if (!this.#installed) return
    this.#watchHost()
    await this.#sync()
  }

  uninstall (): void {
    this.#installed = false
    for (const undo of this.#undo.splice(0)) undo()
    for (const session of this.#server.sessions) this.#mounts.get(session)?.uninstall()
    for (const [kind, components] of this.#components) {
      for (const { name } of components.values()) this.#server[calls[kind].remove](name)
      components.clear()
    }
  }

  #mountIn (session: FastMcpSession): void {
    if (this.#mounts.has(session)) return
    const mount = new Mount(this.#shared, session.server, {
      isStandIn: (kind, key) => this.#standIns.get(kind)!.has(key),
      isHosts: (kind, key) => this.#host.get(kind)!.has(key)
    })
    this.#mounts.set(session, mount)
    mount.install()
  }

  // ---- what the host has

  /** Asks for the lists on a connection that is refused in the end: nobody ever sees it, and no event tells of it. */
  async #learnHost (): Promise<void> {
    const note = (kind: ListKind, entry: unknown): void => {
      const names = this.#host.get(kind)!
      const key = keyOf(kind, entry)
      if (key !== undefined) names.add(key).add((entry as Definition).name)
    }
    class Probe extends Link {
      override async start (): Promise<void> {
        await super.start()
        for (const kind of kinds) {
          const listed: Result = await this.request(calls[kind].list, {}).catch(() => ({}))
          for (const entry of listed[calls[kind].key] ?? []) note(kind, entry)
        }
        throw new Error('This connection was not meant to last')
      }
    }
    const probe = new Probe({ version: LATEST_HANDSHAKE, capabilities: {}, clientInfo: undefined, exclusive: true, onChange () {}, log: silent })
    await this.#server.connect(probe).catch(() => {})
    await probe.close()
  }

  /** What the host registers from now on is the host's, also where the layer had the name before. */
  #watchHost (): void {
    const server: any = this.#server
    const wrap = (name: string, before: (given: any) => void): void => {
      const original = server[name]
      if (typeof original !== 'function') return
      const own = Object.hasOwn(server, name)
      const wrapped = (...args: any[]): unknown => {
        for (const given of [args[0]].flat()) before(given)
        void this.#sync()
        return original.apply(server, args)
      }
      server[name] = wrapped
      this.#undo.push(() => {
        if (server[name] !== wrapped) return
        if (own) server[name] = original
        else delete server[name]
      })
      this.#originals.set(name, original.bind(server))
    }
    for (const kind of kinds) {
      const names = this.#host.get(kind)!
      const added = (given: any): void => {
        const key = keyOf(kind, given)
        if (key === undefined) return
        names.add(key).add(given.name)
        this.#standIns.get(kind)!.delete(key)
        const mine = this.#components.get(kind)!
        for (const [known, { name }] of mine) if (known === key || name === given.name) mine.delete(known)
      }
      const { add, addAll, remove, removeAll } = calls[kind]
      wrap(add, added)
      wrap(addAll, added)
      for (const method of [remove, removeAll]) wrap(method, (name: string) => names.delete(name))
    }
  }

  // ---- components

  /** Makes the components those that the layer has now for callers that nothing is known of. */
  #sync (): Promise<void> {
    this.#syncing = this.#syncing.then(() => this.#syncNow()).catch((error) => {
      this.#shared.log.error({ err: error }, 'the components of a layer could not be registered')
    })
    return this.#syncing
  }

  async #syncNow (): Promise<void> {
    const { protocol, ready, include, catalogue, layer } = this.#shared
    await ready
    const who = await protocol.resolvePrincipal(requestInfo(undefined))
    for (const kind of kinds) {
      const offered = include.has(kind) && layer.capabilities?.[kind === 'templates' ? 'resources' : kind] !== false
      const listed = offered ? await catalogue.all(kind, who) : []
      if (!this.#installed) return
      this.#syncKind(kind, listed)
    }
  }

  #syncKind (kind: ListKind, listed: readonly Definition[]): void {
    const components = this.#components.get(kind)!
    const host = this.#host.get(kind)!
    const wanted = new Map(listed.map((definition) => [keyOf(kind, definition)!, definition]))
    const { add, remove } = calls[kind]
    for (const [key, { name, definition }] of components) {
      if (JSON.stringify(wanted.get(key)) === definition) continue
      components.delete(key)
      this.#originals.get(remove)!(name)
    }
    for (const [key, definition] of wanted) {
      if (components.has(key) || host.has(key)) continue
      // fastmcp replaces what has the same name, also where that is only a caption.
      const name = host.has(definition.name) ? key : definition.name
      components.set(key, { name, definition: JSON.stringify(definition) })
      this.#standIns.get(kind)!.add(key)
      this.#originals.get(add)!(this.#component(kind, definition, name))
    }
  }

  #component (kind: ListKind, definition: Definition, name: string): object {
    switch (kind) {
      case 'tools': return this.#tool(definition as ToolDefinition)
      case 'resources': return this.#resource(definition as ResourceDefinition, name)
      case 'templates': return this.#template(definition as TemplateDefinition, name)
      case 'prompts': return this.#prompt(definition as PromptDefinition)
    }
  }

  #tool ({ name, description, inputSchema, outputSchema, annotations, _meta }: ToolDefinition): object {
    return {
      name,
      description,
      annotations,
      ...(_meta && { _meta }),
      parameters: standardSchema(inputSchema),
      ...(outputSchema && { outputSchema: standardSchema(outputSchema) }),
      execute: async (args: Params, context: any) => {
        const { content, isError, structuredContent, _meta: meta } = await this.#call('tools/call', { name, arguments: args }, context)
        return { content: content.map(plainBlock), isError, ...(structuredContent !== undefined && { structuredContent }), ...(meta && { _meta: meta }) }
      }
    }
  }

  #resource ({ uri, description, mimeType }: ResourceDefinition, name: string): object {
    return { uri, name, description, mimeType, load: (_auth: unknown, context: unknown) => this.#contents(uri, context) }
  }

  #template ({ uriTemplate, description, mimeType }: TemplateDefinition, name: string): object {
    const template = new UriTemplate(uriTemplate)
    return {
      uriTemplate,
      name,
      description,
      mimeType,
      arguments: template.variables.map((variable) => ({ name: variable, required: true, complete: this.#completer({ type: 'ref/resource', uri: uriTemplate }, variable) })),
      load: (values: Record<string, string>, _auth: unknown, context: unknown) => this.#contents(template.expand(values), context)
    }
  }

  /** Of a hosted server `arguments` may be missing. */
  #prompt ({ name, description, arguments: args = [] }: Omit<PromptDefinition, 'arguments'> & Partial<PromptDefinition>): object {
    return {
      name,
      description,
      arguments: args.map((argument) => ({ ...argument, complete: this.#completer({ type: 'ref/prompt', name }, argument.name) })),
      load: async (values: Params, _auth: unknown, context: unknown) => this.#call('prompts/get', { name, arguments: values }, context)
    }
  }

  async #contents (uri: string, context: unknown): Promise<unknown> {
    return (await this.#call('resources/read', { uri }, context)).contents
  }

  #completer (ref: Params, name: string): (value: string) => Promise<Result> {
    return async (value) => (await this.#call('completion/complete', { ref, argument: { name, value } }, undefined)).completion
  }

  /** A call that came through a component: all that is known of it is what fastmcp hands over. */
  async #call (method: string, params: Params, context: any): Promise<Result> {
    const { protocol, ready } = this.#shared
    await ready
    const request = requestInfo(context)
    const capabilities = context?.elicit === undefined ? {} : { elicitation: {} }
    const session = engineSession(protocol, { version: LATEST_HANDSHAKE, request, sessionId: context?.sessionId }, { capabilities, logLevel: 'debug' })
    const sink = ({ id, method: sent, params: said }: Params): void | Promise<void> => {
      if (sent === 'notifications/progress') return context?.reportProgress?.({ progress: said.progress, ...(said.total !== undefined && { total: said.total }), ...(said.message && { message: said.message }) })
      if (sent === 'notifications/message') context?.log?.[levels[said.level] ?? 'info']?.(typeof said.data === 'string' ? said.data : JSON.stringify(said.data), said.logger && { logger: said.logger })
      if (id === undefined) return undefined
      const answer: Promise<unknown> = sent === 'elicitation/create' ? Promise.resolve(context.elicit(said)) : Promise.reject(new Error(`fastmcp cannot send '${sent}'`))
      answer.then((result) => session.settle({ id, result }), (error) => session.settle({ id, error: { message: error.message } }))
      return undefined
    }
    const principal = await protocol.resolvePrincipal(request)
    const signal: AbortSignal | undefined = context?.signal
    const message = { jsonrpc: '2.0', id: 0, method, params: { ...params, _meta: { progressToken: 0 } } }
    const reply = await session.handle(message, { sink: sink as (message: object) => void, principal, request, signal })
    if (reply === undefined || Array.isArray(reply)) throw new Error('The call was cancelled')
    if ('error' in reply) throw Object.assign(new Error(reply.error.message), { code: reply.error.code ?? codes.internalError, data: reply.error.data })
    return reply.result
  }
}

// fastmcp knows four levels.
const levels: Record<string, string> = {
  debug: 'debug', info: 'info', notice: 'info', warning: 'warn', error: 'error', critical: 'error', alert: 'error', emergency: 'error'
}

/** Over HTTP as far as can be known, so that nobody is taken for the local user by mistake. */
function requestInfo (context: any): RequestInfo {
  const { session, sessionId, client } = context ?? {}
  return {
    transport: 'http',
    headers: {},
    sessionId,
    clientInfo: client?.version,
    raw: context,
    ...(isObject(session) && typeof session.clientId === 'string' && { accessToken: session })
  }
}

/** A schema that fastmcp can list. The engine checks arguments itself. */
function standardSchema (json: Params): object {
  const validate = (value: unknown): { value: unknown } => ({ value })
  return { '~standard': { version: 1, vendor: 'cloudg-mcp', validate, jsonSchema: { input: () => json, output: () => json } } }
}

/** fastmcp refuses blocks with more than the least that they need. */
function plainBlock ({ annotations: _a, _meta: _m, ...block }: Params): Params {
  return block.type === 'resource' ? { ...block, resource: plainBlock(block.resource) } : block
}
