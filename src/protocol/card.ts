/**
 * Tools to and from an agent card. `AgentSkill` has no room for schemas in A2A 1.0, so they stand twice: in the
 * extension's params, which survive every parser, and on the skills of the public card for people and simple clients.
 */
import { isObject, type JsonObject } from '../base/json.ts'
import { extensionUri, skillPrefix, toolTag } from './extension.ts'

/** A tool as it is told to others. */
export interface ToolDescriptor {
  readonly name: string
  readonly description: string
  readonly tags: readonly string[]
  readonly inputSchema?: JsonObject
  readonly outputSchema?: JsonObject
  readonly annotations?: JsonObject
  readonly version?: string
}

/** Which readers a card is made for: those that say 1.0, those that say 0.3, and those that say nothing. */
export type CardFlavor = '1.0' | '0.3' | 'both'

/** The ways to authenticate, in the words of both versions. Any one of the requirements suffices. */
export interface CardSecurity {
  readonly v1: { readonly securitySchemes: JsonObject; readonly securityRequirements: JsonObject[] }
  readonly v03: { readonly securitySchemes: JsonObject; readonly security: JsonObject[] }
}

export interface CardInput {
  /** The checked-in template: name, description, version, provider, modes, its own skills. */
  readonly template: JsonObject
  /** The URL of every interface, without a slash at the end. */
  readonly url: string
  readonly tools: readonly ToolDescriptor[]
  readonly security: CardSecurity | undefined
  readonly streaming: boolean
  readonly pushNotifications: boolean
  readonly extendedCard: boolean
  /** Where the schemas are listed when they are left off the card for its size. */
  readonly toolsUrl?: string
  /** Whether this is the public card, the only one on which skills carry fields of our own. */
  readonly public: boolean
}

export function toAgentCard(input: CardInput, flavor: CardFlavor): JsonObject {
  const { template, url, security } = input
  const legacyToo = flavor !== '1.0'
  const newToo = flavor !== '0.3'
  const capabilities: JsonObject = {
    streaming: input.streaming,
    pushNotifications: input.pushNotifications,
    extensions: [
      ...(isObject(template['capabilities']) && Array.isArray(template['capabilities']['extensions'])
        ? template['capabilities']['extensions']
        : []),
      toExtension(input),
    ],
  }
  if (newToo) capabilities['extendedAgentCard'] = input.extendedCard
  const { name, description, version, ...rest } = template
  const card: JsonObject = {
    name: name ?? '',
    description: description ?? '',
    ...(legacyToo
      ? {
          url,
          preferredTransport: 'JSONRPC',
          protocolVersion: '0.3.0',
          additionalInterfaces: [
            { url, transport: 'JSONRPC' },
            { url, transport: 'HTTP+JSON' },
          ],
        }
      : {}),
    ...(newToo ? { supportedInterfaces: toInterfaces(url) } : {}),
    version: version ?? '0.0.0',
    ...rest,
    capabilities,
    skills: [
      ...(Array.isArray(template['skills']) ? template['skills'] : []),
      ...input.tools.map((tool) => toSkill(tool, input)),
    ],
  }
  if (legacyToo) card['supportsAuthenticatedExtendedCard'] = input.extendedCard
  if (security !== undefined) {
    const { v1, v03 } = security
    card['securitySchemes'] =
      flavor === '1.0'
        ? v1.securitySchemes
        : flavor === '0.3'
          ? v03.securitySchemes
          : merge(v03.securitySchemes, v1.securitySchemes)
    if (newToo) card['securityRequirements'] = v1.securityRequirements
    if (legacyToo) card['security'] = v03.security
  }
  return card
}

/** 1.0 first: readers that ignore `protocolVersion` take the first of each binding. */
function toInterfaces(url: string): JsonObject[] {
  return ['1.0', '0.3'].flatMap((protocolVersion) =>
    ['JSONRPC', 'HTTP+JSON'].map((protocolBinding) => ({ url, protocolBinding, protocolVersion })),
  )
}

function toExtension({ tools, toolsUrl }: CardInput): JsonObject {
  const params: JsonObject = {}
  if (toolsUrl === undefined) {
    params['tools'] = Object.fromEntries(tools.map((tool) => [skillPrefix + tool.name, toToolEntry(tool)]))
  } else {
    params['tools_url'] = toolsUrl
  }
  return {
    uri: extensionUri,
    description:
      'Typed tools: a call of exactly the skill that _tool_call names, with a JSON Schema for input and output.',
    required: false,
    params,
  }
}

/** One tool in the extension's params and in the list at `tools_url`. */
export function toToolEntry(tool: ToolDescriptor): JsonObject {
  const entry: JsonObject = { name: tool.name, input_schema: tool.inputSchema ?? {} }
  if (tool.outputSchema !== undefined) entry['output_schema'] = tool.outputSchema
  if (tool.annotations !== undefined) entry['annotations'] = tool.annotations
  if (tool.version !== undefined) entry['version'] = tool.version
  return entry
}

function toSkill(tool: ToolDescriptor, input: CardInput): JsonObject {
  const skill: JsonObject = {
    id: skillPrefix + tool.name,
    name: tool.name,
    description: tool.description,
    tags: [toolTag, ...tool.tags.filter((tag) => tag !== toolTag)],
  }
  if (input.public && input.toolsUrl === undefined) {
    skill['input_schema'] = tool.inputSchema ?? {}
    if (tool.outputSchema !== undefined) skill['output_schema'] = tool.outputSchema
  }
  return skill
}

function merge(legacy: JsonObject, schemes: JsonObject): JsonObject {
  const names = new Set([...Object.keys(legacy), ...Object.keys(schemes)])
  return Object.fromEntries(
    [...names].map((name) => [name, { ...(legacy[name] as JsonObject), ...(schemes[name] as JsonObject) }]),
  )
}

/** What a card says of its tools: those that stand on it, and where the rest is listed. */
export interface CardTools {
  readonly tools: ToolDescriptor[]
  readonly toolsUrl?: string
}

/**
 * The tools on anybody's card, read from the raw JSON: the extension's params first, then the skills. A skill without
 * the tag `tool` and without a schema is an ordinary skill and no tool.
 */
export function fromAgentCard(card: unknown): CardTools {
  if (!isObject(card)) return { tools: [] }
  const params = extensionParams(card)
  const entries = isObject(params?.['tools']) ? params['tools'] : {}
  const tools: ToolDescriptor[] = []
  for (const skill of Array.isArray(card['skills']) ? (card['skills'] as unknown[]) : []) {
    if (!isObject(skill) || typeof skill['id'] !== 'string') continue
    const tags = Array.isArray(skill['tags'])
      ? skill['tags'].filter((tag): tag is string => typeof tag === 'string')
      : []
    const own = Object.hasOwn(entries, skill['id']) ? entries[skill['id']] : undefined
    const entry = isObject(own) ? own : skill
    const hasSchema = isObject(entry['input_schema'])
    if (!tags.includes(toolTag) && !hasSchema) continue
    tools.push(
      fromEntry(
        skill['id'],
        entry,
        typeof skill['description'] === 'string' ? skill['description'] : '',
        tags,
        entry !== skill,
      ),
    )
  }
  const toolsUrl = params?.['tools_url']
  return typeof toolsUrl === 'string' ? { tools, toolsUrl } : { tools }
}

/** The tools on one page of the list at `tools_url`. */
export function fromToolEntries(page: unknown): ToolDescriptor[] {
  const entries: unknown = isObject(page) ? page['tools'] : undefined
  return (Array.isArray(entries) ? (entries as unknown[]) : []).flatMap((entry) => {
    if (!isObject(entry) || typeof entry['id'] !== 'string') return []
    const { id, description, tags } = entry
    const texts = Array.isArray(tags) ? tags.filter((tag): tag is string => typeof tag === 'string') : []
    return [fromEntry(id, entry, typeof description === 'string' ? description : '', texts, true)]
  })
}

/** Whether the card declares the tool-call extension. */
export function declaresExtension(card: unknown): boolean {
  return isObject(card) && extensionOf(card) !== undefined
}

function fromEntry(
  id: string,
  entry: Record<string, unknown>,
  description: string,
  tags: string[],
  isEntry: boolean,
): ToolDescriptor {
  const { name, input_schema: input, output_schema: output, annotations, version } = entry
  const plain = id.startsWith(skillPrefix) ? id.slice(skillPrefix.length) : id
  return {
    // A skill's own name is for people; only an entry of the extension names a tool that has no such id.
    name: plain === id && isEntry && typeof name === 'string' ? name : plain,
    description,
    tags: tags.filter((tag) => tag !== toolTag),
    ...(isObject(input) ? { inputSchema: input as JsonObject } : {}),
    ...(isObject(output) ? { outputSchema: output as JsonObject } : {}),
    ...(isObject(annotations) ? { annotations: annotations as JsonObject } : {}),
    ...(typeof version === 'string' ? { version } : {}),
  }
}

function extensionParams(card: Record<string, unknown>): Record<string, unknown> | undefined {
  const params = extensionOf(card)?.['params']
  return isObject(params) ? params : undefined
}

function extensionOf(card: Record<string, unknown>): Record<string, unknown> | undefined {
  if (!isObject(card['capabilities']) || !Array.isArray(card['capabilities']['extensions'])) return undefined
  return (card['capabilities']['extensions'] as unknown[])
    .filter(isObject)
    .find((extension) => extension['uri'] === extensionUri)
}
