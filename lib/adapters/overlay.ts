// How a mounted layer gets between a server and its handlers: by the `get` of the one map that requests look into. What the host
// puts in or takes out stays its own business, and its own checks of what is there see nothing of the layer.

import type { Handler, LowLevelServer } from './detect.js'
import { requireHandlers } from './detect.js'

interface Layered { wrap (method: string, host: Handler | undefined): Handler | undefined }

// Of the server, not of a registry here: another copy of this package finds it, and it goes when the server does.
const MOUNTS = Symbol.for('cloudg-mcp.mounts')

function mountsOf (server: LowLevelServer): Layered[] | undefined {
  return (server as any)[MOUNTS]
}

/** The handler that a method has without `upTo` and those that came after it. */
export function below (server: LowLevelServer, upTo: Layered | undefined, method: string): Handler | undefined {
  let handler = Map.prototype.get.call(server._requestHandlers, method) as Handler | undefined
  const mounts = mountsOf(server) ?? []
  for (const mount of mounts) {
    if (mount === upTo) break
    handler = mount.wrap(method, handler ?? server.fallbackRequestHandler)
  }
  return handler ?? server.fallbackRequestHandler
}

/** @throws CLOUDG_MCP_ERR_UNSUPPORTED_SERVER */
export function push (server: LowLevelServer, mount: Layered): void {
  requireHandlers(server)
  const mounts = mountsOf(server)
  if (mounts !== undefined) {
    mounts.push(mount)
    return
  }
  Object.defineProperty(server, MOUNTS, { value: [mount], configurable: true })
  server._requestHandlers.get = (method) => below(server, undefined, method)
}

export function remove (server: LowLevelServer, mount: Layered): void {
  const mounts = mountsOf(server)
  const at = mounts?.indexOf(mount) ?? -1
  if (at === -1) return
  mounts!.splice(at, 1)
  if (mounts!.length > 0) return
  delete (server as any)[MOUNTS]
  // Back to the prototype's.
  delete (server._requestHandlers as Partial<Map<string, Handler>>).get
}

export function mountedIn (server: LowLevelServer): readonly unknown[] {
  return mountsOf(server) ?? []
}
