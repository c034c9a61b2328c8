// Asking the client. In the handshake era a question is a live request, answered on the same session. In 2026 the run of
// the handler ends with `input_required`, the client retries with answers, and the handler runs again from its start: what
// was answered is then at hand. MCP 2026-07-28 "Multi round-trip requests"; 2025-11-25 "Elicitation", "Sampling", "Roots".

import { randomUUID } from 'node:crypto'
import type { Params, Result } from '../jsonrpc.js'
import { codes, isObject, RpcError } from '../jsonrpc.js'
import type { InputRequired, Question, QuestionMethod } from '../layer/ask.js'
import { isInputRequired } from '../layer/ask.js'
import { LayerError, MissingCapabilityError, SuspendedError, TimeoutError, ToolError } from '../layer/errors.js'
import { identityOf } from '../principal.js'
import type { Call } from './call.js'
import { nameParam } from './methods/table.js'
import type { Binding } from './request-state.js'
import { canonical, digest, invalidState } from './request-state.js'

const MAX_ROUNDS = 8
// What timers can hold.
const MAX_TIMEOUT = 2 ** 31 - 1

interface Request { method: QuestionMethod, params: Params }

// ---- what the client can be asked

/** The client capabilities that a request needs. */
function neededFor ({ features }: Call, { method, params }: Request): Record<string, any> {
  if (method === 'roots/list') return { roots: {} }
  if (method === 'elicitation/create') return { elicitation: params.mode === 'url' ? { url: {} } : {} }
  const { tools, toolChoice, includeContext = 'none' } = params
  return {
    sampling: {
      ...((tools !== undefined || toolChoice !== undefined) && { tools: {} }),
      // Until it had a capability of its own it was part of sampling.
      ...(includeContext !== 'none' && features.samplingContext && { context: {} })
    }
  }
}

function isDeclared (declared: Record<string, any>, needed: Record<string, any>): boolean {
  return Object.entries(needed).every(([name, parts]) => {
    const has: unknown = declared[name]
    if (!isObject(has)) return false
    // `elicitation: {}` is the older way to say: forms.
    if (name === 'elicitation' && parts.url === undefined) return has.form !== undefined || has.url === undefined
    return Object.keys(parts).every((part) => isObject(has[part]))
  })
}

/** Was it declared, in a revision that knows it? */
function canAsk (call: Call, request: Request): boolean {
  const { method, params } = request
  const { features } = call
  if (method === 'elicitation/create' && !(params.mode === 'url' ? features.elicitationUrl : features.elicitation)) return false
  return isDeclared(call.clientCapabilities, neededFor(call, request))
}

function requireAskable (call: Call, request: Request): void {
  if (canAsk(call, request)) return
  const needed = neededFor(call, request)
  if (call.era === 'modern') throw new MissingCapabilityError(needed)
  throw new RpcError(codes.invalidRequest, `Cannot send '${request.method}': the client did not declare the capability ${Object.keys(needed).join(', ')}`)
}

/** The question as the revision of the call has it. */
function shaped ({ era, features }: Call, { method, params = {} }: { method: QuestionMethod, params?: Params }): Request {
  if (method !== 'elicitation/create') return { method, params }
  if (params.mode === 'url') {
    // Needed in 2025-11-25. 2026 has none, and a question that has another one in every run would never be answered.
    const { elicitationId = randomUUID(), ...rest } = params
    return { method, params: era === 'modern' ? rest : { ...rest, elicitationId } }
  }
  return { method, params: features.titledChoices ? params : { ...params, requestedSchema: withEnumNames(params.requestedSchema) } }
}

/** Before 2025-11-25 the titles of a choice stood beside its values. */
function withEnumNames (schema: unknown): unknown {
  if (!isObject(schema) || !isObject(schema.properties)) return schema
  const fields = Object.entries(schema.properties).map(([name, field]) => {
    if (!isObject(field) || !Array.isArray(field.oneOf)) return [name, field]
    const { oneOf, ...rest } = field
    return [name, { ...rest, type: 'string', enum: oneOf.map((one) => one?.const), enumNames: oneOf.map((one) => one?.title ?? one?.const) }]
  })
  return { ...schema, properties: Object.fromEntries(fields) }
}

export function ask (call: Call, question: Question): Promise<unknown> {
  const answer = attempt(call, question)
  // Whoever asked may wait for it no longer, and the end of a call ends all its questions.
  answer.catch(() => {})
  return answer
}

async function attempt (call: Call, question: Question): Promise<unknown> {
  if (call.over !== undefined) throw call.over
  const request = shaped(call, question)
  if (call.era === 'handshake') {
    if (call.session.isStateless) throw noChannel(request.method)
    requireAskable(call, request)
    return askLive(call, request, question)
  }
  if (!call.hasRounds) throw new RpcError(codes.invalidRequest, `Cannot ask '${request.method}': ${call.method} has no way to answer with questions`)
  requireAskable(call, request)
  return call.rounds.ask(request, question)
}

function tooOften (): RpcError {
  return new RpcError(codes.internalError, `The call asked more than ${MAX_ROUNDS} times`)
}

// ---- handshake era: live requests

interface Waiting { resolve: (response: Result) => void, reject: (error: Error) => void }

/** Questions of one session that wait for their answers. */
export class Questions {
  readonly #waiting = new Map<string, Waiting>()

  get size (): number { return this.#waiting.size }

  /** Takes the client's response. False when it answers none of these questions. */
  settle ({ id, result, error }: Params): boolean {
    const waiting = this.#waiting.get(id)
    if (waiting === undefined) return false
    this.#waiting.delete(id)
    if (isObject(error)) waiting.reject(new ToolError(`The client could not answer: ${typeof error.message === 'string' ? error.message : 'no reason given'}`))
    else waiting.resolve(result)
    return true
  }

  wait (id: string, waiting: Waiting): void {
    this.#waiting.set(id, waiting)
  }

  forget (id: string): boolean {
    return this.#waiting.delete(id)
  }

  rejectAll (error: Error): void {
    const all = [...this.#waiting.values()]
    this.#waiting.clear()
    for (const { reject } of all) reject(error)
  }
}

function noChannel (method: QuestionMethod): RpcError {
  return new RpcError(codes.invalidRequest, `Cannot send '${method}': this transport context has no back-channel for server-initiated requests.`)
}

/** A malformed answer is asked for again, as often as in 2026. */
async function askLive (call: Call, request: Request, { timeout = call.server.askTimeout, read }: Question): Promise<unknown> {
  for (let asked = 0; asked < MAX_ROUNDS; asked++) {
    if (!call.hasOwnStream && !await call.session.reachable()) throw noChannel(request.method)
    const value = read(await responseTo(call, request, timeout))
    if (value !== undefined) return value
  }
  throw tooOften()
}

/** Sends a request and waits for its response, the end of the call, or the timeout; whichever it is leaves nothing behind. */
function responseTo (call: Call, { method, params }: Request, timeout: number): Promise<Result> {
  const { signal, session: { questions } } = call
  const id = `ask-${randomUUID()}`
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
      stay()
    }
    const giveUp = (reason: Error): void => {
      leave()
      if (questions.forget(id)) void call.question({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id, reason: 'No longer needed' } })
      reject(reason)
    }
    const onAbort = (): void => giveUp(signal.reason as Error)
    const timer = setTimeout(() => giveUp(new TimeoutError(`The client did not answer within ${timeout} ms`)), Math.min(timeout, MAX_TIMEOUT))
    const stay = call.untilOver(giveUp)
    questions.wait(id, {
      resolve: (response) => { leave(); resolve(response) },
      reject: (error) => { leave(); reject(error) }
    })
    if (signal.aborted) return onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    void call.question({ jsonrpc: '2.0', id, method, params })
  })
}

// ---- 2026: rounds

interface Asked { request: Request, question: Question, key: string, digest: string }
/** What travels in the sealed state. */
interface State {
  /** Answers of earlier rounds, by key, with the digest of their question. */
  outcomes: Record<string, { q: string, r: unknown }>
  /** Digests of the questions of the last round. */
  asked: Record<string, string>
  round: number
  /** The handler's own. */
  own?: unknown
}

/** The rounds of one 2026 call: what has been answered, and what has to be asked now. */
export class Rounds {
  readonly #call: Call
  readonly #state: State
  readonly #responses: Record<string, unknown>
  /** Keys that this run has asked under. */
  readonly #given = new Set<string>()
  #pending: (Asked & { reject: (error: Error) => void })[] = []
  /** Answers that have been read: they go into the next state. */
  readonly #used: State['outcomes'] = {}

  constructor (call: Call) {
    const { requestState, inputResponses } = call.params
    this.#call = call
    if (inputResponses !== undefined && !isObject(inputResponses)) throw new RpcError(codes.invalidParams, 'inputResponses must be an object')
    this.#responses = inputResponses ?? {}
    this.#state = requestState === undefined || requestState === null ? { outcomes: {}, asked: {}, round: 0 } : openState(call, requestState)
  }

  get responses (): Readonly<Record<string, unknown>> { return this.#responses }
  get own (): unknown { return this.#state.own }

  ask (request: Request, question: Question): Promise<unknown> {
    const asked = this.#name(request, question)
    const answer = this.#answerTo(asked)
    if (answer !== undefined) return Promise.resolve(answer)
    return new Promise((_resolve, reject) => {
      this.#pending.push({ ...asked, reject })
      this.#call.untilOver(reject)
      // Questions that are asked together, now or some microtasks later, go out together.
      if (this.#pending.length === 1) setImmediate(() => this.#suspend())
    })
  }

  /** Another run begins: it asks under the same keys, and what the last one asked is no longer of interest. */
  restart (): void {
    const left = this.#pending
    this.#pending = []
    this.#given.clear()
    for (const { reject } of left) reject(new LayerError('Another run of the call has begun'))
  }

  #name (request: Request, question: Question): Asked {
    const { method, params } = request
    const hash = digest(canonical([method, params]))
    const base = question.key ?? `${method.slice(0, method.indexOf('/'))}-${hash.slice(0, 8)}`
    let key = base
    for (let n = 2; this.#given.has(key); n++) key = `${base}#${n}`
    this.#given.add(key)
    return { request, question, key, digest: hash }
  }

  /** What the client answers now goes before what it answered in an earlier round. */
  #answerTo (asked: Asked): unknown {
    const { question, key, digest } = asked
    const known = Object.hasOwn(this.#state.outcomes, key) ? this.#state.outcomes[key] : undefined
    const given = this.#wasAsked(asked) && Object.hasOwn(this.#responses, key) ? this.#responses[key] : undefined
    for (const response of [given, known?.q === digest ? known.r : undefined]) {
      const value = response === undefined ? undefined : question.read(response)
      if (value === undefined) continue
      this.#used[key] = { q: digest, r: response }
      return value
    }
    return undefined
  }

  /** An answer counts for the question that was asked. Without a state only a key that the handler chose can tell which that was. */
  #wasAsked ({ question, key, digest }: Asked): boolean {
    if (this.#state.round === 0) return question.key !== undefined
    return Object.hasOwn(this.#state.asked, key) && this.#state.asked[key] === digest
  }

  #suspend (): void {
    if (this.#call.over !== undefined || this.#pending.length === 0) return
    const error = new SuspendedError()
    this.#call.suspend(error)
    for (const { reject } of this.#pending) reject(error)
  }

  /** The result that sends the pending questions out. */
  result (): Result {
    const requests = Object.fromEntries(this.#pending.map(({ key, request }) => [key, request]))
    const asked = Object.fromEntries(this.#pending.map(({ key, digest }) => [key, digest]))
    return this.#required(requests, asked, this.#state.own)
  }

  /** A handler's own `inputRequired()`: only what the client declared is asked for. */
  explicit ({ inputRequests = {}, requestState }: InputRequired): Result {
    const wanted = Object.entries(inputRequests).map(([key, request]) => [key, shaped(this.#call, request)] as const)
    const allowed = wanted.filter(([, request]) => canAsk(this.#call, request))
    if (wanted.length > 0 && allowed.length === 0) {
      throw new MissingCapabilityError(Object.assign({}, ...wanted.map(([, request]) => neededFor(this.#call, request))))
    }
    const requests = wanted.length === 0 ? undefined : Object.fromEntries(allowed)
    return this.#required(requests, {}, requestState)
  }

  #required (inputRequests: Record<string, unknown> | undefined, asked: State['asked'], own: unknown): Result {
    const round = this.#state.round + 1
    if (round > MAX_ROUNDS) throw tooOften()
    const state: State = { outcomes: { ...this.#state.outcomes, ...this.#used }, asked, round, ...(own !== undefined && { own }) }
    return {
      resultType: 'input_required',
      ...(inputRequests !== undefined && { inputRequests }),
      requestState: this.#call.server.requestState.seal(JSON.stringify(state), bindingOf(this.#call))
    }
  }
}

function bindingOf ({ method, params, principal }: Call): Binding {
  const target: unknown = params[nameParam(method) ?? 'name']
  return { principal: identityOf(principal), method, target: typeof target === 'string' ? target : '', arguments: params.arguments ?? {} }
}

function openState (call: Call, token: unknown): State {
  const text = call.server.requestState.open(token, bindingOf(call), (why) => call.log.debug({ why }, 'a requestState was refused'))
  const state: unknown = JSON.parse(text)
  if (!isObject(state) || !isObject(state.outcomes) || !isObject(state.asked)) throw invalidState()
  return state as unknown as State
}

// ---- a handler that returns inputRequired()

/**
 * Runs a call that may end with questions of its own. 2026: they are the result. Handshake era: they are asked live, and the
 * handler runs again with the answers.
 */
export async function withRounds<T> (call: Call, run: () => T | Promise<T>): Promise<Exclude<T, InputRequired>> {
  call.openRounds()
  const result = await run()
  return isInputRequired(result) ? moreRounds(call, result, run) : result as Exclude<T, InputRequired>
}

/** The same from where a first run has come to its end. */
export async function moreRounds<T> (call: Call, result: InputRequired, run: () => T | Promise<T>): Promise<Exclude<T, InputRequired>> {
  for (let round = 0; ; round++) {
    if (call.era === 'modern') return call.rounds.explicit(result) as Exclude<T, InputRequired>
    if (round >= MAX_ROUNDS) throw tooOften()
    // What comes back is what would have come through the client: JSON.
    const own: unknown = result.requestState === undefined ? undefined : JSON.parse(JSON.stringify(result.requestState))
    call.answers = { responses: await answerAll(call, result), own }
    const next = await run()
    if (!isInputRequired(next)) return next as Exclude<T, InputRequired>
    result = next
  }
}

async function answerAll (call: Call, { inputRequests = {} }: InputRequired): Promise<Record<string, unknown>> {
  const wanted = Object.entries(inputRequests)
  const allowed = wanted.filter(([, request]) => canAsk(call, shaped(call, request)))
  // Nothing of it can be asked: the refusal of the first says why.
  const asked = allowed.length === 0 ? wanted : allowed
  const answers = await Promise.all(asked.map(async ([key, { method, params }]) => [key, await ask(call, { method, params, read: (response) => response })] as const))
  return Object.fromEntries(answers)
}
