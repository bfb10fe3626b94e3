/** The tool contract: what a tool is, and what it is given when it runs. */
import type { ConvokeError, Issue } from '../base/errors.ts'
import type { Json, JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import type { Chunk, ToolLog, ToolValue } from '../protocol/tool-call.ts'
import type { Delegation } from '../protocol/delegation.ts'
import type { StandardSchema } from './standard.ts'

/** A JSON Schema, draft-07 or 2020-12 (told apart by `$schema`; without it 2020-12). */
export type JsonSchema = JsonObject

/** What a tool yields is a chunk: a JSON value, or bytes, which stand alone, never inside of JSON. It returns a value: a chunk, or several parts. */
export type { Chunk, ToolValue } from '../protocol/tool-call.ts'

export type { ToolLog, ToolLogLevel } from '../protocol/tool-call.ts'

export interface ToolTraits {
  /** For lists and filters; becomes a tag on the card. */
  readonly category?: string
  /** More tags on the card, behind `tool` and the category. */
  readonly tags?: readonly string[]
  /** Changes nothing anywhere. Implies that it may run twice. */
  readonly readOnly?: boolean
  /** A second run with the same params changes nothing more: the task may run again after a crash. */
  readonly idempotent?: boolean
  /** Longest run in milliseconds, waiting for answers to `ask` not counted. Default: no limit. */
  readonly timeoutMs?: number
  /** How many calls may run at once; more wait their turn. Default: no limit. */
  readonly concurrency?: number
  /** Whether the tool stands on the card and may be called from outside. Default: true. */
  readonly published?: boolean
  /** What a language model is told of the tool beyond its description. */
  readonly prompt?: ToolPrompt
  /** Whether a model is offered the tool at all; a function is asked at the start of each run. Default: true. */
  readonly enabled?: boolean | (() => boolean)
  /** Offered to a model only when the user chose it, and then alone. Default: false. */
  readonly exclusive?: boolean
  /** Offered to a model in every run while it is enabled, whatever the user chose. Default: false. */
  readonly capability?: boolean
  /** Takes over from the model that calls it: it is called alone, or its whole round is refused. Default: false. */
  readonly takeControl?: boolean
  /** What an answer that used this tool is to be checked for, in the words of whoever checks: `hallucination`. */
  readonly evaluationChecks?: readonly string[]
}

/** Texts for a language model. `toolPrompts` puts those of several tools together. */
export interface ToolPrompt {
  /** For the system prompt: when to use the tool, and how to write its params. */
  readonly system?: string
  /** For the user's message, beside what the user wrote. */
  readonly user?: string
  /** For the turn after the tool was used. */
  readonly reminder?: string
}

export interface Progress {
  readonly progress: number
  readonly total?: number
  readonly message?: string
}

/** A question to the caller. The task is `input-required` until the answer comes. */
export interface Question {
  /** What to ask, for people. */
  readonly message: string
  /** What the answer must look like: a JSON Schema, or a Standard Schema. With it the answer is validated data; without it it is text. */
  readonly schema?: JsonSchema | StandardSchema
  /**
   * There where a language model is to answer: the params of MCP's `sampling/createMessage`, and the answer is a
   * `CreateMessageResult`. A caller that has no model may answer by a text.
   */
  readonly sampling?: JsonObject
  /**
   * With a schema: what a text reply means, as the answer in place of it; undefined: nothing special. Not sent to anybody,
   * so the message has to name such replies. The text comes without white space around it.
   */
  readonly read?: ((text: string) => Json | undefined) | undefined
}

export interface Caller {
  /** `anonymous` where no authentication is configured. */
  readonly id: string
  readonly tenant?: string
  /** What the caller may do; `*` is everything. */
  readonly scopes: readonly string[]
}

/** The same agent's tools, for a tool that calls others. */
export interface ToolSpace {
  /** Resolves with the result; throws a ConvokeError. */
  call(name: string, params?: unknown, options?: CallOptions): Promise<ToolValue>
  /** Whether there is a service of that id: a peer, an MCP server, or another source. */
  knows?(service: string): boolean
  /** Progress and chunks as they come, then one `result`. Leaving the loop stops the tool. */
  stream(name: string, params?: unknown, options?: CallOptions): AsyncGenerator<ToolEvent, void, void>
}

export interface CallOptions {
  readonly signal?: AbortSignal
  /** In milliseconds from now; the tool's own limit holds too. */
  readonly timeoutMs?: number
  /** Lets the task of a peer's tool go on when the call is stopped or its reader leaves. Default: false, it is cancelled. */
  readonly detach?: boolean
}

export type ToolEvent =
  | ({ readonly type: 'progress' } & Progress)
  | ({ readonly type: 'log' } & ToolLog)
  | { readonly type: 'chunk'; readonly chunk: Chunk }
  /** The tool runs anew on another worker of its node: the chunks before this no longer count. */
  | { readonly type: 'restart' }
  | { readonly type: 'result'; readonly result: ToolValue }

export interface ToolContext {
  /** Aborted when the call is cancelled, its deadline passes or the node stops. A tool that ignores it is abandoned after a grace period. */
  readonly signal: AbortSignal
  /** When the call will be stopped, in milliseconds since 1970; undefined without a limit. */
  readonly deadline: number | undefined
  readonly caller: Caller
  readonly call: {
    readonly id: string
    readonly taskId?: string
    readonly contextId?: string
    /** Of a call that an agent makes: what its memory is kept under, one for each caller's conversation. */
    readonly conversation?: string
  }
  /** Tells the caller how far the work is. Cheap: what was not yet sent is replaced by the newest. */
  readonly progress: (progress: Progress) => void
  /**
   * Says something for the caller's log; `log` is that of this node. Of more than 100 lines or 64 KiB a second the
   * rest is left out and counted, and a line is cut at 8,000 characters. What is said while a question waits for its answer is lost.
   */
  readonly notice: (log: ToolLog) => void
  /**
   * Asks the caller and waits. Rejects when the call is cancelled meanwhile, and with `unsupported_operation`
   * where nobody can be asked. After a crash a repeatable tool runs again and gets the answers it already had, in order.
   */
  readonly ask: (question: Question) => Promise<Json>
  readonly log: Logger
  readonly tools: ToolSpace
  /** For tools that pass the call on to another node. */
  readonly hop?: Hop
}

/** What a call brings along that goes on to another node. */
export interface Hop {
  /** Whether anybody takes chunks and progress. */
  readonly streaming: boolean
  /** Whether anything can stop the call. Where nothing can, nobody needs its signal, which is not cheap. */
  readonly stoppable: boolean
  /** Whether the work may go on when nobody waits for it any more. */
  readonly detach: boolean
  /** The chain of nodes that the call came along; undefined where it begins here. */
  readonly chain: Delegation | undefined
  /** Whether the call is part of work of this node that waits for it. Such a call takes no place in line: it would wait for itself. */
  readonly reentrant: boolean
  /** Whether a tool of this process made the call. */
  readonly inner: boolean
  /** The nodes that the call came along, the first one first; empty where it begins here. */
  readonly path: readonly string[]
  /** Says that the chunks so far no longer count. */
  restart(): void
  /** Hears of the task that the other node made of the call; each time all that is known of it. */
  onTask?(task: RemoteTask): void
}

/** The task that another node made of a call. */
export interface RemoteTask {
  readonly taskId: string
  readonly contextId?: string
  /** How long the tool ran there, once it has told. */
  readonly executionTimeMs?: number
}

/** A value put in shape by a schema's own code, or what is wrong with it. */
export type Refined =
  | { readonly value: unknown; readonly issues?: undefined }
  | { readonly value?: undefined; readonly issues: readonly Issue[] }

/** Where a tool comes from: a function of this process, an MCP server, another A2A agent, or anything else. */
export type ToolKind = 'local' | 'mcp' | 'a2a' | 'custom'

/** The kinds by the names that the enum `ToolType` of other tool managers gives them. */
export const toolTypes = {
  LOCAL_FUNCTION: 'local',
  MCP_TOOL: 'mcp',
  A2A_TOOL: 'a2a',
  CUSTOM: 'custom',
} as const satisfies Record<string, ToolKind>

/**
 * Of a tool whose work is done by another node. It ends by itself soon after its signal aborts, when the work has
 * stopped where it ran: that is worth waiting for.
 */
export interface Elsewhere {
  /** A failure of a call with what is known of where it happened. `task` is what the other node made of the call. */
  failure(error: ConvokeError, task: RemoteTask | undefined): ConvokeError
}

/** A tool as everything inside the node sees it. `defineTool` makes one; `callTool` calls it. */
export interface Tool {
  /** `^[A-Za-z0-9_-]{1,64}$`; of another node or server its handle, `PEER.NAME`. */
  readonly name: string
  readonly description: string
  readonly input: JsonSchema
  readonly output?: JsonSchema
  readonly traits: ToolTraits
  readonly kind: ToolKind
  /** There where the work is done by another node. */
  readonly elsewhere?: Elsewhere
  /** What JSON Schema cannot say about the params: runs behind the input schema, and gives what `run` gets. */
  refine?(params: JsonObject): Refined | Promise<Refined>
  /** Puts the result in shape, before the output schema has the last word. */
  refineResult?(result: ToolValue): Refined | Promise<Refined>
  /** Params come in validated, defaults merged. What it yields and returns is checked by `callTool`. */
  run(params: JsonObject, context: ToolContext): AsyncGenerator<Chunk, ToolValue, void>
}
