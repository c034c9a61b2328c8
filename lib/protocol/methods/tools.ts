// tools/list, tools/call

import type { Params, Result } from '../../jsonrpc.js'
import { isInputRequired } from '../../layer/ask.js'
import type { ToolResult } from '../../layer/content.js'
import { moreRounds } from '../ask.js'
import type { Call } from '../call.js'
import { isCrash, toolFailure } from '../errors.js'
import { argumentsOf, requiredString } from '../params.js'
import { shapeToolResult, stamp } from '../wire.js'

export async function listTools (call: Call): Promise<Result> {
  return call.server.pages.page('tools', call)
}

export async function callTool (call: Call, params: Params): Promise<Result> {
  const name = requiredString(params, 'name')
  const args = argumentsOf(params)
  const run = () => call.server.layer.callTool(name, args, call)
  let result: ToolResult
  try {
    // Not withRounds(): another promise would cost every call.
    call.openRounds()
    const first = await run()
    result = isInputRequired(first) ? await moreRounds(call, first, run) : first
  } catch (error) {
    if (isCrash(error) && !call.abandoned) call.log.error({ err: error, tool: name }, 'a tool failed')
    result = toolFailure(error, name, call.server.exposeErrors)
  }
  return inEra(call, result)
}

function inEra ({ server, protocolVersion, era }: Call, result: ToolResult): Result {
  const shaped = shapeToolResult(result, protocolVersion)
  return era === 'modern' ? stamp(shaped, server.serverInfo(protocolVersion), undefined) : shaped
}
