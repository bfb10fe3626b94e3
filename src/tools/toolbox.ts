/** The tools that a model has in one run: chosen out of a tool space, offered, forced, and called in rounds. */
import { ConvokeError } from '../base/errors.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import { executeBatch, type BatchOptions, type BatchResult, type BatchSpace, type NameTable } from './batch.ts'
import { createDefinitions } from './definitions.ts'
import { toolPrompts, type ToolPrompts } from './definitions/prompts.ts'
import type { OpenAiTool } from './definitions/shapes.ts'
import { KeyError } from './local.ts'
import type { ModelCall } from './model-call.ts'
import { ModelNames } from './model-names.ts'
import type { Tool } from './tool.ts'
import { closest, excerpt } from './value.ts'

export interface ToolboxOptions {
  /** Handles of the tools that the user chose: the model has only those, and must call them first. Default: none, it has all. */
  readonly toolChoices?: readonly string[]
  /** Handles of tools that this run does without. */
  readonly disabledTools?: readonly string[]
  /** Which tools are built in, and so come last. Default: local ones of the category `builtin`. */
  readonly isBuiltin?: (tool: Tool) => boolean
  /** Names that the model's provider accepts. Default: those of {@link ModelNames}. */
  readonly names?: NameTable
  readonly log?: Logger
}

/** What a run brings: the tool space it works with, and what its user set. */
export interface RunContext extends ToolboxOptions {
  readonly space: BatchSpace & { list(): readonly Tool[] }
}

/** Says to a chat completion which tool it must call. */
export interface ForcedTool {
  readonly type: 'function'
  readonly function: { readonly name: string }
}

/** Most names in a line of the log. */
const maxLogged = 50

/**
 * The tools of one run. Which of the given ones the model has is decided thus:
 *
 * 1. A tool that is not enabled, or that the run has disabled, is out, whatever else is said of it.
 * 2. A capability tool is in.
 * 3. Where the user chose tools, the others are out. Where one of the chosen is exclusive it is the only one (the first,
 *    if several are), beside the capability tools.
 * 4. An exclusive tool that was not chosen is out.
 *
 * They are in the order internal, MCP servers', sub-agents', built in, and in that of the list within each. An internal
 * tool whose name another one has is skipped with a warning; of several others the first counts.
 */
export class Toolbox {
  readonly #names: NameTable
  readonly #log: Logger
  readonly #isBuiltin: (tool: Tool) => boolean
  readonly #choices: Set<string>
  readonly #disabled: ReadonlySet<string>
  readonly #checks = new Set<string>()
  /** All there are by handle, in order. */
  #loaded = new Map<string, Tool>()
  /** Handles of those that are enabled: asked once, when the tool comes in. */
  readonly #enabled = new Set<string>()
  /** Whether the user chose at all. Stays so when the last of the chosen is excluded. */
  #restricted: boolean
  /** Those the model has. */
  #selected: Tool[] = []
  /** Handles of those it must call in this iteration. */
  #forced: Set<string>
  #iteration = 0

  constructor(tools: readonly Tool[], options: ToolboxOptions = {}) {
    const {
      toolChoices = [],
      disabledTools = [],
      isBuiltin = isBuiltinTool,
      names = new ModelNames(),
      log = silentLog,
    } = options
    this.#names = names
    this.#log = log
    this.#isBuiltin = isBuiltin
    this.#choices = new Set(toolChoices)
    this.#disabled = new Set(disabledTools)
    this.#forced = new Set(toolChoices)
    this.#restricted = this.#choices.size > 0
    for (const tool of tools) this.#load(tool)
    this.#sort()
    this.#select()
    const unknown = toolChoices.filter((name) => !this.#loaded.has(name))
    if (unknown.length > 0) {
      const listed = unknown.slice(0, maxLogged).map(excerpt).join(', ')
      log.warn({ count: unknown.length }, `Chosen, but not among the tools of this run: ${listed}.`)
    }
  }

  /** The toolbox of a run that has no chat message behind it: a job, a test, another program. */
  static fromRunContext({ space, ...options }: RunContext): Toolbox {
    return new Toolbox(space.snapshot?.().list?.() ?? space.list(), options)
  }

  /** The tools that the model has. A copy. */
  getTools(): Tool[] {
    return [...this.#selected]
  }

  /** The tool of that handle, if the model has it. */
  getToolByName(name: string): Tool | undefined {
    return this.#selected.find((tool) => tool.name === name)
  }

  /** Adds a tool, which the tool space must be able to call; whether the model gets it is decided as for all. Throws `config` where there is one of its name. */
  addTool(tool: Tool): void {
    if (this.#loaded.has(tool.name))
      throw new ConvokeError('config', `There is a tool ${excerpt(tool.name)} in this run already; exclude it first.`)
    this.#load(tool)
    this.#sort()
    this.#select()
  }

  /** Takes a tool out of this run for good: it is neither offered nor forced nor called any more. Returns whether it was there. */
  excludeTool(name: string): boolean {
    const found = this.#loaded.delete(name)
    this.#enabled.delete(name)
    this.#choices.delete(name)
    this.#forced.delete(name)
    this.#selected = this.#selected.filter((tool) => tool.name !== name)
    return found
  }

  /** The definitions for the model: OpenAI's, or what `create` makes of the tools. */
  getToolDefinitions(): OpenAiTool[]
  getToolDefinitions<Definitions>(create: (tools: readonly Tool[]) => Definitions): Definitions
  getToolDefinitions<Definitions>(create?: (tools: readonly Tool[]) => Definitions): Definitions | OpenAiTool[] {
    if (create !== undefined) return create(this.getTools())
    return createDefinitions(this.#selected, { for: 'openai', names: this.#names }).definitions
  }

  /** What the model is told of its tools in words: in the system prompt, beside the user's message, and after a call. */
  getToolPrompts(): ToolPrompts {
    return toolPrompts(this.#selected, { nameOf: (handle) => this.#names.nameOf(handle) })
  }

  /** What the model must call in this iteration: in the first what the user chose, then only what was added since. */
  getForcedTools(): ForcedTool[] {
    return this.#selected
      .filter(({ name }) => this.#forced.has(name))
      .map((tool) => ({ type: 'function', function: { name: this.#nameOf(tool) } }))
  }

  /**
   * Forces a tool for this iteration, as if the user had chosen it. Throws `not_found` for a tool that is unknown, or that the run
   * has disabled.
   */
  addForcedTool(name: string): void {
    const tool = this.#loaded.get(name)
    if (tool === undefined)
      throw new KeyError(`There is no tool ${excerpt(name)} in this run to force.${this.#hint(name)}`)
    if (!this.#enabled.has(name))
      throw new ConvokeError('not_found', `The tool ${excerpt(name)} is disabled in this run and cannot be forced.`)
    if (this.getToolByName(name) === undefined) {
      const restricted = this.#restricted
      this.#choices.add(name)
      this.#restricted = true
      this.#select()
      if (this.getToolByName(name) === undefined) {
        this.#choices.delete(name)
        this.#restricted = restricted
        throw new ConvokeError('conflict', `The tool ${excerpt(name)} cannot be forced beside an exclusive one.`)
      }
    }
    this.#forced.add(name)
  }

  /** How often the model was asked before: 0 in the first iteration. */
  get iteration(): number {
    return this.#iteration
  }

  /** To be called when the model has answered: nothing is forced any more. */
  nextIteration(): void {
    this.#iteration++
    this.#forced = new Set()
  }

  /**
   * Carries out a round of the model's calls; calls of tools that it does not have are answered as unknown. `space`
   * runs them. See {@link executeBatch}.
   */
  async executeBatch(
    space: BatchSpace,
    calls: readonly (ModelCall | null | undefined)[],
    options: Omit<BatchOptions, 'tools' | 'forced' | 'names'> = {},
  ): Promise<BatchResult> {
    const result = await executeBatch(space, calls, {
      log: this.#log,
      ...options,
      names: this.#names,
      tools: this.getTools(),
      forced: [...this.#forced],
    })
    for (const check of result.evaluationChecks) this.#checks.add(check)
    return result
  }

  /** What the run's answer is to be checked for: the `evaluationChecks` of the tools executed so far, each once. */
  getEvaluationCheckList(): string[] {
    return [...this.#checks]
  }

  logLoadedTools(): void {
    this.#log.info({ count: this.#loaded.size }, `Loaded tools: ${shown([...this.#loaded.values()])}`)
    this.#log.info({ count: this.#selected.length }, `Tools of the model: ${shown(this.#selected)}`)
  }

  #load(tool: Tool): void {
    const { name } = tool
    const other = this.#loaded.get(name)
    // Internal tools give way to those of others.
    const isUsed = other === undefined || (this.#rank(other) === 0 && this.#rank(tool) !== 0)
    if (other !== undefined) {
      const source = sourceNames[this.#rank(isUsed ? tool : other)] ?? ''
      this.#log.warn({ tool: name }, `There are two tools ${excerpt(name)}; the ${source} one is used.`)
    }
    if (!isUsed) return
    this.#loaded.set(name, tool)
    if (this.#isEnabled(tool)) this.#enabled.add(name)
    else this.#enabled.delete(name)
  }

  #sort(): void {
    const ranked = [...this.#loaded].map((entry) => ({ entry, rank: this.#rank(entry[1]) }))
    // Sorting is stable: within a source the order of the list stays.
    this.#loaded = new Map(ranked.sort((a, b) => a.rank - b.rank).map(({ entry }) => entry))
  }

  #rank(tool: Tool): number {
    if (this.#isBuiltin(tool)) return 3
    return tool.kind === 'mcp' ? 1 : tool.kind === 'a2a' ? 2 : 0
  }

  #select(): void {
    const enabled = [...this.#loaded.values()].filter(({ name }) => this.#enabled.has(name))
    const chosen = enabled.filter(({ name }) => this.#choices.has(name))
    const alone = chosen.find(({ traits }) => traits.exclusive === true)
    this.#selected = enabled.filter((tool) => {
      if (tool.traits.capability === true) return true
      if (alone !== undefined) return tool === alone
      return !this.#restricted ? tool.traits.exclusive !== true : this.#choices.has(tool.name)
    })
  }

  #isEnabled({ name, traits: { enabled = true } }: Tool): boolean {
    if (this.#disabled.has(name)) return false
    if (typeof enabled === 'boolean') return enabled
    try {
      return enabled()
    } catch (error) {
      this.#log.warn({ tool: name, error }, `The tool ${excerpt(name)} is not used: its \`enabled\` threw.`)
      return false
    }
  }

  #nameOf(tool: Tool): string {
    return this.#names.nameOf(tool.name)
  }

  #hint(name: string): string {
    const meant = closest(name, [...this.#loaded.keys()])
    return meant === undefined ? '' : ` Did you mean "${meant}"?`
  }
}

const sourceNames = ['internal', 'MCP', "sub-agent's", 'built-in']

function isBuiltinTool({ kind, traits }: Tool): boolean {
  return kind === 'local' && traits.category === 'builtin'
}

function shown(tools: readonly Tool[]): string {
  const names = tools.slice(0, maxLogged).map(({ name }) => name)
  const left = tools.length - names.length
  return (names.join(', ') || 'none') + (left === 0 ? '' : ` and ${left} more`)
}
