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

/**
 * The params as the hooks leave them, one after the other. A promise only where one of them gives one. Throws what
 * refuses the call; `onError` hears of what a hook threw that says nothing to a caller.
 */
export function runBefore(
  hooks: readonly ToolHooks[],
  tool: Tool,
  params: JsonObject,
  context: ToolContext,
  onError: OnBroken,
): JsonObject | Promise<JsonObject> {
  let now = params
  try {
    for (const [index, hook] of hooks.entries()) {
      const given = hook.before?.(new Hooked(tool, now, context))
      if (given instanceof Promise) return beforeLater(hooks.slice(index + 1), tool, now, context, given, onError)
      now = changedParams(given) ?? now
    }
  } catch (error) {
    throw refusal(error, onError)
  }
  return now
}

/** `error` is what the caller gets; what was thrown is its cause. */
type OnBroken = (error: ConvokeError) => void

async function beforeLater(
  rest: readonly ToolHooks[],
  tool: Tool,
  params: JsonObject,
  context: ToolContext,
  giving: Promise<Changed<'params', JsonObject>>,
  onError: OnBroken,
): Promise<JsonObject> {
  let now: JsonObject
  try {
    now = changedParams(await giving) ?? params
  } catch (error) {
    throw refusal(error, onError)
  }
  return await runBefore(rest, tool, now, context, onError)
}

function refusal(error: unknown, onError: OnBroken): ConvokeError {
  const ours = asConvokeError(error)
  if (ours !== undefined) return ours
  const broken = ConvokeError.from(error)
  onError(broken)
  return broken
}

function changedParams(given: Changed<'params', JsonObject>): JsonObject | undefined {
  if (given === undefined) return undefined
  if (isObject(given) && isObject(given.params)) return given.params
  throw new TypeError('A hook `before` gives nothing, or { params }.')
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
