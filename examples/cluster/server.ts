// Starts one process. SIGTERM hands its sessions and streams to the others.
import { buildApp } from './app.js'

const { PORT = '8081', REDIS_URL = 'redis://127.0.0.1:6379', STATE_KEY = 'a key of this example: use one of your own' } = process.env

const app = await buildApp({ redisUrl: REDIS_URL, stateKey: STATE_KEY, logger: { redact: ['req.headers["mcp-session-id"]'] } })

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => { void app.close() })
}

await app.listen({ host: '127.0.0.1', port: Number(PORT) })
