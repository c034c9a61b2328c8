// Fourth check, right after parsing: which era the message belongs to, and for 2026-07-28 whether the headers repeat the body.
// The first rung that fails answers. MCP 2026-07-28 "Streamable HTTP / request headers"; order as in the source documents.

import type { FastifyRequest } from 'fastify'
import type { RequestId } from '../../jsonrpc.js'
import { codes, isObject, isRequest, replyId, RpcError } from '../../jsonrpc.js'
import type { HeaderParam } from '../../layer/header-params.js'
import { envelopeMeta, META, requireEnvelopeKeys, requireServedVersion } from '../../protocol/era.js'
import { nameParam } from '../../protocol/methods/table.js'
import type { ProtocolServer } from '../../protocol/server.js'
import { isModern, isVersion, MODERN } from '../../revisions.js'
import { decodeHeader, HEADER, PARAM_PREFIX } from '../headers.js'
import type { Refusal } from '../refusal.js'
import { fromRpcError, refusal, refusals } from '../refusal.js'
import { header, mcpOf } from '../request.js'
import type { MessageCheck } from './message.js'

export function ladderCheck (server: ProtocolServer): MessageCheck {
  return function checkLadder (request) {
    return request.method === 'POST' ? climb(server, request) : checkVersion(request)
  }
}

function climb (server: ProtocolServer, request: FastifyRequest): Refusal | undefined | Promise<Refusal | undefined> {
  const message = request.body
  if (Array.isArray(message)) {
    const modern = isModern(header(request, HEADER.protocolVersion)) || message.some((one) => envelopeMeta(one) !== undefined)
    if (modern) return refusal(400, `JSON-RPC batches are not supported by protocol version ${MODERN[0]}`)
    return checkVersion(request)
  }
  if (!isObject(message)) return refusals.invalidRequest
  const mcp = mcpOf(request)
  const enveloped = envelopeMeta(message) !== undefined
  // An initialize without an envelope is a handshake whatever its headers say: its body is what negotiates.
  if (message.method === 'initialize' && !enveloped) return undefined
  mcp.modern = enveloped || isModern(header(request, HEADER.protocolVersion))
  if (!mcp.modern) return checkVersion(request)
  if (!isRequest(message)) return undefined
  const id = replyId(message)
  // What cannot be read is answered as in any era, before headers are compared with it.
  if (id === null || message.jsonrpc !== '2.0') return { ...refusals.invalidRequest, id }
  if (typeof message.method !== 'string') return refusal(400, 'Invalid Request: method must be a string', { id })
  const params: unknown = message.params ?? {}
  if (!isObject(params)) return refusal(400, 'params must be an object', { id, code: codes.invalidParams })
  try {
    compare(request, message.method, params)
  } catch (error) {
    return refusedBy(error, id)
  }
  if (message.method !== 'tools/call' || typeof params.name !== 'string') return undefined
  const declared = server.layer.headerParams?.(params.name, mcp.principal)
  return declared instanceof Promise
    ? declared.then((found) => compareParams(request, id, found, params.arguments))
    : compareParams(request, id, declared, params.arguments)
}

function refusedBy (error: unknown, id: RequestId): Refusal {
  if (!(error instanceof RpcError)) throw error
  return fromRpcError(error, id, error.code === codes.methodNotFound ? 404 : 400)
}

/** The handshake era's header: a revision that exists, if it is there at all. */
function checkVersion (request: FastifyRequest): Refusal | undefined {
  const { repeated } = mcpOf(request)
  const conflict = repeated === undefined ? undefined : [...repeated].find(([, value]) => value === null)
  if (conflict !== undefined) return refusal(400, `Bad Request: ${conflict[0]} header appears more than once`)
  const version = header(request, HEADER.protocolVersion)
  return version === undefined || isVersion(version) ? undefined : refusal(400, `Unsupported MCP-Protocol-Version: ${version}`)
}

function mismatch (message: string): RpcError {
  return new RpcError(codes.headerMismatch, message)
}

function compare (request: FastifyRequest, method: string, params: Record<string, any>): void {
  const { repeated } = mcpOf(request)
  const meta = isObject(params._meta) ? params._meta : undefined
  requireEnvelopeKeys(meta)
  if (repeated !== undefined) {
    for (const [name, value] of repeated) if (value === null) throw mismatch(`${name} header appears more than once`)
  }
  const version = meta[META.protocolVersion]
  if (header(request, HEADER.protocolVersion) !== version) throw mismatch("MCP-Protocol-Version header does not match the request envelope's protocol version")
  if (header(request, HEADER.method) !== method) throw mismatch("Mcp-Method header does not match the request body's method")
  const parameter = nameParam(method)
  if (parameter !== undefined && params[parameter] !== undefined && params[parameter] !== null) {
    const value = header(request, HEADER.name)
    if (value === undefined || decodeHeader(value) !== params[parameter]) {
      throw mismatch(`Mcp-Name header does not match the request body's '${parameter}' parameter`)
    }
  }
  requireServedVersion(version)
  // There is no such method in this era; a stdio connection says so in other words.
  if (method === 'initialize') throw new RpcError(codes.methodNotFound, 'Method not found', method)
}

function compareParams (request: FastifyRequest, id: RequestId, declared: readonly HeaderParam[] = [], args: unknown): Refusal | undefined {
  try {
    for (const one of declared) compareParam(request, one, args)
    return undefined
  } catch (error) {
    return refusedBy(error, id)
  }
}

function compareParam (request: FastifyRequest, declared: HeaderParam, args: unknown): void {
  const name = `Mcp-Param-${declared.name}`
  const sent = header(request, PARAM_PREFIX + declared.name.toLowerCase())
  const argument = declared.path.reduce((value, key) => isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined, args as any)
  if (argument === undefined || argument === null) {
    if (sent !== undefined) throw mismatch(`${name} header is present, but the argument is not`)
    return
  }
  if (sent === undefined) throw mismatch(`${name} header is missing`)
  const decoded = decodeHeader(sent)
  if (decoded === undefined) throw mismatch(`${name} header holds a malformed base64 sentinel`)
  if (!sameValue(decoded, argument)) throw mismatch(`${name} header does not match the request body's argument`)
}

/** Of an object or an array there is no header. */
function sameValue (text: string, value: unknown): boolean {
  if (typeof value === 'number') return /^-?\d+(?:\.\d+)?$/.test(text) && Number(text) === value
  return text === value || (typeof value === 'boolean' && text === String(value))
}
