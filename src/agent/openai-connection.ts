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
import { responseFormats, toBody, type ResponseFormat } from './openai-request.ts'
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

/** What is asked for in a way that not every endpoint takes, as it is asked for now. */
interface Offer {
  readonly usage: boolean
  /** The first is asked for; the others stand behind it. */
  readonly formats: readonly ResponseFormat[]
}

type Opened = Answer & { readonly body: BodyStream }

const accept = 'text/event-stream, application/json'
/** How much is remembered of what an endpoint takes. */
const maxRemembered = 100

/**
 * Streams answers. It does not repeat what failed, but for one thing: an endpoint that refuses `stream_options` or a response
 * format is asked again without, and once that has worked, it is remembered.
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
      const failure = endpoint.failure(error, signal)
      // The model had said that it was done; only what comes behind the answer was cut.
      const isTail = failure.code === 'model_interrupted' || failure.code === 'model_timeout'
      if (signal.aborted || !isTail || !answer.isFinished) throw failure
    } finally {
      await chunks.return({ isDone: false, isStream: true })
    }
    if (!answer.hasChoice) throw endpoint.foreign('has no choices')
    yield* answer.end()
    const whole = answer.finish()
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
    let offer: Offer = { usage: this.#takesUsage !== false, formats: this.#formatsFor(request.outputSchema) }
    /** What was given up on the way. */
    const gone: { readonly usage?: true; readonly format?: ResponseFormat }[] = []
    for (;;) {
      const [format] = offer.formats
      const body = toBody(request, model, parameters, { usage: offer.usage, format })
      const opened = await this.#endpoint.post(body, accept, signal)
      if (opened.status >= 200 && opened.status < 300) {
        this.#remember(offer, gone)
        return { opened, format }
      }
      const { status, said, error } = await this.#endpoint.refusal(opened, signal)
      const next = status === 400 || status === 422 ? this.#without(offer, said) : undefined
      if (next === undefined) throw error
      gone.push(next.usage === offer.usage && format !== undefined ? { format } : { usage: true })
      offer = next
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
  #without({ usage, formats }: Offer, said: string): Offer | undefined {
    const [format, ...rest] = formats
    const isFormatNamed = /response_format|json_schema|json_object|schema|structured|grammar|guided/i.test(said)
    const isUsageNamed = /stream_options|include_usage/i.test(said)
    if (usage && (isUsageNamed || (!isFormatNamed && this.#takesUsage === undefined))) return { usage: false, formats }
    if (format === undefined || this.#structuredOutput !== 'auto') return undefined
    return isFormatNamed || !this.#takesFormat.has(format.key) ? { usage, formats: rest } : undefined
  }

  #remember(offer: Offer, gone: readonly { readonly usage?: true; readonly format?: ResponseFormat }[]): void {
    if (offer.usage) this.#takesUsage = true
    const [taken] = offer.formats
    if (this.#takesFormat.size >= maxRemembered) this.#takesFormat.clear()
    if (taken !== undefined) this.#takesFormat.set(taken.key, true)
    for (const { usage, format } of gone) {
      if (usage === true) this.#takesUsage = false
      // What it has taken before, it does not take with this one schema.
      if (format !== undefined && this.#takesFormat.get(format.key) !== true) this.#takesFormat.set(format.key, false)
      const what = format === undefined ? 'stream_options' : `response_format ${format.value.type}`
      this.#log.info({ refused: what }, 'The model endpoint is asked without what it refuses.')
    }
  }
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
