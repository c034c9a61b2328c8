// A peer that sends wrong tokens as fast as a given rate allows, over keep-alive connections: on each, one at a time, or, with
// `pipeline`, without waiting for answers.

import { connect } from 'node:net'
import type { Socket } from 'node:net'

export interface FloodJob { port: number, rate: number, duration: number, connections: number, tokens: string[], pipeline?: boolean }
export interface FloodResult { sent: number, answered: number, statuses: Record<string, number>, ms: number }

const BODY = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
const STATUS = /HTTP\/1\.1 (\d{3}) /g

function flood ({ port, rate, duration, connections, tokens, pipeline = false }: FloodJob): Promise<FloodResult> {
  const statuses: Record<string, number> = {}
  let sent = 0
  let answered = 0
  let due = 0
  let tried = 0
  const free: Socket[] = []
  const sockets: Socket[] = []
  let over = false
  // Whoever is cut off comes again at once.
  const open = (place: number): void => {
    const socket = sockets[place] = connect({ host: '127.0.0.1', port, noDelay: true })
    socket.setEncoding('latin1')
    socket.on('data', (text: string) => {
      for (const [, status] of text.matchAll(STATUS)) {
        answered++
        statuses[status!] = (statuses[status!] ?? 0) + 1
        if (!pipeline && !text.includes('onnection: close')) free.push(socket)
      }
    })
    socket.once('connect', () => free.push(socket))
    socket.on('error', () => { statuses['error'] = (statuses['error'] ?? 0) + 1 })
    socket.once('close', () => { if (!over) open(place) })
  }
  for (let place = 0; place < connections; place++) open(place)
  const begin = performance.now()
  return new Promise((resolve) => {
    const turn = (): void => {
      const elapsed = performance.now() - begin
      due = Math.floor(Math.min(elapsed, duration) * rate / 1000)
      // No token twice: the last characters change.
      for (let turns = Math.min(due - tried, connections); turns > 0; turns--) {
        const socket = pipeline ? sockets[sent % connections]! : free.shift()
        if (socket === undefined) break
        sent++
        const token = tokens[sent % tokens.length]!.slice(0, -6) + sent.toString(36).padStart(6, 'A')
        socket.write(`POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`)
      }
      // What could not be sent in time is not made up for.
      tried = due
      if (elapsed < duration) {
        setTimeout(turn, 1)
        return
      }
      setTimeout(() => {
        over = true
        for (const socket of sockets) socket.destroy()
        resolve({ sent, answered, statuses, ms: elapsed })
      }, 500)
    }
    turn()
  })
}

process.on('message', ({ id, job }: { id: number, job: FloodJob }) => { void flood(job).then((reply) => process.send!({ id, reply })) })
process.on('disconnect', () => process.exit(0))
process.send!({ port: 0 })
