// Two connections of our own, made like the caller's client: one for commands, one that listens. Commands fail at once while
// Redis is away, and what it does not answer in time is given up: nobody waits for a Redis that does not come back.

import { createRequire } from 'node:module'
import type { Cluster, Redis } from 'ioredis'
import { BackplaneUnavailableError } from '../../errors.js'
import type { BackplaneLog } from '../index.js'
import type { Script } from './scripts.js'
import { scripts } from './scripts.js'

export type Client = Redis | Cluster

export interface ConnectionOptions {
  client?: Client | undefined
  url?: string | undefined
  /** ms */
  timeout: number
  required: boolean
  startTimeout: number
}

export interface Listener {
  readonly channels: readonly string[]
  message (channel: string, text: string): void
  /** Nothing arrives until it is restored. */
  lost (): void
  /** Subscribed, for the first time or again: messages may have been missed. */
  restored (): Promise<void>
}

const RETRY_MAX = 1000
const RETRY_RESTORE = 100
// What Redis says while it cannot serve; anything else that it says is our mistake.
const AWAY = /^(READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|MISCONF|OOM|NOREPLICAS|BUSY|TRYAGAIN|UNBLOCKED|NOAUTH|WRONGPASS|NOPERM)\b/
const CHANGED_ROLE = /^(READONLY|MASTERDOWN)\b/

export class Connection {
  readonly #options: ConnectionOptions
  readonly #listener: Listener
  #log: BackplaneLog | undefined
  #commands: Client | undefined
  #subscriber: Client | undefined
  #pending = 0
  #corked = false
  #onIdle: (() => void) | undefined
  #away = false
  #restoring = false
  #restoreAgain = false
  #onRestored: (() => void) | undefined
  #lastError: Error | undefined

  constructor (options: ConnectionOptions, listener: Listener) {
    this.#options = options
    this.#listener = listener
  }

  /** @throws BackplaneUnavailableError */
  async start (log: BackplaneLog): Promise<void> {
    const { required, startTimeout } = this.#options
    this.#log = log
    const restored = new Promise<true>((resolve) => { this.#onRestored = () => resolve(true) })
    this.#commands = this.#open('commands')
    this.#subscriber = this.#open('subscriber')
    for (const client of [this.#commands, this.#subscriber]) client.connect().catch(() => {})
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<false>((resolve) => { timer = setTimeout(resolve, startTimeout, false) })
    const inTime = await Promise.race([restored, late])
    clearTimeout(timer)
    if (inTime) return
    const why = this.#lastError?.message || `no connection within ${startTimeout} ms`
    if (required) {
      await this.close()
      throw new BackplaneUnavailableError(why)
    }
    this.#away = true
    log.warn({ err: this.#lastError }, 'Redis cannot be reached: sessions are refused until it can')
  }

  async close (): Promise<void> {
    // What is on its way is answered first.
    while (this.#pending > 0) await new Promise<void>((resolve) => { this.#onIdle = resolve })
    const clients = [this.#commands, this.#subscriber]
    this.#commands = this.#subscriber = undefined
    await Promise.all(clients.map(async (client) => {
      if (client?.status === 'ready') await client.quit().catch(() => {})
      client?.disconnect()
    }))
  }

  /** @throws BackplaneUnavailableError */
  run (script: Script, key: string, ...args: (string | number)[]): Promise<any> {
    return this.#send((client) => client.evalsha(script.sha, 1, key, ...args), (client) => client.eval(script.text, 1, key, ...args))
  }

  /** @throws BackplaneUnavailableError */
  call<T> (work: (client: Client) => Promise<T>): Promise<T> {
    return this.#send(work)
  }

  /** Is anybody subscribed to a channel, at whichever node? */
  async hasListener (channel: string): Promise<boolean> {
    return this.#send(async (client) => {
      const nodes = isCluster(client) ? client.nodes('all') : [client]
      const answers = await Promise.all(nodes.map(async (node) => node.pubsub('NUMSUB', channel)))
      return answers.some(([, count]) => Number(count) > 0)
    })
  }

  /** Notices when the connection that listens is dead without having been closed. */
  async checkSubscriber (): Promise<void> {
    const subscriber = this.#subscriber
    if (subscriber !== undefined && !isCluster(subscriber) && subscriber.status === 'ready') await subscriber.ping().catch(() => {})
  }

  /**
   * Resolves when everything has arrived that was published before. The nodes of a cluster publish without a common order: there it
   * says nothing.
   */
  async arrived (): Promise<void> {
    const subscriber = this.#subscriber
    if (subscriber !== undefined && !isCluster(subscriber)) await subscriber.ping()
  }

  /**
   * Not async: every call of a session waits for it.
   * @param withText where Redis does not know the script
   */
  #send<T> (work: (client: Client) => Promise<T>, withText?: (client: Client) => Promise<T>): Promise<T> {
    const client = this.#commands
    if (client === undefined) return Promise.reject(new BackplaneUnavailableError('not started'))
    this.#pending++
    this.#writeAtOnce(client)
    return work(client).then((answer) => {
      this.#settled()
      return answer
    }, (error: unknown) => {
      this.#settled()
      if (withText !== undefined && error instanceof Error && error.message.startsWith('NOSCRIPT')) return this.#send(withText)
      if (error instanceof Error && error.name === 'ReplyError' && !AWAY.test(error.message)) throw error
      throw new BackplaneUnavailableError(error instanceof Error ? error.message : String(error))
    })
  }

  #settled (): void {
    if (--this.#pending === 0) this.#onIdle?.()
  }

  /** What is asked in one turn of the event loop goes out in one piece: a write costs more than a command. */
  #writeAtOnce (client: Client): void {
    if (isCluster(client) || this.#corked) return
    const { stream } = client as Partial<Redis>
    if (stream === undefined) return
    this.#corked = true
    stream.cork()
    setImmediate(() => {
      this.#corked = false
      stream.uncork()
    })
  }

  /** Both connections are there, for the first time or again. */
  #restore (): void {
    const [commands, subscriber] = [this.#commands, this.#subscriber]
    if (commands?.status !== 'ready' || subscriber?.status !== 'ready') return
    if (this.#restoring) {
      this.#restoreAgain = true
      return
    }
    this.#restoring = true
    this.#restoreAgain = false
    Promise.all([subscriber.subscribe(...this.#listener.channels), load(commands)]).then(async () => this.#listener.restored()).then(() => {
      this.#restoring = false
      if (this.#restoreAgain) return this.#restore()
      if (this.#away) this.#log?.info('Redis is back')
      this.#away = false
      this.#onRestored?.()
    }, () => {
      // One of them is gone again, or Redis is not quite ready.
      setTimeout(() => {
        this.#restoring = false
        this.#restore()
      }, RETRY_RESTORE).unref()
    })
  }

  #open (what: 'commands' | 'subscriber'): Client {
    const { timeout, client } = this.#options
    const own = {
      lazyConnect: true,
      keyPrefix: '',
      enableOfflineQueue: false
    }
    const retryStrategy = (times: number): number => Math.min(20 * 2 ** times, RETRY_MAX)
    const connection = {
      maxRetriesPerRequest: 0,
      autoResubscribe: false,
      autoResendUnfulfilledCommands: false,
      socketTimeout: timeout,
      connectTimeout: timeout
    }
    const one = { ...own, ...connection, retryStrategy }
    const opened = client === undefined
      ? new (ioredis().Redis)(this.#options.url!, { ...one, reconnectOnError: changedRole })
      : isCluster(client)
        ? client.duplicate([], { ...own, clusterRetryStrategy: retryStrategy, redisOptions: connection })
        : client.duplicate({ ...one, reconnectOnError: (error: Error) => changedRole(error) || (client.options.reconnectOnError?.(error) ?? false) })
    opened.on('error', (error: Error) => { this.#lastError = error })
    opened.on('message', (channel: string, text: string) => this.#listener.message(channel, text))
    opened.on('close', () => {
      if (what === 'subscriber') this.#listener.lost()
      if (this.#away || this.#commands === undefined) return
      this.#away = true
      this.#log?.warn({ err: this.#lastError }, 'the connection to Redis is lost')
    })
    opened.on('ready', () => this.#restore())
    return opened
  }
}

/** A server that was promoted or demoted: the client has to look for the right one. */
function changedRole (error: Error): boolean {
  return CHANGED_ROLE.test(error.message)
}

export function isCluster (client: Client): client is Cluster {
  return (client as { isCluster?: boolean }).isCluster === true
}

async function load (client: Client): Promise<void> {
  const nodes = isCluster(client) ? client.nodes('master') : [client]
  await Promise.all(nodes.map(async (node) => Promise.all(scripts.map(async ({ text }) => node.script('LOAD', text)))))
}

/** The caller's ioredis, where nothing but a URL is given. */
function ioredis (): typeof import('ioredis') {
  return createRequire(import.meta.url)('ioredis') as typeof import('ioredis')
}
