// Bytes to lines. Split on 0x0A and nothing else, so that characters cut in two by a chunk stay whole and U+2028 ends nothing.
// MCP "stdio": messages are delimited by newlines and hold none.

const LF = 0x0a
const CR = 0x0d
const BOM = Buffer.from([0xef, 0xbb, 0xbf])

/** Stands for a line that was longer than the cap; what there was of it is gone. */
export const TOO_LONG = Symbol('a line longer than the cap')

/**
 * The lines of a stream, without their ends, a carriage return before it, or a byte order mark; the last one needs no end.
 * A line over `maxBytes` is reported as soon as it is, and skipped to its end: no more than that is ever held.
 */
export async function * readLines (input: AsyncIterable<Buffer | string>, maxBytes: number): AsyncGenerator<Buffer | typeof TOO_LONG> {
  let parts: Buffer[] = []
  let held = 0
  let skipping = false

  const add = (part: Buffer): boolean => {
    if (skipping || part.length === 0) return true
    held += part.length
    if (held <= maxBytes) {
      parts.push(part)
      return true
    }
    skipping = true
    parts = []
    return false
  }
  const take = (): Buffer | undefined => {
    const line = skipping ? undefined : trim(parts.length === 1 ? parts[0]! : Buffer.concat(parts, held))
    parts = []
    held = 0
    skipping = false
    return line
  }

  for await (const given of input) {
    const chunk = typeof given === 'string' ? Buffer.from(given) : given
    let start = 0
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, start)) {
      if (!add(chunk.subarray(start, end))) yield TOO_LONG
      start = end + 1
      const line = take()
      if (line !== undefined) yield line
    }
    if (!add(chunk.subarray(start))) yield TOO_LONG
  }
  if (held > 0) {
    const line = take()
    if (line !== undefined) yield line
  }
}

function trim (line: Buffer): Buffer {
  const start = line.subarray(0, BOM.length).equals(BOM) ? BOM.length : 0
  const end = line.length > start && line.at(-1) === CR ? line.length - 1 : line.length
  return start === 0 && end === line.length ? line : line.subarray(start, end)
}

const WHITESPACE = new Set([0x20, 0x09, CR])

export function isBlank (line: Buffer): boolean {
  return line.every((byte) => WHITESPACE.has(byte))
}
