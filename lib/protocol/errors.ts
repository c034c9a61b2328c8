// The one table from an error that a layer throws to what the caller reads.

import { codes, RpcError } from '../jsonrpc.js'
import type { Era } from '../revisions.js'
import type { ToolResult } from '../layer/content.js'
import {
  AccessDeniedError, InvalidArgumentsError, LayerError, MissingCapabilityError, NotFoundError,
  RateLimitedError, TimeoutError, ToolError, UnknownPrimitiveError
} from '../layer/errors.js'

/** `cloudg/error_code` of a tool result; a number is also the code of the JSON-RPC error elsewhere. */
const table: readonly (readonly [new (...args: any[]) => LayerError, number | string])[] = [
  [InvalidArgumentsError, codes.invalidParams],
  [NotFoundError, codes.invalidParams],
  [AccessDeniedError, codes.accessDenied],
  [RateLimitedError, codes.rateLimited],
  [TimeoutError, 'timeout'],
  [ToolError, 'tool_error'],
  [LayerError, codes.internalError]
]

function codeOf (error: LayerError): number | string {
  return table.find(([type]) => error instanceof type)![1]
}

/** Errors that are answers of the protocol itself, whatever the method. */
function protocolError (error: unknown): RpcError | undefined {
  if (error instanceof RpcError) return error
  if (error instanceof MissingCapabilityError) return new RpcError(codes.missingClientCapability, error.message, error.data)
  return undefined
}

/** A failed tool call as its result, or as the JSON-RPC error that it has to be. */
export function toolFailure (error: unknown, tool: string, exposeErrors: boolean): ToolResult {
  const known = protocolError(error)
  if (known !== undefined) throw known
  // A resource that the tool did not find is its own affair.
  if (error instanceof UnknownPrimitiveError && error.kind === 'tool') throw new RpcError(codes.invalidParams, error.message, error.data)
  const [message, code, data] = error instanceof LayerError
    ? [error.message, codeOf(error), error.data]
    : [`Error executing tool ${tool}${exposed(error, exposeErrors)}`, 'handler_error', undefined]
  return {
    content: [{ type: 'text', text: message }],
    isError: true,
    _meta: { 'cloudg/error_code': code, ...(data !== undefined && { 'cloudg/error_data': data }) }
  }
}

/** A failed read, prompt or completion as a JSON-RPC error. */
export function callFailure (error: unknown, era: Era, uri: string | undefined, exposeErrors: boolean): RpcError {
  const known = protocolError(error)
  if (known !== undefined) return known
  if (error instanceof NotFoundError) {
    if (uri === undefined) return new RpcError(codes.invalidParams, error.message)
    return new RpcError(era === 'modern' ? codes.invalidParams : codes.resourceNotFound, error.message, { uri })
  }
  if (error instanceof LayerError) {
    const code = codeOf(error)
    return new RpcError(typeof code === 'number' ? code : codes.internalError, error.message, error.data)
  }
  return new RpcError(codes.internalError, `Internal error${exposed(error, exposeErrors)}`)
}

function exposed (error: unknown, exposeErrors: boolean): string {
  return exposeErrors ? `: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}` : ''
}

/** Is this the author's fault, to be logged with its stack? */
export function isCrash (error: unknown): boolean {
  return !(error instanceof LayerError) && !(error instanceof RpcError)
}
