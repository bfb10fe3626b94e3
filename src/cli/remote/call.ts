/**
 * `convoke call`: runs one tool, shows what it says as it comes, and stops it when it is not wanted any more. Here: what a
 * command line means, and the tools of peers, each call of which is a task there.
 */
import { randomUUID } from 'node:crypto'
import { ConvokeError } from '../../base/errors.ts'
import type { Peer } from '../../peers/connect-peer.ts'
import { PeerError } from '../../peers/errors.ts'
import type { RemoteCallOptions } from '../../peers/remote-executor.ts'
import type { RemoteToolInfo } from '../../peers/remote-tool-info.ts'
import { toCallMessage } from '../../protocol/tool-call.ts'
import type { JsonObject } from '../../base/json.ts'
import type { RemoteTask } from '../../tools/tool.ts'
import { closest } from '../../tools/value.ts'
import { ClientFailure, usageFailure } from '../a2a/failure.ts'
import type { Session } from '../a2a/session.ts'
import { quote, resumeCommand, taskText } from '../a2a/text.ts'
import { callHere } from './call-here.ts'
import { checkParams, readParams } from './params.ts'
import { withPeerRules } from './peer-rules.ts'
import { ShownCall, type CallFlags } from './shown-call.ts'
import { hasOwnTools, type WithOptions } from './space.ts'
import {
  configFlag,
  findTarget,
  isServer,
  readDirectory,
  serverIds,
  unknownPeer,
  urlOf,
  withPeer,
  type Directory,
} from './target.ts'

/** How long the word of a peer is waited for that was told to stop, in milliseconds. */
const cancelTimeoutMs = 5_000

interface Call {
  readonly tool: RemoteToolInfo
  readonly params: JsonObject
}

export async function callTool(session: Session<CallFlags>, ...words: readonly string[]): Promise<void> {
  const meant = await readWords(session, words)
  const { json, directory } = meant
  if (meant.place === 'here') return await callHere(session, { directory: meant.directory, name: meant.name, json })
  const { reference, name } = meant
  const target = await findTarget(session, reference, directory)
  const command = `convoke call ${target.id === 'peer' ? `${quote(reference)} ${name}` : `${reference}.${name}${configFlag(session)}`}`
  await withPeerRules(session, { peer: reference, directory }, async (rules) => {
    await withPeer(session, target, async (peer) => {
      session.isConnected = true
      const tool = await findTool(session, peer, name, reference)
      rules?.checkPin(tool)
      const { flags } = session
      const given = flags.param ?? []
      const params = await readParams(json, given, tool.parametersSchema, session.signal)
      checkParams(params, tool, { command, isNoneGiven: json === undefined && given.length === 0 })
      const shown = new ShownCall(session)
      try {
        await rules?.permit(tool, params, shown)
        if (flags.detach === true) await begin(session, peer, { tool, params })
        else await run(session, peer, { tool, params, shown })
      } finally {
        shown.close()
      }
    })
  })
}

/** What the words of a command line mean. */
type Meant =
  | {
      readonly place: 'peer'
      /** A peer of the configuration, or a URL. */
      readonly reference: string
      readonly name: string
      readonly json: string | undefined
      /** Where it was read. */
      readonly directory: Directory | undefined
    }
  | {
      /** In the tool space of the configuration: `SERVER.TOOL`, a tool of one's own, or an alias. */
      readonly place: 'here'
      readonly name: string
      readonly json: string | undefined
      readonly directory: WithOptions
    }

/**
 * `PEER.TOOL`, `PEER TOOL` or `URL TOOL`, the same with an MCP server, `TOOL` or `ALIAS`; then the params. Throws
 * `A2ACLI_ERR_USAGE` for anything else.
 */
async function readWords(session: Session<CallFlags>, [first = '', ...rest]: readonly string[]): Promise<Meant> {
  const usage = 'Name a peer and its tool: convoke call bob.count_to, or convoke call URL count_to'
  const [, host, hostTool] = /^(.+:\d+)\.([A-Za-z_][\w.-]*)$/.exec(first) ?? []
  if (host !== undefined && hostTool !== undefined) {
    const command = ['convoke', 'call', host, hostTool, ...rest].map(quote).join(' ')
    throw usageFailure('Between a URL and its tool there is a space, not a dot.', `Write: ${command}`)
  }
  const isUrl = urlOf(first) !== undefined
  const directory = isUrl ? undefined : await readDirectory(session)
  const dot = first.indexOf('.')
  if (directory !== undefined && dot > 0) {
    const id = first.slice(0, dot)
    const [json, ...more] = rest
    const place = await placeOf(id, directory)
    const isTool = place !== undefined || json === undefined || isParams(json)
    if (isTool && place === undefined) throw await unknownPeer(id, directory)
    if (isTool && more.length > 0) throw tooManyWords(json, usage)
    if (isTool) return meantBy(id, first.slice(dot + 1), json, directory, place)
  }
  const [name, json, ...more] = rest
  const place = directory === undefined ? 'peer' : await placeOf(first, directory)
  if (name === undefined || isParams(name)) {
    if (directory === undefined || place !== undefined) throw usageFailure('No tool is named.', usage)
    if (json !== undefined) throw tooManyWords(name, usage)
    if (knowsHere(directory, first)) return { place: 'here', name: first, json: name, directory }
    throw await nobodyNamed(first, directory, configFlag(session))
  }
  if (more.length > 0) throw tooManyWords(json, usage)
  return meantBy(first, name, json, directory, place)
}

/** Where the tools of an id are; undefined for one that is not known. */
async function placeOf(id: string, directory: Directory): Promise<Meant['place'] | undefined> {
  if (directory.peers.has(id)) return 'peer'
  return (await isServer(directory, id)) ? 'here' : undefined
}

function meantBy(
  id: string,
  tool: string,
  json: string | undefined,
  directory: Directory | undefined,
  place: Meant['place'] | undefined,
): Meant {
  const options = directory?.options
  if (place !== 'here' || directory === undefined || options === undefined)
    return { place: 'peer', reference: id, name: tool, json, directory }
  return { place: 'here', name: `${id}.${tool}`, json, directory: { ...directory, options } }
}

/** Whether a name without a dot may mean something here: which tools modules have is known once they are loaded. */
function knowsHere(directory: Directory, name: string): directory is WithOptions {
  const { options } = directory
  return options !== undefined && (hasOwnTools(options) || Object.hasOwn(options.aliases ?? {}, name))
}

function isParams(word: string): boolean {
  return word === '-' || /^(\s*[{[]|@|[\w.-]+=)/.test(word)
}

/** Nobody is asked who has the tool: who has called wrongly has sent nothing. */
async function nobodyNamed(tool: string, directory: Directory, flag: string): Promise<ClientFailure> {
  const servers = await serverIds(directory)
  const what = servers.length === 0 ? 'peer' : 'peer or MCP server'
  const [first, ...others] = [...directory.peers.keys(), ...servers].slice(0, 20)
  const command = first === undefined ? `convoke call URL ${tool}` : `convoke call ${first}.${tool}${flag}`
  const known = others.length === 0 ? '' : ` (there are ${[first, ...others].join(', ')})`
  return usageFailure(
    `No ${what} is named, only ${JSON.stringify(tool)}.`,
    `Put a ${what} before the tool: ${command}${known}`,
  )
}

function tooManyWords(json: string | undefined, usage: string): ClientFailure {
  const isTorn = json !== undefined && /^\s*[{[]/.test(json)
  const hint = isTorn ? `The shell took the params apart: put quotes round them, '{"n": 5}'.` : usage
  return usageFailure('There are too many arguments.', hint)
}

async function findTool(
  session: Session<CallFlags>,
  peer: Peer,
  name: string,
  reference: string,
): Promise<RemoteToolInfo> {
  const tools = await peer.listRemoteTools({ signal: session.signal })
  const tool = tools.find((each) => each.name === name)
  if (tool !== undefined) return tool
  const similar = closest(
    name,
    tools.map((each) => each.name),
  )
  const meant = similar === undefined ? '' : ` Did you mean "${similar}"?`
  throw new ClientFailure('CONVOKE_ERR_TOOL', `There is no tool ${JSON.stringify(name)} at ${reference}.${meant}`, {
    hint: `See the tools there are: convoke tools ${quote(reference)}${peer.id === 'peer' ? '' : configFlag(session)}`,
  })
}

/** Starts the work and leaves it to the peer. */
async function begin(session: Session<CallFlags>, peer: Peer, { tool, params }: Call): Promise<void> {
  const { timeout } = session.flags
  const message = toCallMessage({ name: tool.name, params, timeoutMs: timeout }, randomUUID())
  const { task } = await peer.sendMessage(message, { returnImmediately: true, signal: session.signal })
  if (task === undefined)
    throw new ClientFailure('CONVOKE_ERR_TOOL', 'The peer answered without a task; there is nothing to come back to.')
  session.show({ task_id: task.id, context_id: task.contextId, state: task.status.state }, () => {
    return taskText({ ...task, artifacts: [] }, session.textOptions)
  })
  session.note(`Its events: convoke task subscribe --stream${session.agentFlag} ${quote(task.id)}`)
}

async function run(
  session: Session<CallFlags>,
  peer: Peer,
  { shown, ...call }: Call & { readonly shown: ShownCall },
): Promise<void> {
  const { flags } = session
  const { signal, output } = shown
  let task: RemoteTask | undefined
  const options: RemoteCallOptions = {
    signal,
    ...(flags.timeout === undefined ? {} : { timeoutMs: flags.timeout }),
    // What stops it is told by us below: then its word can be told to the user.
    detach: true,
    ask: shown.ask,
    onTask: (each) => {
      task = { ...task, ...each }
      session.taskId = each.taskId
    },
  }
  try {
    const events = peer.executeRemoteToolStreaming(call.tool.name, call.params, options)
    for await (const event of events) await output.show(event, task)
  } catch (error) {
    output.endLine()
    const isUnanswered = shown.isAsked && error instanceof ConvokeError && error.code === 'unsupported_operation'
    if (isUnanswered) throw unanswered(session, error)
    if (session.taskId !== undefined && isOurs(error, signal)) await cancel(session, peer, session.taskId)
    if (shown.isLeft) return
    throw toolFailure(error, session, signal)
  }
}

/** Whether the work may go on at the peer although nobody wants it any more. */
function isOurs(error: unknown, signal: AbortSignal): boolean {
  if (signal.aborted || !(error instanceof PeerError)) return true
  return error.code === 'timeout' || error.code === 'too_large'
}

/** Tells the peer to stop, and the user what it says to that. Never rejects. */
async function cancel(session: Session<CallFlags>, peer: Peer, taskId: string): Promise<void> {
  try {
    const { status } = await peer.cancelTask(taskId, { timeoutMs: cancelTimeoutMs })
    session.isOver = status.state === 'TASK_STATE_CANCELED'
    session.note(
      session.isOver
        ? 'Cancelled: the peer says the task has stopped.'
        : `The peer says that the task is ${status.state}.`,
    )
  } catch (error) {
    const { code, message } = ConvokeError.from(error)
    if (code === 'task_not_cancelable') {
      session.isOver = true
      session.note('The task had ended before it could be cancelled.')
    } else {
      session.note(`The peer could not be told to stop (${message}), so the task may go on.`)
      session.note(`Try again: convoke task cancel${session.agentFlag} ${quote(taskId)}`)
    }
  }
}

function unanswered(session: Session<CallFlags>, error: ConvokeError): ClientFailure {
  const taskId = session.taskId ?? ''
  const question = error instanceof PeerError ? error.sentence : error.message
  return new ClientFailure('CONVOKE_ERR_QUESTION', `${question} The task ${taskId} waits for the answer.`, {
    hint: `Answer it: ${resumeCommand(taskId, session.agentFlag)}, or call again with --answer`,
    cause: error,
  })
}

/** A failure of the tool itself; others are told as those of every client command. */
function toolFailure(error: unknown, session: Session<CallFlags>, signal: AbortSignal): unknown {
  if (signal.aborted || !(error instanceof PeerError)) return error
  const { code, kind, sentence } = error
  if (kind !== 'tool' && code !== 'canceled') return error
  const hint =
    session.taskId === undefined
      ? undefined
      : `See the task: convoke task get${session.agentFlag} ${quote(session.taskId)}`
  return new ClientFailure('CONVOKE_ERR_TOOL', `The tool failed (${code}): ${sentence}`, { hint, cause: error })
}
