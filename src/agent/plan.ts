/** An agent ready to run: its actions by the events that they hear, and how to make its resources. */
import type { JsonObject } from '../base/json.ts'
import type { Action } from './context.ts'
import type { ResourceContext, Resources, ResourceType } from './resources.ts'

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
  /** Makes the resource. Throws `resource_failed`. */
  provide(context: ResourceContext): Promise<Resources[Type]>
}

export interface AgentPlan {
  /** By name, in the order in which they were added; the built-in ones last. */
  readonly actions: ReadonlyMap<string, PlannedAction>
  /** The names of the actions that hear a type, in that order. */
  readonly actionsByEvent: Readonly<Record<string, readonly string[]>>
  actionsFor(eventType: string): readonly PlannedAction[]
  /** By type, then by name. */
  readonly resources: ReadonlyMap<ResourceType, ReadonlyMap<string, ResourceProvider>>
}
