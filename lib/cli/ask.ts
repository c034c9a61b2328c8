// `cloudg-mcp tools | resources | prompts | call | read | prompt`: what a layer or a running server offers, and one use of it.

import { parseTokenSpec } from '../auth/tokens.js'
import type { Params, Result } from '../jsonrpc.js'
import { isObject } from '../jsonrpc.js'
import { protectStdout } from '../stdio/protect.js'
import { UsageError } from './errors.js'
import type { Source } from './load.js'
import { loadLayer } from './load.js'
import type { Peer } from './peer.js'
import { localPeer, remotePeer } from './peer.js'
import { version } from './version.js'

export interface AskOptions extends Source {
  url?: string
  token?: string
  json?: boolean
  args?: string
}

/** What a command found out: the text for standard output, and whether it failed. */
interface Answer { text: string, failed?: boolean }

export async function listTools (options: AskOptions): Promise<void> {
  await ask(options, async (peer) => listing(await peer.list('tools'), options, ({ name }) => name))
}

export async function listResources (options: AskOptions): Promise<void> {
  await ask(options, async (peer) => listing([...await peer.list('resources'), ...await peer.list('resourceTemplates')], options, ({ uri, uriTemplate }) => uri ?? uriTemplate))
}

export async function listPrompts (options: AskOptions): Promise<void> {
  await ask(options, async (peer) => listing(await peer.list('prompts'), options, ({ name }) => name))
}

export async function call (name: string, options: AskOptions): Promise<void> {
  const args = parseArguments(options.args)
  await ask(options, async (peer) => {
    const result = await peer.callTool(name, args)
    const text = options.json || (!result.isError && result.structuredContent !== undefined)
      ? pretty(options.json ? result : result.structuredContent)
      : textOf(result.content)
    return { text, failed: result.isError === true }
  })
}

export async function read (uri: string, options: AskOptions): Promise<void> {
  await ask(options, async (peer) => {
    const result = await peer.readResource(uri)
    return { text: options.json ? pretty(result) : result.contents.map((one: Result) => one.text ?? one.blob).join('\n') }
  })
}

export async function prompt (name: string, options: AskOptions): Promise<void> {
  const args = parseArguments(options.args)
  await ask(options, async (peer) => {
    const result = await peer.getPrompt(name, args)
    return { text: options.json ? pretty(result) : result.messages.map(({ role, content }: Result) => `${role}: ${textOf([content])}`).join('\n\n') }
  })
}

async function ask (options: AskOptions, use: (peer: Peer) => Promise<Answer>): Promise<void> {
  if (options.token !== undefined && options.url === undefined) throw new UsageError('--token needs --url')
  if (options.url !== undefined && (options.module !== undefined || options.dataset !== undefined)) {
    throw new UsageError('--url asks a running server: it cannot be given with --module or --dataset')
  }
  // What a handler prints is not the answer.
  const { output, restore } = protectStdout()
  try {
    const peer = options.url === undefined ? await localPeer(await loadLayer(options)) : await remotePeer(options.url, readToken(options.token), version())
    let answer: Answer
    try {
      answer = await use(peer)
    } finally {
      await peer.close()
    }
    if (answer.failed && !options.json) throw new Error(answer.text)
    if (answer.text !== '') await new Promise<void>((resolve, reject) => { output.write(answer.text + '\n', (error) => { error ? reject(error) : resolve() }) })
    if (answer.failed) throw new Error('the tool reported an error')
  } finally {
    restore()
  }
}

function listing (items: Result[], { json }: AskOptions, key: (item: Result) => string): Answer {
  if (json) return { text: pretty(items) }
  const width = Math.max(0, ...items.map((item) => key(item).length))
  return { text: items.map((item) => `${key(item).padEnd(width)}  ${firstSentence(item.description ?? item.title ?? '')}`.trimEnd()).join('\n') }
}

function firstSentence (text: string): string {
  return /^.*?[.!?](?=\s|$)/s.exec(text)?.[0].replace(/\s+/g, ' ') ?? text
}

function textOf (content: Result[]): string {
  return content.map((block) => block.text ?? block.resource?.text ?? `[${block.type} ${block.mimeType ?? block.uri ?? block.resource?.uri ?? ''}]`).join('\n')
}

function pretty (value: unknown): string {
  return JSON.stringify(value, null, 2)
}

function parseArguments (text = '{}'): Params {
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch (error) {
    throw new UsageError(`--args: not JSON: ${(error as Error).message}`)
  }
  if (!isObject(parsed)) throw new UsageError('--args: expected a JSON object')
  return parsed
}

/** The token itself, or `env:VAR`: what is on a command line can be read by other users of the machine. */
function readToken (spec: string | undefined): string | undefined {
  return spec?.startsWith('env:') ? parseTokenSpec(spec).token : spec
}
