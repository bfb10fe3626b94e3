/** Which type of resource a value is, and whether it can do what its type must. */
import { ConvokeError } from '../base/errors.ts'
import { freezeJson, isObject, type JsonObject } from '../base/json.ts'
import { isDefinedTool } from '../tools/define.ts'
import { isClass } from '../tools/function-source.ts'
import { isToolInstance, toolOfInstance } from '../tools/tool-base.ts'
import { excerpt } from '../tools/value.ts'
import { ChatModelSetup } from './chat-model-setup.ts'
import { isModuleReference } from './function-reference.ts'
import { isResourceDescriptor, isResourceType, typeOfClass } from './resource-descriptor.ts'
import { resourceTypes, type Resources, type ResourceType } from './resources.ts'

/** The type of a value: what it tells by itself, or what was said. Throws TypeError where both differ, or nobody knows. */
export function typeOfResource(name: string, value: unknown, given: ResourceType | undefined): ResourceType {
  if (given !== undefined && !isResourceType(given))
    throw new TypeError(`The type of the resource ${excerpt(name)} must be one of ${typeNames}, got ${excerpt(given)}.`)
  const found = findType(value)
  if (found !== undefined && given !== undefined && found !== given)
    throw new TypeError(`The resource ${excerpt(name)} is of type ${found}, and was added as ${given}.`)
  const type = found ?? given
  if (type === undefined) throw new TypeError(whyUnknown(name, value))
  return type
}

const typeNames = resourceTypes.join(', ')

/** The type that a value tells by what it is. */
function findType(value: unknown): ResourceType | undefined {
  if (isDefinedTool(value) || isToolInstance(value)) return 'tool'
  if (!isObject(value)) return undefined
  if (isResourceDescriptor(value)) return value.type
  const type = typeOfClass(value.constructor)
  return type ?? (lacks('prompt', value) === undefined ? 'prompt' : undefined)
}

function whyUnknown(name: string, value: unknown): string {
  if (typeof value === 'function' && !isClass(value)) {
    return `The type of what the function of the resource ${excerpt(name)} makes is not known. Say it: addResource(name, function, type), type one of ${typeNames}.`
  }
  if (isResourceDescriptor(value) || isModuleReference(value))
    return `The type of the resource ${excerpt(name)} cannot be seen in a reference. Say it: addResource(name, resource, type), type one of ${typeNames}.`
  const what = isClass(value)
    ? `the class ${value.name}: add an instance of it, or new ResourceDescriptor(${value.name}, …)`
    : value instanceof Promise
      ? 'a promise: await it first'
      : `${excerpt(value)}: add an instance, a ResourceDescriptor, or say its type, one of ${typeNames}`
  return `The resource ${excerpt(name)} is none, it is ${what}.`
}

/** What an object must be able to do to be a resource of its type. */
const methods: Partial<Record<ResourceType, readonly string[]>> = {
  chatModelConnection: ['chat'],
  tool: ['run'],
  prompt: ['formatString', 'formatMessages'],
  embeddingModel: ['embed'],
  vectorStore: ['add', 'query'],
  remoteAgent: ['ask'],
}

function lacks(type: ResourceType, value: object): string | undefined {
  return methods[type]?.find((method) => typeof Reflect.get(value, method) !== 'function')
}

/** The resource that a value is. Throws TypeError for what cannot do what its type must, `invalid_plan` for a wrong one. */
export function toResource(type: ResourceType, name: string, value: unknown): Resources[ResourceType] {
  if (!isObject(value) || value instanceof Promise)
    throw new TypeError(`The resource ${excerpt(name)} of type ${type} cannot be ${excerpt(value)}.`)
  if (isToolInstance(value)) return namedTool(name, toolOfInstance(value))
  if (type === 'chatModelSetup')
    return typeOfClass(value.constructor) === type ? (value as never) : new ChatModelSetup(value as never)
  if (type === 'mcpServer') return toServer(name, value)
  const missing = lacks(type, value)
  if (missing !== undefined)
    throw new TypeError(`The resource ${excerpt(name)} of type ${type} must be an object with a method \`${missing}\`.`)
  return type === 'tool' ? namedTool(name, value as unknown as Resources['tool']) : (value as never)
}

/** Models and callers know a tool by its own name. */
function namedTool(name: string, tool: Resources['tool']): Resources['tool'] {
  if (tool.name === name) return tool
  throw new ConvokeError(
    'invalid_plan',
    `The resource ${excerpt(name)} is a tool of the name ${excerpt(tool.name)}. Add it under that name.`,
  )
}

/** The name of a tool that was added without one. Throws TypeError for anything else: only tools have names of their own. */
export function nameOfTool(value: object): string {
  if (isToolInstance(value)) return toolOfInstance(value).name
  if (isDefinedTool(value)) return value.name
  throw new TypeError(
    `Only a tool is added without a name, got ${excerpt(value)}. Say it: addResource(name, resource, type).`,
  )
}

function toServer(name: string, options: object): JsonObject {
  const copy = freezeJson(options)
  if ('at' in copy)
    throw new ConvokeError(
      'invalid_plan',
      `The options of the MCP server ${excerpt(name)} are no JSON object${copy.at === '' ? '' : ` at ${copy.at}`}.`,
    )
  const server = copy.value as JsonObject
  const hasPlace = ['command', 'url', 'serverUrl', 'httpUrl'].some((key) => typeof server[key] === 'string')
  if (hasPlace) return server
  throw new ConvokeError(
    'invalid_plan',
    `The MCP server ${excerpt(name)} needs a \`command\` or a \`url\`, as in the configuration's \`mcpServers\`.`,
  )
}
