// `cloudg-mcp config`: what a client has to be told, in the shape that its own documentation gives. The snippet goes to
// standard output, so that it can be piped; where it belongs goes to standard error.

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { UsageError } from './errors.js'

export const CLIENTS = ['claude-desktop', 'claude-code', 'cursor', 'vscode'] as const
export type Client = typeof CLIENTS[number]

export interface ConfigOptions {
  client: Client
  transport: 'stdio' | 'http' | 'sse'
  name: string
  url?: string
  tokenEnv?: string
  dataset?: string[]
}

interface Snippet { snippet: unknown, hints: string[] }
interface Stdio { command: string, args: string[] }

export function config (module: string | undefined, options: ConfigOptions): void {
  const { snippet, hints } = options.transport === 'stdio' ? local(module, options) : remote(module, options)
  process.stdout.write(JSON.stringify(snippet, null, 2) + '\n')
  for (const hint of hints) process.stderr.write(hint + '\n')
}

function local (module: string | undefined, { client, name, url, tokenEnv, dataset = [] }: ConfigOptions): Snippet {
  if (url !== undefined || tokenEnv !== undefined) throw new UsageError('--url and --token-env need --transport http or --transport sse')
  // A client starts the command from a directory of its own choice.
  const absolute = (path: string): string => existsSync(path) ? resolve(path) : path
  const args = ['-y', 'cloudg-mcp', 'serve', ...(module === undefined ? [] : [absolute(module)])]
  for (const spec of dataset) {
    const at = spec.indexOf('=')
    args.push('--dataset', `${spec.slice(0, at)}=${resolve(spec.slice(at + 1))}`)
  }
  const server: Stdio = { command: 'npx', args }
  switch (client) {
    case 'claude-desktop': return { snippet: { mcpServers: { [name]: server } }, hints: CLAUDE_DESKTOP }
    case 'claude-code': return { snippet: { mcpServers: { [name]: { type: 'stdio', ...server } } }, hints: [...CLAUDE_CODE, `or run: claude mcp add ${name} -- npx ${args.map(quote).join(' ')}`] }
    case 'cursor': return { snippet: { mcpServers: { [name]: { type: 'stdio', ...server } } }, hints: CURSOR }
    case 'vscode': return { snippet: { servers: { [name]: { type: 'stdio', ...server } } }, hints: VSCODE }
  }
}

function remote (module: string | undefined, { client, transport, name, url, tokenEnv, dataset }: ConfigOptions): Snippet {
  if (url === undefined || !URL.canParse(url)) throw new UsageError(`--transport ${transport} needs --url URL`)
  if (module !== undefined || dataset !== undefined) throw new UsageError('a module and --dataset are for --transport stdio: the server at --url has its own')
  const bearer = (token: string) => tokenEnv === undefined ? {} : { headers: { Authorization: `Bearer ${token}` } }
  switch (client) {
    case 'claude-desktop': {
      const flags = ['--transport', transport === 'sse' ? 'sse-only' : 'http-only', ...(isPlainHttp(url) ? ['--allow-http'] : [])]
      // The header and its value are kept apart: spaces in an argument do not survive on every system.
      const secret = tokenEnv === undefined ? {} : { env: { AUTH_HEADER: `Bearer <value of ${tokenEnv}>` } }
      const args = ['-y', 'mcp-remote', url, ...flags, ...(tokenEnv === undefined ? [] : ['--header', 'Authorization:${AUTH_HEADER}'])] // eslint-disable-line no-template-curly-in-string -- for the bridge to fill in
      const hints = [...CLAUDE_DESKTOP, 'This file takes local servers only: mcp-remote bridges. A server on the public internet can be added under Settings > Connectors instead.']
      if (tokenEnv !== undefined) hints.push(`Put the value of ${tokenEnv} into AUTH_HEADER: Claude Desktop does not read your environment.`)
      return { snippet: { mcpServers: { [name]: { command: 'npx', args, ...secret } } }, hints }
    }
    case 'claude-code': return {
      snippet: { mcpServers: { [name]: { type: transport, url, ...bearer(`\${${tokenEnv}}`) } } },
      hints: [...CLAUDE_CODE, `or run: claude mcp add --transport ${transport} ${name} ${url}${tokenEnv === undefined ? '' : ` --header "Authorization: Bearer $${tokenEnv}"`}`, ...exported(tokenEnv)]
    }
    case 'cursor': return { snippet: { mcpServers: { [name]: { url, ...bearer(`\${env:${tokenEnv}}`) } } }, hints: [...CURSOR, ...exported(tokenEnv)] }
    case 'vscode': {
      const id = `${name}-token`
      const inputs = tokenEnv === undefined ? {} : { inputs: [{ type: 'promptString', id, description: `Token for ${name} (${tokenEnv})`, password: true }] }
      const hints = tokenEnv === undefined ? VSCODE : [...VSCODE, 'VS Code asks for the token when it first starts the server, and keeps it in its secret storage.']
      return { snippet: { ...inputs, servers: { [name]: { type: transport, url, ...bearer(`\${input:${id}}`) } } }, hints }
    }
  }
}

const CLAUDE_DESKTOP = [
  'Claude Desktop: merge into claude_desktop_config.json (Settings > Developer > Edit Config), then quit and start it again:',
  '  macOS    ~/Library/Application Support/Claude/claude_desktop_config.json',
  '  Windows  %APPDATA%\\Claude\\claude_desktop_config.json'
]
const CLAUDE_CODE = ['Claude Code: merge into .mcp.json in the root of your project']
const CURSOR = ['Cursor: merge into .cursor/mcp.json in your project, or ~/.cursor/mcp.json for all projects']
const VSCODE = ['VS Code: merge into .vscode/mcp.json in your workspace, or the file that "MCP: Open User Configuration" opens']

function exported (tokenEnv: string | undefined): string[] {
  return tokenEnv === undefined ? [] : [`${tokenEnv} has to be set in the environment that the client is started from.`]
}

/** mcp-remote wants to be told that a host beyond this machine may be talked to in plain text. */
function isPlainHttp (url: string): boolean {
  const { protocol, hostname } = new URL(url)
  return protocol === 'http:' && !['localhost', '127.0.0.1', '[::1]'].includes(hostname)
}

function quote (arg: string): string {
  return /^[\w@%+=:,./-]+$/.test(arg) ? arg : `'${arg.replaceAll("'", String.raw`'\''`)}'`
}
