// Exit codes, and errors that are one clear line.

import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createRequire } from 'node:module'
import t from 'tap'
import { freePort } from '../backplane/redis-server.js'
import { directory, LAYER, run } from './command.js'

const { version } = createRequire(import.meta.url)('cloudg-mcp/package.json') as { version: string }

t.test('help and version are no errors', async (t) => {
  t.same(await run(['--version']), { code: 0, stdout: `${version}\n`, stderr: '' })
  const help = await run(['--help'])
  t.equal(help.code, 0)
  for (const name of ['serve', 'tools', 'resources', 'prompts', 'call', 'read', 'prompt', 'config']) t.match(help.stdout, new RegExp(`^  ${name} `, 'm'))
  const serve = await run(['serve', '--help'])
  t.equal(serve.code, 0)
  for (const option of ['transport', 'host', 'port', 'path', 'auth-token', 'allowed-host', 'allowed-origin', 'cors-origin', 'json-response', 'stateless',
    'page-size', 'audit-log', 'log-level', 'max-sessions', 'redis', 'dataset']) t.match(serve.stdout, `--${option}`)
})

t.test('wrong usage is exit code 2', async (t) => {
  const wrong: [args: string[], line: string | RegExp][] = [
    [['serv'], /^cloudg-mcp: unknown command 'serv'/],
    [['serve', '--transport', 'carrier-pigeon'], "cloudg-mcp: option '--transport <transport>' argument 'carrier-pigeon' is invalid. Allowed choices are stdio, http, sse."],
    [['serve', '--port', '80'], 'cloudg-mcp: --port needs --transport http or --transport sse'],
    [['serve', '--transport', 'http', '--port', '99999'], /^cloudg-mcp: option '--port <port>' argument '99999' is invalid\. expected a number from 0 to 65535$/],
    [['serve', '--transport', 'http', '--log-level', 'loud'], /Allowed choices are debug, info, warn, error, silent\.$/],
    [['serve', '--transport', 'sse', '--stateless', '--port', '0'], 'cloudg-mcp: option sse: needs sessions, which `stateless` turns off'],
    [['serve', '--transport', 'http', '--port', '0', '--auth-token', 'env:CLOUDG_MCP_NOT_SET'], "cloudg-mcp: Environment variable 'CLOUDG_MCP_NOT_SET' for an auth token is empty"],
    [['serve', '--transport', 'http', '--port', '0', '--path', 'mcp'], 'cloudg-mcp: option path: a path that starts with /'],
    [['serve', '--transport', 'http', LAYER, '--dataset', 'a=b'], 'cloudg-mcp: --dataset is for the bundled inventory: it cannot be given with a module'],
    [['tools', '--dataset', 'prod'], 'cloudg-mcp: --dataset prod: expected NAME=PATH'],
    [['call'], "cloudg-mcp: missing required argument 'name'"],
    [['call', 'count_assets', '--args', '[]'], 'cloudg-mcp: --args: expected a JSON object'],
    [['tools', '--token', 'x'], 'cloudg-mcp: --token needs --url'],
    [['tools', '--url', 'nonsense'], 'cloudg-mcp: --url nonsense: not a URL'],
    [['config'], "cloudg-mcp: required option '--client <client>' not specified"],
    [['config', '--client', 'cursor', '--transport', 'http'], 'cloudg-mcp: --transport http needs --url URL'],
    [['config', '--client', 'cursor', '--url', 'http://localhost/mcp'], 'cloudg-mcp: --url and --token-env need --transport http or --transport sse']
  ]
  await Promise.all(wrong.map(async ([args, line]) => {
    const { code, stdout, stderr } = await run(args)
    t.equal(code, 2, args.join(' '))
    t.equal(stdout, '')
    t.match(stderr.trimEnd(), typeof line === 'string' ? new RegExp(`^${line.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`) : line)
    t.equal(stderr.split('\n').length, 2, 'one line')
  }))
})

t.test('what fails is exit code 1', async (t) => {
  const taken = createServer().listen(0, '127.0.0.1')
  t.teardown(() => taken.close())
  await new Promise((resolve) => { taken.once('listening', resolve) })
  const { port } = taken.address() as { port: number }
  const free = await freePort()
  const failing: [args: string[], line: RegExp][] = [
    [['call', 'nope'], /^cloudg-mcp: Unknown tool: nope$/],
    [['call', 'count_assets', '--args', '{"group_by":"colour"}'], /^cloudg-mcp: Invalid arguments: /],
    [['read', 'cloudg://nowhere'], /^cloudg-mcp: Unknown resource: cloudg:\/\/nowhere$/],
    [['prompt', 'explain_asset'], /^cloudg-mcp: /],
    [['tools', '--dataset', 'prod=/nowhere.json'], /^cloudg-mcp: Dataset file nowhere\.json: no such file$/],
    [['tools', '--url', `http://127.0.0.1:${free}/mcp`], /^cloudg-mcp: http:\/\/127\.0\.0\.1:\d+\/mcp: connect ECONNREFUSED /],
    [['serve', '--transport', 'http', '--port', String(port)], /^cloudg-mcp: listen EADDRINUSE: address already in use 127\.0\.0\.1:\d+$/]
  ]
  await Promise.all(failing.map(async ([args, line]) => {
    const { code, stdout, stderr } = await run(args)
    t.equal(code, 1, args.join(' '))
    t.equal(stdout, '')
    t.match(stderr.trimEnd(), line)
    t.equal(stderr.split('\n').length, 2, 'one line')
  }))
})

t.test('a module that is none', async (t) => {
  const path = await directory(t)
  const write = async (name: string, text: string): Promise<string> => {
    await writeFile(join(path, name), text)
    return join(path, name)
  }
  const nothing = await write('nothing.mjs', 'export const layer = 1')
  const number = await write('number.mjs', 'export default () => 42')
  const broken = await write('broken.mjs', 'throw new Error("cannot\\nbe loaded")')
  const why = 'the default export must be a layer (createLayer), or a function that makes one\n'
  t.same(await run(['tools', '--module', nothing]), { code: 2, stdout: '', stderr: `cloudg-mcp: ${nothing}: ${why}` })
  t.same(await run(['tools', '--module', number]), { code: 2, stdout: '', stderr: `cloudg-mcp: ${number}: ${why}` })
  t.same(await run(['tools', '--module', broken]), { code: 1, stdout: '', stderr: 'cloudg-mcp: cannot be loaded\n' })
})
