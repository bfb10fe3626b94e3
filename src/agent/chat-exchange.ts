/** What is known of one chat request while it goes on: kept for the length of the run, so that each of its events finds it again. */
import { hash } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import { canonicalJson, isObject } from '../base/json.ts'
import { readArguments } from '../tools/model-call.ts'
import { excerpt } from '../tools/value.ts'
import { chatRoles, type ChatMessage, type ChatUsage, type ModelToolCall } from './chat-model.ts'
import type { RunnerContext } from './context.ts'
import type { ChatRequestEvent, ChatRequestPayload, ToolResponseEvent } from './events.ts'
import { ofRun } from './of-run.ts'

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
interface ExchangeState extends Took {
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
}

/** The chat requests of one run. */
class Exchanges {
  /** By the id of the tool request: who waits for its answers, and for which calls; undefined once they are there. */
  readonly rounds = new Map<
    string,
    { readonly exchange: Exchange; readonly calls: readonly ModelToolCall[] } | undefined
  >()
  /** What those took that may be tried again, by their ids. */
  readonly took = new Map<string, Took>()
  /** How much all of them have kept, in characters. */
  size = 0
}

const exchangesOf = ofRun(() => new Exchanges())

/** How much the models of a run and their tools may say, in characters. */
const maxKept = 16 * 1_048_576

export class Exchange {
  readonly id: string
  readonly request: ChatRequestPayload
  readonly state: ExchangeState
  readonly #all: Exchanges
  /** What came to the messages of the request. */
  readonly #added: ChatMessage[] = []
  #size = 0

  private constructor(id: string, request: ChatRequestPayload, state: ExchangeState, all: Exchanges) {
    this.id = id
    this.request = request
    this.state = state
    this.#all = all
  }

  /** A new one. Throws `invalid_event` for one that makes no sense. */
  static begin({ id, payload }: ChatRequestEvent, context: Pick<RunnerContext, 'sensoryMemory'>): Exchange {
    const request = payload as unknown as ChatRequestPayload
    checkRequest(request)
    const all = exchangesOf(context)
    const took = request.continues === undefined ? undefined : all.took.get(request.continues)
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
    }
    return new Exchange(id, request, state, all)
  }

  /**
   * The one whose round of tool calls was answered; undefined for a round of somebody else's. The answers are added to its messages.
   * Throws `duplicate_call_id` for a round that was answered before.
   */
  static goOn(
    { payload: answer }: ToolResponseEvent,
    context: Pick<RunnerContext, 'sensoryMemory'>,
  ): Exchange | undefined {
    const { rounds } = exchangesOf(context)
    if (!rounds.has(answer.requestId)) return undefined
    const round = rounds.get(answer.requestId)
    if (round === undefined)
      throw new ConvokeError(
        'duplicate_call_id',
        `The round of tool calls ${excerpt(answer.requestId)} was answered twice, so the model would get two results for one call id. Let one action alone answer the tool requests of a chat model.`,
      )
    rounds.set(answer.requestId, undefined)
    round.exchange.#answered(round.calls, answer)
    return round.exchange
  }

  /** Those of the request, then those of the rounds. */
  get messages(): ChatMessage[] {
    return [...this.request.messages, ...this.#added]
  }

  /** Throws `too_large` where a run may not keep as much. */
  add(...messages: readonly ChatMessage[]): void {
    const size = messages.reduce((sum, message) => sum + sizeOf(message), 0)
    if (this.#all.size + size > maxKept)
      throw new ConvokeError(
        'too_large',
        'The model and its tools have said more than a run may keep. Ask for less at once, or let the model write shorter answers and calls.',
      )
    this.#size += size
    this.#all.size += size
    this.#added.push(...messages)
  }

  /** From here on the exchange waits for the answers to `calls`. */
  wait(toolRequestId: string, calls: readonly ModelToolCall[]): void {
    this.#all.rounds.set(toolRequestId, { exchange: this, calls })
  }

  /** Nothing is kept of it, but of one that may be tried again what it took. */
  end(): void {
    this.#all.size -= this.#size
    if (this.request.errorStrategy !== 'retry') return
    const { deadline, rounds, toolCalls, tokens, usage } = this.state
    this.#all.took.set(this.id, { deadline, rounds, toolCalls, tokens, usage })
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

function sizeOf({ content, toolCalls = [], extra }: ChatMessage): number {
  const ofCalls = toolCalls.map(
    ({ name, arguments: args, extra: more }) => name.length + lengthOf(args) + lengthOf(more),
  )
  return content.length + lengthOf(extra) + ofCalls.reduce((sum, size) => sum + size, 0)
}

function lengthOf(value: unknown): number {
  return typeof value === 'string' ? value.length : value === undefined ? 0 : JSON.stringify(value).length
}

/** The same for rounds of the same calls with the same answers; ids do not count, nor how the arguments are written. */
function hashOf(calls: readonly ModelToolCall[], answers: readonly ChatMessage[]): string {
  const said = calls.map(({ name, arguments: args }, i) => {
    const { params, problem } = readArguments(args)
    return [name, problem === undefined ? params : args, answers[i]?.content]
  })
  return hash('sha256', canonicalJson(said), 'base64')
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
