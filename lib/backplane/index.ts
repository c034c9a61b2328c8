// What the processes of one service share: sessions, changes, and messages between them.
// Records are plain JSON and every method is async, so that any process can serve any session. memory.ts is the
// reference implementation, for one process; redis.ts is for many.

import type { HandshakeVersion } from '../revisions.js'

/** A handshake session: everything that must outlive the process that created it. */
export interface SessionRecord {
  id: string
  /** Identity of the principal that the session is bound to. */
  owner: string
  kind: 'http' | 'sse'
  version: HandshakeVersion
  /** Its `initialize` has yet to be answered: HTTP+SSE, where the session is there first. */
  isNew?: boolean
  /** `notifications/initialized` has arrived. */
  initialized: boolean
  capabilities: Record<string, unknown>
  clientInfo?: Record<string, unknown> | undefined
  logLevel: string
}

/** What changes in the life of a session. */
export type SessionUpdate = Partial<Omit<SessionRecord, 'id' | 'owner' | 'kind'>>

export interface SessionLimits {
  maxSessions: number
  maxSessionsPerPrincipal: number
  /** ms without a request, a call in flight or an open stream */
  idleTimeout: number
}

/** A session while this process uses it: it does not go idle, and its signals arrive here. */
export interface SessionUse {
  readonly record: SessionRecord
  /** Ends the use; its idle time starts anew. */
  release: () => void
}

/** A change of the layer, as the processes tell each other. */
export interface Change { kind: 'tools' | 'resources' | 'prompts' | 'resource', uri?: string }

export interface LoggedChange { change: Change, position: string }

/** A digest of each list, equal where processes offer the same. */
export type Offers = Record<'tools' | 'resources' | 'prompts', string>

/**
 * Between processes, about one session: it reaches every process that uses the session. `subscriptions` are all there are: some may
 * have been missed.
 */
export type Signal =
  | { type: 'cancel', session: string, requestId: string | number, reason?: string }
  | { type: 'reply', session: string, message: Record<string, any> }
  | { type: 'ended', session: string }
  | { type: 'updated', session: string, part: SessionUpdate }
  | { type: 'subscribed', session: string, uri: string, wanted: boolean }
  | { type: 'subscriptions', session: string, uris: readonly string[] }

export type Created = 'created' | 'full' | 'owner-full'

/** Whoever reads a session's standalone stream. */
export interface OutboxReader {
  /** A promise means that there is no room yet; `false` that nobody takes it any more: it is for the next reader. */
  deliver (message: object): void | false | Promise<void>
  /** Nobody takes anything from it any more: its place is free for another. */
  stalled (): boolean
  /** Another reader has its place. */
  replaced (): void
}

/** The place of a session's one reader. */
export interface Outbox {
  /** What the session is subscribed to by now. Later changes of it are signals. */
  readonly subscriptions: readonly string[]
  /** Up to where the session has been told of changes. */
  readonly seen: string
  /** An event that tells of a change was perhaps kept, perhaps not. Nothing more is told in this place: the next one knows. */
  inDoubt: boolean
  /** Gives the place up. Messages that come now are kept for the next reader. A `seen` in doubt is not taken over. */
  close (seen: string): Promise<void>
}

/** The id is the name of the stream, an underscore, and a number or so. */
export interface StreamEvent { id: string, data: string }
/** Of all streams of a session together; `ttl` in ms. */
export interface EventLimits { maxEvents: number, maxBytes: number, ttl: number }

/** Up to where a session has been told of changes, and by whom. */
export interface Told { seen: string, by: Outbox }

export interface EventWriter {
  /**
   * Keeps an event and resolves to its id. The empty id says that it is not ours to write: the session has ended, or somebody else
   * answers. An event that tells of a change is kept together with up to where the session has then been told, and only while the
   * place in whose name it is told is the session's.
   */
  append (data: string, told?: Told): Promise<string>
  /** Nothing more will come on this stream. */
  end (): Promise<void>
}

export interface EventReader {
  /** `false`: nobody takes it any more; it is for the next reader. */
  event (event: StreamEvent): boolean | void
  ended (): void
  /** The process that wrote the stream is gone. What it owed is for us to say, through this writer. */
  orphaned (owed: string, writer: EventWriter): void
}
export interface EventReading { readonly stream: string, close: () => void }

export interface BackplaneLog {
  info (message: string): void
  warn (details: object, message: string): void
}

export interface Backplane {
  /**
   * Takes part, before anything else is called. As often as it is started it has to be closed.
   * @throws CLOUDG_MCP_ERR_BACKPLANE_UNAVAILABLE
   */
  start (log: BackplaneLog): Promise<void>
  /** Takes part no more. What this process held is free; the sessions stay, for the others. */
  close (): Promise<void>

  // ---- sessions
  /**
   * At the owner's cap its least recently used idle session ends first; `owner-full` when none is idle.
   * A session is created up to date with the log of changes.
   */
  createSession (record: SessionRecord, limits: SessionLimits): Promise<Created>
  /** Nothing when there is no such session of this owner, who is the only one to keep it alive by asking. */
  acquire (id: string, kind: SessionRecord['kind'], owner: string): SessionUse | undefined | Promise<SessionUse | undefined>
  updateSession (id: string, part: SessionUpdate): Promise<void>
  /** False when there are `limit` others already. */
  subscribe (id: string, uri: string, limit: number): Promise<boolean>
  unsubscribe (id: string, uri: string): Promise<void>
  /** False when there was none. */
  deleteSession (id: string): Promise<boolean>
  /** Live sessions, of all processes. */
  countSessions (): Promise<number>

  // ---- a session's standalone stream
  /** Keeps a message for the session's reader, or hands it over at once. The oldest go when too many wait. */
  push (id: string, message: object): Promise<void>
  /** Becomes the session's reader; nothing when there is one that is neither stalled nor of a dead process. What waits is delivered first. */
  openOutbox (id: string, reader: OutboxReader): Promise<Outbox | undefined>
  /** Is there a reader, in whichever process? */
  hasReader (id: string): Promise<boolean>

  // ---- events of resumable streams, each within one session
  /**
   * Writes a stream. With `owed` this process alone does so, and `owed` is what its readers are told should it die.
   * The oldest events go beyond the limits.
   */
  writeEvents (session: string, stream: string, limits: EventLimits, owed?: string): EventWriter
  /**
   * Reads the stream of an event from there on, or a named stream from where its last reader stopped. What is there comes
   * before this resolves, the rest as it is written. Nothing when the session has no such event: ids of other sessions mean nothing here.
   */
  readEvents (session: string, from: { after: string } | { stream: string }, reader: EventReader): Promise<EventReading | undefined>

  // ---- changes, in one order for all
  /**
   * Says what this process offers, until it is closed. The lists change for all clients when it comes or goes while another
   * process offers something else.
   */
  offer (offers: Offers): Promise<void>
  publish (change: Change): Promise<void>
  /** Without a position it is not in the log yet, but known here already; when it gets there it comes again, to all. */
  onChange (listener: (change: Change, position?: string) => void): () => void
  /** Of the newest change that the listeners of this process know. */
  readonly position: string
  /** Is a position further on in the log? */
  isAfter (position: string, other: string): boolean
  /** Changes after one position and up to another; `complete` is false when the log no longer reaches back that far. */
  changesBetween (after: string, upTo: string): Promise<{ changes: LoggedChange[], complete: boolean }>

  // ---- signals
  signal (signal: Signal & { type: 'cancel' | 'reply' }): Promise<void>
  onSignal (listener: (signal: Signal) => void): () => void
}

/** The stream that an event belongs to, going by its id. */
export function streamOf (eventId: string): string {
  return eventId.slice(0, Math.max(eventId.lastIndexOf('_'), 0))
}
