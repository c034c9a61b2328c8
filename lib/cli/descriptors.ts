// The command's stdio server runs in a process of its own, started with other descriptors: its 0 is empty, its 1 and 2 are the
// real standard error, and the protocol has descriptors that nothing else knows. So nothing that a handler, a library, native
// code or a child process does with standard input and output can touch the protocol. Node cannot do that to itself.

import { spawn } from 'node:child_process'
import { createReadStream, createWriteStream, fstatSync } from 'node:fs'
import { Socket } from 'node:net'
import { constants } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import { isatty, ReadStream, WriteStream } from 'node:tty'
import { watchParent } from '../stdio/parent.js'

const OUTPUT = 3
const INPUT = 4
// Open as long as the process that started this one lives.
const LIFELINE = 5
const MARK = 'CLOUDG_MCP_STDIO_WORKER'
const passedOn = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const
// ms that the worker has when its own parent's parent has gone.
const LAST_GRACE = 1000

export interface Descriptors {
  input: Readable
  output: Writable
  /** Calls back when the process that started this one has gone. */
  onOrphaned (callback: () => void): void
}

/** The protocol's own descriptors, in the process that was started with them. */
export function takeDescriptors (): Descriptors | undefined {
  if (process.env[MARK] === undefined) return undefined
  // A command that a handler starts is no worker.
  delete process.env[MARK]
  const lifeline = new Socket({ fd: LIFELINE, readable: true, writable: false })
  lifeline.resume().unref()
  return {
    input: openInput(INPUT),
    output: openOutput(OUTPUT),
    onOrphaned (callback) { lifeline.once('close', callback).once('error', () => {}) }
  }
}

/**
 * Starts this program again with swapped descriptors, and ends as it does. Signals are passed on, and neither of the two
 * outlives whoever started this one.
 */
export function runSwapped (script: string, args: readonly string[]): Promise<number> {
  const stdio: (number | 'ignore' | 'pipe')[] = ['ignore', 2, 2]
  stdio[OUTPUT] = 1
  stdio[INPUT] = 0
  stdio[LIFELINE] = 'pipe'
  const worker = spawn(process.execPath, [...process.execArgv, script, ...args], { stdio, env: { ...process.env, [MARK]: '1' } })
  const lifeline = (worker.stdio as readonly unknown[])[LIFELINE] as Socket
  lifeline.on('error', () => {}).unref()

  for (const signal of passedOn) process.on(signal, () => worker.kill(signal))
  watchParent(() => {
    lifeline.destroy()
    setTimeout(() => worker.kill('SIGKILL'), LAST_GRACE).unref()
  })
  return new Promise((resolve, reject) => {
    worker.once('error', reject)
    worker.once('exit', (code, signal) => resolve(code ?? 128 + constants.signals[signal!]))
  })
}

function openInput (fd: number): Readable {
  if (isatty(fd)) return new ReadStream(fd)
  return isPipe(fd) ? new Socket({ fd, readable: true, writable: false }) : createReadStream('', { fd })
}

function openOutput (fd: number): Writable {
  if (isatty(fd)) return new WriteStream(fd)
  return isPipe(fd) ? new Socket({ fd, readable: false, writable: true }) : createWriteStream('', { fd })
}

function isPipe (fd: number): boolean {
  const stat = fstatSync(fd)
  return stat.isFIFO() || stat.isSocket()
}
