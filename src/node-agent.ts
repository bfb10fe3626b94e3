/** What answers a node's messages: the agent that its options or a module describe, made ready to run over its tool space. */
import { stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Agent, isAgent } from './agent/agent.ts'
import type { RemoteAgent } from './agent/chat-model.ts'
import { AgentConfiguration } from './agent/configuration.ts'
import { openEventLog, type EventLog } from './agent/event-log.ts'
import { ChatModelSetup } from './agent/chat-model-setup.ts'
import { OpenAiConnection } from './agent/openai-connection.ts'
import { AgentPlan } from './agent/plan.ts'
import { Prompt } from './agent/prompt.ts'
import { ReActAgent } from './agent/react-agent.ts'
import { AgentRunner, type AgentRunnerOptions } from './agent/runner.ts'
import { readOutputSchema, readPrompt } from './agent-files.ts'
import { ConvokeError } from './base/errors.ts'
import type { JsonObject } from './base/json.ts'
import type { Log } from './base/log.ts'
import { whyUnreadable } from './base/unreadable.ts'
import type { McpServerOptions } from './mcp/server-options.ts'
import type { ModelOptions, NodeOptions, ReactOptions } from './options.ts'
import { askToolName, createAskTool, createRemoteAgent } from './peers/remote-agent.ts'
import type { MessageHandler } from './server/message-handler.ts'
import type { AgentStore } from './store/agent-store.ts'
import type { AgentTools } from './tool-space.ts'
import type { Tool } from './tools/tool.ts'
import { closest, excerpt } from './tools/value.ts'

/** What answers messages: an agent, a handler, or nobody. */
export interface Answering {
  readonly agent?: Agent
  readonly onMessage?: MessageHandler
}

/** Throws `config` for options of an agent that make no sense together. */
export function checkAgentOptions({ agent, models = {}, peers = {}, onMessage, features }: NodeOptions): void {
  const { react, module } = agent
  const ways = [
    ...(react === undefined ? [] : ['agent.react']),
    ...(module === undefined ? [] : ['agent.module']),
    ...(onMessage === undefined ? [] : ['onMessage']),
  ]
  if (react !== undefined && ways.length > 1)
    throw wrong(`${ways.join(' and ')} both answer messages; keep one of them.`)
  if (react === undefined) return
  if (!Object.hasOwn(models, react.model))
    throw wrong(`agent.react.model names no model, ${meant(react.model, Object.keys(models))}`)
  for (const id of react.agents ?? []) {
    if (!Object.hasOwn(peers, id)) throw wrong(`agent.react.agents names no peer, ${meant(id, Object.keys(peers))}`)
  }
  if ((react.agents ?? []).length > 0 && features?.delegate === false)
    throw wrong('agent.react.agents needs peers, and features.delegate is false.')
}

function meant(name: string, known: readonly string[]): string {
  const similar = closest(name, known)
  return `got ${excerpt(name)}.${similar === undefined ? '' : ` Did you mean "${similar}"?`}`
}

/** Reads what answers messages: from the options, from a module, from the files of a ReAct agent. Throws `config`. */
export async function readAnswering(options: NodeOptions, baseDir: string): Promise<Answering> {
  const { agent, onMessage } = options
  if (isAgent(onMessage)) return { agent: onMessage }
  if (onMessage !== undefined) return { onMessage }
  if (agent.react !== undefined) return { agent: await createReact(agent.react, options, baseDir) }
  return agent.module === undefined ? {} : await loadModule(agent.module, baseDir)
}

/** `agent` or the default export is an Agent or its class; `onMessage` or the default export a message handler. */
async function loadModule(module: string, baseDir: string): Promise<Answering> {
  const file = resolve(baseDir, module)
  const problem = await stat(file).then((found) => (found.isFile() ? undefined : 'it is no file'), whyUnreadable)
  if (problem !== undefined) throw wrong(`agent.module ${module} cannot be loaded: ${problem}.`)
  let loaded: { onMessage?: unknown; agent?: unknown; default?: unknown }
  try {
    loaded = (await import(pathToFileURL(file).href)) as typeof loaded
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    const hint = /\.[cm]?tsx?$/.test(module) ? ' Compile it to JavaScript first, and name the .js file.' : ''
    throw wrong(`agent.module ${module} cannot be loaded: ${why}${hint}`, cause)
  }
  const { agent, onMessage } = loaded
  if (agent !== undefined && onMessage !== undefined)
    throw wrong(`agent.module ${module} exports both agent and onMessage; keep one of them.`)
  const given = agent ?? onMessage ?? loaded.default
  if (isAgent(given)) return { agent: given }
  if (isAgentClass(given)) {
    try {
      return { agent: new given() }
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause)
      throw wrong(`agent.module ${module} has an agent that cannot be made: ${why}`, cause)
    }
  }
  if (agent !== undefined) throw wrong(`agent.module ${module} exports an agent that is none, got ${excerpt(agent)}.`)
  if (typeof given === 'function') return { onMessage: given as MessageHandler }
  throw wrong(`agent.module ${module} must export an agent, or a function onMessage(message, context).`)
}

/** Of this copy of the package or another. */
function isAgentClass(value: unknown): value is new () => Agent {
  return typeof value === 'function' && isAgent(value.prototype)
}

async function createReact(react: ReactOptions, options: NodeOptions, baseDir: string): Promise<Agent> {
  const { model, prompt, outputSchema, onError, history = {}, tools = ['*'], agents = [] } = react
  const { name = options.agent.id, description = '' } = options.agent
  const text = prompt ?? `You are ${name}. ${description}`.trim()
  const limits = {
    ...(react.maxRounds === undefined ? {} : { maxRounds: react.maxRounds }),
    ...(react.maxToolCalls === undefined ? {} : { maxToolCalls: react.maxToolCalls }),
    ...(react.maxTokens === undefined ? {} : { maxTokens: react.maxTokens }),
    ...(react.timeoutMs === undefined ? {} : { timeoutMs: react.timeoutMs }),
  }
  try {
    return new ReActAgent({
      chatModel: {
        connection: model,
        tools: [...tools, ...agents.map(askToolName)],
        ...retriesOf(options.models?.[model]),
      },
      prompt: Prompt.fromText(await about('prompt', readPrompt(text, baseDir))),
      ...(outputSchema === undefined
        ? {}
        : { outputSchema: await about('outputSchema', readOutputSchema(outputSchema, baseDir)) }),
      ...(onError === undefined ? {} : { errorStrategy: onError }),
      limits,
      conversation: history,
      stream: true,
    })
  } catch (error) {
    if (error instanceof ConvokeError && error.code === 'config' && error.message.startsWith('agent.react')) throw error
    throw wrong(`agent.react is wrong: ${error instanceof Error ? error.message : String(error)}`, error)
  }
}

async function about<Value>(key: string, reading: Promise<Value>): Promise<Value> {
  try {
    return await reading
  } catch (error) {
    throw wrong(`agent.react.${key} ${ConvokeError.from(error).message}`, error)
  }
}

/** An agent of a node, ready to run. Whoever opened it closes it, before the tool space and the store. */
export interface OpenAgent {
  readonly runner: AgentRunner
  /** What its chat model setups name, and nobody has. */
  readonly warnings: readonly string[]
  close(): Promise<void>
}

export interface OpenAgentOptions {
  readonly agent: Agent
  readonly options: NodeOptions
  readonly space: AgentTools
  readonly store: AgentStore
  readonly log: Log
  readonly baseDir: string
  /** In place of `agent.settings`. */
  readonly config?: AgentConfiguration
  /** In place of that of the options. Whoever opened it closes it. */
  readonly eventLog?: EventLog
  /** Default: the runner's. */
  readonly scope?: string
  /** Default: `fail`, as a node knows which task each input is of. */
  readonly orphans?: 'run' | 'fail'
}

/**
 * Adds the agent's tools and MCP servers to the tool space, and the peers that it may ask. The models and all peers are there as
 * resources, unless the agent has its own of that name. Throws `config` and `resource_failed`.
 */
export async function openAgent(given: OpenAgentOptions): Promise<OpenAgent> {
  const { agent, options, space, store, log, baseDir, scope, orphans = 'fail' } = given
  const config = given.config ?? (await readSettings(options.agent.settings, baseDir))
  const around = new Agent()
  const connections: OpenAiConnection[] = []
  for (const [name, model] of Object.entries(options.models ?? {})) {
    const connection = connect(name, model, log)
    connections.push(connection)
    around.addResource(name, connection)
    around.addResource(name, new ChatModelSetup({ connection: name, ...retriesOf(model) }))
  }
  const self = options.agent.id
  const remoteAgent = (peer: string): RemoteAgent =>
    createRemoteAgent({ client: () => space.peers.get(peer), self, log })
  for (const peer of space.peers.ids) around.addResource(peer, remoteAgent(peer), 'remoteAgent')
  // Peers may be added while the node runs.
  const findResource: AgentRunnerOptions['findResource'] = (name, type) =>
    type !== 'remoteAgent' || !space.peers.has(name)
      ? undefined
      : { type, name, owns: () => false, provide: () => Promise.resolve(remoteAgent(name)) }
  const plan = AgentPlan.fromAgent(agent, { resources: around.resources, baseDir })
  const ownLog = given.eventLog === undefined ? await openLog(options.agent.eventLog, baseDir, log) : undefined
  const eventLog = given.eventLog ?? ownLog
  const runner = new AgentRunner({
    plan,
    store,
    tools: space.tools,
    findResource,
    config,
    ...(scope === undefined ? {} : { scope }),
    ...(eventLog === undefined ? {} : { eventLog }),
    log,
    baseDir,
    orphans,
  })
  const close = async (): Promise<void> => {
    await runner.close()
    await Promise.all(connections.map((connection) => connection.close()))
    await ownLog?.close()
  }
  try {
    for (const name of plan.resources.get('tool')?.keys() ?? []) {
      register(space, toOwnTool(await runner.getResource(name, 'tool')))
    }
    for (const id of plan.resources.get('mcpServer')?.keys() ?? []) {
      const server = (await runner.getResource(id, 'mcpServer')) as McpServerOptions
      if (space.peers.has(id))
        throw wrong(`The agent has an MCP server "${id}", which is the id of a peer. Rename one of them.`)
      space.mcpServers.register(id, server)
    }
    for (const peer of options.agent.react?.agents ?? []) {
      const client = (): ReturnType<typeof space.peers.get> => space.peers.get(peer)
      register(space, createAskTool({ peer, name: askToolName(peer), client, self, log }))
    }
    const warnings = await warningsOf(agent, { plan, runner, space, options })
    for (const warning of warnings) log.warn(warning)
    return { runner, warnings, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** Of the agent's own chat model setups: connections that there are not, and own tools. Those of peers and servers may come later. */
async function warningsOf(
  agent: Agent,
  { plan, runner, space, options }: { plan: AgentPlan; runner: AgentRunner; space: AgentTools; options: NodeOptions },
): Promise<string[]> {
  const connections = [...(plan.resources.get('chatModelConnection')?.keys() ?? [])]
  const known = space.registry.list().map(({ name }) => name)
  const disabled = new Set(space.registry.problems().map(({ name }) => name))
  const warnings: string[] = []
  for (const name of agent.resources.get('chatModelSetup')?.keys() ?? []) {
    try {
      const { connection, tools = [] } = await runner.getResource(name, 'chatModelSetup')
      const about = `The chat model setup ${excerpt(name)} of the agent`
      if (!connections.includes(connection))
        warnings.push(
          `${about} names a connection that is neither its own nor in models, ${meant(connection, connections)}`,
        )
      const named = options.agent.react === undefined ? about : 'agent.react.tools'
      for (const tool of tools) {
        if (/[.*?]/.test(tool) || known.includes(tool) || disabled.has(tool)) continue
        warnings.push(`${named} names a tool that there is not, ${meant(tool, known)}`)
      }
    } catch (error) {
      warnings.push(ConvokeError.from(error).message)
    }
  }
  return warnings
}

async function readSettings(settings: JsonObject | string | undefined, baseDir: string): Promise<AgentConfiguration> {
  if (typeof settings === 'string') return await AgentConfiguration.fromFile(resolve(baseDir, settings))
  return new AgentConfiguration(settings)
}

async function openLog(
  options: NodeOptions['agent']['eventLog'],
  baseDir: string,
  log: Log,
): Promise<EventLog | undefined> {
  if (options === undefined) return undefined
  return await openEventLog({ ...options, file: resolve(baseDir, options.file), log })
}

function connect(name: string, model: ModelOptions, log: Log): OpenAiConnection {
  const { retries: _, temperature, maxTokens, parameters, ...rest } = model
  try {
    return new OpenAiConnection(
      {
        ...rest,
        parameters: {
          ...(temperature === undefined ? {} : { temperature }),
          ...(maxTokens === undefined ? {} : { max_tokens: maxTokens }),
          ...parameters,
        },
      },
      { log },
    )
  } catch (error) {
    throw wrong(`models.${name} is wrong: ${ConvokeError.from(error).message}`, error)
  }
}

function retriesOf(model: ModelOptions | undefined): { retries?: number } {
  return model?.retries === undefined ? {} : { retries: model.retries }
}

function register({ registry }: AgentTools, tool: Tool): void {
  if (registry.has(tool.name))
    throw wrong(`The agent brings a tool "${tool.name}", and there is one already. Give one of them another name.`)
  registry.register(tool)
}

/** Callers get at the tools of an agent only where these say so themselves. */
function toOwnTool(tool: Tool): Tool {
  if (tool.traits.published !== undefined) return tool
  return { ...tool, traits: { ...tool.traits, published: false } }
}

function wrong(message: string, cause?: unknown): ConvokeError {
  return new ConvokeError('config', message, cause === undefined ? {} : { cause })
}
