/** The tool space of a configuration, as commands open it: in this process, without a node. */
import { ConvokeError } from '../../base/errors.ts'
import type { NodeOptions } from '../../options.ts'
import type { AgentTools } from '../../tool-space.ts'
import { bindingsOf } from '../a2a/connection.ts'
import { ClientFailure, usageFailure } from '../a2a/failure.ts'
import type { Session } from '../a2a/session.ts'
import type { ClientFlags } from '../a2a/settings.ts'
import { field, quote } from '../a2a/text.ts'
import { storedCredentials } from '../credentials.ts'
import { configFlag, type Directory } from './target.ts'

/** Which tools are wanted. What is not is not opened: no module is loaded for the tools of others. */
export interface Wanted {
  readonly own?: boolean
  readonly servers?: boolean
  readonly peers?: boolean
  /** How long a request to a peer may take of which the configuration does not say it, in milliseconds. */
  readonly peerTimeoutMs?: number
}

/** What a directory must be for there to be a tool space. */
export type WithOptions = Directory & { readonly options: NodeOptions }

/** Opens the tool space, runs `use`, and closes it with all that it has started. */
export async function withSpace<Result>(
  session: Session<ClientFlags>,
  { options }: WithOptions,
  { own = false, servers = false, peers = false, peerTimeoutMs }: Wanted,
  use: (space: AgentTools) => Promise<Result>,
): Promise<Result> {
  // Commands for a URL need none of it.
  const [{ openToolSpace }, { createLog }] = await Promise.all([
    import('../../tool-space.ts'),
    import('../../base/log.ts'),
  ])
  const { tools = [], builtin, skills, mcpServers = {}, peers: others = {}, ...rest } = options
  const wanted: NodeOptions = {
    ...rest,
    mcpServers: servers ? mcpServers : {},
    peers: peers ? withSignIn(session, others, peerTimeoutMs) : {},
    ...(own
      ? { tools, ...(builtin === undefined ? {} : { builtin }), ...(skills === undefined ? {} : { skills }) }
      : {}),
  }
  // What goes wrong is told by the command, a line each.
  const log = createLog(session.flags.debug === true ? 'debug' : 'silent')
  const space = await openToolSpace(wanted, { log })
  try {
    return await use(space)
  } finally {
    await space.close()
  }
}

/** Peers with what somebody has signed in with at their origin, and the bindings that the flags say. */
function withSignIn(
  { flags }: Session<ClientFlags>,
  peers: NonNullable<NodeOptions['peers']>,
  requestTimeoutMs: number | undefined,
): NonNullable<NodeOptions['peers']> {
  const { bindings } = bindingsOf(flags)
  return Object.fromEntries(
    Object.entries(peers).map(([id, peer]) => {
      const auth = peer.auth ?? storedCredentials(peer.url)
      const given = {
        ...(requestTimeoutMs === undefined ? {} : { requestTimeoutMs }),
        ...peer,
        ...(bindings === undefined ? {} : { bindings }),
        ...(auth === undefined ? {} : { auth }),
      }
      return [id, given]
    }),
  )
}

/** Whether the configuration has tools of its own: modules, built-in ones, skills. */
export function hasOwnTools({ tools = [], builtin, skills }: NodeOptions): boolean {
  return tools.length > 0 || builtin !== undefined || skills !== undefined
}

/** Asks an MCP server for its tools, starting it if need be. Throws the ClientFailure that tells why that cannot be done. */
export async function lookAtServer(
  session: Session<ClientFlags>,
  space: AgentTools,
  { directory, server }: { readonly directory: Directory; readonly server: string },
): Promise<void> {
  try {
    await space.mcpServers.discover(server, { signal: session.signal })
  } catch (error) {
    if (session.signal.aborted) throw error
    throw serverFailure(error, { directory, server, flag: configFlag(session) })
  }
}

/** Asks one of several sources something, for as long as --timeout says. Rejects with `timeout` when that has passed. */
export async function withinTimeout<Result>(
  { flags: { timeout }, signal }: Session<ClientFlags>,
  ask: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  if (timeout === undefined) return await ask(signal)
  const over = new AbortController()
  const error = new ConvokeError('timeout', `There was no answer within ${timeout / 1000} s.`)
  const timer = setTimeout(() => over.abort(error), timeout)
  try {
    return await ask(AbortSignal.any([signal, over.signal]))
  } catch (thrown) {
    // What was cut off may say so in other words.
    throw over.signal.aborted && !signal.aborted ? error : thrown
  } finally {
    clearTimeout(timer)
  }
}

/** Why an MCP server cannot be used, as the failure of a command. */
export function serverFailure(
  error: unknown,
  { directory, server, flag }: { readonly directory: Directory; readonly server: string; readonly flag: string },
): ClientFailure {
  const failure = ConvokeError.from(error)
  const { code, message } = failure
  const place = `mcpServers.${server} in ${directory.file ?? 'the configuration'}`
  const look = `Check ${place}; convoke servers${flag} --debug shows what it says.`
  if (code === 'not_found') return usageFailure(message, `Look at ${place}.`)
  if (code === 'unauthenticated' || code === 'forbidden') {
    return new ClientFailure('A2ACLI_ERR_AUTH_FAILED', message, {
      hint: `Check the headers of ${place}.`,
      cause: error,
    })
  }
  const kind = code === 'timeout' ? 'A2ACLI_ERR_TIMEOUT' : 'A2ACLI_ERR_UNREACHABLE'
  return new ClientFailure(kind, message, { hint: look, cause: error })
}

/** Tools of MCP servers and peers that were found and cannot be called, with the reason: a line each. */
export function unusableTools(session: Session<ClientFlags>, space: AgentTools): string[] {
  const held = space.tools.summary().quarantined.map((handle) => quarantineNote(session, handle))
  const broken = space.tools.health().flatMap(({ source, problems = [] }) =>
    // Those of the agent's own are among the warnings.
    source === '' ? [] : problems.map(({ name, reason }) => `${source}.${name}: it cannot be used: ${reason}`),
  )
  return [...held, ...broken.map(oneLine)]
}

/** What is told of a tool that changed and is held back. */
export function quarantineNote(session: Session<ClientFlags>, handle: string): string {
  const command = `convoke pins diff ${quote(handle)}${configFlag(session)}`
  return oneLine(`${handle}: it is quarantined, as it says something else than when it was pinned. See ${command}`)
}

function oneLine(text: string): string {
  return field('', text).slice(': '.length).trimEnd()
}
