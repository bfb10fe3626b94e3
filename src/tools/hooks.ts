/** What a program wants done before and after each call of a tool. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { asConvokeError } from './failure.ts'
import type { Caller, Tool, ToolContext, ToolValue } from './tool.ts'

/** A call as hooks see it. */
export interface HookedCall {
  readonly tool: Tool
  readonly params: JsonObject
  readonly caller: Caller
  readonly call: ToolContext['call']
  readonly signal: AbortSignal
}

/** How a call ended: with a result, or with an error. */
export interface HookedOutcome {
  readonly result?: ToolValue
  readonly error?: ConvokeError
  /** From the first check on. */
  readonly durationMs: number
  /** How often the tool was run. */
  readonly attempts: number
}

export interface ToolHooks {
  /**
   * Before policy and limits, with params that fit the schema. May give others, which are checked again. What it throws
   * refuses the call: a ConvokeError as it is, anything else as `internal`. The tool is not called then.
   */
  before?(call: HookedCall): Changed<'params', JsonObject> | Promise<Changed<'params', JsonObject>>
  /**
   * After a call that a tool was run for. May give another result in place of the one there is, which is held against the
   * tool's schema as that was. What it throws is logged.
   */
  after?(call: HookedCall, outcome: HookedOutcome): Changed<'result', ToolValue> | Promise<Changed<'result', ToolValue>>
}

/** What a hook gives: nothing, or a value in place of the one there was. */
type Changed<Key extends string, Value> = { readonly [K in Key]: Value } | undefined | void

/** A call with what a context makes only when somebody looks: a signal costs more than the rest of a small call. */
export class Hooked implements HookedCall {
  readonly tool: Tool
  readonly params: JsonObject
  readonly #context: ToolContext

  constructor(tool: Tool, params: JsonObject, context: ToolContext) {
    this.tool = tool
    this.params = params
    this.#context = context
  }

  get caller(): Caller {
    return this.#context.caller
  }

  get call(): ToolContext['call'] {
    return this.#context.call
  }

  get signal(): AbortSignal {
    return this.#context.signal
  }
}

/** The params as the hooks leave them, one after the other. A promise only where one of them gives one. Throws what refuses the call. */
export function runBefore(
  hooks: readonly ToolHooks[],
  tool: Tool,
  params: JsonObject,
  context: ToolContext,
): JsonObject | Promise<JsonObject> {
  let now = params
  for (const [index, hook] of hooks.entries()) {
    const given = refusing(() => hook.before?.(new Hooked(tool, now, context)))
    if (given instanceof Promise) return beforeLater(hooks.slice(index + 1), tool, now, context, given)
    now = changedParams(given) ?? now
  }
  return now
}

async function beforeLater(
  rest: readonly ToolHooks[],
  tool: Tool,
  params: JsonObject,
  context: ToolContext,
  giving: Promise<Changed<'params', JsonObject>>,
): Promise<JsonObject> {
  let given: Changed<'params', JsonObject>
  try {
    given = await giving
  } catch (error) {
    throw refusal(error)
  }
  return await runBefore(rest, tool, changedParams(given) ?? params, context)
}

function refusing<Given>(hook: () => Given): Given {
  try {
    return hook()
  } catch (error) {
    throw refusal(error)
  }
}

function refusal(error: unknown): ConvokeError {
  return asConvokeError(error) ?? ConvokeError.from(error)
}

function changedParams(given: Changed<'params', JsonObject>): JsonObject | undefined {
  if (given === undefined) return undefined
  if (isObject(given) && isObject(given.params)) return given.params
  throw ConvokeError.from(new TypeError('A hook `before` gives nothing, or { params }.'))
}

/** The result as the hooks leave it; undefined where the call failed. */
export async function runAfter(
  hooks: readonly ToolHooks[],
  call: HookedCall,
  outcome: HookedOutcome,
  onError: (error: unknown) => void,
): Promise<ToolValue | undefined> {
  let { result } = outcome
  for (const hook of hooks) {
    if (hook.after === undefined) continue
    try {
      const given = await hook.after(call, result === undefined ? outcome : { ...outcome, result })
      if (given !== undefined && result !== undefined) result = given.result
    } catch (error) {
      onError(error)
    }
  }
  return result
}
