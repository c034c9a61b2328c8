// Who calls, as the official SDKs tell their handlers: `extra.authInfo` and `extra.requestInfo` in 1.x, `ctx.http` in 2.x.

import type { CallPort } from '../layer/context.js'
import type { Principal, RequestInfo } from '../principal.js'
import { anonymous, bearerToken, localUser } from '../principal.js'

/** `AuthInfo` of both SDKs. */
export interface AuthInfo {
  token: string
  clientId: string
  scopes: string[]
  expiresAt?: number
  resource?: URL
  extra?: Record<string, unknown>
}

/** What the handlers of a hosted server get as the caller; nothing when the caller is not known. */
export type AuthOf = (principal: Principal, request: RequestInfo) => unknown

/** Scopes are those of the token, or else the roles. The whole principal is `extra.principal`. */
export function authInfoOf (who: Principal, { headers, accessToken }: RequestInfo): AuthInfo | undefined {
  if (who === anonymous || who === localUser) return undefined
  const { authorization } = headers
  return {
    token: bearerToken(typeof authorization === 'string' ? authorization : undefined) ?? '',
    clientId: accessToken?.clientId ?? who.id,
    scopes: [...who.scopes ?? who.roles],
    extra: { principal: who }
  }
}

/** What a transport of an SDK says beside a message. One object for both SDKs: each reads its own fields. */
export interface MessageExtra {
  authInfo: unknown
  /** 1.x */
  requestInfo?: { headers: RequestInfo['headers'], url: URL }
  /** 2.x */
  request?: Request
  closeSSEStream?: () => void
}

export function extraOf (port: CallPort, authOf: AuthOf): MessageExtra {
  const { request, principal } = port
  const authInfo = authOf(principal, request)
  if (request.transport !== 'http' && request.transport !== 'sse') return { authInfo }
  const origin = new LazyRequest(request)
  return {
    authInfo,
    requestInfo: new Origin(request.headers, origin),
    request: origin as unknown as Request,
    closeSSEStream: () => { port.closeStream() }
  }
}

/** A class, since a getter in a literal is made anew with every object. */
class Origin {
  readonly headers: RequestInfo['headers']
  readonly #request: LazyRequest

  constructor (headers: RequestInfo['headers'], request: LazyRequest) {
    this.headers = headers
    this.#request = request
  }

  get url (): URL {
    return new URL(this.#request.url)
  }
}

/** A web `Request` that is made only when a handler looks at it: few do, and making one costs as much as a small call. */
export class LazyRequest {
  readonly #info: RequestInfo
  #made: Request | undefined

  constructor (info: RequestInfo) {
    this.#info = info
  }

  get url (): string {
    const { headers, raw } = this.#info
    const path: unknown = (raw as { url?: unknown } | undefined)?.url
    return `http://${typeof headers.host === 'string' ? headers.host : 'localhost'}${typeof path === 'string' ? path : '/'}`
  }

  /** @internal */
  get real (): Request {
    if (this.#made === undefined) {
      const headers = new Headers()
      for (const [name, value] of Object.entries(this.#info.headers)) {
        // HTTP/2 has headers of its own that are none of HTTP.
        if (value !== undefined && !name.startsWith(':')) for (const one of [value].flat()) headers.append(name, one)
      }
      this.#made = new Request(this.url, { method: 'POST', headers })
    }
    return this.#made
  }
}

for (const [name, { get, value }] of Object.entries(Object.getOwnPropertyDescriptors(Request.prototype))) {
  if (name in LazyRequest.prototype) continue
  Object.defineProperty(LazyRequest.prototype, name, get === undefined
    ? { value (this: LazyRequest, ...args: unknown[]) { return value.apply(this.real, args) } }
    : { get (this: LazyRequest) { return (this.real as any)[name] } })
}
