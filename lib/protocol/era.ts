// The envelope of 2026-07-28 (`params._meta`) and the rules that say which era a message belongs to.
// MCP 2026-07-28 "Base protocol / _meta"; the HTTP header ladder builds on the same checks.

import { codes, isObject, RpcError } from '../jsonrpc.js'
import type { ModernVersion } from '../revisions.js'
import { isModern, MODERN } from '../revisions.js'

export const META = {
  protocolVersion: 'io.modelcontextprotocol/protocolVersion',
  clientInfo: 'io.modelcontextprotocol/clientInfo',
  clientCapabilities: 'io.modelcontextprotocol/clientCapabilities',
  logLevel: 'io.modelcontextprotocol/logLevel',
  serverInfo: 'io.modelcontextprotocol/serverInfo',
  subscriptionId: 'io.modelcontextprotocol/subscriptionId'
} as const

/** What a 2026 request says of itself. */
export interface Envelope {
  readonly version: ModernVersion
  readonly capabilities: Record<string, any>
  readonly clientInfo: Record<string, unknown> | undefined
  readonly logLevel: unknown
}

/** `params._meta` when it has the key that makes a message a 2026 one, whatever its value. */
export function envelopeOf (params: unknown): Record<string, unknown> | undefined {
  const meta = isObject(params) ? params._meta : undefined
  return isObject(meta) && Object.hasOwn(meta, META.protocolVersion) ? meta : undefined
}

export function envelopeMeta (message: unknown): Record<string, unknown> | undefined {
  return isObject(message) ? envelopeOf(message.params) : undefined
}

/** Both keys are there, or -32602 that names the missing ones. */
export function requireEnvelopeKeys (meta: Record<string, unknown> | undefined): asserts meta is Record<string, unknown> {
  if (meta !== undefined && Object.hasOwn(meta, META.protocolVersion) && Object.hasOwn(meta, META.clientCapabilities)) return
  const missing = [META.protocolVersion, META.clientCapabilities].filter((key) => meta === undefined || !Object.hasOwn(meta, key))
  throw new RpcError(codes.invalidParams, `params._meta is missing the required envelope key(s): ${missing.join(', ')}`)
}

/** The version is one that is served: -32602 when it is no string, -32022 otherwise. */
export function requireServedVersion (version: unknown): asserts version is ModernVersion {
  if (typeof version !== 'string') throw new RpcError(codes.invalidParams, 'the protocol-version envelope value must be a string')
  if (!isModern(version)) {
    throw new RpcError(codes.unsupportedVersion, `Unsupported protocol version: ${version}`, { supported: MODERN, requested: version })
  }
}

export function readEnvelope (meta: Record<string, unknown>): Envelope {
  requireEnvelopeKeys(meta)
  const version = meta[META.protocolVersion]
  requireServedVersion(version)
  const capabilities = meta[META.clientCapabilities]
  const clientInfo = meta[META.clientInfo]
  return {
    version,
    capabilities: isObject(capabilities) ? capabilities : {},
    clientInfo: isObject(clientInfo) ? clientInfo : undefined,
    logLevel: meta[META.logLevel]
  }
}

export const NO_ENVELOPE = `params._meta must be an object carrying the required '${META.protocolVersion}' and '${META.clientCapabilities}' envelope keys`
export const MODERN_CONNECTION = `connection is serving the ${MODERN[0]} protocol; initialize is not accepted`
export const HANDSHAKE_CONNECTION = `this connection serves the handshake protocol era; requests carrying the ${MODERN[0]} envelope are not accepted on it`
