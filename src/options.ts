/** What a node is made from. The configuration file has the same shape; `config.ts` reads it into this. */
import type { Agent } from './agent/agent.ts'
import type { EventLogOptions } from './agent/event-log.ts'
import type { Logger } from './base/logger.ts'
import type { JsonObject } from './base/json.ts'
import type { McpServerOptions } from './mcp/server-options.ts'
import type { DiscoveryOptions } from './peers/discovery.ts'
import type { PeerOptions } from './peers/peer.ts'
import type { MessageHandler } from './server/message-handler.ts'
import type { ToolHooks } from './tools/hooks.ts'
import type { CallLimits } from './tools/limits.ts'
import type { RetryRule } from './tools/retry.ts'
import type { PinSettings } from './tools/pins.ts'
import type { PolicyRule } from './tools/policy.ts'
import type { ToolEntry } from './tools/load.ts'
import type { ToolBase } from './tools/tool-base.ts'
import type { BuiltinSettings } from './tools/builtin/create.ts'
import type { Tool } from './tools/tool.ts'
import type { ResultMode } from './tools/validation.ts'

export type { ToolEntry as ToolModule } from './tools/load.ts'

/** A bearer token or API key, kept as a hash. `convoke token` makes one. */
export interface TokenOptions {
  /** Who calls with it. Letters, digits, `_`, `-`, `.`, `@`. */
  readonly id: string
  /** SHA-256 of the token, 64 hex digits. */
  readonly sha256: string
  /** Default: `["*"]`. `tool:GLOB` allows calling tools, `message` sending plain messages. */
  readonly scopes?: readonly string[]
}

export interface JwtOptions {
  readonly issuer: string
  readonly audience: string
  /** Where the issuer publishes its keys. */
  readonly jwksUrl: string
  /** Default: RS256, PS256, ES256, EdDSA and their longer kin; never `none` or a shared secret. */
  readonly algorithms?: readonly string[]
}

export interface AuthOptions {
  readonly tokens?: readonly TokenOptions[]
  readonly jwt?: JwtOptions
}

export interface ServerOptions {
  /** Default: `127.0.0.1`. Any other address needs `auth`, or `allowAnonymous`. */
  readonly host?: string
  /** 0 picks a free one. Default: 0 for `createNode`, 4120 for `convoke serve`. */
  readonly port?: number
  /** The URL that callers use, with its base path. Default: what the request came by, or the listening address. */
  readonly publicUrl?: string
  /** Every route stands below it. Default: the path of `publicUrl`, or `/`. */
  readonly basePath?: string
  /** Addresses, networks (`10.0.0.0/8`) or `loopback` whose `X-Forwarded-*` headers count. Default: none. */
  readonly trustProxy?: readonly string[]
  /** Hosts beside the node's own that the Host and Origin headers may name on a node without auth. */
  readonly allowedHosts?: readonly string[]
  readonly auth?: AuthOptions
  /** Serve a public address without auth. Default: false. */
  readonly allowAnonymous?: boolean
  /** Largest request body in bytes. Default: 4 MiB. */
  readonly maxBodyBytes?: number
  /** How long a client may take to send its headers, in milliseconds. Default: 10,000. */
  readonly headersTimeoutMs?: number
  /** How long a client may take to send a whole request, in milliseconds. Default: 30,000. */
  readonly requestTimeoutMs?: number
  /** Silence on an event stream before a comment keeps it open, in milliseconds. Default: 15,000. */
  readonly heartbeatMs?: number
  /** How long running tasks may go on after a stop, in milliseconds. Default: 10,000. */
  readonly drainMs?: number
  /** How long a cancelled tool may take to stop before it is abandoned, in milliseconds. Default: 5,000. */
  readonly cancelGraceMs?: number
  /**
   * A message whose id the same caller sent before finds its task again instead of starting another, so that a repeat
   * after a lost answer does no work twice. Default: true.
   */
  readonly deduplicateMessages?: boolean
  /** Tasks that may be under way at once. More are refused with 429, but for those that one of them waits for. Default: 10,000. */
  readonly maxRunningTasks?: number
  readonly push?: {
    /** Deliver webhooks to private and loopback addresses too. Default: only when the node itself listens on loopback. */
    readonly allowPrivate?: boolean
  }
  /** Serve GetExtendedAgentCard to authenticated callers. Default: true when `auth` is set. */
  readonly extendedCard?: boolean
}

export interface StoreSettings {
  /** `:memory:`, or `sqlite:PATH` relative to `baseDir`. Default: `:memory:` for `createNode`, `sqlite:./data/convoke.db` for a configuration file. */
  readonly url?: string
  /** How long finished tasks are kept: `30s`, `15m`, `12h`, `7d`, or milliseconds. Default: `7d`. */
  readonly retention?: string | number
  /** Most bytes that finished tasks take in memory (default 64 MiB; agents may take as many again), or the database file on disk (default: no limit). */
  readonly maxBytes?: number
}

export interface AgentOptions {
  /** `^[A-Za-z0-9_-]{1,64}$`: what peers call it. */
  readonly id: string
  /** Default: the id. */
  readonly name?: string
  readonly description?: string
  readonly version?: string
  /** Path of a card template to use instead of the package's agent-card.json, relative to `baseDir`. */
  readonly card?: string
  /** A language model that answers messages which name no tool, and calls tools for it. */
  readonly react?: ReactOptions
  /**
   * Path of a module whose export `agent`, an Agent or its class, or export `onMessage`, a message handler, answers messages that
   * name no tool. The default export may be either.
   */
  readonly module?: string
  /** What actions find in `context.config`: values, or the path of a YAML or JSON file of them. Default: nothing. */
  readonly settings?: JsonObject | string
  /** Writes down what happens in the agent's runs, for `convoke agent trace`; `file` is relative to `baseDir`. Default: nothing is. */
  readonly eventLog?: Omit<EventLogOptions, 'log'>
}

export interface ReactOptions {
  /** The name of one of `models`. */
  readonly model: string
  /** What the model is told first: a text, or the path of one, relative to `baseDir`: it ends in `.md` or `.txt`, or begins with `./` or `../`. */
  readonly prompt?: string
  /** The tools that the model may call: handles, and globs over them. Default: `["*"]`. */
  readonly tools?: readonly string[]
  /** Peers whose agents the model may ask in words: it has the tool `ask_ID` for each. Default: none. */
  readonly agents?: readonly string[]
  /** How often the model may be asked for one message. Default: 12. */
  readonly maxRounds?: number
  /** How many tools may be called for one message. Default: 64. */
  readonly maxToolCalls?: number
  /** Tokens in and out of all rounds for one message. Default: no limit. */
  readonly maxTokens?: number
  /** How long one message may take with all its rounds and tools, in milliseconds. Default: no limit. */
  readonly timeoutMs?: number
  /** A JSON Schema that the answer must fit, or the path of one, relative to `baseDir`. The answer is data then. */
  readonly outputSchema?: JsonObject | string
  /**
   * What becomes of a message when the model fails, or its answer does not fit: the task fails, it is completed without an
   * answer, or the model is asked again first. Default: `fail`.
   */
  readonly onError?: 'fail' | 'ignore' | 'retry'
  /** How much of a conversation the model is told again with its next message. */
  readonly history?: { readonly maxMessages?: number; readonly maxChars?: number }
}

/** A language model behind an endpoint that speaks OpenAI's chat completions. */
export interface ModelOptions {
  /** Up to where `/chat/completions` goes, mostly `…/v1`. */
  readonly baseUrl: string
  /** What the endpoint calls the model. */
  readonly model: string
  /** Sent as `Authorization: Bearer`. */
  readonly apiKey?: string
  /** Further headers of each request. */
  readonly headers?: Readonly<Record<string, string>>
  /** How long the endpoint may say nothing, in milliseconds. Default: 300,000. */
  readonly timeoutMs?: number
  /** How often a request that failed for a reason that may pass is made again. Default: 2. */
  readonly retries?: number
  /** Default: the endpoint's own. */
  readonly temperature?: number
  /** Most tokens of one answer. Default: the endpoint's own. */
  readonly maxTokens?: number
  /** Further members of each request's body, such as `seed`. */
  readonly parameters?: JsonObject
  /** How the model is held to an output schema. Default: `auto`, the first way that the endpoint does not refuse. */
  readonly structuredOutput?: 'auto' | 'json_schema' | 'json_object' | false
  /** Whether the address may be one that is not public. Default: whether `baseUrl` itself names such an address. */
  readonly allowPrivate?: boolean
}

export interface ToolCallSettings {
  /** How many may run at once. Default: no limit but those of the tools. */
  readonly limits?: CallLimits
  /** How long a tool may take that sets no limit itself, in milliseconds. Default: no limit. */
  readonly timeoutMs?: number
  /** Which tools are tried again when they fail; the first rule that fits counts. Default: none. */
  readonly retry?: readonly RetryRule[]
  /** What is done about results that break their schema. Default: `strict` for our own tools, `warn` for those of others. */
  readonly results?: { readonly own?: ResultMode; readonly foreign?: ResultMode }
  /** What is done before and after each call, in this order. Only a program can say it. */
  readonly hooks?: readonly ToolHooks[]
}

/** How far calls may be passed on from node to node. Nodes that call each other need different `agent.id`s. */
export interface DelegationOptions {
  /** How often this node may be in the path of a call that it takes. Default: 1, so that A may call B, and B call A back. */
  readonly maxVisits?: number
  /** How often a call may have been passed on. Default: 8. */
  readonly maxHops?: number
}

/** Skill bundles: folders with a `SKILL.md`, which the tools `list_skills` and `load_skill` give to models. */
export interface SkillOptions {
  /** Folders with bundles of the user, relative to `baseDir`; in each, every folder with a `SKILL.md` is one. Default: none. */
  readonly dirs?: readonly string[]
  /** Those that come with the package, too. One of the user with the same name wins. Default: true. */
  readonly builtin?: boolean
  /** Take only those of these names. Default: all. */
  readonly only?: readonly string[]
}

/** The tools of the node for MCP hosts, over HTTP and stdio. */
export interface McpPublishOptions {
  /** Whether there is a door for MCP hosts. Default: true. */
  readonly publish?: boolean
  /** Where it is, below the base path. Default: `/mcp`. */
  readonly path?: string
  /** How long a host without progress waits for a result before it gets a handle, in milliseconds. Default: 50,000. */
  readonly patienceMs?: number
  /** How long one that takes progress waits, in milliseconds. Default: 600,000. */
  readonly maxWaitMs?: number
  /** How long a session may lie idle, in milliseconds. Default: 1,800,000. */
  readonly sessionTtlMs?: number
  /** How many sessions there may be; for one more the one idle the longest ends. Default: 1,000. */
  readonly maxSessions?: number
}

export interface NodeOptions {
  readonly agent: AgentOptions
  /** Language models, by the names that agents have for them. */
  readonly models?: Readonly<Record<string, ModelOptions>>
  /** Other agents, by the id that their tools are called with here: `^[A-Za-z0-9_-]{1,64}$`. */
  readonly peers?: Readonly<Record<string, PeerOptions>>
  /**
   * MCP servers, by the id that their tools are called with here. The shape is the one of other hosts: a block of theirs
   * works as it is. An id that is none gets a safe one, and a warning.
   */
  readonly mcpServers?: Readonly<Record<string, McpServerOptions>>
  readonly discovery?: DiscoveryOptions
  readonly delegation?: DelegationOptions
  /** The tools of the node for MCP hosts. */
  readonly mcp?: McpPublishOptions
  readonly features?: {
    /** False: no call to a peer and no discovery; the node still serves. Default: true. */
    readonly delegate?: boolean
  }
  readonly server?: ServerOptions
  readonly store?: StoreSettings
  /** Which tools of peers and MCP servers are published beside the local ones: globs over handles, `*` for any run of characters, dots too. Default: none. */
  readonly publish?: readonly string[]
  /** Other names for tools of peers and MCP servers: `{alias: handle}`. Where they are published, callers know them by these. */
  readonly aliases?: Readonly<Record<string, string>>
  /** What stands around each call of a tool, whichever way it comes. */
  readonly toolCalls?: ToolCallSettings
  /**
   * Who may call which tool with which arguments; the first rule that matches decides. Without rules every call is
   * allowed; where there are some and none matches, the call is denied. The node's own calls count too.
   */
  readonly toolPolicy?: readonly PolicyRule[]
  /** What becomes of tools of peers and MCP servers that say something else than when they were first seen. */
  readonly pins?: PinSettings
  /** Tools as `defineTool` or a class makes them, and modules of tools. */
  readonly tools?: readonly (Tool | ToolBase | ToolEntry)[]
  /** The tools that the package brings along: files, commands, HTTP. Default: none of them. */
  readonly builtin?: BuiltinSettings
  /** Without it there are no skills, and none of the tools for them. */
  readonly skills?: SkillOptions
  /** Answers messages that name no tool: a handler, or an agent. */
  readonly onMessage?: MessageHandler | Agent
  /** `silent`, `error`, `warn`, `info`, `debug`. Default: `warn` for `createNode`, `info` for `convoke serve`. */
  readonly logLevel?: 'silent' | 'error' | 'warn' | 'info' | 'debug'
  /** Gets what would else go to stderr, whatever its level. `console` will do. */
  readonly log?: Logger
  /** What relative paths start from. Default: the working directory; the file's folder for a configuration file. */
  readonly baseDir?: string
  /** The variables that programs of `mcpServers` get PATH, HOME and a few more from. Default: those of this process. */
  readonly environment?: Readonly<Record<string, string | undefined>>
}
