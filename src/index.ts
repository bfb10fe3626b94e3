/** Convoke: an A2A node that publishes typed tools and runs exactly the one that a caller names. */
export { ConvokeError, errorCodes, type ErrorCode, type Issue, type RetryPolicy } from './base/errors.ts'
export type { Json, JsonObject } from './base/json.ts'
export { loadConfig } from './config.ts'
export { createNode, type Door, type Node } from './node.ts'
export type {
  AgentOptions,
  AuthOptions,
  DelegationOptions,
  JwtOptions,
  NodeOptions,
  ServerOptions,
  StoreSettings,
  TokenOptions,
  ToolModule,
} from './options.ts'
export type { PeerStatus } from './peers/client.ts'
export { ClientManager } from './peers/client-manager.ts'
export {
  connectPeer,
  type AnyTools,
  type ConnectOptions,
  type Peer,
  type ToolEventOf,
  type ToolTypes,
} from './peers/connect-peer.ts'
export type { DiscoveryOptions } from './peers/discovery.ts'
export { PeerError, type PeerErrorKind } from './peers/errors.ts'
export type { PeerAuth, PeerEvent, PeerInfo, PeerOptions } from './peers/peer.ts'
export {
  RemoteToolExecutor,
  type RemoteCallOptions,
  type RemoteToolCall,
  type RemoteToolResult,
} from './peers/remote-executor.ts'
export {
  RemoteToolRegistry,
  type DiscoveryStatus,
  type RemoteToolChange,
  type RemoteToolFilter,
  type RemoteToolRegistration,
} from './peers/remote-registry.ts'
export type { RemoteToolInfo } from './peers/remote-tool-info.ts'
export type { Artifact, Message, Part, Task } from './protocol/a2a.ts'
export type { MessageContext, MessageEvent, MessageHandler, MessageOutcome } from './server/message-handler.ts'
export { Content, isContent } from './protocol/content.ts'
export { defineTool } from './tools/define.ts'
export {
  createDefinitions,
  toLangChain,
  toMcp,
  toOpenAi,
  type DefinitionOptions,
  type Definitions,
} from './tools/definitions.ts'
export { fromModelArguments, type ModelArgumentsOptions } from './tools/definitions/arguments.ts'
export type { ContentAndArtifact, LangChainConfig, LangChainTool } from './tools/definitions/langchain.ts'
export { toParameters, type ParameterSchema } from './tools/definitions/parameters.ts'
export { toolPrompts, type ToolPromptOptions, type ToolPrompts } from './tools/definitions/prompts.ts'
export { estimateTokens, type ToolSelection } from './tools/definitions/select.ts'
export type {
  AnthropicTool,
  GeminiFunction,
  GeminiTool,
  McpTool,
  OpenAiResponsesTool,
  OpenAiTool,
  Provider,
} from './tools/definitions/shapes.ts'
export { KeyError, LocalToolRegistry, ValueError, type McpStyleTool, type ToolFilter } from './tools/local.ts'
export { ToolManager, type ToolCallOptions, type ToolManagerOptions, type ToolResult } from './tools/manager.ts'
export { ModelNames, type ModelNamesOptions } from './tools/model-names.ts'
export type {
  Caller,
  CallOptions,
  Chunk,
  JsonSchema,
  Progress,
  Question,
  Tool,
  ToolContext,
  ToolEvent,
  ToolKind,
  ToolPrompt,
  ToolSpace,
  ToolTraits,
  ToolValue,
} from './tools/tool.ts'
