import t from 'tap'
import fc from 'fast-check'
import { isAbsolute, join, relative, resolve, sep } from 'node:path'
import { safeJoin, unsafeReason } from '../../lib/layer/safe-path.js'

t.test('RX-01 values that leave the tree, are absolute or hold a NUL are named, in that order of gravity', async (t) => {
  const cases: Array<[string, string | undefined]> = [
    ['../../etc/passwd', 'traversal'],
    ['..', 'traversal'],
    [decodeURIComponent('%2E%2E'), 'traversal'],
    ['..\\..\\secret', 'traversal'],
    ['a/../../b', 'traversal'],
    ['a\\..\\..\\b', 'traversal'],
    ['a/./../..', 'traversal'],
    ['/..', 'traversal'],
    ['//etc/passwd', 'absolute'],
    ['/etc/passwd', 'absolute'],
    ['\\\\server\\share', 'absolute'],
    ['C:\\windows', 'absolute'],
    ['c:relative', 'absolute'],
    ['key\0.txt', 'null-byte'],
    ['/../\0', 'null-byte'],
    ['a/../b', undefined],
    ['a/b/../../c', undefined],
    ['..a/b..', undefined],
    ['...', undefined],
    ['notes:2024', undefined],
    ['1:x', undefined],
    ['', undefined],
    ['plain', undefined],
  ]
  for (const [value, expected] of cases) t.equal(unsafeReason(value), expected, JSON.stringify(value))
})

t.test('RX-01 safeJoin stays inside the base, whatever the parts', async (t) => {
  t.equal(safeJoin('/srv/docs', 'guides', 'start.md'), resolve('/srv/docs/guides/start.md'))
  t.equal(safeJoin('/srv/docs', 'a/../b'), resolve('/srv/docs/b'))
  t.equal(safeJoin('/srv/docs'), resolve('/srv/docs'))
  t.equal(safeJoin('/', 'etc'), resolve('/etc'))
  t.equal(safeJoin('docs', 'a'), join(process.cwd(), 'docs', 'a'))
  for (const parts of [['..'], ['a', '..', '..'], ['../docs-private/x'], ['..\\x'], ['/etc'], ['a', '/etc'], ['C:x'], ['a\0b']]) {
    t.throws(() => safeJoin('/srv/docs', ...parts), { code: 'CLOUDG_MCP_ERR_UNSAFE_PATH' }, JSON.stringify(parts))
  }
  t.throws(() => safeJoin('/srv\0', 'a'), { code: 'CLOUDG_MCP_ERR_UNSAFE_PATH' })
})

t.test('RX-01 properties: no accepted value leads out of the base, and the message never repeats the path', async (t) => {
  const part = fc.oneof(fc.constantFrom('..', '.', '', 'a', '/', '\\', '..\\..', 'C:', '\0', 'b/../..'), fc.string())
  t.doesNotThrow(() => fc.assert(fc.property(fc.array(part, { maxLength: 6 }), (parts) => {
    let path: string
    try {
      path = safeJoin('/srv/docs', ...parts)
    } catch (err) {
      return (err as { code: string }).code === 'CLOUDG_MCP_ERR_UNSAFE_PATH'
    }
    const inside = relative('/srv/docs', path)
    return !isAbsolute(inside) && inside !== '..' && !inside.startsWith(`..${sep}`)
  }), { seed: 4607, numRuns: 2000 }))
  t.doesNotThrow(() => fc.assert(fc.property(fc.string(), (value) => {
    const reason = unsafeReason(value)
    return reason === undefined ? safeJoin('/srv', value).startsWith('/srv') : ['null-byte', 'traversal', 'absolute'].includes(reason)
  }), { seed: 4607, numRuns: 2000 }))
})
