/** What an action is given: a run, as one action sees it while it hears one event. */
import { ConvokeError } from '../base/errors.ts'
import type { Json, JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { stableUuid } from '../base/stable-id.ts'
import { excerpt, findNotJson } from '../tools/value.ts'
import type { RemoteAgent } from './chat-model.ts'
import type { AgentConfiguration } from './configuration.ts'
import type { AgentToolSpace, DurableOptions, RunnerContext } from './context.ts'
import type { AgentEvent } from './events.ts'
import type { MemoryTree } from './memory.ts'
import type { PlannedAction } from './plan.ts'
import type { Resources, ResourceType } from './resources.ts'
import { remoteAgentOf } from './run-remote-agent.ts'
import type { Run } from './run.ts'

const noConfig: JsonObject = Object.freeze({})

/** What one action sees while it hears one event. Its functions may be taken out of it: each is made when somebody looks at it. */
export class ActionContext implements RunnerContext {
  readonly #run: Run
  readonly #action: PlannedAction
  readonly #event: AgentEvent<string, object>
  /** The event's place in the run, which is the same when the run is resumed. */
  readonly #ordinal: number
  #stepsTaken: Set<string> | undefined
  /** By name: one for the whole action, since each counts its questions. */
  #remoteAgents: Map<string, RemoteAgent> | undefined

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

  get sendEvent(): RunnerContext['sendEvent'] {
    return (event) => this.#run.send(event, { eventId: this.#event.id, action: this.#action.name })
  }

  get hasResource(): RunnerContext['hasResource'] {
    return (name, type) => this.#run.host.resources.has(name, type)
  }

  get getResource(): RunnerContext['getResource'] {
    return (name, type) => this.#getResource(name, type)
  }

  get durableExecute(): RunnerContext['durableExecute'] {
    return (id, work, options) => this.#durableExecute(id, work, options)
  }

  get stableId(): RunnerContext['stableId'] {
    return (name) => stableUuid(this.runId, this.#place(name))
  }

  get ask(): RunnerContext['ask'] {
    return async (question) => {
      this.#run.assertOpen('asks the caller')
      const { ask } = this.#run.start.options
      if (ask === undefined) throw new ConvokeError('unsupported_operation', 'Nobody can be asked here.')
      return await ask(question)
    }
  }

  get tell(): RunnerContext['tell'] {
    return (event) => this.#run.start.options.onEvent?.(event)
  }

  async #getResource<Type extends ResourceType>(name: string, type: Type): Promise<Resources[Type]> {
    this.#run.assertOpen('asks for a resource')
    const resource = await this.#run.host.resources.get(name, type)
    if (type !== 'remoteAgent') return resource
    const agents = (this.#remoteAgents ??= new Map<string, RemoteAgent>())
    const agent = agents.get(name) ?? remoteAgentOf(name, resource as RemoteAgent, this)
    agents.set(name, agent)
    return agent as Resources[Type]
  }

  async #durableExecute<T extends Json>(
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

  #place(name: string): string {
    return `${this.#ordinal}/${this.#action.name}/${name}`
  }

  async #finish<T extends Json>(stepId: string, id: string, value: T): Promise<T> {
    const problem = findNotJson(value ?? null)
    if (problem !== undefined) {
      const where = problem.path === '' ? '' : `, at ${problem.path}`
      throw new ConvokeError('invalid_event', `The step ${excerpt(id)} came to something that is no JSON${where}.`)
    }
    this.#run.assertOpen('does a step')
    await this.#run.start.saveStep({ id: stepId, state: 'done', value: JSON.stringify(value ?? null) })
    return value
  }
}
