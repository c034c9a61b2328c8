// The plugin's options: checked and given their defaults once, at registration. An unknown option is refused by name.

import { z } from 'zod'
import type { Authenticator } from '../auth/authenticator.js'
import type { OAuthOptions } from '../auth/issuer.js'
import { OAuthAuth } from '../auth/oauth.js'
import type { TokenMap } from '../auth/tokens.js'
import { TokenAuth } from '../auth/tokens.js'
import type { Backplane } from '../backplane/index.js'
import { InvalidOptionError } from '../errors.js'
import type { LogLevel } from '../layer/context.js'
import type { Layer, LayerOptions } from '../layer/contract.js'
import type { PrincipalResolver } from '../principal.js'
import { isLevel } from '../protocol/log-levels.js'

/** Static tokens, OAuth, or both. */
export interface AuthOptions {
  /** Specs `TOKEN[:ROLES[:ID]]`, or a map from token to roles or principal. */
  tokens?: readonly string[] | TokenMap
  /** Accept access tokens of this issuer, or of these. */
  oauth?: OAuthOptions | readonly OAuthOptions[]
  /** Refuse callers without credentials; else they are anonymous. With OAuth a wrong token is refused in any case. @default true */
  required?: boolean
}

export interface CloudgMcpOptions {
  /** What is served. @default a new layer made from `serverInfo` and `instructions`, decorated as `app.mcp` */
  layer?: Layer
  /** @default { name: 'cloudg-mcp', version: '0.0.0' } */
  serverInfo?: { name: string, version: string, title?: string, description?: string, websiteUrl?: string, icons?: LayerOptions['icons'] }
  /** Told to the model by clients that do so. @default none */
  instructions?: string
  /** Behind Fastify's `prefix`; served with and without a trailing slash. @default '/mcp' */
  path?: string
  /** Given by Fastify. */
  prefix?: string
  /** The deprecated HTTP+SSE transport beside the endpoint; `true` for `/sse` and `/messages/`. @default false */
  sse?: boolean | { path?: string, messagePath?: string }
  /** `false` turns it off. @default '/healthz' */
  healthPath?: string | false
  /** The base URL that clients use, when a proxy stands in front. @default none */
  publicUrl?: string
  /** Patterns with `*`. @default the loopback names on a loopback bind; none are checked elsewhere */
  allowedHosts?: readonly string[]
  /** Patterns with `*`. @default the loopback origins */
  allowedOrigins?: readonly string[]
  /** Origins whose pages may read answers; turns CORS on for these routes alone. @default [] */
  corsOrigins?: readonly string[]
  /** Tokens, OAuth, or anything that turns credentials into principals. @default none: everybody is anonymous */
  auth?: AuthOptions | Authenticator
  /** ms that an authenticator may take; then 503. @default 10000 */
  authTimeout?: number
  /** May see and replace the principal. @default built in */
  principalResolver?: PrincipalResolver
  /** `auto`: JSON unless something is streamed; `json`: never SSE, except listen. @default 'sse' */
  responseMode?: 'sse' | 'auto' | 'json'
  /** The handshake era without sessions. @default false */
  stateless?: boolean
  /** @default 4194304 */
  maxBodyBytes?: number
  /** ms without a request, a call in flight or an open stream. @default 3600000 */
  sessionIdleTimeout?: number
  /** @default 1000 */
  maxSessions?: number
  /** Anonymous callers are one principal. @default 100 */
  maxSessionsPerPrincipal?: number
  /** Open SSE streams; above it 503. @default 512 */
  maxStreams?: number
  /** ms of silence on a stream before a comment. @default 15000 */
  keepAliveInterval?: number
  /** Entries of a list page; 0 for one page. @default 100 */
  pageSize?: number
  /** Cache hints of 2026 results; `ttl` in ms. @default { ttl: 0, scope: 'private' } */
  cache?: { ttl?: number, scope?: 'public' | 'private' }
  /** Threshold of handshake sessions until `logging/setLevel`. @default 'info' */
  defaultLogLevel?: LogLevel
  /** How a 2026 `requestState` is sealed: `keys` of 32 bytes or more, `ttl` in ms. @default a random key, 600000 */
  requestState?: { keys?: readonly (string | Uint8Array)[], ttl?: number, audience?: string }
  /** ms to wait for the client's answer to a question in the handshake era. @default 300000 */
  askTimeout?: number
  /**
   * Keep the messages of handshake streams so that clients can come back for them: `retry` ms after which they do (1000), and
   * what is kept of a session's streams: `maxEvents` (1000), `maxBytes` (4194304), `ttl` ms (300000). @default false
   */
  resumable?: boolean | { retry?: number, maxEvents?: number, maxBytes?: number, ttl?: number }
  /** What several processes share. @default in memory */
  backplane?: Backplane
  /** ms that calls in flight get when the app closes. @default 500 */
  closeGrace?: number
  /** Put the text of unexpected errors into answers: for development. @default false */
  exposeErrors?: boolean
}

const positive = z.number().int().positive()
const count = z.number().int().nonnegative()
const path = z.string().regex(/^\/[^\s?#*:]*$/, 'a path that starts with /')
const patterns = z.array(z.string().min(1))
const callable = (what: string) => z.custom<any>((value) => typeof value === 'function', `a function (${what})`)
const withMethods = (what: string, ...methods: string[]) => z.custom<any>(
  (value) => typeof value === 'object' && value !== null && methods.every((method) => typeof (value as any)[method] === 'function'), what)

const resumable = z.strictObject({
  retry: count.default(1000), maxEvents: positive.default(1000), maxBytes: positive.default(4 * 1024 * 1024), ttl: positive.default(300_000)
})
const sse = z.strictObject({ path: path.default('/sse'), messagePath: path.default('/messages/') })
const icons = z.array(z.looseObject({ src: z.string() }))
const schema = z.strictObject({
  layer: withMethods('a layer: createLayer(), or an adapter', 'list', 'callTool', 'onChange', 'viewOf').optional(),
  serverInfo: z.strictObject({
    name: z.string().min(1), version: z.string().min(1), title: z.string().optional(), description: z.string().optional(), websiteUrl: z.url().optional(), icons: icons.optional()
  }).default({ name: 'cloudg-mcp', version: '0.0.0' }),
  instructions: z.string().optional(),
  path: path.default('/mcp'),
  prefix: z.string().default(''),
  logLevel: z.string().optional(),
  logSerializers: z.any().optional(),
  sse: z.union([z.boolean(), sse]).default(false).transform((given) => given === true ? sse.parse({}) : given || undefined),
  healthPath: z.union([z.literal(false), path]).default('/healthz'),
  publicUrl: z.url({ protocol: /^https?$/ }).optional(),
  allowedHosts: patterns.optional(),
  allowedOrigins: patterns.optional(),
  corsOrigins: patterns.default([]),
  auth: z.union([
    z.strictObject({
      tokens: z.union([z.array(z.string()), z.record(z.string(), z.any())]).optional(),
      oauth: z.union([z.looseObject({}), z.array(z.looseObject({})).min(1)]).optional(),
      required: z.boolean().optional()
    }).refine(({ tokens, oauth }) => tokens !== undefined || oauth !== undefined, '`tokens` or `oauth` is missing'),
    withMethods('`{ tokens, oauth }` or an Authenticator', 'authenticate')
  ]).optional(),
  authTimeout: positive.default(10_000),
  principalResolver: callable('RequestInfo => Principal').optional(),
  responseMode: z.enum(['sse', 'auto', 'json']).default('sse'),
  stateless: z.boolean().default(false),
  maxBodyBytes: positive.default(4 * 1024 * 1024),
  sessionIdleTimeout: positive.default(3_600_000),
  maxSessions: positive.default(1000),
  maxSessionsPerPrincipal: positive.default(100),
  maxStreams: positive.default(512),
  keepAliveInterval: positive.default(15_000),
  pageSize: count.default(100),
  cache: z.strictObject({ ttl: count.default(0), scope: z.enum(['public', 'private']).default('private') }).default({ ttl: 0, scope: 'private' }),
  defaultLogLevel: z.custom<LogLevel>(isLevel, 'a syslog level such as `info`').default('info'),
  requestState: z.strictObject({
    keys: z.array(z.union([z.string(), z.instanceof(Uint8Array)])).optional(), ttl: z.number().optional(), audience: z.string().optional()
  }).optional(),
  askTimeout: positive.default(300_000),
  resumable: z.union([z.boolean(), resumable]).default(false).transform((given) => given === true ? resumable.parse({}) : given || undefined),
  backplane: withMethods('redisBackplane() or another Backplane', 'createSession', 'publish').optional(),
  closeGrace: count.default(500),
  exposeErrors: z.boolean().default(false)
})

export type Options = Readonly<Omit<z.output<typeof schema>, 'auth' | 'layer' | 'backplane' | 'principalResolver'>> & {
  readonly layer: Layer | undefined
  readonly backplane: Backplane | undefined
  readonly principalResolver: PrincipalResolver | undefined
  readonly authenticator: Authenticator | undefined
}

/** @throws CLOUDG_MCP_ERR_INVALID_OPTION naming the option and what was expected */
export function normalizeOptions (given: CloudgMcpOptions): Options {
  const parsed = schema.safeParse(given)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    const where = issue!.code === 'unrecognized_keys' ? issue!.keys.join(', ') : issue!.path.join('.')
    throw new InvalidOptionError(issue!.code === 'unrecognized_keys'
      ? `unknown option ${[...issue!.path, where].join('.')}`
      : `option ${where}: ${issue!.message}`)
  }
  const { auth, ...options } = parsed.data
  if (options.sse !== undefined && options.stateless) throw new InvalidOptionError('option sse: needs sessions, which `stateless` turns off')
  return Object.freeze({ ...options, authenticator: toAuthenticator(auth) } as Options)
}

function toAuthenticator (auth: CloudgMcpOptions['auth']): Authenticator | undefined {
  if (auth === undefined) return undefined
  if ('authenticate' in auth) return auth
  const { tokens = [], oauth, required } = auth
  const fixed = new TokenAuth(tokens, { required: required ?? true })
  if (oauth !== undefined) return new OAuthAuth(oauth, { tokens: fixed, required })
  return fixed.size === 0 ? undefined : fixed
}
