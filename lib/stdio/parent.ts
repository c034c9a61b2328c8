// Notices that the process that started this one has gone. A client that was killed says no goodbye, and somebody else may
// still hold the other end of standard input.

const INTERVAL = 500

/** Calls `onGone` once, within half a second. */
export function watchParent (onGone: () => void): void {
  const { ppid } = process
  const timer = setInterval(() => {
    if (process.ppid === ppid && isAlive(ppid)) return
    clearInterval(timer)
    onGone()
  }, INTERVAL).unref()
}

/** On Windows the number of the parent stays when it has ended. */
function isAlive (pid: number): boolean {
  if (pid <= 1) return true
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}
