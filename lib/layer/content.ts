// Content blocks, and the way from a handler's natural return value to a tool result, resource contents or prompt messages.

import { isObject } from '../jsonrpc.js'
import type { InputRequired } from './ask.js'
import { isInputRequired } from './ask.js'

export interface Annotations { audience?: ('user' | 'assistant')[], priority?: number, lastModified?: string }
interface Block { annotations?: Annotations, _meta?: Record<string, unknown> }
export interface TextContent extends Block { type: 'text', text: string }
export interface ImageContent extends Block { type: 'image', data: string, mimeType: string }
export interface AudioContent extends Block { type: 'audio', data: string, mimeType: string }
export interface ResourceLink extends Block { type: 'resource_link', uri: string, name: string, title?: string, description?: string, mimeType?: string, size?: number }
export interface EmbeddedResource extends Block { type: 'resource', resource: ResourceContents }
export type ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource

export interface ResourceContents { uri: string, mimeType?: string, text?: string, blob?: string, _meta?: Record<string, unknown> }

/** A whole result. Other keys (`resultType`, extensions) are kept as they are. */
export interface ToolResult {
  content: ContentBlock[]
  structuredContent?: unknown
  isError?: boolean
  _meta?: Record<string, unknown>
  [extension: string]: unknown
}

export interface PromptMessage { role: 'user' | 'assistant', content: ContentBlock }
export interface PromptResult { messages: PromptMessage[], description?: string, _meta?: Record<string, unknown>, [extension: string]: unknown }

const required = new Map<unknown, (block: Record<string, any>) => boolean>([
  ['text', (block) => typeof block.text === 'string'],
  ['image', (block) => typeof block.data === 'string' && typeof block.mimeType === 'string'],
  ['audio', (block) => typeof block.data === 'string' && typeof block.mimeType === 'string'],
  ['resource_link', (block) => typeof block.uri === 'string' && typeof block.name === 'string'],
  ['resource', (block) => isResourceContents(block.resource)]
])

export function isContentBlock (value: unknown): value is ContentBlock {
  return isObject(value) && required.get(value.type)?.(value) === true
}

export function isResourceContents (value: unknown): value is ResourceContents {
  return isObject(value) && typeof value.uri === 'string' && (typeof value.text === 'string' || typeof value.blob === 'string')
}

function isToolResult (value: unknown): value is ToolResult {
  return isObject(value) && Array.isArray(value.content) && value.content.every(isContentBlock) &&
    (value.isError === undefined || typeof value.isError === 'boolean')
}

export function text (value: string): TextContent {
  return { type: 'text', text: value }
}

const TRUNCATED = '\n... [truncated by cloudg mcp layer]'

/** JSON for people and models: two spaces, nothing escaped that need not be. */
function pretty (value: unknown): string {
  return JSON.stringify(value, null, 2)
}

function capped (value: string, max: number): string {
  if (value.length <= max) return value
  // Half of a pair is no character.
  const end = value.charCodeAt(max - 1) >>> 10 === 0x36 ? max - 1 : max
  return value.slice(0, end) + TRUNCATED
}

/** What a value is in JSON: of a date or a URL, what it says itself. */
function inJson (value: unknown): unknown {
  if (typeof value === 'function' || typeof value === 'symbol') throw new TypeError(`A handler returned a ${typeof value}, which has no JSON`)
  return isObject(value) && typeof value.toJSON === 'function' ? value.toJSON() : value
}

/** The text that goes with structured content. */
export function mirror (structured: unknown, max: number): TextContent {
  return text(capped(pretty(structured), max))
}

/** A return value that already is a result, or content of one; nothing when it is a natural value. */
export function asToolResult (value: unknown): ToolResult | undefined {
  if (isToolResult(value)) return value
  if (isContentBlock(value)) return { content: [value], isError: false }
  if (Array.isArray(value) && value.length > 0 && value.every(isContentBlock)) return { content: value, isError: false }
  if (value instanceof Uint8Array) return { content: [binary(value)], isError: false }
  return undefined
}

/**
 * A natural return value as a tool result: text for people and models, structured content for programs.
 * @throws TypeError for a value that has no JSON
 * @param structured the tool declares an output schema: the value itself is the structured content, of whatever type
 * @param max characters of text that are kept
 */
export function naturalResult (given: unknown, structured: boolean, max: number): ToolResult {
  const value = inJson(given)
  if (value === undefined) return { content: [], isError: false }
  const said = typeof value === 'string'
  if (said && !structured) return { content: [text(capped(value, max))], isError: false }
  const shown = structured || isObject(value) ? value : { result: value }
  return { content: [said ? text(capped(value, max)) : mirror(shown, max)], isError: false, structuredContent: shown }
}

const magics: [number[], string][] = [
  [[0x89, 0x50, 0x4e, 0x47], 'image/png'],
  [[0xff, 0xd8, 0xff], 'image/jpeg'],
  [[0x47, 0x49, 0x46, 0x38], 'image/gif']
]

/** Bytes become an image when they are one, else an embedded resource. */
function binary (bytes: Uint8Array): ContentBlock {
  const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64')
  const image = magics.find(([magic]) => magic.every((byte, at) => bytes[at] === byte))
  if (image !== undefined) return { type: 'image', data, mimeType: image[1] }
  return { type: 'resource', resource: { uri: 'data:application/octet-stream', mimeType: 'application/octet-stream', blob: data } }
}

/** What a resource handler returned, as contents. Bytes are binary, objects are JSON. */
export function toResourceContents (value: unknown, uri: string, mimeType: string): ResourceContents[] | InputRequired {
  if (isInputRequired(value)) return value
  if (isResourceContents(value)) return [value]
  if (Array.isArray(value) && value.length > 0 && value.every(isResourceContents)) return value
  if (isObject(value) && Array.isArray(value.contents) && value.contents.every(isResourceContents)) return value.contents
  if (typeof value === 'string') return [{ uri, mimeType, text: value }]
  if (value instanceof Uint8Array) {
    return [{ uri, mimeType, blob: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64') }]
  }
  return [{ uri, mimeType, text: pretty(inJson(value) ?? null) }]
}

function isPromptMessage (value: unknown): value is PromptMessage {
  return isObject(value) && (value.role === 'user' || value.role === 'assistant') && isContentBlock(value.content)
}

/** What a prompt handler returned, as messages. Text and content blocks are said by the user. */
export function toPromptResult (value: unknown, description: string | undefined): PromptResult | InputRequired {
  if (isInputRequired(value)) return value
  if (isObject(value) && Array.isArray(value.messages) && value.messages.every(isPromptMessage)) return value as PromptResult
  const said = Array.isArray(value) ? value : [value]
  const messages = said.map((one): PromptMessage => {
    if (isPromptMessage(one)) return one
    if (isContentBlock(one)) return { role: 'user', content: one }
    return { role: 'user', content: text(typeof one === 'string' ? one : pretty(inJson(one) ?? '')) }
  })
  return description === undefined ? { messages } : { messages, description }
}
