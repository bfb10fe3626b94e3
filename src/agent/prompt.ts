/** Prompts: a text or messages with variables. */
import type { Json } from '../base/json.ts'
import type { ChatMessage, ChatRole } from './chat-model.ts'

export interface Prompt {
  /** The template as one text; of messages `role: content` lines. */
  formatString(variables: Readonly<Record<string, Json>>): string
  /** A text becomes one message of `role` (default `system`). */
  formatMessages(variables: Readonly<Record<string, Json>>, role?: ChatRole): ChatMessage[]
}
