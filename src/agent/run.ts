/** One run of an agent: an input, and all events that come of it, one after the other, until none is left. */
import { createHash } from 'node:crypto'
import { abortReason, onAbort, pause } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { cloneJson, freezeJson, isObject, type Json, type JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import type { StepRecord } from '../store/agent-store.ts'
import type { Question } from '../tools/tool.ts'
import { excerpt } from '../tools/value.ts'
import { toolsOfRun } from './agent-tools.ts'
import type { AgentConfiguration } from './configuration.ts'
import type { Action, AgentToolSpace, DurableOptions, RunEvent, RunnerContext, RunOptions } from './context.ts'
import type { EventLog } from './event-log.ts'
import { OutputEvent, type AgentEvent } from './events.ts'
import type { MemoryTree } from './memory.ts'
import type { AgentPlan, PlannedAction } from './plan.ts'
import type { ResourcePool } from './resource-pool.ts'
import type { Resources, ResourceType } from './resources.ts'
import { remoteAgentOf } from './run-remote-agent.ts'

/** What all runs of a runner share. */
export interface RunHost {
  readonly plan: AgentPlan
  readonly resources: ResourcePool
  readonly tools: AgentToolSpace
  readonly config: AgentConfiguration
  readonly log: Logger
  readonly eventLog: EventLog | undefined
  /** How many events a run may have. */
  readonly maxEvents: number
  /** How long an action that does not heed its signal is waited for, in milliseconds. */
  readonly graceMs: number
}

/** One run. */
export interface RunStart {
  readonly key: string
  readonly runId: string
  readonly input: AgentEvent<string, object>
  readonly shortTerm: MemoryTree
  readonly sensory: MemoryTree
  /** What an earlier attempt has done. */
  readonly steps: readonly StepRecord[]
  /** Resolves when the step is durable. */
  readonly saveStep: (step: StepRecord) => Promise<void>
  readonly options: RunOptions
}

interface Queued {
  readonly event: AgentEvent<string, object>
  readonly cause: { readonly eventId: string; readonly action: string } | undefined
}

export class Run {
  readonly host: RunHost
  readonly start: RunStart
  readonly outputs: Json[] = []
  readonly #steps: Map<string, StepRecord> | undefined
  readonly #queue: (Queued | undefined)[] = []
  #controller: AbortController | undefined
  #stopped: ConvokeError | undefined
  #hasEnded = false
  #tools: AgentToolSpace | undefined
  /** Ends the wait for the action under way. */
  #interrupt: (() => void) | undefined

  constructor(host: RunHost, start: RunStart) {
    this.host = host
    this.start = start
    if (start.steps.length > 0) this.#steps = new Map(start.steps.map((step) => [step.id, step]))
  }

  /** Resolves when no event is left. Throws what the action threw, as a ConvokeError, or the reason of the stop. */
  async execute(): Promise<void> {
    const { signal } = this.start.options
    const unlink = signal === undefined ? undefined : onAbort(signal, () => this.stop(abortReason(signal)))
    const { input } = this.start
    this.#queue.push({ event: input, cause: undefined })
    try {
      for (let ordinal = 0; ordinal < this.#queue.length; ordinal++) {
        if (ordinal === this.host.maxEvents) throw this.#endless()
        const { event, cause } = this.#queue[ordinal] as Queued
        // What has been heard is not kept: a run may have many events.
        this.#queue[ordinal] = undefined
        await this.#deliver(event, cause, ordinal)
      }
    } finally {
      this.#hasEnded = true
      this.#queue.length = 0
      unlink?.()
      this.start.shortTerm.end()
      this.start.sensory.end()
    }
  }

  /** Aborts the signal of the run; {@link execute} throws `reason` when the action under way has stopped. */
  stop(reason: ConvokeError): void {
    if (this.#hasEnded || this.#stopped !== undefined) return
    this.#stopped = reason
    this.#controller?.abort(reason)
    this.#interrupt?.()
  }

  /** Made when somebody looks at it: most actions never do. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#stopped !== undefined) this.#controller.abort(this.#stopped)
    }
    return this.#controller.signal
  }

  get tools(): AgentToolSpace {
    const { options } = this.start
    return (this.#tools ??= options.tools ?? toolsOfRun(this.host.tools, options, () => this.signal))
  }

  send(event: AgentEvent<string, object>, cause: NonNullable<Queued['cause']>): void {
    this.assertOpen('sends an event')
    this.#queue.push({ event, cause })
  }

  step(id: string): StepRecord | undefined {
    return this.#steps?.get(id)
  }

  assertOpen(what: string): void {
    if (!this.#hasEnded) return
    throw new ConvokeError(
      'run_ended',
      `An action ${what} after its run has ended. Await everything that an action begins, and keep no context for later.`,
    )
  }

  /** One event to all actions that hear it. */
  async #deliver(event: AgentEvent<string, object>, cause: Queued['cause'], ordinal: number): Promise<void> {
    const { host, start } = this
    const { key, runId } = start
    host.eventLog?.write({ kind: 'event', runId, key, event, cause })
    if (event.type === OutputEvent.type) {
      const value = (event as OutputEvent).value as Json
      this.outputs.push(value)
      const room = start.options.onEvent?.({ type: 'output', value })
      if (room !== undefined) await room
    }
    for (const action of host.plan.actionsFor(event.type)) {
      if (this.#stopped !== undefined) throw this.#stopped
      const startedAt = host.eventLog === undefined ? 0 : performance.now()
      let failure: ConvokeError | undefined
      try {
        await this.#act(action, event, ordinal)
      } catch (error) {
        failure = this.#explain(error, action.name)
        throw failure
      } finally {
        host.eventLog?.write({
          kind: 'action',
          runId,
          key,
          action: action.name,
          eventId: event.id,
          durationMs: performance.now() - startedAt,
          ...(failure === undefined ? {} : { error: failure }),
        })
      }
    }
    if (this.#stopped !== undefined) throw this.#stopped
  }

  async #act(action: PlannedAction, event: AgentEvent<string, object>, ordinal: number): Promise<void> {
    const loaded = action.load()
    const work = loaded instanceof Promise ? await this.#loaded(loaded, action.name) : loaded
    const done: unknown = work(event, new ActionContext(this, action, event, ordinal))
    if (done instanceof Promise || isThenable(done)) await this.#untilStopped(Promise.resolve(done), action.name)
  }

  /** Callers hear which action it is; what its module says, and where it stands, is for the log. */
  async #loaded(loading: Promise<Action>, action: string): Promise<Action> {
    try {
      return await loading
    } catch (cause) {
      this.host.log.error({ action, runId: this.start.runId, err: cause }, 'An action of an agent cannot be loaded.')
      throw new ConvokeError(
        'invalid_plan',
        `The action "${action}" of the agent cannot be loaded. Why is in the log of the node.`,
        { cause },
      )
    }
  }

  /** The action's end; once the run is stopped, for as long as the grace time lasts. */
  #untilStopped(done: Promise<unknown>, action: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (go: () => void): void => {
        this.#interrupt = undefined
        go()
      }
      this.#interrupt = () => {
        const end = new AbortController()
        void Promise.race([
          done.catch(() => {}),
          pause(this.host.graceMs, end.signal).then(() => 'late' as const),
        ]).then((how) => {
          end.abort()
          if (how === 'late') this.host.log.warn({ action }, 'An action did not stop when told to, and was abandoned.')
          settle(() => reject(this.#stopped ?? new ConvokeError('canceled', 'The run was stopped.')))
        })
      }
      done.then(
        () => settle(resolve),
        // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- whatever the action threw
        (error: unknown) => settle(() => reject(this.#stopped ?? error)),
      )
      if (this.#stopped !== undefined) this.#interrupt?.()
    })
  }

  #explain(error: unknown, action: string): ConvokeError {
    if (error instanceof ConvokeError) return error
    this.host.log.error({ action, runId: this.start.runId, err: error }, 'An action of an agent failed.')
    return new ConvokeError(
      'action_failed',
      `The action "${action}" of the agent failed. Why is in the log of the node; the next message is not affected.`,
      { cause: error },
    )
  }

  #endless(): ConvokeError {
    return new ConvokeError(
      'event_limit',
      `The run was ended after ${this.host.maxEvents} events: its actions seem to send events to each other without end.`,
    )
  }
}

/** Also a promise of another make: a query builder's, another realm's. */
function isThenable(value: unknown): value is PromiseLike<unknown> {
  return isObject(value) && typeof value['then'] === 'function'
}

const noConfig: JsonObject = Object.freeze({})

/** What one action sees while it hears one event. */
class ActionContext implements RunnerContext {
  readonly #run: Run
  readonly #action: PlannedAction
  readonly #event: AgentEvent<string, object>
  /** The event's place in the run, which is the same when the run is resumed. */
  readonly #ordinal: number
  #stepsTaken: Set<string> | undefined

  constructor(run: Run, action: PlannedAction, event: AgentEvent<string, object>, ordinal: number) {
    this.#run = run
    this.#action = action
    this.#event = event
    this.#ordinal = ordinal
  }

  get key(): string {
    return this.#run.start.key
  }
  get runId(): string {
    return this.#run.start.runId
  }
  get signal(): AbortSignal {
    return this.#run.signal
  }
  get log(): Logger {
    return this.#run.host.log
  }
  get config(): AgentConfiguration {
    return this.#run.host.config
  }
  get actionConfig(): JsonObject {
    return this.#action.config ?? noConfig
  }
  get shortTermMemory(): MemoryTree {
    return this.#run.start.shortTerm
  }
  get sensoryMemory(): MemoryTree {
    return this.#run.start.sensory
  }
  get tools(): AgentToolSpace {
    return this.#run.tools
  }

  sendEvent(event: AgentEvent<string, object>): void {
    this.#run.send(event, { eventId: this.#event.id, action: this.#action.name })
  }

  hasResource(name: string, type: ResourceType): boolean {
    return this.#run.host.plan.resources.get(type)?.has(name) ?? false
  }

  async getResource<Type extends ResourceType>(name: string, type: Type): Promise<Resources[Type]> {
    this.#run.assertOpen('asks for a resource')
    const resource = await this.#run.host.resources.get(name, type)
    if (type !== 'remoteAgent') return resource
    return remoteAgentOf(name, resource as Resources['remoteAgent'], this) as Resources[Type]
  }

  async durableExecute<T extends Json>(
    id: string,
    work: (signal: AbortSignal) => Promise<T> | T,
    { repeatable = false, reconcile }: DurableOptions<T> = {},
  ): Promise<T> {
    this.#run.assertOpen('does a step')
    const taken = (this.#stepsTaken ??= new Set())
    if (taken.has(id)) {
      throw new ConvokeError(
        'invalid_event',
        `There are two steps ${excerpt(id)} in one call of the action "${this.#action.name}".`,
      )
    }
    taken.add(id)
    const stepId = this.#place(id)
    const known = this.#run.step(stepId)
    if (known?.state === 'done') return JSON.parse(known.value ?? 'null') as T
    if (known !== undefined && reconcile !== undefined) {
      const value = await reconcile(this.#run.signal)
      if (value !== undefined) return await this.#finish(stepId, id, value)
    } else if (known !== undefined && !repeatable) {
      throw new ConvokeError(
        'worker_lost',
        `The step ${excerpt(id)} was under way when its process ended, and whether it took effect is not known.`,
      )
    }
    if (!repeatable) await this.#run.start.saveStep({ id: stepId, state: 'begun', value: null })
    return await this.#finish(stepId, id, await work(this.#run.signal))
  }

  stableId(name: string): string {
    const hash = createHash('sha256')
      .update(`${this.runId}\n${this.#place(name)}`)
      .digest('hex')
    const variant = ((Number.parseInt(hash.charAt(16), 16) & 3) | 8).toString(16)
    return `${hash.slice(0, 8)}-${hash.slice(8, 12)}-8${hash.slice(13, 16)}-${variant}${hash.slice(17, 20)}-${hash.slice(20, 32)}`
  }

  async ask(question: Question): Promise<Json> {
    this.#run.assertOpen('asks the caller')
    const { ask } = this.#run.start.options
    if (ask === undefined) throw new ConvokeError('unsupported_operation', 'Nobody can be asked here.')
    return await ask(question)
  }

  tell(event: RunEvent): Promise<void> | undefined {
    return this.#run.start.options.onEvent?.(event)
  }

  #place(name: string): string {
    return `${this.#ordinal}/${this.#action.name}/${name}`
  }

  async #finish<T extends Json>(stepId: string, id: string, value: T): Promise<T> {
    const copy = freezeJson(value ?? null)
    if ('at' in copy) {
      throw new ConvokeError(
        'invalid_event',
        `The step ${excerpt(id)} came to something that is no JSON${copy.at === '' ? '' : `, at ${copy.at}`}.`,
      )
    }
    this.#run.assertOpen('does a step')
    await this.#run.start.saveStep({ id: stepId, state: 'done', value: JSON.stringify(copy.value) })
    return cloneJson(value)
  }
}
