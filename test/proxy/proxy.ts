// nginx, haproxy and caddy with the configurations of docs/behind-a-proxy.md, with TLS, each on a free port, and a client in
// front of them.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http'
import { request } from 'node:https'
import { connect, createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { createGunzip } from 'node:zlib'
import type { Test } from 'tap'
import { Answer, H, Stream } from '../field/wire.js'

export type Kind = 'nginx' | 'haproxy' | 'caddy'
export const NAME = 'mcp.example.com'

const env = { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin` }
const has = (command: string, ...args: string[]): boolean => spawnSync(command, args, { env }).status === 0
const versions: Record<Kind, string[]> = { nginx: ['-v'], haproxy: ['-v'], caddy: ['version'] }

/** Why a test is left out; none is in CI. */
export function missing (kind: Kind): string | false {
  if (process.env['CI'] === 'true') return false
  return !has(kind, ...versions[kind]) ? `${kind} is not installed` : !has('openssl', 'version') ? 'openssl is not installed' : false
}

/** A block of the page: the configuration that it shows. */
export function documented (language: string): string {
  const page = readFileSync('docs/behind-a-proxy.md', 'utf8')
  const block = new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\`$`, 'm').exec(page)?.[1]
  if (block === undefined) throw new Error(`the page shows no ${language}`)
  return block
}

export interface Setting {
  /** Where the service is: `127.0.0.1:3000` of the page. */
  upstream: string
  gzip?: boolean
  /** In nginx's server block, before the page's location. */
  locations?: string
  /** Changes what the page shows. */
  edit?: (config: string) => string
}

export class Proxy {
  readonly port: number
  readonly #ca: Buffer

  constructor (port: number, ca: Buffer) {
    this.port = port
    this.#ca = ca
  }

  async #ask (method: string, path: string, headers: OutgoingHttpHeaders, body: unknown): Promise<IncomingMessage> {
    const sent = request({
      host: '127.0.0.1', port: this.port, servername: NAME, ca: this.#ca, method, path, agent: false, headers: { host: NAME, ...headers }
    })
    sent.end(body === undefined ? undefined : JSON.stringify(body))
    const [response] = await once(sent, 'response') as [IncomingMessage]
    sent.on('error', () => {})
    return response
  }

  async send (method: string, path: string, headers: OutgoingHttpHeaders = {}, body?: unknown): Promise<Answer> {
    const response = await this.#ask(method, path, headers, body)
    const chunks: Buffer[] = []
    for await (const chunk of decoded(response)) chunks.push(chunk)
    return new Answer(response, Buffer.concat(chunks).toString())
  }

  async open (method: string, path: string, headers: OutgoingHttpHeaders = {}, body?: unknown): Promise<Stream> {
    return new Stream(decoded(await this.#ask(method, path, { ...method === 'POST' ? H : { accept: 'text/event-stream' }, ...headers }, body)))
  }
}

function decoded (response: IncomingMessage): IncomingMessage {
  if (response.headers['content-encoding'] !== 'gzip') return response
  const { statusCode, headers } = response
  return Object.assign(response.pipe(createGunzip()), { statusCode, headers, complete: true }) as unknown as IncomingMessage
}

async function freePort (): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** It ends with the test. */
export async function startProxy (t: Test, kind: Kind, setting: Setting): Promise<Proxy> {
  const port = await freePort()
  const dir = mkdtempSync(join(tmpdir(), `cloudg-mcp-${kind}-`))
  const [certificate, key, both] = ['cert.pem', 'key.pem', 'both.pem'].map((name) => join(dir, name)) as [string, string, string]
  spawnSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', `/CN=${NAME}`,
    '-addext', `subjectAltName=DNS:${NAME}`, '-keyout', key, '-out', certificate], { env })
  writeFileSync(both, readFileSync(certificate, 'utf8') + readFileSync(key, 'utf8'))
  const { edit = (config: string) => config } = setting
  const shown = edit(documented(kind === 'caddy' ? 'caddyfile' : kind)).replaceAll('127.0.0.1:3000', setting.upstream)
  const [config, args] = configure[kind](shown, { dir, port, certificate, key, both, ...setting })
  const file = join(dir, 'config')
  writeFileSync(file, config)
  const child = spawn(kind, args(file), { env: { ...env, HOME: dir, XDG_DATA_HOME: dir, XDG_CONFIG_HOME: dir }, cwd: dir, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => { said += chunk })
  const exited = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGTERM')
    await exited
    rmSync(dir, { recursive: true, force: true })
  })
  while (child.exitCode === null) {
    const socket = connect(port, '127.0.0.1')
    try {
      await once(socket, 'connect')
      return new Proxy(port, readFileSync(certificate))
    } catch {
      await sleep(10)
    } finally {
      socket.destroy()
    }
  }
  throw new Error(`${kind} did not start: ${said}`)
}

interface Place extends Setting { dir: string, port: number, certificate: string, key: string, both: string }

const configure: Record<Kind, (shown: string, place: Place) => [config: string, args: (file: string) => string[]]> = {
  nginx: (shown, { dir, port, certificate, key, gzip, locations = '' }) => {
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${dir}/${name};`).join(' ')
    const server = shown
      .replace('listen 443 ssl http2', `listen 127.0.0.1:${port} ssl http2`)
      .replace('/etc/ssl/mcp.example.com.pem', certificate)
      .replace('/etc/ssl/mcp.example.com.key', key)
      .replace('  location / {', `${locations}\n  location / {`)
    // What the page tells to include.
    const [, shared = ''] = /proxy_pass http:\/\/mcp;\n([^}]*)\}/.exec(shown) ?? []
    writeFileSync(join(dir, 'mcp-proxy.conf'), shared)
    return [`daemon off; master_process off; pid ${dir}/nginx.pid; error_log stderr;
      events { worker_connections 128; }
      http { access_log off; ${temporary}
      ${gzip ? 'gzip on; gzip_proxied any; gzip_min_length 0; gzip_types application/json text/event-stream;' : ''}
      ${server} }`, (file) => ['-e', 'stderr', '-p', dir, '-c', file]]
  },
  haproxy: (shown, { port, both, gzip }) => {
    const config = shown.replace('bind :443', `bind 127.0.0.1:${port}`).replace('/etc/ssl/mcp.example.com.pem', both)
    const compression = gzip ? '  compression algo gzip\n  compression type application/json text/event-stream\n' : ''
    return [config + compression, (file) => ['-db', '-f', file]]
  },
  caddy: (shown, { dir, port, certificate, key, gzip }) => {
    const site = shown.replace('mcp.example.com {', `https://mcp.example.com:${port} {\n  bind 127.0.0.1\n  tls ${certificate} ${key}\n${gzip ? '  encode {\n    gzip\n    minimum_length 0\n  }\n' : ''}`)
    return [`{\n  admin off\n  auto_https off\n  storage file_system ${dir}\n}\n${site}`, (file) => ['run', '--adapter', 'caddyfile', '--config', file]]
  }
}
