/** What a model is told of its tools in words: in the system prompt, beside the user's message, and after a call. */
import type { Tool, ToolTraits } from '../tool.ts'
import { ModelNames } from '../model-names.ts'
import { toParameters, type ParameterSchema } from './parameters.ts'
import { quote } from './words.ts'

export interface ToolPromptOptions {
  /** What the model knows a tool by. Default: what {@link ModelNames} makes of its handle. */
  readonly nameOf?: (handle: string) => string
}

export interface ToolPrompts {
  /** For the system prompt: each tool with when to use it and how to write its params. Empty without tools. */
  readonly system: string
  /** To stand beside the user's message: what tools want said there. Empty when none does. */
  readonly user: string
  /** What to remind the model of, now that these tools were used: a line for each that has a reminder, each tool once. Empty when none has. */
  readonly remind: (used: readonly string[]) => string
}

/** The words for some tools, in their order. They are made from descriptions, traits and params, and the trait `prompt`. */
export function toolPrompts(tools: readonly Tool[], options: ToolPromptOptions = {}): ToolPrompts {
  const names = new ModelNames()
  const nameOf = options.nameOf ?? ((handle: string) => names.nameOf(handle))
  const reminders = new Map(
    tools.flatMap(({ name, traits }): [string, string][] =>
      traits.prompt?.reminder === undefined ? [] : [[name, `${nameOf(name)}: ${traits.prompt.reminder.trim()}`]],
    ),
  )
  const user = tools.flatMap(({ name, traits }) =>
    traits.prompt?.user === undefined ? [] : [`${nameOf(name)}: ${traits.prompt.user.trim()}`],
  )
  return {
    system:
      tools.length === 0 ? '' : ['# Tools', ...tools.map((tool) => sayTool(tool, nameOf(tool.name)))].join('\n\n'),
    user: user.join('\n'),
    remind: (used) => [...new Set(used)].flatMap((handle) => reminders.get(handle) ?? []).join('\n'),
  }
}

function sayTool(tool: Tool, name: string): string {
  const { description, traits } = tool
  const params = toParameters(tool)
  const lines = [`## ${name}`, description.trim(), traits.prompt?.system?.trim() ?? '', sayTraits(traits)]
  lines.push(params.length === 0 ? 'No params.' : `Params:\n${params.map(sayParam).join('\n')}`)
  return lines.filter((line) => line !== '').join('\n')
}

function sayTraits({ readOnly, idempotent, timeoutMs }: ToolTraits): string {
  const words = []
  if (readOnly === true) words.push('Changes nothing.')
  else if (idempotent === true) words.push('A second call with the same params changes nothing more.')
  if (timeoutMs !== undefined) words.push(`Runs for up to ${timeoutMs / 1000} s.`)
  return words.join(' ')
}

function sayParam({ name, type, required, description, default: preset }: ParameterSchema): string {
  const need = required ? 'required' : preset === undefined ? 'optional' : `default ${quote(preset)}`
  const about = description === undefined ? '' : `: ${description.trim().replace(/\s*\n\s*/g, ' ')}`
  return `- \`${name}\` (${type}, ${need})${about}`
}
