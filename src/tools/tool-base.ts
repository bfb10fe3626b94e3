/** Tools as classes, for those who keep something between calls or share code by inheritance. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { createTool, type RunResult } from './define.ts'
import { isClass } from './function-source.ts'
import type { SchemaSource } from './infer.ts'
import type { Tool, ToolContext, ToolTraits } from './tool.ts'

/** Marks the subclasses; the same symbol in every copy of this package. */
const brand = Symbol.for('convoke.tool-base')

/**
 * A tool as a class: extend it, and say what it is in its fields. A module's exported subclasses are tools like what
 * `defineTool` makes; the loader creates one instance of each, with the `options` of its entry as the one argument.
 *
 *     export class Greet extends ToolBase {
 *       name = 'greet'
 *       description = 'Greets somebody.'
 *       input = { type: 'object', properties: { who: { type: 'string' } }, required: ['who'] }
 *       run({ who }) { return `Hello ${who}` }
 *     }
 */
export abstract class ToolBase<Params = JsonObject> {
  /** `^[A-Za-z0-9_-]{1,64}$` */
  abstract readonly name: string
  abstract readonly description: string
  abstract readonly input: SchemaSource
  // Declared only: a field would hide the getter of a subclass.
  declare readonly output?: SchemaSource
  declare readonly traits?: ToolTraits

  get [brand](): true {
    return true
  }

  /** As the `run` of `defineTool`: a plain, async or generator function. */
  abstract run(params: Params, context: ToolContext): RunResult<unknown>

  /** Asked once, when the tool is loaded: with false it is left out. Default: true. */
  isEnabled(): boolean | Promise<boolean> {
    return true
  }
}

/** Whether a value is an instance of {@link ToolBase}, of this copy of the package or another. */
export function isToolInstance(value: unknown): value is ToolBase {
  return isObject(value) && Reflect.get(value, brand) === true
}

/** Whether a value is a class made from {@link ToolBase} that can be a tool: it has a `run`, and is not abstract. */
export function isToolClass(value: unknown): value is new (options?: unknown) => ToolBase {
  const prototype = prototypeOf(value)
  return prototype !== undefined && brand in prototype && hasMethod(prototype, 'run')
}

/** Whether a value is a class whose instances may be tools: it has a `run` or a `call`, or is made from {@link ToolBase}. */
export function isToolLikeClass(value: unknown): value is new (options?: unknown) => object {
  const prototype = prototypeOf(value)
  if (prototype === undefined) return false
  return hasMethod(prototype, 'run') || hasMethod(prototype, 'call') || brand in prototype
}

function prototypeOf(value: unknown): object | undefined {
  return isClass(value) ? (value.prototype as object) : undefined
}

/** Also an inherited one. Getters are not touched: there is no instance yet. */
function hasMethod(prototype: object, name: string): boolean {
  for (let at: object | null = prototype; at !== null; at = Object.getPrototypeOf(at) as object | null) {
    const found = Object.getOwnPropertyDescriptor(at, name)
    if (found !== undefined) return typeof found.value === 'function'
  }
  return false
}

/** What an entry may say in place of the instance. */
export interface InstanceOverrides {
  readonly name?: string | undefined
  readonly description?: string | undefined
  readonly input?: unknown
  readonly output?: unknown
}

/**
 * The tool that an instance is: its `run` (or `call`) with its `name`, `description` and `input` (or `input_schema`,
 * `inputSchema`), and perhaps `output` and `traits`. Throws `config` that says what is missing.
 */
export function toolOfInstance(instance: object, overrides: InstanceOverrides = {}): Tool {
  const member = (...names: string[]): unknown =>
    names.map((name) => Reflect.get(instance, name) as unknown).find((value) => value !== undefined)
  const method = member('run', 'call')
  if (typeof method !== 'function')
    throw new ConvokeError('config', 'A tool that is an object needs a method `run` (params, context).')
  const {
    name = member('name'),
    description = member('description'),
    input = member('input', 'input_schema', 'inputSchema'),
    output = member('output', 'output_schema', 'outputSchema'),
  } = overrides
  const traits = member('traits')
  return createTool({
    name,
    description,
    input,
    ...(output === undefined ? {} : { output }),
    ...(traits === undefined ? {} : { traits }),
    run: (params: unknown, context: ToolContext): unknown => Reflect.apply(method, instance, [params, context]),
  })
}
