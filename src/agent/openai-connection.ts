/** Language models behind any endpoint that speaks OpenAI's chat completions: Ollama, vLLM, llama.cpp, OpenAI and many others. */
import { abortReason } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import type { Answer, BodyStream } from '../base/guarded-fetch.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { excerpt } from '../tools/value.ts'
import type { ChatAnswer, ChatDelta, ChatModelConnection, ChatRequest } from './chat-model.ts'
import { AnswerAssembly } from './openai-answer.ts'
import { OpenAiEndpoint, type OpenAiEndpointOptions } from './openai-endpoint.ts'
import { extraNames, responseFormats, toBody, type Offer, type ResponseFormat } from './openai-request.ts'
import { readChunks } from './openai-stream.ts'
import type { ResourceContext } from './resources.ts'

export interface OpenAiConnectionOptions extends OpenAiEndpointOptions {
  /** What the endpoint calls the model, for requests that name none. */
  readonly model?: string
  /** Further members of each request's body: `temperature`, `max_tokens`, `seed` and the like. */
  readonly parameters?: JsonObject
  /**
   * How the model is held to an output schema: by `json_schema`, by `json_object` (any object), or not at all. `auto` takes the
   * first of them that the endpoint does not refuse. Default: `auto`.
   */
  readonly structuredOutput?: 'auto' | 'json_schema' | 'json_object' | false
}

type Opened = Answer & { readonly body: BodyStream }

const accept = 'text/event-stream, application/json'
/** How much is remembered of what an endpoint takes. */
const maxRemembered = 100

/**
 * Streams answers. It does not repeat what failed, but for one thing: an endpoint that refuses `stream_options`, a response
 * format, the name `max_tokens`, or what another endpoint wanted back with a message, is asked again without. All but the last
 * is remembered once that has worked.
 */
export class OpenAiConnection implements ChatModelConnection {
  static readonly resourceType = 'chatModelConnection'
  static readonly module = 'convoke'
  /** What the endpoint calls the model, for requests that name none. */
  readonly model: string | undefined
  readonly #endpoint: OpenAiEndpoint
  readonly #parameters: JsonObject
  readonly #structuredOutput: NonNullable<OpenAiConnectionOptions['structuredOutput']>
  readonly #log: Logger
  /** Whether the endpoint takes `stream_options`; undefined until it has answered. */
  #takesUsage: boolean | undefined
  #takesMaxTokens = true
  /** Whether it takes a format, by the format's key. */
  readonly #takesFormat = new Map<string, boolean>()

  /** Throws `config` for options that make no sense. Nothing is sent before the first request. */
  constructor(options: OpenAiConnectionOptions, context?: Pick<ResourceContext, 'log'>) {
    const { model, parameters = {}, structuredOutput = 'auto' } = options
    checkOptions(options)
    this.model = model
    this.#endpoint = new OpenAiEndpoint('/chat/completions', options)
    this.#parameters = parameters
    this.#structuredOutput = structuredOutput
    this.#log = context?.log ?? silentLog
  }

  async *chat(
    request: ChatRequest,
    { signal }: { readonly signal: AbortSignal },
  ): AsyncGenerator<ChatDelta, ChatAnswer, void> {
    const endpoint = this.#endpoint
    const { opened, format } = await this.#open(request, signal)
    const answer = new AnswerAssembly((clause) => endpoint.invalid(clause))
    const chunks = readChunks(opened, endpoint.timeoutMs)
    try {
      for (;;) {
        const step = await chunks.next()
        // What came with one piece of the body is here already, and no longer wanted.
        if (signal.aborted) throw abortReason(signal)
        if (step.done === true) {
          if (!step.value.isStream) throw endpoint.foreign('is neither a stream of events nor JSON')
          if (!step.value.isDone && !answer.isFinished) throw endpoint.interrupted()
          break
        }
        const failure = errorIn(step.value)
        if (failure !== undefined) throw endpoint.said(failure)
        yield* answer.add(step.value)
      }
    } catch (error) {
      const isNonsense = error instanceof ConvokeError && error.code === 'parse_error'
      // Whoever has begun an answer speaks the protocol, so its address is right.
      const failure =
        isNonsense && answer.hasChoice
          ? endpoint.invalid('breaks off into what is no JSON', error)
          : endpoint.failure(error, signal)
      // The model had said that it was done; only what comes behind the answer was cut.
      const isTail = failure.code === 'model_interrupted' || failure.code === 'model_timeout'
      if (signal.aborted || !isTail || !answer.isFinished) throw failure
    } finally {
      await chunks.return({ isDone: false, isStream: true })
    }
    if (!answer.hasChoice) throw endpoint.foreign('has no choices')
    yield* answer.end()
    const whole = withoutUseless(answer.finish(), request)
    if (format === undefined || whole.message.toolCalls !== undefined) return whole
    return { ...whole, message: { ...whole.message, content: format.restore(whole.message.content) } }
  }

  /** Ends all requests and connections. */
  async close(): Promise<void> {
    await this.#endpoint.close()
  }

  async #open(
    request: ChatRequest,
    signal: AbortSignal,
  ): Promise<{ readonly opened: Opened; readonly format: ResponseFormat | undefined }> {
    const model = request.model ?? this.model
    if (model === undefined || model === '')
      throw new ConvokeError('model_refused', 'No model is named. Set `model` of the connection, or of the setup.')
    const parameters = { ...this.#parameters, ...request.parameters }
    const wanted: Offer = {
      usage: this.#takesUsage !== false,
      extra: true,
      maxTokens: this.#takesMaxTokens,
      formats: this.#formatsFor(request.outputSchema),
    }
    let offer: Offer | undefined = wanted
    for (;;) {
      const opened = await this.#endpoint.post(toBody(request, model, parameters, offer), accept, signal)
      if (opened.status >= 200 && opened.status < 300) {
        this.#remember(wanted, offer)
        return { opened, format: offer.formats[0] }
      }
      const { status, said, error } = await this.#endpoint.refusal(opened, signal)
      const isRefused = error.code === 'model_refused' && (status === 400 || status === 422)
      offer = isRefused ? this.#without(offer, said, request) : undefined
      if (offer === undefined) throw error
    }
  }

  #formatsFor(schema: JsonObject | undefined): ResponseFormat[] {
    if (schema === undefined || this.#structuredOutput === false) return []
    const formats = responseFormats(schema)
    if (this.#structuredOutput === 'auto') return formats.filter(({ key }) => this.#takesFormat.get(key) !== false)
    return formats.filter(({ value }) => value.type === this.#structuredOutput)
  }

  /**
   * The offer without what the endpoint refuses: what its words name, else what it has never taken. Undefined where neither
   * is left, so that the refusal is about something else.
   */
  #without(offer: Offer, said: string, { messages }: ChatRequest): Offer | undefined {
    const { usage, extra, maxTokens, formats } = offer
    const [format, ...rest] = formats
    if (extra && extraNames(messages).some((name) => said.includes(name))) return { ...offer, extra: false }
    if (maxTokens && said.includes('max_completion_tokens')) return { ...offer, maxTokens: false }
    const isFormatNamed = /response_format|json_schema|json_object|schema|structured|grammar|guided/i.test(said)
    const isUsageNamed = /stream_options|include_usage/i.test(said)
    if (usage && (isUsageNamed || (!isFormatNamed && this.#takesUsage === undefined))) return { ...offer, usage: false }
    if (format === undefined || this.#structuredOutput !== 'auto') return undefined
    return isFormatNamed || !this.#takesFormat.has(format.key) ? { ...offer, formats: rest } : undefined
  }

  /** What became of what was wanted. */
  #remember(wanted: Offer, taken: Offer): void {
    const refused: string[] = []
    this.#takesUsage = taken.usage
    if (wanted.maxTokens && !taken.maxTokens) {
      this.#takesMaxTokens = false
      refused.push('max_tokens')
    }
    if (wanted.usage && !taken.usage) refused.push('stream_options')
    // The next conversation may have nothing of another endpoint's.
    if (!taken.extra) refused.push('what another endpoint wanted back')
    const [format] = taken.formats
    if (this.#takesFormat.size >= maxRemembered) this.#takesFormat.clear()
    if (format !== undefined) this.#takesFormat.set(format.key, true)
    for (const { key, value } of wanted.formats.slice(0, wanted.formats.length - taken.formats.length)) {
      // What it has taken before, it does not take with this one schema.
      if (this.#takesFormat.get(key) !== true) this.#takesFormat.set(key, false)
      refused.push(`response_format ${value.type}`)
    }
    if (refused.length > 0) this.#log.info({ refused }, 'The model endpoint is asked without what it refuses.')
  }
}

/**
 * Thoughts are wanted back where tools are: there a model goes on thinking where it was, and DeepSeek and Kimi refuse a conversation
 * that has lost them (https://api-docs.deepseek.com/guides/thinking_mode). Elsewhere they are in the way.
 */
function withoutUseless(answer: ChatAnswer, { tools = [] }: ChatRequest): ChatAnswer {
  if (tools.length > 0) return answer
  const { extra: _, ...message } = answer.message
  return { ...answer, message }
}

/** An error in place of a chunk, or in its choice. */
function errorIn(chunk: unknown): unknown {
  if (!isObject(chunk)) return undefined
  const [choice] = Array.isArray(chunk['choices']) ? (chunk['choices'] as unknown[]) : []
  const error = chunk['error'] ?? (isObject(choice) ? choice['error'] : undefined)
  return error === null || error === '' || error === false ? undefined : error
}

function checkOptions({ model, parameters, structuredOutput = 'auto' }: OpenAiConnectionOptions): void {
  if (model !== undefined && (typeof model !== 'string' || model === ''))
    throw new ConvokeError('config', `\`model\` must be the name that the endpoint has for it, got ${excerpt(model)}.`)
  if (parameters !== undefined && !isObject(parameters))
    throw new ConvokeError('config', `\`parameters\` of a model must be an object, got ${excerpt(parameters)}.`)
  if (!['auto', 'json_schema', 'json_object', false].includes(structuredOutput))
    throw new ConvokeError(
      'config',
      `\`structuredOutput\` must be auto, json_schema, json_object or false, got ${excerpt(structuredOutput)}.`,
    )
}
