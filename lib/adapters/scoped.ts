// A layer under a prefix: what is mounted in a server that has names of its own. URIs have no prefix.

import { InvalidPrefixError } from '../errors.js'
import type { InputRequired } from '../layer/ask.js'
import type { Completion, CompletionRef } from '../layer/completion.js'
import type { CallPort } from '../layer/context.js'
import { UnknownPrimitiveError } from '../layer/errors.js'
import type { HeaderParam } from '../layer/header-params.js'
import type { ChangeListener, Definition, Layer, ListKind, ServerInfo } from '../layer/contract.js'
import { checkName } from '../layer/tool.js'
import type { Principal } from '../principal.js'

const PREFIX = /^[A-Za-z0-9_.-]{0,64}$/

export function withPrefix (layer: Layer, prefix: string): Layer {
  if (!PREFIX.test(prefix)) throw new InvalidPrefixError(prefix)
  return prefix === '' ? layer : new PrefixedLayer(layer, prefix)
}

class PrefixedLayer implements Layer {
  readonly #layer: Layer
  readonly #prefix: string

  constructor (layer: Layer, prefix: string) {
    this.#layer = layer
    this.#prefix = prefix
  }

  get info (): ServerInfo { return this.#layer.info }
  get instructions (): string | undefined { return this.#layer.instructions }
  get capabilities (): Layer['capabilities'] { return this.#layer.capabilities }

  async list (kind: ListKind, principal: Principal, port?: CallPort): Promise<readonly Definition[]> {
    const own = await this.#layer.list(kind, principal, port)
    if (kind !== 'tools' && kind !== 'prompts') return own
    return own.map((definition) => {
      const name = this.#prefix + definition.name
      checkName(kind === 'tools' ? 'tool' : 'prompt', name)
      return { ...definition, name }
    })
  }

  callTool (name: string, args: Record<string, unknown>, port: CallPort): any {
    return this.#named('tool', name, (own) => this.#layer.callTool(own, args, port))
  }

  getPrompt (name: string, args: Record<string, unknown>, port: CallPort): any {
    return this.#named('prompt', name, (own) => this.#layer.getPrompt(own, args, port))
  }

  readResource (uri: string, port: CallPort): ReturnType<Layer['readResource']> {
    return this.#layer.readResource(uri, port)
  }

  async complete (ref: CompletionRef, argument: { name: string, value: string }, known: Record<string, string>, port: CallPort): Promise<Completion> {
    if (ref.type === 'ref/resource') return this.#layer.complete(ref, argument, known, port)
    return this.#layer.complete({ ...ref, name: this.#own(ref.name) ?? '' }, argument, known, port)
  }

  onChange (listener: ChangeListener): () => void {
    return this.#layer.onChange(listener)
  }

  viewOf (principal: Principal): string | undefined {
    return this.#layer.viewOf(principal)
  }

  async headerParams (tool: string, principal: Principal): Promise<readonly HeaderParam[]> {
    const own = this.#own(tool)
    return own === undefined ? [] : await this.#layer.headerParams?.(own, principal) ?? []
  }

  subscribe (uri: string, port: CallPort): void | Promise<void> {
    return this.#layer.subscribe?.(uri, port)
  }

  unsubscribe (uri: string, port: CallPort): void | Promise<void> {
    return this.#layer.unsubscribe?.(uri, port)
  }

  disconnect (connection: string | object): void {
    this.#layer.disconnect?.(connection)
  }

  async start (): Promise<void> {
    await this.#layer.start?.()
  }

  async stop (): Promise<void> {
    await this.#layer.stop?.()
  }

  #own (name: string): string | undefined {
    return name.startsWith(this.#prefix) ? name.slice(this.#prefix.length) : undefined
  }

  /** Errors speak of the name that the caller knows. */
  async #named<T> (kind: 'tool' | 'prompt', name: string, run: (own: string) => T | Promise<T>): Promise<T | InputRequired> {
    const own = this.#own(name)
    if (own === undefined) throw new UnknownPrimitiveError(kind, name)
    try {
      return await run(own)
    } catch (error) {
      if (error instanceof UnknownPrimitiveError && error.kind === kind) throw new UnknownPrimitiveError(kind, name)
      throw error
    }
  }
}
