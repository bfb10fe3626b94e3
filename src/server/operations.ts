/**
 * Every A2A operation once, for all doors. Parameters come in as JSON of A2A 1.0 (any spelling that protocol/requests
 * takes); results go out as JSON text, because most of it stands in the store as text already. Errors are ConvokeErrors.
 */
import { ConvokeError } from '../base/errors.ts'
import type { Json } from '../base/json.ts'
import { isInterrupted, isTerminal, type SendMessageRequest } from '../protocol/a2a.ts'
import { keys } from '../protocol/extension.ts'
import {
  parseListTasksRequest,
  parsePushConfig,
  parsePushRequest,
  parseSendMessageRequest,
  parseTaskRequest,
} from '../protocol/requests.ts'
import { readToolCall, toCallBody } from '../protocol/tool-call.ts'
import type { PushService } from '../tasks/push.ts'
import type { Sent, TaskRuntime } from '../tasks/runtime.ts'
import { stateOf } from '../tasks/snapshot.ts'
import type { EventRecord } from '../store/store.ts'
import { allows } from '../tools/scopes.ts'
import type { Caller } from '../tools/tool.ts'

/** What a door knows of a call beside its parameters. */
export interface CallContext {
  readonly caller: Caller
  /** Aborted when the caller's connection is gone. */
  readonly signal: AbortSignal
  /** The seq of the last event that the caller has, if it says so. */
  readonly lastEventId?: number | undefined
  readonly version: '1.0' | '0.3'
}

/** What a task remembers of the call that made it. */
export type StoredContext = { caller: Caller }

/** Batches of events in order; the follower behind it holds a cursor and no queue. */
export type EventStream = AsyncGenerator<EventRecord[], void, void>

export interface OperationsOptions {
  readonly runtime: TaskRuntime<StoredContext>
  readonly push: PushService
  /** The extended card as JSON for this caller, or undefined where there is none. */
  readonly extendedCard: ((caller: Caller) => string) | undefined
}

export class Operations {
  readonly #runtime: OperationsOptions['runtime']
  readonly #push: PushService
  readonly #extendedCard: OperationsOptions['extendedCard']

  constructor({ runtime, push, extendedCard }: OperationsOptions) {
    this.#runtime = runtime
    this.#push = push
    this.#extendedCard = extendedCard
  }

  /** `{"task": …}` or `{"message": …}`. Waits for the end of the work unless told to return immediately. */
  async sendMessage(params: unknown, context: CallContext): Promise<string> {
    const request = parseSendMessageRequest(params)
    const { historyLength, returnImmediately } = request.configuration ?? {}
    const sent = await this.#send(request, context)
    let reply: string | undefined
    if (returnImmediately === true) {
      reply = await sent.now()
      if (reply === undefined) await this.#addPush(request, sent, context)
    } else {
      if (request.configuration?.taskPushNotificationConfig !== undefined && (await sent.decided()) === undefined) {
        await this.#addPush(request, sent, context)
      }
      // A caller who hangs up does not stop the work, and there is nothing to clean up earlier than at its end.
      return sent.answer({ historyLength })
    }
    if (reply !== undefined) return `{"message":${reply}}`
    return `{"task":${await sent.task({ historyLength })}}`
  }

  /**
   * The events that follow from a message. Resolves once the message is taken in, so that a refusal is a plain error.
   * Ends when the task ends or waits for its caller. A repeated message goes on behind the caller's last event.
   */
  async sendStreamingMessage(params: unknown, context: CallContext): Promise<EventStream> {
    const request = parseSendMessageRequest(params)
    const sent = await this.#send(request, context)
    await sent.persisted()
    return this.#stream(request, sent, context)
  }

  async *#stream(request: SendMessageRequest, sent: Sent, context: CallContext): EventStream {
    const reply = await sent.decided(context.signal)
    if (context.signal.aborted) return
    if (reply !== undefined) {
      yield [{ seq: 0, text: `{"message":${reply}}` }]
      return
    }
    await this.#addPush(request, sent, context)
    const owner = ownerOf(context.caller, request.tenant)
    if (!sent.fresh) return yield* await this.#resume(owner, sent.taskId, context)
    const { begin } = sent
    if (begin !== undefined) yield [{ seq: begin.seq, text: `{"task":${begin.text}}` }]
    const after = begin?.seq ?? 0
    yield* untilRest(this.#runtime.follow(owner, sent.taskId, after, context.signal, { untilRest: true }))
  }

  /** The task. */
  async getTask(params: unknown, context: CallContext): Promise<string> {
    const { id, tenant, historyLength } = parseTaskRequest(params)
    return this.#runtime.get(ownerOf(context.caller, tenant), id, { historyLength })
  }

  /** One page of the caller's tasks. */
  async listTasks(params: unknown, context: CallContext): Promise<string> {
    const request = parseListTasksRequest(params)
    const { pageSize, pageToken, contextId, status, statusTimestampAfter, historyLength } = request
    const { tasks, total, next } = await this.#runtime.list(
      {
        owner: ownerOf(context.caller, request.tenant),
        limit: pageSize,
        ...(contextId === undefined ? {} : { contextId }),
        ...(status === undefined ? {} : { state: status }),
        ...(statusTimestampAfter === undefined ? {} : { statusFrom: Date.parse(statusTimestampAfter) }),
        ...(pageToken === undefined ? {} : { after: fromPageToken(pageToken) }),
      },
      { historyLength, includeArtifacts: request.includeArtifacts ?? false },
    )
    const token = JSON.stringify(next === undefined ? '' : toPageToken(next))
    return `{"tasks":[${tasks.join(',')}],"nextPageToken":${token},"pageSize":${pageSize},"totalSize":${total}}`
  }

  /** The cancelled task. */
  async cancelTask(params: unknown, context: CallContext): Promise<string> {
    const { id, tenant } = parseTaskRequest(params)
    return this.#runtime.cancel(ownerOf(context.caller, tenant), id)
  }

  /**
   * The events of a task from now on, the task itself first; with the caller's last event given, exactly what it
   * missed. Ends with the task. Throws `unsupported_operation` for a task that has ended, unless something was missed.
   */
  async subscribeToTask(params: unknown, context: CallContext): Promise<EventStream> {
    const { id, tenant } = parseTaskRequest(params)
    const owner = ownerOf(context.caller, tenant)
    const { state, lastSeq } = await this.#runtime.state(owner, id)
    const { lastEventId } = context
    const missed = lastEventId !== undefined && lastEventId < lastSeq
    if (isTerminal(state) && !missed) {
      throw new ConvokeError(
        'unsupported_operation',
        `Task "${id}" has ended (${state}); there is nothing to subscribe to.`,
      )
    }
    if (lastEventId !== undefined && lastEventId <= lastSeq) {
      return this.#runtime.follow(owner, id, lastEventId, context.signal)
    }
    return this.#snapshotFirst(owner, id, context.signal)
  }

  async createPushConfig(params: unknown, context: CallContext): Promise<string> {
    const { tenant, ...config } = parsePushConfig(params)
    const owner = ownerOf(context.caller, tenant)
    const { lastSeq } = await this.#runtime.state(owner, config.taskId)
    return JSON.stringify(await this.#push.put(config, { version: context.version, cursor: lastSeq }))
  }

  async getPushConfig(params: unknown, context: CallContext): Promise<string> {
    const { taskId, id, tenant } = parsePushRequest(params, true)
    await this.#runtime.state(ownerOf(context.caller, tenant), taskId)
    const config = await this.#push.get(taskId, id)
    if (config === undefined) {
      throw new ConvokeError('task_not_found', `Task "${taskId}" has no push notification configuration "${id}".`)
    }
    return JSON.stringify(config)
  }

  async listPushConfigs(params: unknown, context: CallContext): Promise<string> {
    const { taskId, tenant } = parsePushRequest(params, false)
    await this.#runtime.state(ownerOf(context.caller, tenant), taskId)
    return JSON.stringify({ configs: await this.#push.list(taskId), nextPageToken: '' })
  }

  /** `{}`, the second time too. */
  async deletePushConfig(params: unknown, context: CallContext): Promise<string> {
    const { taskId, id, tenant } = parsePushRequest(params, true)
    await this.#runtime.state(ownerOf(context.caller, tenant), taskId)
    await this.#push.delete(taskId, id)
    return '{}'
  }

  getExtendedAgentCard(context: CallContext): string {
    if (this.#extendedCard === undefined) {
      throw new ConvokeError('unsupported_operation', 'This agent has no extended agent card.')
    }
    return this.#extendedCard(context.caller)
  }

  #send(request: SendMessageRequest, context: CallContext): Promise<Sent> {
    const { caller } = context
    const { message, metadata, configuration, tenant } = request
    const call = callOf(request)
    if (call === undefined && message.taskId === undefined && !allows(caller, 'message')) {
      throw new ConvokeError('forbidden', 'These credentials do not allow sending messages (scope "message").')
    }
    const config = configuration?.taskPushNotificationConfig
    if (config !== undefined) this.#push.check(config)
    return this.#runtime.send(
      { owner: ownerOf(caller, tenant), message, metadata, context: storedContextOf(caller) },
      call === undefined || call === null ? undefined : { [keys.call]: call },
    )
  }

  async #addPush({ configuration }: SendMessageRequest, sent: Sent, { version }: CallContext): Promise<void> {
    const config = configuration?.taskPushNotificationConfig
    // A repeated message has its webhook already.
    if (config !== undefined && sent.fresh)
      await this.#push.put({ ...config, taskId: sent.taskId }, { version, cursor: sent.begin?.seq ?? 0 })
  }

  /** Behind the caller's last event if it named one, else the task as it stands and what follows; until it rests. */
  async #resume(owner: string, id: string, context: CallContext): Promise<EventStream> {
    const { lastEventId, signal } = context
    if (lastEventId !== undefined && lastEventId <= (await this.#runtime.state(owner, id)).lastSeq) {
      return untilRest(this.#runtime.follow(owner, id, lastEventId, signal, { untilRest: true }))
    }
    return untilRest(this.#snapshotFirst(owner, id, signal, { untilRest: true }))
  }

  async *#snapshotFirst(owner: string, id: string, signal: AbortSignal, options?: { untilRest: boolean }): EventStream {
    const { seq, text, state } = await this.#runtime.snapshot(owner, id)
    yield [{ seq, text: `{"task":${text}}` }]
    const isOver = isTerminal(state) || (options?.untilRest === true && isInterrupted(state))
    if (!isOver) yield* this.#runtime.follow(owner, id, seq, signal, options)
  }
}

/** One object for each caller, so that what is stored of it is put into JSON once. */
function storedContextOf(caller: Caller): StoredContext {
  let context = storedContexts.get(caller)
  if (context === undefined) {
    context = { caller }
    storedContexts.set(caller, context)
  }
  return context
}

const storedContexts = new WeakMap<Caller, StoredContext>()

/** Whose tasks these are. The first slash ends the tenant, which has none itself. */
export function ownerOf(caller: Caller, tenant: string | undefined): string {
  return tenant === undefined ? `/${caller.id}` : `${tenant.replaceAll('%', '%25').replaceAll('/', '%2F')}/${caller.id}`
}

/** The call as the task carries it back: as it was sent, or put in our own words where it came in others'. */
function callOf({ message, metadata }: SendMessageRequest): Json | undefined {
  const own = message.metadata?.[keys.call] ?? metadata?.[keys.call]
  if (own !== undefined) return own
  try {
    const call = readToolCall(message, metadata)
    return call === undefined ? undefined : toCallBody(call)
  } catch {
    // A call that is wrong in itself becomes a rejected task, which says what is wrong.
    return null
  }
}

/**
 * Ends behind the event with which the task ends or waits for its caller, unless the task has gone on since: a caller
 * who comes back gets the questions that were answered, too.
 */
async function* untilRest(events: EventStream): EventStream {
  for await (const batch of events) {
    const last = batch[batch.length - 1]
    yield batch
    const state = last === undefined ? undefined : stateOf(last)
    if (state !== undefined && (isTerminal(state) || isInterrupted(state))) return
  }
}

function toPageToken({ statusAt, id }: { statusAt: number; id: string }): string {
  return Buffer.from(`${statusAt}.${id}`).toString('base64url')
}

function fromPageToken(token: string): { statusAt: number; id: string } {
  const match = /^(\d{1,16})\.(.+)$/.exec(Buffer.from(token, 'base64url').toString())
  if (match?.[1] === undefined || match[2] === undefined) {
    const text = 'pageToken must be the nextPageToken of the page before.'
    throw new ConvokeError('invalid_params', text, { issues: [{ path: '/pageToken', message: text }] })
  }
  return { statusAt: Number(match[1]), id: match[2] }
}
