/** Convoke: an A2A node that publishes typed tools and runs exactly the one that a caller names. */
export { Agent, type ActionFor, type AgentAction } from './agent/agent.ts'
export { ChatModelSetup } from './agent/chat-model-setup.ts'
export type {
  AskAgentOptions,
  ChatAnswer,
  ChatDelta,
  ChatMessage,
  ChatModelConnection,
  ChatModelSetupOptions,
  ChatRequest,
  ChatRole,
  ChatUsage,
  EmbeddingModel,
  ModelLimits,
  ModelToolCall,
  RemoteAgent,
  StoredDocument,
  VectorStore,
} from './agent/chat-model.ts'
export { AgentConfiguration, defineOption, type ConfigOption, type OptionTypes } from './agent/configuration.ts'
export type { Action, AgentToolSpace, DurableOptions, RunEvent, RunnerContext, RunOptions } from './agent/context.ts'
export type { ConversationOptions } from './agent/conversation-memory.ts'
export {
  action,
  chatModelConnection,
  chatModelSetup,
  embeddingModel,
  mcpServer,
  prompt,
  remoteAgent,
  tool,
  vectorStore,
  type ActionOptions,
  type ResourceDecorator,
  type ToolMemberOptions,
} from './agent/decorators.ts'
export { AgentStream, ExecutionEnvironment, type ApplyOptions, type EnvironmentOptions } from './agent/environment.ts'
export {
  openEventLog,
  type EventLog,
  type EventLogEntry,
  type EventLogLevel,
  type EventLogOptions,
} from './agent/event-log.ts'
export {
  readTrace,
  toTree,
  type Trace,
  type TraceAction,
  type TraceError,
  type TraceEvent,
  type TraceFile,
  type TraceFilter,
  type TraceRecord,
} from './agent/event-trace.ts'
export {
  AgentEvent,
  ChatRequestEvent,
  ChatResponseEvent,
  ContextRetrievalRequestEvent,
  ContextRetrievalResponseEvent,
  InputEvent,
  OutputEvent,
  ToolRequestEvent,
  ToolResponseEvent,
  type BuiltInEvent,
  type ChatRequestPayload,
  type ChatResponsePayload,
  type ErrorStrategy,
  type EventKind,
  type EventOf,
  type Frozen,
  type RetrySettings,
  type ToolRequestPayload,
  type ToolResponsePayload,
} from './agent/events.ts'
export { FailedRuns, type FailedRun } from './agent/failed-runs.ts'
export { exportedFrom } from './agent/function-reference.ts'
export type { Keyed, KeyedInput } from './agent/keyed.ts'
export { MemoryTree, type Memory, type MemoryOptions } from './agent/memory.ts'
export { OpenAiConnection, type OpenAiConnectionOptions } from './agent/openai-connection.ts'
export { OpenAiEmbeddingModel, type OpenAiEmbeddingOptions } from './agent/openai-embedding.ts'
export type { OutputSchema, RowType } from './agent/output-schema.ts'
export type { AgentPlanJson } from './agent/plan-json.ts'
export { AgentPlan, type AgentPlanOptions, type PlannedAction, type ResourceProvider } from './agent/plan.ts'
export { Prompt, type PromptTemplate, type PromptVariables } from './agent/prompt.ts'
export { ReActAgent, type ReActAgentOptions } from './agent/react-agent.ts'
export { ResourceDescriptor } from './agent/resource-descriptor.ts'
export type { PlannedResource, ResourceJson, ResourceMap } from './agent/resource-provider.ts'
export type { ModuleReference, ResourceClass, ResourceContext, Resources, ResourceType } from './agent/resources.ts'
export { AgentRunner, type AgentRunnerOptions, type RunResult } from './agent/runner.ts'
export { formatTrace, type TracePaint } from './agent/trace-text.ts'
export { EmbeddedVectorStore, type EmbeddedVectorStoreOptions } from './agent/vector-store.ts'
export { ConvokeError, errorCodes, type ErrorCode, type Issue, type RetryPolicy } from './base/errors.ts'
export type { Json, JsonObject } from './base/json.ts'
export type { ToolCallRecord } from './base/trace.ts'
export { loadConfig } from './config.ts'
export type { McpServerHealth } from './mcp/mcp-server.ts'
export type { McpServerOptions } from './mcp/server-options.ts'
export { McpServerRegistry, type McpServerRegistryOptions } from './mcp/server-registry.ts'
export { createNode, type Door, type Node } from './node.ts'
export type {
  AgentOptions,
  AuthOptions,
  DelegationOptions,
  JwtOptions,
  McpPublishOptions,
  ModelOptions,
  NodeOptions,
  ReactOptions,
  ServerOptions,
  SkillOptions,
  StoreSettings,
  TokenOptions,
  ToolModule,
} from './options.ts'
export { PeerAgent, type PeerAgentArguments } from './peer-agent.ts'
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
export type { BuiltinName, BuiltinSettings } from './tools/builtin/create.ts'
export { defineTool } from './tools/define.ts'
export type { HookedCall, HookedOutcome, ToolHooks } from './tools/hooks.ts'
export type { CallLimits } from './tools/limits.ts'
export { KeyError, LocalToolRegistry, ValueError, type McpStyleTool } from './tools/local.ts'
export {
  ToolManager,
  type SourceHealth,
  type ToolCallOptions,
  type ToolDetails,
  type ToolManagerOptions,
  type ToolResult,
  type ToolSnapshot,
  type ToolSummary,
} from './tools/manager.ts'
export type { PublishedTool } from './tools/published.ts'
export type { RetryRule } from './tools/retry.ts'
export type { SourceStatus, ToolSource } from './tools/source.ts'
export type { ToolFilter } from './tools/table.ts'
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
export { ModelNames, type ModelNamesOptions } from './tools/model-names.ts'
export { localSource } from './tools/local-source.ts'
export {
  runPlan,
  type Planned,
  type Planner,
  type PlanOptions,
  type PlanResult,
  type PlanState,
  type PlanStep,
  type PlanTools,
  type ReplyStep,
  type StepMeta,
  type StepOutcome,
  type ToolStep,
} from './tools/planner.ts'
export { createServerTool, type ServerTool, type ServerToolOptions } from './tools/server-tool.ts'
export { ToolBase } from './tools/tool-base.ts'
export {
  toolTypes,
  type Caller,
  type CallOptions,
  type Chunk,
  type JsonSchema,
  type Progress,
  type Question,
  type Tool,
  type ToolContext,
  type ToolEvent,
  type ToolKind,
  type ToolLog,
  type ToolLogLevel,
  type ToolPrompt,
  type ToolSpace,
  type ToolTraits,
  type ToolValue,
} from './tools/tool.ts'
export type { PinPolicy, PinSettings } from './tools/pins.ts'
export type { Decision, PolicyRule, PolicyTraits } from './tools/policy.ts'
export {
  executeBatch,
  type BatchOptions,
  type BatchResult,
  type BatchSpace,
  type CallAnswer,
  type CallDebug,
  type NameTable,
} from './tools/batch.ts'
export { CallHistory, type CallRecord } from './tools/call-history.ts'
export type { ModelCall } from './tools/model-call.ts'
export {
  toAnthropicBlocks,
  toOpenAiMessages,
  type AnthropicBlock,
  type AnthropicToolResult,
  type OpenAiToolMessage,
} from './tools/model-messages.ts'
export type { Reference } from './tools/references.ts'
export { Toolbox, type ForcedTool, type RunContext, type ToolboxOptions } from './tools/toolbox.ts'
export { toModelText, type ModelTextOptions } from './tools/truncate.ts'
export { getExecutionEnvironment, openServers } from './execution.ts'
export { createMemoryAgentStore } from './store/agent-memory.ts'
export type { AgentStore } from './store/agent-store.ts'
