// node build/examples/official-sdk/server.js [stdio]: the hosted server on http://127.0.0.1:3000/mcp, or the extended one on stdio.

import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { buildApp, createExtendedWarehouse } from './app.js'

if (process.argv[2] === 'stdio') {
  await createExtendedWarehouse().connect(new StdioServerTransport() as never)
} else {
  const app = await buildApp((process.env['MCP_TOKENS'] ?? 'dev-token:support:dev').split(';'))
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => { void app.close() })
  console.log(await app.listen({ host: process.env['HOST'] ?? '127.0.0.1', port: Number(process.env['PORT'] ?? 3000) }))
}
