/** `convoke send`: starts or continues an interaction. */
import { randomUUID } from 'node:crypto'
import type { JsonObject } from '../../base/json.ts'
import type { Message, StreamResponse, Task } from '../../protocol/a2a.ts'
import type { SendMessageResponse, SendOptions } from '../../peers/peer.ts'
import { withClient, type Connection } from './connection.ts'
import { ClientFailure, toClientFailure, usageFailure } from './failure.ts'
import { toParts, type PartFlags } from './parts.ts'
import type { Session } from './session.ts'
import type { AgentFlags } from './settings.ts'
import { showStream } from './stream.ts'
import { messageText, partsText, taskText } from './text.ts'
import { sendAndWait } from './wait.ts'

export interface SendFlags extends AgentFlags {
  readonly async?: boolean
  readonly returnImmediately?: boolean
  /** False by --no-wait. */
  readonly wait?: boolean
  readonly stream?: boolean
  readonly contextId?: string
  readonly taskId?: string
  readonly messageId?: string
  readonly metadata?: JsonObject
}

/** Sends one message. Its parts are `text`, then those of the flags in their order. */
export async function send(session: Session<SendFlags>, text: string | undefined, flags: PartFlags): Promise<void> {
  const isAsync = readDelivery(session)
  const message = await toMessage(session, text, flags)
  await withClient(session, async (connection) => {
    const { metadata, taskId, verbose, stream } = session.flags
    const options: SendOptions = { signal: session.signal, ...(metadata === undefined ? {} : { metadata }) }
    if (taskId !== undefined) session.taskId = taskId
    if (verbose === true && !session.isJson) process.stdout.write(sentText(session, message))
    try {
      if (stream === true) {
        await sendStreaming(session, connection, message, options)
        return
      }
      const answer = isAsync
        ? await connection.client.sendMessage(message, { ...options, returnImmediately: true })
        : await sendAndWait(session, connection, message, options)
      showAnswer(session, answer)
    } catch (error) {
      throw taskId === undefined ? error : withDebugHint(error, session)
    }
  })
}

/** Whether to return at once. Throws `A2ACLI_ERR_USAGE` for flags that contradict each other. */
function readDelivery({ flags, settings }: Session<SendFlags>): boolean {
  const isFlag = (name: string): boolean => settings.some((each) => each.name === name && each.source === 'flag')
  const isAsync = flags.async === true || flags.returnImmediately === true || flags.wait === false
  if (isAsync && flags.wait === true && isFlag('wait')) throw usageFailure('--wait and --async contradict each other.')
  if (isAsync && flags.stream === true)
    throw usageFailure('--stream follows the task and --async does not wait for it.')
  return isAsync
}

async function toMessage(session: Session<SendFlags>, text: string | undefined, parts: PartFlags): Promise<Message> {
  const { contextId, taskId, metadata, messageId = randomUUID() } = session.flags
  return {
    messageId,
    role: 'ROLE_USER',
    parts: await toParts(text, parts, session.signal),
    ...(contextId === undefined ? {} : { contextId }),
    ...(taskId === undefined ? {} : { taskId }),
    // Agents look for it at either place, the message and the request: it stands at both.
    ...(metadata === undefined ? {} : { metadata }),
  }
}

async function sendStreaming(
  session: Session,
  connection: Connection,
  message: Message,
  options: SendOptions,
): Promise<void> {
  if (connection.info.streaming) {
    await showStream(session, connection, connection.client.streamMessage(message, options))
    return
  }
  session.note('convoke: the agent does not stream; waiting for its answer instead.')
  showAnswer(session, await sendAndWait(session, connection, message, options))
}

/** A task or a message is both a SendMessageResponse and a StreamResponse. */
function showAnswer(session: Session, answer: SendMessageResponse & StreamResponse): void {
  const { task, message } = answer
  if (task !== undefined) {
    checkTask(session, task)
    session.show({ task }, () => taskText(task, session.textOptions))
    session.warnOfOutcome(task.id, task.status.state)
  } else if (message !== undefined) {
    session.show({ message }, () => messageText(message, session.textOptions))
  }
}

function checkTask(session: Session<AgentFlags & { readonly taskId?: string }>, task: Task): void {
  const { taskId } = session.flags
  if (taskId !== undefined && taskId !== task.id) {
    session.note(`warning: the agent answered with another task than ${taskId}, which was asked for.`)
  }
}

function sentText(session: Session, message: Message): string {
  return `Sent: ${message.messageId}\n${partsText(message.parts, session.textOptions, 'Text')}`
}

/** An identifier that the agent refuses is told, never worked round by a new task. */
function withDebugHint(error: unknown, session: Session): ClientFailure {
  const failure = toClientFailure(error, {
    connecting: false,
    hasCredentials: session.hasCredentials,
    agentFlag: session.agentFlag,
    taskId: session.taskId,
    credentialsHint: session.credentialsHint,
  })
  const hasEnded = failure.code === 'UnsupportedOperationError'
  const advice = hasEnded ? 'A task that has ended takes no messages; --context-id begins a new one.' : failure.hint
  const hint = `${advice === undefined ? '' : `${advice} `}--debug shows what the agent answered.`
  return new ClientFailure(failure.code, failure.message, { hint, a2aCode: failure.a2aCode, cause: error })
}
