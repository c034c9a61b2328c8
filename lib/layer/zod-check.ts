// Checking a value with zod 4. On the way in, dates and big integers are what JSON has for them: strings and numbers.

import * as z from 'zod'
import { extraInput, failed, type Checked, type Issue } from './issues.js'
import { inside, isZod, reachable, type ZodTraits } from './zod-schema.js'

type Schema = z.core.$ZodType
type Check = (value: unknown) => Checked | Promise<Checked>

/** A check that gives back what the schema parsed. It returns a promise only when the schema is async. */
export function zodCheck (schema: Schema, traits: ZodTraits): Check {
  const parser = traits.revives ? reviving(schema) : schema
  let async = traits.async
  const settle = (result: z.ZodSafeParseResult<unknown>): Checked =>
    result.success ? { ok: true, value: result.data } : failed(issuesOf(result.error.issues, []))
  return (value) => {
    if (!async) {
      try {
        return settle(z.safeParse(parser, value))
      } catch (err) {
        // by name: it may be the error of another copy of zod
        if (!(err instanceof Error) || err.constructor.name !== '$ZodAsyncError') throw err
        async = true
      }
    }
    return z.safeParseAsync(parser, value).then(settle)
  }
}

function * issuesOf (issues: readonly z.core.$ZodIssue[], prefix: readonly PropertyKey[]): Generator<Issue> {
  for (const issue of issues) {
    const path = [...prefix, ...issue.path]
    if (issue.code === 'unrecognized_keys') {
      for (const key of issue.keys) yield extraInput(dotted([...path, key]))
      continue
    }
    const closest = issue.code === 'invalid_union' ? closestBranch(issue.errors) : undefined
    if (closest !== undefined) yield * issuesOf(closest, path)
    else yield { loc: dotted(path), msg: issue.message, type: issue.code }
  }
}

// 'Invalid input' helps nobody. Of the branches that the value is of the right type for, the one with the fewest faults
// is most likely what was meant.
function closestBranch (branches: readonly (readonly z.core.$ZodIssue[])[]): readonly z.core.$ZodIssue[] | undefined {
  const near = branches.filter((issues) => issues.length > 0 && issues.every(({ path }) => path.length > 0))
  return near.sort((a, b) => a.length - b.length)[0]
}

function dotted (path: readonly PropertyKey[]): string {
  return path.map(String).join('.')
}

// --- dates and big integers ------------------------------------------------------------------------------------------

/**
 * The same schema, taking a date-time string where it has a date and an integer where it has a bigint. Rebuilt instead of
 * preparing the value: which branch of a union a string belongs to is for zod to say.
 */
function reviving (root: Schema): Schema {
  const rebuilt = new Map<Schema, Schema>()
  const needed = new Map<Schema, boolean>()
  const needs = (schema: Schema): boolean => {
    let answer = needed.get(schema)
    if (answer === undefined) {
      answer = [...reachable(schema)].some(({ _zod: { def } }) => def.type === 'date' || def.type === 'bigint')
      needed.set(schema, answer)
    }
    return answer
  }
  const rebuild = (schema: Schema): Schema => {
    if (!needs(schema)) return schema
    let copy = rebuilt.get(schema)
    if (copy === undefined) {
      copy = make(schema)
      rebuilt.set(schema, copy)
    }
    return copy
  }
  const make = (schema: Schema): Schema => {
    const def = schema._zod.def as any
    const change = (parts: object): Schema => {
      // by descriptor: reading a default's getter here would make it the same for every call
      const changed = Object.defineProperties({}, { ...Object.getOwnPropertyDescriptors(def), ...Object.getOwnPropertyDescriptors(parts) })
      return z.core.clone(schema as any, changed as any)
    }
    switch (def.type) {
      case 'date': return z.preprocess(reviveDate, schema)
      case 'bigint': return z.preprocess(reviveBigint, schema)
      case 'object': {
        const shape = {}
        // getters, as zod itself wants them in a schema that contains itself
        for (const key of Object.keys(def.shape)) {
          Object.defineProperty(shape, key, { enumerable: true, configurable: true, get: () => rebuild(def.shape[key]) })
        }
        return change({ shape, ...(def.catchall && { catchall: rebuild(def.catchall) }) })
      }
      case 'array': return change({ element: rebuild(def.element) })
      case 'union': return change({ options: def.options.map(rebuild) })
      case 'intersection': return change({ left: rebuild(def.left), right: rebuild(def.right) })
      case 'tuple': return change({ items: def.items.map(rebuild), ...(def.rest && { rest: rebuild(def.rest) }) })
      case 'record': return change({ valueType: rebuild(def.valueType) })
      // zod keeps what the getter gave on the definition itself
      case 'lazy': return change({ getter: () => rebuild(inside(schema)), _cachedInner: undefined })
      // what comes out of a preprocess step is still the caller's; what comes out of anything else is the application's
      case 'pipe': return change(def.in._zod.def.type === 'transform' ? { out: rebuild(def.out) } : { in: rebuild(def.in) })
      default: return isZod(def.innerType) ? change({ innerType: rebuild(def.innerType) }) : schema
    }
  }
  return rebuild(root)
}

// RFC 3339, or a date alone (UTC). Without an offset a time means something else on every machine.
const DATE = /^\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d))?$/

function reviveDate (value: unknown): unknown {
  if (typeof value !== 'string' || !DATE.test(value)) return value
  const day = new Date(value.slice(0, 10))
  // JavaScript takes February 30 for March 1
  if (Number.isNaN(day.getTime()) || day.toISOString().slice(0, 10) !== value.slice(0, 10)) return value
  const date = new Date(value.toUpperCase().replace(' ', 'T'))
  return Number.isNaN(date.getTime()) ? value : date
}

function reviveBigint (value: unknown): unknown {
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value)
  // digits in a string are how an integer past 2^53 survives JSON
  return typeof value === 'string' && /^-?\d{1,1000}$/.test(value) ? BigInt(value) : value
}

/** The top-level fields that are big integers: their digits must not go through JSON.parse. */
export function bigintFields (root: Schema): ReadonlySet<string> {
  const def = root._zod.def as any
  if (def.type !== 'object') return isZod(def.innerType) ? bigintFields(def.innerType) : new Set()
  const isBigint = (schema: Schema): boolean => {
    const inner = schema._zod.def as any
    return inner.type === 'bigint' || (isZod(inner.innerType) && isBigint(inner.innerType))
  }
  return new Set(Object.keys(def.shape).filter((key) => isBigint(def.shape[key])))
}
