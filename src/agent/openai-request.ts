/** What is asked of a model, in the words of OpenAI's chat completions. */
import { isObject, parseJson, type Json, type JsonObject } from '../base/json.ts'
import { bend } from '../tools/definitions/bend.ts'
import { openAiStrict } from '../tools/definitions/dialects.ts'
import { fromModelArguments } from '../tools/definitions/arguments.ts'
import type { ChatMessage, ChatRequest } from './chat-model.ts'

/** A way to hold a model to a shape. */
export interface ResponseFormat {
  /** The same for all formats that an endpoint takes or refuses alike. */
  readonly key: string
  readonly value: JsonObject & { readonly type: 'json_schema' | 'json_object' }
  /** The content of an answer as the schema itself wants it. */
  readonly restore: (content: string) => string
}

/** The ways for a schema, the tightest first. */
export function responseFormats(schema: JsonObject): ResponseFormat[] {
  // Strict schemas, and what goes by `json_object`, are objects.
  const isForObjects = schema['type'] === 'object'
  const loose: ResponseFormat = {
    key: 'json_object',
    value: { type: 'json_object' },
    restore: (content) => content,
  }
  const strict = isForObjects ? bend(schema, openAiStrict) : undefined
  if (strict !== undefined && strict.unfit === undefined) {
    const value = { name: 'answer', schema: strict.schema, strict: true }
    return [
      {
        key: 'json_schema',
        value: { type: 'json_schema', json_schema: value },
        restore: (content) => restore(schema, content),
      },
      loose,
    ]
  }
  // An endpoint may take one such schema and not another.
  const key = `json_schema ${JSON.stringify(schema)}`
  const plain: ResponseFormat = {
    key,
    value: { type: 'json_schema', json_schema: { name: 'answer', schema } },
    restore: loose.restore,
  }
  return isForObjects ? [plain, loose] : [plain]
}

/** A strict schema makes the model write null for what it does not give. */
function restore(schema: JsonObject, content: string): string {
  let value: Json
  try {
    value = parseJson(content) as Json
  } catch {
    // Whoever checks the answer says what is wrong with it.
    return content
  }
  const restored = JSON.stringify(fromModelArguments(schema, value))
  return restored === JSON.stringify(value) ? content : restored
}

/** What is asked for in a way that not every endpoint takes. */
export interface Offer {
  readonly usage: boolean
  /** Whether messages go with what an endpoint wanted back with them. */
  readonly extra: boolean
  /** Whether a limit of tokens goes by its older name. OpenAI's models that think refuse that one, and most others know no other. */
  readonly maxTokens: boolean
  /** The first is asked for; the others stand behind it. */
  readonly formats: readonly ResponseFormat[]
}

/** The body of a request. What it says itself goes over what `parameters` say. */
export function toBody(
  { messages, tools = [] }: ChatRequest,
  model: string,
  parameters: JsonObject,
  { usage, extra, maxTokens, formats: [format] }: Offer,
): JsonObject {
  return {
    ...(maxTokens ? parameters : renamed(parameters)),
    model,
    messages: messages.map((message) => toMessage(message, extra)),
    stream: true,
    ...(usage ? { stream_options: { include_usage: true } } : {}),
    // An empty list is refused by some.
    ...(tools.length === 0 ? {} : { tools: tools as unknown as Json[] }),
    ...(format === undefined ? {} : { response_format: format.value }),
  }
}

function toMessage(
  { role, content, toolCalls = [], toolCallId, extra }: ChatMessage,
  isWithExtra: boolean,
): JsonObject {
  if (toolCallId !== undefined) return { role, tool_call_id: toolCallId, content }
  const more = isWithExtra ? extra : {}
  // Kimi, vLLM and others refuse a message of nothing; without it users would speak twice, which templates refuse.
  const isEmpty = role === 'assistant' && content.trim() === ''
  if (toolCalls.length === 0) return { ...more, role, content: isEmpty ? '…' : content }
  const calls = toolCalls.map(({ id, name, arguments: given, extra: ofCall }) => ({
    ...(isWithExtra ? ofCall : {}),
    id,
    type: 'function',
    function: { name, arguments: toArguments(given) },
  }))
  return { ...more, role, content: content === '' ? null : content, tool_calls: calls }
}

function renamed({ max_tokens, ...parameters }: JsonObject): JsonObject {
  return max_tokens === undefined ? parameters : { max_completion_tokens: max_tokens, ...parameters }
}

/** The names of all that endpoints wanted back with these messages. */
export function extraNames(messages: readonly ChatMessage[]): string[] {
  return messages.flatMap(({ extra = {}, toolCalls = [] }) => [
    ...Object.keys(extra),
    ...toolCalls.flatMap((call) => Object.keys(call.extra ?? {})),
  ])
}

/** Some endpoints parse the arguments of earlier calls, and refuse the whole conversation where a model once wrote broken ones. */
function toArguments(given: string | JsonObject): string {
  if (typeof given !== 'string') return JSON.stringify(given)
  if (given.trim() === '') return '{}'
  try {
    const value: unknown = JSON.parse(given)
    if (value === null) return '{}'
    if (isObject(value)) return given
  } catch {
    // Told as what it was.
  }
  return JSON.stringify({ broken: given })
}
