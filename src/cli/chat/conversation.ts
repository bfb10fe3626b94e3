/** A conversation with any A2A agent: messages in one context, each followed to its end, and stopped on demand. */
import { randomUUID } from 'node:crypto'
import { onAbort, pause } from '../../base/abort.ts'
import { ConvokeError } from '../../base/errors.ts'
import type { PeerClient } from '../../peers/client.ts'
import { PeerError } from '../../peers/errors.ts'
import { Seen } from '../../peers/follow.ts'
import type { PeerEvent, PeerInfo } from '../../peers/peer.ts'
import { isInterrupted, isTerminal } from '../../protocol/a2a.ts'
import type { Artifact, Message, StreamResponse, TaskStatus } from '../../protocol/a2a.ts'
import { ignoredWords, keys } from '../../protocol/extension.ts'
import { fromErrorMessage, fromLogMetadata, fromProgressMetadata, toAnswerMessage } from '../../protocol/tool-call.ts'
import { readAnswer } from '../remote/question.ts'
import type { ChatEvent } from './events.ts'
import { partsOf, textOf, toQuestion, type AskedQuestion } from './words.ts'

/** How long an agent that was told to stop is waited for, each time that it has something to say, in milliseconds. */
const cancelTimeoutMs = 5_000
/** How long the rest of a stream is waited for once the agent has said that the task has stopped, in milliseconds. */
const settleMs = 1_000
/** Of an answer, to know it again in the agent's closing words. */
const maxSaid = 64 * 1024

/** How one message is stopped. */
export interface Stops {
  /** Aborts: the agent is told to stop, and its word is waited for, for a while. */
  readonly stop: AbortSignal
  /** Aborts: nobody waits any more. */
  readonly leave: AbortSignal
}

/** A task under way, or one that waits for a reply. */
interface OpenTask {
  readonly id: string
  readonly contextId: string
  readonly seen: Seen
  /** Artifacts of which something was shown. */
  readonly shown: Set<string>
}

export class Conversation {
  readonly #client: PeerClient
  readonly #info: PeerInfo
  #contextId: string | undefined
  #task: OpenTask | undefined
  #question: AskedQuestion | undefined
  /** How the message under way ended. */
  #end: TaskStatus | undefined
  /** The agent answered with a message, without a task. */
  #isMessage = false
  #said = ''
  /** What it said last of its work: the answer of an agent that has no other. */
  #lastStatus = ''
  #onNamed: (() => void) | undefined

  constructor(client: PeerClient, info: PeerInfo, contextId: string | undefined) {
    this.#client = client
    this.#info = info
    this.#contextId = contextId
  }

  /** What the agent calls the conversation; undefined before its first answer. */
  get contextId(): string | undefined {
    return this.#contextId
  }

  /** The task that waits for a reply, or is under way. */
  get taskId(): string | undefined {
    return this.#task?.id
  }

  /** What the agent waits to be told; the next message is its answer. */
  get question(): AskedQuestion | undefined {
    return this.#question
  }

  /** Goes on with another conversation, or begins a new one. A question that is open stays with its task. */
  turnTo(contextId: string | undefined): void {
    this.#contextId = contextId
    this.#task = undefined
    this.#question = undefined
  }

  /**
   * Sends a message, the reply where the agent waits for one, and tells what comes of it, an `end` last. Throws PeerError, and
   * `canceled` where it was stopped and nobody knows whether the agent did.
   */
  async *send(text: string, { stop, leave }: Stops): AsyncGenerator<ChatEvent, void, void> {
    const message = this.#toMessage(text)
    const connection = new AbortController()
    const unlinks = [
      onAbort(leave, () => connection.abort(leave.reason)),
      onAbort(stop, () => void this.#stop(message, connection)),
    ]
    this.#end = undefined
    this.#isMessage = false
    this.#said = this.#lastStatus = ''
    const { messageId, contextId = null, taskId = null } = message
    try {
      yield { type: 'sent', text, messageId, contextId, taskId }
      try {
        for await (const { event } of this.#events(message, connection.signal)) yield* this.#noted(this.#take(event))
      } catch (error) {
        // Stopped, and the agent has said so: the rest of its stream is not needed.
        if (!stop.aborted || leave.aborted || this.#end === undefined) throw error
      }
      yield* this.#finish()
    } catch (error) {
      // A reply that did not arrive may be given again.
      const isOpen = this.#question !== undefined && error instanceof PeerError && error.retryable
      if (!isOpen) this.turnTo(this.#contextId)
      throw error
    } finally {
      for (const unlink of unlinks) unlink()
      connection.abort()
    }
  }

  /** Tells the agent to stop the task that waits for a reply. Throws PeerError. */
  async drop(): Promise<void> {
    const id = this.#task?.id
    this.turnTo(this.#contextId)
    if (id !== undefined) await this.#client.cancelTask(id, { timeoutMs: cancelTimeoutMs })
  }

  #toMessage(text: string): Message {
    const question = this.#question
    const task = this.#task
    if (question !== undefined && task !== undefined) {
      const answer = readAnswer(text, question).value
      const isPlain = typeof answer === 'string' && question.schema === undefined
      if (!isPlain) return toAnswerMessage(answer, { taskId: task.id, contextId: task.contextId }, randomUUID())
    }
    const contextId = task?.contextId ?? this.#contextId
    return {
      messageId: randomUUID(),
      role: 'ROLE_USER',
      parts: [{ text }],
      ...(contextId === undefined || contextId === '' ? {} : { contextId }),
      ...(task === undefined ? {} : { taskId: task.id }),
    }
  }

  /** What follows from a message: by the agent's stream, or by asking for its task again and again. */
  async *#events(message: Message, signal: AbortSignal): AsyncGenerator<PeerEvent, void, void> {
    if (this.#info.streaming) {
      yield* this.#client.streamMessage(message, { signal })
      return
    }
    const event = await this.#client.sendMessage(message, { signal, returnImmediately: true })
    yield { event }
    const { task } = event
    if (task === undefined || isTerminal(task.status.state) || isInterrupted(task.status.state)) return
    yield { event: { task: await this.#client.waitFor(task.id, { signal }) } }
  }

  *#take(event: StreamResponse): Generator<ChatEvent, void, void> {
    const { task, message, statusUpdate, artifactUpdate } = event
    if (message !== undefined) {
      this.#isMessage = true
      if (message.contextId !== undefined && message.contextId !== '') this.#contextId = message.contextId
      yield* partsOf(message.parts, null)
      return
    }
    const taskId = task?.id ?? statusUpdate?.taskId ?? artifactUpdate?.taskId
    const contextId = task?.contextId ?? statusUpdate?.contextId ?? artifactUpdate?.contextId ?? ''
    if (taskId === undefined) return
    const isNew = this.#task?.id !== taskId && (this.#task === undefined || task !== undefined)
    const open = isNew ? this.#open(taskId, contextId) : this.#task
    if (open === undefined || open.id !== taskId) return
    this.#question = undefined
    if (isNew) yield { type: 'task', taskId, contextId }
    // Of a task as it stands, only what was not shown of it before.
    if (task !== undefined) open.seen.expectSnapshot()
    for (const news of open.seen.take({ event })) {
      for (const artifact of news.event.task?.artifacts ?? []) yield* this.#artifact(open, artifact, false)
      const update = news.event.artifactUpdate
      if (update !== undefined) yield* this.#artifact(open, update.artifact, update.append === true)
    }
    if (task !== undefined) yield* this.#status(task.status)
    if (statusUpdate === undefined) return
    const { metadata } = statusUpdate
    if (metadata?.[keys.attempt] !== undefined && open.shown.size > 0) {
      open.shown.clear()
      yield { type: 'restart', artifactId: null }
    }
    const progress = fromProgressMetadata(metadata)
    if (progress !== undefined) yield { type: 'progress', ...progress }
    const log = fromLogMetadata(metadata)
    if (log !== undefined)
      yield { type: 'status', text: typeof log.data === 'string' ? log.data : JSON.stringify(log.data) }
    yield* this.#status(statusUpdate.status)
  }

  #open(id: string, contextId: string): OpenTask {
    const seen = new Seen({ taskId: undefined, lastEventId: undefined, hasIds: false })
    if (contextId !== '') this.#contextId = contextId
    this.#task = { id, contextId, seen, shown: new Set() }
    this.#onNamed?.()
    return this.#task
  }

  *#artifact({ shown }: OpenTask, artifact: Artifact, append: boolean): Generator<ChatEvent, void, void> {
    const { artifactId, parts } = artifact
    if (!append && shown.delete(artifactId)) yield { type: 'restart', artifactId }
    for (const event of partsOf(parts, artifactId)) {
      shown.add(artifactId)
      yield event
    }
  }

  *#status(status: TaskStatus): Generator<ChatEvent, void, void> {
    this.#end = isTerminal(status.state) || isInterrupted(status.state) ? status : undefined
    const text = textOf(status.message)
    if (this.#end !== undefined || text === '') return
    this.#lastStatus = text
    yield { type: 'status', text }
  }

  /** Remembers what was said. */
  *#noted(events: Iterable<ChatEvent>): Generator<ChatEvent, void, void> {
    for (const event of events) {
      if (event.type === 'text') this.#said = (this.#said + event.text).slice(-maxSaid)
      else if (event.type === 'part') this.#lastStatus = ''
      else if (event.type === 'restart') this.#said = ''
      yield event
    }
  }

  *#finish(): Generator<ChatEvent, void, void> {
    const status = this.#end
    const contextId = this.#contextId ?? null
    if (status === undefined) {
      const end = { state: null, taskId: null, contextId, message: null, error: null } as const
      if (!this.#isMessage) throw new ConvokeError('peer_failed', 'The answer of the agent ended without a task.')
      yield { type: 'end', ...end }
      return
    }
    const { state, message } = status
    const taskId = this.#task?.id ?? ''
    const text = textOf(message)
    for (const event of partsOf(message?.parts ?? [], null)) if (event.type === 'part') yield event
    if (isInterrupted(state)) {
      this.#question = toQuestion(status, text)
      const { message: asked, schema } = this.#question
      yield { type: 'question', taskId, message: asked, ...(schema === undefined ? {} : { schema }) }
    } else {
      this.#task = undefined
      this.#question = undefined
      if (state === 'TASK_STATE_COMPLETED') yield* this.#closing(text)
    }
    const told = message === undefined ? undefined : fromErrorMessage(message)
    const error = told === undefined ? null : { code: told.code, message: told.message, retryable: told.retryable }
    yield { type: 'end', state, taskId, contextId, message: text === '' ? null : text, error }
  }

  /** The words with which a task ends, unless they are the answer once more. */
  *#closing(text: string): Generator<ChatEvent, void, void> {
    // Words of a node that are no answer, but tell why there is none.
    if (this.#info.convoke && text.startsWith(ignoredWords)) return
    const said = this.#said.trim()
    const words = text === '' && said === '' ? this.#lastStatus : text
    const isSaid = this.#said.length < maxSaid ? said === words.trim() : said.endsWith(words.trim())
    if (words !== '' && !isSaid) yield { type: 'text', artifactId: null, text: words }
  }

  /** Tells the agent to stop, and ends the connection once it has said what it has to say to that. Never rejects. */
  async #stop(message: Message, connection: AbortController): Promise<void> {
    try {
      const id = await this.#named(message, connection.signal)
      if (connection.signal.aborted) return
      if (id === undefined) throw new ConvokeError('canceled', 'it has not named its task')
      const { status } = await this.#client.cancelTask(id, { timeoutMs: cancelTimeoutMs, signal: connection.signal })
      await pause(settleMs, connection.signal, { keepAlive: true })
      if (isTerminal(status.state)) this.#end ??= status
      connection.abort(new ConvokeError('canceled', `The agent says that the task is ${status.state}.`))
    } catch (error) {
      const { code, message: reason } = ConvokeError.from(error)
      // It had ended first: that is on its way.
      if (code === 'task_not_cancelable') await pause(settleMs, connection.signal, { keepAlive: true })
      const words = `The agent could not be told to stop (${reason.replace(/\.$/, '')}), so the task may go on.`
      connection.abort(new ConvokeError('canceled', words))
    }
  }

  /** The id of the task that the message is for, waited for if it has not come; undefined where it cannot be had. */
  async #named(message: Message, signal: AbortSignal): Promise<string | undefined> {
    if (this.#task !== undefined) return this.#task.id
    if (this.#info.convoke) {
      // The same message finds its task, or becomes one that is cancelled at once.
      const answer = await this.#client.sendMessage(message, {
        returnImmediately: true,
        timeoutMs: cancelTimeoutMs,
        signal,
      })
      return answer.task?.id
    }
    const named = new AbortController()
    this.#onNamed = () => named.abort()
    await pause(cancelTimeoutMs, AbortSignal.any([named.signal, signal]), { keepAlive: true })
    this.#onNamed = undefined
    return this.taskId
  }
}
