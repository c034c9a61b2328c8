// Scripts of one session: KEYS[1] = `{prefix:id}`.
//
//   {prefix:id}     hash    the session: who, idle, used, indexed, revision, the fields of its record, reader, subscribed, bytes, served:<stream>
//   {prefix:id}:h   zset    processes that use it, by the end of their lease
//   {prefix:id}:u   set     URIs that it is subscribed to
//   {prefix:id}:o   stream  messages that wait for the reader of its standalone stream
//   {prefix:id}:i   stream  signals to the processes that use it
//   {prefix:id}:e   stream  events of its resumable streams
//   {prefix:id}:t   hash    streams that one process writes: `process owed`

import { NOW, script } from './scripts.js'

// The keys beside the hash live longer than it: they are not touched at every use, only when the index is due.
const KEEP = `
local function keep (idle, lease)
  return math.ceil(math.max(idle, lease) + idle / 10 + 1000)
end`

// Tells the processes that use the session, but not the one that caused it. One whose lease has ended may just be slow.
const TELL = `
local function tell (process, channel, message)
  for _, other in ipairs(call('ZRANGE', K .. ':h', 0, -1)) do
    if other ~= process then call('PUBLISH', channel .. other, message) end
  end
end`

// The session is in use by a process until the end of its lease. True when the index has to be told that it lives.
const USE = `${KEEP}
local function use (process, lease, idle, indexed)
  lease, idle = tonumber(lease), tonumber(idle)
  call('PEXPIRE', K, math.max(idle, lease))
  local till = tonumber(call('ZSCORE', K .. ':h', process) or 0)
  if till < now + lease * 0.9 then
    call('ZADD', K .. ':h', now + lease, process)
    call('HSET', K, 'used', micros(0))
    call('ZREMRANGEBYSCORE', K .. ':h', '-inf', now - 3 * lease)
    call('PEXPIRE', K .. ':h', 4 * lease)
  end
  if now - indexed <= idle / 10 then return false end
  call('HSET', K, 'indexed', now)
  for _, suffix in ipairs({ ':u', ':o', ':e', ':t' }) do call('PEXPIRE', K .. suffix, keep(idle, lease)) end
  return true
end`

const RECORD = "'version', 'initialized', 'capabilities', 'clientInfo', 'logLevel', 'isNew'"

/** ARGV: idle, then fields and values of the hash. */
export const CREATE = script(`${NOW}
call('HSET', K, 'idle', ARGV[1], 'used', micros(0), 'indexed', now, unpack(ARGV, 2))
call('PEXPIRE', K, ARGV[1])`)

/**
 * ARGV: who, process, lease, the revision of the record that is known or ''. Returns whether the index is due; where the record is another,
 * that, the time, idle, the revision and the record.
 */
export const ACQUIRE = script(`
local s = call('HMGET', K, 'who', 'idle', 'indexed', 'revision')
if s[1] ~= ARGV[1] then return false end
${NOW}${USE}
local due = use(ARGV[2], ARGV[3], s[2], s[3]) and 1 or 0
if s[4] == ARGV[4] then return due end
return { due, now, s[2], s[4], unpack(call('HMGET', K, ${RECORD})) }`)

/** ARGV: process, for how many µs it has not been used: a moment. The idle time started anew then, unless somebody else uses it. */
export const RELEASE = script(`
call('ZREM', K .. ':h', ARGV[1])
local idle = call('HGET', K, 'idle')
if not idle then return end
${NOW}
if call('ZCOUNT', K .. ':h', now, '+inf') > 0 then return end
call('HSET', K, 'used', micros(ARGV[2]))
call('PEXPIRE', K, idle - math.floor(ARGV[2] / 1000))`)

/**
 * ARGV: process, lease, token of the reader that this process has or '', the last signal seen, the state of the subscriptions as it
 * is known. Renews the use. Returns whether the index is due, whether the reader has been replaced, the signals since, the
 * state of the subscriptions and, if it is another and there is a reader, all of them, and the record.
 */
export const BEAT = script(`
local s = call('HMGET', K, 'idle', 'indexed', 'reader', 'subscribed', ${RECORD})
if not s[1] then return false end
${NOW}${USE}
local due = use(ARGV[1], ARGV[2], s[1], s[2])
local replaced = ARGV[3] ~= '' and s[3] ~= ARGV[1] .. ' ' .. ARGV[3]
local state = s[4] or '0'
local subscriptions = ARGV[3] ~= '' and state ~= ARGV[5] and call('SMEMBERS', K .. ':u') or {}
return { due and 1 or 0, replaced and 1 or 0, call('XRANGE', K .. ':i', '(' .. ARGV[4], '+'), state, subscriptions, unpack(s, 5, 10) }`)

/** ARGV: process, channel, message, then fields and values. */
export const UPDATE = script(`
if call('EXISTS', K) == 0 then return end
${NOW}${TELL}
call('HSET', K, unpack(ARGV, 4))
tell(ARGV[1], ARGV[2], ARGV[3])`)

/**
 * ARGV: process, channel, the message without the state and its end, lease, URI, limit. Returns the state of the subscriptions; nothing
 * when there are too many.
 */
export const SUBSCRIBE = script(`
local s = call('HMGET', K, 'idle', 'subscribed')
if not s[1] or call('SISMEMBER', K .. ':u', ARGV[5]) == 1 then return tonumber(s[2] or 0) end
if call('SCARD', K .. ':u') >= tonumber(ARGV[6]) then return false end
${NOW}${TELL}${KEEP}
call('SADD', K .. ':u', ARGV[5])
local state = call('HINCRBY', K, 'subscribed', 1)
call('PEXPIRE', K .. ':u', keep(s[1], ARGV[4]))
tell(ARGV[1], ARGV[2], ARGV[3] .. state .. ']')
return state`)

/** ARGV: process, channel, the message without the state and its end, URI. Returns the state of the subscriptions. */
export const UNSUBSCRIBE = script(`
if call('SREM', K .. ':u', ARGV[4]) == 0 then return tonumber(call('HGET', K, 'subscribed') or 0) end
local state = call('HINCRBY', K, 'subscribed', 1)
${TELL}
tell(ARGV[1], ARGV[2], ARGV[3] .. state .. ']')
return state`)

/**
 * ARGV: process, channel, message, and for an eviction the longest time to live that still counts as idle, else ''.
 * Returns whose it was, when it was there and has ended.
 */
export const DELETE = script(`${NOW}${TELL}
if ARGV[4] ~= '' then
  if call('PTTL', K) > tonumber(ARGV[4]) then return false end
  if call('ZCOUNT', K .. ':h', now, '+inf') > 0 then return false end
end
local who = call('HGET', K, 'who')
if not who then return false end
tell(ARGV[1], ARGV[2], ARGV[3])
call('DEL', K, K .. ':h', K .. ':u', K .. ':o', K .. ':i', K .. ':e', K .. ':t')
return who`)

/** Returns the time to live, negative when there is no session, whether it is in use, and when it was used last, in µs. */
export const PROBE = script(`
local ttl = call('PTTL', K)
if ttl < 0 then return { -1, 0, 0 } end
${NOW}
return { ttl, call('ZCOUNT', K .. ':h', now, '+inf') > 0 and 1 or 0, tonumber(call('HGET', K, 'used')) }`)

/**
 * ARGV: process, channel, the two halves of the message around the id of the entry, the signal, whether to keep it.
 * Nobody uses the session: nobody waits for it.
 */
export const SIGNAL = script(`${NOW}${TELL}
local idle = call('HGET', K, 'idle')
if not idle or call('ZCOUNT', K .. ':h', now, '+inf') == 0 then return end
local id
if ARGV[6] == '1' then
  id = call('XADD', K .. ':i', 'MAXLEN', 64, '*', 's', ARGV[5])
  call('PEXPIRE', K .. ':i', math.min(60000, idle))
else
  id = ''
end
tell(ARGV[1], ARGV[2], ARGV[3] .. id .. ARGV[4])`)

// ---- the standalone stream

/** ARGV: channel, message, lease, the client's message, how many are kept. Returns the process of the reader. */
export const PUSH = script(`
local s = call('HMGET', K, 'idle', 'reader')
if not s[1] then return false end
${KEEP}
call('XADD', K .. ':o', 'MAXLEN', ARGV[5], '*', 'm', ARGV[4])
call('PEXPIRE', K .. ':o', keep(s[1], ARGV[3]))
if not s[2] then return false end
local process = string.match(s[2], '^%S+')
call('PUBLISH', ARGV[1] .. process, ARGV[2])
return process`)

/**
 * ARGV: process, token, the reader that may be replaced or '', channel, and the message to it. Returns the reader that has the
 * place; or 1, the URIs of the subscriptions, up to where the session has been told of changes, and the state of the subscriptions.
 */
export const OPEN = script(`
local s = call('HMGET', K, 'idle', 'reader', 'seen', 'subscribed')
if not s[1] then return false end
${NOW}
if s[2] then
  local process = string.match(s[2], '^%S+')
  if s[2] ~= ARGV[3] then
    local lease = call('ZSCORE', K .. ':h', process)
    if lease and tonumber(lease) > now then return s[2] end
  end
  call('PUBLISH', ARGV[4] .. process, ARGV[5])
end
call('HSET', K, 'reader', ARGV[1] .. ' ' .. ARGV[2])
return { 1, call('SMEMBERS', K .. ':u'), s[3] or '', s[4] or '0' }`)

/** ARGV: process, token, seen or '' where only the events know. */
export const CLOSE = script(`
if call('HGET', K, 'reader') ~= ARGV[1] .. ' ' .. ARGV[2] then return end
call('HDEL', K, 'reader')
if ARGV[3] ~= '' then call('HSET', K, 'seen', ARGV[3]) end`)

export const HAS_READER = script(`
local reader = call('HGET', K, 'reader')
if not reader then return 0 end
${NOW}
local lease = call('ZSCORE', K .. ':h', string.match(reader, '^%S+'))
return lease and tonumber(lease) > now and 1 or 0`)

// ---- events

/**
 * ARGV: process, channel, message, lease, stream, data, mode (`open` or `own` for a stream of this process, `shared`), owed,
 * seen, most events, most bytes, longest age, token of the reader that this process must have or ''. Returns the id of the entry, ''
 * when it is not ours to write.
 */
export const APPEND = script(`
local idle = call('HGET', K, 'idle')
if not idle then return '' end
if ARGV[13] ~= '' and call('HGET', K, 'reader') ~= ARGV[1] .. ' ' .. ARGV[13] then return '' end
${NOW}${TELL}${KEEP}
local E, T = K .. ':e', K .. ':t'
if ARGV[7] == 'open' then
  call('HSET', T, ARGV[5], ARGV[1] .. ' ' .. ARGV[8])
  call('PEXPIRE', T, keep(idle, ARGV[4]))
elseif ARGV[7] == 'own' and string.match(call('HGET', T, ARGV[5]) or '', '^%S+') ~= ARGV[1] then
  return ''
end
local id = call('XADD', E, '*', 's', ARGV[5], 'd', ARGV[6])
local bytes = call('HINCRBY', K, 'bytes', #ARGV[6])
local events = call('XLEN', E)
while events > 1 do
  local first = call('XRANGE', E, '-', '+', 'COUNT', 1)[1]
  local at = tonumber(string.match(first[1], '^%d+'))
  if events <= tonumber(ARGV[10]) and bytes <= tonumber(ARGV[11]) and at >= now - ARGV[12] then break end
  call('XDEL', E, first[1])
  bytes = call('HINCRBY', K, 'bytes', -#first[2][4])
  events = events - 1
end
call('PEXPIRE', E, keep(idle, ARGV[4]))
if ARGV[9] ~= '' then call('HSET', K, 'seen', ARGV[9]) end
tell(ARGV[1], ARGV[2], ARGV[3])
return id`)

/** ARGV: process, channel, message, lease, stream, mode. The end is an entry too, so that it comes after all others. */
export const END = script(`
local idle = call('HGET', K, 'idle')
if not idle then return end
${NOW}${TELL}${KEEP}
if ARGV[6] ~= 'shared' then
  if string.match(call('HGET', K .. ':t', ARGV[5]) or '', '^%S+') ~= ARGV[1] then return end
  call('HDEL', K .. ':t', ARGV[5])
end
call('XADD', K .. ':e', '*', 's', ARGV[5], 'd', '', 'x', '1')
call('PEXPIRE', K .. ':e', keep(idle, ARGV[4]))
tell(ARGV[1], ARGV[2], ARGV[3])`)

/**
 * ARGV: stream, the entry after which to begin, or '' for where the last reader stopped. Returns who writes the stream (`process owed`, or
 * ''), where to begin, and up to where the log reaches by now; nothing when there is no such event.
 */
export const READ = script(`
if call('EXISTS', K) == 0 then return false end
local E, stream, after = K .. ':e', ARGV[1], ARGV[2]
local writer = call('HGET', K .. ':t', stream) or ''
if after == '' then return { writer, call('HGET', K, 'served:' .. stream) or '0-0' } end
local found = call('XRANGE', E, after, after)[1]
if found then return found[2][2] == stream and { writer, after } end
-- It may have been dropped for being old; then it comes before everything that is there, and its stream goes on.
local first = call('XRANGE', E, '-', '+', 'COUNT', 1)[1]
local function parts (id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end
if not first then return writer ~= '' and { writer, after } end
local ms, n = parts(after)
local firstMs, firstN = parts(first[1])
if ms > firstMs or (ms == firstMs and n > firstN) then return false end
if writer ~= '' then return { writer, after } end
for _, entry in ipairs(call('XRANGE', E, '-', '+')) do
  if entry[2][2] == stream then return { writer, after } end
end
return false`)

/** ARGV: stream, the process that wrote it, the process that takes it over. Returns what was owed. */
export const CLAIM = script(`
local process, owed = string.match(call('HGET', K .. ':t', ARGV[1]) or '', '^(%S+) (.*)$')
if process ~= ARGV[2] then return false end
call('HSET', K .. ':t', ARGV[1], ARGV[3] .. ' ' .. owed)
return owed`)

/** ARGV: field, value. */
export const SET = script(`
if call('EXISTS', K) == 1 then call('HSET', K, ARGV[1], ARGV[2]) end`)
