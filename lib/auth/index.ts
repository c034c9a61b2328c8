// Public entry point `cloudg-mcp/auth`.

export type { Authenticator, Challenge, Credentials } from './authenticator.js'
export { isChallenge, UNAUTHORIZED } from './authenticator.js'
export { parseTokenSpec, TokenAuth } from './tokens.js'
export type { TokenMap, TokenSpec, TokenValue } from './tokens.js'
