// The tools. Descriptions are written for a model that has to choose between them: what it gets, and what to call next.
import { z } from 'zod'
import type { AppLayer } from '../../lib/layer/layer.js'
import { accountSchema, assetSchema, findingSchema, PROVIDERS, relationSchema, SEVERITIES } from './dataset.js'
import {
  ASSET_FIELDS, assetDetails, countAssets, DEFAULT_FIELDS, filterAssets, getAsset, GROUPINGS, listFindings, page, pick, summarize, tallySeverities
} from './queries.js'
import type { Workspace } from './workspace.js'

const READS = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false }

const dataset = z.string().min(1).max(64).optional().describe('Name of a loaded dataset; without it the default one is used')
const counts = z.record(z.string(), z.number().int())

export function registerTools (layer: AppLayer, workspace: Workspace): void {
  registerWorkspaceTools(layer, workspace)
  registerAssetTools(layer, workspace)
  registerAnalysisTools(layer, workspace)
}

function registerWorkspaceTools (layer: AppLayer, workspace: Workspace): void {
  layer.tool('workspace_status', {
    title: 'Workspace status',
    description: 'Lists the loaded datasets with their sizes and says which one is the default. Call it first when several datasets may be loaded.',
    output: z.object({
      default_dataset: z.string(),
      datasets: z.array(z.object({
        name: z.string(),
        kind: z.literal('inventory'),
        file: z.string(),
        organization: z.string(),
        assets: z.number().int(),
        relations: z.number().int(),
        findings: z.number().int(),
        ontology_built: z.boolean()
      }))
    }),
    annotations: READS
  }, () => workspace.describe())

  layer.tool('load_dataset', {
    title: 'Load a dataset',
    description: 'Loads an inventory file under a name, replacing a dataset of that name. The path is relative to the server\'s dataset directory.',
    input: {
      name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, 'Expected letters, digits, dashes and underscores').describe('Name for the dataset, used as `dataset` in the other tools'),
      path: z.string().min(1).max(1024).describe('Path of a JSON file inside the dataset directory, such as inventory-map.json')
    },
    output: z.object({ dataset: z.string(), kind: z.literal('inventory'), assets: z.number().int(), relations: z.number().int(), findings: z.number().int() }),
    annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false }
  }, async ({ name, path }) => {
    const { inventory } = await workspace.load(name, path)
    layer.notifyChanged('resources')
    layer.notifyUpdated('cloudg://workspace')
    return {
      dataset: name,
      kind: inventory.kind,
      assets: inventory.assets.length,
      relations: inventory.relations.length,
      findings: inventory.findings.length
    }
  })

  layer.tool('dataset_summary', {
    title: 'Dataset summary',
    description: 'An overview of one dataset: counts by provider and region, accounts, exposed assets and findings by severity. A good start before narrower questions.',
    input: { dataset },
    output: z.object({
      dataset: z.string(),
      kind: z.literal('inventory'),
      organization: z.string(),
      generated_at: z.string(),
      assets: z.number().int(),
      relations: z.number().int(),
      findings: z.number().int(),
      exposed_assets: z.number().int(),
      providers: counts,
      regions: counts,
      accounts: z.array(accountSchema),
      findings_by_severity: counts
    }),
    annotations: READS
  }, async (args) => {
    const { name, inventory } = await workspace.dataset(args.dataset)
    return { dataset: name, ...summarize(inventory) }
  })
}

function registerAssetTools (layer: AppLayer, workspace: Workspace): void {
  layer.tool('count_assets', {
    title: 'Count assets',
    description: 'Counts all assets of a dataset, grouped by provider, type, region or account. Use it for "how many"; use find_assets for "which".',
    input: {
      group_by: z.enum(GROUPINGS).describe('What to group by'),
      limit: z.number().int().min(1).max(200).default(50).describe('Most groups to return, the largest first'),
      dataset
    },
    output: z.object({
      dataset: z.string(),
      group_by: z.enum(GROUPINGS),
      total: z.number().int(),
      group_count: z.number().int(),
      groups: counts,
      truncated: z.boolean()
    }),
    annotations: READS
  }, async (args) => {
    const { name, inventory } = await workspace.dataset(args.dataset)
    return { dataset: name, ...countAssets(inventory, args.group_by, args.limit) }
  })

  layer.tool('find_assets', {
    title: 'Find assets',
    description: 'Lists assets that match all given filters, a page at a time. The id or native_id of an asset is the `ref` that get_asset takes.',
    input: {
      provider: z.enum(PROVIDERS).optional(),
      type: z.string().optional().describe('Asset type, such as ec2_instance, s3_bucket, iam_role, virtual_machine, storage_bucket'),
      region: z.string().optional().describe('Region, such as eu-west-1; `global` for what has none'),
      account: z.string().optional().describe('Account id or name'),
      name: z.string().optional().describe('Part of the name, in any case'),
      exposed: z.boolean().optional().describe('Only assets that are (or are not) reachable from the internet'),
      fields: z.array(z.enum(ASSET_FIELDS)).min(1).optional().describe(`Fields to return; ${DEFAULT_FIELDS.join(', ')} by default`),
      limit: z.number().int().min(1).max(100).default(20).describe('Most assets on one page'),
      cursor: z.string().max(256).optional().describe('nextCursor of the page before, with the same filters'),
      dataset
    },
    output: z.object({
      dataset: z.string(),
      total: z.number().int().describe('Matches on all pages'),
      count: z.number().int().describe('Assets on this page'),
      assets: z.array(assetSchema.partial()),
      nextCursor: z.string().optional()
    }),
    annotations: READS
  }, async ({ dataset: wanted, fields = DEFAULT_FIELDS, limit, cursor, ...filter }) => {
    const { name, inventory } = await workspace.dataset(wanted)
    const found = filterAssets(inventory, filter)
    const { items, nextCursor } = page(found, [name, filter], limit, cursor)
    return {
      dataset: name,
      total: found.length,
      count: items.length,
      assets: items.map((asset) => pick(asset, fields)),
      ...(nextCursor !== undefined && { nextCursor })
    }
  })

  layer.tool('get_asset', {
    title: 'Get an asset',
    description: 'Everything about one asset: fields, tags, relations to other assets, and its findings.',
    input: {
      ref: z.string().min(1).max(1024).describe('Asset id, native id (ARN, Azure resource id, GCP self link) or unique name'),
      dataset
    },
    output: z.object({
      dataset: z.string(),
      asset: assetSchema,
      account: accountSchema,
      relations: z.array(relationSchema),
      findings: z.array(findingSchema)
    }),
    annotations: READS
  }, async (args) => {
    const { name, inventory } = await workspace.dataset(args.dataset)
    return { dataset: name, ...assetDetails(inventory, getAsset(inventory, args.ref)) }
  })
}

function registerAnalysisTools (layer: AppLayer, workspace: Workspace): void {
  layer.tool('ontology_stats', {
    title: 'Ontology statistics',
    description: 'Size of the knowledge graph of a dataset: triples, subjects, and triples by predicate. The first call for a dataset builds the graph and reports progress.',
    input: { dataset },
    output: z.object({
      dataset: z.string(),
      built_now: z.boolean(),
      total_triples: z.number().int(),
      subjects: z.number().int(),
      predicates: counts
    }),
    annotations: READS
  }, async (args, ctx) => {
    const { name, inventory } = await workspace.dataset(args.dataset)
    const building = !workspace.hasOntology(inventory)
    if (building) await ctx.progress(0, 1, `building ontology for ${inventory.assets.length} assets`)
    const { ontology, built } = workspace.ontology(inventory)
    if (building) await ctx.progress(1, 1, 'ontology built')
    return {
      dataset: name,
      built_now: built,
      total_triples: ontology.triples.length,
      subjects: ontology.subjects,
      predicates: ontology.predicates
    }
  })

  layer.tool('list_findings', {
    title: 'List findings',
    description: 'Security findings of a dataset, the most severe first, each with the id of its asset and a remediation.',
    input: {
      severity: z.enum(SEVERITIES).optional().describe('Only findings of this severity'),
      provider: z.enum(PROVIDERS).optional().describe('Only findings about assets of this provider'),
      dataset
    },
    output: z.object({ dataset: z.string(), total: z.number().int(), by_severity: counts, findings: z.array(findingSchema) }),
    annotations: READS
  }, async ({ dataset: wanted, ...filter }) => {
    const { name, inventory } = await workspace.dataset(wanted)
    const findings = listFindings(inventory, filter)
    return { dataset: name, total: findings.length, by_severity: tallySeverities(findings), findings }
  })
}
