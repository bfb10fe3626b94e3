/** What an action is given, and what a run tells those who look on. */
import type { Json, JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import type { Delegation } from '../protocol/delegation.ts'
import type { CallAnswer } from '../tools/batch.ts'
import type { ToolCallOptions, ToolResult } from '../tools/manager.ts'
import type { Caller, Question, Tool } from '../tools/tool.ts'
import type { AgentConfiguration } from './configuration.ts'
import type { AgentEvent } from './events.ts'
import type { Memory } from './memory.ts'
import type { Resources, ResourceType } from './resources.ts'

/** An action: hears one event at a time, says what it has to say by `context.sendEvent`. */
export type Action = (event: AgentEvent<string, object>, context: RunnerContext) => Promise<void> | void

export interface RunnerContext {
  /** Whose run this is: memory is the key's own. */
  readonly key: string
  /** The id of the input, the same when the run is resumed after a crash. */
  readonly runId: string
  /** Aborts when the run is cancelled, its caller's deadline passes, or the runner closes. */
  readonly signal: AbortSignal
  readonly log: Logger
  /** What the agent was configured with. */
  readonly config: AgentConfiguration
  /** What the action was added with. */
  readonly actionConfig: JsonObject
  /** Kept for the key between runs, as JSON. A run that fails leaves it as it was before. */
  readonly shortTermMemory: Memory
  /** This run's only. */
  readonly sensoryMemory: Memory
  /** The tool space, with this run's caller, chain and deadline. */
  readonly tools: AgentToolSpace
  /** Sends an event to the actions that listen; those of an {@link OutputEvent} type leave the agent. Heard in the order in which they were sent. */
  readonly sendEvent: (event: AgentEvent<string, object>) => void
  /** Whether there is a resource of that name, made or not. */
  readonly hasResource: (name: string, type: ResourceType) => boolean
  /** Made when first asked for, then the same one. Throws `not_found` for a name that there is not, `resource_failed`. */
  readonly getResource: <Type extends ResourceType>(name: string, type: Type) => Promise<Resources[Type]>
  /**
   * Does `work` once, also when the run is resumed after a crash: its result, JSON, is remembered until the run ends. `id` is the
   * step's name, unique within this call of the action. A step that was under way when the process died asks `reconcile`;
   * without one it is done again where it is `repeatable`, else it throws `worker_lost`.
   */
  readonly durableExecute: <T extends Json>(
    id: string,
    work: (signal: AbortSignal) => Promise<T> | T,
    options?: DurableOptions<T>,
  ) => Promise<T>
  /** A UUID that is the same when the run is resumed: for message ids of work that must not be done twice. */
  readonly stableId: (name: string) => string
  /** Asks the caller, and waits. Throws `unsupported_operation` where nobody can be asked. */
  readonly ask: (question: Question) => Promise<Json>
  /** Tells those who look on; resolves when there is room for more. */
  readonly tell: (event: RunEvent) => Promise<void> | undefined
}

export interface DurableOptions<T extends Json> {
  /** Doing it twice does no harm: its beginning is not remembered. Default: false. */
  readonly repeatable?: boolean
  /** Finds out what became of the step: its result, or undefined where it did not happen and is to be done now. */
  readonly reconcile?: (signal: AbortSignal) => Promise<T | undefined> | T | undefined
}

/** What runs a model's calls, and knows what there is to call. */
export interface AgentToolSpace {
  /** The way that the work came which calls tools here, for messages to other agents. Default: it begins here. */
  chain?(): Delegation | undefined
  /** The known tools. */
  list(): readonly Tool[]
  get(name: string): Tool | undefined
  tryCall(name: string, params?: unknown, options?: ToolCallOptions): Promise<ToolResult>
  /** Resolves with the result; throws a ConvokeError. */
  call(
    name: string,
    params?: unknown,
    options?: ToolCallOptions,
  ): Promise<Extract<ToolResult, { success: true }>['data']>
}

/** What a run says while it goes on, for those who look on: nothing of it is kept. */
export type RunEvent =
  /** A piece of an answer that goes to the caller (`ChatRequestPayload.stream`). */
  | { readonly type: 'text'; readonly requestId: string; readonly text: string }
  /** What a model thinks. */
  | { readonly type: 'reasoning'; readonly requestId: string; readonly text: string }
  /** The text so far was not the answer: the model calls tools, or is asked again. */
  | { readonly type: 'restart'; readonly requestId: string }
  | { readonly type: 'tool-call'; readonly requestId: string; readonly callId: string; readonly tool: string }
  | { readonly type: 'tool-result'; readonly requestId: string; readonly callId: string; readonly answer: CallAnswer }
  /** The error strategy `ignore` took a failure: there will be no output for this request. `reason`: `schema mismatch`, or the failure in words. */
  | { readonly type: 'ignored'; readonly requestId: string; readonly reason: string }
  /** An output, as it was put out. */
  | { readonly type: 'output'; readonly value: Json }

/** Everything of a run that its caller decides. */
export interface RunOptions {
  /** Same id, same run: an input that was consumed before is not run again. Default: a UUID. */
  readonly id?: string
  readonly signal?: AbortSignal
  /** Awaited when the run's turn has come, before its first event. */
  readonly before?: () => Promise<void>
  /** Who calls tools. Default: the process itself. */
  readonly caller?: Caller
  readonly ask?: (question: Question) => Promise<Json>
  /** Where this run's tools are called, in place of the runner's own space. */
  readonly tools?: AgentToolSpace
  /** Hears what happens; a promise holds the run up until there is room. */
  readonly onEvent?: (event: RunEvent) => Promise<void> | undefined
  /** Called right before the run is committed: what the signal says from here on comes too late. */
  readonly onCommit?: () => void
}
