// docs/asking-the-user.md: its code is the example's, and its exchanges are what goes over the wire.
// With UPDATE_DOCS=1 the exchanges of the page are written anew.

import t from 'tap'
import { readFile, writeFile } from 'node:fs/promises'
import { createShelf, createShelfLayer } from '../../examples/ask/layer.js'
import type { CloudgMcpOptions } from '../../plugin.js'
import { Connection, serve } from '../field/wire.js'
import type { Service } from '../field/wire.js'
import { initialize, INITIALIZED, modern, request } from '../kit.js'
import type { Event } from './events.js'
import { getEvents, postEvents } from './events.js'

const root = new URL('../../../', import.meta.url)
const page = new URL('docs/asking-the-user.md', root)
const ARGUMENTS = { name: 'delete_folder', arguments: { folder: 'drafts' } }
const YES = { action: 'accept', content: { sure: true } }
const CAPABILITIES = { elicitation: {} }

async function start (options: CloudgMcpOptions = {}): Promise<Service> {
  return serve(t, { layer: createShelfLayer(createShelf()), ...options })
}

async function sessionOn (service: Service): Promise<Connection> {
  const answer = await service.post(initialize('2025-11-25', 'init', CAPABILITIES))
  const session = new Connection(service, answer.headers['mcp-session-id'] as string)
  await session.post(INITIALIZED)
  return session
}

function asked (headers: Record<string, string>, body?: unknown): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\n`).join('')
  return `${body === undefined ? 'GET' : 'POST'} /mcp HTTP/1.1\n${lines}${body === undefined ? '' : `\n${JSON.stringify(body)}\n`}`
}

function answered (type: string, body: string): string {
  return `\nHTTP/1.1 200 OK\nContent-Type: ${type}\n\n${body.trimEnd()}\n`
}

function eventText ({ id, message, retry }: Event): string {
  const lines = [...(message === undefined ? [] : ['event: message']), ...(id === undefined ? [] : [`id: ${id}`]), ...(retry === undefined ? [] : [`retry: ${retry}`])]
  return `${[...lines, `data: ${message === undefined ? '' : JSON.stringify(message)}`.trimEnd()].join('\n')}\n`
}

async function handshake (): Promise<string[]> {
  const session = await sessionOn(await start())
  const headers = { 'MCP-Protocol-Version': '2025-11-25', 'Mcp-Session-Id': session.id }
  const call = request('tools/call', ARGUMENTS, 1)
  const stream = await postEvents(session, call)
  const question = (await stream.next())!
  const answer = { jsonrpc: '2.0', id: question.message.id, result: YES }
  const taken = await session.post(answer)
  const rest = await stream.rest()
  return [
    asked(headers, call) + answered('text/event-stream', eventText(question)),
    `${asked(headers, answer)}\nHTTP/1.1 ${taken.status} Accepted\n`,
    rest.map(eventText).join('\n')
  ]
}

async function rounds (): Promise<string[]> {
  const service = await start()
  const headers = { 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': 'tools/call', 'Mcp-Name': 'delete_folder' }
  const _meta = { 'io.modelcontextprotocol/clientCapabilities': CAPABILITIES }
  const first = modern('tools/call', { ...ARGUMENTS, _meta }, 1)
  const { text, reply: { result: { inputRequests, requestState } } } = await service.post(first, headers)
  const [key] = Object.keys(inputRequests) as [string]
  const second = modern('tools/call', { ...ARGUMENTS, inputResponses: { [key]: YES }, requestState, _meta }, 2)
  const done = await service.post(second, headers)
  return [asked(headers, first) + answered('text/event-stream', text), asked(headers, second) + answered('text/event-stream', done.text)]
}

async function resumed (): Promise<string[]> {
  const session = await sessionOn(await start({ resumable: true }))
  const headers = { 'MCP-Protocol-Version': '2025-11-25', 'Mcp-Session-Id': session.id }
  const call = request('tools/call', ARGUMENTS, 1)
  const stream = await postEvents(session, call)
  const [primed, question] = [(await stream.next())!, (await stream.next())!]
  stream.destroy()
  await session.post({ jsonrpc: '2.0', id: question.message.id, result: YES })
  const back = await (await getEvents(session, question.id)).rest()
  return [
    asked(headers, call) + answered('text/event-stream', [primed, question].map(eventText).join('\n')),
    asked({ ...headers, 'Last-Event-ID': question.id! }) + answered('text/event-stream', back.map(eventText).join('\n'))
  ]
}

/** What is another one every time. */
function timeless (text: string): string {
  return text
    .replaceAll(/ask-[0-9a-f-]{36}/g, 'ask-…')
    .replaceAll(/v1\.[\w-]+/g, 'v1.…')
    .replaceAll(/(Mcp-Session-Id: )[0-9a-f]{32}/g, '$1…')
    .replaceAll(/((?:^id|Last-Event-ID): )[0-9a-f]{12}_/gm, '$1…_')
    .replaceAll(/"cloudg\/duration_ms":\d+/g, '"cloudg/duration_ms":…')
}

function blocksOf (text: string, language: string): string[] {
  return [...text.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, 'g'))].map((match) => match[1]!)
}

t.test('the exchanges on the page are what goes over the wire', async (t) => {
  const real = [...await handshake(), ...await rounds(), ...await resumed()]
  let text = await readFile(page, 'utf8')
  if (process.env['UPDATE_DOCS'] === '1') {
    let at = 0
    text = text.replaceAll(/```http\n[\s\S]*?```/g, () => `\`\`\`http\n${real[at++]}\`\`\``)
    await writeFile(page, text)
  }
  const shown = blocksOf(text, 'http')
  t.equal(shown.length, real.length)
  for (const [at, block] of real.entries()) t.equal(timeless(shown[at]!), timeless(block))
})

t.test('the code on the page is the example\'s', async (t) => {
  const example = (await Promise.all(['layer.ts', 'app.ts'].map((file) => readFile(new URL(`examples/ask/${file}`, root), 'utf8')))).join('\n').replaceAll(/^ +/gm, '')
  const blocks = blocksOf(await readFile(page, 'utf8'), 'ts')
  t.ok(blocks.length >= 3)
  for (const block of blocks) t.ok(example.includes(block.replaceAll(/^ +/gm, '').trim()), block.split('\n')[0])
})
