// Reading the body of a POST: JSON alone, under our own parser, so that what is wrong with it is said in JSON-RPC.

import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest, RequestPayload } from 'fastify'
import { decode } from '../jsonrpc.js'
import { RefusalError, refusals, refuse } from './refusal.js'

/** Takes the parsers of the host out of the scope, and puts in the only one that is needed. */
export function useBodyParser (scope: FastifyInstance, bodyLimit: number): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('application/json', { parseAs: 'buffer', bodyLimit }, parseBody)
  // Only a POST has a body that is read, and it has been refused by now unless it is JSON.
  scope.addContentTypeParser('*', (_request, _payload, done) => { done(null) })
}

/** Strict UTF-8, JSON of any size that the limit admits, and no `__proto__` keys. */
async function parseBody (request: FastifyRequest, body: Buffer): Promise<unknown> {
  if (request.method !== 'POST') return undefined
  try {
    return decode(body)
  } catch {
    throw new RefusalError(refusals.parseError)
  }
}

/** A preParsing hook. A hook of the host that has read the body leaves nothing to parse, and Fastify would wait for more of it. */
export function checkUnread (request: FastifyRequest, reply: FastifyReply, payload: RequestPayload, done: (error: null, payload: RequestPayload) => void): void {
  if (!(payload as Readable).readableEnded) done(null, payload)
  else if (request.method === 'POST') refuse(reply, refusals.parseError)
  else done(null, Readable.from([]))
}
