// initialize and ping (handshake era), server/discover (2026).

import type { Params, Result } from '../../jsonrpc.js'
import { isObject } from '../../jsonrpc.js'
import type { Version } from '../../revisions.js'
import { ALL_VERSIONS, featuresOf, isHandshake, LATEST_HANDSHAKE } from '../../revisions.js'
import type { Call } from '../call.js'
import { invalidParams } from '../params.js'
import type { ProtocolServer } from '../server.js'
import { stamp } from '../wire.js'

function capabilitiesOf (server: ProtocolServer, version: Version): Result {
  const { tools = true, resources = true, prompts = true, completions = true } = server.layer.capabilities ?? {}
  const { era, completionsCapability } = featuresOf(version)
  const listChanged = era === 'modern' || server.handshakeChanges
  const changing = listChanged ? { listChanged: true } : {}
  return {
    ...(tools && { tools: changing }),
    ...(resources && { resources: listChanged ? { subscribe: true, listChanged: true } : {} }),
    ...(prompts && { prompts: changing }),
    logging: {},
    ...(completions && completionsCapability && { completions: {} })
  }
}

export async function initialize (call: Call, params: Params): Promise<Result> {
  const { protocolVersion, capabilities, clientInfo } = params
  if (typeof protocolVersion !== 'string') throw invalidParams('initialize requires a protocolVersion string')
  const version = isHandshake(protocolVersion) ? protocolVersion : LATEST_HANDSHAKE
  const { server, session } = call
  await session.save({
    version,
    capabilities: isObject(capabilities) ? capabilities : {},
    clientInfo: isObject(clientInfo) ? clientInfo : undefined
  })
  const { instructions } = server.layer
  return {
    protocolVersion: version,
    capabilities: capabilitiesOf(server, version),
    serverInfo: server.serverInfo(version),
    ...(instructions && { instructions })
  }
}

export async function ping (): Promise<Result> {
  return {}
}

export async function discover (call: Call): Promise<Result> {
  const { server, protocolVersion, principal } = call
  const { instructions } = server.layer
  return stamp({
    supportedVersions: ALL_VERSIONS,
    capabilities: capabilitiesOf(server, protocolVersion),
    ...(instructions && { instructions })
  }, server.serverInfo(protocolVersion), server.cacheHints(principal))
}
