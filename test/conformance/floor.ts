// The committed floor under the conformance results. It only moves up: a result below it fails, and so does an allowance
// that is no longer needed, because it would hide the next fault of that scenario.

import type { Check, Scenario } from './suite.js'

export interface Floor {
  /** Checks that must pass at least. */
  passed: number
  /** Checks that may fail or be warned about outside of `allow`. */
  failed: number
  /** Scenarios, or single checks as `scenario:check-id`, that may fail for now. */
  allow: string[]
}

export interface Fault extends Check {
  scenario: string
  allowed: boolean
}

export interface Verdict {
  passed: number
  failed: number
  warned: number
  faults: Fault[]
  /** Why the run is below the floor; empty when it is not. */
  complaints: string[]
}

/** Without a floor nothing is complained about: the results are only counted. */
export function judge (scenarios: Scenario[], floor?: Floor): Verdict {
  const needed = new Set<string>()
  const faults = scenarios.flatMap((scenario) => scenario.faults.map((check): Fault => {
    const names = [`${scenario.name}:${check.id}`, scenario.name]
    const allowance = names.find((name) => floor?.allow.includes(name))
    if (allowance !== undefined) needed.add(allowance)
    return { ...check, scenario: scenario.name, allowed: allowance !== undefined }
  }))
  const verdict: Verdict = {
    passed: sum(scenarios, 'passed'),
    failed: sum(scenarios, 'failed'),
    warned: faults.filter(({ status }) => status === 'WARNING').length,
    faults,
    complaints: []
  }
  if (floor !== undefined) verdict.complaints = complaintsOf(verdict, floor, needed)
  return verdict
}

function complaintsOf ({ passed, faults }: Verdict, floor: Floor, needed: Set<string>): string[] {
  const complaints = floor.allow
    .filter((name) => !needed.has(name))
    .map((name) => `stale allowance: ${name} does not fail; remove it from the floor`)
  const unforeseen = faults.filter(({ allowed }) => !allowed).length
  if (unforeseen > floor.failed) complaints.push(`${unforeseen} checks failed or were warned about, ${floor.failed} may`)
  if (passed < floor.passed) complaints.push(`${passed} checks passed, the floor is ${floor.passed}`)
  return complaints
}

function sum (scenarios: Scenario[], key: 'passed' | 'failed'): number {
  return scenarios.reduce((total, scenario) => total + scenario[key], 0)
}
