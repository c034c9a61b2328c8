// What is wrong with a value, in the words that a caller may see: where, what, and of which kind. Never the value itself:
// arguments may hold secrets, and error texts end up in logs and in a model's context.

/** One fault. `loc` is a dotted path (`filters.0.field`), empty at the root. */
export interface Issue { loc: string, msg: string, type: string }

/** The outcome of a check: the value to go on with, or what is wrong with the one that was given. */
export type Checked = { ok: true, value: any } | { ok: false, issues: Issue[] }

// A caller can send 100,000 faults in one request; nobody reads that many, and they would be sent back.
const MAX_ISSUES = 32
const MAX_LOC = 200
const MAX_MSG = 500

/** A failed check, cut to a size that can be sent. */
export function failed (issues: Iterable<Issue>): Checked {
  const kept: Issue[] = []
  for (const { loc, msg, type } of issues) {
    kept.push({ loc: cut(loc, MAX_LOC), msg: cut(msg, MAX_MSG), type })
    if (kept.length === MAX_ISSUES) break
  }
  return { ok: false, issues: kept }
}

/** The text after `Invalid arguments: `, such as `total: Field required; <root>: Invalid input`. */
export function describeIssues (issues: readonly Issue[]): string {
  return issues.map(({ loc, msg }) => `${loc === '' ? '<root>' : loc}: ${msg}`).join('; ')
}

/** A key that nobody asked for, whichever validator found it. */
export function extraInput (loc: string): Issue {
  return { loc, msg: 'Extra inputs are not permitted', type: 'extra_forbidden' }
}

/** `run()`, with a value that is nested too deeply for a recursive validator as a fault of the value and not a crash. */
export function guarded (run: () => Checked | Promise<Checked>): Checked | Promise<Checked> {
  try {
    const checked = run()
    return checked instanceof Promise ? checked.catch(tooDeep) : checked
  } catch (err) {
    return tooDeep(err)
  }
}

function tooDeep (err: unknown): Checked {
  // an application's own function may throw a RangeError too
  if (err instanceof RangeError && err.message.includes('call stack')) return failed([{ loc: '', msg: 'Value is nested too deeply', type: 'recursion' }])
  throw err
}

function cut (text: string, max: number): string {
  return text.length > max ? `${text.slice(0, max)}...` : text
}
