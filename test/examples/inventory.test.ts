// The demo layer: its data, what every tool, resource and prompt answers, and the server that `npm start` runs.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { EventSourceParserStream } from 'eventsource-parser/stream'
import t, { type Test } from 'tap'
import { bundledInventoryPath, loadInventory, parseInventory } from '../../examples/inventory/dataset.js'
import { formatInventory, generateInventory } from '../../examples/inventory/generate.js'
import { createInventoryLayer, type InventoryOptions } from '../../examples/inventory/layer.js'
import { buildOntology } from '../../examples/inventory/ontology.js'
import { splitTokenSpecs } from '../../examples/inventory/token-specs.js'
import { localPort, type CallPort } from '../../lib/layer/context.js'
import type { ChangeEvent } from '../../lib/layer/contract.js'

function inventoryLayer (options?: InventoryOptions) {
  const layer = createInventoryLayer(options)
  const port = localPort()
  return {
    layer,
    async ok (tool: string, args: Record<string, unknown> = {}, as: CallPort = port): Promise<any> {
      const result = await layer.callTool(tool, args, as)
      if (result.isError) throw new Error(textOf(result))
      return result.structuredContent
    },
    async refused (tool: string, args: Record<string, unknown>): Promise<string> {
      return await layer.callTool(tool, args, port).then((result) => result.isError ? textOf(result) : 'no refusal', (error: Error) => error.message)
    },
    async read (uri: string): Promise<any> {
      const [content] = await layer.readResource(uri, port)
      return JSON.parse(content!.text!)
    },
    complete: (ref: Parameters<typeof layer.complete>[0], name: string, value: string) => layer.complete(ref, { name, value }, {}, port),
    prompt: (name: string, args: Record<string, unknown>) => layer.getPrompt(name, args, port)
  }
}

function textOf (result: { content: any[] }): string {
  return result.content[0].text
}

async function temporaryDirectory (t: Test): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'inventory-'))
  t.teardown(() => rm(directory, { recursive: true, force: true }))
  return directory
}

t.test('the bundled inventory has the documented size and is what the generator writes', async (t) => {
  const inventory = await loadInventory(bundledInventoryPath())
  t.equal(inventory.assets.length, 44)
  t.equal(inventory.relations.length, 56)
  t.equal(inventory.findings.length, 12)
  const perProvider = (provider: string) => inventory.assets.filter((asset) => asset.provider === provider).length
  t.same(['AWS', 'AZURE', 'GCP'].map(perProvider), [36, 5, 3])
  t.equal(new Set(inventory.assets.map((asset) => asset.native_id)).size, 44, 'native ids are unique')
  t.equal(new Set(inventory.relations.map((relation) => JSON.stringify(relation))).size, 56, 'relations are unique')
  t.equal(await readFile(bundledInventoryPath(), 'utf8'), formatInventory(generateInventory()))
  for (const { provider, native_id: nativeId } of inventory.assets) {
    t.match(nativeId, { AWS: /^arn:aws:/, AZURE: /^\/subscriptions\//, GCP: /^https:\/\/[a-z.]*googleapis\.com\// }[provider])
  }
})

t.test('the ontology is deterministic and has more than a thousand triples', async (t) => {
  const first = buildOntology(generateInventory())
  t.equal(first.triples.length, 1185)
  t.same(buildOntology(await loadInventory(bundledInventoryPath())).triples, first.triples)
  const has = (...triple: string[]) => first.triples.some((known) => known.join(' ') === triple.join(' '))
  t.ok(has('asset:alb-shop', 'protected_by', 'asset:waf-shop'), 'relations have inverses')
  t.ok(has('asset:ec2-orders-app-1', 'reachable_from', 'zone:internet'), 'reachability follows routes')
  t.notOk(has('asset:rds-orders', 'reachable_from', 'zone:internet'))
})

t.test('a file that is not an inventory is refused with the place of the problem', async (t) => {
  const directory = await temporaryDirectory(t)
  const broken = join(directory, 'broken.json')
  await writeFile(broken, '{"kind":')
  await t.rejects(loadInventory(broken), { name: 'DatasetError', message: 'Dataset file broken.json: not valid JSON' })
  await t.rejects(loadInventory(join(directory, 'none.json')), { message: 'Dataset file none.json: no such file' })
  await t.rejects(loadInventory(directory), { message: /: it is a directory$/ })

  const data = generateInventory()
  t.throws(() => parseInventory({ ...data, relations: [{ type: 'contains', from: 'vpc-shop', to: 'nothing' }] }),
    { message: 'Dataset file data: not an inventory: relations[0].to: Unknown asset "nothing"' })
  t.throws(() => parseInventory({ ...data, findings: [{ ...data.findings[0], asset: 'nothing' }] }), { message: /findings\[0\]\.asset: Unknown asset "nothing"/ })
  t.throws(() => parseInventory({ ...data, assets: [data.assets[0], data.assets[0]], relations: [], findings: [] }), { message: /assets\[1\]\.id: Duplicate asset id "vpc-shop"/ })
  t.throws(() => parseInventory({ ...data, assets: data.assets.map((asset) => ({ ...asset, account: 'x' })) }), { message: /assets\[0\]\.account: Unknown account "x".*and 39 more$/ })
  t.throws(() => parseInventory([]), { message: /<root>/ })
})

t.test('a dataset that cannot be read stops the start', async (t) => {
  await t.rejects(inventoryLayer({ datasets: { prod: 'none.json' } }).layer.start(), { message: 'Dataset file none.json: no such file' })
  t.throws(() => createInventoryLayer({ datasets: {} }), { message: /datasets must name at least one file/ })
  const { layer } = inventoryLayer()
  await layer.start()
  await layer.stop()
})

t.test('count_assets groups by provider, type, region and account', async (t) => {
  const { ok, refused } = inventoryLayer()
  const byProvider = await ok('count_assets', { group_by: 'provider' })
  t.equal(JSON.stringify(byProvider),
    '{"dataset":"prod","group_by":"provider","total":44,"group_count":3,"groups":{"AWS":36,"AZURE":5,"GCP":3},"truncated":false}')
  t.same((await ok('count_assets', { group_by: 'account' })).groups, { 'shop-prod': 31, 'shop-shared': 5, backoffice: 5, analytics: 3 })
  t.equal((await ok('count_assets', { group_by: 'region' })).groups['eu-west-1'], 27)
  const types = await ok('count_assets', { group_by: 'type', limit: 2 })
  t.same({ groups: types.groups, truncated: types.truncated }, { groups: { iam_role: 5, s3_bucket: 5 }, truncated: true })
  t.match(await refused('count_assets', { group_by: 'colour' }), /^Invalid arguments: group_by/)
  t.equal(await refused('count_assets', { group_by: 'type', dataset: 'nope' }), 'Unknown dataset "nope". Loaded: prod')
})

t.test('find_assets filters, picks fields and pages', async (t) => {
  const { ok, refused } = inventoryLayer()
  t.same((await ok('find_assets', { exposed: true, provider: 'AWS', fields: ['id'] })).assets,
    [{ id: 'alb-shop' }, { id: 'ec2-bastion' }, { id: 's3-assets' }, { id: 's3-exports' }])
  t.equal((await ok('find_assets', { name: 'CHECKOUT' })).total, 3)
  t.equal((await ok('find_assets', { account: 'backoffice' })).total, 5)
  t.equal((await ok('find_assets', { account: '111122223333', region: 'global' })).total, 4)
  t.same(await ok('find_assets', { type: 'none' }), { dataset: 'prod', total: 0, count: 0, assets: [] })
  t.same(Object.keys((await ok('find_assets', { limit: 1 })).assets[0]), ['id', 'native_id', 'name', 'provider', 'type', 'account', 'region', 'exposed'])

  const ids: string[] = []
  let cursor: string | undefined
  let pages = 0
  do {
    const page: any = await ok('find_assets', { provider: 'AWS', limit: 10, fields: ['id'], ...(cursor && { cursor }) })
    ids.push(...page.assets.map((asset: { id: string }) => asset.id))
    t.equal(page.count, page.assets.length)
    cursor = page.nextCursor
    pages++
  } while (cursor !== undefined)
  t.equal(pages, 4)
  t.equal(new Set(ids).size, 36)

  const { nextCursor } = await ok('find_assets', { provider: 'AWS', limit: 10 })
  t.match(await refused('find_assets', { provider: 'GCP', limit: 10, cursor: nextCursor }), /^Invalid cursor/)
  t.match(await refused('find_assets', { cursor: 'garbage' }), /^Invalid cursor/)
  t.match(await refused('find_assets', { colour: 'red' }), /^Invalid arguments/)
})

t.test('get_asset takes an id, a native id or a name', async (t) => {
  const { ok, refused } = inventoryLayer()
  const { assets: [found] } = await ok('find_assets', { name: 'order-exports' })
  const byArn = await ok('get_asset', { ref: found.native_id })
  t.equal(byArn.asset.id, 's3-exports')
  t.equal(byArn.account.name, 'shop-prod')
  t.same(byArn.findings.map((finding: { id: string }) => finding.id), ['F-001'])
  t.same(byArn.relations, [
    { type: 'reads_from', from: 'gce-etl', to: 's3-exports' },
    { type: 'writes_to', from: 'lambda-invoice-render', to: 's3-exports' }
  ])
  t.same(await ok('get_asset', { ref: 's3-exports' }), byArn)
  t.same(await ok('get_asset', { ref: 'northwind-order-exports' }), byArn)
  t.equal(await refused('get_asset', { ref: 'orders' }), 'Several assets are named "orders": use one of the ids rds-orders, sqs-orders')
  t.equal(await refused('get_asset', { ref: 'nope' }), 'No asset with the id, native id or name "nope"')
})

t.test('dataset_summary and workspace_status tell what is loaded', async (t) => {
  const { ok } = inventoryLayer()
  const summary = await ok('dataset_summary')
  t.match(JSON.stringify(summary, null, 2), /^\{\n {2}"dataset": "prod",\n {2}"kind": "inventory",\n/)
  t.match(summary, { assets: 44, relations: 56, findings: 12, exposed_assets: 5, findings_by_severity: { critical: 2, high: 4, medium: 4, low: 2 } })
  t.equal(summary.accounts.length, 4)
  t.same(await ok('workspace_status'), {
    default_dataset: 'prod',
    datasets: [{ name: 'prod', kind: 'inventory', file: 'inventory-map.json', organization: 'Northwind Shop', assets: 44, relations: 56, findings: 12, ontology_built: false }]
  })
})

t.test('list_findings filters and puts the worst first', async (t) => {
  const { ok } = inventoryLayer()
  const all = await ok('list_findings')
  t.equal(all.total, 12)
  t.same(Object.keys(all.by_severity), ['critical', 'high', 'medium', 'low'])
  t.equal(all.findings[0].severity, 'critical')
  t.same((await ok('list_findings', { severity: 'high', provider: 'GCP' })).findings.map((finding: { asset: string }) => finding.asset), ['sa-etl'])
  t.equal((await ok('list_findings', { severity: 'low', provider: 'AZURE' })).total, 0)
})

t.test('ontology_stats builds once, and reports progress when it does', async (t) => {
  const { ok } = inventoryLayer()
  const progress: unknown[][] = []
  const port: CallPort = { ...localPort(), progress: async (...args) => { progress.push(args) } }
  const first = await ok('ontology_stats', {}, port)
  t.match(JSON.stringify(first), /^\{"dataset":"prod","built_now":true,"total_triples":1185,/)
  t.same(progress, [[0, 1, 'building ontology for 44 assets'], [1, 1, 'ontology built']])
  t.same(await ok('ontology_stats', {}, port), { ...first, built_now: false })
  t.equal(progress.length, 2)
  t.equal((await ok('workspace_status')).datasets[0].ontology_built, true)
})

t.test('load_dataset adds or replaces a dataset and announces it', async (t) => {
  const root = await temporaryDirectory(t)
  await writeFile(join(root, 'small.json'), JSON.stringify({ ...generateInventory(), findings: [] }))
  const { layer, ok } = inventoryLayer({ root })
  const events: ChangeEvent[] = []
  layer.onChange((event) => events.push(event))
  t.same(await ok('load_dataset', { name: 'small', path: 'small.json' }), { dataset: 'small', kind: 'inventory', assets: 44, relations: 56, findings: 0 })
  t.same(events, [{ kind: 'resources' }, { kind: 'resource', uri: 'cloudg://workspace' }])
  t.same((await ok('workspace_status')).datasets.map((dataset: { name: string }) => dataset.name), ['prod', 'small'])
  t.equal((await ok('list_findings', { dataset: 'small' })).total, 0)
  t.equal((await ok('list_findings')).total, 12, 'the default dataset stays')
  t.equal((await ok('ontology_stats')).built_now, true)
  await ok('load_dataset', { name: 'prod', path: './small.json' })
  t.equal((await ok('list_findings')).total, 0)
  t.equal((await ok('ontology_stats')).built_now, true, 'a replaced dataset gets a new ontology')
})

t.test('load_dataset stays inside its directory, and a refusal changes nothing', async (t) => {
  const outside = await temporaryDirectory(t)
  const root = await temporaryDirectory(t)
  await writeFile(join(outside, 'secret.json'), await readFile(bundledInventoryPath()))
  await writeFile(join(root, 'broken.json'), '{}')
  await symlink(join(outside, 'secret.json'), join(root, 'link.json'))
  const { layer, ok, refused } = inventoryLayer({ root })
  const events: ChangeEvent[] = []
  layer.onChange((event) => events.push(event))
  const load = (path: string) => refused('load_dataset', { name: 'other', path })
  const stay = 'The path must be relative and stay inside the dataset directory'
  t.equal(await load(`../${outside.split('/').at(-1)}/secret.json`), stay)
  t.equal(await load(join(outside, 'secret.json')), stay)
  t.equal(await load('a\0b'), stay)
  t.equal(await load('link.json'), 'Dataset file link.json: no such file')
  t.equal(await load('none.json'), 'Dataset file none.json: no such file')
  t.match(await load('.'), /no such file$/)
  t.match(await load('broken.json'), /^Dataset file broken\.json: not an inventory: kind: /)
  t.match(await refused('load_dataset', { name: 'a b', path: 'broken.json' }), /^Invalid arguments: name/)
  t.same(events, [])
  t.equal((await ok('workspace_status')).datasets.length, 1)
})

t.test('no more than sixteen datasets are held', async (t) => {
  const { ok, refused } = inventoryLayer()
  for (let n = 1; n < 16; n++) await ok('load_dataset', { name: `copy-${n}`, path: 'inventory-map.json' })
  t.match(await refused('load_dataset', { name: 'copy-16', path: 'inventory-map.json' }), /^At most 16 datasets/)
  await ok('load_dataset', { name: 'copy-15', path: 'inventory-map.json' })
})

t.test('resources and templates read the default dataset', async (t) => {
  const { read, layer } = inventoryLayer()
  t.equal((await read('cloudg://workspace')).default_dataset, 'prod')
  const catalog = await read('cloudg://catalog')
  t.same(catalog.providers.GCP, { compute_instance: 1, service_account: 1, storage_bucket: 1 })
  t.equal(Object.values<number>(catalog.relations).reduce((sum, count) => sum + count), 56)
  t.equal((await read('cloudg://asset/vm-ledger')).asset.name, 'ledger-01')
  const account = await read('cloudg://account/analytics/assets')
  t.same({ id: account.account.id, total: account.total }, { id: 'northwind-analytics', total: 3 })
  t.equal((await read('cloudg://account/111122223333/assets')).total, 31)
  await t.rejects(layer.readResource('cloudg://asset/nope', localPort()), { name: 'NotFoundError', message: 'No asset with the id "nope"' })
  await t.rejects(layer.readResource('cloudg://account/nope/assets', localPort()), { name: 'NotFoundError' })
})

t.test('template variables and prompt arguments complete', async (t) => {
  const { complete } = inventoryLayer()
  const asset = { type: 'ref/resource', uri: 'cloudg://asset/{id}' } as const
  t.same(await complete(asset, 'id', 'lambda-'), { values: ['lambda-order-events', 'lambda-image-resize', 'lambda-invoice-render'], total: 3, hasMore: false })
  t.equal((await complete(asset, 'id', '')).total, 44)
  t.same((await complete({ type: 'ref/resource', uri: 'cloudg://account/{account}/assets' }, 'account', 'shop')).values, ['shop-prod', 'shop-shared'])
  t.same((await complete({ type: 'ref/prompt', name: 'triage_exposure' }, 'severity', '')).values, ['critical', 'high', 'medium', 'low'])
  t.same((await complete({ type: 'ref/prompt', name: 'triage_exposure' }, 'severity', 'h')).values, ['high'])
  t.same((await complete({ type: 'ref/prompt', name: 'explain_asset' }, 'id', 'vm')).values, ['vm-ledger'])
})

t.test('prompts carry the facts', async (t) => {
  const { prompt } = inventoryLayer()
  const critical = textOf({ content: [(await prompt('triage_exposure', { severity: 'critical' })).messages[0]!.content] })
  t.match(critical, /^- s3-exports .*critical, Order exports are readable by anyone$/m)
  t.match(critical, /^- vm-ledger /m)
  t.notMatch(critical, /ec2-bastion/)
  t.match(textOf({ content: [(await prompt('triage_exposure', { severity: 'high' })).messages[0]!.content] }), /ec2-bastion/)
  const explained = await prompt('explain_asset', { id: 'vm-ledger' })
  t.match(explained.messages, [
    { role: 'user', content: { type: 'text', text: /^Explain the asset vm-ledger/ } },
    { role: 'user', content: { type: 'resource', resource: { uri: 'cloudg://asset/vm-ledger', mimeType: 'application/json', text: /"F-002"/ } } }
  ])
  await t.rejects(prompt('triage_exposure', { severity: 'odd' }), { message: /^Invalid arguments: severity/ })
  await t.rejects(prompt('explain_asset', { id: 'nope' }), { name: 'NotFoundError' })
  await t.rejects(prompt('explain_asset', {}), { message: 'Missing required prompt arguments: id' })
})

t.test('token specs are told apart', async (t) => {
  t.same(splitTokenSpecs(''), [])
  t.same(splitTokenSpecs('s3cret'), ['s3cret'])
  t.same(splitTokenSpecs('a,b, c'), ['a', 'b', 'c'])
  t.same(splitTokenSpecs('s3cret:analyst,admin:alice'), ['s3cret:analyst,admin:alice'])
  t.same(splitTokenSpecs('s3cret:analyst,admin'), ['s3cret:analyst,admin'])
  t.same(splitTokenSpecs('a:r1,r2:alice,b:r3:bob,c::carol,d'), ['a:r1,r2:alice', 'b:r3:bob', 'c::carol', 'd'])
  t.same(splitTokenSpecs('a:r1,r2; b:r3\nc'), ['a:r1,r2', 'b:r3', 'c'])
  t.same(splitTokenSpecs('env:VAR:analyst:ci,b'), ['env:VAR:analyst:ci', 'b'])
  t.same(splitTokenSpecs('abc:def::'), ['abc:def::'])
  t.throws(() => splitTokenSpecs('abc:def::,other'), { message: /separate them with ";"$/ })
})

// ---- the server of `npm start`

const server = fileURLToPath(new URL('../../examples/inventory/server.js', import.meta.url))

async function startServer (t: Test, env: Record<string, string> = {}) {
  const child = spawn(process.execPath, [server], { env: { ...process.env, PORT: '0', LOG_LEVEL: 'silent', ...env }, stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => { child.kill('SIGKILL') })
  const lines: string[] = []
  const output = createInterface({ input: child.stdout })
  output.on('line', (line) => lines.push(line))
  await Promise.race([once(output, 'line'), once(child, 'exit').then(() => { throw new Error('the server has ended') })])
  return { child, lines, url: /http:\S+/.exec(lines[0]!)![0] }
}

const META = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} }

function post (url: string, method: string, params: Record<string, unknown>, { id = 1 as number | string, token = '', accept = 'application/json, text/event-stream' } = {}) {
  return fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept,
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      ...(typeof params['name'] === 'string' && { 'mcp-name': params['name'] }),
      ...(token !== '' && { authorization: `Bearer ${token}` })
    },
    body: JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: { ...META, ...params['_meta'] as object } } })
  })
}

async function * messages (response: Response): AsyncGenerator<any> {
  for await (const { data } of response.body!.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream())) yield JSON.parse(data)
}

t.test('the server announces its URL, answers and closes on SIGTERM', async (t) => {
  const { child, lines, url } = await startServer(t)
  t.match(lines[0], /^cloudg: add http:\/\/127\.0\.0\.1:\d+\/mcp to an MCP client as a Streamable HTTP server$/)

  const discovered: any = await (await post(url, 'server/discover', {}, { accept: 'application/json' })).json()
  const { version } = JSON.parse(await readFile(new URL('../../../package.json', import.meta.url), 'utf8'))
  t.same(discovered.result._meta['io.modelcontextprotocol/serverInfo'], { name: 'cloudg', version, title: 'cloudg' })
  t.match(discovered.result.instructions, /^cloudg exposes a multi-cloud inventory/)

  const counted: any = await (await post(url, 'tools/call', { name: 'count_assets', arguments: { group_by: 'provider' } }, { accept: 'application/json' })).json()
  t.same(counted.result.structuredContent.groups, { AWS: 36, AZURE: 5, GCP: 3 })

  const frames = []
  for await (const frame of messages(await post(url, 'tools/call', { name: 'ontology_stats', arguments: {}, _meta: { progressToken: 'tok-1' } }, { id: 11 }))) frames.push(frame)
  t.same(frames.slice(0, 2).map((frame) => frame.params), [
    { progressToken: 'tok-1', progress: 0, total: 1, message: 'building ontology for 44 assets' },
    { progressToken: 'tok-1', progress: 1, total: 1, message: 'ontology built' }
  ])
  t.equal(frames.length, 3)
  t.equal(frames[2].id, 11)
  t.match(textOf(frames[2].result), /^\{\n {2}"dataset": "prod",\n {2}"built_now": true,\n {2}"total_triples": 1185, *\n/)

  const exit = once(child, 'exit')
  child.kill('SIGTERM')
  t.same(await exit, [0, null])
})

t.test('a listener hears of a loaded dataset as a list change and an update of the workspace', async (t) => {
  const { child, url } = await startServer(t)
  const notifications = { resourcesListChanged: true, toolsListChanged: true, resourceSubscriptions: ['cloudg://workspace'] }
  const stream = messages(await post(url, 'subscriptions/listen', { notifications }, { id: 'listen-1' }))
  const next = async () => (await stream.next()).value
  t.match(await next(), { method: 'notifications/subscriptions/acknowledged' })
  const loaded: any = await (await post(url, 'tools/call', { name: 'load_dataset', arguments: { name: 'copy', path: 'inventory-map.json' } }, { accept: 'application/json' })).json()
  t.equal(loaded.result.isError, false)
  const _meta = { 'io.modelcontextprotocol/subscriptionId': 'listen-1' }
  t.same(await next(), { jsonrpc: '2.0', method: 'notifications/resources/list_changed', params: { _meta } })
  t.same(await next(), { jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri: 'cloudg://workspace', _meta } })

  // Closing ends the stream with its result: nothing came between.
  const exit = once(child, 'exit')
  child.kill('SIGINT')
  t.match(await next(), { id: 'listen-1', result: {} })
  t.same(await exit, [0, null])
})

t.test('tokens from the environment are asked for', async (t) => {
  const { lines, url } = await startServer(t, { CLOUDG_MCP_TOKENS: 's3cret:analyst,admin:alice;other' })
  t.match(lines[0], /with the header "Authorization: Bearer <token>"$/)
  const call = (token: string) => post(url, 'server/discover', {}, { accept: 'application/json', token })
  t.equal((await call('')).status, 401)
  t.equal((await call('nope')).status, 401)
  t.equal((await call('s3cret')).status, 200)
  t.equal((await call('other')).status, 200)
})

t.test('a bad environment is refused in one line', async (t) => {
  for (const [env, message] of [
    [{ PORT: 'http' }, /^cloudg: PORT: /],
    [{ LOG_LEVEL: 'loud' }, /^cloudg: LOG_LEVEL: /],
    [{ CLOUDG_MCP_TOKENS: 'a:b:c:d,s3cret' }, /^cloudg: CLOUDG_MCP_TOKENS: cannot tell/]
  ] as const) {
    const child = spawn(process.execPath, [server], { env: { ...process.env, PORT: '0', ...env }, stdio: ['ignore', 'ignore', 'pipe'] })
    let text = ''
    child.stderr.on('data', (chunk) => { text += chunk })
    const [code] = await once(child, 'close')
    t.equal(code, 1)
    t.match(text, message)
    t.notMatch(text, /s3cret/)
    t.equal(text.trim().split('\n').length, 1)
  }
})
