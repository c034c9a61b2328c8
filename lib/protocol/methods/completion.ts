// completion/complete

import type { Params, Result } from '../../jsonrpc.js'
import { isObject } from '../../jsonrpc.js'
import type { CompletionRef } from '../../layer/completion.js'
import type { Call } from '../call.js'
import { callFailure } from '../errors.js'
import { invalidParams } from '../params.js'
import { stamp } from '../wire.js'

function readRef (ref: unknown): CompletionRef {
  if (isObject(ref) && ref.type === 'ref/prompt' && typeof ref.name === 'string') return { type: ref.type, name: ref.name }
  if (isObject(ref) && ref.type === 'ref/resource' && typeof ref.uri === 'string') return { type: ref.type, uri: ref.uri }
  throw invalidParams('Invalid completion ref')
}

function textOf (value: unknown): string {
  if (typeof value === 'string') return value
  if (value === undefined || value === null) return ''
  try {
    return JSON.stringify(value)
  } catch {
    // nested deeper than the stack
    throw invalidParams('Invalid completion argument')
  }
}

function readKnown (context: unknown): Record<string, string> {
  const given = isObject(context) && isObject(context.arguments) ? context.arguments : {}
  return Object.fromEntries(Object.entries(given).map(([name, value]) => [name, textOf(value)]))
}

export async function complete (call: Call, params: Params): Promise<Result> {
  const ref = readRef(params.ref)
  const { argument } = params
  if (!isObject(argument) || typeof argument.name !== 'string') throw invalidParams('Invalid completion argument')
  const { server, protocolVersion, era } = call
  try {
    const completion = await server.layer.complete(ref, { name: argument.name, value: textOf(argument.value) }, readKnown(params.context), call)
    return era === 'modern' ? stamp({ completion }, server.serverInfo(protocolVersion), undefined) : { completion }
  } catch (error) {
    throw callFailure(error, era, undefined, server.exposeErrors)
  }
}
