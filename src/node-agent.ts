/** An agent made ready to run on a node: with its models and peers, over its tool space and store. */
import { resolve } from 'node:path'
import { Agent } from './agent/agent.ts'
import { ChatModelSetup } from './agent/chat-model-setup.ts'
import type { RemoteAgent } from './agent/chat-model.ts'
import { AgentConfiguration } from './agent/configuration.ts'
import { openEventLog, type EventLog } from './agent/event-log.ts'
import { OpenAiConnection } from './agent/openai-connection.ts'
import { AgentPlan } from './agent/plan.ts'
import { AgentRunner } from './agent/runner.ts'
import { meant } from './answering.ts'
import { ConvokeError } from './base/errors.ts'
import type { JsonObject } from './base/json.ts'
import type { Log } from './base/log.ts'
import type { McpServerOptions } from './mcp/server-options.ts'
import type { ModelOptions, NodeOptions } from './options.ts'
import { askToolName, createAskTool, createRemoteAgent } from './peers/remote-agent.ts'
import type { AgentStore } from './store/agent-store.ts'
import type { AgentTools } from './tool-space.ts'
import type { Tool } from './tools/tool.ts'
import { excerpt } from './tools/value.ts'

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
  const opened: { close(): Promise<void> }[] = []
  const close = async (): Promise<void> => {
    for (const each of opened.toReversed()) await each.close()
  }
  try {
    const config = given.config ?? (await readSettings(options.agent.settings, baseDir))
    const eventLog = given.eventLog ?? (await openLog(options.agent.eventLog, baseDir, log))
    if (eventLog !== undefined && eventLog !== given.eventLog) opened.push(eventLog)
    const around = new Agent()
    for (const [name, model] of Object.entries(options.models ?? {})) {
      const connection = connect(name, model, log)
      opened.push(connection)
      around.addResource(name, connection)
      const { retries } = model
      around.addResource(name, new ChatModelSetup({ connection: name, ...(retries === undefined ? {} : { retries }) }))
    }
    const remoteAgent = (peer: string): RemoteAgent =>
      createRemoteAgent({ client: () => space.peers.get(peer), self: options.agent.id, log })
    for (const peer of space.peers.ids) around.addResource(peer, remoteAgent(peer), 'remoteAgent')
    const plan = AgentPlan.fromAgent(agent, { resources: around.resources, baseDir })
    const runner = new AgentRunner({
      plan,
      store,
      tools: space.tools,
      // Peers may be added while the node runs.
      findResource: (name, type) =>
        type !== 'remoteAgent' || !space.peers.has(name)
          ? undefined
          : { type, name, owns: () => false, provide: () => Promise.resolve(remoteAgent(name)) },
      config,
      ...(scope === undefined ? {} : { scope }),
      ...(eventLog === undefined ? {} : { eventLog }),
      log,
      baseDir,
      orphans,
    })
    opened.push(runner)
    await addTools({ plan, runner, space, options, log })
    const warnings = await warningsOf(agent, { plan, runner, space, options })
    for (const warning of warnings) log.warn(warning)
    return { runner, warnings, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** Puts into the tool space what the agent brings: tools, MCP servers, and the peers that its model may ask. */
async function addTools({
  plan,
  runner,
  space,
  options,
  log,
}: Pick<OpenAgentOptions, 'space' | 'options' | 'log'> & { plan: AgentPlan; runner: AgentRunner }): Promise<void> {
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
    register(space, createAskTool({ peer, name: askToolName(peer), client, self: options.agent.id, log }))
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
