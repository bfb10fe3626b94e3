/**
 * One call of an MCP host, as a task of this node: what the task says becomes progress, its questions become forms, and
 * its end the result. A task that outlives the host's patience goes on, and the host gets a handle to follow it.
 */
import {
  inputRequired,
  ProtocolError,
  ProtocolErrorCode,
  type CallToolResult,
  type ElicitRequestFormParams,
  type ElicitResult,
  type InputRequiredResult,
  type InputRequest,
  type InputResponseView,
} from '@modelcontextprotocol/server'
import { onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import type { Json, JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { isInterrupted, isTerminal, type Message, type StreamResponse, type Task } from '../protocol/a2a.ts'
import { keys } from '../protocol/extension.ts'
import { toAnswerMessage, toCallMessage, type ToolLog, type WireQuestion } from '../protocol/tool-call.ts'
import type { Caller } from '../tools/tool.ts'
import { clip } from '../tools/value.ts'
import type { Catalogue } from './catalogue.ts'
import { toMcpContent } from './content.ts'
import { toForm } from './elicitation.ts'
import { HostProgress, type SendProgress } from './host-progress.ts'
import type { TaskToolKind } from './task-tools.ts'
import { chunkText, TaskView } from './task-view.ts'

/** Events of a task in order, each with its JSON. */
export type TaskEvents = AsyncIterable<readonly { readonly seq: number; readonly text: string }[]>

/** The tasks of this node. Each belongs to the caller that began it, and is `task_not_found` for any other. Texts are JSON. */
export interface TaskDoor {
  /** Begins a task, or goes on with the one that the message names. Ends when the task ends, asks, or the signal aborts. */
  send(message: Message, caller: Caller, signal: AbortSignal): Promise<TaskEvents>
  /** The cancelled task. Throws `task_not_cancelable` for one that had ended. */
  cancel(taskId: string, caller: Caller): Promise<string>
  get(taskId: string, caller: Caller): Promise<string>
  /** The task as it stands, and what follows. Throws `unsupported_operation` for one that has ended. */
  subscribe(taskId: string, caller: Caller, signal: AbortSignal): Promise<TaskEvents>
}

/** What a language model is asked. The package calls the type deprecated, but hosts of today ask their models so. */
export type SamplingParams = Parameters<typeof inputRequired.createMessage>[0]

/** How long a host is made to wait. */
export interface Patience {
  /** Of a host that asked for no progress, in milliseconds. */
  readonly patienceMs: number
  /** Of one that did, in milliseconds: progress keeps its call alive. */
  readonly maxWaitMs: number
  /** The longest silence before a host that asked for progress gets some, in milliseconds. */
  readonly heartbeatMs: number
}

/** What the host that makes this call can do. */
export interface HostRequest {
  readonly caller: Caller
  /** Aborted when the host takes its call back, or is gone. */
  readonly signal: AbortSignal
  /** There where the host asked for progress. */
  readonly sendProgress: SendProgress | undefined
  /** Tells the host a line of the tool's log, where it is of a level that the host wants. */
  readonly sendLog: (log: ToolLog) => Promise<void>
  /**
   * How the host is asked: in the middle of the call by a request of ours, or in its result, behind which the host makes
   * the call again with the answer (`retry`). A person is asked by `elicit`, a language model by `sample`; what the host
   * does not know is left out.
   */
  readonly asking:
    | {
        readonly by: 'request'
        readonly elicit?: (form: ElicitRequestFormParams) => Promise<ElicitResult>
        readonly sample?: (params: SamplingParams) => Promise<object>
      }
    | { readonly by: 'retry'; readonly elicit?: true; readonly sample?: true }
}

export interface HostCallOptions extends Patience {
  readonly tasks: TaskDoor
  readonly catalogue: Catalogue
  readonly log: Logger
}

/** A tool as the host calls it, and as the callers of A2A do. */
export interface CalledTool {
  readonly name: string
  readonly handle: string
}

export type HostResult = CallToolResult | InputRequiredResult

type Answered = { readonly value: Json } | { readonly result: HostResult }

/** Undefined where there is nothing to follow any more. */
type Open = (signal: AbortSignal) => Promise<TaskEvents | undefined>

/** So often one call asks its host: one that answers by itself, and wrongly, would be asked for ever. */
const maxQuestions = 50
/** With this a host says that its user wants no model asked. */
const refusedCode = -1
/** What a tool is told whose question is declined; it may go on without an answer. */
const decline: JsonObject = { action: 'decline' }

/** The one question of a round: a tool asks one after the other. */
export const answerKey = 'answer'

export class HostCall {
  readonly #options: HostCallOptions
  readonly #host: HostRequest
  readonly #progress: HostProgress
  readonly #view = new TaskView()
  #canceling: Promise<void> | undefined
  #logged: Promise<unknown> = Promise.resolve()
  /** Undefined for a call that only follows a task: that task goes on when the host takes the call back. */
  #tool: CalledTool | undefined

  constructor(options: HostCallOptions, host: HostRequest) {
    this.#options = options
    this.#host = host
    this.#progress = new HostProgress(host.sendProgress, options.heartbeatMs)
  }

  /** Calls a tool. Throws -32602 for one that is not there for this caller. */
  call({ name, handle }: CalledTool, params: JsonObject): Promise<HostResult> {
    this.#tool = { name, handle }
    return this.#guard(() => this.#run(this.#sending(toCallMessage({ name: handle, params }))))
  }

  /**
   * Goes on with the task of an earlier round of the same call: of a tool, or of one that follows a task. `taskId` came
   * back from the host, which may have put anything there: a task that is not its caller's is refused with -32602, and
   * with its own it could go on anyway.
   */
  retry(tool: CalledTool | undefined, taskId: string, response: InputResponseView): Promise<HostResult> {
    this.#tool = tool
    return this.#guard(async () => {
      try {
        await this.#load(taskId)
      } catch (error) {
        if (!(error instanceof ConvokeError) || error.code !== 'task_not_found') throw error
        throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'Invalid or expired requestState')
      }
      const { question, state } = this.#view
      if (!isInterrupted(state) || question === undefined) return this.#run(undefined)
      if (response.kind === 'sampling') return this.#run(this.#answering(response.result as JsonObject))
      if (response.kind !== 'elicit') return this.#run(undefined)
      if (response.action === 'decline') return this.#run(this.#answering(decline))
      if (response.action !== 'accept') return this.#dismissed()
      const content = (response.content ?? {}) as JsonObject
      return this.#run(this.#answering(toForm(question).toAnswer(content)))
    })
  }

  /** Does what one of the tools that follow a task does. What is wrong with its params is told in the result. */
  follow(kind: TaskToolKind, params: JsonObject): Promise<HostResult> {
    return this.#guard(async () => {
      const { task_id: taskId, answer } = params
      if (typeof taskId !== 'string' || taskId === '') return failure('`task_id` must be the id that a call gave.')
      if (kind === 'task_answer' && answer === undefined) return failure('`answer` is missing.')
      switch (kind) {
        case 'task_status':
          await this.#load(taskId)
          return handleResult(this.#describe(), false)
        case 'task_cancel': {
          const text = await this.#options.tasks.cancel(taskId, this.#host.caller)
          this.#add({ task: JSON.parse(text) as Task })
          return handleResult(this.#describe(), false)
        }
        case 'task_answer':
          return this.#run(this.#sending(toAnswerMessage(answer ?? null, { taskId })))
        case 'task_result':
          await this.#load(taskId)
          return this.#run(undefined)
      }
    })
  }

  /** What fails is told in the result, for the model to mend; and nothing is left behind. */
  async #guard(work: () => Promise<HostResult>): Promise<HostResult> {
    try {
      return await work()
    } catch (error) {
      if (error instanceof ProtocolError) throw error
      const { log } = this.#options
      const known = ConvokeError.from(error)
      if (known.code === 'internal') log.error({ error }, 'A call of an MCP host failed for a reason of ours.')
      return failure(known.message, toErrorBody(known))
    } finally {
      await this.#logged
      await this.#progress.settle()
    }
  }

  /** From the events of the task to a result. Without `open` the task is taken as it stands. */
  async #run(open: Open | undefined): Promise<HostResult> {
    let next = open
    for (let questions = 0; ; questions++) {
      if (next !== undefined || !this.#rests) await this.#watch(next)
      if (isTerminal(this.#view.state)) return this.#result()
      if (this.#host.signal.aborted || !isInterrupted(this.#view.state)) return this.#left()
      if (questions === maxQuestions) return this.#left()
      const answer = await this.#ask()
      if ('result' in answer) return answer.result
      next = this.#answering(answer.value)
    }
  }

  /** Takes in what the task says until it ends, asks, or has taken as long as this host waits. Without `open` from now on. */
  async #watch(open: Open | undefined): Promise<void> {
    const { signal, sendProgress } = this.#host
    const { patienceMs, maxWaitMs } = this.#options
    const following = new AbortController()
    // Without the id of the task nobody could follow or cancel it: that is waited for in any case.
    let isOver = false
    const stop = (): void => {
      isOver = true
      if (this.#view.id !== undefined) following.abort()
    }
    const patience = setTimeout(stop, sendProgress === undefined ? patienceMs : maxWaitMs)
    const unlink = onAbort(signal, () => {
      if (this.#tool !== undefined) void this.#cancel()
      else stop()
    })
    try {
      for await (const batch of (await (open ?? this.#subscribing())(following.signal)) ?? []) {
        let rests = false
        for (const { text } of batch) {
          const event = JSON.parse(text) as StreamResponse
          this.#add(event)
          // A message that answers brings the task as it stood before, with its question.
          const { status } = event.statusUpdate ?? (open === undefined ? event.task : undefined) ?? {}
          rests = status !== undefined && isInterrupted(status.state)
        }
        if (signal.aborted && this.#tool !== undefined) void this.#cancel()
        if (rests || isOver) break
      }
    } finally {
      clearTimeout(patience)
      unlink()
      following.abort()
    }
    await this.#canceling
  }

  #add(event: StreamResponse): void {
    const { progress, log, chunks } = this.#view.add(event)
    if (progress !== undefined) this.#progress.report(progress)
    // A connection that is gone shows itself by other means.
    if (log !== undefined) this.#logged = this.#host.sendLog(log).catch(() => {})
    if (chunks !== undefined) this.#progress.say(chunks.map(chunkText).join(''))
  }

  async #load(taskId: string): Promise<void> {
    const text = await this.#options.tasks.get(taskId, this.#host.caller)
    this.#add({ task: JSON.parse(text) as Task })
  }

  get #rests(): boolean {
    return isTerminal(this.#view.state) || isInterrupted(this.#view.state)
  }

  #sending(message: Message): Open {
    return (signal) => this.#options.tasks.send(message, this.#host.caller, signal)
  }

  #answering(answer: Json): Open {
    const { id = '', contextId } = this.#view
    return this.#sending(toAnswerMessage(answer, { taskId: id, contextId }))
  }

  #subscribing(): Open {
    const { id = '' } = this.#view
    const { tasks } = this.#options
    return async (signal) => {
      try {
        return await tasks.subscribe(id, this.#host.caller, signal)
      } catch (error) {
        if (!(error instanceof ConvokeError) || error.code !== 'unsupported_operation') throw error
        // It has ended since it was looked at.
        await this.#load(id)
        return undefined
      }
    }
  }

  /** The answer of a person or model, or the result that stands for there being none. */
  async #ask(): Promise<Answered> {
    const { asking, signal } = this.#host
    const question = this.#view.question
    if (question === undefined) return { result: this.#left() }
    const { sampling } = question
    try {
      if (sampling !== undefined && asking.sample !== undefined) return await this.#askModel(sampling)
      return await this.#askPerson(question)
    } catch (error) {
      if (signal.aborted) await this.#cancelOwn()
      else this.#options.log.debug({ error }, 'An MCP host could not ask what a tool wants to know.')
      // The question still stands, and can be answered by hand.
      return { result: this.#left() }
    }
  }

  async #askPerson(question: WireQuestion): Promise<Answered> {
    const { asking } = this.#host
    if (asking.elicit === undefined) return { result: this.#left() }
    const form = toForm(question)
    const { message, requestedSchema } = form
    const params = { mode: 'form', message, requestedSchema } as ElicitRequestFormParams
    if (asking.by === 'retry') return this.#askByResult(inputRequired.elicit(params))
    const response = await asking.elicit(params)
    if (response.action === 'decline') return { value: decline }
    if (response.action !== 'accept') return { result: await this.#dismissed() }
    return { value: form.toAnswer(response.content ?? {}) }
  }

  async #askModel(sampling: JsonObject): Promise<Answered> {
    const { asking } = this.#host
    const params = sampling as SamplingParams
    if (asking.by === 'retry') return this.#askByResult(inputRequired.createMessage(params))
    try {
      return { value: (await asking.sample?.(params)) as JsonObject }
    } catch (error) {
      if (!(error instanceof ProtocolError) || error.code !== refusedCode) throw error
      return { value: decline }
    }
  }

  #askByResult(request: InputRequest): Answered {
    const { id = '' } = this.#view
    return { result: inputRequired({ inputRequests: { [answerKey]: request }, requestState: id }) }
  }

  /** Nobody answers: a tool that asks cannot go on without. */
  async #dismissed(): Promise<CallToolResult> {
    const { message } = this.#view.question ?? { message: '' }
    await this.#cancel()
    return failure(`The tool was stopped, since its question was not answered: ${clip(message, 500)}`)
  }

  async #cancelOwn(): Promise<void> {
    if (this.#tool !== undefined) await this.#cancel()
  }

  #cancel(): Promise<void> {
    const { id } = this.#view
    if (id === undefined) return Promise.resolve()
    this.#canceling ??= this.#options.tasks.cancel(id, this.#host.caller).then(
      () => {},
      // It had ended, or the node does.
      (error: unknown) =>
        this.#options.log.debug({ error, taskId: id }, 'A call that was taken back could not be cancelled.'),
    )
    return this.#canceling
  }

  /** The result of a task that has ended. */
  #result(): CallToolResult {
    const { state, error, errorBody, statusText, result } = this.#view
    if (state === 'TASK_STATE_COMPLETED')
      return toMcpContent(result === undefined ? statusText : result, this.#hasOutput) as CallToolResult
    if (state === 'TASK_STATE_REJECTED' && error?.code === 'not_found' && this.#tool !== undefined)
      throw unknownTool(this.#tool.name)
    return failure(error?.message ?? (statusText || `The task ended as ${wordOf(state)}.`), errorBody)
  }

  /** What a host gets whose task goes on. */
  #left(): CallToolResult {
    return handleResult(this.#describe(), this.#hasOutput)
  }

  /** Whether the host was told what the result looks like. */
  get #hasOutput(): boolean {
    const tool = this.#tool
    return tool !== undefined && this.#options.catalogue.hasOutput(this.#host.caller, tool.handle)
  }

  #describe(): JsonObject {
    const { id = '', state, question, statusText } = this.#view
    const about: JsonObject = { task_id: id, state: wordOf(state) }
    if (isTerminal(state))
      return { ...about, message: `It has ended; ${this.#toolName('task_result')} gives its result.` }
    if (!isInterrupted(state)) {
      const said = statusText === '' ? '' : ` It says: ${clip(statusText, 500)}`
      const next = `${this.#toolName('task_result')} waits for its result, ${this.#toolName('task_cancel')} stops it`
      return { ...about, message: `The tool still runs: ${next}.${said}` }
    }
    return { ...about, ...(question === undefined ? {} : toQuestionMembers(question)), message: this.#askForAnswer() }
  }

  #askForAnswer(): string {
    return `The tool asks a question and waits: ${this.#toolName('task_answer')} gives it the answer.`
  }

  #toolName(kind: TaskToolKind): string {
    return this.#options.catalogue.taskToolName(this.#host.caller, kind)
  }
}

/** The JSON-RPC error for a tool that is not there for this caller. */
export function unknownTool(name: string): ProtocolError {
  return new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${clip(name, 100)}`)
}

function toQuestionMembers({ message, schema, sampling }: WireQuestion): JsonObject {
  return {
    question: message,
    ...(schema === undefined ? {} : { schema }),
    ...(sampling === undefined ? {} : { sampling }),
  }
}

/** `TASK_STATE_INPUT_REQUIRED` as `input_required`. */
function wordOf(state: string): string {
  return state.replace('TASK_STATE_', '').toLowerCase()
}

function failure(text: string, errorBody?: JsonObject): CallToolResult {
  return {
    isError: true,
    content: [{ type: 'text', text }],
    ...(errorBody === undefined ? {} : { _meta: { [keys.error]: errorBody } }),
  }
}

function toErrorBody({ code, message, retryable, retryAfterMs, issues }: ConvokeError): JsonObject {
  return {
    code,
    message,
    retryable,
    ...(retryAfterMs === undefined ? {} : { retry_after_ms: retryAfterMs }),
    ...(issues === undefined ? {} : { issues: issues.map(({ path, message: text }) => ({ path, message: text })) }),
  }
}

/**
 * A handle is no result of a tool whose results have a schema: hosts hold every one against it that is not marked as an
 * error, and would throw the handle away.
 */
function handleResult(about: JsonObject, breaksSchema: boolean): CallToolResult {
  const content: CallToolResult['content'] = [{ type: 'text', text: JSON.stringify(about) }]
  return breaksSchema ? { isError: true, content } : { content, structuredContent: about }
}
