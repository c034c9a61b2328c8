// Two hundred callers at once, with the same JSON-RPC ids: nobody gets what is somebody else's, in either era.

import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { z } from 'zod'
import { createLayer } from '../../lib/layer/index.js'
import type { Answer } from '../field/wire.js'
import { serve } from '../field/wire.js'
import { modern, modernHeaders, request } from '../kit.js'

const CALLERS = 200
const IDS = [0, 1, 'same']
const CALLS = CALLERS * IDS.length

/** Calls are answered when all of them have come, in an order that has nothing to do with the one they came in. */
function assembly () {
  const layer = createLayer({ name: 'assembly', version: '1' })
  let waiting: (() => void)[] = []
  async function release (): Promise<void> {
    const all = waiting
    waiting = []
    // 600 and 77 have no common divisor: each is let go once, neighbours far apart.
    for (let at = 0; at < CALLS; at++) {
      all[(at * 77) % CALLS]!()
      if (at % 7 === 0) await turn()
    }
  }
  layer.tool('tell', { input: { secret: z.string() } }, async ({ secret }, ctx) => {
    await ctx.progress(1, 3, `${ctx.principal.id} ${secret}`)
    await new Promise<void>((resolve) => {
      if (waiting.push(resolve) === CALLS) void release()
    })
    await ctx.progress(2, 3, `${ctx.principal.id} ${secret}`)
    await turn()
    return { who: ctx.principal.id, secret, id: ctx.requestId }
  })
  return layer
}

for (const era of ['handshake', 'modern']) {
  t.test(`200 callers with interleaved slow calls of the same ids (${era})`, async (t) => {
    const tokens = Array.from({ length: CALLERS }, (_, at) => `token-${at}:user:caller-${at}`)
    const service = await serve(t, { layer: assembly(), auth: { tokens } })
    const params = (at: number, id: unknown) => ({ name: 'tell', arguments: { secret: `${at}/${String(id)}` }, _meta: { progressToken: 'p' } })
    async function call (at: number): Promise<Answer[]> {
      const headers = { authorization: `Bearer token-${at}` }
      if (era === 'modern') {
        return Promise.all(IDS.map((id) => service.post(modern('tools/call', params(at, id), id), { ...headers, ...modernHeaders('tools/call', 'tell') })))
      }
      const session = await service.connect(headers)
      return Promise.all(IDS.map((id) => session.post(request('tools/call', params(at, id), id))))
    }
    const answers = await Promise.all(Array.from({ length: CALLERS }, (_, at) => call(at)))
    const wrong: unknown[] = []
    answers.forEach((all, at) => all.forEach(({ messages }, which) => {
      const id = IDS[which]!
      const own = `caller-${at} ${at}/${id}`
      const { result, ...reply } = messages.at(-1)
      const expected = JSON.stringify([id, { who: `caller-${at}`, secret: `${at}/${id}`, id }, [own, own]])
      const got = JSON.stringify([reply.id, result?.structuredContent, messages.slice(0, -1).map(({ params }: any) => params.message)])
      if (got !== expected) wrong.push({ expected, got })
    }))
    t.equal(answers.flat().length, CALLS)
    t.same(wrong, [])
  })
}
