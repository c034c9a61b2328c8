// Style is neostandard's. What is added here is the import direction of the house: one block of rules for each folder.
import neostandard, { resolveIgnoresFromGitignore } from 'neostandard'

// From the top. A place imports from the lower floors and from itself, never from above and never from beside it.
const floors = [
  ['plugin', 'cli', 'testing'],
  ['http', 'stdio', 'adapters'],
  ['auth', 'protocol'],
  ['backplane', 'layer'],
  ['principal', 'revisions', 'jsonrpc', 'errors', 'runtime'],
]
const neighbours = {
  cli: ['plugin'],
  testing: ['plugin'],
  principal: floors.at(-1),
  revisions: floors.at(-1),
  jsonrpc: floors.at(-1),
  errors: floors.at(-1),
  runtime: floors.at(-1),
}
const places = floors.flat()

// @fastify/error only makes error classes; it is not the framework.
const framework = String.raw`^(fastify|fastify-plugin|@fastify/(?!error$).+)(/.*)?$`
const web = '^(node:)?https?2?$'
const knowTheFramework = ['plugin', 'cli', 'testing', 'http', 'adapters']
const knowTheWeb = [...knowTheFramework, 'auth']
const transports = ['http', 'stdio']
const layerCalls = '/^(list|callTool|readResource|getPrompt|complete|viewOf)$/'

export default [
  ...neostandard({ ts: true, ignores: resolveIgnoresFromGitignore() }),
  {
    name: 'promises',
    rules: {
      // A promise that is let go on purpose says so with `void`.
      'no-void': ['error', { allowAsStatement: true }],
    },
  },
  ...places.map(direction),
  {
    name: 'direction/a-place-for-every-file',
    files: ['lib/**/*.ts'],
    ignores: places.flatMap(filesOf),
    rules: {
      'no-restricted-syntax': ['error', { selector: 'Program', message: 'This file stands on no floor: name its place in eslint.config.js.' }],
    },
  },
]

function filesOf (place) {
  return place === 'plugin' ? ['plugin.ts'] : [`lib/${place}.ts`, `lib/${place}/**/*.ts`]
}

function direction (place) {
  const floor = floors.findIndex((names) => names.includes(place))
  const closed = floors.slice(0, floor + 1).flat().filter((name) => name !== place && !neighbours[place]?.includes(name))
  const bans = [
    ...closed.map((name) => ({ regex: pathTo(place, name), message: `${place} may not import ${name}: imports point down.` })),
    { regex: String.raw`(^|/)\.\.?/(test|examples|bench|scripts)/`, message: 'What is shipped does not import tests, examples or benchmarks.' },
    { regex: '^cloudg-mcp(/|$)', message: 'Import the file: the package is only what was built last.' },
  ]
  if (!knowTheFramework.includes(place)) bans.push({ regex: framework, message: `${place} knows no Fastify.` })
  if (!knowTheWeb.includes(place)) bans.push({ regex: web, message: `${place} knows no HTTP.` })
  const syntax = bans.flatMap(({ regex, message }) => {
    const source = `/${regex.replaceAll('/', String.raw`\/`)}/`
    return [
      { selector: `ImportExpression[source.value=${source}]`, message },
      { selector: `TSImportType[source.value=${source}]`, message },
    ]
  })

  if (place === 'layer') {
    bans.push({ regex: pathTo(place, 'jsonrpc'), allowImportNames: ['isObject'], message: 'layer knows no JSON-RPC.' })
  }
  if (transports.includes(place)) {
    bans.push({ regex: pathTo(place, 'layer'), allowTypeImports: true, message: `${place} takes a layer and hands it on; it never reads a registry.` })
    for (const owner of ['object.name', 'object.property.name']) {
      syntax.push({
        selector: `CallExpression[callee.${owner}=/^layer$/][callee.property.name=${layerCalls}]`,
        message: `${place} never reads a registry: the protocol engine makes the calls of a layer.`,
      })
    }
  }
  return {
    name: `direction/${place}`,
    files: filesOf(place),
    rules: {
      'no-restricted-imports': ['error', { patterns: bans }],
      'no-restricted-syntax': ['error', ...syntax],
    },
  }
}

// How `name` is written in an import from `place`. Only files at the root of lib/ reach a folder without going up.
function pathTo (place, name) {
  if (name === 'plugin') return String.raw`(^|/)\.\./plugin\.js$`
  if (place === 'plugin') return String.raw`(^|/)\./lib/${name}(/|\.js$)`
  const up = floors.at(-1).includes(place) ? String.raw`\.\.?/` : String.raw`\.\./`
  return `(^|/)${up}(lib/)?${name}` + String.raw`(/|\.js$)`
}
