// The commands that ask, of a running server: the answers are those of a layer in the same process.

import t from 'tap'
import { json, run, serve } from './command.js'

t.test('the same of a running server', async (t) => {
  const server = await serve(t, ['--auth-token', 's3cret:analyst:alice'])
  const remote = ['--url', server.url, '--token', 's3cret']
  t.equal((await run(['tools', ...remote])).stdout, (await run(['tools'])).stdout)
  t.match((await run(['resources', ...remote])).stdout, /^cloudg:\/\/workspace .*\n(.*\n)*cloudg:\/\/asset\/\{id\} /)
  t.match((await run(['prompts', ...remote])).stdout, /^triage_exposure {2}/)
  t.match(await json(['call', 'count_assets', '--args', '{"group_by":"provider"}', ...remote]), { total: 44 })
  t.match(await json(['read', 'cloudg://workspace', ...remote]), { default_dataset: 'prod' })
  t.match((await run(['prompt', 'triage_exposure', '--args', '{"severity":"critical"}', ...remote])).stdout, /^user: These assets/)
  t.equal((await run(['tools', '--url', server.url, '--token', 'env:TEST_TOKEN'], { env: { ...process.env, TEST_TOKEN: 's3cret' } })).code, 0)

  const refused = await run(['tools', '--url', server.url])
  t.equal(refused.code, 1)
  t.match(refused.stderr, /^cloudg-mcp: http.*Unauthorized|401/)
  t.equal(refused.stderr.split('\n').length, 2)
  t.match(await run(['call', 'count_assets', '--args', '{"group_by":"colour"}', ...remote]), { code: 1, stderr: /^cloudg-mcp: Invalid arguments/ })
})

t.test('without the official client --url says what to install', async (t) => {
  const hooks = `export async function resolve (specifier, context, next) {
    if (specifier === '@modelcontextprotocol/client') throw Object.assign(new Error('not here'), { code: 'ERR_MODULE_NOT_FOUND' })
    return next(specifier, context)
  }`
  const register = `import { register } from 'node:module'; register(${JSON.stringify(`data:text/javascript,${encodeURIComponent(hooks)}`)})`
  t.same(await run(['tools', '--url', 'http://127.0.0.1:1/mcp'], { nodeArgs: ['--import', `data:text/javascript,${encodeURIComponent(register)}`] }),
    { code: 1, stdout: '', stderr: 'cloudg-mcp: --url needs the official MCP client: npm install @modelcontextprotocol/client\n' })
})
