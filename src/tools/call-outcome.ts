/** What became of a call, put in one shape whatever answered or threw. */
import { abortReason } from '../base/abort.ts'
import { errorCodes, type ErrorCode, type Issue, type RetryPolicy } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { Content, isContent } from '../protocol/content.ts'
import { asConvokeError } from './failure.ts'
import type { ToolResult } from './manager.ts'
import type { ToolValue } from './tool.ts'
import { clip, excerpt, findNotJson } from './value.ts'

export interface Failure {
  readonly success: false
  readonly error: string
  readonly errorType: ErrorCode
  readonly retry: RetryPolicy & { readonly retryAfterMs?: number }
  readonly issues?: readonly Issue[]
}

export type Outcome = { readonly success: true; readonly data: ToolValue } | Failure

/** A failure with the preset retry policy of its code. */
export function failure(
  errorType: ErrorCode,
  error: string,
  issues?: readonly Issue[],
  { retryable, retryAfterMs }: { readonly retryable?: boolean; readonly retryAfterMs?: number | undefined } = {},
): Failure {
  const preset = errorCodes[errorType]
  return {
    success: false,
    error,
    errorType,
    retry: {
      ...preset,
      retryable: retryable ?? preset.retryable,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    },
    ...(issues === undefined ? {} : { issues }),
  }
}

/** That of a call that was not begun because its signal had aborted. */
export function notBegun(signal: AbortSignal): Failure {
  const { code, message } = abortReason(signal)
  return failure(code, `Not executed: ${message}`)
}

/** That of a call that threw instead of answering. */
export function thrownOutcome(name: string, error: unknown, signal: AbortSignal | undefined): Failure {
  const known = asConvokeError(error) ?? (signal?.aborted === true ? abortReason(signal) : undefined)
  if (known !== undefined) return failure(known.code, known.message, known.issues, known)
  const said = error instanceof Error && error.message !== '' ? clip(error.message, 4000) : undefined
  return failure('tool_failed', `The tool "${name}" failed${said === undefined ? '.' : `: ${said}`}`)
}

/** What was answered, if it has the shape of a {@link ToolResult}; otherwise a failure that says what is wrong with it. */
export function toOutcome(name: string, result: unknown): Outcome {
  const wrong = (what: string): Failure =>
    failure('invalid_result', `The tool "${name}" answered in a wrong shape: ${what}.`)
  if (!isObject(result)) return wrong(`expected an object { success, … }, got ${excerpt(result)}`)
  if (result['success'] === true) {
    const { data } = result
    if (data instanceof Uint8Array) return { success: true, data }
    const found = isContent(data) ? findWrongPart(data) : findNotJson(data)
    if (found === undefined) return { success: true, data: data as ToolValue }
    return wrong(`the result is no value at "${found.path}": ${found.message}`)
  }
  if (result['success'] !== false) return wrong(`\`success\` must be true or false, got ${excerpt(result['success'])}`)
  const { error, errorType, issues, retry } = result as Partial<Extract<ToolResult, { success: false }>>
  if (typeof error !== 'string') return wrong(`\`error\` must be a text, got ${excerpt(error)}`)
  const code = typeof errorType === 'string' && Object.hasOwn(errorCodes, errorType) ? errorType : 'tool_failed'
  return { ...failure(code, error, Array.isArray(issues) ? issues : undefined), ...(isObject(retry) ? { retry } : {}) }
}

/** What is wrong with Content that may not have been made by its constructor. */
function findWrongPart(content: Content): Issue | undefined {
  try {
    for (const { data } of new Content(content.parts).parts) {
      const notJson = data === undefined ? undefined : findNotJson(data)
      if (notJson !== undefined) return notJson
    }
    return undefined
  } catch (error) {
    return { path: '', message: error instanceof Error ? error.message : String(error) }
  }
}
