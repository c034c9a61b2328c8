// A closing server: everything that is open ends at once, and nothing keeps the process alive afterwards.

import t from 'tap'
import { Wire } from '../field/wire.js'
import { modern, modernHeaders, request } from '../kit.js'
import { start } from './service.js'

t.test('close() takes less than a second whatever is open, and the process ends by itself', async (t) => {
  const child = await start(t, {})
  const wire = new Wire(child.port)
  t.teardown(() => wire.agent.destroy())
  const session = await wire.connect()
  const stream = await session.get()
  const listen = await wire.open({
    headers: { 'content-type': 'application/json', accept: 'text/event-stream', ...modernHeaders('subscriptions/listen') },
    body: modern('subscriptions/listen', { notifications: { toolsListChanged: true } }, 'L')
  })
  t.equal((await listen.next()).method, 'notifications/subscriptions/acknowledged')
  const calls = [
    await session.open(request('tools/call', { name: 'sleepy', arguments: {} }, 1)),
    await session.open(request('tools/call', { name: 'endless', arguments: {} }, 2)),
    await wire.open({ headers: { 'content-type': 'application/json', ...modernHeaders('tools/call', 'endless') }, body: modern('tools/call', { name: 'endless', arguments: {} }, 3) })
  ]
  const running = await child.ask('held')
  t.same(running.objects, { sessions: 3, calls: 4, streams: 5, subscribers: 2 })

  const took = await child.ask('close')
  t.ok(took < 1000, `${Math.round(took)} ms`)
  t.ok(await stream.end())
  t.equal((await listen.next()).result.resultType, 'complete')
  t.ok(await listen.end())
  for (const call of calls) {
    t.match(await call.next(), { error: { code: -32603, message: 'The server is shutting down' } })
    t.ok(await call.end())
  }
  t.equal(await child.exited, 0)
})

t.test('a service that nobody has used ends as well', async (t) => {
  const child = await start(t, { keepAliveInterval: 50, sessionIdleTimeout: 50 })
  t.ok(await child.ask('close') < 1000)
  t.equal(await child.exited, 0)
})
