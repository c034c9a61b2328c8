// A tool: its spec, what clients see of it, and one run of it (arguments in, result out).

import { performance } from 'node:perf_hooks'
import { InvalidNameError } from '../errors.js'
import { copyOf } from '../runtime/copy.js'
import type { Lasting } from '../runtime/turn.js'
import { afterTurn } from '../runtime/turn.js'
import type { AccessRules } from './access.js'
import type { ContentBlock, ToolResult } from './content.js'
import { asToolResult, mirror, naturalResult } from './content.js'
import type { InputRequired, Inputs } from './ask.js'
import { isInputRequired } from './ask.js'
import type { Context } from './context.js'
import { InvalidArgumentsError, InvalidOutputError, TimeoutError } from './errors.js'
import type { HeaderParam } from './header-params.js'
import { headerParams } from './header-params.js'
import type { Checked, CompiledSchema, InferInput, InferOutput, SchemaInput } from './schema.js'
import { compileInput, compileOutput } from './schema.js'

export interface Icon { src: string, mimeType?: string, sizes?: string[], theme?: 'light' | 'dark' }

export interface ToolAnnotations {
  title?: string
  readOnlyHint?: boolean
  destructiveHint?: boolean
  idempotentHint?: boolean
  openWorldHint?: boolean
}

export interface ToolSpec<I extends SchemaInput | undefined = any, O extends SchemaInput | undefined = any, Q = any> extends AccessRules<ToolSpec> {
  title?: string
  description?: string
  /** A zod shape, a zod or Standard Schema object, or JSON Schema 2020-12. @default no arguments */
  input?: I
  /** Checked against what the handler returns. @default unchecked */
  output?: O
  annotations?: ToolAnnotations
  /** Questions to the client that are answered before the handler runs, once; or functions from the arguments to such. */
  inputs?: Inputs<Q, InferInput<I>>
  icons?: Icon[]
  /** Longest run in ms; 0 for no limit. @default the layer's `timeout` (300 000) */
  timeout?: number
  _meta?: Record<string, unknown>
}

// What a handler may always return is spelled out, so that literals in it have a type before the schemas are known.
type Returned<O> = ToolResult | InputRequired | ContentBlock | ContentBlock[] | Natural<O>
type Natural<O> = [O] extends [never] ? unknown : [O] extends [SchemaInput] ? (unknown extends O ? unknown : InferOutput<O>) : unknown
export type ToolReturn<O> = Returned<O> | Promise<Returned<O>>
export type ToolHandler<I = any, O = any, Q = any> = (args: InferInput<I>, ctx: Context, inputs: Q) => ToolReturn<O>

/** A tool as lists show it. */
export interface ToolDefinition {
  name: string
  description: string
  inputSchema: Record<string, unknown>
  outputSchema?: Record<string, unknown>
  annotations?: ToolAnnotations
  title?: string
  icons?: Icon[]
  _meta?: Record<string, unknown>
}

export interface Tool {
  /** As registered, without the layer's prefix. */
  readonly name: string
  readonly spec: ToolSpec
  readonly definition: ToolDefinition
  readonly input: CompiledSchema
  readonly output: CompiledSchema | undefined
  readonly headers: readonly HeaderParam[]
  readonly handler: ToolHandler
}

export const NAME = /^[A-Za-z0-9_.-]{1,128}$/
// Several clients and model APIs withhold tools whose names go beyond this (SEP-986 allows more).
const PORTABLE_NAME = /^[A-Za-z0-9_-]{1,64}$/

export function checkName (kind: 'tool' | 'prompt', name: unknown): asserts name is string {
  if (typeof name !== 'string' || !NAME.test(name)) throw new InvalidNameError(kind, String(name))
}

export function defineTool (name: string, exposed: string, spec: ToolSpec, handler: ToolHandler): Tool {
  checkName('tool', name)
  checkName('tool', exposed)
  if (!PORTABLE_NAME.test(exposed)) {
    process.emitWarning(`The tool name '${exposed}' is valid MCP, but some clients accept only 1 to 64 of A-Z a-z 0-9 _ -`, { code: 'CLOUDG_MCP_WARN_TOOL_NAME' })
  }
  const what = `tool '${name}'`
  const input = compileInput(spec.input, what)
  const output = spec.output === undefined ? undefined : compileOutput(spec.output, what)
  const { title, description, annotations, icons, _meta } = spec
  return {
    name,
    spec,
    input,
    output,
    handler,
    headers: headerParams(input.json, what),
    definition: {
      name: exposed,
      description: description ?? '',
      inputSchema: input.json,
      ...(output && { outputSchema: output.json }),
      ...(annotations && { annotations }),
      ...(title !== undefined && { title }),
      ...(icons && { icons }),
      ...(_meta && { _meta })
    }
  }
}

// What a timer can hold: 24 days. Beyond it Node's fires at once.
const MAX_TIMEOUT = 2 ** 31 - 1

export interface RunLimits { timeout: number, maxOutputChars: number }

// An async function costs what it keeps while it waits: what comes before and after that is in functions of its own.

/** Checks the arguments, runs the handler under its timeout, and makes the result. */
export async function runTool (tool: Tool, args: Record<string, unknown>, ctx: Context, started: number, limits: RunLimits): Promise<ToolResult | InputRequired> {
  const deadline = new Deadline(tool.spec.timeout ?? limits.timeout, tool.definition.name, ctx)
  let value: unknown
  try {
    value = await begin(tool, args, ctx, deadline)
  } finally {
    deadline.met()
  }
  return isInputRequired(value) ? value : resultOf(tool, value, ctx, started, limits)
}

function begin (tool: Tool, args: Record<string, unknown>, ctx: Context, deadline: Deadline): unknown {
  const checking = tool.input.check(args)
  if (checking instanceof Promise || tool.spec.inputs !== undefined) return beginLater(tool, checking, ctx, deadline)
  return handle(tool, valueOf(checking), {}, ctx, deadline)
}

async function beginLater (tool: Tool, checking: Checked | Promise<Checked>, ctx: Context, deadline: Deadline): Promise<unknown> {
  const args = valueOf(await checking)
  const answers = tool.spec.inputs === undefined ? {} : await askAll(tool.spec.inputs, args, ctx)
  return handle(tool, args, answers, ctx, deadline)
}

function valueOf (checked: Checked): unknown {
  if (!checked.ok) throw new InvalidArgumentsError(checked.issues)
  return checked.value
}

function handle (tool: Tool, args: unknown, answers: Record<string, unknown>, ctx: Context, deadline: Deadline): unknown {
  const running: unknown = tool.handler(args, ctx, answers)
  return running instanceof Promise ? deadline.watch(running) : running
}

/** What a handler returned as a result. A declared output schema holds, whatever that was, unless it is an error. */
function resultOf (tool: Tool, value: unknown, ctx: Context, started: number, limits: RunLimits): ToolResult | Promise<ToolResult> {
  const whole = asToolResult(value)
  const structured = whole === undefined ? value : whole.structuredContent
  const checkable = tool.output !== undefined && whole?.isError !== true && (whole?.resultType ?? 'complete') === 'complete'
  if (!checkable) return complete(tool, whole, structured, false, ctx, started, limits)
  const checking = tool.output!.check(structured)
  const finish = (checked: Checked): ToolResult => {
    if (!checked.ok) throw new InvalidOutputError(tool.name, checked.issues)
    return complete(tool, whole, checked.value, true, ctx, started, limits)
  }
  return checking instanceof Promise ? checking.then(finish) : finish(checking)
}

function complete (tool: Tool, whole: ToolResult | undefined, structured: unknown, checked: boolean, ctx: Context, started: number, { maxOutputChars }: RunLimits): ToolResult {
  const isError = whole?.isError ?? false
  // What a handler returned is its own: it may be returned again.
  const result: ToolResult = whole === undefined ? naturalResult(structured, tool.output !== undefined, maxOutputChars) : copyOf(whole)
  const links = ctx.takeLinks()
  if (links !== undefined) result.content = [...result.content, ...links]
  result.isError = isError
  if (whole !== undefined && tool.output !== undefined) {
    // An error needs no structured content.
    if (isError) delete result.structuredContent
    else if (checked) {
      result.structuredContent = structured
      // Clients that know no structured content read the text.
      if (result.content.length === 0) result.content = [mirror(structured, maxOutputChars)]
    }
  }
  const meta: Record<string, unknown> = result._meta === undefined ? {} : copyOf(result._meta)
  meta['cloudg/duration_ms'] ??= Math.round(performance.now() - started)
  result._meta = meta
  return result
}

/** Asks everything at once. */
async function askAll (inputs: Inputs<Record<string, unknown>>, args: unknown, ctx: Context): Promise<Record<string, unknown>> {
  const answers = Object.entries(inputs).map(async ([name, input]) => {
    const question = typeof input === 'function' ? input(args) : input
    return [name, await ctx.ask({ ...question, key: question.key ?? name })]
  })
  return Object.fromEntries(await Promise.all(answers))
}

/** Fails a call after `ms` and aborts its signal; the work itself goes on until it looks at that, and holds no process. */
class Deadline implements Lasting {
  readonly #ms: number
  readonly #name: string
  readonly #ctx: Context
  #fail: ((error: Error) => void) | undefined
  #timer: NodeJS.Timeout | undefined
  #over = false

  constructor (ms: number, name: string, ctx: Context) {
    this.#ms = ms
    this.#name = name
    this.#ctx = ctx
  }

  /** What becomes of the work, or of the deadline if that comes first. */
  watch<T> (work: Promise<T>): Promise<T> {
    if (this.#ms <= 0 || this.#ms > MAX_TIMEOUT) return work
    return new Promise((resolve, reject) => {
      this.#fail = reject
      afterTurn(this)
      work.then(resolve, reject)
    })
  }

  lasts (): void {
    if (!this.#over) this.#timer = setTimeout(() => this.#late(), this.#ms).unref()
  }

  #late (): void {
    const error = new TimeoutError(`Tool ${this.#name} timed out`)
    this.#ctx.stop(error)
    this.#fail!(error)
  }

  met (): void {
    this.#over = true
    clearTimeout(this.#timer)
  }
}
