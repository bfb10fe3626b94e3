/** Trying again: p-retry with the pauses that a peer asks for, under one deadline. */
import { setTimeout as wait } from 'node:timers/promises'
import pRetry from 'p-retry'
import { abortReason } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'

export interface RetryOptions {
  /** How often to try again at most, behind the first of these attempts. */
  readonly retries: number
  /** The failure that made it necessary. */
  readonly first: unknown
  readonly signal?: AbortSignal | undefined
  /** Milliseconds since 1970; no attempt begins behind it. */
  readonly deadline?: number | undefined
  /** Whether this failure is worth another attempt. */
  readonly shouldRetry: (error: unknown) => boolean
}

const firstPauseMs = 200
const longestPauseMs = 10_000
/** A peer that wants to be left alone for longer gets its wish: the call fails now. */
export const longestRetryAfterMs = 60_000

/**
 * After a failure: pauses, and calls `attempt` with 1, 2, … until it succeeds. Pauses double, with jitter; a peer's
 * `Retry-After` counts as the least of them. Throws the last failure.
 */
export async function retry<T>(attempt: (number: number) => Promise<T>, options: RetryOptions): Promise<T> {
  const { retries, first, signal, deadline, shouldRetry } = options
  const leftMs = (): number => (deadline === undefined ? Infinity : deadline - Date.now())
  let last = first
  let notBefore = 0
  // p-retry begins with an attempt; ours has failed already, and counts as its first.
  const next = async (number: number): Promise<T> => {
    if (number === 1) throw first
    const waitMs = notBefore - Date.now()
    if (waitMs > 0) await wait(waitMs, undefined, signal === undefined ? {} : { signal })
    if (leftMs() <= 0) throw last
    return attempt(number - 1)
  }
  try {
    return await pRetry(next, {
      retries,
      minTimeout: firstPauseMs,
      maxTimeout: longestPauseMs,
      randomize: true,
      ...(deadline === undefined ? {} : { maxRetryTime: Math.max(0, leftMs()) }),
      ...(signal === undefined ? {} : { signal }),
      shouldRetry: ({ error }) => {
        last = error
        const waitMs = error instanceof ConvokeError ? (error.retryAfterMs ?? 0) : 0
        notBefore = Date.now() + waitMs
        return waitMs <= longestRetryAfterMs && leftMs() > Math.max(waitMs, firstPauseMs) && shouldRetry(error)
      },
    })
  } catch (error) {
    if (signal?.aborted === true) throw abortReason(signal)
    throw error
  }
}
