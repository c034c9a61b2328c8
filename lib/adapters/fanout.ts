// Changes of a layer, told to the servers that it is mounted in. Servers come and go, some of them with every request: none is
// held here.

import type { Logger } from '../layer/context.js'
import type { ChangeEvent, Layer } from '../layer/contract.js'
import type { LowLevelServer } from './detect.js'
import type { EventBus } from './events.js'
import { busEventOf } from './events.js'

/** A connected server that tells its client of changes. */
export interface Target {
  readonly server: LowLevelServer
  wants (event: ChangeEvent): boolean
}

const FIRST_SWEEP = 64

export class FanOut {
  readonly #layer: Layer
  readonly #log: Logger
  #targets = new Set<WeakRef<Target>>()
  readonly #known = new WeakSet<Target>()
  readonly #buses = new Set<EventBus>()
  readonly #watchers = new Set<() => void>()
  #sweepAt = FIRST_SWEEP
  #leave: (() => void) | undefined

  constructor (layer: Layer, log: Logger) {
    this.#layer = layer
    this.#log = log
  }

  /** Servers that are told; of those that have gone, some may still be counted. */
  get size (): number { return this.#targets.size }

  add (target: Target): void {
    this.#listen()
    if (this.#known.has(target)) return
    this.#known.add(target)
    if (this.#targets.size >= this.#sweepAt) this.#sweep()
    this.#targets.add(new WeakRef(target))
  }

  addBus (bus: EventBus): void {
    this.#listen()
    this.#buses.add(bus)
  }

  /** Called at every change. */
  watch (watcher: () => void): () => void {
    this.#listen()
    this.#watchers.add(watcher)
    return () => { this.#watchers.delete(watcher) }
  }

  close (): void {
    this.#leave?.()
    this.#leave = undefined
    this.#targets.clear()
    this.#buses.clear()
    this.#watchers.clear()
  }

  #listen (): void {
    this.#leave ??= this.#layer.onChange((event) => this.#tell(event))
  }

  #tell (event: ChangeEvent): void {
    for (const watcher of this.#watchers) watcher()
    for (const bus of this.#buses) bus.publish(busEventOf(event))
    for (const target of this.#live()) {
      if (target.wants(event)) notify(target.server, event).catch((error) => this.#log.debug({ err: error }, 'a change could not be told'))
    }
  }

  /** Those that are connected. What is not is left out from now on: a new connection adds itself again. */
  * #live (): Generator<Target> {
    for (const ref of this.#targets) {
      const target = ref.deref()
      if (target?.server.transport !== undefined) {
        yield target
        continue
      }
      this.#targets.delete(ref)
      if (target !== undefined) this.#known.delete(target)
    }
  }

  #sweep (): void {
    this.#sweepAt = Math.max(FIRST_SWEEP, [...this.#live()].length * 2)
  }
}

async function notify (server: LowLevelServer, { kind, uri }: ChangeEvent): Promise<void> {
  switch (kind) {
    case 'tools': return server.sendToolListChanged()
    case 'prompts': return server.sendPromptListChanged()
    case 'resources': return server.sendResourceListChanged()
    case 'resource': return server.sendResourceUpdated({ uri: uri! })
  }
}
