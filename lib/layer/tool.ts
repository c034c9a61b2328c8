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
import type { CompiledSchema, InferInput, InferOutput, SchemaInput } from './schema.js'
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

/** Checks the arguments, runs the handler under its timeout, and makes the result. */
export async function runTool (tool: Tool, args: Record<string, unknown>, ctx: Context, started: number, limits: RunLimits): Promise<ToolResult | InputRequired> {
  const checking = tool.input.check(args)
  const checked = checking instanceof Promise ? await checking : checking
  if (!checked.ok) throw new InvalidArgumentsError(checked.issues)
  const timeout = tool.spec.timeout ?? limits.timeout
  const limited = timeout > 0 && timeout <= MAX_TIMEOUT
  const answers = tool.spec.inputs === undefined ? {} : await askAll(tool.spec.inputs, checked.value, ctx)
  const running: unknown = tool.handler(checked.value, ctx, answers)
  const value = running instanceof Promise ? await (limited ? within(timeout, running, tool.definition.name, ctx) : running) : await running
  if (isInputRequired(value)) return value
  const whole = asToolResult(value)
  const isError = whole?.isError ?? false
  // An error needs no structured content. Otherwise a declared output schema holds, whatever the handler returned.
  const checkable = tool.output !== undefined && !isError && (whole?.resultType ?? 'complete') === 'complete'
  let structured = whole === undefined ? value : whole.structuredContent
  if (checkable) structured = await checkOutput(tool, structured)
  // What a handler returned is its own: it may be returned again.
  const result: ToolResult = whole === undefined ? naturalResult(structured, tool.output !== undefined, limits.maxOutputChars) : copyOf(whole)
  const links = ctx.takeLinks()
  if (links !== undefined) result.content = [...result.content, ...links]
  result.isError = isError
  if (whole !== undefined && tool.output !== undefined) {
    if (isError) delete result.structuredContent
    else if (checkable) {
      result.structuredContent = structured
      // Clients that know no structured content read the text.
      if (result.content.length === 0) result.content = [mirror(structured, limits.maxOutputChars)]
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

async function checkOutput (tool: Tool, value: unknown): Promise<unknown> {
  const checking = tool.output!.check(value)
  const checked = checking instanceof Promise ? await checking : checking
  if (!checked.ok) throw new InvalidOutputError(tool.name, checked.issues)
  return checked.value
}

/** Fails after `ms` and aborts the call's signal; the work itself goes on until it looks at that, and holds no process. */
function within<T> (ms: number, work: Promise<T>, name: string, ctx: Context): Promise<T> {
  return new Promise((resolve, reject) => {
    const deadline = new Deadline(ms, () => {
      const error = new TimeoutError(`Tool ${name} timed out`)
      ctx.stop(error)
      reject(error)
    })
    afterTurn(deadline)
    work.then(
      (value) => { deadline.met(); resolve(value) },
      (error) => { deadline.met(); reject(error) }
    )
  })
}

class Deadline implements Lasting {
  readonly #ms: number
  readonly #late: () => void
  #timer: NodeJS.Timeout | undefined
  #over = false

  constructor (ms: number, late: () => void) {
    this.#ms = ms
    this.#late = late
  }

  lasts (): void {
    if (!this.#over) this.#timer = setTimeout(this.#late, this.#ms).unref()
  }

  met (): void {
    this.#over = true
    clearTimeout(this.#timer)
  }
}
