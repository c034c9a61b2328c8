// URI templates (RFC 6570, the part that can be matched without guessing) and their matcher. No regular expression is
// built from a template or run over a URI: each character of a URI is looked at a bounded number of times, whatever a
// caller sends. Syntax outside the subset is refused at registration, since a template that never matches helps nobody.
//
//   {x}     one segment: one or more characters other than / ? #
//   {+x}    one or more characters of any kind, several segments; one of these per template
//   {?x,y}  query parameters, each optional, in any order; parameters that are not named are ignored
//   {#x}    the fragment, at the end

import { InvalidTemplateError } from '../errors.js'

const MAX_TEMPLATE = 8192
const MAX_VARIABLES = 256
const MAX_URI = 65_536

const SLASH = 0x2f
const QUESTION = 0x3f
const HASH = 0x23

/** A literal with its Knuth-Morris-Pratt tables: found in linear time from either side, even when it repeats itself. */
interface Literal { text: string, forward: Uint16Array, backward: Uint16Array }
interface Variable { name: string, multi: boolean }

/** Characters that {+x} and {#x} keep when a value is put in. */
const RESERVED = new Set("/:@!$&'()*+,;=")

/**
 * A URI template that is ready to match. Each `{x}` takes as much as it can, those in front of a `{+x}` as little.
 *
 * @throws InvalidTemplateError for syntax outside the subset, a repeated variable, two variables with nothing between
 * them, a template of more than 8,192 characters or 256 variables
 * @example
 * const template = new UriTemplate('orders://{region}/{id}{?lang}')
 * template.match('orders://eu/a%20b?lang=de') // { region: 'eu', id: 'a b', lang: 'de' }
 */
export class UriTemplate {
  readonly template: string
  /** The names, in the order in which they stand in the template. */
  readonly variables: readonly string[]

  // the path is literals[0] path[0] literals[1] path[1] ... literals[n]
  readonly #literals: Literal[] = []
  readonly #path: Variable[] = []
  readonly #query: string[] = []
  readonly #fragment: string | undefined
  readonly #multi: number

  constructor (template: string) {
    const parts = parse(template)
    this.template = template
    this.#literals = parts.literals.map(literal)
    this.#path = parts.path
    this.#query = parts.query
    this.#fragment = parts.fragment
    this.#multi = parts.path.findIndex((variable) => variable.multi)
    this.variables = [...parts.path.map(({ name }) => name), ...parts.query, ...(parts.fragment === undefined ? [] : [parts.fragment])]
  }

  /**
   * The variables' values, percent-decoded once, or nothing when the URI does not match. A URI of more than 65,536
   * characters never does, nor does one with a broken percent-encoding in a value. Query parameters that are not there are absent.
   */
  match (uri: string): Record<string, string> | undefined {
    if (uri.length > MAX_URI) return undefined
    const values: Record<string, string> = Object.create(null)
    let end = uri.length

    if (this.#fragment !== undefined) {
      const hash = find(uri, HASH, 0, end)
      if (hash === -1 || hash + 1 === end || !take(values, this.#fragment, uri, hash + 1, end)) return undefined
      end = hash
    }
    if (this.#query.length > 0) {
      const question = find(uri, QUESTION, 0, end)
      if (question !== -1) {
        if (!this.#matchQuery(values, uri, question + 1, end)) return undefined
        end = question
      }
    }
    const bounds = this.#matchPath(uri, end)
    if (bounds === undefined) return undefined
    for (let i = 0; i < this.#path.length; i++) {
      if (!take(values, this.#path[i]!.name, uri, bounds[2 * i]!, bounds[2 * i + 1]!)) return undefined
    }
    return values
  }

  /**
   * Puts values in, percent-encoded: what a client would do with the template. `{+x}` and `{#x}` keep `/:@!$&'()*+,;=`.
   * @throws InvalidTemplateError when a value is missing that is not a query parameter
   */
  expand (values: Readonly<Record<string, string>>): string {
    return this.#build(values, encode, encodeReserved)
  }

  /**
   * Puts decoded values in as they are: the canonical URI, so that `x://%61` and `x://a` are looked up, and denied, as one.
   * @throws InvalidTemplateError when a value is missing that is not a query parameter
   */
  fill (values: Readonly<Record<string, string>>): string {
    return this.#build(values, verbatim, verbatim)
  }

  #build (values: Readonly<Record<string, string>>, single: (value: string) => string, multi: (value: string) => string): string {
    const need = (name: string): string => {
      if (!Object.hasOwn(values, name)) throw new InvalidTemplateError(`URI template '${this.template}' needs a value for '${name}'`)
      return String(values[name])
    }
    let uri = this.#literals[0]!.text
    this.#path.forEach((variable, i) => {
      uri += (variable.multi ? multi : single)(need(variable.name)) + this.#literals[i + 1]!.text
    })
    let mark = '?'
    for (const name of this.#query) {
      if (!Object.hasOwn(values, name) || values[name] === undefined) continue
      uri += `${mark}${name}=${single(String(values[name]))}`
      mark = '&'
    }
    return this.#fragment === undefined ? uri : `${uri}#${multi(need(this.#fragment))}`
  }

  // Start and end of each path variable. Variables after {+x} (all of them when there is none) are placed from the right,
  // each literal as far right as it goes; those before it from the left. With one {+x} to take up the slack that is
  // complete: where a placement exists, this one does too, so nothing is ever tried twice.
  #matchPath (uri: string, end: number): number[] | undefined {
    const literals = this.#literals
    const count = this.#path.length
    const bounds: number[] = new Array(2 * count)
    const head = literals[0]!.text
    if (head.length > end || !equals(uri, 0, head)) return undefined
    if (count === 0) return head.length === end ? bounds : undefined

    let left = head.length
    let first = 0
    for (; first < this.#multi; first++) {
      // a variable is never empty, so the literal after it starts one further
      const at = findForward(uri, literals[first + 1]!, left + 1, end)
      if (at === -1 || !isSegment(uri, left, at)) return undefined
      bounds[2 * first] = left
      bounds[2 * first + 1] = at
      left = at + literals[first + 1]!.text.length
    }

    const tail = literals[count]!.text
    let right = end - tail.length
    if (right <= left || !equals(uri, right, tail)) return undefined
    for (let last = count - 1; last > first; last--) {
      const at = findBackward(uri, literals[last]!, left + 1, right - 1)
      if (at === -1) return undefined
      const start = at + literals[last]!.text.length
      if (!isSegment(uri, start, right)) return undefined
      bounds[2 * last] = start
      bounds[2 * last + 1] = right
      right = at
    }
    if (right <= left || (!this.#path[first]!.multi && !isSegment(uri, left, right))) return undefined
    bounds[2 * first] = left
    bounds[2 * first + 1] = right
    return bounds
  }

  #matchQuery (values: Record<string, string>, uri: string, start: number, end: number): boolean {
    for (const pair of uri.slice(start, end).split('&')) {
      const equal = pair.indexOf('=')
      const name = decode(equal === -1 ? pair : pair.slice(0, equal))
      // the first one counts, as in URLSearchParams.get()
      if (name === undefined || !this.#query.includes(name) || name in values) continue
      const value = decode(equal === -1 ? '' : pair.slice(equal + 1))
      // without {#x} a fragment has no place in the URI
      if (value === undefined || pair.includes('#')) return false
      values[name] = value
    }
    return this.#fragment !== undefined || find(uri, HASH, start, end) === -1
  }
}

// --- parsing ---------------------------------------------------------------------------------------------------------

interface Parts { literals: string[], path: Variable[], query: string[], fragment: string | undefined }

function parse (template: string): Parts {
  const fail = (why: string): never => {
    const shown = template.length > 200 ? `${template.slice(0, 200)}...` : template
    throw new InvalidTemplateError(`Invalid URI template '${shown}': ${why}`)
  }
  if (typeof template !== 'string' || template === '') throw new InvalidTemplateError('A URI template must be a non-empty string')
  if (template.length > MAX_TEMPLATE) fail(`it has ${template.length} characters, at most ${MAX_TEMPLATE} are allowed`)

  const parts: Parts = { literals: [''], path: [], query: [], fragment: undefined }
  const names = new Set<string>()
  const add = (name: string, expression: string): string => {
    if (name.endsWith('*')) fail(`'{${expression}}' is not supported; write {+${name.slice(0, -1)}} for several segments`)
    if (name.includes(':')) fail(`'{${expression}}' is not supported: a value cannot be cut to a length`)
    if (!isName(name)) fail(`'{${expression}}' needs a name of letters, digits, '_', '-' or '.'`)
    if (names.has(name)) fail(`the variable '${name}' stands in it twice`)
    if (names.size === MAX_VARIABLES) fail(`at most ${MAX_VARIABLES} variables are allowed`)
    names.add(name)
    return name
  }

  let at = 0
  while (at < template.length) {
    const open = template.indexOf('{', at)
    const text = template.slice(at, open === -1 ? template.length : open)
    if (text.includes('}')) fail("a '}' has no '{'")
    if (text !== '' && (parts.query.length > 0 || parts.fragment !== undefined)) fail('nothing but {#x} may follow {?x}, and nothing {#x}')
    parts.literals[parts.literals.length - 1] += text
    if (open === -1) break
    const close = template.indexOf('}', open)
    if (close === -1) fail("a '{' is not closed")
    const expression = template.slice(open + 1, close)
    if (expression.includes('{')) fail("a '{' stands inside '{...}'")
    at = close + 1

    const operator = expression.charAt(0)
    if (parts.fragment !== undefined) fail('nothing may follow {#x}')
    if (operator === '?') {
      if (parts.query.length > 0) fail('only one {?...} is supported; name all query parameters in it')
      if (parts.literals.some((literal) => literal.includes('?'))) fail("it has a '?' in front of {?...}; name all query parameters in {?...}")
      parts.query = expression.slice(1).split(',').map((name) => add(name, expression))
      continue
    }
    if (operator === '#') {
      if (parts.literals.some((literal) => literal.includes('#'))) fail("it has a '#' in front of {#x}")
      parts.fragment = add(expression.slice(1), expression)
      continue
    }
    if (operator === '/' || operator === '.' || operator === ';' || operator === '&') {
      fail(`the operator '${operator}' of '{${expression}}' is not supported; supported are {x}, {+x}, {?x,y} and {#x}`)
    }
    if (parts.query.length > 0) fail('nothing but {#x} may follow {?...}')
    const multi = operator === '+'
    const name = add(multi ? expression.slice(1) : expression, expression)
    if (parts.path.length > 0 && parts.literals[parts.path.length] === '') {
      fail(`nothing stands between '${parts.path.at(-1)!.name}' and '${name}', so their values could not be told apart`)
    }
    if (multi && parts.path.some((variable) => variable.multi)) fail('only one {+x} is supported: two could be matched in several ways')
    parts.path.push({ name, multi })
    parts.literals.push('')
  }
  return parts
}

function isName (name: string): boolean {
  return /^[A-Za-z0-9_.-]+$/.test(name)
}

function literal (text: string): Literal {
  return { text, forward: failures(text), backward: failures(Array.from(text).reverse().join('')) }
}

function failures (text: string): Uint16Array {
  const table = new Uint16Array(text.length)
  for (let i = 1, matched = 0; i < text.length; i++) {
    while (matched > 0 && text.charCodeAt(i) !== text.charCodeAt(matched)) matched = table[matched - 1]!
    if (text.charCodeAt(i) === text.charCodeAt(matched)) matched++
    table[i] = matched
  }
  return table
}

// --- matching --------------------------------------------------------------------------------------------------------

/** The leftmost place at or after `from` where the literal lies inside [from, end). */
function findForward (uri: string, { text, forward }: Literal, from: number, end: number): number {
  for (let i = from, matched = 0; i < end; i++) {
    const code = uri.charCodeAt(i)
    while (matched > 0 && code !== text.charCodeAt(matched)) matched = forward[matched - 1]!
    if (code === text.charCodeAt(matched)) matched++
    if (matched === text.length) return i - matched + 1
  }
  return -1
}

/** The rightmost place where the literal lies inside [start, to). */
function findBackward (uri: string, { text, backward }: Literal, start: number, to: number): number {
  const last = text.length - 1
  for (let i = to - 1, matched = 0; i >= start; i--) {
    const code = uri.charCodeAt(i)
    while (matched > 0 && code !== text.charCodeAt(last - matched)) matched = backward[matched - 1]!
    if (code === text.charCodeAt(last - matched)) matched++
    if (matched === text.length) return i
  }
  return -1
}

function find (uri: string, code: number, start: number, end: number): number {
  for (let i = start; i < end; i++) if (uri.charCodeAt(i) === code) return i
  return -1
}

function equals (uri: string, at: number, text: string): boolean {
  for (let i = 0; i < text.length; i++) if (uri.charCodeAt(at + i) !== text.charCodeAt(i)) return false
  return true
}

function isSegment (uri: string, start: number, end: number): boolean {
  for (let i = start; i < end; i++) {
    const code = uri.charCodeAt(i)
    if (code === SLASH || code === QUESTION || code === HASH) return false
  }
  return true
}

// --- values ----------------------------------------------------------------------------------------------------------

function take (values: Record<string, string>, name: string, uri: string, start: number, end: number): boolean {
  const value = decode(uri.slice(start, end))
  if (value === undefined) return false
  values[name] = value
  return true
}

function decode (value: string): string | undefined {
  if (!value.includes('%')) return value
  try {
    return decodeURIComponent(value)
  } catch {
    return undefined
  }
}

function verbatim (value: string): string {
  return value
}

function encode (value: string): string {
  // a lone surrogate has no UTF-8 form; encodeURIComponent would throw
  return encodeURIComponent(value.replace(/\p{Surrogate}/gu, '\ufffd'))
    .replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)
}

function encodeReserved (value: string): string {
  let out = ''
  let plain = ''
  for (const char of value) {
    if (!RESERVED.has(char)) {
      plain += char
      continue
    }
    out += encode(plain) + char
    plain = ''
  }
  return out + encode(plain)
}

// --- types -----------------------------------------------------------------------------------------------------------

type Expressions<T extends string> = T extends `${string}{${infer E}}${infer Rest}` ? E | Expressions<Rest> : never
type Names<L extends string> = L extends `${infer Head},${infer Tail}` ? Head | Names<Tail> : L
type Always<E extends string> = E extends `?${string}` ? never : E extends `+${infer N}` ? N : E extends `#${infer N}` ? N : E
type Sometimes<E extends string> = E extends `?${infer L}` ? Names<L> : never

/**
 * The variables of a template that is written out: `TemplateVars<'x://{id}{?lang}'>` is `{ id: string, lang?: string }`.
 * A template known only as `string` gives `Record<string, string>`.
 */
export type TemplateVars<T extends string> = string extends T
  ? Record<string, string>
  : { [N in Always<Expressions<T>>]: string } & { [N in Sometimes<Expressions<T>>]?: string } extends infer V
    ? { [K in keyof V]: V[K] }
    : never
