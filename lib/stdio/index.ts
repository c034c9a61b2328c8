// Public entry point `cloudg-mcp/stdio`: a layer served to the program that started this one, on standard input and output.
// MCP "stdio". Loads no Fastify.

import type { Readable, Writable } from 'node:stream'
import { InvalidOptionError } from '../errors.js'
import type { Logger } from '../layer/context.js'
import type { Layer } from '../layer/contract.js'
import type { Principal } from '../principal.js'
import type { ProtocolOptions } from '../protocol/server.js'
import { ProtocolServer } from '../protocol/server.js'
import { Connection } from './connection.js'
import { stderrLogger } from './log.js'
import { LineWriter } from './output.js'
import { watchParent } from './parent.js'
import type { ProtectedStdout } from './protect.js'
import { protectStdout } from './protect.js'

export interface StdioOptions extends Omit<ProtocolOptions, 'backplane' | 'changes' | 'maxListens'> {
  /** @default process.stdin */
  input?: Readable
  /** Given one, standard output is left alone. @default standard output, from which everything else is diverted to standard error */
  output?: Writable
  /** Who calls. @default the local user, or what the `principalResolver` says */
  principal?: Principal
  /** ms that calls in flight get when the input ends. @default 5000 */
  grace?: number
  /** Bytes of one message; a longer line is answered with a parse error and skipped. @default 67108864 */
  maxLineBytes?: number
  /**
   * End the process when serving ends, so that no timer or socket of a handler makes an orphan of it; SIGTERM and SIGINT then
   * end it in an orderly way, with exit code 0. @default true, unless `input` or `output` is given
   */
  exit?: boolean
  /** @default warnings and errors, on standard error */
  log?: Logger
}

export interface StdioServer {
  /** Resolves when serving has ended: the input did, the reader has gone, or `close` was called. */
  readonly closed: Promise<void>
  /** Ends as at the end of the input. Called again, it does not wait for calls in flight any longer. */
  close (): Promise<void>
  /** Ends at once, without answers: there is nobody left to read them. */
  abandon (): void
}

// How long (ms) the layer may take to stop before the process ends without it.
const STOP_GRACE = 2000
let serving = false

/**
 * Serves a layer on standard input and output, until the input ends. Standard output carries the protocol and nothing else:
 * what `process.stdout`, `console` and `fs` would write there goes to standard error. What native code and child processes
 * with an inherited standard output write is diverted by the `cloudg-mcp` command alone.
 *
 * ```ts
 * import { createLayer } from 'cloudg-mcp/layer'
 * import { serveStdio } from 'cloudg-mcp/stdio'
 *
 * const layer = createLayer({ name: 'clock', version: '1.0.0' })
 * layer.tool('now', { description: 'The time' }, () => new Date().toISOString())
 * await serveStdio(layer)
 * ```
 * @returns once the layer has started
 * @throws CLOUDG_MCP_ERR_INVALID_OPTION when standard input is being served already
 */
export async function serveStdio (layer: Layer, options: StdioOptions = {}): Promise<StdioServer> {
  const { grace = 5000, maxLineBytes = 64 * 1024 * 1024, log = stderrLogger('warn') } = options
  const ownsProcess = options.input === undefined && options.output === undefined
  const { exit = ownsProcess, input = process.stdin } = options
  if (ownsProcess && serving) throw new InvalidOptionError('serveStdio: standard input is being served already')
  if (ownsProcess) serving = true

  const stdout: ProtectedStdout | undefined = options.output === undefined ? protectStdout() : undefined
  const server = new ProtocolServer(layer, { ...options, log })
  try {
    await server.start()
    await layer.start?.()
  } catch (error) {
    stdout?.restore()
    if (ownsProcess) serving = false
    throw error
  }
  const principal = options.principal ?? await server.resolvePrincipal({ transport: 'stdio', headers: {} })
  const output = new LineWriter(options.output ?? stdout!.output, () => connection.abandon())
  output.onDrop = () => log.warn('the client reads too slowly: notifications are dropped')
  const connection = new Connection(server, { input, output, principal, maxLineBytes, grace })

  if (exit) holdProcess(connection)
  const closed = connection.run().then(async () => {
    await server.close()
    await stopLayer(layer, exit, log)
    if (exit) process.exit()
    if (ownsProcess) serving = false
    stdout?.restore()
  })
  return {
    closed,
    close () {
      connection.stop()
      return closed
    },
    abandon () { connection.abandon() }
  }
}

/** What ends a process of its own: signals, and a parent that has gone. Until the very end: a signal more must not change how. */
function holdProcess (connection: Connection): void {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => connection.stop())
  watchParent(() => connection.abandon())
}

async function stopLayer (layer: Layer, bounded: boolean, log: Logger): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => { if (bounded) timer = setTimeout(resolve, STOP_GRACE) })
  try {
    await Promise.race([layer.stop?.(), late])
  } catch (error) {
    log.error({ err: error }, 'the layer failed to stop')
  }
  clearTimeout(timer)
}
