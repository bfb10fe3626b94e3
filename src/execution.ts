/** The environment for agents with everything wired in: MCP servers among an agent's resources are connected to. */
import type { OpenTools } from './agent/agent-tools.ts'
import { ExecutionEnvironment, type EnvironmentOptions } from './agent/environment.ts'
import type { JsonObject } from './base/json.ts'
import { createLog } from './base/log.ts'
import { openToolSpace } from './tool-space.ts'

/**
 * An environment that runs agents in this process: `fromList` or `fromStream`, `apply(agent)`, `toList` or `toStream`. Nothing runs
 * before somebody reads, and everything an agent has opened is closed with its stream. Warnings, and why an action failed, go to
 * stderr as JSON lines unless `log` says otherwise. Throws `config` for options that make no sense.
 */
export function getExecutionEnvironment(options: EnvironmentOptions = {}): ExecutionEnvironment {
  const { baseDir } = options
  return new ExecutionEnvironment({
    log: createLog('warn'),
    openServers: (servers) => openServers(servers, baseDir),
    ...options,
  })
}

/** Connects to MCP servers for as long as an agent needs them: `openServers` of an AgentRunner that a program makes. What relative paths start from is `baseDir`, by default the working directory. */
export async function openServers(servers: Readonly<Record<string, JsonObject>>, baseDir?: string): Promise<OpenTools> {
  const space = await openToolSpace({
    agent: { id: 'agent' },
    mcpServers: servers,
    ...(baseDir === undefined ? {} : { baseDir }),
  })
  try {
    // A model is offered what is known.
    await space.tools.discover({ kinds: ['mcp'] })
    return space
  } catch (error) {
    await space.close()
    throw error
  }
}
