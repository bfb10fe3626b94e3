/** What a chat request does about failures of its model. */
import { ConvokeError, type ErrorCode } from '../base/errors.ts'
import { excerpt } from '../tools/value.ts'
import type { RunnerContext } from './context.ts'
import type { ChatRequestPayload, ErrorStrategy } from './events.ts'
import { checkCount } from './model-limits.ts'

/** Read, with its defaults. */
export interface Strategy {
  readonly name: ErrorStrategy
  /** How often a round is asked again; undefined where the setup says it. */
  readonly retries: number | undefined
  readonly backoffMs: number
  /** How often an answer that does not fit goes back to the model. */
  readonly invalidRetries: number
}

const strategies: readonly ErrorStrategy[] = ['fail', 'ignore', 'retry']
const defaultAttempts = 3
const defaultBackoffMs = 500

/** Throws `config` for one that makes no sense. */
export function readStrategy(given: Pick<ChatRequestPayload, 'errorStrategy' | 'retry' | 'invalidRetries'>): Strategy {
  const { errorStrategy: name = 'fail', retry: { attempts = defaultAttempts, backoffMs = defaultBackoffMs } = {} } =
    given
  if (!strategies.includes(name))
    throw new ConvokeError('config', `\`errorStrategy\` must be one of ${strategies.join(', ')}, got ${excerpt(name)}.`)
  checkCount('retry.attempts', attempts, 1)
  checkCount('retry.backoffMs', backoffMs, 0)
  const isRetry = name === 'retry'
  const { invalidRetries = isRetry ? attempts - 1 : 0 } = given
  checkCount('invalidRetries', invalidRetries, 0)
  return { name, retries: isRetry ? attempts - 1 : undefined, backoffMs, invalidRetries }
}

const ofTheModel: ReadonlySet<ErrorCode> = new Set([
  'model_unavailable',
  'model_timeout',
  'model_interrupted',
  'model_refused',
  'model_invalid',
  'duplicate_call_id',
  'unknown_tool',
  'tool_loop',
  'round_limit',
  'tool_call_limit',
  'token_limit',
  'time_limit',
  'invalid_output',
])

/** Whether a strategy covers a failure. Mistakes in the agent itself are for whoever writes it, under every strategy. */
export function isOfTheModel(error: unknown): error is ConvokeError {
  return error instanceof ConvokeError && ofTheModel.has(error.code)
}

/** Says that a request has no output, and that what was told of one does not count. `about` goes to the log. */
export async function tellIgnored(
  requestId: string,
  error: ConvokeError,
  context: RunnerContext,
  about: object = {},
): Promise<void> {
  context.log.warn({ error, requestId, ...about }, 'A chat request has no output: its failure is ignored.')
  await context.tell({ type: 'restart', requestId })
  const reason = error.code === 'invalid_output' ? 'schema mismatch' : error.message
  await context.tell({ type: 'ignored', requestId, reason })
}
