/** `convoke servers`: the MCP servers of the configuration, and how they are. */
import { ConvokeError } from '../../base/errors.ts'
import { inTurns } from '../../base/in-turns.ts'
import type { Json, JsonObject } from '../../base/json.ts'
import { stripControls } from '../../base/text.ts'
import type { McpServerHealth } from '../../mcp/mcp-server.ts'
import type { AgentTools } from '../../tool-space.ts'
import { usageFailure } from '../a2a/failure.ts'
import type { Session } from '../a2a/session.ts'
import { field } from '../a2a/text.ts'
import { ExitRequest } from '../failure.ts'
import { createPaint, type Paint } from '../paint.ts'
import type { RemoteFlags } from './options.ts'
import { unusableTools, withinTimeout, withSpace } from './space.ts'
import { noFile, readDirectory } from './target.ts'
import { maxAtOnce } from './tools.ts'

export interface ServersFlags extends RemoteFlags {
  readonly check?: boolean
}

/** What was found out about one server. */
interface Found {
  readonly health: McpServerHealth
  /** From nothing to its list of tools. */
  readonly readyMs?: number
  readonly problems: readonly { readonly name: string; readonly reason: string }[]
  /** Names of tools that are held back until somebody approves their change. */
  readonly quarantined: readonly string[]
  readonly error?: ConvokeError
}

export async function showServers(session: Session<ServersFlags>): Promise<void> {
  // Nobody is at it any more when this ends.
  session.isOver = true
  const { file, options, ...directory } = await readDirectory(session)
  if (file === undefined || options === undefined) throw usageFailure(noFile, 'Name a configuration: -c FILE')
  if (Object.keys(options.mcpServers ?? {}).length === 0) {
    const example = 'mcpServers: { files: { command: npx, args: [-y, "@modelcontextprotocol/server-filesystem", .] } }'
    throw usageFailure(`There are no MCP servers in ${file}.`, `Write one into the file: ${example}`)
  }
  const isWell = await withSpace(session, { file, options, ...directory }, { servers: true }, async (space) => {
    const { mcpServers } = space
    for (const sentence of mcpServers.skipped) session.note(field('warning', sentence).trimEnd())
    const all = await lookAtAll(session, space)
    session.show(all.map(toJson), () => table(all, unusableTools(session, space), createPaint(process.stdout)))
    return mcpServers.skipped.length === 0 && all.every(({ error }) => error === undefined)
  })
  if (session.flags.check === true && !isWell) throw new ExitRequest(1)
}

/** In the order of configuration. */
async function lookAtAll(session: Session<ServersFlags>, { mcpServers, tools }: AgentTools): Promise<Found[]> {
  const times = new Map<string, number>()
  const errors = new Map<string, ConvokeError>()
  await inTurns(mcpServers.services(), maxAtOnce, async (id) => {
    const startedAt = performance.now()
    try {
      await withinTimeout(session, (signal) => mcpServers.discover(id, { signal }))
      times.set(id, Math.round(performance.now() - startedAt))
    } catch (error) {
      errors.set(id, ConvokeError.from(error))
    }
  })
  session.signal.throwIfAborted()
  const held = tools.summary().quarantined
  return mcpServers.health().map((health): Found => {
    const readyMs = times.get(health.id)
    const error = errors.get(health.id)
    const own = `${health.id}.`
    return {
      health,
      problems: mcpServers.status(health.id).problems ?? [],
      quarantined: held.flatMap((handle) => (handle.startsWith(own) ? [handle.slice(own.length)] : [])),
      ...(readyMs === undefined ? {} : { readyMs }),
      ...(error === undefined ? {} : { error }),
    }
  })
}

function stateOf({ health, error }: Found): 'up' | 'down' | 'disabled' {
  return health.state === 'disabled' ? 'disabled' : error === undefined ? 'up' : 'down'
}

/** How many of its tools can be called. */
function usable({ health, quarantined }: Found): number {
  return health.tools - quarantined.length
}

function toJson(found: Found): JsonObject {
  const { health, readyMs, problems, quarantined, error } = found
  const { id, transport, serverInfo } = health
  const failure: Json = error === undefined ? null : { code: error.code, message: error.message }
  return {
    server: id,
    state: stateOf(found),
    transport,
    name: serverInfo?.name ?? null,
    version: serverInfo?.version ?? null,
    tools: readyMs === undefined ? null : usable(found),
    problems: problems.map(({ name, reason }) => ({ name, reason })),
    quarantined: [...quarantined],
    ready_ms: readyMs ?? null,
    error: failure,
  }
}

const headings = ['SERVER', 'STATE', 'OVER', 'NAME', 'TOOLS', 'READY']

function table(all: readonly Found[], unusable: readonly string[], paint: Paint): string {
  const rows = all.map((found) => {
    const { health, readyMs } = found
    const { id, transport, serverInfo } = health
    const name = serverInfo === undefined ? '-' : `${serverInfo.name} ${serverInfo.version}`
    const isUp = readyMs !== undefined
    return [
      id,
      stateOf(found),
      transport,
      stripControls(name).replace(/\s+/g, ' '),
      isUp ? String(usable(found)) : '-',
      isUp ? `${readyMs} ms` : '-',
    ]
  })
  const widths = headings.map((heading, i) => Math.max(heading.length, ...rows.map((row) => row[i]?.length ?? 0)))
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()
  const failures = all.flatMap(({ health, error }) =>
    error === undefined ? [] : [field(health.id, `${error.message} (${error.code})`).trimEnd()],
  )
  return [
    paint('bold', line(headings)),
    ...rows.map(line),
    ...failures.map((each) => paint('red', each)),
    ...unusable.map((each) => paint('yellow', each)),
    '',
  ].join('\n')
}
