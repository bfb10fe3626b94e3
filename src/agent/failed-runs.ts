/** What is told of runs that failed, once all others have ended. */
import { ConvokeError } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import type { Keyed } from './keyed.ts'

/** A run that failed. The key's next inputs are not affected. */
export interface FailedRun {
  readonly key: string
  readonly value: Json
  readonly error: ConvokeError
}

/** How many failures one error carries. */
export const maxFailures = 1_000

/**
 * What a stream throws at its end where runs failed and no `onFailure` heard of it. Code and message are those of the first failure, which
 * is the cause, too.
 */
export class FailedRuns extends ConvokeError {
  /** The first 1,000, in the order in which they ended. */
  readonly failures: readonly FailedRun[]
  /** How many runs failed. */
  readonly count: number
  /** By `toList`, what the other runs put out, in the order of their inputs; else empty, as it was read before. */
  readonly outputs: readonly Keyed[]

  constructor(failures: readonly FailedRun[], count: number, outputs: readonly Keyed[] = []) {
    const [first] = failures
    const error = first?.error ?? new ConvokeError('internal', 'An internal error occurred. It is in the log.')
    const { code, retryable, retryAfterMs, issues } = error
    super(code, count === 1 ? error.message : `${count} runs failed; the first one: ${error.message}`, {
      cause: error,
      retryable,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
      ...(issues === undefined ? {} : { issues }),
    })
    this.failures = failures
    this.count = count
    this.outputs = outputs
  }
}
