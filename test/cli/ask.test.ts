// tools, resources, prompts, call, read, prompt: of a layer in the same process, and of a running server.

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { directory, INVENTORY, LAYER, run, serve } from './command.js'

const json = async (args: string[]): Promise<any> => {
  const { code, stdout, stderr } = await run(args)
  if (code !== 0) throw new Error(stderr)
  return JSON.parse(stdout)
}

t.test('lists are a line for each entry', async (t) => {
  const tools = await run(['tools'])
  t.equal(tools.code, 0)
  t.equal(tools.stderr, '')
  t.equal(tools.stdout.trimEnd().split('\n').length, 8)
  t.match(tools.stdout, /^count_assets {6}Counts all assets of a dataset, grouped by provider, type, region or account\.$/m)
  const resources = await run(['resources'])
  t.match(resources.stdout, /^cloudg:\/\/workspace .*\n(.*\n)*cloudg:\/\/asset\/\{id\} /)
  t.match(await json(['tools', '--json']), [{ name: 'workspace_status', inputSchema: { type: 'object' } }])
})

t.test('a call prints what the tool returned', async (t) => {
  t.match(await json(['call', 'count_assets', '--args', '{"group_by":"provider"}']), { total: 44, groups: { AWS: 36, AZURE: 5, GCP: 3 } })
  t.match(await json(['call', 'count_assets', '--json', '--args', '{"group_by":"provider"}']), { content: [{ type: 'text' }], structuredContent: { total: 44 } })
  t.same(await run(['call', 'echo', '--module', LAYER, '--args', '{"text":"日本🎉"}']), { code: 0, stdout: '日本🎉\n', stderr: '' })
  t.same(await json(['call', 'whoami', '--module', LAYER]), { id: 'local', roles: ['default', 'local'], transport: 'memory' })
  const failed = await run(['call', 'count_assets', '--json', '--args', '{}'])
  t.equal(failed.code, 1)
  t.match(JSON.parse(failed.stdout), { isError: true })
})

t.test('what a handler prints is not the answer', async (t) => {
  const { stdout, stderr } = await run(['call', 'noisy', '--module', LAYER])
  t.equal(stdout, 'quiet\n')
  t.match(stderr, /noise: console\.log\n/)
})

t.test('resources and prompts', async (t) => {
  t.match(await json(['read', 'cloudg://workspace', '--dataset', `other=${INVENTORY}`]), { default_dataset: 'other' })
  t.match(await json(['read', 'cloudg://workspace', '--json']), { contents: [{ uri: 'cloudg://workspace', mimeType: 'application/json' }] })
  t.match(await json(['prompt', 'greet', '--module', LAYER, '--json', '--args', '{"name":"Ada"}']), { messages: [{ role: 'user', content: { text: 'Greet Ada' } }] })
})

t.test('the same of a running server', async (t) => {
  const server = await serve(t, ['--auth-token', 's3cret:analyst:alice'])
  const remote = ['--url', server.url, '--token', 's3cret']
  t.equal((await run(['tools', ...remote])).stdout, (await run(['tools'])).stdout)
  t.match((await run(['resources', ...remote])).stdout, /^cloudg:\/\/workspace .*\n(.*\n)*cloudg:\/\/asset\/\{id\} /)
  t.match((await run(['prompts', ...remote])).stdout, /^triage_exposure {2}/)
  t.match(await json(['call', 'count_assets', '--args', '{"group_by":"provider"}', ...remote]), { total: 44 })
  t.match(await json(['read', 'cloudg://workspace', ...remote]), { default_dataset: 'prod' })
  t.match((await run(['prompt', 'triage_exposure', '--args', '{"severity":"critical"}', ...remote])).stdout, /^user: These assets/)
  t.equal((await run(['tools', '--url', server.url, '--token', 'env:TEST_TOKEN'], { env: { ...process.env, TEST_TOKEN: 's3cret' } })).code, 0)

  const refused = await run(['tools', '--url', server.url])
  t.equal(refused.code, 1)
  t.match(refused.stderr, /^cloudg-mcp: http.*Unauthorized|401/)
  t.equal(refused.stderr.split('\n').length, 2)
  t.match(await run(['call', 'count_assets', '--args', '{"group_by":"colour"}', ...remote]), { code: 1, stderr: /^cloudg-mcp: Invalid arguments/ })
})

t.test('without the official client --url says what to install', async (t) => {
  const hooks = `export async function resolve (specifier, context, next) {
    if (specifier === '@modelcontextprotocol/client') throw Object.assign(new Error('not here'), { code: 'ERR_MODULE_NOT_FOUND' })
    return next(specifier, context)
  }`
  const register = `import { register } from 'node:module'; register(${JSON.stringify(`data:text/javascript,${encodeURIComponent(hooks)}`)})`
  t.same(await run(['tools', '--url', 'http://127.0.0.1:1/mcp'], { nodeArgs: ['--import', `data:text/javascript,${encodeURIComponent(register)}`] }),
    { code: 1, stdout: '', stderr: 'cloudg-mcp: --url needs the official MCP client: npm install @modelcontextprotocol/client\n' })
})

t.test('a module is a file, or a package as seen from the working directory', async (t) => {
  const path = await directory(t)
  const text = `import makeLayer from ${JSON.stringify(`file://${LAYER}`)}\n`
  await writeFile(join(path, 'made.mjs'), `${text}export default makeLayer()`)
  await writeFile(join(path, 'making.mjs'), `${text}export default async () => makeLayer()`)
  await mkdir(join(path, 'node_modules', 'my-layer'), { recursive: true })
  await writeFile(join(path, 'node_modules', 'my-layer', 'package.json'), '{"name":"my-layer","type":"module","exports":"./index.js"}')
  await writeFile(join(path, 'node_modules', 'my-layer', 'index.js'), `${text}export default makeLayer`)
  for (const module of ['made.mjs', './making.mjs', 'my-layer']) {
    const { code, stdout, stderr } = await run(['prompts', '--module', module], { cwd: path })
    t.same([code, stdout, stderr], [0, 'greet\n', ''], module)
  }
})
