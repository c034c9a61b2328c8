import t from 'tap'
import fc from 'fast-check'
import { UriTemplate } from '../../lib/layer/uri-template.js'

const SEED = { seed: 6570, numRuns: 1000 }

function match (template: string, uri: string): Record<string, string> | undefined {
  const values = new UriTemplate(template).match(uri)
  return values && { ...values }
}

t.test('SCH-13 the supported forms match what they should', async (t) => {
  const cases: Array<[string, string, Record<string, string> | undefined]> = [
    ['x://s?q={q}', 'x://s?q=abc', { q: 'abc' }],
    ['x://s?q={q}', 'x://sq=abc', undefined],
    ['x://a.b/{id}', 'x://a.b/1', { id: '1' }],
    ['x://a.b/{id}', 'x://aXb/1', undefined],
    ['x://p/{+path}', 'x://p/a/b/c.txt', { path: 'a/b/c.txt' }],
    ['x://p/{+path}', 'x://p/', undefined],
    ['x://c/{customer-id}', 'x://c/42', { 'customer-id': '42' }],
    ['x://c/{a.b_c-1}', 'x://c/42', { 'a.b_c-1': '42' }],
    ['x://(a|b)*/{id}', 'x://(a|b)*/1', { id: '1' }],
    ['x://a/{id}', 'x://a/b/c', undefined],
    ['x://a/{id}', 'x://a/b?c', undefined],
    ['x://a/{id}', 'x://a/b#c', undefined],
    ['x://a/{id}', 'x://a/', undefined],
    ['x://a/{id}/z', 'x://a/1/z', { id: '1' }],
    ['x://a/{id}/z', 'x://a/1/zz', undefined],
    ['x://{a}/{b}', 'x://1/2', { a: '1', b: '2' }],
    ['x://{a}-{b}', 'x://p-q-r', { a: 'p-q', b: 'r' }],
    ['x://{name}.{ext}', 'x://a.b.txt', { name: 'a.b', ext: 'txt' }],
    ['x://{a}/{+rest}', 'x://p/q/r', { a: 'p', rest: 'q/r' }],
    ['x://{a}-{b}/{+rest}/{z}.js', 'x://p-q/r/s/t.js', { a: 'p', b: 'q', rest: 'r/s', z: 't' }],
    ['{+all}', 'anything://at/all?x#y', { all: 'anything://at/all?x#y' }],
    ['{+all}/end', 'a/b/end', { all: 'a/b' }],
    ['x://static', 'x://static', {}],
    ['x://static', 'x://statics', undefined],
    ['x://a{?q,n}', 'x://a', {}],
    ['x://a{?q,n}', 'x://a?', {}],
    ['x://a{?q,n}', 'x://a?n=2&q=1', { q: '1', n: '2' }],
    ['x://a{?q,n}', 'x://a?n=2&other=%zz', { n: '2' }],
    ['x://a{?q,n}', 'x://a?q=1&q=2', { q: '1' }],
    ['x://a{?q,n}', 'x://a?q', { q: '' }],
    ['x://a{?q,n}', 'x://a?q=a%26b+c', { q: 'a&b+c' }],
    ['x://a{?q}', 'x://a?q=1#frag', undefined],
    ['x://a{?q}', 'x://a?q=%zz', undefined],
    ['x://{+p}{?q}', 'x://a/b?q=1', { p: 'a/b', q: '1' }],
    ['x://a{#f}', 'x://a#b/c', { f: 'b/c' }],
    ['x://a{#f}', 'x://a', undefined],
    ['x://a{#f}', 'x://a#', undefined],
    ['x://{a}{?q}{#f}', 'x://1?q=2#3?4', { a: '1', q: '2', f: '3?4' }],
  ]
  for (const [template, uri, expected] of cases) t.same(match(template, uri), expected, `${template} <- ${uri}`)
})

t.test('SCH-13 everything else is refused at registration, saying what is wrong', async (t) => {
  const cases: Array<[string, RegExp]> = [
    ['x://{a}{b}', /nothing stands between 'a' and 'b'/],
    ['x://{+a}{b}', /nothing stands between/],
    ['x://{x*}', /write \{\+x\}/],
    ['x://{+x*}', /not supported/],
    ['x://{?x*}', /not supported/],
    ['x://{x:3}', /cut to a length/],
    ['x://a{/x}', /operator '\/'/],
    ['x://a{.x}', /operator '\.'/],
    ['x://a{;x}', /operator ';'/],
    ['x://a{&x}', /operator '&'/],
    ['x://{a,b}', /needs a name/],
    ['x://{}', /needs a name/],
    ['x://{+}', /needs a name/],
    ['x://a{?}', /needs a name/],
    ['x://a{?a,}', /needs a name/],
    ['x://{a b}', /needs a name/],
    ['x://{a%20}', /needs a name/],
    ['x://{ä}', /needs a name/],
    ['x://{|x}', /needs a name/],
    ['x://{a}/{a}', /stands in it twice/],
    ['x://{a}{?a}', /stands in it twice/],
    ['x://{+a}/{+b}', /only one \{\+x\}/],
    ['x://{a', /not closed/],
    ['x://a}', /has no '\{'/],
    ['x://{{a}}', /inside/],
    ['x://a{?q}/b', /may follow/],
    ['x://a{?q}{b}', /may follow/],
    ['x://a{?q}{?r}', /only one/],
    ['x://a?x=1{?q}', /in front of/],
    ['x://a{#f}b', /may follow/],
    ['x://a{#f}{?q}', /may follow/],
    ['x://a#b{#f}', /in front of/],
    ['', /non-empty string/],
    [`x://${'a'.repeat(8192)}`, /at most 8192/],
    [`x://${Array.from({ length: 257 }, (_, i) => `{v${i}}`).join('/')}`, /at most 256/],
  ]
  for (const [template, message] of cases) {
    t.throws(() => new UriTemplate(template), { code: 'CLOUDG_MCP_ERR_INVALID_TEMPLATE', message }, template.slice(0, 40))
  }
  t.doesNotThrow(() => new UriTemplate(`x://${Array.from({ length: 256 }, (_, i) => `{v${i}}`).join('/')}`))
})

t.test('RS-06 values are decoded once, and a broken encoding does not match', async (t) => {
  t.same(match('x://{id}', 'x://a%20b'), { id: 'a b' })
  t.same(match('x://{id}', 'x://%2561'), { id: '%61' })
  t.same(match('x://{id}', 'x://a%2Fb'), { id: 'a/b' }, 'an encoded slash is part of the segment')
  for (const uri of ['x://%', 'x://%zz', 'x://%c0%af', 'x://%ff']) t.equal(match('x://{id}', uri), undefined, uri)
})

t.test('RS-10 the canonical URI has the decoded values in it', async (t) => {
  const template = new UriTemplate('cloudg://graph/{id}{?depth}')
  t.equal(template.fill(template.match('cloudg://graph/%64%33')!), 'cloudg://graph/d3')
  t.equal(template.fill(template.match('cloudg://graph/d3?x=1&depth=%32')!), 'cloudg://graph/d3?depth=2')
  t.equal(new UriTemplate('x://{a}/{+b}{?c,d}{#e}').fill({ a: 'p q', b: 'r/s', d: '1', e: 'f' }), 'x://p q/r/s?d=1#f')
})

t.test('RS-06 expand encodes what a segment cannot hold, and {+x} keeps what separates', async (t) => {
  const template = new UriTemplate('x://{a}/{+b}{?c,d}{#e}')
  t.same(template.variables, ['a', 'b', 'c', 'd', 'e'])
  t.equal(template.expand({ a: "a/b?c!'()*", b: "/:@!$&'()*+,;= ?#[]%é", c: 'x&y', e: '/f?' }),
    "x://a%2Fb%3Fc%21%27%28%29%2A//:@!$&'()*+,;=%20%3F%23%5B%5D%25%C3%A9?c=x%26y#/f%3F")
  t.equal(template.expand({ a: '\ud800', b: '😀', e: 'x' }), 'x://%EF%BF%BD/%F0%9F%98%80#x')
  t.throws(() => template.expand({ a: '1' }), { code: 'CLOUDG_MCP_ERR_INVALID_TEMPLATE', message: /'b'/ })
})

t.test('SCH-13 names of the prototype are names like any other', async (t) => {
  const values = new UriTemplate('x://{__proto__}/{constructor}{?toString}').match('x://a/b')!
  t.equal(Object.getPrototypeOf(values), null)
  t.same(Object.keys(values), ['__proto__', 'constructor'])
  t.throws(() => new UriTemplate('x://{toString}').expand({}), { code: 'CLOUDG_MCP_ERR_INVALID_TEMPLATE' })
  t.same(Object.entries(new UriTemplate('x://a{?__proto__}').match('x://a?__proto__=1')!), [['__proto__', '1']])
})

// A string that counts how often a character of it is looked at. `match` reads its argument through these members alone.
function counting (text: string): { uri: string, reads: () => number } {
  let reads = 0
  const uri = {
    length: text.length,
    charCodeAt (i: number) { reads++; return text.charCodeAt(i) },
    slice (start: number, end: number) { reads += end - start; return text.slice(start, end) },
  }
  return { uri: uri as unknown as string, reads: () => reads }
}

t.test('RS-06 matching is linear: each character is looked at a bounded number of times', async (t) => {
  const vars = (count: number): string => Array.from({ length: count }, (_, i) => `{v${i}}`).join('a')
  const many = vars(250)
  const periodic = `${'a'.repeat(2000)}b`
  const cases: Array<[string, string]> = [
    [`${many}b`, 'a'.repeat(65_000)],
    [`x${many}`, `x${'a'.repeat(65_000)}`],
    [`{+p}/${many}`, 'a/'.repeat(32_000)],
    [`{v}${periodic}{w}z`, `${'a'.repeat(65_000)}z`],
    [`{v}b${'a'.repeat(2000)}{+w}`, 'a'.repeat(65_000)],
    [`${vars(100)}/{+rest}/{z}`, `${'a'.repeat(30_000)}/${'a/'.repeat(15_000)}`],
    ['{a}/{b}', 'a'.repeat(65_536)],
    ['x{?q,r}', `x?${'q&'.repeat(32_000)}`],
    ['x{?q}{#f}', `x?${'#'.repeat(65_000)}`],
    ['{+a}-{b}-{c}', '-'.repeat(65_000)],
  ]
  for (const [template, text] of cases) {
    const compiled = new UriTemplate(template)
    const { uri, reads } = counting(text)
    compiled.match(uri)
    t.ok(reads() <= 6 * text.length + template.length, `${template.slice(0, 30)}: ${reads()} reads for ${text.length} characters`)
  }
  t.equal(new UriTemplate('{+x}').match('a'.repeat(65_537)), undefined, 'longer than 65,536 never matches')
  t.ok(new UriTemplate('{+x}').match('a'.repeat(65_536)))
})

const NAME = fc.stringMatching(/^[a-z][a-z0-9_.-]{0,6}$/)
const literalText = fc.stringMatching(/^[a-z:/.-]{1,5}$/)

t.test('RS-06 property: what expand builds, match takes apart again', async (t) => {
  const segment = fc.string({ minLength: 1, unit: 'binary' }).filter((value) => !/\p{Surrogate}/u.test(value))
  const shape = fc.record({
    names: fc.uniqueArray(NAME, { minLength: 4, maxLength: 4 }),
    values: fc.tuple(segment, segment, segment, fc.string({ unit: 'grapheme' })),
    query: fc.boolean(),
  })
  t.doesNotThrow(() => fc.assert(fc.property(shape, ({ names: [a, b, c, d], values: [va, vb, vc, vd], query }) => {
    const template = new UriTemplate(`x://{${a}}/{+${b}}{?${d}}{#${c}}`)
    const values = { [a!]: va, [b!]: vb, [c!]: vc, ...(query && { [d!]: vd }) }
    const matched = template.match(template.expand(values))
    return matched !== undefined && Object.keys(values).every((key) => matched[key] === values[key]) &&
      Object.keys(matched).length === Object.keys(values).length
  }), SEED))
})

t.test('RS-06 property: the matcher agrees with the regular expression that it stands for', async (t) => {
  const piece = fc.record({ text: literalText, multi: fc.boolean() })
  const alphabet = fc.stringMatching(/^[a-c:/.?#-]{0,24}$/)
  t.doesNotThrow(() => fc.assert(fc.property(fc.array(piece, { minLength: 1, maxLength: 4 }), fc.constantFrom('', 'a', '/'), fc.array(alphabet, { minLength: 4, maxLength: 4 }), alphabet,
    (pieces, tail, fills, other) => {
      let multis = 0
      let template = ''
      let pattern = '^'
      let built = ''
      pieces.forEach(({ text, multi }, i) => {
        const isMulti = multi && multis++ === 0
        template += `${text}{${isMulti ? '+' : ''}v${i}}`
        pattern += text.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&') + (isMulti ? '[^]+' : '[^/?#]+')
        built += text + (isMulti ? fills[i]! : fills[i]!.replace(/[/?#]/g, ''))
      })
      const compiled = new UriTemplate(template + tail)
      const regExp = new RegExp(`${pattern}${tail}$`)
      for (const uri of [built + tail, other]) {
        const values = compiled.match(uri)
        if ((values !== undefined) !== regExp.test(uri)) return false
        if (values !== undefined && compiled.fill(values) !== uri) return false
      }
      return true
    }), { ...SEED, numRuns: 5000 }))
})

t.test('RS-06 property: no template and no URI makes it throw anything but InvalidTemplateError', async (t) => {
  const noise = fc.array(fc.constantFrom('{', '}', '+', '?', '#', '*', ',', '/', ':', 'a', 'b', '%', '%41', '\0', 'é'), { maxLength: 12 }).map((parts) => parts.join(''))
  t.doesNotThrow(() => fc.assert(fc.property(noise, fc.array(fc.oneof(noise, fc.string()), { maxLength: 3 }), (text, uris) => {
    let template: UriTemplate
    try {
      template = new UriTemplate(text)
    } catch (err) {
      return (err as { code: string }).code === 'CLOUDG_MCP_ERR_INVALID_TEMPLATE'
    }
    for (const uri of uris) template.match(uri)
    return true
  }), { ...SEED, numRuns: 5000 }))
})
