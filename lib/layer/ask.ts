// Questions that a handler asks the client: what can be asked, what a good answer is, and what comes of it.
// How a question travels is the engine's business (CallPort.ask): a live request, or `input_required` and a retry.

import { z } from 'zod'
import { isObject } from '../jsonrpc.js'
import { InvalidArgumentsError, LayerError } from './errors.js'
import type { InferInput, JsonSchema, SchemaInput, Shape } from './schema.js'
import { compileInput } from './schema.js'

export type QuestionMethod = 'elicitation/create' | 'sampling/createMessage' | 'roots/list'

/** A question, as the engine carries it. */
export interface Question {
  readonly method: QuestionMethod
  readonly params: Record<string, unknown>
  /** Names the question across retries. @default made from what is asked */
  readonly key?: string | undefined
  /** ms to wait for an answer, where one is waited for. @default the server's `askTimeout` */
  readonly timeout?: number | undefined
  /** The answer, or nothing when it is malformed (and has to be asked for again). */
  read (response: unknown): unknown
}

export interface AskOptions {
  /** Names the question across retries; needed when its text changes from run to run. @default made from what is asked */
  key?: string
  /** ms to wait for an answer in the handshake era. @default the server's `askTimeout` */
  timeout?: number
}

export type ElicitResult<T = Record<string, unknown>> = { action: 'accept', content: T } | { action: 'decline' | 'cancel', content?: undefined }

export interface SamplingParams {
  messages: { role: 'user' | 'assistant', content: unknown }[]
  maxTokens: number
  systemPrompt?: string
  temperature?: number
  stopSequences?: string[]
  modelPreferences?: Record<string, unknown>
  includeContext?: 'none' | 'thisServer' | 'allServers'
  tools?: unknown[]
  toolChoice?: Record<string, unknown>
  metadata?: Record<string, unknown>
}

export interface SamplingResult { role: 'user' | 'assistant', content: any, model: string, stopReason?: string }
export interface Root { uri: string, name?: string }

function actionOf (response: unknown): 'accept' | 'decline' | 'cancel' | undefined {
  const action: unknown = isObject(response) ? response.action : undefined
  return action === 'accept' || action === 'decline' || action === 'cancel' ? action : undefined
}

// ---- elicitation

const kinds = new Set(['string', 'number', 'integer', 'boolean'])

function isChoice (schema: unknown): boolean {
  if (!isObject(schema)) return false
  const options: unknown = schema.oneOf ?? schema.anyOf
  return Array.isArray(options) && options.every((option) => isObject(option) && typeof option.const === 'string')
}

/** A form has one level of text, numbers, flags and choices: what every client can show. */
function isField (schema: unknown): boolean {
  if (!isObject(schema)) return false
  if (schema.type === 'array') return isObject(schema.items) && (isChoice(schema.items) || Array.isArray(schema.items.enum))
  if (isChoice(schema)) return true
  return kinds.has(schema.type) && schema.anyOf === undefined && schema.allOf === undefined
}

function formSchema (schema: SchemaInput): { json: JsonSchema, check: (value: unknown) => unknown } {
  // A plain shape refuses unknown keys in arguments; what a user's client adds to a form is only dropped.
  const open = isShape(schema) ? z.object(schema) : schema
  const compiled = compileInput(open, 'the schema of an elicitation')
  const { properties = {}, required } = compiled.json as { properties?: Record<string, unknown>, required?: unknown }
  for (const [name, field] of Object.entries(properties)) {
    if (!isField(field)) throw new LayerError(`an elicitation asks for text, numbers, booleans and choices only: '${name}' is none of them`)
  }
  return {
    // What clients know of a form's schema; keywords such as additionalProperties are not among it.
    json: { type: 'object', properties, ...(required !== undefined && { required }) },
    check: (value) => {
      const checked = compiled.check(value)
      if (checked instanceof Promise) throw new LayerError('the schema of an elicitation must not be async')
      return checked.ok ? checked.value : undefined
    }
  }
}

function isShape (schema: SchemaInput): schema is Shape {
  return !('~standard' in schema) && Object.values(schema).every((field) => isObject(field) && '_zod' in field)
}

const forms = new WeakMap<object, ReturnType<typeof formSchema>>()

/** A form for the user. `schema`: a flat zod shape or object, or JSON Schema of primitives. */
export function elicit<const S extends SchemaInput> (message: string, schema: S, options: AskOptions = {}): Ask<ElicitResult<InferInput<S>>> {
  let form = forms.get(schema)
  if (form === undefined) forms.set(schema, form = formSchema(schema))
  const { json, check } = form
  return {
    ...options,
    method: 'elicitation/create',
    params: { message, requestedSchema: json },
    read (response) {
      const action = actionOf(response)
      if (action !== 'accept') return action && { action }
      const content = check((response as { content?: unknown }).content ?? {})
      return content === undefined ? undefined : { action, content }
    }
  } as Ask<ElicitResult<InferInput<S>>>
}

/** Sends the user to a page, for what must not pass through the client. */
export function elicitUrl (message: string, url: string, options: AskOptions & { elicitationId?: string } = {}): Ask<ElicitResult<undefined>> {
  const { elicitationId, ...rest } = options
  return {
    ...rest,
    method: 'elicitation/create',
    params: { mode: 'url', message, url, ...(elicitationId !== undefined && { elicitationId }) },
    read (response) {
      const action = actionOf(response)
      return action && { action }
    }
  } as Ask<ElicitResult<undefined>>
}

/** A completion by the client's model. */
export function sample (params: SamplingParams, options: AskOptions = {}): Ask<SamplingResult> {
  return {
    ...options,
    method: 'sampling/createMessage',
    params: params as unknown as Record<string, unknown>,
    read: (response) => isObject(response) && typeof response.role === 'string' && response.content !== undefined ? response : undefined
  } as Ask<SamplingResult>
}

/** The directories that the client lets servers work in. */
export function listRoots (options: AskOptions = {}): Ask<Root[]> {
  return {
    ...options,
    method: 'roots/list',
    params: {},
    read: (response) => isObject(response) && Array.isArray(response.roots) && response.roots.every((root) => isObject(root) && typeof root.uri === 'string') ? response.roots : undefined
  } as Ask<Root[]>
}

declare const answer: unique symbol
/** A question and the type of its answer. */
export type Ask<T = unknown> = { read (response: unknown): T | undefined, readonly [answer]?: T } & Question

// ---- questions in a tool's spec

/** Asked before the handler runs: questions, or functions from the arguments to questions. `Q`: the answers that the handler gets. */
export type Inputs<Q, A = any> = { readonly [name in keyof Q]: Ask<Q[name]> | ((args: A) => Ask<Q[name]>) }

// ---- explicit rounds

export interface InputRequired {
  readonly resultType: 'input_required'
  readonly inputRequests?: Record<string, { method: QuestionMethod, params: Record<string, unknown> }>
  /** What the handler wants back with the answers; sealed on its way. */
  readonly requestState?: unknown
}

/** Ends a run of the handler with questions. It runs again with `ctx.inputResponses` and `ctx.requestState`. */
export function inputRequired ({ requests, state }: { requests?: Record<string, Question | { method: QuestionMethod, params?: Record<string, unknown> }>, state?: unknown }): InputRequired {
  if (requests === undefined && state === undefined) throw new InvalidArgumentsError('inputRequired() needs requests, state, or both')
  return {
    resultType: 'input_required',
    ...(requests && { inputRequests: Object.fromEntries(Object.entries(requests).map(([key, { method, params = {} }]) => [key, { method, params }])) }),
    ...(state !== undefined && { requestState: state })
  }
}

export function isInputRequired (value: unknown): value is InputRequired {
  return isObject(value) && value.resultType === 'input_required'
}
