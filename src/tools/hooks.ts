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

/** How a call ended. */
export interface HookedOutcome {
  readonly result?: ToolValue
  readonly error?: ConvokeError
  readonly durationMs: number
  readonly attempts: number
}

export interface ToolHooks {
  /**
   * Before policy and limits, with params that fit the schema. May give others, which are checked again. What it throws
   * refuses the call: a ConvokeError as it is, anything else as `internal`.
   */
  before?(call: HookedCall): { readonly params: JsonObject } | void | Promise<{ readonly params: JsonObject } | void>
  /** After a call that a tool was run for. May give another result in place of the one there is. What it throws is logged. */
  after?(
    call: HookedCall,
    outcome: HookedOutcome,
  ): { readonly result: ToolValue } | void | Promise<{ readonly result: ToolValue } | void>
}

/** The params as the hooks leave them, one after the other. */
export async function runBefore(hooks: readonly ToolHooks[], call: HookedCall): Promise<JsonObject> {
  let { params } = call
  for (const hook of hooks) {
    let given
    try {
      given = await hook.before?.({ ...call, params })
    } catch (error) {
      throw asConvokeError(error) ?? ConvokeError.from(error)
    }
    if (given === undefined) continue
    if (!isObject(given) || !isObject(given.params)) {
      throw ConvokeError.from(new TypeError('A hook `before` gives nothing, or { params }.'))
    }
    params = given.params
  }
  return params
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
    try {
      const given = await hook.after?.(call, result === undefined ? outcome : { ...outcome, result })
      if (given !== undefined && result !== undefined) result = given.result
    } catch (error) {
      onError(error)
    }
  }
  return result
}
