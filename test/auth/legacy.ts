// The stream of the old transport, as far as these tests need it: where messages go, and when it ends.

import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { get } from 'node:http'

export interface LegacyStream {
  /** The path that messages go to. */
  readonly endpoint: string
  /** Resolves when the server has ended it. */
  ended (): Promise<void>
  close (): void
}

export async function openLegacy (port: number, token: string): Promise<LegacyStream> {
  const request = get({ host: '127.0.0.1', port, path: '/sse', agent: false, headers: { authorization: `Bearer ${token}` } })
  const [response] = await once(request, 'response') as [IncomingMessage]
  response.setEncoding('utf8')
  const [text] = await once(response, 'data') as [string]
  return {
    endpoint: /data: (\S+)/.exec(text)![1]!,
    ended: async () => {
      response.resume()
      await once(response, 'end')
    },
    close: () => { response.destroy() }
  }
}
