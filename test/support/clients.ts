/** The official clients, each behind the same few words, so that one suite can be run with all of them. */
import {
  AgentCard,
  CancelTaskRequest,
  DeleteTaskPushNotificationConfigRequest,
  GetTaskPushNotificationConfigRequest,
  GetTaskRequest,
  ListTaskPushNotificationConfigsRequest,
  ListTasksRequest,
  type SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
  Task,
  TaskPushNotificationConfig,
  Message as SdkMessage,
} from '@a2a-js/sdk'
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client'
import type {
  Message as LegacyMessage,
  Part as LegacyPart,
  Task as LegacyTask,
  TaskArtifactUpdateEvent,
  TaskStatusUpdateEvent,
} from 'a2a-sdk-0.3'
import {
  ClientFactory as LegacyFactory,
  JsonRpcTransportFactory as LegacyJsonRpc,
  RestTransportFactory as LegacyRest,
} from 'a2a-sdk-0.3/client'
import type { JsonObject, Message, Part, Task as WireTask } from 'convoke'
import { stateOf, type StreamEvent, type StreamResponse as WireEvent } from './wire.ts'

export interface PushConfig {
  readonly id?: string
  readonly url: string
  readonly token?: string
}

/** What each client can do, in the shapes of A2A 1.0. Errors are the client's own. */
export interface Client {
  /** The names of the skills on the card that it fetched. */
  readonly skills: string[]
  /** Sends a message and waits for its task to end or to ask. */
  send(message: Message): Promise<WireTask>
  stream(message: Message, signal?: AbortSignal): AsyncGenerator<WireEvent>
  resubscribe(id: string): AsyncGenerator<WireEvent>
  get(id: string): Promise<WireTask>
  cancel(id: string): Promise<WireTask>
  createPush(taskId: string, config: PushConfig): Promise<PushConfig>
  getPush(taskId: string, id: string): Promise<PushConfig>
  listPush(taskId: string): Promise<PushConfig[]>
  deletePush(taskId: string, id: string): Promise<void>
  /** Only in 1.0. */
  readonly list?: (request: { status?: string; pageSize?: number; pageToken?: string }) => Promise<{
    tasks: WireTask[]
    nextPageToken: string
    totalSize: number
  }>
}

export interface ClientKind {
  readonly name: string
  readonly version: '1.0' | '0.3'
  /** `fetchImpl` is for what every request needs, such as credentials. */
  readonly connect: (url: string, fetchImpl?: typeof fetch) => Promise<Client>
}

export const clients: readonly ClientKind[] = [
  { name: 'SDK 1.3, JSON-RPC', version: '1.0', connect: (url, fetchImpl) => connect(url, 'JSONRPC', fetchImpl) },
  { name: 'SDK 1.3, HTTP+JSON', version: '1.0', connect: (url, fetchImpl) => connect(url, 'HTTP+JSON', fetchImpl) },
  { name: 'SDK 0.3, JSON-RPC', version: '0.3', connect: (url, fetchImpl) => connectLegacy(url, 'JSONRPC', fetchImpl) },
  {
    name: 'SDK 0.3, HTTP+JSON',
    version: '0.3',
    connect: (url, fetchImpl) => connectLegacy(url, 'HTTP+JSON', fetchImpl),
  },
]

async function connect(
  url: string,
  binding: 'JSONRPC' | 'HTTP+JSON',
  fetchImpl: typeof fetch = fetch,
): Promise<Client> {
  const options = { fetchImpl }
  const factory = new ClientFactory({
    transports: [binding === 'JSONRPC' ? new JsonRpcTransportFactory(options) : new RestTransportFactory(options)],
    preferredTransports: [binding],
  })
  const client = await factory.createFromUrl(url)
  const card = AgentCard.toJSON(await client.getAgentCard()) as { skills: { name: string }[] }
  async function* events(stream: AsyncGenerator<StreamResponse>): AsyncGenerator<WireEvent> {
    for await (const event of stream) yield StreamResponse.toJSON(event) as WireEvent
  }
  const task = (value: Task): WireTask => Task.toJSON(value) as WireTask
  const request = (message: Message): SendMessageRequest => ({
    tenant: '',
    message: SdkMessage.fromJSON(message),
    configuration: undefined,
    metadata: undefined,
  })
  return {
    skills: card.skills.map(({ name }) => name),
    async send(message) {
      const answer = await client.sendMessage(request(message))
      if (!('id' in answer)) throw new Error('A bare message came back.')
      return task(answer)
    },
    stream: (message, signal) =>
      events(client.sendMessageStream(request(message), signal === undefined ? {} : { signal })),
    resubscribe: (id) => events(client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id }))),
    get: async (id) => task(await client.getTask(GetTaskRequest.fromJSON({ id }))),
    cancel: async (id) => task(await client.cancelTask(CancelTaskRequest.fromJSON({ id }))),
    createPush: (taskId, config) =>
      client.createTaskPushNotificationConfig(TaskPushNotificationConfig.fromJSON({ taskId, ...config })),
    getPush: (taskId, id) =>
      client.getTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest.fromJSON({ taskId, id })),
    listPush: async (taskId) =>
      (await client.listTaskPushNotificationConfig(ListTaskPushNotificationConfigsRequest.fromJSON({ taskId })))
        .configs,
    deletePush: (taskId, id) =>
      client.deleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest.fromJSON({ taskId, id })),
    async list(query) {
      const { tasks, nextPageToken, totalSize } = await client.listTasks(ListTasksRequest.fromJSON(query))
      return { tasks: tasks.map(task), nextPageToken, totalSize }
    },
  }
}

async function connectLegacy(
  url: string,
  binding: 'JSONRPC' | 'HTTP+JSON',
  fetchImpl: typeof fetch = fetch,
): Promise<Client> {
  const options = { fetchImpl }
  const factory = new LegacyFactory({
    transports: [binding === 'JSONRPC' ? new LegacyJsonRpc(options) : new LegacyRest(options)],
    preferredTransports: [binding],
  })
  const client = await factory.createFromUrl(url)
  const card = await client.getAgentCard()
  type LegacyEvent = LegacyTask | LegacyMessage | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
  async function* events(stream: AsyncGenerator<LegacyEvent>): AsyncGenerator<WireEvent> {
    for await (const event of stream) yield fromLegacyEvent(event)
  }
  const params = (message: Message): { message: LegacyMessage } => ({ message: toLegacy(message) })
  return {
    skills: card.skills.map(({ name }) => name),
    async send(message) {
      const answer = await client.sendMessage(params(message))
      if (answer.kind !== 'task') throw new Error('A bare message came back.')
      return fromLegacyTask(answer)
    },
    stream: (message, signal) =>
      events(client.sendMessageStream(params(message), signal === undefined ? {} : { signal })),
    resubscribe: (id) => events(client.resubscribeTask({ id })),
    get: async (id) => fromLegacyTask(await client.getTask({ id })),
    cancel: async (id) => fromLegacyTask(await client.cancelTask({ id })),
    createPush: async (taskId, config) =>
      (await client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: config })).pushNotificationConfig,
    async getPush(taskId, id) {
      const query = { id: taskId, pushNotificationConfigId: id }
      return (await client.getTaskPushNotificationConfig(query)).pushNotificationConfig
    },
    listPush: async (taskId) =>
      (await client.listTaskPushNotificationConfig({ id: taskId })).map((entry) => entry.pushNotificationConfig),
    deletePush: (taskId, id) => client.deleteTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: id }),
  }
}

function toLegacy(message: Message): LegacyMessage {
  const { messageId, taskId, contextId, metadata, extensions } = message
  return {
    kind: 'message',
    messageId,
    role: 'user',
    parts: message.parts.map((part): LegacyPart => {
      if (part.text !== undefined) return { kind: 'text', text: part.text }
      return { kind: 'data', data: part.data as JsonObject }
    }),
    ...(taskId === undefined ? {} : { taskId }),
    ...(contextId === undefined ? {} : { contextId }),
    ...(metadata === undefined ? {} : { metadata }),
    ...(extensions === undefined ? {} : { extensions }),
  }
}

function fromLegacyPart(part: LegacyPart): Part {
  const metadata = part.metadata === undefined ? {} : { metadata: part.metadata as JsonObject }
  if (part.kind === 'text') return { text: part.text, ...metadata }
  if (part.kind === 'data') return { data: part.data as JsonObject, ...metadata }
  return 'bytes' in part.file ? { raw: part.file.bytes, ...metadata } : { url: part.file.uri, ...metadata }
}

function fromLegacyMessage(message: LegacyMessage): Message {
  return {
    messageId: message.messageId,
    role: message.role === 'user' ? 'ROLE_USER' : 'ROLE_AGENT',
    parts: message.parts.map(fromLegacyPart),
    ...(message.metadata === undefined ? {} : { metadata: message.metadata as JsonObject }),
  }
}

function fromLegacyStatus(status: LegacyTask['status']): WireTask['status'] {
  return {
    state: `TASK_STATE_${status.state.toUpperCase().replace('-', '_')}` as WireTask['status']['state'],
    timestamp: status.timestamp ?? '',
    ...(status.message === undefined ? {} : { message: fromLegacyMessage(status.message) }),
  }
}

function fromLegacyArtifact({ artifactId, name, parts, metadata }: NonNullable<LegacyTask['artifacts']>[number]) {
  return {
    artifactId,
    parts: parts.map(fromLegacyPart),
    ...(name === undefined ? {} : { name }),
    ...(metadata === undefined ? {} : { metadata: metadata as JsonObject }),
  }
}

function fromLegacyTask(task: LegacyTask): WireTask {
  return {
    id: task.id,
    contextId: task.contextId,
    status: fromLegacyStatus(task.status),
    artifacts: (task.artifacts ?? []).map(fromLegacyArtifact),
    history: (task.history ?? []).map(fromLegacyMessage),
    ...(task.metadata === undefined ? {} : { metadata: task.metadata as JsonObject }),
  }
}

function fromLegacyEvent(
  event: LegacyTask | LegacyMessage | TaskStatusUpdateEvent | TaskArtifactUpdateEvent,
): WireEvent {
  switch (event.kind) {
    case 'task':
      return { task: fromLegacyTask(event) }
    case 'message':
      return { message: fromLegacyMessage(event) }
    case 'status-update': {
      const { taskId, contextId, status, metadata } = event
      const more = metadata === undefined ? {} : { metadata: metadata as JsonObject }
      return { statusUpdate: { taskId, contextId, status: fromLegacyStatus(status), ...more } }
    }
    case 'artifact-update': {
      const { taskId, contextId, artifact, append = false, lastChunk = false } = event
      return { artifactUpdate: { taskId, contextId, artifact: fromLegacyArtifact(artifact), append, lastChunk } }
    }
  }
}

/** Reads a client's stream to its end, or up to the first event that fits. */
export async function read(
  stream: AsyncGenerator<WireEvent>,
  fits: (event: StreamEvent) => boolean = () => false,
): Promise<StreamEvent[]> {
  const events: StreamEvent[] = []
  for (;;) {
    const step = await stream.next()
    if (step.done === true) return events
    const event = { id: undefined, data: step.value }
    events.push(event)
    if (fits(event)) return events
  }
}

/** The states that events bring the task through, repeats left out. */
export function statesOf(events: readonly StreamEvent[]): string[] {
  const states = events.flatMap((event) => stateOf(event) ?? [])
  return states.filter((state, index) => state !== states[index - 1])
}
