#!/usr/bin/env node
// The command `cloudg-mcp`: serve a layer, ask one, or tell a client how to connect.

import { Command, InvalidArgumentError, Option } from 'commander'
import { STDERR_LEVELS } from '../stdio/log.js'
import type { AskOptions } from './ask.js'
import type { ConfigOptions } from './config.js'
import { CLIENTS } from './config.js'
import { outcome } from './errors.js'
import type { ServeOptions } from './serve.js'
import { version } from './version.js'

const transports = ['stdio', 'http', 'sse']

function program (): Command {
  const root = new Command('cloudg-mcp')
    .description('Serve, inspect and configure Model Context Protocol servers.')
    .version(version())
    .exitOverride()
    .configureOutput({ outputError: (text, write) => write(`cloudg-mcp: ${text.replace(/^error: /, '').trim().replace(/\s*\n\s*/g, ' ')}\n`) })

  root.command('serve')
    .description('serve a layer over stdio or HTTP')
    .argument('[module]', 'a path or package whose default export is a layer, or a function that makes one; without it the bundled inventory is served')
    .addOption(new Option('--transport <transport>', 'how clients connect; sse serves the deprecated HTTP+SSE transport beside HTTP').choices(transports).default('stdio'))
    .addOption(new Option('--flavor <flavor>', 'whose server it is; sdk and fastmcp use those packages of the project').choices(['native', 'sdk', 'fastmcp']).default('native'))
    .option('--host <host>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port to listen on; 0 takes a free one', integer(0, 65_535), 8765)
    .option('--path <path>', 'path of the endpoint', '/mcp')
    .option('--auth-token <spec>', 'TOKEN[:ROLES[:ID]] or env:VAR[:ROLES[:ID]]; repeatable; ignored on stdio', repeatable)
    .option('--allowed-host <pattern>', 'Host that is served, * allowed; repeatable', repeatable)
    .option('--allowed-origin <pattern>', 'Origin that may call, * allowed; repeatable', repeatable)
    .option('--cors-origin <pattern>', 'Origin whose pages may read answers; repeatable', repeatable)
    .option('--json-response', 'answer with JSON, never with a stream')
    .option('--stateless', 'serve the handshake revisions without sessions')
    .option('--page-size <n>', 'entries of a list page; 0 for one page', integer(0), 100)
    .option('--max-sessions <n>', 'handshake sessions at once', integer(1), 1000)
    .option('--audit-log <file>', 'write a line of JSON for each call')
    .option('--redis <url>', 'share sessions and changes between processes')
    .option('--dataset <name=path>', 'inventory file to load; repeatable; the first is the default', repeatable)
    .addOption(new Option('--log-level <level>', 'what is logged, on standard error').choices(STDERR_LEVELS).default('warn'))
    .action(async (module: string | undefined, options: ServeOptions, command: Command) => {
      const { serve } = await import('./serve.js')
      process.exit(await serve(module, options, command))
    })

  asking(root.command('tools').description('list tools'))
    .action(async (options: AskOptions) => (await import('./ask.js')).listTools(options))
  asking(root.command('resources').description('list resources and resource templates'))
    .action(async (options: AskOptions) => (await import('./ask.js')).listResources(options))
  asking(root.command('prompts').description('list prompts'))
    .action(async (options: AskOptions) => (await import('./ask.js')).listPrompts(options))
  asking(root.command('call').description('call a tool').argument('<name>'))
    .option('--args <json>', 'arguments, as a JSON object')
    .action(async (name: string, options: AskOptions) => (await import('./ask.js')).call(name, options))
  asking(root.command('read').description('read a resource').argument('<uri>'))
    .action(async (uri: string, options: AskOptions) => (await import('./ask.js')).read(uri, options))
  asking(root.command('prompt').description('fill in a prompt').argument('<name>'))
    .option('--args <json>', 'arguments, as a JSON object')
    .action(async (name: string, options: AskOptions) => (await import('./ask.js')).prompt(name, options))

  root.command('config')
    .description('print what a client has to be told')
    .argument('[module]', 'what to serve, as for serve')
    .addOption(new Option('--client <client>', 'whose configuration').choices(CLIENTS).makeOptionMandatory())
    .addOption(new Option('--transport <transport>', 'how it connects').choices(transports).default('stdio'))
    .option('--name <name>', 'what the client calls the server', 'cloudg')
    .option('--url <url>', 'where the server is, for http and sse')
    .option('--token-env <variable>', 'environment variable with a bearer token, for http and sse')
    .option('--dataset <name=path>', 'as for serve; repeatable', repeatable)
    .action(async (module: string | undefined, options: ConfigOptions) => (await import('./config.js')).config(module, options))
  return root
}

/** What the commands that ask have in common. */
function asking (command: Command): Command {
  return command
    .option('--module <module>', 'ask this layer, as for serve, and not the bundled inventory')
    .option('--dataset <name=path>', 'inventory file to load; repeatable', repeatable)
    .option('--url <url>', 'ask a running server')
    .option('--token <token>', 'bearer token for it, or env:VAR')
    .option('--json', 'print the whole answer as JSON')
}

function repeatable (value: string, before: string[] = []): string[] {
  return [...before, value]
}

function integer (least: number, most = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : NaN
    if (!(value >= least && value <= most)) throw new InvalidArgumentError(most === Number.MAX_SAFE_INTEGER ? `expected a number from ${least} on` : `expected a number from ${least} to ${most}`)
    return value
  }
}

try {
  await program().parseAsync()
} catch (error) {
  const { code, line } = outcome(error)
  if (line !== undefined) process.stderr.write(line + '\n')
  // Something that was half started may hold the process.
  process.exit(code)
}
