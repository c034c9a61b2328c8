import t from 'tap'
import { createLayer, localPort, TimeoutError } from '../../lib/layer/index.js'
import type { Middleware } from '../../lib/layer/index.js'

const META = { readOnlyHint: true, idempotentHint: true }

/** Runs the rest once more when it has timed out. */
const again: Middleware = async (_info, next) => {
  try {
    return await next()
  } catch (error) {
    if (error instanceof TimeoutError) return next()
    throw error
  }
}

t.test('a middleware that calls next again after a timeout starts a run of its own: a fresh signal, and no links of the first', async (t) => {
  const layer = createLayer({ name: 'x', version: '1', middleware: [again] })
  const signals: AbortSignal[] = []
  const late: boolean[] = []
  layer.tool('twice', { timeout: 1, annotations: META }, (_args, ctx) => {
    signals.push(ctx.signal)
    ctx.link(`x://run/${signals.length}`, 'run')
    if (signals.length === 2) return 'done'
    return new Promise<string>((resolve) => {
      ctx.signal.addEventListener('abort', () => setImmediate(() => {
        late.push(ctx.signal.aborted)
        resolve('too late')
      }))
    })
  })
  const result = await layer.callTool('twice', {}, localPort())
  t.same(signals.map((signal) => signal.aborted), [true, false])
  t.same(result.content, [{ type: 'text', text: 'done' }, { type: 'resource_link', uri: 'x://run/2', name: 'run' }])
  await new Promise(setImmediate)
  await new Promise(setImmediate)
  t.same(late, [true], 'the run that timed out still sees that it was told to stop')
})
