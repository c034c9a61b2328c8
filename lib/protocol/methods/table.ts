// Which methods exist in which era. A name that is not here does not exist (-32601), whatever it is called.

import type { Params, Result } from '../../jsonrpc.js'
import { isObject } from '../../jsonrpc.js'
import type { Layer } from '../../layer/contract.js'
import type { Era } from '../../revisions.js'
import type { Call } from '../call.js'
import { complete } from './completion.js'
import { discover, initialize, ping } from './lifecycle.js'
import { listen } from './listen.js'
import { setLevel } from './logging.js'
import { getPrompt, listPrompts } from './prompts.js'
import { listResources, listTemplates, readResource, subscribe, unsubscribe } from './resources.js'
import { callTool, listTools } from './tools.js'

export type Method = (call: Call, params: Params) => Promise<Result>
type Family = 'tools' | 'resources' | 'prompts' | 'completions'
type Entry = readonly [name: string, run: Method, family?: Family]

const both: readonly Entry[] = [
  ['tools/list', listTools, 'tools'],
  ['tools/call', callTool, 'tools'],
  ['resources/list', listResources, 'resources'],
  ['resources/templates/list', listTemplates, 'resources'],
  ['resources/read', readResource, 'resources'],
  ['prompts/list', listPrompts, 'prompts'],
  ['prompts/get', getPrompt, 'prompts'],
  ['completion/complete', complete, 'completions']
]

function table (...entries: Entry[]): ReadonlyMap<string, Entry> {
  return new Map([...both, ...entries].map((entry) => [entry[0], entry]))
}

const methods: Record<Era, ReadonlyMap<string, Entry>> = {
  handshake: table(
    ['initialize', initialize],
    ['ping', ping],
    ['resources/subscribe', subscribe, 'resources'],
    ['resources/unsubscribe', unsubscribe, 'resources'],
    ['logging/setLevel', setLevel]
  ),
  modern: table(
    ['server/discover', discover],
    ['subscriptions/listen', listen]
  )
}

/** The implementation of a method; nothing when the era does not know it or the layer does not offer its family. */
export function methodOf (era: Era, name: string, offered: Layer['capabilities']): Method | undefined {
  const entry = methods[era].get(name)
  return entry === undefined || (entry[2] !== undefined && offered?.[entry[2]] === false) ? undefined : entry[1]
}

/** Methods whose answer may be preceded by notifications on a stream of its own. */
const streaming = new Set(['tools/call', 'resources/read', 'prompts/get', 'subscriptions/listen'])

export function isStreaming (message: unknown): boolean {
  return isObject(message) && streaming.has(message.method)
}

/** The parameter that a 2026 client repeats in `Mcp-Name`. */
const named = new Map([['tools/call', 'name'], ['prompts/get', 'name'], ['resources/read', 'uri']])

export function nameParam (method: string): string | undefined {
  return named.get(method)
}
