// A layer taken out of any server: definitions for four readers, and calls as one principal or another.

import t from 'tap'
import { exportDefinitions } from '../../lib/adapters/index.js'
import { principal } from '../../lib/principal.js'
import { createKit, TOOLS } from '../kit.js'

const admin = principal({ id: 'root', roles: ['admin'] })
const guest = principal({ id: 'guest', roles: [] })

t.test('definitions are those that the principal sees', async (t) => {
  const { layer } = createKit()
  layer.tool('secret', { roles: ['admin'] }, () => 'for admins')
  const mine = await exportDefinitions(layer, guest)
  t.same(mine.tools.map(({ name }) => name), TOOLS)
  t.same((await exportDefinitions(layer, admin)).tools.map(({ name }) => name), [...TOOLS, 'secret'])
  t.same(mine.resources.map(({ uri }) => uri), ['test://info'])
  t.same(mine.resourceTemplates.map(({ uriTemplate }) => uriTemplate), ['test://items/{item_id}'])
  t.same(mine.prompts.map(({ name }) => name), ['greet'])
})

t.test('in the words of each model API', async (t) => {
  const { layer } = createKit()
  layer.tool('with.dots', { description: 'Has a name that models refuse' }, () => 'dotted')
  layer.tool('with_dots', {}, () => 'plain')
  const { openai, anthropic, aiSdk, dispatch, tools } = await exportDefinitions(layer)
  const { inputSchema } = tools[0]!
  t.same(openai()[0], { type: 'function', function: { name: 'echo', description: 'Says it again', parameters: inputSchema } })
  t.same(anthropic()[0], { name: 'echo', description: 'Says it again', input_schema: inputSchema })
  // What `asSchema` of the AI SDK looks at: this symbol, and the two members, before it would convert anything.
  t.same(aiSdk()['echo']!.inputSchema, { [Symbol.for('vercel.ai.schema')]: true, jsonSchema: inputSchema, validate: undefined })
  t.ok('validate' in aiSdk()['echo']!.inputSchema)
  t.match(await aiSdk()['echo']!.execute({ text: 'x' }), { structuredContent: { text: 'x' } })
  const names = anthropic().map(({ name }) => name)
  t.ok(names.every((name) => /^[A-Za-z0-9_-]{1,64}$/.test(name)), 'every name is one for a model')
  t.equal(new Set(names).size, names.length)
  t.match(await dispatch('with_dots_2'), { content: [{ text: 'dotted' }] })
  t.match(await dispatch('with.dots'), { content: [{ text: 'dotted' }] })
  t.match(await dispatch('with_dots'), { content: [{ text: 'plain' }] })
})

t.test('calls are made as whoever is named', async (t) => {
  const kit = createKit()
  kit.layer.tool('secret', { roles: ['admin'] }, (_args, ctx) => ctx.principal.id)
  const { dispatch, read, prompt } = await exportDefinitions(kit.layer, guest)
  await t.rejects(dispatch('secret'), { code: -32602, message: 'Unknown tool: secret', data: { name: 'secret' } })
  t.same((await dispatch('secret', {}, { principal: admin })).content, [{ type: 'text', text: 'root' }])
  const result = await dispatch('echo', { text: 'ab', times: 2 })
  t.same(Object.keys(result).sort(), ['_meta', 'content', 'isError', 'structuredContent'], 'nothing of the wire is left on it')
  t.same(result.structuredContent, { text: 'abab' })
  t.match(await dispatch('echo', { text: 1, nope: 2 }), { isError: true })
  t.match(await dispatch('fail'), { isError: true })
  t.match(await read('test://items/beta'), [{ uri: 'test://items/beta', text: /"index": 1/ }])
  await t.rejects(read('test://items/nope'), { code: -32602, data: { uri: 'test://items/nope' } })
  t.same(await prompt('greet', { name: 'Ada' }), { description: 'Greets somebody', messages: [{ role: 'user', content: { type: 'text', text: 'Hi Ada!' } }] })
  const progress: unknown[] = []
  await dispatch('slow', { steps: 2 }, { onProgress: (one) => { progress.push(one) } })
  t.same(progress, [{ progress: 1, total: 2, message: 'step 1' }, { progress: 2, total: 2, message: 'step 2' }])
  const abort = new AbortController()
  const entered = kit.entered('sleepy')
  const sleeping = dispatch('sleepy', {}, { signal: abort.signal })
  const ctx = await entered
  abort.abort(new Error('enough'))
  await t.rejects(sleeping, { message: 'enough' })
  t.ok(ctx.signal.aborted)
})
