// Keeps what is not protocol off standard output, as far as JavaScript reaches: process.stdout, console, and fs calls on
// descriptor 1 write to standard error instead. Native code and children that inherit descriptor 1 are out of reach from
// here; the `cloudg-mcp` command covers them by starting its server with other descriptors.

import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { Writable } from 'node:stream'

const STDOUT = 1
const STDERR = 2
const onDescriptors = ['write', 'writeSync', 'writev', 'writevSync', 'writeFile', 'writeFileSync', 'appendFile', 'appendFileSync'] as const

export interface ProtectedStdout {
  /** The only way to standard output that is left. */
  readonly output: Writable
  restore (): void
}

export function protectStdout (): ProtectedStdout {
  // Made on first use, and with the functions of `fs` as they are then.
  const { stdout, stderr } = process
  const restoreFs = divertDescriptor()
  const { write } = stdout
  stdout.write = ((...args: Parameters<typeof write>) => stderr.write(...args)) as typeof write
  // It is not a handler's to end. A last chunk is written, a callback is called.
  stdout.end = ((...args: any[]): typeof stdout => {
    const chunk: unknown = args.find((arg) => typeof arg === 'string' || arg instanceof Uint8Array)
    if (chunk !== undefined) stderr.write(chunk as string)
    const done: unknown = args.at(-1)
    if (typeof done === 'function') process.nextTick(done as () => void)
    return stdout
  }) as typeof stdout.end

  const output = new Writable({
    decodeStrings: false,
    write (chunk: string | Buffer, encoding, done) { write.call(stdout, chunk, encoding, done) }
  })
  const onError = (error: Error): void => { output.destroy(error) }
  stdout.on('error', onError)

  return {
    output,
    restore () {
      restoreFs()
      // Back to the prototype's methods.
      delete (stdout as Partial<typeof stdout>).write
      delete (stdout as Partial<typeof stdout>).end
    }
  }
}

/** `fs` functions that take a descriptor write to 2 where they were given 1. */
function divertDescriptor (): () => void {
  const originals = onDescriptors.map((name) => [name, fs[name]] as const)
  for (const [name, original] of originals) {
    const diverted = (target: unknown, ...rest: unknown[]): unknown => (original as (...args: unknown[]) => unknown)(target === STDOUT ? STDERR : target, ...rest)
    // Names, and what util.promisify looks for.
    Object.defineProperties(diverted, Object.getOwnPropertyDescriptors(original))
    ;(fs as any)[name] = diverted
  }
  syncBuiltinESMExports()
  return () => {
    for (const [name, original] of originals) (fs as any)[name] = original
    syncBuiltinESMExports()
  }
}
