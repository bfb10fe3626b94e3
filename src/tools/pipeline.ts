/** What stands around each call of a tool space, in the order in which a call meets it. `call.ts` walks it. */
import { ConvokeError } from '../base/errors.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import type { CallLimits } from './limits.ts'
import { Limits } from './limits.ts'
import type { ToolHooks } from './hooks.ts'
import type { ToolPolicy } from './policy.ts'
import type { RetryRule } from './retry.ts'
import type { Tool } from './tool.ts'
import { isForeign, type ResultMode } from './validation.ts'
import { excerpt } from './value.ts'

export interface PipelineOptions {
  /** Who may call what. Default: everybody everything. */
  readonly policy?: ToolPolicy
  /** In the order in which they are asked. */
  readonly hooks?: readonly ToolHooks[]
  readonly limits?: CallLimits
  /** How long a tool may take that sets no limit itself, in milliseconds. Default: no limit. */
  readonly timeoutMs?: number
  /** Which tools are tried again when they fail; the first rule that fits counts. Default: none. */
  readonly retry?: readonly RetryRule[]
  /** What is done about results that break their schema. Default: `strict` for our own tools, `warn` for those of others. */
  readonly results?: { readonly own?: ResultMode; readonly foreign?: ResultMode }
  readonly log?: Logger
}

/** One for all calls of a tool space, whichever door they come by. */
export class Pipeline {
  readonly policy: ToolPolicy | undefined
  readonly hooks: readonly ToolHooks[]
  readonly limits: Limits
  readonly #timeoutMs: number | undefined
  readonly retry: readonly RetryRule[]
  readonly log: Logger
  readonly #own: ResultMode
  readonly #foreign: ResultMode

  constructor({
    policy,
    hooks = [],
    limits,
    timeoutMs,
    retry = [],
    results = {},
    log = silentLog,
  }: PipelineOptions = {}) {
    this.policy = policy
    this.hooks = hooks
    if (timeoutMs !== undefined && !(timeoutMs > 0)) {
      throw new ConvokeError('config', `toolCalls.timeoutMs must be above 0, got ${excerpt(timeoutMs)}.`)
    }
    this.limits = new Limits(limits)
    this.#timeoutMs = timeoutMs
    this.retry = retry
    this.log = log
    this.#own = results.own ?? 'strict'
    this.#foreign = results.foreign ?? 'warn'
  }

  /** How long the tool may take, in milliseconds: its own limit, or that of all. */
  timeoutOf({ traits }: Tool): number | undefined {
    return traits.timeoutMs ?? this.#timeoutMs
  }

  resultMode(tool: Tool): ResultMode {
    return isForeign(tool) ? this.#foreign : this.#own
  }
}

/** What stands around calls that belong to no tool space: the tool's own concurrency, and its schemas, strictly. */
export const bare = new Pipeline({ results: { foreign: 'strict' } })
