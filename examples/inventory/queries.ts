// Questions to an inventory. Plain functions over plain data: tools, resources and prompts all ask through these.
import { createHash } from 'node:crypto'
import { NotFoundError, ToolError } from '../../lib/layer/errors.js'
import { SEVERITIES, type Account, type Asset, type Finding, type Inventory, type Provider, type Severity } from './dataset.js'

export const GROUPINGS = ['provider', 'type', 'region', 'account'] as const
export type Grouping = typeof GROUPINGS[number]

export const ASSET_FIELDS = [
  'id', 'native_id', 'name', 'provider', 'type', 'account', 'region', 'exposed', 'exposed_via', 'created_at', 'tags', 'properties'
] as const
export type AssetField = typeof ASSET_FIELDS[number]
export const DEFAULT_FIELDS: readonly AssetField[] = ['id', 'native_id', 'name', 'provider', 'type', 'account', 'region', 'exposed']

export interface AssetFilter {
  provider?: Provider | undefined
  type?: string | undefined
  region?: string | undefined
  /** Account id or account name. */
  account?: string | undefined
  /** Part of the name, in any case. */
  name?: string | undefined
  exposed?: boolean | undefined
}

/** Counts by key, the largest first and equals by name, so that the answer does not depend on the order in the file. */
export function tally (keys: Iterable<string>): Record<string, number> {
  const counts = new Map<string, number>()
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1)
  return Object.fromEntries([...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)))
}

export function countAssets (inventory: Inventory, groupBy: Grouping, limit: number) {
  const names = new Map(inventory.accounts.map(({ id, name }) => [id, name]))
  const counts = Object.entries(tally(inventory.assets.map((asset) =>
    groupBy === 'account' ? names.get(asset.account) ?? asset.account : asset[groupBy])))
  return {
    group_by: groupBy,
    total: inventory.assets.length,
    group_count: counts.length,
    groups: Object.fromEntries(counts.slice(0, limit)),
    truncated: counts.length > limit
  }
}

export function findAccount (inventory: Inventory, account: string): Account | undefined {
  return inventory.accounts.find(({ id, name }) => id === account || name === account)
}

export function filterAssets (inventory: Inventory, filter: AssetFilter): Asset[] {
  const account = filter.account === undefined ? undefined : findAccount(inventory, filter.account)?.id ?? filter.account
  const name = filter.name?.toLowerCase()
  return inventory.assets.filter((asset) =>
    (filter.provider === undefined || asset.provider === filter.provider) &&
    (filter.type === undefined || asset.type === filter.type) &&
    (filter.region === undefined || asset.region === filter.region) &&
    (account === undefined || asset.account === account) &&
    (name === undefined || asset.name.toLowerCase().includes(name)) &&
    (filter.exposed === undefined || asset.exposed === filter.exposed))
}

export function pick (asset: Asset, fields: readonly AssetField[]): Partial<Asset> {
  return Object.fromEntries(fields.filter((field) => asset[field] !== undefined).map((field) => [field, asset[field]]))
}

/**
 * One page of a list. The cursor holds the offset and a digest of the question, so that it cannot continue another one.
 * @throws {ToolError} when the cursor is not from this question.
 */
export function page<T> (items: readonly T[], question: unknown, limit: number, cursor?: string) {
  const digest = createHash('sha256').update(JSON.stringify(question)).digest('hex').slice(0, 12)
  const start = cursor === undefined ? 0 : offsetOf(cursor, digest)
  const end = start + limit
  const nextCursor = end < items.length ? Buffer.from(`${digest}:${end}`).toString('base64url') : undefined
  return { items: items.slice(start, end), nextCursor }
}

function offsetOf (cursor: string, digest: string): number {
  const [from, offset, ...rest] = Buffer.from(cursor, 'base64url').toString().split(':')
  if (from !== digest || offset === undefined || !/^\d{1,9}$/.test(offset) || rest.length > 0) {
    throw new ToolError('Invalid cursor: repeat the call with the same dataset and filters, or start again without a cursor')
  }
  return Number(offset)
}

/**
 * The asset that a reference means: its id, its native id (ARN, resource id, self link) or its name.
 * @throws {NotFoundError} when nothing has it.
 * @throws {ToolError} when several assets have that name.
 */
export function getAsset (inventory: Inventory, ref: string): Asset {
  const exact = inventory.assets.find((asset) => asset.id === ref || asset.native_id === ref)
  if (exact !== undefined) return exact
  const named = inventory.assets.filter((asset) => asset.name === ref)
  if (named.length > 1) throw new ToolError(`Several assets are named "${ref}": use one of the ids ${named.map(({ id }) => id).join(', ')}`)
  if (named[0] === undefined) throw new NotFoundError(`No asset with the id, native id or name "${ref}"`)
  return named[0]
}

/** An asset with everything that the inventory says about it. */
export function assetDetails (inventory: Inventory, asset: Asset) {
  const of = (id: string) => inventory.relations.filter(({ from, to }) => from === id || to === id)
  return {
    asset,
    account: inventory.accounts.find(({ id }) => id === asset.account)!,
    relations: of(asset.id).map(({ type, from, to }) => ({ type, from, to })),
    findings: inventory.findings.filter((finding) => finding.asset === asset.id)
  }
}

export function listFindings (inventory: Inventory, filter: { severity?: Severity | undefined, provider?: Provider | undefined }): Finding[] {
  const providers = new Map(inventory.assets.map(({ id, provider }) => [id, provider]))
  return inventory.findings
    .filter((finding) => filter.severity === undefined || finding.severity === filter.severity)
    .filter((finding) => filter.provider === undefined || providers.get(finding.asset) === filter.provider)
    .sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || (a.id < b.id ? -1 : 1))
}

export function summarize (inventory: Inventory) {
  return {
    kind: inventory.kind,
    organization: inventory.organization,
    generated_at: inventory.generated_at,
    assets: inventory.assets.length,
    relations: inventory.relations.length,
    findings: inventory.findings.length,
    exposed_assets: inventory.assets.filter((asset) => asset.exposed).length,
    providers: tally(inventory.assets.map((asset) => asset.provider)),
    regions: tally(inventory.assets.map((asset) => asset.region)),
    accounts: inventory.accounts,
    findings_by_severity: tallySeverities(inventory.findings)
  }
}

/** The worst first. */
export function tallySeverities (findings: readonly Finding[]): Record<string, number> {
  const counts = tally(findings.map((finding) => finding.severity))
  return Object.fromEntries(SEVERITIES.filter((severity) => severity in counts).map((severity) => [severity, counts[severity]!]))
}
