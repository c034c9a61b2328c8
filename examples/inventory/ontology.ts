// An inventory as a set of triples: what it says, the inverse of every relation, and what follows from it (which assets internet traffic
// can reach). The order depends on the input alone.
import type { Asset, Finding, Inventory, Relation } from './dataset.js'

export type Triple = readonly [subject: string, predicate: string, object: string]

export interface Ontology {
  triples: readonly Triple[]
  subjects: number
  predicates: Record<string, number>
}

const INVERSE: Record<Relation['type'], string> = {
  contains: 'contained_in',
  attached_to: 'has_attachment',
  protects: 'protected_by',
  routes_to: 'routed_from',
  assumes: 'assumed_by',
  triggers: 'triggered_by',
  reads_from: 'read_by',
  writes_to: 'written_by',
  replicates_to: 'replica_of',
  encrypts: 'encrypted_by'
}

const CATEGORIES: Record<string, string[]> = {
  network: ['vpc', 'subnet', 'internet_gateway', 'load_balancer', 'virtual_network'],
  protection: ['security_group', 'network_security_group', 'web_acl', 'cloudtrail'],
  compute: ['ec2_instance', 'lambda_function', 'virtual_machine', 'compute_instance'],
  storage: ['s3_bucket', 'storage_account', 'storage_bucket'],
  database: ['rds_instance', 'dynamodb_table'],
  messaging: ['sqs_queue'],
  identity: ['iam_role', 'service_account'],
  cryptography: ['kms_key', 'secret', 'key_vault']
}

const CATEGORY_OF = new Map(Object.entries(CATEGORIES).flatMap(([category, types]) => types.map((type) => [type, category] as const)))

/** Builds all triples of an inventory; duplicates are dropped. */
export function buildOntology (inventory: Inventory): Ontology {
  const seen = new Map<string, Triple>()
  const add = (subject: string, predicate: string, object: string | number | boolean) => {
    const triple: Triple = [subject, predicate, String(object)]
    seen.set(triple.join('\u0000'), triple)
  }

  describeVocabulary(inventory, add)
  for (const asset of inventory.assets) describeAsset(asset, add)
  for (const { type, from, to } of inventory.relations) {
    add(`asset:${from}`, type, `asset:${to}`)
    add(`asset:${to}`, INVERSE[type], `asset:${from}`)
  }
  for (const finding of inventory.findings) describeFinding(finding, add)
  for (const id of reachableFromInternet(inventory)) add(`asset:${id}`, 'reachable_from', 'zone:internet')

  const triples = [...seen.values()]
  const predicates: Record<string, number> = {}
  for (const [, predicate] of triples) predicates[predicate] = (predicates[predicate] ?? 0) + 1
  return {
    triples,
    subjects: new Set(triples.map(([subject]) => subject)).size,
    predicates: Object.fromEntries(Object.entries(predicates).sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)))
  }
}

type Add = (subject: string, predicate: string, object: string | number | boolean) => void

function describeVocabulary (inventory: Inventory, add: Add): void {
  for (const account of inventory.accounts) {
    add(`account:${account.id}`, 'type', 'class:account')
    add(`account:${account.id}`, 'name', account.name)
    add(`account:${account.id}`, 'provider', `provider:${account.provider}`)
    add(`provider:${account.provider}`, 'type', 'class:provider')
    add(`provider:${account.provider}`, 'has_account', `account:${account.id}`)
  }
  for (const { type, region, tags } of inventory.assets) {
    add(`class:${type}`, 'subclass_of', `class:${CATEGORY_OF.get(type) ?? 'asset'}`)
    add(`region:${region}`, 'type', 'class:region')
    const { service, owner } = tags
    if (owner === undefined) continue
    add(`team:${owner}`, 'type', 'class:team')
    if (service !== undefined) add(`service:${service}`, 'maintained_by', `team:${owner}`)
  }
}

function describeAsset (asset: Asset, add: Add): void {
  const subject = `asset:${asset.id}`
  add(subject, 'type', `class:${asset.type}`)
  add(subject, 'category', `class:${CATEGORY_OF.get(asset.type) ?? 'asset'}`)
  add(subject, 'name', asset.name)
  add(subject, 'native_id', asset.native_id)
  add(subject, 'provider', `provider:${asset.provider}`)
  add(subject, 'in_account', `account:${asset.account}`)
  add(subject, 'in_region', `region:${asset.region}`)
  add(subject, 'exposed', asset.exposed)
  add(subject, 'created_at', asset.created_at)
  if (asset.exposed_via !== undefined) add(subject, 'exposed_via', asset.exposed_via)
  add(`account:${asset.account}`, 'owns', subject)
  add(`region:${asset.region}`, 'hosts', subject)
  for (const [key, value] of Object.entries(asset.tags)) add(subject, `tag:${key}`, value)
  for (const [key, value] of Object.entries(asset.properties)) add(subject, `property:${key}`, value)
}

function describeFinding (finding: Finding, add: Add): void {
  const subject = `finding:${finding.id}`
  add(subject, 'type', 'class:finding')
  add(subject, 'severity', finding.severity)
  add(subject, 'rule', finding.rule)
  add(subject, 'title', finding.title)
  add(subject, 'detected_at', finding.detected_at)
  add(subject, 'remediation', finding.remediation)
  add(subject, 'about', `asset:${finding.asset}`)
  add(`asset:${finding.asset}`, 'has_finding', subject)
}

/** Exposed assets, and everything that they route traffic to. */
function reachableFromInternet (inventory: Inventory): string[] {
  const targets = new Map<string, string[]>()
  for (const { type, from, to } of inventory.relations) {
    if (type === 'routes_to') targets.set(from, [...targets.get(from) ?? [], to])
  }
  const reached = new Set(inventory.assets.filter((asset) => asset.exposed).map((asset) => asset.id))
  for (const id of reached) { // a Set yields what is added while it is walked
    for (const next of targets.get(id) ?? []) reached.add(next)
  }
  return [...reached]
}
