// What becomes of a token. A refusal is a value: nothing is thrown for a wrong token, of which there may be thousands a second.

export type Claims = Readonly<Record<string, unknown>>

export type Verdict =
  | { readonly claims: Claims }
  /** The token is wrong; the text is for the client. */
  | { readonly refused: string }
  /** It could not be told, through no fault of the client. The text is for the log; `retryAfter` in seconds. */
  | { readonly unavailable: string, readonly retryAfter: number }

export const refuseToken = (refused: string): Verdict => Object.freeze({ refused })

export const MALFORMED = refuseToken('The access token is malformed')
export const EXPIRED = refuseToken('The access token expired')
export const NOT_YET = refuseToken('The access token is not valid yet')
export const WRONG_ISSUER = refuseToken('The access token is of another issuer')
export const WRONG_AUDIENCE = refuseToken('The access token is meant for another resource')
export const WRONG_ALGORITHM = refuseToken('The access token is signed with an algorithm that is not accepted')
export const WRONG_SIGNATURE = refuseToken('The signature of the access token is not valid')
export const UNKNOWN_KEY = refuseToken('The access token is signed with an unknown key')
export const INACTIVE = refuseToken('The access token is not active')
export const NOBODY = refuseToken('The access token names nobody')

export function unavailable (reason: string, retryAfter = 5): Verdict {
  return { unavailable: reason, retryAfter }
}

/** The times of a token that was issued, in seconds, against `now` in ms. Nothing when it is valid now. */
export function checkTimes ({ exp, nbf }: Claims, now: number, tolerance: number): Verdict | undefined {
  if (exp !== undefined && !(typeof exp === 'number' && Number.isFinite(exp))) return MALFORMED
  if (nbf !== undefined && !(typeof nbf === 'number' && Number.isFinite(nbf))) return MALFORMED
  if (exp !== undefined && exp * 1000 + tolerance <= now) return EXPIRED
  if (nbf !== undefined && nbf * 1000 - tolerance > now) return NOT_YET
  return undefined
}
