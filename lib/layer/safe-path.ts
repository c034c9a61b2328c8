// Keeps a value that came out of a URI from naming a file that nobody offered. Lexical on purpose: nothing here touches
// the file system, so a symbolic link inside the base is followed by whoever opens the path.

import { resolve, sep } from 'node:path'
import { UnsafePathError } from '../errors.js'

/** Why a template value is refused. */
export type UnsafeReason = 'null-byte' | 'traversal' | 'absolute'

/**
 * Says why a percent-decoded template value must not be used as a path, or nothing when it may.
 * `/` and `\` both separate, on every platform: the value may end up on another one. `..` is harmless as long as it
 * never climbs above the start, so `a/../b` passes.
 *
 * @example unsafeReason('../etc/passwd') // 'traversal'
 */
export function unsafeReason (value: string): UnsafeReason | undefined {
  if (value.includes('\0')) return 'null-byte'
  if (climbs(value)) return 'traversal'
  if (isAbsolute(value)) return 'absolute'
  return undefined
}

/**
 * Joins parts that came from a caller under a directory, and returns an absolute path inside it (or the directory itself).
 * Lexical: symbolic links are not resolved. Compare `fs.realpath` of both where the tree may hold links out of itself.
 *
 * @throws UnsafePathError for a NUL byte, an absolute part, or parts that lead out of `base`
 * @example safeJoin('/srv/docs', 'guides', 'start.md') // '/srv/docs/guides/start.md'
 */
export function safeJoin (base: string, ...parts: string[]): string {
  if (base.includes('\0')) throw new UnsafePathError('the base holds a NUL byte')
  for (const part of parts) {
    if (part.includes('\0')) throw new UnsafePathError('a part holds a NUL byte')
    if (isAbsolute(part)) throw new UnsafePathError('a part is absolute')
  }
  const relative = parts.join('/')
  if (climbs(relative)) throw new UnsafePathError('the parts lead out of the base directory')
  const root = resolve(base)
  const path = resolve(root, relative)
  // climbs() has the say; this is for what a platform's own resolve() may think of that we did not
  if (path !== root && !path.startsWith(root.endsWith(sep) ? root : root + sep)) {
    throw new UnsafePathError('the parts lead out of the base directory')
  }
  return path
}

function climbs (value: string): boolean {
  let depth = 0
  for (const part of value.split(/[/\\]/)) {
    if (part === '..') {
      if (--depth < 0) return true
    } else if (part !== '' && part !== '.') {
      depth++
    }
  }
  return false
}

function isAbsolute (value: string): boolean {
  return /^(?:[/\\]|[A-Za-z]:)/.test(value)
}
