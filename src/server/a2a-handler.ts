/**
 * The operations behind the SDK's own interface, in the SDK's own types. The SDK's version 0.3 transports speak to it;
 * any other transport of the SDK can.
 */
import {
  AgentCard,
  ListTaskPushNotificationConfigsResponse,
  ListTasksResponse,
  Message,
  SendMessageRequest,
  StreamResponse,
  Task,
  TaskPushNotificationConfig,
} from '@a2a-js/sdk'
import { fromJsonRpcErrorResponse } from '@a2a-js/sdk/errors'
import type { A2ARequestHandler, ServerCallContext } from '@a2a-js/sdk/server'
import { ConvokeError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import { retryAfterSeconds, toRpcError } from '../protocol/wire-errors.ts'
import type { CallContext, EventStream, Operations } from './operations.ts'

export interface A2AHandlerOptions {
  readonly operations: Operations
  /** The public card of version 1.0. */
  readonly card: () => JsonObject
  /** What our door knows of the call that this context stands for. */
  readonly callContext: (context: ServerCallContext) => CallContext
  /**
   * Called with every error of ours: the status if HTTP itself has a word for it (401, 403, 413, 429, 503), else 200,
   * and when to come back in seconds.
   */
  readonly onError: (context: ServerCallContext, httpStatus: number, retryAfter: number | undefined) => void
  /** Called with an event's seq right before the event is handed on; what it returns is waited for before the next one. */
  readonly onEvent: (context: ServerCallContext, seq: number) => Promise<void> | undefined
}

export function createA2AHandler(options: A2AHandlerOptions): A2ARequestHandler {
  const { operations, callContext } = options

  /** Errors as the SDK knows them; everything else about them is the same on every door. */
  async function run<T>(context: ServerCallContext, call: (ours: CallContext) => Promise<T> | T): Promise<T> {
    try {
      return await call(callContext(context))
    } catch (error) {
      throw toSdkError(context, error)
    }
  }

  function toSdkError(context: ServerCallContext, error: unknown): Error {
    const { httpStatus, error: body } = toRpcError(error)
    options.onError(context, httpStatus, retryAfterSeconds(error))
    return fromJsonRpcErrorResponse({ jsonrpc: '2.0', id: null, error: body })
  }

  async function* stream(
    context: ServerCallContext,
    open: (ours: CallContext) => Promise<EventStream>,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    const events = await run(context, open)
    try {
      for await (const batch of events) {
        for (const { seq, text } of batch) {
          const ready = options.onEvent(context, seq)
          yield StreamResponse.fromJSON(JSON.parse(text))
          if (ready !== undefined) await ready
        }
      }
    } catch (error) {
      throw toSdkError(context, error)
    }
  }

  return {
    getAgentCard: () => Promise.resolve(AgentCard.fromJSON(options.card())),
    getAuthenticatedExtendedAgentCard: (_params, context) =>
      run(context, (ours) => {
        // Version 0.3 calls the card authenticated, and nobody is where no credentials are asked for.
        if (ours.version === '0.3' && ours.caller.id === 'anonymous') {
          throw new ConvokeError('unauthenticated', 'The extended card needs credentials.')
        }
        return AgentCard.fromJSON(JSON.parse(operations.getExtendedAgentCard(ours)))
      }),
    sendMessage: (params, context) =>
      run(context, async (ours) => {
        const { task, message } = JSON.parse(await operations.sendMessage(SendMessageRequest.toJSON(params), ours)) as {
          task?: unknown
          message?: unknown
        }
        return task === undefined ? Message.fromJSON(message) : Task.fromJSON(task)
      }),
    sendMessageStream: (params, context) =>
      stream(context, (ours) => operations.sendStreamingMessage(SendMessageRequest.toJSON(params), ours)),
    getTask: (params, context) =>
      run(context, async (ours) => Task.fromJSON(JSON.parse(await operations.getTask(params, ours)))),
    cancelTask: (params, context) =>
      run(context, async (ours) => Task.fromJSON(JSON.parse(await operations.cancelTask(params, ours)))),
    listTasks: (params, context) =>
      run(context, async (ours) => ListTasksResponse.fromJSON(JSON.parse(await operations.listTasks(params, ours)))),
    resubscribe: (params, context) => stream(context, (ours) => operations.subscribeToTask(params, ours)),
    createTaskPushNotificationConfig: (params, context) =>
      run(context, async (ours) =>
        TaskPushNotificationConfig.fromJSON(JSON.parse(await operations.createPushConfig(params, ours))),
      ),
    getTaskPushNotificationConfig: (params, context) =>
      run(context, async (ours) => {
        // Version 0.3 may ask for a task's only configuration without naming it.
        const named = { ...params, id: params.id === '' ? 'default' : params.id }
        return TaskPushNotificationConfig.fromJSON(JSON.parse(await operations.getPushConfig(named, ours)))
      }),
    listTaskPushNotificationConfigs: (params, context) =>
      run(context, async (ours) =>
        ListTaskPushNotificationConfigsResponse.fromJSON(JSON.parse(await operations.listPushConfigs(params, ours))),
      ),
    deleteTaskPushNotificationConfig: (params, context) =>
      run(context, async (ours) => {
        await operations.deletePushConfig(params, ours)
      }),
  }
}
