/** One run of an agent: an input, and all events that come of it, one after the other, until none is left. */
import { abortReason, onAbort, pause } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { isObject, type Json } from '../base/json.ts'
import { logFailureOnce, type Logger } from '../base/logger.ts'
import type { StepRecord } from '../store/agent-store.ts'
import { excerpt } from '../tools/value.ts'
import { ActionContext } from './action-context.ts'
import { toolsOfRun } from './agent-tools.ts'
import type { AgentConfiguration } from './configuration.ts'
import type { Action, AgentToolSpace, RunOptions } from './context.ts'
import type { EventLog } from './event-log.ts'
import { freezePayload, OutputEvent, type AgentEvent } from './events.ts'
import type { Hearing } from './hearing.ts'
import type { MemoryTree } from './memory.ts'
import type { AgentPlan, PlannedAction } from './plan.ts'
import type { ResourcePool } from './resource-pool.ts'

/** What all runs of a runner share. */
export interface RunHost {
  readonly plan: AgentPlan
  readonly hearing: Hearing
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
    this.#queue.push({ event: Object.freeze(this.start.input), cause: undefined })
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
    this.#queue.push({ event: settled(event), cause })
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
    const actions = host.hearing.of(event.type, cause?.action)
    host.eventLog?.write({ kind: 'event', runId, key, event, cause, isHeard: actions.length > 0 })
    if (event.type === OutputEvent.type) {
      const { value } = event.payload as { readonly value: Json }
      this.outputs.push(value)
      const room = start.options.onEvent?.({ type: 'output', value })
      if (room !== undefined) await room
    }
    for (const action of actions) {
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
      this.host.log.error({ action, runId: this.start.runId, error: cause }, 'An action of an agent cannot be loaded.')
      throw new ConvokeError(
        'invalid_plan',
        `The action "${action}" of the agent cannot be loaded. Why is in the log.`,
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
    const about = { action, runId: this.start.runId }
    if (error instanceof ConvokeError) {
      // What its message leaves out, such as what an endpoint said, stands nowhere else.
      if (error.cause !== undefined && error !== this.#stopped)
        logFailureOnce(this.host.log, error, about, 'An action of an agent failed.')
      return error
    }
    this.host.log.error({ ...about, error }, 'An action of an agent failed.')
    return new ConvokeError(
      'action_failed',
      `The action "${action}" of the agent failed; the next input is not affected. Why is in the log.`,
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

/**
 * The event as everybody hears it: frozen, with a payload that is known to be JSON. Actions may be plain JavaScript, and an event may
 * come from another copy of this package, whose word does not count.
 */
function settled<Event extends AgentEvent<string, object>>(event: Event): Event {
  const { id, type, payload } = isObject(event) ? (event as Partial<Event>) : {}
  if (typeof id !== 'string' || typeof type !== 'string' || !isObject(payload) || !Object.isFrozen(payload))
    throw new ConvokeError(
      'invalid_event',
      `An action can send events alone, such as new OutputEvent(value) or new AgentEvent(type, payload), got ${excerpt(event)}.`,
    )
  if (type === OutputEvent.type && (payload as { value?: unknown }).value === undefined)
    throw new ConvokeError(
      'invalid_event',
      'An output has the value undefined, which is no JSON. Put out null for nothing.',
    )
  const known = freezePayload(type, payload)
  if (known !== payload) Object.assign(event, { payload: known })
  return Object.freeze(event)
}

/** Also a promise of another make: a query builder's, another realm's. */
function isThenable(value: unknown): value is PromiseLike<unknown> {
  return isObject(value) && typeof value['then'] === 'function'
}
