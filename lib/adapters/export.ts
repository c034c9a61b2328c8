// A layer without a server: its definitions as MCP and three model APIs write them, and functions that make the calls. For
// programs that bring their own loop.

import type { Params, Result } from '../jsonrpc.js'
import { RpcError } from '../jsonrpc.js'
import type { PromptResult, ResourceContents, ToolResult } from '../layer/content.js'
import type { Layer } from '../layer/contract.js'
import type { PromptDefinition } from '../layer/prompt.js'
import type { ResourceDefinition, TemplateDefinition } from '../layer/resource.js'
import type { ToolDefinition } from '../layer/tool.js'
import type { Principal } from '../principal.js'
import { localUser } from '../principal.js'
import { META } from '../protocol/era.js'
import type { ProtocolOptions } from '../protocol/server.js'
import { ProtocolServer } from '../protocol/server.js'
import { LATEST_MODERN } from '../revisions.js'

export interface CallOptions {
  /** Who calls. @default the principal of the export */
  principal?: Principal
  signal?: AbortSignal | undefined
  onProgress?: (progress: { progress: number, total?: number, message?: string }) => void
}

export interface OpenAiTool { type: 'function', function: { name: string, description: string, parameters: Params } }
export interface AnthropicTool { name: string, description: string, input_schema: Params }
export interface AiSdkTool {
  description: string
  inputSchema: { jsonSchema: Params, validate: undefined }
  execute (args: Params, options?: { abortSignal?: AbortSignal | undefined }): Promise<ToolResult>
}

export interface Exported {
  /** As MCP lists them, for the principal of the export, at the time of the export. */
  readonly tools: readonly ToolDefinition[]
  readonly resources: readonly ResourceDefinition[]
  readonly resourceTemplates: readonly TemplateDefinition[]
  readonly prompts: readonly PromptDefinition[]
  /** For `tools` of OpenAI's chat completions. */
  openai (): OpenAiTool[]
  /** For `tools` of Anthropic's messages. */
  anthropic (): AnthropicTool[]
  /** For `tools` of the AI SDK (`ai` 5 and later); they are called as the principal of the export. */
  aiSdk (): Record<string, AiSdkTool>
  /**
   * Calls a tool, by its own name or by the one that a model was given. What goes wrong in the tool is a result with `isError`.
   * @throws Error with `code` and `data`: no such tool for this caller
   */
  dispatch (name: string, args?: Params, options?: CallOptions): Promise<ToolResult>
  /** @throws Error with `code` and `data` */
  read (uri: string, options?: CallOptions): Promise<ResourceContents[]>
  /** @throws Error with `code` and `data` */
  prompt (name: string, args?: Record<string, string>, options?: CallOptions): Promise<PromptResult>
}

export type ExportOptions = Pick<ProtocolOptions, 'exposeErrors' | 'log'>

// How the AI SDK knows a schema that is JSON Schema already.
const AI_SCHEMA = Symbol.for('vercel.ai.schema')
// What model APIs take as the name of a function.
const MODEL_NAME = /^[A-Za-z0-9_-]{1,64}$/

/**
 * Takes a layer's definitions out, as one principal sees them.
 *
 * ```ts
 * const { openai, dispatch } = await exportDefinitions(layer, principal({ id: 'alice', roles: ['analyst'] }))
 * const completion = await client.chat.completions.create({ model, messages, tools: openai() })
 * const result = await dispatch(call.function.name, JSON.parse(call.function.arguments))
 * ```
 */
export async function exportDefinitions (layer: Layer, principal: Principal = localUser, options: ExportOptions = {}): Promise<Exported> {
  const list = async <T>(kind: Parameters<Layer['list']>[0]): Promise<readonly T[]> => await layer.list(kind, principal) as readonly T[]
  const [tools, resources, resourceTemplates, prompts] = await Promise.all([
    list<ToolDefinition>('tools'), list<ResourceDefinition>('resources'), list<TemplateDefinition>('templates'), list<PromptDefinition>('prompts')
  ])
  const server = new ProtocolServer(layer, options)
  // The definitions are those of now, and so nothing of later changes is of use.
  server.changes.close()
  // A hosted server may list tools without one.
  const described = tools.map((tool: Omit<ToolDefinition, 'description'> & { description?: string }) => ({ ...tool, description: tool.description ?? '' }))
  const modelNames = namesForModels(tools)
  const ownNames = new Map([...modelNames].map(([own, given]) => [given, own]))

  async function call (method: string, params: Params, { principal: who = principal, signal, onProgress }: CallOptions = {}): Promise<Result> {
    const session = server.createSession({ transport: 'http', register: false })
    const _meta = { [META.protocolVersion]: LATEST_MODERN, [META.clientCapabilities]: {}, ...(onProgress && { progressToken: 0 }) }
    const sink = ({ method: told, params: said }: any): void => {
      if (told !== 'notifications/progress') return
      const { progressToken: _, ...progress } = said
      onProgress?.(progress)
    }
    const request = { transport: 'memory' as const, headers: {}, principal: who }
    const reply = await session.handle({ jsonrpc: '2.0', id: 0, method, params: { ...params, _meta } }, { sink, principal: who, request, signal })
    if (reply === undefined || Array.isArray(reply)) throw signal?.reason ?? new Error('The call was aborted')
    if ('error' in reply) throw new RpcError(reply.error.code, reply.error.message, reply.error.data)
    // What 2026 puts on every result is for clients of a server.
    const { resultType: _r, ttlMs: _t, cacheScope: _c, _meta: { [META.serverInfo]: _s, ...meta } = {} as Params, ...result } = reply.result
    return Object.keys(meta).length === 0 ? result : { ...result, _meta: meta }
  }

  const dispatch = (name: string, args: Params = {}, given?: CallOptions): Promise<ToolResult> =>
    call('tools/call', { name: modelNames.has(name) ? name : ownNames.get(name) ?? name, arguments: args }, given) as Promise<ToolResult>

  return {
    tools,
    resources,
    resourceTemplates,
    prompts,
    dispatch,
    read: async (uri, given) => (await call('resources/read', { uri }, given)).contents,
    prompt: (name, args = {}, given) => call('prompts/get', { name, arguments: args }, given) as Promise<PromptResult>,
    openai: () => described.map(({ name, description, inputSchema }) => ({ type: 'function', function: { name: modelNames.get(name)!, description, parameters: inputSchema } })),
    anthropic: () => described.map(({ name, description, inputSchema }) => ({ name: modelNames.get(name)!, description, input_schema: inputSchema })),
    aiSdk: () => Object.fromEntries(described.map(({ name, description, inputSchema }) => [modelNames.get(name)!, {
      description,
      inputSchema: { [AI_SCHEMA]: true, jsonSchema: inputSchema, validate: undefined },
      execute: (args: Params, { abortSignal: signal } = {} as { abortSignal?: AbortSignal }) => dispatch(name, args, { signal })
    }]))
  }
}

/** Names that are none for a model API get one that is, and that nothing else has. */
function namesForModels (tools: readonly ToolDefinition[]): Map<string, string> {
  const taken = new Set(tools.map(({ name }) => name).filter((name) => MODEL_NAME.test(name)))
  return new Map(tools.map(({ name }) => {
    if (MODEL_NAME.test(name)) return [name, name]
    const base = name.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, 60)
    let given = base
    for (let n = 2; taken.has(given); n++) given = `${base}_${n}`
    taken.add(given)
    return [name, given]
  }))
}
