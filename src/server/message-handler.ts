/**
 * What answers a message that names no tool. Whoever writes an agent writes one of these; everything that an A2A agent
 * can do is something it yields, asks or returns.
 */
import { randomUUID } from 'node:crypto'
import { ConvokeError } from '../base/errors.ts'
import { isObject, type Json, type JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import type { Artifact, Message, Part } from '../protocol/a2a.ts'
import { keys } from '../protocol/extension.ts'
import { toErrorMessage, toProgressMetadata } from '../protocol/tool-call.ts'
import type { Outcome, Start, Work, WorkContext, WorkEvent } from '../tasks/work.ts'
import type { Delegation } from '../protocol/delegation.ts'
import { TaskChain } from '../tools/delegation.ts'
import { createSpace } from '../tools/invoke.ts'
import type { Caller, Progress, Question, ToolSpace } from '../tools/tool.ts'
import { ask } from './ask.ts'
import { surroundingsOf, type TaskServices } from './task-services.ts'

/** Where a piece of output goes. Pieces with the same `artifact` id make one artifact. */
interface Piece {
  /** Default: `answer` for text, else a new one for each. */
  readonly artifact?: string
  readonly name?: string
  readonly description?: string
  readonly metadata?: JsonObject
  /** Adds to the artifact instead of beginning it anew. Default: true for an id that was used before. */
  readonly append?: boolean
  /** Nothing more comes for this artifact. Default: false. */
  readonly last?: boolean
}

/** What a message handler may yield; a string is short for `{type: 'text', text}`. */
export type MessageEvent =
  | string
  | ({ readonly type: 'text'; readonly text: string } & Piece)
  | ({ readonly type: 'data'; readonly data: Json; readonly mediaType?: string } & Piece)
  | ({
      readonly type: 'file'
      readonly bytes?: Uint8Array
      readonly url?: string
      readonly filename?: string
      readonly mediaType?: string
    } & Piece)
  | ({ readonly type: 'parts'; readonly parts: Part[] } & Piece)
  | ({ readonly type: 'progress' } & Progress)
  /** The task is working, and says so in words. */
  | { readonly type: 'status'; readonly text?: string; readonly parts?: Part[]; readonly metadata?: JsonObject }
  /** A bare message instead of a task: the first and only thing yielded. */
  | { readonly type: 'message'; readonly text?: string; readonly parts?: Part[]; readonly metadata?: JsonObject }

/** How the handler ends, with words for the caller. Returning nothing is `completed`, a string is `completed` with it. */
export type MessageOutcome =
  | string
  | void
  | {
      /** `input-required`, `auth-required` and `working` leave the task open: the next message on it calls the handler again. */
      readonly state: 'completed' | 'failed' | 'rejected' | 'canceled' | 'input-required' | 'auth-required' | 'working'
      readonly text?: string
      readonly parts?: Part[]
      readonly metadata?: JsonObject
    }

export interface MessageContext {
  /** Aborted when the caller cancels or the node stops. */
  readonly signal: AbortSignal
  readonly caller: Caller
  readonly taskId: string
  readonly contextId: string
  /** All messages on this task, oldest first, the new one included. */
  readonly history: readonly Message[]
  /** The metadata of the request, beside the message's own. */
  readonly metadata: JsonObject | undefined
  /** Makes the task `input-required` and resolves with the reply on it; with a schema, with the validated data. */
  ask(question: Question | string): Promise<Json>
  readonly log: Logger
  /** The agent's tools. */
  readonly tools: ToolSpace
}

/**
 * Gets the message and a context. A generator makes a task, unless it yields a `message` first; a plain or async
 * function returns the text of a bare message. What it throws makes the task FAILED.
 */
export type MessageHandler = (
  message: Message,
  context: MessageContext,
) => AsyncIterable<MessageEvent> | Promise<string | JsonObject> | string | JsonObject

/** The handler as work for the task runtime. `incoming` is the way that the message came, if it was passed on. */
export function toMessageWork(
  handler: MessageHandler,
  start: Start<{ caller: Caller }>,
  services: TaskServices,
  incoming: Delegation | undefined,
): Work {
  return {
    repeatable: false,
    mayReply: true,
    fail: failMessage,
    async *run(work) {
      const known = new Set<string>()
      const chain = new TaskChain(services.guard, incoming)
      const answer = handler(start.message, toContext(start, work, services, chain, incoming?.path))
      if (!isGenerator(answer)) {
        const value = await Promise.resolve(answer).finally(() => chain.close())
        yield {
          type: 'reply',
          message: toMessage({ text: typeof value === 'string' ? value : JSON.stringify(value) }, work),
        }
        return { state: 'TASK_STATE_COMPLETED' }
      }
      const iterator = answer[Symbol.asyncIterator]()
      try {
        for (;;) {
          const step: IteratorResult<MessageEvent, MessageOutcome> = await iterator.next()
          if (step.done === true) return toOutcome(step.value, work)
          yield toWorkEvent(step.value, work, known)
        }
      } finally {
        await iterator.return?.()
        chain.close()
      }
    },
  }
}

/** Answers politely when the node has tools and nobody to talk to. */
export function describeTools(names: readonly string[]): string {
  if (names.length === 0) return 'This agent has no tools and answers no messages.'
  const shown = names.slice(0, 20).join(', ')
  const more = names.length > 20 ? ` and ${names.length - 20} more` : ''
  return `I run tools and do not answer messages by themselves. Name one in metadata._tool_call = {name, params}. I have: ${shown}${more}. Their parameters are on my agent card.`
}

function isGenerator(value: unknown): value is AsyncIterable<MessageEvent> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value
}

function toContext(
  start: Start<{ caller: Caller }>,
  work: WorkContext,
  services: TaskServices,
  chain: TaskChain,
  path: readonly string[] | undefined,
): MessageContext {
  const { caller } = start.request.context
  const askCaller = (question: Question): Promise<Json> => ask(question, '', work)
  return {
    signal: work.signal,
    caller,
    taskId: work.taskId,
    contextId: work.contextId,
    history: start.history,
    metadata: start.request.metadata,
    log: services.log,
    tools: createSpace(surroundingsOf(work, { caller, chain, path, ask: askCaller }, services)),
    ask: (question) => askCaller(typeof question === 'string' ? { message: question } : question),
  }
}

function toWorkEvent(event: MessageEvent, work: WorkContext, known: Set<string>): WorkEvent {
  if (typeof event === 'string') return toWorkEvent({ type: 'text', text: event }, work, known)
  switch (event.type) {
    case 'message':
      return { type: 'reply', message: toMessage(event, work) }
    case 'status':
      return {
        type: 'status',
        ...(event.text === undefined && event.parts === undefined ? {} : { message: toMessage(event, work) }),
        ...(event.metadata === undefined ? {} : { metadata: withoutMark(event.metadata) }),
      }
    case 'progress':
      return { type: 'status', metadata: toProgressMetadata(event) }
    case 'text':
      return toArtifact({ ...event, artifact: event.artifact ?? 'answer' }, [{ text: event.text }], known)
    case 'data':
      return toArtifact(
        event,
        [{ data: event.data, ...(event.mediaType === undefined ? {} : { mediaType: event.mediaType }) }],
        known,
      )
    case 'file':
      return toArtifact(event, [toFilePart(event)], known)
    case 'parts':
      return toArtifact(event, event.parts, known)
    default:
      throw new ConvokeError('internal', `A message handler yielded something unknown: ${JSON.stringify(event)}`)
  }
}

/** A handler may pass on what a caller sent; that it begins anew is for the node alone to say. */
function withoutMark(metadata: JsonObject): JsonObject {
  const { [keys.attempt]: _mark, ...rest } = metadata
  return rest
}

function toFilePart(file: { bytes?: Uint8Array; url?: string; filename?: string; mediaType?: string }): Part {
  const part: Part = {}
  if (file.bytes !== undefined) part.raw = Buffer.from(file.bytes).toString('base64')
  else if (file.url !== undefined) part.url = file.url
  else throw new ConvokeError('internal', 'A message handler yielded a file with neither bytes nor url.')
  if (file.filename !== undefined) part.filename = file.filename
  if (file.mediaType !== undefined) part.mediaType = file.mediaType
  return part
}

function toArtifact(piece: Piece, parts: Part[], known: Set<string>): WorkEvent {
  const artifactId = piece.artifact ?? randomUUID()
  const append = piece.append ?? known.has(artifactId)
  known.add(artifactId)
  const artifact: Artifact = { artifactId, parts }
  if (piece.name !== undefined) artifact.name = piece.name
  if (piece.description !== undefined) artifact.description = piece.description
  if (piece.metadata !== undefined) artifact.metadata = piece.metadata
  return { type: 'artifact', artifact, append, lastChunk: piece.last ?? false }
}

function toMessage(words: { text?: string; parts?: Part[]; metadata?: JsonObject }, work: WorkContext): Message {
  const message: Message = {
    messageId: randomUUID(),
    contextId: work.contextId,
    role: 'ROLE_AGENT',
    parts: words.parts ?? [{ text: words.text ?? '' }],
  }
  if (words.metadata !== undefined) message.metadata = words.metadata
  return message
}

const states = {
  completed: 'TASK_STATE_COMPLETED',
  failed: 'TASK_STATE_FAILED',
  rejected: 'TASK_STATE_REJECTED',
  canceled: 'TASK_STATE_CANCELED',
  'input-required': 'TASK_STATE_INPUT_REQUIRED',
  'auth-required': 'TASK_STATE_AUTH_REQUIRED',
  working: 'TASK_STATE_WORKING',
} as const

function toOutcome(outcome: MessageOutcome, work: WorkContext): Outcome {
  if (outcome === undefined) return { state: 'TASK_STATE_COMPLETED' }
  if (typeof outcome === 'string')
    return { state: 'TASK_STATE_COMPLETED', message: toTaskMessage({ text: outcome }, work) }
  const state = isObject(outcome) && Object.hasOwn(states, outcome.state) ? states[outcome.state] : undefined
  if (state === undefined) {
    throw new ConvokeError('internal', `A message handler returned something unknown: ${JSON.stringify(outcome)}`)
  }
  const hasWords = outcome.text !== undefined || outcome.parts !== undefined
  return {
    state,
    ...(hasWords ? { message: toTaskMessage(outcome, work) } : {}),
    ...(outcome.metadata === undefined ? {} : { metadata: outcome.metadata }),
  }
}

function toTaskMessage(words: { text?: string; parts?: Part[]; metadata?: JsonObject }, work: WorkContext): Message {
  return { ...toMessage(words, work), taskId: work.taskId }
}

/** A failure of what answers messages, as the end of its task. */
export function failMessage(error: ConvokeError): Outcome {
  const state =
    error.code === 'rejected'
      ? 'TASK_STATE_REJECTED'
      : error.code === 'canceled'
        ? 'TASK_STATE_CANCELED'
        : 'TASK_STATE_FAILED'
  return { state, message: toErrorMessage(error, '') }
}
