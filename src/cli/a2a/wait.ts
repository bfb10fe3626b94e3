/** Waiting for a task: its stream where the agent has one, and asking again and again where it has not, or the stream fails. */
import { abortReason, pause } from '../../base/abort.ts'
import { ConvokeError } from '../../base/errors.ts'
import { isInterrupted, isTerminal, type Message, type Task } from '../../protocol/a2a.ts'
import type { PeerEvent, RequestOptions, SendMessageResponse, SendOptions } from '../../peers/peer.ts'
import type { Connection } from './connection.ts'
import type { Session } from './session.ts'

/** How often in a row asking may fail before the wait gives up. */
const maxFailures = 5
const longestPauseMs = 30_000

export function isAtRest(state: string): boolean {
  // TASK_STATE_UNSPECIFIED is neither: nobody knows, so the wait goes on.
  return isTerminal(state) || isInterrupted(state)
}

/**
 * Asks for a task every --poll-interval until it has ended or waits for its caller. When asking fails it waits longer
 * each time, and gives up after {@link maxFailures} failures in a row. Throws what getTask throws, and the signal's reason.
 */
export async function pollTask(
  session: Session,
  { client }: Connection,
  taskId: string,
  options: RequestOptions & { readonly historyLength?: number } = {},
): Promise<Task> {
  const { signal, flags } = session
  for (let failures = 0; ;) {
    let pauseMs = flags.pollInterval
    try {
      const task = await client.getTask(taskId, { signal, ...options })
      failures = 0
      if (isAtRest(task.status.state)) return task
      session.announce(taskId)
      session.debug('poll', { taskId, state: task.status.state })
    } catch (error) {
      if (signal.aborted) throw abortReason(signal)
      if (!(error instanceof ConvokeError) || !error.retryable || ++failures >= maxFailures) throw error
      pauseMs = Math.max(error.retryAfterMs ?? 0, Math.min(pauseMs * 2 ** failures, longestPauseMs))
      session.debug('poll failed', { taskId, failures, pauseMs, message: error.message })
    }
    await pause(pauseMs, signal)
    if (signal.aborted) throw abortReason(signal)
  }
}

/**
 * Sends a message and waits until its task has ended or asks. Prefers the stream, which names the task at once; when the
 * stream fails behind that name, the task is asked for instead.
 */
export async function sendAndWait(
  session: Session,
  connection: Connection,
  message: Message,
  options: SendOptions,
): Promise<SendMessageResponse> {
  const { client, info } = connection
  if (!info.streaming) {
    const answer = await client.sendMessage(message, options)
    return answer.task === undefined ? answer : { task: await settled(session, connection, answer.task) }
  }
  const last = await followQuietly(session, client.streamMessage(message, options))
  if (last.message !== undefined) return { message: last.message }
  return { task: await pollTask(session, connection, last.taskId) }
}

/** Follows a task's stream to its rest, and polls it where that cannot be. Resolves with the task. */
export async function subscribeAndWait(
  session: Session,
  connection: Connection,
  taskId: string,
  lastEventId: number | undefined,
): Promise<Task> {
  const { client, info } = connection
  if (info.streaming) {
    const options = { signal: session.signal, ...(lastEventId === undefined ? {} : { lastEventId }) }
    await followQuietly(session, client.subscribe(taskId, options), taskId)
  }
  return pollTask(session, connection, taskId)
}

async function settled(session: Session, connection: Connection, task: Task): Promise<Task> {
  if (isAtRest(task.status.state)) return task
  session.announce(task.id)
  return pollTask(session, connection, task.id)
}

type Last = { readonly message: Message } | { readonly message?: undefined; readonly taskId: string }

/** Reads a stream to the rest of its task. A failure behind the name of the task is not thrown: polling may still do. */
async function followQuietly(session: Session, events: AsyncIterable<PeerEvent>, known?: string): Promise<Last> {
  let taskId = known
  try {
    for await (const { event } of events) {
      if (event.message !== undefined) return { message: event.message }
      const status = event.task?.status ?? event.statusUpdate?.status
      taskId ??= event.task?.id ?? event.statusUpdate?.taskId ?? event.artifactUpdate?.taskId
      if (status !== undefined && isAtRest(status.state)) break
      if (taskId !== undefined) session.announce(taskId)
    }
  } catch (error) {
    if (session.signal.aborted) throw abortReason(session.signal)
    if (taskId === undefined || isRefusal(error)) throw error
    session.debug('the stream failed, polling', { taskId, message: error instanceof Error ? error.message : '' })
  }
  if (taskId === undefined) throw new ConvokeError('peer_failed', 'The stream of the agent ended without an event.')
  return { taskId }
}

/** What polling would only be told again. */
function isRefusal(error: unknown): boolean {
  const refusals = ['task_not_found', 'unauthenticated', 'forbidden', 'invalid_params', 'invalid_request']
  return error instanceof ConvokeError && refusals.includes(error.code)
}
