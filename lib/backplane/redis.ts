// Public entry point `cloudg-mcp/redis`: the backplane of many processes, on Redis. Any process serves any session; a process that
// dies leaves nothing behind that the others cannot go on with. What is stored, and how it fails: docs/scaling.md.

import { randomBytes } from 'node:crypto'
import { z } from 'zod'
import { InvalidOptionError } from '../errors.js'
import type {
  Backplane, BackplaneLog, Change, Created, EventLimits, EventReader, EventReading, EventWriter, LoggedChange, Offers, Outbox, OutboxReader,
  SessionLimits, SessionRecord, SessionUpdate, SessionUse, Signal
} from './index.js'
import { ChangeLog, changesChannel } from './redis/changes.js'
import type { Client } from './redis/connection.js'
import { Connection } from './redis/connection.js'
import { Events } from './redis/events.js'
import { OfferBoard } from './redis/offers.js'
import { Outboxes } from './redis/outbox.js'
import { Sessions } from './redis/sessions.js'
import type { Message, Shared } from './redis/shared.js'
import { channelOf, isAfter } from './redis/shared.js'

export interface RedisBackplaneOptions {
  /** Your ioredis client, a cluster's included. It stays yours: two connections of our own are made with its settings. */
  client?: Client
  /** Instead of a client: `redis://` or `rediss://`. Needs ioredis, which you install. */
  url?: string
  /** What all keys and channels begin with. One for each endpoint; the same in all of its processes. @default 'cloudg-mcp' */
  prefix?: string
  /** ms after which a command without an answer is given up. @default 2000 */
  timeout?: number
  /** ms after which what a dead process held is free. @default 15000 */
  lease?: number
  /** `false`: start without Redis too; until it is there, requests that need a session get 503. @default true */
  required?: boolean
  /** ms to wait for Redis at the start. @default 5000 */
  startTimeout?: number
}

const positive = z.number().int().positive()
const schema = z.strictObject({
  client: z.custom<Client>((value) => typeof (value as Client | undefined)?.duplicate === 'function', 'an ioredis client').optional(),
  url: z.url({ protocol: /^rediss?$/, error: 'a redis:// or rediss:// URL' }).optional(),
  prefix: z.string().regex(/^[^\s{}]{1,64}$/, 'up to 64 characters without spaces and braces').default('cloudg-mcp'),
  timeout: positive.default(2000),
  lease: positive.default(15_000),
  required: z.boolean().default(true),
  startTimeout: positive.default(5000)
})

/** @throws CLOUDG_MCP_ERR_INVALID_OPTION naming the option and what was expected */
export function redisBackplane (options: RedisBackplaneOptions): Backplane {
  const parsed = schema.safeParse(options)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    throw new InvalidOptionError(issue!.code === 'unrecognized_keys'
      ? `unknown option of redisBackplane: ${issue!.keys.join(', ')}`
      : `option ${issue!.path.join('.')} of redisBackplane: ${issue!.message}`)
  }
  if ((parsed.data.client === undefined) === (parsed.data.url === undefined)) throw new InvalidOptionError('redisBackplane takes either `client` or `url`')
  return new RedisBackplane(parsed.data)
}

class RedisBackplane implements Backplane {
  readonly #shared: Shared
  readonly #sessions: Sessions
  readonly #outboxes: Outboxes
  readonly #events: Events
  readonly #changes: ChangeLog
  readonly #offers: OfferBoard
  readonly #signalListeners = new Set<(signal: Signal) => void>()
  #started = 0
  #starting: Promise<void> | undefined
  #heart: NodeJS.Timeout | undefined

  constructor (options: z.output<typeof schema>) {
    const { prefix, lease } = options
    const process = randomBytes(9).toString('base64url')
    this.#shared = {
      process,
      prefix,
      lease,
      held: new Map(),
      tell: (signal) => { for (const listener of this.#signalListeners) listener(signal) },
      connection: new Connection(options, {
        channels: [`${prefix}:p:${process}`, `${prefix}:changes`],
        message: (channel, text) => this.#take(channel, text),
        lost: () => this.#changes.pause(),
        restored: async () => this.#restored()
      })
    }
    this.#sessions = new Sessions(this.#shared)
    this.#outboxes = new Outboxes(this.#shared)
    this.#events = new Events(this.#shared)
    this.#changes = new ChangeLog(this.#shared)
    this.#offers = new OfferBoard(this.#shared, async (change) => this.publish(change))
  }

  async start (log: BackplaneLog): Promise<void> {
    this.#started++
    this.#starting ??= this.#begin(log)
    try {
      await this.#starting
    } catch (error) {
      this.#started--
      this.#starting = undefined
      throw error
    }
  }

  async #begin (log: BackplaneLog): Promise<void> {
    await this.#shared.connection.start(log)
    // Three beats in a lease: one may be late, and one may be lost.
    this.#heart = setInterval(() => { this.#beat() }, this.#shared.lease / 3).unref()
  }

  async close (): Promise<void> {
    if (this.#started === 0 || --this.#started > 0) return
    this.#starting = undefined
    clearInterval(this.#heart)
    this.#sessions.releaseAll()
    await this.#offers.leave().catch(() => {})
    await this.#shared.connection.close()
  }

  #beat (): void {
    Promise.all([this.#sessions.beat(), this.#offers.renew(), this.#changes.check(), this.#shared.connection.checkSubscriber()]).catch(() => {})
  }

  /** Subscribed, perhaps after a time without: what has been missed is made up for. */
  async #restored (): Promise<void> {
    // What sessions want comes before what there was for them.
    await Promise.all([this.#sessions.beat(), this.#offers.renew()])
    await this.#changes.resume()
  }

  #take (channel: string, text: string): void {
    if (channel === changesChannel(this.#shared)) {
      this.#changes.take(text)
      return
    }
    if (channel !== channelOf(this.#shared, this.#shared.process)) return
    const message = JSON.parse(text) as Message
    switch (message[0]) {
      case 'ended': return this.#sessions.ended(message[1])
      case 'updated':
        this.#sessions.noteUpdate(message[1], message[2])
        return this.#shared.tell({ type: 'updated', session: message[1], part: message[2] })
      case 'subscribed': return this.#sessions.takeSubscribed(message[1], message[2], message[3], message[4])
      case 'signal': return this.#sessions.takeSignal(message[1], message[2], message[3])
      case 'out': return this.#outboxes.wake(message[1])
      case 'events': return this.#events.wake(message[1])
      case 'replaced': return this.#outboxes.replaced(message[1], message[2])
      case 'contest':
        this.#outboxes.contest(message[1], message[2], message[3], message[4]).catch(() => {})
        return undefined
      case 'contested': return this.#outboxes.contested(message[1], message[2])
    }
  }

  // ---- sessions

  async createSession (record: SessionRecord, limits: SessionLimits): Promise<Created> {
    this.#changes.liveFor(limits.idleTimeout)
    return this.#sessions.create(record, limits)
  }

  async acquire (id: string, kind: SessionRecord['kind'], owner: string): Promise<SessionUse | undefined> {
    return this.#sessions.acquire(id, kind, owner)
  }

  async updateSession (id: string, part: SessionUpdate): Promise<void> { return this.#sessions.update(id, part) }
  async subscribe (id: string, uri: string, limit: number): Promise<boolean> { return this.#sessions.subscribe(id, uri, limit) }
  async unsubscribe (id: string, uri: string): Promise<void> { return this.#sessions.unsubscribe(id, uri) }
  async deleteSession (id: string): Promise<boolean> { return this.#sessions.delete(id) }
  async countSessions (): Promise<number> { return this.#sessions.count() }

  // ---- standalone streams

  async push (id: string, message: object): Promise<void> { return this.#outboxes.push(id, message) }
  async openOutbox (id: string, reader: OutboxReader): Promise<Outbox | undefined> { return this.#outboxes.open(id, reader) }
  async hasReader (id: string): Promise<boolean> { return this.#outboxes.hasReader(id) }

  // ---- events

  writeEvents (session: string, stream: string, limits: EventLimits, owed?: string): EventWriter {
    return this.#events.write(session, stream, limits, owed)
  }

  async readEvents (session: string, from: { after: string } | { stream: string }, reader: EventReader): Promise<EventReading | undefined> {
    return this.#events.read(session, from, reader)
  }

  // ---- changes

  async offer (offers: Offers): Promise<void> { return this.#offers.join(offers) }
  get position (): string { return this.#changes.position }
  async publish (change: Change): Promise<void> { return this.#changes.publish(change) }
  onChange (listener: (change: Change, position?: string) => void): () => void { return this.#changes.onChange(listener) }
  isAfter (position: string, other: string): boolean { return isAfter(position, other) }
  async changesBetween (after: string, upTo: string): Promise<{ changes: LoggedChange[], complete: boolean }> { return this.#changes.between(after, upTo) }

  // ---- signals

  async signal (signal: Signal & { type: 'cancel' | 'reply' }): Promise<void> { return this.#sessions.signal(signal) }

  onSignal (listener: (signal: Signal) => void): () => void {
    this.#signalListeners.add(listener)
    return () => { this.#signalListeners.delete(listener) }
  }
}
