// Asking the client. In the handshake era a question is a live request, answered on the same session. In 2026 the run of
// the handler ends with `input_required`, the client retries with answers, and the handler runs again from its start: what
// was answered is then at hand. MCP 2026-07-28 "Multi round-trip requests"; 2025-11-25 "Elicitation", "Sampling", "Roots".

import { randomUUID } from 'node:crypto'
import type { Params, Result } from '../jsonrpc.js'
import { codes, isObject, RpcError } from '../jsonrpc.js'
import type { InputRequired, Question, QuestionMethod } from '../layer/ask.js'
import { isInputRequired } from '../layer/ask.js'
import { MissingCapabilityError, SuspendedError, TimeoutError, ToolError } from '../layer/errors.js'
import { identityOf } from '../principal.js'
import type { Call } from './call.js'
import { nameParam } from './methods/table.js'
import type { Binding } from './request-state.js'
import { canonical, digest, invalidState } from './request-state.js'
import type { Session } from './session.js'

const MAX_ROUNDS = 8

// ---- what the client can be asked

/** The client capabilities that a request needs. */
function neededFor (method: QuestionMethod, params: Params): Record<string, any> {
  if (method === 'roots/list') return { roots: {} }
  if (method === 'elicitation/create') return { elicitation: params.mode === 'url' ? { url: {} } : {} }
  const { tools, toolChoice, includeContext = 'none' } = params
  return { sampling: { ...((tools !== undefined || toolChoice !== undefined) && { tools: {} }), ...(includeContext !== 'none' && { context: {} }) } }
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
function canAsk (call: Call, method: QuestionMethod, params: Params): boolean {
  const { features } = call
  if (method === 'elicitation/create' && !(params.mode === 'url' ? features.elicitationUrl : features.elicitation)) return false
  return isDeclared(call.clientCapabilities, neededFor(method, params))
}

function requireAskable (call: Call, method: QuestionMethod, params: Params): void {
  if (canAsk(call, method, params)) return
  const needed = neededFor(method, params)
  if (call.era === 'modern') throw new MissingCapabilityError(needed)
  throw new RpcError(codes.invalidRequest, `Cannot send '${method}': the client did not declare the capability ${Object.keys(needed).join(', ')}`)
}

export function ask (call: Call, question: Question): Promise<unknown> {
  try {
    requireAskable(call, question.method, question.params)
    return call.era === 'modern' ? call.rounds.ask(question) : askLive(call, question)
  } catch (error) {
    return Promise.reject(error)
  }
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

  wait (id: string): Promise<Result> {
    return new Promise((resolve, reject) => { this.#waiting.set(id, { resolve, reject }) })
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

async function askLive (call: Call, { method, params, timeout = call.server.askTimeout, read }: Question): Promise<unknown> {
  const { session, signal } = call
  if (!call.hasOwnStream && !await session.reachable()) {
    throw new RpcError(codes.invalidRequest, `Cannot send '${method}': this transport context has no back-channel for server-initiated requests.`)
  }
  const id = `ask-${randomUUID()}`
  const answered = session.questions.wait(id)
  const response = await settled(call, session, id, signal, timeout, answered, { jsonrpc: '2.0', id, method, params })
  const value = read(response)
  if (value === undefined) throw new ToolError(`The client sent a malformed answer to '${method}'`)
  return value
}

/** Sends the question and waits for the answer, the end of the call, or the timeout; whichever it is leaves nothing behind. */
async function settled (call: Call, session: Session, id: string, signal: AbortSignal, timeout: number, answered: Promise<Result>, message: object): Promise<Result> {
  let timer: NodeJS.Timeout | undefined
  let onAbort: (() => void) | undefined
  try {
    const given = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new TimeoutError(`The client did not answer within ${timeout} ms`)), timeout)
      onAbort = () => reject(signal.reason instanceof Error ? signal.reason : new Error('The call was aborted'))
      if (signal.aborted) onAbort()
      else signal.addEventListener('abort', onAbort, { once: true })
    })
    const race = Promise.race([answered, given])
    await Promise.race([call.notify(message), race])
    return await race
  } finally {
    clearTimeout(timer)
    if (onAbort !== undefined) signal.removeEventListener('abort', onAbort)
    if (session.questions.forget(id)) void call.notify({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id, reason: 'No longer needed' } })
  }
}

// ---- 2026: rounds

interface Asked { question: Question, key: string, digest: string }
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
  readonly #given = new Map<string, Asked>()
  readonly #pending: (Asked & { reject: (error: Error) => void })[] = []
  /** Answers that this run has read: they go into the next state. */
  readonly #used: State['outcomes']
  #ending = false

  constructor (call: Call) {
    const { requestState, inputResponses } = call.params
    this.#call = call
    if (inputResponses !== undefined && !isObject(inputResponses)) throw new RpcError(codes.invalidParams, 'inputResponses must be an object')
    this.#responses = inputResponses ?? {}
    this.#state = requestState === undefined || requestState === null ? { outcomes: {}, asked: {}, round: 0 } : openState(call, requestState)
    this.#used = {}
  }

  get responses (): Readonly<Record<string, unknown>> { return this.#responses }
  get own (): unknown { return this.#state.own }
  get suspended (): boolean { return this.#ending }

  ask (question: Question): Promise<unknown> {
    const asked = this.#name(question)
    const answer = this.#answerTo(asked)
    if (answer !== undefined) return Promise.resolve(answer)
    return new Promise((_resolve, reject) => {
      this.#pending.push({ ...asked, reject })
      // Questions that are asked together, now or some microtasks later, go out together.
      if (this.#pending.length === 1) setImmediate(() => this.#suspend())
    })
  }

  #name (question: Question): Asked {
    const { method, params } = question
    const hash = digest(canonical([method, params]))
    const base = question.key ?? `${method.slice(0, method.indexOf('/'))}-${hash.slice(0, 8)}`
    let key = base
    for (let n = 2; this.#given.has(key); n++) key = `${base}#${n}`
    const asked = { question, key, digest: hash }
    this.#given.set(key, asked)
    return asked
  }

  #answerTo ({ question, key, digest }: Asked): unknown {
    const known = Object.hasOwn(this.#state.outcomes, key) ? this.#state.outcomes[key] : undefined
    let response: unknown
    if (known?.q === digest) response = known.r
    else if (this.#wasAsked(question, key, digest) && Object.hasOwn(this.#responses, key)) response = this.#responses[key]
    if (response === undefined) return undefined
    const value = question.read(response)
    if (value !== undefined) this.#used[key] = { q: digest, r: response }
    return value
  }

  /** An answer counts for the question that was asked. Without a state only a key that the handler chose can tell which that was. */
  #wasAsked (question: Question, key: string, digest: string): boolean {
    if (this.#state.round === 0) return question.key !== undefined
    return Object.hasOwn(this.#state.asked, key) && this.#state.asked[key] === digest
  }

  #suspend (): void {
    if (this.#call.ended) return
    this.#ending = true
    const error = new SuspendedError()
    this.#call.interrupt(error)
    for (const { reject } of this.#pending) reject(error)
  }

  /** The result that sends the pending questions out. */
  result (): Result {
    const requests = Object.fromEntries(this.#pending.map(({ key, question: { method, params } }) => [key, { method, params }]))
    const asked = Object.fromEntries(this.#pending.map(({ key, digest }) => [key, digest]))
    return this.#required(requests, asked, this.#state.own)
  }

  /** A handler's own `inputRequired()`: only what the client declared is asked for. */
  explicit ({ inputRequests = {}, requestState }: InputRequired): Result {
    const wanted = Object.entries(inputRequests)
    const allowed = wanted.filter(([, { method, params }]) => canAsk(this.#call, method, params))
    if (wanted.length > 0 && allowed.length === 0) {
      throw new MissingCapabilityError(Object.assign({}, ...wanted.map(([, { method, params }]) => neededFor(method, params))))
    }
    const requests = wanted.length === 0 ? undefined : Object.fromEntries(allowed)
    return this.#required(requests, {}, requestState)
  }

  #required (inputRequests: Record<string, unknown> | undefined, asked: State['asked'], own: unknown): Result {
    const round = this.#state.round + 1
    if (round > MAX_ROUNDS) throw new RpcError(codes.internalError, `The call asked more than ${MAX_ROUNDS} times`)
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
  // A state that is not ours is refused before anything runs.
  if (call.era === 'modern') call.openRounds()
  for (let round = 0; ; round++) {
    const result = await run()
    if (!isInputRequired(result)) return result as Exclude<T, InputRequired>
    if (call.era === 'modern') return call.rounds.explicit(result) as Exclude<T, InputRequired>
    if (round >= MAX_ROUNDS) throw new RpcError(codes.internalError, `The call asked more than ${MAX_ROUNDS} times`)
    call.answers = { responses: await answerAll(call, result), own: result.requestState }
  }
}

async function answerAll (call: Call, { inputRequests = {} }: InputRequired): Promise<Record<string, unknown>> {
  const wanted = Object.entries(inputRequests)
  const allowed = wanted.filter(([, { method, params }]) => canAsk(call, method, params))
  // Nothing of it can be asked: the refusal of the first says why.
  const asked = allowed.length === 0 ? wanted : allowed
  const answers = await Promise.all(asked.map(async ([key, { method, params }]) => [key, await ask(call, { method, params, read: (response) => response })] as const))
  return Object.fromEntries(answers)
}
