// Processes of a service: started, told what to do, killed.

import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { NodeConfig, Order, Report } from './node.js'

type Kind = Report['report']

export class Node {
  readonly config: NodeConfig
  port = 0
  #child: ChildProcess | undefined
  readonly #reports: Report[] = []
  readonly #waiting: (() => void)[] = []

  constructor (config: NodeConfig) {
    this.config = config
  }

  static async start (config: NodeConfig): Promise<Node> {
    const node = new Node(config)
    await node.up()
    return node
  }

  get pid (): number { return this.#child!.pid! }
  get running (): boolean { return this.#child !== undefined }

  /** Starts it, or starts it again on the same port. */
  async up (): Promise<void> {
    const config = { ...this.config, ...(this.port > 0 && { port: this.port }) }
    const child = fork(new URL('node.js', import.meta.url), { env: { ...process.env, NODE_CONFIG: JSON.stringify(config) }, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    this.#child = child
    this.#reports.length = 0
    child.on('message', (report: Report) => {
      this.#reports.push(report)
      for (const wake of this.#waiting.splice(0)) wake()
    })
    const started = await this.report((report) => report.report === 'listening' || report.report === 'failed')
    if (started.report === 'failed') throw Object.assign(new Error(started.message), { code: started.code })
    this.port = (started as { port: number }).port
  }

  tell (order: Order): void {
    this.#child?.send(order)
  }

  /** The next report of its kind that has not been taken, or the first that is the one. */
  async report<K extends Kind> (kind: K | ((report: Report) => boolean)): Promise<Report & { report: K }> {
    const is = typeof kind === 'function' ? kind : (report: Report) => report.report === kind
    for (;;) {
      const at = this.#reports.findIndex(is)
      if (at !== -1) return this.#reports.splice(at, 1)[0] as Report & { report: K }
      await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
    }
  }

  async entered (nonce: string): Promise<void> {
    await this.report((report) => report.report === 'entered' && report.nonce === nonce)
  }

  async kill (): Promise<void> {
    await this.#end((child) => { child.kill('SIGKILL') })
  }

  /** Closes it in good order. */
  async close (): Promise<void> {
    await this.#end((child) => { child.send({ order: 'close' } satisfies Order) })
  }

  async #end (how: (child: ChildProcess) => void): Promise<void> {
    const child = this.#child
    this.#child = undefined
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    how(child)
    await exited
  }
}
