// JSON-RPC 2.0 as MCP uses it: message shapes, ids, the one table of codes, and how a reply becomes text.
// Contract: https://www.jsonrpc.org/specification, MCP "Base protocol".

import { isUtf8 } from 'node:buffer'
import { parse } from 'secure-json-parse'

/** A request id. Its type is kept: `1` and `"1"` are two ids. */
export type RequestId = string | number

export interface RpcRequest { jsonrpc: '2.0', id: RequestId, method: string, params?: Params }
export interface RpcNotification { jsonrpc: '2.0', method: string, params?: Params }
export interface RpcResult { jsonrpc: '2.0', id: RequestId, result: Result }
export interface RpcFailure { jsonrpc: '2.0', id: RequestId | null, error: { code: number, message: string, data?: unknown } }
export type Reply = RpcResult | RpcFailure
export type Params = Record<string, any>
export type Result = Record<string, any>

export const codes = {
  parseError: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
  resourceNotFound: -32002,
  headerMismatch: -32020,
  missingClientCapability: -32021,
  unsupportedVersion: -32022,
  // An application's own codes live outside the ranges that JSON-RPC and MCP reserve.
  accessDenied: -31001,
  rateLimited: -31029
} as const

/**
 * A message from its bytes: strict UTF-8, and no `__proto__` keys.
 * @throws SyntaxError
 */
export function decode (bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new SyntaxError('not UTF-8')
  return parse(bytes.toString(), { protoAction: 'error', constructorAction: 'ignore' })
}

/** An answer that is an error on the wire. Thrown inside the engine, never out of it. */
export class RpcError extends Error {
  readonly code: number
  readonly data: unknown

  constructor (code: number, message: string, data?: unknown) {
    super(message)
    this.name = 'RpcError'
    this.code = code
    this.data = data
  }
}

/** Strings and safe integers. A fraction or an integer beyond 2^53 could not be echoed unchanged. */
export function isRequestId (value: unknown): value is RequestId {
  return typeof value === 'string' || (typeof value === 'number' && Number.isSafeInteger(value))
}

export function isObject (value: unknown): value is Record<string, any> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The id to answer under: the message's own when it is one, else `null`. */
export function replyId (message: unknown): RequestId | null {
  const id = isObject(message) ? message.id : undefined
  return isRequestId(id) ? id : null
}

/** A message that wants an answer: it has a method and an id (which may still be a bad one). */
export function isRequest (message: unknown): message is RpcRequest {
  return isObject(message) && 'method' in message && 'id' in message
}

/** Data that JSON cannot hold is left out. */
export function failure (id: RequestId | null, error: { code: number, message: string, data?: unknown }): RpcFailure {
  const { code, message, data } = error
  return { jsonrpc: '2.0', id, error: data === undefined || data === null || !isJson(data) ? { code, message } : { code, message, data } }
}

function isJson (value: unknown): boolean {
  try {
    return JSON.stringify(value) !== undefined
  } catch {
    return false
  }
}

// What goes out more than once is turned into text once: list pages, and changes that many are told of.
const remembered = new WeakMap<object, Text>()
interface Text { readonly json: string, rest?: Buffer }
/** Characters from which on a copy of a text costs more than to send it as a part of its own. */
export const LONG = 16 * 1024

/** Remembers the JSON text of `value`, which must not change after this. */
export function remember<T extends object> (value: T): T {
  remembered.set(value, { json: JSON.stringify(value) })
  return value
}

/** Knows the text of its result. A WeakMap with an entry per request would be dear to the garbage collector. */
class Success implements RpcResult {
  readonly jsonrpc = '2.0'
  readonly id: RequestId
  readonly result: Result
  readonly #text: Text

  constructor (id: RequestId, result: Result) {
    this.id = id
    this.result = result
    this.#text = remembered.get(result) ?? { json: JSON.stringify(result) }
  }

  static textOf (message: object): Text | undefined {
    return #text in message ? message.#text : undefined
  }
}

/**
 * The reply to a request that succeeded. Its result is turned into text here, where a failure can still be answered.
 * @throws where JSON cannot hold what an application put into it: a BigInt, a circle
 */
export function success (id: RequestId, result: Result): RpcResult {
  return new Success(id, result)
}

function head (id: RequestId): string {
  return `{"jsonrpc":"2.0","id":${typeof id === 'number' ? id : JSON.stringify(id)},"result":`
}

/** JSON text of a message. */
export function encode (message: object): string {
  const text = Success.textOf(message)
  if (text !== undefined) return `${head((message as RpcResult).id)}${text.json}}`
  return remembered.get(message)?.json ?? JSON.stringify(message)
}

/** Like {@link encode}; where the result is remembered and long, its bytes apart, with the end of the message. They are not copied. */
export function encodeParts (message: object): string | readonly [head: string, rest: Buffer] {
  const text = Success.textOf(message)
  if (text === undefined || text.json.length < LONG || remembered.get((message as RpcResult).result) !== text) return encode(message)
  text.rest ??= Buffer.from(`${text.json}}`)
  return [head((message as RpcResult).id), text.rest]
}

// JSON leaves these raw; line-based readers of SSE and stdio take them for line ends and truncate the message.
const lineEnds = /[\u0085\u2028\u2029]/
const allLineEnds = /[\u0085\u2028\u2029]/g

/** JSON text that no reader of lines can break. */
export function oneLine (json: string): string {
  if (!lineEnds.test(json)) return json
  return json.replace(allLineEnds, (char) => '\\u' + char.charCodeAt(0).toString(16).padStart(4, '0'))
}
