// What the adapters rely on beyond the public API of the SDKs, part by part: against what is installed, and with CANARY=1 against
// what was published last. A failure here names the part that has changed, and what does not work without it.

import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { z } from 'zod'
import { detectServer, hostServer, registerInto } from '../../lib/adapters/index.js'
import { ProtocolServer } from '../../lib/protocol/server.js'
import { createKit, modern } from '../kit.js'

const INSTALL_TIMEOUT = 240_000
if (process.env['CANARY'] === '1') t.setTimeout(INSTALL_TIMEOUT + 60_000)

const PACKAGES = ['@modelcontextprotocol/sdk', '@modelcontextprotocol/server', 'fastmcp'] as const

async function probe (t: Test, from: string): Promise<void> {
  const require = createRequire(join(from, 'package.json'))
  const load = async (name: string): Promise<any> => import(pathToFileURL(require.resolve(name)).href)
  const [{ McpServer: McpServer1 }, { McpServer: McpServer2 }, { FastMCP }] = await Promise.all(['@modelcontextprotocol/sdk/server/mcp.js', '@modelcontextprotocol/server', 'fastmcp'].map(load)) as [any, any, any]
  for (const name of PACKAGES) {
    const { version } = JSON.parse(await readFile(join(from, 'node_modules', name, 'package.json'), 'utf8'))
    t.comment(`${name} ${version}`)
  }

  for (const [major, McpServer] of [[1, McpServer1], [2, McpServer2]] as const) {
    t.test(`SDK ${major}.x`, async (t) => {
      const make = (): any => {
        const mcp = new McpServer({ name: 'canary', version: '1.0.0' }, { capabilities: { logging: {} } })
        mcp.registerTool('sing', { description: 'Sings', inputSchema: major === 1 ? {} : z.object({}) }, () => ({ content: [{ type: 'text', text: 'la' }] }))
        return mcp
      }
      const mcp = make()
      const { server } = mcp
      t.match(detectServer(mcp), { kind: 'sdk', major, server }, 'its kind can be told')
      t.ok(server._requestHandlers instanceof Map && server._requestHandlers.has('tools/list'), '_requestHandlers is the map that requests look into: mounting')
      t.match(server._capabilities, { tools: {} }, '_capabilities is what is advertised: mounting after connect')
      t.ok(server._loggingLevels instanceof Map, '_loggingLevels: the level of the host\'s own messages')
      for (const registry of ['_registeredTools', '_registeredResources', '_registeredResourceTemplates', '_registeredPrompts']) {
        t.type(mcp[registry], 'object', `${registry}: whose a name is, without asking for lists`)
      }
      t.ok(Object.hasOwn(mcp._registeredTools, 'sing'))
      for (const method of ['sendToolListChanged', 'sendPromptListChanged', 'sendResourceListChanged', 'sendResourceUpdated', 'getClientCapabilities', 'getClientVersion', 'registerCapabilities']) {
        t.type(server[method], 'function', `${method} is public`)
      }
      if (major === 2) {
        t.type(mcp.toolInputSchemaJson, 'function', 'toolInputSchemaJson: parameters in headers of a mounted layer')
        server._negotiatedProtocolVersion = '2026-07-28'
        t.equal(server.getNegotiatedProtocolVersion(), '2026-07-28', '_negotiatedProtocolVersion chooses the era: hosting 2026 as written')
        server._clientCapabilities = { sampling: {} }
        t.same(server.getClientCapabilities(), { sampling: {} }, '_clientCapabilities is what its getter reads')
      }
      await serves(t, make)
      await mounts(t, make(), (mounted) => mounted.server._requestHandlers.get('tools/list'))
    })
  }

  t.test('fastmcp', async (t) => {
    const silent = { debug () {}, error () {}, info () {}, log () {}, warn () {} }
    const fm = new FastMCP({ name: 'canary', version: '1.0.0', logger: silent })
    fm.addTool({ name: 'sing', description: 'Sings', execute: async () => 'la' })
    t.match(detectServer(fm), { kind: 'fastmcp' }, 'its kind can be told')
    await serves(t, fm)
    const before = fm.sessions.length
    const binding = registerInto(fm, createKit().layer)
    await binding.ready
    t.equal(fm.sessions.length, before, 'what it has is learned without a session that stays')
    binding.uninstall()
  })
}

async function serves (t: Test, source: any): Promise<void> {
  const layer = hostServer(source)
  const server = new ProtocolServer(layer)
  await layer.start()
  const session = server.createSession({ transport: 'http', register: false })
  t.match(await session.handle(modern('tools/call', { name: 'sing', arguments: {} })), { result: { content: [{ text: 'la' }], resultType: 'complete' } }, 'a hosted call at 2026-07-28')
  await server.close()
  await layer.stop()
}

async function mounts (t: Test, mcp: any, handlerOf: (mcp: any) => any): Promise<void> {
  const host = handlerOf(mcp)
  const binding = registerInto(mcp, createKit().layer)
  await binding.ready
  t.not(handlerOf(mcp), host, 'a mounted layer is in the way of a request')
  binding.uninstall()
  t.equal(handlerOf(mcp), host, 'and out of it again')
}

t.test('what is installed', async (t) => probe(t, process.cwd()))

t.test('what was published last', { skip: process.env['CANARY'] === '1' ? false : 'set CANARY=1: it installs packages' }, async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'canary-'))
  t.teardown(async () => rm(directory, { recursive: true, force: true }))
  await writeFile(join(directory, 'package.json'), '{ "private": true }')
  await promisify(execFile)('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', ...PACKAGES.map((name) => `${name}@latest`)], { cwd: directory, timeout: INSTALL_TIMEOUT })
  await probe(t, directory)
})
