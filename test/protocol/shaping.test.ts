// Every revision gets what it knows: what an older one lacks is left out, or said in older words.

import t from 'tap'
import { z } from 'zod'
import { createLayer } from '../../lib/layer/index.js'
import type { AppLayer } from '../../lib/layer/index.js'
import { initialize, modern, request } from '../kit.js'
import { connect, connectAt } from './connection.js'

const VERSIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'] as const
type Version = typeof VERSIONS[number]
type Ask = (method: string, params?: Record<string, any>) => Promise<any>

async function at (version: Version, layer: AppLayer): Promise<Ask> {
  if (version === '2026-07-28') {
    const { handle } = connect(layer)
    return async (method, params) => (await handle(modern(method, params))).result
  }
  const { handle } = await connectAt(version, layer)
  return async (method, params) => (await handle(request(method, params))).result
}

function newLayer (): AppLayer {
  return createLayer({ name: 'x', version: '1' })
}

const since = (first: Version) => (version: Version): boolean => version >= first
const hasAnnotations = since('2025-03-26')
const hasTitles = since('2025-06-18')
const hasIcons = since('2025-11-25')
const isModern = since('2026-07-28')

const icons = [{ src: 'https://example.com/i.png' }]
const _meta = { 'com.example/a': 1 }
const annotations = { audience: ['user' as const], priority: 0.5, lastModified: '2026-01-01T00:00:00Z' }
const { lastModified: _, ...olderAnnotations } = annotations

/** The result without what 2026 stamps on it. */
function unstamped (result: any): any {
  const { resultType: _t, ttlMs: _m, cacheScope: _s, _meta, ...rest } = result
  const { 'io.modelcontextprotocol/serverInfo': _i, 'cloudg/duration_ms': _d, ...meta } = _meta ?? {}
  return { ...rest, ...(Object.keys(meta).length > 0 && { _meta: meta }) }
}

t.test('tools: titles, hints, icons, _meta and output schemas', async (t) => {
  const layer = newLayer()
  const hints = { title: 'Hint', readOnlyHint: true }
  layer.tool('full', { title: 'Full', description: 'd', annotations: hints, icons, _meta, input: { a: z.string() }, output: { n: z.number() } }, () => ({ n: 1 }))
  layer.tool('list', { output: z.array(z.number()) }, () => [1])
  layer.tool('union', { output: z.union([z.object({ a: z.string() }), z.object({ b: z.string() })]) }, () => ({ a: '' }))
  for (const version of VERSIONS) {
    const ask = await at(version, layer)
    const { tools: [full, list, union] } = await ask('tools/list')
    const { inputSchema, outputSchema, ...rest } = full
    t.strictSame(rest, {
      name: 'full',
      description: 'd',
      ...(hasAnnotations(version) && { annotations: hints }),
      ...(hasTitles(version) && { title: 'Full', _meta }),
      ...(hasIcons(version) && { icons })
    }, version)
    t.match(inputSchema, { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] })
    t.equal(outputSchema !== undefined, hasTitles(version))
    if (outputSchema !== undefined) t.match(outputSchema, { type: 'object', properties: { n: { type: 'number' } } })
    t.equal('outputSchema' in list, isModern(version), 'a list is output in 2026 only')
    t.equal('outputSchema' in union, isModern(version), 'a union has no object at its root')
  }
})

t.test('properties that are `true` or `false` are said as objects before 2026', async (t) => {
  const layer = newLayer()
  const schema = { type: 'object', properties: { any: true, none: false, text: { type: 'string' }, deep: { type: 'object', properties: { inner: true } } } }
  layer.tool('bool', { input: schema, output: schema }, () => ({ text: '' }))
  for (const version of VERSIONS) {
    const { tools: [tool] } = await (await at(version, layer))('tools/list')
    const expected = isModern(version) ? schema.properties : { ...schema.properties, any: {}, none: { not: {} } }
    t.strictSame(tool.inputSchema.properties, expected, version)
    if (hasTitles(version)) t.strictSame(tool.outputSchema.properties, expected)
  }
})

t.test('resources, templates and prompts: titles, icons, _meta, dates', async (t) => {
  const layer = newLayer()
  const spec = { name: 'n', title: 'T', description: 'd', annotations, icons, _meta, mimeType: 'text/plain' }
  layer.resource('x://y', { ...spec, size: 5 }, () => '')
  layer.resourceTemplate('x://y/{id}', spec, () => '')
  layer.prompt('p', { title: 'T', description: 'd', icons, _meta, arguments: { a: { title: 'A', description: 'd' } } }, () => '')
  for (const version of VERSIONS) {
    const ask = await at(version, layer)
    const common = {
      name: 'n',
      mimeType: 'text/plain',
      description: 'd',
      annotations: hasTitles(version) ? annotations : olderAnnotations,
      ...(hasTitles(version) && { title: 'T', _meta }),
      ...(hasIcons(version) && { icons })
    }
    t.strictSame((await ask('resources/list')).resources, [{ uri: 'x://y', size: 5, ...common }], version)
    t.strictSame((await ask('resources/templates/list')).resourceTemplates, [{ uriTemplate: 'x://y/{id}', ...common }])
    t.strictSame((await ask('prompts/list')).prompts, [{
      name: 'p',
      description: 'd',
      arguments: [{ name: 'a', required: true, ...(hasTitles(version) && { title: 'A' }), description: 'd' }],
      ...(hasTitles(version) && { title: 'T', _meta }),
      ...(hasIcons(version) && { icons })
    }])
  }
})

const text = { type: 'text', text: 'a', annotations, _meta } as const
const audio = { type: 'audio', data: 'AA==', mimeType: 'audio/wav', annotations } as const
const link = { type: 'resource_link', uri: 'x://y', name: 'Y', title: 'T', mimeType: 'text/plain' } as const
const embedded = { type: 'resource', resource: { uri: 'x://y', text: 't', _meta }, _meta } as const

function shapedBlocks (version: Version): object[] {
  if (hasTitles(version)) return [text, audio, link, embedded]
  return [
    { type: 'text', text: 'a', annotations: olderAnnotations },
    hasAnnotations(version)
      ? { ...audio, annotations: olderAnnotations }
      : { type: 'resource', resource: { uri: 'data:audio/wav', mimeType: 'audio/wav', blob: 'AA==' }, annotations: olderAnnotations },
    { type: 'text', text: 'Y: x://y' },
    { type: 'resource', resource: { uri: 'x://y', text: 't' } }
  ]
}

t.test('content: sound, links, dates and _meta, in results and in prompts', async (t) => {
  const layer = newLayer()
  const content = [text, audio, link, embedded]
  layer.tool('content', {}, () => ({ content: [...content], _meta }))
  layer.tool('linked', {}, (_args, ctx) => { ctx.link('x://y', 'Y'); return 'see' })
  layer.prompt('content', {}, () => ({ messages: content.map((block) => ({ role: 'assistant' as const, content: block })), _meta }))
  for (const version of VERSIONS) {
    const ask = await at(version, layer)
    const blocks = shapedBlocks(version)
    t.strictSame(unstamped(await ask('tools/call', { name: 'content' })), { content: blocks, isError: false, _meta }, version)
    t.strictSame(unstamped(await ask('prompts/get', { name: 'content' })), { messages: blocks.map((block) => ({ role: 'assistant', content: block })), _meta }, version)
    t.strictSame((await ask('tools/call', { name: 'linked' })).content[1], hasTitles(version) ? { type: 'resource_link', uri: 'x://y', name: 'Y' } : { type: 'text', text: 'Y: x://y' })
  }
})

t.test('contents of resources: _meta', async (t) => {
  const layer = newLayer()
  layer.resource('x://y', {}, () => [{ uri: 'x://y', mimeType: 'text/plain', text: 't', _meta }])
  for (const version of VERSIONS) {
    const ask = await at(version, layer)
    t.strictSame(unstamped(await ask('resources/read', { uri: 'x://y' })), { contents: [{ uri: 'x://y', mimeType: 'text/plain', text: 't', ...(hasTitles(version) && { _meta }) }] }, version)
  }
})

t.test('structured content: none before 2025-06-18, objects until 2026, anything since; its text is always there', async (t) => {
  const layer = newLayer()
  layer.tool('object', { output: { n: z.number() } }, () => ({ n: 1 }))
  layer.tool('list', { output: z.array(z.number()) }, () => [1, 2])
  layer.tool('number', { output: z.number() }, () => 5)
  layer.tool('text', { output: z.string() }, () => 'said')
  layer.tool('null', { output: z.null() }, () => null)
  layer.tool('natural', {}, () => [1])
  layer.tool('silent-object', {}, () => ({ content: [], structuredContent: { n: 1 } }))
  layer.tool('silent-list', {}, () => ({ content: [], structuredContent: [1] }))
  const values: [string, unknown, string, Version][] = [
    ['object', { n: 1 }, '{\n  "n": 1\n}', '2025-06-18'],
    ['list', [1, 2], '[\n  1,\n  2\n]', '2026-07-28'],
    ['number', 5, '5', '2026-07-28'],
    ['text', 'said', 'said', '2026-07-28'],
    ['null', null, 'null', '2026-07-28'],
    ['natural', { result: [1] }, '{\n  "result": [\n    1\n  ]\n}', '2025-06-18']
  ]
  for (const version of VERSIONS) {
    const ask = await at(version, layer)
    for (const [name, structuredContent, said, first] of values) {
      t.strictSame(unstamped(await ask('tools/call', { name })),
        { content: [{ type: 'text', text: said }], isError: false, ...(version >= first && { structuredContent }) }, `${name} ${version}`)
    }
    t.strictSame(unstamped(await ask('tools/call', { name: 'silent-object' })), hasTitles(version)
      ? { content: [], isError: false, structuredContent: { n: 1 } }
      : { content: [{ type: 'text', text: '{\n  "n": 1\n}' }], isError: false }, 'what would be lost is said as text')
    t.strictSame(unstamped(await ask('tools/call', { name: 'silent-list' })), isModern(version)
      ? { content: [], isError: false, structuredContent: [1] }
      : { content: [{ type: 'text', text: '[\n  1\n]' }], isError: false })
  }
})

t.test('who the server is: titles, and what else there is to say', async (t) => {
  const about = { description: 'd', websiteUrl: 'https://example.com', icons }
  const layer = createLayer({ name: 'x', version: '1', title: 'T', ...about })
  for (const version of VERSIONS) {
    const expected = { name: 'x', version: '1', ...(hasTitles(version) && { title: 'T' }), ...(hasIcons(version) && about) }
    const { handle } = connect(layer)
    const info = isModern(version)
      ? (await handle(modern('server/discover'))).result._meta['io.modelcontextprotocol/serverInfo']
      : (await handle(initialize(version))).result.serverInfo
    t.strictSame(info, expected, version)
  }
})

t.test('progress: a message since 2025-03-26', async (t) => {
  const layer = newLayer()
  layer.tool('tell', {}, async (_args, ctx) => { await ctx.progress(1, 2, 'half') })
  for (const version of VERSIONS) {
    const { handle, sent } = isModern(version) ? connect(layer) : await connectAt(version, layer)
    await handle((isModern(version) ? modern : request)('tools/call', { name: 'tell', _meta: { progressToken: 1 } }))
    t.strictSame(sent, [{ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: 1, progress: 1, total: 2, ...(hasAnnotations(version) && { message: 'half' }) } }], version)
  }
})

t.test('what a layer holds is not changed by what is sent', async (t) => {
  const layer = newLayer()
  const result = Object.freeze({ content: Object.freeze([Object.freeze({ ...text, annotations: Object.freeze({ ...annotations }) })]), structuredContent: Object.freeze({ a: 1 }), _meta: Object.freeze({ a: 1 }) })
  layer.tool('frozen', { annotations: Object.freeze({ readOnlyHint: true }) }, () => result as never)
  for (const version of VERSIONS) {
    const ask = await at(version, layer)
    t.match(await ask('tools/call', { name: 'frozen' }), { isError: false, content: [{ text: 'a' }] }, version)
    t.equal((await ask('tools/list')).tools.length, 1)
  }
})
