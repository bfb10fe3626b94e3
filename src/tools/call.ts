/** One call of a tool: its params are checked, it waits its turn and runs, and what it says is checked. */
import { abortReason } from '../base/abort.ts'
import { ConvokeError, errorCodes, type ErrorCode, type Issue } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { isContent, type Content } from '../protocol/content.ts'
import { Gate } from './gate.ts'
import { describeIssues } from './issues.ts'
import { compile, type Validator } from './schema.ts'
import type { Chunk, Refined, Tool, ToolContext, ToolValue } from './tool.ts'
import { clip, excerpt, findNotJson } from './value.ts'

/** A `tool_failed` made of something that a tool threw. `thrown` is just that, for those who call it in-process. */
export class ToolFailure extends ConvokeError {
  readonly thrown: unknown

  constructor(message: string, thrown: unknown) {
    super('tool_failed', message, { cause: thrown })
    this.thrown = thrown
  }
}

/** What belongs to a tool while it exists: made at its first call, gone with the tool. */
interface Equipment {
  readonly input: Validator
  readonly output: Validator | undefined
  readonly gate: Gate | undefined
}

const equipment = new WeakMap<Tool, Equipment>()

function equipmentOf(tool: Tool): Equipment {
  let found = equipment.get(tool)
  if (found === undefined) {
    const foreign = tool.kind === 'a2a' || tool.kind === 'mcp'
    found = {
      // A Standard Schema fills in its own defaults, which may be of the type behind its transforms; so does a peer.
      input: compile(tool.input, { defaults: tool.refine === undefined && !foreign, foreign }),
      output: tool.output === undefined ? undefined : compile(tool.output, { foreign }),
      gate: tool.traits.concurrency === undefined ? undefined : new Gate(tool.traits.concurrency),
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

/**
 * Calls a tool: yields its chunks and returns its result, all of them checked. Whatever goes wrong is thrown as a
 * ConvokeError. Leaving the generator early stops the tool's own generator; a tool that does not come to a yield
 * needs `context.signal` for that.
 */
export function callTool(tool: Tool, params: unknown, context: ToolContext): AsyncGenerator<Chunk, ToolValue, void> {
  return drive(tool, params, undefined, context)
}

/** {@link callTool} with params that {@link checkParams} gave. `onBegin` hears when the tool's turn has come. */
export function runTool(
  tool: Tool,
  params: JsonObject,
  context: ToolContext,
  onBegin?: () => void,
): AsyncGenerator<Chunk, ToolValue, void> {
  return drive(tool, undefined, params, context, onBegin)
}

// One generator for all of it: each further layer costs 0.15 µs a step.
async function* drive(
  tool: Tool,
  unchecked: unknown,
  checked: JsonObject | undefined,
  context: ToolContext,
  onBegin?: () => void,
): AsyncGenerator<Chunk, ToolValue, void> {
  let gate: Gate | undefined
  try {
    const { gate: ownGate, output } = equipmentOf(tool)
    let params = checked ?? checkParams(tool, unchecked)
    if (params instanceof Promise) params = await params
    if (ownGate !== undefined && context.hop?.reentrant !== true) {
      const turn = ownGate.enter(context, `The tool "${tool.name}"`)
      if (turn !== undefined) await turn
      gate = ownGate
    }
    onBegin?.()
    const work = tool.run(params, context)
    let ended = false
    try {
      for (;;) {
        const step = await work.next()
        if (step.done === true) {
          ended = true
          return await checkResult(tool, output, step.value)
        }
        yield checkChunk(tool, step.value)
        // A generator that never looks at its signal still stops at its next yield.
        if (context.signal.aborted) throw abortReason(context.signal)
      }
    } finally {
      if (!ended) await leave(work)
    }
  } catch (error) {
    throw toFailure(tool, error, context)
  } finally {
    gate?.leave()
  }
}

async function leave(work: AsyncGenerator<Chunk, ToolValue, void>): Promise<void> {
  await work.return(null)
}

function checkChunk(tool: Tool, chunk: unknown): Chunk {
  if (chunk instanceof Uint8Array) return chunk
  if (chunk === undefined) return null
  const issue = findNotJson(chunk)
  if (issue !== undefined) throw invalidResult(tool, 'yielded something that is not JSON', [issue])
  return chunk as Chunk
}

function checkResult(tool: Tool, output: Validator | undefined, result: unknown): ToolValue | Promise<ToolValue> {
  if (tool.refineResult === undefined) return checkPlainResult(tool, output, result)
  const refined = tool.refineResult(result as ToolValue)
  if (!(refined instanceof Promise)) return refinedResult(tool, output, refined)
  return refined.then((each) => refinedResult(tool, output, each))
}

function refinedResult(tool: Tool, output: Validator | undefined, refined: Refined): ToolValue {
  if (refined.issues !== undefined)
    throw invalidResult(tool, 'returned something that its output schema forbids', refined.issues)
  return checkPlainResult(tool, output, refined.value)
}

function checkPlainResult(tool: Tool, output: Validator | undefined, result: unknown): ToolValue {
  if (result instanceof Uint8Array) {
    if (output === undefined) return result
    const issues = [{ path: '', message: `must be JSON as its output schema says, got ${excerpt(result)}` }]
    throw invalidResult(tool, 'returned bytes', issues)
  }
  if (isContent(result)) return checkContent(tool, output, result)
  const value = result === undefined ? null : result
  const issue = findNotJson(value)
  if (issue !== undefined) throw invalidResult(tool, 'returned something that is not JSON', [issue])
  const issues = output?.validate(value)
  if (issues !== undefined && issues.length > 0) {
    throw invalidResult(tool, 'returned something that its output schema forbids', issues)
  }
  return value as ToolValue
}

/** Of several parts the data is what the output schema speaks of. */
function checkContent(tool: Tool, output: Validator | undefined, result: Content): Content {
  for (const [index, { data }] of result.parts.entries()) {
    const issue = data === undefined ? undefined : findNotJson(data)
    if (issue === undefined) continue
    const path = `/parts/${index}/data${issue.path}`
    throw invalidResult(tool, 'returned something that is not JSON', [{ ...issue, path }])
  }
  if (output === undefined) return result
  const data = result.parts.find((part) => part.data !== undefined)?.data
  const issues = output.validate(data ?? null)
  if (issues.length > 0) throw invalidResult(tool, 'returned something that its output schema forbids', issues)
  return result
}

function invalidResult(tool: Tool, what: string, issues: readonly Issue[]): ConvokeError {
  return new ConvokeError('invalid_result', `The tool "${tool.name}" ${what}: ${describeIssues(issues)}`, { issues })
}

/** Failures of calls that tools made themselves. */
const inner = new WeakSet<object>()

/** Remembers that a failure is that of a call which a tool made, for when the tool lets it through. */
export function noteInner(error: unknown): void {
  if (typeof error === 'object' && error !== null) inner.add(error)
}

/** What these say is about the inner call; a caller of the tool would look for the mistake in its own. */
const aboutTheCall: ReadonlySet<ErrorCode> = new Set([
  'invalid_params',
  'invalid_request',
  'not_found',
  'unsupported_operation',
])

/** Whatever a tool threw, as the ConvokeError that its caller gets. */
function toFailure(tool: Tool, thrown: unknown, context: ToolContext): ConvokeError {
  const ours = asConvokeError(thrown)
  if (ours !== undefined) {
    if (!inner.has(thrown as object) || !aboutTheCall.has(ours.code)) return ours
    return new ToolFailure(clip(`A call inside of the tool "${tool.name}" failed: ${ours.message}`, 4000), thrown)
  }
  // Node's own APIs throw an AbortError of their own when the signal they were given aborts.
  const { signal } = context
  if (signal.aborted && (thrown === signal.reason || isAbortError(thrown))) return abortReason(signal)
  return new ToolFailure(clip(sentenceOf(tool, thrown), 4000), thrown)
}

function isAbortError(thrown: unknown): boolean {
  return thrown instanceof Error && thrown.name === 'AbortError'
}

function sentenceOf(tool: Tool, thrown: unknown): string {
  if (typeof thrown === 'string' && thrown !== '') return thrown
  const message = typeof thrown === 'object' && thrown !== null && 'message' in thrown ? thrown.message : undefined
  if (typeof message === 'string' && message !== '') return message
  const what = thrown instanceof Error ? `${thrown.name} without a message` : excerpt(thrown)
  return `The tool "${tool.name}" threw ${what}.`
}

/**
 * The error if it is a ConvokeError, also of another copy of this package: a tool's module may have been installed
 * with its own.
 */
export function asConvokeError(error: unknown): ConvokeError | undefined {
  if (error instanceof ConvokeError) return error
  if (!(error instanceof Error) || error.name !== 'ConvokeError') return undefined
  const { code, retryable, retryAfterMs, issues } = error as Partial<ConvokeError>
  if (typeof code !== 'string' || !Object.hasOwn(errorCodes, code)) return undefined
  return new ConvokeError(code, error.message, {
    cause: error,
    ...(typeof retryable === 'boolean' ? { retryable } : {}),
    ...(typeof retryAfterMs === 'number' ? { retryAfterMs } : {}),
    ...(Array.isArray(issues) ? { issues: issues as Issue[] } : {}),
  })
}
