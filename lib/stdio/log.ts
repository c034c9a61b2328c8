// A logger for programs whose standard output is not theirs: one line a message, on standard error.

import { inspect } from 'node:util'
import type { Logger } from '../layer/context.js'

export const STDERR_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
export type StderrLevel = typeof STDERR_LEVELS[number]

/** @param level the least that is written */
export function stderrLogger (level: StderrLevel, bindings: Record<string, unknown> = {}): Logger {
  const at = (name: Exclude<StderrLevel, 'silent'>) => STDERR_LEVELS.indexOf(name) < STDERR_LEVELS.indexOf(level)
    ? () => {}
    : (...args: unknown[]) => { process.stderr.write(line(name, bindings, args)) }
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: (more) => stderrLogger(level, { ...bindings, ...more })
  }
}

function line (level: string, bindings: Record<string, unknown>, args: unknown[]): string {
  const given = typeof args[0] === 'object' && args[0] !== null ? args.shift() : undefined
  const { err, ...fields } = { ...bindings, ...(given instanceof Error ? { err: given } : given as object | undefined) } as Record<string, unknown>
  const details = Object.keys(fields).length === 0 ? '' : ` ${inspect(fields, { breakLength: Infinity })}`
  const stack = err === undefined ? '' : `\n${inspect(err)}`
  return `cloudg-mcp: ${level}: ${args.map(String).join(' ')}${details}${stack}\n`
}
