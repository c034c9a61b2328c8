// What the processes offer. While they differ (a deploy is under way) every process that comes or goes changes the lists that clients
// see; while they do not, processes come and go in silence.

import type { Change, Offers } from '../index.js'
import { OFFER } from './service-scripts.js'
import type { Shared } from './shared.js'
import { serviceKey } from './shared.js'

const kinds = ['tools', 'resources', 'prompts'] as const

export class OfferBoard {
  readonly #shared: Shared
  readonly #publish: (change: Change) => Promise<void>
  #mine: string | undefined

  constructor (shared: Shared, publish: (change: Change) => Promise<void>) {
    this.#shared = shared
    this.#publish = publish
  }

  /** This process comes. */
  async join (offers: Offers): Promise<void> {
    this.#mine = kinds.map((kind) => offers[kind]).join(' ')
    const { gone, others } = await this.#post(this.#mine)
    await this.#tell([...gone, ...others])
  }

  /** It is still there; some that are not may have left without a word. */
  async renew (): Promise<void> {
    if (this.#mine === undefined) return
    const { gone } = await this.#post(this.#mine)
    await this.#tell(gone)
  }

  /** It goes. */
  async leave (): Promise<void> {
    if (this.#mine === undefined) return
    const { gone, others } = await this.#post('')
    await this.#tell([...gone, ...others])
    this.#mine = undefined
  }

  async #post (offers: string): Promise<{ gone: string[], others: string[] }> {
    const { connection, process, lease } = this.#shared
    const [gone, others] = await connection.run(OFFER, serviceKey(this.#shared), process, lease, offers) as [string[], string[]]
    return { gone, others }
  }

  async #tell (others: string[]): Promise<void> {
    const mine = this.#mine!.split(' ')
    const different = kinds.filter((_, at) => others.some((other) => other.split(' ')[at] !== mine[at]))
    await Promise.all(different.map(async (kind) => this.#publish({ kind })))
  }
}
