// Who may see and call what: roles, scopes and allow(), one rule for list, call, read and complete.

import type { Principal } from '../principal.js'

export interface AccessRules<P = unknown> {
  /** The caller needs one of these. @default anyone */
  roles?: readonly string[]
  /** The caller's token needs all of these. @default none */
  scopes?: readonly string[]
  /** Has the last word; must be quick and must not throw. */
  allow?: (principal: Principal, primitive: P) => boolean
}

export interface Guarded { readonly spec: AccessRules<any> }

export function hasRules ({ spec }: Guarded): boolean {
  return spec.roles !== undefined || spec.scopes !== undefined || spec.allow !== undefined
}

export function maySee (who: Principal, guarded: Guarded): boolean {
  const { roles, scopes, allow } = guarded.spec
  if (roles !== undefined && !roles.some((role) => who.roles.has(role))) return false
  if (scopes !== undefined && !scopes.every((scope) => who.scopes?.has(scope))) return false
  return allow === undefined || allow(who, guarded.spec)
}

/** Two principals with the same key see the same primitives. `''` when everybody does. */
export function viewKey (who: Principal, guarded: readonly Guarded[]): string {
  let key = ''
  for (const one of guarded) key += maySee(who, one) ? '1' : '0'
  return key
}
