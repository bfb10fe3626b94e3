/** What is told of runs that failed, once all others have ended. */
import { ConvokeError, reasonsOf, type ErrorOptions } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import { redactText } from '../base/secrets.ts'
import { clip } from '../tools/value.ts'
import type { Keyed } from './keyed.ts'

/** A run that failed. The key's next inputs are not affected. */
export interface FailedRun {
  readonly key: string
  readonly value: Json
  /** Its message ends with why, which callers of a node would not hear. */
  readonly error: ConvokeError
}

/** How many failures one error carries. */
export const maxFailures = 1_000

const maxReasons = 1_000

/** A failure for the author of the agent: what callers are told is in the log stands behind the message. */
export function explained(error: ConvokeError): ConvokeError {
  const reasons = reasonsOf(error)
  if (reasons === '') return error
  const { code, message, cause } = error
  return new ConvokeError(code, `${message.replace(/\.$/, '')}: ${clip(redactText(reasons), maxReasons)}`, {
    ...policyOf(error),
    cause,
  })
}

/**
 * What a stream throws at its end where runs failed and no `onFailure` heard of it. Code and message are those of the first failure; its
 * cause is that one's, or the failure itself.
 */
export class FailedRuns extends ConvokeError {
  /** How many runs failed. */
  readonly count: number
  // Not for the console: there may be very many.
  readonly #failures: readonly FailedRun[]
  readonly #outputs: readonly Keyed[]

  constructor(failures: readonly FailedRun[], count: number, outputs: readonly Keyed[] = []) {
    const [first] = failures
    const error = first?.error ?? new ConvokeError('internal', 'An internal error occurred. It is in the log.')
    const message = count === 1 ? error.message : `${count} runs failed; the first one: ${error.message}`
    super(error.code, message, { ...policyOf(error), cause: error.cause ?? error })
    this.count = count
    this.#failures = failures
    this.#outputs = outputs
  }

  /** The first 1,000, in the order in which they ended. */
  get failures(): readonly FailedRun[] {
    return this.#failures
  }

  /** By `toList`, what the other runs put out, in the order of their inputs; else empty, as it was read before. */
  get outputs(): readonly Keyed[] {
    return this.#outputs
  }
}

function policyOf({ retryable, retryAfterMs, issues }: ConvokeError): ErrorOptions {
  return {
    retryable,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(issues === undefined ? {} : { issues }),
  }
}
