/** Params and results against their schemas. */
import { ConvokeError, type Issue } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { isContent } from '../protocol/content.ts'
import { describeIssues } from './issues.ts'
import { compile, type Validator } from './schema.ts'
import type { Chunk, Refined, Tool, ToolValue } from './tool.ts'
import { excerpt, findNotJson } from './value.ts'

/** What belongs to a tool while it exists: made at its first call, gone with the tool. */
interface Equipment {
  readonly input: Validator
  readonly output: Validator | undefined
}

const equipment = new WeakMap<Tool, Equipment>()

function equipmentOf(tool: Tool): Equipment {
  let found = equipment.get(tool)
  if (found === undefined) {
    const foreign = isForeign(tool)
    found = {
      // A Standard Schema fills in its own defaults, which may be of the type behind its transforms; so does a peer.
      input: compile(tool.input, { defaults: tool.refine === undefined && !foreign, foreign }),
      output: tool.output === undefined ? undefined : compile(tool.output, { foreign }),
    }
    equipment.set(tool, found)
  }
  return found
}

/** Compiles the tool's schemas now instead of at its first call. Throws an Error that says which one is wrong, and why. */
export function prepareTool(tool: Tool): void {
  const { input, output } = equipmentOf(tool)
  for (const [side, validator] of [
    ['input', input],
    ['output', output],
  ] as const) {
    try {
      validator?.prepare()
    } catch (cause) {
      throw new Error(`its ${side} schema is wrong: ${cause instanceof Error ? cause.message : String(cause)}`, {
        cause,
      })
    }
  }
}

/**
 * The params as `run` gets them: validated, defaults merged in place (params belong to the call), refined. Absent
 * params are `{}`. A promise only where the tool's own schema library validates asynchronously. Throws, or rejects
 * with, `invalid_params` with all issues and a sentence that names the tool.
 */
export function checkParams(tool: Tool, params: unknown): JsonObject | Promise<JsonObject> {
  const value = params === undefined ? {} : params
  if (!isObject(value)) {
    throw invalidParams(tool, [
      { path: '', message: `must be an object, got ${value === null ? 'null' : excerpt(value)}` },
    ])
  }
  const notJson = findNotJson(value)
  if (notJson !== undefined) throw invalidParams(tool, [notJson])
  const issues = equipmentOf(tool).input.validate(value)
  if (issues.length > 0) throw invalidParams(tool, issues)
  if (tool.refine === undefined) return value as JsonObject
  const refined = tool.refine(value as JsonObject)
  if (refined instanceof Promise) return refined.then((result) => refinedParams(tool, result))
  return refinedParams(tool, refined)
}

function refinedParams(tool: Tool, refined: Refined): JsonObject {
  if (refined.issues !== undefined) throw invalidParams(tool, refined.issues)
  return refined.value as JsonObject
}

function invalidParams(tool: Tool, issues: readonly Issue[]): ConvokeError {
  return new ConvokeError('invalid_params', `Invalid params for the tool "${tool.name}": ${describeIssues(issues)}`, {
    issues,
  })
}

/** Whether the tool is of another node or server: what it says of itself is not ours to vouch for. */
export function isForeign({ kind }: Tool): boolean {
  return kind === 'a2a' || kind === 'mcp'
}

/** What is done about a result that its tool's output schema forbids: nothing, a line in the log, or the call fails. */
export type ResultMode = 'off' | 'warn' | 'strict'

/**
 * The result as its caller gets it; undefined becomes null. A promise only where the tool's own schema library validates
 * asynchronously. Throws, or rejects with, `invalid_result` for what is not JSON in any mode, and for what the schema
 * forbids when strict; `onWarn` gets that error when it is only told.
 */
export function checkResult(
  tool: Tool,
  result: unknown,
  mode: ResultMode = 'strict',
  onWarn: (error: ConvokeError) => void = () => {},
): ToolValue | Promise<ToolValue> {
  if (tool.refineResult === undefined || mode === 'off') return checkPlainResult(tool, result, mode, onWarn)
  const refined = tool.refineResult(result as ToolValue)
  const then = ({ value, issues }: Refined): ToolValue => {
    if (issues === undefined) return checkPlainResult(tool, value, mode, onWarn)
    tell(forbidden(tool, issues), mode, onWarn)
    return checkPlainResult(tool, result, 'off', onWarn)
  }
  return refined instanceof Promise ? refined.then(then) : then(refined)
}

/** {@link checkResult} without the tool's own schema library: of a result that has been through it. */
export function checkPlainResult(
  tool: Tool,
  result: unknown,
  mode: ResultMode,
  onWarn: (error: ConvokeError) => void,
): ToolValue {
  const output = mode === 'off' ? undefined : equipmentOf(tool).output
  if (result instanceof Uint8Array) {
    if (output === undefined) return result
    const issues = [{ path: '', message: `must be JSON as its output schema says, got ${excerpt(result)}` }]
    tell(invalidResult(tool, 'returned bytes', issues), mode, onWarn)
    return result
  }
  const value = result === undefined ? null : result
  checkJson(tool, value)
  if (output === undefined) return value as ToolValue
  // Of several parts the data is what the output schema speaks of.
  const spoken = isContent(value) ? value.parts.find(({ data }) => data !== undefined)?.data : value
  const issues = output.validate(spoken ?? null)
  if (issues.length > 0) tell(forbidden(tool, issues), mode, onWarn)
  return value as ToolValue
}

function checkJson(tool: Tool, value: unknown): void {
  if (!isContent(value)) {
    const issue = findNotJson(value)
    if (issue !== undefined) throw invalidResult(tool, 'returned something that is not JSON', [issue])
    return
  }
  for (const [index, { data }] of value.parts.entries()) {
    const issue = data === undefined ? undefined : findNotJson(data)
    if (issue === undefined) continue
    const path = `/parts/${index}/data${issue.path}`
    throw invalidResult(tool, 'returned something that is not JSON', [{ ...issue, path }])
  }
}

/** A chunk as its reader gets it; undefined becomes null. Throws `invalid_result` for what is not JSON. */
export function checkChunk(tool: Tool, chunk: unknown): Chunk {
  if (chunk instanceof Uint8Array) return chunk
  if (chunk === undefined) return null
  const issue = findNotJson(chunk)
  if (issue !== undefined) throw invalidResult(tool, 'yielded something that is not JSON', [issue])
  return chunk as Chunk
}

function tell(error: ConvokeError, mode: ResultMode, onWarn: (error: ConvokeError) => void): void {
  if (mode === 'strict') throw error
  onWarn(error)
}

function forbidden(tool: Tool, issues: readonly Issue[]): ConvokeError {
  return invalidResult(tool, 'returned something that its output schema forbids', issues)
}

function invalidResult(tool: Tool, what: string, issues: readonly Issue[]): ConvokeError {
  return new ConvokeError('invalid_result', `The tool "${tool.name}" ${what}: ${describeIssues(issues)}`, { issues })
}
