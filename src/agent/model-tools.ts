/** The tools that a model has in a round: those of the space that its setup names. */
import { warnOnce, type Logger } from '../base/logger.ts'
import { createDefinitions } from '../tools/definitions.ts'
import { toolPrompts, type ToolPrompts } from '../tools/definitions/prompts.ts'
import { selectTools } from '../tools/definitions/select.ts'
import type { OpenAiTool } from '../tools/definitions/shapes.ts'
import { ModelNames } from '../tools/model-names.ts'
import type { Tool } from '../tools/tool.ts'
import { Toolbox } from '../tools/toolbox.ts'
import type { AgentToolSpace } from './context.ts'

export interface ModelTools {
  /** In the order internal, MCP servers', peers', built in. */
  readonly tools: readonly Tool[]
  /** The same names each time, whatever other tools there are. */
  readonly names: Pick<ModelNames, 'nameOf' | 'handleOf'>
  readonly definitions: readonly OpenAiTool[]
  /**
   * What tools want said in words. Those that have no words of their own for the system prompt are left out of it: their
   * definitions say all there is.
   */
  readonly prompts: ToolPrompts
}

/**
 * Handles and globs over the space as it is now. Tools that are not enabled, and exclusive ones, are left out as {@link Toolbox}
 * says. What no tool fits is told to the log, once, as its peer or server may come later.
 */
export function modelTools(space: AgentToolSpace, patterns: readonly string[], log: Logger): ModelTools {
  if (patterns.length === 0) return (none ??= create([], [], log))
  const listed = space.list()
  const [first] = listed
  if (first === undefined) return create(listed, patterns, log)
  const known = remembered.get(first)?.find((each) => isSame(each.listed, listed) && isSame(each.patterns, patterns))
  if (known !== undefined) return known.made
  const made = create(listed, patterns, log)
  // Whether such a tool is there is asked anew each time.
  if (listed.every(({ traits }) => typeof traits.enabled !== 'function')) {
    const others = remembered.get(first) ?? []
    remembered.set(first, [{ listed: [...listed], patterns: [...patterns], made }, ...others].slice(0, maxRemembered))
  }
  return made
}

/** Of a model without tools. */
let none: ModelTools | undefined

interface Remembered {
  readonly listed: readonly Tool[]
  readonly patterns: readonly string[]
  readonly made: ModelTools
}

/** By the first tool, with which it goes: a round of 300 tools would take a millisecond to define them each time. */
const remembered = new WeakMap<Tool, readonly Remembered[]>()
/** For one first tool. */
const maxRemembered = 8

function isSame(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.length === other.length && one.every((each, i) => each === other[i])
}

function create(listed: readonly Tool[], patterns: readonly string[], log: Logger): ModelTools {
  const { tools: selected, unknown } = selectTools(listed, { handles: patterns })
  // All of none is nothing wrong.
  const missing = unknown.filter((pattern) => pattern !== '*').slice(0, 20)
  if (missing.length > 0) warnOnce(log, { tools: missing }, 'No tool here fits some that a chat model names.')
  const names = new ModelNames()
  const tools = new Toolbox(selected, { names, log }).getTools()
  const nameOf = (handle: string): string => names.nameOf(handle)
  const speaking = tools.filter(({ traits }) => traits.prompt !== undefined)
  const { system } = toolPrompts(
    speaking.filter(({ traits }) => traits.prompt?.system !== undefined),
    { nameOf },
  )
  return {
    tools,
    names,
    definitions: createDefinitions(tools, { for: 'openai', names }).definitions,
    prompts: { ...toolPrompts(speaking, { nameOf }), system },
  }
}

/** The handle of a tool that the model has, by what the model calls it; undefined for any other name. */
export function handleOf({ tools, names }: ModelTools, name: string): string | undefined {
  const handle = names.handleOf(name) ?? name
  return tools.some((tool) => tool.name === handle) ? handle : undefined
}
