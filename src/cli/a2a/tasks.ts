/** `convoke task get`, `list`, `cancel` and `subscribe`. */
import { ConvokeError } from '../../base/errors.ts'
import type { Task } from '../../protocol/a2a.ts'
import type { ListTasksQuery } from '../../peers/peer.ts'
import { withClient } from './connection.ts'
import type { Session } from './session.ts'
import type { AgentFlags } from './settings.ts'
import { showStream } from './stream.ts'
import { field, idsText, taskText, toolOf } from './text.ts'
import { pollTask, subscribeAndWait } from './wait.ts'

export interface GetFlags extends AgentFlags {
  readonly history?: number
  readonly wait?: boolean
  readonly watch?: boolean
}

export async function getTask(session: Session<GetFlags>, taskId: string): Promise<void> {
  await withClient(session, async (connection) => {
    const { history, wait, watch } = session.flags
    const options = history === undefined ? {} : { historyLength: history }
    session.taskId = taskId
    if (wait !== true && watch !== true) {
      showTask(session, await connection.client.getTask(taskId, { signal: session.signal, ...options }))
      return
    }
    const task = await pollTask(session, connection, taskId, options)
    showTask(session, task)
    session.warnOfOutcome(task.id, task.status.state)
  })
}

function showTask(session: Session, task: Task): void {
  session.show(task, () => taskText(task, session.textOptions))
}

export interface ListFlags extends AgentFlags {
  readonly status?: string
  readonly contextId?: string
  readonly pageSize?: number
  readonly pageToken?: string
  readonly history?: number
  readonly all?: boolean
  readonly stream?: boolean
}

export async function listTasks(session: Session<ListFlags>): Promise<void> {
  const { flags, signal } = session
  await withClient(session, async ({ client }) => {
    let query = toQuery(flags)
    const all: Task[] = []
    for (;;) {
      const page = await client.listTasks(query, { signal })
      const isLast = flags.all !== true || page.nextPageToken === ''
      if (flags.stream === true || !session.isJson) {
        for (const task of page.tasks) session.show(task, () => `${rowText(task)}\n`)
      } else all.push(...page.tasks)
      if (!isLast) {
        query = { ...query, pageToken: page.nextPageToken }
        continue
      }
      if (flags.stream !== true || !session.isJson) {
        session.show({ ...page, tasks: all }, () => {
          return field('Total', page.totalSize) + field('Next page token', page.nextPageToken)
        })
      }
      return
    }
  })
}

function toQuery({ status, contextId, pageSize, pageToken, history, verbose }: ListFlags): ListTasksQuery {
  return {
    ...(status === undefined ? {} : { status }),
    ...(contextId === undefined ? {} : { contextId }),
    ...(pageSize === undefined ? {} : { pageSize }),
    ...(pageToken === undefined ? {} : { pageToken }),
    ...(history === undefined ? {} : { historyLength: history }),
    ...(verbose === true ? { includeArtifacts: true } : {}),
  }
}

function rowText(task: Task): string {
  const { id, contextId, status, artifacts } = task
  return [
    idsText(id, contextId, status.state),
    field('Tool', toolOf(task)),
    field('Updated', status.timestamp),
    field('Artifacts', artifacts?.length),
  ].join('')
}

export async function cancelTask(session: Session, taskId: string): Promise<void> {
  const { signal } = session
  session.taskId = taskId
  await withClient(session, async ({ client }) => {
    try {
      showTask(session, await client.cancelTask(taskId, { signal }))
    } catch (error) {
      if (!(error instanceof ConvokeError) || error.code !== 'task_not_cancelable') throw error
      const task = await client.getTask(taskId, { signal })
      session.note(`convoke: the task had ended already: ${task.status.state}`)
      // A task that is cancelled is what was asked for, whoever did it.
      if (task.status.state !== 'TASK_STATE_CANCELED') throw error
      showTask(session, task)
    }
  })
}

export interface SubscribeFlags extends AgentFlags {
  readonly stream?: boolean
  readonly lastEventId?: number
}

export async function subscribe(session: Session<SubscribeFlags>, taskId: string): Promise<void> {
  const { lastEventId, stream } = session.flags
  await withClient(session, async (connection) => {
    const { client, info } = connection
    session.taskId = taskId
    if (stream === true && info.streaming) {
      const options = { signal: session.signal, ...(lastEventId === undefined ? {} : { lastEventId }) }
      try {
        await showStream(session, connection, client.subscribe(taskId, options))
        return
      } catch (error) {
        // That is how a task answers which has ended (A2A 3.1.6): then it is shown as it stands.
        if (!(error instanceof ConvokeError) || error.code !== 'unsupported_operation') throw error
      }
    }
    const task = await subscribeAndWait(session, connection, taskId, lastEventId)
    const shown = stream === true ? { task } : task
    session.show(shown, () => taskText(task, session.textOptions))
    session.warnOfOutcome(task.id, task.status.state)
  })
}
