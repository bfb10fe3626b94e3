/** The tools that an MCP server was last known to have, and what is known of the looks at it. */
import { ConvokeError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import { prepareTool } from '../tools/validation.ts'
import type { SourceStatus } from '../tools/source.ts'
import type { Tool } from '../tools/tool.ts'
import { clip, closest, excerpt } from '../tools/value.ts'
import type { Listing, McpToolInfo, Problem } from './listing.ts'
import type { ServerSettings } from './server-options.ts'

export interface KnownToolsOptions {
  readonly settings: ServerSettings
  readonly log: Logger
  readonly toTool: (info: McpToolInfo) => Tool
  /** Hears of each change. */
  readonly onChange: () => void
}

interface Entry {
  readonly info: McpToolInfo
  readonly tool: Tool
  /** Its schemas are compiled. */
  isReady: boolean
  /** Why it cannot be used. */
  problem: string | undefined
}

export class KnownTools {
  readonly #options: KnownToolsOptions
  readonly #entries = new Map<string, Entry>()
  #isAttempted = false
  #state: SourceStatus['state'] = 'never'
  #lastDiscovery: number | undefined
  #lastError: ConvokeError | undefined
  #problems: readonly Problem[] = []

  constructor(options: KnownToolsOptions) {
    this.#options = options
  }

  /** A lookup has asked the server, or somebody has told it to: no further lookup does. */
  get isAttempted(): boolean {
    return this.#isAttempted
  }

  get status(): SourceStatus {
    const unready = [...this.#entries].flatMap(([name, { problem }]) =>
      problem === undefined ? [] : [{ name, reason: problem }],
    )
    const problems = [...this.#problems, ...unready]
    return {
      state: this.#state,
      tools: this.list().length,
      ...(this.#lastDiscovery === undefined ? {} : { lastDiscovery: this.#lastDiscovery }),
      ...(this.#lastError === undefined ? {} : { lastError: this.#lastError }),
      ...(problems.length === 0 ? {} : { problems }),
    }
  }

  /** Those that can be used, in the server's order. */
  list(): Tool[] {
    const usable: Tool[] = []
    for (const { tool, problem } of this.#entries.values()) if (problem === undefined) usable.push(tool)
    return usable
  }

  /** The tool with its schemas compiled. Throws `not_found`, with the reason, for one whose schemas cannot be. */
  get(name: string): Tool | undefined {
    const entry = this.#entries.get(name)
    if (entry === undefined) return undefined
    if (!entry.isReady && entry.problem === undefined) this.#prepare(entry)
    if (entry.problem === undefined) return entry.tool
    throw this.#unusable(name, entry.problem)
  }

  /** Why there is no such tool. */
  missing(name: string): ConvokeError {
    const { settings } = this.#options
    const { id } = settings
    const problem = this.#problems.find((each) => each.name === name)
    if (problem !== undefined) return this.#unusable(name, problem.reason)
    const lastError = this.#lastError
    if (lastError !== undefined) {
      const text = `There is no tool ${excerpt(name)} at ${id}, as far as is known: ${id} could not be asked (${lastError.code}).`
      return new ConvokeError('not_found', text, { cause: lastError, retryable: lastError.retryable })
    }
    if (!settings.wants(name)) {
      return new ConvokeError('not_found', `The tool ${excerpt(name)} of ${id} is left out by the configuration.`)
    }
    const similar = closest(name, [...this.#entries.keys()])
    const hint = similar === undefined ? '' : ` Did you mean "${similar}"?`
    return new ConvokeError('not_found', `There is no tool ${excerpt(name)} at ${id}.${hint}`)
  }

  /** The server has told its tools: what it does not tell any more is gone. */
  found({ tools, problems }: Listing): void {
    this.#isAttempted = true
    this.#state = 'ok'
    this.#lastError = undefined
    this.#lastDiscovery = Date.now()
    const told = new Set(this.#problems.map(({ name, reason }) => `${name} ${reason}`))
    for (const problem of problems) if (!told.has(`${problem.name} ${problem.reason}`)) this.#warn(problem)
    this.#problems = problems
    this.#replace(tools)
  }

  /** The server could not be asked. What was known before stays. */
  notFound(error: ConvokeError): void {
    this.#isAttempted = true
    this.#state = 'failed'
    this.#lastError = error
    this.#lastDiscovery = Date.now()
  }

  /** Nothing is known any more, nor that the server was asked. */
  forget(): void {
    this.#isAttempted = false
    this.#state = 'never'
    this.#lastError = undefined
    this.#problems = []
    if (this.#entries.size === 0) return
    this.#entries.clear()
    this.#options.onChange()
  }

  /** Lets go of all tools, and tells nobody: nobody asks any more. */
  drop(): void {
    this.#entries.clear()
  }

  #replace(found: ReadonlyMap<string, McpToolInfo>): void {
    const before = new Map(this.#entries)
    this.#entries.clear()
    let isChanged = before.size !== found.size
    for (const [name, info] of found) {
      const known = before.get(name)
      // The same tool object as long as nothing has changed: its schemas are compiled once.
      const isSame = known?.info.fingerprint === info.fingerprint
      const entry = isSame ? known : { info, tool: this.#options.toTool(info), isReady: false, problem: undefined }
      this.#entries.set(name, entry)
      if (!isSame) isChanged = true
    }
    if (isChanged) this.#options.onChange()
  }

  /** A tool whose schemas cannot be compiled is of no use, and all others are. */
  #prepare(entry: Entry): void {
    try {
      prepareTool(entry.tool)
      entry.isReady = true
    } catch (error) {
      entry.problem = error instanceof Error ? error.message : String(error)
      this.#warn({ name: entry.info.name, reason: entry.problem })
      this.#options.onChange()
    }
  }

  #warn({ name, reason }: Problem): void {
    const tool = `${this.#options.settings.id}.${name}`
    this.#options.log.warn({ tool, reason }, `The tool "${tool}" cannot be used: ${reason}`)
  }

  #unusable(name: string, reason: string): ConvokeError {
    const tool = `${this.#options.settings.id}.${name}`
    return new ConvokeError('not_found', `The tool "${tool}" cannot be used: ${clip(reason, 1_000)}`)
  }
}
