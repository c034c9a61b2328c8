// What every server under test shares: the port goes to the parent, and CPU and memory figures come back when asked for.

export interface Usage { cpu: number, rss: number, heap: number }

/** CPU in µs, memory in bytes. */
function usage (): Usage {
  const { user, system } = process.cpuUsage()
  globalThis.gc?.()
  const { rss, heapUsed } = process.memoryUsage()
  return { cpu: user + system, rss, heap: heapUsed }
}

/** The longest time for which the event loop did not turn, watched for as long as a fan-out may take. */
function longestBlock (): Promise<number> {
  return new Promise((resolve) => {
    const begin = performance.now()
    let last = begin
    let longest = 0
    const turn = (): void => {
      const now = performance.now()
      longest = Math.max(longest, now - last)
      last = now
      if (now - begin > 500) resolve(longest)
      else setImmediate(turn)
    }
    setImmediate(turn)
  })
}

export function ready (port: number, handle: (message: { type: string }) => unknown = () => undefined): void {
  process.on('message', (message: { type: string, id: number }) => {
    if (message.type === 'exit') process.exit(0)
    const value = message.type === 'cpu' ? process.cpuUsage() : message.type === 'usage' ? usage() : message.type === 'blocked' ? longestBlock() : handle(message)
    void Promise.resolve(value).then((reply) => process.send!({ id: message.id, reply }))
  })
  process.on('disconnect', () => process.exit(0))
  process.send!({ port })
}
