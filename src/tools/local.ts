/** The tools of this agent's own: functions in this process. */
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { toolNamePattern } from '../protocol/extension.ts'
import { ToolFailure } from './failure.ts'
import { prepareTool } from './validation.ts'
import { isDefinedTool, toRun, toTraits } from './define.ts'
import { createSpace } from './invoke.ts'
import { describeIssues } from './issues.ts'
import { checkInputSchema, checkSchema } from './schema-check.ts'
import { isToolInstance, toolOfInstance, type ToolBase } from './tool-base.ts'
import type {
  CallOptions,
  Caller,
  JsonSchema,
  Tool,
  ToolContext,
  ToolKind,
  ToolSpace,
  ToolTraits,
  ToolValue,
} from './tool.ts'
import { excerpt } from './value.ts'

/** No tool of that name. */
export class KeyError extends ConvokeError {
  constructor(message: string) {
    super('not_found', message)
  }
}

/** A request of the right shape that asks for something there is not. */
export class ValueError extends ConvokeError {
  constructor(message: string) {
    super('invalid_params', message)
  }
}

/** A tool in the shape of a registry of MCP-style tools. Without a schema it takes any object, and is never published. */
export interface McpStyleTool {
  readonly name: string
  /** Does the work, and may be an async or a generator function. The context brings the stop signal and the like; without a registry there is none. */
  call(args: JsonObject, context?: ToolContext): unknown
  readonly description?: string
  readonly input_schema?: JsonSchema
  /** Default: none. */
  readonly traits?: ToolTraits
}

export interface ToolFilter {
  readonly category?: string
  readonly kind?: ToolKind
  /** Whether they stand on the card. */
  readonly published?: boolean
}

/** What {@link LocalToolRegistry.describe} says of each tool. */
export interface ToolDescription {
  readonly description: string
  readonly input_schema: JsonSchema
}

interface Entry {
  readonly tool: Tool
  readonly description: ToolDescription
  /** Its schemas are compiled. */
  ready: boolean
  /** Why it is disabled. */
  problem: string | undefined
}

/** Who calls when nobody else is named: the process itself. */
export const localCaller: Caller = { id: 'local', scopes: ['*'] }

/** Tools by name. A tool whose schema turns out to be wrong is disabled, with one line in the log; the others are not. */
export class LocalToolRegistry {
  readonly #log: Logger
  readonly #entries = new Map<string, Entry>()
  readonly #listeners = new Set<() => void>()
  readonly #space: ToolSpace
  #revision = 0

  constructor(options: { readonly log?: Logger } = {}) {
    this.#log = options.log ?? silentLog
    this.#space = createSpace({
      resolve: (name) => this.resolve(name),
      caller: localCaller,
      log: this.#log,
      signals: [],
      depth: 0,
    })
  }

  /** Goes up with each change: of two equal ones, what was built from the tools still stands. */
  get revision(): number {
    return this.#revision
  }

  /** Calls the listener after each change, before the call that made it returns. Returns how to take it back. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Adds a tool. A name that is taken throws `config`, unless `replace` says otherwise; a tool of the MCP-style shape
   * replaces by default. Calls under way go on with the tool they began with. Throws TypeError for what is no tool.
   */
  register(tool: Tool | ToolBase | McpStyleTool, options: { readonly replace?: boolean } = {}): void {
    const entry = toEntry(tool)
    const { name } = entry.tool
    const replace = options.replace ?? isMcpStyle(tool)
    if (!replace && this.#entries.has(name)) {
      const message = `There is a tool "${name}" already. Give one of them another name, or register it with { replace: true }.`
      throw new ConvokeError('config', message)
    }
    this.#entries.set(name, entry)
    if (entry.problem !== undefined) this.#logProblem(name, entry.problem)
    this.#changed()
  }

  /** Takes a tool out. Returns whether it was there. Calls under way go on. */
  deregister(name: string): boolean {
    const found = this.#entries.delete(name)
    if (found) this.#changed()
    return found
  }

  /** Whether there is a tool of that name, disabled or not. */
  has(name: string): boolean {
    return this.#entries.has(name)
  }

  /** The tool, unless it is not there or disabled. */
  get(name: string): Tool | undefined {
    const entry = this.#entries.get(name)
    return entry?.problem === undefined ? entry?.tool : undefined
  }

  /**
   * The tool, ready to be called: its schemas are compiled now if they were not. Throws KeyError where there is none,
   * and `not_found` with the reason where it is disabled.
   */
  resolve(name: string): Tool {
    const entry = this.#entries.get(name)
    if (entry === undefined) throw new KeyError(`There is no tool ${excerpt(name)} here.`)
    if (!entry.ready) this.#prepare(entry)
    if (entry.problem === undefined) return entry.tool
    throw new ConvokeError('not_found', `The tool "${name}" is disabled: ${entry.problem}`)
  }

  /** Tools that are not disabled, in the order of registration. */
  list(filter: ToolFilter = {}): Tool[] {
    const tools: Tool[] = []
    for (const { tool, problem } of this.#entries.values()) {
      if (problem !== undefined) continue
      if (filter.category !== undefined && tool.traits.category !== filter.category) continue
      if (filter.kind !== undefined && tool.kind !== filter.kind) continue
      if (filter.published !== undefined && (tool.traits.published ?? true) !== filter.published) continue
      tools.push(tool)
    }
    return tools
  }

  /** The disabled tools, and why. */
  problems(): { name: string; reason: string }[] {
    return [...this.#entries.values()].flatMap(({ tool: { name }, problem }) =>
      problem === undefined ? [] : [{ name, reason: problem }],
    )
  }

  /** `{name: {description, input_schema}}` of all tools that are not disabled. */
  describe(): Record<string, ToolDescription> {
    const usable = [...this.#entries.values()].filter(({ problem }) => problem === undefined)
    // fromEntries defines its members: a tool may be called __proto__.
    return Object.fromEntries(usable.map(({ tool, description }) => [tool.name, description]))
  }

  /**
   * Resolves with the tool's result. What the tool throws comes through as it is; an unknown name is a KeyError. A call
   * that is stopped rejects at once, with `canceled` or `timeout`.
   */
  async call(name: string, args: unknown = {}, options?: CallOptions): Promise<ToolValue> {
    try {
      return await this.#space.call(name, args, options)
    } catch (error) {
      throw error instanceof ToolFailure ? error.thrown : error
    }
  }

  /**
   * Does what a request says: nothing, `'describe'` or `{op: 'describe'}` describes the tools; `{name, arguments}`,
   * with or without `op: 'call'`, calls one. Rejects with ValueError for another `op` or a name that is no name, with
   * TypeError for arguments that are no object and for requests of any other shape.
   */
  async execute(request?: unknown, options?: CallOptions): Promise<ToolValue | Record<string, ToolDescription>> {
    if (request === undefined || request === null || request === 'describe') return this.describe()
    if (!isObject(request)) {
      throw new TypeError(
        `A request must be nothing, "describe", { op } or { name, arguments }, got ${excerpt(request)}.`,
      )
    }
    const { op, name, arguments: args = {} } = request
    if (op === 'describe') return this.describe()
    if (op !== undefined && op !== 'call')
      throw new ValueError(`\`op\` must be "describe" or "call", got ${excerpt(op)}.`)
    if (typeof name !== 'string' || name === '')
      throw new ValueError(`\`name\` must name a tool, got ${excerpt(name)}.`)
    if (!isObject(args)) throw new TypeError(`\`arguments\` must be an object, got ${excerpt(args)}.`)
    return await this.call(name, args, options)
  }

  #prepare(entry: Entry): void {
    entry.ready = true
    if (entry.problem !== undefined) return
    try {
      prepareTool(entry.tool)
    } catch (error) {
      entry.problem = error instanceof Error ? error.message : String(error)
      this.#logProblem(entry.tool.name, entry.problem)
      this.#changed()
    }
  }

  #logProblem(tool: string, reason: string): void {
    this.#log.warn({ tool, reason }, `The tool "${tool}" is disabled: ${reason}`)
  }

  #changed(): void {
    this.#revision++
    for (const listener of this.#listeners) listener()
  }
}

/** Such a tool may have a `run` of its own, which is no tool's: it has no `input`. */
function isMcpStyle(tool: object): boolean {
  return 'call' in tool && !('input' in tool)
}

function toEntry(given: unknown): Entry {
  if (isToolInstance(given)) return toolEntry(toolOfInstance(given))
  if (isObject(given) && typeof given['run'] === 'function' && !isMcpStyle(given))
    return toolEntry(given as unknown as Tool)
  const name = isObject(given) ? given['name'] : undefined
  if (!isObject(given) || typeof name !== 'string' || name === '' || typeof given['call'] !== 'function') {
    throw new TypeError(`A tool needs \`name\` and \`call\`, or to be made by defineTool; got ${excerpt(given)}.`)
  }
  return mcpStyleEntry(given as unknown as McpStyleTool)
}

function toolEntry(tool: Tool): Entry {
  checkName(tool.name)
  const { description, input: input_schema } = tool
  const problem = isDefinedTool(tool) ? undefined : problemOf(tool)
  return { tool, description: { description, input_schema }, ready: false, problem }
}

function mcpStyleEntry(given: McpStyleTool): Entry {
  checkName(given.name)
  const { name, description = '', input_schema = {} } = given
  const traits = given.traits === undefined ? {} : toTraits(name, given.traits)
  const hasSchema = Object.keys(input_schema).length > 0
  const tool: Tool = {
    name,
    description,
    input: hasSchema ? input_schema : { type: 'object' },
    kind: 'custom',
    traits: hasSchema ? traits : { ...traits, published: false },
    run: toRun((args, context) => given.call(args as JsonObject, context)),
  }
  return { tool, description: { description, input_schema }, ready: false, problem: problemOf(tool) }
}

function checkName(name: unknown): void {
  if (typeof name === 'string' && toolNamePattern.test(name)) return
  throw new ConvokeError('config', `A tool's name must be 1 to 64 letters, digits, _ or -, got ${excerpt(name)}.`)
}

function problemOf(tool: Tool): string | undefined {
  const input = checkInputSchema(tool.input)
  if (input.length > 0) return `its input schema is wrong: ${describeIssues(input)}`
  const output = tool.output === undefined ? [] : checkSchema(tool.output)
  return output.length > 0 ? `its output schema is wrong: ${describeIssues(output)}` : undefined
}
