// Resources and prompts: what an application can attach to a conversation, and what a person can pick from a menu. All of them read the
// default dataset.
import { z } from 'zod'
import { NotFoundError } from '../../lib/layer/errors.js'
import type { AppLayer } from '../../lib/layer/layer.js'
import { PROVIDERS, SEVERITIES, type Inventory, type Severity } from './dataset.js'
import { assetDetails, DEFAULT_FIELDS, filterAssets, findAccount, getAsset, pick, summarize, tally } from './queries.js'
import type { Workspace } from './workspace.js'

export function registerResources (layer: AppLayer, workspace: Workspace): void {
  const startingWith = (select: (inventory: Inventory) => string[]) => async (prefix: string) => {
    const { inventory } = await workspace.dataset()
    return select(inventory).filter((value) => value.startsWith(prefix))
  }
  const assetIds = startingWith((inventory) => inventory.assets.map(({ id }) => id))

  layer.resource('cloudg://workspace', {
    name: 'workspace',
    title: 'Workspace',
    description: 'The loaded datasets. Updated whenever one is loaded.',
    mimeType: 'application/json'
  }, () => workspace.describe())

  layer.resource('cloudg://catalog', {
    name: 'catalog',
    title: 'Catalog',
    description: 'What the default dataset knows: providers with their asset types, accounts, relation types and the templates to read more.',
    mimeType: 'application/json'
  }, async () => {
    const { name, inventory } = await workspace.dataset()
    return catalog(name, inventory)
  })

  layer.resourceTemplate('cloudg://asset/{id}', {
    name: 'asset',
    title: 'Asset',
    description: 'One asset by its id, with relations and findings.',
    mimeType: 'application/json',
    complete: { id: assetIds }
  }, async ({ id }) => {
    const { name, inventory } = await workspace.dataset()
    const asset = inventory.assets.find((entry) => entry.id === id)
    if (asset === undefined) throw new NotFoundError(`No asset with the id "${id}"`)
    return { dataset: name, ...assetDetails(inventory, asset) }
  })

  layer.resourceTemplate('cloudg://account/{account}/assets', {
    name: 'account-assets',
    title: 'Assets of an account',
    description: 'The assets of one account, by its id or name.',
    mimeType: 'application/json',
    complete: { account: startingWith((inventory) => inventory.accounts.flatMap(({ id, name }) => [name, id])) }
  }, async (variables) => {
    const { name, inventory } = await workspace.dataset()
    const account = findAccount(inventory, variables.account)
    if (account === undefined) throw new NotFoundError(`No account with the id or name "${variables.account}"`)
    const assets = filterAssets(inventory, { account: account.id }).map((asset) => pick(asset, DEFAULT_FIELDS))
    return { dataset: name, account, total: assets.length, assets }
  })

  layer.prompt('triage_exposure', {
    title: 'Triage exposure',
    description: 'Ranks the internet-exposed assets that have findings of a severity or worse, and proposes what to do first.',
    arguments: {
      severity: {
        description: `The least severity to include: ${SEVERITIES.join(', ')}`,
        schema: z.enum(SEVERITIES),
        complete: (prefix: string) => SEVERITIES.filter((severity) => severity.startsWith(prefix))
      }
    }
  }, async ({ severity }) => {
    const { name, inventory } = await workspace.dataset()
    return triage(name, inventory, severity)
  })

  layer.prompt('explain_asset', {
    title: 'Explain an asset',
    description: 'Explains what an asset is for, what depends on it and what is wrong with it.',
    arguments: { id: { description: 'Asset id, native id or unique name', required: true, complete: assetIds } }
  }, async ({ id }) => {
    const { inventory } = await workspace.dataset()
    const asset = getAsset(inventory, id)
    return [
      `Explain the asset ${asset.id} (${asset.type}, ${asset.provider}) to an engineer who has just joined: its purpose, what depends on it, ` +
        'how traffic and permissions reach it, and which of its findings to fix first. Use only the facts in the attached record.',
      {
        type: 'resource',
        resource: {
          uri: `cloudg://asset/${asset.id}`,
          mimeType: 'application/json',
          text: JSON.stringify(assetDetails(inventory, asset), null, 2)
        }
      }
    ]
  })
}

function catalog (name: string, inventory: Inventory) {
  const { accounts, regions, providers } = summarize(inventory)
  return {
    dataset: name,
    providers: Object.fromEntries(PROVIDERS.filter((provider) => provider in providers).map((provider) =>
      [provider, tally(filterAssets(inventory, { provider }).map(({ type }) => type))])),
    accounts,
    regions,
    relations: tally(inventory.relations.map(({ type }) => type)),
    severities: SEVERITIES,
    templates: ['cloudg://asset/{id}', 'cloudg://account/{account}/assets']
  }
}

function triage (name: string, inventory: Inventory, least: Severity): string {
  const included = SEVERITIES.slice(0, SEVERITIES.indexOf(least) + 1)
  const lines = filterAssets(inventory, { exposed: true }).flatMap((asset) => {
    const findings = inventory.findings.filter((finding) => finding.asset === asset.id && included.includes(finding.severity))
    return findings.map((finding) => `- ${asset.id} (${asset.type}, exposed via ${asset.exposed_via ?? 'an unknown path'}): ${finding.severity}, ${finding.title}`)
  })
  const facts = lines.length > 0 ? lines.join('\n') : '- none'
  return `These assets of dataset ${name} are reachable from the internet and have findings of severity ${included.join(' or ')}:\n\n${facts}\n\n` +
    'Rank them by risk. For each, say what an attacker gains, what else it reaches (get_asset shows the relations), and the first change to make.'
}
