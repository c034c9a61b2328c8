// The demo layer: a multi-cloud inventory with tools, resources and prompts. Mount it with the plugin or serve it over stdio.
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { createLayer, type AppLayer } from '../../lib/layer/layer.js'
import { bundledInventoryPath } from './dataset.js'
import { registerResources } from './resources.js'
import { registerTools } from './tools.js'
import { Workspace } from './workspace.js'

const INSTRUCTIONS = 'cloudg exposes a multi-cloud inventory: assets in AWS, Azure and GCP, how they relate, and security findings about them. ' +
  'Start with dataset_summary, narrow down with count_assets and find_assets, and read one asset with get_asset. ' +
  'list_findings and the triage_exposure prompt show what needs attention.'

export interface InventoryOptions {
  /** Dataset name -> path of an inventory file; the first is the default dataset. @default `prod`, the inventory that ships with the package */
  datasets?: Record<string, string>
  /** The only directory that the `load_dataset` tool reads from. @default the directory of the bundled inventory */
  root?: string
}

/** Makes the demo layer. Nothing is read from disk until the layer starts or is first asked. */
export function createInventoryLayer ({ datasets, root }: InventoryOptions = {}): AppLayer {
  const { version } = createRequire(import.meta.url)('cloudg-mcp/package.json') as { version: string }
  const bundled = bundledInventoryPath()
  const workspace = new Workspace({ sources: datasets ?? { prod: bundled }, root: root ?? dirname(bundled) })
  const layer = createLayer({
    name: 'cloudg',
    title: 'cloudg',
    version,
    instructions: INSTRUCTIONS,
    start: () => workspace.open(),
    stop: () => workspace.close()
  })
  registerTools(layer, workspace)
  registerResources(layer, workspace)
  return layer
}
