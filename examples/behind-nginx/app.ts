// The inventory behind nginx: it listens on loopback alone, knows the URL that clients use, and lets in who holds an access
// token of the company's identity provider. Reading takes the scope `inventory:read`, changing things `inventory:admin` as well.
import Fastify, { type FastifyInstance, type FastifyServerOptions } from 'fastify'
import cloudgMcp from '../../plugin.js'
import { createInventoryLayer } from '../inventory/layer.js'

export interface BehindNginxOptions {
  /** What clients type, without `/mcp`. */
  publicUrl: string
  /** The identity provider. */
  issuer: string
  logger?: FastifyServerOptions['logger']
}

export async function buildApp ({ publicUrl, issuer, logger = false }: BehindNginxOptions): Promise<FastifyInstance> {
  const layer = createInventoryLayer()
  layer.tool('reset_cache', {
    description: 'Forgets what was computed from the datasets.',
    annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true },
    scopes: ['inventory:read', 'inventory:admin']
  }, () => 'Done.')

  const app = Fastify({ logger, trustProxy: '127.0.0.1' })
  await app.register(cloudgMcp, {
    layer,
    publicUrl,
    allowedHosts: [new URL(publicUrl).host],
    auth: {
      oauth: {
        issuer,
        requiredScopes: ['inventory:read'],
        scopesSupported: ['inventory:read', 'inventory:admin'],
        // Administrators are a group at the provider; everyone else only reads.
        principal: ({ sub, email, groups }) => ({
          id: String(email ?? sub),
          roles: Array.isArray(groups) && groups.includes('cloud-admins') ? ['default', 'admin'] : ['default']
        })
      }
    }
  })
  return app
}
