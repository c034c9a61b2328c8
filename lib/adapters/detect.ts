// What kind of MCP server a value is, told by its shape: nothing of an SDK is imported, so any copy and any build of one will
// do. What is relied on beyond the public API of an SDK is written down here, in the interfaces.

import { UnsupportedServerError } from '../errors.js'
import { AppLayer } from '../layer/layer.js'
import { ProtocolServer } from '../protocol/server.js'

type Json = Record<string, any>

/** A request as an SDK's own handlers get it, and what comes with it: `extra` in 1.x, `ctx` in 2.x. */
export type Handler = (request: { method: string, params?: Json }, context: any) => Promise<Json>

/** `Server` of @modelcontextprotocol/sdk 1.x and @modelcontextprotocol/server 2.x. */
export interface LowLevelServer {
  connect (transport: object): Promise<void>
  close (): Promise<void>
  readonly transport?: unknown
  fallbackRequestHandler?: Handler
  registerCapabilities (capabilities: Json): void
  getClientCapabilities (): Json | undefined
  getClientVersion (): Json | undefined
  sendToolListChanged (): Promise<void>
  sendPromptListChanged (): Promise<void>
  sendResourceListChanged (): Promise<void>
  sendResourceUpdated (params: { uri: string }): Promise<void>
  /** 2.x */
  getNegotiatedProtocolVersion? (): string | undefined
  /** Private. Where a request finds its handler; what is registered later goes in here too. */
  readonly _requestHandlers: Map<string, Handler>
  /** Private. What `initialize` and `server/discover` advertise, also after the public way to change it has closed. */
  _capabilities: Json
  /** Private, 1.x and 2.x. The level of each session, that the server's own log messages are held to. */
  readonly _loggingLevels?: Map<string | undefined, string>
  /** Private, 2.x. Which era the instance serves; its own HTTP entry writes it before it connects. */
  _negotiatedProtocolVersion?: string | undefined
  /** Private, 1.x and 2.x. What the client said of itself; the HTTP entry of 2.x writes both before it connects. */
  _clientCapabilities?: Json | undefined
  _clientVersion?: Json | undefined
}

/** `McpServer`, 1.x and 2.x. */
export interface HighLevelServer {
  readonly server: LowLevelServer
  connect (transport: object): Promise<void>
  close (): Promise<void>
  /** 2.x, internal. What its HTTP entry checks `Mcp-Param-*` headers against. */
  toolInputSchemaJson? (name: string): Json | undefined
  /** Private, 1.x and 2.x. By tool name, URI, template name and prompt name. */
  readonly _registeredTools?: Json
  readonly _registeredResources?: Json
  readonly _registeredResourceTemplates?: Json
  readonly _registeredPrompts?: Json
}

/** `FastMCP` of the package fastmcp. */
export interface FastMcp {
  readonly sessions: readonly FastMcpSession[]
  connect (transport: object, auth?: unknown): Promise<FastMcpSession>
  addTool (tool: object): void
  addResource (resource: object): void
  addResourceTemplate (template: object): void
  addPrompt (prompt: object): void
  removeTool (name: string): void
  removeResource (name: string): void
  removeResourceTemplate (name: string): void
  removePrompt (name: string): void
  on (event: string, listener: (event: any) => void): unknown
  off (event: string, listener: (event: any) => void): unknown
}

export interface FastMcpSession {
  readonly server: LowLevelServer
  readonly sessionId?: string | undefined
  close (): Promise<void>
}

export type Factory = (context: any) => unknown

export type Detected =
  | { kind: 'sdk', major: 1 | 2, server: LowLevelServer, high: HighLevelServer | undefined }
  | { kind: 'fastmcp', server: FastMcp }
  | { kind: 'native', server: ProtocolServer }
  | { kind: 'factory', factory: Factory }

const SUPPORTED = 'McpServer and Server of @modelcontextprotocol/sdk 1.x and of @modelcontextprotocol/server 2.x, and FastMCP of fastmcp 4'

function has (value: object, ...methods: string[]): boolean {
  return methods.every((method) => typeof (value as Json)[method] === 'function')
}

function isLowLevel (value: unknown): value is LowLevelServer {
  return typeof value === 'object' && value !== null && has(value, 'connect', 'close', 'setRequestHandler', 'registerCapabilities', 'getClientCapabilities')
}

function majorOf (server: LowLevelServer): 1 | 2 {
  return typeof server.getNegotiatedProtocolVersion === 'function' && Array.isArray((server as Json)._supportedProtocolVersions) ? 2 : 1
}

/**
 * @returns what the value is
 * @throws CLOUDG_MCP_ERR_UNSUPPORTED_SERVER saying what was found and what is supported
 */
export function detectServer (value: unknown): Detected {
  const found = tell(value)
  if (found !== undefined) return found
  throw new UnsupportedServerError(`Found ${describe(value)}, which is no MCP server that is known. Supported are ${SUPPORTED}${hintFor(value)}`)
}

function tell (value: unknown): Detected | undefined {
  if (value instanceof ProtocolServer) return { kind: 'native', server: value }
  if (isLowLevel(value)) return { kind: 'sdk', major: majorOf(value), server: value, high: undefined }
  if (typeof value === 'object' && value !== null) {
    const { server, sessions } = value as Json
    // A session of fastmcp holds a server too, but nobody registers anything with it.
    if (isLowLevel(server) && has(value, 'connect', 'close')) {
      return { kind: 'sdk', major: majorOf(server), server, high: has(value, 'registerTool') ? value as HighLevelServer : undefined }
    }
    if (Array.isArray(sessions) && has(value, 'addTool', 'addResourceTemplate', 'connect', 'on')) return { kind: 'fastmcp', server: value as FastMcp }
  }
  if (typeof value === 'function' && !/^class\b/.test(Function.prototype.toString.call(value))) return { kind: 'factory', factory: value as Factory }
  return undefined
}

/** Like {@link detectServer}, for what a factory has made. */
export function detectProduct (value: unknown): Exclude<Detected, { kind: 'factory' | 'native' }> {
  const found = tell(value)
  if (found?.kind === 'sdk' || found?.kind === 'fastmcp') return found
  throw new UnsupportedServerError(`The factory made ${describe(value)}. Supported are ${SUPPORTED}${hintFor(value)}`)
}

/**
 * The handlers of a server can be wrapped.
 * @throws CLOUDG_MCP_ERR_UNSUPPORTED_SERVER
 */
export function requireHandlers (server: LowLevelServer): void {
  if (server._requestHandlers instanceof Map && typeof server._capabilities === 'object') return
  throw new UnsupportedServerError('This version of the SDK keeps its request handlers in a way that is not known here. Host the server instead: hostServer()')
}

function describe (value: unknown): string {
  if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return value === null ? 'null' : `${typeof value} ${JSON.stringify(value) ?? ''}`.trim()
  if (typeof value === 'function') return `the ${/^class\b/.test(Function.prototype.toString.call(value)) ? 'class' : 'function'} ${value.name || '(anonymous)'}`
  const name: unknown = value.constructor?.name
  const keys = [...new Set([...Object.keys(value), ...Object.getOwnPropertyNames(Object.getPrototypeOf(value) ?? {})])]
    .filter((key) => key !== 'constructor' && !key.startsWith('__'))
  const shown = keys.slice(0, 8).join(', ') + (keys.length > 8 ? ', …' : '')
  return `an object of the class ${typeof name === 'string' && name !== '' ? name : '(none)'} with ${shown === '' ? 'no members' : shown}`
}

function hintFor (value: unknown): string {
  if (value instanceof AppLayer) return '. This is a layer: give it to the plugin as it is'
  if (typeof value === 'function') return `. Give an instance, or a function that makes one: () => new ${value.name}(…)`
  if (value instanceof Promise) return '. This is a promise: await it first, or give the function that returns it'
  if (typeof value === 'object' && value !== null && has(value, 'fetch') && 'notify' in value) return '. This is an HTTP handler: give the factory that it was made from'
  return ''
}
