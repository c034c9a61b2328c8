// Compiled, never run: what handlers receive and may return, and the variables of a URI template.

import { expectTypeOf } from 'expect-type'
import * as z from 'zod'
import type { InferInput, InferOutput, JsonSchema, StandardSchemaV1 } from '../../lib/layer/schema.js'
import type { TemplateVars } from '../../lib/layer/uri-template.js'

const shape = { group: z.enum(['a', 'b']), limit: z.number().default(10), at: z.date().optional(), len: z.string().transform((s) => s.length) }
expectTypeOf<InferInput<typeof shape>>().toEqualTypeOf<{ group: 'a' | 'b', limit: number, at?: Date | undefined, len: number }>()
expectTypeOf<InferOutput<typeof shape>>().toEqualTypeOf<{ group: 'a' | 'b', limit?: number | undefined, at?: Date | undefined, len: string }>()

export const object = z.object(shape)
expectTypeOf<InferInput<typeof object>>().toEqualTypeOf<z.output<typeof object>>()
expectTypeOf<InferOutput<typeof object>>().toEqualTypeOf<z.input<typeof object>>()

export const union = z.discriminatedUnion('k', [z.object({ k: z.literal(1), a: z.string() }), z.object({ k: z.literal(2) })])
expectTypeOf<InferInput<typeof union>>().toEqualTypeOf<{ k: 1, a: string } | { k: 2 }>()
expectTypeOf<InferOutput<z.ZodArray<z.ZodNumber>>>().toEqualTypeOf<number[]>()

type Standard = StandardSchemaV1<{ n: string }, { n: number }>
expectTypeOf<InferInput<Standard>>().toEqualTypeOf<{ n: number }>()
expectTypeOf<InferOutput<Standard>>().toEqualTypeOf<{ n: string }>()

expectTypeOf<InferInput<JsonSchema>>().toEqualTypeOf<Record<string, any>>()
export const json = { type: 'object', properties: { a: { type: 'string' } } } as const
expectTypeOf<InferInput<typeof json>>().toEqualTypeOf<Record<string, any>>()
expectTypeOf<{ total: number }>().toExtend<InferOutput<typeof json>>()
expectTypeOf<number[]>().toExtend<InferOutput<typeof json>>()
expectTypeOf<InferInput<undefined>>().toEqualTypeOf<Record<string, never>>()

expectTypeOf<TemplateVars<'x://static'>>().toEqualTypeOf<{}>()
expectTypeOf<TemplateVars<'x://a/{id}'>>().toEqualTypeOf<{ id: string }>()
expectTypeOf<TemplateVars<'x://{region}/{+path}{?lang,page}{#part}'>>()
  .toEqualTypeOf<{ region: string, path: string, part: string, lang?: string, page?: string }>()
expectTypeOf<TemplateVars<'x://{customer-id}'>>().toEqualTypeOf<{ 'customer-id': string }>()
expectTypeOf<TemplateVars<string>>().toEqualTypeOf<Record<string, string>>()
