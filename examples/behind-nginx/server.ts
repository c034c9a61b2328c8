// Starts the inventory for nginx to stand in front of.
import { buildApp } from './app.js'

const { PUBLIC_URL = 'https://mcp.example.com', ISSUER = 'https://login.example.com', PORT = '3000' } = process.env

const app = await buildApp({ publicUrl: PUBLIC_URL, issuer: ISSUER, logger: { redact: ['req.headers.authorization', 'req.headers["mcp-session-id"]'] } })

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => { void app.close() })
}

await app.listen({ host: '127.0.0.1', port: Number(PORT) })
