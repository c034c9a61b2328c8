// The hosted servers that are running, and which of them serves a call. A call never makes one if it can be helped: a connection
// keeps the server that it got first, and what comes without a connection (2026 over HTTP, stateless HTTP) is served by servers
// that wait for callers of the same kind.

import { createHash } from 'node:crypto'
import type { Params, Result } from '../jsonrpc.js'
import { codes, isObject, RpcError } from '../jsonrpc.js'
import type { CallPort, Logger } from '../layer/context.js'
import type { ChangeEvent } from '../layer/contract.js'
import type { Principal, RequestInfo } from '../principal.js'
import { identityOf } from '../principal.js'
import type { HandshakeVersion } from '../revisions.js'
import { isHandshake, LATEST_HANDSHAKE, LATEST_MODERN } from '../revisions.js'
import type { AuthOf } from './caller.js'
import { LazyRequest } from './caller.js'
import type { Detected, Factory, LowLevelServer } from './detect.js'
import { detectProduct } from './detect.js'
import { Link } from './link.js'

/** What a factory is called with: what the HTTP entry of SDK 2.x gives, and more. */
export interface FactoryContext {
  /** Which protocol the server will speak: `modern` is 2026-07-28. */
  era: 'legacy' | 'modern'
  /** Absent for the server that only says what there is. */
  principal?: Principal
  authInfo?: unknown
  requestInfo?: Request
  sessionId?: string
}

export interface ServersOptions {
  authOf: AuthOf
  idleTimeout: number
  maxServers: number
  perRequest: boolean
  onChange: (event: ChangeEvent) => void
  /** What the server that is always there says of itself. */
  onHandshake: (handshake: Result) => void
  log: Logger
}

/** Who wants a server, and for which revision. */
export interface Wish {
  principal?: Principal
  request?: RequestInfo
  version: HandshakeVersion | 'modern'
  capabilities: Params
  clientInfo?: Params | undefined
  connection?: string | object | undefined
}

/** A server in use. Whoever takes a seat leaves it. */
export interface Seat { link: Link, leave: () => void }

interface Running {
  link: Link
  users: number
  usedAt: number
  /** Takes it from where it is kept. */
  forget: () => void
  /** Puts it where the next caller of its kind looks; false when there are enough. */
  wait?: () => boolean
  stop: () => Promise<void>
  retired: boolean
}

interface Kept { opening: Promise<Running>, running: Running | undefined, rights: string }

// Servers of one kind that wait for callers; more than that were needed only for a moment.
const MAX_WAITING = 64
const SWEEP = 60_000

export function wishOf (port: CallPort): Wish {
  const { principal, request, protocolVersion, clientCapabilities, connection } = port
  const version = isHandshake(protocolVersion) ? protocolVersion : 'modern'
  return { principal, request, version, capabilities: objectsOf(clientCapabilities), clientInfo: implementationOf(request.clientInfo), connection }
}

/** SDKs refuse everything for the sake of one capability that has another shape. */
export function objectsOf (capabilities: Params): Params {
  const entries = Object.entries(capabilities)
  return entries.every(([, value]) => isObject(value)) ? capabilities : Object.fromEntries(entries.filter(([, value]) => isObject(value)))
}

/** The same for a client that does not say its name and version. */
export function implementationOf (given: unknown): Params | undefined {
  return isObject(given) && typeof given.name === 'string' && typeof given.version === 'string' ? given : undefined
}

/** A caller of whom only the name is known. */
export function wishOfPrincipal (principal: Principal): Wish {
  return { principal, request: { transport: 'memory', headers: {} }, version: 'modern', capabilities: {} }
}

export class Servers {
  readonly #source: Exclude<Detected, { kind: 'native' }>
  readonly #options: ServersOptions
  /** The factory asks who it makes a server for. */
  readonly selective: boolean
  /** There is one server for everybody. */
  readonly single: boolean
  #first: Promise<Running> | undefined
  #firstNow: Running | undefined
  /** The servers can serve 2026 by themselves. */
  #canModern = false
  readonly #kept = new Map<string | object, Kept>()
  readonly #waiting = new Map<string, Running[]>()
  readonly #all = new Set<Running>()
  #sweeper: NodeJS.Timeout | undefined

  constructor (source: Exclude<Detected, { kind: 'native' }>, options: ServersOptions) {
    this.#source = source
    this.#options = options
    this.selective = source.kind === 'fastmcp' || (source.kind === 'factory' && !takesNothing(source.factory))
    this.single = source.kind === 'sdk'
  }

  /** Servers that run now. */
  get size (): number { return this.#all.size }

  /** The server that is always there: it says what there is, and tells of changes. Where there is one for everybody, this is it. */
  async first (): Promise<Link> {
    if (this.#first === undefined || (await this.#first).link.closed) {
      const opening = this.#open({ version: LATEST_HANDSHAKE, capabilities: {} }, false)
      this.#first = opening
      opening.catch(() => { if (this.#first === opening) this.#first = undefined })
    }
    this.#firstNow = await this.#first!
    return this.#firstNow.link
  }

  /** A promise only when something has to be waited for: nearly every call finds its server running. */
  seat (wish: Wish): Seat | Promise<Seat> {
    const first = this.#firstNow
    if (first === undefined || first.link.closed) return this.first().then(() => this.seat(wish))
    if (this.single) return { link: first.link, leave: nowhere }
    const modern = wish.version === 'modern' && this.#canModern
    const { connection } = wish
    if (connection !== undefined) return this.#keptSeat(connection, this.selective ? rightsOf(wish) : '', wish, modern)
    if (this.#options.perRequest) return this.#freshSeat(wish, modern)
    const key = this.#kindOf(wish)
    return modern ? this.#keptSeat(key, '', wish, modern) : this.#ownSeat(key, wish)
  }

  disconnect (connection: string | object): void {
    this.#kept.get(connection)?.opening.then((running) => this.#retire(running), () => {})
  }

  async close (): Promise<void> {
    clearInterval(this.#sweeper)
    this.#sweeper = undefined
    const opening = Array.from(this.#kept.values(), (kept) => kept.opening)
    if (this.#first !== undefined) opening.push(this.#first)
    this.#first = this.#firstNow = undefined
    this.#kept.clear()
    this.#waiting.clear()
    await Promise.allSettled(opening)
    await Promise.all(Array.from(this.#all, (running) => this.#stop(running)))
  }

  // ---- which server

  /** Callers with equal keys see the same server. */
  #kindOf (wish: Wish): string {
    const { principal, version, capabilities, clientInfo } = wish
    return JSON.stringify([principal && identityOf(principal), version, capabilities, clientInfo, this.selective ? rightsOf(wish) : ''])
  }

  /** The server of a connection, or of callers that need not be kept apart. Rights may change on the way: then it is another one. */
  #keptSeat (key: string | object, rights: string, wish: Wish, modern: boolean): Seat | Promise<Seat> {
    const running = this.#kept.get(key)?.running
    if (running !== undefined && this.#serves(key, rights)) return this.#sit(running)
    return this.#openedSeat(key, rights, wish, modern)
  }

  #serves (key: string | object, rights: string): boolean {
    const kept = this.#kept.get(key)
    return kept?.running !== undefined && kept.rights === rights && !kept.running.link.closed && !kept.running.retired
  }

  async #openedSeat (key: string | object, rights: string, wish: Wish, modern: boolean): Promise<Seat> {
    for (;;) {
      const kept = this.#kept.get(key)
      const running = await kept?.opening
      if (this.#kept.get(key) !== kept) continue
      if (this.#serves(key, rights)) return this.#sit(running!)
      const opening = this.#open(wish, modern)
      const next: Kept = { opening, running: undefined, rights }
      this.#kept.set(key, next)
      const forget = (): void => { if (this.#kept.get(key) === next) this.#kept.delete(key) }
      if (running !== undefined) this.#retire(running)
      try {
        const opened = await opening
        next.running = opened
        opened.forget = forget
        return this.#sit(opened)
      } catch (error) {
        forget()
        throw error
      }
    }
  }

  /** A server for this call alone: what it asks and says on its own account is for this caller. */
  #ownSeat (key: string, wish: Wish): Seat | Promise<Seat> {
    for (;;) {
      const running = this.#waiting.get(key)?.pop()
      if (running === undefined) break
      if (!running.link.closed) return this.#sitAlone(running)
      void this.#stop(running)
    }
    return this.#open(wish, false).then((running) => {
      running.forget = () => {
        const waiting = this.#waiting.get(key)
        const at = waiting?.indexOf(running) ?? -1
        if (at !== -1) waiting!.splice(at, 1)
        if (waiting?.length === 0) this.#waiting.delete(key)
      }
      running.wait = () => {
        let waiting = this.#waiting.get(key)
        if (waiting === undefined) this.#waiting.set(key, waiting = [])
        return waiting.length < MAX_WAITING && waiting.push(running) > 0
      }
      return this.#sitAlone(running)
    })
  }

  #sitAlone (running: Running): Seat {
    running.users++
    return {
      link: running.link,
      leave: () => {
        running.users--
        running.usedAt = Date.now()
        if (running.link.spoiled || running.link.closed || running.retired || this.#sweeper === undefined || !running.wait!()) void this.#stop(running)
      }
    }
  }

  async #freshSeat (wish: Wish, modern: boolean): Promise<Seat> {
    const running = await this.#open(wish, modern)
    return { link: running.link, leave: () => { void this.#stop(running) } }
  }

  #sit (running: Running): Seat {
    running.users++
    return {
      link: running.link,
      leave: () => {
        running.usedAt = Date.now()
        if (--running.users === 0 && running.retired) void this.#stop(running)
      }
    }
  }

  // ---- servers come and go

  async #open (wish: Wish, modern: boolean): Promise<Running> {
    const { maxServers, idleTimeout, onChange, log, authOf } = this.#options
    if (this.#all.size >= maxServers && !this.#makeRoom()) throw new RpcError(codes.internalError, `Too many hosted servers are at work: the limit is ${maxServers}`)
    this.#sweeper ??= setInterval(() => this.#sweep(), Math.min(idleTimeout, SWEEP)).unref()
    const product = this.#source.kind === 'factory' ? detectProduct(await this.#source.factory(this.#contextOf(wish, modern))) : this.#source
    const { connection, capabilities, clientInfo, principal, request } = wish
    const byItself = modern && product.kind === 'sdk' && serveModern(product.server, wish)
    const link = new Link({
      version: byItself ? 'modern' : wish.version === 'modern' ? LATEST_HANDSHAKE : wish.version,
      capabilities,
      clientInfo,
      sessionId: typeof connection === 'string' ? connection : undefined,
      exclusive: !this.single && !byItself,
      onChange,
      log
    })
    const running: Running = { link, users: 0, usedAt: Date.now(), forget: nowhere, stop: () => link.close(), retired: false }
    this.#all.add(running)
    try {
      if (product.kind === 'fastmcp') {
        const session = await product.server.connect(link, principal && request && authOf(principal, request))
        running.stop = () => session.close()
      } else {
        const { server, high, major } = product
        if (server.transport !== undefined) throw new RpcError(codes.internalError, 'The server to host is connected already: give one that is not, or a function that makes one')
        if (principal === undefined) this.#canModern = major === 2
        await (high ?? server).connect(link)
      }
      if (principal === undefined) this.#options.onHandshake(link.handshake)
    } catch (error) {
      void this.#stop(running)
      throw error
    }
    return running
  }

  #contextOf ({ principal, request, connection }: Wish, modern: boolean): FactoryContext {
    if (principal === undefined || request === undefined) return { era: 'legacy' }
    const authInfo = this.#options.authOf(principal, request)
    return {
      era: modern ? 'modern' : 'legacy',
      principal,
      requestInfo: new LazyRequest(request) as unknown as Request,
      ...(authInfo !== undefined && { authInfo }),
      ...(typeof connection === 'string' && { sessionId: connection })
    }
  }

  /** Nobody gets it any more; it stops when those that have it have left. */
  #retire (running: Running): void {
    running.forget()
    running.retired = true
    if (running.users === 0) void this.#stop(running)
  }

  async #stop (running: Running): Promise<void> {
    if (!this.#all.delete(running)) return
    running.forget()
    try {
      await running.stop()
      await running.link.close()
    } catch (error) {
      this.#options.log.error({ err: error }, 'a hosted server failed to close')
    }
  }

  * #idle (): Generator<Running> {
    for (const running of this.#all) if (running.users === 0 && !running.link.busy) yield running
  }

  #sweep (): void {
    void this.#first?.then((first) => {
      const before = Date.now() - this.#options.idleTimeout
      for (const running of this.#idle()) if (running !== first && running.usedAt <= before) this.#retire(running)
    }, () => {})
  }

  /** Stops the server that was idle for longest. */
  #makeRoom (): boolean {
    let oldest: Running | undefined
    for (const running of this.#idle()) {
      // Those in no map are the first one and those that are being opened.
      if (running.forget !== nowhere && (oldest === undefined || running.usedAt < oldest.usedAt)) oldest = running
    }
    if (oldest !== undefined) this.#retire(oldest)
    return oldest !== undefined
  }
}

function nowhere (): void {}

/** A function without any parameter cannot look at who it is called for. Its `length` does not tell: defaults do not count. */
function takesNothing (factory: Factory): boolean {
  return /^(?:async\s+)?(?:function\s*)?[\w$]*\s*\(\s*\)/.test(Function.prototype.toString.call(factory))
}

/** Tells a 2.x server to serve 2026, as the SDK's own HTTP entry does. False when this version of it cannot be told. */
function serveModern (server: LowLevelServer, { capabilities, clientInfo }: Wish): boolean {
  server._negotiatedProtocolVersion = LATEST_MODERN
  if (server.getNegotiatedProtocolVersion?.() !== LATEST_MODERN) return false
  server._clientCapabilities = capabilities
  if (clientInfo !== undefined) server._clientVersion = clientInfo
  return true
}

/** What a factory may have looked at when it made a server for a caller. */
function rightsOf ({ principal, request }: Wish): string {
  const { roles, scopes } = principal ?? {}
  const seen = [[...roles ?? []].sort(), [...scopes ?? []].sort(), request?.headers.authorization]
  return createHash('sha256').update(JSON.stringify(seen)).digest('base64')
}
