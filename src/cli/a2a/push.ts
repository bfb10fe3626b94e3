/** `convoke task push-config`: where an agent tells of a task by itself. */
import type { PushConfigInput, PushConfigRecord } from '../../peers/peer.ts'
import { withClient, type Connection } from './connection.ts'
import { ClientFailure, usageFailure } from './failure.ts'
import type { Session } from './session.ts'
import type { AgentFlags } from './settings.ts'
import { field, idsText } from './text.ts'

export interface CreatePushFlags extends AgentFlags {
  readonly url?: string
  readonly token?: string
  readonly authScheme?: string
  readonly authCredentials?: string
  readonly id?: string
}

export async function createPushConfig(session: Session<CreatePushFlags>, taskId: string): Promise<void> {
  const { url, token, id, authScheme, authCredentials } = session.flags
  if (url === undefined || !URL.canParse(url)) throw usageFailure('--url must say where the agent sends its reports.')
  if (authCredentials !== undefined && authScheme === undefined) {
    throw usageFailure('--auth-credentials needs the --auth-scheme that they are for, such as Bearer.')
  }
  const authentication =
    authScheme === undefined
      ? undefined
      : { scheme: authScheme, ...(authCredentials === undefined ? {} : { credentials: authCredentials }) }
  const config: PushConfigInput = {
    url,
    ...(id === undefined ? {} : { id }),
    ...(token === undefined ? {} : { token }),
    ...(authentication === undefined ? {} : { authentication }),
  }
  await withPush(session, taskId, async ({ client }) => {
    const created = await client.createPushConfig(taskId, config, { signal: session.signal })
    return { value: created, text: recordText(created) }
  })
}

export async function getPushConfig(session: Session, taskId: string, id: string): Promise<void> {
  await withPush(session, taskId, async ({ client }) => {
    const found = await client.getPushConfig(taskId, id, { signal: session.signal })
    return { value: found, text: recordText(found) }
  })
}

export async function listPushConfigs(session: Session, taskId: string): Promise<void> {
  await withPush(session, taskId, async ({ client }) => {
    const configs = await client.listPushConfigs(taskId, { signal: session.signal })
    const text = [field('Push configs', configs.length), ...configs.map(recordText)].join('\n')
    return { value: { configs, nextPageToken: '' }, text }
  })
}

export async function deletePushConfig(session: Session, taskId: string, id: string): Promise<void> {
  await withPush(session, taskId, async ({ client }) => {
    await client.deletePushConfig(taskId, id, { signal: session.signal })
    return { value: {}, text: field('Deleted', id) }
  })
}

/** Shows what `work` answers. The text names the task's context and state as well, which these answers lack. */
async function withPush(
  session: Session,
  taskId: string,
  work: (connection: Connection) => Promise<{ value: object; text: string }>,
): Promise<void> {
  session.taskId = taskId
  await withClient(session, async (connection) => {
    if (!connection.info.pushNotifications) {
      throw new ClientFailure('PushNotificationNotSupportedError', 'The agent sends no push notifications.', {
        hint: `Follow the task instead: convoke task get --wait${session.agentFlag} ${taskId}`,
      })
    }
    const { value, text } = await work(connection)
    const ids = session.isJson ? '' : await idsOf(session, connection, taskId)
    session.show(value, () => `${ids}${text}`)
  })
}

async function idsOf({ signal }: Session, { client }: Connection, taskId: string): Promise<string> {
  try {
    const { contextId, status } = await client.getTask(taskId, { signal, historyLength: 0 })
    return idsText(taskId, contextId, status.state)
  } catch {
    // The work is done and must be told; that the task is gone since is no failure of it.
    return idsText(taskId, undefined, undefined)
  }
}

function recordText({ id, url, token, authentication }: PushConfigRecord): string {
  return [
    field('Push config', id),
    field('URL', url),
    field('Token', token === undefined || token === '' ? undefined : '[set]'),
    field('Authentication', authentication?.scheme),
  ].join('')
}
