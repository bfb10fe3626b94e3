/** The tools of a tool space at one moment. A new one is made when they change; whoever holds on to one keeps it. */
import type { Logger } from '../base/logger.ts'
import type { Pins } from './pins.ts'
import type { ToolSource } from './source.ts'
import type { Tool, ToolKind } from './tool.ts'

export interface ToolFilter {
  readonly category?: string
  readonly kind?: ToolKind
  /** The peer or server; `''` for the agent's own. */
  readonly source?: string
  /** A tag, or the category. */
  readonly tag?: string
  /** Whether callers from outside may name them. */
  readonly published?: boolean
}

export class ToolTable {
  /** Of the sources, when it was made. */
  readonly revision: number
  /** Own ones, those of MCP servers, of peers, of others, and the built-in ones. */
  readonly tools: readonly Tool[]
  /** Handles of those that are kept out until somebody approves their change. */
  readonly quarantined: readonly string[]
  readonly #byHandle = new Map<string, Tool>()
  // Made when first asked for: most calls name handles.
  #byBareName: Map<string, Tool[]> | undefined
  #byService: Map<string, Tool[]> | undefined

  constructor(sources: readonly ToolSource[], revision: number, pins: Pins | undefined, log: Logger) {
    this.revision = revision
    const quarantined: string[] = []
    const all = sources.flatMap((source) => source.list())
    for (const tool of all) {
      if (pins?.check(tool).state === 'quarantined') {
        quarantined.push(tool.name)
      } else if (this.#byHandle.has(tool.name)) {
        log.warn({ tool: tool.name }, `There is a tool "${tool.name}" already; another one of that name is not used.`)
      } else {
        this.#byHandle.set(tool.name, tool)
      }
    }
    // By hand: each comparison of a sort would take two names apart.
    const ranked: Tool[][] = [[], [], [], [], []]
    for (const tool of this.#byHandle.values()) ranked[rankOf(tool)]?.push(tool)
    this.tools = ranked.flat()
    this.quarantined = quarantined
  }

  get names(): readonly string[] {
    return this.tools.map(({ name }) => name)
  }

  has(handle: string): boolean {
    return this.#byHandle.has(handle)
  }

  /** By its handle, or by its bare name where only one has it. */
  get(name: string): Tool | undefined {
    const tool = this.#byHandle.get(name)
    if (tool !== undefined) return tool
    const [only, other] = this.named(name)
    return other === undefined ? only : undefined
  }

  /** The tools of services that a bare name can mean. */
  named(bare: string): readonly Tool[] {
    this.#byBareName ??= grouped(this.tools, ({ name }) => name.slice(name.indexOf('.') + 1))
    return this.#byBareName.get(bare) ?? []
  }

  ofService(service: string): readonly Tool[] {
    this.#byService ??= grouped(this.tools, serviceOf)
    return this.#byService.get(service) ?? []
  }

  list({ category, kind, source, tag }: Omit<ToolFilter, 'published'>): Tool[] {
    const tools = source === undefined ? this.tools : this.ofService(source)
    if (category === undefined && kind === undefined && tag === undefined) return [...tools]
    return tools.filter((tool) => {
      const { traits } = tool
      if (kind !== undefined && tool.kind !== kind) return false
      if (category !== undefined && traits.category !== category) return false
      return tag === undefined || traits.category === tag || traits.tags?.includes(tag) === true
    })
  }
}

/** The service in a handle, `''` for the agent's own. */
export function serviceOf({ name }: Pick<Tool, 'name'>): string {
  const dot = name.indexOf('.')
  return dot > 0 ? name.slice(0, dot) : ''
}

const ranks: Readonly<Record<ToolKind, number>> = { local: 0, mcp: 1, a2a: 2, custom: 3 }
/** What the package brings along. */
const builtinCategories: ReadonlySet<string | undefined> = new Set(['builtin', 'skills'])
const builtinRank = 4

function rankOf(tool: Tool): number {
  return serviceOf(tool) === '' ? (builtinCategories.has(tool.traits.category) ? builtinRank : 0) : ranks[tool.kind]
}

function grouped(tools: readonly Tool[], keyOf: (tool: Tool) => string): Map<string, Tool[]> {
  const groups = new Map<string, Tool[]>()
  for (const tool of tools) {
    const key = keyOf(tool)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [tool])
    else group.push(tool)
  }
  return groups
}
