/** A model's answer, put together from the chunks of a stream, or from the one completion that came in place of it. */
import type { ConvokeError } from '../base/errors.ts'
import { isObject, setMember, type Json, type JsonObject } from '../base/json.ts'
import { excerpt } from '../tools/value.ts'
import type { ChatAnswer, ChatDelta, ChatUsage } from './chat-model.ts'
import { CallAssembly } from './openai-calls.ts'
import { ContentAssembly } from './openai-thoughts.ts'

/** Where thoughts stand beside the content. Whoever wants them back wants them under the name under which they came. */
const thoughtMembers = ['reasoning_content', 'reasoning'] as const

/** Everything is taken from the first choice; there are others only where somebody asked for them. */
export class AnswerAssembly {
  readonly #invalid: (clause: string) => ConvokeError
  readonly #calls: CallAssembly
  readonly #content = new ContentAssembly()
  readonly #thoughts: JsonObject = {}
  readonly #details: JsonObject[] = []
  #isRefused = false
  #hasChoice = false
  #finishReason: string | undefined
  #usage: ChatUsage | undefined

  /** `invalid` makes the error for chunks that are none. */
  constructor(invalid: (clause: string) => ConvokeError) {
    this.#invalid = invalid
    this.#calls = new CallAssembly(invalid)
  }

  /** Whether anything of an answer has come. */
  get hasChoice(): boolean {
    return this.#hasChoice
  }

  /** Whether the model has said that this is all. Usage may still come. */
  get isFinished(): boolean {
    return this.#finishReason !== undefined
  }

  /** Takes a chunk, or a completion, and returns what of it is to be told. Throws `model_invalid` for what is neither. */
  add(chunk: unknown): ChatDelta[] {
    if (!isObject(chunk)) throw this.#invalid(`has ${excerpt(chunk)} where a completion belongs`)
    this.#usage = readUsage(chunk['usage']) ?? this.#usage
    const { choices } = chunk
    // Some endpoints have events of their own between the chunks.
    if (choices === undefined || choices === null) return []
    if (!Array.isArray(choices)) throw this.#invalid('has `choices` that are no list')
    const choice: unknown = choices.find((each) => !isObject(each) || (each['index'] ?? 0) === 0)
    if (choice === undefined) return []
    if (!isObject(choice)) throw this.#invalid('has a choice that is no object')
    this.#hasChoice = true
    const delta = choice['delta'] ?? choice['message'] ?? {}
    if (!isObject(delta)) throw this.#invalid('has a delta that is no object')
    const told = this.#take(delta)
    const reason = choice['finish_reason']
    if (typeof reason === 'string' && reason !== '') this.#finishReason = reason
    return told
  }

  /** What is still to be told when no more comes. */
  end(): ChatDelta[] {
    return this.#content.finish()
  }

  /** The answer as far as it came, with what the endpoint may want back. Throws `duplicate_call_id`, `model_invalid`. */
  finish(): ChatAnswer {
    const toolCalls = this.#calls.finish()
    const content = this.#content.text
    const finishReason = this.#isRefused ? 'refusal' : this.#finishReason
    const extra = { ...this.#thoughts, ...(this.#details.length === 0 ? {} : { reasoning_details: this.#details }) }
    return {
      message: {
        role: 'assistant',
        content,
        ...(toolCalls.length === 0 ? {} : { toolCalls }),
        ...(Object.keys(extra).length === 0 ? {} : { extra }),
      },
      ...(finishReason === undefined ? {} : { finishReason }),
      ...(this.#usage === undefined ? {} : { usage: this.#usage }),
    }
  }

  #take(delta: Record<string, unknown>): ChatDelta[] {
    const told: ChatDelta[] = []
    for (const name of thoughtMembers) {
      const thoughts = delta[name]
      if (!isText(thoughts)) continue
      // Some say the same under both names.
      if (told.length === 0) told.push(...this.#think(thoughts))
      this.#thoughts[name] = textOf(this.#thoughts[name]) + thoughts
    }
    for (const detail of listOf(delta['reasoning_details'])) addDetail(this.#details, detail)
    told.push(...this.#tell(delta['content']))
    const { refusal, tool_calls: calls } = delta
    if (isText(refusal)) {
      // The model's own words for why it does not answer are its answer.
      this.#isRefused = true
      told.push(...this.#content.take(refusal))
    }
    if (calls === undefined || calls === null) return told
    if (!Array.isArray(calls)) throw this.#invalid('has `tool_calls` that are no list')
    for (const call of calls) this.#calls.add(call)
    return told
  }

  #think(text: string): ChatDelta[] {
    this.#content.noteThoughts()
    return [{ type: 'reasoning', text }]
  }

  /** Content is a text, or a list of parts, of which texts and thoughts are taken. */
  #tell(content: unknown): ChatDelta[] {
    if (content === undefined || content === null || content === '') return []
    if (typeof content === 'string') return this.#content.take(content)
    if (!Array.isArray(content)) throw this.#invalid('has content that is neither text nor a list of parts')
    return content.flatMap((part: unknown): ChatDelta[] => {
      if (isText(part)) return this.#content.take(part)
      if (!isObject(part)) return []
      if (isText(part['text'])) return this.#content.take(part['text'])
      const { thinking } = part
      const thoughts = isText(thinking) ? thinking : textsIn(thinking)
      return thoughts === '' ? [] : this.#think(thoughts)
    })
  }
}

/** A detail of OpenRouter's comes in pieces, all but the encrypted ones: https://openrouter.ai/docs/guides/best-practices/reasoning-tokens */
function addDetail(details: JsonObject[], piece: unknown): void {
  if (!isObject(piece)) return
  const last = details.at(-1)
  const goesOn =
    last?.['type'] === piece['type'] && last?.['index'] === piece['index'] && piece['type'] !== 'reasoning.encrypted'
  if (last === undefined || !goesOn) {
    details.push(piece as JsonObject)
    return
  }
  for (const [name, value] of Object.entries(piece)) {
    const isPiece = (name === 'text' || name === 'summary') && isText(value)
    if (value !== null) setMember(last, name, isPiece ? textOf(last[name]) + value : (value as Json))
  }
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== ''
}

function textsIn(parts: unknown): string {
  if (!Array.isArray(parts)) return ''
  return parts.map((part: unknown) => (isObject(part) && isText(part['text']) ? part['text'] : '')).join('')
}

/** Undefined for what makes no sense: an answer is none the worse without. */
function readUsage(usage: unknown): ChatUsage | undefined {
  if (!isObject(usage)) return undefined
  const { prompt_tokens: inputTokens, completion_tokens: outputTokens = 0 } = usage
  return isCount(inputTokens) && isCount(outputTokens) ? { inputTokens, outputTokens } : undefined
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}
