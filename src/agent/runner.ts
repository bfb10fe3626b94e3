/**
 * Runs an agent: takes inputs, keeps the order of each key, leases the key, and commits memory, outputs and the consumed input in one
 * step. Everything durable is in the {@link AgentStore}; a runner that dies leaves nothing that the next one cannot go on with.
 */
import { randomUUID } from 'node:crypto'
import { abortReason, firstOf, onAbort, pause, untilAborted } from '../base/abort.ts'
import { ConvokeError, errorCodes, type ErrorCode, type Issue } from '../base/errors.ts'
import { isObject, type Json } from '../base/json.ts'
import { createLog } from '../base/log.ts'
import type { Logger } from '../base/logger.ts'
import type { AgentStore, KeyLease, Mail, MailResult, StepRecord } from '../store/agent-store.ts'
import { openAgentTools, type OpenServers, type OpenTools } from './agent-tools.ts'
import { AgentConfiguration } from './configuration.ts'
import type { AgentToolSpace, RunOptions } from './context.ts'
import type { EventLog } from './event-log.ts'
import { InputEvent } from './events.ts'
import { Hearing } from './hearing.ts'
import { MemoryTree } from './memory.ts'
import type { AgentPlan } from './plan.ts'
import { ResourcePool, type ResourcePoolOptions } from './resource-pool.ts'
import type { Resources, ResourceType } from './resources.ts'
import { Run, type RunHost } from './run.ts'

export interface AgentRunnerOptions {
  readonly plan: AgentPlan
  /** Whoever opened it closes it. */
  readonly store: AgentStore
  /** What the agent's keys are kept under in the store. Two agents on one store need two. Default: `agent`. */
  readonly scope?: string
  /** What the agent's actions and models call beside the agent's own tools, which come first. Default: those alone. */
  readonly tools?: AgentToolSpace
  /** Finds resources that the plan has not: what may come while the agent runs. Default: there are none. */
  readonly findResource?: ResourcePoolOptions['find']
  /** Connects to the MCP servers among the agent's resources. Default: `tools` has them. */
  readonly openServers?: OpenServers
  readonly config?: AgentConfiguration
  /** Whoever opened it closes it. */
  readonly eventLog?: EventLog
  /** Default: warnings and errors go to stderr. */
  readonly log?: Logger
  /** What relative paths of resources start from. Default: the working directory. */
  readonly baseDir?: string
  /** How long a key stays with a runner that has died, in milliseconds. Default: 30,000. */
  readonly leaseMs?: number
  /** How many inputs of one key may wait; more are refused with `rate_limited`. Default: 1,000. */
  readonly maxWaiting?: number
  /** How many events a run may have; then `event_limit`. Default: 10,000. */
  readonly maxEvents?: number
  /** How long an action that does not heed its signal is waited for, and a resource that closes, in milliseconds. Default: 5,000. */
  readonly graceMs?: number
  /**
   * What is done with an input in the mailbox that nobody here has asked for: one that a process before was to run. `run`
   * runs it, `fail` ends it with `worker_lost` when its turn comes. Default: `run`.
   */
  readonly orphans?: 'run' | 'fail'
}

/** What a run came to. */
export interface RunResult {
  /** In the order in which they were put out. */
  readonly outputs: readonly Json[]
}

/** Somebody who waits for a run. */
interface Waiting {
  readonly id: string
  /** Undefined where the mailbox had it already, as it was then. */
  input: InputEvent | undefined
  /** Empty for one that was left: it may have long to wait, and holds what its caller has given. */
  options: RunOptions
  readonly resolve: (result: RunResult | Promise<RunResult>) => void
  readonly reject: (error: ConvokeError) => void
  /** Its input is in the mailbox. */
  isReady: boolean
  isRunning: boolean
  /** Why nobody waits any more. */
  left: ConvokeError | undefined
}

/** A key that has something to do here. */
interface Lane {
  readonly waiting: Map<string, Waiting>
  /** The work of the lane; there while it goes on. */
  isWorking: boolean
}

/** What a run may keep for itself: all that a model was told in it, and that is not written anywhere. */
const maxSensoryBytes = 16 * 1_048_576
const defaults = { leaseMs: 30_000, maxWaiting: 1_000, maxEvents: 10_000, graceMs: 5_000 } as const
/** How long runs may go on before everybody else gets a turn of the event loop, in milliseconds. */
const turnMs = 10
/** How long to wait before a key that another worker holds is asked for again, in milliseconds. */
const busyMs = 250
/** How much mail comes with a lease. */
const mailLimit = 1

export class AgentRunner {
  readonly #options: AgentRunnerOptions
  readonly #scope: string
  readonly #log: Logger
  readonly #worker = randomUUID()
  readonly #resources: ResourcePool
  readonly #lanes = new Map<string, Lane>()
  readonly #live = new Set<Run>()
  /** One for each lane that works. */
  readonly #working = new Set<Promise<unknown>>()
  readonly #life = new AbortController()
  #host: Promise<RunHost> | undefined
  #tools: OpenTools | undefined
  #heartbeat: NodeJS.Timeout | undefined
  #turnedAt = 0
  #closing: Promise<void> | undefined

  /** Throws `invalid_plan` for an agent without an action of its own. */
  constructor(options: AgentRunnerOptions) {
    this.#options = options
    this.#scope = options.scope ?? 'agent'
    this.#log = options.log ?? createLog('warn')
    const { plan, baseDir = '.', findResource: find, graceMs = defaults.graceMs } = options
    plan.assertActs()
    const log = this.#log
    this.#resources = new ResourcePool({ plan, log, baseDir, graceMs, ...(find === undefined ? {} : { find }) })
  }

  /**
   * Runs the agent with one input, behind those that the key got before. Resolves when the run is committed. Throws the run's
   * failure, the reason of the signal, `rate_limited` for a key with too much waiting, and `unavailable` once the runner is closed. An `id` that was
   * consumed before gives what it came to then.
   */
  async run(key: string, value: Json, options: RunOptions = {}): Promise<RunResult> {
    this.#assertOpen()
    const { signal, id = randomUUID() } = options
    if (signal?.aborted === true) throw abortReason(signal)
    const input = new InputEvent(value, id)
    const { store, maxWaiting = defaults.maxWaiting } = this.#options
    const waitingNow = this.#lanes.get(key)?.waiting
    if (waitingNow !== undefined && waitingNow.size >= maxWaiting) {
      throw new ConvokeError(
        'rate_limited',
        `${maxWaiting} inputs wait for their turn already. Send this one again later.`,
      )
    }
    if (waitingNow?.has(id) === true) {
      throw new ConvokeError('conflict', `The input ${id} runs already.`)
    }
    // Known before it is in the mailbox, so that no one takes it for an orphan.
    const lane = this.#laneOf(key)
    const result = new Promise<RunResult>((resolve, reject) => {
      lane.waiting.set(id, { id, input, options, resolve, reject, isReady: false, isRunning: false, left: undefined })
    })
    const waiting = lane.waiting.get(id) as Waiting
    // It is awaited below, behind another await that may throw.
    result.catch(() => {})
    try {
      const { isNew } = await store.append(this.#scope, key, { id, event: JSON.stringify(input) })
      if (!isNew) waiting.input = undefined
      const known = isNew ? undefined : await store.result(this.#scope, key, id)
      if (known !== undefined) {
        lane.waiting.delete(id)
        this.#settle(key, lane)
        return await replay(known, options)
      }
    } catch (error) {
      lane.waiting.delete(id)
      this.#settle(key, lane)
      throw ConvokeError.from(error)
    }
    waiting.isReady = true
    const unlink = signal === undefined ? undefined : onAbort(signal, () => this.#leave(waiting, abortReason(signal)))
    this.#begin(key, lane)
    try {
      return await result
    } finally {
      unlink?.()
    }
  }

  /** A resource of the agent, made if it was not yet; closed with the runner. */
  async getResource<Type extends ResourceType>(name: string, type: Type): Promise<Resources[Type]> {
    return await this.#resources.get(name, type)
  }

  /** Runs what a process before has left in the mailboxes of this scope, and resolves when that is done. Their failures are in the store;
   * throws only what kept a key from being worked off. */
  async runLeft(): Promise<void> {
    const { store } = this.#options
    for (;;) {
      this.#assertOpen()
      const keys = await store.ready(this.#scope, { now: Date.now(), limit: 100 })
      const left = keys.filter((key) => !this.#lanes.has(key))
      if (left.length === 0) return
      const works = left.map((key) => this.#work(key, this.#laneOf(key)))
      const all = Promise.all(works)
      this.#working.add(all)
      const failures = await all.finally(() => this.#working.delete(all))
      const failure = failures.find((each) => each !== undefined)
      if (failure !== undefined) throw failure
    }
  }

  /** Stops the runs under way, gives the keys back and closes the resources. What was not committed is there for the next runner. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    const reason = new ConvokeError('unavailable', 'The node is shutting down.')
    this.#life.abort(reason)
    for (const run of this.#live) run.stop(reason)
    // Each lane ends with its run.
    while (this.#working.size > 0) await Promise.allSettled(this.#working)
    clearInterval(this.#heartbeat)
    await this.#resources.close()
    await this.#tools?.close()
  }

  #laneOf(key: string): Lane {
    let lane = this.#lanes.get(key)
    if (lane === undefined) this.#lanes.set(key, (lane = { waiting: new Map(), isWorking: false }))
    return lane
  }

  /** A lane that nobody needs is forgotten. */
  #settle(key: string, lane: Lane): void {
    if (!lane.isWorking && lane.waiting.size === 0 && this.#lanes.get(key) === lane) this.#lanes.delete(key)
  }

  /** Whoever leaves before its turn is answered at once; its input is consumed when its turn comes. */
  #leave(waiting: Waiting, reason: ConvokeError): void {
    waiting.left = reason
    // A run that is under way hears of it by itself, and ends first.
    if (waiting.isRunning) return
    waiting.reject(reason)
    waiting.input = undefined
    waiting.options = {}
  }

  #begin(key: string, lane: Lane): void {
    if (lane.isWorking) return
    const work: Promise<unknown> = this.#work(key, lane).finally(() => this.#working.delete(work))
    this.#working.add(work)
  }

  /** Works off the key's mailbox until it is empty. Never throws; gives what kept it from that. */
  async #work(key: string, lane: Lane): Promise<ConvokeError | undefined> {
    lane.isWorking = true
    let failure: ConvokeError | undefined
    let lease: KeyLease | undefined
    try {
      // Those who were there before an empty mailbox was looked at; who comes meanwhile has mail in it.
      let late: ReadonlySet<Waiting> = new Set()
      for (;;) {
        lease = await this.#lease(key)
        const [mail] = lease.mail
        if (mail === undefined) {
          const ready = [...lane.waiting.values()].filter(({ isReady }) => isReady)
          await this.#answerLate(
            key,
            lane,
            ready.filter((waiting) => late.has(waiting)),
          )
          if (ready.every((waiting) => late.has(waiting))) break
          late = new Set(ready)
          continue
        }
        const end = await this.#take(lease, mail, lane.waiting.get(mail.id))
        lane.waiting.delete(mail.id)
        end?.()
        if (this.#life.signal.aborted) break
        if (performance.now() - this.#turnedAt > turnMs) await this.#turn()
      }
    } catch (error) {
      failure = ConvokeError.from(error)
      if (failure.code === 'internal') this.#log.error({ error, key }, 'The runs of a key could not go on.')
      this.#fail(lane, failure)
    } finally {
      lane.isWorking = false
    }
    if (lease !== undefined)
      await this.#options.store
        .release(lease)
        .catch((error: unknown) =>
          this.#log.warn({ error }, 'A key could not be given back; its lease runs out by itself.'),
        )
    if (this.#life.signal.aborted) this.#fail(lane, abortReason(this.#life.signal))
    // Somebody may have come while the key was given back.
    if ([...lane.waiting.values()].some(({ isReady }) => isReady)) this.#begin(key, lane)
    else this.#settle(key, lane)
    return failure
  }

  /** Those whose input is still on its way to the mailbox begin anew when it is there. */
  #fail(lane: Lane, failure: ConvokeError): void {
    for (const waiting of [...lane.waiting.values()].filter(({ isReady }) => isReady)) {
      lane.waiting.delete(waiting.id)
      waiting.reject(failure)
    }
  }

  /** An empty mailbox, and some whose input was in it: another runner of this scope has run it. */
  async #answerLate(key: string, lane: Lane, late: readonly Waiting[]): Promise<void> {
    for (const waiting of late) {
      const known = await this.#options.store.result(this.#scope, key, waiting.id)
      lane.waiting.delete(waiting.id)
      if (known === undefined)
        waiting.reject(new ConvokeError('worker_lost', 'What came of the run is not known any more.'))
      else waiting.resolve(replay(known, waiting.options))
    }
  }

  /** One input: run and committed. Returns how to tell whoever waits. Throws where the key cannot go on. */
  async #take(lease: KeyLease, mail: Mail, waiting: Waiting | undefined): Promise<(() => void) | undefined> {
    if (waiting?.left !== undefined) return await this.#commitFailure(lease, mail, waiting, waiting.left)
    if (waiting === undefined && this.#options.orphans === 'fail') {
      const lost = new ConvokeError('worker_lost', 'The process that was to run this ended before it did.')
      return await this.#commitFailure(lease, mail, undefined, lost)
    }
    const failure = await this.#prepare(waiting)
    if (failure !== undefined) {
      if (!this.#life.signal.aborted) return await this.#commitFailure(lease, mail, waiting, failure)
      waiting?.reject(failure)
      return undefined
    }
    const { store, eventLog } = this.#options
    const host = await this.#open()
    if (waiting?.left !== undefined) return await this.#commitFailure(lease, mail, waiting, waiting.left)
    // Making what the agent needs takes its time, and whoever closes meanwhile stops only what has begun.
    this.#assertOpen()
    const shortTerm = new MemoryTree(lease.state ?? undefined)
    const run = new Run(host, {
      key: lease.key,
      runId: mail.id,
      input: waiting?.input ?? readInput(mail),
      shortTerm,
      sensory: new MemoryTree(undefined, { maxBytes: maxSensoryBytes }),
      steps: lease.steps,
      saveStep: (step: StepRecord) => store.saveStep(lease, mail.id, step),
      options: waiting?.options ?? {},
    })
    const about = { runId: mail.id, key: lease.key, kind: 'run' } as const
    eventLog?.write({ ...about, phase: lease.steps.length > 0 ? 'resumed' : 'begun' })
    this.#live.add(run)
    if (waiting !== undefined) waiting.isRunning = true
    try {
      await run.execute()
    } catch (error) {
      const failure = ConvokeError.from(error)
      if (failure.code === 'internal') this.#log.error({ error, runId: mail.id }, 'A run of an agent broke.')
      eventLog?.write({ ...about, phase: 'failed', error: failure })
      // Ours to stop: the next runner goes on with it.
      if (this.#life.signal.aborted) {
        waiting?.reject(failure)
        return undefined
      }
      return await this.#commitFailure(lease, mail, waiting, failure)
    } finally {
      this.#live.delete(run)
    }
    const { signal, onCommit } = waiting?.options ?? {}
    // A stop behind the run's last event found nothing that it could end.
    if (signal?.aborted === true) return await this.#commitFailure(lease, mail, waiting, abortReason(signal))
    onCommit?.()
    const { outputs } = run
    await store.commit(lease, {
      mailId: mail.id,
      now: Date.now(),
      ...(shortTerm.changed ? { state: shortTerm.toText() } : {}),
      outputs: outputs.map((output) => JSON.stringify(output)),
      failure: null,
    })
    eventLog?.write({ ...about, phase: 'ended' })
    return waiting && (() => waiting.resolve({ outputs }))
  }

  /** What the run has to wait for before it begins; gives what keeps it from beginning. */
  async #prepare(waiting: Waiting | undefined): Promise<ConvokeError | undefined> {
    const { before, signal } = waiting?.options ?? {}
    if (before === undefined) return undefined
    const stop = firstOf(signal, this.#life.signal)
    try {
      await untilAborted(stop.signal, before())
      return undefined
    } catch (error) {
      return ConvokeError.from(error)
    } finally {
      stop.end()
    }
  }

  async #commitFailure(
    lease: KeyLease,
    mail: Mail,
    waiting: Waiting | undefined,
    failure: ConvokeError,
  ): Promise<(() => void) | undefined> {
    await this.#options.store.commit(lease, {
      mailId: mail.id,
      now: Date.now(),
      outputs: [],
      failure: toFailureText(failure),
    })
    return waiting && (() => waiting.reject(failure))
  }

  /** Waits for a key that another worker holds. Throws `unavailable` when the runner is closed meanwhile. */
  async #lease(key: string): Promise<KeyLease> {
    const { store, leaseMs = defaults.leaseMs } = this.#options
    const { signal } = this.#life
    for (;;) {
      if (signal.aborted) throw abortReason(signal)
      this.#heartbeat ??= this.#beat(leaseMs)
      const lease = await store.lease(this.#scope, key, this.#worker, { now: Date.now(), leaseMs, limit: mailLimit })
      if (lease !== undefined) return lease
      await pause(busyMs, signal)
    }
  }

  #beat(leaseMs: number): NodeJS.Timeout {
    return setInterval(() => {
      if (this.#lanes.size === 0) return
      this.#options.store
        .renew(this.#scope, this.#worker, { now: Date.now(), leaseMs })
        .catch((error: unknown) => this.#log.warn({ error }, 'The leases of an agent could not be renewed.'))
    }, leaseMs / 3).unref()
  }

  /** Runs that never wait for anything outside would keep everybody else from their turn. */
  async #turn(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve))
    this.#turnedAt = performance.now()
  }

  #open(): Promise<RunHost> {
    this.#host ??= this.#createHost().catch((error: unknown) => {
      // The next run tries again.
      this.#host = undefined
      throw error
    })
    return this.#host
  }

  async #createHost(): Promise<RunHost> {
    const { plan, tools: around, openServers, config, eventLog, maxEvents, graceMs } = this.#options
    this.#tools = await openAgentTools({ plan, resources: this.#resources, around, openServers, log: this.#log })
    return {
      plan,
      hearing: new Hearing(plan, this.#log),
      resources: this.#resources,
      tools: this.#tools.tools,
      config: config ?? new AgentConfiguration(),
      log: this.#log,
      eventLog,
      maxEvents: maxEvents ?? defaults.maxEvents,
      graceMs: graceMs ?? defaults.graceMs,
    }
  }

  #assertOpen(): void {
    if (this.#life.signal.aborted) throw abortReason(this.#life.signal)
  }
}

function readInput({ event, id }: Mail): InputEvent {
  const { payload } = JSON.parse(event) as { payload: { value: Json } }
  return new InputEvent(payload.value, id)
}

/** What an input came to before. */
async function replay({ outputs, failure }: MailResult, { onEvent }: RunOptions): Promise<RunResult> {
  if (failure !== null) throw fromFailureText(failure)
  const values = outputs.map((output) => JSON.parse(output) as Json)
  for (const value of values) await onEvent?.({ type: 'output', value })
  return { outputs: values }
}

function toFailureText({ code, message, retryable, issues }: ConvokeError): string {
  return JSON.stringify({ code, message, retryable, issues })
}

/** A failure as the store keeps it. */
export function fromFailureText(text: string): ConvokeError {
  const value: unknown = JSON.parse(text)
  if (!isObject(value) || typeof value['code'] !== 'string' || !Object.hasOwn(errorCodes, value['code'])) {
    return new ConvokeError('internal', 'The run failed, and why cannot be read any more.')
  }
  const { code, message, retryable, issues } = value as {
    code: ErrorCode
    message: string
    retryable: boolean
    issues?: Issue[]
  }
  return new ConvokeError(code, message, { retryable, ...(issues === undefined ? {} : { issues }) })
}
