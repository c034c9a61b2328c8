// A server that reads and says nothing: what a flood does to this machine, not to the plugin.

import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { ready } from './harness.js'

const server = createServer((socket) => { socket.on('error', () => {}).resume() })
server.listen(0, '127.0.0.1', () => { ready((server.address() as AddressInfo).port) })
