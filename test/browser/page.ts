// What a page does with the official client. Bundled for the browser; the test calls these functions there.

import type { VersionNegotiationMode } from '@modelcontextprotocol/client'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'

const CALL = {
  method: 'POST',
  headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
  body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' })
}

async function work (url: string, token: string, mode: VersionNegotiationMode) {
  const client = new Client({ name: 'page', version: '1.0.0' }, { versionNegotiation: { mode } })
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization: `Bearer ${token}` } } })
  await client.connect(transport)
  try {
    const { tools } = await client.listTools()
    const progress: number[] = []
    const result = await client.callTool({ name: 'steps', arguments: { steps: 3 } }, { onprogress: (one) => { progress.push(one.progress) } })
    return { version: client.getNegotiatedProtocolVersion(), session: transport.sessionId !== undefined, tools: tools.map(({ name }) => name), progress, result: result.structuredContent }
  } finally {
    await transport.terminateSession?.()
    await client.close()
  }
}

/** From a bare 401 to the document that it leads to. */
async function findTheWay (url: string) {
  const refused = await fetch(url, CALL)
  const challenge = refused.headers.get('www-authenticate')
  const document = /resource_metadata="([^"]+)"/.exec(challenge ?? '')![1]!
  const found = await fetch(document, { headers: { 'mcp-protocol-version': '2025-11-25' } })
  return { status: refused.status, challenge, document: await found.json() as unknown }
}

/** What a page can do to an endpoint that does not want it: which of its requests it could read the answer of. */
async function intrude (url: string, token: string): Promise<string[]> {
  const authorization = `Bearer ${token}`
  const ways: Record<string, RequestInit> = {
    'a plain POST': { ...CALL, headers: { 'content-type': 'text/plain' } },
    'a JSON POST': CALL,
    'with the token': { ...CALL, headers: { ...CALL.headers, authorization } },
    'with cookies': { ...CALL, credentials: 'include' },
    'a GET': { headers: { accept: 'text/event-stream' } },
    'a DELETE': { method: 'DELETE', headers: { 'mcp-session-id': '0' } }
  }
  const read: string[] = []
  for (const [way, init] of Object.entries(ways)) await fetch(url, init).then(() => read.push(way), () => {})
  await work(url, token, 'auto').then(() => read.push('the client'), () => {})
  return read
}

Object.assign(globalThis, { mcp: { work, findTheWay, intrude } })
export type Page = { work: typeof work, findTheWay: typeof findTheWay, intrude: typeof intrude }
