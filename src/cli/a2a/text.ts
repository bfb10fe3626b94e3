/**
 * Output for people that programs can read as well (a2a-cli specification, section 11.2): one `Label: value` a line,
 * and blocks for what needs many. The lines of a block are indented, empty ones too, so that nothing an agent says is
 * taken for a field or for the end of the block.
 */
import { stripControls } from '../../base/text.ts'
import { isObject, type Json } from '../../base/json.ts'
import { isInterrupted, isTerminal } from '../../protocol/a2a.ts'
import type { Artifact, Message, Part, StreamResponse, Task, TaskStatus } from '../../protocol/a2a.ts'
import { keys } from '../../protocol/extension.ts'
import { fromQuestionMessage } from '../../protocol/tool-call.ts'
import { shapeOfAnswer } from '../remote/answer-shape.ts'

export interface TextOptions {
  /** Every part by itself, with ids and metadata; otherwise texts that follow each other are one. */
  readonly verbose: boolean
  /** Show the messages of a task as well. */
  readonly history: boolean
  /** `-a REF`, where a command needs it to work when it is pasted. */
  readonly agentFlag: string
  /** The task is the call of a tool: an agent of tools may answer no messages. Default: what the task says itself. */
  readonly isToolCall?: boolean
}

export function field(label: string, value: string | number | undefined): string {
  return value === undefined || value === '' ? '' : `${label}: ${printable(String(value)).replace(/\s*\n\s*/g, ' ')}\n`
}

export function block(label: string, content: string): string {
  const lines = printable(content).replace(/\n$/, '').split('\n')
  return `${label}:\n${lines.map((line) => `  ${line}\n`).join('')}\n`
}

/** What an agent says must not move the cursor, nor set the colours or the title of a terminal. */
function printable(text: string): string {
  return stripControls(text.replace(/\r\n?/g, '\n'))
}

/** A whole task: what it is, what it made, and how to go on; a task that is followed at this moment goes on by itself. */
export function taskText(task: Task, options: TextOptions, isFollowed = false): string {
  return [
    statusText(task.id, task.contextId, task.status, options),
    ...(task.artifacts ?? []).map((artifact) => artifactText(artifact, options)),
    ...(options.history ? (task.history ?? []).map((message) => messageText(message, options)) : []),
    options.verbose ? metadataText(task.metadata) : '',
    answerText(task.status),
    nextStepText(
      task.id,
      task.contextId,
      task.status.state,
      { ...options, isToolCall: toolOf(task) !== undefined },
      isFollowed,
    ),
  ].join('')
}

/** The tool that a task is a call of. */
export function toolOf({ metadata }: Task): string | undefined {
  const call = metadata?.[keys.call]
  return isObject(call) && typeof call['name'] === 'string' ? call['name'] : undefined
}

/** The three things that every answer about a task says, and what its agent says to it. */
function statusText(taskId: string, contextId: string, status: TaskStatus, options: TextOptions): string {
  return [
    idsText(taskId, contextId, status.state),
    options.verbose ? field('Updated', status.timestamp) : '',
    status.message === undefined || status.message === null
      ? ''
      : partsText(status.message.parts, options, 'Status message'),
  ].join('')
}

export function idsText(taskId: string, contextId: string | undefined, state: string | undefined): string {
  return field('Task ID', taskId) + field('Context ID', contextId) + field('State', state)
}

export function messageText(message: Message, options: TextOptions): string {
  return [
    field('Role', message.role),
    options.verbose ? field('Message ID', message.messageId) : '',
    field('Context ID', message.contextId),
    message.taskId === undefined ? '' : field('Task ID', message.taskId),
    partsText(message.parts, options, 'Text'),
    options.verbose ? metadataText(message.metadata) : '',
  ].join('')
}

function artifactText(artifact: Artifact, options: TextOptions): string {
  const { artifactId, name, description, parts, metadata } = artifact
  return [
    field('Artifact', name ?? artifactId),
    options.verbose ? field('Artifact ID', artifactId) : '',
    options.verbose ? field('Description', description) : '',
    partsText(parts, options, 'Text'),
    options.verbose ? metadataText(metadata) : '',
  ].join('')
}

/** One event as it came. What comes next is said once the task is at rest: until then more events do. */
export function eventText(event: StreamResponse, options: TextOptions): string {
  if (event.task !== undefined) return taskText(event.task, options, true)
  if (event.message !== undefined) return messageText(event.message, options)
  if (event.statusUpdate !== undefined) {
    const { taskId, contextId, status } = event.statusUpdate
    return (
      statusText(taskId, contextId, status, options) +
      answerText(status) +
      nextStepText(taskId, contextId, status.state, options, true)
    )
  }
  return event.artifactUpdate === undefined ? '' : artifactText(event.artifactUpdate.artifact, options)
}

/** What an answer to what a task asks looks like, where that is known. */
function answerText({ state, message }: TaskStatus): string {
  const question =
    isInterrupted(state) && message !== undefined && message !== null ? fromQuestionMessage(message) : undefined
  return question === undefined ? '' : field('Answer', shapeOfAnswer(question))
}

/** The command that goes on with a task. */
function nextStepText(
  taskId: string,
  contextId: string,
  state: string,
  { agentFlag, isToolCall = false }: TextOptions,
  isFollowed = false,
): string {
  if (isInterrupted(state)) return field('Resume', resumeCommand(taskId, agentFlag))
  if (isTerminal(state)) {
    return contextId === '' || isToolCall
      ? ''
      : field('Continue', `convoke send${agentFlag} --context-id ${quote(contextId)} "<message>"`)
  }
  return isFollowed ? '' : field('Follow', `convoke task get --wait${agentFlag} ${quote(taskId)}`)
}

export function resumeCommand(taskId: string, agentFlag: string, reply = '<reply>'): string {
  return `convoke send${agentFlag} --task-id ${quote(taskId)} "${reply}"`
}

/** A word for a POSIX shell. Ids are a stranger's text: pasted, they must stay one word, and shown, they move no cursor. */
export function quote(text: string): string {
  return /^[\w.,:/@%+=-]+$/.test(text) ? text : `'${printable(text).replaceAll("'", `'\\''`)}'`
}

/** Every part, whatever it is; `label` stands above texts. Values that follow each other are a line each. */
export function partsText(parts: readonly Part[], { verbose }: TextOptions, label: string): string {
  const lines: string[] = []
  let text = ''
  let values: Json[] = []
  const flush = (): void => {
    if (text !== '') lines.push(block(label, text))
    const isOne = values.length === 1
    if (values.length > 0) {
      lines.push(block('Data', values.map((value) => JSON.stringify(value, null, isOne ? 2 : 0)).join('\n')))
    }
    text = ''
    values = []
  }
  for (const [index, part] of parts.entries()) {
    if (part.text !== undefined && !verbose) {
      if (values.length > 0) flush()
      text += part.text
      continue
    }
    if (part.data !== undefined && !verbose) {
      if (text !== '') flush()
      values.push(part.data)
      continue
    }
    flush()
    if (verbose) lines.push(field('Part', `${index + 1} of ${parts.length}`), field('Media type', part.mediaType))
    lines.push(partText(part, label))
    if (verbose) lines.push(metadataText(part.metadata))
  }
  flush()
  return lines.join('')
}

function partText(part: Part, label: string): string {
  if (part.text !== undefined) return block(label, part.text)
  if (part.data !== undefined) return block('Data', JSON.stringify(part.data, null, 2))
  const name = part.filename ?? '(no name)'
  const type = part.mediaType ?? 'application/octet-stream'
  if (part.raw !== undefined) return field('File', `${name} (${type}, ${byteLength(part.raw)} bytes)`)
  if (part.url !== undefined) return field('File', `${name} (${type}) at ${part.url}`)
  return block('Part', JSON.stringify(part))
}

function byteLength(base64: string): number {
  return Buffer.byteLength(base64, 'base64')
}

function metadataText(metadata: unknown): string {
  if (typeof metadata !== 'object' || metadata === null || Object.keys(metadata).length === 0) return ''
  return block('Metadata', JSON.stringify(metadata, null, 2))
}
