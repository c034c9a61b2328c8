// What the demo server holds in memory: datasets by name, each with the ontology that was built from it. The first dataset is the default one.
import { realpath, stat } from 'node:fs/promises'
import { basename, relative, resolve, sep } from 'node:path'
import { safeJoin } from '../../lib/layer/safe-path.js'
import { ToolError } from '../../lib/layer/errors.js'
import { DatasetError, loadInventory, type Inventory } from './dataset.js'
import { buildOntology, type Ontology } from './ontology.js'

// Callers choose what is loaded, so what they can make the process hold is bounded.
const MAX_DATASETS = 16
const MAX_FILE_BYTES = 16 * 1024 * 1024

export interface WorkspaceOptions {
  /** Dataset name -> file. Read when the workspace opens, or on first use. */
  sources: Record<string, string>
  /** The only directory below which {@link Workspace.load} reads. */
  root: string
}

export interface OpenDataset { name: string, inventory: Inventory }

export class Workspace {
  readonly #sources: Map<string, string>
  readonly #root: string
  readonly #inventories = new Map<string, Promise<Inventory>>()
  // Keyed by the inventory itself: a dataset that is loaded again gets a new ontology.
  readonly #ontologies = new WeakMap<Inventory, Ontology>()

  constructor ({ sources, root }: WorkspaceOptions) {
    if (Object.keys(sources).length === 0) throw new TypeError('datasets must name at least one file')
    this.#sources = new Map(Object.entries(sources))
    this.#root = root
  }

  /** Names in the order in which they were added. */
  get names (): string[] {
    return [...this.#sources.keys()]
  }

  /** Reads every dataset, so that a bad file stops the start and not the first call. */
  async open (): Promise<void> {
    for (const name of this.names) await this.#read(name)
  }

  close (): void {
    this.#inventories.clear()
  }

  /**
   * A dataset by name, the default one without.
   * @throws {ToolError} when there is no dataset of that name.
   */
  async dataset (name = this.names[0]!): Promise<OpenDataset> {
    if (!this.#sources.has(name)) throw new ToolError(`Unknown dataset "${name}". Loaded: ${this.names.join(', ')}`)
    return { name, inventory: await this.#read(name) }
  }

  /**
   * Loads a file below the root under a name; a dataset of that name is replaced. A file that does not fit changes nothing.
   * @throws {ToolError} with a reason that is fit for the caller.
   */
  async load (name: string, path: string): Promise<OpenDataset> {
    if (!this.#sources.has(name) && this.#sources.size >= MAX_DATASETS) {
      throw new ToolError(`At most ${MAX_DATASETS} datasets can be loaded; load this one under an existing name`)
    }
    const file = await this.#insideRoot(path)
    let inventory: Inventory
    try {
      inventory = await loadInventory(file)
    } catch (error) {
      if (error instanceof DatasetError) throw new ToolError(error.message)
      throw error
    }
    this.#sources.set(name, file)
    this.#inventories.set(name, Promise.resolve(inventory))
    return { name, inventory }
  }

  hasOntology (inventory: Inventory): boolean {
    return this.#ontologies.has(inventory)
  }

  /** The ontology of an inventory, built the first time. */
  ontology (inventory: Inventory): { ontology: Ontology, built: boolean } {
    const known = this.#ontologies.get(inventory)
    if (known !== undefined) return { ontology: known, built: false }
    const ontology = buildOntology(inventory)
    this.#ontologies.set(inventory, ontology)
    return { ontology, built: true }
  }

  /** What is loaded, as `workspace_status` and cloudg://workspace show it. File names only: a path would tell about the machine. */
  async describe () {
    const datasets = await Promise.all([...this.#sources].map(async ([name, file]) => {
      const inventory = await this.#read(name)
      return {
        name,
        kind: inventory.kind,
        file: basename(file),
        organization: inventory.organization,
        assets: inventory.assets.length,
        relations: inventory.relations.length,
        findings: inventory.findings.length,
        ontology_built: this.hasOntology(inventory)
      }
    }))
    return { default_dataset: this.names[0]!, datasets }
  }

  #read (name: string): Promise<Inventory> {
    const known = this.#inventories.get(name)
    if (known !== undefined) return known
    const reading = loadInventory(this.#sources.get(name)!)
    this.#inventories.set(name, reading)
    reading.catch(() => { // a later call may find the file repaired
      if (this.#inventories.get(name) === reading) this.#inventories.delete(name)
    })
    return reading
  }

  // safeJoin judges the text of the path; a link inside the root may still lead out of it, so the real path is judged as well.
  async #insideRoot (path: string): Promise<string> {
    let file: string
    try {
      file = safeJoin(this.#root, path)
    } catch {
      throw new ToolError('The path must be relative and stay inside the dataset directory')
    }
    const missing = new ToolError(`Dataset file ${basename(path)}: no such file`)
    const [root, real] = await Promise.all([realpath(resolve(this.#root)), realpath(file)]).catch(() => { throw missing })
    const inside = relative(root, real)
    if (inside === '' || inside === '..' || inside.startsWith(`..${sep}`)) throw missing
    const { size } = await stat(real)
    if (size > MAX_FILE_BYTES) throw new ToolError(`Dataset file ${basename(path)}: larger than ${MAX_FILE_BYTES / 1024 / 1024} MiB`)
    return real
  }
}
