// Third check: what the body is (Content-Type) and what the client can read (Accept). RFC 9110 12.5.1, 8.3.

import type { FastifyReply, FastifyRequest } from 'fastify'
import Negotiator from 'negotiator'
import type { Refusal } from '../refusal.js'
import { refusals, refuse } from '../refusal.js'
import { header, mcpOf } from '../request.js'

const JSON_TYPE = 'application/json'
const SSE_TYPE = 'text/event-stream'

export interface Accepts { json: boolean, sse: boolean }

const both: Accepts = { json: true, sse: true }
const MAX_REMEMBERED = 256
const remembered = new Map<string, Accepts>()

/** Nothing said means anything goes. Parameters of a type are not looked at. */
export function accepts (accept: string | undefined): Accepts {
  if (accept === undefined || accept.trim() === '') return both
  let found = remembered.get(accept)
  if (found === undefined) {
    const plain = accept.split(',').map((one) => one.replace(/;(?!\s*q=).*?(?=;\s*q=|$)/i, '')).join(',')
    const types = new Negotiator({ headers: { accept: plain } }).mediaTypes([JSON_TYPE, SSE_TYPE])
    found = { json: types.includes(JSON_TYPE), sse: types.includes(SSE_TYPE) }
    if (remembered.size >= MAX_REMEMBERED) remembered.clear()
    remembered.set(accept, found)
  }
  return found
}

/** JSON in UTF-8: other charsets would be read wrongly, and other types can be sent by pages without a preflight. */
export function isJson (contentType: string | undefined): boolean {
  if (contentType === JSON_TYPE) return true
  if (contentType === undefined) return false
  const [type, ...parameters] = contentType.split(';')
  if (type!.trim().toLowerCase() !== JSON_TYPE) return false
  return parameters.every((parameter) => {
    const [name, value = ''] = parameter.trim().toLowerCase().split('=')
    return name !== 'charset' || ['utf-8', 'utf8', 'us-ascii'].includes(value.replace(/^"|"$/g, ''))
  })
}

/** What is wrong with a body before it has been read. */
function wrongBody (request: FastifyRequest): Refusal | undefined {
  const { 'content-encoding': encoding = 'identity' } = request.raw.headers
  if (!isJson(header(request, 'content-type'))) return refusals.contentType
  return encoding === 'identity' ? undefined : refusals.contentEncoding
}

/** For a message whose answer goes elsewhere: only what it is matters. */
export function checkJson (request: FastifyRequest, reply: FastifyReply, done: () => void): void {
  const refused = wrongBody(request)
  if (refused === undefined) done()
  else refuse(reply, refused)
}

export function checkNegotiate (request: FastifyRequest, reply: FastifyReply, done: () => void): void {
  const refused = request.method === 'POST' ? wrongBody(request) : undefined
  if (refused !== undefined) {
    refuse(reply, refused)
    return
  }
  const { json, sse } = accepts(request.raw.headers.accept)
  if (request.method === 'POST' && !json && !sse) {
    refuse(reply, refusals.notAcceptable)
    return
  }
  const mcp = mcpOf(request)
  mcp.acceptsJson = json
  mcp.acceptsSse = sse
  done()
}
