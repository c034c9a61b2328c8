// examples/ask: what its README shows works, and its three ways of asking come to the same end for clients of both eras.

import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import t, { type Test } from 'tap'
import { buildApp } from '../../examples/ask/app.js'
import { createShelf } from '../../examples/ask/layer.js'

const root = new URL('../../../', import.meta.url)

async function shelfFor (t: Test, mode: 'legacy' | 'modern', answer: (message: string) => object) {
  const shelf = createShelf()
  const app = await buildApp({ shelf })
  await app.listen({ host: '127.0.0.1', port: 0 })
  const client = new Client({ name: 'test', version: '1' }, {
    capabilities: { elicitation: {} }, ...(mode === 'modern' && { versionNegotiation: { mode: { pin: '2026-07-28' } } })
  })
  const asked: string[] = []
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    asked.push(params.message)
    return answer(params.message) as any
  })
  await client.connect(new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${(app.server.address() as AddressInfo).port}/mcp`)))
  t.teardown(async () => {
    await client.close()
    await app.close()
  })
  const call = async (name: string, args: Record<string, unknown>): Promise<any> => {
    const { structuredContent, content, isError } = await client.callTool({ name, arguments: args }) as any
    return isError ? content[0].text : structuredContent
  }
  return { shelf, asked, call }
}

for (const mode of ['legacy', 'modern'] as const) {
  t.test(`the shelf asks a ${mode} client before anything happens`, async (t) => {
    const yes = await shelfFor(t, mode, (message) => ({ action: 'accept', content: message.startsWith('A label') ? { label: 'seen' } : { sure: true } }))
    t.same(await yes.call('delete_folder', { folder: 'drafts' }), { deleted: 3 })
    t.same(await yes.call('delete_document', { path: 'reports/2024.pdf' }), { deleted: true })
    t.same(await yes.call('label_folder', { folder: 'reports' }), { labelled: 1 })
    t.same([...yes.shelf], [['reports/2025.pdf', 'seen']])
    t.same(yes.asked, ['Delete 3 documents in drafts?', 'Delete reports/2024.pdf?', 'A label for reports/2025.pdf?'])
    t.equal(await yes.call('delete_folder', { folder: 'drafts' }), 'There is no folder drafts')
    t.equal(yes.asked.length, 3)

    const no = await shelfFor(t, mode, () => ({ action: 'decline' }))
    t.same(await no.call('delete_folder', { folder: 'drafts' }), { deleted: 0 })
    t.same(await no.call('delete_document', { path: 'reports/2024.pdf' }), { deleted: false })
    t.same(await no.call('label_folder', { folder: 'reports' }), { labelled: 0 })
    t.same(no.shelf, createShelf())

    const labels = await shelfFor(t, mode, (message) => ({ action: 'accept', content: { label: message } }))
    t.same(await labels.call('label_folder', { folder: 'drafts' }), { labelled: 3 })
    t.same(labels.asked, ['A label for drafts/ideas.md?', 'A label for drafts/letter.md?', 'A label for drafts/poem.md?'])
    t.equal(labels.shelf.get('drafts/poem.md'), 'A label for drafts/poem.md?')
  })
}

t.test('the server starts, and the commands of the README ask and delete, with a restart between the two', async (t) => {
  const readme = await readFile(new URL('examples/ask/README.md', root), 'utf8')
  const script = /## Try[\s\S]*?```sh\n([\s\S]*?)```/.exec(readme)![1]!
  const env = { ...process.env, PORT: '0', STATE_KEYS: `${'n'.repeat(32)};${'o'.repeat(32)}` }

  async function start (): Promise<{ port: number, stop: () => Promise<void> }> {
    const child = spawn(process.execPath, [fileURLToPath(new URL('build/examples/ask/server.js', root))], { env, stdio: ['ignore', 'pipe', 'inherit'] })
    const [line] = await once(createInterface(child.stdout), 'line') as [string]
    const stop = async (): Promise<void> => {
      if (child.exitCode !== null || child.signalCode !== null) return
      const ended = once(child, 'exit')
      child.kill()
      await ended
    }
    t.teardown(stop)
    return { port: Number(/:(\d+)/.exec(JSON.parse(line).msg)![1]), stop }
  }

  const run = async (commands: string, port: number): Promise<string> => {
    const { stdout } = await promisify(execFile)('bash', ['-c', commands.replaceAll(':3000/', `:${port}/`)])
    return stdout
  }
  const [ask, answer] = script.split(/^(?=call '"inputResponses)/m) as [string, string]
  const first = await start()
  const state = (await run(`${ask}echo "$STATE"`, first.port)).trim()
  t.match(state, /^v1\.[\w-]+$/)
  t.match(JSON.parse(await run(script, first.port)).result, { resultType: 'complete', structuredContent: { deleted: true } }, 'as it stands')
  await first.stop()

  const second = await start()
  const reply = await run(`${ask.replace(/^STATE=.*$/m, `STATE='${state}'`)}${answer}`, second.port)
  t.match(JSON.parse(reply).result, { structuredContent: { deleted: true } }, 'the state of the first server is good at the second')
  await second.stop()
})
