// Most of what begins in a turn of the event loop is over by its end. What only lasting work needs, timers and listeners,
// is set up there, for those that are left.

/** Looked at once, at the end of the turn that it began in. */
export interface Lasting { lasts: () => void }

let begun: Lasting[] = []
let ending: Lasting[] = []

export function afterTurn (work: Lasting): void {
  if (begun.push(work) === 1) setImmediate(endTurn)
}

function endTurn (): void {
  [begun, ending] = [ending, begun]
  try {
    for (const work of ending) work.lasts()
  } finally {
    ending.length = 0
  }
}
