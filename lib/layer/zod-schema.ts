// zod 4 as a source of JSON Schema. Schemas are told by their structure (`_zod`) and never by instanceof:
// an application may well have a zod of its own next to ours. zod's JSON Schema output is corrected in the places where
// it would be refused (dates, integers), dangle (references to '#') or claim what zod does not mean (regex flags).

import * as z from 'zod'
import { InvalidSchemaError } from '../errors.js'
import { subschemas, type JsonSchema } from './json-schema.js'

type Schema = z.core.$ZodType
type Io = 'input' | 'output'

/** What matters about a schema, all of its parts considered. */
export interface ZodTraits {
  /** It has dates or big integers, which travel as strings and numbers. */
  revives: boolean
  /** What it gives back may differ from what it was given, or it tests what JSON Schema cannot say. */
  parses: boolean
  /** It has an async function in it. Only a hint: one that just returns a promise shows when it is called. */
  async: boolean
}

/** Types with no JSON form, and what to write instead. */
const UNREPRESENTABLE = new Map([
  ['custom', 'use a schema that JSON Schema can express, and .refine() it'],
  ['file', 'use z.string() with base64 data'],
  ['function', 'JSON has no functions'],
  ['map', 'use z.record()'],
  ['nan', 'JSON has no NaN'],
  ['promise', 'use the schema of the value'],
  ['set', 'use z.array()'],
  ['symbol', 'JSON has no symbols'],
  ['transform', 'pipe it into a schema of what it returns: .transform(...).pipe(z.number())'],
  ['undefined', 'use .optional()'],
  ['void', 'use .optional()'],
])
const PARSING_TYPES = new Set(['bigint', 'catch', 'date', 'default', 'pipe', 'prefault', 'success', 'transform'])
/** The checks that JSON Schema says in full. */
const DECLARATIVE_CHECKS = new Set(['greater_than', 'length_equals', 'less_than', 'max_length', 'min_length', 'multiple_of',
  'number_format', 'string_format'])
// Written out in place, a schema that is used twice at every level doubles with each; past this size it is referenced.
const MAX_INLINE = 2000

export function isZod (value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && '_zod' in value
}

/** zod 3 and its relatives: the same look, and nothing that JSON Schema could be made of. */
export function isZod3 (value: unknown): boolean {
  return typeof value === 'object' && value !== null && !('_zod' in value) && '_def' in value &&
    typeof (value as { safeParse?: unknown }).safeParse === 'function'
}

/** An object of these fields; other keys are refused when `strict`. */
export function zodObject (shape: Record<string, Schema>, strict: boolean): Schema {
  return strict ? z.strictObject(shape) : z.object(shape)
}

// --- walking ---------------------------------------------------------------------------------------------------------

function children (schema: Schema): Schema[] {
  const def = schema._zod.def as any
  switch (def.type) {
    case 'object': return [...Object.values<Schema>(def.shape), ...(def.catchall ? [def.catchall] : [])]
    case 'array': return [def.element]
    case 'union': return def.options
    case 'intersection': return [def.left, def.right]
    case 'tuple': return def.rest ? [...def.items, def.rest] : def.items
    case 'record': return [def.keyType, def.valueType]
    case 'pipe': return [def.in, def.out]
    case 'lazy': return [inside(schema)]
    default: return isZod(def.innerType) ? [def.innerType] : []
  }
}

/** What a lazy schema stands for. */
export function inside (lazy: Schema): Schema {
  const internals = lazy._zod as any
  return internals.innerType ?? internals.def.getter()
}

export function traitsOf (root: Schema): ZodTraits {
  const traits: ZodTraits = { revives: false, parses: false, async: false }
  for (const schema of reachable(root)) {
    const def = schema._zod.def as any
    if (def.type === 'date' || def.type === 'bigint') traits.revives = true
    const checks = [def, ...(def.checks ?? []).map((check: any) => check._zod.def)]
    if (PARSING_TYPES.has(def.type) || def.coerce === true) traits.parses = true
    for (const check of checks) {
      if (check.check !== undefined && (!DECLARATIVE_CHECKS.has(check.check) || hasFlags(check.pattern))) traits.parses = true
      if (isAsync(check.fn) || isAsync(check.transform)) traits.async = true
    }
  }
  return traits
}

/** A schema and all that it is made of, each once. */
export function reachable (root: Schema): Set<Schema> {
  const seen = new Set([root])
  for (const schema of seen) for (const child of children(schema)) seen.add(child)
  return seen
}

/** How many parts the JSON Schema has when everything is written out in place; a recursion counts once. */
function inlineSize (root: Schema): number {
  const sizes = new Map<Schema, number>()
  const size = (schema: Schema): number => {
    const known = sizes.get(schema)
    if (known !== undefined) return known
    sizes.set(schema, 1)
    let total = 1
    for (const child of children(schema)) total += size(child)
    sizes.set(schema, total)
    return total
  }
  return size(root)
}

function isAsync (fn: unknown): boolean {
  return typeof fn === 'function' && Object.prototype.toString.call(fn) === '[object AsyncFunction]'
}

// zod gives a pattern's source to JSON Schema and drops its flags
function hasFlags (pattern: unknown): boolean {
  return pattern instanceof RegExp && /[imsv]/.test(pattern.flags)
}

// --- JSON Schema -----------------------------------------------------------------------------------------------------

/** @throws InvalidSchemaError naming the field that JSON Schema cannot express */
export function zodToJson (schema: Schema, io: Io, what: string): JsonSchema {
  const vouched = vouchedFor(schema)
  let json: any
  try {
    json = z.toJSONSchema(schema, {
      io,
      target: 'draft-2020-12',
      // everything that zod would refuse gets to the override, which knows the field
      unrepresentable: 'any',
      reused: inlineSize(schema) > MAX_INLINE ? 'ref' : 'inline',
      metadata: WITHOUT_IDS as any,
      override: ({ zodSchema, jsonSchema, path }) => { correct(zodSchema, jsonSchema, path, vouched, what) },
    })
  } catch (err) {
    if ((err as { code?: unknown }).code === 'CLOUDG_MCP_ERR_INVALID_SCHEMA') throw err
    throw new InvalidSchemaError(`${what}: the zod schema has no JSON Schema: ${(err as Error).message}`)
  }
  return anchorRoot({ ...json })
}

// An id would turn every use of a schema into a reference, which many clients do not follow, and two schemas with one id
// into an error. Without it all but recursion is written out in place (SCH-06).
const WITHOUT_IDS = {
  get (schema: Schema) {
    const meta = z.globalRegistry.get(schema)
    if (meta === undefined || !('id' in meta)) return meta
    const { id, ...rest } = meta
    return rest
  },
  has: (schema: Schema) => z.globalRegistry.has(schema),
}

// A schema that was told its JSON type through .meta() is taken at its word. .meta() makes a copy, and zod converts the
// schema that it was copied from as well.
function vouchedFor (root: Schema): Set<Schema> {
  const vouched = new Set<Schema>()
  for (const schema of reachable(root)) {
    if (z.globalRegistry.get(schema)?.type === undefined) continue
    for (let copy: Schema | undefined = schema; copy !== undefined; copy = copy._zod.parent) vouched.add(copy)
  }
  return vouched
}

function correct (schema: Schema, json: any, path: readonly (string | number)[], vouched: Set<Schema>, what: string): void {
  const def = schema._zod.def as any
  const refuse = (why: string): never => {
    const field = fieldName(path)
    throw new InvalidSchemaError(`${what}: ${field === '' ? 'the schema' : `field '${field}'`} ${why}`)
  }
  const instead = UNREPRESENTABLE.get(def.type)
  if (instead !== undefined && !vouched.has(schema)) refuse(`is of the type '${def.type}', which has no JSON Schema: ${instead}`)
  if (def.type === 'date') {
    json.type = 'string'
    json.format ??= 'date-time'
  } else if (def.type === 'bigint') {
    json.type = 'integer'
  } else if (def.type === 'literal') {
    if (def.values.some((value: unknown) => value === undefined || typeof value === 'bigint')) refuse('is a literal undefined or bigint, which has no JSON Schema')
  } else if (def.type === 'object') {
    if (Object.getOwnPropertySymbols(def.shape).length > 0) refuse('has a symbol for a key, which has no JSON Schema')
  } else if (def.type === 'string') {
    dropFlagged(def, json)
  }
}

function dropFlagged (def: any, json: any): void {
  const flagged = [def, ...(def.checks ?? []).map((check: any) => check._zod.def)].map((check) => check.pattern).filter(hasFlags)
  for (const { source } of flagged) {
    if (json.pattern === source) delete json.pattern
    if (Array.isArray(json.allOf)) json.allOf = json.allOf.filter((sub: any) => sub.pattern !== source)
    if (json.allOf?.length === 0) delete json.allOf
  }
}

/** `['properties', 'filters', 'items', 'properties', 'when']` is the field `filters[].when`. */
function fieldName (path: readonly (string | number)[]): string {
  let name = ''
  for (let i = 0; i < path.length; i++) {
    const token = path[i]
    if (token === 'properties') name += `${name === '' ? '' : '.'}${String(path[++i])}`
    else if (token === 'items' || token === 'prefixItems') name += '[]'
    else if (token === 'additionalProperties') name += `${name === '' ? '' : '.'}*`
  }
  return name
}

// zod writes "$ref": "#" for a schema that contains itself. Inside a list of tools that '#' is somebody else's root.
function anchorRoot (json: any): JsonSchema {
  delete json.$schema
  if (typeof json.$ref === 'string' && json.$ref.startsWith('#/$defs/')) {
    const { $ref, ...rest } = json
    json = { ...json.$defs[$ref.slice('#/$defs/'.length)], ...rest }
  }
  let recursive = false
  const anchor = (schema: any): void => {
    if (schema.$ref === '#') {
      schema.$ref = '#/$defs/root'
      recursive = true
    }
    for (const [, sub] of subschemas(schema)) anchor(sub)
  }
  anchor(json)
  const { $defs, ...body } = json
  if (recursive) return { ...body, $defs: { ...$defs, root: structuredClone(body) } }
  return $defs === undefined ? body : { ...body, $defs }
}
