/** The tools of an agent under one roof: by name, called one way whatever they are. */
import { randomUUID } from 'node:crypto'
import { ConvokeError, errorCodes, type ErrorCode, type Issue, type RetryPolicy } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import type { Logger } from '../base/log.ts'
import { asConvokeError } from './call.ts'
import { invoke, invokeStreaming, type Surroundings } from './invoke.ts'
import { localCaller, silentLog, type LocalToolRegistry, type ToolFilter } from './local.ts'
import type { CallOptions, Caller, Question, Tool, ToolContext, ToolEvent, ToolSpace, ToolValue } from './tool.ts'

export interface ToolManagerOptions {
  readonly registry: LocalToolRegistry
  readonly log?: Logger
  /** Who calls when a call does not say. Default: the process itself, which may do everything. */
  readonly caller?: Caller
}

export interface ToolCallOptions extends CallOptions {
  readonly caller?: Caller
  /** Answers the tool's questions. Default: they fail with `unsupported_operation`. */
  readonly ask?: (question: Question) => Promise<Json>
  /** The ids that the tool sees. Default: an id of its own. */
  readonly call?: ToolContext['call']
}

/** How a call went, for those who would rather look than catch. */
export type ToolResult =
  | { readonly success: true; readonly data: ToolValue; readonly meta: ToolResultMeta }
  | {
      readonly success: false
      /** A sentence for the person or model that called. */
      readonly error: string
      readonly errorType: ErrorCode
      readonly retry: RetryPolicy & { readonly retryAfterMs?: number }
      readonly issues?: readonly Issue[]
      readonly meta: ToolResultMeta
    }

export interface ToolResultMeta {
  readonly tool: string
  readonly callId: string
  readonly durationMs: number
}

export class ToolManager implements ToolSpace {
  readonly #registry: LocalToolRegistry
  readonly #log: Logger
  readonly #caller: Caller

  constructor(options: ToolManagerOptions) {
    this.#registry = options.registry
    this.#log = options.log ?? silentLog
    this.#caller = options.caller ?? localCaller
  }

  /** Tools that can be called, in the order of registration. */
  list(filter?: ToolFilter): Tool[] {
    return this.#registry.list(filter)
  }

  /** Resolves with the tool's result; rejects with a ConvokeError, at once when the call is stopped. */
  async call(name: string, params?: unknown, options: ToolCallOptions = {}): Promise<ToolValue> {
    return await invoke(this.#registry.resolve(name), params, this.#around(options))
  }

  /** {@link call} that never throws. */
  async tryCall(name: string, params?: unknown, options: ToolCallOptions = {}): Promise<ToolResult> {
    const startedAt = performance.now()
    const call = options.call ?? { id: randomUUID() }
    const meta = (): ToolResultMeta => ({ tool: name, callId: call.id, durationMs: performance.now() - startedAt })
    try {
      const data = await this.call(name, params, { ...options, call })
      return { success: true, data, meta: meta() }
    } catch (error) {
      const { code, message, retryable, retryAfterMs, issues } = asConvokeError(error) ?? ConvokeError.from(error)
      return {
        success: false,
        error: message,
        errorType: code,
        retry: { ...errorCodes[code], retryable, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) },
        ...(issues === undefined ? {} : { issues }),
        meta: meta(),
      }
    }
  }

  /** Progress and chunks as they come, then one result. Leaving the loop stops the tool; a failure is thrown. */
  async *stream(name: string, params?: unknown, options: ToolCallOptions = {}): AsyncGenerator<ToolEvent, void, void> {
    yield* invokeStreaming(this.#registry.resolve(name), params, this.#around(options))
  }

  #around({ signal, timeoutMs, caller, ask, call }: ToolCallOptions): Surroundings {
    return {
      resolve: (name) => this.#registry.resolve(name),
      caller: caller ?? this.#caller,
      log: this.#log,
      ask,
      call,
      signals: signal === undefined ? [] : [signal],
      timeoutMs,
      depth: 0,
    }
  }
}
