// Lets the official conformance suite start on Node 20: its bundle imports `globSync` from 'fs', which came with Node 22.
// The commands used here never call it, so a stand-in that throws is enough. Loaded with `node --import`.
import { register } from 'node:module'

const stand = `
import fs from 'node:fs'
export * from 'node:fs'
export default fs
export const globSync = fs.globSync ?? (() => { throw new Error('fs.globSync needs Node 22') })
`

const hooks = `
const stand = ${JSON.stringify(`data:text/javascript,${encodeURIComponent(stand)}`)}
export async function resolve (specifier, context, nextResolve) {
  const isFs = specifier === 'fs' || specifier === 'node:fs'
  if (isFs && context.parentURL?.endsWith('/conformance/dist/index.js')) return { url: stand, shortCircuit: true }
  return nextResolve(specifier, context)
}
`

register(`data:text/javascript,${encodeURIComponent(hooks)}`)
