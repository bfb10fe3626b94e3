/** A resource that nobody has made yet. */
import { ConvokeError } from '../base/errors.ts'
import { freezeJson, type Json } from '../base/json.ts'
import { excerpt } from '../tools/value.ts'
import { isModuleReference, problemOfReference, referenceOf, toReference } from './function-reference.ts'
import {
  resourceTypes,
  type DescribedResource,
  type ModuleReference,
  type ResourceClass,
  type Resources,
  type ResourceType,
} from './resources.ts'

/** Marks the instances; the same symbol in every copy of this package. */
const brand = Symbol.for('convoke.resource-descriptor')

/**
 * Says how to make a resource: a class and its arguments, JSON. It is made when it is first asked for, once per runner,
 * and closed with it (`close()` of the instance, where it has one). Throws `invalid_plan` for arguments that are not
 * JSON and for a class that is none of a resource.
 */
export class ResourceDescriptor<Type extends ResourceType = ResourceType, Arguments = unknown> {
  readonly clazz: ResourceClass<Type> | ModuleReference
  readonly arguments: Json

  /** `args` default to `{}`. */
  constructor(clazz: ModuleReference, args?: Json)
  constructor(clazz: ResourceClass<Type, Arguments>, args?: NoInfer<Arguments>)
  constructor(clazz: ResourceClass<Type, Arguments> | ModuleReference, args: unknown = {}) {
    const problem = isModuleReference(clazz)
      ? problemOfReference(clazz)
      : typeOfClass(clazz) === undefined
        ? `A resource's class needs \`static readonly resourceType\`, one of ${resourceTypes.join(', ')}; got ${excerptOf(clazz)}.`
        : undefined
    if (problem !== undefined) throw new ConvokeError('invalid_plan', problem)
    const copy = freezeJson(args)
    if ('at' in copy)
      throw new ConvokeError(
        'invalid_plan',
        `The arguments of the resource ${excerptOf(clazz)} are no JSON${copy.at === '' ? '' : ` at ${copy.at}`}. Use text, finite numbers, true, false, null, lists and plain objects.`,
      )
    this.clazz = isModuleReference(clazz) ? toReference(clazz) : clazz
    this.arguments = copy.value
  }

  get [brand](): true {
    return true
  }

  /** Undefined where only a reference to the class is known. */
  get type(): Type | undefined {
    return isModuleReference(this.clazz) ? undefined : this.clazz.resourceType
  }

  /** Throws `invalid_plan` where nobody has said where the class comes from. */
  toJSON(): DescribedResource {
    const clazz = isModuleReference(this.clazz) ? this.clazz : referenceOf(this.clazz)
    if (clazz !== undefined) return { clazz, arguments: this.arguments }
    const name = (this.clazz as { readonly name: string }).name || 'a class without a name'
    throw new ConvokeError(
      'invalid_plan',
      `the class ${name} is known to this process only. Export it and give it \`static readonly module = import.meta.url\`.`,
    )
  }
}

function excerptOf(clazz: unknown): string {
  return typeof clazz === 'function' && clazz.name !== '' ? clazz.name : excerpt(clazz)
}

/** Of this copy of the package or another. */
export function isResourceDescriptor(value: unknown): value is ResourceDescriptor {
  return typeof value === 'object' && value !== null && Reflect.get(value, brand) === true
}

/** What the instances of a class are, by its static `resourceType`. */
export function typeOfClass(clazz: unknown): ResourceType | undefined {
  if (typeof clazz !== 'function') return undefined
  const type: unknown = Reflect.get(clazz, 'resourceType')
  return isResourceType(type) ? type : undefined
}

export function isResourceType(value: unknown): value is keyof Resources {
  return (resourceTypes as readonly unknown[]).includes(value)
}
