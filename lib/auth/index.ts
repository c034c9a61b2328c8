// Public entry point `cloudg-mcp/auth`.

export type { Authenticator, Challenge, Credentials, ResourceMetadata } from './authenticator.js'
export { isChallenge, UNAUTHORIZED } from './authenticator.js'
export type { IntrospectionOptions } from './introspection.js'
export type { OAuthOptions } from './issuer.js'
export { OAuthAuth } from './oauth.js'
export type { OAuthAuthOptions } from './oauth.js'
export { parseTokenSpec, TokenAuth } from './tokens.js'
export type { TokenMap, TokenSpec, TokenValue } from './tokens.js'
