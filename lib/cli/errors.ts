// How the command ends: 0, 1 when something failed, 2 when it was called wrongly. An error is one clear line.

import { CommanderError } from 'commander'

const FAILED = 1
const WRONG_USAGE = 2

/** The command was called wrongly. */
export class UsageError extends Error {}

/** What an error means for the exit code, and the line that says so; no line when it has been written already. */
export function outcome (error: unknown): { code: number, line?: string } {
  if (error instanceof CommanderError) return { code: error.exitCode === 0 ? 0 : WRONG_USAGE }
  const { code, message } = error as NodeJS.ErrnoException
  const usage = error instanceof UsageError || code === 'CLOUDG_MCP_ERR_INVALID_OPTION'
  const text = error instanceof Error ? (message === '' ? code ?? error.name : message) : String(error)
  return { code: usage ? WRONG_USAGE : FAILED, line: `cloudg-mcp: ${text.trim().replace(/\s*\n\s*/g, ' ')}` }
}
