/** Answers to a model's round of calls, as the messages that its provider takes. */

/** What of an answer goes back to a model. */
interface Answered {
  readonly id: string
  readonly success: boolean
  readonly content: string
}

/** A message of OpenAI's chat completions, and of the many endpoints like them. */
export interface OpenAiToolMessage {
  readonly role: 'tool'
  readonly tool_call_id: string
  readonly content: string
}

/** A block of the one user message that Anthropic wants behind a round of `tool_use`. */
export interface AnthropicToolResult {
  readonly type: 'tool_result'
  readonly tool_use_id: string
  readonly content: string
  readonly is_error?: true
}

/** One message for each answer, in their order. */
export function toOpenAiMessages(answers: readonly Answered[]): OpenAiToolMessage[] {
  return answers.map(({ id, content }) => ({ role: 'tool', tool_call_id: id, content }))
}

/** One block for each answer, in their order; all of them belong into one message. */
export function toAnthropicBlocks(answers: readonly Answered[]): AnthropicToolResult[] {
  return answers.map(({ id, success, content }) => ({
    type: 'tool_result',
    tool_use_id: id,
    content,
    ...(success ? {} : { is_error: true }),
  }))
}
