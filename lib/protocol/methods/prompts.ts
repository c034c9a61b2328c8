// prompts/list, prompts/get

import type { Params, Result } from '../../jsonrpc.js'
import { withRounds } from '../ask.js'
import type { Call } from '../call.js'
import { callFailure, isCrash } from '../errors.js'
import { argumentsOf, requiredString } from '../params.js'
import { shapePromptResult, stamp } from '../wire.js'

export async function listPrompts (call: Call): Promise<Result> {
  return call.server.pages.page('prompts', call)
}

export async function getPrompt (call: Call, params: Params): Promise<Result> {
  const name = requiredString(params, 'name')
  const args = argumentsOf(params)
  const { server, protocolVersion, era } = call
  try {
    const result = shapePromptResult(await withRounds(call, () => server.layer.getPrompt(name, args, call)), protocolVersion)
    return era === 'modern' ? stamp(result, server.serverInfo(protocolVersion), undefined) : result
  } catch (error) {
    if (isCrash(error) && !call.abandoned) call.log.error({ err: error, prompt: name }, 'a prompt failed')
    throw callFailure(error, era, undefined, server.exposeErrors)
  }
}
