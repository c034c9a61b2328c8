// Validation by JSON Schema. Each schema has an Ajv of its own: two tools may use the same $id, and what a removed tool
// left behind goes with it. Compiled on first use, since a service registers far more schemas than one process ever checks.

import { Ajv, type ErrorObject, type Options, type ValidateFunction } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import { InvalidSchemaError } from '../errors.js'
import { extraInput, failed, type Checked, type Issue } from './issues.js'
import { dialectOf, set, subschemas, type Dialect, type JsonSchema } from './json-schema.js'

const OPTIONS: Options = {
  allErrors: true,
  strict: false,
  // off by default when strict is; without it NaN is a number, and JSON has none
  strictNumbers: true,
  logger: false,
  // schemas are checked once, by acceptSchema()
  meta: false,
  validateSchema: false,
  code: { regExp: Object.assign(regExp, { code: 'new RegExp' }) },
}

// What every object inherits must not pass for a property that a value has (`required: ['constructor']`). Looking at own
// properties alone makes validation six times slower, so it is done for the schemas that name one of these.
const INHERITED = new RegExp(`"(?:${Object.getOwnPropertyNames(Object.prototype).join('|')})"`)

// Patterns from outside JavaScript often hold escapes that the 'u' flag forbids ("\-"); everywhere else they are fine.
function regExp (pattern: string, flags: string): RegExp {
  try {
    return new RegExp(pattern, flags)
  } catch {
    return new RegExp(pattern)
  }
}

function createAjv (dialect: Dialect, options: Options): Ajv {
  const ajv = dialect === 'draft-07' ? new Ajv(options) : new Ajv2020(options)
  addFormats.default(ajv)
  // draft-04's name of $id: Ajv refuses to compile it, to everyone else it is an unknown keyword
  ajv.removeKeyword('id')
  return ajv
}

const META = { '2020-12': 'https://json-schema.org/draft/2020-12/schema', 'draft-07': 'http://json-schema.org/draft-07/schema' }
const metaValidators = new Map<Dialect, Ajv>()

/** Checks a schema against its own dialect. @throws InvalidSchemaError */
export function checkSchema (json: JsonSchema, what: string): void {
  const dialect = dialectOf(json, what)
  let ajv = metaValidators.get(dialect)
  if (ajv === undefined) {
    ajv = createAjv(dialect, { ...OPTIONS, allErrors: false, meta: true })
    metaValidators.set(dialect, ajv)
  }
  if (ajv.validate(META[dialect], json) !== true) {
    const error = ajv.errors?.[0]
    throw new InvalidSchemaError(`${what}: not a valid JSON Schema (${dialect}) at ${error?.instancePath || 'its root'}: ${error?.message ?? 'invalid'}`)
  }
  checkPatterns(json, what)
}

// Ajv leaves the formats of a dialect's own schema out, so "format": "regex" does not catch these.
function checkPatterns (schema: JsonSchema, what: string): void {
  const patterns = typeof schema.patternProperties === 'object' ? Object.keys(schema.patternProperties ?? {}) : []
  if (typeof schema.pattern === 'string') patterns.push(schema.pattern)
  for (const pattern of patterns) {
    try {
      regExp(pattern, 'u')
    } catch {
      throw new InvalidSchemaError(`${what}: the pattern '${pattern}' is not a regular expression`)
    }
  }
  for (const [, sub] of subschemas(schema)) checkPatterns(sub, what)
}

/** A check of arguments. The value that passes has the schema's defaults in it; the caller's own object is left as it was. */
export function inputCheck (json: JsonSchema, what: string): (value: unknown) => Checked {
  const useDefaults = hasDefaults(json)
  const validator = lazy(json, what, useDefaults)
  return (value) => {
    const args = useDefaults ? copy(value) : value
    const validate = validator()
    return validate(args) ? { ok: true, value: args } : failed(issuesOf(validate.errors))
  }
}

/**
 * A check of a result. The value that passes is the one to send: usually the one that was given, and where only its JSON
 * form matches (a Date for a date-time, an undefined property) that form.
 */
export function outputCheck (json: JsonSchema, what: string): (value: unknown) => Checked {
  const validator = lazy(json, what, false)
  return (value) => {
    const validate = validator()
    if (validate(value)) return { ok: true, value }
    const issues = failed(issuesOf(validate.errors))
    const wire = wireForm(value)
    return wire !== undefined && validate(wire) ? { ok: true, value: wire } : issues
  }
}

/** What a value looks like once it was sent, or undefined when it cannot be. A bigint is a number as long as it is exact. */
export function wireForm (value: unknown): unknown {
  try {
    return JSON.parse(JSON.stringify(value, (_key, item) => {
      if (typeof item !== 'bigint') return item
      const number = Number(item)
      if (!Number.isSafeInteger(number)) throw new TypeError('A bigint is out of range')
      return number
    }))
  } catch {
    return undefined
  }
}

function lazy (json: JsonSchema, what: string, useDefaults: boolean): () => ValidateFunction {
  const text = JSON.stringify(json)
  const compile = (): ValidateFunction => {
    try {
      return createAjv(dialectOf(json, what), { ...OPTIONS, useDefaults, ownProperties: INHERITED.test(text) }).compile(json)
    } catch (err) {
      throw new InvalidSchemaError(`${what}: the schema does not compile: ${(err as Error).message}`)
    }
  }
  // what Ajv makes of several bases in one schema is for Ajv to say, and better at registration than in a call
  let validate = /"\$(?:id|dynamicRef)"/.test(text) ? compile() : undefined
  return () => (validate ??= compile())
}

function hasDefaults (json: JsonSchema): boolean {
  const seen = new Set<JsonSchema>()
  const look = (schema: JsonSchema): boolean => {
    if (seen.has(schema)) return false
    seen.add(schema)
    if (Object.hasOwn(schema, 'default')) return true
    for (const [, sub] of subschemas(schema)) if (look(sub)) return true
    return false
  }
  return look(json)
}

function copy (value: unknown): unknown {
  if (Array.isArray(value)) return value.map(copy)
  if (typeof value !== 'object' || value === null) return value
  const target = {}
  for (const [key, item] of Object.entries(value)) set(target, key, copy(item))
  return target
}

function * issuesOf (errors: readonly ErrorObject[] | null | undefined): Generator<Issue> {
  for (const error of errors ?? []) {
    const path = error.instancePath.split('/').slice(1).map((token) => token.replaceAll('~1', '/').replaceAll('~0', '~'))
    const at = (key: unknown): string => [...path, String(key)].join('.')
    const { keyword, params } = error
    if (keyword === 'required') yield { loc: at(params.missingProperty), msg: 'Field required', type: 'missing' }
    else if (keyword === 'additionalProperties') yield extraInput(at(params.additionalProperty))
    else if (keyword === 'unevaluatedProperties') yield extraInput(at(params.unevaluatedProperty))
    else if (keyword === 'enum') yield { loc: path.join('.'), msg: `must be one of ${JSON.stringify(params.allowedValues).slice(1, -1)}`, type: 'enum' }
    else yield { loc: path.join('.'), msg: error.message ?? 'is invalid', type: keyword }
  }
}
