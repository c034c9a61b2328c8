// The load generator: keep-alive connections over raw sockets, one request at a time on each, every id used once. Runs in a
// process of its own, so that its cost is not the server's. A response counts when its last byte is there.

import { connect } from 'node:net'
import type { Socket } from 'node:net'

export interface LoadJob {
  port: number
  path: string
  /** Header lines beside Content-Type, Content-Length and Host; with sessions, one of them per request, in turn. */
  headers: Record<string, string>
  sessions?: string[]
  /** The body, with `"$id"` where the id goes. */
  body: string
  connections: number
  /** ms to run, or how many requests to make. */
  duration?: number
  requests?: number
  /** Text that every response must hold. */
  expect: string
}

export interface LoadResult { requests: number, bad: number, ms: number, p50: number, p99: number, bytes: number, sample: string }

const END = Buffer.from('\r\n\r\n')
const LAST_CHUNK = Buffer.from('\r\n0\r\n\r\n')

/** The size of the response at the start of `buffer`, once it is all there. */
function complete (buffer: Buffer): number | undefined {
  const head = buffer.indexOf(END)
  if (head < 0) return undefined
  const headers = buffer.toString('latin1', 0, head)
  const length = /\r\ncontent-length: (\d+)/i.exec(headers)
  if (length !== null) {
    const size = head + 4 + Number(length[1])
    return buffer.length >= size ? size : undefined
  }
  const last = buffer.indexOf(LAST_CHUNK, head)
  return last < 0 ? undefined : last + LAST_CHUNK.length
}

export function run (job: LoadJob): Promise<LoadResult> {
  const { port, path, headers, sessions, body, connections, duration = Infinity, requests: most = Infinity, expect } = job
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join('')
  const expected = Buffer.from(expect)
  const latencies: number[] = []
  const [before, after] = body.split('"$id"') as [string, string]
  const fixed = Buffer.byteLength(before) + Buffer.byteLength(after)
  let started = 0
  let done = 0
  let bad = 0
  let bytes = 0
  let sample = ''
  const begin = performance.now()

  function next (): string | undefined {
    if (started >= most || performance.now() - begin >= duration) return undefined
    const id = String(++started)
    const session = sessions === undefined ? '' : `mcp-session-id: ${sessions[started % sessions.length]}\r\n`
    return `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\n${lines}${session}Content-Length: ${fixed + id.length}\r\n\r\n${before}${id}${after}`
  }

  function drive (socket: Socket, resolve: () => void): void {
    let received: Buffer = Buffer.alloc(0)
    let sentAt = 0
    const send = (): void => {
      const request = next()
      if (request === undefined) {
        socket.destroy()
        return resolve()
      }
      sentAt = performance.now()
      socket.write(request)
    }
    socket.on('data', (chunk: Buffer) => {
      received = received.length === 0 ? chunk : Buffer.concat([received, chunk])
      const size = complete(received)
      if (size === undefined) return
      const response = received.subarray(0, size)
      received = received.subarray(size)
      latencies.push(performance.now() - sentAt)
      done++
      bytes += size
      if (!response.toString('latin1', 0, 13).includes(' 200 ') || !response.includes(expected)) bad++
      if (sample === '' || bad === 1) sample = response.toString().slice(0, 2000)
      send()
    })
    socket.once('error', () => { bad++; resolve() })
    socket.once('connect', send)
  }

  // Never idle: waking an idle processor costs the server that writes to it more than the write, on virtual machines above all.
  let spinning = true
  const spin = (): void => { if (spinning) setImmediate(spin) }
  spin()
  return Promise.all(Array.from({ length: connections }, () => new Promise<void>((resolve) => {
    drive(connect({ host: '127.0.0.1', port, noDelay: true }), resolve)
  }))).then(() => {
    spinning = false
    latencies.sort((a, b) => a - b)
    const at = (part: number): number => latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))] ?? 0
    return { requests: done, bad, ms: performance.now() - begin, p50: at(0.5), p99: at(0.99), bytes: done === 0 ? 0 : Math.round(bytes / done), sample }
  })
}

if (process.send !== undefined) {
  process.on('message', ({ id, job }: { id: number, job: LoadJob }) => { void run(job).then((reply) => process.send!({ id, reply })) })
  process.on('disconnect', () => process.exit(0))
}
