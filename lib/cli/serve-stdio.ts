// The stdio server of `cloudg-mcp serve`, in the process that was started for it.

import { serveStdio } from '../stdio/index.js'
import { stderrLogger } from '../stdio/log.js'
import type { Descriptors } from './descriptors.js'
import type { Source } from './load.js'
import { loadAudited } from './load.js'
import type { ServeOptions } from './serve.js'

export async function serveDescriptors ({ input, output, onOrphaned }: Descriptors, source: Source, options: ServeOptions): Promise<number> {
  const layer = await loadAudited(source, options.auditLog)
  const server = await serveStdio(layer, {
    input,
    output,
    pageSize: options.pageSize,
    log: stderrLogger(options.logLevel),
    exit: true
  })
  onOrphaned(() => server.abandon())
  await server.closed
  return 0
}
