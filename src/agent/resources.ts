/** What an agent's actions work with, by type and name. Made when first asked for, once per runner, and closed with it. */
import type { Json, JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import type { Tool } from '../tools/tool.ts'
import type {
  ChatModelConnection,
  ChatModelSetupOptions,
  EmbeddingModel,
  RemoteAgent,
  VectorStore,
} from './chat-model.ts'
import type { Prompt } from './prompt.ts'

/** What each type of resource gives an action. */
export interface Resources {
  chatModelConnection: ChatModelConnection
  chatModelSetup: ChatModelSetupOptions
  tool: Tool
  prompt: Prompt
  /** The options of the server, in the shape of the configuration's `mcpServers`; its tools are in the tool space. */
  mcpServer: JsonObject
  embeddingModel: EmbeddingModel
  vectorStore: VectorStore
  remoteAgent: RemoteAgent
}

export type ResourceType = keyof Resources

export const resourceTypes: readonly ResourceType[] = [
  'chatModelConnection',
  'chatModelSetup',
  'tool',
  'prompt',
  'mcpServer',
  'embeddingModel',
  'vectorStore',
  'remoteAgent',
]

/** What a resource is given when it is made. */
export interface ResourceContext {
  /** Other resources of the same runner. A circle throws `resource_failed`. */
  getResource<Type extends ResourceType>(name: string, type: Type): Promise<Resources[Type]>
  readonly log: Logger
  /** What relative paths start from. */
  readonly baseDir: string
}

/** A class whose instances are resources of one type. The arguments are JSON, so that a plan can carry them. */
export interface ResourceClass<Type extends ResourceType = ResourceType, Arguments = never> {
  new (args: Arguments, context: ResourceContext): Resources[Type]
  readonly resourceType: Type
}

/** Says where a value stands: the specifier of a module, or its `file:` URL, and the path of an export in it, `name` or `Class.member`. */
export interface ModuleReference {
  readonly module: string
  readonly export: string
}

/** A value that nobody has made yet; JSON as far as `clazz` can be named. */
export interface DescribedResource {
  readonly clazz: ModuleReference
  readonly arguments: Json
}
