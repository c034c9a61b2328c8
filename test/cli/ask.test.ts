// tools, resources, prompts, call, read, prompt, of a layer in the same process.

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { directory, INVENTORY, json, LAYER, run } from './command.js'

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
