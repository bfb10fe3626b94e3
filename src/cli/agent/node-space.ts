/** An agent with what a configuration gives to that of its node: models, tools, MCP servers and peers. Nothing listens. */
import type { Agent } from '../../agent/agent.ts'
import type { AgentRunnerOptions } from '../../agent/runner.ts'
import { ConvokeError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import { openAgent, type OpenAgent } from '../../node-agent.ts'
import type { NodeOptions } from '../../options.ts'
import { openToolSpace, type AgentTools } from '../../tool-space.ts'
import { CommandFailure } from '../failure.ts'

export interface NodeAgentOptions extends Pick<AgentRunnerOptions, 'store' | 'scope' | 'eventLog'> {
  readonly agent: Agent
  readonly options: NodeOptions
  /** In place of `agent.settings`. */
  readonly config?: NonNullable<AgentRunnerOptions['config']>
  readonly log: Log
  /** Aborts: nobody is asked for tools any more. */
  readonly signal: AbortSignal
}

/** How long the tools of others are waited for before the first item, in milliseconds. */
const firstLookMs = 10_000

/**
 * Opens the tool space and the agent in it; closing the agent closes both. Asks MCP servers and peers for their tools: a model is
 * offered what is known. Throws a CommandFailure with exit code 2 for a configuration and an agent that do not go together.
 */
export async function openNodeAgent({ options, signal, ...running }: NodeAgentOptions): Promise<OpenAgent> {
  const { log } = running
  // Its event log is written by its node.
  const { eventLog: _, ...agentOptions } = options.agent
  let space: AgentTools | undefined
  try {
    space = await openToolSpace(options, { log })
    const baseDir = options.baseDir ?? '.'
    const opened = await openAgent({
      ...running,
      options: { ...options, agent: agentOptions },
      space,
      baseDir,
      orphans: 'run',
    })
    const { tools, warnings } = space
    await tools.discover({ signal: AbortSignal.any([signal, AbortSignal.timeout(firstLookMs)]) })
    const unknown = tools
      .health()
      .flatMap(({ source, kind, state, lastError }) =>
        state === 'failed' && kind !== 'local'
          ? [`${source} gives no tools: ${lastError?.message ?? 'it did not answer.'}`]
          : [],
      )
    return {
      runner: opened.runner,
      warnings: [...warnings, ...unknown],
      async close() {
        await opened.close()
        await space?.close()
      },
    }
  } catch (error) {
    await space?.close()
    throw error instanceof ConvokeError ? new CommandFailure(2, error) : error
  }
}
