// What has to happen at once in Redis, as Lua. A script touches the keys of one slot: those of one session, whose names all begin
// with KEYS[1] = `{prefix:id}` (session-scripts.ts), or those of the service, which begin with `{prefix}` (service-scripts.ts). So
// all of it runs on Redis Cluster.

import { createHash } from 'node:crypto'

export interface Script { readonly text: string, readonly sha: string }

/** All of them, to be loaded before they are called: one that is not known yet runs later than those that were called after it. */
export const scripts: Script[] = []

export function script (body: string): Script {
  const text = `local K = KEYS[1]\nlocal call = redis.call\n${body.trim()}`
  const made = { text, sha: createHash('sha1').update(text).digest('hex') }
  scripts.push(made)
  return made
}

// ms, by the clock of Redis alone: those of the processes may differ. Moments close to each other are told apart by their µs.
export const NOW = `
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function micros (ago)
  return string.format('%.0f', time[1] * 1000000 + time[2] - ago)
end`
