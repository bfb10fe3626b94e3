/** A planner says what to do next, and a loop does it: steps that call tools, until one is the reply. */
import { abortReason, onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { canonicalJson, cloneJson, isObject, type Json, type JsonObject } from '../base/json.ts'
import { maxTimerMs } from '../base/timer.ts'
import { ValueError } from './local.ts'
import type { CallOptions, ToolValue } from './tool.ts'
import { excerpt, findNotJson } from './value.ts'

export interface ToolStep {
  readonly type: 'tool'
  readonly name: string
  /** Default: `{}`. */
  readonly arguments?: JsonObject
}

/** The end of the plan: an answer, or a question back. */
export interface ReplyStep {
  readonly type: 'reply'
  readonly text?: string
  readonly output?: Json
}

export type PlanStep = ToolStep | ReplyStep

export interface StepMeta {
  readonly latencyMs: number
  /** How often this very call, of the same arguments, was made in this plan until now: 1 the first time. */
  readonly attempts: number
  /** What the tool said that it cost, in whatever unit it counts. */
  readonly cost?: number
  /** Whether the tool said that it had the result at hand. */
  readonly cacheHit?: boolean
}

/**
 * How a step went. A tool that returns `{output, meta}`, with nothing beside it, gives its output and, in `meta`, its
 * `cost` and `cacheHit` (or `cache_hit`). `error` is what the tool threw, as it is.
 */
export type StepOutcome =
  | { readonly success: true; readonly step: ToolStep; readonly output: ToolValue; readonly meta: StepMeta }
  | { readonly success: false; readonly step: ToolStep; readonly error: unknown; readonly meta: StepMeta }

/** What a planner knows. The same object all through a plan, so that a generator sees how its last step went. */
export interface PlanState {
  /** Of all steps so far, oldest first. */
  readonly outcomes: readonly StepOutcome[]
  /** Of the newest step; undefined at the beginning. */
  readonly last: StepOutcome | undefined
  /** Tool steps that may still be taken. */
  readonly stepsLeft: number
  /** Aborts when the plan is stopped, or has ended. */
  readonly signal: AbortSignal
}

/** What a planner may say: a step, several that are taken one after the other, or nothing, which ends the plan. */
export type Planned = PlanStep | readonly PlanStep[] | AsyncIterable<PlanStep> | undefined

/**
 * Says what to do next. It is asked again when what it said is done, and also when a step of a list failed: the rest of
 * the list is left out then, for a new plan. An async iterable is not asked for its next step before the last one is
 * done; the `yield` of an async generator gives the {@link StepOutcome}, and it decides itself what a failure means.
 */
export type Planner = (state: PlanState) => Planned | Promise<Planned>

export interface PlanOptions {
  /** Most tool steps in the whole plan. Default: 32. */
  readonly maxSteps?: number
  /** How long the whole plan may take, in milliseconds. Default: 300,000. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** `tell` the planner, which may plan anew or ask back, or `throw` at once what the tool threw. Default: `tell`. */
  readonly onFailure?: 'tell' | 'throw'
}

export interface PlanResult {
  /** Undefined where the planner ended without one. */
  readonly reply: ReplyStep | undefined
  readonly outcomes: readonly StepOutcome[]
  readonly latencyMs: number
}

/** What the steps are run over: a LocalToolRegistry, whose tools throw what they throw, or any other tool space. */
export interface PlanTools {
  call(name: string, args?: unknown, options?: CallOptions): Promise<ToolValue>
}

const defaultMaxSteps = 32
const defaultTimeoutMs = 300_000

/**
 * Runs a plan to its reply. Rejects with what a tool threw where the planner has no answer to it: it says nothing more
 * after the step that failed. Rejects with `too_large` when the plan wants more steps than it may take, with `timeout`
 * or `canceled` when it is stopped, which stops the tool that runs as well, with ValueError when the planner says what
 * is no step, and with what the planner itself throws.
 */
export async function runPlan(tools: PlanTools, planner: Planner, options: PlanOptions = {}): Promise<PlanResult> {
  const run = new PlanRun(tools, options)
  try {
    const reply = await run.untilReply(planner)
    return { reply, outcomes: run.outcomes, latencyMs: run.latencyMs }
  } finally {
    run.close()
  }
}

class PlanRun implements PlanState {
  readonly outcomes: StepOutcome[] = []
  readonly #tools: PlanTools
  readonly #maxSteps: number
  readonly #throws: boolean
  readonly #startedAt = performance.now()
  readonly #controller = new AbortController()
  readonly #timer: NodeJS.Timeout
  readonly #unlink: () => void
  /** How often each call was made. */
  readonly #attempts = new Map<string, number>()

  constructor(tools: PlanTools, { maxSteps = defaultMaxSteps, timeoutMs = defaultTimeoutMs, ...rest }: PlanOptions) {
    if (!Number.isSafeInteger(maxSteps) || maxSteps < 1)
      throw new ConvokeError(
        'invalid_request',
        `\`maxSteps\` must be a whole number, 1 or more, got ${excerpt(maxSteps)}.`,
      )
    if (!(timeoutMs > 0 && timeoutMs <= maxTimerMs)) {
      const message = `\`timeoutMs\` must be above 0 and up to ${maxTimerMs}, got ${excerpt(timeoutMs)}.`
      throw new ConvokeError('invalid_request', message)
    }
    this.#tools = tools
    this.#maxSteps = maxSteps
    this.#throws = rest.onFailure === 'throw'
    this.#timer = setTimeout(() => {
      this.#controller.abort(new ConvokeError('timeout', `The plan did not end within ${timeoutMs} ms.`))
    }, timeoutMs)
    const { signal } = rest
    this.#unlink = signal === undefined ? () => {} : onAbort(signal, () => this.#controller.abort(abortReason(signal)))
  }

  get last(): StepOutcome | undefined {
    return this.outcomes.at(-1)
  }

  get stepsLeft(): number {
    return this.#maxSteps - this.outcomes.length
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  get latencyMs(): number {
    return performance.now() - this.#startedAt
  }

  async untilReply(planner: Planner): Promise<ReplyStep | undefined> {
    for (;;) {
      const before = this.outcomes.length
      const planned = await this.#orStopped(() => planner(this))
      const reply = isIterable(planned) ? await this.#follow(planned) : await this.#work(planned)
      if (reply !== undefined) return reply
      // Whoever plans nothing more, or streams its steps, has said all it has to say.
      if (this.outcomes.length > before && !isIterable(planned)) continue
      if (this.last?.success === false) throw this.last.error
      return undefined
    }
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#unlink()
    this.#controller.abort(new ConvokeError('canceled', 'The plan has ended.'))
  }

  async #work(planned: PlanStep | readonly PlanStep[] | undefined): Promise<ReplyStep | undefined> {
    const steps: readonly unknown[] = Array.isArray(planned) ? planned : planned === undefined ? [] : [planned]
    for (const given of steps) {
      const step = toStep(given)
      if (step.type === 'reply') return step
      const { success } = await this.#take(step)
      if (!success) return undefined
    }
    return undefined
  }

  async #follow(steps: AsyncIterable<PlanStep>): Promise<ReplyStep | undefined> {
    const iterator = steps[Symbol.asyncIterator]() as AsyncIterator<PlanStep, unknown, StepOutcome | undefined>
    let ended = false
    try {
      for (;;) {
        const next = await this.#orStopped(() => iterator.next(this.last))
        ended = next.done === true
        if (next.done === true) return undefined
        const step = toStep(next.value)
        if (step.type === 'reply') return step
        await this.#take(step)
      }
    } finally {
      const leaving = ended ? undefined : leave(iterator)
      // One that hangs in its `next` would keep its `return` waiting for ever.
      if (this.signal.aborted) leaving?.catch(() => {})
      else if (leaving !== undefined) await this.#orStopped(() => leaving)
    }
  }

  async #take(step: ToolStep): Promise<StepOutcome> {
    if (this.stepsLeft <= 0) {
      const message = `The plan wants more than ${this.#maxSteps} steps; the next would call the tool ${excerpt(step.name)}.`
      throw new ConvokeError('too_large', message)
    }
    const startedAt = performance.now()
    const attempts = this.#countAttempt(step)
    const meta = (): StepMeta => ({ latencyMs: performance.now() - startedAt, attempts })
    let outcome: StepOutcome
    try {
      const result = await this.#orStopped(() =>
        this.#tools.call(step.name, argumentsOf(step), { signal: this.signal }),
      )
      outcome = { success: true, step, ...unwrap(result, meta()) }
    } catch (error) {
      if (this.signal.aborted) throw abortReason(this.signal)
      outcome = { success: false, step, error, meta: meta() }
    }
    this.outcomes.push(outcome)
    if (!outcome.success && this.#throws) throw outcome.error
    return outcome
  }

  #countAttempt({ name, arguments: args = {} }: ToolStep): number {
    // What is no JSON has no canonical text, and is refused by the tool; each such call counts for itself.
    if (findNotJson(args) !== undefined) return 1
    const key = `${name} ${canonicalJson(args)}`
    const attempts = (this.#attempts.get(key) ?? 0) + 1
    this.#attempts.set(key, attempts)
    return attempts
  }

  /** The work's value, unless the plan is stopped first: neither a planner nor a tool may hold it up. */
  async #orStopped<Value>(work: () => Value | Promise<Value>): Promise<Value> {
    if (this.signal.aborted) throw abortReason(this.signal)
    let unlink = (): void => {}
    try {
      return await new Promise<Value>((resolve, reject) => {
        unlink = onAbort(this.signal, () => reject(abortReason(this.signal)))
        Promise.resolve(work()).then(resolve, reject)
      })
    } finally {
      unlink()
    }
  }
}

async function leave(iterator: AsyncIterator<unknown>): Promise<void> {
  await iterator.return?.()
}

function isIterable(planned: Planned | null): planned is AsyncIterable<PlanStep> {
  return typeof planned === 'object' && planned !== null && Symbol.asyncIterator in planned
}

function toStep(step: unknown): PlanStep {
  const type = isObject(step) ? step['type'] : undefined
  if (isObject(step) && (type === 'tool' || type === 'reply')) return step as unknown as PlanStep
  const got = isObject(step) ? `the type ${excerpt(type)}` : excerpt(step)
  throw new ValueError(`A step is { type: "tool", name, arguments } or { type: "reply", text }, got ${got}.`)
}

/** A model may get these wrong, and is told like of any failure. */
function argumentsOf({ name, arguments: args = {} }: ToolStep): JsonObject {
  if (typeof name !== 'string' || name === '')
    throw new ValueError(`The \`name\` of a step must name a tool, got ${excerpt(name)}.`)
  if (!isObject(args)) throw new TypeError(`The \`arguments\` of a step must be an object, got ${excerpt(args)}.`)
  // A tool's defaults are written into its params, and the step is the planner's.
  return cloneJson(args)
}

/** A result in the shape `{output, meta}` is taken apart. */
function unwrap(result: ToolValue, measured: StepMeta): { readonly output: ToolValue; readonly meta: StepMeta } {
  if (!isObject(result) || Object.keys(result).length !== 2 || !('output' in result) || !isObject(result['meta']))
    return { output: result, meta: measured }
  const { output, meta } = result as { output: ToolValue; meta: JsonObject }
  const { cost, cacheHit = meta['cache_hit'] } = meta
  return {
    output,
    meta: {
      ...measured,
      ...(typeof cost === 'number' ? { cost } : {}),
      ...(typeof cacheHit === 'boolean' ? { cacheHit } : {}),
    },
  }
}
