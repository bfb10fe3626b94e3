/** `defineTool`: a tool as its author writes it, checked and made into a {@link Tool}. */
import { ConvokeError } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { maxTimerMs } from '../base/timer.ts'
import type { Content } from '../protocol/content.ts'
import { toolNamePattern } from '../protocol/extension.ts'
import { blockingRun, type Blocking } from './blocking.ts'
import type { ParamsOf, ResultOf, SchemaSource } from './infer.ts'
import { describeIssues } from './issues.ts'
import { checkInputSchema, checkSchema } from './schema-check.ts'
import { isStandardSchema, jsonSchemaOf, refineWith, type Side, type StandardSchema } from './standard.ts'
import type { Chunk, JsonSchema, Tool, ToolContext, ToolTraits, ToolValue } from './tool.ts'
import { closest, excerpt } from './value.ts'

/** What `run` may be: a plain function, an async one, a generator or an async generator. */
export type RunResult<Result> =
  | Result
  | Promise<Result>
  | Generator<unknown, Result, void>
  | AsyncGenerator<unknown, Result, void>

interface Definition<Input extends SchemaSource, Output extends SchemaSource | undefined> {
  /** `^[A-Za-z0-9_-]{1,64}$`, in the words of the one who calls: `word_count`. */
  readonly name: string
  /** What it does and when to use it, for people and language models. */
  readonly description: string
  /** A JSON Schema of type object, or a schema of zod, ArkType, Valibot and the like that can say its JSON Schema. */
  readonly input: Input
  /** What the result looks like. Default: any JSON value, or bytes. */
  readonly output?: Output
  readonly traits?: ToolTraits
}

/** A tool that runs here, on the event loop. */
export interface RunDefinition<Input extends SchemaSource, Output extends SchemaSource | undefined> extends Definition<
  Input,
  Output
> {
  /** Does the work. What it yields are chunks, what it returns is the result: JSON values, bytes, or Content. `undefined` becomes null. */
  run(params: ParamsOf<Input>, context: ToolContext): RunResult<ResultOf<Output> | Content>
  readonly blocking?: never
}

/** A tool that would hold up the event loop, and runs in a thread of its own instead. */
export interface BlockingDefinition<
  Input extends SchemaSource,
  Output extends SchemaSource | undefined,
> extends Definition<Input, Output> {
  readonly blocking: Blocking
  readonly run?: never
}

/** Marks what defineTool made; the same symbol in every copy of this package. */
const brand = Symbol.for('convoke.tool')

/** Whether a value was made by {@link defineTool}, by this copy of the package or another. */
export function isDefinedTool(value: unknown): value is Tool {
  return isObject(value) && Reflect.get(value, brand) === true
}

/**
 * Declares a tool. `run` gets params that fit `input`, typed by it, and a context with the stop signal, progress,
 * questions to the caller, the log and the agent's other tools.
 *
 * What `run` throws reaches the caller as `tool_failed` with the error's message, so write that for the caller; a
 * thrown ConvokeError keeps its code. Throws a ConvokeError `config` that says what is wrong with the definition.
 */
export function defineTool<const Input extends SchemaSource, const Output extends SchemaSource | undefined = undefined>(
  definition: RunDefinition<Input, Output> | BlockingDefinition<Input, Output>,
): Tool {
  return createTool(definition)
}

/** {@link defineTool} for what was not written in TypeScript: everything about it is checked. */
export function createTool(definition: unknown): Tool {
  if (!isObject(definition))
    throw wrong(`defineTool needs an object { name, description, input, run }, got ${excerpt(definition)}.`)
  const { name, description, input, output, traits, run, blocking } = definition
  if (typeof name !== 'string' || !toolNamePattern.test(name)) {
    throw wrong(`A tool's \`name\` must be 1 to 64 letters, digits, _ or -, got ${excerpt(name)}.`)
  }
  checkKeys(name, definition, definitionKeys, 'definition')
  if (typeof description !== 'string' || description.trim() === '') {
    throw wrong(
      `The tool "${name}" needs a \`description\`: a sentence on what it does, for those who choose it. Got ${excerpt(description)}.`,
    )
  }
  if (run !== undefined && blocking !== undefined) {
    throw wrong(
      `The tool "${name}" has both \`run\` and \`blocking\`; keep \`run\` for work on the event loop, or \`blocking\` for work in a thread.`,
    )
  }
  if (run === undefined && blocking === undefined) {
    throw wrong(`The tool "${name}" needs \`run\`, a function (params, context), or \`blocking: { module }\`.`)
  }
  if (run !== undefined && typeof run !== 'function') {
    throw wrong(`The \`run\` of the tool "${name}" must be a function (params, context), got ${excerpt(run)}.`)
  }
  if (input === undefined || input === null) {
    throw wrong(
      `The tool "${name}" needs an \`input\` schema; for a tool without params write \`input: { type: 'object', properties: {} }\`.`,
    )
  }
  const inputSchema = toJsonSchema(name, input, 'input')
  const outputSchema = output === undefined ? undefined : toJsonSchema(name, output, 'output')
  const tool: Writable<Tool> & { [brand]: true } = {
    [brand]: true,
    name,
    description,
    input: inputSchema,
    kind: 'local',
    traits: traits === undefined ? noTraits : toTraits(name, traits),
    run: run === undefined ? blockingRun(name, blocking) : toRun(run as UserRun),
  }
  if (outputSchema !== undefined) tool.output = outputSchema
  if (isStandardSchema(input)) tool.refine = (params) => refineWith(input, params)
  if (isStandardSchema(output)) tool.refineResult = (result) => refineWith(output, result)
  return Object.freeze(tool)
}

function wrong(message: string, cause?: unknown): ConvokeError {
  return new ConvokeError('config', message, { cause })
}

type Writable<Type> = { -readonly [Key in keyof Type]: Type[Key] }

const noTraits: ToolTraits = Object.freeze({})

const definitionKeys = ['name', 'description', 'input', 'output', 'traits', 'run', 'blocking']

/** What other libraries call it. */
const otherWords: Readonly<Record<string, string | undefined>> = {
  parameters: 'input',
  params: 'input',
  inputSchema: 'input',
  input_schema: 'input',
  outputSchema: 'output',
  output_schema: 'output',
  execute: 'run',
  handler: 'run',
  call: 'run',
  timeout: 'timeoutMs',
}

function checkKeys(name: string, object: Record<string, unknown>, known: readonly string[], where: string): void {
  for (const key of Object.keys(object)) {
    if (known.includes(key)) continue
    const other = Object.hasOwn(otherWords, key) ? otherWords[key] : undefined
    const meant = other !== undefined && known.includes(other) ? other : closest(key, known)
    const hint = meant === undefined ? `known are ${known.join(', ')}` : `write \`${meant}\``
    throw wrong(`The ${where} of the tool "${name}" has an unknown key ${excerpt(key)}; ${hint}.`)
  }
}

function toJsonSchema(name: string, source: unknown, side: Side): JsonSchema {
  const isStandard = isStandardSchema(source)
  const schema: unknown = isStandard ? standardJsonSchema(name, source, side) : source
  const issues = side === 'input' ? checkInputSchema(schema) : checkSchema(schema)
  if (issues.length > 0) {
    throw new ConvokeError('config', `The ${side} schema of the tool "${name}" is wrong: ${describeIssues(issues)}.`, {
      issues,
    })
  }
  return schema as JsonSchema
}

function standardJsonSchema(name: string, source: StandardSchema, side: Side): JsonSchema {
  try {
    return jsonSchemaOf(source, side)
  } catch (cause) {
    throw wrong(
      `The tool "${name}" cannot be published. ${cause instanceof Error ? cause.message : String(cause)}`,
      cause,
    )
  }
}

const flags = ['readOnly', 'idempotent', 'published', 'exclusive', 'capability', 'takeControl']
const traitKeys = ['category', 'tags', 'timeoutMs', 'concurrency', 'enabled', 'evaluationChecks', 'prompt', ...flags]
const promptKeys = ['system', 'user', 'reminder']

/** The traits as they are kept. Throws `config` for what is none. */
export function toTraits(name: string, traits: unknown): ToolTraits {
  const must = (key: string, what: string, value: unknown): ConvokeError =>
    wrong(`The trait \`${key}\` of the tool "${name}" must be ${what}, got ${excerpt(value)}.`)
  if (!isObject(traits)) throw wrong(`The \`traits\` of the tool "${name}" must be an object, got ${excerpt(traits)}.`)
  checkKeys(name, traits, traitKeys, 'traits')
  const { category, timeoutMs, concurrency, enabled } = traits
  if (category !== undefined && (typeof category !== 'string' || category === ''))
    throw must('category', 'a text', category)
  for (const key of ['tags', 'evaluationChecks']) {
    const texts = traits[key]
    if (
      texts !== undefined &&
      !(Array.isArray(texts) && texts.every((text) => typeof text === 'string' && text !== ''))
    )
      throw must(key, 'an array of texts', texts)
  }
  if (timeoutMs !== undefined && !(typeof timeoutMs === 'number' && timeoutMs > 0 && timeoutMs <= maxTimerMs)) {
    throw must('timeoutMs', `milliseconds above 0 and up to ${maxTimerMs}`, timeoutMs)
  }
  if (concurrency !== undefined && !(Number.isSafeInteger(concurrency) && Number(concurrency) >= 1)) {
    throw must('concurrency', 'an integer of 1 or more', concurrency)
  }
  if (enabled !== undefined && typeof enabled !== 'boolean' && typeof enabled !== 'function')
    throw must('enabled', 'true, false or a function that says so', enabled)
  for (const key of flags) {
    if (traits[key] !== undefined && typeof traits[key] !== 'boolean') throw must(key, 'true or false', traits[key])
  }
  const { prompt, ...others } = traits
  if (prompt === undefined) return Object.freeze(others)
  if (!isObject(prompt)) throw must('prompt', `an object { ${promptKeys.join(', ')} }`, prompt)
  checkKeys(name, prompt, promptKeys, 'trait `prompt`')
  for (const key of promptKeys) {
    const text = prompt[key]
    if (text !== undefined && (typeof text !== 'string' || text.trim() === ''))
      throw must(`prompt.${key}`, 'a text', text)
  }
  return Object.freeze({ ...others, prompt: Object.freeze({ ...prompt }) })
}

type UserRun = (params: unknown, context: ToolContext) => unknown
type Run = Tool['run']

const asyncGeneratorPrototype: unknown = Object.getPrototypeOf(async function* () {})

/** A function of any kind as the generator function that a tool's `run` is. */
export function toRun(run: UserRun): Run {
  // It is what a tool's run is already; a wrapper would cost every chunk a detour.
  if (Object.getPrototypeOf(run) === asyncGeneratorPrototype) return run as Run
  return async function* (params, context) {
    const returned = run(params, context)
    const value: unknown = isThenable(returned) ? await returned : returned
    if (!isGenerator(value)) return value as ToolValue
    let ended = false
    try {
      for (;;) {
        const step = await value.next()
        if (step.done === true) {
          ended = true
          return step.value as ToolValue
        }
        yield step.value as Chunk
      }
    } finally {
      if (!ended) await value.return?.(undefined)
    }
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
}

/** A generator, sync or async. Streams and other iterables are not: what a tool says piece by piece, it yields. */
function isGenerator(
  value: unknown,
): value is Generator<unknown, unknown, void> | AsyncGenerator<unknown, unknown, void> {
  if (typeof value !== 'object' || value === null) return false
  return (
    (Symbol.asyncIterator in value || Symbol.iterator in value) && 'next' in value && typeof value.next === 'function'
  )
}
