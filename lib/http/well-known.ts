// Clients look for OAuth metadata before they connect. A page of the host's instead of a 404 would send them into a login
// that does not exist, so these paths answer for themselves: as JSON, and without authentication.

import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify'
import { refusal, refuse } from './refusal.js'

// A parameter with an expression: a host's own route for one of these names, or for all of /.well-known/, stays what it is.
const DOCUMENTS = '/.well-known/:mcpDocument(^(?:oauth-protected-resource|oauth-authorization-server|openid-configuration)$)'
const mounted = new WeakSet<object>()

/** Documents live at the origin's root, whatever prefix the plugin has. */
function rootOf (app: FastifyInstance): FastifyInstance {
  let root = app
  for (let parent = Object.getPrototypeOf(root); parent !== null && typeof parent.register === 'function'; parent = Object.getPrototypeOf(parent)) root = parent
  return root
}

function notFound (_request: FastifyRequest, reply: FastifyReply): FastifyReply {
  return refuse(reply, refusal(404, 'Not Found'))
}

/** @param path of the endpoint in `scope`; under it, too, clients look */
export function mountWellKnown (app: FastifyInstance, scope: FastifyInstance, path: string, guard: onRequestHookHandler): void {
  const options = { onRequest: guard, schema: { hide: true } as object, exposeHeadRoute: false }
  scope.get(path + DOCUMENTS, { schema: { hide: true } as object, exposeHeadRoute: false }, notFound)
  const root = rootOf(app)
  if (mounted.has(root.server)) return
  mounted.add(root.server)
  root.get(DOCUMENTS, options, notFound)
  root.get(`${DOCUMENTS}/*`, options, notFound)
}
