/** A tool call as work for the task runtime: what the tool says becomes the events of its task. */
import { untilAborted } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { cloneJson, type JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { keys, streamArtifact } from '../protocol/extension.ts'
import {
  toChunkArtifact,
  toErrorMessage,
  toLogMetadata,
  toProgressMetadata,
  toResultArtifact,
  type ToolCall,
} from '../protocol/tool-call.ts'
import type { Outcome, Work, WorkContext, WorkEvent } from '../tasks/work.ts'
import { runTool } from '../tools/call.ts'
import type { Delegation } from '../protocol/delegation.ts'
import { TaskChain } from '../tools/delegation.ts'
import { createSpace } from '../tools/invoke.ts'
import { Notices } from '../tools/notices.ts'
import type { PublishedTool } from '../tools/published.ts'
import type { Caller, Hop, Progress, Tool, ToolContext, ToolSpace } from '../tools/tool.ts'
import { checkParams } from '../tools/validation.ts'
import { ask } from './ask.ts'
import { surroundingsOf, timeoutOf, type TaskServices } from './task-services.ts'

/** A call that is refused before it begins: the task is REJECTED and says why. */
export function toRefusal(error: ConvokeError, toolName: string): Work {
  const name = toolName.slice(0, 100)
  return {
    repeatable: true,
    refusal: { state: 'TASK_STATE_REJECTED', message: toErrorMessage(error, name) },
    fail: (failure) => failed(failure, name),
    // oxlint-disable-next-line require-yield -- never called: a refusal ends before it begins
    async *run() {
      throw error
    },
  }
}

/** `chain` is the way that the call came, if it was passed on. */
export function toToolWork(
  { name, tool }: PublishedTool,
  call: ToolCall,
  caller: Caller,
  services: TaskServices,
  chain: Delegation | undefined,
): Work {
  let params: JsonObject | Promise<JsonObject>
  try {
    // The tool may do with its params what it likes; the message that brought them is kept as it was sent.
    params = checkParams(tool, cloneJson(call.params))
  } catch (error) {
    return toRefusal(toRefused(tool, error, services.log), name)
  }
  // It is awaited when the work begins, and must not count as unhandled until then.
  if (params instanceof Promise) params.catch(() => {})
  return {
    repeatable: tool.traits.readOnly === true || tool.traits.idempotent === true,
    timeoutMs: timeoutOf(chain, services.pipeline.timeoutOf(tool), call.timeoutMs),
    fail: (error) => failed(tool.elsewhere?.failure(error, undefined) ?? error, name),
    run: (work) => {
      const way = new TaskChain(services.guard, chain)
      return run(
        { name, tool },
        params,
        new CallContext(name, call, caller, services, work, way, chain?.path),
        services,
      )
    },
  }
}

/** The call of a tool that must be looked for first: at a peer or server that nobody has asked so far. */
export function toLateWork(finding: Promise<Work>, call: ToolCall, chain: Delegation | undefined): Work {
  // It is awaited when the work begins.
  finding.catch(() => {})
  return {
    // Nobody knows yet whether it may run twice.
    repeatable: false,
    timeoutMs: timeoutOf(chain, call.timeoutMs),
    fail: (error) => failed(error, call.name.slice(0, 100)),
    async *run(context) {
      const work = await untilAborted(context.signal, finding)
      if (work.refusal !== undefined) return work.refusal
      if (work.timeoutMs !== undefined) context.limit(work.timeoutMs)
      try {
        return yield* work.run(context)
      } catch (error) {
        if (context.signal.aborted) throw error
        return work.fail(ConvokeError.from(error))
      }
    },
  }
}

async function* run(
  { name, tool }: PublishedTool,
  checked: JsonObject | Promise<JsonObject>,
  context: CallContext,
  { log, pipeline }: TaskServices,
): AsyncGenerator<WorkEvent, Outcome, void> {
  let params: JsonObject
  try {
    params = checked instanceof Promise ? await checked : checked
  } catch (error) {
    // The tool's own schema library refuses the params later than ajv does, and the tool has not begun either.
    return { state: 'TASK_STATE_REJECTED', message: toErrorMessage(toRefused(tool, error, log), name) }
  }
  const startedAt = performance.now()
  let began = false
  const onBegin = (): void => {
    began = true
  }
  const steps = runTool(tool, params, context, { pipeline, onBegin })
  let chunks = 0
  try {
    for (;;) {
      const step = await steps.next()
      if (step.done === true) {
        context.endNotices()
        if (chunks > 0) yield { type: 'end', artifactId: streamArtifact }
        const elapsedMs = Math.round((performance.now() - startedAt) * 1000) / 1000
        yield { type: 'artifact', artifact: toResultArtifact(step.value, name, elapsedMs), lastChunk: true }
        return { state: 'TASK_STATE_COMPLETED' }
      }
      // A second attempt begins the artifact anew, so that whoever puts the chunks together starts over.
      const restarted = context.takeRestart()
      if (restarted) chunks = 0
      yield { type: 'artifact', artifact: toChunkArtifact(step.value, context.attempt), append: chunks++ > 0 }
    }
  } catch (error) {
    // A full line in front of the tool turned the call away, or policy, or a hook.
    if (!began && error instanceof ConvokeError && isRefusal(error)) {
      return { state: 'TASK_STATE_REJECTED', message: toErrorMessage(error, name) }
    }
    throw error
  } finally {
    await steps.return(null)
    context.close()
  }
}

function isRefusal({ code }: ConvokeError): boolean {
  return code !== 'timeout' && code !== 'canceled' && code !== 'internal' && code !== 'worker_lost'
}

/** A class, since a call makes one: accessors on the prototype cost nothing until they are used. */
class CallContext implements ToolContext {
  readonly caller: Caller
  readonly call: ToolContext['call']
  readonly log: Logger
  readonly progress: ToolContext['progress']
  readonly notice: ToolContext['notice']
  readonly ask: ToolContext['ask']
  readonly #work: WorkContext
  readonly #services: TaskServices
  readonly #chain: TaskChain
  readonly #path: readonly string[]
  #space: ToolSpace | undefined
  #notices: Notices | undefined
  #restarts = 0
  #isRestarted = false

  constructor(
    toolName: string,
    call: ToolCall,
    caller: Caller,
    services: TaskServices,
    work: WorkContext,
    chain: TaskChain,
    path: readonly string[] = [],
  ) {
    const { taskId, contextId } = work
    this.caller = caller
    this.call = { id: call.callId ?? taskId, taskId, contextId }
    this.log = services.log
    // Functions of their own, so that a tool may take them out of the context.
    this.progress = (progress) => work.emit({ type: 'status', metadata: toProgressMetadata(checkProgress(progress)) })
    this.notice = (log) => {
      this.#notices ??= new Notices((line) => {
        work.emit({ type: 'status', metadata: toLogMetadata(line), isKept: true })
        return true
      })
      this.#notices.say(log)
    }
    this.ask = (question) => ask(question, toolName, work)
    this.#work = work
    this.#services = services
    this.#chain = chain
    this.#path = path
  }

  /** The number of the attempt whose chunks count: a tool elsewhere may begin anew while this run goes on. */
  get attempt(): number {
    return this.#work.attempt + this.#restarts
  }

  /** Whether the tool has begun anew since the last time. */
  takeRestart(): boolean {
    const restarted = this.#isRestarted
    this.#isRestarted = false
    return restarted
  }

  /** Says what was left out of the tool's log: nothing may come behind the result. */
  endNotices(): void {
    this.#notices?.close()
  }

  /** Ends with the run. */
  close(): void {
    this.endNotices()
    this.#chain.close()
  }

  get hop(): Hop {
    const chain = this.#chain
    return {
      streaming: true,
      stoppable: true,
      detach: false,
      get chain() {
        return chain.outgoing
      },
      reentrant: chain.reentrant,
      inner: false,
      path: this.#path,
      restart: () => {
        this.#restarts++
        this.#isRestarted = true
        this.#work.emit({ type: 'status', metadata: { [keys.attempt]: this.attempt } })
      },
    }
  }

  get signal(): AbortSignal {
    return this.#work.signal
  }

  get deadline(): number | undefined {
    return this.#work.deadline
  }

  get tools(): ToolSpace {
    // What a tool elsewhere wants to know is for the one to say who started all this.
    const origin = { caller: this.caller, chain: this.#chain, path: this.#path, ask: this.ask }
    this.#space ??= createSpace(surroundingsOf(this.#work, origin, this.#services))
    return this.#space
  }
}

/** Why params were refused. A schema library that breaks is a defect, and its author finds it in the log. */
function toRefused(tool: Tool, error: unknown, log: Logger): ConvokeError {
  const refused = ConvokeError.from(error)
  if (refused.code === 'internal') log.error({ error, tool: tool.name }, 'The params of a call could not be checked.')
  return refused
}

function checkProgress(progress: Progress): Progress {
  for (const key of ['progress', 'total'] as const) {
    const value: unknown = progress[key]
    if (value !== undefined && !Number.isFinite(value)) {
      throw new ConvokeError(
        'invalid_result',
        `context.progress takes finite numbers; ${key} is ${typeof value === 'number' ? value : `a ${typeof value}`}.`,
      )
    }
  }
  return progress
}

function failed(error: ConvokeError, toolName: string): Outcome {
  return { state: 'TASK_STATE_FAILED', message: toErrorMessage(error, toolName) }
}
