/**
 * A message that starts work at a peer, and all that follows from it: the same generator as a local tool's. It follows the
 * task through cuts, passes progress, chunks and questions on, and cancels the task when nobody waits for it any more.
 */
import { randomUUID } from 'node:crypto'
import { abortReason, onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { isInterrupted, isTerminal, type Artifact, type Message, type Task, type TaskStatus } from '../protocol/a2a.ts'
import { keys, streamArtifact } from '../protocol/extension.ts'
import {
  fromChunkArtifact,
  fromErrorMessage,
  fromLogMetadata,
  fromProgressMetadata,
  fromQuestionMessage,
  fromResultArtifact,
  toAnswerMessage,
} from '../protocol/tool-call.ts'
import { approvalReader } from '../tools/approval.ts'
import type { Chunk, Hop, ToolContext, ToolValue } from '../tools/tool.ts'
import { clip } from '../tools/value.ts'
import type { PeerClient, SendRetry } from './client.ts'
import { PeerError, toPeerError } from './errors.ts'
import type { OpenCall } from './open-calls.ts'
import type { PeerEvent, PeerInfo, SendOptions } from './peer.ts'
import { convert, Output, textOf, type Convert } from './remote-output.ts'

export interface RemoteCallOptions {
  readonly client: PeerClient
  /** What starts the work. */
  readonly message: Message
  /** The tool that the message calls, for errors; undefined where it calls none. */
  readonly tool?: string
  /** The work may be begun twice: a message that was perhaps sent is sent again to any peer. */
  readonly repeatable: boolean
  /** What artifacts without the extension come to. Default: {@link convert}. */
  readonly convert?: Convert
  readonly log: Logger
  /** Hears when the peer does not know the tool any more, or sees its schema otherwise. */
  readonly onStale?: () => void
}

/** What a call needs of a tool's context. */
export type CallSurroundings = Pick<ToolContext, 'signal' | 'progress' | 'notice' | 'ask' | 'hop'>

/** How long the word of a peer is waited for that was told to stop. */
const cancelTimeoutMs = 5_000
/** What a peer says when its tools are no longer those that we know. */
const staleCodes: ReadonlySet<string> = new Set(['not_found', 'invalid_params', 'invalid_request', 'method_not_found'])

/** One call under way. */
export class RemoteCall implements OpenCall {
  next: OpenCall | undefined
  previous: OpenCall | undefined
  readonly #options: RemoteCallOptions
  readonly #context: CallSurroundings
  readonly #hop: Hop | undefined
  readonly #output: Output
  /** Ends the connection; the task at the peer is ended by a cancel. Where nothing can stop the call, there is none. */
  readonly #connection: AbortController | undefined
  #taskId: string | undefined
  #contextId: string | undefined
  /** The peer may know of the call. */
  #isSent = false
  /** Nothing runs at the peer that would have to be stopped. */
  #isOver = false
  #leaving: Promise<void> | undefined
  #onNamed: (() => void) | undefined

  constructor(options: RemoteCallOptions, context: CallSurroundings) {
    this.#options = options
    this.#context = context
    this.#hop = context.hop
    this.#output = new Output(options.convert ?? convert)
    this.#connection = context.hop?.stoppable === false ? undefined : new AbortController()
  }

  /** The task that the peer made of the message, once it has said so. */
  get taskId(): string | undefined {
    return this.#taskId
  }

  /** The conversation at the peer, once it has named it. */
  get contextId(): string | undefined {
    return this.#contextId
  }

  async *run(): AsyncGenerator<Chunk, ToolValue, void> {
    const signal = this.#connection === undefined ? undefined : this.#context.signal
    throwIfStopped(signal)
    // The connection outlives the abort until the task is told to stop: without its name it cannot be.
    const stopListening = signal === undefined ? undefined : onAbort(signal, () => void this.leave())
    const { client } = this.#options
    client.openCalls.add(this)
    try {
      const info = client.info ?? (await client.connect(signal === undefined ? {} : { signal }))
      throwIfStopped(signal)
      return yield* this.#turns(info)
    } catch (error) {
      this.#onNamed?.()
      if (signal?.aborted === true) {
        await this.leave()
        throw abortReason(signal)
      }
      // A peer that refused the message, or is gone, has nothing that could be stopped now.
      if (this.#taskId === undefined && !(error instanceof PeerError && error.code === 'timeout')) this.#isOver = true
      // What our own side threw, whoever was to answer a question for one, is no failure of the peer.
      throw error instanceof PeerError ? this.#failed(error) : error
    } finally {
      stopListening?.()
      // The reader has left, or a failure on our side leaves a task behind that nobody waits for.
      if (!this.#isOver || this.#leaving !== undefined) await this.leave()
      client.openCalls.delete(this)
    }
  }

  /** Sends the call, then an answer for each question, until the task ends. */
  async *#turns(peer: PeerInfo): AsyncGenerator<Chunk, ToolValue, void> {
    const { client, repeatable } = this.#options
    const options = {
      ...(this.#connection === undefined ? {} : { signal: this.#connection.signal }),
      repeatable,
      onSent: () => {
        this.#isSent = true
      },
    }
    let { message } = this.#options
    for (;;) {
      // One request where nobody takes chunks. Only a Convoke peer tells the name of a task that nobody follows: without
      // it the task could not be cancelled.
      if (peer.convoke && peer.streaming && this.#hop?.streaming === false) {
        // Who sent the messages knows them.
        const event = await client.sendTask(message, { ...options, historyLength: 0 })
        for (const chunk of this.#take({ event })) yield chunk
      } else {
        for await (const event of this.#events(message, options, peer)) {
          for (const chunk of this.#take(event)) yield chunk
        }
      }
      const { status, isMessage } = this.#output
      if (isMessage) {
        this.#isOver = true
        return this.#output.value(undefined)
      }
      if (status !== undefined && isInterrupted(status.state)) {
        message = await this.#ask(status)
        continue
      }
      this.#isOver = true
      return this.#settle(status)
    }
  }

  /** What follows from a message: by the peer's stream, or by asking for its task again and again. */
  async *#events(
    message: Message,
    options: SendOptions & SendRetry,
    peer: PeerInfo,
  ): AsyncGenerator<PeerEvent, void, void> {
    const { client } = this.#options
    if (peer.streaming) {
      yield* client.streamMessage(message, options)
      return
    }
    const event = await client.sendMessage(message, { ...options, returnImmediately: true })
    yield { event }
    const { task } = event
    if (task === undefined || isTerminal(task.status.state) || isInterrupted(task.status.state)) return
    yield { event: { task: await client.waitFor(task.id, options) } }
  }

  *#take({ event }: PeerEvent): Generator<Chunk, void, void> {
    const { task, message, statusUpdate, artifactUpdate } = event
    if (task !== undefined) {
      this.#known(task.id, task.contextId)
      yield* this.#takeTask(task)
    } else if (statusUpdate !== undefined) {
      this.#known(statusUpdate.taskId, statusUpdate.contextId)
      this.#output.status = statusUpdate.status
      const attempt = statusUpdate.metadata?.[keys.attempt]
      if (typeof attempt === 'number' && attempt > this.#output.peerAttempt) {
        this.#output.peerAttempt = attempt
        this.#restart()
      }
      const progress = fromProgressMetadata(statusUpdate.metadata)
      if (progress !== undefined) this.#context.progress(progress)
      const log = fromLogMetadata(statusUpdate.metadata)
      if (log !== undefined) this.#context.notice(log)
    } else if (artifactUpdate !== undefined) {
      this.#known(artifactUpdate.taskId, artifactUpdate.contextId)
      yield* this.#takeArtifact(artifactUpdate.artifact, artifactUpdate.append === true)
    } else if (message !== undefined) {
      this.#contextId = message.contextId ?? this.#contextId
      this.#output.isMessage = true
      this.#output.gather({ artifactId: 'message', parts: message.parts }, false)
    }
  }

  /** The task as it stands. Of its chunks only those are new that did not come before. */
  *#takeTask(task: Task): Generator<Chunk, void, void> {
    this.#output.status = task.status
    for (const artifact of task.artifacts ?? []) {
      if (artifact.artifactId !== streamArtifact) {
        yield* this.#takeArtifact(artifact, false)
        continue
      }
      this.#noteAttempt(artifact)
      const chunks = fromChunkArtifact(artifact)
      yield* chunks.slice(this.#output.chunks)
      this.#output.chunks = Math.max(chunks.length, this.#output.chunks)
    }
  }

  *#takeArtifact(artifact: Artifact, append: boolean): Generator<Chunk, void, void> {
    const result = fromResultArtifact(artifact)
    if (result !== undefined) {
      this.#output.result = { value: result.result }
      const { executionTimeMs } = result
      this.#tell(executionTimeMs === undefined ? {} : { executionTimeMs })
      return
    }
    if (artifact.artifactId === streamArtifact) {
      this.#noteAttempt(artifact)
      if (!append) this.#restart()
      const chunks = fromChunkArtifact(artifact)
      this.#output.chunks += chunks.length
      yield* chunks
      return
    }
    this.#output.gather(artifact, append)
  }

  #noteAttempt({ metadata }: Artifact): void {
    const attempt = metadata?.[keys.attempt]
    if (typeof attempt !== 'number' || attempt <= this.#output.peerAttempt) return
    this.#output.peerAttempt = attempt
    this.#restart()
  }

  /** The peer runs the tool anew; what came so far no longer counts. */
  #restart(): void {
    if (this.#output.chunks > 0) this.#hop?.restart()
    this.#output.restart()
  }

  #known(taskId: string, contextId: string): void {
    if (contextId !== '') this.#contextId = contextId
    if (this.#taskId === taskId) return
    this.#taskId = taskId
    this.#onNamed?.()
    this.#tell({})
  }

  #tell(more: { readonly executionTimeMs?: number }): void {
    if (this.#taskId === undefined) return
    const context = this.#contextId === undefined ? {} : { contextId: this.#contextId }
    this.#hop?.onTask?.({ taskId: this.#taskId, ...context, ...more })
  }

  /** The message that goes on with the task: the answer to its question. */
  async #ask(status: TaskStatus): Promise<Message> {
    const question = status.message === undefined ? undefined : fromQuestionMessage(status.message)
    const text = question?.message ?? textOf(status.message)
    const isAuth = status.state === 'TASK_STATE_AUTH_REQUIRED'
    const sentence =
      text === '' ? (isAuth ? 'It wants you to authenticate.' : 'It asks for input, without words.') : text
    let answer: Json
    try {
      answer = await this.#context.ask({
        message: isAuth ? `Authentication is required: ${sentence}` : sentence,
        ...(question?.schema === undefined ? {} : { schema: question.schema, read: approvalReader(question.schema) }),
        ...(question?.sampling === undefined ? {} : { sampling: question.sampling }),
      })
    } catch (error) {
      const { code, message } = ConvokeError.from(error)
      // The peer says what that means: its tool may go on without the answer.
      if (code === 'rejected') return this.#answer({ action: 'decline' })
      if (code !== 'unsupported_operation') throw error
      const what = isAuth ? 'wants you to authenticate' : 'asks'
      throw new PeerError(
        code,
        this.#options.client.id,
        `It ${what}, and nobody can answer here: ${clip(sentence, 500)}`,
        {
          ...this.#about(),
          cause: new Error(message),
        },
      )
    }
    return this.#answer(answer)
  }

  #answer(answer: Json): Message {
    return toAnswerMessage(answer, { taskId: this.#taskId ?? '', contextId: this.#contextId }, randomUUID())
  }

  #settle(status: TaskStatus | undefined): ToolValue {
    const peer = this.#options.client.id
    if (status === undefined)
      throw new PeerError('peer_failed', peer, 'Its answer ended without a task.', this.#about())
    if (status.state === 'TASK_STATE_COMPLETED') return this.#output.value(status.message)
    const told = status.message === undefined ? undefined : fromErrorMessage(status.message)
    const text = textOf(status.message)
    const words = text === '' ? `The task ended as ${status.state} without words.` : text
    if (told === undefined) {
      const code =
        status.state === 'TASK_STATE_REJECTED'
          ? 'rejected'
          : status.state === 'TASK_STATE_CANCELED'
            ? 'canceled'
            : 'tool_failed'
      throw new PeerError(code, peer, clip(words, 4000), {
        ...this.#about(),
        kind: code === 'canceled' ? 'canceled' : 'tool',
      })
    }
    const { code, message, retryable, retryAfterMs, issues } = told
    // Turned away before the tool began: no word of the tool's own.
    const isTurnedAway = code === 'rate_limited' && status.state === 'TASK_STATE_REJECTED'
    throw new PeerError(code, peer, clip(message, 4000), {
      ...this.#about(),
      kind: code === 'timeout' || code === 'canceled' ? code : isTurnedAway ? 'connection' : 'tool',
      retryable,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
      ...(issues === undefined ? {} : { issues }),
    })
  }

  #failed(error: PeerError): PeerError {
    // Some refuse a tool that is gone, or params that no longer fit, without a task.
    if (staleCodes.has(error.code)) this.#options.onStale?.()
    return this.#options.client.clean(toPeerError(error, error.peer, this.#about()))
  }

  #about(): { tool?: string; taskId?: string; attempt: number } {
    const { tool } = this.#options
    return {
      ...(tool === undefined ? {} : { tool }),
      ...(this.#taskId === undefined ? {} : { taskId: this.#taskId }),
      attempt: this.#output.attempt,
    }
  }

  /** Ends the connection, once the task is told to stop or is left to itself. Never rejects. */
  leave(): Promise<void> {
    this.#leaving ??= this.#stop()
    return this.#leaving
  }

  async #stop(): Promise<void> {
    const { client, log } = this.#options
    try {
      // Up to here nothing is awaited: a call that has not gone out never does.
      if (this.#isOver || !this.#isSent) return
      const taskId = await this.#named()
      this.#connection?.abort()
      // Detached, the call is with the peer once its task has a name.
      if (this.#hop?.detach === true || this.#isOver) return
      if (taskId === undefined)
        log.warn({ peer: client.id }, 'A call could not be cancelled at a peer: its task has no name.')
      else await client.cancelTask(taskId, { timeoutMs: cancelTimeoutMs })
    } catch (error) {
      // It had ended first, which is as good.
      if (error instanceof PeerError && (error.code === 'task_not_cancelable' || error.code === 'task_not_found'))
        return
      log.warn(
        { peer: client.id, taskId: this.#taskId, error },
        'A task at a peer could not be cancelled; it may go on.',
      )
    } finally {
      this.#isOver = true
      this.#connection?.abort()
    }
  }

  /** The task's id, asked for if it has not come; undefined where it cannot be had. */
  async #named(): Promise<string | undefined> {
    if (this.#taskId !== undefined) return this.#taskId
    const { client } = this.#options
    if (client.status.info?.convoke === true) {
      // The same message finds its task, or becomes one that is cancelled at once.
      const answer = await client.sendMessage(this.#options.message, {
        returnImmediately: true,
        timeoutMs: cancelTimeoutMs,
      })
      if (answer.task !== undefined) this.#known(answer.task.id, answer.task.contextId)
      return this.#taskId
    }
    // Any other peer names the task with its first event.
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, cancelTimeoutMs)
      this.#onNamed = () => {
        clearTimeout(timer)
        resolve()
      }
    })
    return this.#taskId
  }
}

function throwIfStopped(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw abortReason(signal)
}
