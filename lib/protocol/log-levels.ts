// The eight syslog levels (RFC 5424) of log messages to clients, their aliases, and thresholds.

import type { LogLevel } from '../layer/context.js'
import { LOG_LEVELS } from '../layer/context.js'

const rank = new Map<string, number>(LOG_LEVELS.map((level, at) => [level, at]))
const aliases = new Map<string, LogLevel>([['warn', 'warning'], ['fatal', 'critical'], ['exception', 'error'], ['trace', 'debug']])

export function isLevel (value: unknown): value is LogLevel {
  return typeof value === 'string' && rank.has(value)
}

/** What a handler named a level, as one of the eight. */
export function toLevel (name: string): LogLevel {
  return isLevel(name) ? name : aliases.get(name) ?? 'info'
}

/** The threshold of a 2026 request: none when it names no level, or one that does not exist. */
export function thresholdOf (value: unknown): LogLevel | undefined {
  return isLevel(value) ? value : undefined
}

export function reaches (level: string, threshold: string): boolean {
  return rank.get(level)! >= rank.get(threshold)!
}
