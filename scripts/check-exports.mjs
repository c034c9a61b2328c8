// Every subpath of package.json `exports` is a built file that loads, and all but the plugin itself load without Fastify.
// Run it after a build.
import { execFile } from 'node:child_process'
import { access, readFile } from 'node:fs/promises'
import { promisify } from 'node:util'

const run = promisify(execFile)
const root = new URL('../', import.meta.url)
const { name, exports } = JSON.parse(await readFile(new URL('package.json', root), 'utf8'))
const knowFastify = ['.']

// Fastify and its plugins are CommonJS: what has been loaded of them is in the module cache.
const probe = `
  import { createRequire } from 'node:module'
  await import(process.argv[1])
  const { cache } = createRequire(import.meta.url)
  const found = Object.keys(cache).map((file) => /node_modules[\\\\/](fastify|fastify-plugin|@fastify[\\\\/](?!error[\\\\/])[^\\\\/]+)[\\\\/]/.exec(file)?.[1])
  console.log(JSON.stringify([...new Set(found.filter(Boolean))]))
`
const faults = []

if (!(await frameworkBehind('fastify')).includes('fastify')) faults.push('the probe does not notice Fastify: the rest of this check proves nothing')
await Promise.all(Object.entries(exports).map(([subpath, target]) => check(subpath, target)))

for (const fault of faults) console.error(fault)
console.log(faults.length === 0 ? `${Object.keys(exports).length} subpaths resolve and load` : `${faults.length} faults in package.json exports`)
process.exitCode = faults.length === 0 ? 0 : 1

async function check (subpath, target) {
  const files = typeof target === 'string' ? [target] : Object.values(target)
  const missing = []
  for (const file of files) await access(new URL(file, root)).catch(() => missing.push(file))
  for (const file of missing) faults.push(`${subpath}: ${file} is not built`)
  if (missing.length > 0 || subpath.endsWith('.json')) return

  try {
    const loaded = await frameworkBehind(name + subpath.slice(1))
    if (loaded.length > 0 && !knowFastify.includes(subpath)) faults.push(`${subpath}: loads ${loaded.join(', ')}`)
  } catch (error) {
    faults.push(`${subpath}: does not load\n${error.stderr ?? error}`)
  }
}

async function frameworkBehind (specifier) {
  const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', probe, specifier], { cwd: root, timeout: 20_000 })
  return JSON.parse(stdout)
}
