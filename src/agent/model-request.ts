/** One round: asks a model, tells what it says as it says it, and tries again where a failure may pass. */
import { randomUUID } from 'node:crypto'
import { abortReason, onAbort, pause } from '../base/abort.ts'
import { ConvokeError, type ErrorCode } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { excerpt } from '../tools/value.ts'
import type {
  ChatAnswer,
  ChatDelta,
  ChatMessage,
  ChatModelConnection,
  ChatRequest,
  ChatUsage,
  ModelToolCall,
} from './chat-model.ts'
import type { RunEvent } from './context.ts'

export interface AskOptions {
  /** Aborts the request; its reason is thrown. */
  readonly signal: AbortSignal
  /** How often to try again at most. */
  readonly retries: number
  /** Milliseconds before the first retry; they double from there, with jitter. An endpoint's own wish counts as the least. */
  readonly backoffMs: number
  /** Whether answers that are none are asked for again, too, beside failures that may pass. */
  readonly retriesNonsense: boolean
  /** Whether an answer without text and calls is one: what must fit a schema is told what is wrong with it. */
  readonly mayBeEmpty: boolean
  /** No attempt begins behind it, milliseconds since 1970. */
  readonly deadline: number | undefined
  /** The id of the chat request, where the answer goes to the caller as it comes. */
  readonly streamTo: string | undefined
  readonly tell: (event: RunEvent) => Promise<void> | undefined
  readonly log: Logger
}

const maxBackoffMs = 30_000
/** An endpoint that wants to be left alone for longer gets its wish: the request fails now. */
const longestRetryAfterMs = 60_000

const passing: ReadonlySet<ErrorCode> = new Set(['model_unavailable', 'model_timeout', 'model_interrupted'])
const nonsense: ReadonlySet<ErrorCode> = new Set(['model_invalid', 'duplicate_call_id'])

/**
 * The model's answer; each of its calls has an id of its own. Throws what the connection throws, once no retry is left, and the
 * reason of the signal.
 */
export async function askModel(
  connection: ChatModelConnection,
  request: ChatRequest,
  options: AskOptions,
): Promise<ChatAnswer> {
  const { signal, retries, backoffMs, deadline, log } = options
  const teller = new Teller(options)
  // Some models have nothing to say behind a round of tools, and say it when they are asked once more.
  let mayAskOnceMore = true
  for (let attempt = 1; ; attempt++) {
    let isEmpty = false
    try {
      const answer = toKept(await hear(connection.chat(request, { signal }), teller, signal))
      isEmpty = !options.mayBeEmpty && answer.message.toolCalls === undefined && answer.message.content.trim() === ''
      if (isEmpty) throw emptyAnswer(answer)
      await teller.finish(answer)
      return answer
    } catch (error) {
      if (signal.aborted) throw abortReason(signal)
      if (!(error instanceof ConvokeError)) throw error
      const isLast = attempt > retries || !mayPass(error, options)
      if (isLast && !(isEmpty && mayAskOnceMore)) throw error
      if (isEmpty) mayAskOnceMore = false
      // Half of it by chance, so that those that failed together do not come back together.
      const backoff = Math.min(backoffMs * 2 ** (attempt - 1), maxBackoffMs) * (0.5 + Math.random() / 2)
      const waitMs = Math.max(error.retryAfterMs ?? 0, backoff)
      if (waitMs > Math.max(longestRetryAfterMs, backoff)) throw error
      if (deadline !== undefined && Date.now() + waitMs >= deadline) throw error
      log.warn({ error, attempt, waitMs: Math.round(waitMs) }, 'A request to a model failed and is made again.')
      await teller.restart()
      await pause(waitMs, signal, { keepAlive: true })
      if (signal.aborted) throw abortReason(signal)
    }
  }
}

function mayPass({ code, retryable }: ConvokeError, { retriesNonsense }: AskOptions): boolean {
  return (passing.has(code) && retryable) || (retriesNonsense && nonsense.has(code))
}

/** Reads the stream to its end, which does not wait for a connection that ignores its signal. */
async function hear(
  stream: AsyncGenerator<ChatDelta, ChatAnswer, void>,
  teller: Teller,
  signal: AbortSignal,
): Promise<ChatAnswer> {
  let hasEnded = false
  let fail = (_reason: ConvokeError): void => {}
  // One listener for the whole stream: one for each delta would cost more than the delta.
  const stopListening = onAbort(signal, () => fail(abortReason(signal)))
  const orAborted = <Value>(work: Promise<Value>): Promise<Value> =>
    new Promise((resolve, reject) => {
      fail = reject
      if (signal.aborted) reject(abortReason(signal))
      work.then(resolve, reject)
    })
  try {
    for (;;) {
      const step = await orAborted(stream.next())
      if (step.done === true) {
        hasEnded = true
        return step.value
      }
      const room = teller.take(step.value)
      if (room !== undefined) await orAborted(room)
    }
  } finally {
    stopListening()
    // What its end comes to is of no interest to anybody: the failure that brought us here is.
    if (!hasEnded) void stream.return(noAnswer).catch(() => {})
  }
}

function emptyAnswer({ finishReason }: ChatAnswer): ConvokeError {
  const advice =
    finishReason === 'length'
      ? 'The tokens were used up before it, mostly by what the model thinks: raise `max_tokens` in the `parameters` of the chat model setup.'
      : 'Ask again, say in the prompt that it is to answer in words, or use another model.'
  const why = finishReason === undefined ? '' : ` (finish_reason ${excerpt(finishReason)})`
  return new ConvokeError(
    'model_invalid',
    `The model's answer is empty${why}: it has no text and calls no tool. ${advice}`,
  )
}

const noAnswer: ChatAnswer = { message: { role: 'assistant', content: '' } }

/** What the caller has been told of an answer so far. */
class Teller {
  readonly #options: AskOptions
  #hasTold = false

  constructor(options: AskOptions) {
    this.#options = options
  }

  take(delta: ChatDelta): Promise<void> | undefined {
    const { streamTo: requestId, tell } = this.#options
    if (requestId === undefined) return undefined
    if (delta.type === 'restart') return this.restart()
    if (delta.text === '') return undefined
    if (delta.type === 'text') this.#hasTold = true
    return tell({ type: delta.type, requestId, text: delta.text })
  }

  /** What was told is no answer. */
  restart(): Promise<void> | undefined {
    const { streamTo: requestId, tell } = this.#options
    if (requestId === undefined || !this.#hasTold) return undefined
    this.#hasTold = false
    return tell({ type: 'restart', requestId })
  }

  /** The text of an answer that came in one piece; an answer that calls tools was not the one that the caller waits for. */
  finish({ message }: ChatAnswer): Promise<void> | undefined {
    if (message.toolCalls !== undefined) return this.restart()
    return this.#hasTold ? undefined : this.take({ type: 'text', text: message.content })
  }
}

/**
 * Throws `model_invalid` for what is no answer, and `duplicate_call_id`: a connection may be anybody's code. A call that has no id is
 * given one, as what answers it must name it.
 */
function toKept(answer: unknown): ChatAnswer {
  const { message, finishReason, usage } = (isObject(answer) ? answer : {}) as Partial<ChatAnswer>
  if (!isObject(message) || typeof message.content !== 'string')
    throw new ConvokeError('model_invalid', 'The connection to the model gave no answer with a text.')
  const { content, toolCalls = [], extra } = message as unknown as ChatMessage
  const calls = toolCalls.map(({ id, name, arguments: args, extra: more }): ModelToolCall => {
    const call = { id: id || `call_${randomUUID()}`, name: String(name), arguments: args ?? '' }
    return isObject(more) ? { ...call, extra: more } : call
  })
  const twice = calls.find(({ id }, i) => calls.findIndex((call) => call.id === id) !== i)
  if (twice !== undefined)
    throw new ConvokeError(
      'duplicate_call_id',
      `The model gave two calls of one answer the id ${excerpt(twice.id)}, so that their results could not be told apart. Nothing was called. Try again, or take another model.`,
    )
  return {
    message: {
      role: 'assistant',
      content,
      ...(calls.length === 0 ? {} : { toolCalls: calls }),
      ...(isObject(extra) ? { extra } : {}),
    },
    ...(typeof finishReason === 'string' ? { finishReason } : {}),
    ...(isUsage(usage) ? { usage: { inputTokens: usage.inputTokens, outputTokens: usage.outputTokens } } : {}),
  }
}

function isUsage(usage: unknown): usage is ChatUsage {
  const { inputTokens, outputTokens } = (isObject(usage) ? usage : {}) as JsonObject
  return Number.isFinite(inputTokens) && Number.isFinite(outputTokens)
}
