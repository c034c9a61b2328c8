// Sessions by the thousand: what each one leaves behind when it has ended, politely or not.

import { connect } from 'node:net'
import t from 'tap'
import { Connection, JSON_ONLY, SSE_ONLY, Wire } from '../field/wire.js'
import { initialize, INITIALIZED, request } from '../kit.js'
import { start } from './service.js'

const INIT = JSON.stringify(initialize())

/** One client on one connection that begins and ends sessions, as fast as it can. */
async function beginAndEnd (port: number, times: number): Promise<void> {
  const socket = connect(port, '127.0.0.1').setEncoding('latin1').setNoDelay()
  let received = ''
  let answered: (response: string) => void
  socket.on('data', (chunk: string) => {
    received += chunk
    const end = received.indexOf('\r\n\r\n')
    if (end === -1) return
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(received)![1])
    if (received.length < end + 4 + length) return
    const response = received
    received = ''
    answered(response)
  })
  const exchange = (text: string): Promise<string> => new Promise((resolve, reject) => {
    answered = resolve
    socket.once('error', reject)
    socket.write(text, () => socket.off('error', reject))
  })
  const post = `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: ${INIT.length}\r\n\r\n${INIT}`
  try {
    for (let time = 0; time < times; time++) {
      const id = /\r\nmcp-session-id: ([0-9a-f]{32})\r\n/i.exec(await exchange(post))![1]
      const ended = await exchange(`DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: ${id}\r\n\r\n`)
      if (!ended.startsWith('HTTP/1.1 200 ')) throw new Error(ended)
    }
  } finally {
    socket.destroy()
  }
}

t.test('ten thousand sessions that were begun and ended leave nothing', async (t) => {
  const child = await start(t, {})
  const run = (cycles: number) => Promise.all(Array.from({ length: 10 }, () => beginAndEnd(child.port, cycles / 10)))
  await run(1000)
  const before = await child.ask('held')
  await run(9000)
  const after = await child.ask('held')
  t.equal(after.sessions, 0)
  t.same(after.objects, { sessions: 0, calls: 0, streams: 0, subscribers: 0 })
  const growth = (after.heap - before.heap) / 9000
  t.ok(growth < 256, `${growth.toFixed(1)} bytes of heap a cycle`)
})

t.test('a thousand sessions that were left alone are reaped, with all that belonged to them', async (t) => {
  const child = await start(t, { sessionIdleTimeout: 1500, maxSessions: 1000, maxSessionsPerPrincipal: 1000, keepAliveInterval: 200 })
  const before = await child.ask('held')
  const wire = new Wire(child.port)
  t.teardown(() => wire.agent.destroy())
  async function leave (at: number): Promise<void> {
    const opened = await wire.post(initialize())
    const session = new Connection(wire, opened.headers['mcp-session-id'] as string)
    if (at % 5 === 0) await session.post(INITIALIZED)
    if (at % 5 === 1) await session.post(request('resources/subscribe', { uri: `test://items/${at}` }))
    if (at % 5 === 2) await session.post(request('tools/call', { name: 'slow', arguments: {} }), at % 2 === 0 ? JSON_ONLY : SSE_ONLY)
    if (at % 5 === 3) {
      // A stream that breaks while it is open.
      const stream = await session.get()
      await stream.firstByte()
      stream.response.socket?.resetAndDestroy()
    }
  }
  for (let at = 0; at < 1000; at += 20) await Promise.all(Array.from({ length: 20 }, (_, more) => leave(at + more)))
  await child.ask('ended', 1000)
  const after = await child.ask('held')
  t.equal(after.sessions, 0)
  t.same(after.objects, { sessions: 0, calls: 0, streams: 0, subscribers: 0 })
  t.equal(after.timers, 0)
  t.ok(after.heap - before.heap < 2 * 1024 * 1024, `${after.heap - before.heap} bytes of heap in all`)
})
