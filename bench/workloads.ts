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

async function openSessions (port: number, headers: Record<string, string>): Promise<string[]> {
  const open = async (): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${port}/mcp`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: BOTH, ...headers },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bench', version: '1' } } })
    })
    await response.text()
    return response.headers.get('mcp-session-id')!
  }
  return Promise.all(Array.from({ length: SESSIONS }, open))
}

function session (name: string, file: string, body: string, expect: string, more: Partial<Target> = {}): Target {
  const headers = { accept: BOTH, ...(file === './servers/cloudg.js' && auth) }
  return { name, file, ...more, job: { path: '/mcp', headers, body, expect }, prepare: async (port) => ({ sessions: await openSessions(port, headers) }) }
}

const OURS = './servers/cloudg.js'
const V2 = './servers/official-v2.js'
const sse = { env: { RESPONSE_MODE: 'sse' } }
const many = { env: { TOOLS: '73' } }
const text = { text: 'hello' }
const token = { progressToken: 'p' }

export const workloads: Workload[] = [
  {
    name: 'W1 small call, 2026',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      modern('cloudg-mcp', OURS, 'tools/call', 'echo', call('echo', text, META), '"hello"'),
      modern('cloudg-mcp, SSE reply', OURS, 'tools/call', 'echo', call('echo', text, META), '"hello"', sse),
      modern('official v2', V2, 'tools/call', 'echo', call('echo', text, META), '"hello"', { peer: true })
    ]
  },
  {
    name: 'W2 small call, session',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      session('cloudg-mcp', OURS, call('echo', text), '"hello"')
    ]
  },
  {
    name: 'W3 SSE, two progress, 2026',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      modern('cloudg-mcp', OURS, 'tools/call', 'progress', call('progress', text, { ...META, ...token }), '"progress":2'),
      modern('official v2', V2, 'tools/call', 'progress', call('progress', text, { ...META, ...token }), '"progress":2', { peer: true })
    ]
  },
  {
    name: 'W3 SSE, two progress, session',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      session('cloudg-mcp', OURS, call('progress', text, token), '"progress":2')
    ]
  },
  {
    name: 'W4 list of 73 tools, 2026',
    targets: [
      bare('/list', message('tools/list', {}), 'inventory_tool_72'),
      modern('cloudg-mcp', OURS, 'tools/list', undefined, message('tools/list', { _meta: META }), 'inventory_tool_72', many),
      modern('official v2', V2, 'tools/list', undefined, message('tools/list', { _meta: META }), 'inventory_tool_72', { ...many, peer: true })
    ]
  },
  {
    name: 'W5 100 KB result with output check, 2026',
    targets: [
      bare('/big', call('big', {}), 'asset-00759'),
      modern('cloudg-mcp', OURS, 'tools/call', 'big', call('big', {}, META), 'asset-00759'),
      modern('official v2', V2, 'tools/call', 'big', call('big', {}, META), 'asset-00759', { peer: true })
    ]
  },
  {
    name: 'W9 small call with 73 tools, 2026',
    targets: [
      bare('/echo', call('echo', text), '"hello"'),
      modern('cloudg-mcp', OURS, 'tools/call', 'echo', call('echo', text, META), '"hello"', many),
      modern('official v2', V2, 'tools/call', 'echo', call('echo', text, META), '"hello"', { ...many, peer: true })
    ]
  }
]

/** What `BENCH_CHECK=1` holds: ratios to bare Fastify with room for a noisy machine. */
export const gates = [
  { workload: 'W1 small call, 2026', target: 'cloudg-mcp', most: 2.2 },
  { workload: 'W2 small call, session', target: 'cloudg-mcp', most: 1.8 },
  { workload: 'W3 SSE, two progress, 2026', target: 'cloudg-mcp', most: 3 },
  { workload: 'W3 SSE, two progress, session', target: 'cloudg-mcp', most: 3 },
  { workload: 'W4 list of 73 tools, 2026', target: 'cloudg-mcp', most: 0.5 },
  { workload: 'W5 100 KB result with output check, 2026', target: 'cloudg-mcp', most: 1.1 }
]
