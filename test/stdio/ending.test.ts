// How the command on stdio ends: at the end of its input, by a signal, and when one of the processes around it has gone.

import Fastify from 'fastify'
import t from 'tap'
import cloudgMcp from '../../plugin.js'
import noisyLayer from './layer.js'
import { COMMAND, ENVELOPE, goneAfter, LAYER, Peer, serve } from './peer.js'

t.test('STD-06 the end of the input ends the process, whatever it holds', async (t) => {
  const peer = serve(t)
  await peer.initialize()
  await peer.call(1, 'held')
  peer.send({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'slow', arguments: { steps: 5 } } })
  peer.child.stdin!.end()
  t.same(await peer.exited, { code: 0, signal: null })
  await peer.until(() => false)
  t.same(peer.messages.at(-1)!.result.structuredContent, { done: 5 }, 'the call in flight was answered')
})

t.test('STD-06 a call that never ends gets five seconds', async (t) => {
  const peer = serve(t)
  await peer.initialize()
  peer.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'sleepy', arguments: {} } }, { jsonrpc: '2.0', id: 2, method: 'ping' })
  await peer.reply(2)
  const start = Date.now()
  peer.child.stdin!.end()
  t.same(await peer.exited, { code: 0, signal: null })
  const took = Date.now() - start
  t.ok(took > 4500 && took < 15_000, `${took} ms`)
  t.notOk(peer.messages.some(({ id }) => id === 1))
})

t.test('STD-07 a reader that has gone ends the process while progress is streaming', async (t) => {
  const peer = serve(t)
  await peer.initialize()
  peer.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'endless', arguments: {}, _meta: { progressToken: 1 } } })
  await peer.message(({ params }) => params?.progress > 10)
  const { pid } = (await peer.call(2, 'process')).result.structuredContent
  peer.child.stdout!.destroy()
  t.same(await peer.exited, { code: 0, signal: null })
  t.ok(await goneAfter([pid], 2000) < 2000)
  t.equal(peer.stderr, '')
})

t.test('STD-09 signals end it in an orderly way, also when they come twice', async (t) => {
  for (const signals of [['SIGTERM', 'SIGTERM'], ['SIGINT']] as NodeJS.Signals[][]) {
    const peer = serve(t)
    await peer.initialize()
    for (const signal of signals) peer.child.kill(signal)
    t.same(await peer.exited, { code: 0, signal: null }, signals.join(', '))
    t.equal(peer.stderr, '')
  }
})

t.test('STD-09 the plugin leaves the signals of its host alone', async (t) => {
  const count = () => ['SIGTERM', 'SIGINT', 'SIGHUP'].map((signal) => process.listenerCount(signal))
  const before = count()
  const app = Fastify()
  await app.register(cloudgMcp, { layer: noisyLayer(), sse: true })
  await app.listen({ host: '127.0.0.1', port: 0 })
  t.same(count(), before)
  await app.close()
  t.same(count(), before)
})

t.test('STD-09 a second signal does not wait for calls in flight', async (t) => {
  const peer = serve(t)
  peer.send({ jsonrpc: '2.0', id: 'l', method: 'subscriptions/listen', params: { notifications: {}, _meta: ENVELOPE } })
  await peer.message(({ method }) => method === 'notifications/subscriptions/acknowledged')
  peer.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'sleepy', arguments: {}, _meta: ENVELOPE } })
  const { pid } = (await peer.request(2, 'tools/call', { name: 'process', arguments: {}, _meta: ENVELOPE })).result.structuredContent
  peer.child.kill('SIGTERM')
  // The first has been heard: listen streams end, and the call is waited for.
  await peer.reply('l')
  const start = Date.now()
  peer.child.kill('SIGTERM')
  t.same(await peer.exited, { code: 0, signal: null })
  t.ok(Date.now() - start < 4500, 'before the five seconds are over')
  t.ok(await goneAfter([pid], 2000) < 2000)
})

t.test('a client that is killed leaves no process behind', async (t) => {
  // Somebody else keeps the pipes open: the end of the input does not tell.
  const client = `
    const { spawn } = require('node:child_process')
    const child = spawn(process.execPath, ${JSON.stringify([COMMAND, 'serve', LAYER])}, { stdio: ['inherit', 'inherit', 'inherit'] })
    process.stderr.write('client ' + child.pid + '\\n')
    setInterval(() => {}, 1000)`
  const peer = new Peer(t, process.execPath, ['-e', client])
  await peer.until(() => /client \d+\n/.test(peer.stderr))
  const wrapper = Number(/client (\d+)/.exec(peer.stderr)![1])
  await peer.initialize()
  peer.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'sleepy', arguments: {} } })
  const { pid } = (await peer.call(2, 'process')).result.structuredContent
  t.teardown(() => { for (const one of [wrapper, pid]) try { process.kill(one, 'SIGKILL') } catch {} })
  peer.child.kill('SIGKILL')
  const took = await goneAfter([wrapper, pid], 4000)
  t.ok(took < 2000, `${took} ms`)
})

t.test('a command that is killed takes its server with it', async (t) => {
  const peer = serve(t)
  await peer.initialize()
  peer.send({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'sleepy', arguments: {} } })
  const { pid } = (await peer.call(2, 'process')).result.structuredContent
  t.not(pid, peer.child.pid)
  peer.child.kill('SIGKILL')
  const took = await goneAfter([pid], 4000)
  t.ok(took < 2000, `${took} ms`)
})

t.test('a server that dies takes the command with it, with its exit code', async (t) => {
  const peer = serve(t)
  await peer.initialize()
  const { pid } = (await peer.call(2, 'process')).result.structuredContent
  process.kill(pid, 'SIGKILL')
  t.same(await peer.exited, { code: 128 + 9, signal: null })
})
