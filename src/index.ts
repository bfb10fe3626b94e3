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
  McpPublishOptions,
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
export { toOpenAi, toParameters, type OpenAiTool, type ParameterSchema } from './tools/definitions.ts'
export { KeyError, LocalToolRegistry, ValueError, type McpStyleTool, type ToolFilter } from './tools/local.ts'
export { ToolManager, type ToolCallOptions, type ToolManagerOptions, type ToolResult } from './tools/manager.ts'
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
  ToolSpace,
  ToolTraits,
  ToolValue,
} from './tools/tool.ts'
