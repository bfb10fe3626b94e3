/** An agent ready to run: its actions by the events that they hear, and how to make its resources. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { isClass } from '../tools/function-source.ts'
import { excerpt } from '../tools/value.ts'
import { chatModelAction } from './actions/chat-model.ts'
import { contextRetrievalAction } from './actions/context-retrieval.ts'
import { toolCallAction } from './actions/tool-call.ts'
import { Agent, isAgent, type AgentAction, type builtInActions } from './agent.ts'
import type { Action } from './context.ts'
import { ChatRequestEvent, ContextRetrievalRequestEvent, ToolRequestEvent, ToolResponseEvent } from './events.ts'
import { loadFunction, type LoadOptions } from './function-reference.ts'
import { planVersion, readPlan, type AgentPlanJson } from './plan-json.ts'
import type { PlannedResource, ResourceMap } from './resource-provider.ts'
import {
  resourceTypes,
  type ModuleReference,
  type ResourceContext,
  type Resources,
  type ResourceType,
} from './resources.ts'

export interface PlannedAction {
  readonly name: string
  /** Types of events. */
  readonly events: readonly string[]
  readonly config: JsonObject
  /** The function; loaded from its module the first time where it is named by one. Throws `invalid_plan` where it is not there. */
  load(): Promise<Action> | Action
}

export interface ResourceProvider<Type extends ResourceType = ResourceType> {
  readonly type: Type
  readonly name: string
  /** Makes the resource, or hands out the one that the agent was given. Throws `resource_failed`. */
  provide(context: ResourceContext): Promise<Resources[Type]>
  /** Whether this made the resource, so that whoever asked for it closes it. One that the agent was given is its owner's to close. */
  owns(resource: Resources[Type]): boolean
}

export interface AgentPlanOptions extends LoadOptions {
  /** What the agent gets beside its own; of two of one type and name its own counts. */
  readonly resources?: ResourceMap
}

/**
 * An agent's actions and resources, fixed. {@link AgentPlan.toJSON} carries it to another process, where
 * {@link AgentPlan.fromJSON} makes the same plan of it: functions and tools by the modules that export them, classes with their arguments.
 */
export class AgentPlan {
  /** By name, in the order in which they were added; the built-in ones last. */
  readonly actions: ReadonlyMap<string, PlannedAction>
  /** The names of the actions that hear a type, in that order. */
  readonly actionsByEvent: Readonly<Record<string, readonly string[]>>
  /** By type, then by name. */
  readonly resources: ReadonlyMap<ResourceType, ReadonlyMap<string, PlannedResource>>
  readonly #added: readonly AgentAction[]
  readonly #hearing = new Map<string, PlannedAction[]>()

  private constructor(added: readonly AgentAction[], actions: readonly PlannedAction[], resources: ResourceMap) {
    this.#added = added
    this.actions = new Map(actions.map((each) => [each.name, each]))
    for (const each of actions) {
      for (const type of each.events) {
        const hearing = this.#hearing.get(type)
        if (hearing === undefined) this.#hearing.set(type, [each])
        else hearing.push(each)
      }
    }
    const byEvent = [...this.#hearing].map(([type, hearing]) => [type, hearing.map(({ name }) => name)] as const)
    // Any name may be a type, also one that every object has.
    this.actionsByEvent = Object.assign(Object.create(null) as Record<string, string[]>, Object.fromEntries(byEvent))
    this.resources = resources
  }

  /** The plan of an agent as it is now. Throws TypeError for what is no agent. */
  static fromAgent(agent: Agent, options: AgentPlanOptions = {}): AgentPlan {
    if (isAgent(agent)) return AgentPlan.#of(agent, options)
    const given: unknown = agent
    const found = isClass(given)
      ? `the class ${given.name}; make an instance of it`
      : isObject(given) && 'convoke_plan' in given
        ? 'the JSON of a plan; AgentPlan.fromJSON makes one of it'
        : excerpt(given)
    throw new TypeError(`AgentPlan.fromAgent needs an agent, got ${found}.`)
  }

  /**
   * The plan that `toJSON` gave, also in another process. A plan is code: it names modules that are imported and programs of MCP
   * servers that are started, so take none from strangers. Loads nothing yet: modules are imported when their functions are
   * needed. Throws `invalid_plan` with the place of what is wrong.
   */
  static fromJSON(json: unknown, options: LoadOptions = {}): AgentPlan {
    const agent = new Agent()
    readPlan(json, agent)
    return AgentPlan.#of(agent, options)
  }

  static #of(agent: Agent, { resources, ...options }: AgentPlanOptions): AgentPlan {
    const added = [...agent.actions.values()]
    const actions = [...added.map((each) => planned(each, options)), ...builtIn]
    return new AgentPlan(added, actions, merged(agent.resources, resources))
  }

  /** The same plan with further resources; of two of one type and name its own counts. */
  withResources(resources: ResourceMap): AgentPlan {
    return new AgentPlan(this.#added, [...this.actions.values()], merged(this.resources, resources))
  }

  /** Throws `invalid_plan` for an agent without an action of its own: whatever it is given comes to nothing. */
  assertActs(): void {
    if (this.#added.length > 0) return
    throw new ConvokeError(
      'invalid_plan',
      'The agent has no actions, so it would do nothing with its inputs. Add one: addAction(name, [InputEvent], function).',
    )
  }

  /** The actions that hear a type, in the order in which they were added. */
  actionsFor(eventType: string): readonly PlannedAction[] {
    return this.#hearing.get(eventType) ?? none
  }

  /**
   * The plan as JSON, without the built-in actions, which every process has. Arguments and options stand in it as they were given,
   * secrets too. Throws `invalid_plan` that names the action or resource that only this process knows, and what to do.
   */
  toJSON(): AgentPlanJson {
    return {
      convoke_plan: planVersion,
      actions: this.#added.map(({ name, events, config, reference }) => {
        if (reference === undefined) throw closure(name)
        return { name, events, config, function: reference }
      }),
      resources: [...this.resources.values()].flatMap((ofType) => [...ofType.values()].map((each) => each.toJSON())),
    }
  }
}

const none: readonly PlannedAction[] = []

function closure(name: string): ConvokeError {
  return new ConvokeError(
    'invalid_plan',
    `The plan cannot leave its process: the action ${excerpt(name)} is a function of this process. Export it and pass it through exportedFrom(import.meta.url, fn), add { module, export } in its place, or give the class of a decorated agent \`static readonly module = import.meta.url\`.`,
  )
}

function planned({ name, events, config, func, reference }: AgentAction, options: LoadOptions): PlannedAction {
  if (func !== undefined || reference === undefined) return { name, events, config, load: () => func as Action }
  return { name, events, config, load: loadOnce(reference, options) }
}

/** What failed is tried again: the module may be there by then. */
function loadOnce(reference: ModuleReference, options: LoadOptions): () => Promise<Action> | Action {
  let loaded: Promise<Action> | Action | undefined
  return () =>
    (loaded ??= (loadFunction(reference, options) as Promise<Action>).then(
      (action) => (loaded = action),
      (error: unknown) => {
        loaded = undefined
        throw error
      },
    ))
}

type BuiltIn = PlannedAction & { readonly name: (typeof builtInActions)[number] }

const builtIn: readonly BuiltIn[] = [
  {
    name: 'chat_model_action',
    events: [ChatRequestEvent.type, ToolResponseEvent.type],
    config: {},
    load: () => chatModelAction,
  },
  { name: 'tool_call_action', events: [ToolRequestEvent.type], config: {}, load: () => toolCallAction },
  {
    name: 'context_retrieval_action',
    events: [ContextRetrievalRequestEvent.type],
    config: {},
    load: () => contextRetrievalAction,
  },
]

/** The agent's own first. The order of types is fixed, so that it says nothing of how an agent was written. */
function merged(own: ResourceMap, others: ResourceMap | undefined): ResourceMap {
  const all = new Map<ResourceType, ReadonlyMap<string, PlannedResource>>()
  for (const type of resourceTypes) {
    const ofType = new Map(own.get(type))
    for (const [name, each] of others?.get(type) ?? []) if (!ofType.has(name)) ofType.set(name, each)
    if (ofType.size > 0) all.set(type, ofType)
  }
  return all
}
