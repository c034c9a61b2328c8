// The layer that a command serves or asks: a module's, or the inventory that ships with the package.

import { statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Layer } from '../layer/contract.js'
import { UsageError } from './errors.js'

export interface Source {
  /** A path or a package name; its default export is a layer, or a function that makes one. */
  module?: string | undefined
  /** `NAME=PATH`, for the inventory. */
  dataset?: readonly string[] | undefined
}

export async function loadLayer ({ module, dataset = [] }: Source): Promise<Layer> {
  if (module === undefined) return inventoryLayer(dataset)
  if (dataset.length > 0) throw new UsageError('--dataset is for the bundled inventory: it cannot be given with a module')
  const loaded = await load(module)
  const made: unknown = typeof loaded.default === 'function' ? await loaded.default() : loaded.default
  if (!isLayer(made)) throw new UsageError(`${module}: the default export must be a layer (createLayer), or a function that makes one`)
  return made
}

/** The layer, with a line in the file for each call. */
export async function loadAudited (source: Source, file: string | undefined): Promise<Layer> {
  const layer = await loadLayer(source)
  if (file === undefined) return layer
  if (!('use' in layer) || typeof layer.use !== 'function') throw new UsageError('--audit-log needs a layer made with createLayer()')
  const { audit } = await import('../layer/middleware/audit.js')
  const trail = audit({ file })
  layer.use(trail)
  // The last lines are written before the process ends.
  const stop = layer.stop?.bind(layer)
  layer.stop = async () => {
    await stop?.()
    await trail.close()
  }
  return layer
}

async function inventoryLayer (specs: readonly string[]): Promise<Layer> {
  // eslint-disable-next-line no-restricted-syntax -- the one example that ships, as what is served by default
  const { createInventoryLayer } = await import('../../examples/inventory/layer.js')
  if (specs.length === 0) return createInventoryLayer()
  const datasets = Object.fromEntries(specs.map((spec) => {
    const at = spec.indexOf('=')
    if (at < 1 || at === spec.length - 1) throw new UsageError(`--dataset ${spec}: expected NAME=PATH`)
    return [spec.slice(0, at), resolve(spec.slice(at + 1))]
  }))
  return createInventoryLayer({ datasets, root: dirname(Object.values(datasets)[0]!) })
}

async function load (module: string): Promise<{ default?: any }> {
  const path = resolve(module)
  return import(statSync(path, { throwIfNoEntry: false })?.isFile() === true ? pathToFileURL(path).href : packageUrl(module))
}

function packageUrl (name: string): string {
  try {
    return pathToFileURL(createRequire(join(process.cwd(), 'package.json')).resolve(name)).href
  } catch (error) {
    // A package for `import` alone is not shown to `require`: as a neighbour of this one it is found by its name.
    if ((error as NodeJS.ErrnoException).code === 'ERR_PACKAGE_PATH_NOT_EXPORTED') return name
    throw new UsageError(`${name}: no such file or package`)
  }
}

function isLayer (value: unknown): value is Layer {
  return typeof value === 'object' && value !== null && ['list', 'callTool', 'onChange', 'viewOf'].every((method) => typeof (value as any)[method] === 'function')
}
