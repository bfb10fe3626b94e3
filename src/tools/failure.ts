/** Whatever a tool throws, as the failure that its caller gets. */
import { abortReason } from '../base/abort.ts'
import { ConvokeError, errorCodes, type ErrorCode, type Issue } from '../base/errors.ts'
import type { Tool, ToolContext } from './tool.ts'
import { clip, excerpt } from './value.ts'

/** A `tool_failed` made of something that a tool threw. `thrown` is just that, for those who call it in-process. */
export class ToolFailure extends ConvokeError {
  readonly thrown: unknown

  constructor(message: string, thrown: unknown) {
    super('tool_failed', message, { cause: thrown })
    this.thrown = thrown
  }
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
export function toFailure(tool: Tool, thrown: unknown, context: ToolContext): ConvokeError {
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
