import { Readable } from 'node:stream'
import t from 'tap'
import { isBlank, readLines, TOO_LONG } from '../../lib/stdio/lines.js'

async function read (chunks: (Buffer | string)[], maxBytes = 1024): Promise<string[]> {
  const lines: string[] = []
  for await (const line of readLines(Readable.from(chunks), maxBytes)) lines.push(line === TOO_LONG ? 'TOO LONG' : line.toString())
  return lines
}

t.test('STD-03 characters that are cut in two by chunks stay whole', async (t) => {
  const text = '{"text":"日本🎉—"}\n{"next":"é"}\n'
  t.same(await read(Array.from(Buffer.from(text), (byte) => Buffer.from([byte]))), text.split('\n').slice(0, 2))
  t.same(await read([text]), text.split('\n').slice(0, 2))
})

t.test('only 0x0A ends a line', async (t) => {
  t.same(await read(['a\u2028b\u2029c\u0085d\ve\n', 'f\rg\n']), ['a\u2028b\u2029c\u0085d\ve', 'f\rg'])
})

t.test('a carriage return at the end and a byte order mark at the beginning are not part of a line', async (t) => {
  t.same(await read(['\ufeff{"a":1}\r\n{"b":2}\r\n', '\ufeff\r\n']), ['{"a":1}', '{"b":2}', ''])
  t.same(await read(['{"a":1}\r', '\n']), ['{"a":1}'], 'cut between the two')
})

t.test('the last line needs no end, and an empty one at the end is none', async (t) => {
  t.same(await read(['a\nb']), ['a', 'b'])
  t.same(await read(['a\n']), ['a'])
  t.same(await read([]), [])
})

t.test('a line over the cap is reported once, skipped to its end, and not held', async (t) => {
  const part = Buffer.alloc(600, 'x')
  t.same(await read([part, part, part, '\nnext\n', Buffer.alloc(1024, 'y'), '\n', Buffer.alloc(1025, 'z'), '\nlast']), ['TOO LONG', 'next', 'y'.repeat(1024), 'TOO LONG', 'last'])
  t.same(await read([part, part]), ['TOO LONG'], 'without an end')
})

t.test('lines of whitespace are blank', async (t) => {
  for (const blank of ['', ' ', '\t \r']) t.ok(isBlank(Buffer.from(blank)))
  for (const not of [' {}', '\0', '0']) t.notOk(isBlank(Buffer.from(not)))
})
