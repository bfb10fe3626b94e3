/**
 * What peers answer, made sure of. The objects are handed on as they came, unknown members included; only spellings
 * that others use (`kind`, lower-case states) are put into ours. Everything here throws `peer_failed` with the place
 * that is wrong.
 */
import { ConvokeError } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import type { Artifact, Message, Part, StreamResponse, Task } from './a2a.ts'

/** One event of a stream. An event of a kind that we do not know is `{}`. */
export function parseStreamResponse(value: unknown): StreamResponse {
  const event = object(value, 'the event')
  if (event['task'] !== undefined) return { task: parseTask(event['task']) }
  if (event['message'] !== undefined) return { message: parseMessage(event['message']) }
  if (event['statusUpdate'] !== undefined) {
    const update = object(event['statusUpdate'], 'statusUpdate')
    text(update, 'taskId', 'statusUpdate')
    checkStatus(update, 'statusUpdate')
    return event
  }
  if (event['artifactUpdate'] !== undefined) {
    const update = object(event['artifactUpdate'], 'artifactUpdate')
    text(update, 'taskId', 'artifactUpdate')
    update['artifact'] = parseArtifact(update['artifact'], 'artifactUpdate.artifact')
    return event
  }
  return {}
}

/** `{task}` or `{message}`. */
export function parseSendMessageResponse(value: unknown): { task?: Task; message?: Message } {
  const answer = object(value, 'the answer')
  if (answer['task'] !== undefined) return { task: parseTask(answer['task']) }
  if (answer['message'] !== undefined) return { message: parseMessage(answer['message']) }
  throw malformed('the answer', 'has neither a task nor a message')
}

export function parseTask(value: unknown): Task {
  const task = object(value, 'task')
  text(task, 'id', 'task')
  if (typeof task['contextId'] !== 'string') task['contextId'] = ''
  checkStatus(task, 'task')
  if (task['artifacts'] !== undefined && task['artifacts'] !== null) {
    const artifacts = list(task['artifacts'], 'task.artifacts')
    artifacts.forEach((artifact, index) => {
      artifacts[index] = parseArtifact(artifact, `task.artifacts[${index}]`)
    })
  }
  return task as unknown as Task
}

export function parseMessage(value: unknown, where = 'message'): Message {
  const message = object(value, where)
  message['parts'] = parseParts(message['parts'], `${where}.parts`)
  if (typeof message['messageId'] !== 'string') message['messageId'] = ''
  return message as unknown as Message
}

function parseArtifact(value: unknown, where: string): Artifact {
  const artifact = object(value, where)
  text(artifact, 'artifactId', where)
  artifact['parts'] = parseParts(artifact['parts'], `${where}.parts`)
  return artifact as unknown as Artifact
}

function checkStatus(owner: Record<string, unknown>, where: string): void {
  const status = object(owner['status'], `${where}.status`)
  const state = text(status, 'state', `${where}.status`)
  if (!state.startsWith('TASK_STATE_')) status['state'] = `TASK_STATE_${state.toUpperCase().replaceAll('-', '_')}`
  if (status['message'] !== undefined && status['message'] !== null) {
    status['message'] = parseMessage(status['message'], `${where}.status.message`)
  }
}

function parseParts(value: unknown, where: string): Part[] {
  if (value === undefined || value === null) return []
  const parts = list(value, where)
  parts.forEach((part, index) => {
    parts[index] = parsePart(part, `${where}[${index}]`)
  })
  return parts as Part[]
}

/** Also takes `{kind | type, file: {bytes | uri, mimeType, name}}`, as 0.2 and 0.3 wrote it. */
function parsePart(value: unknown, where: string): Part {
  const part = object(value, where)
  if (typeof part['text'] === 'string' || typeof part['raw'] === 'string' || typeof part['url'] === 'string')
    return part
  if (isObject(part['file'])) {
    const { bytes, uri, mimeType, name } = part['file']
    return {
      ...(typeof bytes === 'string' ? { raw: bytes } : typeof uri === 'string' ? { url: uri } : {}),
      ...(typeof mimeType === 'string' ? { mediaType: mimeType } : {}),
      ...(typeof name === 'string' ? { filename: name } : {}),
      ...(isObject(part['metadata']) ? { metadata: part['metadata'] as NonNullable<Part['metadata']> } : {}),
    }
  }
  return part
}

/** A page of tasks. */
export function parseTaskPage(value: unknown): {
  tasks: Task[]
  nextPageToken: string
  pageSize: number
  totalSize: number
} {
  const page = object(value, 'the answer')
  const tasks = page['tasks'] === undefined ? [] : list(page['tasks'], 'tasks').map(parseTask)
  const { nextPageToken, pageSize, totalSize } = page
  return {
    tasks,
    nextPageToken: typeof nextPageToken === 'string' ? nextPageToken : '',
    pageSize: typeof pageSize === 'number' ? pageSize : tasks.length,
    totalSize: typeof totalSize === 'number' ? totalSize : tasks.length,
  }
}

function object(value: unknown, where: string): Record<string, unknown> {
  if (isObject(value)) return value
  throw malformed(where, `is ${value === undefined ? 'missing' : 'no object'}`)
}

function list(value: unknown, where: string): unknown[] {
  if (Array.isArray(value)) return value
  throw malformed(where, 'is no list')
}

function text(owner: Record<string, unknown>, name: string, where: string): string {
  const value = owner[name]
  if (typeof value === 'string') return value
  throw malformed(`${where}.${name}`, `is ${value === undefined ? 'missing' : 'no text'}`)
}

function malformed(where: string, what: string): ConvokeError {
  return new ConvokeError('peer_failed', `The answer is not A2A: ${where} ${what}.`)
}
