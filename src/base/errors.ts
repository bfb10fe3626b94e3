/**
 * Failure has one shape: a {@link ConvokeError} with a code out of a closed set.
 * A peer sees code and message (and issues); stack and cause stay in the log.
 */

/** How a caller may retry a failure with this code, unless it knows better. */
export interface RetryPolicy {
  /** Whether trying again can help at all. */
  readonly retryable: boolean
  /** How often to try again at most. */
  readonly retries: number
  /** Delay before the first retry in milliseconds; it doubles from there. */
  readonly backoffMs: number
}

const never: RetryPolicy = { retryable: false, retries: 0, backoffMs: 0 }
const soon: RetryPolicy = { retryable: true, retries: 3, backoffMs: 200 }
const later: RetryPolicy = { retryable: true, retries: 5, backoffMs: 1000 }

/** Every code there is, with its preset retry policy. */
export const errorCodes = {
  /** Parameters, or a request, that break their schema. `issues` says where. */
  invalid_params: never,
  /** A tool returned something its own output schema forbids. */
  invalid_result: never,
  /** A tool, peer or agent of that name does not exist here, or not for this caller. */
  not_found: never,
  /** The caller is known, and may not do this. */
  forbidden: never,
  /** No credentials, or wrong ones. */
  unauthenticated: never,
  /** A message handler declined the task. */
  rejected: never,
  /** The tool threw. */
  tool_failed: never,
  /** The deadline passed. */
  timeout: { retryable: true, retries: 1, backoffMs: 0 },
  /** Somebody asked for the work to stop. */
  canceled: never,
  /** The process that ran the task died, and the tool may not run twice. */
  worker_lost: never,
  /** Too much at once; `retryAfterMs` says when to come back. */
  rate_limited: later,
  /** The node cannot do it now: full disk, shutdown, lost database. */
  unavailable: soon,
  /** A connection failed before an answer came. */
  network: soon,
  /** A peer broke: it answered with an error of its own, or with something that is not A2A. */
  peer_failed: never,
  /** The endpoint of a language model cannot be reached, or says that it cannot answer now. */
  model_unavailable: soon,
  /** A language model said nothing for longer than it may. */
  model_timeout: { retryable: true, retries: 1, backoffMs: 0 },
  /** The stream of a language model's answer was cut. */
  model_interrupted: soon,
  /** The endpoint of a language model refuses the request: its credentials, its model, its size. */
  model_refused: never,
  /** A language model's answer is none: broken JSON, or a shape that no chat completion has. */
  model_invalid: never,
  /** A language model gave two calls of one answer the same id. */
  duplicate_call_id: never,
  /** A language model goes on calling tools that do not exist. */
  unknown_tool: never,
  /** A language model makes the same call again and again. */
  tool_loop: never,
  /** An agent asked its model as often as it may for one request. */
  round_limit: never,
  /** An agent's model called as many tools as it may for one request. */
  tool_call_limit: never,
  /** An agent's model used as many tokens as it may for one request. */
  token_limit: never,
  /** An agent took as long as it may for one request. */
  time_limit: never,
  /** What an agent's model answered does not fit the schema that its output must fit. `issues` says where. */
  invalid_output: never,
  /** An action of an agent threw. The cause is in the log, never in the message. */
  action_failed: never,
  /** The events of one run of an agent do not come to an end. */
  event_limit: never,
  /** An event's payload, or a value for an agent's memory, is not JSON. */
  invalid_event: never,
  /** The memory or context of an agent's run was used after the run had ended. */
  run_ended: never,
  /** An agent that makes no sense, or whose plan cannot leave its process. */
  invalid_plan: never,
  /** A resource of an agent could not be made. The cause is in the log, never in the message. */
  resource_failed: never,
  /** A value passes a limit of this node. */
  too_large: never,
  /** The configuration is wrong; start-up only. */
  config: never,
  /** The stored state moved on under a writer: another worker owns the task, or it is terminal. */
  conflict: never,
  /** A defect of ours. The cause is in the log, never in the message. */
  internal: never,

  // The A2A specification's own errors, section 3.3.2, and JSON-RPC's.
  parse_error: never,
  invalid_request: never,
  method_not_found: never,
  task_not_found: never,
  task_not_cancelable: never,
  push_notification_not_supported: never,
  unsupported_operation: never,
  content_type_not_supported: never,
  extended_agent_card_not_configured: never,
  extension_support_required: never,
  version_not_supported: never,
} as const satisfies Record<string, RetryPolicy>

export type ErrorCode = keyof typeof errorCodes

/** One thing wrong with a value: `path` is a JSON Pointer into it (`''` is the value itself). */
export interface Issue {
  path: string
  message: string
}

export interface ErrorOptions {
  /** What went wrong underneath. Kept for the log, never sent. */
  cause?: unknown
  /** Overrides the code's own policy. */
  retryable?: boolean
  /** When trying again makes sense, in milliseconds from now. */
  retryAfterMs?: number
  issues?: readonly Issue[]
}

/**
 * The one error class. `message` is written for the person or model that called: what was wrong,
 * with which value, what to do now; it never holds a secret or an internal name.
 */
export class ConvokeError extends Error {
  override readonly name = 'ConvokeError'
  readonly code: ErrorCode
  readonly retryable: boolean
  readonly retryAfterMs: number | undefined
  readonly issues: readonly Issue[] | undefined

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.retryable = options.retryable ?? errorCodes[code].retryable
    this.retryAfterMs = options.retryAfterMs
    this.issues = options.issues
  }

  /** An error as it is if it is ours already, otherwise an `internal` one that hides it from callers. */
  static from(error: unknown): ConvokeError {
    if (error instanceof ConvokeError) return error
    return new ConvokeError('internal', 'An internal error occurred. It is in the log.', { cause: error })
  }
}

const maxReasons = 8

/** What lies beneath an error, in one line: the messages of its causes, without what was said before. Empty where there is none. */
export function reasonsOf(error: Error): string {
  const said = [error.message]
  let { cause } = error
  for (; cause !== undefined && said.length <= maxReasons; cause = cause instanceof Error ? cause.cause : undefined) {
    const message = cause instanceof Error ? cause.message.trim() : typeof cause === 'string' ? cause.trim() : ''
    if (!said.some((each) => each.includes(message))) said.push(message)
  }
  const [, ...reasons] = said
  return reasons
    .map((reason, i) => (i < reasons.length - 1 ? reason.replace(/\.$/, '') : reason))
    .join(': ')
    .replace(/\s+/g, ' ')
}
