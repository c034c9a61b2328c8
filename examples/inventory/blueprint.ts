// What the demo organization runs, written down by hand: a web shop on AWS, a back office on Azure and an analytics project on GCP.
// generate.ts adds what is tedious to invent (native ids, dates, cost centres) from a seed.
import type { Account, Finding, Provider, Relation } from './dataset.js'

export interface AssetBlueprint {
  id: string
  name: string
  type: string
  account: string
  region: string
  service: string
  exposedVia?: string
  dataClass?: string
  properties: Record<string, string | number | boolean>
}

export const ACCOUNTS: Account[] = [
  { id: '111122223333', name: 'shop-prod', provider: 'AWS' },
  { id: '444455556666', name: 'shop-shared', provider: 'AWS' },
  { id: '6c2e1f0a-4b7d-4d52-9a53-0c1f5e8b7d21', name: 'backoffice', provider: 'AZURE' },
  { id: 'northwind-analytics', name: 'analytics', provider: 'GCP' }
]

/** Who runs a service, and how much depends on it (tier-1: the shop stops without it). */
export const SERVICES: Record<string, { owner: string, criticality: 'tier-1' | 'tier-2' | 'tier-3' }> = {
  network: { owner: 'platform', criticality: 'tier-1' },
  checkout: { owner: 'storefront', criticality: 'tier-1' },
  orders: { owner: 'orders', criticality: 'tier-1' },
  media: { owner: 'storefront', criticality: 'tier-2' },
  delivery: { owner: 'platform', criticality: 'tier-2' },
  reporting: { owner: 'data', criticality: 'tier-3' },
  security: { owner: 'security', criticality: 'tier-1' },
  backoffice: { owner: 'finance', criticality: 'tier-2' },
  analytics: { owner: 'data', criticality: 'tier-3' }
}

const PROD = '111122223333'
const SHARED = '444455556666'
const OFFICE = '6c2e1f0a-4b7d-4d52-9a53-0c1f5e8b7d21'
const ANALYTICS = 'northwind-analytics'

type Extra = Pick<AssetBlueprint, 'exposedVia' | 'dataClass'>

function asset (
  account: string, region: string, type: string, id: string, name: string, service: string,
  properties: AssetBlueprint['properties'], extra: Extra = {}
): AssetBlueprint {
  return { id, name, type, account, region, service, properties, ...extra }
}

const aws = (type: string, id: string, name: string, service: string, properties: AssetBlueprint['properties'], extra?: Extra) =>
  asset(PROD, type === 'iam_role' ? 'global' : 'eu-west-1', type, id, name, service, properties, extra)
const shared = (region: string, type: string, id: string, name: string, service: string, properties: AssetBlueprint['properties'], extra?: Extra) =>
  asset(SHARED, region, type, id, name, service, properties, extra)
const azure = (type: string, id: string, name: string, properties: AssetBlueprint['properties'], extra?: Extra) =>
  asset(OFFICE, 'westeurope', type, id, name, 'backoffice', properties, extra)
const gcp = (region: string, type: string, id: string, name: string, properties: AssetBlueprint['properties'], extra?: Extra) =>
  asset(ANALYTICS, region, type, id, name, 'analytics', properties, extra)

export const ASSETS: AssetBlueprint[] = [
  aws('vpc', 'vpc-shop', 'shop-prod', 'network', { cidr: '10.20.0.0/16', flow_logs: true, dns_hostnames: true }),
  aws('subnet', 'subnet-public-a', 'shop-public-a', 'network', { cidr: '10.20.0.0/24', zone: 'eu-west-1a', public: true }),
  aws('subnet', 'subnet-public-b', 'shop-public-b', 'network', { cidr: '10.20.1.0/24', zone: 'eu-west-1b', public: true }),
  aws('subnet', 'subnet-private-a', 'shop-private-a', 'network', { cidr: '10.20.10.0/24', zone: 'eu-west-1a', public: false }),
  aws('subnet', 'subnet-private-b', 'shop-private-b', 'network', { cidr: '10.20.11.0/24', zone: 'eu-west-1b', public: false }),
  aws('internet_gateway', 'igw-shop', 'shop-igw', 'network', { state: 'attached' }),
  aws('security_group', 'sg-web', 'shop-web', 'network', { ingress: '443 from 0.0.0.0/0, 22 from 0.0.0.0/0', egress: 'all', rules: 3 }),
  aws('security_group', 'sg-app', 'shop-app', 'network', { ingress: '8080 from shop-web', egress: 'all', rules: 2 }),
  aws('security_group', 'sg-db', 'shop-db', 'network', { ingress: '5432 from shop-app', egress: 'none', rules: 1 }),
  aws('load_balancer', 'alb-shop', 'shop-web', 'checkout', { scheme: 'internet-facing', listener: 'HTTPS:443', tls_policy: 'ELBSecurityPolicy-TLS13-1-2-2021-06', access_logs: true }, { exposedVia: 'internet-facing listener on 443' }),
  aws('ec2_instance', 'ec2-checkout-web-1', 'checkout-web-1', 'checkout', { instance_type: 'm7g.large', private_ip: '10.20.0.11', imds: 'v2', state: 'running' }),
  aws('ec2_instance', 'ec2-checkout-web-2', 'checkout-web-2', 'checkout', { instance_type: 'm7g.large', private_ip: '10.20.1.11', imds: 'v1', state: 'running' }),
  aws('ec2_instance', 'ec2-orders-app-1', 'orders-app-1', 'orders', { instance_type: 'c7g.xlarge', private_ip: '10.20.10.21', imds: 'v2', state: 'running' }),
  aws('ec2_instance', 'ec2-bastion', 'bastion', 'network', { instance_type: 't4g.micro', private_ip: '10.20.0.5', public_ip: '198.51.100.23', imds: 'v1', state: 'running' }, { exposedVia: 'security group shop-web allows 22 from 0.0.0.0/0' }),
  aws('rds_instance', 'rds-orders', 'orders', 'orders', { engine: 'postgres 16.4', class: 'db.r7g.large', multi_az: true, encrypted: true, backup_days: 14 }, { dataClass: 'confidential' }),
  aws('rds_instance', 'rds-reports', 'reports', 'reporting', { engine: 'postgres 16.4', class: 'db.t4g.medium', multi_az: false, encrypted: false, backup_days: 1 }, { dataClass: 'confidential' }),
  aws('s3_bucket', 's3-uploads', 'northwind-shop-uploads', 'media', { versioning: true, encryption: 'SSE-S3', public_access_block: true }, { dataClass: 'internal' }),
  aws('s3_bucket', 's3-assets', 'northwind-shop-assets', 'media', { versioning: false, encryption: 'SSE-S3', public_access_block: false }, { dataClass: 'public', exposedVia: 'bucket policy allows s3:GetObject to *' }),
  aws('s3_bucket', 's3-exports', 'northwind-order-exports', 'orders', { versioning: false, encryption: 'SSE-S3', public_access_block: false }, { dataClass: 'confidential', exposedVia: 'ACL grants READ to AllUsers' }),
  aws('iam_role', 'role-checkout-web', 'checkout-web', 'checkout', { policies: 2, trust: 'ec2.amazonaws.com', last_used_days: 0 }),
  aws('iam_role', 'role-orders-worker', 'orders-worker', 'orders', { policies: 4, trust: 'ec2.amazonaws.com, lambda.amazonaws.com', last_used_days: 0 }),
  aws('iam_role', 'role-media-processor', 'media-processor', 'media', { policies: 1, trust: 'lambda.amazonaws.com', last_used_days: 1, wildcard_actions: true }),
  aws('iam_role', 'role-reporting', 'reporting-legacy', 'reporting', { policies: 3, trust: '*', last_used_days: 212 }),
  aws('lambda_function', 'lambda-order-events', 'order-events', 'orders', { runtime: 'nodejs20.x', memory_mb: 512, timeout_s: 30 }),
  aws('lambda_function', 'lambda-image-resize', 'image-resize', 'media', { runtime: 'nodejs16.x', memory_mb: 1024, timeout_s: 60 }),
  aws('lambda_function', 'lambda-invoice-render', 'invoice-render', 'orders', { runtime: 'python3.12', memory_mb: 768, timeout_s: 45 }),
  aws('sqs_queue', 'sqs-orders', 'orders', 'orders', { fifo: false, encryption: 'SSE-SQS', retention_days: 4 }),
  aws('kms_key', 'kms-orders', 'orders-data', 'security', { rotation: true, spec: 'SYMMETRIC_DEFAULT' }),
  aws('dynamodb_table', 'ddb-carts', 'carts', 'checkout', { billing: 'on-demand', point_in_time_recovery: false, ttl_attribute: 'expires_at' }, { dataClass: 'internal' }),
  aws('secret', 'secret-orders-db', 'orders/db', 'orders', { rotation_days: 30 }, { dataClass: 'restricted' }),
  aws('web_acl', 'waf-shop', 'shop-edge', 'security', { rule_groups: 4, default_action: 'allow' }),
  shared('eu-central-1', 's3_bucket', 's3-logs', 'northwind-audit-logs', 'security', { versioning: true, encryption: 'SSE-KMS', public_access_block: true, object_lock: true }, { dataClass: 'restricted' }),
  shared('eu-central-1', 's3_bucket', 's3-terraform', 'northwind-terraform-state', 'delivery', { versioning: true, encryption: 'SSE-S3', public_access_block: true }, { dataClass: 'restricted' }),
  shared('eu-central-1', 'kms_key', 'kms-logs', 'audit-logs', 'security', { rotation: false, spec: 'SYMMETRIC_DEFAULT' }),
  shared('us-east-1', 'cloudtrail', 'trail-org', 'organization', 'security', { multi_region: true, log_validation: true, organization: true }),
  shared('global', 'iam_role', 'role-deploy', 'deploy', 'delivery', { policies: 1, trust: 'token.actions.githubusercontent.com', last_used_days: 0, administrator: true }),

  azure('virtual_network', 'vnet-office', 'vnet-backoffice', { address_space: '10.40.0.0/16', ddos_protection: false }),
  azure('network_security_group', 'nsg-office', 'nsg-backoffice', { inbound: '3389 from Internet', rules: 5 }),
  azure('virtual_machine', 'vm-ledger', 'ledger-01', { size: 'Standard_D4s_v5', os: 'Windows Server 2022', public_ip: '203.0.113.17', disk_encryption: true }, { exposedVia: 'nsg-backoffice allows 3389 from Internet' }),
  azure('storage_account', 'st-ledger', 'stledgerdocs', { tier: 'Standard_GRS', https_only: true, minimum_tls: 'TLS1_0', public_blobs: false }, { dataClass: 'confidential' }),
  azure('key_vault', 'kv-office', 'kv-backoffice', { soft_delete: true, purge_protection: false, rbac: true }, { dataClass: 'restricted' }),

  gcp('europe-west1', 'compute_instance', 'gce-etl', 'etl-1', { machine_type: 'n2-standard-8', zone: 'europe-west1-b', external_ip: false, shielded_vm: true }),
  gcp('EU', 'storage_bucket', 'gcs-lake', 'northwind-analytics-lake', { uniform_access: true, versioning: false, public_access_prevention: 'inherited' }, { dataClass: 'confidential' }),
  gcp('global', 'service_account', 'sa-etl', 'etl-runner', { keys: 2, oldest_key_days: 417, role: 'roles/editor' })
]

type Edge = [type: Relation['type'], from: string, ...to: string[]]

// One row is one source with all its targets: 56 relations in all.
const EDGES: Edge[] = [
  ['contains', 'vpc-shop', 'subnet-public-a', 'subnet-public-b', 'subnet-private-a', 'subnet-private-b', 'sg-web', 'sg-app', 'sg-db'],
  ['contains', 'subnet-public-a', 'alb-shop', 'ec2-checkout-web-1', 'ec2-bastion'],
  ['contains', 'subnet-public-b', 'alb-shop', 'ec2-checkout-web-2'],
  ['contains', 'subnet-private-a', 'ec2-orders-app-1'],
  ['contains', 'subnet-private-b', 'rds-orders', 'rds-reports'],
  ['contains', 'vnet-office', 'vm-ledger'],
  ['attached_to', 'igw-shop', 'vpc-shop'],
  ['protects', 'sg-web', 'alb-shop', 'ec2-checkout-web-1', 'ec2-checkout-web-2', 'ec2-bastion'],
  ['protects', 'sg-app', 'ec2-orders-app-1'],
  ['protects', 'sg-db', 'rds-orders', 'rds-reports'],
  ['protects', 'waf-shop', 'alb-shop'],
  ['protects', 'nsg-office', 'vm-ledger'],
  ['routes_to', 'igw-shop', 'alb-shop'],
  ['routes_to', 'alb-shop', 'ec2-checkout-web-1', 'ec2-checkout-web-2'],
  ['routes_to', 'ec2-checkout-web-1', 'ec2-orders-app-1'],
  ['routes_to', 'ec2-checkout-web-2', 'ec2-orders-app-1'],
  ['assumes', 'ec2-checkout-web-1', 'role-checkout-web'],
  ['assumes', 'ec2-checkout-web-2', 'role-checkout-web'],
  ['assumes', 'ec2-orders-app-1', 'role-orders-worker'],
  ['assumes', 'lambda-order-events', 'role-orders-worker'],
  ['assumes', 'lambda-invoice-render', 'role-orders-worker'],
  ['assumes', 'lambda-image-resize', 'role-media-processor'],
  ['assumes', 'gce-etl', 'sa-etl'],
  ['triggers', 'sqs-orders', 'lambda-order-events'],
  ['triggers', 's3-uploads', 'lambda-image-resize'],
  ['reads_from', 'ec2-checkout-web-1', 'ddb-carts'],
  ['reads_from', 'ec2-orders-app-1', 'secret-orders-db'],
  ['reads_from', 'vm-ledger', 'kv-office'],
  ['reads_from', 'gce-etl', 's3-exports'],
  ['writes_to', 'ec2-orders-app-1', 'rds-orders', 'sqs-orders'],
  ['writes_to', 'lambda-order-events', 'rds-orders'],
  ['writes_to', 'lambda-image-resize', 's3-assets'],
  ['writes_to', 'lambda-invoice-render', 's3-exports'],
  ['writes_to', 'trail-org', 's3-logs'],
  ['writes_to', 'vm-ledger', 'st-ledger'],
  ['writes_to', 'gce-etl', 'gcs-lake'],
  ['replicates_to', 'rds-orders', 'rds-reports'],
  ['encrypts', 'kms-orders', 'rds-orders', 'secret-orders-db'],
  ['encrypts', 'kms-logs', 's3-logs']
]

export const RELATIONS: Relation[] = EDGES.flatMap(([type, from, ...targets]) => targets.map((to) => ({ type, from, to })))

type FindingBlueprint = Omit<Finding, 'id' | 'detected_at'>

function finding (severity: Finding['severity'], rule: string, asset: string, title: string, remediation: string): FindingBlueprint {
  return { severity, rule, title, asset, remediation }
}

export const FINDINGS: FindingBlueprint[] = [
  finding('critical', 'storage-public-read', 's3-exports', 'Order exports are readable by anyone', 'Remove the AllUsers grant and turn the public access block on.'),
  finding('critical', 'remote-admin-open', 'vm-ledger', 'Remote desktop is open to the internet', 'Restrict 3389 in nsg-backoffice to the office range or use a bastion.'),
  finding('high', 'remote-admin-open', 'ec2-bastion', 'SSH is open to the internet', 'Restrict 22 in shop-web to known ranges or use session-based access.'),
  finding('high', 'trust-policy-wildcard', 'role-reporting', 'The trust policy lets any principal assume the role', 'Name the trusted accounts, or delete the role: it has been idle for 212 days.'),
  finding('high', 'identity-key-age', 'sa-etl', 'A service account key is 417 days old', 'Rotate the key, then move to workload identity.'),
  finding('high', 'encryption-at-rest', 'rds-reports', 'The reports replica is not encrypted', 'Restore an encrypted copy of the snapshot and switch over.'),
  finding('medium', 'instance-metadata-v1', 'ec2-checkout-web-2', 'Instance metadata v1 is enabled', 'Require IMDSv2 on the instance.'),
  finding('medium', 'runtime-end-of-life', 'lambda-image-resize', 'The runtime nodejs16.x is out of support', 'Move the function to nodejs20.x.'),
  finding('medium', 'identity-admin', 'role-deploy', 'The deploy role has administrator rights', 'Scope the policy to what the pipelines create.'),
  finding('medium', 'tls-minimum', 'st-ledger', 'TLS 1.0 is accepted', 'Set the minimum TLS version to 1.2.'),
  finding('low', 'backup-recovery', 'ddb-carts', 'Point-in-time recovery is off', 'Turn point-in-time recovery on.'),
  finding('low', 'key-rotation', 'kms-logs', 'Automatic key rotation is off', 'Turn yearly rotation on.')
]

export function providerOf (account: string): Provider {
  const owner = ACCOUNTS.find((entry) => entry.id === account)
  if (owner === undefined) throw new Error(`Blueprint names an unknown account: ${account}`)
  return owner.provider
}
