/** Events as they come: a line of JSON each, or text. */
import type { StreamResponse } from '../../protocol/a2a.ts'
import type { PeerEvent } from '../../peers/peer.ts'
import type { Connection } from './connection.ts'
import type { Session } from './session.ts'
import { StreamText } from './stream-text.ts'
import { idsText, taskText } from './text.ts'
import { isAtRest, pollTask } from './wait.ts'

/**
 * Shows every event: as text what is new in it. The last thing shown names the task, its context and its state: where the stream ends without, the
 * task is asked for.
 */
export async function showStream(
  session: Session,
  connection: Connection,
  events: AsyncIterable<PeerEvent>,
): Promise<void> {
  let ids: { taskId: string; contextId: string } | undefined
  let state: string | undefined
  let last: StreamResponse | undefined
  const text = new StreamText(session.textOptions)
  try {
    for await (const { event } of events) {
      // An event of a kind that we do not know is empty.
      if (Object.keys(event).length === 0) continue
      last = event
      session.show(event, () => text.take(event))
      if (event.task !== undefined) ids = { taskId: event.task.id, contextId: event.task.contextId }
      else ids = event.statusUpdate ?? event.artifactUpdate ?? ids
      session.taskId = ids?.taskId
      state = (event.task?.status ?? event.statusUpdate?.status)?.state ?? state
      if (state !== undefined && isAtRest(state) && event.artifactUpdate === undefined) break
    }
  } finally {
    if (!session.isJson) process.stdout.write(text.end())
  }
  if (ids === undefined) return
  if (state === undefined || !isAtRest(state)) {
    const task = await pollTask(session, connection, ids.taskId)
    session.show({ task }, () => taskText(task, session.textOptions))
    state = task.status.state
  } else if (last?.artifactUpdate !== undefined && !session.isJson) {
    process.stdout.write(idsText(ids.taskId, ids.contextId, state))
  }
  session.warnOfOutcome(ids.taskId, state)
}
