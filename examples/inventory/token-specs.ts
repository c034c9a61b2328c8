// CLOUDG_MCP_TOKENS: several TOKEN[:ROLES[:ID]] specs in one variable. Roles are separated by commas inside a spec, so commas need a rule:
// specs are separated by `;`, a newline or a comma, and a comma between the two colons of a spec (or after its only colon) separates roles.

// A full spec, a spec with roles to the end, or a bare token. `env:VAR` counts as the token.
const SPEC = /^((?:env:)?[^:,]+(?::[^:]*:[^:,]*|:[^:]*$)?)(?:,|$)/

/**
 * The specs in the value of the variable; none when it is empty.
 * @throws {TypeError} when commas join specs in a way that could be read as something else. The message does not repeat the value: it holds secrets.
 */
export function splitTokenSpecs (value: string): string[] {
  return value.split(/[;\n]/).map((chunk) => chunk.trim()).filter((chunk) => chunk !== '').flatMap(splitAtCommas)
}

function splitAtCommas (chunk: string): string[] {
  const specs: string[] = []
  let rest = chunk
  while (rest !== '') {
    const spec = SPEC.exec(rest)
    if (spec === null) {
      // Colons beyond the two of a spec: a token that contains one, which only works alone.
      if (specs.length === 0 && !rest.includes(',')) return [rest]
      throw new TypeError('CLOUDG_MCP_TOKENS: cannot tell the specs apart; separate them with ";"')
    }
    specs.push(spec[1]!.trim())
    rest = rest.slice(spec[0].length)
  }
  return specs
}
