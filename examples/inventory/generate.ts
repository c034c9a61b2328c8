// Writes inventory-map.json. The same seed always gives the same bytes, so the committed file can be checked against this code.
// Run after compiling: node build/examples/inventory/generate.js
import { writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { ACCOUNTS, ASSETS, FINDINGS, providerOf, RELATIONS, SERVICES, type AssetBlueprint } from './blueprint.js'
import { bundledInventoryPath, parseInventory, type Asset, type Inventory } from './dataset.js'

const SEED = 0xc10d6
const GENERATED_AT = Date.UTC(2026, 7, 3, 6, 0, 0)
const DAY = 24 * 60 * 60 * 1000

/** mulberry32: 32 bits of state are plenty for ids that only have to look real. */
function randomSource (seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

interface Dice {
  hex (length: number): string
  uuid (): string
  between (low: number, high: number): number
}

function dice (seed: number): Dice {
  const next = randomSource(seed)
  const hex = (length: number) => Array.from({ length }, () => Math.floor(next() * 16).toString(16)).join('')
  return {
    hex,
    uuid: () => `${hex(8)}-${hex(4)}-4${hex(3)}-a${hex(3)}-${hex(12)}`,
    between: (low, high) => low + Math.floor(next() * (high - low + 1))
  }
}

type NativeId = (asset: AssetBlueprint, roll: Dice) => string

const ec2 = (kind: string, prefix: string): NativeId => ({ account, region }, roll) =>
  `arn:aws:ec2:${region}:${account}:${kind}/${prefix}-0${roll.hex(16)}`
const arn = (service: string, separator: string): NativeId => ({ account, region, name }) =>
  `arn:aws:${service}:${region}:${account}:${separator}${name}`
const arm = (type: string): NativeId => ({ account, name }) =>
  `/subscriptions/${account}/resourceGroups/rg-backoffice/providers/${type}/${name}`

const NATIVE_IDS: Record<string, NativeId> = {
  vpc: ec2('vpc', 'vpc'),
  subnet: ec2('subnet', 'subnet'),
  internet_gateway: ec2('internet-gateway', 'igw'),
  security_group: ec2('security-group', 'sg'),
  ec2_instance: ec2('instance', 'i'),
  load_balancer: ({ account, region, name }, roll) =>
    `arn:aws:elasticloadbalancing:${region}:${account}:loadbalancer/app/${name}/${roll.hex(16)}`,
  rds_instance: arn('rds', 'db:'),
  s3_bucket: ({ name }) => `arn:aws:s3:::${name}`,
  iam_role: ({ account, name }) => `arn:aws:iam::${account}:role/${name}`,
  lambda_function: arn('lambda', 'function:'),
  sqs_queue: arn('sqs', ''),
  kms_key: ({ account, region }, roll) => `arn:aws:kms:${region}:${account}:key/${roll.uuid()}`,
  dynamodb_table: arn('dynamodb', 'table/'),
  secret: ({ account, region, name }, roll) => `arn:aws:secretsmanager:${region}:${account}:secret:${name}-${roll.hex(6)}`,
  web_acl: ({ account, region, name }, roll) => `arn:aws:wafv2:${region}:${account}:regional/webacl/${name}/${roll.uuid()}`,
  cloudtrail: arn('cloudtrail', 'trail/'),
  virtual_network: arm('Microsoft.Network/virtualNetworks'),
  network_security_group: arm('Microsoft.Network/networkSecurityGroups'),
  virtual_machine: arm('Microsoft.Compute/virtualMachines'),
  storage_account: arm('Microsoft.Storage/storageAccounts'),
  key_vault: arm('Microsoft.KeyVault/vaults'),
  compute_instance: ({ account, name, properties }) =>
    `https://www.googleapis.com/compute/v1/projects/${account}/zones/${String(properties['zone'])}/instances/${name}`,
  storage_bucket: ({ name }) => `https://www.googleapis.com/storage/v1/b/${name}`,
  service_account: ({ account, name }) =>
    `https://iam.googleapis.com/v1/projects/${account}/serviceAccounts/${name}@${account}.iam.gserviceaccount.com`
}

function toAsset (blueprint: AssetBlueprint, roll: Dice): Asset {
  const { id, name, type, account, region, service, exposedVia, dataClass, properties } = blueprint
  const nativeId = NATIVE_IDS[type]
  if (nativeId === undefined) throw new Error(`No native id format for asset type ${type}`)
  const runs = SERVICES[service]
  if (runs === undefined) throw new Error(`Blueprint names an unknown service: ${service}`)
  return {
    id,
    native_id: nativeId(blueprint, roll),
    name,
    provider: providerOf(account),
    type,
    account,
    region,
    exposed: exposedVia !== undefined,
    ...(exposedVia !== undefined && { exposed_via: exposedVia }),
    created_at: new Date(GENERATED_AT - roll.between(40, 900) * DAY - roll.between(0, 86_399) * 1000).toISOString(),
    tags: {
      env: 'prod',
      service,
      owner: runs.owner,
      criticality: runs.criticality,
      cost_center: `cc-${roll.between(1000, 1999)}`,
      managed_by: roll.between(0, 9) < 8 ? 'terraform' : 'manual',
      ...(dataClass !== undefined && { data_class: dataClass })
    },
    properties
  }
}

/** The whole inventory, checked like any other dataset. */
export function generateInventory (seed = SEED): Inventory {
  const roll = dice(seed)
  const assets = ASSETS.map((blueprint) => toAsset(blueprint, roll))
  const findings = FINDINGS.map((entry, index) => ({
    id: `F-${String(index + 1).padStart(3, '0')}`,
    ...entry,
    detected_at: new Date(GENERATED_AT - roll.between(1, 60) * DAY).toISOString()
  }))
  return parseInventory({
    kind: 'inventory',
    version: 1,
    organization: 'Northwind Shop',
    generated_at: new Date(GENERATED_AT).toISOString(),
    accounts: ACCOUNTS,
    assets,
    relations: RELATIONS,
    findings
  }, 'generated')
}

/** One record a line: a change of one asset is a change of one line. */
export function formatInventory (inventory: Inventory): string {
  const members = Object.entries(inventory).map(([key, value]) => {
    const text = Array.isArray(value)
      ? `[\n${value.map((entry) => `    ${JSON.stringify(entry)}`).join(',\n')}\n  ]`
      : JSON.stringify(value)
    return `  ${JSON.stringify(key)}: ${text}`
  })
  return `{\n${members.join(',\n')}\n}\n`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const inventory = generateInventory()
  await writeFile(bundledInventoryPath(), formatInventory(inventory))
  process.stdout.write(`inventory-map.json: ${inventory.assets.length} assets, ${inventory.relations.length} relations, ${inventory.findings.length} findings\n`)
}
