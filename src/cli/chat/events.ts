/** What happens in a conversation, as it is shown; with `-o json` each is a line of this shape. */
import type { JsonObject } from '../../base/json.ts'
import type { Part } from '../../protocol/a2a.ts'

export type ChatEvent =
  /** A message went out: on a task that waits for it, or in a conversation, or as the first of one. */
  | {
      readonly type: 'sent'
      readonly text: string
      readonly messageId: string
      readonly contextId: string | null
      readonly taskId: string | null
    }
  /** The agent made a task of it. */
  | { readonly type: 'task'; readonly taskId: string; readonly contextId: string }
  /** A piece of the answer. Pieces of one artifact are one text; null: of a message that belongs to none. */
  | { readonly type: 'text'; readonly artifactId: string | null; readonly text: string }
  /** A file, or data: a part as it stands on the wire. */
  | { readonly type: 'part'; readonly artifactId: string | null; readonly part: Part }
  /** What came of this artifact does not count, its text begins anew; null: all that came of the task. */
  | { readonly type: 'restart'; readonly artifactId: string | null }
  /** How far the work is, or which tool is called. */
  | { readonly type: 'progress'; readonly progress: number; readonly total?: number; readonly message?: string }
  /** What the agent says of its work meanwhile. */
  | { readonly type: 'status'; readonly text: string }
  /** The agent waits for a reply; the next message is it. */
  | { readonly type: 'question'; readonly taskId: string; readonly message: string; readonly schema?: JsonObject }
  /** The agent is done with the message. Without a task there is no state. */
  | {
      readonly type: 'end'
      readonly state: string | null
      readonly taskId: string | null
      readonly contextId: string | null
      /** Its closing words, which may be those of the answer. */
      readonly message: string | null
      readonly error: { readonly code: string; readonly message: string; readonly retryable: boolean } | null
    }

/** Where the events of a conversation go. */
export interface ChatOutput {
  /** Resolves when there is room for more. */
  show(event: ChatEvent): Promise<void>
  /** Tells the user something that no agent said. */
  note(sentence: string): void
  /** Hears that nothing more comes of the message, though it has no end. */
  cut(): void
}
