/**
 * Where agents run over data: inputs with keys go in, outputs with keys come out. Here in this process, for scripts, tests and debugging;
 * the way from a stage to the next is an async iterable, so a stage that is slow holds up those before it.
 */
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
import { FailedRuns, type FailedRun } from './failed-runs.ts'
import { place, toKey, type Keyed, type KeyedInput, type Placed } from './keyed.ts'
import { AgentPlan } from './plan.ts'
import type { ResourceType } from './resources.ts'
import { AgentRunner } from './runner.ts'
import { Stage } from './stage.ts'

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

/** Lists of `size` values of one key; what is left of each key comes at the end, and then the failures of the runs before. */
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
