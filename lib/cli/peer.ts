// Whom the commands ask: a layer in this process, or a server somewhere else. Both through the protocol, so that they answer
// alike.

import type { Params, Result } from '../jsonrpc.js'
import type { Layer } from '../layer/contract.js'
import { META } from '../protocol/era.js'
import { ProtocolServer } from '../protocol/server.js'
import { LATEST_MODERN } from '../revisions.js'
import { stderrLogger } from '../stdio/log.js'
import { UsageError } from './errors.js'

export type Listed = 'tools' | 'resources' | 'resourceTemplates' | 'prompts'

export interface Peer {
  /** All pages of a list. */
  list (kind: Listed): Promise<Result[]>
  callTool (name: string, args: Params): Promise<Result>
  readResource (uri: string): Promise<Result>
  getPrompt (name: string, args: Params): Promise<Result>
  close (): Promise<void>
}

const listMethods: Record<Listed, string> = {
  tools: 'tools/list',
  resources: 'resources/list',
  resourceTemplates: 'resources/templates/list',
  prompts: 'prompts/list'
}

export async function localPeer (layer: Layer): Promise<Peer> {
  const server = new ProtocolServer(layer, { log: stderrLogger('error'), pageSize: 0 })
  await server.start()
  await layer.start?.()
  const session = server.createSession({ transport: 'memory' })
  const meta = { [META.protocolVersion]: LATEST_MODERN, [META.clientCapabilities]: {} }
  let id = 0

  async function request (method: string, params: Params): Promise<Result> {
    const reply: any = await session.handle({ jsonrpc: '2.0', id: ++id, method, params: { ...params, _meta: meta } })
    if (reply.error !== undefined) throw new Error(reply.error.message)
    return reply.result
  }
  return {
    list: async (kind) => (await request(listMethods[kind], {}))[kind],
    callTool: async (name, args) => request('tools/call', { name, arguments: args }),
    readResource: async (uri) => request('resources/read', { uri }),
    getPrompt: async (name, args) => request('prompts/get', { name, arguments: args }),
    async close () {
      session.close()
      await server.close()
      await layer.stop?.()
    }
  }
}

export async function remotePeer (url: string, token: string | undefined, version: string): Promise<Peer> {
  if (!URL.canParse(url)) throw new UsageError(`--url ${url}: not a URL`)
  const { Client, StreamableHTTPClientTransport } = await officialClient()
  const client = new Client({ name: 'cloudg-mcp', version }, { versionNegotiation: { mode: 'auto' } })
  const headers: Record<string, string> = token === undefined ? {} : { Authorization: `Bearer ${token}` }
  try {
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }))
  } catch (error) {
    throw new Error(`${url}: ${reason(error)}`, { cause: error })
  }
  return {
    async list (kind) {
      switch (kind) {
        case 'tools': return (await client.listTools()).tools
        case 'resources': return (await client.listResources()).resources
        case 'resourceTemplates': return (await client.listResourceTemplates()).resourceTemplates
        case 'prompts': return (await client.listPrompts()).prompts
      }
    },
    callTool: async (name, args) => client.callTool({ name, arguments: args }),
    readResource: async (uri) => client.readResource({ uri }),
    getPrompt: async (name, args) => client.getPrompt({ name, arguments: args }),
    close: async () => client.close()
  }
}

async function officialClient () {
  try {
    return await import('@modelcontextprotocol/client')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new Error('--url needs the official MCP client: npm install @modelcontextprotocol/client')
  }
}

/** `fetch failed` says nothing; what is at the bottom of it does. */
function reason (error: unknown): string {
  const { message } = error as Error
  if (!message.endsWith('fetch failed')) return message
  let bottom = error as NodeJS.ErrnoException
  while (bottom.cause instanceof Error) bottom = bottom.cause
  return bottom.message || bottom.code || message
}
