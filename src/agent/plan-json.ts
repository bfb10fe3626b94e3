/** A plan as JSON, and how it is read: by whoever wrote it, or by nobody. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { excerpt } from '../tools/value.ts'
import type { Agent } from './agent.ts'
import { isModuleReference, problemOfReference } from './function-reference.ts'
import { isResourceType, ResourceDescriptor } from './resource-descriptor.ts'
import { Prompt } from './prompt.ts'
import type { ResourceJson } from './resource-provider.ts'
import type { ModuleReference, ResourceType } from './resources.ts'

export const planVersion = 1

/** A plan as it goes from process to process. */
export interface AgentPlanJson {
  readonly convoke_plan: typeof planVersion
  /** In the order in which they were added; those that every agent has are left out. */
  readonly actions: readonly {
    readonly name: string
    readonly events: readonly string[]
    readonly config: JsonObject
    readonly function: ModuleReference
  }[]
  readonly resources: readonly ResourceJson[]
}

/** Adds to the agent what a plan says. Throws `invalid_plan` with the place of what is wrong. */
export function readPlan(json: unknown, agent: Agent): void {
  if (!isObject(json))
    throw wrong(
      '',
      `must be an object, got ${excerpt(json)}${typeof json === 'string' ? '; parse the text first' : ''}`,
    )
  const { convoke_plan: version } = json
  if (version === undefined) throw wrong('', 'has no `convoke_plan`, and is no plan of an agent')
  if (version !== planVersion)
    throw wrong(
      '/convoke_plan',
      `is version ${excerpt(version)}, and this program reads version ${planVersion}. Use the release that wrote it`,
    )
  checkMembers('', json, ['convoke_plan', 'actions', 'resources'])
  listAt(json, 'actions').forEach((each, index) =>
    at(`/actions/${index}`, () => readAction(each, `/actions/${index}`, agent)),
  )
  listAt(json, 'resources').forEach((each, index) =>
    at(`/resources/${index}`, () => readResource(each, `/resources/${index}`, agent)),
  )
}

function listAt(json: Record<string, unknown>, key: string): readonly unknown[] {
  const list = json[key]
  if (Array.isArray(list)) return list
  throw wrong(`/${key}`, `must be a list, got ${excerpt(list)}`)
}

function readAction(json: unknown, place: string, agent: Agent): void {
  if (!isObject(json)) throw wrong(place, `must be an object, got ${excerpt(json)}`)
  checkMembers(place, json, ['name', 'events', 'config', 'function'])
  const { name, events, config } = json
  if (!Array.isArray(events) || !events.every((type) => typeof type === 'string'))
    throw wrong(`${place}/events`, `must be a list of types of events, got ${excerpt(events)}`)
  const reference = referenceAt(json['function'], `${place}/function`)
  agent.addAction(name as string, events, reference, config as JsonObject)
}

function readResource(json: unknown, place: string, agent: Agent): void {
  if (!isObject(json)) throw wrong(place, `must be an object, got ${excerpt(json)}`)
  checkMembers(place, json, ['type', 'name', 'descriptor', 'value', 'reference'])
  const { type, name, descriptor, value, reference } = json
  if (!isResourceType(type)) throw wrong(`${place}/type`, `must be a type of resources, got ${excerpt(type)}`)
  const given = [descriptor, value, reference].filter((each) => each !== undefined).length
  if (given !== 1) throw wrong(place, `must have one of descriptor, value and reference, and has ${given || 'none'}`)
  const resource =
    descriptor !== undefined
      ? readDescriptor(descriptor, `${place}/descriptor`)
      : reference !== undefined
        ? referenceAt(reference, `${place}/reference`)
        : readValue(type, value, `${place}/value`)
  agent.addResource(name as string, resource, type)
}

function readDescriptor(json: unknown, place: string): ResourceDescriptor {
  if (!isObject(json)) throw wrong(place, `must be an object, got ${excerpt(json)}`)
  checkMembers(place, json, ['clazz', 'arguments'])
  const clazz = referenceAt(json['clazz'], `${place}/clazz`)
  return new ResourceDescriptor(clazz, json['arguments'] as JsonObject)
}

function readValue(type: ResourceType, json: unknown, place: string): object {
  if (!isObject(json)) throw wrong(place, `must be an object, got ${excerpt(json)}`)
  if (type === 'chatModelSetup' || type === 'mcpServer') return json
  if (type === 'prompt') return Prompt.fromJSON(json)
  throw wrong(place, `a resource of type ${type} has no JSON of its own`)
}

function referenceAt(json: unknown, place: string): ModuleReference {
  if (!isModuleReference(json)) throw wrong(place, `must be { module, export }, got ${excerpt(json)}`)
  const problem = problemOfReference(json)
  if (problem !== undefined) throw wrong(place, problem.replace(/\.$/, ''))
  return json
}

function checkMembers(place: string, json: Record<string, unknown>, known: readonly string[]): void {
  const unknown = Object.keys(json).find((key) => !known.includes(key))
  if (unknown !== undefined)
    throw wrong(place, `has an unknown member ${excerpt(unknown)}; known are ${known.join(', ')}`)
}

/** Adds the place to what is wrong with a part. */
function at(place: string, read: () => void): void {
  try {
    read()
  } catch (error) {
    if (error instanceof ConvokeError && error.message.startsWith(prefix)) throw error
    if (error instanceof ConvokeError || error instanceof TypeError)
      throw wrong(place, `is wrong. ${error.message.replace(/\.$/, '')}`, error)
    throw error
  }
}

const prefix = 'The plan is wrong at '

function wrong(place: string, what: string, cause?: unknown): ConvokeError {
  return new ConvokeError('invalid_plan', `${prefix}${place === '' ? 'its top' : place}: ${what}.`, { cause })
}
