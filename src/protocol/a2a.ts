/**
 * A2A 1.0 as it stands on the wire: the JSON of `specification/a2a.proto`. Inside the node every task,
 * message and event has this shape, so that an event is serialised once and the text serves the store
 * and every follower. Version 0.3 and the SDK's protobuf-shaped types exist at the doors only.
 */
import type { JsonObject, Json } from '../base/json.ts'

export type TaskState =
  | 'TASK_STATE_SUBMITTED'
  | 'TASK_STATE_WORKING'
  | 'TASK_STATE_COMPLETED'
  | 'TASK_STATE_FAILED'
  | 'TASK_STATE_CANCELED'
  | 'TASK_STATE_INPUT_REQUIRED'
  | 'TASK_STATE_REJECTED'
  | 'TASK_STATE_AUTH_REQUIRED'

export const taskStates: ReadonlySet<string> = new Set<TaskState>([
  'TASK_STATE_SUBMITTED',
  'TASK_STATE_WORKING',
  'TASK_STATE_COMPLETED',
  'TASK_STATE_FAILED',
  'TASK_STATE_CANCELED',
  'TASK_STATE_INPUT_REQUIRED',
  'TASK_STATE_REJECTED',
  'TASK_STATE_AUTH_REQUIRED',
])

export type TerminalState = 'TASK_STATE_COMPLETED' | 'TASK_STATE_FAILED' | 'TASK_STATE_CANCELED' | 'TASK_STATE_REJECTED'

/** The task waits for its caller: it neither runs nor has ended. */
export type InterruptedState = 'TASK_STATE_INPUT_REQUIRED' | 'TASK_STATE_AUTH_REQUIRED'

export function isTerminal(state: string): state is TerminalState {
  return (
    state === 'TASK_STATE_COMPLETED' ||
    state === 'TASK_STATE_FAILED' ||
    state === 'TASK_STATE_CANCELED' ||
    state === 'TASK_STATE_REJECTED'
  )
}

export function isInterrupted(state: string): state is InterruptedState {
  return state === 'TASK_STATE_INPUT_REQUIRED' || state === 'TASK_STATE_AUTH_REQUIRED'
}

/** Exactly one of `text`, `raw` (base64), `url`, `data` is there. */
export interface Part {
  text?: string
  raw?: string
  url?: string
  data?: Json
  metadata?: JsonObject
  filename?: string
  mediaType?: string
}

export interface Message {
  messageId: string
  contextId?: string
  taskId?: string
  role: 'ROLE_USER' | 'ROLE_AGENT'
  /** Never empty. */
  parts: Part[]
  metadata?: JsonObject
  extensions?: string[]
  referenceTaskIds?: string[]
}

export interface Artifact {
  artifactId: string
  name?: string
  description?: string
  parts: Part[]
  metadata?: JsonObject
  extensions?: string[]
}

export interface TaskStatus {
  state: TaskState
  message?: Message
  /** ISO 8601, UTC, milliseconds. */
  timestamp: string
}

export interface Task {
  id: string
  contextId: string
  status: TaskStatus
  artifacts?: Artifact[]
  /** Oldest first. */
  history?: Message[]
  metadata?: JsonObject
}

export interface TaskStatusUpdateEvent {
  taskId: string
  contextId: string
  status: TaskStatus
  metadata?: JsonObject
}

export interface TaskArtifactUpdateEvent {
  taskId: string
  contextId: string
  artifact: Artifact
  /** True: the parts go behind those of the artifact with this id. Otherwise they replace it. */
  append?: boolean
  lastChunk?: boolean
  metadata?: JsonObject
}

/** Exactly one member is there. */
export interface StreamResponse {
  task?: Task
  message?: Message
  statusUpdate?: TaskStatusUpdateEvent
  artifactUpdate?: TaskArtifactUpdateEvent
}

export interface PushConfig {
  id: string
  taskId: string
  url: string
  token?: string
  authentication?: { scheme: string; credentials?: string }
}

export interface SendMessageRequest {
  tenant?: string
  message: Message
  configuration?: {
    acceptedOutputModes?: string[]
    taskPushNotificationConfig?: Omit<PushConfig, 'id' | 'taskId'> & { id?: string }
    historyLength?: number
    returnImmediately?: boolean
  }
  metadata?: JsonObject
}

export interface ListTasksRequest {
  tenant?: string
  contextId?: string
  status?: TaskState
  pageSize?: number
  pageToken?: string
  historyLength?: number
  statusTimestampAfter?: string
  includeArtifacts?: boolean
}
