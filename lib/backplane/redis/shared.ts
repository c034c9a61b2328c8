// What the parts of the Redis backplane have in common: who this process is, what it uses, and how names are made.

import type { Outbox, OutboxReader, SessionRecord, SessionUpdate, Signal } from '../index.js'
import type { Connection } from './connection.js'

/** A session that this process uses. */
export interface Held {
  owner: string
  /** ms without use after which it ends */
  idle: number
  /** Its record as it was last read. */
  known: { revision: string, record: SessionRecord } | undefined
  /** Uses that have not been released; those that are about to begin count too. */
  uses: number
  /** When its last use ended, in ms of this process. */
  usedAt: number
  /** In Redis it stays in use for a moment longer than here. */
  resting: boolean
  /** Records that are being read, with what was updated since. */
  readonly reading: Set<SessionUpdate>
  /** The last signal that was told. */
  signal: string
  place: Place | undefined
  /** The state of the subscriptions that the reader knows all of. */
  subscribed: number
  /** The newest state that it knows something of. */
  newest: number
  /** Places that are being opened, with what was subscribed to or not since, and in which state. */
  readonly opening: Set<Map<string, { wanted: boolean, state: number }>>
  readonly tails: Set<Tail>
}

/** This process has the reader of the session's standalone stream. */
export interface Place {
  readonly token: string
  readonly reader: OutboxReader
  closed: boolean
  /** Hands over what waits, after what is being handed over already. */
  drain (): Promise<void>
}

/** The place as its reader has it; the token tells it from those before and after. */
export interface HeldOutbox extends Outbox {
  readonly token: string
  subscriptions: readonly string[]
}

/** This process reads a resumable stream. */
export interface Tail {
  /** Reads on; there may be something new. */
  wake (): void
  /** Is somebody there to end the stream? */
  check (): Promise<void>
  /** The session has ended. */
  end (): void
}

/** From one process to another. */
export type Message =
  | ['ended', string]
  | ['updated', string, SessionUpdate]
  | ['subscribed', string, string, boolean, number]
  | ['signal', string, string, Signal]
  | ['out', string]
  | ['events', string]
  | ['replaced', string, string]
  | ['contest', string, string, string, string]
  | ['contested', string, boolean]

export interface Shared {
  /** This process, among those that share the prefix. */
  readonly process: string
  readonly prefix: string
  /** ms after which what a dead process held is free */
  readonly lease: number
  readonly connection: Connection
  readonly held: Map<string, Held>
  /** Tells the listeners of this process. */
  tell (signal: Signal): void
}

/** A session's keys begin with it: its hash tag puts them into one slot of a cluster. */
export function sessionKey ({ prefix }: Shared, id: string): string {
  return `{${prefix}:${id}}`
}

export function serviceKey ({ prefix }: Shared): string {
  return `{${prefix}}`
}

/** What a process listens on; without a process, what such a name begins with. */
export function channelOf ({ prefix }: Shared, process = ''): string {
  return `${prefix}:p:${process}`
}

export function encodeMessage (...message: Message): string {
  return JSON.stringify(message)
}

/** Sends a message to one process. */
export async function send (shared: Shared, process: string, ...message: Message): Promise<void> {
  await shared.connection.call(async (client) => client.publish(channelOf(shared, process), JSON.stringify(message)))
}

/** Is a process there? It listens as long as it lives. */
export async function isAlive (shared: Shared, process: string): Promise<boolean> {
  return process === shared.process || shared.connection.hasListener(channelOf(shared, process))
}

/** The order of entries of a Redis stream. */
export function isAfter (one: string, other: string): boolean {
  const [ms = 0, n = 0] = one.split('-').map(Number)
  const [otherMs = 0, otherN = 0] = other.split('-').map(Number)
  return ms === otherMs ? n > otherN : ms > otherMs
}

/** The fields of an entry of a Redis stream. */
export function fieldsOf (fields: string[]): Record<string, string> {
  const named: Record<string, string> = {}
  for (let at = 0; at < fields.length; at += 2) named[fields[at]!] = fields[at + 1]!
  return named
}

/**
 * Work that is done when it is asked for, and once more when it is asked for while it is done. Resolves when everything has been
 * done that was asked for until then.
 */
export function repeated (work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined
  let again = false

  async function run (): Promise<void> {
    try {
      do {
        again = false
        await work()
      } while (again)
    } finally {
      // Here and not a microtask later: whoever asks in between would rely on a loop that has ended.
      running = undefined
    }
  }

  return async () => {
    again = true
    running ??= run()
    return running
  }
}
