// The command on stdio: a process of its own, started as a client starts it, from a shell or by another program.

import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { COMMAND, Peer, serve } from './peer.js'

const run = promisify(execFile)
const INVENTORY = fileURLToPath(new URL('../../../examples/inventory/inventory-map.json', import.meta.url))

t.test('a raw session from a shell', async (t) => {
  const script = `printf '%s\\n' \\
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"sh","version":"0"}}}' \\
    '{"jsonrpc":"2.0","method":"notifications/initialized"}' \\
    '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"dataset_summary","arguments":{}}}' \\
  | "$0" "$1" serve --flavor native --dataset prod="$2"`
  const { stdout, stderr } = await run('/bin/sh', ['-c', script, process.execPath, COMMAND, INVENTORY])
  t.equal(stderr, '')
  const [first, second, ...more] = stdout.split('\n')
  t.same(more, [''])
  t.ok(first!.startsWith('{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},' +
    '"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{}},"serverInfo":{"name":"cloudg",'), first)
  t.ok(second!.startsWith('{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"{\\n  \\"dataset\\": \\"prod\\",\\n  \\"kind\\": \\"inventory\\",'), second)
})

t.test('input and output may be files', async (t) => {
  const script = 'd=$(mktemp -d); echo \'{"jsonrpc":"2.0","id":1,"method":"ping"}\' > "$d/in"; "$0" "$1" serve < "$d/in" > "$d/out"; echo "exit $?"; cat "$d/out"; rm -r "$d"'
  const { stdout } = await run('/bin/sh', ['-c', script, process.execPath, COMMAND])
  t.equal(stdout, 'exit 0\n{"jsonrpc":"2.0","id":1,"result":{}}\n')
})

t.test('IO-01 noise, a bad line and a slow call leave nothing but messages on standard output', async (t) => {
  const peer = serve(t)
  await peer.initialize()
  peer.send('garbage', '', { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'noisy', arguments: {} } },
    { jsonrpc: '2.0', id: 3, method: 'tools/call', params: { name: 'slow', arguments: { steps: 2 }, _meta: { progressToken: 7 } } },
    { jsonrpc: '2.0', id: 4, method: 'ping' })
  await Promise.all([peer.reply(2), peer.reply(3), peer.reply(4)])
  peer.child.stdin!.end()
  t.same(await peer.exited, { code: 0, signal: null })
  t.same(peer.noise, [])
  t.same(peer.messages.filter(({ error }) => error !== undefined), [{ jsonrpc: '2.0', id: null, error: { code: -32700, message: 'Parse error' } }])
  t.same(peer.messages.filter(({ method }) => method === 'notifications/progress').map(({ params }) => [params.progressToken, params.progress]), [[7, 1], [7, 2]])
  t.match(peer.stderr, /noise: console\.log/)
})

t.test('what one server does with call after call', async (t) => {
  const peer = serve(t, ['--auth-token', 's3cret:analyst:alice', '--page-size', '2'])
  await peer.initialize()

  await t.test('STD-01 what handlers, libraries and inherited children write goes to standard error', async (t) => {
    await peer.call(1, 'noisy')
    // Its `cat` finds standard input empty, and descriptor 3 is not there for it.
    t.equal((await peer.call(2, 'child')).result.content[0].text, 'exit 0')
    for (const noise of ['console.log', 'console.table', 'process.stdout.write', 'fs.writeSync', 'fs.writeSync of the default export', 'child', 'raw']) {
      await peer.until(() => peer.stderr.includes(noise))
    }
    t.notMatch(peer.stderr, /noise: three/)
    t.same(peer.noise, [])
    t.equal(peer.lines.length, 3)
  })

  await t.test('the caller is the local user, whatever tokens there are', async (t) => {
    t.same((await peer.call(3, 'whoami')).result.structuredContent, { id: 'local', roles: ['default', 'local'], transport: 'stdio' })
    t.equal((await peer.request(4, 'tools/list')).result.tools.length, 2)
  })

  await t.test('no Fastify is loaded, and children find no trace of how the server was started', async (t) => {
    t.match((await peer.call(5, 'process')).result.structuredContent, { fastify: false, marked: [] })
  })

  await t.test('a tool that floods standard output for a second leaves the protocol intact', async (t) => {
    const before = peer.messages.length
    const flood = peer.call('flood', 'flood', { ms: 1000 })
    let pings = 0
    while (!peer.messages.some(({ id }) => id === 'flood')) await peer.request(`ping ${pings++}`, 'ping')
    t.ok(Number((await flood).result.content[0].text) > 1000)
    t.ok(pings > 10, `${pings} pings were answered meanwhile`)
    t.same(peer.noise, [])
    t.equal(peer.messages.length, before + pings + 1)
  })
})

t.test('STD-05 a line of 20 MiB is served, and so is what comes after garbage', async (t) => {
  const peer = serve(t)
  await peer.initialize()
  const text = 'x'.repeat(20 * 1024 * 1024)
  peer.send('{"jsonrpc":"2.0","id":"half', { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'echo', arguments: { text, times: 0 } } })
  t.notOk((await peer.reply(1)).result.isError)
  t.equal(peer.messages[1]!.error.code, -32700)
})

t.test('10,000 pipelined requests are all answered once, in bounded memory', async (t) => {
  const peer = serve(t)
  await peer.initialize()
  const requests = 10_000
  const text = 'y'.repeat(1024)
  for (let id = 1; id <= requests; id++) peer.send({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'echo', arguments: { text, times: 2 } } })
  const replied = new Set<number>()
  await peer.until(() => peer.messages.length >= requests + 1)
  for (const { id, result } of peer.messages.slice(1)) {
    if (result.content[0].text.length === 2 * text.length) replied.add(id)
  }
  t.equal(replied.size, requests)
  t.equal(peer.messages.length, requests + 1)
  const { maxRss } = (await peer.call('after', 'process')).result.structuredContent
  t.ok(maxRss < 400 * 1024 * 1024, `${Math.round(maxRss / 1024 / 1024)} MiB at most`)
})

t.test('a layer that cannot be loaded is one clear line and an exit code', async (t) => {
  const peer = new Peer(t, process.execPath, [COMMAND, 'serve', './nowhere.js'])
  t.same(await peer.exited, { code: 2, signal: null })
  await peer.until(() => false)
  t.equal(peer.stderr, 'cloudg-mcp: ./nowhere.js: no such file or package\n')
  t.same(peer.lines, [])
})

t.test('a terminal is told what the command is for', { skip: process.platform !== 'linux' && 'needs script(1)' }, async (t) => {
  const peer = new Peer(t, 'script', ['-qec', `'${process.execPath}' '${COMMAND}' serve`, '/dev/null'])
  await peer.until(() => peer.lines.some((line) => line.includes('a client starts this command')))
  peer.child.stdin!.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
  t.match(await peer.message(({ result }) => result !== undefined), { id: 1, result: {} })
  peer.child.kill()
  await once(peer.child, 'exit')
})
