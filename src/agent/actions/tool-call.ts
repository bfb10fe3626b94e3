/** The built-in action that carries out a round of tool calls. */
import { hash } from 'node:crypto'
import { abortReason } from '../../base/abort.ts'
import { ConvokeError, type ErrorCode, type Issue, type RetryPolicy } from '../../base/errors.ts'
import { fitsGlob } from '../../base/glob.ts'
import { canonicalJson, isObject, type Json } from '../../base/json.ts'
import { Content, isContent } from '../../protocol/content.ts'
import { executeBatch, type BatchSpace, type CallAnswer } from '../../tools/batch.ts'
import { failure, notBegun, thrownOutcome, toOutcome, type Failure, type Outcome } from '../../tools/call-outcome.ts'
import type { ToolCallOptions, ToolResult } from '../../tools/manager.ts'
import type { Tool } from '../../tools/tool.ts'
import { excerpt } from '../../tools/value.ts'
import type { ModelToolCall } from '../chat-model.ts'
import type { Action, AgentToolSpace, RunnerContext } from '../context.ts'
import { type ToolRequestEvent, ToolResponseEvent, type ToolAnswer } from '../events.ts'
import { untilDeadline } from '../model-limits.ts'
import { modelTools, type ModelTools } from '../model-tools.ts'

/**
 * Carries out the calls of a {@link ToolRequestEvent} at the same time, as {@link executeBatch} does, and answers all of them, in their order and
 * under their ids, in one {@link ToolResponseEvent}; what cannot be called or fails is answered with the reason.
 *
 * Each call that is carried out is a step: when the run is resumed, calls that had ended are not made again. Neither is
 * one that was under way, unless its tool is `readOnly` or `idempotent`: it is answered with `worker_lost`, as nobody
 * knows what became of it.
 *
 * Throws the reason of the run's signal, and what keeps the run from going on.
 */
export const toolCallAction: Action = async (event, context) => {
  const { payload, id } = event as ToolRequestEvent
  const { tools: patterns, requestId, deadline, handles = {} } = payload
  const calls = distinct(payload.calls)
  const isOfModel = requestId !== undefined
  const globs = patterns ?? ['*']
  const offered = patterns !== undefined || isOfModel ? modelTools(context.tools, globs, context.log) : undefined
  const away = absent(Object.values(handles), globs, context.tools)
  const limited = untilDeadline(context.signal, deadline)
  const space = new StepSpace(context, limited.signal)
  const about = { requestId: requestId ?? id }
  try {
    const { answers } = await executeBatch(space, calls, {
      log: context.log,
      ...(offered === undefined ? {} : { tools: [...offered.tools, ...away] }),
      ...(offered === undefined || !isOfModel ? {} : { names: withHandles(offered, handles) }),
      ...(deadline === undefined ? {} : { callOptions: { timeoutMs: Math.max(1, deadline - Date.now()) } }),
      onCall: (call) => context.tell({ type: 'tool-call', ...about, callId: call.id, tool: call.tool }),
      onAnswer: (answer) => context.tell({ type: 'tool-result', ...about, callId: answer.id, answer }),
    })
    if (context.signal.aborted) throw abortReason(context.signal)
    space.assertWhole()
    context.sendEvent(toResponse(id, answers, payload.calls))
  } finally {
    limited.end()
  }
}

/**
 * Stand for tools that a model was offered and that nobody knows now, as their peer is away: a call that an earlier attempt has made
 * is answered with what came of it, and of any other the space says why it cannot be made.
 */
function absent(handles: readonly string[], globs: readonly string[], space: AgentToolSpace): Tool[] {
  return handles
    .filter((handle) => space.get(handle) === undefined && globs.some((glob) => fitsGlob(handle, glob)))
    .map((name) => ({
      name,
      description: '',
      input: { type: 'object' },
      traits: {},
      kind: 'custom',
      run: () => {
        throw new ConvokeError('not_found', `There is no tool ${excerpt(name)} here.`)
      },
    }))
}

/** Names that are unknown by now are what they were. */
function withHandles({ names }: ModelTools, handles: Readonly<Record<string, string>>): ModelTools['names'] {
  return {
    nameOf: (handle) => names.nameOf(handle),
    handleOf: (name) => names.handleOf(name) ?? (Object.hasOwn(handles, name) ? handles[name] : undefined),
  }
}

/** Calls by ids of their own, since answers stand under them: the second of an id gets another one. What is no call stays as it is. */
function distinct(given: unknown): readonly ModelToolCall[] {
  // What is no list is told so where the round is carried out.
  if (!Array.isArray(given)) return given as readonly ModelToolCall[]
  const calls = given as readonly ModelToolCall[]
  const idOf = (call: unknown): unknown => (isObject(call) ? call['id'] : undefined)
  const taken = new Set(calls.map(idOf))
  const seen = new Set<string>()
  return calls.map((call) => {
    const id = idOf(call)
    if (typeof id !== 'string' || id === '') return call
    let free = id
    for (let i = 2; seen.has(free); i++) if (!taken.has(`${id}_${i}`)) free = `${id}_${i}`
    seen.add(free)
    taken.add(free)
    return free === id ? call : { ...call, id: free }
  })
}

function toResponse(
  requestId: string,
  answers: readonly CallAnswer[],
  calls: ToolRequestEvent['payload']['calls'],
): ToolResponseEvent {
  // From entries: an id may be any text, `__proto__` too.
  const byId = <Value>(valueOf: (answer: CallAnswer, i: number) => Value): Record<string, Value> =>
    Object.fromEntries(answers.map((answer, i) => [answer.id, valueOf(answer, i)]))
  return new ToolResponseEvent({
    requestId,
    callIds: answers.map(({ id }) => id),
    responses: byId(({ name, success, content, error, errorType }): ToolAnswer => {
      return {
        name,
        success,
        content,
        ...(error === undefined ? {} : { error }),
        ...(errorType === undefined ? {} : { errorType }),
      }
    }),
    success: byId(({ success }) => success),
    errors: Object.fromEntries(
      answers.flatMap(({ id, success, error = '' }): [string, string][] => (success ? [] : [[id, error]])),
    ),
    externalIds: byId(({ id }, i) => {
      const given: unknown = calls[i]?.id
      return typeof given === 'string' ? given : id
    }),
  })
}

/** The tool space of a run, each call a step of it. */
class StepSpace implements BatchSpace {
  readonly #context: RunnerContext
  readonly #signal: AbortSignal
  #broken: ConvokeError | undefined

  constructor(context: RunnerContext, signal: AbortSignal) {
    this.#context = context
    this.#signal = signal
  }

  get(name: string): Tool | undefined {
    return this.#context.tools.get(name)
  }

  list(): readonly Tool[] {
    return this.#context.tools.list()
  }

  /** Throws why steps could not be written down: that ends the run, and is nothing for the model to know. */
  assertWhole(): void {
    if (this.#broken !== undefined) throw this.#broken
  }

  async tryCall(handle: string, params: unknown, options: ToolCallOptions = {}): Promise<ToolResult> {
    if (this.#signal.aborted) return toResult(handle, notBegun(this.#signal))
    const { readOnly, idempotent } = this.get(handle)?.traits ?? {}
    const step = stepOf(handle, params)
    // The same when the run is resumed: what passes the call on makes ids of it.
    const id = this.#context.stableId(step)
    let hasBegun = false
    const call = async (): Promise<Json> => {
      hasBegun = true
      const outcome = await this.#call(handle, params, { ...options, call: { ...options.call, id } })
      // A call that was stopped with the run is no result: whoever resumes the run has to know that it was under way.
      if (!outcome.success && this.#context.signal.aborted) throw abortReason(this.#context.signal)
      return toKept(outcome)
    }
    try {
      const kept = await this.#context.durableExecute(step, call, {
        repeatable: readOnly === true || idempotent === true,
      })
      return toResult(handle, fromKept(kept as unknown as Kept))
    } catch (error) {
      if (!hasBegun && error instanceof ConvokeError && error.code === 'worker_lost') return toResult(handle, lost)
      this.#broken ??= ConvokeError.from(error)
      throw error
    }
  }

  /** Never throws, whatever space it is. */
  async #call(handle: string, params: unknown, options: ToolCallOptions): Promise<Outcome> {
    try {
      return toOutcome(handle, await this.#context.tools.tryCall(handle, params, { ...options, signal: this.#signal }))
    } catch (error) {
      return thrownOutcome(handle, error, this.#signal)
    }
  }
}

/** The same when the run is resumed, and another for each call of a round: equal ones are made once. */
function stepOf(handle: string, params: unknown): string {
  return `${handle}-${hash('sha256', canonicalJson(params)).slice(0, 16)}`
}

const lost: Failure = failure(
  'worker_lost',
  'The process that made this call ended before the result came. Whether the call took effect is not known, and it was not made again. Find out before you repeat it.',
)

/** An outcome as JSON. */
type Kept =
  | { readonly json: Json }
  | { readonly base64: string }
  | { readonly parts: Content['parts'] }
  | {
      readonly error: string
      readonly errorType: ErrorCode
      readonly retry: RetryPolicy
      readonly issues?: readonly Issue[]
    }

function toKept(outcome: Outcome): Json {
  const kept = ((): Kept => {
    if (!outcome.success) {
      const { error, errorType, retry, issues } = outcome
      return { error, errorType, retry, ...(issues === undefined ? {} : { issues }) }
    }
    const { data } = outcome
    if (data instanceof Uint8Array) return { base64: Buffer.from(data).toString('base64') }
    return isContent(data) ? { parts: data.parts } : { json: data }
  })()
  return kept as unknown as Json
}

function fromKept(kept: Kept): Outcome {
  if ('json' in kept) return { success: true, data: kept.json }
  if ('base64' in kept) return { success: true, data: new Uint8Array(Buffer.from(kept.base64, 'base64')) }
  return 'parts' in kept ? { success: true, data: new Content(kept.parts) } : { success: false, ...kept }
}

/** In the batch's own terms. The ids and times of the call are nobody's concern there. */
function toResult(tool: string, outcome: Outcome): ToolResult {
  return { ...outcome, meta: { tool, callId: '', durationMs: 0 } }
}
