/** What an agent is: actions by the events that they hear, and the resources that they work with. */
import { ConvokeError } from '../base/errors.ts'
import { freezeJson, isObject, type Json, type JsonObject } from '../base/json.ts'
import type { ToolBase } from '../tools/tool-base.ts'
import type { Tool } from '../tools/tool.ts'
import { excerpt } from '../tools/value.ts'
import type { Action, RunnerContext } from './context.ts'
import { agentBrand, notedOf, toolOfMember, type Noted } from './decorators.ts'
import { typeOf, type EventKind, type EventOf } from './events.ts'
import { isModuleReference, problemOfReference, referenceOf, toReference } from './function-reference.ts'
import { nameOfTool } from './resource-type.ts'
import { ResourceSet, toPlanned, toPlannedMember, type ResourceMap } from './resource-provider.ts'
import type { ModuleReference, ResourceType } from './resources.ts'

/** The names of the actions that every plan has. */
export const builtInActions = ['chat_model_action', 'tool_call_action', 'context_retrieval_action'] as const

/** An action as it was added. */
export interface AgentAction {
  readonly name: string
  /** Types of events, each once. */
  readonly events: readonly string[]
  readonly config: JsonObject
  /** Undefined where only a reference is known. */
  readonly func: Action | undefined
  /** Where the function stands, if anybody said so. */
  readonly reference: ModuleReference | undefined
}

/** A function for the events that it is added with; `Value` is that of an input, as the function takes it. */
export type ActionFor<Kinds extends EventKind | readonly EventKind[], Value = Json> = (
  event: EventOf<
    Kinds extends readonly (infer Kind extends EventKind)[] ? Kind : Kinds extends EventKind ? Kinds : never,
    Value
  >,
  context: RunnerContext,
) => Promise<void> | void

/**
 * An agent: `new Agent().addAction('score', [InputEvent], score)`, or a subclass that adds in its constructor or says it by
 * decorators. What it was given at the time it is planned counts; an agent runs nothing by itself.
 */
export class Agent {
  readonly #actions = new Map<string, AgentAction>()
  readonly #resources = new ResourceSet()

  constructor() {
    for (const [member, noted] of notedOf(new.target)) this.#addMember(new.target, member, noted)
  }

  get [agentBrand](): true {
    return true
  }

  /** By name, in the order in which they were added. */
  get actions(): ReadonlyMap<string, AgentAction> {
    return this.#actions
  }

  /** By type, then by name. */
  get resources(): ResourceMap {
    return this.#resources.byType
  }

  /**
   * Adds an action. `events` is what it hears: event classes with `static readonly type`, or types. `config` is JSON and comes
   * to the function as `context.actionConfig`. Throws `invalid_plan` for a name that is taken, no events, and
   * whatever else makes no sense.
   */
  addAction<const Kinds extends EventKind | readonly EventKind[], Value = Json>(
    name: string,
    events: Kinds,
    func: ActionFor<NoInfer<Kinds>, Value> | ModuleReference,
    config: JsonObject = {},
  ): this {
    this.#addAction(name, events, func, config)
    return this
  }

  /**
   * Adds a resource: an instance, which stays its owner's to close; a ResourceDescriptor or a function, whose resource is
   * made once per runner and closed with it; `{module, export}` of any of these. `type` is needed where the value does not say it:
   * for references, functions, and the options of chat model setups and MCP servers. A tool alone goes by its own name. Throws
   * `invalid_plan` for a name that its type has already, TypeError for what is no resource.
   */
  addResource(tool: Tool | ToolBase): this
  addResource(name: string, resource: object, type?: ResourceType): this
  addResource(given: string | Tool | ToolBase, resource?: object, type?: ResourceType): this {
    const [name, value] = isObject(given) && resource === undefined ? [nameOfTool(given), given] : [given, resource]
    this.#resources.put(toPlanned(name as string, value, type))
    return this
  }

  #addAction(name: string, kinds: unknown, func: unknown, config: unknown, origin?: ModuleReference): void {
    if (typeof name !== 'string' || name === '')
      throw wrong(`The name of an action must be a text, got ${excerpt(name)}.`)
    const shown = excerpt(name)
    if ((builtInActions as readonly string[]).includes(name))
      throw wrong(`The action ${shown} comes with every agent. Give yours another name.`)
    if (this.#actions.has(name)) throw wrong(`There is an action ${shown} already. Give one of them another name.`)
    const events = toTypes(shown, kinds)
    const copy = freezeJson(config)
    if ('at' in copy || !isObject(copy.value))
      throw wrong(
        `The config of the action ${shown} is no JSON object${'at' in copy && copy.at !== '' ? ` at ${copy.at}` : ''}.`,
      )
    if (isModuleReference(func)) {
      const problem = problemOfReference(func)
      if (problem !== undefined) throw wrong(`The action ${shown}: ${problem}`)
      this.#actions.set(name, { name, events, config: copy.value, func: undefined, reference: toReference(func) })
      return
    }
    if (typeof func !== 'function')
      throw wrong(
        `The action ${shown} needs a function (event, context), or { module, export } that names one, got ${excerpt(func)}.`,
      )
    const reference = origin ?? referenceOf(func)
    this.#actions.set(name, { name, events, config: copy.value, func: func as Action, reference })
  }

  #addMember(owner: Function, member: string, noted: Noted): void {
    const origin = placeOf(owner, member)
    const value: unknown = Reflect.get(owner, member)
    if (noted.type === 'action') {
      const { name = member, events, config = {} } = noted.options
      const bound: unknown = typeof value === 'function' ? value.bind(owner) : value
      this.#addAction(name, events, bound, config, origin)
      return
    }
    const make = typeof value === 'function' ? () => Reflect.apply(value, owner, []) as unknown : undefined
    const given = toolOfMember(owner, member) ?? (make === undefined ? value : make())
    const name = noted.type === 'tool' && isObject(given) ? (given['name'] as string) : member
    this.#resources.put(toPlannedMember(name, given, noted.type, make, origin))
  }
}

/** Also one of another copy of this package. */
export function isAgent(value: unknown): value is Agent {
  return isObject(value) && Reflect.get(value, agentBrand) === true
}

/** A class of agents, of this copy of the package or another. */
export function isAgentClass(value: unknown): value is new () => Agent {
  return typeof value === 'function' && isAgent(value.prototype)
}

/** Where a static member can be found again: below the class that says its module, the class itself or the one it has the member from. */
function placeOf(owner: Function, member: string): ModuleReference | undefined {
  let at: unknown = owner
  while (typeof at === 'function') {
    const place = referenceOf(at)
    if (place !== undefined) return { module: place.module, export: `${place.export}.${member}` }
    if (Object.hasOwn(at, member)) return undefined
    at = Object.getPrototypeOf(at)
  }
  return undefined
}

function toTypes(action: string, kinds: unknown): readonly string[] {
  const list: readonly unknown[] = Array.isArray(kinds) ? kinds : kinds === undefined ? [] : [kinds]
  if (list.length === 0)
    throw wrong(`The action ${action} hears no events. Name at least one: an event class, or its type.`)
  const types = list.map((kind) => {
    const type: unknown =
      (typeof kind === 'object' && kind !== null) || typeof kind === 'function' ? typeOf(kind as EventKind) : kind
    if (typeof type === 'string' && type !== '') return type
    const what = typeof kind === 'function' && kind.name !== '' ? `the class ${kind.name}` : excerpt(kind)
    throw wrong(
      `The action ${action} cannot hear ${what}. An event is a class with \`static readonly type = '…'\`, or its type as a text.`,
    )
  })
  return Object.freeze([...new Set(types)])
}

function wrong(message: string): ConvokeError {
  return new ConvokeError('invalid_plan', message)
}
