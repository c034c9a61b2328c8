// Tool parameters that clients repeat in a header, `Mcp-Param-<Name>`, so that a proxy can route on them (SEP-2243). One bad
// annotation makes a client drop the whole tool from its list, so all of them are checked at registration.

import { InvalidSchemaError } from '../errors.js'
import { isObject, subschemas, type JsonSchema } from './json-schema.js'

const ANNOTATION = 'x-mcp-header'
// RFC 9110 5.6.2
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/

/** A parameter that also travels in a header. */
export interface HeaderParam {
  /** The header's name in lower case: `mcp-param-region`. */
  header: string
  /** The name as annotated: `Region`. */
  name: string
  /** The keys that lead to the argument: `['filter', 'region']`. */
  path: string[]
  type: 'string' | 'integer' | 'boolean'
}

/**
 * The annotated parameters of an input schema, in its order.
 *
 * @param what - whose schema it is, for messages: `Tool 'count_assets' input`
 * @throws InvalidSchemaError for a name that is no header token or is used twice, a property of another type than string,
 * integer or boolean, and an annotation anywhere but on a property that is reached through `properties` alone
 */
export function headerParams (json: JsonSchema, what: string): readonly HeaderParam[] {
  const found: HeaderParam[] = []
  const headers = new Set<string>()
  // a schema can be shared between places, and each place counts; only going round in a circle must not happen
  const open = new Set<JsonSchema>()

  const visit = (schema: JsonSchema, path: string[], reachable: boolean): void => {
    if (open.has(schema)) return
    open.add(schema)
    if (Object.hasOwn(schema, ANNOTATION)) {
      const place = path.length === 0 ? 'the root' : `'${path.join('.')}'`
      if (!reachable || path.length === 0) {
        throw new InvalidSchemaError(`${what}: ${ANNOTATION} at ${place} must stand on a property that is reached from the root through 'properties' alone`)
      }
      found.push(param(schema, path, place))
    }
    for (const [[keyword, key], sub] of subschemas(schema)) {
      const step = key === undefined ? [keyword] : keyword === 'properties' ? [key] : [keyword, key]
      visit(sub, [...path, ...step], reachable && keyword === 'properties')
    }
    open.delete(schema)
  }

  const param = (schema: JsonSchema, path: string[], place: string): HeaderParam => {
    const name = schema[ANNOTATION]
    if (typeof name !== 'string' || !TOKEN.test(name)) {
      throw new InvalidSchemaError(`${what}: ${ANNOTATION} at ${place} must be a header name: letters, digits and !#$%&'*+-.^_\`|~`)
    }
    const { type } = schema
    if (type !== 'string' && type !== 'integer' && type !== 'boolean') {
      throw new InvalidSchemaError(`${what}: ${ANNOTATION} at ${place} needs a property of the type 'string', 'integer' or 'boolean'`)
    }
    const header = `mcp-param-${name.toLowerCase()}`
    if (headers.has(header)) throw new InvalidSchemaError(`${what}: ${ANNOTATION} '${name}' at ${place} is used twice`)
    headers.add(header)
    return { header, name, path, type }
  }

  if (isObject(json)) visit(json, [], true)
  return found
}
