// What the SDKs tell a request handler about its request, in one form: `extra` of 1.x and `ctx` of 2.x.

import { z } from 'zod'
import type { Params, RequestId, Result } from '../jsonrpc.js'
import { isObject } from '../jsonrpc.js'
import type { RequestInfo } from '../principal.js'
import { META } from '../protocol/era.js'
import type { ProtocolServer } from '../protocol/server.js'
import type { Session } from '../protocol/session.js'
import type { Version } from '../revisions.js'
import { DEFAULT_HTTP_VERSION, HANDSHAKE, isHandshake, isModern, isVersion, LATEST_HANDSHAKE } from '../revisions.js'
import type { LowLevelServer } from './detect.js'

export interface Facts {
  id: RequestId
  signal: AbortSignal
  sessionId: string | undefined
  version: Version
  /** `params`, with what an SDK takes out of them put back. */
  params: Params
  capabilities: Params
  request: RequestInfo
  /** A request of its own over HTTP, 2026: nothing but its answer reaches the client. */
  oneShot: boolean
  /** Sends a notification that belongs to the request. */
  notify: (notification: { method: string, params?: Params }) => Promise<void>
  /** Asks the client, in the name of the request. */
  ask: (question: { method: string, params: Params }, options: { timeout: number, signal: AbortSignal }) => Promise<Result>
}

// Both SDKs want a schema for the answer to a question; the engine has its own ideas of a good one.
const anything = z.looseObject({})

/** A session of the engine for one request of a connection that an SDK keeps. */
export function engineSession (protocol: ProtocolServer, { version, request, sessionId }: Pick<Facts, 'version' | 'request' | 'sessionId'>, state: { capabilities: Params, logLevel: string }): Session {
  const common = { transport: 'http', register: false } as const
  if (!isHandshake(version)) return protocol.createSession(common)
  // Nobody could answer a question there: the next request is another server's.
  const stateless = request.transport === 'http' && sessionId === undefined
  if (stateless) {
    const session = protocol.createSession({ ...common, preinitialized: version })
    session.record.logLevel = state.logLevel
    return session
  }
  return protocol.createSession({
    ...common,
    record: { id: '', owner: '', kind: 'http', version, initialized: true, clientInfo: request.clientInfo, ...state }
  })
}

/** @param negotiated the version of the handshake, as far as it has been seen (1.x does not keep it) */
export function factsOf (server: LowLevelServer, request: { params?: Params }, context: any, negotiated: string | undefined): Facts {
  return isObject(context?.mcpReq) ? factsOf2(server, request, context) : factsOf1(server, request, context, negotiated)
}

function factsOf1 (server: LowLevelServer, { params = {} }: { params?: Params }, extra: any, negotiated: string | undefined): Facts {
  const headers: RequestInfo['headers'] | undefined = extra.requestInfo?.headers
  return {
    id: extra.requestId,
    signal: extra.signal,
    sessionId: extra.sessionId,
    version: versionOf(negotiated, headers),
    params,
    capabilities: server.getClientCapabilities() ?? {},
    request: requestInfo(headers, extra.sessionId, server.getClientVersion(), extra.authInfo, extra),
    oneShot: false,
    notify: extra.sendNotification,
    ask: (question, options) => extra.sendRequest(question, anything, options)
  }
}

function factsOf2 (server: LowLevelServer, { params = {} }: { params?: Params }, ctx: any): Facts {
  const { mcpReq, http, sessionId } = ctx
  const headers = http?.req === undefined ? undefined : Object.fromEntries(http.req.headers)
  const negotiated = server.getNegotiatedProtocolVersion?.()
  const version = versionOf(negotiated, headers)
  const envelope: Params = mcpReq.envelope ?? {}
  const modern = isModern(version)
  return {
    id: mcpReq.id,
    signal: mcpReq.signal,
    sessionId,
    version,
    params: modern ? restored(params, mcpReq, envelope) : params,
    capabilities: envelope[META.clientCapabilities] ?? server.getClientCapabilities() ?? {},
    request: requestInfo(headers, sessionId, envelope[META.clientInfo] ?? server.getClientVersion(), http?.authInfo, ctx),
    oneShot: modern && headers !== undefined,
    notify: mcpReq.notify,
    ask: (question, options) => mcpReq.send(question, anything, options)
  }
}

/** The envelope and what belongs to earlier rounds, which 2.x hands over beside the params. */
function restored (params: Params, mcpReq: any, envelope: Params): Params {
  const state: unknown = mcpReq.requestState?.()
  return {
    ...params,
    _meta: { ...params._meta, ...envelope },
    ...(mcpReq.inputResponses !== undefined && { inputResponses: mcpReq.inputResponses }),
    ...(state !== undefined && { requestState: state })
  }
}

function versionOf (negotiated: string | undefined, headers: RequestInfo['headers'] | undefined): Version {
  if (isVersion(negotiated)) return negotiated
  // The SDKs speak a draft that is older than all revisions.
  if (negotiated !== undefined && negotiated < HANDSHAKE[0]) return HANDSHAKE[0]
  // Stateless HTTP: every request is alone, and its header says what was agreed on elsewhere.
  if (headers === undefined) return LATEST_HANDSHAKE
  const version = headers['mcp-protocol-version']
  return isHandshake(version) ? version : DEFAULT_HTTP_VERSION
}

function requestInfo (headers: RequestInfo['headers'] | undefined, sessionId: string | undefined, clientInfo: Params | undefined, authInfo: any, raw: unknown): RequestInfo {
  return {
    transport: headers === undefined ? 'stdio' : 'http',
    headers: headers ?? {},
    sessionId,
    clientInfo,
    raw,
    ...(authInfo && { accessToken: authInfo })
  }
}
