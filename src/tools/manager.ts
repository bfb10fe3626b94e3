/** The tools of an agent under one roof: by name, called one way whatever they are. */
import { randomUUID } from 'node:crypto'
import { ConvokeError, errorCodes, type ErrorCode, type Issue, type RetryPolicy } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { asConvokeError } from './call.ts'
import type { DelegationGuard } from './delegation.ts'
import { invoke, invokeStreaming, whenFound, type Surroundings } from './invoke.ts'
import type { ToolSource } from './source.ts'
import { KeyError, localCaller, type LocalToolRegistry, type ToolFilter } from './local.ts'
import { clip, excerpt } from './value.ts'
import type { CallOptions, Caller, Question, Tool, ToolContext, ToolEvent, ToolSpace, ToolValue } from './tool.ts'

export interface ToolManagerOptions {
  readonly registry: LocalToolRegistry
  /** Where tools of others come from. */
  readonly sources?: readonly ToolSource[]
  /** Knows the calls of peers again that come from work of this node. Default: none is known again. */
  readonly guard?: DelegationGuard
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

/** Most candidates that a message names. */
const maxShown = 20

export class ToolManager implements ToolSpace {
  readonly #registry: LocalToolRegistry
  readonly #sources: readonly ToolSource[]
  readonly #guard: DelegationGuard | undefined
  readonly #log: Logger
  readonly #caller: Caller

  constructor(options: ToolManagerOptions) {
    this.#registry = options.registry
    this.#sources = options.sources ?? []
    this.#guard = options.guard
    this.#log = options.log ?? silentLog
    this.#caller = options.caller ?? localCaller
  }

  /** Tools that can be called: the agent's own in the order of registration, then those of others that are known. */
  list(filter: ToolFilter = {}): Tool[] {
    const foreign = this.#sources
      .flatMap((source) => source.list())
      .filter(({ kind, traits }) => {
        if (filter.kind !== undefined && kind !== filter.kind) return false
        if (filter.category !== undefined && traits.category !== filter.category) return false
        return filter.published !== true
      })
    return [...this.#registry.list(filter), ...foreign]
  }

  /**
   * The tool of a name, ready to be called: the agent's own, or one of others by its handle `SERVICE.NAME`, or by its
   * bare name where only one has it. A promise where the service must be asked first. Throws `not_found`, with the
   * candidates where a bare name could mean several.
   */
  resolve(name: string): Tool | Promise<Tool> {
    const dot = name.indexOf('.')
    if (dot > 0) {
      const service = name.slice(0, dot)
      const source = this.#sources.find((each) => each.has(service))
      if (source !== undefined) return source.resolve(service, name.slice(dot + 1))
      // The agent's own tools have no dots.
      throw new KeyError(`There is no tool ${excerpt(name)} here: nothing is known by the name ${excerpt(service)}.`)
    }
    if (this.#sources.length === 0 || this.#registry.has(name)) return this.#registry.resolve(name)
    const [only, ...others] = this.#sources.flatMap((source) =>
      source.list().filter((tool) => tool.name.slice(tool.name.indexOf('.') + 1) === name),
    )
    if (only === undefined) return this.#registry.resolve(name)
    if (others.length === 0) return only
    const handles = [only, ...others].slice(0, maxShown).map((tool) => clip(tool.name, 200))
    const more = others.length < maxShown ? '' : ` and ${others.length + 1 - maxShown} more`
    throw new ConvokeError(
      'not_found',
      `Several have a tool ${excerpt(name)}; say which one: ${handles.join(', ')}${more}.`,
    )
  }

  /** Resolves with the tool's result; rejects with a ConvokeError, at once when the call is stopped. */
  async call(name: string, params?: unknown, options: ToolCallOptions = {}): Promise<ToolValue> {
    const around = this.#around(options)
    const tool = this.resolve(name)
    if (!(tool instanceof Promise)) return await invoke(tool, params, around)
    const found = await whenFound(tool, name, around)
    return await invoke(found.tool, params, found.around)
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
    const { tool, around } = await whenFound(this.resolve(name), name, this.#around(options))
    yield* invokeStreaming(tool, params, around)
  }

  #around({ signal, timeoutMs, detach, caller, ask, call }: ToolCallOptions): Surroundings {
    return {
      resolve: (name) => this.resolve(name),
      caller: caller ?? this.#caller,
      log: this.#log,
      ask,
      call,
      signals: signal === undefined ? [] : [signal],
      timeoutMs,
      detach,
      guard: this.#guard,
      depth: 0,
    }
  }
}
