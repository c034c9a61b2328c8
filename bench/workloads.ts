// What is measured: W1-W5 and W9, each the same work on every server. Bare Fastify comes first in each: the yardstick.

import type { LoadJob } from './load.js'
import { TOKEN } from './servers/data.js'

export interface Target {
  name: string
  file: string
  env?: Record<string, string>
  /** Left out of the quick check. */
  peer?: boolean
  job: Pick<LoadJob, 'path' | 'headers' | 'body' | 'expect'> & Partial<LoadJob>
  /** Opens sessions and the like; what it returns goes into the job. */
  prepare?: (port: number) => Promise<Partial<LoadJob>>
}
export interface Workload { name: string, targets: Target[] }

const META = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} }
const BOTH = 'application/json, text/event-stream'
const auth = { authorization: `Bearer ${TOKEN}` }
const SESSIONS = 32

function message (method: string, params: object): string {
  return JSON.stringify({ jsonrpc: '2.0', id: '$id', method, params })
}

function modernHeaders (method: string, name?: string): Record<string, string> {
  return { accept: BOTH, 'mcp-protocol-version': '2026-07-28', 'mcp-method': method, ...(name !== undefined && { 'mcp-name': name }) }
}

const call = (name: string, args: object, meta: object = {}): string => message('tools/call', { name, arguments: args, ...(Object.keys(meta).length > 0 && { _meta: meta }) })

function bare (path: string, body: string, expect: string): Target {
  return { name: 'bare Fastify', file: './servers/fastify.js', job: { path, headers: { accept: BOTH }, body, expect } }
}

/** A 2026 request: to us with a token, to others as they come. */
function modern (name: string, file: string, method: string, tool: string | undefined, body: string, expect: string, more: Partial<Target> = {}): Target {
  const ours = file === './servers/cloudg.js'
  return { name, file, ...more, job: { path: '/mcp', headers: { ...modernHeaders(method, tool), ...(ours && auth) }, body, expect } }
}

/** A request of the handshake era to a server without sessions. */
function handshake (name: string, file: string, body: string, expect: string, env: Record<string, string> = {}): Target {
  const headers = { accept: BOTH, 'mcp-protocol-version': '2025-06-18', ...(file === OURS && auth) }
  return { name, file, env: { STATELESS: '1', JSON: '1', ...env }, job: { path: '/mcp', headers, body, expect } }
}

/** Opens sessions as a client does: initialize, then initialized. */
export async function openSession (port: number, headers: Record<string, string>): Promise<string> {
  const post = async (body: object, session?: string): Promise<Response> => {
    const response = await fetch(`http://127.0.0.1:${port}/mcp`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: BOTH, ...headers, ...(session !== undefined && { 'mcp-session-id': session }) },
      body: JSON.stringify({ jsonrpc: '2.0', ...body })
    })
    await response.text()
    return response
  }
  const opened = await post({ id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bench', version: '1' } } })
  const session = opened.headers.get('mcp-session-id')!
  await post({ method: 'notifications/initialized' }, session)
  return session
}

function openSessions (port: number, headers: Record<string, string>): Promise<string[]> {
  return Promise.all(Array.from({ length: SESSIONS }, () => openSession(port, headers)))
}

function session (name: string, file: string, body: string, expect: string, more: Partial<Target> = {}): Target {
  const headers = { accept: BOTH, ...(file === OURS && auth) }
  return { name, file, ...more, job: { path: '/mcp', headers, body, expect }, prepare: async (port) => ({ sessions: await openSessions(port, headers) }) }
}

const OURS = './servers/cloudg.js'
const V2 = './servers/official-v2.js'
const sse = { env: { RESPONSE_MODE: 'sse' } }
const many = { TOOLS: '73' }
const text = { text: 'hello' }
const token = { progressToken: 'p' }

/** The other servers on npm, without sessions: every one as its documentation has it, JSON replies where it can. */
function statelessPeers (method: string, params: object, expect: string, env: Record<string, string> = {}): Target[] {
  const legacy = (name: string, file: string): Target => ({ ...handshake(name, file, message(method, params), expect, env), peer: true })
  const tool = (params as { name?: string }).name
  const inEnvelope = message(method, { ...params, _meta: { ...(params as { _meta?: object })._meta, ...META } })
  return [
    modern('official v2', V2, method, tool, inEnvelope, expect, { env, peer: true }),
    legacy('official v1', './servers/official-v1.js'),
    legacy('fastmcp', './servers/fastmcp.js'),
    legacy('fastify-mcp', './servers/fastify-mcp.js'),
    legacy('mcp-lite', './servers/mcp-lite.js'),
    modern('tmcp', './servers/tmcp.js', method, tool, inEnvelope, expect, { env, peer: true })
  ]
}

export const sessionServers: { name: string, file: string, env?: Record<string, string>, headers?: Record<string, string> }[] = [
  { name: 'official v2', file: './servers/official-v2-session.js' },
  { name: 'official v1', file: './servers/official-v1.js' },
  { name: 'fastmcp', file: './servers/fastmcp.js' },
  { name: 'fastify-mcp', file: './servers/fastify-mcp.js' },
  { name: 'mcp-lite', file: './servers/mcp-lite.js' },
  { name: 'tmcp', file: './servers/tmcp.js' }
]

function sessionPeers (body: string, expect: string, env: Record<string, string> = {}): Target[] {
  return sessionServers.map(({ name, file }) => session(name, file, body, expect, { peer: true, env }))
}

export const workloads: Workload[] = [
  {
    name: 'W1 small call, 2026',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      modern('cloudg-mcp', OURS, 'tools/call', 'echo', call('echo', text, META), '"hello"'),
      modern('cloudg-mcp, SSE reply', OURS, 'tools/call', 'echo', call('echo', text, META), '"hello"', sse),
      handshake('cloudg-mcp, 2025 without a session', OURS, call('echo', text), '"hello"'),
      ...statelessPeers('tools/call', { name: 'echo', arguments: text }, '"hello"')
    ]
  },
  {
    name: 'W2 small call, session',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      session('cloudg-mcp', OURS, call('echo', text), '"hello"'),
      ...sessionPeers(call('echo', text), '"hello"', { JSON: '1' })
    ]
  },
  {
    name: 'W3 SSE, two progress, 2026',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      modern('cloudg-mcp', OURS, 'tools/call', 'progress', call('progress', text, { ...META, ...token }), '"progress":2'),
      modern('official v2', V2, 'tools/call', 'progress', call('progress', text, { ...META, ...token }), '"progress":2', { peer: true }),
      modern('tmcp', './servers/tmcp.js', 'tools/call', 'progress', call('progress', text, { ...META, ...token }), '"progress":2', { peer: true })
    ]
  },
  {
    name: 'W3 SSE, two progress, session',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      session('cloudg-mcp', OURS, call('progress', text, token), '"progress":2'),
      ...sessionPeers(call('progress', text, token), '"progress":2')
    ]
  },
  {
    name: 'W4 list of 73 tools, 2026',
    targets: [
      bare('/list', message('tools/list', {}), 'inventory_tool_72'),
      modern('cloudg-mcp', OURS, 'tools/list', undefined, message('tools/list', { _meta: META }), 'inventory_tool_72', { env: many }),
      ...statelessPeers('tools/list', {}, 'inventory_tool_72', many)
    ]
  },
  {
    name: 'W5 100 KB result with output check, 2026',
    targets: [
      bare('/big', call('big', {}), 'asset-00759'),
      modern('cloudg-mcp', OURS, 'tools/call', 'big', call('big', {}, META), 'asset-00759'),
      ...statelessPeers('tools/call', { name: 'big', arguments: {} }, 'asset-00759')
    ]
  },
  {
    name: 'W9 small call with 73 tools, 2026',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      modern('cloudg-mcp', OURS, 'tools/call', 'echo', call('echo', text, META), '"hello"', { env: many }),
      ...statelessPeers('tools/call', { name: 'echo', arguments: text }, '"hello"', many)
    ]
  }
]

export { auth as ownHeaders, OURS, V2 }

export interface Gate { workload: string, target: string, most?: number, least?: number, of?: { workload: string, target: string } }

const W1 = { workload: 'W1 small call, 2026', target: 'cloudg-mcp' }

/** What `BENCH_CHECK=1` holds: CPU a request as a ratio to bare Fastify, or to another row, with room for a noisy machine. */
export const gates: Gate[] = [
  { ...W1, most: 2.2 },
  { workload: W1.workload, target: 'official v2', least: 5, of: W1 },
  { workload: 'W2 small call, session', target: 'cloudg-mcp', most: 1.8 },
  { workload: 'W3 SSE, two progress, 2026', target: 'cloudg-mcp', most: 3 },
  { workload: 'W3 SSE, two progress, session', target: 'cloudg-mcp', most: 3 },
  { workload: 'W4 list of 73 tools, 2026', target: 'cloudg-mcp', most: 0.5 },
  { workload: 'W5 100 KB result with output check, 2026', target: 'cloudg-mcp', most: 1.1 },
  { workload: 'W9 small call with 73 tools, 2026', target: 'cloudg-mcp', most: 1.25, of: W1 }
]
