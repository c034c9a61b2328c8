// Lines on their way into a file or a stream, without a caller waiting for them. A file that was renamed or removed (log
// rotation) is opened anew. When the other end is slower than the calls, lines are lost rather than memory, and counted.

import type { FileHandle } from 'node:fs/promises'
import { open, stat } from 'node:fs/promises'
import type { Writable } from 'node:stream'

export interface Lines {
  /** False when there is no room: the line is lost. */
  write (line: string): boolean
  /** Resolves when all lines that were taken have been written, or could not be. Lines may still come. */
  flush (): Promise<void>
}

export type OnError = (error: Error) => void

export class LineFile implements Lines {
  readonly #path: string | URL
  readonly #maxPending: number
  readonly #onError: OnError
  #pending: string[] = []
  #chars = 0
  #file: { handle: FileHandle, dev: number, ino: number } | undefined
  #writing: Promise<void> | undefined
  /** The last write failed, and may have left half a line. */
  #torn = false

  constructor (path: string | URL, maxPending: number, onError: OnError) {
    this.#path = path
    this.#maxPending = maxPending
    this.#onError = onError
  }

  write (line: string): boolean {
    if (this.#chars + line.length > this.#maxPending) return false
    this.#pending.push(line)
    this.#chars += line.length
    this.#writing ??= this.#write()
    return true
  }

  async flush (): Promise<void> {
    while (this.#writing !== undefined) await this.#writing
    await this.#close()
  }

  async #write (): Promise<void> {
    while (this.#pending.length > 0) {
      const text = (this.#torn ? '\n' : '') + this.#pending.join('')
      this.#pending = []
      try {
        await (await this.#current()).appendFile(text)
        this.#torn = false
      } catch (error) {
        if (!this.#torn) this.#onError(error as Error)
        this.#torn = true
        await this.#close()
      }
      this.#chars = this.#pending.reduce((sum, line) => sum + line.length, 0)
    }
    this.#writing = undefined
  }

  /** The file that has the name now. */
  async #current (): Promise<FileHandle> {
    if (this.#file !== undefined) {
      const named = await stat(this.#path).catch(() => undefined)
      if (named?.ino === this.#file.ino && named.dev === this.#file.dev) return this.#file.handle
      await this.#close()
    }
    const handle = await open(this.#path, 'a', 0o600)
    const { dev, ino } = await handle.stat()
    this.#file = { handle, dev, ino }
    return handle
  }

  async #close (): Promise<void> {
    const file = this.#file
    this.#file = undefined
    await file?.handle.close().catch(() => {})
  }
}

/** Lines into a stream of the application, which stays open. */
export class LineStream implements Lines {
  readonly #stream: Writable
  readonly #maxPending: number

  constructor (stream: Writable, maxPending: number, onError: OnError) {
    this.#stream = stream
    this.#maxPending = maxPending
    stream.on('error', onError)
  }

  write (line: string): boolean {
    if (!this.#stream.writable || this.#stream.writableLength + line.length > this.#maxPending) return false
    this.#stream.write(line)
    return true
  }

  flush (): Promise<void> {
    return new Promise((resolve) => {
      if (this.#stream.writable) this.#stream.write('', () => resolve())
      else resolve()
    })
  }
}
