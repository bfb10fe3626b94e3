/** What happened in an agent's runs, for people who want to know why. */
import type { ConvokeError } from '../base/errors.ts'
import type { AgentEvent } from './events.ts'

/** One thing that happened. `cause` is which action said it, while it heard which event; the input has none. */
export type EventLogEntry = { readonly runId: string; readonly key: string } & (
  | { readonly kind: 'run'; readonly phase: 'begun' | 'resumed' | 'ended' }
  | { readonly kind: 'run'; readonly phase: 'failed'; readonly error: ConvokeError }
  | {
      readonly kind: 'event'
      readonly event: AgentEvent<string, object>
      readonly cause: { readonly eventId: string; readonly action: string } | undefined
    }
  | {
      readonly kind: 'action'
      readonly action: string
      readonly eventId: string
      readonly durationMs: number
      readonly error?: ConvokeError
    }
)

export interface EventLog {
  /** Never throws, never waits. */
  write(entry: EventLogEntry): void
  /** Resolves when everything is written. */
  close(): Promise<void>
}
