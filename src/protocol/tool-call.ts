/** Calls, chunks, results and failures of tools, to and from A2A messages and artifacts. Pure functions. */
import { randomUUID } from 'node:crypto'
import { ConvokeError, errorCodes, type ErrorCode } from '../base/errors.ts'
import { canonicalJson, isObject, type Json, type JsonObject } from '../base/json.ts'
import type { Artifact, Message, Part } from './a2a.ts'
import { Content, isContent } from './content.ts'
import { extensionUri, keys, resultArtifact, streamArtifact } from './extension.ts'

export interface ToolCall {
  /** As the caller wrote it; some write the skill's id, `tool-NAME`. */
  readonly name: string
  /** As the caller sent them; the tool's schema has not seen them yet. */
  readonly params: unknown
  /** The caller's own id for this call. */
  readonly callId?: string | undefined
  /** How long the caller will wait, in milliseconds. */
  readonly timeoutMs?: number | undefined
}

/** What a tool gives while it runs: JSON, or bytes. */
export type Chunk = Json | Uint8Array

/** What it gives in the end: such a value, or several parts. */
export type ToolValue = Chunk | Content

const octets = 'application/octet-stream'

/**
 * The tool call in a message, or undefined when it names no tool. Looks at `message.metadata._tool_call`, then at the
 * spellings of others: the request's metadata, the extension's URI as key, a data part `{skill, input | parameters}`.
 * Throws `invalid_params` for a call that is not one: wrong types, or two calls that differ.
 */
export function readToolCall(message: Message, requestMetadata?: JsonObject): ToolCall | undefined {
  const mine = message.metadata?.[keys.call]
  const theirs = requestMetadata?.[keys.call]
  if (mine !== undefined && theirs !== undefined && canonicalJson(mine) !== canonicalJson(theirs)) {
    throw invalidCall('message.metadata._tool_call and metadata._tool_call name different calls; send one of them.')
  }
  const call = mine ?? theirs ?? message.metadata?.[extensionUri] ?? requestMetadata?.[extensionUri]
  if (call !== undefined) return parseCall(call)
  for (const part of message.parts) {
    if (isObject(part.data) && typeof part.data['skill'] === 'string') {
      const params = part.data['input'] ?? part.data['parameters']
      if (params !== undefined) return { name: part.data['skill'], params }
    }
  }
  return undefined
}

/** The message that calls a tool. `text` is for people and for agents that do not know the extension. */
export function toCallMessage(call: ToolCall, messageId: string = randomUUID()): Message {
  return {
    messageId,
    role: 'ROLE_USER',
    parts: [{ text: `Call the tool ${call.name}.` }],
    metadata: { [keys.call]: toCallBody(call) },
    extensions: [extensionUri],
  }
}

/** The value of `_tool_call`. */
export function toCallBody(call: ToolCall): JsonObject {
  const body: JsonObject = { name: call.name, params: call.params as Json }
  if (call.callId !== undefined) body['call_id'] = call.callId
  if (call.timeoutMs !== undefined) body['timeout_ms'] = call.timeoutMs
  return body
}

function parseCall(value: unknown): ToolCall {
  if (!isObject(value)) throw invalidCall('_tool_call must be an object {name, params}.')
  const { name, params, call_id: callId, timeout_ms: timeoutMs } = value
  if (typeof name !== 'string' || name === '') throw invalidCall('_tool_call.name must be the name of a tool.')
  if (callId !== undefined && typeof callId !== 'string') throw invalidCall('_tool_call.call_id must be a string.')
  if (timeoutMs !== undefined && !(typeof timeoutMs === 'number' && timeoutMs > 0)) {
    throw invalidCall('_tool_call.timeout_ms must be a number of milliseconds above 0.')
  }
  return { name, params: params === undefined ? {} : params, callId, timeoutMs }
}

function invalidCall(message: string): ConvokeError {
  return new ConvokeError('invalid_params', message, { issues: [{ path: '/metadata/_tool_call', message }] })
}

/** One part for one value: bytes as raw, an object as data, anything else wrapped. */
function toPart(value: Chunk): { part: Part; wrapped: boolean } {
  if (value instanceof Uint8Array) {
    const raw = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64')
    return { part: { raw, mediaType: octets }, wrapped: false }
  }
  if (isObject(value)) return { part: { data: value }, wrapped: false }
  // Older peers and the SDK lose a data part that is no object (null most of all).
  return { part: { data: { result: value } }, wrapped: true }
}

/** The value in a part, or undefined when it has none. `wrapped` says that `{result}` stands around it. */
function fromPart(part: Part, wrapped: boolean): Chunk | undefined {
  if (part.data !== undefined) {
    return wrapped && isObject(part.data) ? part.data['result'] : part.data
  }
  if (part.text !== undefined) return part.text
  if (part.raw !== undefined) return new Uint8Array(Buffer.from(part.raw, 'base64'))
  return undefined
}

/** One chunk as an artifact update; `attempt` above 1 tells whoever gathers chunks to start over. */
export function toChunkArtifact(chunk: Chunk, attempt: number): Artifact {
  const { part, wrapped } = typeof chunk === 'string' ? { part: { text: chunk }, wrapped: false } : toPart(chunk)
  if (wrapped) part.metadata = { [keys.wrapped]: true }
  const artifact: Artifact = { artifactId: streamArtifact, name: streamArtifact, parts: [part] }
  if (attempt > 1) artifact.metadata = { [keys.attempt]: attempt }
  return artifact
}

/** The chunks in an artifact named `stream`, in order. */
export function fromChunkArtifact(artifact: Artifact): Chunk[] {
  const chunks: Chunk[] = []
  for (const part of artifact.parts) {
    const chunk = fromPart(part, part.metadata?.[keys.wrapped] === true)
    if (chunk !== undefined) chunks.push(chunk)
  }
  return chunks
}

export function toResultArtifact(result: ToolValue, toolName: string, executionTimeMs: number): Artifact {
  const metadata: JsonObject = { [keys.result]: true, tool_name: toolName, execution_time_ms: executionTimeMs }
  if (isContent(result)) {
    metadata[keys.parts] = true
    const parts = [...result.parts]
    return { artifactId: resultArtifact, name: resultArtifact, metadata, extensions: [extensionUri], parts }
  }
  const { part, wrapped } = toPart(result)
  if (wrapped) metadata[keys.wrapped] = true
  return { artifactId: resultArtifact, name: resultArtifact, metadata, extensions: [extensionUri], parts: [part] }
}

/** The result in an artifact, or undefined when it is none of this extension's. */
export function fromResultArtifact(
  artifact: Artifact,
): { result: ToolValue; toolName: string; executionTimeMs: number | undefined } | undefined {
  const { metadata } = artifact
  if (metadata?.[keys.result] !== true) return undefined
  const result = toResult(artifact, metadata)
  if (result === undefined) return undefined
  const { tool_name: toolName, execution_time_ms: executionTimeMs } = metadata
  return {
    result,
    toolName: typeof toolName === 'string' ? toolName : '',
    executionTimeMs: typeof executionTimeMs === 'number' ? executionTimeMs : undefined,
  }
}

function toResult({ parts }: Artifact, metadata: JsonObject): ToolValue | undefined {
  const [part] = parts
  if (part === undefined) return undefined
  if (metadata[keys.parts] !== true) return fromPart(part, metadata[keys.wrapped] === true)
  const kept = parts.filter(({ text, raw, url, data }) => (text ?? raw ?? url ?? data) !== undefined)
  return kept.length === 0 ? undefined : new Content(kept)
}

/** What failed, as the status message of a REJECTED, FAILED or CANCELED task. */
export function toErrorMessage(error: ConvokeError, toolName: string): Message {
  const body: JsonObject = { code: error.code, message: error.message, retryable: error.retryable, tool_name: toolName }
  if (error.retryAfterMs !== undefined) body['retry_after_ms'] = error.retryAfterMs
  // The issues may be of a tool's making, so they are looked at like anybody's.
  if (Array.isArray(error.issues)) body['issues'] = error.issues.flatMap((issue: unknown) => toIssue(issue as Json))
  return {
    messageId: randomUUID(),
    role: 'ROLE_AGENT',
    parts: [{ text: error.message }],
    metadata: { [keys.error]: body },
    extensions: [extensionUri],
  }
}

/** The failure that a status message tells of, or undefined when it tells of none. */
export function fromErrorMessage(message: Message): ConvokeError | undefined {
  const body = message.metadata?.[keys.error]
  if (!isObject(body) || typeof body['code'] !== 'string') return undefined
  const text = typeof body['message'] === 'string' ? body['message'] : 'The tool failed.'
  const { retryable, retry_after_ms: retryAfterMs, issues } = body
  return new ConvokeError(isErrorCode(body['code']) ? body['code'] : 'tool_failed', text, {
    ...(typeof retryable === 'boolean' ? { retryable } : {}),
    ...(typeof retryAfterMs === 'number' ? { retryAfterMs } : {}),
    ...(Array.isArray(issues) ? { issues: issues.flatMap(toIssue) } : {}),
  })
}

function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(errorCodes, code)
}

function toIssue(value: Json): { path: string; message: string }[] {
  if (!isObject(value) || typeof value['path'] !== 'string' || typeof value['message'] !== 'string') return []
  return [{ path: value['path'], message: value['message'] }]
}

export interface ToolProgress {
  readonly progress: number
  readonly total?: number
  readonly message?: string
}

/** Progress as the metadata of a `statusUpdate`. */
export function toProgressMetadata({ progress, total, message }: ToolProgress): JsonObject {
  const body: JsonObject = { progress }
  if (total !== undefined) body['total'] = total
  if (message !== undefined) body['message'] = message
  return { [keys.progress]: body }
}

/** The progress in a status update's metadata, if there is any. */
export function fromProgressMetadata(metadata: JsonObject | undefined): ToolProgress | undefined {
  const body = metadata?.[keys.progress]
  if (!isObject(body) || typeof body['progress'] !== 'number') return undefined
  const { progress, total, message } = body
  return {
    progress,
    ...(typeof total === 'number' ? { total } : {}),
    ...(typeof message === 'string' ? { message } : {}),
  }
}

/** How grave the words of a tool are, the least first. The levels of syslog (RFC 5424), and of MCP. */
export const toolLogLevels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'] as const

export type ToolLogLevel = (typeof toolLogLevels)[number]

/** What a tool says while it runs, for the log of its caller. */
export interface ToolLog {
  readonly level: ToolLogLevel
  /** A text, or any JSON. */
  readonly data: Json
  /** Which part of the tool speaks. */
  readonly logger?: string
}

export function isToolLogLevel(level: unknown): level is ToolLogLevel {
  return toolLogLevels.some((each) => each === level)
}

/** A line of a tool's log as the metadata of a `statusUpdate`. */
export function toLogMetadata({ level, data, logger }: ToolLog): JsonObject {
  const body: JsonObject = typeof data === 'string' ? { level, message: data } : { level, data }
  if (logger !== undefined) body['logger'] = logger
  return { [keys.log]: body }
}

/** The line in a status update's metadata, if there is any. A level that is not known counts as `info`. */
export function fromLogMetadata(metadata: JsonObject | undefined): ToolLog | undefined {
  const body = metadata?.[keys.log]
  if (!isObject(body)) return undefined
  const { level, message, data = message, logger } = body
  if (data === undefined) return undefined
  return {
    level: isToolLogLevel(level) ? level : 'info',
    data,
    ...(typeof logger === 'string' ? { logger } : {}),
  }
}

/** What a tool asks its caller, as it stands on the wire. */
export interface WireQuestion {
  readonly message: string
  readonly schema?: JsonObject
  /** What a language model is asked, where the answer is to come from one: the params of MCP's `sampling/createMessage`. */
  readonly sampling?: JsonObject
}

/** A tool's question as the status message of an `input-required` task. */
export function toQuestionMessage(question: WireQuestion, toolName: string): Message {
  const body: JsonObject = { message: question.message, tool_name: toolName }
  if (question.schema !== undefined) body['schema'] = question.schema
  if (question.sampling !== undefined) body['sampling'] = question.sampling
  return {
    messageId: randomUUID(),
    role: 'ROLE_AGENT',
    parts: [{ text: question.message }],
    metadata: { [keys.question]: body },
    extensions: [extensionUri],
  }
}

/** The answer in a reply: the first data part, else its text joined; `{result}` around a non-object is taken off. */
export function fromAnswerMessage(message: Message): Json {
  for (const part of message.parts) {
    if (part.data !== undefined) return fromPart(part, part.metadata?.[keys.wrapped] === true) as Json
  }
  return message.parts.flatMap((part) => (part.text === undefined ? [] : [part.text])).join('\n')
}

/** The question in a status message, or undefined when it holds none of this extension's. */
export function fromQuestionMessage(message: Message): WireQuestion | undefined {
  const body = message.metadata?.[keys.question]
  if (!isObject(body) || typeof body['message'] !== 'string') return undefined
  const { message: text, schema, sampling } = body
  return {
    message: text,
    ...(isObject(schema) ? { schema } : {}),
    ...(isObject(sampling) ? { sampling } : {}),
  }
}

/** The reply to a question: text as text, anything else as data. */
export function toAnswerMessage(
  answer: Json,
  task: { readonly taskId: string; readonly contextId?: string | undefined },
  messageId: string = randomUUID(),
): Message {
  const { part, wrapped }: { part: Part; wrapped: boolean } =
    typeof answer === 'string' ? { part: { text: answer }, wrapped: false } : toPart(answer)
  if (wrapped) part.metadata = { [keys.wrapped]: true }
  return {
    messageId,
    taskId: task.taskId,
    ...(task.contextId === undefined ? {} : { contextId: task.contextId }),
    role: 'ROLE_USER',
    parts: [part],
    extensions: [extensionUri],
  }
}
