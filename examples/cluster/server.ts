// Starts one process. SIGTERM hands its sessions and streams to the others.
import { buildApp } from './app.js'

const { PORT = '8081', REDIS_URL = 'redis://127.0.0.1:6379', STATE_KEY = 'a key of this example: use one of your own', PUBLIC_URL = 'http://127.0.0.1:8080' } = process.env

// ms for which requests that have come are still begun.
const DRAIN = 200

const app = await buildApp({ redisUrl: REDIS_URL, stateKey: STATE_KEY, publicUrl: PUBLIC_URL, logger: { redact: ['req.headers["mcp-session-id"]'] } })

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    // First no new connections: nginx takes those to the other processes. Right after a look at who has come, so that nobody is left at the
    // door; whoever is in is served, and then all ends.
    setImmediate(() => {
      app.server.close()
      setTimeout(() => { void app.close() }, DRAIN)
    })
  })
}

await app.listen({ host: '127.0.0.1', port: Number(PORT) })
