/** Who waits for news of which task. A waiter costs one entry and leaves nothing behind. */
import { onAbort } from '../base/abort.ts'

export interface Waiter {
  /** Resolves at the next wake-up, or when the signal aborts. */
  readonly woken: Promise<void>
  /** Stops waiting; `woken` resolves. */
  cancel(): void
}

export class Wakeups {
  readonly #waiters = new Map<string, Set<() => void>>()

  /** Wakes all that wait for this task. */
  wake(taskId: string): void {
    const waiters = this.#waiters.get(taskId)
    if (waiters === undefined) return
    for (const wake of [...waiters]) wake()
  }

  wakeAll(): void {
    for (const taskId of [...this.#waiters.keys()]) this.wake(taskId)
  }

  /** Listens from the call on, so whoever waits first and looks afterwards misses nothing. */
  wait(taskId: string, signal?: AbortSignal): Waiter {
    let wake = (): void => {}
    const woken = new Promise<void>((resolve) => {
      wake = () => {
        stop()
        this.#remove(taskId, wake)
        resolve()
      }
    })
    const waiters = this.#waiters.get(taskId)
    if (waiters === undefined) this.#waiters.set(taskId, new Set([wake]))
    else waiters.add(wake)
    let stop = (): void => {}
    if (signal !== undefined) stop = onAbort(signal, wake)
    return { woken, cancel: wake }
  }

  #remove(taskId: string, wake: () => void): void {
    const waiters = this.#waiters.get(taskId)
    if (waiters?.delete(wake) === true && waiters.size === 0) this.#waiters.delete(taskId)
  }
}
