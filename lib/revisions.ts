// The five revisions of MCP: which era each belongs to, and what each one has (MCP specification, all versions).

export type Era = 'handshake' | 'modern'

export const HANDSHAKE = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'] as const
export const MODERN = ['2026-07-28'] as const
export type HandshakeVersion = typeof HANDSHAKE[number]
export type ModernVersion = typeof MODERN[number]
export type Version = HandshakeVersion | ModernVersion

export const ALL_VERSIONS: readonly Version[] = [...HANDSHAKE, ...MODERN]
export const LATEST_HANDSHAKE: HandshakeVersion = '2025-11-25'
export const LATEST_MODERN: ModernVersion = '2026-07-28'
/** What an HTTP request without `MCP-Protocol-Version` speaks when nothing else is known. */
export const DEFAULT_HTTP_VERSION: HandshakeVersion = '2025-03-26'

export interface Features {
  era: Era
  batch: boolean
  audio: boolean
  toolAnnotations: boolean
  completionsCapability: boolean
  progressMessage: boolean
  /** `title`, `_meta` of items, `resource_link`, `lastModified`, structured output */
  structured: boolean
  /** `icons`, and a description of the implementation */
  icons: boolean
  /** structured output and output schemas of any JSON type */
  anyOutput: boolean
  elicitation: boolean
  elicitationUrl: boolean
  /** `oneOf` with titles in a form, in place of `enumNames` */
  titledChoices: boolean
  /** `includeContext` of sampling has a capability of its own */
  samplingContext: boolean
  /** priming events, `retry`, and a server that may drop the connection */
  polling: boolean
}

const first: Features = {
  era: 'handshake',
  batch: true,
  audio: false,
  toolAnnotations: false,
  completionsCapability: false,
  progressMessage: false,
  structured: false,
  icons: false,
  anyOutput: false,
  elicitation: false,
  elicitationUrl: false,
  titledChoices: false,
  samplingContext: false,
  polling: false
}
const march: Features = { ...first, audio: true, toolAnnotations: true, completionsCapability: true, progressMessage: true }
const june: Features = { ...march, batch: false, structured: true, elicitation: true }
const november: Features = { ...june, icons: true, elicitationUrl: true, titledChoices: true, samplingContext: true, polling: true }
const modern: Features = { ...november, era: 'modern', anyOutput: true, polling: false }

const features = new Map<string, Features>([
  ['2024-11-05', first],
  ['2025-03-26', march],
  ['2025-06-18', june],
  ['2025-11-25', november],
  ['2026-07-28', modern]
])

export function featuresOf (version: Version): Features {
  return features.get(version)!
}

export function isVersion (value: unknown): value is Version {
  return typeof value === 'string' && features.has(value)
}

export function isHandshake (value: unknown): value is HandshakeVersion {
  return typeof value === 'string' && features.get(value)?.era === 'handshake'
}

export function isModern (value: unknown): value is ModernVersion {
  return typeof value === 'string' && features.get(value)?.era === 'modern'
}
