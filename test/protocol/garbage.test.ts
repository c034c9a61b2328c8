// Wrong types in every field of every method: each gets a clean answer, nothing counts as a crash of the server, and the
// connection goes on serving.

import t from 'tap'
import type { Test } from 'tap'
import fc from 'fast-check'
import { z } from 'zod'
import { createLayer } from '../../lib/layer/index.js'
import type { AppLayer } from '../../lib/layer/index.js'
import { ENV, initialize, INITIALIZED, modern, request } from '../kit.js'
import type { Connection } from './connection.js'
import { attach, connect, settled } from './connection.js'

const deepList: unknown = JSON.parse('['.repeat(20_000) + ']'.repeat(20_000))
const deepObject: unknown = JSON.parse('{"a":'.repeat(20_000) + '1' + '}'.repeat(20_000))

const GARBAGE: [name: string, value: unknown][] = [
  ['absent', undefined], ['null', null], ['true', true], ['false', false], ['0', 0], ['-1', -1], ['1.5', 1.5], ['1e308', 1e308], ['2^53', 2 ** 53],
  ['empty text', ''], ['text', 'x'], ['long text', 'y'.repeat(100_000)], ['NUL', '\0'], ['half a pair', '\ud800'], ['line ends', '\u2028\r\n'], ['template', '{a}%'],
  ['empty list', []], ['list', [1]], ['list of lists', [[], [[]]]], ['long list', Array(10_000).fill('x')], ['deep list', deepList],
  ['empty object', {}], ['object', { a: 1 }], ['deep object', deepObject], ['own __proto__', JSON.parse('{"__proto__":{"a":1},"constructor":1}')],
  ['posing as a list', { length: 5, 0: 'a' }], ['posing as a promise', { then: 1 }], ['with methods that are none', { toString: 1, valueOf: 2, toJSON: 3, hasOwnProperty: 4 }]
]

// What a caller's mistake may be answered with. -32603 is none of them.
const CALLERS_FAULT = new Set([-32600, -32601, -32602, -32002, -32022, -32021])

/** Fields of a request, by path; the values are good ones. */
const handshakeFields: Record<string, Record<string, unknown>> = {
  ping: { params: {}, 'params._meta': {}, 'params._meta.progressToken': 1 },
  'tools/list': { 'params.cursor': null },
  'tools/call': {
    'params.name': 'echo',
    'params.arguments': { text: 'a' },
    'params.arguments.text': 'a',
    'params.arguments.times': 1,
    'params.arguments.more': 1,
    'params._meta': {},
    'params._meta.progressToken': 1,
    'params.task': {},
    'params.inputResponses': {},
    'params.requestState': null
  },
  'resources/list': { 'params.cursor': null },
  'resources/templates/list': { 'params.cursor': null },
  'resources/read': { 'params.uri': 'x://y', 'params._meta': {} },
  'resources/subscribe': { 'params.uri': 'x://y' },
  'resources/unsubscribe': { 'params.uri': 'x://y' },
  'prompts/list': { 'params.cursor': null },
  'prompts/get': { 'params.name': 'greet', 'params.arguments': { name: 'a' }, 'params.arguments.name': 'a', 'params.arguments.style': 'b', 'params.arguments.other': '' },
  'completion/complete': {
    'params.ref': { type: 'ref/prompt', name: 'greet' },
    'params.ref.type': 'ref/prompt',
    'params.ref.name': 'greet',
    'params.ref.uri': 'x://of/{id}',
    'params.argument': { name: 'name', value: '' },
    'params.argument.name': 'name',
    'params.argument.value': '',
    'params.context': {},
    'params.context.arguments': {},
    'params.context.arguments.a': 'b'
  },
  'logging/setLevel': { 'params.level': 'info' }
}
const META = 'params._meta.io%modelcontextprotocol/'
const envelope = { [`${META}protocolVersion`]: '2026-07-28', [`${META}clientCapabilities`]: {}, [`${META}clientInfo`]: {}, [`${META}logLevel`]: 'debug', 'params._meta.progressToken': 1, 'params._meta': ENV }
const { ping: _ping, 'logging/setLevel': _level, 'resources/subscribe': _s, 'resources/unsubscribe': _u, ...common } = handshakeFields
const modernFields: Record<string, Record<string, unknown>> = {
  ...common,
  'server/discover': {},
  'subscriptions/listen': { 'params.notifications': {}, 'params.notifications.toolsListChanged': true, 'params.notifications.resourceSubscriptions': [], 'params.notifications.resourceSubscriptions.0': 'x://y' }
}
const initializeFields = {
  'params.protocolVersion': '2025-11-25', 'params.capabilities': {}, 'params.capabilities.elicitation': {}, 'params.capabilities.roots.listChanged': true, 'params.clientInfo': {}, 'params.clientInfo.name': 'x', 'params._meta': {}
}
const envelopeFields = { jsonrpc: '2.0', id: 1, method: 'ping', params: {} }

function put (target: Record<string, any>, path: string, value: unknown): void {
  const keys = path.split('.').map((key) => key.replaceAll('%', '.'))
  const last = keys.pop()!
  let at: any = target
  for (const key of keys) at = typeof at[key] === 'object' && at[key] !== null && at[key] !== deepList && at[key] !== deepObject ? at[key] : at[key] = {}
  if (value === undefined) delete at[last]
  else Object.defineProperty(at, last, { value, enumerable: true, configurable: true, writable: true })
}

function messageWith (base: object, fields: Record<string, unknown>, path: string, value: unknown): Record<string, any> {
  const message = structuredClone(base) as Record<string, any>
  for (const [other, good] of Object.entries(fields)) if (other !== path && !other.startsWith(`${path}.`)) put(message, other, structuredClone(good))
  put(message, path, value)
  return message
}

/** A copy that may be written to. What is nested too deep for that is taken as it is: nothing is put into it. */
function copyOf (value: unknown): unknown {
  return value === deepList || value === deepObject ? value : structuredClone(value)
}

function newLayer (): AppLayer {
  const layer = createLayer({ name: 'x', version: '1' })
  layer.tool('echo', { input: { text: z.string(), times: z.int().min(1).max(5).default(1) } }, ({ text }) => ({ length: text.length }))
  layer.tool('loose', { input: { type: 'object', properties: { list: { type: 'array', items: { type: 'string' }, uniqueItems: true } } } }, () => 'ok')
  layer.resource('x://y', {}, () => 'y')
  layer.resourceTemplate('x://of/{id}', { complete: { id: (prefix) => [prefix] } }, ({ id }) => id)
  layer.prompt('greet', { arguments: { name: { complete: (prefix, _ctx, known) => [prefix, ...Object.values(known)] }, style: z.enum(['b']).optional() } }, ({ name }) => name)
  return layer
}

const crashes: unknown[] = []
const log = { debug () {}, info () {}, warn () {}, error: (...args: unknown[]) => { crashes.push(args) } }

async function handshakeConnection (version = '2025-11-25'): Promise<Connection> {
  const connection = connect(newLayer(), { log })
  await connection.handle(initialize(version))
  await connection.handle(INITIALIZED)
  return connection
}

/** What is wrong with an answer; nothing when it is clean. */
function flaw (message: unknown, reply: any): string | undefined {
  if (reply === undefined) return undefined
  const sent = message as { id?: unknown } | null
  const id = typeof sent === 'object' && sent !== null && !Array.isArray(sent) ? sent.id : undefined
  if (reply.jsonrpc !== '2.0') return 'no jsonrpc'
  if (reply.id !== null && reply.id !== id) return 'answered under another id'
  if ('result' in reply) return Object.keys(reply).length === 3 && typeof reply.result === 'object' && reply.result !== null ? undefined : 'an odd result'
  const { code, message: text, data, ...rest } = reply.error ?? {}
  if (Object.keys(reply).length !== 3 || Object.keys(rest).length > 0) return 'more than an answer has'
  if (!CALLERS_FAULT.has(code)) return `code ${code}: ${text}`
  if (typeof text !== 'string' || text === '' || /\bat .*:\d+|node_modules|TypeError|undefined is not/.test(text.slice(0, 1000))) return `message ${text}`
  return data === null ? 'data that is null' : undefined
}

/** Handles a message; a listen that is open by then is left. */
async function exchange (connection: Connection, message: unknown): Promise<unknown> {
  const controller = new AbortController()
  const reply = connection.handle(message, { signal: controller.signal })
  const done = await Promise.race([reply.then(() => true), settled().then(() => false)])
  if (!done) controller.abort()
  return reply
}

async function tryAll (t: Test, connection: Connection, base: object, fields: Record<string, unknown>, method: string, alive: object): Promise<void> {
  for (const path of Object.keys(fields)) {
    for (const [name, value] of GARBAGE) {
      const message = messageWith(base, fields, path, value)
      const problem = flaw(message, await exchange(connection, message))
      if (problem !== undefined) t.fail(`${method}: ${path} = ${name}: ${problem}`)
    }
  }
  t.match(await connection.handle(alive), { result: {} }, `after ${method} the connection goes on`)
  t.same(crashes.splice(0), [], `and nothing of ${method} was a crash`)
}

t.test('every field of every handshake method', async (t) => {
  const connection = await handshakeConnection()
  for (const [method, fields] of Object.entries(handshakeFields)) {
    await tryAll(t, connection, { jsonrpc: '2.0', id: 'g', method }, { params: {}, ...fields }, method, request('tools/list'))
  }
  await tryAll(t, connection, { jsonrpc: '2.0' }, envelopeFields, 'the envelope', request('tools/list'))
})

t.test('every field of every 2026 method', async (t) => {
  const connection = connect(newLayer(), { log })
  await connection.handle(modern('server/discover'))
  for (const [method, fields] of Object.entries(modernFields)) {
    await tryAll(t, connection, modern(method, {}, 'g'), { ...envelope, ...fields }, method, modern('tools/list'))
  }
  t.equal(connection.server.changes.listens, 0)
})

t.test('every field of initialize, on a new connection each time', async (t) => {
  const { server } = connect(newLayer(), { log })
  for (const path of Object.keys(initializeFields)) {
    for (const [name, value] of GARBAGE) {
      const connection = attach(server)
      const message = messageWith({ jsonrpc: '2.0', id: 'g', method: 'initialize' }, initializeFields, path, value)
      const reply = await connection.handle(message)
      const problem = flaw(message, reply)
      if (problem !== undefined) t.fail(`initialize: ${path} = ${name}: ${problem}`)
      if ('error' in reply) await connection.handle(initialize())
      if (!('result' in await connection.handle(request('tools/list')))) t.fail(`initialize: ${path} = ${name}: nothing is served after it`)
      connection.session.close()
    }
  }
  t.same(crashes.splice(0), [])
})

t.test('every field of every notification, and of answers that nobody waits for', async (t) => {
  const notifications: Record<string, Record<string, unknown>> = {
    'notifications/initialized': { params: {} },
    'notifications/cancelled': { params: {}, 'params.requestId': 1, 'params.reason': '' },
    'notifications/progress': { 'params.progressToken': 1, 'params.progress': 1 },
    'notifications/roots/list_changed': { params: {} },
    'notifications/elicitation/complete': { 'params.elicitationId': 'x' }
  }
  for (const connection of [await handshakeConnection(), connect(newLayer(), { log })]) {
    for (const [method, fields] of Object.entries(notifications)) {
      for (const path of Object.keys(fields)) {
        for (const [name, value] of GARBAGE) {
          const reply = await connection.handle(messageWith({ jsonrpc: '2.0', method }, fields, path, value))
          if (reply !== undefined) t.fail(`${method}: ${path} = ${name} was answered`)
        }
      }
    }
    for (const [name, value] of GARBAGE) {
      if (value === undefined) continue
      for (const answer of [{ id: value, result: {} }, { id: 1, result: value }, { id: 1, error: value }, { id: 1, error: { code: value, message: value } }]) {
        if (await connection.handle({ jsonrpc: '2.0', ...answer }) !== undefined) t.fail(`an answer with ${name} was answered`)
      }
    }
  }
  t.same(crashes.splice(0), [])
})

t.test('garbage in batches', async (t) => {
  const { handle } = await handshakeConnection('2025-03-26')
  const batch = GARBAGE.filter(([name]) => name !== 'absent').map(([, value]) => value)
  const replies = await handle([...batch, request('ping', undefined, 'last')])
  t.equal(replies.length, batch.length + 1)
  for (const reply of replies.slice(0, -1)) t.match(reply, { id: null, error: { code: -32600 } })
  t.strictSame(replies.at(-1), { jsonrpc: '2.0', id: 'last', result: {} })
  t.same(crashes.splice(0), [])
})

// ---- at random, and the same at every run

const anyJson = fc.oneof({ weight: 5, arbitrary: fc.jsonValue({ maxDepth: 3 }) }, { weight: 1, arbitrary: fc.constantFrom(...GARBAGE.map(([, value]) => value)) })
const RUNS = { seed: 20260728, numRuns: 800 }

/** A message for one of the methods, with some fields left as they should be and others anything. */
function messages (table: Record<string, Record<string, unknown>>, base: (method: string) => Record<string, any>): fc.Arbitrary<Record<string, any>> {
  return fc.constantFrom(...Object.keys(table)).chain((method) => {
    const paths = Object.entries(table[method]!)
    return fc.record({
      fields: fc.tuple(...paths.map(([, good]) => fc.oneof(fc.constant(good), anyJson))),
      extra: fc.dictionary(fc.string({ maxLength: 10 }), anyJson, { maxKeys: 3 }),
      id: fc.oneof(fc.integer(), fc.string(), anyJson)
    }).map(({ fields, extra, id }) => {
      const message = structuredClone(base(method))
      message['params'] = { ...extra, ...message['params'] }
      paths.forEach(([path], at) => put(message, path, copyOf(fields[at])))
      message['id'] = id
      return message
    })
  })
}

async function survives (t: Test, connection: Connection, arbitrary: fc.Arbitrary<unknown>, alive: object): Promise<void> {
  await fc.assert(fc.asyncProperty(arbitrary, async (message) => {
    const reply = await exchange(connection, message)
    const problem = Array.isArray(reply) ? undefined : flaw(message, reply)
    if (problem !== undefined) throw new Error(problem)
    if (crashes.length > 0) throw new Error(`logged as a crash: ${String((crashes.splice(0) as any)[0][0]?.err?.stack)}`)
  }), RUNS)
  t.match(await connection.handle(alive), { result: {} }, 'the connection goes on')
}

t.test('messages at random, in the handshake era', async (t) => {
  await survives(t, await handshakeConnection(), messages(handshakeFields, (method) => ({ jsonrpc: '2.0', method, params: {} })), request('tools/list'))
})

t.test('messages at random, in 2026', async (t) => {
  const connection = connect(newLayer(), { log })
  await survives(t, connection, messages(modernFields, (method) => modern(method)), modern('tools/list'))
  await survives(t, connection, messages(Object.fromEntries(Object.entries(modernFields).map(([method, fields]) => [method, { ...envelope, ...fields }])), (method) => modern(method)), modern('tools/list'))
})

t.test('values at random where a message should be', async (t) => {
  await survives(t, await handshakeConnection('2025-03-26'), fc.oneof(anyJson, fc.array(anyJson, { maxLength: 5 })), request('tools/list'))
})
