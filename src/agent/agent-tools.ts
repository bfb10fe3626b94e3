/** The tool space of an agent that runs: its own tools, those of its MCP servers, and a space around it, by one name each. */
import { ConvokeError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { LocalToolRegistry } from '../tools/local.ts'
import { ToolManager, type ToolCallOptions } from '../tools/manager.ts'
import type { AgentToolSpace, RunOptions } from './context.ts'
import type { AgentPlan } from './plan.ts'
import type { ResourcePool } from './resource-pool.ts'

/** A space that somebody has opened, and closes. */
export interface OpenTools {
  readonly tools: AgentToolSpace
  close(): Promise<void>
}

/** Connects to MCP servers, by id, with options in the shape of the configuration's `mcpServers`. */
export type OpenServers = (servers: Readonly<Record<string, JsonObject>>) => Promise<OpenTools>

export interface AgentToolsOptions {
  readonly plan: AgentPlan
  readonly resources: ResourcePool
  /** Has what the agent has not. */
  readonly around: AgentToolSpace | undefined
  readonly openServers: OpenServers | undefined
  readonly log: Logger
}

/** Makes the agent's tools and connects to its servers. Throws `resource_failed` where one cannot be made, `config` for servers that nobody can open. */
export async function openAgentTools({
  plan,
  resources,
  around,
  openServers,
  log,
}: AgentToolsOptions): Promise<OpenTools> {
  const names = [...(plan.resources.get('tool')?.keys() ?? [])]
  const ids = [...(plan.resources.get('mcpServer')?.keys() ?? [])]
  const spaces: AgentToolSpace[] = []
  const opened: { close(): Promise<void> }[] = []
  if (names.length > 0 || (ids.length === 0 && around === undefined)) {
    const registry = new LocalToolRegistry()
    for (const name of names) registry.register(await resources.get(name, 'tool'))
    const own = new ToolManager({ registry, log })
    spaces.push(own)
    opened.push(own)
  }
  // A space around the agent has its servers, where nobody is to open them.
  if (ids.length > 0 && (openServers !== undefined || around === undefined)) {
    if (openServers === undefined) {
      throw new ConvokeError(
        'config',
        `The agent has MCP servers (${ids.join(', ')}) and nobody to connect to them: run it by \`getExecutionEnvironment\`, or on a node.`,
      )
    }
    const options = await Promise.all(ids.map(async (id) => [id, await resources.get(id, 'mcpServer')] as const))
    const servers = await openServers(Object.fromEntries(options))
    spaces.push(servers.tools)
    opened.push(servers)
  }
  if (around !== undefined) spaces.push(around)
  const [first] = spaces
  return {
    tools: spaces.length === 1 && first !== undefined ? first : joined(spaces),
    async close() {
      for (const each of opened.toReversed()) await each.close()
    },
  }
}

/** The space for one run: calls stop with the run, and are made for the one who asked for it, who answers their questions. */
export function toolsOfRun(
  space: AgentToolSpace,
  { caller, ask }: Pick<RunOptions, 'caller' | 'ask'>,
  signalOf: () => AbortSignal,
): AgentToolSpace {
  const withRun = (options: ToolCallOptions = {}): ToolCallOptions => {
    const [own, { signal = own }] = [signalOf(), options]
    return {
      ...(caller === undefined ? {} : { caller }),
      ...(ask === undefined ? {} : { ask }),
      ...options,
      // One out of two costs as much as the rest of a small call.
      signal: signal === own ? own : AbortSignal.any([own, signal]),
    }
  }
  return {
    chain: () => space.chain?.(),
    list: () => space.list(),
    get: (name) => space.get(name),
    tryCall: (name, params, options) => space.tryCall(name, params, withRun(options)),
    call: (name, params, options) => space.call(name, params, withRun(options)),
  }
}

/** Several spaces as one; of two tools of one name that of the first counts. A name that none knows goes to the last one, which may look for it. */
function joined(spaces: readonly AgentToolSpace[]): AgentToolSpace {
  const last = spaces.at(-1) as AgentToolSpace
  const of = (name: string): AgentToolSpace => spaces.find((space) => space.get(name) !== undefined) ?? last
  return {
    chain: () => last.chain?.(),
    list() {
      const tools = new Map(
        spaces.toReversed().flatMap((space) => space.list().map((tool) => [tool.name, tool] as const)),
      )
      return spaces.flatMap((space) => space.list().filter((tool) => tools.get(tool.name) === tool))
    },
    get: (name) => of(name).get(name),
    tryCall: (name, params, options) => of(name).tryCall(name, params, options),
    call: (name, params, options) => of(name).call(name, params, options),
  }
}
