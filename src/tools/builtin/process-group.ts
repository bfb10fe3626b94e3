/** A child process with all that it starts in turn, as one thing that can be ended. */
import type { ChildProcess } from 'node:child_process'
import { setTimeout as wait } from 'node:timers/promises'

/** How long processes that were asked to end may take before they are killed, in milliseconds. */
const graceMs = 2000
const lookEveryMs = 20

/**
 * Asks the whole group of a child that leads one to end, and kills what is left after a grace period. Resolves when
 * nothing of it runs any more, or when it was killed. What has left the group (`setsid`) is not reached.
 */
export async function endGroup(child: ChildProcess): Promise<void> {
  if (!signalGroup(child, 'SIGTERM')) return
  const killAt = performance.now() + graceMs
  while (isAlive(child)) {
    if (performance.now() >= killAt) {
      signalGroup(child, 'SIGKILL')
      return
    }
    await wait(lookEveryMs)
  }
}

/** Returns whether there was anybody to take the signal. */
function signalGroup(child: ChildProcess, signal: NodeJS.Signals | 0): boolean {
  const { pid } = child
  if (pid === undefined) return false
  // There are no groups on Windows: the child alone is ended.
  if (process.platform === 'win32') return child.exitCode === null && (signal === 0 || child.kill(signal))
  try {
    return process.kill(-pid, signal)
  } catch (error) {
    // Members that this user may not signal are there all the same; nobody at all is ESRCH.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

function isAlive(child: ChildProcess): boolean {
  return signalGroup(child, 0)
}
