// The version of this package, from its own package.json wherever it is installed.

import { createRequire } from 'node:module'

export function version (): string {
  return (createRequire(import.meta.url)('cloudg-mcp/package.json') as { version: string }).version
}
