// The contract between what is offered and the engine that serves it. AppLayer (layer.ts) is the layer that applications
// fill; an adapter that hosts a foreign server is another.

import type { Principal } from '../principal.js'
import type { ScopePolicy } from './access.js'
import type { InputRequired } from './ask.js'
import type { Completion, CompletionRef } from './completion.js'
import type { PromptResult, ResourceContents, ToolResult } from './content.js'
import type { CallPort, Context, Logger } from './context.js'
import type { HeaderParam } from './header-params.js'
import type { PromptDefinition, PromptSpec } from './prompt.js'
import type { ResourceDefinition, ResourceSpec, TemplateDefinition, TemplateSpec } from './resource.js'
import type { Icon, ToolDefinition, ToolSpec } from './tool.js'

export type ListKind = 'tools' | 'resources' | 'templates' | 'prompts'
/** What scopes are looked up for: a tool or prompt by name, a resource by URI, a template (of a completion) by its text. */
export type ScopedKind = 'tool' | 'resource' | 'template' | 'prompt'
export type Definition = ToolDefinition | ResourceDefinition | TemplateDefinition | PromptDefinition

export interface ServerInfo { name: string, version: string, title?: string, description?: string, websiteUrl?: string, icons?: Icon[] }

/** A list has changed (`uri` absent), or the content of one resource. */
export interface ChangeEvent { kind: 'tools' | 'resources' | 'prompts' | 'resource', uri?: string }
export type ChangeListener = (event: ChangeEvent) => void

type Awaitable<T> = T | Promise<T>

/** What the engine drives. An adapter that hosts a foreign server implements the same. */
export interface Layer {
  readonly info: ServerInfo
  readonly instructions?: string | undefined
  /** Which families are offered. @default all */
  readonly capabilities?: { tools?: boolean, resources?: boolean, prompts?: boolean, completions?: boolean } | undefined
  /** @param port of the request that wants the list, where it is a client's */
  list (kind: ListKind, principal: Principal, port?: CallPort): Awaitable<readonly Definition[]>
  callTool (name: string, args: Record<string, unknown>, port: CallPort): Awaitable<ToolResult | InputRequired>
  readResource (uri: string, port: CallPort): Awaitable<ResourceContents[] | InputRequired | Record<string, unknown>>
  getPrompt (name: string, args: Record<string, unknown>, port: CallPort): Awaitable<PromptResult | InputRequired>
  complete (ref: CompletionRef, argument: { name: string, value: string }, known: Record<string, string>, port: CallPort): Awaitable<Completion>
  onChange (listener: ChangeListener): () => void
  /** Principals with equal keys see the same; `''` when everybody does. Nothing when lists must not be cached. */
  viewOf (principal: Principal): string | undefined
  /** A digest of each list as it is now: equal where processes offer the same. @default unknown */
  offers? (): Record<'tools' | 'resources' | 'prompts', string>
  /** Arguments of a tool that 2026 clients repeat in `Mcp-Param-*` headers. */
  headerParams? (tool: string, principal: Principal): Awaitable<readonly HeaderParam[]>
  /** All scopes that it takes to use something, when the principal lacks one; none for what it may use, or does not see. */
  missingScopes? (kind: ScopedKind, name: string, principal: Principal): readonly string[]
  /** A client wants to know of updates of a resource. For layers that have to do something about it; a refusal is thrown. */
  subscribe? (uri: string, port: CallPort): Awaitable<void>
  unsubscribe? (uri: string, port: CallPort): Awaitable<void>
  /** A connection that calls came on (`CallPort.connection`) has ended. */
  disconnect? (connection: string | object): void
  start? (): Promise<void>
  stop? (): Promise<void>
}

/** One call on its way through the middleware. */
export interface CallInfo {
  kind: 'tool' | 'resource' | 'prompt' | 'completion'
  /** As registered, without the layer's prefix; of a resource its URI. */
  name: string
  /** The template that serves a resource, where one does. */
  template?: string
  spec: ToolSpec | ResourceSpec | TemplateSpec | PromptSpec
  arguments: Record<string, unknown>
  readonly principal: Principal
  /** Of the run that is next; after a timeout, another run has another one. */
  context: Context
  /** `performance.now()` when the call began. */
  readonly started: number
}
export type Middleware = (info: CallInfo, next: () => Promise<any>) => Promise<any>

export interface Handle<S> {
  /** Changes parts of the spec in place; the order in lists stays. */
  update (spec: Partial<S>): void
  remove (): void
}

export interface LayerOptions {
  name: string
  version: string
  title?: string
  description?: string
  websiteUrl?: string
  icons?: Icon[]
  /** Told to the model by clients that do so. @default none */
  instructions?: string
  /** Put before every tool and prompt name. @default none */
  prefix?: string
  /** Longest run of a tool in ms; 0 for no limit. @default 300000 */
  timeout?: number
  /** Characters of text kept of a tool's natural return value. @default 200000 */
  maxOutputChars?: number
  middleware?: readonly Middleware[]
  /** What a caller without the scopes of a primitive gets: the names of the scopes, or the answer for what does not exist. @default 'challenge' */
  scopes?: ScopePolicy
  /** Opens what the layer lives on (a pool, a cache). Run once, by whatever serves the layer first. */
  start?: () => Promise<void> | void
  /** Closes it, once, after the last server of the layer has closed. */
  stop?: () => Promise<void> | void
  log?: Logger
}
