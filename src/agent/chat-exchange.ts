/** What is known of one chat request while it goes on: kept in the run's memory, so that any action of the run finds it again. */
import { createHash } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import { canonicalJson, isObject, type Json, type JsonObject } from '../base/json.ts'
import { readArguments } from '../tools/model-call.ts'
import { excerpt } from '../tools/value.ts'
import { chatRoles, type ChatMessage, type ChatUsage, type ModelToolCall } from './chat-model.ts'
import type { ChatRequestEvent, ChatRequestPayload, ToolResponseEvent } from './events.ts'
import type { Memory } from './memory.ts'

/** What counts for limits. */
interface Took {
  /** When the request must have been answered, in milliseconds since 1970; null without a limit. */
  deadline: number | null
  /** How often the model was asked. */
  rounds: number
  /** How many calls it made. */
  toolCalls: number
  /** In and out of all rounds, estimated where the endpoint does not say. */
  tokens: number
  /** As the endpoint says; null while it has said nothing. */
  usage: ChatUsage | null
}

/** What changes from round to round. */
export interface ExchangeState extends Took {
  /** Rounds in a row in which only tools were called that do not exist. */
  unknownRounds: number
  /** Rounds in a row that were the same, and a hash of what they were. */
  sameRounds: number
  lastRound: string
  /** How many answers went back to the model because they did not fit the output schema. */
  invalid: number
  /** Whether the model has no tools any more, and is held to the output schema. */
  isHeld: boolean
  /** The names of the tools that the last round called. */
  used: string[]
  /** How many pieces of messages were added to those of the request. */
  pieces: number
}

/** All chat requests, and the rounds of tool calls that they wait for, below one name each. */
const chats = '_chats'
const rounds = '_rounds'

export class Exchange {
  readonly id: string
  readonly request: ChatRequestPayload
  readonly state: ExchangeState
  readonly #memory: Memory
  readonly #path: string
  /** Messages that are not in memory yet. */
  #added: ChatMessage[] = []

  private constructor(id: string, request: ChatRequestPayload, state: ExchangeState, memory: Memory) {
    this.id = id
    this.request = request
    this.state = state
    this.#memory = memory
    this.#path = pathOf(chats, id)
  }

  /** A new one. Throws `invalid_event` for one that makes no sense. */
  static begin({ id, payload }: ChatRequestEvent, memory: Memory): Exchange {
    const request = payload as unknown as ChatRequestPayload
    checkRequest(request)
    const { continues } = request
    const took =
      continues === undefined
        ? undefined
        : (memory.get(`${pathOf(chats, continues)}.took`) as unknown as Took | undefined)
    const state: ExchangeState = {
      deadline: took?.deadline ?? null,
      rounds: took?.rounds ?? 0,
      toolCalls: took?.toolCalls ?? 0,
      tokens: took?.tokens ?? 0,
      usage: took?.usage ?? null,
      unknownRounds: 0,
      sameRounds: 0,
      lastRound: '',
      invalid: 0,
      isHeld: false,
      used: [],
      pieces: 0,
    }
    return new Exchange(id, request, state, memory)
  }

  /**
   * The one whose round of tool calls was answered; undefined for a round of somebody else's. The answers are added to its messages.
   * Throws `duplicate_call_id` for a round that was answered before.
   */
  static goOn({ payload: answer }: ToolResponseEvent, memory: Memory): Exchange | undefined {
    const path = pathOf(rounds, answer.requestId)
    const round = memory.get(path) as { chat: string; calls: ModelToolCall[]; isAnswered: boolean } | undefined
    if (round === undefined) return undefined
    if (round.isAnswered)
      throw new ConvokeError(
        'duplicate_call_id',
        `The round of tool calls ${excerpt(answer.requestId)} was answered twice, so the model would get two results for one call id. Let one action alone answer the tool requests of a chat model.`,
      )
    memory.set(path, { ...(round as unknown as JsonObject), calls: [], isAnswered: true })
    const at = pathOf(chats, round.chat)
    const request = memory.get(`${at}.request`) as unknown as ChatRequestPayload | undefined
    const state = memory.get(`${at}.state`) as unknown as ExchangeState | undefined
    // Ended meanwhile, by a request of the same id.
    if (request === undefined || state === undefined) return undefined
    const exchange = new Exchange(round.chat, request, state, memory)
    exchange.#answered(round.calls, answer)
    return exchange
  }

  /** Those of the request, then those of the rounds. */
  get messages(): ChatMessage[] {
    const { pieces } = this.state
    const added = Array.from({ length: pieces }, (_, i) => this.#memory.get(`${this.#path}.added.${i}`))
    return [...this.request.messages, ...(added.flat() as unknown as ChatMessage[]), ...this.#added]
  }

  add(...messages: readonly ChatMessage[]): void {
    this.#added.push(...messages)
  }

  /**
   * From here on the exchange waits for the answers to `calls`: whoever goes on with it finds it in memory. Throws `too_large` where a run
   * may not keep as much.
   */
  wait(toolRequestId: string, calls: readonly ModelToolCall[]): void {
    try {
      this.#keep(toolRequestId, calls)
    } catch (cause) {
      if (!(cause instanceof ConvokeError) || cause.code !== 'too_large') throw cause
      // Where in memory it stands is of no use to callers.
      const text =
        'The model and its tools have said more than a run may keep. Ask for less at once, or let the model write shorter answers and calls.'
      throw new ConvokeError('too_large', text, { cause })
    }
  }

  #keep(toolRequestId: string, calls: readonly ModelToolCall[]): void {
    // Each piece under a name of its own: a list of all of them would be written anew each time.
    this.#memory.set(`${this.#path}.added.${this.state.pieces++}`, this.#added as unknown as Json)
    this.#added = []
    this.#memory.set(pathOf(rounds, toolRequestId), {
      chat: this.id,
      calls: calls as unknown as Json,
      isAnswered: false,
    })
    if (!this.#memory.has(`${this.#path}.request`))
      this.#memory.set(`${this.#path}.request`, this.request as unknown as JsonObject)
    this.#memory.set(`${this.#path}.state`, this.state as unknown as JsonObject)
  }

  /** Nothing is kept of it, but of one that may be tried again what it took. */
  end(): void {
    if (this.request.errorStrategy !== 'retry') {
      if (this.state.pieces > 0) this.#memory.delete(this.#path)
      return
    }
    const { deadline, rounds: asked, toolCalls, tokens, usage } = this.state
    this.#memory.set(this.#path, {
      took: { deadline, rounds: asked, toolCalls, tokens, usage: usage as unknown as Json },
    })
  }

  /** Each call gets its message, as providers refuse a call without one. */
  #answered(calls: readonly ModelToolCall[], { responses }: ToolResponseEvent['payload']): void {
    const messages = calls.map(({ id }): ChatMessage => {
      const response = Object.hasOwn(responses, id) ? responses[id] : undefined
      return { role: 'tool', toolCallId: id, content: response?.content ?? unanswered }
    })
    this.add(...messages)
    this.state.used = [...new Set(calls.map(({ name }) => name))]
    const round = hashOf(calls, messages)
    this.state.sameRounds = round === this.state.lastRound ? this.state.sameRounds + 1 : 1
    this.state.lastRound = round
  }
}

const unanswered = JSON.stringify({ error: 'This call was not answered.', error_type: 'internal', retryable: false })

/** A place in memory for an id, whatever characters it has. */
export function pathOf(place: string, id: string): string {
  return `${place}.id-${Buffer.from(id).toString('base64url')}`
}

/** The same for rounds of the same calls with the same answers; ids do not count, nor how the arguments are written. */
function hashOf(calls: readonly ModelToolCall[], answers: readonly ChatMessage[]): string {
  const said = calls.map(({ name, arguments: args }, i) => {
    const { params, problem } = readArguments(args)
    return [name, problem === undefined ? params : args, answers[i]?.content]
  })
  return createHash('sha256').update(canonicalJson(said)).digest('base64')
}

const requestKeys = [
  'model',
  'messages',
  'outputSchema',
  'stream',
  'variables',
  'limits',
  'errorStrategy',
  'retry',
  'invalidRetries',
  'continues',
] as const satisfies readonly (keyof ChatRequestPayload)[]

/** Actions may be plain JavaScript. */
function checkRequest(request: {
  readonly model?: unknown
  readonly messages?: unknown
  readonly continues?: unknown
}): void {
  const { model, messages, continues } = request
  if (continues !== undefined && typeof continues !== 'string')
    throw wrongRequest(`\`continues\` must be the id of a request, got ${excerpt(continues)}`)
  const unknown = Object.keys(request).find((key) => !(requestKeys as readonly string[]).includes(key))
  if (unknown !== undefined)
    throw wrongRequest(
      `it has no ${excerpt(unknown)}; it may have ${requestKeys.join(', ')}. A prompt and tools belong to the chat model setup`,
    )
  if (typeof model !== 'string' || model === '')
    throw wrongRequest(`\`model\` must name a chat model setup, got ${excerpt(model)}`)
  if (!Array.isArray(messages)) throw wrongRequest(`\`messages\` must be a list of messages, got ${excerpt(messages)}`)
  const at = messages.findIndex(
    (each) =>
      !isObject(each) ||
      !(chatRoles as readonly unknown[]).includes(each['role']) ||
      typeof each['content'] !== 'string',
  )
  if (at !== -1)
    throw wrongRequest(`\`messages[${at}]\` must be { role, content }, role being one of ${chatRoles.join(', ')}`)
}

/** What a chat request that makes no sense is told. */
export function wrongRequest(what: string): ConvokeError {
  return new ConvokeError('invalid_event', `A chat request is wrong: ${what}.`)
}
