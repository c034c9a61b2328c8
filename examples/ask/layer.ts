// A shelf of documents, and three ways to ask the user before something happens to them.
import { z } from 'zod'
import { createLayer, elicit, inputRequired, ToolError } from '../../lib/layer/index.js'
import type { AppLayer } from '../../lib/layer/index.js'

const DOCUMENTS = ['drafts/ideas.md', 'drafts/letter.md', 'drafts/poem.md', 'reports/2024.pdf', 'reports/2025.pdf']

/** Paths of documents, with a label for those that have one. */
export type Shelf = Map<string, string | undefined>

export function createShelf (): Shelf {
  return new Map(DOCUMENTS.map((path) => [path, undefined]))
}

export function createShelfLayer (shelf: Shelf = createShelf()): AppLayer {
  const layer = createLayer({ name: 'shelf', version: '1.0.0' })
  const inside = (folder: string): string[] => [...shelf.keys()].filter((path) => path.startsWith(`${folder}/`))

  layer.tool('list', { description: 'Lists all documents', annotations: { readOnlyHint: true } }, () =>
    ({ documents: Array.from(shelf, ([path, label]) => ({ path, ...(label !== undefined && { label }) })) }))

  // Asks where it is needed. In 2026 everything above the question runs twice.
  layer.tool('delete_folder', {
    description: 'Deletes a folder and all that is in it',
    input: { folder: z.string() }
  }, async ({ folder }, ctx) => {
    const paths = inside(folder)
    if (paths.length === 0) throw new ToolError(`There is no folder ${folder}`)
    const answer = await ctx.elicit(`Delete ${paths.length} documents in ${folder}?`, { sure: z.boolean().describe('Yes, delete them') })
    if (answer.action !== 'accept' || !answer.content.sure) return { deleted: 0 }
    for (const path of paths) shelf.delete(path)
    return { deleted: paths.length }
  })

  // Says beforehand what it will ask: the handler runs once, with the answers.
  layer.tool('delete_document', {
    description: 'Deletes one document',
    input: { path: z.string() },
    inputs: { confirm: ({ path }) => elicit(`Delete ${path}?`, { sure: z.boolean() }) }
  }, ({ path }, _ctx, { confirm }) => {
    if (confirm.action !== 'accept' || !confirm.content.sure) return { deleted: false }
    return { deleted: shelf.delete(path) }
  })

  // States its own rounds: one document after the other, with what has been answered so far as its state.
  layer.tool('label_folder', {
    description: 'Asks for a label for every document of a folder',
    input: { folder: z.string() }
  }, ({ folder }, ctx) => {
    const labels = { ...ctx.requestState as Record<string, string> | undefined }
    const question = (path: string) => elicit(`A label for ${path}?`, { label: z.string().min(1) })
    for (const path of inside(folder)) {
      if (labels[path] !== undefined) continue
      const answer = question(path).read(ctx.inputResponses[path])
      if (answer === undefined) return inputRequired({ requests: { [path]: question(path) }, state: labels })
      if (answer.action !== 'accept') return { labelled: 0 }
      labels[path] = answer.content.label
    }
    for (const [path, label] of Object.entries(labels)) shelf.set(path, label)
    return { labelled: Object.keys(labels).length }
  })

  return layer
}
