// One connection to a layer through the protocol engine alone: what is handled, what is answered, and what is sent beside that.

import type { Layer } from '../../lib/layer/index.js'
import type { Exchange } from '../../lib/protocol/call.js'
import type { ProtocolOptions } from '../../lib/protocol/server.js'
import { ProtocolServer } from '../../lib/protocol/server.js'
import type { Session, SessionOptions } from '../../lib/protocol/session.js'
import { initialize, INITIALIZED } from '../kit.js'

export interface Connection {
  server: ProtocolServer
  session: Session
  /** Messages that the server sent, in order: notifications without a stream of their own, and changes. */
  sent: any[]
  /** Handles a message and gives the answer as a client would read it. */
  handle (message: unknown, exchange?: Exchange): Promise<any>
}

export function connect (layer: Layer, options: ProtocolOptions = {}, sessionOptions: SessionOptions = {}): Connection {
  const server = new ProtocolServer(layer, options)
  return attach(server, sessionOptions)
}

/** One more connection to a server that is there already. */
export function attach (server: ProtocolServer, options: SessionOptions = {}): Connection {
  const sent: any[] = []
  const session = server.createSession({ send: (message) => { sent.push(JSON.parse(JSON.stringify(message))) }, ...options })
  return {
    server,
    session,
    sent,
    async handle (message, exchange) {
      const reply = await session.handle(message, exchange)
      return reply === undefined ? undefined : JSON.parse(JSON.stringify(reply))
    }
  }
}

/** A connection that has been initialized at a handshake revision. */
export async function connectAt (version: string, layer: Layer, options: ProtocolOptions = {}, sessionOptions: SessionOptions = {}): Promise<Connection> {
  const connection = connect(layer, options, sessionOptions)
  await shakeHands(connection, version)
  return connection
}

export async function shakeHands ({ handle }: Pick<Connection, 'handle'>, version = '2025-11-25'): Promise<void> {
  await handle(initialize(version))
  await handle(INITIALIZED)
}

/** Turns of the event loop: enough for what was started to get as far as it gets without the outside. */
export async function settled (): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate)
}

/** The timers of the product hold no process; while a test waits for one, something has to. */
export function stayAlive (t: { teardown: (run: () => void) => void }): void {
  const timer = setInterval(() => {}, 60_000)
  t.teardown(() => clearInterval(timer))
}
