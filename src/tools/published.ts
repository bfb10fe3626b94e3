/** What callers from outside are shown, and may call: the agent's own tools, and those of others that are named for it. */
import { fitsGlob, mayFitService } from '../base/glob.ts'
import { skillPrefix } from '../protocol/extension.ts'
import type { ToolPolicy } from './policy.ts'
import { allows } from './scopes.ts'
import { serviceOf, type ToolTable } from './table.ts'
import type { Caller, Tool } from './tool.ts'

/** A tool under the name that callers from outside know it by: its own, or for others' its alias or handle, with dots. */
export interface PublishedTool {
  readonly name: string
  readonly tool: Tool
}

export interface PublishedOptions {
  /** Over handles; `*` stands for any run of characters, dots too. */
  readonly globs: readonly string[]
  readonly aliases: ReadonlyMap<string, string>
  readonly policy: ToolPolicy | undefined
  /** The tools as they are now. */
  readonly table: () => ToolTable
}

export class Published {
  readonly #options: PublishedOptions
  /** Alias by handle; the first one where there are several. */
  readonly #aliasOf: ReadonlyMap<string, string>
  #of: ToolTable | undefined
  #all: readonly PublishedTool[] = []

  constructor(options: PublishedOptions) {
    this.#options = options
    this.#aliasOf = new Map([...options.aliases].toReversed().map(([alias, handle]) => [handle, alias]))
  }

  /** What callers call it; undefined where it is not published. */
  nameOf(tool: Tool): string | undefined {
    if (serviceOf(tool) === '') return tool.traits.published === false ? undefined : tool.name
    return this.#isNamed(tool.name) ? (this.#aliasOf.get(tool.name) ?? tool.name) : undefined
  }

  list(caller: Caller | undefined): readonly PublishedTool[] {
    const table = this.#options.table()
    if (table !== this.#of) {
      this.#of = table
      this.#all = table.tools.flatMap((tool) => {
        const name = this.nameOf(tool)
        // An alias does not hide a tool of the agent's own.
        return name === undefined || (name !== tool.name && table.has(name)) ? [] : [{ name, tool }]
      })
    }
    const { policy } = this.#options
    if (caller === undefined && policy === undefined) return this.#all
    return this.#all.filter((each) => this.#isFor(each, caller))
  }

  find(
    given: string,
    caller: Caller,
    resolve: (handle: string) => Tool | Promise<Tool>,
  ): PublishedTool | undefined | Promise<PublishedTool | undefined> {
    const found = this.#find(given, caller, resolve)
    if (found !== undefined || !given.startsWith(skillPrefix)) return found
    return this.#find(given.slice(skillPrefix.length), caller, resolve)
  }

  #find(
    name: string,
    caller: Caller,
    resolve: (handle: string) => Tool | Promise<Tool>,
  ): PublishedTool | undefined | Promise<PublishedTool | undefined> {
    const { aliases, table } = this.#options
    const isOwn = table().has(name) && !name.includes('.')
    const handle = isOwn ? name : (aliases.get(name) ?? name)
    // A bare name that callers use is a tool of the agent's own; those of others have their dots, or an alias.
    if (!isOwn && !this.#isNamed(handle)) return undefined
    if (!isOwn && (this.#aliasOf.get(handle) ?? handle) !== name) return undefined
    const admit = (tool: Tool): PublishedTool | undefined => {
      const each = { name, tool }
      return this.nameOf(tool) === name && this.#isFor(each, caller) ? each : undefined
    }
    try {
      const tool = resolve(handle)
      // What cannot be used is not there for a caller from outside; the node's log and health say why.
      return tool instanceof Promise ? tool.then(admit, () => undefined) : admit(tool)
    } catch {
      return undefined
    }
  }

  /** Whether tools of the service may be published. */
  mayHave(service: string): boolean {
    return this.#options.globs.some((glob) => mayFitService(service, glob))
  }

  #isNamed(handle: string): boolean {
    return handle.includes('.') && this.#options.globs.some((glob) => fitsGlob(handle, glob))
  }

  #isFor({ name, tool }: PublishedTool, caller: Caller | undefined): boolean {
    if (caller !== undefined && !allows(caller, `tool:${name}`)) return false
    const { policy } = this.#options
    if (policy === undefined) return true
    return caller === undefined ? policy.visibleToAny(tool) : policy.visible(caller, tool)
  }
}
