/** Tools as language models and other programs want them defined, and the way back from what they call to a tool here. */
import { ConvokeError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import { fromModelArguments } from './definitions/arguments.ts'
import { bend, type Bent } from './definitions/bend.ts'
import { anthropic, gemini, geminiJsonSchema, langChain, mcp, openAi, openAiStrict } from './definitions/dialects.ts'
import { Document } from './definitions/document.ts'
import { createLangChainTool, parseArguments, type LangChainTool } from './definitions/langchain.ts'
import { estimateTokens, selectTools, withinBudget, type ToolSelection } from './definitions/select.ts'
import type {
  AnthropicTool,
  ChoiceOf,
  DefinitionOf,
  GeminiFunction,
  McpTool,
  ObjectSchema,
  OpenAiResponsesTool,
  OpenAiTool,
  Provider,
} from './definitions/shapes.ts'
import { cut, joinWords } from './definitions/words.ts'
import { ModelNames, type ModelNamesOptions } from './model-names.ts'
import type { Tool, ToolSpace } from './tool.ts'
import { excerpt } from './value.ts'

interface CommonOptions {
  /** Gives the names. Default: one of its own, with the provider's limits; its names are the same each time. */
  readonly names?: Pick<ModelNames, 'nameOf' | 'handleOf'>
  /** Which of the tools, the most relevant first. Default: all, in their order. */
  readonly select?: ToolSelection
  /** How many tokens the definitions may take, as `estimateTokens` counts. Default: no limit. */
  readonly maxTokens?: number
}

interface OpenAiOptions {
  /** Whether schemas are strict where they can be. The model then writes null for what it does not give. Default: false. */
  readonly strict?: boolean
}

interface ProviderOptions {
  readonly openai: OpenAiOptions
  readonly 'openai-responses': OpenAiOptions
  readonly anthropic: unknown
  readonly gemini: {
    /** Gives `parametersJsonSchema`, which says more, in place of `parameters`, which every version takes. Default: false. */
    readonly jsonSchema?: boolean
  }
  readonly mcp: unknown
  readonly langchain: {
    /** Runs the tools: a ToolManager, or `context.tools`. */
    readonly space: Pick<ToolSpace, 'call'>
    /** Whether tools give text alone, or text and value. Default: `content`, text alone. */
    readonly responseFormat?: LangChainTool['responseFormat']
  }
}

/** `for` names the provider. */
export type DefinitionOptions<For extends Provider> = { readonly for: For } & CommonOptions & ProviderOptions[For]

/** Tools as one provider wants them. */
export interface Definitions<For extends Provider> {
  /** What stands in the `tools` of a request. */
  readonly definitions: DefinitionOf[For][]
  /** Handles of tools that the budget had no room for, the most relevant first. */
  readonly leftOut: readonly string[]
  /** Handles and globs of the selection that no tool fits. */
  readonly unknown: readonly string[]
  /** The tools whose schema cannot be strict, and why; empty where none was to be. */
  readonly notStrict: readonly { readonly handle: string; readonly reason: string }[]
  /** How many tokens the definitions take, about. */
  readonly tokens: number
  /** What a tool is called there. Throws `not_found` for a handle that is not among the definitions. */
  readonly nameOf: (handle: string) => string
  /** The handle of a name; undefined for a name that is not among the definitions. */
  readonly handleOf: (name: string) => string | undefined
  /**
   * The params that the arguments of a call stand for: an object, or its JSON. Throws `not_found` for an unknown name,
   * and `invalid_params` for what is no object; whether they fit the tool's schema, the call will tell.
   */
  readonly argumentsOf: (name: string, args: unknown) => JsonObject
  /** What makes the model call this tool. Throws `not_found` for a handle that is not among the definitions. */
  readonly choiceOf: (handle: string) => ChoiceOf[For]
}

/** One tool, defined. */
interface Entry {
  readonly tool: Tool
  readonly name: string
  readonly definition: DefinitionOf[Exclude<Provider, 'gemini'>] | GeminiFunction
  /** Undoes what was done to the schema. */
  readonly restore?: (args: JsonObject) => JsonObject
  readonly notStrict?: string
}

const nameLimits: Readonly<Record<Provider, ModelNamesOptions>> = {
  openai: { maxLength: 64 },
  'openai-responses': { maxLength: 64 },
  anthropic: { maxLength: 64 },
  gemini: { maxLength: 64, letterFirst: true },
  // Hosts put a prefix of their own before it.
  mcp: { maxLength: 45 },
  // Whatever model it is bound to.
  langchain: { maxLength: 64, letterFirst: true },
}

/** OpenAI's limit for the description of a function. */
const maxOpenAiDescription = 1024
/** The others document none; this is ours. */
const maxDescription = 16_384

/**
 * Tools as definitions for `options.for`. What a provider's schemas cannot say is said in words, in the description of the
 * place; nothing of the tools is changed. Definitions are to be read only: schemas are shared with those made before.
 * Throws `config` for options that are wrong.
 */
export function createDefinitions<For extends Provider>(
  tools: readonly Tool[],
  options: DefinitionOptions<For>,
): Definitions<For> {
  const define = definer(options)
  const { names = new ModelNames(nameLimits[options.for]), select, maxTokens } = options
  const selected = selectTools(tools, select)
  const all = selected.tools.map((tool) => define(tool, names.nameOf(tool.name)))
  const { kept, leftOut } =
    maxTokens === undefined ? { kept: all, leftOut: [] } : withinBudget(all, maxTokens, ({ definition }) => definition)
  const byName = new Map(kept.map((entry) => [entry.name, entry]))
  const byHandle = new Map(kept.map((entry) => [entry.tool.name, entry]))
  const definitions = kept.map(({ definition }) => definition)
  const inShape =
    options.for === 'gemini' ? (kept.length === 0 ? [] : [{ functionDeclarations: definitions }]) : definitions
  const nameOf = (handle: string): string => {
    const entry = byHandle.get(handle)
    if (entry !== undefined) return entry.name
    throw new ConvokeError('not_found', `The tool ${excerpt(handle)} is not among the definitions.`)
  }
  return {
    definitions: inShape as DefinitionOf[For][],
    leftOut: leftOut.map(({ tool }) => tool.name),
    unknown: selected.unknown,
    notStrict: kept.flatMap(({ tool, notStrict: reason }) =>
      reason === undefined ? [] : [{ handle: tool.name, reason }],
    ),
    get tokens() {
      return kept.reduce((sum, { definition }) => sum + estimateTokens(definition), 0)
    },
    nameOf,
    handleOf: (name) => byName.get(name)?.tool.name,
    argumentsOf: (name, args) => {
      const entry = byName.get(name)
      if (entry === undefined) throw new ConvokeError('not_found', `No tool was defined by the name ${excerpt(name)}.`)
      const params = parseArguments(name, args)
      return entry.restore === undefined ? params : entry.restore(params)
    },
    choiceOf: (handle) => choices[options.for](nameOf(handle)),
  }
}

const choices: { readonly [For in Provider]: (name: string) => ChoiceOf[For] } = {
  openai: (name) => ({ type: 'function', function: { name } }),
  'openai-responses': (name) => ({ type: 'function', name }),
  anthropic: (name) => ({ type: 'tool', name }),
  gemini: (name) => ({ functionCallingConfig: { mode: 'ANY', allowedFunctionNames: [name] } }),
  // A host calls what it wants; LangChain's models take the name.
  mcp: (name) => name,
  langchain: (name) => name,
}

function definer(options: DefinitionOptions<Provider>): (tool: Tool, name: string) => Entry {
  const given: Record<string, unknown> & { for: Provider } = { ...options }
  if (!Object.hasOwn(nameLimits, given.for)) {
    throw new ConvokeError(
      'config',
      `\`for\` must be one of ${Object.keys(nameLimits).join(', ')}, got ${excerpt(given.for)}.`,
    )
  }
  const isStrict = given['strict'] === true
  if (isStrict && given.for !== 'openai' && given.for !== 'openai-responses')
    throw new ConvokeError('config', `Only definitions for OpenAI can be strict, not those for ${given.for}.`)
  switch (given.for) {
    case 'openai':
      return (tool, name) => openAiEntry(tool, name, isStrict, (called) => ({ type: 'function', function: called }))
    case 'openai-responses':
      // There strict is the default.
      return (tool, name) =>
        openAiEntry(tool, name, isStrict, (called) => ({ type: 'function', strict: false, ...called }))
    case 'anthropic':
      return anthropicEntry
    case 'gemini':
      return (tool, name) => geminiEntry(tool, name, given['jsonSchema'] === true)
    case 'mcp':
      return (tool, name) => ({ tool, name, definition: toMcp(tool, name) })
    case 'langchain': {
      const { space, responseFormat = 'content' } = options as DefinitionOptions<'langchain'>
      if (typeof space?.call !== 'function')
        throw new ConvokeError('config', `Tools for LangChain need a \`space\` that runs them, such as a ToolManager.`)
      return (tool, name) => langChainEntry(tool, name, space, responseFormat)
    }
  }
}

interface Called {
  readonly name: string
  readonly description: string
  readonly parameters: ObjectSchema
  readonly strict?: true
}

function openAiEntry(
  tool: Tool,
  name: string,
  isStrict: boolean,
  shape: (called: Called) => OpenAiTool | OpenAiResponsesTool,
): Entry {
  const description = descriptionOf(tool, maxOpenAiDescription)
  const strict = isStrict ? bend(tool.input, openAiStrict) : undefined
  if (strict !== undefined && strict.unfit === undefined) {
    const definition = shape({ name, description, parameters: schemaOf(strict), strict: true })
    return { tool, name, definition, restore: (args) => fromModelArguments(tool.input, args) }
  }
  const definition = shape({ name, description, parameters: schemaOf(bend(tool.input, openAi)) })
  return { tool, name, definition, ...(strict?.unfit === undefined ? {} : { notStrict: strict.unfit }) }
}

function anthropicEntry(tool: Tool, name: string): Entry {
  const bent = bend(tool.input, anthropic)
  const definition: AnthropicTool = { name, description: descriptionOf(tool), input_schema: schemaOf(bent) }
  return { tool, name, definition, ...restorerOf(tool, bent, anthropic.propertyName) }
}

function geminiEntry(tool: Tool, name: string, isJsonSchema: boolean): Entry {
  const dialect = isJsonSchema ? geminiJsonSchema : gemini
  const bent = bend(tool.input, dialect)
  const schema = schemaOf(bent)
  const back = restorerOf(tool, bent, dialect.propertyName)
  const description = descriptionOf(tool)
  if (isJsonSchema) return { tool, name, definition: { name, description, parametersJsonSchema: schema }, ...back }
  if (schema['properties'] !== undefined)
    return { tool, name, definition: { name, description, parameters: schema }, ...back }
  // Gemini refuses an object without properties at the root; what is said of it goes with the function.
  const about = typeof schema['description'] === 'string' ? schema['description'] : undefined
  return {
    tool,
    name,
    definition: { name, description: cut(joinWords([description, about]), maxDescription) },
    ...back,
  }
}

function langChainEntry(
  tool: Tool,
  name: string,
  space: Pick<ToolSpace, 'call'>,
  responseFormat: LangChainTool['responseFormat'],
): Entry {
  const bent = bend(tool.input, langChain)
  const back = restorerOf(tool, bent, langChain.propertyName)
  const definition = createLangChainTool({
    name,
    // It may be bound to a model of OpenAI.
    description: descriptionOf(tool, maxOpenAiDescription),
    schema: schemaOf(bent),
    responseFormat,
    run: (args, options) => space.call(tool.name, back.restore?.(args) ?? args, options),
  })
  return { tool, name, definition, ...back }
}

function restorerOf(tool: Tool, { renamed }: Bent, propertyName: RegExp | undefined): Pick<Entry, 'restore'> {
  if (!renamed || propertyName === undefined) return {}
  return { restore: (args) => fromModelArguments(tool.input, args, { propertyName, nulls: 'keep' }) }
}

/** The root is an object whatever was bent. */
function schemaOf({ schema }: Bent): ObjectSchema {
  return schema as ObjectSchema
}

function descriptionOf({ name, description }: Tool, limit = maxDescription): string {
  // Providers and hosts refuse a tool without one, and not every stranger's has one.
  return cut(description.trim() === '' ? `The tool ${name}.` : description, limit)
}

/** The definition for OpenAI's chat completions, and the many endpoints like them. */
export function toOpenAi(tool: Tool): OpenAiTool {
  const [definition] = createDefinitions([tool], { for: 'openai' }).definitions
  return definition as OpenAiTool
}

/** The definition for MCP hosts. A name of 45 characters leaves room for the prefix that hosts put before it. */
export function toMcp(tool: Tool, name: string = new ModelNames(nameLimits.mcp).nameOf(tool.name)): McpTool {
  const { input, output, traits } = tool
  const annotations = {
    ...(traits.readOnly === undefined ? {} : { readOnlyHint: traits.readOnly }),
    ...(traits.readOnly === true ? { destructiveHint: false } : {}),
    ...(traits.idempotent === undefined ? {} : { idempotentHint: traits.idempotent }),
  }
  const description = descriptionOf(tool)
  const definition = { name, inputSchema: schemaOf(bend(input, mcp)), annotations }
  if (output === undefined) return { ...definition, description }
  // `structuredContent` is an object, so only an object's schema may promise it.
  if (output['type'] === 'object') return { ...definition, description, outputSchema: schemaOf(bend(output, mcp)) }
  return {
    ...definition,
    description: cut(
      joinWords([description, `The result fits ${new Document(output).quote(output)}.`]),
      maxDescription,
    ),
  }
}

/** The tool as a structured tool of LangChain, run by `space`. */
export function toLangChain(tool: Tool, space: Pick<ToolSpace, 'call'>): LangChainTool {
  const [definition] = createDefinitions([tool], { for: 'langchain', space }).definitions
  return definition as LangChainTool
}
