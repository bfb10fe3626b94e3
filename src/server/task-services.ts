/** What all works of this node share, whatever their message is for: what they use of it, the time they have, and what they call. */
import type { Logger } from '../base/logger.ts'
import { maxTimerMs } from '../base/timer.ts'
import type { Delegation } from '../protocol/delegation.ts'
import type { WorkContext } from '../tasks/work.ts'
import type { DelegationGuard, TaskChain } from '../tools/delegation.ts'
import type { Resolve, Surroundings } from '../tools/invoke.ts'
import type { Pipeline } from '../tools/pipeline.ts'
import type { Caller } from '../tools/tool.ts'

export interface TaskServices {
  readonly log: Logger
  /** Finds the tools that the work may call. */
  readonly resolve: Resolve
  readonly knows: (service: string) => boolean
  readonly guard: DelegationGuard
  /** What stands around the calls. */
  readonly pipeline: Pipeline
}

/** Whose a task is, how it came here, and who answers what its tools ask. */
export interface TaskOrigin {
  readonly caller: Caller
  readonly chain: TaskChain
  /** The nodes on the way. Default: none. */
  readonly path: readonly string[] | undefined
  /** Gives only answers that fit. */
  readonly ask: NonNullable<Surroundings['ask']>
}

/** What stands around the calls of a task's work: they end with it, and count as its caller's. */
export function surroundingsOf(
  work: WorkContext,
  { caller, chain, path, ask }: TaskOrigin,
  { log, resolve, knows, pipeline }: TaskServices,
): Surroundings {
  return {
    log,
    resolve,
    knows,
    pipeline,
    path,
    caller,
    signals: [work.signal],
    deadline: () => work.deadline,
    depth: 1,
    ask,
    isAskChecked: true,
    chain: () => chain.outgoing,
  }
}

/** How long a work may take, in milliseconds: the least of the limits, one of which is that of the way it came. Undefined is without a limit. */
export function timeoutOf(
  incoming: Delegation | undefined,
  ...limitsMs: readonly (number | undefined)[]
): number | undefined {
  const leftMs = incoming?.deadline === undefined ? Infinity : Math.max(1, incoming.deadline - Date.now())
  const timeoutMs = Math.min(leftMs, ...limitsMs.map((limitMs) => limitMs ?? Infinity))
  // What no timer can wait for is no limit.
  return timeoutMs > maxTimerMs ? undefined : timeoutMs
}
