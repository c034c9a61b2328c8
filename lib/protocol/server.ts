// What all connections to one layer share: options, change fan-out, cached list pages, and who calls.

import type { Backplane } from '../backplane/index.js'
import { memoryBackplane } from '../backplane/memory.js'
import type { Params, RequestId, Result } from '../jsonrpc.js'
import type { Logger, LogLevel } from '../layer/context.js'
import { silent } from '../layer/context.js'
import type { Layer } from '../layer/contract.js'
import type { Principal, PrincipalResolver, RequestInfo } from '../principal.js'
import { defaultResolver } from '../principal.js'
import type { Version } from '../revisions.js'
import { Changes } from './changes.js'
import { Pages } from './pages.js'
import type { RequestStateOptions } from './request-state.js'
import { RequestState } from './request-state.js'
import type { SessionOptions } from './session.js'
import { Session } from './session.js'
import type { CacheHints } from './wire.js'
import { shapeServerInfo } from './wire.js'

export interface ProtocolOptions {
  /** Entries of a list page; 0 for one page. @default 100 */
  pageSize?: number
  /** Threshold of handshake sessions until `logging/setLevel`. @default 'info' */
  defaultLogLevel?: LogLevel
  /** The cache hints of 2026 results; `ttl` in ms. A list that depends on the caller stays private. @default { ttl: 0, scope: 'private' } */
  cache?: Partial<CacheHints>
  /** May see and replace the principal of a request. */
  principalResolver?: PrincipalResolver | undefined
  /** Put the text of unexpected errors into answers: for development. @default false */
  exposeErrors?: boolean
  /** What several processes share. @default in memory */
  backplane?: Backplane | undefined
  /** `subscriptions/listen` streams open at once. @default 1024 */
  maxListens?: number
  /** Messages in one batch. @default 1000 */
  maxBatch?: number
  /** Advertise and deliver changes. False where nothing can carry them (stateless HTTP). @default true */
  changes?: boolean
  /** How a 2026 `requestState` is sealed. @default a random key, 600000 ms */
  requestState?: RequestStateOptions | undefined
  /** ms to wait for the client's answer to a question in the handshake era. @default 300000 */
  askTimeout?: number
  log?: Logger
}

export class ProtocolServer {
  readonly layer: Layer
  readonly backplane: Backplane
  readonly log: Logger
  readonly defaultLogLevel: LogLevel
  readonly exposeErrors: boolean
  readonly maxBatch: number
  readonly askTimeout: number
  readonly requestState: RequestState
  readonly handshakeChanges: boolean
  readonly changes: Changes
  readonly pages: Pages
  readonly #cache: CacheHints
  readonly #resolver: PrincipalResolver | undefined
  readonly #serverInfo = new Map<Version, Result>()
  #started = false

  constructor (layer: Layer, options: ProtocolOptions = {}) {
    const { pageSize = 100, defaultLogLevel = 'info', cache = {}, maxListens = 1024, maxBatch = 1000, log = silent } = options
    this.layer = layer
    this.log = log
    this.defaultLogLevel = defaultLogLevel
    this.maxBatch = maxBatch
    this.askTimeout = options.askTimeout ?? 300_000
    this.requestState = new RequestState(layer.info.name, options.requestState)
    this.exposeErrors = options.exposeErrors ?? false
    this.handshakeChanges = options.changes ?? true
    this.backplane = options.backplane ?? memoryBackplane()
    this.#cache = { ttl: cache.ttl ?? 0, scope: cache.scope ?? 'private' }
    this.#resolver = options.principalResolver
    this.pages = new Pages(this, pageSize)
    this.changes = new Changes(this, maxListens)
  }

  createSession (options: SessionOptions = {}): Session {
    return new Session(this, options)
  }

  /** What sees and replaces principals, with the built-in rules behind it. */
  async resolvePrincipal (info: RequestInfo): Promise<Principal> {
    if (this.#resolver === undefined) return defaultResolver(info)
    try {
      return await this.#resolver(info) ?? defaultResolver(info)
    } catch (error) {
      this.log.error({ err: error }, 'the principalResolver failed; the built-in one decides')
      return defaultResolver(info)
    }
  }

  serverInfo (version: Version): Result {
    let info = this.#serverInfo.get(version)
    if (info === undefined) this.#serverInfo.set(version, info = shapeServerInfo(this.layer.info, version))
    return info
  }

  /** Hints for what `who` gets to see: never public where it depends on the caller. */
  cacheHints (who: Principal): CacheHints {
    return this.#cache.scope === 'public' && this.layer.viewOf(who) !== '' ? { ttl: this.#cache.ttl, scope: 'private' } : this.#cache
  }

  /** The call may run in another process that serves the same session. */
  async cancelElsewhere (session: Session, requestId: RequestId, reason: string | undefined): Promise<void> {
    const { id } = session.record
    if (id !== '') await this.backplane.signal({ type: 'cancel', session: id, requestId, ...(reason !== undefined && { reason }) })
  }

  /** The question may have been asked by another process that serves the same session. */
  async answerElsewhere (session: Session, message: Params): Promise<void> {
    const { id } = session.record
    if (id !== '') await this.backplane.signal({ type: 'reply', session: id, message })
  }

  /** Ends every listen with its final result; for a transport that is about to close. */
  closeListens (): void {
    this.changes.closeListens()
  }

  /**
   * Joins the processes that share the backplane. For whatever serves clients of its own, before it does.
   * @throws CLOUDG_MCP_ERR_BACKPLANE_UNAVAILABLE
   */
  async start (): Promise<void> {
    await this.backplane.start(this.log)
    this.#started = true
    await this.changes.start()
  }

  async close (): Promise<void> {
    this.closeListens()
    this.changes.close()
    if (!this.#started) return
    this.#started = false
    await this.backplane.close()
  }
}
