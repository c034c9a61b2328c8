// Resources and resource templates: specs, what clients see, and how a URI finds the one that serves it.

import { InvalidOptionError } from '../errors.js'
import type { AccessRules } from './access.js'
import type { Completer } from './completion.js'
import type { Annotations } from './content.js'
import type { Context } from './context.js'
import type { Icon } from './tool.js'
import type { TemplateVars } from './uri-template.js'
import { UriTemplate } from './uri-template.js'
import { unsafeReason } from './safe-path.js'

interface CommonSpec extends AccessRules<CommonSpec> {
  /** @default the URI or template */
  name?: string
  title?: string
  description?: string
  /** @default `application/json` */
  mimeType?: string
  annotations?: Annotations
  icons?: Icon[]
  _meta?: Record<string, unknown>
}

export interface ResourceSpec extends CommonSpec {
  /** Bytes, if known. */
  size?: number
}

export interface TemplateSpec<V extends string = string> extends CommonSpec {
  complete?: { [variable in V]?: Completer }
  /** Variables whose values may hold `..`, absolute paths or NUL: for values that never name a file. @default none */
  anyValue?: readonly V[]
}

export type VariablesOf<T extends string> = keyof TemplateVars<T> & string
export type ResourceHandler = (uri: string, ctx: Context) => unknown
export type TemplateHandler<T extends string = string> = (variables: TemplateVars<T>, ctx: Context, uri: string) => unknown

export interface ResourceDefinition {
  uri: string
  name: string
  mimeType: string
  description?: string
  size?: number
  annotations?: Annotations
  title?: string
  icons?: Icon[]
  _meta?: Record<string, unknown>
}
export type TemplateDefinition = Omit<ResourceDefinition, 'uri' | 'size'> & { uriTemplate: string }

export interface Resource { readonly spec: ResourceSpec, readonly definition: ResourceDefinition, readonly handler: ResourceHandler }
export interface Template { readonly spec: TemplateSpec, readonly definition: TemplateDefinition, readonly handler: TemplateHandler<any>, readonly uri: UriTemplate }

const JSON_TYPE = 'application/json'

function common (spec: CommonSpec): Pick<ResourceDefinition, 'description' | 'annotations' | 'title' | 'icons' | '_meta'> {
  const { description, annotations, title, icons, _meta } = spec
  return {
    ...(description !== undefined && { description }),
    ...(annotations && { annotations }),
    ...(title !== undefined && { title }),
    ...(icons && { icons }),
    ...(_meta && { _meta })
  }
}

export function defineResource (uri: string, spec: ResourceSpec, handler: ResourceHandler): Resource {
  if (typeof uri !== 'string' || !URL.canParse(uri)) {
    throw new InvalidOptionError(`resource uri must be an absolute URI, got '${String(uri)}'`)
  }
  const { name = uri, mimeType = JSON_TYPE, size } = spec
  return { spec, handler, definition: { uri, name, mimeType, ...(size !== undefined && { size }), ...common(spec) } }
}

export function defineTemplate (template: string, spec: TemplateSpec, handler: TemplateHandler<any>): Template {
  const uri = new UriTemplate(template)
  for (const variable of [...Object.keys(spec.complete ?? {}), ...spec.anyValue ?? []]) {
    if (!uri.variables.includes(variable)) throw new InvalidOptionError(`template '${template}' has no variable '${variable}'`)
  }
  const { name = template, mimeType = JSON_TYPE } = spec
  return { spec, handler, uri, definition: { uriTemplate: template, name, mimeType, ...common(spec) } }
}

/** What serves a URI: a resource, or a template with its variables. `uri` is the canonical one. */
export type Match = { resource: Resource, uri: string } | { template: Template, variables: Record<string, string>, uri: string }

/** Exact resources first, then templates, the longest first. An unsafe value ends the search. */
export function resolve (uri: string, resources: ReadonlyMap<string, Resource>, templates: readonly Template[]): Match | undefined {
  const exact = resources.get(uri)
  if (exact !== undefined) return { resource: exact, uri }
  for (const template of templates) {
    const variables = template.uri.match(uri)
    if (variables === undefined) continue
    const { anyValue } = template.spec
    for (const name in variables) {
      if (!anyValue?.includes(name) && unsafeReason(variables[name]!) !== undefined) return undefined
    }
    // A percent-encoded spelling of a static URI is that resource, with its rules.
    const canonical = template.uri.fill(variables)
    const same = resources.get(canonical)
    return same === undefined ? { template, variables, uri } : { resource: same, uri: canonical }
  }
  return undefined
}

export function longestFirst (templates: Iterable<Template>): Template[] {
  return [...templates].sort((a, b) => b.definition.uriTemplate.length - a.definition.uriTemplate.length)
}
