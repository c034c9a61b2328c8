// Scripts of the service: KEYS[1] = `{prefix}`.
//
//   {prefix}:s      zset    sessions, by the time at which they may have expired
//   {prefix}:o:*    zset    the same, of one owner
//   {prefix}:c      stream  the log of changes
//   {prefix}:r      set     changes that were sent again, for a moment
//   {prefix}:p      zset    processes, by the end of their lease
//   {prefix}:v      hash    what each of them offers

import { NOW, script } from './scripts.js'

// A key of the index lives as long as its last entry.
const INDEX = `
local function live (key)
  local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last[2] then call('PEXPIREAT', key, string.format('%.0f', last[2])) end
end`

/**
 * ARGV: id, owner, how long the entry lives, most sessions, most of one owner, how many candidates to return, then ids that are gone.
 * Returns `created` and the head of the log of changes; or `owner-full` or `full` and the sessions that were used least recently.
 */
export const RESERVE = script(`${NOW}${INDEX}
local S, O = K .. ':s', K .. ':o:' .. ARGV[2]
for at = 7, #ARGV do
  call('ZREM', S, ARGV[at])
  call('ZREM', O, ARGV[at])
end
call('ZREMRANGEBYSCORE', S, '-inf', now)
call('ZREMRANGEBYSCORE', O, '-inf', now)
local most = tonumber(ARGV[6]) - 1
if call('ZCARD', O) >= tonumber(ARGV[5]) then return { 'owner-full', call('ZRANGE', O, 0, most) } end
if call('ZCARD', S) >= tonumber(ARGV[4]) then return { 'full', call('ZRANGE', S, 0, most) } end
call('ZADD', S, now + ARGV[3], ARGV[1])
call('ZADD', O, now + ARGV[3], ARGV[1])
live(S)
live(O)
local head = call('XREVRANGE', K .. ':c', '+', '-', 'COUNT', 1)[1]
return { 'created', head and head[1] or '0-0' }`)

/** ARGV: id, owner, how long the entry lives. */
export const TOUCH = script(`${NOW}${INDEX}
for _, key in ipairs({ K .. ':s', K .. ':o:' .. ARGV[2] }) do
  call('ZADD', key, now + ARGV[3], ARGV[1])
  live(key)
end`)

/** ARGV: id, owner. */
export const FORGET = script(`
call('ZREM', K .. ':s', ARGV[1])
call('ZREM', K .. ':o:' .. ARGV[2], ARGV[1])`)

/** ARGV: how many ids to return at most. Returns how many there are, and ids if they are few. */
export const COUNT = script(`${NOW}
call('ZREMRANGEBYSCORE', K .. ':s', '-inf', now)
local count = call('ZCARD', K .. ':s')
return { count, count <= tonumber(ARGV[1]) and call('ZRANGE', K .. ':s', 0, -1) or {} }`)

/**
 * ARGV: channel, change, what it is known by, how many are kept, ms that the log lives, whether it is sent again. One that was given up may
 * be in the log, or may be waiting in a connection that Redis has yet to read: it comes once.
 */
export const PUBLISH = script(`
local C, R = K .. ':c', K .. ':r'
if ARGV[6] == '1' then
  for _, entry in ipairs(call('XRANGE', C, '-', '+')) do
    if entry[2][4] == ARGV[3] then return end
  end
  call('SADD', R, ARGV[3])
  call('PEXPIRE', R, 5000)
elseif call('SISMEMBER', R, ARGV[3]) == 1 then
  return
end
local last = call('XREVRANGE', C, '+', '-', 'COUNT', 1)[1]
local id = call('XADD', C, 'MAXLEN', ARGV[4], '*', 'c', ARGV[2], 'n', ARGV[3])
call('PEXPIRE', C, ARGV[5])
call('PUBLISH', ARGV[1], (last and last[1] or '0-0') .. ' ' .. id .. ' ' .. ARGV[3] .. ' ' .. ARGV[2])`)

/**
 * ARGV: process, lease, what it offers or '' when it leaves. Returns what those offered that have gone without a word, and what
 * the others offer.
 */
export const OFFER = script(`${NOW}
local P, V = K .. ':p', K .. ':v'
local gone, others = {}, {}
for _, process in ipairs(call('ZRANGEBYSCORE', P, '-inf', now)) do
  if process ~= ARGV[1] then table.insert(gone, call('HGET', V, process)) end
  call('HDEL', V, process)
end
call('ZREMRANGEBYSCORE', P, '-inf', now)
if ARGV[3] == '' then
  call('ZREM', P, ARGV[1])
  call('HDEL', V, ARGV[1])
else
  call('ZADD', P, now + ARGV[2], ARGV[1])
  call('HSET', V, ARGV[1], ARGV[3])
  call('PEXPIRE', P, ARGV[2] * 2)
  call('PEXPIRE', V, ARGV[2] * 2)
end
local all = call('HGETALL', V)
for at = 1, #all, 2 do
  if all[at] ~= ARGV[1] then table.insert(others, all[at + 1]) end
end
return { gone, others }`)
