// List pages: cursors, and pages that are made and turned into bytes once for all callers who see the same.

import type { Result } from '../jsonrpc.js'
import { codes, isObject, remember, RpcError } from '../jsonrpc.js'
import type { Definition, ListKind } from '../layer/contract.js'
import type { Call } from './call.js'
import type { ProtocolServer } from './server.js'
import { shapeItem, stamp } from './wire.js'

const resultKey: Record<ListKind, string> = { tools: 'tools', resources: 'resources', templates: 'resourceTemplates', prompts: 'prompts' }
const MAX_CACHED = 256

function invalidCursor (): RpcError {
  return new RpcError(codes.invalidParams, 'Invalid cursor')
}

export function encodeCursor (kind: ListKind, offset: number): string {
  return Buffer.from(JSON.stringify({ k: kind, o: offset })).toString('base64url')
}

/** The offset that a cursor of this kind stands for; absent and null are the start. */
export function decodeCursor (kind: ListKind, cursor: unknown): number {
  if (cursor === undefined || cursor === null) return 0
  if (typeof cursor !== 'string' || !/^[A-Za-z0-9_-]{1,256}$/.test(cursor)) throw invalidCursor()
  let decoded: unknown
  try {
    decoded = JSON.parse(Buffer.from(cursor, 'base64url').toString())
  } catch {
    throw invalidCursor()
  }
  if (!isObject(decoded) || decoded.k !== kind || !Number.isSafeInteger(decoded.o) || decoded.o < 0) throw invalidCursor()
  return decoded.o
}

export class Pages {
  readonly #server: ProtocolServer
  readonly #pageSize: number
  readonly #cache = new Map<string, Result>()
  /** Counts the changes: what began to be made before one is not kept after it. */
  #edition = 0

  constructor (server: ProtocolServer, pageSize: number) {
    this.#server = server
    this.#pageSize = pageSize
  }

  /** The registry has changed: every page may be another one. */
  clear (): void {
    this.#edition++
    this.#cache.clear()
  }

  async page (kind: ListKind, call: Call): Promise<Result> {
    const { layer } = this.#server
    const { principal, protocolVersion } = call
    const offset = decodeCursor(kind, call.params.cursor)
    const view = layer.viewOf(principal)
    const key = `${kind} ${protocolVersion} ${offset} ${view}`
    const known = view === undefined ? undefined : this.#cache.get(key)
    if (known !== undefined) return known
    const edition = this.#edition
    const page = this.#make(kind, call, await layer.list(kind, principal, call), offset)
    if (view === undefined || edition !== this.#edition || layer.viewOf(principal) !== view) return page
    if (this.#cache.size >= MAX_CACHED) this.#cache.delete(this.#cache.keys().next().value!)
    this.#cache.set(key, remember(page))
    return page
  }

  #make (kind: ListKind, call: Call, all: readonly Definition[], offset: number): Result {
    const end = this.#pageSize > 0 ? offset + this.#pageSize : all.length
    const items = all.slice(offset, end).map((item) => shapeItem(item, call.protocolVersion))
    const page: Result = { [resultKey[kind]]: items, ...(end < all.length && { nextCursor: encodeCursor(kind, end) }) }
    if (call.era === 'handshake') return page
    return stamp(page, this.#server.serverInfo(call.protocolVersion), this.#server.cacheHints(call.principal))
  }
}
