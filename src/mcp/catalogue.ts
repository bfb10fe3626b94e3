/** The tools that MCP hosts are shown: their names, in pages, and what changes for whom. */
import { createHash } from 'node:crypto'
import { ProtocolError, ProtocolErrorCode, type Tool as McpTool } from '@modelcontextprotocol/server'
import { ModelNames } from '../tools/model-names.ts'
import type { Caller, Tool } from '../tools/tool.ts'
import { taskToolKinds, toTaskTool, type TaskToolKind } from './task-tools.ts'

/** The tools that callers may be shown, by the names they call them with; these may hold dots. */
export interface PublishedTools {
  list(caller: Caller): readonly PublishedTool[]
  /** Calls the listener whenever what `list` gives may have changed. Returns how to take it back. */
  onChange(listener: () => void): () => void
  /** Resolves when the first look at others' tools is over, or has taken long enough. Never rejects. */
  ready?(signal?: AbortSignal): Promise<void>
}

export interface PublishedTool {
  readonly name: string
  readonly tool: Tool
}

/** Hosts take 64 characters and put a prefix of their own in front. */
const maxNameLength = 45
const pageSize = 500

/** What is known of one caller's tools, as long as no tool changes. */
interface Listing {
  readonly revision: number
  readonly tools: readonly PublishedTool[]
  readonly taskTools: ReadonlyMap<string, TaskToolKind>
  /** Of two equal ones the lists are equal. */
  readonly digest: string
}

export class Catalogue {
  readonly #published: PublishedTools
  readonly #names = new ModelNames({ maxLength: maxNameLength })
  readonly #listings = new WeakMap<Caller, Listing>()
  readonly #digests = new WeakMap<Tool, string>()
  #revision = 0

  constructor(published: PublishedTools) {
    this.#published = published
  }

  /** What was worked out from the tools no longer counts. */
  invalidate(): void {
    this.#revision++
  }

  /** One page of `tools/list`; the tools that follow a task are on the first. Throws -32602 for a cursor that is none. */
  page(caller: Caller, cursor: string | undefined): { tools: McpTool[]; nextCursor?: string } {
    const { tools, taskTools } = this.#listing(caller)
    const from = cursor === undefined ? 0 : beginOf(tools, cursor)
    const page = tools.slice(from, from + pageSize)
    const last = page.at(-1)
    const shown = page.map(({ name, tool }) => toMcpTool(this.#names.nameOf(name), name, tool))
    if (from === 0) shown.push(...[...taskTools].map(([name, kind]) => toTaskTool(name, kind)))
    if (last === undefined || from + page.length >= tools.length) return { tools: shown }
    return { tools: shown, nextCursor: toCursor(from + page.length, last.name) }
  }

  /** The name that A2A callers use; undefined for a name that was never given out. Whether the tool is there is for the call to say. */
  handleOf(caller: Caller, name: string): string | undefined {
    const known = this.#names.handleOf(name)
    if (known !== undefined) return known
    // A host may know its tools from before this process began.
    for (const each of this.#listing(caller).tools) if (this.#names.nameOf(each.name) === name) return each.name
    return undefined
  }

  /** What one of the tools that follow a task does; undefined for any other name. */
  taskTool(caller: Caller, name: string): TaskToolKind | undefined {
    return isTaskToolName(name) ? this.#listing(caller).taskTools.get(name) : undefined
  }

  /** What a tool that follows a task is called for this caller. */
  taskToolName(caller: Caller, kind: TaskToolKind): string {
    for (const [name, each] of this.#listing(caller).taskTools) if (each === kind) return name
    return kind
  }

  /** Whether hosts hold results of the tool against a schema. */
  hasOutput(caller: Caller, handle: string): boolean {
    const found = this.#listing(caller).tools.find(({ name }) => name === handle)
    return found !== undefined && toOutputSchema(found.tool) !== undefined
  }

  /** Changes when the caller's list does. */
  digest(caller: Caller): string {
    return this.#listing(caller).digest
  }

  #listing(caller: Caller): Listing {
    const known = this.#listings.get(caller)
    if (known?.revision === this.#revision) return known
    const tools = this.#published.list(caller)
    const taken = new Set(tools.flatMap(({ name }) => (isTaskToolName(name) ? [name] : [])))
    const taskTools = new Map(taskToolKinds.map((kind) => [freeName(kind, taken), kind]))
    const hash = createHash('sha256')
    for (const { name, tool } of tools) hash.update(name).update(this.#digestOf(tool))
    const listing = { revision: this.#revision, tools, taskTools, digest: hash.digest('base64') }
    this.#listings.set(caller, listing)
    return listing
  }

  /** A source may make its tools anew without a change in what they say. */
  #digestOf(tool: Tool): string {
    let digest = this.#digests.get(tool)
    if (digest === undefined) {
      const { description, input, output, traits } = tool
      const text = JSON.stringify([description, input, output, traits.readOnly, traits.idempotent])
      digest = createHash('sha256').update(text).digest('base64')
      this.#digests.set(tool, digest)
    }
    return digest
  }
}

const ownPrefix = 'convoke_'

function isTaskToolName(name: string): boolean {
  return /^(?:convoke_)*task_/.test(name)
}

function freeName(kind: TaskToolKind, taken: ReadonlySet<string>): string {
  let name: string = kind
  while (taken.has(name)) name = `${ownPrefix}${name}`
  return name
}

function toMcpTool(name: string, handle: string, tool: Tool): McpTool {
  const { description, input, traits } = tool
  const output = toOutputSchema(tool)
  const annotations = {
    ...(traits.readOnly === true ? { readOnlyHint: true } : {}),
    ...(traits.readOnly === true || traits.idempotent === true ? { idempotentHint: true } : {}),
  }
  return {
    name,
    ...(name === handle ? {} : { title: handle }),
    description: description === '' ? `The tool ${handle}.` : description,
    inputSchema: { ...input, type: 'object' },
    ...(output === undefined ? {} : { outputSchema: output }),
    ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
  }
}

/** Structured content is an object; a schema of anything else would promise what cannot come. */
function toOutputSchema({ output }: Tool): NonNullable<McpTool['outputSchema']> | undefined {
  return output !== undefined && output['type'] === 'object' ? { ...output, type: 'object' } : undefined
}

function toCursor(index: number, lastName: string): string {
  return Buffer.from(JSON.stringify([index, lastName])).toString('base64url')
}

/** Behind the tool that the page before ended with, wherever that stands now; if it is gone, where the page would have begun. */
function beginOf(tools: readonly PublishedTool[], cursor: string): number {
  let parsed: unknown
  try {
    parsed = JSON.parse(Buffer.from(cursor.slice(0, 2000), 'base64url').toString())
  } catch {
    parsed = undefined
  }
  const [index, name] = Array.isArray(parsed) ? (parsed as unknown[]) : []
  if (!Number.isSafeInteger(index) || (index as number) < 1 || typeof name !== 'string') {
    throw new ProtocolError(
      ProtocolErrorCode.InvalidParams,
      'cursor must be the nextCursor of the page before. Begin anew without one.',
    )
  }
  const begin = index as number
  if (tools[begin - 1]?.name === name) return begin
  const moved = tools.findIndex((each) => each.name === name)
  return moved === -1 ? Math.min(begin, tools.length) : moved + 1
}
