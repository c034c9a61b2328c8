// The official clients, each era and transport of them, against the same handlers: what comes out is the same.

import t from 'tap'
import type { Test } from 'tap'
import { Client as ClientV2, SSEClientTransport as SseV2, StreamableHTTPClientTransport as HttpV2 } from '@modelcontextprotocol/client'
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport as SseV1 } from '@modelcontextprotocol/sdk/client/sse.js'
import { StreamableHTTPClientTransport as HttpV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import type { Service, Setting } from '../field/wire.js'
import { serve } from '../field/wire.js'
import { createAsking, textOf } from './layer.js'
import type { Asking } from './layer.js'

const KEY = 'k'.repeat(32)
const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }
const INFO = { name: 'client', version: '1' }

/** Answers a question. What it throws, the client says to the server as its error. */
type Answer = (method: string, params: any) => unknown

interface Connected {
  /** Runs a method and gives the result, or the error as an object. */
  send (method: string, params: Record<string, unknown>): Promise<any>
  /** What the client was asked, in order. */
  asked: { method: string, message: unknown }[]
  version: string | undefined
}
type Connect = (t: Test, port: number, answer: Answer, capabilities?: object) => Promise<Connected>

function v2 (mode: object | undefined, sse = false): Connect {
  return async (t, port, answer, capabilities = CAPABILITIES) => {
    const { asked, take } = questions(answer)
    const client = new ClientV2(INFO, { capabilities, ...(mode && { versionNegotiation: mode as any }) })
    const can = (name: string): boolean => Object.hasOwn(capabilities, name)
    if (can('elicitation')) client.setRequestHandler('elicitation/create', async (request) => take(request) as any)
    if (can('sampling')) client.setRequestHandler('sampling/createMessage', async (request) => take(request) as any)
    if (can('roots')) client.setRequestHandler('roots/list', async (request) => take(request) as any)
    const transport = sse ? new SseV2(new URL(`http://127.0.0.1:${port}/sse`)) : new HttpV2(new URL(`http://127.0.0.1:${port}/mcp`))
    await client.connect(transport)
    t.teardown(() => client.close())
    const methods: Record<string, (params: any) => Promise<unknown>> = {
      'tools/call': (params) => client.callTool(params), 'prompts/get': (params) => client.getPrompt(params), 'resources/read': (params) => client.readResource(params)
    }
    return { asked, version: client.getNegotiatedProtocolVersion(), send: (method, params) => outcome(methods[method]!(params)) }
  }
}

function v1 (sse = false): Connect {
  return async (t, port, answer, capabilities = CAPABILITIES) => {
    const { asked, take } = questions(answer)
    const client = new ClientV1(INFO, { capabilities })
    const can = (name: string): boolean => Object.hasOwn(capabilities, name)
    if (can('elicitation')) client.setRequestHandler(ElicitRequestSchema, async (request) => take(request) as any)
    if (can('sampling')) client.setRequestHandler(CreateMessageRequestSchema, async (request) => take(request) as any)
    if (can('roots')) client.setRequestHandler(ListRootsRequestSchema, async (request) => take(request) as any)
    const transport: any = sse ? new SseV1(new URL(`http://127.0.0.1:${port}/sse`)) : new HttpV1(new URL(`http://127.0.0.1:${port}/mcp`))
    await client.connect(transport)
    t.teardown(() => client.close())
    const methods: Record<string, (params: any) => Promise<unknown>> = {
      'tools/call': (params) => client.callTool(params), 'prompts/get': (params) => client.getPrompt(params), 'resources/read': (params) => client.readResource(params)
    }
    return { asked, version: sse ? '2025-11-25' : transport.protocolVersion, send: (method, params) => outcome(methods[method]!(params)) }
  }
}

function questions (answer: Answer) {
  const asked: Connected['asked'] = []
  return {
    asked,
    take: ({ method, params }: { method: string, params?: any }): unknown => {
      asked.push({ method, message: params?.message ?? params?.messages?.[0]?.content?.text })
      return answer(method, params)
    }
  }
}

async function outcome (work: Promise<unknown>): Promise<any> {
  try {
    return await work
  } catch (error) {
    const { code, message, data } = error as any
    return { error: { code, message, data } }
  }
}

const clients: Record<string, { connect: Connect, version: string }> = {
  'v2 pinned': { connect: v2({ mode: { pin: '2026-07-28' } }), version: '2026-07-28' },
  'v2 auto': { connect: v2({ mode: 'auto' }), version: '2026-07-28' },
  'v2 legacy': { connect: v2(undefined), version: '2025-11-25' },
  v1: { connect: v1(), version: '2025-11-25' },
  'v2 over SSE': { connect: v2(undefined, true), version: '2025-11-25' },
  'v1 over SSE': { connect: v1(true), version: '2025-11-25' }
}

const accept = (content?: object) => ({ action: 'accept', ...(content && { content }) })
const tool = (name: string, args: object = {}) => ['tools/call', { name, arguments: args }] as const
const model = (_method: string, { messages }: any) => ({ role: 'assistant', model: 'gpt', content: { type: 'text', text: `${messages[0].content.text}!` } })

/** Gives one answer after the other. */
function inTurn (...answers: unknown[]): () => Answer {
  return () => {
    const left = [...answers]
    return () => left.shift()
  }
}

interface Case {
  call: readonly [method: string, params: any]
  answer: () => Answer
  text: string
  /** How often the client is asked. */
  asked: number
}

const cases: Record<string, Case> = {
  'a form': { call: tool('name'), answer: inTurn(accept({ name: 'Ada', loud: true })), text: 'Hello ADA', asked: 1 },
  'a form with a default': { call: tool('name'), answer: inTurn(accept({ name: 'Ada' })), text: 'Hello Ada', asked: 1 },
  decline: { call: tool('name'), answer: inTurn({ action: 'decline' }), text: 'You said decline', asked: 1 },
  cancel: { call: tool('name'), answer: inTurn({ action: 'cancel' }), text: 'You said cancel', asked: 1 },
  'bad answers, then a good one': { call: tool('name'), answer: inTurn(accept({}), accept({ name: 'A' }), accept(), accept({ name: 'Ada' })), text: 'Hello Ada', asked: 4 },
  'two questions at once': {
    call: tool('both'),
    answer: () => (_method, { message }) => message === 'Which colour?' ? accept({ colour: 'blue' }) : accept({ name: 'Ada' }),
    text: '{"action":"accept","content":{"name":"Ada"}} {"action":"accept","content":{"colour":"blue"}}',
    asked: 2
  },
  'two at once, one of them answered badly': {
    call: tool('both'),
    answer: () => {
      const colours = ['green', 'red']
      return (_method, { message }) => message === 'Which colour?' ? accept({ colour: colours.shift()! }) : { action: 'decline' }
    },
    text: '{"action":"decline"} {"action":"accept","content":{"colour":"red"}}',
    asked: 3
  },
  'two rounds': { call: tool('twice', { what: 'disk' }), answer: inTurn(accept({ sure: true }), accept({ sure: true })), text: 'Deleted disk', asked: 2 },
  'two rounds, the second declined': { call: tool('twice', { what: 'disk' }), answer: inTurn(accept({ sure: true }), { action: 'decline' }), text: 'Kept after all', asked: 2 },
  'a page': { call: tool('page'), answer: inTurn(accept()), text: 'The page: accept', asked: 1 },
  'a page, declined': { call: tool('page'), answer: inTurn({ action: 'decline' }), text: 'The page: decline', asked: 1 },
  'the model': { call: tool('model', { question: 'Hello' }), answer: () => model, text: 'gpt: Hello!', asked: 1 },
  roots: { call: tool('roots'), answer: inTurn({ roots: [{ uri: 'file:///a', name: 'a' }, { uri: 'file:///b', name: 'b' }] }), text: 'a=file:///a b=file:///b', asked: 1 },
  'one of each kind at once': {
    call: tool('everything'),
    answer: () => (method, params) => method === 'elicitation/create' ? { action: 'decline' } : method === 'roots/list' ? { roots: [] } : model(method, params),
    text: 'decline gpt 0',
    asked: 3
  },
  'declared questions': {
    call: tool('declared', { file: 'a.txt' }),
    answer: () => (method) => method === 'roots/list' ? { roots: [{ uri: 'file:///a' }] } : accept({ sure: true }),
    text: 'Deleted a.txt of file:///a',
    asked: 2
  },
  'declared questions, declined': {
    call: tool('declared', { file: 'a.txt' }), answer: () => (method) => method === 'roots/list' ? { roots: [] } : { action: 'decline' }, text: 'Kept a.txt', asked: 2
  },
  'explicit rounds': {
    call: tool('explicit'), answer: () => (_method, { message }) => accept({ value: message }), text: '[{"action":"accept","content":{"value":"Step 1"}},{"action":"accept","content":{"value":"Step 2"}}]', asked: 2
  },
  'a prompt': { call: ['prompts/get', { name: 'brief', arguments: { topic: 'tea' } }], answer: inTurn(accept({ detail: 'its making' })), text: 'Write about tea: its making', asked: 1 },
  'a prompt, cancelled': { call: ['prompts/get', { name: 'brief', arguments: { topic: 'tea' } }], answer: inTurn({ action: 'cancel' }), text: 'Write about tea: cancel', asked: 1 },
  'a resource': { call: ['resources/read', { uri: 'ask://note' }], answer: inTurn(accept({ id: 7 })), text: 'Note 7', asked: 1 }
}
/** Cases whose handler runs once, also in 2026. */
const runsOnce = new Set(['declared questions', 'declared questions, declined'])

async function start (t: Test, options: CloudgMcpOptions = {}, setting: Setting = {}): Promise<Asking & { service: Service }> {
  const asking = createAsking()
  return { ...asking, service: await serve(t, { layer: asking.layer, requestState: { keys: [KEY] }, ...options }, setting) }
}

/** The client's fetch does not notice in time that the server has closed a connection that it kept. */
const unkept: Setting = { before: (app) => { app.addHook('onRequest', async (_request, reply) => { void reply.header('connection', 'close') }) } }

for (const [name, { connect, version }] of Object.entries(clients)) {
  t.test(`official client, ${name}: every question comes to the same end`, async (t) => {
    const { service, runs } = await start(t, { sse: true })
    let current: Answer = () => undefined
    const client = await connect(t, service.port, (method, params) => current(method, params))
    t.equal(client.version, version)
    for (const [what, { call: [method, params], answer, text, asked }] of Object.entries(cases)) {
      current = answer()
      client.asked.length = 0
      const before = runs['declared'] ?? 0
      const result = await client.send(method, params)
      t.equal(textOf(result), text, what)
      t.equal(client.asked.length, asked, `${what}: asked ${asked} times`)
      if (runsOnce.has(what)) t.equal(runs['declared']! - before, 1, `${what}: the handler runs once`)
    }
  })

  t.test(`official client, ${name}: what it did not declare is refused, and so is what it never answers well`, async (t) => {
    const { service } = await start(t, { sse: true })
    const bare = await connect(t, service.port, () => undefined, {})
    for (const [what, { call: [method, params] }] of Object.entries(cases)) {
      const { error } = await bare.send(method, params)
      t.match(error, version === '2026-07-28' ? { code: -32021, data: { requiredCapabilities: {} } } : { code: -32600, message: /did not declare the capability/ }, what)
    }
    t.same(bare.asked, [])
    const stubborn = await connect(t, service.port, () => accept({}))
    t.match(await stubborn.send(...tool('name')), { error: { code: -32603, message: /The call asked more than 8 times/ } })
    t.equal(stubborn.asked.length, 8)
  })
}

for (const name of ['v2 legacy', 'v1']) {
  t.test(`official client, ${name}: with resumable streams, and where answers are JSON and questions go on the stream of the session`, async (t) => {
    for (const options of [{ resumable: true }, { responseMode: 'auto' }, { responseMode: 'json' }] as const) {
      const { service } = await start(t, options)
      let current: Answer = () => undefined
      const client = await clients[name]!.connect(t, service.port, (method, params) => current(method, params))
      for (const what of ['a form', 'two questions at once', 'two rounds', 'declared questions', 'a prompt']) {
        const { call: [method, params], answer, text } = cases[what]!
        current = answer()
        // The client opens that stream in its own time.
        let result = await client.send(method, params)
        while (result.error?.message.includes('no back-channel')) result = await client.send(method, params)
        t.equal(textOf(result), text, `${JSON.stringify(options)} ${what}`)
      }
    }
  })

  t.test(`official client, ${name}: an error of its handler is the tool's error`, async (t) => {
    const { service } = await start(t)
    const client = await clients[name]!.connect(t, service.port, () => { throw new Error('nobody is here') })
    const result = await client.send(...tool('name'))
    t.equal(result.isError, true)
    t.match(textOf(result), /^The client could not answer: .*nobody is here/)
  })
}

for (const name of ['v2 pinned', 'v2 auto']) {
  t.test(`official client, ${name}: a restart of the server between the rounds is not noticed; the keys may have been rotated`, async (t) => {
    for (const keys of [[KEY], ['n'.repeat(32), KEY]]) {
      const first = await start(t, {}, unkept)
      const { port } = first.service
      let second: Asking | undefined
      const client = await clients[name]!.connect(t, port, async () => {
        if (second === undefined) {
          await first.service.app.close()
          second = await start(t, { requestState: { keys } }, { port })
        }
        return accept({ sure: true })
      })
      t.equal(textOf(await client.send(...tool('twice', { what: 'disk' }))), 'Deleted disk')
      t.same([first.runs['twice'], second?.runs['twice'], client.asked.length], [1, 2, 2])
    }
  })

  t.test(`official client, ${name}: without the keys of the first server the second one refuses`, async (t) => {
    const { service } = await start(t, {}, unkept)
    const { port } = service
    const client = await clients[name]!.connect(t, port, async () => {
      await service.app.close()
      await start(t, { requestState: {} }, { port })
      return accept({ sure: true })
    })
    t.match(await client.send(...tool('twice', { what: 'disk' })), { error: { code: -32602, message: /Invalid or expired requestState/, data: { reason: 'invalid_request_state' } } })
  })
}
