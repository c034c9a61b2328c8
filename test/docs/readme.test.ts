// The README's quick start is run as it stands, and its transcripts are replayed against it.

import { spawn, execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'

const root = new URL('../../../', import.meta.url)
const readme = await readFile(new URL('README.md', root), 'utf8')

function blocks (language: string): string[] {
  return [...readme.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, 'g'))].map((match) => match[1]!)
}

t.test('README names the two commands', async (t) => {
  t.ok(blocks('sh').includes('npm ci && npm start\n'))
  t.ok(blocks('sh').includes('npm ci && npm test\n'))
})

t.test('README: the quick start runs, and its transcripts are what it answers', async (t) => {
  const [quickStart, offers] = blocks('js') as [string, string]
  const program = quickStart
    .replace("'cloudg-mcp'", `'${new URL('build/plugin.js', root).href}'`)
    .replace('await app.listen({ port: 3000 })\n', `${offers}await app.listen({ host: '127.0.0.1', port: 0 })\nconsole.log(app.server.address().port)\n`)
  const file = fileURLToPath(new URL('build/test/docs/quick-start.mjs', root))
  await writeFile(file, program)
  const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(async () => {
    child.kill()
    if (child.exitCode === null) await once(child, 'exit')
    await rm(file)
  })
  const [port] = await once(createInterface(child.stdout), 'line') as [string]
  for (const transcript of blocks('console')) {
    const lines = transcript.trimEnd().split('\n')
    for (let at = 0; at < lines.length; at += 2) {
      const command = lines[at]!.replace(/^\$ /, '').replaceAll(':3000/', `:${port}/`)
      const { stdout } = await promisify(execFile)('bash', ['-c', command])
      const timeless = (text: string): string => text.replace(/"cloudg\/duration_ms":\d+/, '')
      t.equal(timeless(stdout), timeless(lines[at + 1]!), command.slice(0, 60))
    }
  }
})

t.test('README: every link to a file leads to one', async (t) => {
  for (const [, target] of readme.matchAll(/\]\((?!http)([^)#]+)\)/g)) {
    await t.resolves(import('node:fs/promises').then(({ access }) => access(new URL(target!, root))), target)
  }
})
