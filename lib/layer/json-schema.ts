// JSON Schema as data: what is accepted from an application, where its subschemas are, whether its references resolve.
// Dialect 2020-12 when none is declared, draft-07 when it is; anything else, and every reference that would have to be
// fetched, is refused at registration (MCP 2026-07-28, JSON Schema usage). Validation is in ajv-check.ts.

import { InvalidSchemaError } from '../errors.js'

export type JsonSchema = { readonly [keyword: string]: unknown }
export type Dialect = '2020-12' | 'draft-07'

const MAX_DEPTH = 128
const MAX_NODES = 100_000

const DIALECTS = new Map<string, Dialect>([
  ['json-schema.org/draft/2020-12/schema', '2020-12'],
  ['json-schema.org/draft-07/schema', 'draft-07'],
])

// Where a keyword holds schemas. Everything else (const, enum, default, examples, unknown keywords) is data.
const ONE = new Set(['additionalItems', 'additionalProperties', 'contains', 'contentSchema', 'else', 'if', 'items', 'not',
  'propertyNames', 'then', 'unevaluatedItems', 'unevaluatedProperties'])
const LIST = new Set(['allOf', 'anyOf', 'items', 'oneOf', 'prefixItems'])
const MAP = new Set(['$defs', 'definitions', 'dependencies', 'dependentSchemas', 'patternProperties', 'properties'])
/** Keywords whose schemas see the same value as the schema that they stand in. */
const IN_PLACE = new Set(['allOf', 'anyOf', 'dependencies', 'dependentSchemas', 'else', 'if', 'not', 'oneOf', 'then'])

export function isObject (value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The schemas that stand directly in a schema, each with the keyword (and the key or index) that leads to it. */
export function * subschemas (schema: JsonSchema): Generator<[path: [keyword: string, key?: string], sub: JsonSchema]> {
  for (const [keyword, value] of Object.entries(schema)) {
    if (Array.isArray(value)) {
      if (LIST.has(keyword)) for (const [i, sub] of value.entries()) if (isObject(sub)) yield [[keyword, String(i)], sub]
    } else if (isObject(value)) {
      if (ONE.has(keyword)) yield [[keyword], value]
      else if (MAP.has(keyword)) for (const [key, sub] of Object.entries(value)) if (isObject(sub)) yield [[keyword, key], sub]
    }
  }
}

/** A frozen copy of JSON data. Own keys alone are read and written, so `__proto__` stays a key like any other. */
export function cloneJson<T> (value: T, what: string): T {
  let nodes = 0
  const clone = (node: unknown, path: string, depth: number): unknown => {
    if (depth > MAX_DEPTH) throw new InvalidSchemaError(`${what}: the schema is nested more than ${MAX_DEPTH} levels deep`)
    if (++nodes > MAX_NODES) throw new InvalidSchemaError(`${what}: the schema has more than ${MAX_NODES} parts`)
    if (node === null || typeof node === 'string' || typeof node === 'boolean' || Number.isFinite(node)) return node
    if (Array.isArray(node)) return Object.freeze(node.map((item, i) => clone(item, `${path}/${i}`, depth + 1)))
    if (!isObject(node) || !isPlain(node)) throw new InvalidSchemaError(`${what}: the schema is not JSON at ${path || 'its root'}`)
    const copy = {}
    for (const [key, item] of Object.entries(node)) {
      if (item === undefined) continue
      set(copy, key, clone(item, `${path}/${key}`, depth + 1))
    }
    return Object.freeze(copy)
  }
  return clone(value, '', 0) as T
}

/** Defines a property without ever running a setter: `target[key] = value` would, for `__proto__`. */
export function set (target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, configurable: true, enumerable: true, writable: true })
}

/** The dialect of a schema. @throws InvalidSchemaError when a dialect is declared that is not supported */
export function dialectOf (schema: JsonSchema, what: string): Dialect {
  const declared = schema.$schema
  if (declared === undefined) return '2020-12'
  const dialect = typeof declared === 'string' ? DIALECTS.get(declared.replace(/^https?:\/\//, '').replace(/#$/, '')) : undefined
  if (dialect === undefined) {
    throw new InvalidSchemaError(`${what}: unsupported JSON Schema dialect in $schema: expected ` +
      "'https://json-schema.org/draft/2020-12/schema' or 'http://json-schema.org/draft-07/schema#'")
  }
  return dialect
}

/** Follows a local reference from the schema that is the base of it. */
export function resolvePointer (base: JsonSchema, ref: string): unknown {
  let node: unknown = base
  let pointer: string
  try {
    pointer = decodeURIComponent(ref.slice(1))
  } catch {
    return undefined
  }
  if (pointer === '') return node
  for (const token of pointer.slice(1).split('/')) {
    const key = token.replaceAll('~1', '/').replaceAll('~0', '~')
    if (typeof node !== 'object' || node === null || !Object.hasOwn(node, key)) return undefined
    node = (node as Record<string, unknown>)[key]
  }
  return node
}

/**
 * Checks that every reference is local and resolves, and that none leads back to itself without a step into the value,
 * which no validator would survive.
 * @throws InvalidSchemaError
 */
export function checkRefs (root: JsonSchema, what: string): void {
  const anchors = new Map<JsonSchema, Map<string, JsonSchema>>()
  const bases = new Map<JsonSchema, JsonSchema>()
  const edges = new Map<JsonSchema, JsonSchema[]>()
  const pending: JsonSchema[] = []

  const visit = (schema: JsonSchema, outer: JsonSchema, dialect: Dialect): void => {
    if (bases.has(schema)) return
    const id = schema.$id
    // an embedded schema with an $id of its own is the base of the references inside it
    const base = typeof id === 'string' && !id.startsWith('#') ? schema : outer
    bases.set(schema, base)
    pending.push(schema)
    if (schema.$schema !== undefined && dialectOf(schema, what) !== dialect) throw new InvalidSchemaError(`${what}: the schema mixes two JSON Schema dialects`)
    if (schema.$async !== undefined) throw new InvalidSchemaError(`${what}: '$async' is not a JSON Schema keyword and is not supported`)
    for (const name of [schema.$anchor, schema.$dynamicAnchor, typeof id === 'string' && id.startsWith('#') ? id.slice(1) : undefined]) {
      if (typeof name !== 'string') continue
      if (!anchors.has(base)) anchors.set(base, new Map())
      anchors.get(base)!.set(name, schema)
    }
    for (const [[keyword], sub] of subschemas(schema)) {
      visit(sub, base, dialect)
      if (IN_PLACE.has(keyword)) addEdge(schema, sub)
    }
  }
  const addEdge = (from: JsonSchema, to: JsonSchema): void => {
    const known = edges.get(from)
    if (known === undefined) edges.set(from, [to])
    else known.push(to)
  }

  const dialect = dialectOf(root, what)
  visit(root, root, dialect)
  // a reference may point at a place that is no keyword's, so the list grows while it is gone through
  for (let i = 0; i < pending.length; i++) {
    const schema = pending[i]!
    const base = bases.get(schema)!
    for (const keyword of ['$ref', '$dynamicRef', '$recursiveRef']) {
      const ref = schema[keyword]
      if (typeof ref !== 'string') continue
      if (!ref.startsWith('#')) {
        throw new InvalidSchemaError(`${what}: ${keyword} '${ref}' points outside the schema; nothing is ever fetched: put the schema under #/$defs`)
      }
      const target = ref === '#' || ref.startsWith('#/') ? resolvePointer(base, ref) : anchors.get(base)?.get(ref.slice(1))
      if (typeof target === 'boolean') continue
      if (!isObject(target)) throw new InvalidSchemaError(`${what}: ${keyword} '${ref}' does not resolve`)
      visit(target, base, dialect)
      addEdge(schema, target)
    }
  }
  refuseLoops(edges, what)
}

function refuseLoops (edges: Map<JsonSchema, JsonSchema[]>, what: string): void {
  const done = new Set<JsonSchema>()
  const open = new Set<JsonSchema>()
  const follow = (schema: JsonSchema): void => {
    if (done.has(schema)) return
    if (open.has(schema)) throw new InvalidSchemaError(`${what}: a $ref leads back to itself`)
    open.add(schema)
    for (const next of edges.get(schema) ?? []) follow(next)
    open.delete(schema)
    done.add(schema)
  }
  for (const schema of edges.keys()) follow(schema)
}

/**
 * Makes sure that only an object can match at the root, and that the root says so: clients refuse a tool whose
 * `inputSchema` has no `type: 'object'`, and the root of a union has none (SCH-01).
 * @throws InvalidSchemaError for a root that is something else
 */
export function objectRoot (json: JsonSchema, what: string): JsonSchema {
  if (json.type === 'object') return json
  if (!describesObject(json, json, new Set())) {
    throw new InvalidSchemaError(`${what}: the root must be an object (type: 'object'), or a union or intersection of objects`)
  }
  return Object.freeze({ type: 'object', ...json })
}

const OBJECT_KEYWORDS = ['additionalProperties', 'patternProperties', 'properties', 'propertyNames', 'required']

function describesObject (schema: unknown, root: JsonSchema, seen: Set<unknown>): boolean {
  if (!isObject(schema) || seen.has(schema)) return false
  seen.add(schema)
  if (schema.type !== undefined) return schema.type === 'object'
  const some = (list: unknown, test: 'some' | 'every'): boolean =>
    Array.isArray(list) && list.length > 0 && list[test]((sub) => describesObject(sub, root, new Set(seen)))
  return some(schema.anyOf, 'every') || some(schema.oneOf, 'every') || some(schema.allOf, 'some') ||
    (typeof schema.$ref === 'string' && describesObject(resolvePointer(root, schema.$ref), root, seen)) ||
    OBJECT_KEYWORDS.some((keyword) => Object.hasOwn(schema, keyword))
}

/** The top-level fields that no string can match: a string given for one of these is text for something else. */
export function textlessFields (root: JsonSchema): ReadonlySet<string> {
  const admitting = new Map<string, boolean>()
  const collect = (schema: unknown, seen: Set<unknown>): void => {
    if (!isObject(schema) || seen.has(schema)) return
    seen.add(schema)
    if (isObject(schema.properties)) {
      for (const [key, field] of Object.entries(schema.properties)) {
        admitting.set(key, (admitting.get(key) ?? false) || admitsString(field, root, new Set()))
      }
    }
    for (const keyword of ['allOf', 'anyOf', 'oneOf']) {
      if (Array.isArray(schema[keyword])) for (const sub of schema[keyword]) collect(sub, seen)
    }
    for (const keyword of ['if', 'then', 'else']) collect(schema[keyword], seen)
    if (typeof schema.$ref === 'string') collect(resolvePointer(root, schema.$ref), seen)
  }
  collect(root, new Set())
  return new Set([...admitting].filter(([, admits]) => !admits).map(([key]) => key))
}

function admitsString (schema: unknown, root: JsonSchema, seen: Set<unknown>): boolean {
  if (!isObject(schema)) return schema !== false
  if (seen.has(schema)) return false
  seen.add(schema)
  const admits = (sub: unknown): boolean => admitsString(sub, root, new Set(seen))
  if (schema.type !== undefined && schema.type !== 'string' && !(Array.isArray(schema.type) && schema.type.includes('string'))) return false
  if (Object.hasOwn(schema, 'const') && typeof schema.const !== 'string') return false
  if (Array.isArray(schema.enum) && !schema.enum.some((value) => typeof value === 'string')) return false
  if (Array.isArray(schema.anyOf) && !schema.anyOf.some(admits)) return false
  if (Array.isArray(schema.oneOf) && !schema.oneOf.some(admits)) return false
  if (Array.isArray(schema.allOf) && !schema.allOf.every(admits)) return false
  if (typeof schema.$ref !== 'string') return true
  // an anchor is not followed: better to leave a string alone than to read it as something else
  return !schema.$ref.startsWith('#/') || admits(resolvePointer(root, schema.$ref))
}

function isPlain (value: object): boolean {
  const proto = Object.getPrototypeOf(value)
  return proto === null || proto === Object.prototype || Object.getPrototypeOf(proto) === null
}
