/** Tries a call again, where somebody asked for that and it can do no harm. */
import { errorCodes, type ConvokeError, type ErrorCode, type RetryPolicy } from '../base/errors.ts'
import { fitsGlob } from '../base/glob.ts'
import type { Tool } from './tool.ts'
import { isForeign } from './validation.ts'

/** Which tools are tried again. The code of the failure says how often and how soon, unless the rule does. */
export interface RetryRule {
  /** A glob over handles. Default: all. */
  readonly tools?: string
  /** Only failures with these codes. Default: those whose preset policy has retries. */
  readonly codes?: readonly ErrorCode[]
  /** How often at most. Default: as the code's preset says, once where it has none. */
  readonly retries?: number
  /** Before the first retry, in milliseconds; it doubles from there, up to 30 s. Default: the code's preset. */
  readonly backoffMs?: number
}

/** A call that has failed. */
export interface Tried {
  readonly attempt: number
  /** Whether the tool has said anything in this attempt. */
  readonly hasSpoken: boolean
  /** In milliseconds since 1970. */
  readonly deadline: number | undefined
}

const maxBackoffMs = 30_000

/** The first rule for a tool. */
export function retryRuleFor(rules: readonly RetryRule[], tool: Tool): RetryRule | undefined {
  return rules.find((rule) => fitsGlob(tool.name, rule.tools ?? '*'))
}

/**
 * How long to wait before the call is tried again, in milliseconds; undefined where it is not. A tool that may not run
 * twice is tried again only where its peer or server turned the call away: an own one has begun whenever it fails, and
 * so has one that `hasSpoken`. `attempt` is 1 for the first one.
 */
export function retryDelay(
  rule: RetryRule | undefined,
  tool: Tool,
  error: ConvokeError,
  { attempt, hasSpoken, deadline }: Tried,
): number | undefined {
  if (rule === undefined) return undefined
  if (rule.codes === undefined ? !error.retryable : !rule.codes.includes(error.code)) return undefined
  const { readOnly, idempotent } = tool.traits
  const isTurnedAway = error.code === 'rate_limited' && isForeign(tool) && !hasSpoken && !isOfTheTool(error)
  if (readOnly !== true && idempotent !== true && !isTurnedAway) return undefined
  const preset: RetryPolicy = errorCodes[error.code]
  if (preset.retries === 0 && rule.codes === undefined) return undefined
  if (attempt > (rule.retries ?? Math.max(1, preset.retries))) return undefined
  const backoffMs = Math.min((rule.backoffMs ?? preset.backoffMs) * 2 ** (attempt - 1), maxBackoffMs)
  // Half of it by chance, so that those that failed together do not come back together.
  const waitMs = Math.max(error.retryAfterMs ?? 0, backoffMs * (0.5 + Math.random() / 2))
  return deadline !== undefined && Date.now() + waitMs >= deadline ? undefined : waitMs
}

/** Whether a peer's tool said so itself, which had begun then. Errors of peers tell their kind. */
function isOfTheTool(error: ConvokeError): boolean {
  return 'kind' in error && error.kind === 'tool'
}
