/**
 * An agent by decorators, the standard ones of TypeScript 5 and later. They stand before static members of a subclass of
 * Agent and note down what each is; `new` of the class adds what was noted, so both ways give the same plan. A subclass
 * inherits what its base class notes, and replaces a member by one of the same name.
 */
import { ConvokeError } from '../base/errors.ts'
import type { Json, JsonObject } from '../base/json.ts'
import type { Content } from '../protocol/content.ts'
import { createTool, type RunResult } from '../tools/define.ts'
import type { ParamsOf, ResultOf, SchemaSource } from '../tools/infer.ts'
import type { ToolBase } from '../tools/tool-base.ts'
import type { Tool, ToolContext, ToolTraits } from '../tools/tool.ts'
import type { ChatModelSetupOptions } from './chat-model.ts'
import type { RunnerContext } from './context.ts'
import type { EventKind, EventOf } from './events.ts'
import type { ResourceDescriptor } from './resource-descriptor.ts'
import type { Resources, ResourceType } from './resources.ts'

export interface ActionOptions<Kinds extends readonly EventKind[]> {
  /** What the action hears. */
  readonly events: Kinds
  /** Comes to it as `context.actionConfig`. Default: none. */
  readonly config?: JsonObject
  /** Default: the member's name. */
  readonly name?: string
}

type ActionDecorator<Kinds extends readonly EventKind[]> = <Value = Json>(
  method: (event: EventOf<Kinds[number], Value>, context: RunnerContext) => Promise<void> | void,
  context: ClassMethodDecoratorContext,
) => void

/** The static method is an action: `@action(InputEvent)`, `@action(InputEvent, 'review_scored')`, `@action({ events, config, name })`. */
export function action<const Kinds extends readonly EventKind[]>(options: ActionOptions<Kinds>): ActionDecorator<Kinds>
export function action<const Kinds extends readonly EventKind[]>(...events: Kinds): ActionDecorator<Kinds>
export function action(...given: readonly unknown[]): (method: never, context: ClassMethodDecoratorContext) => void {
  const [first] = given
  const isOptions = typeof first === 'object' && first !== null && 'events' in first
  if (isOptions && given.length > 1) throw wrong('@action takes events, or one object { events, config, name }.')
  const options = isOptions ? (first as Partial<ActionOptions<readonly EventKind[]>>) : { events: given as EventKind[] }
  return (_method, context: DecoratorContext) => {
    if (context?.kind !== 'method') throw misplaced('@action', context, 'a static method')
    note(context, { type: 'action', options })
  }
}

/** A tool's definition but its `run`, which the method is. */
export interface ToolMemberOptions<Input extends SchemaSource, Output extends SchemaSource | undefined> {
  /** Default: the member's name. */
  readonly name?: string
  readonly description: string
  readonly input: Input
  readonly output?: Output
  readonly traits?: ToolTraits
}

/**
 * The static member is a tool: `@tool` before one that returns a tool (by its own name), or `@tool({ description, input })`
 * before a method that is the tool's `run`.
 */
export function tool<const Input extends SchemaSource, const Output extends SchemaSource | undefined = undefined>(
  options: ToolMemberOptions<Input, Output>,
): (
  run: (params: ParamsOf<Input>, context: ToolContext) => RunResult<ResultOf<Output> | Content>,
  context: ClassMethodDecoratorContext,
) => void
export function tool(
  method: () => Tool | ToolBase,
  context: ClassMethodDecoratorContext | ClassGetterDecoratorContext,
): void
export function tool(field: undefined, context: ClassFieldDecoratorContext<unknown, Tool>): void
export function tool(given: unknown, context?: DecoratorContext): unknown {
  if (context !== undefined) return resourceDecorator('tool')(given, context)
  if (typeof given !== 'object' || given === null)
    throw wrong('@tool stands alone before a static member that returns a tool, or takes { description, input }.')
  return (_run: unknown, on: DecoratorContext) => {
    if (on?.kind !== 'method') throw misplaced('@tool', on, 'a static method that is its `run`')
    note(on, { type: 'tool', options: given })
  }
}

/** Goes before a static method or getter that returns the resource, or a static field that is it. */
export interface ResourceDecorator<Value> {
  (method: () => Value, context: ClassMethodDecoratorContext | ClassGetterDecoratorContext): void
  (field: undefined, context: ClassFieldDecoratorContext<unknown, Value>): void
}

type Given<Type extends ResourceType> = Resources[Type] | ResourceDescriptor

/** The static member is a prompt. */
export const prompt: ResourceDecorator<Given<'prompt'>> = resourceDecorator('prompt')
/** The static member is a connection to a model's endpoint, best a descriptor: what it makes is closed with its runner. */
export const chatModelConnection: ResourceDecorator<Given<'chatModelConnection'>> =
  resourceDecorator('chatModelConnection')
/** The static member is a chat model setup, or its options. */
export const chatModelSetup: ResourceDecorator<ChatModelSetupOptions | ResourceDescriptor> =
  resourceDecorator('chatModelSetup')
/** The static member is the options of an MCP server, as in the configuration's `mcpServers`. */
export const mcpServer: ResourceDecorator<JsonObject> = resourceDecorator('mcpServer')
/** The static member is an embedding model. */
export const embeddingModel: ResourceDecorator<Given<'embeddingModel'>> = resourceDecorator('embeddingModel')
/** The static member is a vector store. */
export const vectorStore: ResourceDecorator<Given<'vectorStore'>> = resourceDecorator('vectorStore')
/** The static member is another node's agent. */
export const remoteAgent: ResourceDecorator<Given<'remoteAgent'>> = resourceDecorator('remoteAgent')

function resourceDecorator(type: ResourceType): (value: unknown, context: DecoratorContext) => void {
  return (_value, context) => {
    if (context?.kind !== 'method' && context?.kind !== 'getter' && context?.kind !== 'field')
      throw misplaced(`@${type}`, context, 'a static method, getter or field')
    note(context, { type, options: undefined })
  }
}

/** What a decorator noted of a member. */
export type Noted =
  | { readonly type: 'action'; readonly options: Partial<ActionOptions<readonly EventKind[]>> }
  | { readonly type: ResourceType; readonly options: object | undefined }

/** Where a class keeps its own notes; the same symbol in every copy of this package. */
const notes = Symbol.for('convoke.agent-members')
/** Marks agents; the same symbol in every copy of this package. */
export const agentBrand = Symbol.for('convoke.agent')

function note(
  context: DecoratorContext & { readonly static: boolean; addInitializer(init: () => void): void },
  noted: Noted,
): void {
  const name = `@${noted.type}`
  const { name: member } = context
  if (!context.static)
    throw wrong(
      `${name} stands before the instance member \`${String(member)}\`. Make it \`static\`: a plan keeps no instance of the agent.`,
    )
  if (typeof member !== 'string' || member.startsWith('#'))
    throw wrong(
      `${name} stands before \`${String(member)}\`, which nobody can name from outside. Make it a public member with a name.`,
    )
  context.addInitializer(function (this: unknown) {
    const owner = this as Function & { [notes]?: Map<string, Noted> }
    if (!(agentBrand in (owner.prototype as object)))
      throw wrong(
        `${name} stands before \`${owner.name}.${member}\`, and ${owner.name} is no agent. Let the class extend Agent.`,
      )
    if (!Object.hasOwn(owner, notes)) Object.defineProperty(owner, notes, { value: new Map() })
    const own = owner[notes] as Map<string, Noted>
    if (own.has(member))
      throw wrong(
        `${name} is the second decorator before \`${owner.name}.${member}\`; a member is one thing. An action takes all its events at once.`,
      )
    own.set(member, noted)
  })
}

/** What a class and those that it extends note, by member; what a subclass notes stands in its base class's place. */
export function notedOf(owner: unknown): Map<string, Noted> {
  const found = new Map<string, Noted>()
  const walk = (at: unknown): void => {
    if (typeof at !== 'function') return
    walk(Object.getPrototypeOf(at))
    const own = Object.getOwnPropertyDescriptor(at, notes)?.value as Map<string, Noted> | undefined
    for (const [member, noted] of own ?? []) found.set(member, noted)
  }
  walk(owner)
  return found
}

/** The tool whose `run` a static method is by `@tool({ … })`; undefined for any other member. */
export function toolOfMember(owner: unknown, member: string): Tool | undefined {
  if (typeof owner !== 'function') return undefined
  const noted = notedOf(owner).get(member)
  if (noted?.type !== 'tool' || noted.options === undefined) return undefined
  const run: unknown = Reflect.get(owner, member)
  if (typeof run !== 'function') throw wrong(`@tool: \`${owner.name}.${member}\` is no method any more.`)
  return createTool({ name: member, ...noted.options, run: run.bind(owner) as unknown })
}

/** `context` is the member's name in the manner of `experimentalDecorators`, which has no context. */
function misplaced(name: string, context: DecoratorContext | PropertyKey | undefined, what: string): ConvokeError {
  if (typeof context !== 'object')
    return wrong(
      `${name}${context === undefined ? '' : ` before \`${String(context)}\``} was compiled with \`experimentalDecorators\`, and is a standard decorator. Compile without that option.`,
    )
  const where = `the ${context.kind} \`${String(context.name)}\``
  return wrong(`${name} stands before ${where}, and belongs before ${what}.`)
}

function wrong(message: string): ConvokeError {
  return new ConvokeError('invalid_plan', message)
}
