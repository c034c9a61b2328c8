// What a client carries between rounds: it must neither read nor change it, nor use it elsewhere. Whatever is wrong, the answer is one.

import t from 'tap'
import type { Test } from 'tap'
import { codes, RpcError } from '../../lib/jsonrpc.js'
import type { Binding, RequestStateOptions } from '../../lib/protocol/request-state.js'
import { canonical, RequestState } from '../../lib/protocol/request-state.js'
import { bytesOf, kidOf, principalClaim, seal, sealText, shortHash, unseal } from './sealer.js'

const KEY = 'k'.repeat(32)
const OLD_KEY = 'o'.repeat(32)
const NOW = Date.UTC(2026, 7, 1)
const BINDING: Binding = { principal: 'alice', method: 'tools/call', target: 'delete', arguments: { ids: ['b', 'a'], force: true } }

function stateOf (options: RequestStateOptions = {}, audience = 'orders'): RequestState {
  return new RequestState(audience, { keys: [KEY], now: () => NOW, ...options })
}

function opens (state: RequestState, token: unknown, binding = BINDING): string {
  return state.open(token, binding)
}

/** Refused as everything is, and for this reason in the log. */
function refuses (t: Test, state: RequestState, token: unknown, why: string, binding = BINDING): void {
  const reasons: string[] = []
  let thrown: unknown
  try {
    state.open(token, binding, (reason) => { reasons.push(reason) })
  } catch (error) {
    thrown = error
  }
  t.ok(thrown instanceof RpcError, `${why}: an RpcError`)
  const { code, message, data } = thrown as RpcError
  t.same({ code, message, data }, { code: codes.invalidParams, message: 'Invalid or expired requestState', data: { reason: 'invalid_request_state' } })
  t.same(reasons, [why])
}

t.test('RQ-01 a token has the documented layout, and shows nothing of what is in it', (t) => {
  const token = stateOf().seal('{"secret":"of alice"}', BINDING)
  t.match(token, /^v1\.[A-Za-z0-9_-]+$/)
  t.notMatch(Buffer.concat([Buffer.from(token), bytesOf(token)]).toString('latin1'), /secret|alice|delete|orders/)
  t.equal(bytesOf(token).subarray(0, 4).toString('hex'), kidOf(KEY))

  const { p, ...claims } = unseal(KEY, token)
  t.same(claims, {
    v: 1,
    iat: NOW / 1000,
    exp: NOW / 1000 + 600,
    m: 'tools/call',
    t: 'delete',
    a: shortHash('{"force":true,"ids":["b","a"]}'),
    s: '{"secret":"of alice"}',
    aud: 'orders'
  })
  t.equal(p, principalClaim('alice', Buffer.from(p, 'base64url').subarray(0, 8)))
  t.end()
})

t.test('RQ-02 what was sealed comes back; every token is another one', (t) => {
  const state = stateOf()
  const tokens = Array.from({ length: 50 }, () => state.seal('the state', BINDING))
  t.equal(new Set(tokens).size, 50)
  for (const token of tokens) t.equal(opens(state, token), 'the state')
  t.equal(opens(state, state.seal('', BINDING)), '')
  t.equal(opens(stateOf(), seal(KEY, unseal(KEY, tokens[0]!) as any)), 'the state', 'the test seals as the server does')
  t.end()
})

t.test('RQ-04 it is good until just before its end', (t) => {
  let now = NOW
  const state = stateOf({ now: () => now, ttl: 1000 })
  const token = state.seal('s', BINDING)
  now = NOW + 999
  t.equal(opens(state, token), 's')
  for (const late of [1000, 1001, 10 ** 9]) {
    now = NOW + late
    refuses(t, state, token, 'expired')
  }
  now = NOW - 60_000
  t.equal(opens(state, token), 's', 'the clock of another process may be a minute behind')
  now = NOW - 60_001
  refuses(t, state, token, 'issued in the future')
  t.end()
})

t.test('RQ-06 it is good for its call alone', (t) => {
  const state = stateOf()
  const token = state.seal('s', BINDING)
  refuses(t, state, token, 'another call', { ...BINDING, target: 'delete2' })
  refuses(t, state, token, 'another call', { ...BINDING, method: 'prompts/get' })
  for (const args of [{}, { ids: ['b', 'a'] }, { ids: ['a', 'b'], force: true }, { ids: ['b', 'a'], force: 'true' }, { ids: ['b', 'a'], force: true, more: null }]) {
    refuses(t, state, token, 'other arguments', { ...BINDING, arguments: args })
  }
  t.equal(opens(state, token, { ...BINDING, arguments: { force: true, ids: ['b', 'a'] } }), 's', 'the order of keys is none of the arguments')
  t.end()
})

t.test('RQ-07 it is good for its principal alone', (t) => {
  const state = stateOf()
  const token = state.seal('s', BINDING)
  for (const principal of ['bob', 'anonymous', 'alice ', 'Alice', '']) refuses(t, state, token, 'another caller', { ...BINDING, principal })
  const anonymous = state.seal('s', { ...BINDING, principal: 'anonymous' })
  refuses(t, state, anonymous, 'another caller')
  t.end()
})

t.test('RQ-09 keys rotate: the first seals, all of them open', (t) => {
  const old = stateOf({ keys: [OLD_KEY] }).seal('s', BINDING)
  const ring = stateOf({ keys: [KEY, OLD_KEY] })
  t.equal(opens(ring, old), 's')
  const fresh = ring.seal('s', BINDING)
  t.equal(bytesOf(fresh).subarray(0, 4).toString('hex'), kidOf(KEY))
  t.equal(opens(stateOf({ keys: [OLD_KEY, KEY] }), fresh), 's', 'a process that is one step behind opens it too')
  refuses(t, stateOf(), old, 'unknown key')
  refuses(t, new RequestState('orders', { now: () => NOW }), fresh, 'unknown key')
  t.equal(opens(stateOf({ keys: [Buffer.from(KEY)] }), fresh), 's', 'bytes and text are the same key')
  t.end()
})

t.test('RQ-12 a ring or a time that cannot work is refused at once', (t) => {
  const refused = (options: RequestStateOptions, message: RegExp): void => { t.throws(() => new RequestState('x', options), { message, code: 'CLOUDG_MCP_ERR_INVALID_OPTION' }) }
  refused({ keys: [] }, /requestState\.keys must hold at least one key/)
  refused({ keys: ['k'.repeat(31)] }, /at least 32 bytes/)
  refused({ keys: [Buffer.alloc(31)] }, /at least 32 bytes/)
  refused({ keys: [KEY, OLD_KEY, Buffer.from(KEY)] }, /holds a key twice/)
  for (const ttl of [0, -1, NaN, Infinity]) refused({ ttl }, /requestState\.ttl/)
  t.doesNotThrow(() => new RequestState('x', { keys: ['é'.repeat(16)] }), 'bytes are counted, not characters')
  t.end()
})

t.test('every claim is checked: each one changed in turn, under the right key, is refused', (t) => {
  const state = stateOf()
  const good = unseal(KEY, state.seal('s', BINDING)) as unknown as Record<string, unknown>
  t.equal(opens(state, seal(KEY, good)), 's')
  const now = NOW / 1000
  const bad: [string, unknown[], string][] = [
    ['v', [undefined, null, 0, 2, '1', true], 'version'],
    ['iat', [undefined, null, now + 61, String(now)], 'issued in the future'],
    ['exp', [undefined, null, now, now - 1, String(now + 600)], 'expired'],
    ['m', [undefined, null, 'resources/read', '', ['tools/call']], 'another call'],
    ['t', [undefined, null, 'other', '', ['delete']], 'another call'],
    ['a', [undefined, null, shortHash('{}'), '', 'x'], 'other arguments'],
    ['aud', [undefined, null, 'other', ''], 'another audience'],
    ['s', [undefined, null, 1, {}], 'another caller'],
    ['p', [undefined, null, 1, '', 'AAAA', principalClaim('bob'), principalClaim(''), `${good['p'] as string}AA`, [good['p']]], 'another caller']
  ]
  t.same(bad.map(([name]) => name).sort(), Object.keys(good).sort(), 'no claim is left out')
  for (const [name, values, why] of bad) {
    for (const value of values) refuses(t, state, seal(KEY, { ...good, [name]: value }), why)
  }
  for (const text of ['null', '[]', '"text"', '1']) refuses(t, state, sealText(KEY, text), 'claims are no object')
  for (const text of ['', '{', 'not json']) refuses(t, state, sealText(KEY, text), 'does not decrypt')
  t.end()
})

t.test('what is no token of this form is refused, another spelling of a good one too', (t) => {
  const state = stateOf()
  const token = state.seal('s', BINDING)
  const body = token.slice(3)
  for (const other of [undefined, 1, true, {}, [token], '', 'v1', body, `V1.${body}`, `v2.${body}`, ` ${token}`]) refuses(t, state, other, 'not a sealed state')
  const padded = body + '='.repeat((4 - body.length % 4) % 4 || 4)
  const alphabet = bytesOf(token).toString('base64')
  for (const other of ['', padded, `${body}\n`, `${body} `, ...(alphabet === body ? [] : [alphabet])]) refuses(t, state, `v1.${other}`, 'bad encoding')
  refuses(t, state, 'v1.' + bytesOf(token).subarray(0, 31).toString('base64url'), 'bad encoding')
  refuses(t, state, sealText(KEY, JSON.stringify(unseal(KEY, token)), 'v1:').replace('v1:', 'v1.'), 'does not decrypt', BINDING)
  for (let at = 0; at < bytesOf(token).length; at++) {
    const bytes = bytesOf(token)
    bytes[at]! ^= 1 << at % 8
    refuses(t, state, `v1.${bytes.toString('base64url')}`, at < 4 ? 'unknown key' : 'does not decrypt')
  }
  t.end()
})

t.test('equal arguments have one text, however deep they go', (t) => {
  t.equal(canonical({ b: [1, { d: null, c: 'x' }], a: true }), '{"a":true,"b":[1,{"c":"x","d":null}]}')
  t.equal(canonical({ a: undefined, b: [undefined] }), '{"b":[null]}')
  t.equal(canonical({ __proto__: null, 'ä"': '\u2028', 2: 0, 10: -0 }), '{"10":0,"2":0,"ä\\"":"\u2028"}')
  t.equal(canonical([]) + canonical({}) + canonical('') + canonical(undefined), '[]{}""null')

  const depth = 200_000
  const deep = JSON.parse(`${'['.repeat(depth)}1${']'.repeat(depth)}`)
  t.equal(canonical(deep), `${'['.repeat(depth)}1${']'.repeat(depth)}`)
  const state = stateOf()
  const binding = { ...BINDING, arguments: JSON.parse(`${'{"a":['.repeat(depth)}${']}'.repeat(depth)}`) }
  t.equal(opens(state, state.seal('s', binding), binding), 's')
  refuses(t, state, state.seal('s', BINDING), 'other arguments', binding)
  t.end()
})
