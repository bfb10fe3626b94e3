/** The tools that a model has in a round: those of the space that its setup names. */
import type { Logger } from '../base/logger.ts'
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
  readonly names: ModelNames
}

/**
 * Handles and globs over the space as it is now. Tools that are not enabled, and exclusive ones, are left out as {@link Toolbox}
 * says. What no tool fits is told to the log, as its peer or server may come later.
 */
export function modelTools(space: AgentToolSpace, patterns: readonly string[], log: Logger): ModelTools {
  const names = new ModelNames()
  if (patterns.length === 0) return { tools: [], names }
  const { tools, unknown } = selectTools(space.list(), { handles: patterns })
  if (unknown.length > 0) log.warn({ tools: unknown.slice(0, 20) }, 'No tool here fits some that a chat model names.')
  const chosen = new Toolbox(tools, { names, log }).getTools()
  // What the model calls by a name is found by it from now on.
  for (const { name } of chosen) names.nameOf(name)
  return { tools: chosen, names }
}

export function definitionsOf({ tools, names }: ModelTools): OpenAiTool[] {
  return createDefinitions(tools, { for: 'openai', names }).definitions
}

/**
 * What tools want said in words. Those that have no words of their own for the system prompt are left out of it: their
 * definitions say all there is.
 */
export function promptsOf({ tools, names }: ModelTools): ToolPrompts {
  const nameOf = (handle: string): string => names.nameOf(handle)
  const speaking = tools.filter(({ traits }) => traits.prompt !== undefined)
  const { system } = toolPrompts(
    speaking.filter(({ traits }) => traits.prompt?.system !== undefined),
    { nameOf },
  )
  return { ...toolPrompts(speaking, { nameOf }), system }
}

/** The handle of a tool that the model has, by what the model calls it; undefined for any other name. */
export function handleOf({ tools, names }: ModelTools, name: string): string | undefined {
  const handle = names.handleOf(name) ?? name
  return tools.some((tool) => tool.name === handle) ? handle : undefined
}
