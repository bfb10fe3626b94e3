/** The words of this room: what work is, as the task runtime sees it. Tools and message handlers become this. */
import type { ConvokeError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import type { Artifact, InterruptedState, Message, TerminalState } from '../protocol/a2a.ts'

/** What work says while it runs. Each becomes one event of the task. */
export type WorkEvent =
  | {
      readonly type: 'status'
      readonly message?: Message
      readonly metadata?: JsonObject
      /** Not replaced by the next one, although it has no message. Default: false, as progress is. */
      readonly isKept?: boolean
    }
  | { readonly type: 'artifact'; readonly artifact: Artifact; readonly append?: boolean; readonly lastChunk?: boolean }
  /** No chunk follows on this artifact. It shows as `lastChunk` where the last chunk has not left yet. */
  | { readonly type: 'end'; readonly artifactId: string }
  /** Answers with a bare message instead of a task. Only as the first event, and the last. */
  | { readonly type: 'reply'; readonly message: Message }

/**
 * How a run ends. A terminal state ends the task; with an interrupted one, or with working, it rests until the
 * next message on it starts another run.
 */
export interface Outcome {
  readonly state: TerminalState | InterruptedState | 'TASK_STATE_WORKING'
  readonly message?: Message
  readonly metadata?: JsonObject
}

export interface Work {
  /** May run before it is persisted, and again after a crash. */
  readonly repeatable: boolean
  /**
   * Is persisted before it begins, and runs again after a crash all the same, as long as it has asked nobody: it finds by itself
   * what of it is done. A stop of the node leaves it to the next process.
   */
  readonly resumable?: boolean
  /** May end in a bare message, so nobody is shown a task before the first event. */
  readonly mayReply?: boolean
  /** Longest run in milliseconds; time spent waiting for answers does not count. */
  readonly timeoutMs?: number | undefined
  /** The work is refused before it begins: the task ends so, and `run` is not called. */
  readonly refusal?: Outcome
  /** The events, one by one, then how it ended. What it throws goes through {@link fail}. */
  run(context: WorkContext): AsyncGenerator<WorkEvent, Outcome, void>
  /** Says a failure in this work's words: what it threw, a deadline, a cancel, a lost worker. */
  fail(error: ConvokeError): Outcome
}

export interface WorkContext {
  readonly taskId: string
  readonly contextId: string
  readonly signal: AbortSignal
  /** Milliseconds since 1970. It moves on by the time spent waiting for answers. */
  readonly deadline: number | undefined
  /** 1, or more when the task was run before by a process that died, or in an earlier turn. */
  readonly attempt: number
  /** Says something outside the order of the generator's yields; nothing happens once the run has ended. */
  emit(event: WorkEvent): void
  /** Sets the longest run, in milliseconds from now, where that was not known before; an earlier deadline stays. */
  limit(timeoutMs: number): void
  /** Says that what the work does is durable now: a cancel, a deadline or a stop of the node changes its end no more. */
  conclude(): void
  /** Makes the task `input-required` and resolves with the next message on it. Rejects when the run is stopped. */
  ask(question: Message, state?: InterruptedState): Promise<Message>
}

/** What a task was started with; kept with it, so that another process can run it. */
export interface TaskRequest<Context = unknown> {
  readonly owner: string
  readonly message: Message
  /** Metadata of the request, beside the message's own. */
  readonly metadata?: JsonObject | undefined
  /** What the door knows of the call and the work needs: JSON, opaque here. */
  readonly context: Context
}

/** One run of a task's work. */
export interface Start<Context = unknown> {
  readonly request: TaskRequest<Context>
  readonly taskId: string
  readonly contextId: string
  /** The message that starts this run: the request's own, or a later one on a task at rest. */
  readonly message: Message
  /** All messages so far, oldest first, this run's included. */
  readonly history: readonly Message[]
}

/** Finds the work for a task. Refusals are work too: work that ends rejected at once. Never throws. */
export type Executor<Context = unknown> = (start: Start<Context>) => Work
