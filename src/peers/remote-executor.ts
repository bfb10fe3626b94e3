/** Calls of peers' tools by their peer and name, for programs that have no tool space of their own. */
import type { Json } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { invoke, invokeStreaming, whenFound, type Surroundings } from '../tools/invoke.ts'
import { describeIssues } from '../tools/issues.ts'
import { localCaller } from '../tools/local.ts'
import { compile } from '../tools/schema.ts'
import type { CallOptions, JsonSchema, Question, RemoteTask, ToolEvent, ToolValue } from '../tools/tool.ts'
import { PeerError, toPeerError } from './errors.ts'
import type { RemoteToolRegistry } from './remote-registry.ts'
import type { RemoteToolInfo } from './remote-tool-info.ts'

export interface RemoteCallOptions extends CallOptions {
  /** Answers the tool's questions. Default: they fail with `unsupported_operation`. */
  readonly ask?: (question: Question) => Promise<Json>
  /** What the result must look like beside the tool's own output schema. One that does not throws `invalid_result`. */
  readonly schema?: JsonSchema
  /** Hears the task's id when the peer names it, and how long the tool ran when it tells. */
  readonly onTask?: (task: RemoteTask) => void
}

export interface RemoteToolCall {
  readonly agentId: string
  readonly toolId: string
  readonly params?: unknown
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
}

export interface RemoteToolResult {
  readonly result: ToolValue
  /** As the peer measured it; as this side did where the peer does not tell. */
  readonly executionTimeMs: number
  readonly metadata?: { readonly taskId: string; readonly contextId?: string }
}

export interface RemoteToolExecutorOptions {
  readonly registry: RemoteToolRegistry
  readonly log?: Logger
}

export class RemoteToolExecutor {
  readonly #registry: RemoteToolRegistry
  readonly #log: Logger

  constructor({ registry, log }: RemoteToolExecutorOptions) {
    this.#registry = registry
    this.#log = log ?? silentLog
  }

  /** Calls a tool and resolves with its result, and what is known of its run. Rejects with a ConvokeError, mostly a PeerError. */
  async call({ agentId, toolId, params, ...options }: RemoteToolCall): Promise<RemoteToolResult> {
    const startedAt = performance.now()
    let task: RemoteTask | undefined
    const result = await this.executeRemoteTool(agentId, toolId, params, {
      ...options,
      onTask: (each) => (task = { ...task, ...each }),
    })
    const executionTimeMs = task?.executionTimeMs ?? performance.now() - startedAt
    if (task === undefined) return { result, executionTimeMs }
    const { taskId, contextId } = task
    return { result, executionTimeMs, metadata: { taskId, ...(contextId === undefined ? {} : { contextId }) } }
  }

  /** {@link executeRemoteToolStreaming} for a call in one piece. */
  async *stream({ agentId, toolId, params, ...options }: RemoteToolCall): AsyncGenerator<ToolEvent, void, void> {
    yield* this.executeRemoteToolStreaming(agentId, toolId, params, options)
  }

  /** The tools of a peer, asked for now. Throws PeerError. */
  async listRemoteTools(
    agentId: string,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<readonly RemoteToolInfo[]> {
    return await this.#registry.discover(agentId, options)
  }

  /**
   * Calls a peer's tool and resolves with its result. Params are validated before anything is sent, results after.
   * Rejects with a ConvokeError; when it is stopped, at once, and the task at the peer is cancelled behind it.
   */
  async executeRemoteTool<T = ToolValue>(
    agentId: string,
    tool: string,
    params?: unknown,
    options: RemoteCallOptions = {},
  ): Promise<T> {
    const call = new Call(agentId, tool, options)
    try {
      const found = await this.#find(agentId, tool, call)
      const result = await invoke(found.tool, params, found.around)
      call.check(result)
      // The schemas have seen to it, as far as there are any.
      return result as T
    } catch (error) {
      throw call.failed(error)
    }
  }

  /** Progress and chunks as they come, then one result. Leaving the loop cancels the task, and waits until it has stopped. */
  async *executeRemoteToolStreaming(
    agentId: string,
    tool: string,
    params?: unknown,
    options: RemoteCallOptions = {},
  ): AsyncGenerator<ToolEvent, void, void> {
    const call = new Call(agentId, tool, options)
    try {
      const found = await this.#find(agentId, tool, call)
      for await (const event of invokeStreaming(found.tool, params, found.around)) {
        if (event.type === 'result') call.check(event.result)
        yield event
      }
    } catch (error) {
      throw call.failed(error)
    }
  }

  #find(peer: string, tool: string, { options }: Call): ReturnType<typeof whenFound> {
    return whenFound(this.#registry.resolve(peer, tool, options.signal), `${peer}.${tool}`, this.#around(options))
  }

  #around({ signal, timeoutMs, detach, ask, onTask }: RemoteCallOptions): Surroundings {
    return {
      resolve: (handle) => {
        const { agentId, name } = this.#registry.lookup(handle)
        return this.#registry.resolve(agentId, name)
      },
      caller: localCaller,
      log: this.#log,
      ask,
      onTask,
      detach,
      signals: signal === undefined ? [] : [signal],
      timeoutMs,
      depth: 0,
    }
  }
}

/** What is known of one call when it fails. */
class Call {
  readonly options: RemoteCallOptions
  readonly #peer: string
  readonly #tool: string
  readonly #schema: JsonSchema | undefined
  #taskId: string | undefined

  constructor(peer: string, tool: string, options: RemoteCallOptions) {
    this.#peer = peer
    this.#tool = tool
    this.#schema = options.schema
    const { onTask } = options
    this.options = {
      ...options,
      onTask: (task) => {
        this.#taskId = task.taskId
        onTask?.(task)
      },
    }
  }

  check(result: ToolValue): void {
    if (this.#schema === undefined) return
    const issues = compile(this.#schema).validate(result)
    if (issues.length === 0) return
    const text = `Its result is not what was asked for: ${describeIssues(issues)}`
    throw new PeerError('invalid_result', this.#peer, text, { issues })
  }

  failed(error: unknown): PeerError {
    const context = { tool: this.#tool, attempt: 1, ...(this.#taskId === undefined ? {} : { taskId: this.#taskId }) }
    return toPeerError(error, this.#peer, context)
  }
}
