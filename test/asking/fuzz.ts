// A worker thread: sends 100,000 mutated states to the engine, the same ones on every run, and says what came of them.

import { parentPort } from 'node:worker_threads'
import { principal } from '../../lib/layer/index.js'
import { ProtocolServer } from '../../lib/protocol/server.js'
import { ENV, request } from '../kit.js'
import { createAsking } from './layer.js'

const STATES = 100_000
const SEED = 20260728
const WANTED = JSON.stringify({ code: -32602, message: 'Invalid or expired requestState', data: { reason: 'invalid_request_state' } })

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
const STRANGE = ['=', '+', '/', '.', ' ', '\n', '\t', '\0', '%', 'é', '\u{1F600}', '\uD800', 'v1.', '..', '{}']

const { layer, runs } = createAsking()
const server = new ProtocolServer(layer)
const session = server.createSession({ register: false })
const who = principal({ id: 'alice' })
const meta = { ...ENV, 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} } }

async function call (round: Record<string, unknown> = {}): Promise<any> {
  return session.handle(request('tools/call', { name: 'twice', arguments: { what: 'disk' }, ...round, _meta: meta }), { principal: who })
}

const { result: { requestState, inputRequests } } = await call()
const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, { action: 'accept', content: { sure: true } }]))

Error.stackTraceLimit = 0
const random = seeded(SEED)
const others: string[] = []
let refused = 0
for (let n = 0; n < STATES; n++) {
  const mutant = mutate(requestState, random)
  if (mutant === requestState) continue
  const reply = await call({ requestState: mutant, inputResponses })
  if (JSON.stringify(reply.error) === WANTED && reply.result === undefined) refused++
  else if (others.length < 5) others.push(`${JSON.stringify(mutant)} -> ${JSON.stringify(reply)}`)
}
const ran = runs['twice']
const { result } = await call({ requestState, inputResponses })
parentPort!.postMessage({ refused, others, runs: ran, stillGood: result?.resultType === 'input_required' })

/** A state with some of it changed: characters, bits, lengths, order, type. */
function mutate (state: string, random: (below: number) => number): unknown {
  const at = random(state.length)
  const bytes = Buffer.from(state.slice(3), 'base64url')
  const sealed = (part: Buffer): string => `v1.${part.toString('base64url')}`
  switch (random(13)) {
    case 0: return state.slice(0, at) + ALPHABET[random(64)] + state.slice(at + 1)
    case 1: return state.slice(0, at) + STRANGE[random(STRANGE.length)] + state.slice(at + random(2))
    case 2: return state.slice(0, at) + state.slice(at + 1 + random(8))
    case 3: return state.slice(0, at)
    case 4: return state + state.slice(0, 1 + at)
    case 5: bytes[random(bytes.length)]! ^= 1 << random(8); return sealed(bytes)
    case 6: bytes[random(4)]! ^= 1 + random(255); return sealed(bytes)
    case 7: bytes[4 + random(12)]! ^= 1 + random(255); return sealed(bytes)
    case 8: bytes[bytes.length - 1 - random(16)]! ^= 1 + random(255); return sealed(bytes)
    case 9: return sealed(Buffer.concat([bytes.subarray(0, random(bytes.length)), bytes.subarray(random(bytes.length))]))
    case 10: return sealed(Buffer.from(Array.from({ length: random(200) }, () => random(256))))
    case 11: return [at, true, {}, [], [state], { state }, Number.MAX_VALUE, ''][random(8)]
    default: return state.split('').reverse().join('').slice(random(3))
  }
}

/** mulberry32: the same numbers on every run. */
function seeded (seed: number): (below: number) => number {
  return (below) => {
    seed = (seed + 0x6D2B79F5) | 0
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}
