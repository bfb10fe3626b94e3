/** `convoke serve`: runs a node until it is told to stop. */
import { setTimeout as pause } from 'node:timers/promises'
import { createLog } from '../base/log.ts'
import { createNode } from '../node.ts'
import type { Node } from '../node.ts'
import type { NodeOptions } from '../options.ts'
import { formatBanner, type BannerTool } from './banner.ts'
import { loadConfigFile } from './config.ts'
import { CommandFailure } from './failure.ts'
import { stopSignals } from './signals.ts'
import { createPaint } from './paint.ts'
import { watchUncaught } from './uncaught.ts'

export interface ServeFlags {
  readonly config?: string
  readonly port?: number
  readonly host?: string
  readonly logLevel?: NonNullable<NodeOptions['logLevel']>
  readonly output: 'text' | 'json'
}

/** Resolves when the node is ready; from then on signals decide. Flags win over the file. */
export async function serve(flags: ServeFlags): Promise<void> {
  const { options: fromFile, warnings: ofFile } = await loadConfigFile(flags.config)
  const logLevel = flags.logLevel ?? fromFile.logLevel ?? 'info'
  const options: NodeOptions = {
    ...fromFile,
    logLevel,
    server: {
      ...fromFile.server,
      ...(flags.port === undefined ? {} : { port: flags.port }),
      ...(flags.host === undefined ? {} : { host: flags.host }),
    },
  }
  const warnings = [...ofFile, ...addressWarnings(options)]
  const starting = start(options)
  stopOnSignal(starting, options.server?.drainMs ?? defaultDrainMs)
  try {
    const node = await starting
    const isLooking = await Promise.race([node.firstLook.then(() => false), pause(lookMs).then(() => true)])
    if (flags.output === 'json') {
      for (const warning of warnings) process.stderr.write(`warning: ${warning}\n`)
      process.stdout.write(readyLine(node, isLooking))
    } else {
      process.stdout.write(readyText(node, { options, warnings, isLooking }))
    }
  } catch (error) {
    throw new CommandFailure(1, error, logLevel === 'debug')
  }
  watchUncaught(createLog(logLevel))
}

async function start(options: NodeOptions): Promise<Node> {
  const node = await createNode(options)
  try {
    await node.start()
    return node
  } catch (error) {
    await node.stop()
    throw error
  }
}

/** The URL that is shown then works on this machine only, and the card names whatever host it was asked under. */
export function addressWarnings({ server = {} }: NodeOptions): string[] {
  const { host = '', publicUrl } = server
  if (!/^(0\.0\.0\.0|\[?::\]?)$/.test(host) || publicUrl !== undefined) return []
  return [
    `The node listens on all addresses of this machine (${host}). Set server.publicUrl to the URL that others use.`,
  ]
}

/** How long the first word waits for the tools of others, in milliseconds. */
const lookMs = 2_000

/** The node's own. */
const defaultDrainMs = 10_000

/** `npm start` passes on a Ctrl-C that the terminal has sent to us already: so soon, it is the same one. */
const echoMs = 300

/**
 * The first signal to stop lets running tasks finish within the drain time, then exits with 0. A second one
 * exits at once with 130; what was stored stays good, as after a crash.
 */
function stopOnSignal(starting: Promise<Node>, drainMs: number): void {
  let stoppedAt: number | undefined
  const onSignal = () => {
    if (stoppedAt !== undefined) {
      if (performance.now() - stoppedAt > echoMs) process.exit(130)
      return
    }
    stoppedAt = performance.now()
    starting
      .then((node) => {
        const { running } = node.stats
        if (running > 0 && drainMs > 0) process.stderr.write(stoppingLine(running, drainMs))
        return node.stop()
      })
      .then(
        () => process.exit(0),
        (error: unknown) => {
          process.stderr.write(`convoke: ${new CommandFailure(1, error).message}\n`)
          process.exit(1)
        },
      )
  }
  for (const signal of stopSignals) process.on(signal, onSignal)
}

function stoppingLine(running: number, drainMs: number): string {
  const tasks = running === 1 ? '1 task' : `${running} tasks`
  return `Stopping: ${tasks} may finish within ${drainMs / 1000} s (server.drainMs). Ctrl-C again ends it at once.\n`
}

/** By the names that callers use. */
function publishedTools(node: Node): BannerTool[] {
  return node.tools.published().map(({ name, tool: { input, traits } }) => ({ name, input, traits }))
}

/** How many of the configured modules the node has warned of, in the log. */
function skippedModules({ warnings }: Node, { tools = [] }: NodeOptions): number {
  const modules = new Set(tools.flatMap((entry) => ('module' in entry ? [entry.module] : [])))
  return [...modules].filter((module) => warnings.some((warning) => warning.startsWith(`${module}: `))).length
}

function readyLine(node: Node, isLooking: boolean): string {
  const tools = publishedTools(node).map(({ name }) => name)
  return `${JSON.stringify({ url: node.url, doors: node.doors, tools, looking: isLooking })}\n`
}

/** What answers messages, as the configuration says it. */
function agentWords({ agent, models = {} }: NodeOptions): string | undefined {
  const { react, module } = agent
  if (module !== undefined) return `${module} answers messages`
  const model = react === undefined ? undefined : models[react.model]
  return react && model && `the model ${model.model} answers messages (models.${react.model})`
}

interface Started {
  readonly options: NodeOptions
  readonly warnings: readonly string[]
  readonly isLooking: boolean
}

function readyText(node: Node, { options, warnings, isLooking }: Started): string {
  const banner = {
    name: options.agent.name ?? options.agent.id,
    url: node.url,
    doors: node.doors,
    agent: agentWords(options),
    tools: publishedTools(node),
    isLooking,
    hasForeign: (options.publish ?? []).length > 0,
    skippedModules: skippedModules(node, options),
    warnings,
    rpcUrl: node.doors.find((door) => /json-?rpc/i.test(door.name))?.url ?? node.url,
    authRequired: options.server?.auth !== undefined,
  }
  return formatBanner(banner, createPaint(process.stdout))
}
