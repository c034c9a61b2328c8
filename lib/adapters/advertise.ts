// What a host server says it can do, with what a mounted layer can. MCP "Lifecycle / capability negotiation".

import type { Params } from '../jsonrpc.js'
import { isObject } from '../jsonrpc.js'
import type { Layer } from '../layer/contract.js'
import type { LowLevelServer } from './detect.js'

const firstMethod: Record<string, string> = {
  tools: 'tools/list', resources: 'resources/list', prompts: 'prompts/list', completions: 'completion/complete', logging: 'logging/setLevel'
}

/** Says so, also when the server is connected already: then it is for the handshakes that are to come. Returns how to take it back. */
export function advertise (server: LowLevelServer, include: ReadonlySet<string>, offered: Layer['capabilities'] = {}): () => void {
  const { tools, resources, prompts, completions } = offered
  const hasResources = resources !== false && (include.has('resources') || include.has('templates'))
  const wanted: Params = {
    ...(tools !== false && include.has('tools') && { tools: { listChanged: true } }),
    ...(hasResources && { resources: { listChanged: true, ...(include.has('subscriptions') && { subscribe: true }) } }),
    ...(prompts !== false && include.has('prompts') && { prompts: { listChanged: true } }),
    ...(completions !== false && include.has('completions') && { completions: {} }),
    ...(include.has('logging') && { logging: {} })
  }
  const before = server._capabilities
  // 2.x puts a handler of its own in for logging; it is asked in the public way while it still takes that.
  if (server.transport === undefined) server.registerCapabilities(wanted)
  else server._capabilities = merged(before, wanted)

  return () => {
    const now = { ...server._capabilities }
    for (const name of Object.keys(wanted)) {
      if (before[name] === undefined && !server._requestHandlers.has(firstMethod[name]!)) delete now[name]
      else if (isObject(before[name])) now[name] = withoutNew(now[name], before[name], wanted[name])
    }
    server._capabilities = now
  }
}

function merged (base: Params, added: Params): Params {
  return Object.fromEntries([...new Set([...Object.keys(base), ...Object.keys(added)])].map((name) => [name, { ...base[name], ...added[name] }]))
}

function withoutNew (now: Params, before: Params, wanted: Params): Params {
  return Object.fromEntries(Object.entries(now).flatMap(([flag, value]) =>
    !(flag in wanted) ? [[flag, value]] : before[flag] === undefined ? [] : [[flag, before[flag]]]))
}
