// Checks of the message, behind those of the request. They are no hooks: a stage of hooks costs a small call more than all of them.

import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Refusal } from '../refusal.js'
import { refuse } from '../refusal.js'

export type MessageCheck = (request: FastifyRequest) => Refusal | undefined | Promise<Refusal | undefined>
type Handler = (request: FastifyRequest, reply: FastifyReply) => void | Promise<FastifyReply>

/** A handler that is reached only by what passes the checks, in their order. */
export function checked ([first, ...others]: readonly MessageCheck[], handler: Handler): Handler {
  if (first === undefined) return handler
  const next = checked(others, handler)
  return function checkMessage (request, reply) {
    const refused = first(request)
    if (refused === undefined) return next(request, reply)
    if (refused instanceof Promise) void checkLater(refused, next, request, reply)
    else refuse(reply, refused)
    return undefined
  }
}

// Fastify gets no promise of it: it would take its end for an answer.
async function checkLater (checking: Promise<Refusal | undefined>, next: Handler, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  try {
    const refused = await checking
    if (refused === undefined) await next(request, reply)
    else refuse(reply, refused)
  } catch (error) {
    void reply.send(error)
  }
}
