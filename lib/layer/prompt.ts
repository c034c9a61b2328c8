// Prompts: specs, what clients see, and one rendering.

import type { z } from 'zod'
import type { AccessRules } from './access.js'
import type { InputRequired } from './ask.js'
import type { Completer } from './completion.js'
import type { PromptResult } from './content.js'
import { toPromptResult } from './content.js'
import type { Context } from './context.js'
import { InvalidArgumentsError } from './errors.js'
import { compileInput } from './schema.js'
import type { Icon } from './tool.js'
import { checkName } from './tool.js'

export interface PromptArgument {
  title?: string
  description?: string
  /** @default true, unless the schema admits its absence */
  required?: boolean
  /** How a value is checked and turned into what the handler gets. @default any text */
  schema?: z.ZodType
  complete?: Completer
}

export type PromptArguments = Record<string, z.ZodType | PromptArgument>

export interface PromptSpec<A extends PromptArguments = any> extends AccessRules<PromptSpec> {
  title?: string
  description?: string
  arguments?: A
  icons?: Icon[]
  _meta?: Record<string, unknown>
}

type ArgumentValue<T> =
  T extends z.ZodType<infer V> ? V
    : T extends { schema: z.ZodType<infer V> } ? V
      : T extends { required: false } ? string | undefined : string
export type PromptValues<A> = A extends PromptArguments ? { [name in keyof A]: ArgumentValue<A[name]> } : Record<string, never>
export type PromptHandler<A = any> = (args: PromptValues<A>, ctx: Context) => unknown

export interface PromptDefinition {
  name: string
  description: string
  arguments: { name: string, required: boolean, title?: string, description?: string }[]
  title?: string
  icons?: Icon[]
  _meta?: Record<string, unknown>
}

interface CheckedArgument { readonly name: string, readonly required: boolean, readonly schema: z.ZodType | undefined, readonly complete: Completer | undefined }

export interface Prompt {
  readonly name: string
  readonly spec: PromptSpec
  readonly definition: PromptDefinition
  readonly arguments: ReadonlyMap<string, CheckedArgument>
  readonly handler: PromptHandler
}

function isSchema (value: z.ZodType | PromptArgument): value is z.ZodType {
  return '_zod' in value
}

export function definePrompt (name: string, exposed: string, spec: PromptSpec, handler: PromptHandler): Prompt {
  checkName('prompt', name)
  checkName('prompt', exposed)
  const checked = new Map<string, CheckedArgument>()
  const shown: PromptDefinition['arguments'] = []
  for (const [argument, given] of Object.entries((spec.arguments ?? {}) as PromptArguments)) {
    const { schema, required, title, description, complete }: PromptArgument = isSchema(given) ? { schema: given } : given
    // Compiled for its refusals only: a schema that cannot be sent fails here, at registration.
    const json = schema === undefined ? undefined : compileInput({ [argument]: schema }, `prompt '${name}'`).json
    const listed = json?.required as string[] | undefined
    const needed = required ?? (json === undefined || listed?.includes(argument) === true)
    const about = description ?? (json?.properties as Record<string, { description?: string }> | undefined)?.[argument]?.description
    checked.set(argument, { name: argument, required: needed, schema, complete })
    shown.push({ name: argument, required: needed, ...(title !== undefined && { title }), ...(about !== undefined && { description: about }) })
  }
  const { title, description, icons, _meta } = spec
  return {
    name,
    spec,
    handler,
    arguments: checked,
    definition: {
      name: exposed,
      description: description ?? '',
      arguments: shown,
      ...(title !== undefined && { title }),
      ...(icons && { icons }),
      ...(_meta && { _meta })
    }
  }
}

/** Refuses before any middleware runs when a required argument is absent or empty. */
export function requireArguments (prompt: Prompt, args: Readonly<Record<string, unknown>>): void {
  const missing = [...prompt.arguments.values()]
    .filter(({ name, required }) => required && (!Object.hasOwn(args, name) || args[name] === undefined || args[name] === null || args[name] === ''))
    .map(({ name }) => name)
  if (missing.length > 0) throw new InvalidArgumentsError(`Missing required prompt arguments: ${missing.join(', ')}`)
}

/** Checks the arguments (unknown ones are dropped) and renders the prompt. */
export async function runPrompt (prompt: Prompt, args: Readonly<Record<string, unknown>>, ctx: Context): Promise<PromptResult | InputRequired> {
  const values: Record<string, unknown> = {}
  for (const { name, schema } of prompt.arguments.values()) {
    const given = Object.hasOwn(args, name) ? args[name] : undefined
    if (schema === undefined) {
      if (given !== undefined && typeof given !== 'string') throw new InvalidArgumentsError([{ loc: name, msg: 'Expected a string', type: 'string_type' }])
      if (given !== undefined) values[name] = given
      continue
    }
    const parsed = await schema.safeParseAsync(given)
    if (!parsed.success) {
      throw new InvalidArgumentsError(parsed.error.issues.map(({ path, message, code }) => ({ loc: [name, ...path].join('.'), msg: message, type: code ?? 'invalid' })))
    }
    values[name] = parsed.data
  }
  return toPromptResult(await prompt.handler(values as any, ctx), prompt.spec.description)
}
