/** Calls of tools by those who are no task: the agent itself, and tools that call other tools. */
import { randomUUID } from 'node:crypto'
import { setMaxListeners } from 'node:events'
import { abortReason, onAbort } from '../base/abort.ts'
import { Channel } from '../base/channel.ts'
import { ConvokeError } from '../base/errors.ts'
import { cloneJson, type Json } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { maxTimerMs } from '../base/timer.ts'
import type { Delegation } from '../protocol/delegation.ts'
import { toSampled } from '../protocol/sampling.ts'
import { AnswerCheck } from './answers.ts'
import { callTool } from './call.ts'
import { TaskChain, type DelegationGuard } from './delegation.ts'
import { noteInner } from './failure.ts'
import { describeIssues } from './issues.ts'
import { Notices } from './notices.ts'
import type { OpenCalls } from './open-calls.ts'
import type { Pipeline } from './pipeline.ts'
import type {
  CallOptions,
  Caller,
  Chunk,
  Hop,
  Progress,
  Question,
  RemoteTask,
  Tool,
  ToolContext,
  ToolEvent,
  ToolLog,
  ToolSpace,
  ToolValue,
} from './tool.ts'
import { excerpt } from './value.ts'

/** Events that a slow reader of a stream lets pile up before the tool waits. */
const streamCapacity = 16
/** Lines of its log that may wait besides. */
const maxUnreadLogs = 256
/** How deep tools may call tools. Deeper is a tool that calls itself without end. */
const maxDepth = 32

/** Finds a tool that is ready to be called, perhaps on another node first; throws a ConvokeError. */
export type Resolve = (name: string) => Tool | Promise<Tool>

/** What stands around a call. */
export interface Surroundings {
  readonly resolve: Resolve
  /** Whether there is a service of that id. Default: there are none. */
  readonly knows?: ((service: string) => boolean) | undefined
  /** What stands around each call. Default: the tool's own limits. */
  readonly pipeline?: Pipeline | undefined
  readonly caller: Caller
  readonly log: Logger
  /** Asks whoever started all this. Default: nobody can be asked. */
  readonly ask?: ((question: Question) => Promise<Json>) | undefined
  /** Whether `ask` gives only answers that fit their schema, and reads what they mean. Default: false, they are checked here. */
  readonly isAskChecked?: boolean | undefined
  /** The call's ids. Default: an id of its own. */
  readonly call?: ToolContext['call'] | undefined
  readonly signals: readonly AbortSignal[]
  readonly timeoutMs?: number | undefined
  /** When the work that this call is part of will be stopped, in milliseconds since 1970. Default: without a limit. */
  readonly deadline?: (() => number | undefined) | undefined
  /** Lets the work of other nodes go on when the call is stopped. Default: false. */
  readonly detach?: boolean | undefined
  /** Hears of the task that another node made of the call. */
  readonly onTask?: ((task: RemoteTask) => void) | undefined
  /** Knows the calls under way, and may stop them. */
  readonly open?: OpenCalls | undefined
  /** Opens a chain where a call begins that no task stands behind. */
  readonly guard?: DelegationGuard | undefined
  /** The chain that the running task came along. Default: the call begins here. */
  readonly chain?: (() => Delegation | undefined) | undefined
  /** The nodes on that chain. Default: none. */
  readonly path?: readonly string[] | undefined
  /** How many tools called each other to get here. */
  readonly depth: number
}

/**
 * Calls a tool and resolves with its result; its chunks and progress go nowhere. When it is stopped the call rejects
 * at once: a tool that ignores its signal is left to itself, and what it still says is discarded.
 */
export async function invoke(tool: Tool, params: unknown, around: Surroundings): Promise<ToolValue> {
  const scope = new Scope(tool, around)
  try {
    const work = callTool(tool, params, new CallContext(around, scope, nobody), around.pipeline)
    // A tool that calls others ends when they have ended: what runs elsewhere says so, or has a limit of its own.
    const isFree = !scope.limited && around.open === undefined
    if (isFree || (around.depth > 0 && tool.elsewhere !== undefined)) return await drain(work)
    return await new Promise<ToolValue>((resolve, reject) => {
      scope.whenStopped(reject)
      drain(work).then(resolve, reject)
    })
  } catch (error) {
    throw scope.failure(error)
  } finally {
    scope.close()
  }
}

async function drain(work: AsyncGenerator<Chunk, ToolValue, void>): Promise<ToolValue> {
  for (;;) {
    const step = await work.next()
    if (step.done === true) return step.value
  }
}

/** Calls a tool and yields what it says as it comes, the result last. Leaving the loop stops the tool. */
export async function* invokeStreaming(
  tool: Tool,
  params: unknown,
  around: Surroundings,
): AsyncGenerator<ToolEvent, void, void> {
  const scope = new Scope(tool, around)
  const events = new Channel<ToolEvent>(streamCapacity)
  let unreadLogs = 0
  const notices = new Notices((log, isLast) => {
    if (unreadLogs >= maxUnreadLogs && !isLast) return false
    unreadLogs++
    events.insert({ ...log, type: 'log' })
    return true
  })
  const listener: Listener = {
    progress: (progress) => events.offer({ ...progress, type: 'progress' }),
    notice: (log) => notices.say(log),
    restart: () => void events.push({ type: 'restart' }),
  }
  let ended = false
  let isWaited = true
  let pumped: Promise<void> | undefined
  try {
    if (around.depth === 0 || tool.elsewhere === undefined) scope.whenStopped((reason) => events.fail(reason))
    pumped = pump(callTool(tool, params, new CallContext(around, scope, listener), around.pipeline), events, notices)
    for await (const event of events) {
      if (event.type === 'log') unreadLogs--
      ended = event.type === 'result'
      yield event
    }
  } catch (error) {
    // A caller whose time is up waits for nothing more; the work is told to stop all the same.
    isWaited = !(error instanceof ConvokeError && error.code === 'timeout')
    throw scope.failure(error)
  } finally {
    if (!ended) scope.stop(new ConvokeError('canceled', 'The caller left before the result.'))
    notices.close()
    scope.close()
    // What runs elsewhere is told to stop, and its word is waited for: whoever has left the loop knows that it stands still.
    if (!ended && isWaited && tool.elsewhere !== undefined) await pumped
  }
}

/** Moves what a tool says into the channel. Never rejects: how the tool failed is the reader's to know. */
async function pump(
  work: AsyncGenerator<Chunk, ToolValue, void>,
  events: Channel<ToolEvent>,
  notices: Notices,
): Promise<void> {
  try {
    for (;;) {
      const step = await work.next()
      if (step.done === true) {
        notices.close()
        void events.push({ type: 'result', result: step.value })
        events.end()
        return
      }
      const room = events.push({ type: 'chunk', chunk: step.value })
      if (room !== undefined) await room
      if (events.closed) {
        await work.return(null)
        return
      }
    }
  } catch (error) {
    notices.close()
    // Nothing happens if the reader has left or was told why the call was stopped.
    events.fail(error)
  }
}

/** The tool space of a call, or of an agent. */
export function createSpace(around: Surroundings): ToolSpace {
  return {
    knows: (service) => around.knows?.(service) ?? false,
    call: async (name, params, options) => {
      try {
        const inside = within(around, options)
        const tool = around.resolve(name)
        if (!(tool instanceof Promise)) return await invoke(tool, params, inside)
        const found = await whenFound(tool, name, inside)
        return await invoke(found.tool, params, found.around)
      } catch (error) {
        noteInner(error)
        throw error
      }
    },
    stream: async function* (name, params, options) {
      try {
        const { tool, around: inside } = await whenFound(around.resolve(name), name, within(around, options))
        yield* invokeStreaming(tool, params, inside)
      } catch (error) {
        noteInner(error)
        throw error
      }
    },
  }
}

/** The tool once it is found, and what is left of the call's time then. An abort, or the end of that time, ends the wait. */
export async function whenFound(
  tool: Tool | Promise<Tool>,
  name: string,
  around: Surroundings,
): Promise<{ readonly tool: Tool; readonly around: Surroundings }> {
  if (!(tool instanceof Promise)) return { tool, around }
  const { signals, timeoutMs } = around
  const startedAt = performance.now()
  const links: (() => void)[] = []
  let timer: Timer | undefined
  try {
    const found = await new Promise<Tool>((resolve, reject) => {
      for (const signal of signals) links.push(onAbort(signal, () => reject(abortReason(signal))))
      if (timeoutMs !== undefined && timeoutMs > 0) timer = new Timer(timeoutMs, () => reject(late(name, timeoutMs)))
      tool.then(resolve, reject)
    })
    if (timeoutMs === undefined) return { tool: found, around }
    return {
      tool: found,
      around: { ...around, timeoutMs: Math.max(1, Math.ceil(timeoutMs - (performance.now() - startedAt))) },
    }
  } finally {
    timer?.stop()
    for (const unlink of links) unlink()
  }
}

function late(name: string, timeoutMs: number): ConvokeError {
  return new ConvokeError('timeout', `The tool "${name}" did not finish within ${timeoutMs} ms.`)
}

function within(around: Surroundings, options: CallOptions = {}): Surroundings {
  const { signal, timeoutMs, detach } = options
  return { ...around, signals: signal === undefined ? around.signals : [...around.signals, signal], timeoutMs, detach }
}

const ignore = (): void => {}

/** Who hears what a tool says while it runs. */
interface Listener {
  readonly progress: (progress: Progress) => void
  readonly notice: (log: ToolLog) => void
  /** There where somebody takes the chunks. */
  readonly restart?: () => void
}

const nobody: Listener = { progress: ignore, notice: ignore }

/**
 * Tools take their context apart (`{ signal, progress }`), so its functions must not need `this`. What most tools
 * never look at is a getter of the class: an object with getters of its own costs more than the whole rest of a call.
 */
class CallContext implements ToolContext {
  readonly caller: Caller
  readonly log: Logger
  readonly progress: ToolContext['progress']
  readonly notice: ToolContext['notice']
  readonly ask: ToolContext['ask']
  readonly #around: Surroundings
  readonly #scope: Scope
  readonly #restart: (() => void) | undefined
  #call: ToolContext['call'] | undefined
  #tools: ToolSpace | undefined

  constructor(around: Surroundings, scope: Scope, { progress, notice, restart }: Listener) {
    this.caller = around.caller
    this.log = around.log
    this.progress = progress
    this.notice = notice
    this.ask = (question) => scope.ask(question, around)
    this.#around = around
    this.#scope = scope
    this.#restart = restart
    this.#call = around.call
  }

  get signal(): AbortSignal {
    return this.#scope.signal
  }

  get deadline(): number | undefined {
    return this.#scope.deadline
  }

  get call(): ToolContext['call'] {
    return (this.#call ??= { id: randomUUID() })
  }

  get hop(): Hop {
    const { detach = false, chain, path = [], depth } = this.#around
    return {
      streaming: this.#restart !== undefined,
      stoppable: this.#restart !== undefined || this.#scope.limited,
      detach,
      chain: chain?.(),
      reentrant: false,
      inner: depth > 0,
      path,
      restart: this.#restart ?? ignore,
      onTask: (task) => {
        this.#scope.task = task
        this.#around.onTask?.(task)
      },
    }
  }

  get tools(): ToolSpace {
    return (this.#tools ??= createSpace({
      ...this.#around,
      chain: this.#around.chain ?? this.#scope.chain(this.#around.guard),
      call: undefined,
      timeoutMs: undefined,
      deadline: () => this.deadline,
      detach: undefined,
      onTask: undefined,
      signals: [this.signal],
      depth: this.#around.depth + 1,
    }))
  }
}

/** How long a call may take, and who may stop it. Everything in it ends with {@link Scope.close}. */
class Scope {
  readonly #tool: Tool
  /** What another node made of the call. */
  task: RemoteTask | undefined
  // Made when somebody looks: an AbortController costs 2 µs, more than the rest of a call.
  #controller: AbortController | undefined
  #reason: ConvokeError | undefined
  #listener: ((reason: ConvokeError) => void) | undefined
  #callTimer: Timer | undefined
  #toolTimer: Timer | undefined
  #asking = 0
  #chain: TaskChain | undefined
  readonly #outerDeadline: Surroundings['deadline']
  readonly #open: OpenCalls | undefined
  readonly #links: (() => void)[] = []

  constructor(tool: Tool, around: Surroundings) {
    this.#tool = tool
    if (around.depth > maxDepth) {
      const message = `Tools call each other ${maxDepth} deep here; the tool "${tool.name}" probably calls itself.`
      throw new ConvokeError('too_large', message)
    }
    const { timeoutMs, deadline } = around
    this.#outerDeadline = deadline
    if (timeoutMs !== undefined && !(timeoutMs > 0)) {
      throw new ConvokeError('invalid_request', `\`timeoutMs\` must be above 0, got ${excerpt(timeoutMs)}.`)
    }
    for (const signal of around.signals) {
      if (signal.aborted) throw abortReason(signal)
      this.#links.push(onAbort(signal, () => this.stop(abortReason(signal))))
    }
    if (timeoutMs !== undefined) this.#callTimer = this.#startTimer(timeoutMs)
    const ownMs = around.pipeline === undefined ? tool.traits.timeoutMs : around.pipeline.timeoutOf(tool)
    if (ownMs !== undefined) this.#toolTimer = this.#startTimer(ownMs)
    this.#open = around.open
    this.#open?.add(this)
  }

  /** Whether anything can stop the call before it ends by itself. */
  get limited(): boolean {
    return this.#links.length > 0 || this.#callTimer !== undefined || this.#toolTimer !== undefined
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      // A tool may call a hundred others at once; that is no leak, and needs no warning.
      setMaxListeners(0, this.#controller.signal)
      if (this.#reason !== undefined) this.#controller.abort(this.#reason)
    }
    return this.#controller.signal
  }

  get deadline(): number | undefined {
    const ends = [this.#callTimer?.endsAt, this.#toolTimer?.endsAt, this.#outerDeadline?.()]
    const end = Math.min(...ends.map((each) => each ?? Infinity))
    return end === Infinity ? undefined : end
  }

  whenStopped(listener: (reason: ConvokeError) => void): void {
    this.#listener = listener
  }

  stop(reason: ConvokeError): void {
    if (this.#reason !== undefined) return
    this.#reason = reason
    this.#controller?.abort(reason)
    this.#listener?.(reason)
  }

  /** What a call fails with, as its caller gets it. */
  failure(error: unknown): unknown {
    const { elsewhere } = this.#tool
    // What a connection says that was ended for it, too, is not why the call ended.
    if (elsewhere === undefined) return this.#reason ?? error
    return error instanceof ConvokeError ? elsewhere.failure(error, this.task) : error
  }

  /** The chain of the calls that begin in this one. */
  chain(guard: DelegationGuard | undefined): Surroundings['chain'] {
    if (guard === undefined) return undefined
    const chain = (this.#chain ??= new TaskChain(guard, undefined))
    return () => chain.outgoing
  }

  close(): void {
    this.#open?.delete(this)
    this.#chain?.close()
    this.#callTimer?.stop()
    this.#toolTimer?.stop()
    for (const unlink of this.#links) unlink()
  }

  /** The tool's own time stands still while it waits for an answer; the caller's does not. */
  async ask(question: Question, { ask, isAskChecked = false }: Surroundings): Promise<Json> {
    if (ask === undefined) {
      throw new ConvokeError('unsupported_operation', `Nobody can be asked in this call: ${question.message}`)
    }
    const { signal } = this
    if (signal.aborted) throw abortReason(signal)
    if (++this.#asking === 1) this.#toolTimer?.stop()
    let stopListening = (): void => {}
    try {
      const answer = await new Promise<Json>((resolve, reject) => {
        stopListening = onAbort(signal, () => reject(abortReason(signal)))
        ask(question).then(resolve, reject)
      })
      const isPlain = question.schema === undefined && question.sampling === undefined
      return isAskChecked || isPlain ? answer : await this.#settle(question, answer)
    } finally {
      stopListening()
      if (--this.#asking === 0 && this.#reason === undefined) this.#toolTimer?.start()
    }
  }

  /** The answer as the tool gets it. Throws `invalid_params` for one that does not fit: nobody is asked again. */
  async #settle(question: Question, answer: Json): Promise<Json> {
    const { schema, sampling, read } = question
    // What another node asks is checked there, and asked again.
    if (schema === undefined || this.#tool.elsewhere !== undefined) {
      if (typeof answer !== 'string') return answer
      return sampling === undefined ? (read?.(answer.trim()) ?? answer) : toSampled(answer)
    }
    const { value, issues } = await new AnswerCheck({ ...question, schema }).check(cloneJson(answer))
    if (issues === undefined) return value
    const message = `The answer to a question of the tool "${this.#tool.name}" does not fit: ${describeIssues(issues)}`
    throw new ConvokeError('invalid_params', message, { issues })
  }

  #startTimer(timeoutMs: number): Timer {
    return new Timer(timeoutMs, () => {
      this.stop(late(this.#tool.name, timeoutMs))
    })
  }
}

/** A timer that can stand still. Runs from the start. */
class Timer {
  readonly #expire: () => void
  #leftMs: number
  #timer: NodeJS.Timeout | undefined
  /** Milliseconds since 1970; undefined while it stands still. */
  endsAt: number | undefined

  constructor(ms: number, expire: () => void) {
    this.#leftMs = ms
    this.#expire = expire
    this.start()
  }

  start(): void {
    this.endsAt = Date.now() + this.#leftMs
    // Longer is no limit.
    if (this.#leftMs <= maxTimerMs) this.#timer = setTimeout(this.#expire, this.#leftMs)
  }

  stop(): void {
    clearTimeout(this.#timer)
    if (this.endsAt !== undefined) this.#leftMs = Math.max(0, this.endsAt - Date.now())
    this.endsAt = undefined
  }
}
