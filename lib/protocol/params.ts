// Reading the params of a method by hand: every refusal is -32602 and names the parameter.

import type { Params } from '../jsonrpc.js'
import { codes, isObject, RpcError } from '../jsonrpc.js'

export function invalidParams (message: string, data?: unknown): RpcError {
  return new RpcError(codes.invalidParams, message, data)
}

export function requiredString (params: Params, name: string): string {
  const value: unknown = Object.hasOwn(params, name) ? params[name] : undefined
  if (typeof value !== 'string' || value === '') throw invalidParams(`Missing or invalid parameter: ${name}`)
  return value
}

export function argumentsOf (params: Params): Record<string, unknown> {
  const { arguments: args } = params
  if (args === undefined || args === null) return {}
  if (!isObject(args)) throw invalidParams('arguments must be an object')
  return args
}

const MOST_QUOTED = 64

/** What a caller sent, as far as a message of ours repeats it: short text and numbers; of the rest, what kind it is. */
export function quoted (value: unknown): string {
  if (typeof value === 'string') return `'${value.length > MOST_QUOTED ? `${value.slice(0, MOST_QUOTED)}…` : value}'`
  return typeof value === 'object' && value !== null ? (Array.isArray(value) ? 'a list' : 'an object') : String(value)
}
