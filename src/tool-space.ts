/** The tool space of an agent: what its options say of tools, MCP servers and peers, opened as one. Nothing listens. */
import { readFileSync } from 'node:fs'
import { isAbsolute, relative, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createGuardedFetch, type GuardedFetch } from './base/guarded-fetch.ts'
import { createLog, type Log } from './base/log.ts'
import { processEnvironment } from './config.ts'
import { McpServerRegistry } from './mcp/server-registry.ts'
import type { NodeOptions, ToolModule } from './options.ts'
import { ClientManager } from './peers/client-manager.ts'
import { RemoteToolRegistry } from './peers/remote-registry.ts'
import { delegationLimits } from './protocol/delegation.ts'
import { closeIdleWorkers } from './tools/blocking.ts'
import { createBuiltins } from './tools/builtin/create.ts'
import { createSkillTools } from './tools/builtin/skills.ts'
import { DelegationGuard } from './tools/delegation.ts'
import { loadTools } from './tools/load.ts'
import { LocalToolRegistry } from './tools/local.ts'
import { ToolManager } from './tools/manager.ts'
import { Pins, pinsPath } from './tools/pins.ts'
import { ToolPolicy } from './tools/policy.ts'
import { discoverSkillBundles, type SkillFolder } from './tools/skill-bundles.ts'
import { isToolInstance, type ToolBase } from './tools/tool-base.ts'
import type { Tool } from './tools/tool.ts'

/** An open tool space. Whoever opened it closes it. */
export interface AgentTools {
  readonly tools: ToolManager
  /** The agent's own tools, built-in ones and skills among them. */
  readonly registry: LocalToolRegistry
  readonly peers: ClientManager
  readonly remoteTools: RemoteToolRegistry
  readonly mcpServers: McpServerRegistry
  readonly pins: Pins
  /** Keeps calls from going round from node to node. */
  readonly guard: DelegationGuard
  /** What was skipped: tool modules that could not be loaded, tools that are disabled, MCP servers that make no sense. */
  readonly warnings: readonly string[]
  /** Ends calls under way, connections and processes of MCP servers, and writes what was pinned. */
  close(): Promise<void>
}

/**
 * Opens the tool space that options describe. Loads the tool modules; connects to nobody: that is done by the first call,
 * or by `discover`. `log` is one of `options.logLevel` unless given. Throws `config` for options that make no sense.
 */
export async function openToolSpace(
  options: NodeOptions,
  { log = createLog(options.logLevel ?? 'warn') }: { readonly log?: Log } = {},
): Promise<AgentTools> {
  const baseDir = resolve(options.baseDir ?? '.')
  const fetch = createGuardedFetch({ allowPrivate: options.builtin?.allowPrivate ?? false })
  const registry = new LocalToolRegistry({ log })
  const builtin = await createBuiltinTools(options, { baseDir, fetch, log })
  const skipped = await addTools(registry, options, { baseDir, log, builtin: builtin.tools })

  const self = options.agent.id
  const peers = new ClientManager({ peers: options.peers ?? {}, log, enabled: options.features?.delegate ?? true })
  const remoteTools = new RemoteToolRegistry({ clients: peers, self, log })
  const mcpServers = new McpServerRegistry({
    servers: options.mcpServers ?? {},
    log,
    baseDir,
    environment: options.environment ?? processEnvironment(),
    clientInfo: { name: 'convoke', version: packageVersion() },
  })
  const guard = new DelegationGuard(self, { ...delegationLimits, ...options.delegation })
  const policy = options.toolPolicy === undefined ? {} : { policy: new ToolPolicy(options.toolPolicy) }
  // The first that holds something open, a watch on its file: what can go wrong with options does so before.
  const pins = new Pins({
    ...options.pins,
    file: pinsPath(options.pins, { store: options.store?.url, baseDir }),
    log,
  })
  const close = async (): Promise<void> => {
    await pins.close()
    await Promise.all([mcpServers.close(), peers.close()])
    await fetch.close()
    await closeIdleWorkers()
  }
  try {
    const tools = new ToolManager({
      registry,
      sources: [mcpServers, remoteTools],
      aliases: options.aliases ?? {},
      publish: options.publish ?? [],
      ...options.toolCalls,
      ...policy,
      pins,
      guard,
      log,
    })
    return {
      tools,
      registry,
      peers,
      remoteTools,
      mcpServers,
      pins,
      guard,
      warnings: [...builtin.warnings, ...skipped, ...mcpServers.skipped],
      async close() {
        await tools.close()
        await close()
      },
    }
  } catch (error) {
    await close()
    throw error
  }
}

interface Surroundings {
  readonly baseDir: string
  readonly log: Log
}

/** The tools that the package brings along, as far as they are switched on. */
async function createBuiltinTools(
  { builtin, skills, environment = processEnvironment() }: NodeOptions,
  { baseDir, fetch, log }: Surroundings & { readonly fetch: GuardedFetch },
): Promise<{ readonly tools: readonly Tool[]; readonly warnings: readonly string[] }> {
  const root = resolve(baseDir, builtin?.root ?? '.')
  const tools = createBuiltins({ ...builtin, root, baseDir, environment, fetch })
  const risks = risksOf(tools, root, baseDir)
  for (const risk of risks) log.warn(risk)
  if (skills === undefined) return { tools, warnings: risks }
  const { dirs = [], builtin: withOurs = true, only } = skills
  const ours = fileURLToPath(new URL('../skills', import.meta.url))
  const folders: SkillFolder[] = [
    ...(withOurs ? [{ folder: ours, source: 'builtin' as const }] : []),
    ...dirs.map((dir) => ({ folder: resolve(baseDir, dir), source: 'user' as const })),
  ]
  const { bundles, warnings } = await discoverSkillBundles(folders, { log, ...(only === undefined ? {} : { only }) })
  return { tools: [...tools, ...createSkillTools(bundles)], warnings: [...risks, ...warnings] }
}

/** A tool that writes where the node's own files are decides what the node does: its rules, its pins, its modules. */
function risksOf(tools: readonly Tool[], root: string, baseDir: string): string[] {
  const writing = tools.map(({ name }) => name).filter((name) => name === 'write_file' || name === 'edit_file')
  const way = relative(root, baseDir)
  if (writing.length === 0 || way === '..' || way.startsWith(`..${sep}`) || isAbsolute(way)) return []
  const what = `${writing.join(' and ')} can change the node's own configuration, rules and store`
  return [`${what}: builtin.root is the folder that they are in, or above it. Give it one of its own.`]
}

/** Own tools, then those of modules, then builtin ones, whose names no module can take. */
async function addTools(
  registry: LocalToolRegistry,
  options: NodeOptions,
  { baseDir, log, builtin }: Surroundings & { readonly builtin: readonly Tool[] },
): Promise<string[]> {
  const entries = options.tools ?? []
  const modules = entries.filter((entry): entry is ToolModule => 'module' in entry)
  const own = entries.filter((entry): entry is Tool | ToolBase => !('module' in entry))
  for (const tool of own) {
    if (!isToolInstance(tool) || (await tool.isEnabled())) registry.register(tool)
  }
  const taken = new Set([...own, ...builtin].map(({ name }) => name))
  const { tools, warnings } = await loadTools(modules, { baseDir, log })
  for (const tool of tools) {
    if (!taken.has(tool.name)) registry.register(tool)
    else warnings.push(`There is a tool "${tool.name}" already; the one of a module was skipped.`)
  }
  for (const tool of builtin) registry.register(tool)
  return [...warnings, ...registry.problems().map(({ name, reason }) => `The tool "${name}" is disabled: ${reason}`)]
}

function packageVersion(): string {
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8')
  return (JSON.parse(text) as { version: string }).version
}
