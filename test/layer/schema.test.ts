import t from 'tap'
import fc from 'fast-check'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import { cpSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import * as z from 'zod'
import * as z3 from 'zod/v3'
import { headerParams } from '../../lib/layer/header-params.js'
import { compileInput, compileOutput, describeIssues, type Checked, type JsonSchema, type SchemaInput } from '../../lib/layer/schema.js'

const INVALID_SCHEMA = 'CLOUDG_MCP_ERR_INVALID_SCHEMA'
const WHAT = "Tool 'x' input"

function input (schema: SchemaInput | undefined): { json: JsonSchema, check: (value: unknown) => Checked } {
  const { json, check } = compileInput(schema, WHAT)
  return { json, check: (value) => sync(check(value)) }
}

function output (schema: SchemaInput): { json: JsonSchema, check: (value: unknown) => Checked } {
  const { json, check } = compileOutput(schema, "Tool 'x' output")
  return { json, check: (value) => sync(check(value)) }
}

function sync (checked: Checked | Promise<Checked>): Checked {
  if (checked instanceof Promise) throw new Error('a promise where none is needed')
  return checked
}

function issues (checked: Checked): string {
  return checked.ok ? 'ok' : describeIssues(checked.issues)
}

/** What a client with a validator of its own makes of a result that was sent. */
const client = new Ajv2020({ strict: false })
addFormats.default(client)
function clientAccepts (json: JsonSchema, value: unknown): boolean {
  return client.validate(json, JSON.parse(JSON.stringify(value)))
}

/** Every $ref in a schema leads somewhere inside it. */
function refsResolve (root: JsonSchema): boolean {
  const targets: boolean[] = []
  JSON.stringify(root, (key, value) => {
    if (key === '$ref') targets.push(value.slice(2).split('/').reduce((node: any, part: string) => node?.[part], root) !== undefined)
    return value
  })
  return targets.every(Boolean)
}

t.test('no input schema takes no arguments', async (t) => {
  const { json, check } = input(undefined)
  t.same(json, { type: 'object', properties: {}, additionalProperties: false })
  t.same(check({}), { ok: true, value: {} })
  t.same(check(undefined), { ok: true, value: {} })
  t.same(check({ a: 1 }), { ok: false, issues: [{ loc: 'a', msg: 'Extra inputs are not permitted', type: 'extra_forbidden' }] })
  for (const value of [[], 'a', 1, true, null]) t.notOk(check(value).ok)
  t.same(input({}).json, json, 'an empty shape is the same')
})

t.test('a plain shape is strict; a zod object rules itself', async (t) => {
  const shape = { n: z.number(), s: z.string().default('d') }
  const strict = input(shape)
  t.same(strict.json, { type: 'object', properties: { n: { type: 'number' }, s: { type: 'string', default: 'd' } }, required: ['n'], additionalProperties: false })
  t.same(strict.check({ n: 1 }), { ok: true, value: { n: 1, s: 'd' } })
  t.same(strict.check({ n: 1, secret: 'hunter2', b: 0 }), {
    ok: false,
    issues: [
      { loc: 'secret', msg: 'Extra inputs are not permitted', type: 'extra_forbidden' },
      { loc: 'b', msg: 'Extra inputs are not permitted', type: 'extra_forbidden' },
    ],
  })
  t.same(input(z.object(shape)).check({ n: 1, b: 2 }), { ok: true, value: { n: 1, s: 'd' } })
  t.same(input(z.looseObject(shape)).check({ n: 1, b: 2 }), { ok: true, value: { n: 1, s: 'd', b: 2 } })
  t.equal(issues(input(z.strictObject(shape)).check({ n: 1, b: 2 })), 'b: Extra inputs are not permitted')
})

t.test('SCH-01 unions and intersections of objects have an object root; other roots are refused', async (t) => {
  const union = input(z.discriminatedUnion('action', [
    z.object({ action: z.literal('create'), n: z.number() }),
    z.object({ action: z.literal('delete'), id: z.string() }),
  ]))
  t.match(union.json, { type: 'object', properties: {}, oneOf: [{ type: 'object' }, { type: 'object' }] })
  t.same(union.check({ action: 'create', n: '3' }), { ok: true, value: { action: 'create', n: 3 } })
  t.same(union.check({ action: 'delete', id: '7' }), { ok: true, value: { action: 'delete', id: '7' } })
  t.equal(issues(union.check({ action: 'delete' })), 'id: Invalid input: expected string, received undefined')
  t.match(issues(union.check({ action: 'other' })), /^action: /)

  t.match(input(z.union([z.object({ a: z.string() }), z.object({ b: z.string() })])).json, { type: 'object', anyOf: Array })
  t.match(input(z.intersection(z.object({ a: z.string() }), z.object({ b: z.string() }))).json, { type: 'object', properties: { a: {}, b: {} } })
  t.match(input(z.record(z.string(), z.number())).json, { type: 'object', properties: {}, additionalProperties: { type: 'number' } })
  t.equal(input({ oneOf: [{ $ref: '#/$defs/a' }], $defs: { a: { type: 'object' } } }).json.type, 'object')

  const others: SchemaInput[] = [z.string(), z.array(z.string()), z.any(), z.union([z.object({}), z.string()]), z.null(), { type: 'string' },
    { type: ['object', 'null'] }, { oneOf: [{ type: 'object' }, { type: 'array' }] }, { title: 'nothing' }]
  for (const schema of others) t.throws(() => input(schema), { code: INVALID_SCHEMA, message: /Tool 'x' input: the root must be an object/ })
  for (const value of [null, 5, 'x', () => {}, [z.string()]]) t.throws(() => input(value as never), { code: INVALID_SCHEMA })
})

t.test('SCH-02 dates and big integers travel; what JSON cannot say is refused at registration, tool and field named', async (t) => {
  const { json, check } = input({
    when: z.date(),
    big: z.bigint().optional(),
    either: z.union([z.number(), z.date()]).optional(),
    list: z.array(z.object({ d: z.date().nullable(), kind: z.literal('a') })).default([]),
  })
  t.match(json, { properties: { when: { type: 'string', format: 'date-time' }, big: { type: 'integer' } } })
  t.ok(clientAccepts(json, { when: '2024-02-29T10:00:00Z', big: 5 }))
  t.same(check({ when: '2024-02-29T10:00:00+01:00', big: 5, either: '2024-01-01', list: [{ d: '2024-01-01t00:00:00z', kind: 'a' }, { d: null, kind: 'a' }] }), {
    ok: true,
    value: {
      when: new Date('2024-02-29T09:00:00Z'),
      big: 5n,
      either: new Date('2024-01-01'),
      list: [{ d: new Date('2024-01-01'), kind: 'a' }, { d: null, kind: 'a' }],
    },
  })
  t.same(check({ when: '2024-01-01', big: '12345678901234567890' }), { ok: true, value: { when: new Date('2024-01-01'), big: 12345678901234567890n, list: [] } })
  for (const when of ['2024-02-30T00:00:00Z', '2024-01-01T00:00:00', 'yesterday', 0, null]) t.notOk(check({ when }).ok, String(when))
  t.notOk(check({ when: '2024-01-01', big: 2 ** 60 }).ok, 'a number past 2^53 is not the integer that was meant')
  const lazy = input({ l: z.lazy(() => z.tuple([z.date()]).rest(z.date())), r: z.record(z.string(), z.date()).readonly(), p: z.preprocess((d) => d, z.date()) })
  t.same(lazy.check({ l: ['2024-01-01', '2024-01-02'], r: { a: '2024-01-03' }, p: '2024-01-04' }), {
    ok: true,
    value: { l: [new Date('2024-01-01'), new Date('2024-01-02')], r: { a: new Date('2024-01-03') }, p: new Date('2024-01-04') },
  })
  const both = z.object({ a: z.date(), b: z.date().prefault(() => new Date(0)) }).catchall(z.date()).refine(({ a, b }) => a > b, { message: 'order', path: ['b'] })
  t.same(input(both.and(z.object({ a: z.date() }))).check({ a: '2024-01-01', c: '2024-01-02' }), { ok: true, value: { a: new Date('2024-01-01'), b: new Date(0), c: new Date('2024-01-02') } })
  t.equal(issues(input(both).check({ a: '2024-01-01', b: '2024-01-02' })), 'b: order')
  t.same(input({ s: z.union([z.string(), z.date()]) }).check({ s: '2024-01-01' }), { ok: true, value: { s: '2024-01-01' } }, 'zod decides which branch it is')

  const refused: Record<string, z.ZodType> = {
    map: z.map(z.string(), z.string()),
    set: z.set(z.string()),
    symbol: z.symbol(),
    undefined: z.undefined(),
    void: z.void(),
    nan: z.nan(),
    transform: z.transform((value) => value),
    custom: z.instanceof(Date),
    file: z.file(),
    promise: z.promise(z.string()),
    'literal undefined': z.literal([undefined, 'a']),
    bigint: z.literal(5n),
  }
  for (const [name, field] of Object.entries(refused)) {
    const schema = { a: z.object({ list: z.array(z.object({ bad: field.optional() })) }) }
    t.throws(() => input(schema), { code: INVALID_SCHEMA, message: /Tool 'x' input: field 'a\.list\[\]\.bad' is .*/ }, name)
  }
  t.throws(() => input(z.object({ r: z.record(z.string(), z.map(z.string(), z.string())) })), { message: /field 'r\.\*'/ })
  t.match(input({ c: z.custom<string>().meta({ type: 'string' }) }).json, { properties: { c: { type: 'string' } } }, 'its own word for it is taken')
})

t.test('SCH-03 what is sent satisfies what is advertised', async (t) => {
  const withDefault = output(z.object({ n: z.number().default(5) }))
  const open = output(z.object({ n: z.number() }))
  t.same(withDefault.check({}), { ok: true, value: { n: 5 } })
  t.same(withDefault.check({ n: 1, extra: true }), { ok: true, value: { n: 1 } })
  t.same(open.check({ n: 1, extra: true }), { ok: true, value: { n: 1, extra: true } })
  for (const { json, check } of [withDefault, open]) {
    for (const value of [{}, { n: 1, extra: true }, { n: 'x' }, { n: NaN }, 5, null, undefined]) {
      const checked = check(value)
      if (checked.ok) t.ok(clientAccepts(json, checked.value), JSON.stringify(value))
    }
  }
  const raw = { n: 1 }
  t.equal((open.check(raw) as { value: unknown }).value, raw, 'a plain schema sends the very value that was returned')

  const dates = output({ d: z.date(), b: z.bigint(), o: z.string().optional() })
  t.same(dates.check({ d: new Date(0), b: 5n, o: undefined }), { ok: true, value: { d: '1970-01-01T00:00:00.000Z', b: 5 } })
  t.ok(clientAccepts(dates.json, (dates.check({ d: '2024-01-01', b: 1 }) as { value: unknown }).value))
  t.notOk(dates.check({ d: new Date(0), b: 2n ** 60n }).ok, 'no JSON number is this integer')
  t.notOk(dates.check({ d: new Date(NaN), b: 1n }).ok)
  t.notOk(dates.check({ d: new Date(1e15), b: 1n }).ok, 'RFC 3339 ends with the year 9999')

  t.same(output(z.strictObject({ a: z.number() })).check({ a: 1, b: undefined }), { ok: true, value: { a: 1 } }, 'undefined is not sent')
  t.same(output(z.object({ at: z.iso.datetime() })).check({ at: new Date(0) }), { ok: true, value: { at: '1970-01-01T00:00:00.000Z' } })
  t.notOk(output(z.string().min(3).trim()).check('  a ').ok, 'a value that shrank below the advertised minimum')
  t.equal(issues(output(z.object({ d: z.string().refine((s) => s !== 'no') })).check({ d: 'no' })), 'd: Invalid input')
  t.same(output(z.object({ d: z.string().catch('x') })).check({ d: 5 }), { ok: true, value: { d: 'x' } })
  t.notOk(output(z.object({ n: z.number() })).check({ n: 2n ** 60n }).ok)
  const circular: Record<string, unknown> = {}
  circular.self = circular
  t.notOk(output(z.strictObject({ a: z.number() })).check(circular).ok)
})

t.test('SCH-03 property: a checked result passes the check of the client', async (t) => {
  const schema = { n: z.number().default(1), s: z.string().max(3).optional(), list: z.array(z.union([z.int(), z.boolean()])), r: z.record(z.string(), z.number()).optional() }
  const compiled = [output(schema), output(z.object({ ...schema, n: z.number() })), output({ type: 'object', properties: { n: { type: 'integer' } }, additionalProperties: { type: ['string', 'array'] } })]
  const value = fc.record({
    n: fc.oneof(fc.double(), fc.integer(), fc.constant(undefined)),
    s: fc.string({ maxLength: 5 }),
    list: fc.array(fc.oneof(fc.integer(), fc.boolean(), fc.double())),
    r: fc.dictionary(fc.string(), fc.oneof(fc.integer(), fc.double())),
    extra: fc.anything(),
  }, { requiredKeys: ['list'] })
  t.doesNotThrow(() => fc.assert(fc.property(value, (result) => compiled.every(({ json, check }) => {
    const checked = check(result)
    if (!checked.ok) return true
    try {
      JSON.stringify(checked.value)
    } catch {
      return true
    }
    return clientAccepts(json, checked.value)
  })), { seed: 3, numRuns: 300 }))
})

t.test('SCH-03 an output may be of any type', async (t) => {
  t.same(output(z.array(z.int())).check([1, 2]), { ok: true, value: [1, 2] })
  t.equal(issues(output(z.array(z.int())).check([1, 1.5])), '1: must be integer')
  t.same(output(z.string()).json, { type: 'string' })
  t.same(output({ type: 'boolean' }).check(false), { ok: true, value: false })
  t.same(output(z.null()).check(null), { ok: true, value: null })
  t.same(output(z.discriminatedUnion('k', [z.object({ k: z.literal(1) }), z.object({ k: z.literal(2) })])).check({ k: 2 }), { ok: true, value: { k: 2 } })
})

t.test('SCH-04 input schemas show what goes in, and handlers get what comes out', async (t) => {
  const { json, check } = input({ n: z.string().transform((s) => s.length), m: z.coerce.number(), p: z.preprocess(Number, z.number()) })
  t.same(json, { type: 'object', properties: { n: { type: 'string' }, m: { type: 'number' }, p: { type: 'number' } }, required: ['n', 'm', 'p'], additionalProperties: false })
  t.same(check({ n: 'abc', m: '2', p: '3' }), { ok: true, value: { n: 3, m: 2, p: 3 } })
  const codec = z.codec(z.iso.datetime(), z.date(), { decode: (s) => new Date(s), encode: (d) => d.toISOString() })
  t.same(input({ at: codec }).check({ at: '2024-01-01T00:00:00Z' }), { ok: true, value: { at: new Date('2024-01-01') } })

  t.throws(() => output({ n: z.string().transform((s) => s.length) }), { code: INVALID_SCHEMA, message: /Tool 'x' output: field 'n' is of the type 'transform'.*pipe/ })
  const piped = output({ n: z.string().transform((s) => s.length).pipe(z.number()) })
  t.same(piped.check({ n: 'abc' }), { ok: true, value: { n: 3 } })
  t.same(piped.json.properties, { n: { type: 'number' } })
})

t.test('SCH-04 a regex flag is not lost on the way to JSON Schema', async (t) => {
  // eslint-disable-next-line no-useless-escape -- under the u flag, which JSON Schema patterns have, it is an error
  const schema = { d: z.string().regex(/^abc$/i), e: z.string().regex(/^a\-b$/), f: z.string().regex(/^x/i).regex(/y$/) }
  t.same(output(schema).json.properties, { d: { type: 'string' }, e: { type: 'string', pattern: '^a\\-b$' }, f: { type: 'string', allOf: [{ pattern: 'y$' }] } })
  t.ok(output(schema).check({ d: 'ABC', e: 'a-b', f: 'Xy' }).ok)
  t.notOk(output(schema).check({ d: 'x', e: 'a-b', f: 'Xy' }).ok)
})

t.test('SCH-06 references resolve: reuse is written out, recursion is under #/$defs', async (t) => {
  const address = z.object({ city: z.string() }).meta({ id: 'Address', title: 'An address' })
  const twice = input({ from: address, to: address.optional() })
  t.same(twice.json.properties, {
    from: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], title: 'An address' },
    to: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], title: 'An address' },
  })
  t.same(input(address).json.properties, { city: { type: 'string' } })

  const node = z.object({ name: z.string(), at: z.date().optional(), get kids () { return z.array(node) } })
  for (const schema of [node, { tree: node }, z.lazy(() => node), node.meta({ id: 'Node' }), z.union([node, z.object({ leaf: z.boolean() })])]) {
    const { json } = input(schema as SchemaInput)
    t.equal(json.type, 'object')
    t.ok(refsResolve(json), JSON.stringify(json))
    t.match(JSON.stringify(json), /"\$ref":"#\/\$defs\//)
  }
  t.same(input(node).check({ name: 'a', kids: [{ name: 'b', at: '2024-01-01', kids: [] }] }),
    { ok: true, value: { name: 'a', kids: [{ name: 'b', at: new Date('2024-01-01'), kids: [] }] } })
  t.equal(issues(input(node).check({ name: 'a', kids: [{ name: 1, kids: [] }] })), 'kids.0.name: Invalid input: expected string, received number')

  let doubling: z.ZodType = z.object({ leaf: z.string() })
  for (let i = 0; i < 40; i++) doubling = z.object({ a: doubling, b: doubling })
  const bounded = input(doubling as SchemaInput)
  t.ok(JSON.stringify(bounded.json).length < 20_000, 'its size is that of the schema, not 2^40')
  t.ok(refsResolve(bounded.json))

  const raw = { type: 'object', properties: { a: { $ref: '#/definitions/a' } }, definitions: { a: { type: 'integer' } } }
  t.same(input(raw).json, raw)
  t.same(input(raw).check({ a: '5' }), { ok: true, value: { a: 5 } })
})

t.test('SCH-06 raw JSON Schema with references that dangle, leave or go in circles is refused', async (t) => {
  const cases: Array<[JsonSchema, RegExp]> = [
    [{ properties: { a: { $ref: '#/$defs/none' } } }, /\$ref '#\/\$defs\/none' does not resolve/],
    [{ properties: { a: { $ref: '#none' } } }, /does not resolve/],
    [{ properties: { a: { $ref: '#/%zz' } } }, /does not resolve/],
    [{ properties: { a: { $ref: '#/constructor' } } }, /does not resolve/],
    [{ properties: { a: { $ref: 'https://schemas.example/a.json' } } }, /nothing is ever fetched/],
    [{ properties: { a: { $ref: 'other.json#/a' } } }, /nothing is ever fetched/],
    [{ $ref: '#' }, /leads back to itself/],
    [{ properties: { a: { $ref: '#/$defs/a' } }, $defs: { a: { anyOf: [{ $ref: '#/$defs/b' }] }, b: { $ref: '#/$defs/a' } } }, /leads back to itself/],
    [{ properties: { a: { $ref: '#/x/deep' } }, x: { deep: { $ref: '#/nowhere' } } }, /'#\/nowhere' does not resolve/],
  ]
  for (const [schema, message] of cases) t.throws(() => input({ type: 'object', ...schema }), { code: INVALID_SCHEMA, message }, JSON.stringify(schema))
  t.doesNotThrow(() => input({ type: 'object', properties: { a: { const: { $ref: 'data.json' } }, $ref: { type: 'string' } } }), 'data is not a reference')

  const anchored = input({ type: 'object', properties: { a: { $ref: '#num' }, b: { $ref: '#/x/y~1z' } }, $defs: { n: { $anchor: 'num', type: 'integer' } }, x: { 'y/z': { type: 'boolean' } } })
  t.ok(anchored.check({ a: 1, b: true }).ok)
  t.notOk(anchored.check({ a: 'x', b: true }).ok)
  const embedded = { type: 'object', properties: { a: { $id: 'https://x.example/a', properties: { b: { $ref: '#/$defs/n' } }, $defs: { n: { type: 'integer' } } } } }
  t.notOk(input(embedded).check({ a: { b: [] } }).ok, 'a schema with an $id of its own is the base of its references')
  t.ok(input(embedded).check({ a: { b: 1 } }).ok)
  const beyondAjv = { type: 'object', properties: { a: { $id: 'https://x.example/a', $ref: '#/$defs/n', $defs: { n: { type: 'integer' } } } } }
  t.throws(() => input(beyondAjv), { code: INVALID_SCHEMA, message: /does not compile/ }, 'at registration, not in a call')
  const dynamic = input({ type: 'object', $dynamicAnchor: 'node', properties: { kids: { type: 'array', items: { $dynamicRef: '#node' } } } })
  t.ok(dynamic.check({ kids: [{ kids: [] }] }).ok)
  t.notOk(dynamic.check({ kids: [1] }).ok)
})

t.test('SCH-08 zod 3 is refused with a way out, wherever it stands', async (t) => {
  const v3 = z3.object({ a: z3.string() })
  for (const schema of [v3, { a: v3 }, { a: z.string(), b: z3.string() }]) {
    t.throws(() => input(schema as never), { code: INVALID_SCHEMA, message: /zod 3 schema.*use zod 4.*or give JSON Schema/ })
  }
  t.throws(() => input({ a: z3.string() } as never), { message: /field 'a' is a zod 3 schema/ })
  t.throws(() => input({ a: z.string(), b: 'string' } as never), { message: /field 'b' of a plain shape must be a zod 4 schema/ })
})

t.test('SCH-08 a second copy of zod 4 works, alone and mixed with ours', async (t) => {
  const from = dirname(createRequire(import.meta.url).resolve('zod/package.json'))
  const to = join(t.testdir(), 'zod')
  cpSync(from, to, { recursive: true, filter: (path) => !/\/(?:src|v3|locales\/(?!en|index)[^/]+)$|\.c?ts$|\.cjs$/.test(path.slice(from.length)) || /locales/.test(path) })
  const other: typeof z = await import(pathToFileURL(join(to, 'index.js')).href)
  t.not(other.string, z.string)
  const schema = other.object({ n: other.number(), at: other.date().optional(), u: other.union([other.string(), other.boolean()]).optional() })
  for (const compiled of [input(schema as SchemaInput), input({ n: other.number(), at: other.date().optional(), u: z.string().optional() } as never)]) {
    t.match(compiled.json, { type: 'object', properties: { n: { type: 'number' }, at: { type: 'string', format: 'date-time' } }, required: ['n'] })
    t.same(compiled.check({ n: '5', at: '2024-01-01' }), { ok: true, value: { n: 5, at: new Date('2024-01-01') } })
    t.equal(issues(compiled.check({ n: [] })), 'n: Invalid input: expected number, received array')
  }
  const asynchronous = compileInput(other.object({ a: other.string().refine((s) => Promise.resolve(s !== 'x')) }) as SchemaInput, WHAT)
  t.match(await asynchronous.check({ a: 'x' }), { ok: false })
})

t.test('async zod schemas are checked, and only those with a promise', async (t) => {
  const hidden = compileInput({ a: z.string().refine((s) => Promise.resolve(s === 'ok')) }, WHAT)
  const declared = compileInput({ a: z.string().refine(async (s) => s === 'ok').transform(async (s) => s.length) }, WHAT)
  for (let round = 0; round < 2; round++) {
    t.same(await hidden.check({ a: 'ok' }), { ok: true, value: { a: 'ok' } })
    t.same(await declared.check({ a: 'ok' }), { ok: true, value: { a: 2 } })
    t.match(await hidden.check({ a: 'no' }), { ok: false, issues: [{ loc: 'a' }] })
  }
  t.ok(declared.check({ a: 'ok' }) instanceof Promise)
  t.notOk(compileInput({ a: z.string() }, WHAT).check({ a: '' }) instanceof Promise)
  t.throws(() => compileInput({ a: z.string().refine(() => { throw new Error('theirs') }) }, WHAT).check({ a: '' }), { message: 'theirs' })
  const out = compileOutput(z.object({ a: z.string().refine(async () => true) }), WHAT)
  t.same(await out.check({ a: 'x' }), { ok: true, value: { a: 'x' } })
})

function standard (parts: { json?: unknown, validate: (value: any) => unknown }): SchemaInput {
  const schema = { version: 1, vendor: 'acme', validate: parts.validate, ...(parts.json !== undefined && { jsonSchema: { input: parts.json, output: parts.json } }) }
  return { '~standard': schema } as unknown as SchemaInput
}

t.test('a Standard Schema gives its own JSON Schema and its own verdict', async (t) => {
  const json = ({ target }: { target: string }): object => ({ $schema: `https://json-schema.org/${target.replace('draft-', 'draft/')}/schema`, type: 'object', properties: { n: { type: 'number' } }, required: ['n'] })
  const validate = (value: any): unknown => typeof value.n === 'number'
    ? { value: { n: value.n * 2 } }
    : { issues: [{ message: `Expected number but received "${value.n}"`, path: [{ key: 'n' }] }, { message: 'Nope', path: ['a', 0] }, { message: 'Root' }] }
  const compiled = input(standard({ json, validate }))
  t.same(compiled.json, { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] })
  t.same(compiled.check({ n: '21' }), { ok: true, value: { n: 42 } })
  t.equal(issues(compiled.check({ n: 'hunter2' })), 'n: Invalid value; a.0: Nope; <root>: Root', 'a message that repeats the value is not passed on')

  const callable = Object.assign(() => {}, standard({ json, validate }))
  t.same(input(callable as never).check({ n: 1 }), { ok: true, value: { n: 2 } }, 'a schema may be a function')
  t.same(output(standard({ json, validate })).check({ n: 1 }), { ok: true, value: { n: 2 } })
  t.notOk(output(standard({ json, validate: () => ({ value: { n: 'x' } }) })).check({ n: 1 }).ok, 'what it made of the value must satisfy its own JSON Schema')

  const later = compileInput(standard({ json, validate: async () => ({ value: { n: 1 } }) }), WHAT)
  t.same(await later.check({ n: 1 }), { ok: true, value: { n: 1 } })

  t.throws(() => input(standard({ validate })), { code: INVALID_SCHEMA, message: /\(of 'acme'\) does not offer JSON Schema.*or give JSON Schema/ })
  t.throws(() => input(standard({ validate, json: () => { throw new Error('no dates') } })), { code: INVALID_SCHEMA, message: /has no JSON Schema: no dates/ })
  t.throws(() => input(standard({ validate, json: () => ({ type: 'string' }) })), { code: INVALID_SCHEMA, message: /root must be an object/ })
})

t.test('raw JSON Schema reaches the client untouched, and is frozen against later changes', async (t) => {
  const schema = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    $id: 'https://x.example/tool',
    type: 'object',
    $defs: { address: { $anchor: 'addr', type: 'object', properties: { zip: { type: 'string' } } } },
    properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' }, 'x-ray': { type: 'boolean' } },
    allOf: [{ anyOf: [{ required: ['name'] }] }],
    if: { required: ['name'] },
    then: {},
    unevaluatedProperties: false,
    'x-vendor': [1, null, { deep: true }],
    additionalProperties: false,
  }
  const before = JSON.stringify(schema)
  const { json } = input(schema)
  t.equal(JSON.stringify(json), before)
  schema.properties.name.type = 'number'
  t.equal(JSON.stringify(json), before)
  t.throws(() => { (json.properties as any).name.type = 'x' }, TypeError)
  t.ok(input(JSON.parse(before)).check({ name: 'a' }).ok, 'the same $id in a second tool is no clash')
})

t.test('raw JSON Schema: dialects', async (t) => {
  const tuple = { type: 'object', properties: { a: { type: 'array', items: [{ type: 'integer' }, { type: 'string' }] } } }
  const draft7 = input({ $schema: 'http://json-schema.org/draft-07/schema#', ...tuple })
  t.ok(draft7.check({ a: [1, 'x'] }).ok)
  t.equal(issues(draft7.check({ a: ['x', 'x'] })), 'a.0: must be integer')
  t.throws(() => input(tuple), { code: INVALID_SCHEMA, message: /not a valid JSON Schema \(2020-12\) at \/properties\/a\/items/ })
  const prefix = input({ type: 'object', properties: { a: { prefixItems: [{ type: 'integer' }], items: false } } })
  t.notOk(prefix.check({ a: [1, 2] }).ok)
  for (const $schema of ['https://json-schema.org/draft/2019-09/schema', 'http://json-schema.org/draft-04/schema#', 'x', 5]) {
    t.throws(() => input({ $schema, type: 'object' }), { code: INVALID_SCHEMA, message: /unsupported JSON Schema dialect/ })
  }
  t.throws(() => input({ type: 'object', properties: { a: { $schema: 'http://json-schema.org/draft-07/schema#' } } }), { message: /mixes two/ })
  t.throws(() => input({ type: 'object', properties: { a: { type: 'text' } } }), { message: /at \/properties\/a\/type/ })
  t.throws(() => input({ type: 'object', properties: { a: { pattern: '(' } } }), { message: /the pattern '\(' is not a regular expression/ })
  t.throws(() => input({ type: 'object', $async: true }), { message: /\$async/ })
  t.throws(() => input({ type: 'object', x: new Map() }), { code: INVALID_SCHEMA, message: /not JSON at \/x/ })
  const cyclic: Record<string, unknown> = { type: 'object' }
  cyclic.self = cyclic
  t.throws(() => input(cyclic), { code: INVALID_SCHEMA, message: /nested more than/ })
  t.throws(() => input({ type: 'object', enum: [new Array(100_001).fill(0)] }), { message: /more than 100000 parts/ })
  t.ok(input({ type: 'object', id: 'draft-4 style', properties: { e: { type: 'string', pattern: '^a\\-b$', format: 'never-heard-of' } } }).check({ e: 'a-b' }).ok)
})

t.test('raw JSON Schema: defaults reach the handler and not the caller', async (t) => {
  const { check } = input({ type: 'object', properties: { n: { type: 'integer', default: 5 }, o: { type: 'object', properties: { p: { default: [1] } } } } })
  const given = { o: {} }
  t.same(check(given), { ok: true, value: { n: 5, o: { p: [1] } } })
  t.same(given, { o: {} })
  t.same(check(undefined), { ok: true, value: { n: 5 } })
})

t.test('raw JSON Schema: faults are told in the words used for zod, and never with the value', async (t) => {
  const { check } = input({
    type: 'object',
    properties: { n: { type: 'integer' }, e: { enum: ['a', 'b'] }, o: { type: 'object', required: ['in/ner'], additionalProperties: false } },
    required: ['n'],
  })
  const checked = check({ e: 'hunter2', o: { 'ex~tra': 'hunter2' } })
  t.same(checked, {
    ok: false,
    issues: [
      { loc: 'n', msg: 'Field required', type: 'missing' },
      { loc: 'e', msg: 'must be one of "a","b"', type: 'enum' },
      { loc: 'o.in/ner', msg: 'Field required', type: 'missing' },
      { loc: 'o.ex~tra', msg: 'Extra inputs are not permitted', type: 'extra_forbidden' },
    ],
  })
  t.notMatch(JSON.stringify(checked), /hunter2/)
  t.same(check([]), { ok: false, issues: [{ loc: '', msg: 'must be object', type: 'type' }] })
  t.equal(issues(check(5)), '<root>: must be object')
  t.equal(issues(check(null)), '<root>: must be object')
})

t.test('a string for a field that no string matches is read as JSON', async (t) => {
  const shape = {
    n: z.number().optional(),
    b: z.boolean().optional(),
    l: z.array(z.number()).optional(),
    o: z.object({ a: z.string() }).optional(),
    u: z.union([z.number(), z.boolean()]).optional(),
    s: z.string().optional(),
    either: z.union([z.string(), z.number()]).optional(),
    any: z.any().optional(),
    e: z.enum(['5']).optional(),
    nul: z.number().nullable().optional(),
    big: z.bigint().optional(),
  }
  const json = { type: 'object', additionalProperties: false, properties: Object.fromEntries(Object.entries(input(shape).json.properties as object)) }
  const cases: Array<[object, object | undefined]> = [
    [{ n: '5' }, { n: 5 }], [{ n: ' 5.5 ' }, { n: 5.5 }], [{ b: 'true' }, { b: true }], [{ l: '[1]' }, { l: [1] }], [{ o: '{"a":"b"}' }, { o: { a: 'b' } }],
    [{ u: 'false' }, { u: false }], [{ s: '5' }, { s: '5' }], [{ either: '5' }, { either: '5' }], [{ any: '5' }, { any: '5' }], [{ e: '5' }, { e: '5' }],
    [{ nul: 'null' }, { nul: null }], [{ n: 'five' }, undefined], [{ n: '' }, undefined], [{ n: '"5"' }, undefined], [{ b: 'True' }, undefined], [{ l: '[1' }, undefined],
    [{ l: ['1'] }, undefined],
  ]
  for (const compiled of [input(shape), input(json)]) {
    for (const [given, expected] of cases) {
      const copy = structuredClone(given)
      const checked = compiled.check(given)
      if (expected === undefined) t.notOk(checked.ok, JSON.stringify(given))
      else t.same(checked, { ok: true, value: expected })
      t.same(given, copy, 'the caller keeps what it sent')
    }
  }
  t.same(input({ type: 'object', anyOf: [{ properties: { k: { type: 'number' } } }, { properties: { k: { type: 'string' } } }] }).check({ k: '5' }),
    { ok: true, value: { k: '5' } }, 'one branch that takes strings is enough')
  t.same(input({ type: 'object', properties: { k: { allOf: [{ $ref: '#/$defs/n' }] } }, $defs: { n: { type: 'number' } } }).check({ k: '5' }), { ok: true, value: { k: 5 } })
})

t.test('a union says what is wrong with the branch that was meant', async (t) => {
  const { check } = input({ x: z.union([z.object({ a: z.number(), b: z.number() }), z.object({ c: z.string() }), z.string()]), y: z.union([z.number(), z.boolean()]).optional() })
  t.equal(issues(check({ x: { a: 1 } })), 'x.b: Invalid input: expected number, received undefined')
  t.equal(issues(check({ x: 5 })), 'x: Invalid input')
  t.equal(issues(check({ x: '', y: 'zz' })), 'y: Invalid input')
})

t.test('what a caller can provoke is bounded', async (t) => {
  const zod = input({ list: z.array(z.number()) })
  const raw = input({ type: 'object', properties: { list: { type: 'array', items: { type: 'number' } } } })
  for (const { check } of [zod, raw]) {
    const checked = check({ list: new Array(10_000).fill('x'), ['k'.repeat(1000)]: 1 })
    t.notOk(checked.ok)
    if (!checked.ok) t.ok(checked.issues.length <= 32 && checked.issues.every(({ loc }) => loc.length < 300))
  }
  const node = z.object({ get kids () { return z.array(node).optional() } })
  const rawNode = { type: 'object', properties: { kids: { type: 'array', items: { $ref: '#' } }, d: { default: 1 } } }
  let deep: object = {}
  for (let i = 0; i < 100_000; i++) deep = { kids: [deep] }
  for (const { check } of [input(node), input(rawNode), output(node), output(rawNode)]) {
    t.match(check(deep), { ok: false, issues: [{ msg: 'Value is nested too deeply' }] })
  }
})

t.test('__proto__ and constructor are keys like any other', async (t) => {
  const hostile = JSON.parse('{"n":"1","__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}')
  const schemas: SchemaInput[] = [{ n: z.number() }, z.object({ n: z.number() }), z.looseObject({ n: z.number() }), z.record(z.string(), z.any()),
    { type: 'object', properties: { n: { type: 'number', default: 1 } } }, { type: 'object', properties: { n: { type: 'number' } }, additionalProperties: false }]
  for (const schema of schemas) {
    const checked = input(schema).check(hostile)
    if (checked.ok) t.equal(Object.getPrototypeOf(checked.value), Object.prototype)
    if (checked.ok) t.equal(checked.value.polluted, undefined)
  }
  t.equal(({} as any).polluted, undefined)
  t.notOk(input(schemas[0]!).check(hostile).ok)
  t.notOk(input(undefined).check(JSON.parse('{"__proto__":1}')).ok)

  const inherited = input({ type: 'object', properties: { constructor: { type: 'string' } }, required: ['toString'] })
  t.equal(issues(inherited.check({})), 'toString: Field required', 'what is inherited was not given')
  const nested = input({ o: z.looseObject({}) }).check({ o: '{"__proto__":{"polluted":true}}' })
  t.notOk(nested.ok, 'text with a __proto__ in it is not read')

  const proto = input(JSON.parse('{"type":"object","properties":{"__proto__":{"type":"number"}}}'))
  t.equal(JSON.stringify(proto.json), '{"type":"object","properties":{"__proto__":{"type":"number"}}}')
})

t.test('property: no arguments make a check throw or pollute', async (t) => {
  const compiled = [
    input({ n: z.number(), d: z.date().optional(), s: z.string().optional() }),
    input(z.discriminatedUnion('k', [z.object({ k: z.literal('a'), n: z.number() }), z.object({ k: z.literal('b') })])),
    input({ type: 'object', properties: { n: { type: 'number' }, k: { enum: ['a', 1] }, d: { type: 'object', default: {} } }, additionalProperties: { type: 'string' } }),
    input(undefined),
  ]
  const key = fc.constantFrom('n', 'd', 's', 'k', '__proto__', 'constructor', 'toString', 'x')
  const args = fc.oneof(fc.jsonValue(), fc.dictionary(key, fc.oneof(fc.jsonValue(), fc.json(), fc.constantFrom('a', 'b', '1', '2024-01-01'))))
  t.doesNotThrow(() => fc.assert(fc.property(args, (value) => {
    const before = JSON.stringify(value)
    for (const { check } of compiled) check(value)
    return JSON.stringify(value) === before && Object.keys(Object.prototype).length === 0
  }), { seed: 15, numRuns: 1000 }))
})

t.test('XP-01 XP-13 annotated parameters are found, nested ones with their path', async (t) => {
  const { json } = input({
    region: z.string().meta({ 'x-mcp-header': 'Region' }).optional(),
    filter: z.object({ level: z.int().meta({ 'x-mcp-header': 'X-Level' }), dry: z.boolean().meta({ 'x-mcp-header': 'Dry!' }) }),
    size: z.enum(['s', 'm']).meta({ 'x-mcp-header': 'size' }),
  })
  t.same(headerParams(json, WHAT), [
    { header: 'mcp-param-region', name: 'Region', path: ['region'], type: 'string' },
    { header: 'mcp-param-x-level', name: 'X-Level', path: ['filter', 'level'], type: 'integer' },
    { header: 'mcp-param-dry!', name: 'Dry!', path: ['filter', 'dry'], type: 'boolean' },
    { header: 'mcp-param-size', name: 'size', path: ['size'], type: 'string' },
  ])
  t.same(headerParams(input(undefined).json, WHAT), [])
  t.same(headerParams({ type: 'object', properties: { 'x-mcp-header': { type: 'string' }, a: { const: { 'x-mcp-header': '' }, default: { 'x-mcp-header': '' } } } }, WHAT), [],
    'a property of that name, and data, are no annotations')
})

t.test('XP-14 one bad annotation refuses the tool', async (t) => {
  const good = { type: 'string', 'x-mcp-header': 'Region' }
  const at = (schema: JsonSchema): JsonSchema => ({ type: 'object', properties: { p: schema } })
  const cases: Record<string, JsonSchema> = {
    object: at({ type: 'object', 'x-mcp-header': 'A' }),
    array: at({ type: 'array', 'x-mcp-header': 'A' }),
    number: at({ type: 'number', 'x-mcp-header': 'A' }),
    null: at({ type: 'null', 'x-mcp-header': 'A' }),
    'type list': at({ type: ['string', 'null'], 'x-mcp-header': 'A' }),
    'no type': at({ 'x-mcp-header': 'A' }),
    'union home': at({ anyOf: [{ type: 'string' }], 'x-mcp-header': 'A' }),
    root: { type: 'object', 'x-mcp-header': 'A' },
    empty: at({ type: 'string', 'x-mcp-header': '' }),
    space: at({ type: 'string', 'x-mcp-header': 'My Region' }),
    'line break': at({ type: 'string', 'x-mcp-header': 'A\r\nB: c' }),
    colon: at({ type: 'string', 'x-mcp-header': 'A:' }),
    'non-ASCII': at({ type: 'string', 'x-mcp-header': 'Région' }),
    'not a string': at({ type: 'string', 'x-mcp-header': true }),
    'null name': at({ type: 'string', 'x-mcp-header': null }),
    duplicate: { type: 'object', properties: { a: good, b: { type: 'string', 'x-mcp-header': 'REGION' } } },
    'nested duplicate': { type: 'object', properties: { a: good, b: at(good) } },
    allOf: at({ allOf: [good] }),
    'root allOf': { type: 'object', allOf: [at(good)] },
    oneOf: { type: 'object', oneOf: [at(good)] },
    anyOf: at({ anyOf: [good] }),
    not: at({ not: good }),
    if: { type: 'object', if: at(good) },
    then: { type: 'object', then: at(good) },
    else: { type: 'object', else: at(good) },
    items: at({ type: 'array', items: good }),
    'items of draft-07': at({ type: 'array', items: [good] }),
    prefixItems: at({ prefixItems: [good] }),
    contains: at({ contains: good }),
    additionalProperties: { type: 'object', additionalProperties: good },
    patternProperties: { type: 'object', patternProperties: { '^a': good } },
    dependentSchemas: { type: 'object', dependentSchemas: { a: at(good) } },
    $defs: { type: 'object', $defs: { a: good } },
    definitions: { type: 'object', definitions: { a: good } },
    'behind items': at({ type: 'array', items: at(good) }),
  }
  for (const [name, schema] of Object.entries(cases)) {
    t.throws(() => headerParams(schema, WHAT), { code: INVALID_SCHEMA, message: /^Tool 'x' input: x-mcp-header / }, name)
  }
})
