// What of a layer a caller may ask for by name: so that a server in which the layer is mounted knows what is the layer's.

import { isObject } from '../jsonrpc.js'
import type { Definition, Layer, ListKind } from '../layer/contract.js'
import { UriTemplate } from '../layer/uri-template.js'
import type { Principal } from '../principal.js'

interface Entries { definitions: ReadonlyMap<string, Definition>, templates: readonly UriTemplate[] }

const MAX_VIEWS = 256
const keys = { tools: 'name', resources: 'uri', templates: 'uriTemplate', prompts: 'name' } as const

/** What an entry of a list is known by. */
export function keyOf (kind: ListKind, entry: unknown): string | undefined {
  const key: unknown = isObject(entry) ? entry[keys[kind]] : undefined
  return typeof key === 'string' ? key : undefined
}

export class Catalogue {
  readonly #layer: Layer
  readonly #views = new Map<string, Promise<Entries>>()

  constructor (layer: Layer) {
    this.#layer = layer
  }

  /** The layer has changed. */
  clear (): void {
    this.#views.clear()
  }

  async has (kind: ListKind, key: string, who: Principal): Promise<boolean> {
    return (await this.#entries(kind, who)).definitions.has(key)
  }

  async all (kind: ListKind, who: Principal): Promise<readonly Definition[]> {
    return [...(await this.#entries(kind, who)).definitions.values()]
  }

  /** A resource by its URI, or one that a template serves. */
  async serves (uri: string, who: Principal): Promise<boolean> {
    if (await this.has('resources', uri, who)) return true
    return (await this.#entries('templates', who)).templates.some((template) => template.match(uri) !== undefined)
  }

  #entries (kind: ListKind, who: Principal): Promise<Entries> {
    const view = this.#layer.viewOf(who)
    if (view === undefined) return this.#load(kind, who)
    const key = `${kind} ${view}`
    let known = this.#views.get(key)
    if (known === undefined) {
      if (this.#views.size >= MAX_VIEWS) this.#views.delete(this.#views.keys().next().value!)
      this.#views.set(key, known = this.#load(kind, who))
      known.catch(() => this.#views.delete(key))
    }
    return known
  }

  async #load (kind: ListKind, who: Principal): Promise<Entries> {
    const listed = await this.#layer.list(kind, who)
    const definitions = new Map(listed.map((definition) => [keyOf(kind, definition)!, definition]))
    return { definitions, templates: kind === 'templates' ? [...definitions.keys()].flatMap(compiled) : [] }
  }
}

/** A hosted server may list templates that are not served here. */
function compiled (template: string): UriTemplate[] {
  try {
    return [new UriTemplate(template)]
  } catch {
    return []
  }
}
