// `cloudg-mcp serve`: a layer on stdio, or on an HTTP server of its own. What only one of them needs is loaded for that one:
// the process that starts the stdio server and waits for it loads next to nothing.

import { isatty } from 'node:tty'
import type { Command } from 'commander'
import type { StderrLevel } from '../stdio/log.js'
import { runSwapped, takeDescriptors } from './descriptors.js'
import { UsageError } from './errors.js'
import type { Flavor } from './flavors.js'
import type { Source } from './load.js'

export interface ServeOptions extends Source {
  transport: 'stdio' | 'http' | 'sse'
  flavor: Flavor
  host: string
  port: number
  path: string
  authToken?: string[]
  allowedHost?: string[]
  allowedOrigin?: string[]
  corsOrigin?: string[]
  jsonResponse?: boolean
  stateless?: boolean
  maxSessions: number
  redis?: string
  pageSize: number
  auditLog?: string
  logLevel: StderrLevel
}

// Tokens are not among them: on stdio they are ignored, since the user who started the process is the one who calls.
const httpOnly = ['host', 'port', 'path', 'allowedHost', 'allowedOrigin', 'corsOrigin', 'jsonResponse', 'stateless', 'maxSessions', 'redis']

/** Resolves to the exit code, once serving has ended. */
export async function serve (module: string | undefined, options: ServeOptions, command: Command): Promise<number> {
  const source = { module, dataset: options.dataset }
  const { flavor } = options
  const flavors = flavor === 'native' ? undefined : await import('./flavors.js')
  flavors?.checkFlavor(flavor, options, (name) => {
    const option = command.options.find((one) => one.attributeName() === name)
    return command.getOptionValueSource(name) === 'cli' ? option?.long ?? undefined : undefined
  })
  if (options.transport !== 'stdio' && flavors !== undefined) {
    await flavors.serveFlavorHttp(flavor, source, options)
    return new Promise(() => {})
  }
  if (options.transport !== 'stdio') {
    const { serveHttp } = await import('./serve-http.js')
    await serveHttp(source, options)
    // The server keeps the process alive and ends it.
    return new Promise(() => {})
  }
  const stray = command.options.find((option) => httpOnly.includes(option.attributeName()) && command.getOptionValueSource(option.attributeName()) === 'cli')
  if (stray !== undefined) throw new UsageError(`${stray.long} needs --transport http or --transport sse`)
  const descriptors = takeDescriptors()
  if (descriptors === undefined) {
    if (isatty(0)) process.stderr.write('cloudg-mcp: speaks MCP on standard input and output; a client starts this command (see cloudg-mcp config --help)\n')
    return runSwapped(process.argv[1]!, process.argv.slice(2))
  }
  if (flavors !== undefined) return flavors.serveFlavorStdio(flavor, descriptors, source, options)
  const { serveDescriptors } = await import('./serve-stdio.js')
  return serveDescriptors(descriptors, source, options)
}
