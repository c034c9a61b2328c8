// The schemas of an application: a zod shape, a zod or Standard Schema object, or JSON Schema as data, made into what is
// advertised and what checks a value. All of it happens once, at registration; what cannot be advertised is refused there,
// by name, so that no tool can ever break the list (SCH-02). Rules for the wire: MCP 2026-07-28, JSON Schema usage.

import { parse as parseJson } from 'secure-json-parse'
import type * as z from 'zod'
import { InvalidSchemaError } from '../errors.js'
import { checkSchema, inputCheck, outputCheck, wireForm } from './ajv-check.js'
import { extraInput, failed, guarded, type Checked, type Issue } from './issues.js'
import { checkRefs, cloneJson, isObject, objectRoot, set, textlessFields, type JsonSchema } from './json-schema.js'
import type { StandardJSONSchemaV1, StandardSchemaV1 } from './standard-schema.js'
import { bigintFields, zodCheck } from './zod-check.js'
import { isZod, isZod3, traitsOf, zodObject, zodToJson } from './zod-schema.js'

export { describeIssues, type Checked, type Issue } from './issues.js'
export type { JsonSchema } from './json-schema.js'
export type { StandardSchemaV1 } from './standard-schema.js'

/** Fields by name: `{ group_by: z.enum(['provider', 'type']) }`. */
export type Shape = Record<string, z.ZodType>
export type SchemaInput = Shape | StandardSchemaV1 | JsonSchema

/** What a handler receives: the parsed value, with defaults, transforms and coercion applied. */
export type InferInput<S> =
  S extends undefined ? Record<string, never>
    : S extends z.core.$ZodType ? z.output<S>
      : S extends StandardSchemaV1 ? StandardSchemaV1.InferOutput<S>
        : S extends Shape ? z.output<z.ZodObject<S, z.core.$strict>>
          : Record<string, any>

/** What a handler may return: the value before parsing, so that defaults may be left out. */
export type InferOutput<S> =
  S extends z.core.$ZodType ? z.input<S>
    : S extends StandardSchemaV1 ? StandardSchemaV1.InferInput<S>
      : S extends Shape ? z.input<z.ZodObject<S, z.core.$strip>>
        : Record<string, any> | readonly any[] | string | number | boolean | null

/** A schema that is ready to be served. */
export interface CompiledSchema {
  /** What the client sees. Frozen. */
  readonly json: JsonSchema
  /**
   * Checks a value, and gives back the one to go on with. A promise only where the schema itself is async.
   * @throws what a function in the application's own schema throws
   */
  check (value: unknown): Checked | Promise<Checked>
}

type Check = CompiledSchema['check']

const NO_ARGUMENTS: JsonSchema = Object.freeze({ type: 'object', properties: Object.freeze({}), additionalProperties: false })

/**
 * Compiles what a tool takes. The root is always an object; a plain shape (and no input at all) refuses unknown keys, a
 * schema object rules that itself. A string for a field that no string can match is read as JSON first: `"5"` is 5.
 *
 * @param what - whose input it is, for messages: `Tool 'count_assets' input`
 * @throws InvalidSchemaError
 */
export function compileInput (input: SchemaInput | undefined, what: string): CompiledSchema {
  if (input === undefined) return { json: NO_ARGUMENTS, check: (value) => noArguments(value === undefined ? {} : value) }
  const source = sourceOf(input, what)

  if (source.kind === 'zod' || source.kind === 'shape') {
    const schema = source.kind === 'zod' ? source.schema : zodObject(source.shape, true)
    const root = objectRoot(zodToJson(schema, 'input', what), what)
    const json = cloneJson({ type: 'object', properties: {}, ...root }, what)
    const big = bigintFields(schema)
    const textless = new Set([...textlessFields(json)].filter((key) => !big.has(key)))
    return { json, check: argumentsCheck(textless, zodCheck(schema, traitsOf(schema))) }
  }
  if (source.kind === 'standard') {
    const json = objectRoot(standardJson(source.schema, 'input', what), what)
    return { json, check: argumentsCheck(textlessFields(json), standardCheck(source.schema)) }
  }
  const json = objectRoot(accept(source.json, what), what)
  return { json, check: argumentsCheck(textlessFields(json), inputCheck(json, what)) }
}

/**
 * Compiles what a tool returns. The root may be of any type. The value that passes is the one to send, and it satisfies the
 * advertised schema (SCH-03). A zod schema that JSON Schema says in full is checked as JSON Schema, which is several times
 * faster and sends the handler's own value, extra keys of an open object included; any other is parsed, and the parsed
 * value is sent.
 *
 * @param what - whose output it is, for messages: `Tool 'count_assets' output`
 * @throws InvalidSchemaError
 */
export function compileOutput (output: SchemaInput, what: string): CompiledSchema {
  const source = sourceOf(output, what)
  if (source.kind === 'zod' || source.kind === 'shape') {
    const schema = source.kind === 'zod' ? source.schema : zodObject(source.shape, false)
    const traits = traitsOf(schema)
    const json = cloneJson(zodToJson(schema, traits.parses ? 'output' : 'input', what), what)
    const satisfies = outputCheck(json, what)
    if (!traits.parses) return { json, check: (value) => guarded(() => satisfies(value)) }
    return { json, check: parsedCheck(zodCheck(schema, traits), traits.revives ? (value) => wired(value, satisfies) : satisfies) }
  }
  if (source.kind === 'standard') {
    const json = standardJson(source.schema, 'output', what)
    return { json, check: parsedCheck(standardCheck(source.schema), outputCheck(json, what)) }
  }
  const json = accept(source.json, what)
  const satisfies = outputCheck(json, what)
  return { json, check: (value) => guarded(() => satisfies(value)) }
}

// --- telling schemas apart -------------------------------------------------------------------------------------------

type Standard = StandardSchemaV1 & { readonly '~standard': Partial<StandardJSONSchemaV1.Props> }
type Source =
  | { kind: 'zod', schema: z.core.$ZodType }
  | { kind: 'shape', shape: Record<string, z.core.$ZodType> }
  | { kind: 'standard', schema: Standard }
  | { kind: 'json', json: JsonSchema }

const USE_ZOD_4 = "is a zod 3 schema, which has no JSON Schema: use zod 4 (import * as z from 'zod' with zod 4 installed), or give JSON Schema"

function sourceOf (given: unknown, what: string): Source {
  if (isZod(given)) return { kind: 'zod', schema: given }
  if (isZod3(given)) throw new InvalidSchemaError(`${what} ${USE_ZOD_4}`)
  if (isStandard(given)) return { kind: 'standard', schema: given }
  if (!isObject(given)) throw new InvalidSchemaError(`${what}: expected a zod shape, a zod or Standard Schema object, or a JSON Schema object`)

  const fields = Object.entries(given)
  // a JSON Schema has no values of these kinds, so one of them makes it a shape, and all the others must follow
  if (fields.length > 0 && !fields.some(([, field]) => isZod(field) || isZod3(field) || isStandard(field))) return { kind: 'json', json: given }
  const shape: Record<string, z.core.$ZodType> = {}
  for (const [key, field] of fields) {
    if (isZod3(field)) throw new InvalidSchemaError(`${what}: field '${key}' ${USE_ZOD_4}`)
    if (!isZod(field)) throw new InvalidSchemaError(`${what}: field '${key}' of a plain shape must be a zod 4 schema`)
    set(shape, key, field)
  }
  return { kind: 'shape', shape }
}

function isStandard (value: unknown): value is Standard {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null || !('~standard' in value)) return false
  return typeof (value as Standard)['~standard']?.validate === 'function'
}

/** JSON Schema from outside, checked as far as that can be done without compiling it. */
function accept (given: JsonSchema, what: string): JsonSchema {
  const json = cloneJson(given, what)
  checkRefs(json, what)
  checkSchema(json, what)
  return json
}

function standardJson (schema: Standard, io: 'input' | 'output', what: string): JsonSchema {
  const { jsonSchema, vendor } = schema['~standard']
  if (typeof jsonSchema?.[io] !== 'function') {
    throw new InvalidSchemaError(`${what}: the schema (of '${vendor}') does not offer JSON Schema through '~standard'.jsonSchema: ` +
      'use a version or an adapter of the library that does, or give JSON Schema')
  }
  let json: Record<string, unknown>
  try {
    json = jsonSchema[io]({ target: 'draft-2020-12' })
  } catch (err) {
    throw new InvalidSchemaError(`${what}: the schema (of '${vendor}') has no JSON Schema: ${(err as Error).message}`)
  }
  // it was asked for by name, and is the default
  const { $schema, ...rest } = accept(json, what)
  return Object.freeze(rest)
}

// --- checking --------------------------------------------------------------------------------------------------------

function noArguments (value: unknown): Checked {
  if (!isObject(value)) return failed([{ loc: '', msg: 'must be object', type: 'type' }])
  const keys = Object.keys(value)
  return keys.length === 0 ? { ok: true, value: {} } : failed(keys.map(extraInput))
}

function argumentsCheck (textless: ReadonlySet<string>, check: Check): Check {
  // arguments that were left out are no arguments
  return (value) => guarded(() => check(readText(value === undefined ? {} : value, textless)))
}

// Models often write "5", "true" or "[1]" for a number, a boolean or a list. The caller's object is left as it was.
function readText (value: unknown, textless: ReadonlySet<string>): unknown {
  if (!isObject(value)) return value
  let copy: Record<string, unknown> | undefined
  for (const key of textless) {
    if (!Object.hasOwn(value, key)) continue
    const text = value[key]
    if (typeof text !== 'string') continue
    let read: unknown
    try {
      read = parseJson(text)
    } catch {
      continue
    }
    if (typeof read === 'string') continue
    copy ??= { ...value }
    set(copy, key, read)
  }
  return copy ?? value
}

/** First the application's own check, then whether what came out of it is what is advertised. */
function parsedCheck (parse: Check, satisfies: (value: unknown) => Checked): Check {
  const finish = (parsed: Checked): Checked => parsed.ok ? satisfies(parsed.value) : parsed
  return (value) => guarded(() => {
    const parsed = parse(value)
    return parsed instanceof Promise ? parsed.then(finish) : finish(parsed)
  })
}

function wired (value: unknown, satisfies: (value: unknown) => Checked): Checked {
  const wire = wireForm(value)
  return wire === undefined ? failed([{ loc: '', msg: 'Value has no JSON form', type: 'json' }]) : satisfies(wire)
}

function standardCheck (schema: Standard): Check {
  const settle = (result: StandardSchemaV1.Result<unknown>, value: unknown): Checked =>
    result.issues === undefined ? { ok: true, value: result.value } : failed(standardIssues(result.issues, value))
  return (value) => {
    const result = schema['~standard'].validate(value)
    return result instanceof Promise ? result.then((settled) => settle(settled, value)) : settle(result, value)
  }
}

function * standardIssues (issues: readonly StandardSchemaV1.Issue[], value: unknown): Generator<Issue> {
  for (const { message, path } of issues) {
    const keys = (path ?? []).map((segment) => typeof segment === 'object' ? segment.key : segment)
    // several libraries write the offending value into their messages
    const msg = quotes(message, valueAt(value, keys)) ? 'Invalid value' : message
    yield { loc: keys.map(String).join('.'), msg, type: 'invalid' }
  }
}

function valueAt (value: unknown, keys: readonly PropertyKey[]): unknown {
  for (const key of keys) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined
    value = (value as Record<PropertyKey, unknown>)[key]
  }
  return value
}

function quotes (message: string, value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).some((item) => typeof item !== 'object' && quotes(message, item))
  return (typeof value === 'string' || typeof value === 'number') && value !== '' && message.includes(String(value))
}
