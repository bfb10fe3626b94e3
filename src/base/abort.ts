/** Stop has one shape, the AbortSignal; its reason is a ConvokeError that says why. */
import { setMaxListeners } from 'node:events'
import { ConvokeError } from './errors.ts'

/** The reason of an aborted signal as a ConvokeError: `timeout` for that of AbortSignal.timeout, `canceled` for any other. */
export function abortReason(signal: AbortSignal): ConvokeError {
  const reason: unknown = signal.reason
  if (reason instanceof ConvokeError) return reason
  if (reason instanceof DOMException && reason.name === 'TimeoutError') {
    return new ConvokeError('timeout', 'The call did not end in time.', { cause: reason })
  }
  return new ConvokeError('canceled', 'The call was cancelled.', { cause: reason })
}

/** Calls `listener` once when the signal aborts, at once if it has. Returns how to take it back. */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener()
    return () => {}
  }
  // One signal may end any number of calls; that is no leak, and needs no warning.
  setMaxListeners(0, signal)
  signal.addEventListener('abort', listener, { once: true })
  return () => signal.removeEventListener('abort', listener)
}

/** A signal that aborts with the first of these, and for its reason; to be ended when nobody looks at it any more. */
export function firstOf(...signals: readonly (AbortSignal | undefined)[]): { signal: AbortSignal; end(): void } {
  const controller = new AbortController()
  const links = signals.flatMap((signal) =>
    signal === undefined ? [] : [onAbort(signal, () => controller.abort(signal.reason))],
  )
  return {
    signal: controller.signal,
    end() {
      for (const unlink of links) unlink()
    },
  }
}

/** The work's value, or the reason of the signal as soon as that aborts, whether the work heeds it or not. */
export async function untilAborted<Value>(signal: AbortSignal | undefined, work: Promise<Value>): Promise<Value> {
  if (signal === undefined) return await work
  let stopListening = (): void => {}
  try {
    return await new Promise<Value>((resolve, reject) => {
      stopListening = onAbort(signal, () => reject(abortReason(signal)))
      work.then(resolve, reject)
    })
  } finally {
    stopListening()
  }
}

/** Resolves after `ms` milliseconds, or as soon as the signal aborts. Keeps the process alive only if told to. */
export function pause(ms: number, signal: AbortSignal, { keepAlive = false } = {}): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer)
      stop()
      resolve()
    }
    const timer = setTimeout(done, ms)
    if (!keepAlive) timer.unref()
    let stop = (): void => {}
    stop = onAbort(signal, done)
  })
}
