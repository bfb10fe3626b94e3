/**
 * What an agent's actions hear and say. An event has an id, a type and a payload of JSON that is checked when the event is made
 * and frozen from then on. The types below are those that come along; any other name is a type of the agent's own.
 */
import { randomUUID } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import { freezeJson, isObject, type Json, type JsonObject } from '../base/json.ts'
import { excerpt } from '../tools/value.ts'
import type { ChatMessage, ChatUsage, ModelLimits, ModelToolCall } from './chat-model.ts'

/** Deeply readonly, as payloads are. */
export type Frozen<T> = T extends (infer Item)[]
  ? readonly Frozen<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: Frozen<T[Key]> }
    : T

/**
 * An event of any type: `new AgentEvent('review_scored', { score: 5 })`, or a subclass with `static readonly type`. The event itself
 * is frozen when it is sent, since a subclass is made bit by bit.
 * Throws `invalid_event` for a payload that is not a JSON object, with the place of what is wrong.
 */
export class AgentEvent<Type extends string = string, Payload extends object = JsonObject> {
  readonly id: string
  readonly type: Type
  readonly payload: Frozen<Payload>

  /** `id`: a UUID of its own unless given. */
  constructor(type: Type, payload: Payload, id: string = randomUUID()) {
    if (typeof type !== 'string' || type === '')
      throw new ConvokeError('invalid_event', `The type of an event must be a text, got ${excerpt(type)}.`)
    this.id = id
    this.type = type
    this.payload = freezePayload(type, payload)
  }

  /** `{id, type, payload}`; {@link fromJson} reads it. */
  toJSON(): { id: string; type: Type; payload: Frozen<Payload> } {
    return { id: this.id, type: this.type, payload: this.payload }
  }
}

/** A frozen copy, or the payload itself where it is one. Throws `invalid_event` for what is no JSON object. */
export function freezePayload<Payload extends object>(type: string, payload: Payload): Frozen<Payload> {
  const copy = freezeJson(payload)
  if ('value' in copy && isObject(copy.value)) return copy.value as Frozen<Payload>
  const where = 'at' in copy && copy.at !== '' ? `at ${copy.at} is no JSON` : 'is no JSON object'
  throw new ConvokeError(
    'invalid_event',
    `The payload of the event "${type}" ${where}. Use text, finite numbers, true, false, null, lists and plain objects.`,
  )
}

/** One input of the agent: the value as it came. `InputEvent<Order>` says what it is taken to be, and checks nothing. */
export class InputEvent<Value = Json> extends AgentEvent<'input', { value: Value }> {
  static readonly type = 'input'
  /** `value` may be, or have in it, what another event had. */
  constructor(value: Value | Frozen<Value>, id?: string) {
    super(InputEvent.type, { value: value as Value }, id)
  }
  get value(): Frozen<Value> {
    return this.payload.value
  }
}

/** One output of the agent. */
export class OutputEvent extends AgentEvent<'output', { value: Json }> {
  static readonly type = 'output'
  /** `value` may be, or have in it, what another event had. */
  constructor(value: Json | Frozen<Json>, id?: string) {
    super(OutputEvent.type, { value: value as Json }, id)
  }
  get value(): Frozen<Json> {
    return this.payload.value
  }
}

/** Asks a chat model; one {@link ChatResponseEvent} answers, after as many rounds of tool calls as the model wants. */
export interface ChatRequestPayload {
  /** The name of a chat model setup. */
  model: string
  /** What is said to it, behind the setup's own prompt. */
  messages: ChatMessage[]
  /**
   * What the answer must look like, a JSON Schema; the response then has `output`. The model is told of it, and the endpoint holds it
   * to it where it can; a model with tools only in one more round, without them, when its answer does not fit.
   */
  outputSchema?: JsonObject
  /** Whether the text of the answer goes to the caller as it comes. Default: false. */
  stream?: boolean
  /** Values for the variables of the setup's prompt. */
  variables?: Record<string, Json | Frozen<Json>>
  /** Over those of the setup. */
  limits?: ModelLimits
  /** The id of a request of the strategy `retry` that was answered in this run: what it took counts for the limits of this one, too. */
  continues?: string
  /**
   * What a failure of the model, or a limit that was reached, comes to. `fail`: the run fails with its code. `ignore`: a warning, a RunEvent
   * `ignored`, and no response. `retry`: as `fail`, but the model is asked again first, as `retry` says. Default: `fail`.
   */
  errorStrategy?: ErrorStrategy
  /** For the strategy `retry`. */
  retry?: RetrySettings
  /** How often an answer that does not fit the output schema goes back to the model with what is wrong; each is a round. Default: 0, under the strategy `retry` `attempts - 1`. */
  invalidRetries?: number
}

export type ErrorStrategy = 'fail' | 'ignore' | 'retry'

export interface RetrySettings {
  /** How often one round, and one answer that must fit a schema, is tried in all: 1 or more. Default: 3. */
  attempts?: number
  /** Milliseconds before the second attempt at a round; they double from there, up to 30 s, with jitter. Default: 500. */
  backoffMs?: number
}

export class ChatRequestEvent extends AgentEvent<'chat_request', ChatRequestPayload> {
  static readonly type = 'chat_request'
  constructor(request: ChatRequestPayload, id?: string) {
    super(ChatRequestEvent.type, request, id)
  }
}

export interface ChatResponsePayload {
  /** The id of the {@link ChatRequestEvent}. */
  requestId: string
  /** The model's last word. */
  response: ChatMessage
  /** All messages of the request: those it was asked with (the setup's prompt not among them), then its rounds, the response last. */
  messages: ChatMessage[]
  /** With an output schema: the answer as JSON that fits it. */
  output?: Json
  /** Of all rounds together, as far as the endpoint says. */
  usage?: ChatUsage
  /** How often the model was asked. */
  rounds: number
}

export class ChatResponseEvent extends AgentEvent<'chat_response', ChatResponsePayload> {
  static readonly type = 'chat_response'
  constructor(response: ChatResponsePayload, id?: string) {
    super(ChatResponseEvent.type, response, id)
  }
}

/** Asks for a round of tool calls; one {@link ToolResponseEvent} answers. */
export interface ToolRequestPayload {
  calls: ModelToolCall[]
  /** The only tools that may be called: handles and globs over them. Default: all of the space. */
  tools?: string[]
  /** Of the chat request that the calls belong to, if they do: the calls' names are then those that the model was given. */
  requestId?: string
  /** The handles that those names stood for when the model was asked: they count for tools that are not there now. */
  handles?: Record<string, string>
  /** The chat model setup whose round this is. */
  model?: string
  /** When the calls are stopped, in milliseconds since 1970. Default: without a limit. */
  deadline?: number
}

export class ToolRequestEvent extends AgentEvent<'tool_request', ToolRequestPayload> {
  static readonly type = 'tool_request'
  constructor(request: ToolRequestPayload, id?: string) {
    super(ToolRequestEvent.type, request, id)
  }
}

/** What became of one call, for the model and for whoever looks. */
export interface ToolAnswer {
  name: string
  success: boolean
  /** For the model: the result as text, or the error as JSON. */
  content: string
  error?: string
  errorType?: string
}

export interface ToolResponsePayload {
  /** The id of the {@link ToolRequestEvent}. */
  requestId: string
  /** The ids of the calls, in their order. */
  callIds: string[]
  /** By the id of the call. */
  responses: Record<string, ToolAnswer>
  /** By the id of the call: whether it went well. */
  success: Record<string, boolean>
  /** By the id of the call: why it did not. */
  errors: Record<string, string>
  /** By the id of the call: the id that the model gave it. Differs only where it gave none, or one that another call of the round has. */
  externalIds: Record<string, string>
}

export class ToolResponseEvent extends AgentEvent<'tool_response', ToolResponsePayload> {
  static readonly type = 'tool_response'
  constructor(response: ToolResponsePayload, id?: string) {
    super(ToolResponseEvent.type, response, id)
  }
}

/** Asks a vector store; one {@link ContextRetrievalResponseEvent} answers. */
export interface ContextRetrievalRequestPayload {
  query: string
  /** The name of a vector store. */
  vectorStore: string
  /** Default: 3. */
  maxResults?: number
}

export class ContextRetrievalRequestEvent extends AgentEvent<
  'context_retrieval_request',
  ContextRetrievalRequestPayload
> {
  static readonly type = 'context_retrieval_request'
  constructor(request: ContextRetrievalRequestPayload, id?: string) {
    super(ContextRetrievalRequestEvent.type, request, id)
  }
}

export interface RetrievedDocument {
  id: string
  content: string
  metadata: JsonObject
  /** Cosine similarity to the query, -1 to 1. */
  score: number
}

export interface ContextRetrievalResponsePayload {
  /** The id of the {@link ContextRetrievalRequestEvent}. */
  requestId: string
  query: string
  /** The most similar first. */
  documents: RetrievedDocument[]
}

export class ContextRetrievalResponseEvent extends AgentEvent<
  'context_retrieval_response',
  ContextRetrievalResponsePayload
> {
  static readonly type = 'context_retrieval_response'
  constructor(response: ContextRetrievalResponsePayload, id?: string) {
    super(ContextRetrievalResponseEvent.type, response, id)
  }
}

/** The events that come along, told apart by `type`. */
export type BuiltInEvent =
  | InputEvent
  | OutputEvent
  | ChatRequestEvent
  | ChatResponseEvent
  | ToolRequestEvent
  | ToolResponseEvent
  | ContextRetrievalRequestEvent
  | ContextRetrievalResponseEvent

/** The types of the events that come along. */
export const eventTypes: readonly string[] = [
  InputEvent,
  OutputEvent,
  ChatRequestEvent,
  ChatResponseEvent,
  ToolRequestEvent,
  ToolResponseEvent,
  ContextRetrievalRequestEvent,
  ContextRetrievalResponseEvent,
].map(({ type }) => type)

/** What an action listens to: an event class with `static readonly type`, or the type itself. */
export type EventKind = string | { readonly type: string }

/** The name of the type. */
export function typeOf(kind: EventKind): string {
  return typeof kind === 'string' ? kind : kind.type
}

/** The event that comes with a kind: an instance of the class, or what is known of the type. `Value` is that of an input. */
export type EventOf<Kind extends EventKind, Value = Json> = Kind extends typeof InputEvent | 'input'
  ? InputEvent<Value>
  : Kind extends abstract new (...args: never) => infer Instance
    ? Instance
    : Kind extends BuiltInEvent['type']
      ? Extract<BuiltInEvent, { readonly type: Kind }>
      : AgentEvent
