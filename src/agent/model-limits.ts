/** What one request to a model may take: read, and held to. */
import { firstOf } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { maxTimerMs } from '../base/timer.ts'
import { excerpt } from '../tools/value.ts'
import type { ModelLimits } from './chat-model.ts'

/** Undefined is without a limit. */
export interface Limits {
  readonly maxRounds: number
  readonly maxToolCalls: number
  readonly maxTokens: number | undefined
  readonly timeoutMs: number | undefined
}

const defaults = { maxRounds: 12, maxToolCalls: 64 } as const
/** The least value of each. */
const least: Readonly<Record<keyof ModelLimits, number>> = { maxRounds: 1, maxToolCalls: 0, maxTokens: 1, timeoutMs: 1 }

/** The limits out of several layers, the first one that says a thing counts. Throws `config` for one that makes no sense. */
export function readLimits(...layers: readonly (ModelLimits | undefined)[]): Limits {
  for (const layer of layers) checkLimits(layer)
  const given = (name: keyof ModelLimits): number | undefined =>
    layers.find((layer) => layer?.[name] !== undefined)?.[name]
  return {
    maxRounds: given('maxRounds') ?? defaults.maxRounds,
    maxToolCalls: given('maxToolCalls') ?? defaults.maxToolCalls,
    maxTokens: given('maxTokens'),
    timeoutMs: given('timeoutMs'),
  }
}

/** Throws `config`. */
export function checkLimits(limits: ModelLimits | undefined): void {
  for (const [name, min] of Object.entries(least)) {
    const value: unknown = limits?.[name as keyof ModelLimits]
    if (value !== undefined) checkCount(`limits.${name}`, value, min)
  }
}

/** Throws `config` unless the value is a whole number of `min` or more. */
export function checkCount(name: string, value: unknown, min: number): void {
  if (Number.isSafeInteger(value) && Number(value) >= min) return
  throw new ConvokeError('config', `\`${name}\` must be a whole number of ${min} or more, got ${excerpt(value)}.`)
}

export function roundLimit({ maxRounds }: Limits): ConvokeError {
  return new ConvokeError(
    'round_limit',
    `The model was asked ${maxRounds} times for one request, as often as it may be, and has not come to an answer. Ask for less at once, or raise \`maxRounds\`.`,
  )
}

export function toolCallLimit({ maxToolCalls }: Limits, wanted: number): ConvokeError {
  return new ConvokeError(
    'tool_call_limit',
    `The model wants to call ${wanted} tools in all for one request and may call ${maxToolCalls}. Ask for less at once, or raise \`maxToolCalls\`.`,
  )
}

export function tokenLimit({ maxTokens }: Limits, used: number): ConvokeError {
  return new ConvokeError(
    'token_limit',
    `One request took ${used} tokens and may take ${maxTokens ?? used}. Ask for less at once, give the model fewer tools, or raise \`maxTokens\`.`,
  )
}

export function timeLimit(timeoutMs: number | undefined): ConvokeError {
  const limit = timeoutMs === undefined ? 'it may' : `the ${timeoutMs} ms that it may`
  return new ConvokeError(
    'time_limit',
    `One request, its tools included, took longer than ${limit}. Ask for less at once, or raise \`timeoutMs\` of the limits.`,
  )
}

/**
 * A signal that aborts with the given one, or with `time_limit` at the deadline (milliseconds since 1970); to be ended when nobody
 * looks at it any more. `timeoutMs` is for the words of the failure.
 */
export function untilDeadline(
  signal: AbortSignal,
  deadline: number | undefined,
  timeoutMs?: number,
): { readonly signal: AbortSignal; end(): void } {
  if (deadline === undefined) return { signal, end() {} }
  const controller = new AbortController()
  const stop = (): void => controller.abort(timeLimit(timeoutMs))
  const leftMs = deadline - Date.now()
  if (leftMs <= 0) stop()
  const timer = leftMs > 0 && leftMs <= maxTimerMs ? setTimeout(stop, leftMs) : undefined
  const first = firstOf(signal, controller.signal)
  return {
    signal: first.signal,
    end() {
      clearTimeout(timer)
      first.end()
    },
  }
}
