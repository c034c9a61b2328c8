// A session whose stream comes back is told what it missed: each change once, also those that come while it catches up.

import t from 'tap'
import type { Change } from '../../lib/backplane/index.js'
import { memoryBackplane } from '../../lib/backplane/memory.js'
import { ProtocolServer } from '../../lib/protocol/server.js'
import { createKit, initialize, INITIALIZED } from '../kit.js'

async function begin () {
  const { layer } = createKit()
  const backplane = memoryBackplane()
  const server = new ProtocolServer(layer, { backplane })
  await server.start()
  const told: { uri: string, seen: string | undefined }[] = []
  let room: Promise<void> | undefined
  const session = server.createSession({
    register: false,
    send: (message, seen) => {
      told.push({ uri: (message as any).params?.uri, seen })
      return room
    }
  })
  await session.handle(initialize())
  await session.handle(INITIALIZED)
  const publish = async (...uris: string[]): Promise<void> => {
    for (const uri of uris) await backplane.publish({ kind: 'resource', uri } satisfies Change)
  }
  for (let at = 0; at < 10; at++) await session.subscribe(`test://${at}`)
  return { backplane, server, session, told, publish, slow: (until: Promise<void> | undefined) => { room = until } }
}

const uris = (told: { uri: string }[]): string[] => told.map(({ uri }) => uri)

t.test('changes before, while and after it catches up come once', async (t) => {
  const { backplane, server, session, told, publish } = await begin()
  const from = backplane.position
  await publish('test://0', 'test://nobody', 'test://1')
  const catchUp = server.changes.addSession(session, from)
  await publish('test://2')
  await catchUp()
  await publish('test://3')
  t.same(uris(told), ['test://0', 'test://1', 'test://2', 'test://3'], 'and in order')
  t.equal(told[2]!.seen, String(Number(from) + 4), 'each with how far it is')
  t.equal(server.changes.removeSession(session), backplane.position)
})

t.test('how far it has been told never runs ahead of what it has been told', async (t) => {
  const { backplane, server, session, told, publish, slow } = await begin()
  const from = backplane.position
  await publish('test://0', 'test://1')
  let open!: () => void
  slow(new Promise((resolve) => { open = resolve }))
  const catchUp = server.changes.addSession(session, from)
  t.equal(server.changes.removeSession(session), from, 'nothing has been told yet')
  const again = server.changes.addSession(session, from)
  await again()
  t.same(uris(told), ['test://0'], 'the reader is slow')
  await publish('test://2', 'test://1')
  t.equal(server.changes.removeSession(session), String(Number(from) + 1), 'what waits has not been told')
  await catchUp()

  slow(undefined)
  const last = server.changes.addSession(session, from)
  await last()
  open()
  t.same(uris(told).slice(1), ['test://0', 'test://1', 'test://2'], 'each once, and nothing from before')
  t.equal(told.at(-1)!.seen, backplane.position, 'the last one says how far it is')
  t.equal(server.changes.removeSession(session), backplane.position)
})

t.test('a session that another process has told more is not told it again', async (t) => {
  const { backplane, server, session, told, publish } = await begin()
  await publish('test://0', 'test://1')
  const ahead = String(Number(backplane.position) + 2)
  const catchUp = server.changes.addSession(session, ahead)
  await catchUp()
  t.equal(server.changes.removeSession(session), ahead, 'how far it is does not go back')
  await server.changes.addSession(session, ahead)()
  await publish('test://2', 'test://3', 'test://4')
  t.same(uris(told), ['test://4'])
})

t.test('a new reader of a session takes over from the one before, whatever that had yet to tell', async (t) => {
  const { backplane, server, session, told, publish, slow } = await begin()
  const from = backplane.position
  await publish('test://0', 'test://1', 'test://2')
  let open!: () => void
  slow(new Promise((resolve) => { open = resolve }))
  await server.changes.addSession(session, from)()
  t.same(uris(told), ['test://0'])
  slow(undefined)
  await server.changes.addSession(session, told[0]!.seen)()
  open()
  await publish('test://3')
  t.same(uris(told), ['test://0', 'test://1', 'test://2', 'test://3'])
})
