// Most of what begins in a turn of the event loop is over by its end. What only lasting work needs, timers and listeners,
// is set up there, for those that are left.

/** Looked at once, at the end of the turn that it began in. */
export interface Lasting { lasts: () => void }

let begun: Lasting[] = []

export function afterTurn (work: Lasting): void {
  if (begun.push(work) === 1) setImmediate(endTurn)
}

function endTurn (): void {
  const all = begun
  begun = []
  for (const work of all) work.lasts()
}
