/** A child process with all that it starts in turn, as one thing that can be ended. */
import type { ChildProcess } from 'node:child_process'
import { setTimeout as wait } from 'node:timers/promises'

/** How long processes that were asked to end may take before they are killed, in milliseconds. */
const graceMs = 2000
const lookEveryMs = 20

/** Children that lead a group and were not ended yet. */
const living = new Set<ChildProcess>()

/** From now on nothing of the child's group outlives this process, unless that is killed itself. */
export function adopt(child: ChildProcess): void {
  if (living.size === 0) process.on('exit', killAll)
  living.add(child)
}

function release(child: ChildProcess): void {
  living.delete(child)
  if (living.size === 0) process.off('exit', killAll)
}

function killAll(): void {
  for (const child of living) signalGroup(child, 'SIGKILL')
}

/**
 * Asks the whole group of a child that leads one to end, and kills what is left after a grace period. Resolves when
 * nothing of it runs any more, or when it was killed. What has left the group (`setsid`) is not reached.
 */
export async function endGroup(child: ChildProcess): Promise<void> {
  const killAt = performance.now() + graceMs
  let isAlive = signalGroup(child, 'SIGTERM')
  while (isAlive && performance.now() < killAt) {
    await wait(lookEveryMs)
    isAlive = signalGroup(child, 0)
  }
  if (isAlive) signalGroup(child, 'SIGKILL')
  release(child)
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
