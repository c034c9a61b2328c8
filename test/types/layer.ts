// Compiled, never run: what handlers of tools, prompts and templates get and may return, as an application writes them.

import { expectTypeOf } from 'expect-type'
import * as z from 'zod'
import { createLayer, elicit } from '../../lib/layer/index.js'
import type { AppLayer, Context, ElicitResult, Handle, PromptSpec, ResourceContents, ResourceSpec, TemplateSpec, ToolSpec } from '../../lib/layer/index.js'

const layer = createLayer({ name: 'x', version: '1' })
expectTypeOf(layer).toEqualTypeOf<AppLayer>()
// @ts-expect-error a layer has a version
createLayer({ name: 'x' })
// @ts-expect-error no such option
createLayer({ name: 'x', version: '1', pagesize: 5 })

// ---- tools: what the handler gets

layer.tool('shape', { input: { kind: z.enum(['a', 'b']), limit: z.number().default(5), at: z.string().optional() } }, (args, ctx) => {
  expectTypeOf(args).toEqualTypeOf<{ kind: 'a' | 'b', limit: number, at?: string | undefined }>()
  expectTypeOf(ctx).toEqualTypeOf<Context>()
})
layer.tool('object', { input: z.object({ n: z.string().transform(Number) }) }, ({ n }) => { expectTypeOf(n).toEqualTypeOf<number>() })
layer.tool('union', { input: z.discriminatedUnion('do', [z.object({ do: z.literal('add'), n: z.number() }), z.object({ do: z.literal('clear') })]) }, (args) => {
  expectTypeOf(args).toEqualTypeOf<{ do: 'add', n: number } | { do: 'clear' }>()
  if (args.do === 'add') expectTypeOf(args.n).toEqualTypeOf<number>()
})
layer.tool('json', { input: { type: 'object', properties: { a: { type: 'string' } } } }, (args) => { expectTypeOf(args).toEqualTypeOf<Record<string, any>>() })
layer.tool('none', {}, (args) => { expectTypeOf(args).toEqualTypeOf<Record<string, never>>() })
// @ts-expect-error the field is called `text`
layer.tool('typo', { input: { text: z.string() } }, ({ txet }) => txet)
// @ts-expect-error no such key
layer.tool('spec', { titel: 'x' }, () => 1)
// @ts-expect-error a hint is a boolean
layer.tool('hint', { annotations: { readOnlyHint: 'yes' } }, () => 1)

// ---- tools: what the handler may return

// Without an output schema: anything, now or later.
for (const value of [1, 'text', null, undefined, { a: [1] }, [], new Date(), Buffer.from('')]) layer.tool('any', {}, () => value)
layer.tool('void', {}, () => {})
layer.tool('promise', {}, () => new Promise((resolve) => { resolve('text') }))
layer.tool('promise-of-args', { input: { a: z.string() } }, ({ a }) => new Promise((resolve) => { resolve(a) }))
layer.tool('sometimes', {}, (_args, ctx) => ctx.era === 'modern' ? 'now' : Promise.resolve({ later: true }))

// With one: what the schema takes, a result, or content; literals need no `as const`.
const output = { total: z.number(), by: z.record(z.string(), z.number()), note: z.string().default('') }
layer.tool('value', { output }, () => ({ total: 1, by: { a: 1 } }))
layer.tool('later', { output }, async (_args, ctx) => {
  await ctx.progress(1)
  return { total: 1, by: {}, note: 'x' }
})
layer.tool('result', { output }, () => ({ content: [{ type: 'text', text: 'no' }], isError: true }))
layer.tool('result-later', { input: { a: z.string() }, output }, async ({ a }) => ({ content: [{ type: 'text', text: a }], structuredContent: { total: 1 }, _meta: { a: 1 } }))
layer.tool('blocks', { output }, () => [{ type: 'text', text: 'a' }, { type: 'image', data: '', mimeType: 'image/png' }])
layer.tool('mixed', { output }, (_args, ctx) => ctx.era === 'modern' ? { total: 1, by: {} } : { content: [{ type: 'text', text: 'no' }] })
layer.tool('list', { output: z.array(z.number()) }, () => [1, 2])
layer.tool('number', { output: z.number() }, async () => 1)
layer.tool('free', { output: { type: 'object' } }, () => ({ whatever: 1 }))
// @ts-expect-error a number is missing
layer.tool('missing', { output }, () => ({ by: {} }))
// @ts-expect-error text is no number
layer.tool('wrong', { output }, async () => ({ total: 'many', by: {} }))
// @ts-expect-error text alone is not what the schema promises
layer.tool('text', { output }, () => 'many')

// ---- tools: questions to the client

layer.tool('asks', { input: { id: z.string() }, inputs: { sure: ({ id }: { id: string }) => elicit(`Delete ${id}?`, { yes: z.boolean() }) } }, (_args, _ctx, { sure }) => {
  expectTypeOf(sure).toEqualTypeOf<ElicitResult<{ yes: boolean }>>()
  if (sure.action === 'accept') expectTypeOf(sure.content.yes).toEqualTypeOf<boolean>()
})
layer.tool('asks-in-between', {}, async (_args, ctx) => {
  const answer = await ctx.elicit('Who?', { name: z.string() })
  expectTypeOf(answer).toEqualTypeOf<ElicitResult<{ name: string }>>()
})

// ---- resources and templates

layer.resource('x://static', { mimeType: 'text/plain', size: 5 }, (uri, ctx) => {
  expectTypeOf(uri).toEqualTypeOf<string>()
  expectTypeOf(ctx.readResource('x://other')).toEqualTypeOf<Promise<ResourceContents[]>>()
  return 'text'
})
layer.resourceTemplate('x://{region}/{+path}{?lang}', { complete: { region: (prefix) => [prefix], path: async () => [1] } }, (variables, ctx, uri) => {
  expectTypeOf(variables).toEqualTypeOf<{ region: string, path: string, lang?: string }>()
  expectTypeOf(ctx).toEqualTypeOf<Context>()
  expectTypeOf(uri).toEqualTypeOf<string>()
})
// @ts-expect-error the template has no such variable
layer.resourceTemplate('x://{id}', { complete: { name: () => [] } }, () => '')
// @ts-expect-error nor here
layer.resourceTemplate('x://{id}', {}, ({ name }) => name)
// @ts-expect-error nor may it be exempt
layer.resourceTemplate('x://{id}', { anyValue: ['name'] }, () => '')
layer.resourceTemplate('x://{id}' as string, {}, (variables) => { expectTypeOf(variables).toEqualTypeOf<Record<string, string>>() })

// ---- prompts

layer.prompt('greet', {
  arguments: {
    name: { description: 'Who', complete: (prefix, _ctx, known) => [prefix, known['style'] ?? ''] },
    style: { required: false },
    times: z.coerce.number(),
    tone: { schema: z.enum(['warm', 'cold']).optional() }
  }
}, (args, ctx) => {
  expectTypeOf(args.name).toEqualTypeOf<string>()
  expectTypeOf(args.style).toEqualTypeOf<string | undefined>()
  expectTypeOf(args.times).toEqualTypeOf<number>()
  expectTypeOf(args.tone).toEqualTypeOf<'warm' | 'cold' | undefined>()
  expectTypeOf(ctx).toEqualTypeOf<Context>()
  return [{ role: 'user', content: { type: 'text', text: args.name } }]
})
// @ts-expect-error no such argument
layer.prompt('typo', { arguments: { name: {} } }, ({ nmae }) => nmae)
layer.prompt('none', {}, () => 'hi')

// ---- handles

const tool = layer.tool('handle', { input: { a: z.string() } }, ({ a }) => a)
expectTypeOf(tool.update).parameter(0).toExtend<Partial<ToolSpec>>()
tool.update({ title: 'New' })
// @ts-expect-error no such key
tool.update({ titel: 'New' })
expectTypeOf(layer.resource('x://handle', {}, () => '')).toEqualTypeOf<Handle<ResourceSpec>>()
expectTypeOf(layer.resourceTemplate('x://h/{id}', {}, () => '')).toEqualTypeOf<Handle<TemplateSpec<'id'>>>()
expectTypeOf(layer.prompt('handle', {}, () => '')).toExtend<Handle<PromptSpec>>()
