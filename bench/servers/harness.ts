// What every server under test shares: the port goes to the parent, and CPU and memory figures come back when asked for.

export interface Usage { cpu: number, rss: number, heap: number }

/** CPU in µs, memory in bytes. */
function usage (): Usage {
  const { user, system } = process.cpuUsage()
  globalThis.gc?.()
  const { rss, heapUsed } = process.memoryUsage()
  return { cpu: user + system, rss, heap: heapUsed }
}

export function ready (port: number, handle: (message: { type: string }) => unknown = () => undefined): void {
  process.on('message', (message: { type: string, id: number }) => {
    if (message.type === 'exit') process.exit(0)
    const value = message.type === 'cpu' ? process.cpuUsage() : message.type === 'usage' ? usage() : handle(message)
    void Promise.resolve(value).then((reply) => process.send!({ id: message.id, reply }))
  })
  process.on('disconnect', () => process.exit(0))
  process.send!({ port })
}
