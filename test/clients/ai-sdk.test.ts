// The client of the AI SDK, which looks for the newest revision first, opens a stream before it has a session, and repeats
// headers of an era that it is not in.

import { createMCPClient } from '@ai-sdk/mcp'
import t from 'tap'
import { memoryBackplane } from '../../lib/backplane/memory.js'
import { FORCE, serve } from '../field/wire.js'
import { createKit, TOOLS } from '../kit.js'

for (const [era, discovery] of [['2026-07-28', true], ['2025-11-25', false]] as const) {
  t.test(`the AI SDK lists, calls, reads, prompts and completes at ${era}`, async (t) => {
    const { layer } = createKit()
    layer.tool('version', {}, (_args, ctx) => ({ version: ctx.protocolVersion, who: ctx.principal.id }))
    const backplane = memoryBackplane()
    t.teardown(() => backplane.close())
    const service = await serve(t, { layer, backplane, auth: { tokens: ['secret:analyst:alice'] } }, FORCE)
    const errors: unknown[] = []
    const client = await createMCPClient({
      transport: { type: 'http', url: `http://127.0.0.1:${service.port}/mcp`, headers: { authorization: 'Bearer secret' } },
      protocolVersionDiscovery: discovery,
      onUncaughtError: (error) => { errors.push(error) }
    })
    t.match(client.serverInfo, { name: 'kit', version: '1.2.3' })
    t.equal(client.instructions, 'A kit for tests')
    t.same((await client.listTools()).tools.map(({ name }) => name), [...TOOLS, 'version'])
    const tools = await client.tools()
    const run = async (name: string, args: object): Promise<any> => (tools[name] as any).execute(args, { messages: [], toolCallId: 'c' })
    t.same((await run('version', {})).structuredContent, { version: era, who: 'alice' })
    t.same((await client.callTool({ name: 'slow', arguments: { steps: 2 } })).structuredContent, { done: 2 }, 'notifications before the answer do not disturb it')
    t.equal((await client.callTool({ name: 'fail' })).isError, true)
    await t.rejects(client.callTool({ name: 'nope' }), /Unknown tool: nope/)

    t.same((await client.listResources()).resources.map(({ uri }) => uri), ['test://info'])
    t.same((await client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate), ['test://items/{item_id}'])
    const [content] = (await client.readResource({ uri: 'test://info' })).contents as { text: string }[]
    t.same(JSON.parse(content!.text), { hello: 'world' })
    t.same((await client.listPrompts()).prompts.map(({ name }) => name), ['greet'])
    t.match((await client.getPrompt({ name: 'greet', arguments: { name: 'Ann', style: 'formal' } })).messages, [{ content: { text: 'Good day, Ann.' } }])
    const { completion } = await client.complete({ ref: { type: 'ref/resource', uri: 'test://items/{item_id}' }, argument: { name: 'item_id', value: 'a' } })
    t.same(completion.values, ['alpha'])
    await client.close()
    t.equal(await backplane.countSessions(), 0)
    // It has no use for log messages, which a handshake session gets until it says otherwise.
    t.same(errors.map((error) => (error as Error).message), discovery ? [] : ['Unsupported message type', 'Unsupported message type'])
  })
}

t.test('the AI SDK is refused without a valid token', async (t) => {
  const service = await serve(t, { layer: createKit().layer, auth: { tokens: ['secret'] } }, FORCE)
  const url = `http://127.0.0.1:${service.port}/mcp`
  await t.rejects(createMCPClient({ transport: { type: 'http', url, headers: { authorization: 'Bearer wrong' } } }), /401|Unauthorized/i)
})

t.test('the AI SDK works with a stateless service', async (t) => {
  const service = await serve(t, { layer: createKit().layer, stateless: true }, FORCE)
  for (const protocolVersionDiscovery of [true, false]) {
    const client = await createMCPClient({ transport: { type: 'http', url: `http://127.0.0.1:${service.port}/mcp` }, protocolVersionDiscovery })
    t.equal((await client.listTools()).tools.length, TOOLS.length)
    t.match((await client.callTool({ name: 'echo', arguments: { text: 'a', times: 2 } })).content, [{ type: 'text' }])
    await client.close()
  }
})
