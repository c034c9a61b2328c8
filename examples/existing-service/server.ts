// Starts the orders service: REST under /orders, MCP at /api/mcp.
import { buildApp } from './app.js'

const { API_KEY = 'dev-key', MCP_TOKENS = 'dev-token:support:dev', HOST = '127.0.0.1', PORT = '3000' } = process.env

const app = await buildApp({ apiKey: API_KEY, mcpTokens: MCP_TOKENS.split(';'), logger: { redact: ['req.headers.authorization', 'req.headers["x-api-key"]'] } })

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => { void app.close() })
}

await app.listen({ host: HOST, port: Number(PORT) })
