// Servers and the load generator as child processes that answer questions.

import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { LoadJob, LoadResult } from './load.js'
import type { Usage } from './servers/harness.js'

export class Child {
  readonly #process: ChildProcess
  readonly #waiting = new Map<number, (reply: any) => void>()
  #next = 0
  readonly port: Promise<number>

  constructor (file: string, env: Record<string, string> = {}) {
    this.#process = fork(fileURLToPath(new URL(file, import.meta.url)), [], {
      env: { ...process.env, NODE_ENV: 'production', ...env }, execArgv: ['--expose-gc'], stdio: ['ignore', 'ignore', 'inherit', 'ipc']
    })
    this.port = new Promise((resolve, reject) => {
      this.#process.once('exit', (code) => reject(new Error(`${file} ended with ${code}`)))
      this.#process.on('message', (message: { port?: number, id?: number, reply?: unknown }) => {
        if (message.port !== undefined) return resolve(message.port)
        this.#waiting.get(message.id!)?.(message.reply)
        this.#waiting.delete(message.id!)
      })
    })
    this.port.catch(() => {})
  }

  ask<T> (message: object): Promise<T> {
    const id = ++this.#next
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve)
      this.#process.send({ ...message, id })
    })
  }

  /** CPU of the process so far, in µs. */
  async cpu (): Promise<number> {
    const { user, system } = await this.ask<NodeJS.CpuUsage>({ type: 'cpu' })
    return user + system
  }

  usage (): Promise<Usage> {
    return this.ask({ type: 'usage' })
  }

  load (job: LoadJob): Promise<LoadResult> {
    return this.ask({ job })
  }

  end (): Promise<void> {
    return new Promise((resolve) => {
      if (this.#process.exitCode !== null) return resolve()
      this.#process.once('exit', () => resolve())
      this.#process.kill('SIGKILL')
    })
  }
}
