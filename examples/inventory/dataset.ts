// The inventory file: its shape, and reading it from disk. A file is checked completely before anything uses it, references included,
// so that the code behind it never meets a relation to an asset that does not exist.
import { createRequire } from 'node:module'
import { readFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod'

export const PROVIDERS = ['AWS', 'AZURE', 'GCP'] as const
export const SEVERITIES = ['critical', 'high', 'medium', 'low'] as const
export const RELATION_TYPES = [
  'contains', 'attached_to', 'protects', 'routes_to', 'assumes', 'triggers', 'reads_from', 'writes_to', 'replicates_to', 'encrypts'
] as const

// An id is the last segment of cloudg://asset/{id}: letters, digits and dashes only, so that those URIs need no escapes.
const id = z.string().regex(/^[a-z0-9][a-z0-9-]*$/, 'Expected lower-case letters, digits and dashes')

export const accountSchema = z.object({
  id: z.string().min(1),
  name: z.string().min(1),
  provider: z.enum(PROVIDERS)
})

export const assetSchema = z.object({
  id,
  native_id: z.string().min(1).describe('ARN, Azure resource id or GCP self link'),
  name: z.string().min(1),
  provider: z.enum(PROVIDERS),
  type: z.string().min(1),
  account: z.string().min(1),
  region: z.string().min(1),
  exposed: z.boolean().describe('Reachable from the internet without credentials'),
  exposed_via: z.string().optional(),
  created_at: z.iso.datetime(),
  tags: z.record(z.string(), z.string()),
  properties: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()]))
})

export const relationSchema = z.object({ type: z.enum(RELATION_TYPES), from: id, to: id })

export const findingSchema = z.object({
  id: z.string().regex(/^F-\d{3}$/, 'Expected an id such as F-001'),
  severity: z.enum(SEVERITIES),
  rule: z.string().min(1),
  title: z.string().min(1),
  asset: id,
  detected_at: z.iso.datetime(),
  remediation: z.string().min(1)
})

const inventorySchema = z.object({
  kind: z.literal('inventory'),
  version: z.literal(1),
  organization: z.string().min(1),
  generated_at: z.iso.datetime(),
  accounts: z.array(accountSchema).min(1),
  assets: z.array(assetSchema),
  relations: z.array(relationSchema),
  findings: z.array(findingSchema)
}).superRefine((data, ctx) => {
  const report = (path: PropertyKey[], message: string) => ctx.addIssue({ code: 'custom', path, message })
  const accounts = new Set(data.accounts.map((entry) => entry.id))
  const assets = new Set<string>()
  data.assets.forEach((entry, index) => {
    if (assets.has(entry.id)) report(['assets', index, 'id'], `Duplicate asset id "${entry.id}"`)
    if (!accounts.has(entry.account)) report(['assets', index, 'account'], `Unknown account "${entry.account}"`)
    assets.add(entry.id)
  })
  data.relations.forEach((entry, index) => {
    for (const end of ['from', 'to'] as const) {
      if (!assets.has(entry[end])) report(['relations', index, end], `Unknown asset "${entry[end]}"`)
    }
  })
  data.findings.forEach((entry, index) => {
    if (!assets.has(entry.asset)) report(['findings', index, 'asset'], `Unknown asset "${entry.asset}"`)
  })
})

export type Inventory = z.infer<typeof inventorySchema>
export type Account = z.infer<typeof accountSchema>
export type Asset = z.infer<typeof assetSchema>
export type Relation = z.infer<typeof relationSchema>
export type Finding = z.infer<typeof findingSchema>
export type Provider = typeof PROVIDERS[number]
export type Severity = typeof SEVERITIES[number]

/** A file that cannot be used as a dataset. The message names the file by its base name only and is fit for a caller's eyes. */
export class DatasetError extends Error {
  override name = 'DatasetError'
}

/** The inventory that ships with the package. Found through the package itself, since the compiled code lives elsewhere than the JSON. */
export function bundledInventoryPath (): string {
  const manifest = createRequire(import.meta.url).resolve('cloudg-mcp/package.json')
  return join(dirname(manifest), 'examples', 'inventory', 'inventory-map.json')
}

/**
 * Reads and checks one inventory file.
 * @throws {DatasetError} when the file cannot be read, is not JSON or is not an inventory.
 */
export async function loadInventory (path: string): Promise<Inventory> {
  const file = basename(path)
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? 'unreadable'
    const reason = code === 'ENOENT' ? 'no such file' : code === 'EISDIR' ? 'it is a directory' : `cannot be read (${code})`
    throw new DatasetError(`Dataset file ${file}: ${reason}`, { cause })
  }
  let data: unknown
  try {
    data = JSON.parse(text)
  } catch (cause) {
    throw new DatasetError(`Dataset file ${file}: not valid JSON`, { cause })
  }
  return parseInventory(data, file)
}

/** Checks data that is already decoded; `source` opens the error message. Reports the first five problems. */
export function parseInventory (data: unknown, source = 'data'): Inventory {
  const parsed = inventorySchema.safeParse(data)
  if (parsed.success) return parsed.data
  const { issues } = parsed.error
  const shown = issues.slice(0, 5).map((issue) => `${locate(issue.path)}: ${issue.message}`)
  if (issues.length > shown.length) shown.push(`and ${issues.length - shown.length} more`)
  throw new DatasetError(`Dataset file ${source}: not an inventory: ${shown.join('; ')}`)
}

function locate (path: PropertyKey[]): string {
  const text = path.map((key) => typeof key === 'number' ? `[${key}]` : `.${String(key)}`).join('')
  return text.replace(/^\./, '') || '<root>'
}
