// cloudg-mcp: a Model Context Protocol endpoint for a Fastify service.
// Options in, a mounted endpoint out. Everything is registered in a scope of its own: the host's other routes, parsers,
// hooks and error handlers stay what they are.

import type { FastifyInstance, FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { useBodyParser } from './lib/http/body.js'
import { bearerHook } from './lib/http/checks/bearer.js'
import type { BearerOptions } from './lib/http/checks/bearer.js'
import { corsHook } from './lib/http/checks/cors.js'
import { guardHook } from './lib/http/checks/guard.js'
import { ladderCheck } from './lib/http/checks/ladder.js'
import { checked } from './lib/http/checks/message.js'
import { checkNegotiate } from './lib/http/checks/negotiate.js'
import { scopesCheck } from './lib/http/checks/scopes.js'
import { Tarpit } from './lib/http/checks/tarpit.js'
import { useDirect } from './lib/http/direct.js'
import { createEndpoint } from './lib/http/endpoint.js'
import { LegacySse } from './lib/http/legacy-sse.js'
import { ProtectedResource } from './lib/http/oauth.js'
import type { CloudgMcpOptions, Options } from './lib/http/options.js'
import { normalizeOptions } from './lib/http/options.js'
import { ALLOW, ALLOW_STATELESS, handleError, jsonReply, notAllowed, refuse } from './lib/http/refusal.js'
import { Exchanges } from './lib/http/reply.js'
import { decorateRequests } from './lib/http/request.js'
import { SessionTable } from './lib/http/sessions.js'
import { KeepAlive } from './lib/http/stream.js'
import { mountWellKnown } from './lib/http/well-known.js'
import type { AppLayer } from './lib/layer/layer.js'
import { createLayer } from './lib/layer/layer.js'
import type { Principal } from './lib/principal.js'
import { ProtocolServer } from './lib/protocol/server.js'

// A stream outlives any deadline that the host sets for its handlers.
const NO_TIMEOUT = 2 ** 31 - 1

const plugin: FastifyPluginAsync<CloudgMcpOptions> = async function cloudgMcp (app, given) {
  const options = normalizeOptions(given)
  const layer = options.layer ?? decorateLayer(app, options)
  const server = new ProtocolServer(layer, { ...options, changes: !options.stateless, maxListens: options.maxStreams, log: app.log })
  const keepAlive = new KeepAlive(options.keepAliveInterval)
  const sessions = new SessionTable(server, { ...options, idleTimeout: options.sessionIdleTimeout }, keepAlive, options.resumable)
  const exchanges = new Exchanges(keepAlive)
  const endpoint = createEndpoint(server, sessions, exchanges, keepAlive, options)
  const legacy = options.sse && new LegacySse(server, sessions, keepAlive, { ...options, ...options.sse })
  const guard = guardHook(app, options)
  const tarpit = new Tarpit()
  const refuseMethod = async (_request: FastifyRequest, reply: FastifyReply) => refuse(reply, notAllowed(options.stateless ? ALLOW_STATELESS : ALLOW))

  await app.register(async function mcpScope (scope) {
    decorateRequests(scope)
    scope.setErrorHandler(handleError)
    useBodyParser(scope, options.maxBodyBytes)
    useDirect(scope)

    // The order in which a request is checked. The first check that fails answers.
    if (legacy) scope.addHook('onRequest', legacy.takeId)
    scope.addHook('onRequest', guard)
    if (options.corsOrigins.length > 0) scope.addHook('onRequest', corsHook(options.corsOrigins))
    if (options.healthPath !== false) mountHealth(scope, options.healthPath)

    const bearerFor = (path: string, more: Partial<BearerOptions> = {}): BearerOptions => ({
      server,
      authenticator: options.authenticator,
      timeout: options.authTimeout,
      customResolver: options.principalResolver !== undefined,
      resource: new ProtectedResource(options.authenticator?.metadata, scope.prefix + path, options.publicUrl),
      tarpit,
      ...more
    })
    const bearer = bearerFor(options.path)
    // Clients of the old transport know the endpoint by another URL.
    const legacyBearer = options.sse && bearerFor(options.sse.path, { transport: 'sse' })
    const resources = [bearer.resource, ...legacyBearer ? [legacyBearer.resource] : []]
    mountWellKnown(app, scope, { resources, guard, corsOrigins: options.corsOrigins })

    // Set only where the host has a deadline: Fastify arms a timer and an AbortController per request for it.
    const untimed = (app.initialConfig as { handlerTimeout?: number }).handlerTimeout ? { handlerTimeout: NO_TIMEOUT } : {}
    const route = { ...untimed, exposeHeadRoute: false, schema: { hide: true } as object, config: { mcp: true } }
    await scope.register(async function preflightScope (inner) {
      inner.options('/', route, refuseMethod)
    }, { prefix: options.path })
    await scope.register(async function endpointScope (inner) {
      inner.addHook('onRequest', bearerHook(bearer))
      inner.addHook('onRequest', checkNegotiate)
      const checks = [ladderCheck(server), scopesCheck(server, bearer.resource)]
      inner.post('/', route, checked(checks, endpoint.post))
      inner.get('/', route, checked(checks, endpoint.get))
      inner.delete('/', route, checked(checks, endpoint.delete))
      const others = inner.supportedMethods.filter((method) => !['POST', 'GET', 'DELETE', 'OPTIONS'].includes(method))
      inner.route({ ...route, method: others, url: '/', onRequest: refuseMethod, handler: refuseMethod })
    }, { prefix: options.path })
    if (legacyBearer) legacy?.mount(scope, bearerHook(legacyBearer), scopesCheck(server, legacyBearer.resource), route)
  }, { prefix: options.prefix })

  app.addHook('onReady', async () => {
    await server.start()
    await layer.start?.()
  })
  // Open streams would keep the server from closing; calls in flight get a moment to finish.
  app.addHook('preClose', async () => {
    server.closeListens()
    sessions.close()
    tarpit.close()
    await Promise.all([exchanges.close(options.closeGrace), legacy?.close(options.closeGrace)])
    for (const stream of keepAlive.streams()) stream.finish()
  })
  app.addHook('onClose', async () => {
    sessions.stop()
    await server.close()
    await layer.stop?.()
  })
}

function decorateLayer (app: FastifyInstance, { serverInfo, instructions }: Options): AppLayer {
  const layer = createLayer({ ...serverInfo, ...(instructions !== undefined && { instructions }), log: app.log } as Parameters<typeof createLayer>[0])
  app.decorate('mcp', layer)
  return layer
}

/** The name is a parameter with an expression: a route that the host has for it goes first, whenever it is registered. */
function mountHealth (scope: FastifyInstance, path: string): void {
  const url = path.replace(/[\w.~-]+$/, (name) => `:mcpHealth(^${name.replaceAll('.', '\\.')}$)`)
  if (scope.hasRoute({ method: 'GET', url: scope.prefix + url })) return
  scope.get(url, { schema: { hide: true } as object, exposeHeadRoute: false, logLevel: 'warn' }, async (_request, reply) => jsonReply(reply).send('{"status":"ok"}'))
}

declare module 'fastify' {
  interface FastifyInstance {
    /** The layer of the plugin, where it made one. */
    mcp: AppLayer
  }
  interface FastifyContextConfig {
    /** Set on the plugin's routes, for hooks of the host that treat them differently. */
    mcp?: boolean
  }
  interface FastifyRequest {
    /** Who calls, on the plugin's routes. */
    principal: Principal
  }
}

export const cloudgMcp = fp(plugin, { name: 'cloudg-mcp', fastify: '5.x' })
export default cloudgMcp
export * from './lib/layer/index.js'
export * from './lib/auth/index.js'
export type { AuthOptions, CloudgMcpOptions } from './lib/http/options.js'
export type { Backplane } from './lib/backplane/index.js'
export { memoryBackplane } from './lib/backplane/memory.js'
export { ProtocolServer } from './lib/protocol/server.js'
export type { ProtocolOptions } from './lib/protocol/server.js'
export type { Session, SessionOptions } from './lib/protocol/session.js'
