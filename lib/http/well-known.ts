// Clients look for OAuth metadata before they connect. With OAuth they find the document of the endpoint that they asked for
// (RFC 9728). Without it a page of the host's instead of a 404 would send them into a login that does not exist, so these
// paths answer for themselves in any case: as JSON, and without authentication.

import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify'
import { allowReading, answerPreflight } from './checks/cors.js'
import { originMatcher } from './checks/patterns.js'
import type { ProtectedResource } from './oauth.js'
import { DOCUMENT } from './oauth.js'
import { notAllowed, refusal, refusals, refuse } from './refusal.js'

// A parameter with an expression: a host's own route for one of these names, or for all of /.well-known/, stays what it is.
const DOCUMENTS = '/.well-known/:mcpDocument(^(?:oauth-protected-resource|oauth-authorization-server|openid-configuration)$)'

/** One plugin in a server: what it serves where, and what guards it. */
export interface Mount {
  /** The endpoint first, then what has an URL of its own beside it. */
  readonly resources: readonly ProtectedResource[]
  readonly guard: onRequestHookHandler
  readonly corsOrigins: readonly string[]
}

interface Known extends Mount { readonly readable: (origin: string) => boolean }

// All mounts of a server: documents live at the origin's root, whatever prefixes the plugins have, and one route serves them.
const mounts = new WeakMap<object, Known[]>()

function rootOf (app: FastifyInstance): FastifyInstance {
  let root = app
  for (let parent = Object.getPrototypeOf(root); parent !== null && typeof parent.register === 'function'; parent = Object.getPrototypeOf(parent)) root = parent
  return root
}

/** @param scope the plugin's own; under its endpoints, too, clients look */
export function mountWellKnown (app: FastifyInstance, scope: FastifyInstance, mount: Mount): void {
  const known = { ...mount, readable: originMatcher(mount.corsOrigins) }
  const hidden = { schema: { hide: true } as object, exposeHeadRoute: false }
  for (const resource of mount.resources) {
    const [local = ''] = resource.paths
    // An endpoint at the very root has its document where the root's is.
    if (local === '') continue
    const path = local.slice(scope.prefix.length)
    const own = async (request: FastifyRequest, reply: FastifyReply) => answer(request, reply, known, resource)
    scope.route({ method: ['GET', 'OPTIONS'], url: path + DOCUMENTS, handler: own, ...hidden })
  }

  const root = rootOf(app)
  const all = mounts.get(root.server)
  if (all !== undefined) {
    all.push(known)
    return
  }
  const here = [known]
  mounts.set(root.server, here)
  const guard: onRequestHookHandler = function checkGuard (request, reply, done) {
    const [found = here[0]!] = find(here, request)
    return found.guard.call(this, request, reply, done)
  }
  const serve = async (request: FastifyRequest, reply: FastifyReply) => answer(request, reply, ...find(here, request))
  for (const url of [DOCUMENTS, `${DOCUMENTS}/*`]) {
    root.route({ method: ['GET', 'OPTIONS'], url, onRequest: guard, handler: serve, ...hidden })
  }
}

/** Whose document a path names. Without an endpoint in it there has to be only one that it can mean. */
function find (all: readonly Known[], request: FastifyRequest): [mount?: Known, resource?: ProtectedResource] {
  const { '*': rest } = request.params as { '*'?: string }
  if (rest === undefined || rest === '') {
    const atRoot = all.find(({ resources }) => resources[0]!.paths.includes(''))
    const only = atRoot ?? (all.length === 1 ? all[0] : undefined)
    return only === undefined ? [] : [only, only.resources[0]]
  }
  const path = `/${rest.replace(/\/$/, '')}`
  for (const mount of all) {
    const resource = mount.resources.find(({ paths }) => paths.includes(path))
    if (resource !== undefined) return [mount, resource]
  }
  return []
}

function answer (request: FastifyRequest, reply: FastifyReply, mount?: Known, resource?: ProtectedResource): FastifyReply {
  // Pages of the origins that may read answers may read what leads to them.
  const preflight = mount !== undefined && mount.corsOrigins.length > 0 && allowReading(request, reply, mount.readable, 'GET, OPTIONS')
  const { mcpDocument } = request.params as { mcpDocument: string }
  const exists = resource?.metadata !== undefined && DOCUMENT.endsWith(`/${mcpDocument}`)
  if (request.method === 'OPTIONS') return exists && preflight ? answerPreflight(reply) : refuse(reply, notAllowed('GET'))
  if (!exists) return refuse(reply, refusal(404, 'Not Found'))
  const document = resource.document(request)
  if (document === undefined) return refuse(reply, refusals.unknownResource)
  return reply.header('content-type', 'application/json').header('cache-control', 'max-age=300').send(document)
}
