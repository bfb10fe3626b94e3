/** What a task has said so far, put together from its events. */
import type { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import type { Artifact, Part, StreamResponse, Task, TaskStatus } from '../protocol/a2a.ts'
import { Content } from '../protocol/content.ts'
import { keys, streamArtifact } from '../protocol/extension.ts'
import {
  fromChunkArtifact,
  fromErrorMessage,
  fromProgressMetadata,
  fromQuestionMessage,
  fromResultArtifact,
  type Chunk,
  type ToolProgress,
  type ToolValue,
} from '../protocol/tool-call.ts'
import type { Question } from './elicitation.ts'

/** What is gathered of a tool's chunks, in characters; they count only where the tool has no other result. */
const maxChunkChars = 1024 * 1024

/** What an event brought that a caller who waits wants to hear of at once. */
export interface TaskNews {
  readonly progress?: ToolProgress
  readonly chunks?: readonly Chunk[]
}

export class TaskView {
  id: string | undefined
  contextId: string | undefined
  state = 'TASK_STATE_SUBMITTED'
  #status: TaskStatus | undefined
  #chunks: Chunk[] = []
  #chunkChars = 0
  /** Whether chunks were left out. */
  #isCut = false
  #result: ToolValue | undefined
  /** Artifacts that are no tool's, of tasks that answer a plain message. */
  #others: Part[] = []

  add(event: StreamResponse): TaskNews {
    const { task, message, statusUpdate, artifactUpdate } = event
    if (task !== undefined) this.#addTask(task)
    if (message !== undefined) {
      this.state = 'TASK_STATE_COMPLETED'
      this.#others.push(...message.parts)
    }
    if (statusUpdate !== undefined) {
      this.#name(statusUpdate.taskId, statusUpdate.contextId)
      this.#setStatus(statusUpdate.status)
      // The tool runs anew: what it said before counts no more.
      if (statusUpdate.metadata?.[keys.attempt] !== undefined) this.#forget()
      const progress = fromProgressMetadata(statusUpdate.metadata)
      if (progress !== undefined) return { progress }
    }
    if (artifactUpdate !== undefined) {
      this.#name(artifactUpdate.taskId, artifactUpdate.contextId)
      const chunks = this.#addArtifact(artifactUpdate.artifact, artifactUpdate.append === true)
      if (chunks !== undefined) return { chunks }
    }
    return {}
  }

  /** The result; undefined as long as there is none. Without a value of its own the chunks are it. */
  get result(): ToolValue | undefined {
    if (this.#result !== undefined && this.#result !== null && this.#result !== '') return this.#result
    if (this.#chunks.length > 0) return chunksAsContent(this.#chunks, this.#isCut)
    if (this.#others.length > 0) return new Content(this.#others)
    return this.#result
  }

  get error(): ConvokeError | undefined {
    const message = this.#status?.message
    return message === undefined ? undefined : fromErrorMessage(message)
  }

  /** The failure as it stands on the wire. */
  get errorBody(): JsonObject | undefined {
    const body = this.#status?.message?.metadata?.[keys.error]
    return isObject(body) ? body : undefined
  }

  /** What the task asks its caller. */
  get question(): Question | undefined {
    const message = this.#status?.message
    return message === undefined ? undefined : (fromQuestionMessage(message) ?? { message: this.statusText })
  }

  /** What the status says in words. */
  get statusText(): string {
    return this.#status?.message?.parts.flatMap(({ text }) => (text === undefined ? [] : [text])).join('\n') ?? ''
  }

  #addTask(task: Task): void {
    this.#name(task.id, task.contextId)
    this.#setStatus(task.status)
    this.#forget()
    for (const artifact of task.artifacts ?? []) this.#addArtifact(artifact, false)
  }

  #name(id: string, contextId: string): void {
    this.id = id
    this.contextId = contextId
  }

  #setStatus(status: TaskStatus): void {
    this.state = status.state
    this.#status = status
  }

  #forget(): void {
    this.#chunks = []
    this.#chunkChars = 0
    this.#isCut = false
    this.#result = undefined
    this.#others = []
  }

  #addArtifact(artifact: Artifact, append: boolean): Chunk[] | undefined {
    if (artifact.artifactId === streamArtifact) {
      if (!append) this.#forget()
      const chunks = fromChunkArtifact(artifact)
      for (const chunk of chunks) this.#addChunk(chunk)
      return chunks
    }
    const found = fromResultArtifact(artifact)
    if (found !== undefined) this.#result = found.result
    else this.#others.push(...artifact.parts)
    return undefined
  }

  #addChunk(chunk: Chunk): void {
    this.#chunkChars += chunk instanceof Uint8Array ? chunk.byteLength : chunkText(chunk).length
    if (this.#chunkChars > maxChunkChars) this.#isCut = true
    else this.#chunks.push(chunk)
  }
}

/** A chunk in words. */
export function chunkText(chunk: Chunk): string {
  if (typeof chunk === 'string') return chunk
  return chunk instanceof Uint8Array ? `${chunk.byteLength} bytes` : JSON.stringify(chunk)
}

/** Texts that follow each other are one, other values a part each, and bytes that follow each other one file. */
function chunksAsContent(chunks: readonly Chunk[], isCut: boolean): Content {
  const parts: Part[] = []
  let texts: string[] = []
  let bytes: Uint8Array[] = []
  const flush = (): void => {
    if (texts.length > 0) parts.push({ text: texts.join('') })
    if (bytes.length > 0) parts.push({ raw: Buffer.concat(bytes).toString('base64') })
    texts = []
    bytes = []
  }
  for (const chunk of chunks) {
    const isText = typeof chunk === 'string'
    const isBytes = chunk instanceof Uint8Array
    if ((texts.length > 0 && !isText) || (bytes.length > 0 && !isBytes)) flush()
    if (isText) texts.push(chunk)
    else if (isBytes) bytes.push(chunk)
    else parts.push({ text: JSON.stringify(chunk) })
  }
  flush()
  if (isCut) parts.push({ text: `The tool said more than ${maxChunkChars} characters; the rest is left out.` })
  return new Content(parts)
}
