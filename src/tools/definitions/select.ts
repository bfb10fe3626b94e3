/** Which tools a model is given: by name, by search, and as many as its budget of tokens allows. */
import { ConvokeError } from '../../base/errors.ts'
import { fitsGlob } from '../../base/glob.ts'
import type { Tool } from '../tool.ts'

export interface ToolSelection {
  /** Handles, and globs over handles in which `*` stands for any run of characters: `files.*`. The most relevant first. */
  readonly handles?: readonly string[]
  /** Words to search by, beside what `handles` names. `find` gives handles, the best first. */
  readonly search?: { readonly text: string; find(text: string): readonly string[] }
}

export interface Selected {
  /** In order of relevance: as `handles` says, then as the search found them. */
  readonly tools: readonly Tool[]
  /** Handles and globs of the selection that no tool fits. */
  readonly unknown: readonly string[]
}

/** The tools that a selection names, each once. Without a selection all of them, in their order. */
export function selectTools(tools: readonly Tool[], selection: ToolSelection | undefined): Selected {
  const byHandle = new Map<string, Tool>()
  for (const tool of tools) if (!byHandle.has(tool.name)) byHandle.set(tool.name, tool)
  if (selection === undefined) return { tools: [...byHandle.values()], unknown: [] }
  const chosen = new Set<Tool>()
  const unknown: string[] = []
  for (const pattern of selection.handles ?? []) {
    const fitting = pattern.includes('*')
      ? [...byHandle.values()].filter(({ name }) => fitsGlob(name, pattern))
      : [byHandle.get(pattern)].filter((tool) => tool !== undefined)
    if (fitting.length === 0) unknown.push(pattern)
    for (const tool of fitting) chosen.add(tool)
  }
  for (const handle of selection.search?.find(selection.search.text) ?? []) {
    // The index may know tools that are not among these.
    const tool = byHandle.get(handle)
    if (tool !== undefined) chosen.add(tool)
  }
  return { tools: [...chosen], unknown }
}

/**
 * How many tokens a model reads a value as, about: its JSON has some four characters a token. The tokenizers of the
 * providers differ, by less than that is off for English; leave room.
 */
export function estimateTokens(value: unknown): number {
  return Math.ceil((JSON.stringify(value) ?? '').length / 4)
}

/**
 * The first of the items that fit in a budget of tokens. One that is too large for what is left is passed over, and the
 * smaller ones behind it may still go in. Throws `config` for a budget below 0.
 */
export function withinBudget<Item>(
  items: readonly Item[],
  maxTokens: number | undefined,
  valueOf: (item: Item) => unknown,
): { kept: Item[]; leftOut: Item[]; tokens: number } {
  if (maxTokens !== undefined && !(maxTokens >= 0))
    throw new ConvokeError('config', `\`maxTokens\` must be a number of 0 or more, got ${maxTokens}.`)
  const kept: Item[] = []
  const leftOut: Item[] = []
  let tokens = 0
  for (const item of items) {
    const cost = estimateTokens(valueOf(item))
    if (tokens + cost > (maxTokens ?? Infinity)) leftOut.push(item)
    else {
      kept.push(item)
      tokens += cost
    }
  }
  return { kept, leftOut, tokens }
}
