// Starts the shelf at http://127.0.0.1:3000/mcp.
import { buildApp } from './app.js'

const { STATE_KEYS, HOST = '127.0.0.1', PORT = '3000' } = process.env

const app = await buildApp({ ...(STATE_KEYS && { keys: STATE_KEYS.split(';') }), logger: true })

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => { void app.close() })
}

await app.listen({ host: HOST, port: Number(PORT) })
