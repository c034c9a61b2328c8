// The official clients, in every revision that they can speak, against one URL.

import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as Http1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { Client as Client2, StreamableHTTPClientTransport as Http2 } from '@modelcontextprotocol/client'
import type { Test } from 'tap'

export const HEADERS = { authorization: 'Bearer alice-token', 'x-agent': 'tests' }
const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} }
const answers = {
  elicit: { action: 'accept' as const, content: { name: 'Ada' } },
  sample: { role: 'assistant' as const, model: 'm', content: { type: 'text' as const, text: 'Paris' } },
  roots: { roots: [{ uri: 'file:///work' }] }
}

export interface Speaker { name: string, version: string, modern: boolean, connect (t: Test, url: string, headers?: Record<string, string>): Promise<Peer> }

/** A connected client, and what it has been told. Methods that both clients have are called on `client`. */
export class Peer {
  readonly client: any
  readonly modern: boolean
  readonly told: { method: string, params?: any }[] = []
  readonly #waiting: (() => void)[] = []

  constructor (client: any, modern: boolean) {
    this.client = client
    this.modern = modern
    client.fallbackNotificationHandler = async (notification: any) => { this.note(notification) }
  }

  note (notification: { method: string, params?: any }): void {
    this.told.push(notification)
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  async hears (method: string): Promise<any> {
    for (;;) {
      const found = this.told.findIndex((one) => one.method === method)
      if (found !== -1) return this.told.splice(found, 1)[0]!.params ?? {}
      await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
    }
  }

  call (name: string, args: Record<string, unknown> = {}, options: Record<string, unknown> = {}, _meta?: Record<string, unknown>): Promise<any> {
    const params = { name, arguments: args, ...(_meta && { _meta }) }
    return this.client instanceof Client1 ? this.client.callTool(params, undefined, options) : this.client.callTool(params, options)
  }

  async text (name: string, args?: Record<string, unknown>): Promise<string> {
    const result = await this.call(name, args)
    if (result.isError) throw new Error(result.content[0].text)
    return result.content[0].text
  }
}

const first: Speaker = {
  name: 'client 1.x at 2025-11-25',
  version: '2025-11-25',
  modern: false,
  async connect (t, url, headers = HEADERS) {
    const client = new Client1({ name: 'peer', version: '1' }, { capabilities })
    client.setRequestHandler(ElicitRequestSchema, () => answers.elicit)
    client.setRequestHandler(CreateMessageRequestSchema, () => answers.sample)
    client.setRequestHandler(ListRootsRequestSchema, () => answers.roots)
    const peer = new Peer(client, false)
    const transport = new Http1(new URL(url), { requestInit: { headers } })
    t.teardown(async () => {
      await transport.terminateSession()
      await client.close()
    })
    await client.connect(transport as never)
    return peer
  }
}

function second (version: string): Speaker {
  const modern = version === '2026-07-28'
  return {
    name: `client 2.x at ${version}`,
    version,
    modern,
    async connect (t, url, headers = HEADERS) {
      const client = new Client2({ name: 'peer', version: '2' }, modern
        ? { capabilities, versionNegotiation: { mode: { pin: version } } }
        : { capabilities, supportedProtocolVersions: [version] })
      client.setRequestHandler('elicitation/create', () => answers.elicit)
      client.setRequestHandler('sampling/createMessage', () => answers.sample)
      client.setRequestHandler('roots/list', () => answers.roots)
      const peer = new Peer(client, modern)
      for (const method of ['notifications/message', 'notifications/tools/list_changed', 'notifications/resources/updated'] as const) {
        client.setNotificationHandler(method, (notification) => { peer.note(notification) })
      }
      const transport = new Http2(new URL(url), { requestInit: { headers } })
      t.teardown(async () => {
        if (!modern) await transport.terminateSession()
        await client.close()
      })
      await client.connect(transport)
      t.equal(client.getNegotiatedProtocolVersion(), version)
      return peer
    }
  }
}

export const SPEAKERS: readonly Speaker[] = [first, ...['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'].map(second)]
