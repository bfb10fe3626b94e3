/** The tools of an agent under one roof: by name, called one way wherever they are. */
import { randomUUID } from 'node:crypto'
import { ConvokeError, errorCodes, type ErrorCode, type Issue, type RetryPolicy } from '../base/errors.ts'
import { mayFitService } from '../base/glob.ts'
import { inTurns } from '../base/in-turns.ts'
import type { Json } from '../base/json.ts'
import { silentLog, type Logger } from '../base/logger.ts'
import type { DelegationGuard } from './delegation.ts'
import { asConvokeError } from './failure.ts'
import { invoke, invokeStreaming, whenFound, type Surroundings } from './invoke.ts'
import { localSource } from './local-source.ts'
import { KeyError, localCaller, type LocalToolRegistry } from './local.ts'
import { OpenCalls } from './open-calls.ts'
import { Pipeline, type PipelineOptions } from './pipeline.ts'
import type { Pins } from './pins.ts'
import { Published, type PublishedTool } from './published.ts'
import { ToolSearch } from './search.ts'
import type { SourceStatus, ToolSource } from './source.ts'
import { serviceOf, ToolTable, type ToolFilter } from './table.ts'
import type {
  CallOptions,
  Caller,
  JsonSchema,
  Question,
  Tool,
  ToolContext,
  ToolEvent,
  ToolKind,
  ToolSpace,
  ToolTraits,
  ToolValue,
} from './tool.ts'
import { prepareTool } from './validation.ts'
import { clip, closest, excerpt } from './value.ts'

export interface ToolManagerOptions extends Omit<PipelineOptions, 'log'> {
  /** The agent's own tools. */
  readonly registry?: LocalToolRegistry
  /** Where tools of others come from. The manager closes them. */
  readonly sources?: readonly ToolSource[]
  /** Other names for tools: `{alias: handle}`. An alias that is the name of a tool is not used. */
  readonly aliases?: Readonly<Record<string, string>>
  /** Which tools of others are published: globs over handles. Default: none. */
  readonly publish?: readonly string[]
  /** Remembers what foreign tools were like when they were first seen. Default: nothing does. */
  readonly pins?: Pins
  /** Knows the calls of peers again that come from work of this node. Default: none is known again. */
  readonly guard?: DelegationGuard
  readonly log?: Logger
  /** Who calls when a call does not say. Default: the process itself. */
  readonly caller?: Caller
}

export interface ToolCallOptions extends CallOptions {
  readonly caller?: Caller
  /** Answers the tool's questions. Default: they fail with `unsupported_operation`. */
  readonly ask?: (question: Question) => Promise<Json>
  /** The ids that the tool sees. Default: an id of its own. */
  readonly call?: ToolContext['call']
}

/** How a call went, for those who would rather look than catch. */
export type ToolResult =
  | { readonly success: true; readonly data: ToolValue; readonly meta: ToolResultMeta }
  | {
      readonly success: false
      /** A sentence for the person or model that called. */
      readonly error: string
      readonly errorType: ErrorCode
      readonly retry: RetryPolicy & { readonly retryAfterMs?: number }
      readonly issues?: readonly Issue[]
      readonly meta: ToolResultMeta
    }

export interface ToolResultMeta {
  readonly tool: string
  readonly callId: string
  readonly durationMs: number
}

/** Everything that is known of a tool. */
export interface ToolDetails {
  /** The handle. */
  readonly name: string
  readonly kind: ToolKind
  /** The peer or server that it is of; `''` for the agent's own. */
  readonly source: string
  readonly description: string
  readonly input: JsonSchema
  readonly output?: JsonSchema
  readonly traits: ToolTraits
  /** What callers from outside name it by, where it is published. */
  readonly publishedAs?: string
  readonly aliases: readonly string[]
}

export interface ToolSummary {
  readonly total: number
  readonly byKind: Readonly<Record<ToolKind, number>>
  /** By service, in the order of the sources. */
  readonly bySource: Readonly<Record<string, number>>
  readonly published: number
  /** Handles of tools that have changed since they were first seen, and wait for somebody to approve that. */
  readonly quarantined: readonly string[]
}

export interface SourceHealth extends SourceStatus {
  /** `''` for the agent's own. */
  readonly source: string
  readonly kind: ToolKind
}

/** A tool space as it was at one moment: what a round of calls holds on to while the tools change. */
export interface ToolSnapshot {
  get(name: string): Tool | undefined
  tryCall(name: string, params?: unknown, options?: ToolCallOptions): Promise<ToolResult>
}

export interface DiscoverOptions {
  /** Only sources of these kinds. */
  readonly kinds?: readonly ToolKind[]
  /** Only services whose tools may be published, and those of `named`. Default: false. */
  readonly published?: boolean
  /** Only services whose tools these globs over handles may fit. */
  readonly named?: readonly string[]
  /** Only services that were not looked at, or whose last look failed. Default: false. */
  readonly missing?: boolean
  readonly signal?: AbortSignal
}

const discoveredAtOnce = 10
/** Most candidates that a message names. */
const maxShown = 20

export class ToolManager implements ToolSpace {
  /** What stands around each call, whichever way it comes. */
  readonly pipeline: Pipeline
  readonly #sources: readonly ToolSource[]
  readonly #aliases: ReadonlyMap<string, string>
  readonly #pins: Pins | undefined
  readonly #guard: DelegationGuard | undefined
  readonly #log: Logger
  readonly #caller: Caller
  readonly #published: Published
  readonly #search = new ToolSearch()
  readonly #open = new OpenCalls()
  #table: ToolTable | undefined
  /** The sources of services that were asked for: with a hundred sources to look through, most of a lookup. */
  readonly #homes = new Map<string, ToolSource>()
  /** How often pins have changed. */
  #pinChanges = 0
  #closing: Promise<void> | undefined

  /** Throws `config` where two sources are for the same service. */
  constructor(options: ToolManagerOptions = {}) {
    const { registry, sources = [], aliases = {}, publish = [], pins, guard, log = silentLog, caller } = options
    this.#sources = registry === undefined ? sources : [localSource(registry), ...sources]
    this.#aliases = new Map(Object.entries(aliases))
    this.#pins = pins
    this.#guard = guard
    this.#log = log
    this.#caller = caller ?? localCaller
    this.pipeline = new Pipeline(options)
    this.#published = new Published({
      globs: publish,
      aliases: this.#aliases,
      policy: this.pipeline.policy,
      table: () => this.#now(),
    })
    checkServices(this.#sources)
    // Before anybody else hears of it: the tools are others then.
    pins?.onChange(() => this.#pinChanges++)
  }

  /** Goes up with each change of the tools. */
  get revision(): number {
    let sum = this.#pinChanges
    for (const { revision } of this.#sources) sum += revision
    return sum
  }

  /** Calls the listener after each change of the tools. Returns how to take it back. */
  onChange(listener: () => void): () => void {
    const stops = [...this.#sources, ...(this.#pins === undefined ? [] : [this.#pins])].map((each) =>
      each.onChange(listener),
    )
    return () => {
      for (const stop of stops) stop()
    }
  }

  /**
   * The tools that are known and can be called: the agent's own in the order of registration, then those of MCP servers, of
   * peers and of others; the built-in ones last. Never asks anybody.
   */
  list(filter: ToolFilter = {}): Tool[] {
    const { published, ...rest } = filter
    const tools = this.#now().list(rest)
    if (published === undefined) return tools
    return tools.filter((tool) => (this.#published.nameOf(tool) !== undefined) === published)
  }

  /** A known tool, by its handle, an alias, or its bare name where only one has it. Never asks anybody. */
  get(name: string): Tool | undefined {
    return this.#now().get(this.#handleOf(name))
  }

  /**
   * The tool of a name, ready to be called: the agent's own, one of others by its handle `SERVICE.NAME`, by an alias, or by
   * its bare name where only one has it. A promise where the service must be looked at first. Throws `not_found`, with
   * the candidates where a bare name could mean several; `forbidden` for one that is quarantined.
   */
  resolve(name: string): Tool | Promise<Tool> {
    if (this.#closing !== undefined) throw new ConvokeError('unavailable', 'This tool space is closed.')
    const handle = this.#handleOf(name)
    const dot = handle.indexOf('.')
    if (dot > 0) {
      const service = handle.slice(0, dot)
      const source = this.#sourceOf(service)
      if (source !== undefined) return this.#trusted(source.resolve(service, handle.slice(dot + 1)))
      // The agent's own tools have no dots.
      throw new KeyError(`There is no tool ${excerpt(name)} here: nothing is known by the name ${excerpt(service)}.`)
    }
    const table = this.#now()
    const own = this.#sources.find((each) => each.has(''))
    if (own !== undefined && (table.has(handle) || own.status('').problems?.some((each) => each.name === handle))) {
      return own.resolve('', handle)
    }
    const [only, ...others] = table.named(handle)
    if (only === undefined) throw this.#missing(handle, table)
    if (others.length === 0) return this.resolve(only.name)
    const handles = [only, ...others].slice(0, maxShown).map((tool) => clip(tool.name, 200))
    const more = others.length < maxShown ? '' : ` and ${others.length + 1 - maxShown} more`
    throw new ConvokeError(
      'not_found',
      `Several have a tool ${excerpt(name)}; say which one: ${handles.join(', ')}${more}.`,
    )
  }

  /** Whether one of the sources has a service of that id. */
  knows(service: string): boolean {
    return this.#sourceOf(service) !== undefined
  }

  /** Resolves with the tool's result; rejects with a ConvokeError, at once when the call is stopped. */
  async call(name: string, params?: unknown, options: ToolCallOptions = {}): Promise<ToolValue> {
    return await this.#call(this.resolve(name), name, params, options)
  }

  async #call(tool: Tool | Promise<Tool>, name: string, params: unknown, options: ToolCallOptions): Promise<ToolValue> {
    const around = this.#around(options)
    if (!(tool instanceof Promise)) return await invoke(tool, params, around)
    const found = await whenFound(tool, name, around)
    return await invoke(found.tool, params, found.around)
  }

  /** {@link call} that never throws. */
  async tryCall(name: string, params?: unknown, options: ToolCallOptions = {}): Promise<ToolResult> {
    return await tried(name, options, (tracked) => this.call(name, params, tracked))
  }

  /** Progress and chunks as they come, then one result. Leaving the loop stops the tool; a failure is thrown. */
  async *stream(name: string, params?: unknown, options: ToolCallOptions = {}): AsyncGenerator<ToolEvent, void, void> {
    const { tool, around } = await whenFound(this.resolve(name), name, this.#around(options))
    yield* invokeStreaming(tool, params, around)
  }

  /** The tools as they are now: later changes do not show. A tool that is not among them is looked for as ever. */
  snapshot(): ToolSnapshot {
    const table = this.#now()
    const get = (name: string): Tool | undefined => table.get(this.#handleOf(name))
    const find = (name: string): Tool | Promise<Tool> => {
      const known = get(name)
      if (known === undefined || this.#closing !== undefined) return this.resolve(name)
      prepareTool(known)
      return known
    }
    return {
      get,
      tryCall: (name, params, options = {}) =>
        tried(name, options, async (tracked) => this.#call(find(name), name, params, tracked)),
    }
  }

  /** The schemas of a known tool. Throws `not_found`. */
  schema(name: string): { readonly input: JsonSchema; readonly output?: JsonSchema } {
    const { input, output } = this.#known(name)
    return { input, ...(output === undefined ? {} : { output }) }
  }

  /** Everything that is known of a tool. Throws `not_found`. */
  details(name: string): ToolDetails {
    const tool = this.#known(name)
    const { kind, description, input, output, traits } = tool
    const publishedAs = this.#published.nameOf(tool)
    return {
      name: tool.name,
      kind,
      source: serviceOf(tool),
      description,
      input,
      ...(output === undefined ? {} : { output }),
      traits,
      ...(publishedAs === undefined ? {} : { publishedAs }),
      aliases: [...this.#aliases].flatMap(([alias, handle]) => (handle === tool.name ? [alias] : [])),
    }
  }

  /** How many tools there are. */
  summary(): ToolSummary {
    const table = this.#now()
    const byKind: Record<ToolKind, number> = { local: 0, mcp: 0, a2a: 0, custom: 0 }
    const bySource: [string, number][] = this.#sources.flatMap((source) =>
      source.services().map((service): [string, number] => [service, table.ofService(service).length]),
    )
    for (const { kind } of table.tools) byKind[kind]++
    return {
      total: table.tools.length,
      byKind,
      bySource: Object.fromEntries(bySource),
      published: this.#published.list(undefined).length,
      quarantined: table.quarantined,
    }
  }

  /** What is known of each source, in their order: whether it was looked at, and why that failed. Never asks anybody. */
  health(): SourceHealth[] {
    return this.#sources.flatMap((source) =>
      source.services().map((service) => ({ ...source.status(service), source: service, kind: source.kind })),
    )
  }

  /**
   * The known tools that words fit, the best first. `limit` is 20 unless given. What has changed since the last search is
   * indexed first, in small steps: some 50 µs a tool.
   */
  async search(text: string, { limit = 20 }: { readonly limit?: number } = {}): Promise<Tool[]> {
    const table = this.#now()
    this.#search.update(table.tools, table.revision)
    await this.#search.prepare()
    return this.#search.search(text, { limit }).flatMap(({ name }) => table.get(name) ?? [])
  }

  /**
   * The tools that callers from outside may name, by the names they call them with; with a caller those that are there
   * for it, without one those that are there for anybody.
   */
  published(caller?: Caller): readonly PublishedTool[] {
    return this.#published.list(caller)
  }

  /**
   * What a caller from outside means by a name, ready to be called; undefined where nothing of that name is there for it.
   * A promise where a service must be looked at first.
   */
  findPublished(name: string, caller: Caller): PublishedTool | undefined | Promise<PublishedTool | undefined> {
    return this.#published.find(name, caller, (handle) => this.resolve(handle))
  }

  /**
   * Looks at services now, ten at a time: all, or those of some kinds of sources, or those with tools to publish. Their
   * failures stand in `health()`.
   */
  async discover(options: DiscoverOptions = {}): Promise<void> {
    const { signal, kinds, published = false, named, missing = false } = options
    const isWanted = (service: string): boolean =>
      (!published && named === undefined) ||
      (published && this.#published.mayHave(service)) ||
      (named ?? []).some((glob) => mayFitService(service, glob))
    const wanted = this.#sources
      .filter(({ kind }) => kinds?.includes(kind) ?? true)
      .flatMap((source) => source.services().map((service) => ({ source, service })))
      .filter(({ source, service }) => isWanted(service) && (!missing || source.status(service).state !== 'ok'))
    await inTurns(wanted, discoveredAtOnce, async ({ source, service }) => {
      if (signal?.aborted === true) return
      try {
        await source.discover(service, signal === undefined ? {} : { signal })
      } catch (error) {
        this.#log.debug({ service, error }, 'A service could not be looked at.')
      }
    })
  }

  /** Resolves when no call of a program is under way any more, or after `ms` milliseconds. */
  async drain(ms: number): Promise<void> {
    await this.#open.drain(ms)
  }

  /** Stops the calls under way, ends the sources and what they have opened. What is called afterwards is `unavailable`. The second call waits for the first. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#open.stop(new ConvokeError('canceled', 'The tool space was closed.'))
    await Promise.all(this.#sources.map((source) => source.close()))
    await this.#pins?.close()
    this.#table = undefined
  }

  /** The table as the sources have it now. One that somebody holds on to stays as it was. */
  #now(): ToolTable {
    const { revision } = this
    if (this.#table === undefined || this.#table.revision !== revision) {
      this.#table = new ToolTable(this.#sources, revision, this.#pins, this.#log)
    }
    return this.#table
  }

  /** Asked of each source in turn once; that a source has it still is asked each time. */
  #sourceOf(service: string): ToolSource | undefined {
    const known = this.#homes.get(service)
    if (known?.has(service) === true) return known
    const found = this.#sources.find((each) => each.has(service))
    if (found === undefined) this.#homes.delete(service)
    else this.#homes.set(service, found)
    return found
  }

  /** A tool of that name comes before an alias. */
  #handleOf(name: string): string {
    const handle = this.#aliases.get(name)
    return handle === undefined || this.#now().has(name) ? name : handle
  }

  #trusted(tool: Tool | Promise<Tool>): Tool | Promise<Tool> {
    if (this.#pins === undefined) return tool
    return tool instanceof Promise ? tool.then((found) => this.#trustedNow(found)) : this.#trustedNow(tool)
  }

  #trustedNow(tool: Tool): Tool {
    const verdict = this.#pins?.check(tool)
    if (verdict?.state === 'quarantined') throw new ConvokeError('forbidden', verdict.reason)
    return tool
  }

  #known(name: string): Tool {
    const tool = this.get(name)
    if (tool === undefined) throw this.#missing(name, this.#now())
    return tool
  }

  #missing(name: string, table: ToolTable): KeyError {
    const similar = closest(name, table.names)
    return new KeyError(
      `There is no tool ${excerpt(name)} here.${similar === undefined ? '' : ` Did you mean "${similar}"?`}`,
    )
  }

  #around({ signal, timeoutMs, detach, caller, ask, call }: ToolCallOptions): Surroundings {
    return {
      resolve: (name) => this.resolve(name),
      knows: (service) => this.knows(service),
      pipeline: this.pipeline,
      caller: caller ?? this.#caller,
      log: this.#log,
      ask,
      call,
      signals: signal === undefined ? [] : [signal],
      timeoutMs,
      detach,
      guard: this.#guard,
      open: this.#open,
      depth: 0,
    }
  }
}

function checkServices(sources: readonly ToolSource[]): void {
  const seen = new Set<string>()
  for (const service of sources.flatMap((source) => source.services())) {
    if (seen.has(service)) {
      throw new ConvokeError(
        'config',
        `Two sources have the id "${service}"; a peer and an MCP server need ids of their own.`,
      )
    }
    seen.add(service)
  }
}

/** What {@link ToolManager.tryCall} makes of a call, however it is made. Never rejects. */
export async function tried(
  name: string,
  options: ToolCallOptions,
  work: (options: ToolCallOptions) => Promise<ToolValue>,
): Promise<ToolResult> {
  const startedAt = performance.now()
  const call = options.call ?? { id: randomUUID() }
  const meta = (): ToolResultMeta => ({ tool: name, callId: call.id, durationMs: performance.now() - startedAt })
  try {
    const data = await work({ ...options, call })
    return { success: true, data, meta: meta() }
  } catch (error) {
    const { code, message, retryable, retryAfterMs, issues } = asConvokeError(error) ?? ConvokeError.from(error)
    return {
      success: false,
      error: message,
      errorType: code,
      retry: { ...errorCodes[code], retryable, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) },
      ...(issues === undefined ? {} : { issues }),
      meta: meta(),
    }
  }
}
