// Who may see and call what: roles, scopes and allow(), one rule for list, call, read and complete. Who lacks a role does not
// get to know of a primitive; who lacks a scope does, and is told which, so that the client can ask for it. Layers may hide both.

import type { Principal } from '../principal.js'

export interface AccessRules<P = unknown> {
  /** The caller needs one of these. @default anyone */
  roles?: readonly string[]
  /** The caller's token needs all of these; without them it is told so, unless the layer hides what lacks scopes. @default none */
  scopes?: readonly string[]
  /** Has the last word; must be quick and must not throw. */
  allow?: (principal: Principal, primitive: P) => boolean
}

export interface Guarded { readonly spec: AccessRules<any> }

/** `challenge`: a call without the scopes is told which it needs; `hide`: to its caller there is no such thing. */
export type ScopePolicy = 'challenge' | 'hide'

const none: readonly string[] = Object.freeze([])

/** Does who sees it depend on who looks? */
export function isHidden ({ spec }: Guarded, policy: ScopePolicy): boolean {
  return spec.roles !== undefined || spec.allow !== undefined || (policy === 'hide' && spec.scopes !== undefined)
}

export function maySee (who: Principal, guarded: Guarded, policy: ScopePolicy): boolean {
  const { roles, allow } = guarded.spec
  if (roles !== undefined && !roles.some((role) => who.roles.has(role))) return false
  if (policy === 'hide' && missingScopes(who, guarded).length > 0) return false
  return allow === undefined || allow(who, guarded.spec)
}

/** All scopes that it takes, when one of them is missing; none when the caller has them. */
export function missingScopes (who: Principal, { spec: { scopes } }: Guarded): readonly string[] {
  return scopes === undefined || scopes.every((scope) => who.scopes?.has(scope)) ? none : scopes
}

/** Two principals with the same key see the same primitives. `''` when everybody does. */
export function viewKey (who: Principal, hidden: readonly Guarded[], policy: ScopePolicy): string {
  let key = ''
  for (const one of hidden) key += maySee(who, one, policy) ? '1' : '0'
  return key
}
