// The demo server: Fastify with the plugin mounted at /mcp. `npm start` runs it; see README.md beside this file for its environment.
import Fastify from 'fastify'
import { z } from 'zod'
import cloudgMcp from '../../plugin.js'
import { createInventoryLayer } from './layer.js'
import { splitTokenSpecs } from './token-specs.js'

const SHUTDOWN_GRACE = 10_000

const environment = z.object({
  HOST: z.string().min(1).default('127.0.0.1'),
  PORT: z.coerce.number().int().min(0).max(65_535).default(8765),
  LOG_LEVEL: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info'),
  CLOUDG_MCP_TOKENS: z.string().default('').transform(splitTokenSpecs)
})

function readEnvironment () {
  // An empty variable means the default, as an unset one does.
  const set = Object.fromEntries(Object.entries(process.env).filter(([, value]) => value !== ''))
  const parsed = environment.safeParse(set)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new TypeError(`${String(issue?.path[0])}: ${issue?.message}`)
}

async function main (): Promise<void> {
  const { HOST, PORT, LOG_LEVEL, CLOUDG_MCP_TOKENS: tokens } = readEnvironment()
  const app = Fastify({
    logger: { level: LOG_LEVEL, redact: ['req.headers.authorization'] },
    http: { maxHeaderSize: 64 * 1024 }
  })
  await app.register(cloudgMcp, {
    layer: createInventoryLayer(),
    ...(tokens.length > 0 && { auth: { tokens } })
  })

  let closing = false
  const close = (signal: NodeJS.Signals) => {
    if (closing) process.exit(1) // asked twice: do not wait
    closing = true
    app.log.info({ signal }, 'closing')
    setTimeout(() => process.exit(1), SHUTDOWN_GRACE).unref()
    app.close().catch((error: unknown) => {
      app.log.error(error)
      process.exitCode = 1
    })
  }
  process.on('SIGTERM', close)
  process.on('SIGINT', close)

  await app.listen({ host: HOST, port: PORT })
  const [address] = app.addresses()
  const port = typeof address === 'object' ? address.port : PORT // PORT=0 takes a free one
  const host = HOST.includes(':') ? `[${HOST}]` : HOST
  const header = tokens.length > 0 ? ' with the header "Authorization: Bearer <token>"' : ''
  process.stdout.write(`cloudg: add http://${host}:${port}/mcp to an MCP client as a Streamable HTTP server${header}\n`)
}

main().catch((error: unknown) => {
  process.stderr.write(`cloudg: ${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 1
})
