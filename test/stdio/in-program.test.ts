// serveStdio in somebody's own program: what it covers there, and that it ends the program.

import { openSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { goneAfter, Peer } from './peer.js'

const STDIO = new URL('../../lib/stdio/index.js', import.meta.url).href
const LAYER = new URL('layer.js', import.meta.url).href

function program (body: string): string[] {
  return ['--input-type=module', '--eval', `
    import { serveStdio } from ${JSON.stringify(STDIO)}
    import makeLayer from ${JSON.stringify(LAYER)}
    const layer = makeLayer()
    ${body}`]
}

t.test('STD-01 process.stdout, console and fs writes to descriptor 1 go to standard error', async (t) => {
  const peer = new Peer(t, process.execPath, program(`
    import fs, { write, writeFileSync, appendFileSync, createWriteStream } from 'node:fs'
    import { promisify } from 'node:util'
    const { stdout } = process
    layer.tool('more', {}, async () => {
      await promisify(write)(1, 'noise: promisified\\n')
      await new Promise((resolve) => fs.write(1, Buffer.from('noise: callback\\n'), resolve))
      fs.writevSync(1, [Buffer.from('noise: '), Buffer.from('writev\\n')])
      writeFileSync(1, 'noise: writeFileSync\\n')
      appendFileSync(1, 'noise: appendFileSync\\n')
      await new Promise((resolve) => createWriteStream('', { fd: 1, autoClose: false }).end('noise: write stream\\n', resolve))
      stdout.write('noise: kept reference\\n')
      await new Promise((resolve) => process.stdout.end('noise: end\\n', resolve))
      return 'quiet'
    })
    await serveStdio(layer)`))
  await peer.initialize()
  await peer.call(1, 'noisy')
  t.equal((await peer.call(2, 'more')).result.content[0].text, 'quiet')
  await peer.call(3, 'noisy')
  for (const noise of ['console.log', 'console.table', 'process.stdout.write', 'fs.writeSync', 'promisified', 'callback', 'writev', 'writeFileSync', 'appendFileSync', 'write stream', 'kept reference', 'end']) {
    await peer.until(() => peer.stderr.includes(noise))
  }
  t.same(peer.noise, [])
  t.equal(peer.lines.length, 4)
})

t.test('standard output may be a file', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'cloudg-mcp-'))
  t.teardown(() => rm(directory, { recursive: true }))
  const file = join(directory, 'out')
  const peer = new Peer(t, process.execPath, program('await serveStdio(layer)'), { stdio: ['pipe', openSync(file, 'w'), 'pipe'] })
  peer.send({ jsonrpc: '2.0', id: 1, method: 'ping' }, { jsonrpc: '2.0', id: 2, method: 'tools/list' })
  peer.child.stdin!.end()
  t.same(await peer.exited, { code: 0, signal: null })
  t.same((await readFile(file, 'utf8')).trimEnd().split('\n').map((line) => JSON.parse(line).id), [1, 2])
})

t.test('STD-06 the end of the input ends the program, although it has an interval', async (t) => {
  const peer = new Peer(t, process.execPath, program('setInterval(() => {}, 1000); await serveStdio(layer)'))
  await peer.initialize()
  peer.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'slow', arguments: {} } })
  peer.child.stdin!.end()
  t.same(await peer.exited, { code: 0, signal: null })
  await peer.until(() => false)
  t.same(peer.messages.at(-1)!.result.structuredContent, { done: 3 })
})

t.test('with exit: false the program goes on, and standard output is its own again', async (t) => {
  const peer = new Peer(t, process.execPath, program(`
    const handlers = process.listenerCount('SIGTERM')
    const server = await serveStdio(layer, { exit: false })
    const added = process.listenerCount('SIGTERM') - handlers
    await server.closed
    console.log('"after"')
    const fs = await import('node:fs')
    fs.writeSync(1, '"and raw"\\n')
    console.log(added)`))
  await peer.initialize()
  peer.child.stdin!.end()
  t.same(await peer.exited, { code: 0, signal: null })
  await peer.until(() => false)
  t.same(peer.messages.slice(1), ['after', 'and raw', 0])
})

t.test('STD-07 a reader that has gone ends the program once, without a loop', async (t) => {
  const peer = new Peer(t, process.execPath, program('await serveStdio(layer)'))
  await peer.initialize()
  peer.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'endless', arguments: {}, _meta: { progressToken: 1 } } })
  await peer.message(({ params }) => params?.progress > 10)
  peer.child.stdout!.destroy()
  t.same(await peer.exited, { code: 0, signal: null })
  t.equal(peer.stderr, '')
})

t.test('STD-09 signals end the program with exit code 0, also when they come twice', async (t) => {
  const peer = new Peer(t, process.execPath, program('await serveStdio(layer)'))
  await peer.initialize()
  peer.child.kill('SIGTERM')
  peer.child.kill('SIGTERM')
  t.same(await peer.exited, { code: 0, signal: null })
})

t.test('a program whose parent is killed ends, although somebody keeps its pipes open', async (t) => {
  const parent = `
    import { spawn } from 'node:child_process'
    spawn(process.execPath, ${JSON.stringify(program('await serveStdio(layer)'))}, { stdio: 'inherit' })
    setInterval(() => {}, 1000)`
  const peer = new Peer(t, process.execPath, ['--input-type=module', '--eval', parent])
  await peer.initialize()
  peer.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'sleepy', arguments: {} } })
  const { pid } = (await peer.call(2, 'process')).result.structuredContent
  t.not(pid, peer.child.pid)
  peer.child.kill('SIGKILL')
  const took = await goneAfter([pid], 4000)
  t.ok(took < 2000, `${took} ms`)
})

t.test('standard input can be served once', async (t) => {
  const peer = new Peer(t, process.execPath, program(`
    await serveStdio(layer)
    await serveStdio(layer).catch((error) => { process.stderr.write(error.code + ': ' + error.message) })`))
  await peer.until(() => peer.stderr.endsWith('already'))
  t.equal(peer.stderr, 'CLOUDG_MCP_ERR_INVALID_OPTION: serveStdio: standard input is being served already')
  await peer.initialize()
})

t.test('a failing tool is logged on standard error, with its stack', async (t) => {
  const peer = new Peer(t, process.execPath, program(`
    layer.tool('fail', {}, () => { throw new Error('boom') })
    await serveStdio(layer)`))
  await peer.initialize()
  t.match((await peer.call(1, 'fail')).result, { isError: true, content: [{ text: 'Error executing tool fail' }] })
  await peer.until(() => peer.stderr.includes('at '))
  t.match(peer.stderr, /^cloudg-mcp: error: a tool failed .*tool: 'fail'.*\nError: boom\n/)
})
