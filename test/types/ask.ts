// Compiled, never run: what the answers to questions are typed as.

import { expectTypeOf } from 'expect-type'
import * as z from 'zod'
import type { ElicitResult, Root, SamplingResult } from '../../lib/layer/index.js'
import { createLayer, elicit, elicitUrl, listRoots, sample } from '../../lib/layer/index.js'

const layer = createLayer({ name: 'types', version: '1' })
const sure = { sure: z.boolean(), why: z.string().optional(), times: z.int().default(1) }
type Sure = ElicitResult<{ sure: boolean, why?: string | undefined, times: number }>

layer.tool('asks', {}, async (_args, ctx) => {
  const answer = await ctx.elicit('?', sure)
  expectTypeOf(answer).toEqualTypeOf<Sure>()
  if (answer.action === 'accept') expectTypeOf(answer.content.sure).toEqualTypeOf<boolean>()
  else expectTypeOf(answer.content).toEqualTypeOf<undefined>()
  expectTypeOf(await ctx.elicit('?', z.object(sure))).toEqualTypeOf<Sure>()
  expectTypeOf(await ctx.elicit('?', { type: 'object', properties: { a: { type: 'string' } } })).toEqualTypeOf<ElicitResult<Record<string, any>>>()
  expectTypeOf(await ctx.ask(elicit('?', sure))).toEqualTypeOf<Sure>()
  expectTypeOf(elicit('?', sure).read({})).toEqualTypeOf<Sure | undefined>()
  expectTypeOf(await ctx.listRoots()).toEqualTypeOf<Root[]>()
  expectTypeOf(await ctx.sample({ messages: [], maxTokens: 1 })).toEqualTypeOf<SamplingResult>()
})

layer.tool('declares', {
  input: { file: z.string() },
  inputs: {
    confirm: ({ file }) => {
      expectTypeOf(file).toEqualTypeOf<string>()
      return elicit(`Delete ${file}?`, sure)
    },
    page: elicitUrl('?', 'https://example.com'),
    model: () => sample({ messages: [], maxTokens: 1 }),
    roots: listRoots()
  }
}, (args, _ctx, inputs) => {
  expectTypeOf(args).toEqualTypeOf<{ file: string }>()
  expectTypeOf(inputs).toEqualTypeOf<{ confirm: Sure, page: ElicitResult<undefined>, model: SamplingResult, roots: Root[] }>()
})

layer.tool('declares_nothing', {}, (args, _ctx, inputs) => {
  expectTypeOf(args).toEqualTypeOf<Record<string, never>>()
  expectTypeOf(inputs).toEqualTypeOf<{}>()
})

// @ts-expect-error there is no such question
layer.tool('wrong_answer', { inputs: { roots: listRoots() } }, (_args, _ctx, { nothing }) => nothing)
// @ts-expect-error a question is made with elicit() and its like
layer.tool('no_question', { inputs: { roots: 1 } }, () => 1)
