/** `convoke call`: runs one tool of a peer, shows what it says as it comes, and stops it when it is not wanted any more. */
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
import { CallOutput } from './call-output.ts'
import type { RemoteFlags } from './options.ts'
import { checkParams, readParams } from './params.ts'
import { answer } from './question.ts'
import { configFlag, findTarget, readDirectory, unknownPeer, urlOf, withPeer, type Directory } from './target.ts'

export interface CallFlags extends RemoteFlags {
  readonly param?: readonly string[]
  readonly stream?: boolean
  readonly out?: string
  readonly detach?: boolean
  readonly answer?: readonly string[]
}

/** How long the word of a peer is waited for that was told to stop, in milliseconds. */
const cancelTimeoutMs = 5_000

interface Call {
  readonly tool: RemoteToolInfo
  readonly params: JsonObject
}

export async function callTool(session: Session<CallFlags>, ...words: readonly string[]): Promise<void> {
  const { reference, name, json } = await readWords(session, words)
  const target = await findTarget(session, reference)
  const command = `convoke call ${target.id === 'peer' ? `${quote(reference)} ${name}` : `${reference}.${name}${configFlag(session)}`}`
  await withPeer(session, target, async (peer) => {
    session.isConnected = true
    const tool = await findTool(session, peer, name, reference)
    const { flags } = session
    const given = flags.param ?? []
    const params = await readParams(json, given, tool.parametersSchema, session.signal)
    checkParams(params, tool, { command, isNoneGiven: json === undefined && given.length === 0 })
    if (flags.detach === true) await begin(session, peer, { tool, params })
    else await run(session, peer, { tool, params })
  })
}

/** `PEER.TOOL`, `PEER TOOL` or `URL TOOL`, then the params. Throws `A2ACLI_ERR_USAGE` for anything else. */
async function readWords(
  session: Session<CallFlags>,
  [first = '', ...rest]: readonly string[],
): Promise<{ reference: string; name: string; json: string | undefined }> {
  const usage = 'Name a peer and its tool: convoke call bob.count_to, or convoke call URL count_to'
  const dot = first.indexOf('.')
  const [, host, tool] = /^(.+:\d+)\.([A-Za-z_][\w.-]*)$/.exec(first) ?? []
  if (host !== undefined && tool !== undefined) {
    const command = ['convoke', 'call', host, tool, ...rest].map(quote).join(' ')
    throw usageFailure('Between a URL and its tool there is a space, not a dot.', `Write: ${command}`)
  }
  const isUrl = urlOf(first) !== undefined
  if (!isUrl && dot > 0) {
    const directory = await readDirectory(session)
    const id = first.slice(0, dot)
    const [json, ...more] = rest
    const isKnown = directory.peers.has(id)
    const isTool = isKnown || json === undefined || isParams(json)
    if (isTool && !isKnown) throw unknownPeer(id, directory)
    if (isTool && more.length > 0) throw tooManyWords(json, usage)
    if (isTool) return { reference: id, name: first.slice(dot + 1), json }
  }
  const [name, json, ...more] = rest
  if (name === undefined || isParams(name)) {
    const directory = isUrl ? undefined : await readDirectory(session)
    if (directory === undefined || directory.peers.has(first)) throw usageFailure('No tool is named.', usage)
    throw usageFailure(
      `No peer is named, only ${JSON.stringify(first)}.`,
      peerHint(first, directory, configFlag(session)),
    )
  }
  if (more.length > 0) throw tooManyWords(json, usage)
  return { reference: first, name, json }
}

function isParams(word: string): boolean {
  return word === '-' || /^(\s*[{[]|@|[\w.-]+=)/.test(word)
}

/** Nobody is asked which peer has the tool: who has called wrongly has sent nothing. */
function peerHint(tool: string, { peers }: Directory, flag: string): string {
  const [first, ...others] = [...peers.keys()].slice(0, 20)
  const command = first === undefined ? `convoke call URL ${tool}` : `convoke call ${first}.${tool}${flag}`
  const known = others.length === 0 ? '' : ` (there are ${[first, ...others].join(', ')})`
  return `Put a peer before the tool: ${command}${known}`
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

async function run(session: Session<CallFlags>, peer: Peer, call: Call): Promise<void> {
  const { flags } = session
  const closed = new AbortController()
  const onClosed = (): void => closed.abort(new ConvokeError('canceled', 'Nobody reads the output any more.'))
  process.on('SIGPIPE', onClosed)
  const signal = AbortSignal.any([session.signal, closed.signal])
  const output = new CallOutput({
    form: !session.isJson ? 'text' : flags.stream === true ? 'lines' : 'json',
    out: flags.out,
  })
  let task: RemoteTask | undefined
  let isAsked = false
  const given = [...(flags.answer ?? [])]
  const options: RemoteCallOptions = {
    signal,
    ...(flags.timeout === undefined ? {} : { timeoutMs: flags.timeout }),
    // What stops it is told by us below: then its word can be told to the user.
    detach: true,
    ask: async (question) => {
      isAsked = true
      const reply = await answer(question, { given, onQuestion: () => output.endLine(), signal })
      isAsked = false
      return reply
    },
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
    const isUnanswered = isAsked && error instanceof ConvokeError && error.code === 'unsupported_operation'
    if (isUnanswered) throw unanswered(session, error)
    if (session.taskId !== undefined && isOurs(error, signal)) await cancel(session, peer, session.taskId)
    if (closed.signal.aborted) return
    throw toolFailure(error, session, signal)
  } finally {
    process.off('SIGPIPE', onClosed)
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
