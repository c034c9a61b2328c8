// What is under way: members come and go at every request. Not a Set: its table is made anew over and over as they do, and the
// old ones, each of which knows the next, keep all that they held from an early collection.

/** Knows its place, so that it leaves without a search. Of one roster at a time. */
export interface Member { place: number }

export class Roster<T extends Member> implements Iterable<T> {
  #members: T[] = []

  get size (): number { return this.#members.length }

  add (member: T): void {
    // Most have one member at a time, and an empty array that grows makes room for seventeen.
    if (this.#members.length === 0) this.#members = [member]
    else this.#members.push(member)
    member.place = this.#members.length - 1
  }

  /** Whoever is not in it may leave, too. */
  delete (member: T): void {
    const { place } = member
    if (this.#members[place] !== member) return
    const last = this.#members.pop()!
    if (last !== member) {
      this.#members[place] = last
      last.place = place
    }
  }

  /** Those that are there now: they may leave meanwhile. */
  [Symbol.iterator] (): Iterator<T> {
    return [...this.#members].values()
  }
}
