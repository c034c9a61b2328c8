// resources/list, resources/templates/list, resources/read; resources/subscribe and unsubscribe (handshake era).

import type { Params, Result } from '../../jsonrpc.js'
import { withRounds } from '../ask.js'
import type { Call } from '../call.js'
import { MAX_SUBSCRIPTIONS } from '../changes.js'
import { callFailure, isCrash } from '../errors.js'
import { invalidParams, requiredString } from '../params.js'
import { shapeReadResult, stamp } from '../wire.js'

export async function listResources (call: Call): Promise<Result> {
  return call.server.pages.page('resources', call)
}

export async function listTemplates (call: Call): Promise<Result> {
  return call.server.pages.page('templates', call)
}

export async function readResource (call: Call, params: Params): Promise<Result> {
  const uri = requiredString(params, 'uri')
  const { server, protocolVersion, era } = call
  try {
    const read = await withRounds(call, () => server.layer.readResource(uri, call))
    const result = shapeReadResult(Array.isArray(read) ? { contents: read } : read, protocolVersion)
    return era === 'modern' ? stamp(result, server.serverInfo(protocolVersion), server.cacheHints(call.principal)) : result
  } catch (error) {
    if (isCrash(error) && !call.abandoned) call.log.error({ err: error, uri }, 'reading a resource failed')
    throw callFailure(error, era, uri, server.exposeErrors)
  }
}

/** Any URI may be subscribed to, unless the layer has to do something for it; an update tells that it changed, never what it holds. */
export async function subscribe (call: Call, params: Params): Promise<Result> {
  const uri = requiredString(params, 'uri')
  try {
    await call.server.layer.subscribe?.(uri, call)
  } catch (error) {
    throw callFailure(error, call.era, uri, call.server.exposeErrors)
  }
  if (!await call.session.subscribe(uri)) throw invalidParams(`A session may subscribe to ${MAX_SUBSCRIPTIONS} resources at most`)
  return {}
}

export async function unsubscribe (call: Call, params: Params): Promise<Result> {
  const uri = requiredString(params, 'uri')
  await call.session.unsubscribe(uri)
  await call.server.layer.unsubscribe?.(uri, call)
  return {}
}
