// Who called what, when, and how it ended: one line of JSON for each call, without a single value that the caller sent.

import { createHmac, randomBytes } from 'node:crypto'
import type { Writable } from 'node:stream'
import { InvalidOptionError } from '../../errors.js'
import type { CallInfo, Middleware } from '../contract.js'
import { canonicalJson } from './canonical-json.js'
import type { Lines, OnError } from './line-file.js'
import { LineFile, LineStream } from './line-file.js'
import type { Ending, Outcome } from './outcome.js'
import { returned, threw } from './outcome.js'

export interface AuditOptions {
  /** Where lines are appended: made with mode 0600 if it is not there, and followed through log rotation. */
  file?: string | URL
  /** Instead of a file: a stream, which stays open. */
  stream?: Writable
  /** Key of the hashes: with the same one, equal arguments have equal hashes across runs. Keep it secret. @default random, for this run */
  salt?: string | Uint8Array
  /** What is written down. @default everything */
  kinds?: readonly CallInfo['kind'][]
  /** Characters that wait to be written; lines beyond that are lost, and their number is written down. @default 8388608 */
  maxPending?: number
  /** Told when writing begins to fail. Calls go on. @default a process warning */
  onError?: OnError
  /** For tests. @default the time */
  now?: () => Date
}

/** A line. */
export interface AuditRecord {
  /** ISO 8601, when the call ended */
  ts: string
  event: 'mcp.call'
  kind: CallInfo['kind']
  /** As registered; of a resource that a template serves, the template. */
  name: string
  era: 'handshake' | 'modern'
  request_id: string | number
  principal: { id: string, roles: string[] }
  argument_keys: string[]
  /** The first 16 hex digits of HMAC-SHA256(salt, canonical JSON); `null` for a value that is nested too deep. */
  argument_hashes: Record<string, string | null>
  duration_ms: number
  outcome: Outcome
  /** The class of the error, never its message. */
  error?: string
}

export interface Audit extends Middleware {
  /** Resolves when every line so far is written. Give it to the layer's `stop`. */
  close (): Promise<void>
}

// The keys are the caller's too, as far as nobody has checked the arguments.
const MAX_KEYS = 64
const MAX_KEY = 128

/**
 * Writes an audit trail. The outermost middleware sees every call, those that others refuse as well.
 *
 * @example
 * const trail = audit({ file: '/var/log/orders/mcp.jsonl', salt: process.env.AUDIT_SALT })
 * const layer = createLayer({ name: 'orders', version: '1.0.0', middleware: [trail], stop: () => trail.close() })
 */
export function audit (options: AuditOptions): Audit {
  const { salt = randomBytes(32), now = () => new Date(), kinds } = options
  if (salt.length === 0) throw new InvalidOptionError('audit option `salt` must not be empty')
  const lines = linesTo(options)
  let lost = 0

  function record (info: CallInfo, args: CallInfo['arguments'], ending: Ending): void {
    const ts = now().toISOString()
    const gap = lost === 0 ? '' : line({ ts, event: 'mcp.audit.gap', lost })
    if (lines.write(gap + line(recordOf(info, args, ending, ts, salt)))) lost = 0
    else lost++
  }

  async function through (info: CallInfo, next: () => Promise<any>): Promise<any> {
    if (kinds !== undefined && !kinds.includes(info.kind)) return next()
    // Another middleware may change the arguments on their way.
    const given = { ...info.arguments }
    let result: unknown
    try {
      result = await next()
    } catch (error) {
      record(info, given, threw(info, error))
      throw error
    }
    record(info, given, returned(info, result))
    return result
  }

  return Object.assign(through, { close: () => lines.flush() })
}

function linesTo ({ file, stream, maxPending = 8_388_608, onError = warn }: AuditOptions): Lines {
  if (file !== undefined && stream === undefined) return new LineFile(file, maxPending, onError)
  if (stream !== undefined && file === undefined) return new LineStream(stream, maxPending, onError)
  throw new InvalidOptionError('audit needs one of the options `file` (a path) and `stream` (a Writable)')
}

function line (record: object): string {
  return JSON.stringify(record) + '\n'
}

function recordOf (info: CallInfo, args: CallInfo['arguments'], ending: Ending, ts: string, salt: string | Uint8Array): AuditRecord {
  const { kind, principal: { id, roles }, context: { era, requestId } } = info
  const keys = Object.keys(args).sort().slice(0, MAX_KEYS)
  return {
    ts,
    event: 'mcp.call',
    kind,
    name: info.template ?? info.name,
    era,
    request_id: requestId,
    principal: { id, roles: [...roles].sort() },
    argument_keys: keys.map(shortened),
    argument_hashes: Object.fromEntries(keys.map((key) => [shortened(key), hashOf(args[key], salt)])),
    duration_ms: Math.round(performance.now() - info.started),
    ...ending
  }
}

function shortened (key: string): string {
  return key.length > MAX_KEY ? `${key.slice(0, MAX_KEY)}…` : key
}

function hashOf (value: unknown, salt: string | Uint8Array): string | null {
  const text = canonicalJson(value)
  return text === undefined ? null : createHmac('sha256', salt).update(text).digest('hex').slice(0, 16)
}

function warn (error: Error): void {
  process.emitWarning(`The audit trail cannot be written: ${error.message}`, { code: 'CLOUDG_MCP_WARN_AUDIT' })
}
