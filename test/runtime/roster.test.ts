import t from 'tap'
import { Roster } from '../../lib/runtime/roster.js'
import { afterTurn } from '../../lib/runtime/turn.js'

const member = (name: string) => ({ name, place: -1 })

t.test('members leave in any order, once', async (t) => {
  const roster = new Roster<ReturnType<typeof member>>()
  const members = ['a', 'b', 'c', 'd', 'e'].map(member)
  for (const one of members) roster.add(one)
  t.equal(roster.size, 5)
  const names = () => [...roster].map(({ name }) => name).sort().join('')
  for (const [at, left] of [[1, 'acde'], [4, 'acd'], [0, 'cd'], [0, 'cd'], [3, 'c'], [2, ''], [2, '']] as const) {
    roster.delete(members[at]!)
    t.equal(names(), left)
    t.equal(roster.size, left.length)
  }
  roster.add(members[1]!)
  t.equal(names(), 'b')
})

t.test('one that belongs to another roster, or to none, takes nobody with it', async (t) => {
  const [roster, other] = [new Roster<ReturnType<typeof member>>(), new Roster<ReturnType<typeof member>>()]
  const [mine, theirs] = [member('mine'), member('theirs')]
  roster.add(mine)
  other.add(theirs)
  roster.delete(theirs)
  roster.delete(member('stranger'))
  t.same([...roster], [mine])
  t.same([...other], [theirs])
})

t.test('members may leave and come while they are gone through', async (t) => {
  const roster = new Roster<ReturnType<typeof member>>()
  for (const name of ['a', 'b', 'c']) roster.add(member(name))
  const seen: string[] = []
  for (const one of roster) {
    seen.push(one.name)
    roster.delete(one)
    roster.add(member(`${one.name}2`))
  }
  t.same(seen, ['a', 'b', 'c'])
  t.equal(roster.size, 3)
})

t.test('what outlasts its turn is looked at at its end, once, and after what has been resolved by then', async (t) => {
  const said: string[] = []
  const begin = (name: string): void => afterTurn({ lasts: () => { said.push(name) } })
  begin('first')
  begin('second')
  void Promise.resolve().then(() => said.push('promise'))
  await new Promise((resolve) => { setImmediate(resolve) })
  t.same(said, ['promise', 'first', 'second'])
  afterTurn({
    lasts () {
      said.push('third')
      begin('fourth')
    }
  })
  await new Promise((resolve) => { setImmediate(resolve) })
  t.same(said.slice(3), ['third'], 'one that begins there has a turn of its own')
  await new Promise((resolve) => { setImmediate(resolve) })
  t.same(said.slice(3), ['third', 'fourth'])
})
