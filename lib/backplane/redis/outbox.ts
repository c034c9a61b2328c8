// The standalone streams of sessions: who reads one, and what waits for it. The place of the reader is a field of the session and is
// as good as the use of the session by the process that has it. Whoever wants a place that is taken asks its process whether
// the reader is still there; no answer, or nobody to ask, means that it is not.

import { randomBytes } from 'node:crypto'
import type { Outbox, OutboxReader } from '../index.js'
import { CLOSE, HAS_READER, OPEN, PUSH } from './session-scripts.js'
import type { HeldOutbox, Place, Shared } from './shared.js'
import { channelOf, encodeMessage, isAlive, repeated, send, sessionKey } from './shared.js'

type Opened = [one: 1, subscriptions: string[], seen: string, subscribed: string]
/** What a session was subscribed to since, or not, and in which state. */
type Since = Map<string, { wanted: boolean, state: number }>

const MAX_WAITING = 512
const BATCH = 64
/** ms that the process of a reader has to say that it is still there */
const CONTEST = 1000

export class Outboxes {
  readonly #shared: Shared
  readonly #contests = new Map<string, (free: boolean) => void>()

  constructor (shared: Shared) {
    this.#shared = shared
  }

  async push (id: string, message: object): Promise<void> {
    const { process, lease } = this.#shared
    const reader = await this.#run(id, PUSH, channelOf(this.#shared), encodeMessage('out', id), lease, JSON.stringify(message), MAX_WAITING)
    if (reader === process) this.wake(id)
  }

  async hasReader (id: string): Promise<boolean> {
    return await this.#run(id, HAS_READER) === 1
  }

  async open (id: string, reader: OutboxReader): Promise<Outbox | undefined> {
    const entry = this.#shared.held.get(id)
    const since: Since = new Map()
    entry?.opening.add(since)
    try {
      return await this.#open(id, reader, since)
    } finally {
      entry?.opening.delete(since)
    }
  }

  async #open (id: string, reader: OutboxReader, since: Since): Promise<Outbox | undefined> {
    const { process } = this.#shared
    const token = randomBytes(6).toString('hex')
    let expected = ''
    for (let attempt = 0; attempt < 3; attempt++) {
      const [, oldToken = ''] = expected.split(' ')
      const opened = await this.#run(id, OPEN, process, token, expected, channelOf(this.#shared), encodeMessage('replaced', id, oldToken)) as string | Opened | null
      if (opened === null) return undefined
      if (typeof opened !== 'string') return this.#take(id, token, reader, opened, since)
      if (!await this.#isFree(id, opened)) return undefined
      expected = opened
    }
    return undefined
  }

  async #take (id: string, token: string, reader: OutboxReader, [, subscriptions, seen, subscribed]: Opened, since: Since): Promise<Outbox> {
    const { process, held } = this.#shared
    const entry = held.get(id)
    const place = this.#place(id, token, reader)
    const listed = Number(subscribed)
    if (entry !== undefined) {
      entry.place?.reader.replaced()
      entry.place = place
      entry.subscribed = listed
      entry.newest = Math.max(entry.newest, listed)
    }
    const outbox: HeldOutbox = {
      token,
      subscriptions: [],
      seen,
      inDoubt: false,
      close: async (reached) => {
        if (place.closed) return
        place.closed = true
        if (entry?.place === place) entry.place = undefined
        await this.#run(id, CLOSE, process, token, outbox.inDoubt ? '' : reached)
      }
    }
    try {
      await place.drain()
    } catch (error) {
      outbox.close(seen).catch(() => {})
      throw error
    }
    // What has been heard of since is newer than the list, which was on its way.
    const all = new Set(subscriptions)
    for (const [uri, { wanted, state }] of since) if (state > listed) all[wanted ? 'add' : 'delete'](uri)
    outbox.subscriptions = [...all]
    return outbox
  }

  /** May the place be taken from the one that has it? */
  async #isFree (id: string, holder: string): Promise<boolean> {
    const { process, held } = this.#shared
    const [other, token] = holder.split(' ') as [string, string]
    if (other === process) {
      const place = held.get(id)?.place
      return place?.token !== token || place.reader.stalled()
    }
    if (!await isAlive(this.#shared, other)) return true
    const nonce = randomBytes(6).toString('hex')
    let timer: NodeJS.Timeout | undefined
    const free = new Promise<boolean>((resolve) => {
      this.#contests.set(nonce, resolve)
      timer = setTimeout(resolve, CONTEST, true)
    })
    try {
      await send(this.#shared, other, 'contest', id, token, process, nonce)
      return await free
    } finally {
      clearTimeout(timer)
      this.#contests.delete(nonce)
    }
  }

  /** Another process wants the place of a reader of ours. */
  async contest (id: string, token: string, process: string, nonce: string): Promise<void> {
    const place = this.#shared.held.get(id)?.place
    const free = place?.token !== token || place.reader.stalled()
    await send(this.#shared, process, 'contested', nonce, free)
  }

  contested (nonce: string, free: boolean): void {
    this.#contests.get(nonce)?.(free)
  }

  replaced (id: string, token: string): void {
    const place = this.#shared.held.get(id)?.place
    if (place?.token === token) place.reader.replaced()
  }

  wake (id: string): void {
    this.#shared.held.get(id)?.place?.drain().catch(() => {})
  }

  #place (id: string, token: string, reader: OutboxReader): Place {
    const key = `${sessionKey(this.#shared, id)}:o`
    const { connection } = this.#shared
    let opened = false
    const place: Place = {
      token,
      reader,
      closed: false,
      // What has been handed over is dropped; what has not is there for the next reader.
      drain: repeated(async () => {
        let more = true
        while (more && !place.closed) {
          const entries = await connection.call(async (client) => client.xrange(key, '-', '+', 'COUNT', BATCH))
          const done: string[] = []
          let room: Promise<void> | undefined
          for (const [entry, [, text]] of entries) {
            const full = place.closed ? false : reader.deliver(JSON.parse(text!) as object)
            if (full === false) break
            if (full !== undefined) room = full
            done.push(entry)
          }
          if (done.length > 0) await connection.call(async (client) => client.xdel(key, ...done))
          more = done.length === BATCH
          // Nobody reads from it before it is open.
          if (opened) await room
        }
        opened = true
      })
    }
    return place
  }

  #run (id: string, script: typeof OPEN, ...args: (string | number)[]): Promise<any> {
    return this.#shared.connection.run(script, sessionKey(this.#shared, id), ...args)
  }
}
