// What an application offers: tools, resources, templates, prompts, who may see them, and what has changed.
// The engine knows it by its contract alone (contract.ts).

import { createHash } from 'node:crypto'
import { performance } from 'node:perf_hooks'
import type { Principal } from '../principal.js'
import { DuplicateError, InvalidOptionError, InvalidPrefixError } from '../errors.js'
import { isInputRequired } from './ask.js'
import { isHidden, maySee, missingScopes, viewKey } from './access.js'
import type { Guarded, ScopePolicy } from './access.js'
import type { Completion, CompletionRef } from './completion.js'
import { nothing, toCompletion } from './completion.js'
import type { PromptResult, ResourceContents, ToolResult } from './content.js'
import { toResourceContents } from './content.js'
import type { CallPort, Logger } from './context.js'
import { Context, silent } from './context.js'
import type { CallInfo, ChangeEvent, ChangeListener, Definition, Handle, Layer, LayerOptions, ListKind, Middleware, ScopedKind, ServerInfo } from './contract.js'
import { AccessDeniedError, LayerError, UnknownPrimitiveError } from './errors.js'
import type { HeaderParam } from './header-params.js'
import type { Prompt, PromptArguments, PromptHandler, PromptSpec } from './prompt.js'
import { definePrompt, requireArguments, runPrompt } from './prompt.js'
import type { Match, Resource, ResourceHandler, ResourceSpec, Template, TemplateHandler, TemplateSpec, VariablesOf } from './resource.js'
import { defineResource, defineTemplate, longestFirst, resolve } from './resource.js'
import type { SchemaInput } from './schema.js'
import type { Tool, ToolHandler, ToolSpec } from './tool.js'
import { defineTool, runTool } from './tool.js'

const PREFIX = /^[A-Za-z0-9_.-]{0,64}$/
const kinds = ['tools', 'resources', 'templates', 'prompts'] as const

export function createLayer (options: LayerOptions): AppLayer {
  return new AppLayer(options)
}

export class AppLayer implements Layer {
  readonly info: ServerInfo
  readonly instructions: string | undefined
  log: Logger
  readonly #options: LayerOptions
  readonly #prefix: string
  readonly #scopes: ScopePolicy
  readonly #limits: { timeout: number, maxOutputChars: number }
  readonly #middleware: Middleware[]
  readonly #tools = new Map<string, Tool>()
  readonly #resources = new Map<string, Resource>()
  readonly #templates = new Map<string, Template>()
  readonly #prompts = new Map<string, Prompt>()
  readonly #listeners = new Set<ChangeListener>()
  // Derived from the registries, dropped at every change of them.
  #longestFirst: Template[] | undefined
  #hidden: Guarded[] | undefined
  #hasScopes: boolean | undefined
  #servers = 0
  #running: Promise<void> | undefined

  constructor (options: LayerOptions) {
    const { name, version, title, description, websiteUrl, icons, instructions, prefix = '', middleware = [], scopes = 'challenge', log = silent } = options
    if (typeof name !== 'string' || name === '') throw new InvalidOptionError('layer option `name` must be a non-empty string')
    if (typeof version !== 'string' || version === '') throw new InvalidOptionError('layer option `version` must be a non-empty string')
    if (!PREFIX.test(prefix)) throw new InvalidPrefixError(prefix)
    this.#options = options
    if (scopes !== 'challenge' && scopes !== 'hide') throw new InvalidOptionError("layer option `scopes` must be 'challenge' or 'hide'")
    this.#prefix = prefix
    this.#scopes = scopes
    this.#middleware = [...middleware]
    this.#limits = { timeout: options.timeout ?? 300_000, maxOutputChars: options.maxOutputChars ?? 200_000 }
    this.log = log
    this.instructions = instructions || undefined
    this.info = {
      name,
      version,
      ...(title !== undefined && { title }),
      ...(description !== undefined && { description }),
      ...(websiteUrl !== undefined && { websiteUrl }),
      ...(icons && { icons })
    }
  }

  // ---- registration

  tool<const I extends SchemaInput | undefined = undefined, const O extends SchemaInput | undefined = undefined, Q = {}> (
    name: string, spec: ToolSpec<I, O, Q>, handler: ToolHandler<NoInfer<I>, NoInfer<O>, NoInfer<Q>>
  ): Handle<ToolSpec<I, O, Q>> {
    return this.#register('tool', this.#tools, this.#prefix + name, spec, (given) => defineTool(name, this.#prefix + name, given, handler as ToolHandler), 'tools')
  }

  resource (uri: string, spec: ResourceSpec, handler: ResourceHandler): Handle<ResourceSpec> {
    return this.#register('resource', this.#resources, uri, spec, (given) => defineResource(uri, given, handler), 'resources')
  }

  resourceTemplate<const T extends string> (template: T, spec: TemplateSpec<VariablesOf<T>>, handler: TemplateHandler<T>): Handle<TemplateSpec<VariablesOf<T>>> {
    return this.#register('resource template', this.#templates, template, spec, (given) => defineTemplate(template, given as TemplateSpec, handler), 'resources')
  }

  prompt<const A extends PromptArguments> (name: string, spec: PromptSpec<A>, handler: PromptHandler<NoInfer<A>>): Handle<PromptSpec<A>> {
    return this.#register('prompt', this.#prompts, this.#prefix + name, spec, (given) => definePrompt(name, this.#prefix + name, given, handler as PromptHandler), 'prompts')
  }

  /** Adds a middleware; the first added is the outermost. Holds from the next call on. */
  use (middleware: Middleware): this {
    this.#middleware.push(middleware)
    return this
  }

  #register<S, E> (what: string, registry: Map<string, E>, key: string, spec: S, define: (spec: S) => E, list: 'tools' | 'resources' | 'prompts'): Handle<S> {
    if (registry.has(key)) throw new DuplicateError(what, key)
    let current = spec
    let entry = define(spec)
    const put = (): void => {
      registry.set(key, entry)
      this.#changed(list)
    }
    put()
    return {
      update: (part) => {
        if (registry.get(key) !== entry) throw new InvalidOptionError(`${what} '${key}' has been removed`)
        const next = { ...current, ...part }
        entry = define(next)
        current = next
        put()
      },
      remove: () => {
        if (registry.get(key) !== entry) return
        registry.delete(key)
        this.#changed(list)
      }
    }
  }

  #changed (list: 'tools' | 'resources' | 'prompts'): void {
    this.#longestFirst = this.#hidden = this.#hasScopes = undefined
    this.#emit({ kind: list })
  }

  // ---- changes

  /** Says that a list has changed; `resources` with a URI also that this resource's content has. */
  notifyChanged (kind: 'tools' | 'resources' | 'prompts' | 'resource', uri?: string): void {
    if (kind === 'tools' || kind === 'resources' || kind === 'prompts') this.#emit({ kind })
    if (uri !== undefined && (kind === 'resources' || kind === 'resource')) this.#emit({ kind: 'resource', uri })
  }

  /** Says that the content of one resource has changed. */
  notifyUpdated (uri: string): void {
    this.#emit({ kind: 'resource', uri })
  }

  onChange (listener: ChangeListener): () => void {
    this.#listeners.add(listener)
    return () => { this.#listeners.delete(listener) }
  }

  #emit (event: ChangeEvent): void {
    for (const listener of this.#listeners) {
      try {
        listener(event)
      } catch (error) {
        this.log.error({ err: error }, 'a change listener failed')
      }
    }
  }

  // ---- what a caller sees

  list (kind: ListKind, who: Principal): readonly Definition[] {
    const entries: Iterable<Guarded & { definition: Definition }> = this.#registry(kind).values()
    const visible: Definition[] = []
    for (const entry of entries) if (this.#shows(entry, who)) visible.push(entry.definition)
    return visible
  }

  viewOf (who: Principal): string {
    this.#hidden ??= this.#all().filter((entry) => isHidden(entry, this.#scopes))
    return viewKey(who, this.#hidden, this.#scopes)
  }

  offers (): Record<'tools' | 'resources' | 'prompts', string> {
    const digest = (...lists: ListKind[]): string => {
      const offered = lists.map((list) => Array.from(this.#registry(list).values(), ({ definition, spec: { roles, scopes } }) => [definition, roles, scopes]))
      return createHash('sha256').update(JSON.stringify(offered)).digest('base64url').slice(0, 16)
    }
    return { tools: digest('tools'), resources: digest('resources', 'templates'), prompts: digest('prompts') }
  }

  headerParams (name: string, who: Principal): readonly HeaderParam[] {
    const tool = this.#tools.get(name)
    return tool !== undefined && this.#shows(tool, who) ? tool.headers : []
  }

  missingScopes (kind: ScopedKind, name: string, who: Principal): readonly string[] {
    this.#hasScopes ??= this.#all().some(({ spec }) => spec.scopes !== undefined)
    const entry = this.#hasScopes ? this.#find(kind, name, who) : undefined
    return entry === undefined || !this.#shows(entry, who) ? [] : missingScopes(who, entry)
  }

  #find (kind: ScopedKind, name: string, who: Principal): Guarded | undefined {
    switch (kind) {
      case 'tool': return this.#tools.get(name)
      case 'prompt': return this.#prompts.get(name)
      case 'template': return this.#templates.get(name)
      case 'resource': {
        const match = this.#resolve(name, who)
        return match && ('resource' in match ? match.resource : match.template)
      }
    }
  }

  #shows (entry: Guarded, who: Principal): boolean {
    return maySee(who, entry, this.#scopes)
  }

  /** Over HTTP the client was told before anything ran; here come other transports, and calls within calls. */
  #requireScopes (entry: Guarded, who: Principal): void {
    const missing = missingScopes(who, entry)
    if (missing.length > 0) throw new AccessDeniedError(`Required scopes: ${missing.join(' ')}`, { scopes: missing })
  }

  #all (): (Guarded & { definition: Definition })[] {
    return kinds.flatMap((kind) => [...this.#registry(kind).values()])
  }

  #registry (kind: ListKind): ReadonlyMap<string, Guarded & { definition: Definition }> {
    switch (kind) {
      case 'tools': return this.#tools
      case 'resources': return this.#resources
      case 'templates': return this.#templates
      case 'prompts': return this.#prompts
    }
  }

  // ---- the four calls (a handler's `inputRequired()` passes through them as it is)

  callTool (name: string, args: Record<string, unknown>, port: CallPort): Promise<ToolResult> {
    try {
      return this.#callTool(name, args, port)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #callTool (name: string, args: Record<string, unknown>, port: CallPort): Promise<ToolResult> {
    const tool = this.#tools.get(name)
    if (tool === undefined || !this.#shows(tool, port.principal)) throw new UnknownPrimitiveError('tool', name)
    this.#requireScopes(tool, port.principal)
    const info = this.#info('tool', tool.name, tool.spec, args, port)
    return this.#through(info, () => {
      info.context = info.context.forRun()
      return runTool(tool, info.arguments, info.context, info.started, this.#limits)
    })
  }

  async readResource (uri: string, port: CallPort): Promise<ResourceContents[]> {
    return this.#readResource(uri, port)
  }

  async #readResource (uri: string, port: CallPort, outer?: Context): Promise<ResourceContents[]> {
    const match = this.#resolve(uri, port.principal)
    if (match === undefined) throw new UnknownPrimitiveError('resource', uri)
    const entry = 'resource' in match ? match.resource : match.template
    this.#requireScopes(entry, port.principal)
    const { spec, definition } = entry
    const info = this.#info('resource', match.uri, spec, 'variables' in match ? { ...match.variables } : {}, port, outer)
    if ('template' in match) info.template = match.template.definition.uriTemplate
    return this.#through(info, async () => {
      info.context = info.context.forRun()
      const value: unknown = 'resource' in match
        ? await match.resource.handler(match.uri, info.context)
        : await match.template.handler(info.arguments as Record<string, string>, info.context, uri)
      return toResourceContents(value, match.uri, definition.mimeType)
    })
  }

  async getPrompt (name: string, args: Record<string, unknown>, port: CallPort): Promise<PromptResult> {
    const prompt = this.#prompts.get(name)
    if (prompt === undefined || !this.#shows(prompt, port.principal)) throw new UnknownPrimitiveError('prompt', name)
    this.#requireScopes(prompt, port.principal)
    requireArguments(prompt, args)
    const info = this.#info('prompt', prompt.name, prompt.spec, args, port)
    return this.#through(info, () => {
      info.context = info.context.forRun()
      return runPrompt(prompt, info.arguments, info.context)
    })
  }

  /** Unknown, hidden and silent look the same: nothing is offered. What a middleware refuses is refused. */
  async complete (ref: CompletionRef, argument: { name: string, value: string }, known: Record<string, string>, port: CallPort): Promise<Completion> {
    const entry = ref.type === 'ref/prompt' ? this.#prompts.get(ref.name) : this.#templates.get(ref.uri)
    if (entry === undefined || !this.#shows(entry, port.principal)) return nothing
    this.#requireScopes(entry, port.principal)
    const completers: Record<string, any> = 'arguments' in entry
      ? { [argument.name]: entry.arguments.get(argument.name)?.complete }
      : entry.spec.complete ?? {}
    const completer = Object.hasOwn(completers, argument.name) ? completers[argument.name] : undefined
    if (completer === undefined) return nothing
    const name = 'arguments' in entry ? entry.name : entry.definition.uriTemplate
    const info = this.#info('completion', name, entry.spec, { argument: argument.name, value: argument.value, context: known }, port)
    return this.#through(info, async () => {
      try {
        return toCompletion(await completer(argument.value, info.context, known))
      } catch (error) {
        if (!(error instanceof LayerError)) info.context.log.error({ err: error }, `completion of '${argument.name}' failed`)
        return nothing
      }
    })
  }

  #resolve (uri: string, who: Principal): Match | undefined {
    this.#longestFirst ??= longestFirst(this.#templates.values())
    const match = resolve(uri, this.#resources, this.#longestFirst)
    return match !== undefined && this.#shows('resource' in match ? match.resource : match.template, who) ? match : undefined
  }

  #info (kind: CallInfo['kind'], name: string, spec: CallInfo['spec'], args: Record<string, unknown>, port: CallPort, outer?: Context): CallInfo {
    return new Run(kind, name, spec, args, new Context(port, this.#read, outer))
  }

  readonly #read = async (uri: string, port: CallPort, outer: Context): Promise<ResourceContents[]> => {
    const read = await this.#readResource(uri, port, outer)
    if (isInputRequired(read)) throw new LayerError(`the resource ${uri} asks the client: it cannot be read from within a call`)
    return read
  }

  #through (info: CallInfo, run: () => Promise<any>): Promise<any> {
    if (this.#middleware.length === 0) return run()
    const chain = [...this.#middleware]
    const step = (at: number): Promise<any> => at === chain.length ? run() : chain[at]!(info, () => step(at + 1))
    return step(0)
  }

  // ---- life

  /** Runs `options.start` when the first server of this layer starts. */
  async start (): Promise<void> {
    this.#servers++
    this.#running ??= (async () => { await this.#options.start?.() })()
    try {
      await this.#running
    } catch (error) {
      this.#servers--
      this.#running = undefined
      throw error
    }
  }

  /** Runs `options.stop` when the last one has closed. */
  async stop (): Promise<void> {
    if (this.#servers === 0 || --this.#servers > 0) return
    this.#running = undefined
    await this.#options.stop?.()
  }
}

// A class: a literal on this path would be kept for long, and with it all that a request is made of.
class Run implements CallInfo {
  readonly kind: CallInfo['kind']
  readonly name: string
  readonly spec: CallInfo['spec']
  arguments: Record<string, unknown>
  readonly principal: Principal
  context: Context
  template?: string
  readonly started = performance.now()

  constructor (kind: CallInfo['kind'], name: string, spec: CallInfo['spec'], args: Record<string, unknown>, context: Context) {
    this.kind = kind
    this.name = name
    this.spec = spec
    this.arguments = args
    this.principal = context.principal
    this.context = context
  }
}
