/** Answers to a model's round of calls, as the messages that its provider takes. */
import { isContent } from '../protocol/content.ts'
import type { ToolValue } from './tool.ts'

/** What of an answer goes back to a model. */
interface Answered {
  readonly id: string
  readonly success: boolean
  readonly content: string
  readonly data?: ToolValue
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
  /** A text, or a text and the pictures of the result. */
  readonly content: string | readonly AnthropicBlock[]
  readonly is_error?: true
}

export type AnthropicBlock =
  | { readonly type: 'text'; readonly text: string }
  | {
      readonly type: 'image'
      readonly source: { readonly type: 'base64'; readonly media_type: string; readonly data: string }
    }

/** One message for each answer, in their order. */
export function toOpenAiMessages(answers: readonly Answered[]): OpenAiToolMessage[] {
  return answers.map(({ id, content }) => ({ role: 'tool', tool_call_id: id, content }))
}

/**
 * One block for each answer, in their order; all of them belong into one message. Pictures of a result in several parts go
 * along where the provider takes their type and size; OpenAI's messages of tools have no room for any.
 */
export function toAnthropicBlocks(answers: readonly Answered[]): AnthropicToolResult[] {
  return answers.map(({ id, success, content, data }) => {
    const pictures = picturesOf(data)
    return {
      type: 'tool_result',
      tool_use_id: id,
      content: pictures.length === 0 ? content : [{ type: 'text', text: content }, ...pictures],
      ...(success ? {} : { is_error: true }),
    }
  })
}

/** https://docs.anthropic.com/en/docs/build-with-claude/vision: these types, 5 MB each, in base64. */
const pictureTypes: ReadonlySet<string> = new Set(['image/jpeg', 'image/png', 'image/gif', 'image/webp'])
const maxPictureChars = 5 * 1024 * 1024
/** So many of one result at most. */
const maxPictures = 20

function picturesOf(data: ToolValue | undefined): AnthropicBlock[] {
  if (!isContent(data)) return []
  return data.parts
    .flatMap(({ raw, mediaType = '' }): AnthropicBlock[] => {
      if (raw === undefined || !pictureTypes.has(mediaType) || raw.length > maxPictureChars) return []
      return [{ type: 'image', source: { type: 'base64', media_type: mediaType, data: raw } }]
    })
    .slice(0, maxPictures)
}
