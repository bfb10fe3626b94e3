/** What an agent was given as a resource, made into what a plan keeps: how to make it, and its JSON. */
import { ConvokeError } from '../base/errors.ts'
import { freezeJson, type Json } from '../base/json.ts'
import { logFailureOnce } from '../base/logger.ts'
import { isClass } from '../tools/function-source.ts'
import { clip, excerpt } from '../tools/value.ts'
import { toolOfMember } from './decorators.ts'
import {
  findReference,
  isModuleReference,
  loadReference,
  problemOfReference,
  referenceOf,
  toReference,
} from './function-reference.ts'
import type { ResourceProvider } from './plan.ts'
import { Prompt } from './prompt.ts'
import { isResourceDescriptor, typeOfClass, type ResourceDescriptor } from './resource-descriptor.ts'
import { toResource, typeOfResource } from './resource-type.ts'
import type {
  DescribedResource,
  ModuleReference,
  ResourceClass,
  ResourceContext,
  Resources,
  ResourceType,
} from './resources.ts'

/** A resource in the JSON of a plan: a class and its arguments; the resource itself, where it is JSON; or where it stands. */
export type ResourceJson = { readonly type: ResourceType; readonly name: string } & (
  | { readonly descriptor: DescribedResource }
  | { readonly value: Json }
  | { readonly reference: ModuleReference }
)

export interface PlannedResource<Type extends ResourceType = ResourceType> extends ResourceProvider<Type> {
  /** Throws `invalid_plan` that says how to make it portable, where it is known to this process only. */
  toJSON(): ResourceJson
}

export type ResourceMap = ReadonlyMap<ResourceType, ReadonlyMap<string, PlannedResource>>

/** Resources by type, then by name, in the order in which they were added. */
export class ResourceSet {
  readonly #byType = new Map<ResourceType, Map<string, PlannedResource>>()

  get byType(): ResourceMap {
    return this.#byType
  }

  /** Throws `invalid_plan` for a name that its type has already. */
  put(resource: PlannedResource): void {
    const { type, name } = resource
    let ofType = this.#byType.get(type)
    if (ofType === undefined) this.#byType.set(type, (ofType = new Map<string, PlannedResource>()))
    if (ofType.has(name))
      throw new ConvokeError(
        'invalid_plan',
        `There is a resource ${excerpt(name)} of type ${type} already. Give one of them another name.`,
      )
    ofType.set(name, resource)
  }
}

/**
 * A resource as it was given. `origin` is where it stands, or what makes it, if the value itself does not say so. Throws
 * TypeError for what is no resource, `invalid_plan` for a wrong one.
 */
export function toPlanned(
  name: string,
  value: unknown,
  given: ResourceType | undefined,
  origin?: ModuleReference,
): PlannedResource {
  if (typeof name !== 'string' || name === '')
    throw new ConvokeError('invalid_plan', `The name of a resource must be a text, got ${excerpt(name)}.`)
  const type = typeOfResource(name, value, given)
  if (isResourceDescriptor(value)) return fromDescriptor(type, name, value)
  if (isModuleReference(value)) {
    const problem = problemOfReference(value)
    if (problem !== undefined) throw new ConvokeError('invalid_plan', `The resource ${excerpt(name)}: ${problem}`)
    return fromReference(type, name, toReference(value))
  }
  if (typeof value === 'function' && !isClass(value))
    return fromFactory(type, name, value as (context: ResourceContext) => unknown, origin ?? referenceOf(value))
  return fromInstance(type, name, toResource(type, name, value), origin ?? referenceOf(value as object))
}

/**
 * A resource that a member of a class said: `given` is what the member was or returned. What `make` would make anew for each
 * runner is made once by now; the first runner gets that.
 */
export function toPlannedMember(
  name: string,
  given: unknown,
  type: ResourceType,
  make: (() => unknown) | undefined,
  origin: ModuleReference | undefined,
): PlannedResource {
  const planned = toPlanned(name, given, type, origin)
  if (make === undefined || isResourceDescriptor(given) || isModuleReference(given) || !opened.has(type)) return planned
  let first = [given]
  const next = (): unknown => {
    const [value = make()] = first
    first = []
    return value
  }
  return fromFactory(type, name, next, origin)
}

/** What may hold a connection or a file open. */
const opened = new Set<ResourceType>(['chatModelConnection', 'embeddingModel', 'vectorStore', 'remoteAgent'])

function fromInstance(
  type: ResourceType,
  name: string,
  resource: Resources[ResourceType],
  origin: ModuleReference | undefined,
): PlannedResource {
  return {
    type,
    name,
    owns: () => false,
    provide: () => Promise.resolve(resource),
    toJSON() {
      const value = ownJson(type, resource)
      if (value !== undefined) return { type, name, value }
      if (origin !== undefined) return { type, name, reference: origin }
      throw notPortable(
        type,
        name,
        `is an object of this process. Export it and pass it through exportedFrom(import.meta.url, 'name', it), or add ${type === 'tool' ? '{ module, export }' : 'a ResourceDescriptor'} in its place.`,
      )
    },
  }
}

/** Of resources that are nothing but JSON. A prompt of a class of its own is more than that. */
function ownJson(type: ResourceType, resource: Resources[ResourceType]): Json | undefined {
  if (type !== 'chatModelSetup' && type !== 'mcpServer' && !(type === 'prompt' && isPlainPrompt(resource)))
    return undefined
  const copy = freezeJson(
    type === 'prompt' ? (resource as Prompt).toJSON() : Object.fromEntries(Object.entries(resource)),
  )
  return 'at' in copy ? undefined : copy.value
}

/** Also of another copy of this package, so the class itself proves nothing. */
function isPlainPrompt(resource: object): boolean {
  const { constructor } = resource
  return constructor === Prompt || (constructor.name === Prompt.name && Object.hasOwn(constructor, 'fromJSON'))
}

function fromDescriptor(type: ResourceType, name: string, descriptor: ResourceDescriptor): PlannedResource {
  return {
    type,
    name,
    owns,
    provide: (context) => providing(type, name, context, () => instantiate(type, name, descriptor, context)),
    toJSON() {
      try {
        return { type, name, descriptor: descriptor.toJSON() }
      } catch (error) {
        throw notPortable(type, name, `cannot leave its process: ${(error as Error).message}`)
      }
    },
  }
}

function fromReference(type: ResourceType, name: string, reference: ModuleReference): PlannedResource {
  return {
    type,
    name,
    owns,
    provide: (context) =>
      providing(type, name, context, async () => {
        const { value, parent, member } = await findReference(reference, { baseDir: context.baseDir })
        const tool = type === 'tool' ? toolOfMember(parent, member) : undefined
        if (tool !== undefined) return toResource(type, name, tool)
        if (typeof value !== 'function' || isClass(value)) return await materialize(type, name, value, context)
        const resource = await materialize(type, name, await Reflect.apply(value, parent, [context]), context)
        made.add(resource)
        return resource
      }),
    toJSON: () => ({ type, name, reference }),
  }
}

function fromFactory(
  type: ResourceType,
  name: string,
  make: (context: ResourceContext) => unknown,
  origin: ModuleReference | undefined,
): PlannedResource {
  return {
    type,
    name,
    owns,
    provide: (context) =>
      providing(type, name, context, async () => {
        const resource = await materialize(type, name, await make(context), context)
        made.add(resource)
        return resource
      }),
    toJSON() {
      if (origin !== undefined) return { type, name, reference: origin }
      throw notPortable(
        type,
        name,
        'is made by a function of this process. Export the function and pass it through exportedFrom(import.meta.url, fn), or add a ResourceDescriptor.',
      )
    },
  }
}

/** The resource that a value is, or describes. */
async function materialize(
  type: ResourceType,
  name: string,
  value: unknown,
  context: ResourceContext,
): Promise<Resources[ResourceType]> {
  return isResourceDescriptor(value) ? await instantiate(type, name, value, context) : toResource(type, name, value)
}

/** What was made for one runner, and is its to close. */
const made = new WeakSet<object>()

function owns(resource: object): boolean {
  return made.has(resource)
}

async function instantiate(
  type: ResourceType,
  name: string,
  { clazz: given, arguments: args }: ResourceDescriptor,
  context: ResourceContext,
): Promise<Resources[ResourceType]> {
  const clazz: unknown = isModuleReference(given) ? await loadReference(given, { baseDir: context.baseDir }) : given
  const found = typeOfClass(clazz)
  if (found !== type)
    throw new ConvokeError(
      'invalid_plan',
      `The class of the resource ${excerpt(name)} makes ${found ?? 'no resources'}, and is to make ${type}.`,
    )
  const Class = clazz as ResourceClass<ResourceType, Json>
  const resource = toResource(type, name, new Class(args, context))
  made.add(resource)
  return resource
}

/** Callers hear which resource failed; why is for the log. */
async function providing(
  type: ResourceType,
  name: string,
  { log }: ResourceContext,
  make: () => Promise<Resources[ResourceType]>,
): Promise<Resources[ResourceType]> {
  try {
    return await make()
  } catch (cause) {
    const failure = new ConvokeError(
      'resource_failed',
      `The resource ${excerpt(name)} of type ${type} could not be made. The reason is in the log.`,
      { cause },
    )
    logFailureOnce(log, failure, { resource: clip(name, 80), type }, 'A resource of an agent could not be made.')
    throw failure
  }
}

function notPortable(type: ResourceType, name: string, why: string): ConvokeError {
  return new ConvokeError(
    'invalid_plan',
    `The plan cannot leave its process: the resource ${excerpt(name)} of type ${type} ${why}`,
  )
}
