// logging/setLevel (handshake era)

import type { Params, Result } from '../../jsonrpc.js'
import type { Call } from '../call.js'
import { isLevel } from '../log-levels.js'
import { invalidParams, quoted } from '../params.js'

export async function setLevel (call: Call, params: Params): Promise<Result> {
  const { level } = params
  if (!isLevel(level)) throw invalidParams(`Invalid log level: ${quoted(level)}`)
  await call.session.save({ logLevel: level })
  return {}
}
