// Results as each revision knows them: what an older one lacks is left out or said in older words, and what
// 2026-07-28 adds to every result is stamped on. MCP schemas 2024-11-05 … 2026-07-28.

import type { Result } from '../jsonrpc.js'
import { isObject } from '../jsonrpc.js'
import type { ContentBlock, PromptResult, ResourceContents, ToolResult } from '../layer/content.js'
import type { ServerInfo } from '../layer/contract.js'
import type { Features, Version } from '../revisions.js'
import { featuresOf } from '../revisions.js'
import { copyOf } from '../runtime/copy.js'
import { META } from './era.js'

type Item = Record<string, any>

/** An entry of a list: tool, resource, template or prompt. */
export function shapeItem (item: Item, version: Version): Item {
  const has = featuresOf(version)
  if (has.anyOutput) return item
  const { icons, title, _meta, annotations, outputSchema, inputSchema, arguments: args, ...rest } = item
  const isTool = inputSchema !== undefined
  return {
    ...rest,
    ...(isTool && { inputSchema: objectProperties(inputSchema) }),
    ...(outputSchema?.type === 'object' && has.structured && { outputSchema: objectProperties(outputSchema) }),
    ...(args !== undefined && { arguments: has.structured ? args : args.map(({ title: _, ...arg }: Item) => arg) }),
    ...(annotations && (!isTool || has.toolAnnotations) && { annotations: shapeAnnotations(annotations, has) }),
    ...(title !== undefined && has.structured && { title }),
    ...(icons && has.icons && { icons }),
    ...(_meta && has.structured && { _meta })
  }
}

/** Before 2026 a property's schema had to be an object: `true` and `false` are said so. */
function objectProperties (schema: Item): Item {
  const { properties } = schema
  if (!isObject(properties) || !Object.values(properties).some((value) => typeof value === 'boolean')) return schema
  const entries = Object.entries(properties).map(([name, value]) => [name, value === true ? {} : value === false ? { not: {} } : value])
  return { ...schema, properties: Object.fromEntries(entries) }
}

function shapeAnnotations (annotations: Item, has: Features): Item {
  if (has.structured || annotations.lastModified === undefined) return annotations
  const { lastModified: _, ...rest } = annotations
  return rest
}

function shapeContent (block: ContentBlock, has: Features): Item {
  if (has.structured) return block
  const { _meta: _, annotations, ...rest } = block as Item
  return { ...inOlderWords(rest, has), ...(annotations && { annotations: shapeAnnotations(annotations, has) }) }
}

/** Before 2025-06-18: no links, and at first no sound. */
function inOlderWords (block: Item, has: Features): Item {
  if (block.type === 'resource_link') return { type: 'text', text: `${block.name}: ${block.uri}` }
  if (block.type === 'resource') return { ...block, resource: shapeContents(block.resource, has) }
  if (block.type !== 'audio' || has.audio) return block
  return { type: 'resource', resource: { uri: `data:${block.mimeType}`, mimeType: block.mimeType, blob: block.data } }
}

function shapeContents (contents: ResourceContents, has: Features): Item {
  if (has.structured) return contents
  const { _meta: _, ...rest } = contents
  return rest
}

/** Keys of 2026 results: never sent to an older client. */
function withoutModernKeys (result: Item): Item {
  const { resultType: _t, ttlMs: _m, cacheScope: _s, ...rest } = result
  return rest
}

/** Has it nothing that the revision does not know? */
function isKnown ({ structuredContent, resultType, ttlMs, cacheScope }: Item, has: Features): boolean {
  return has.structured && (structuredContent === undefined || isObject(structuredContent)) &&
    resultType === undefined && ttlMs === undefined && cacheScope === undefined
}

export function shapeToolResult (result: ToolResult, version: Version): Result {
  const has = featuresOf(version)
  if (has.anyOutput) return result
  if (isKnown(result, has)) return result
  const { structuredContent, content, _meta, ...rest } = withoutModernKeys(result)
  // Before 2026 structured content is an object; the text says the rest.
  const keep = has.structured && isObject(structuredContent)
  const lost = !keep && structuredContent !== undefined && content.length === 0
  const blocks: readonly ContentBlock[] = lost ? [{ type: 'text', text: JSON.stringify(structuredContent, null, 2) }] : content
  return {
    content: has.structured ? blocks : blocks.map((block) => shapeContent(block, has)),
    ...rest,
    ...(keep && { structuredContent }),
    ...(_meta !== undefined && { _meta })
  }
}

export function shapePromptResult (result: PromptResult, version: Version): Result {
  const has = featuresOf(version)
  if (has.anyOutput) return result
  return { ...withoutModernKeys(result), messages: result.messages.map(({ role, content }) => ({ role, content: shapeContent(content, has) })) }
}

export function shapeReadResult (result: Item, version: Version): Result {
  const has = featuresOf(version)
  if (has.anyOutput) return result
  return { ...withoutModernKeys(result), contents: result.contents.map((one: ResourceContents) => shapeContents(one, has)) }
}

export function shapeServerInfo (info: ServerInfo, version: Version): Result {
  const has = featuresOf(version)
  const { name, title, version: release, description, websiteUrl, icons } = info
  return {
    name,
    version: release,
    ...(title !== undefined && has.structured && { title }),
    ...(has.icons && { ...(description !== undefined && { description }), ...(websiteUrl !== undefined && { websiteUrl }), ...(icons && { icons }) })
  }
}

export interface CacheHints { ttl: number, scope: 'public' | 'private' }

/** What 2026 adds to a result that succeeded; what the handler set itself stays. `hints` on cacheable methods only. */
export function stamp (result: Result, serverInfo: Result, hints: CacheHints | undefined): Result {
  const { _meta } = result
  const stamped = copyOf(result)
  stamped.resultType ??= 'complete'
  if (hints !== undefined && stamped.resultType === 'complete') {
    stamped.ttlMs ??= hints.ttl
    stamped.cacheScope ??= hints.scope
  }
  stamped._meta = isObject(_meta) ? { [META.serverInfo]: serverInfo, ..._meta } : { [META.serverInfo]: serverInfo }
  return stamped
}
