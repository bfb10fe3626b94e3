/**
 * Where agents run over data: inputs with keys go in, outputs with keys come out. Here in this process, for scripts, tests and debugging;
 * the way from a stage to the next is an async iterable, so a stage that is slow holds up those before it.
 */
import { onAbort } from '../base/abort.ts'
import { Channel } from '../base/channel.ts'
import { ConvokeError } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { createMemoryAgentStore } from '../store/agent-memory.ts'
import type { AgentStore } from '../store/agent-store.ts'
import type { ToolBase } from '../tools/tool-base.ts'
import type { Tool } from '../tools/tool.ts'
import { excerpt } from '../tools/value.ts'
import type { OpenServers } from './agent-tools.ts'
import { Agent } from './agent.ts'
import type { AgentConfiguration } from './configuration.ts'
import type { AgentToolSpace } from './context.ts'
import type { EventLog } from './event-log.ts'
import { AgentPlan } from './plan.ts'
import type { ResourceType } from './resources.ts'
import { AgentRunner } from './runner.ts'

/** One value of a key. `id` names the input where it must not be run twice; a UUID unless given. */
export interface Keyed {
  readonly key: string
  readonly value: Json
  readonly id?: string
}

/** As lists give it: `{key, value}` or `{k, v}`, a key being a text or a number; without a key each value has one of its own. */
export interface KeyedInput {
  readonly key?: string | number
  readonly value?: Json
  readonly k?: string | number
  readonly v?: Json
  readonly id?: string
}

/** A run that failed. The key's next inputs are not affected. */
export interface FailedRun {
  readonly key: string
  readonly value: Json
  readonly error: ConvokeError
}

/** How many failures one error carries. */
const maxFailures = 1_000

/**
 * What a stream throws at its end where runs failed and no `onFailure` heard of it. Code and message are those of the first failure, which
 * is the cause, too.
 */
export class FailedRuns extends ConvokeError {
  /** The first 1,000, in the order in which they ended. */
  readonly failures: readonly FailedRun[]
  /** How many runs failed. */
  readonly count: number
  /** By `toList`, what the other runs put out, in the order of their inputs; else empty, as it was read before. */
  readonly outputs: readonly Keyed[]

  constructor(failures: readonly FailedRun[], count: number, outputs: readonly Keyed[] = []) {
    const [first] = failures
    const error = first?.error ?? new ConvokeError('internal', 'An internal error occurred. It is in the log.')
    const { code, retryable, retryAfterMs, issues } = error
    super(code, count === 1 ? error.message : `${count} runs failed; the first one: ${error.message}`, {
      cause: error,
      retryable,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
      ...(issues === undefined ? {} : { issues }),
    })
    this.failures = failures
    this.count = count
    this.outputs = outputs
  }
}

export interface EnvironmentOptions {
  /** Default: one in memory for each agent, gone with its stream; it holds the memory of all keys. Whoever opened a store closes it. */
  readonly store?: AgentStore
  /** What agents may call beside their own tools: a node's `tools`. */
  readonly tools?: AgentToolSpace
  /** Connects to MCP servers among an agent's resources. Default: `getExecutionEnvironment` does. */
  readonly openServers?: OpenServers
  readonly config?: AgentConfiguration
  readonly eventLog?: EventLog
  /** Why an action failed or a resource could not be made is said here, and in the `cause` of the error. `console` will do. Default: warnings and errors go to stderr. */
  readonly log?: Logger
  /** What relative paths of resources start from. Default: the working directory. */
  readonly baseDir?: string
  /** How many inputs of a stage may be under way or wait for their key's turn; more are not read. Default: 1,000. */
  readonly maxInFlight?: number
}

export interface ApplyOptions {
  /** The stage's name in the store. Needed where several stages or programs share a store. Default: `agent`, and a number for each further one. */
  readonly scope?: string
  /**
   * Hears of each run that fails. Without it all inputs are run all the same, and then the stream throws a {@link FailedRuns}, which
   * tells of all of them, and by `toList` has the outputs of the others.
   */
  readonly onFailure?: (failure: FailedRun) => void
}

/** A value on its way, and the place of the input that it comes from. */
interface Placed extends Keyed {
  readonly place: number
}

const defaultMaxInFlight = 1_000

/** Nobody asks for a result twice, and a key that comes again finds its memory, however many there are. */
const forStages = { maxBytes: Number.POSITIVE_INFINITY, maxResults: 1_000 }

export class ExecutionEnvironment {
  readonly #options: EnvironmentOptions
  readonly #resources = new Agent()
  readonly #streams = new Set<AgentStream>()
  #stages = 0

  constructor(options: EnvironmentOptions = {}) {
    this.#options = options
    const { maxInFlight = defaultMaxInFlight } = options
    if (!Number.isSafeInteger(maxInFlight) || maxInFlight < 1)
      throw new ConvokeError(
        'config',
        `\`maxInFlight\` must be a whole number of 1 or more, got ${excerpt(maxInFlight)}.`,
      )
  }

  /** A resource for all agents; an agent's own of the same type and name wins. As {@link Agent.addResource}. */
  addResource(tool: Tool | ToolBase): this
  addResource(name: string, resource: object, type?: ResourceType): this
  addResource(given: string | Tool | ToolBase, resource?: object, type?: ResourceType): this {
    this.#resources.addResource(given as string, resource as object, type)
    return this
  }

  /** Inputs out of a list. */
  fromList(items: readonly KeyedInput[]): AgentStream {
    return this.fromStream(items)
  }

  /**
   * Inputs out of a stream, read as fast as agents take them. With a selector each element is a value and that gives its key; without,
   * each is `{key, value}`. Throws `config`, when it is read, for an element without shape.
   */
  fromStream(source: AsyncIterable<KeyedInput> | Iterable<KeyedInput>): AgentStream
  fromStream<Value extends Json>(
    source: AsyncIterable<Value> | Iterable<Value>,
    keySelector: (value: Value) => string | number,
  ): AgentStream
  fromStream(
    source: AsyncIterable<unknown> | Iterable<unknown>,
    keySelector?: (value: never) => string | number,
  ): AgentStream {
    return this.#stream(place(source, keySelector), new AbortController())
  }

  /** Runs all streams that nobody has read, to their ends, for what their agents do. Throws the first failure. */
  async execute(): Promise<void> {
    const unread = [...this.#streams]
    const ends = await Promise.allSettled(
      unread.map(async (stream) => {
        for await (const _output of stream.toStream());
      }),
    )
    for (const end of ends) if (end.status === 'rejected') throw end.reason
  }

  /** `pipeline` aborts when nobody reads what comes out at its end any more. */
  #stream(values: AsyncIterable<Placed>, pipeline: AbortController): AgentStream {
    const stream: AgentStream = new AgentStream(values, pipeline, {
      apply: (source, agent, options) => {
        // Told here; it is planned when it runs, with the resources that there are by then.
        this.#planOf(agent)
        this.#streams.delete(stream)
        const stage = ++this.#stages
        const { scope = stage === 1 ? 'agent' : `agent-${stage}` } = options
        return this.#stream(this.#run(source(), agent, { ...options, scope }, pipeline.signal), pipeline)
      },
      derive: (source) => {
        this.#streams.delete(stream)
        return this.#stream(source, pipeline)
      },
      read: () => void this.#streams.delete(stream),
    })
    this.#streams.add(stream)
    return stream
  }

  /** Throws `invalid_plan` for an agent that does nothing, TypeError for what is neither an agent nor a plan. */
  #planOf(agent: Agent | AgentPlan): AgentPlan {
    const resources = this.#resources.resources
    const plan = agent instanceof AgentPlan ? agent.withResources(resources) : AgentPlan.fromAgent(agent, { resources })
    plan.assertActs()
    return plan
  }

  async *#run(
    source: AsyncIterable<Placed>,
    agent: Agent | AgentPlan,
    options: ApplyOptions & { readonly scope: string },
    signal: AbortSignal,
  ): AsyncGenerator<Placed, void, void> {
    const { maxInFlight = defaultMaxInFlight, ...rest } = this.#options
    const { store = createMemoryAgentStore(forStages) } = rest
    const plan = this.#planOf(agent)
    const runner = new AgentRunner({ ...rest, plan, store, scope: options.scope, maxWaiting: maxInFlight })
    try {
      yield* new Stage(runner, source, { ...options, maxInFlight }, signal).outputs()
    } finally {
      await runner.close()
    }
  }
}

/** Inputs or outputs on their way; read once. */
export class AgentStream {
  readonly #values: AsyncIterable<Placed>
  readonly #pipeline: AbortController
  readonly #wiring: Wiring
  #isRead = false

  constructor(values: AsyncIterable<Placed>, pipeline: AbortController, wiring: Wiring) {
    this.#values = values
    this.#pipeline = pipeline
    this.#wiring = wiring
  }

  /**
   * Each value is an input of the agent, or of one that is planned already; what comes out is the stream that is returned. Nothing runs
   * before somebody reads. Throws `invalid_plan` for an agent without actions.
   */
  apply(agent: Agent | AgentPlan, options: ApplyOptions = {}): AgentStream {
    return this.#wiring.apply(() => this.#take(), agent, options)
  }

  /** The same values under other keys. */
  keyBy(selector: (value: Json, key: string) => string | number): AgentStream {
    const values = this.#take()
    return this.#wiring.derive(
      (async function* () {
        for await (const { value, key, place } of values) yield { key: toKey(selector(value, key)), value, place }
      })(),
    )
  }

  /** Lists of `size` values of one key, in order; what is left of a key comes at the end as a shorter list. */
  window(size: number): AgentStream {
    if (!Number.isSafeInteger(size) || size < 1)
      throw new ConvokeError('config', `A window's size must be a whole number of 1 or more, got ${excerpt(size)}.`)
    const values = this.#take()
    return this.#wiring.derive(windows(values, size))
  }

  /** Outputs as they come: those of one key in order, keys in any. Leaving the loop stops everything. */
  async *toStream(): AsyncGenerator<Keyed, void, void> {
    try {
      for await (const { key, value } of this.#read()) yield { key, value }
    } finally {
      // A stage may be waiting for its source, and hears of nothing else.
      this.#pipeline.abort()
    }
  }

  /** All outputs, in the order of the inputs that they come from. Throws {@link FailedRuns}, which has them, too, where runs failed. */
  async toList(): Promise<Keyed[]> {
    const outputs: Placed[] = []
    // Sorting is stable: outputs of one input stay in their order.
    const inOrder = (): Keyed[] => outputs.sort((a, b) => a.place - b.place).map(({ key, value }) => ({ key, value }))
    try {
      for await (const output of this.#read()) outputs.push(output)
    } catch (error) {
      if (!(error instanceof FailedRuns)) throw error
      throw new FailedRuns(error.failures, error.count, inOrder())
    }
    return inOrder()
  }

  #read(): AsyncIterable<Placed> {
    this.#wiring.read()
    return this.#take()
  }

  #take(): AsyncIterable<Placed> {
    if (this.#isRead)
      throw new ConvokeError('config', 'A stream of an environment is read once: begin another one with `fromList`.')
    this.#isRead = true
    return this.#values
  }
}

interface Wiring {
  apply(values: () => AsyncIterable<Placed>, agent: Agent | AgentPlan, options: ApplyOptions): AgentStream
  derive(values: AsyncIterable<Placed>): AgentStream
  read(): void
}

interface StageOptions extends ApplyOptions {
  readonly maxInFlight: number
}

/** One agent between two streams. */
class Stage {
  readonly #runner: AgentRunner
  readonly #source: AsyncIterable<Placed>
  readonly #options: StageOptions
  readonly #signal: AbortSignal
  /** The outputs of one run together, so that those of the key's next run cannot come between them. */
  readonly #channel: Channel<readonly Placed[]>
  #hasLeft = false
  /** Ends what the pump waits for, when nobody takes outputs any more. */
  #leave: (() => void) | undefined
  #inFlight = 0
  /** Ends the wait for a run's end. */
  #wake: (() => void) | undefined
  /** The first ones, and how many there are. */
  readonly #failures: FailedRun[] = []
  #failed = 0

  constructor(runner: AgentRunner, source: AsyncIterable<Placed>, options: StageOptions, signal: AbortSignal) {
    this.#runner = runner
    this.#source = source
    this.#options = options
    this.#signal = signal
    this.#channel = new Channel(options.maxInFlight)
  }

  async *outputs(): AsyncGenerator<Placed, void, void> {
    const unlink = onAbort(this.#signal, () => void this.#channel.return())
    const pump = this.#pump().then(
      () => this.#channel.end(),
      (error: unknown) => this.#channel.fail(error),
    )
    try {
      for await (const outputs of this.#channel) yield* outputs
    } finally {
      unlink()
      this.#hasLeft = true
      this.#leave?.()
      await this.#channel.return()
      await this.#runner.close()
      await pump
    }
    if (this.#failed > 0) throw new FailedRuns(this.#failures, this.#failed)
  }

  /** Reads the source, as long as there is room, and waits for the last run. Throws what the source throws, behind that. */
  async #pump(): Promise<void> {
    const { maxInFlight } = this.#options
    const iterator = this.#source[Symbol.asyncIterator]()
    let broken: { readonly by: unknown } | undefined
    for (;;) {
      const step = await this.#orLeft(iterator.next()).catch((error: unknown) => {
        // Runs of a stage before this one: its other outputs are inputs here like any.
        if (error instanceof FailedRuns) this.#note(error.failures, error.count)
        else broken = { by: error }
        return undefined
      })
      if (step === undefined) break
      if (step === 'left') {
        // One that waits itself may never answer.
        iterator.return?.()?.catch(() => {})
        return
      }
      if (step.done === true) break
      this.#inFlight++
      void this.#runOne(step.value)
      while (this.#inFlight >= maxInFlight) if (await this.#oneEnded()) break
    }
    while (this.#inFlight > 0) if (await this.#oneEnded()) return
    if (broken !== undefined) throw broken.by
  }

  async #runOne({ key, value, place, id }: Placed): Promise<void> {
    try {
      const { outputs } = await this.#runner.run(key, value, id === undefined ? {} : { id })
      if (outputs.length > 0) await this.#channel.push(outputs.map((output) => ({ key, value: output, place })))
    } catch (error) {
      if (!this.#channel.closed) this.#fail({ key, value, error: ConvokeError.from(error) })
    } finally {
      this.#inFlight--
      this.#wake?.()
    }
  }

  #fail(failure: FailedRun): void {
    const { onFailure } = this.#options
    if (onFailure === undefined) return this.#note([failure], 1)
    try {
      onFailure(failure)
    } catch (error) {
      this.#channel.fail(error)
    }
  }

  #note(failures: readonly FailedRun[], count: number): void {
    this.#failed += count
    this.#failures.push(...failures.slice(0, maxFailures - this.#failures.length))
  }

  /** Waits until a run has ended; says whether nobody takes outputs any more. */
  async #oneEnded(): Promise<boolean> {
    const ended = new Promise<'ended'>((resolve) => {
      this.#wake = () => resolve('ended')
    })
    return (await this.#orLeft(ended)) === 'left'
  }

  /** A race with one promise that lives as long as the stream would keep all the others. */
  #orLeft<T>(work: Promise<T>): Promise<T | 'left'> {
    return new Promise((resolve, reject) => {
      if (this.#hasLeft) return resolve('left')
      this.#leave = () => resolve('left')
      work.then(resolve, reject)
    })
  }
}

async function* place(
  source: AsyncIterable<unknown> | Iterable<unknown>,
  keySelector: ((value: never) => string | number) | undefined,
): AsyncGenerator<Placed, void, void> {
  let at = 0
  for await (const item of source) {
    yield keySelector === undefined
      ? { ...readKeyed(item, at), place: at }
      : { key: toKey(keySelector(item as never)), value: item as Json, place: at }
    at++
  }
}

function readKeyed(item: unknown, at: number): Keyed {
  const { key, k, value, v, id } = (typeof item === 'object' && item !== null ? item : {}) as KeyedInput
  const held = value === undefined ? v : value
  if (held === undefined) {
    throw new ConvokeError(
      'config',
      `An input must be {key, value}, got ${excerpt(item)} at place ${at}. Give \`fromStream\` a key selector for values alone.`,
    )
  }
  return { key: toKey(key ?? k ?? `input-${at}`), value: held, ...(id === undefined ? {} : { id }) }
}

function toKey(key: unknown): string {
  if (typeof key === 'string') return key
  if (typeof key === 'number' && Number.isFinite(key)) return String(key)
  throw new ConvokeError('config', `A key must be a text or a number, got ${excerpt(key)}.`)
}

async function* windows(values: AsyncIterable<Placed>, size: number): AsyncGenerator<Placed, void, void> {
  const open = new Map<string, { values: Json[]; readonly place: number }>()
  let failed: FailedRuns | undefined
  try {
    for await (const { key, value, place: at } of values) {
      const window = open.get(key) ?? { values: [], place: at }
      open.set(key, window)
      window.values.push(value)
      if (window.values.length < size) continue
      open.delete(key)
      yield { key, value: window.values, place: window.place }
    }
  } catch (error) {
    if (!(error instanceof FailedRuns)) throw error
    failed = error
  }
  for (const [key, { values: left, place: at }] of open) yield { key, value: left, place: at }
  if (failed !== undefined) throw failed
}
