/** An agent that is one language model with tools: an input becomes a chat request, the answer an output. */
import { ConvokeError, type Issue } from '../base/errors.ts'
import { isObject, type Json, type JsonObject } from '../base/json.ts'
import { closest, excerpt } from '../tools/value.ts'
import { Agent } from './agent.ts'
import type { ChatMessage, ChatModelSetupOptions, ModelLimits } from './chat-model.ts'
import type { Action, RunnerContext } from './context.ts'
import { readConversation, recall, remember, type ConversationOptions } from './conversation-memory.ts'
import { readStrategy, tellIgnored } from './error-strategy.ts'
import {
  ChatRequestEvent,
  ChatResponseEvent,
  InputEvent,
  OutputEvent,
  type ChatRequestPayload,
  type ChatResponsePayload,
  type ErrorStrategy,
  type RetrySettings,
} from './events.ts'
import { findPrompt } from './find-prompt.ts'
import { exportedFrom } from './function-reference.ts'
import { checkLimits } from './model-limits.ts'
import { ofRun } from './of-run.ts'
import { readOutputSchema, type OutputSchema, type ReadSchema } from './output-schema.ts'
import type { ResourceDescriptor } from './resource-descriptor.ts'
import type { Resources } from './resources.ts'
import { complaint, invalidOutput } from './structured-output.ts'

export interface ReActAgentOptions {
  /** The chat model setup: its options, a descriptor of it, or the name of a resource. */
  readonly chatModel: ChatModelSetupOptions | ResourceDescriptor | string
  /**
   * What an input is put into: a prompt, a descriptor of one, the name of a resource, or a text of more than one word, as a single one is
   * a name; `Prompt.fromText('Summarize')` is the prompt for sure. A text, number, truth value or null fills
   * `{input}`; an object's members fill the variables of their names. A prompt that mentions none of them is the model's system message,
   * and the input follows it. Default: the input as it is, which must be no object then.
   */
  readonly prompt?: Resources['prompt'] | ResourceDescriptor | string
  /** What the output must look like. Default: it is the text of the answer. */
  readonly outputSchema?: OutputSchema
  /** What a failure of the model comes to. Default: `fail`. See {@link ErrorStrategy}. */
  readonly errorStrategy?: ErrorStrategy
  /** For the strategy `retry`. */
  readonly retry?: RetrySettings
  /** Over those of the chat model setup. */
  readonly limits?: ModelLimits
  /** Whether what was said before, under the same key, is said again to the model. Default: no. */
  readonly conversation?: ConversationOptions | boolean
  /** Whether the text of the answer goes to the caller as it comes; with an output schema it never does. Default: false. */
  readonly stream?: boolean
}

/** What every chat request says beside its messages. */
type RequestSettings = Pick<
  ChatRequestPayload,
  'model' | 'outputSchema' | 'errorStrategy' | 'retry' | 'limits' | 'stream'
>

/** What the actions are added with. */
interface Settings extends RequestSettings {
  readonly prompt?: string
  readonly conversation?: Required<ConversationOptions>
}

/** The names of the resources and actions of this agent. */
const chatModelName = 'react_chat_model'
const promptName = 'react_prompt'

/**
 * Asks one chat model: the loop through its tools is that of the chat model action. Throws `config` and `invalid_plan` for options that make
 * no sense, TypeError for an output schema that is none.
 *
 * A run fails with the model's failure, with `invalid_output`, or with `invalid_params` for an object where no prompt says what
 * to make of it.
 */
export class ReActAgent extends Agent {
  /** Makes a chat request of an input. */
  static readonly start: Action = exportedFrom('convoke', 'ReActAgent.start', start)
  /** Makes an output of the response. */
  static readonly stop: Action = exportedFrom(
    'convoke',
    'ReActAgent.stop',
    async (event: Parameters<Action>[0], context: RunnerContext) =>
      stop(event as ChatResponseEvent, context, undefined),
  )

  constructor(options: ReActAgentOptions) {
    super()
    checkKeys(options)
    const { chatModel, prompt, outputSchema, errorStrategy, retry, limits, stream } = options
    readStrategy(options)
    checkLimits(limits)
    const conversation = readConversation(options.conversation)
    const output = outputSchema === undefined ? undefined : readOutputSchema(outputSchema)
    const settings: Settings = {
      model: this.#addModel(chatModel),
      ...(prompt === undefined ? {} : { prompt: this.#addPrompt(prompt) }),
      ...(output === undefined ? {} : { outputSchema: output.schema }),
      ...(errorStrategy === undefined ? {} : { errorStrategy }),
      ...(retry === undefined ? {} : { retry }),
      ...(limits === undefined ? {} : { limits }),
      ...(conversation === undefined ? {} : { conversation }),
      ...(stream === undefined ? {} : { stream }),
    }
    const config = settings as unknown as JsonObject
    const refine = output?.refine
    // A schema of a library is code of this process, and so is an action that uses it.
    const last: Action =
      refine === undefined ? ReActAgent.stop : (event, context) => stop(event as ChatResponseEvent, context, refine)
    this.addAction('react_start', [InputEvent], ReActAgent.start, config)
    this.addAction('react_stop', [ChatResponseEvent], last, config)
  }

  #addModel(chatModel: ReActAgentOptions['chatModel']): string {
    if (typeof chatModel === 'string' && chatModel !== '') return chatModel
    if (!isObject(chatModel))
      throw new ConvokeError(
        'invalid_plan',
        `\`chatModel\` of a ReActAgent must be { connection, … }, a ResourceDescriptor, or the name of a chat model setup, got ${excerpt(chatModel)}.`,
      )
    this.addResource(chatModelName, chatModel, 'chatModelSetup')
    return chatModelName
  }

  #addPrompt(prompt: NonNullable<ReActAgentOptions['prompt']>): string {
    if (prompt === '')
      throw new ConvokeError('invalid_plan', '`prompt` of a ReActAgent is empty. Leave it out, or say what it is.')
    if (typeof prompt === 'string') return prompt
    this.addResource(promptName, prompt, 'prompt')
    return promptName
  }
}

const optionKeys = [
  'chatModel',
  'prompt',
  'outputSchema',
  'errorStrategy',
  'retry',
  'limits',
  'conversation',
  'stream',
] satisfies (keyof ReActAgentOptions)[]

/** Where what is looked for here is said. */
const elsewhere: Readonly<Record<string, string>> = {
  tools: 'chatModel.tools',
  model: 'chatModel.model',
  connection: 'chatModel.connection',
  parameters: 'chatModel.parameters',
  temperature: 'chatModel.parameters.temperature',
  retries: 'chatModel.retries',
  system: 'prompt',
  systemPrompt: 'prompt',
  maxRounds: 'limits.maxRounds',
  history: 'conversation',
}

/** An option that nobody reads would be an agent without its tools, or without its schema. */
function checkKeys(options: unknown): void {
  if (!isObject(options))
    throw new ConvokeError('invalid_plan', `A ReActAgent needs options { chatModel, … }, got ${excerpt(options)}.`)
  for (const key of Object.keys(options)) {
    if ((optionKeys as readonly string[]).includes(key)) continue
    const meant = Object.hasOwn(elsewhere, key) ? elsewhere[key] : closest(key, optionKeys)
    const hint = meant === undefined ? `known are ${optionKeys.join(', ')}` : `write \`${meant}\``
    throw new ConvokeError('invalid_plan', `A ReActAgent has no option \`${key}\`; ${hint}.`)
  }
}

async function start(event: Parameters<Action>[0], context: RunnerContext): Promise<void> {
  const { prompt, conversation } = context.actionConfig as unknown as Settings
  const asked = await toMessages((event as InputEvent).value as Json, prompt, context)
  const at = asked.findIndex(({ role }) => role !== 'system')
  const begin = at === -1 ? asked.length : at
  const before = [
    ...asked.slice(0, begin),
    ...(conversation === undefined ? [] : recall(context.shortTermMemory, conversation)),
  ]
  const messages = [...before, ...asked.slice(begin)]
  request(messages, { begin: before.length, invalid: 0 }, context)
}

/** The prompt with the input in it, or the input behind the prompt. */
async function toMessages(value: Json, prompt: string | undefined, context: RunnerContext): Promise<ChatMessage[]> {
  const isPlain = typeof value !== 'object' || value === null
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  const asUser: ChatMessage = { role: 'user', content: text }
  if (prompt === undefined) {
    if (isPlain) return [asUser]
    throw new ConvokeError(
      'invalid_params',
      `The input is ${excerpt(value)}, and this agent has no prompt that says what to make of it. Give the agent a prompt that mentions its members, such as {name}, or {input} for the whole, or send a text.`,
    )
  }
  const template = await findPrompt(prompt, context, { takesPrompt: true })
  const variables = isObject(value) ? { input: text, ...value } : { input: text }
  // A prompt that comes out the same whatever the input is says who the model is, not what is asked.
  if (template.formatString(variables) === template.formatString({})) return [...template.formatMessages({}), asUser]
  return template.formatMessages(variables, 'user')
}

/** What is remembered of a chat request until its response. */
interface Asked {
  /** Where this turn begins among the messages: behind what was said before. */
  readonly begin: number
  /** How often an answer went back to the model because the schema's own code refused it. */
  readonly invalid: number
}

/** By the ids of a run's chat requests. */
const askedIn = ofRun(() => new Map<string, Asked>())

/** `further` is what the request says that the settings do not. */
function request(
  messages: ChatMessage[],
  asked: Asked,
  context: RunnerContext,
  further: Pick<ChatRequestPayload, 'continues'> = {},
): void {
  const { prompt: _prompt, conversation: _conversation, ...settings } = context.actionConfig as unknown as Settings
  const id = context.stableId('request')
  askedIn(context).set(id, asked)
  context.sendEvent(new ChatRequestEvent({ ...settings, messages, ...further }, id))
}

async function stop(event: ChatResponseEvent, context: RunnerContext, refine: ReadSchema['refine']): Promise<void> {
  const response = event.payload as unknown as ChatResponsePayload
  const asked = askedIn(context).get(response.requestId)
  // Another action's request.
  if (asked === undefined) return
  const { conversation, outputSchema } = context.actionConfig as unknown as Settings
  const { output = response.response.content, messages } = response
  const refined = refine === undefined || outputSchema === undefined ? { value: output } : await refine(output)
  if ('issues' in refined) return await refuse(refined.issues, response, asked, context)
  if (conversation !== undefined) remember(context.shortTermMemory, messages.slice(asked.begin), conversation)
  context.sendEvent(new OutputEvent(refined.value))
}

/** An answer that fits the JSON Schema and not what the schema's own code wants besides. */
async function refuse(
  issues: readonly Issue[],
  { requestId, messages }: ChatResponsePayload,
  asked: Asked,
  context: RunnerContext,
): Promise<void> {
  const strategy = readStrategy(context.actionConfig)
  if (asked.invalid < strategy.invalidRetries) {
    const again: ChatMessage[] = [...messages, { role: 'user', content: complaint(issues) }]
    const next = { begin: asked.begin, invalid: asked.invalid + 1 }
    return request(again, next, context, { continues: requestId })
  }
  const failure = invalidOutput(issues, asked.invalid + 1)
  if (strategy.name !== 'ignore') throw failure
  await tellIgnored(requestId, failure, context)
}
