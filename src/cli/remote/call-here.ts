/** `convoke call` for tools of this tool space: those of MCP servers, one's own, and aliases. They run in this process. */
import { ConvokeError } from '../../base/errors.ts'
import type { JsonObject } from '../../base/json.ts'
import { PeerError } from '../../peers/errors.ts'
import type { AgentTools } from '../../tool-space.ts'
import type { Tool } from '../../tools/tool.ts'
import { ClientFailure, usageFailure } from '../a2a/failure.ts'
import type { Session } from '../a2a/session.ts'
import { field } from '../a2a/text.ts'
import { ExitRequest } from '../failure.ts'
import { checkParams, readParams } from './params.ts'
import { changedFailure, forbiddenFailure, unanswered } from './refusals.ts'
import { ShownCall, type CallFlags } from './shown-call.ts'
import { lookAtServer, withSpace, type WithOptions } from './space.ts'
import { configFlag } from './target.ts'

export interface CallHere {
  readonly directory: WithOptions
  /** `SERVER.TOOL`, the name of a tool of one's own, or an alias. */
  readonly name: string
  /** The params as they were given. */
  readonly json: string | undefined
}

export async function callHere(session: Session<CallFlags>, { directory, name, json }: CallHere): Promise<void> {
  const { flags } = session
  if (flags.detach === true) {
    throw usageFailure(
      'With --detach a peer goes on by itself; this tool runs in this process, and ends with it.',
      'Leave --detach away, or call the tool of a peer by its handle: convoke call bob.count_to --detach',
    )
  }
  // There is no agent that could still be at it, nor a card to be found.
  session.isOver = true
  session.isConnected = true
  const isOfServer = name.includes('.')
  // A tool of one's own may call any other.
  const wanted = { own: !isOfServer, servers: true, peers: !isOfServer }
  await withSpace(session, directory, wanted, async (space) => {
    const tool = await findTool(session, space, { directory, name })
    const given = flags.param ?? []
    const params = await readParams(json, given, tool.input, session.signal)
    const checked = { name: tool.name, parametersSchema: tool.input }
    const command = `convoke call ${name}${configFlag(session)}`
    checkParams(params, checked, { command, isNoneGiven: json === undefined && given.length === 0 })
    await run(session, space, { tool, params })
  })
  // A module may have opened something that would keep the process alive.
  if (!isOfServer) throw new ExitRequest(0)
}

async function findTool(
  session: Session<CallFlags>,
  space: AgentTools,
  { directory, name }: { readonly directory: WithOptions; readonly name: string },
): Promise<Tool> {
  const { tools, mcpServers, warnings } = space
  const flag = configFlag(session)
  const handle = handleOf(space, directory, name)
  const service = handle.includes('.') ? handle.slice(0, handle.indexOf('.')) : undefined
  if (service !== undefined && mcpServers.has(service)) {
    session.credentialsHint = `Check the headers of mcpServers.${service} in ${directory.file ?? 'the configuration'}.`
    await lookAtServer(session, space, { directory, server: service })
  }
  try {
    return await tools.resolve(handle)
  } catch (error) {
    const { code, message, cause } = ConvokeError.from(error)
    // Behind an alias: why the peer could not be asked.
    if (cause instanceof PeerError) throw cause
    if (code !== 'not_found' && code !== 'forbidden') throw error
    // Perhaps it is in a module that could not be loaded.
    if (service === undefined) for (const warning of warnings) session.note(field('warning', warning).trimEnd())
    if (code === 'forbidden') throw changedFailure(message, { handle, flag }, error)
    const hint = `See the tools there are: convoke tools${service === undefined ? '' : ` ${service}`}${flag}`
    throw new ClientFailure('CONVOKE_ERR_TOOL', message, { hint, cause: error })
  }
}

/** What an alias stands for. A tool of one's own comes before an alias of the same name. */
function handleOf({ tools }: AgentTools, { options: { aliases = {} } }: WithOptions, name: string): string {
  const handle = Object.hasOwn(aliases, name) ? aliases[name] : undefined
  return handle === undefined || tools.list({ source: '' }).some((tool) => tool.name === name) ? name : handle
}

/** What is known of a call that failed. */
interface Failed {
  readonly session: Session<CallFlags>
  readonly tool: Tool
  /** A rule may have forbidden it. */
  readonly hasPolicy: boolean
}

async function run(
  session: Session<CallFlags>,
  { tools }: AgentTools,
  { tool, params }: { readonly tool: Tool; readonly params: JsonObject },
): Promise<void> {
  const shown = new ShownCall(session)
  const { signal, output, ask } = shown
  const startedAt = performance.now()
  try {
    for await (const event of tools.stream(tool.name, params, { signal, ask })) {
      await output.show(event, { executionTimeMs: Math.round(performance.now() - startedAt) })
    }
  } catch (error) {
    output.endLine()
    if (shown.isLeft) return
    if (signal.aborted) throw error
    if (shown.isAsked && isUnanswered(error)) throw unanswered(error)
    throw toolFailure(error, { session, tool, hasPolicy: tools.pipeline.policy !== undefined })
  } finally {
    shown.close()
  }
}

/** A question found nobody; where it was for an approval, the call is forbidden without one. */
function isUnanswered(error: unknown): boolean {
  return error instanceof ConvokeError && (error.code === 'unsupported_operation' || error.code === 'forbidden')
}

/** Whether a peer has said it; a refusal of this side may bear its name. */
function isOfPeer(error: ConvokeError): boolean {
  if (!(error instanceof PeerError)) return false
  return error.kind === 'tool' || error.httpStatus !== undefined || error.rpcCode !== undefined
}

/** A failure of the call. What a peer said, behind an alias, is told as that of every peer. */
function toolFailure(error: unknown, { session, tool, hasPolicy }: Failed): unknown {
  if (!(error instanceof ConvokeError)) return error
  const isOurRule = error.code === 'forbidden' && hasPolicy && !isOfPeer(error)
  if (isOurRule) return forbiddenFailure(error, { handle: tool.name, flag: configFlag(session) })
  if (error instanceof PeerError && error.kind !== 'tool') return error
  const { code, issues = [] } = error
  const message = error instanceof PeerError ? error.sentence : error.message
  const because = { issues, cause: error }
  const flag = configFlag(session)
  const isServer = tool.kind === 'mcp'
  if (code === 'timeout' || (code === 'unauthenticated' && isServer)) return error
  if ((code === 'network' || code === 'unavailable') && isServer) {
    return new ClientFailure('A2ACLI_ERR_UNREACHABLE', message, {
      ...because,
      hint: `See how it is: convoke servers${flag}`,
    })
  }
  // What JSON Schema could not say about the params; a refusal of the tool's own making is one of the work.
  if (code === 'invalid_params' && tool.kind === 'local' && issues.length > 0) {
    return new ClientFailure('A2ACLI_ERR_USAGE', message, because)
  }
  return new ClientFailure('CONVOKE_ERR_TOOL', `The tool failed (${code}): ${message}`, because)
}
