// A client by hand: a process, the lines that it writes, and the lines that are written to it.

import type { ChildProcess, SpawnOptions } from 'node:child_process'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'

export const COMMAND = fileURLToPath(new URL('../../lib/cli/main.js', import.meta.url))
export const LAYER = fileURLToPath(new URL('layer.js', import.meta.url))
export const ENVELOPE = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} }

type Message = Record<string, any>

export class Peer {
  readonly child: ChildProcess
  readonly lines: string[] = []
  readonly messages: Message[] = []
  /** Lines that are no JSON. */
  readonly noise: string[] = []
  stderr = ''
  readonly exited: Promise<{ code: number | null, signal: NodeJS.Signals | null }>
  #waiting: (() => void)[] = []
  #rest = ''
  #ended = false

  constructor (t: Test, command: string, args: readonly string[], options: SpawnOptions = {}) {
    this.child = spawn(command, args, { stdio: 'pipe', ...options })
    const { child } = this
    this.exited = once(child, 'exit').then(([code, signal]) => ({ code, signal }))
    t.teardown(async () => {
      child.stdin?.destroy()
      child.kill('SIGKILL')
      await this.exited
    })
    child.stdin?.on('error', () => {})
    child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#take(text)).on('end', () => {
      this.#ended = true
      this.#wake()
    })
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text
      this.#wake()
    })
  }

  send (...messages: unknown[]): void {
    this.child.stdin!.write(messages.map((message) => (typeof message === 'string' ? message : JSON.stringify(message)) + '\n').join(''))
  }

  /** Resolves to the first message that fits, one that is there already included. */
  async message (fits: (message: Message) => boolean): Promise<Message> {
    await this.until(() => this.messages.some(fits))
    const found = this.messages.find(fits)
    if (found === undefined) throw new Error(`no such message; standard error: ${this.stderr}`)
    return found
  }

  async reply (id: unknown): Promise<Message> {
    return this.message((message) => message.id === id && !('method' in message))
  }

  /** Resolves when something is so, or nothing more will come. */
  async until (so: () => boolean): Promise<void> {
    while (!so() && !this.#ended) await new Promise<void>((resolve) => { this.#waiting.push(resolve) })
  }

  async request (id: number | string, method: string, params: object = {}): Promise<Message> {
    this.send({ jsonrpc: '2.0', id, method, params })
    return this.reply(id)
  }

  async call (id: number | string, name: string, args: object = {}): Promise<Message> {
    return this.request(id, 'tools/call', { name, arguments: args })
  }

  async initialize (protocolVersion = '2025-11-25'): Promise<Message> {
    const reply = await this.request('init', 'initialize', { protocolVersion, capabilities: {}, clientInfo: { name: 'test', version: '1' } })
    this.send({ jsonrpc: '2.0', method: 'notifications/initialized' })
    return reply
  }

  #take (text: string): void {
    const lines = (this.#rest + text).split('\n')
    this.#rest = lines.pop()!
    for (const line of lines) {
      this.lines.push(line)
      try {
        this.messages.push(JSON.parse(line))
      } catch {
        this.noise.push(line)
      }
    }
    this.#wake()
  }

  #wake (): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }
}

/** The command, serving the noisy layer. */
export function serve (t: Test, args: readonly string[] = [], options?: SpawnOptions): Peer {
  return new Peer(t, process.execPath, [COMMAND, 'serve', LAYER, ...args], options)
}

/** Resolves to the ms after which none of the processes was left. */
export async function goneAfter (pids: readonly number[], limit: number): Promise<number> {
  const start = Date.now()
  while (pids.some(isAlive) && Date.now() - start < limit) await new Promise((resolve) => { setTimeout(resolve, 10) })
  return pids.some(isAlive) ? Infinity : Date.now() - start
}

/** What has ended but was not waited for by its parent counts as gone. */
function isAlive (pid: number): boolean {
  try {
    process.kill(pid, 0)
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
