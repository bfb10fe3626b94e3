/** One limit for all that a wait takes: its requests, its pauses and its streams. */
import { onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { maxTimerMs } from '../base/timer.ts'
import type { RequestOptions } from './peer.ts'

export interface Limit {
  readonly signal: AbortSignal | undefined
  /** Whether the time was up before anybody else aborted. */
  readonly isUp: boolean
  /** To be called when the wait is over, however it ended. */
  end(): void
}

/** A signal that aborts with the given one, and with `timeout` when the time is up. More than a timer can wait for is no limit. */
export function startLimit({ signal, timeoutMs }: RequestOptions): Limit {
  if (timeoutMs === undefined || timeoutMs > maxTimerMs) return { signal, isUp: false, end() {} }
  const controller = new AbortController()
  let isUp = false
  const timer = setTimeout(() => {
    isUp = !controller.signal.aborted
    controller.abort(new ConvokeError('timeout', `It did not end within ${timeoutMs} ms.`))
  }, timeoutMs)
  const stopListening = signal === undefined ? undefined : onAbort(signal, () => controller.abort(signal.reason))
  return {
    signal: controller.signal,
    get isUp() {
      return isUp
    },
    end() {
      clearTimeout(timer)
      stopListening?.()
    },
  }
}
