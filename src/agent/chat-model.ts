/**
 * The words between an agent and a language model. A provider is one class: a {@link ChatModelConnection}. What goes over the
 * wire is its matter; roles, tool calls and definitions here have the shape of OpenAI's chat completions, which most
 * endpoints speak.
 */
import type { Json, JsonObject } from '../base/json.ts'
import type { Delegation } from '../protocol/delegation.ts'
import type { OpenAiTool } from '../tools/definitions/shapes.ts'
import type { Question } from '../tools/tool.ts'

export const chatRoles = ['system', 'user', 'assistant', 'tool'] as const

export type ChatRole = (typeof chatRoles)[number]

export interface ChatMessage {
  role: ChatRole
  content: string
  /** Of an assistant's message: what it calls. */
  toolCalls?: ModelToolCall[]
  /** Of a tool's message: the id of the call that it answers. */
  toolCallId?: string
  /** Of an assistant's message: members of the endpoint's own that it wants back with it, such as what the model thought. */
  extra?: JsonObject
}

/** A call as the model made it. */
export interface ModelToolCall {
  /** Unique within its message. */
  id: string
  /** As the model was given it. */
  name: string
  /** The arguments as the model wrote them: JSON as text, broken or not; or an object where the endpoint has parsed it. */
  arguments: string | JsonObject
  /** Members of the endpoint's own that it wants back with the call, such as signatures. */
  extra?: JsonObject
}

export interface ChatUsage {
  inputTokens: number
  outputTokens: number
}

/** What one request of an agent to its model may take. Each has its own code when it is reached. */
export interface ModelLimits {
  /** How often the model may be asked, 1 or more; then `round_limit`. Default: 12. */
  maxRounds?: number
  /** How many calls of tools may be carried out, 0 or more; then `tool_call_limit`. Default: 64. */
  maxToolCalls?: number
  /** Tokens in and out of all rounds, as the endpoint counts them (estimated where it does not); then `token_limit`. Default: no limit. */
  maxTokens?: number
  /** Milliseconds for all rounds and tools, from the beginning or since the run was resumed; then `time_limit`. Default: no limit. */
  timeoutMs?: number
}

/** One round: everything that the endpoint is to know. */
export interface ChatRequest {
  readonly messages: readonly ChatMessage[]
  /** What the endpoint calls the model. Default: the connection's own. */
  readonly model?: string
  /** The tools that the model may call. */
  readonly tools?: readonly OpenAiTool[]
  /** What the answer must look like, for endpoints that can hold a model to a schema. */
  readonly outputSchema?: JsonObject
  /** Further members of the request's body: `temperature`, `max_tokens`, `seed` and the like. */
  readonly parameters?: JsonObject
}

/** A piece of the answer, as it comes. */
export type ChatDelta =
  | { readonly type: 'text'; readonly text: string }
  /** What the model thinks; no part of the answer. */
  | { readonly type: 'reasoning'; readonly text: string }
  /** The request is made anew after a failure: what came so far does not count. */
  | { readonly type: 'restart' }

export interface ChatAnswer {
  /** Of the role `assistant`. */
  readonly message: ChatMessage
  /** As the endpoint says it: `stop`, `tool_calls`, `length`, … */
  readonly finishReason?: string
  readonly usage?: ChatUsage
}

/**
 * A provider's endpoint. `chat` yields the answer as it comes and returns it whole. It stops when `signal` aborts, at the
 * endpoint too. Throws `model_unavailable`, `model_timeout`, `model_interrupted`, `model_refused`, `model_invalid`, or the
 * signal's reason.
 */
export interface ChatModelConnection {
  chat(request: ChatRequest, options: { readonly signal: AbortSignal }): AsyncGenerator<ChatDelta, ChatAnswer, void>
  /** What the endpoint calls the model, for requests that name none: the log says it. */
  readonly model?: string | undefined
  close?(): Promise<void> | void
}

/** Which model with what: a connection, a prompt, tools. */
export interface ChatModelSetupOptions {
  /** The name of the connection's resource. */
  readonly connection: string
  /** What the endpoint calls the model. Default: the connection's own. */
  readonly model?: string
  /** The name of a prompt resource, or a text of more than one word for the model's system message. */
  readonly prompt?: string
  /** Handles of tools, and globs over them: `bob.*`, `*`. Default: none. */
  readonly tools?: readonly string[]
  readonly limits?: ModelLimits
  /** Further members of each request: `temperature`, `max_tokens`, `seed` and the like. */
  readonly parameters?: JsonObject
  /** How often a request that failed for a reason that may pass is made again, with backoff. Default: 2. */
  readonly retries?: number
}

/** Turns a text into a direction in space. Vectors of one model have one length. */
export interface EmbeddingModel {
  /** One vector for each text, in their order. Throws as {@link ChatModelConnection.chat} does. */
  embed(texts: readonly string[], options: { readonly signal?: AbortSignal }): Promise<number[][]>
  close?(): Promise<void> | void
}

export interface StoredDocument {
  readonly id: string
  readonly content: string
  readonly metadata?: JsonObject
}

/** Finds documents that mean the same as a query. */
export interface VectorStore {
  /** Adds documents, over those of the same id. */
  add(documents: readonly StoredDocument[], options?: { readonly signal?: AbortSignal }): Promise<void>
  /** The most similar first. */
  query(
    text: string,
    options: { readonly maxResults: number; readonly signal?: AbortSignal },
  ): Promise<{ id: string; content: string; metadata: JsonObject; score: number }[]>
  close?(): Promise<void> | void
}

/** What a message to another agent goes with. */
export interface AskAgentOptions {
  /** The same one again gets the same answer without asking twice. Default: one that is the same when the run is resumed. */
  readonly messageId?: string
  /** Goes on with a conversation. Default: that of the key's last message to the agent. */
  readonly contextId?: string
  /** Default: that of the run. */
  readonly signal?: AbortSignal
  /** Answers what the agent asks meanwhile. Default: the caller of the run does, and where there is none it fails with `unsupported_operation`. */
  readonly ask?: (question: Question) => Promise<Json>
  /** The way that the work came which this is part of, so that it cannot go in circles. Default: that of the run. */
  readonly chain?: Delegation | undefined
}

/** Another node's agent. `context.getResource` gives it with the defaults of the run; by itself it knows of none. */
export interface RemoteAgent {
  /** Sends a message and waits for the answer: its data where it has some, else its text. */
  ask(
    message: string,
    options?: AskAgentOptions,
  ): Promise<{ readonly answer: Json; readonly contextId?: string; readonly taskId?: string }>
  close?(): Promise<void> | void
}
