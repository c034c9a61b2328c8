// What the processes of one service share: sessions, changes, and messages between them.
// Records are plain JSON and every method is async, so that any process can serve any session. memory.ts is the
// reference implementation, for one process.

import type { HandshakeVersion } from '../revisions.js'

/** A handshake session: everything that must outlive the process that created it. */
export interface SessionRecord {
  id: string
  /** Identity of the principal that the session is bound to. */
  owner: string
  kind: 'http' | 'sse'
  version: HandshakeVersion
  /** `notifications/initialized` has arrived. */
  initialized: boolean
  capabilities: Record<string, unknown>
  clientInfo?: Record<string, unknown> | undefined
  logLevel: string
  subscriptions: string[]
  /** Where in the log of changes this session was last up to date. */
  seen: string
}

export interface SessionLimits {
  maxSessions: number
  maxSessionsPerPrincipal: number
  /** ms without a request, a call in flight or an open stream */
  idleTimeout: number
}

/** A change of the layer, as the processes tell each other. */
export interface Change { kind: 'tools' | 'resources' | 'prompts' | 'resource', uri?: string }

/** Between processes, about one session. */
export type Signal =
  | { type: 'cancel', session: string, requestId: string | number, reason?: string }
  | { type: 'reply', session: string, message: Record<string, any> }
  | { type: 'ended', session: string }

export type Created = 'created' | 'full' | 'owner-full'

/** The one reader of a session's standalone stream. */
export interface Outbox {
  /** Stops reading and lets another reader in. Messages that come now are kept for it. */
  close (seen: string): Promise<void>
}

export interface StreamEvent { id: string, data: string }
export interface EventReader { readonly stream: string, close: () => void }
/** Of all streams of a session together; `ttl` in ms. */
export interface EventLimits { maxEvents: number, maxBytes: number, ttl: number }

export interface Backplane {
  // ---- sessions
  /** At the owner's cap its least recently used idle session ends first; `owner-full` when none is idle. */
  createSession (record: SessionRecord, limits: SessionLimits): Promise<Created>
  /** Reading a session is using it: its idle time starts anew. */
  getSession (id: string): Promise<SessionRecord | undefined>
  updateSession (id: string, part: Partial<SessionRecord>): Promise<void>
  /** Tells every process (`ended`). False when there was none. */
  deleteSession (id: string): Promise<boolean>
  /** Keeps a session from going idle until the returned function is called. */
  hold (id: string): () => void
  /** Live sessions, of all processes. */
  countSessions (): Promise<number>

  // ---- a session's standalone stream
  /** Keeps a message for the session's reader, or hands it over at once. The oldest go when too many wait. */
  push (id: string, message: object): Promise<void>
  /** Becomes the session's reader; nothing when there is one. `takeOver` replaces it. */
  openOutbox (id: string, deliver: (message: object) => void, takeOver?: boolean): Promise<Outbox | undefined>

  /** Is there a reader, in whichever process? */
  hasReader (id: string): Promise<boolean>

  // ---- events of resumable streams, each within one session
  /** Keeps an event of a stream; its id names the stream too. The oldest go beyond the limits. */
  appendEvent (session: string, stream: string, data: string, limits: EventLimits): Promise<string>
  /** Nothing more will come on this stream. */
  endEvents (session: string, stream: string): Promise<void>
  /**
   * The events of one stream after an id, those that are there before this resolves, later ones as they come, and `undefined`
   * at its end. Nothing when the session has no such event: ids of other sessions mean nothing here.
   */
  readEvents (session: string, after: string, deliver: (event: StreamEvent | undefined) => void): Promise<EventReader | undefined>

  // ---- changes
  publish (change: Change): Promise<void>
  onChange (listener: (change: Change) => void): () => void
  /** The newest position in the log of changes. */
  head (): Promise<string>
  /** Changes after a position; `complete` is false when the log no longer reaches back that far. */
  changesSince (position: string): Promise<{ changes: Change[], complete: boolean }>

  // ---- signals
  signal (signal: Signal): Promise<void>
  onSignal (listener: (signal: Signal) => void): () => void

  close (): Promise<void>
}
