/** The built-in action that asks language models: one chat request, as many rounds as the model wants, one response. */
import { ConvokeError } from '../../base/errors.ts'
import type { Json } from '../../base/json.ts'
import { logFailureOnce } from '../../base/logger.ts'
import { estimateTokens } from '../../tools/definitions/select.ts'
import { excerpt } from '../../tools/value.ts'
import type {
  ChatAnswer,
  ChatMessage,
  ChatModelConnection,
  ChatModelSetupOptions,
  ChatRequest,
  ModelToolCall,
} from '../chat-model.ts'
import { Exchange, wrongRequest } from '../chat-exchange.ts'
import type { Action, RunnerContext } from '../context.ts'
import { isOfTheModel, readStrategy, tellIgnored, type Strategy } from '../error-strategy.ts'
import { type ChatRequestEvent, ChatResponseEvent, ToolRequestEvent, ToolResponseEvent } from '../events.ts'
import { findPrompt } from '../find-prompt.ts'
import {
  readLimits,
  roundLimit,
  timeLimit,
  tokenLimit,
  toolCallLimit,
  untilDeadline,
  type Limits,
} from '../model-limits.ts'
import { askModel } from '../model-request.ts'
import { handleOf, modelTools, type ModelTools } from '../model-tools.ts'
import { complaint, invalidOutput, readOutput, schemaPrompt } from '../structured-output.ts'

/** How many rounds in a row may call nothing but tools that do not exist, or be the same, before the request fails. */
const maxFruitless = 3

/**
 * Asks the model that a {@link ChatRequestEvent} names. The calls of its answer go out as a {@link ToolRequestEvent}; with their
 * results the model is asked again, until it answers without calls: then one {@link ChatResponseEvent} answers the request. Responses of
 * tool requests that others sent are passed over.
 *
 * Throws what the model's connection throws; `round_limit`, `tool_call_limit`, `token_limit`, `time_limit`; `unknown_tool`, `tool_loop` and
 * `duplicate_call_id`; `invalid_output`. Under the error strategy `ignore` these end in a RunEvent `ignored` instead.
 */
export const chatModelAction: Action = async (event, context) => {
  const exchange =
    event.type === ToolResponseEvent.type
      ? Exchange.goOn(event as ToolResponseEvent, context)
      : Exchange.begin(event as ChatRequestEvent, context)
  if (exchange === undefined) return
  const strategy = readStrategy(exchange.request)
  const wiring = await wiringOf(exchange, context)
  try {
    await new Conversation(exchange, strategy, context, wiring).goOn()
  } catch (error) {
    if (context.signal.aborted || !isOfTheModel(error)) throw error
    const { setup, connection } = wiring
    const about = { model: setup.model ?? connection.model ?? setup.connection }
    if (strategy.name !== 'ignore') {
      logFailureOnce(context.log, error, { ...about, requestId: exchange.id }, 'A chat request to a model failed.')
      throw error
    }
    exchange.end()
    await tellIgnored(exchange.id, error, context, about)
  }
}

interface Wiring {
  readonly setup: ChatModelSetupOptions
  readonly connection: ChatModelConnection
  /** The setup's prompt with the request's variables. */
  readonly prompt: readonly ChatMessage[]
}

async function wiringOf({ request }: Exchange, context: RunnerContext): Promise<Wiring> {
  const setup = await context.getResource(request.model, 'chatModelSetup')
  const connection = await context.getResource(setup.connection, 'chatModelConnection')
  const found = setup.prompt === undefined ? undefined : await findPrompt(setup.prompt, context, { takesPrompt: false })
  const prompt = found?.formatMessages(request.variables ?? {}) ?? []
  if (request.messages.length === 0 && !prompt.some(({ role }) => role === 'user'))
    throw wrongRequest(
      `\`messages\` is empty, and the prompt of the chat model setup ${excerpt(request.model)} has no message of a user`,
    )
  return { setup, connection, prompt }
}

/** A model's answer, as the run remembers it. */
interface KeptAnswer extends ChatAnswer {
  /** By the names of its calls. A peer that is away when the run is resumed takes its tools along, and what they are called. */
  readonly handles?: Record<string, string>
}

function toKept(answer: ChatAnswer, tools: ModelTools): KeptAnswer {
  const { toolCalls } = answer.message
  if (toolCalls === undefined) return answer
  const handles = toolCalls.flatMap(({ name }): [string, string][] => {
    const handle = handleOf(tools, name)
    return handle === undefined ? [] : [[name, handle]]
  })
  return { ...answer, handles: Object.fromEntries(handles) }
}

/** One chat request between the model and the tools, from one event to the next. */
class Conversation {
  readonly #exchange: Exchange
  readonly #strategy: Strategy
  readonly #context: RunnerContext
  readonly #wiring: Wiring
  readonly #limits: Limits

  constructor(exchange: Exchange, strategy: Strategy, context: RunnerContext, wiring: Wiring) {
    this.#exchange = exchange
    this.#strategy = strategy
    this.#context = context
    this.#wiring = wiring
    this.#limits = readLimits(exchange.request.limits, wiring.setup.limits)
    const { timeoutMs } = this.#limits
    if (timeoutMs !== undefined) exchange.state.deadline ??= Date.now() + timeoutMs
  }

  /** Asks the model until it answers, or calls tools. */
  async goOn(): Promise<void> {
    const { state } = this.#exchange
    if (state.sameRounds >= maxFruitless) throw this.#loops()
    for (;;) {
      if (state.rounds >= this.#limits.maxRounds) throw roundLimit(this.#limits)
      if (isOver(state.deadline)) throw timeLimit(this.#limits.timeoutMs)
      const tools = this.#tools()
      const answer = await this.#ask(tools)
      this.#exchange.add(answer.message)
      const { toolCalls } = answer.message
      if (toolCalls !== undefined) return this.#call(toolCalls, tools, answer.handles)
      if (this.#respond(answer, tools)) return
    }
  }

  #tools(): ModelTools {
    const { tools = [] } = this.#wiring.setup
    return modelTools(this.#context.tools, tools, this.#context.log)
  }

  async #ask(tools: ModelTools): Promise<KeptAnswer> {
    const { setup, connection } = this.#wiring
    const { id, request, state } = this.#exchange
    const streamTo = request.stream === true && request.outputSchema === undefined ? id : undefined
    const { definitions } = tools
    const offersTools = definitions.length > 0 && !state.isHeld
    const asked: ChatRequest = {
      messages: this.#messages(tools),
      ...(setup.model === undefined ? {} : { model: setup.model }),
      ...(offersTools ? { tools: definitions } : {}),
      // Held to a schema, models of many endpoints cannot call anything: https://github.com/ollama/ollama/issues/8095,
      // https://github.com/vllm-project/vllm/issues/39929. So that comes last, and only if the answer does not fit by itself.
      ...(request.outputSchema === undefined || offersTools ? {} : { outputSchema: request.outputSchema }),
      ...(setup.parameters === undefined ? {} : { parameters: setup.parameters }),
    }
    const deadline = state.deadline ?? undefined
    let isNew = false
    const ask = async (signal: AbortSignal): Promise<Json> => {
      isNew = true
      const limited = untilDeadline(signal, deadline, this.#limits.timeoutMs)
      try {
        const given = await askModel(connection, asked, {
          signal: limited.signal,
          retries: this.#strategy.retries ?? setup.retries ?? 2,
          backoffMs: this.#strategy.backoffMs,
          retriesNonsense: this.#strategy.name === 'retry',
          mayBeEmpty: request.outputSchema !== undefined,
          deadline,
          streamTo,
          tell: (event) => this.#context.tell(event),
          log: this.#context.log,
        })
        return toKept(given, tools) as unknown as Json
      } finally {
        limited.end()
      }
    }
    const kept = await this.#context.durableExecute(`round-${state.rounds + 1}`, ask, { repeatable: true })
    const answer = kept as unknown as KeptAnswer
    // Known from before the process died: whoever looks on now has not heard it yet.
    if (!isNew && streamTo !== undefined && answer.message.toolCalls === undefined)
      await this.#context.tell({ type: 'text', requestId: streamTo, text: answer.message.content })
    this.#count(answer, asked)
    return answer
  }

  #count({ usage, message }: ChatAnswer, asked: ChatRequest): void {
    const { state } = this.#exchange
    const { maxTokens } = this.#limits
    state.rounds++
    if (usage !== undefined) state.tokens += usage.inputTokens + usage.outputTokens
    else if (maxTokens !== undefined)
      state.tokens += estimateTokens(asked.messages) + estimateTokens(asked.tools ?? []) + estimateTokens(message)
    if (usage !== undefined)
      state.usage = {
        inputTokens: (state.usage?.inputTokens ?? 0) + usage.inputTokens,
        outputTokens: (state.usage?.outputTokens ?? 0) + usage.outputTokens,
      }
    if (state.tokens > (maxTokens ?? Infinity)) throw tokenLimit(this.#limits, state.tokens)
  }

  /**
   * As the model gets them: one system message in front, as many endpoints take no other, out of the setup's prompt, those that begin
   * the request, the schema of the answer, and what tools want said. What tools want said elsewhere is put beside the text that is there.
   */
  #messages(tools: ModelTools): ChatMessage[] {
    const { request, messages, state } = this.#exchange
    const { prompt } = this.#wiring
    const { prompts } = tools
    const begin = messages.findIndex(({ role }) => role !== 'system')
    const leading = begin === -1 ? messages : messages.slice(0, begin)
    const systems = [...prompt.filter(({ role }) => role === 'system'), ...leading].map(({ content }) => content)
    const { outputSchema } = request
    const schema = outputSchema === undefined ? '' : schemaPrompt(outputSchema)
    const system = [...systems, schema, prompts.system].filter((text) => text.trim() !== '').join('\n\n')
    const before = prompt.filter(({ role }) => role !== 'system')
    const spoken = [...before, ...messages.slice(leading.length)]
    // What is asked: what goes back to the model later is no word of its user.
    const asked = spoken.slice(0, before.length + Math.max(0, request.messages.length - leading.length))
    const lastUser = asked.findLastIndex(({ role }) => role === 'user')
    const reminders = prompts.remind(state.used.map((name) => handleOf(tools, name) ?? name))
    const others = spoken.map((message, i): ChatMessage => {
      if (i === lastUser) return withText(message, prompts.user)
      return i === spoken.length - 1 && message.role === 'tool' ? withText(message, reminders) : message
    })
    return [...(system === '' ? [] : [{ role: 'system' as const, content: system }]), ...others]
  }

  /** Sends the round of calls out, if it may. */
  #call(calls: readonly ModelToolCall[], tools: ModelTools, handles: KeptAnswer['handles'] = {}): void {
    const { id, request, state } = this.#exchange
    state.toolCalls += calls.length
    const known = calls.some(({ name }) => handleOf(tools, name) !== undefined || Object.hasOwn(handles, name))
    state.unknownRounds = known ? 0 : state.unknownRounds + 1
    if (state.unknownRounds >= maxFruitless) throw unknownTools(calls, tools)
    if (state.toolCalls > this.#limits.maxToolCalls) throw toolCallLimit(this.#limits, state.toolCalls)
    const event = new ToolRequestEvent(
      {
        calls: [...calls],
        tools: [...(this.#wiring.setup.tools ?? [])],
        requestId: id,
        handles,
        model: request.model,
        ...(state.deadline === null ? {} : { deadline: state.deadline }),
      },
      this.#context.stableId(`tools-${state.rounds}`),
    )
    this.#exchange.wait(event.id, calls)
    this.#context.sendEvent(event)
  }

  /** Whether the answer is the last word; else it went back to the model. */
  #respond({ message, finishReason }: ChatAnswer, tools: ModelTools): boolean {
    const { id, request, state } = this.#exchange
    const read = request.outputSchema === undefined ? undefined : readOutput(message.content, request.outputSchema)
    if (read !== undefined && 'issues' in read) {
      const isLast = state.isHeld || tools.definitions.length === 0
      if (isLast && state.invalid >= this.#strategy.invalidRetries)
        throw invalidOutput(read.issues, state.invalid + 1, finishReason)
      if (isLast) state.invalid++
      state.isHeld = true
      this.#exchange.add({ role: 'user', content: complaint(read.issues, finishReason) })
      return false
    }
    this.#context.sendEvent(
      new ChatResponseEvent({
        requestId: id,
        response: message,
        messages: this.#exchange.messages,
        ...(read === undefined ? {} : { output: read.value }),
        ...(state.usage === null ? {} : { usage: state.usage }),
        rounds: state.rounds,
      }),
    )
    this.#exchange.end()
    return true
  }

  #loops(): ConvokeError {
    const names = this.#exchange.state.used.map(excerpt).join(', ')
    return new ConvokeError(
      'tool_loop',
      `The model made the same calls (${names}) ${maxFruitless} times in a row and got the same answers. Say in the prompt when it is done, or take another model.`,
    )
  }
}

/** A timer may fire a millisecond early; what it has stopped is over all the same. */
function isOver(deadline: number | null): boolean {
  return deadline !== null && Date.now() + 1 >= deadline
}

function withText(message: ChatMessage, text: string): ChatMessage {
  return text === '' ? message : { ...message, content: `${message.content}\n\n${text}` }
}

function unknownTools(calls: readonly ModelToolCall[], { tools, names }: ModelTools): ConvokeError {
  const called = [...new Set(calls.map(({ name }) => excerpt(name)))].slice(0, 5).join(', ')
  const known = tools.slice(0, 10).map(({ name }) => names.nameOf(name))
  const has = known.length === 0 ? 'It has no tools' : `It has ${known.join(', ')}${tools.length > 10 ? ', …' : ''}`
  return new ConvokeError(
    'unknown_tool',
    `The model called nothing but tools that it does not have, ${maxFruitless} rounds in a row; in the last one ${called}. ${has}: see \`tools\` of its setup, or take a model that keeps to its tools.`,
  )
}
