/** A model's round of calls: all of them answered, in order, whatever becomes of each. */
import { untilAborted } from '../base/abort.ts'
import { ConvokeError, type ErrorCode, type Issue, type RetryPolicy } from '../base/errors.ts'
import { inTurns } from '../base/in-turns.ts'
import { canonicalJson, cloneJson, type JsonObject } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import type { CallRecord } from './call-history.ts'
import { failure, notBegun, thrownOutcome, toOutcome, type Outcome } from './call-outcome.ts'
import type { ToolCallOptions, ToolResult } from './manager.ts'
import { readModelCall, type ModelCall } from './model-call.ts'
import { findReferences, type Reference } from './references.ts'
import type { Tool, ToolValue } from './tool.ts'
import { checkMaxChars, defaultMaxChars, toModelText } from './truncate.ts'
import { closest, excerpt } from './value.ts'

/** What a round runs over; a ToolManager is one. */
export interface BatchSpace {
  tryCall(name: string, params?: unknown, options?: ToolCallOptions): Promise<ToolResult>
  /** The tool if it is known. Never asks anybody. */
  get?(name: string): Tool | undefined
  /** The known tools: for the name that was probably meant. */
  list?(): readonly Tool[]
  /** The tools of this moment. A round keeps to them, whatever changes while it runs. */
  snapshot?(): BatchSpace
}

/** Names as models have them, in place of the handles of tools; `ModelNames` is such a table, and so are definitions. */
export interface NameTable {
  /** May throw for a handle that the model does not know. */
  nameOf(handle: string): string
  handleOf(name: string): string | undefined
  /** The params that a model's arguments stand for, where its schemas are not the tools' own. Default: the arguments. */
  argumentsOf?(name: string, args: unknown): JsonObject
}

export interface BatchOptions {
  /** Most calls of a round that are carried out, duplicates counted once: the first ones. A whole number of 1 or more; default 10. */
  readonly limit?: number
  /** How many run at once. A whole number of 1 or more; default 8. */
  readonly concurrency?: number
  /** Longest `content` of an answer, in characters. Default: 20,000. */
  readonly maxChars?: number
  /** Stops the calls under way; the others are not begun. All are answered at once. */
  readonly signal?: AbortSignal
  /** What each call is made with: `caller`, `ask`, `timeoutMs` and the like. */
  readonly callOptions?: Omit<ToolCallOptions, 'signal'>
  /** Turns the names of the model's calls into handles. Default: they are the same. */
  readonly names?: NameTable
  /** The only tools that may be called. Default: all of the space. */
  readonly tools?: readonly Tool[]
  /** The handles of those that the model was forced to call; for `debug`. */
  readonly forced?: readonly string[]
  /** Each answered call is pushed to it: a CallHistory, or an array. */
  readonly history?: { push(record: CallRecord): unknown }
  readonly log?: Logger
  /** Hears of each call once, when it begins; of one that is not carried out when it is answered. A promise is waited for. */
  readonly onCall?: (call: BegunCall) => Promise<void> | undefined
  /** Hears each answer once, as soon as it is there. A promise is waited for. */
  readonly onAnswer?: (answer: CallAnswer) => Promise<void> | undefined
}

export type BegunCall = Pick<CallAnswer, 'id' | 'name' | 'tool'>

/** What a model is told of one of its calls, and what those around it want to know. */
export interface CallAnswer {
  /** The call's own id; `call_N`, N its place in the round, where it had none. */
  readonly id: string
  /** As the model named the tool; the empty text where it named none. */
  readonly name: string
  /** The handle of the tool. */
  readonly tool: string
  readonly success: boolean
  /** For the model: the result as text, or `{error, error_type, retryable, issues?}` as JSON. Truncated. */
  readonly content: string
  /** The result, whole. */
  readonly data?: ToolValue
  readonly error?: string
  readonly errorType?: ErrorCode
  readonly retry?: RetryPolicy & { readonly retryAfterMs?: number }
  /** What is wrong with the arguments, or the result. */
  readonly issues?: readonly Issue[]
  /** There where the answer is that of an earlier call with the same name and arguments. */
  readonly deduplicated?: true
  /** Whether the tool space was called for this answer. */
  readonly executed: boolean
  readonly references: readonly Reference[]
  readonly debug: CallDebug
}

export interface CallDebug {
  readonly is_exclusive: boolean
  readonly is_forced: boolean
  readonly is_sub_agent?: true
  readonly is_mcp?: true
  /** In seconds, three decimals. */
  readonly execution_time_s: number
}

export interface BatchResult {
  /** One for each call, in the order of the calls. */
  readonly answers: readonly CallAnswer[]
  /** Sentences on what of the round was left out. */
  readonly warnings: readonly string[]
  /** The `evaluationChecks` of the executed tools, each once. */
  readonly evaluationChecks: readonly string[]
  /** Those of all answers, each once. */
  readonly references: readonly Reference[]
}

interface Planned {
  readonly id: string
  readonly name: string
  readonly handle: string
  readonly params: JsonObject
  tool: Tool | undefined
  /** The call whose answer is this one's too. */
  readonly original: Planned | undefined
  outcome: Outcome | undefined
  executed: boolean
  seconds: number
}

/**
 * Carries out a model's round of calls and answers each, in their order.
 *
 * - Calls of the same tool with the same arguments, whatever the order of their keys, run once; each id is answered.
 * - Of what is left the first `limit` run; the others are answered with the reason.
 * - A tool with the trait `takeControl` runs when it is the only call of its round; with others beside it nothing runs,
 *   and each is answered with what to do.
 * - What cannot be called, fails, throws or answers in a wrong shape is answered with the reason, validation issues included.
 *
 * Rejects only with `config`, for options that are wrong; never for what a model or a tool does.
 */
export async function executeBatch(
  space: BatchSpace,
  calls: readonly (ModelCall | null | undefined)[],
  options: BatchOptions = {},
): Promise<BatchResult> {
  const { limit = 10, concurrency = 8, maxChars = defaultMaxChars } = options
  checkCount('limit', limit)
  checkCount('concurrency', concurrency)
  checkMaxChars(maxChars)
  return await new Round(space, calls, { ...options, limit, concurrency, maxChars }).run()
}

/** Throws `config` unless the value is a whole number of 1 or more. */
function checkCount(name: string, value: unknown): void {
  if (Number.isSafeInteger(value) && Number(value) >= 1) return
  throw new ConvokeError('config', `\`${name}\` must be a whole number of 1 or more, got ${excerpt(value)}.`)
}

type Settings = BatchOptions & Required<Pick<BatchOptions, 'limit' | 'concurrency' | 'maxChars'>>

class Round {
  readonly #space: BatchSpace
  readonly #listed: () => readonly Tool[]
  /** The tools that may be called, by handle; undefined where all may. */
  readonly #allowed: ReadonlyMap<string, Tool> | undefined
  readonly #settings: Settings
  readonly #log: Logger
  readonly #calls: readonly Planned[]
  readonly #warnings: string[] = []

  constructor(space: BatchSpace, calls: unknown, settings: Settings) {
    this.#space = space.snapshot?.() ?? space
    this.#listed = () => settings.tools ?? this.#space.list?.() ?? space.list?.() ?? []
    const { tools, log = silentLog } = settings
    this.#allowed = tools && new Map(tools.map((tool) => [tool.name, tool]))
    this.#settings = settings
    this.#log = log
    if (Array.isArray(calls)) this.#calls = this.#plan(calls)
    else {
      this.#calls = []
      this.#warn({}, `A round of calls must be an array, got ${calls === null ? 'null' : excerpt(calls)}.`)
    }
  }

  async run(): Promise<BatchResult> {
    const { concurrency, signal } = this.#settings
    this.#refuseTakeover()
    this.#refuseBeyondLimit()
    const open = this.#calls.filter(({ outcome, original }) => outcome === undefined && original === undefined)
    await inTurns(open, concurrency, async (call) => {
      if (signal?.aborted === true) call.outcome = notBegun(signal)
      else await this.#execute(call)
    })
    const answers = this.#calls.map((call) => this.#answer(call))
    await this.#tellOthers(answers)
    this.#record(answers)
    return {
      answers,
      warnings: this.#warnings,
      evaluationChecks: [
        ...new Set(
          this.#calls.flatMap(({ executed, tool }) => (executed ? (tool?.traits.evaluationChecks ?? []) : [])),
        ),
      ],
      references: unique(answers.flatMap(({ references }) => references)),
    }
  }

  #plan(calls: readonly unknown[]): Planned[] {
    const read = calls.map(readModelCall)
    const taken = new Set(read.flatMap(({ id }) => (id === undefined ? [] : [id])))
    const originals = new Map<string, Planned>()
    let duplicates = 0
    const { names } = this.#settings
    const planned = read.map(({ id, name, params: given, problem }, i) => {
      const known = names?.handleOf(name)
      const handle = known ?? name
      const isOurs = known === undefined || problem !== undefined
      const params = isOurs ? given : (names?.argumentsOf?.(name, given) ?? given)
      const tool = name === '' ? undefined : this.#find(handle)
      // One tool may go by several names.
      const key = problem === undefined ? `${tool?.name ?? handle}\n${canonicalJson(params)}` : undefined
      const original = key === undefined ? undefined : originals.get(key)
      if (original !== undefined) duplicates++
      const call: Planned = {
        id: id ?? freeId(i + 1, taken),
        name,
        handle,
        params,
        tool,
        original,
        outcome: problem && failure('invalid_params', problem.message, problem.issues),
        executed: false,
        seconds: 0,
      }
      if (key !== undefined && original === undefined) originals.set(key, call)
      if (call.outcome === undefined && this.#allowed !== undefined && call.tool === undefined)
        call.outcome = failure('not_found', this.#missing(call))
      return call
    })
    if (duplicates > 0) {
      const what = duplicates === 1 ? '1 call repeats another' : `${duplicates} calls repeat others`
      this.#warn(
        { duplicates },
        `${what} of the round, by name and arguments; the tool is called once for all of them.`,
      )
    }
    return planned
  }

  #find(handle: string): Tool | undefined {
    if (this.#allowed !== undefined) return this.#allowed.get(handle)
    try {
      return this.#space.get?.(handle)
    } catch {
      // Whether there is such a tool the call itself will say.
      return undefined
    }
  }

  #refuseTakeover(): void {
    const calls = this.#calls.filter(({ original }) => original === undefined)
    const taker = calls.find(({ tool }) => tool?.traits.takeControl === true)
    if (taker === undefined || calls.length === 1) return
    for (const call of calls) {
      const takes = call.tool?.traits.takeControl === true
      const advice = takes
        ? `the tool "${call.name}" takes control and cannot run beside other calls. Call it alone, after the others.`
        : `the tool "${taker.name}" of the same round takes control and stood in the way. Make this call again without it, and call "${taker.name}" alone afterwards.`
      call.outcome = failure('conflict', `Not executed: ${advice}`)
    }
    this.#warn(
      { tool: taker.handle, calls: calls.length },
      `The tool "${taker.name}" takes control and was called beside others; nothing of the round was executed.`,
    )
  }

  #refuseBeyondLimit(): void {
    const { limit } = this.#settings
    const open = this.#calls.filter(({ outcome, original }) => outcome === undefined && original === undefined)
    const beyond = open.slice(limit)
    if (beyond.length === 0) return
    const advice = `A round may have ${limit} calls, and this one had ${open.length}. Call it again in the next round if it is still needed.`
    for (const call of beyond) call.outcome = failure('rate_limited', `not executed: limit ${limit}. ${advice}`)
    this.#warn(
      { limit, calls: open.length },
      `The round has ${open.length} calls and may have ${limit}; the first ${limit} are executed.`,
    )
  }

  async #execute(call: Planned): Promise<void> {
    const { signal, callOptions, onCall, onAnswer } = this.#settings
    const options: ToolCallOptions = { ...callOptions, ...(signal === undefined ? {} : { signal }) }
    await onCall?.({ id: call.id, name: call.name, tool: call.handle })
    const startedAt = performance.now()
    call.executed = true
    try {
      // The params are the call's own: defaults are merged in.
      const result: unknown = await untilAborted(
        signal,
        // In a function of its own, so that a space that throws at once rejects like any other.
        (async () => await this.#space.tryCall(call.handle, cloneJson(call.params), options))(),
      )
      call.outcome = this.#explained(call, toOutcome(call.name, result))
    } catch (error) {
      call.outcome = thrownOutcome(call.name, error, signal)
      if (call.outcome.errorType === 'tool_failed')
        this.#log.warn({ tool: call.handle, error }, `The call of the tool "${call.name}" threw.`)
    }
    call.seconds = Math.round(performance.now() - startedAt) / 1000
    await onAnswer?.(this.#answer(call))
  }

  /** Of the calls that were answered without being carried out. */
  async #tellOthers(answers: readonly CallAnswer[]): Promise<void> {
    const { onCall, onAnswer } = this.#settings
    for (const answer of answers) {
      if (answer.executed) continue
      await onCall?.({ id: answer.id, name: answer.name, tool: answer.tool })
      await onAnswer?.(answer)
    }
  }

  /** Says of a tool that is not there which one was probably meant; a tool that is there may say `not_found` of other things. */
  #explained(call: Planned, outcome: Outcome): Outcome {
    if (outcome.success || outcome.errorType !== 'not_found') return outcome
    if (call.tool !== undefined || this.#find(call.handle) !== undefined) return outcome
    return { ...outcome, error: this.#missing(call, outcome.error) }
  }

  /** `found` is what the space said of it. */
  #missing({ name, handle }: Planned, found = `There is no tool ${excerpt(name)} here.`): string {
    let known: readonly Tool[] = []
    try {
      known = this.#listed()
    } catch {
      // A name that was probably meant is help, not an answer.
    }
    const meant = suggest(
      handle,
      known.map((tool) => tool.name),
    )
    if (meant === undefined) return found
    // The space may have said so already, in names that the model does not know.
    return `${found.replace(/ Did you mean "[^"]*"\?$/, '')} Did you mean "${this.#known(meant)}"?`
  }

  /** What the model knows a tool by. */
  #known(handle: string): string {
    try {
      return this.#settings.names?.nameOf(handle) ?? handle
    } catch {
      return handle
    }
  }

  #answer(call: Planned): CallAnswer {
    const { original = call } = call
    const outcome = original.outcome ?? failure('internal', 'This call was not answered.')
    const { executed, seconds, tool } = original
    return {
      id: call.id,
      name: call.name,
      tool: call.handle,
      content: this.#content(call, outcome),
      ...outcome,
      ...(original === call ? {} : { deduplicated: true }),
      executed: executed && original === call,
      references: outcome.success ? findReferences(outcome.data) : [],
      debug: {
        is_exclusive: tool?.traits.exclusive === true,
        is_forced: this.#settings.forced?.includes(call.handle) ?? false,
        ...(tool?.kind === 'a2a' ? { is_sub_agent: true } : {}),
        ...(tool?.kind === 'mcp' ? { is_mcp: true } : {}),
        execution_time_s: seconds,
      },
    }
  }

  #content(call: Planned, outcome: Outcome): string {
    const { maxChars } = this.#settings
    if (outcome.success) return toModelText(outcome.data, { maxChars })
    const { error, errorType, retry, issues } = outcome
    const body: JsonObject = { error, error_type: errorType, retryable: retry.retryable === true }
    if (call.name !== '') body['tool'] = call.name
    if (issues !== undefined && issues.length > 0) {
      body['issues'] = issues.flatMap(({ path, message }) =>
        typeof path === 'string' && typeof message === 'string' ? [{ path, message }] : [],
      )
    }
    return toModelText(body, { maxChars })
  }

  #record(answers: readonly CallAnswer[]): void {
    const { history } = this.#settings
    if (history === undefined) return
    const at = Date.now()
    try {
      answers.forEach(({ id, name, tool, success, executed, content, errorType }, i) =>
        history.push({
          id,
          name,
          tool,
          arguments: this.#calls[i]?.params ?? {},
          success,
          executed,
          content,
          ...(errorType === undefined ? {} : { errorType }),
          at,
        }),
      )
    } catch (error) {
      // The answers are worth more than their record.
      this.#log.error({ error }, 'The calls of a round could not be added to the history.')
    }
  }

  #warn(details: object, message: string): void {
    this.#warnings.push(message)
    this.#log.warn(details, message)
  }
}

function freeId(position: number, taken: Set<string>): string {
  let id = `call_${position}`
  while (taken.has(id)) id += '_'
  taken.add(id)
  return id
}

/** The handle that was probably meant: the same name at some service, or one that is spelt much like it. */
function suggest(handle: string, known: readonly string[]): string | undefined {
  const bare = handle.slice(handle.indexOf('.') + 1)
  const elsewhere = known.find((name) => name.slice(name.indexOf('.') + 1) === bare)
  if (elsewhere !== undefined) return elsewhere
  const initial = handle.charAt(0).toLowerCase()
  // Of very many only some are compared; a first letter is seldom what is wrong.
  return closest(handle, known.length <= 200 ? known : known.filter((name) => name.charAt(0).toLowerCase() === initial))
}

function unique(references: readonly Reference[]): Reference[] {
  return [...new Map(references.map((reference) => [canonicalJson(reference), reference])).values()]
}
