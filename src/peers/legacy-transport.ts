/**
 * Peers that speak A2A 0.3. The SDK's client translates between the versions; requests and streams travel our way, so
 * that addresses are checked, credentials stay home and limits hold.
 */
import {
  CancelTaskRequest,
  DeleteTaskPushNotificationConfigRequest,
  GetTaskPushNotificationConfigRequest,
  GetTaskRequest,
  ListTaskPushNotificationConfigsRequest,
  ListTaskPushNotificationConfigsResponse,
  Message,
  SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
  Task,
  TaskPushNotificationConfig,
} from '@a2a-js/sdk'
import { LegacyJsonRpcTransport, LegacyRestTransport } from '@a2a-js/sdk/compat/v0_3/client'
import { ConvokeError } from '../base/errors.ts'
import { readEvents } from '../base/event-stream.ts'
import type { BodyStream } from '../base/guarded-fetch.ts'
import { isObject } from '../base/json.ts'
import { parseStreamResponse } from '../protocol/responses.ts'
import { fromRpcError, PeerError } from './errors.ts'
import type { Answer, Exchange, Link } from './link.ts'
import type { Binding, PeerEvent } from './peer.ts'
import type { EventBatches, Method, StreamMethod, Transport, TransportOptions } from './transport.ts'

/** What one call leaves for its requests, and they for it: the SDK's errors have less to say than ours. */
interface Ours {
  readonly exchange: Exchange
  failure?: unknown
  /** The body of a stream: the SDK does not close what it has not read to the end. */
  body?: BodyStream
  /** For each event that the SDK has yet to give, whether its parts go behind those of before. */
  readonly appends: boolean[]
}

type SdkTransport = LegacyJsonRpcTransport | LegacyRestTransport

export class LegacyTransport implements Transport {
  readonly #options: TransportOptions
  readonly #binding: Binding

  constructor(options: TransportOptions, binding: Binding) {
    this.#options = options
    this.#binding = binding
  }

  async call(method: Method, params: Record<string, unknown>, exchange: Exchange): Promise<unknown> {
    const ours: Ours = { exchange, appends: [] }
    const sdk = this.#sdk(ours)
    try {
      switch (method) {
        case 'SendMessage': {
          const answer = await sdk.sendMessage(SendMessageRequest.fromJSON(params))
          // A task has an id, and a message has a messageId.
          return 'id' in answer ? { task: Task.toJSON(answer) } : { message: Message.toJSON(answer) }
        }
        case 'GetTask':
          return Task.toJSON(await sdk.getTask(GetTaskRequest.fromJSON(params)))
        case 'CancelTask':
          return Task.toJSON(await sdk.cancelTask(CancelTaskRequest.fromJSON(params)))
        case 'CreateTaskPushNotificationConfig':
          return TaskPushNotificationConfig.toJSON(
            await sdk.createTaskPushNotificationConfig(TaskPushNotificationConfig.fromJSON(params)),
          )
        case 'GetTaskPushNotificationConfig':
          return TaskPushNotificationConfig.toJSON(
            await sdk.getTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest.fromJSON(params)),
          )
        case 'ListTaskPushNotificationConfigs':
          return ListTaskPushNotificationConfigsResponse.toJSON(
            await sdk.listTaskPushNotificationConfig(ListTaskPushNotificationConfigsRequest.fromJSON(params)),
          )
        case 'DeleteTaskPushNotificationConfig':
          await sdk.deleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest.fromJSON(params))
          return {}
        case 'ListTasks':
        case 'GetExtendedAgentCard':
          throw new PeerError('unsupported_operation', this.#options.peer, `It speaks A2A 0.3, which has no ${method}.`)
      }
    } catch (error) {
      throw this.#failed(error, ours)
    }
  }

  async open(method: StreamMethod, params: Record<string, unknown>, exchange: Exchange): Promise<EventBatches> {
    const ours: Ours = { exchange, appends: [] }
    const sdk = this.#sdk(ours)
    const events =
      method === 'SendStreamingMessage'
        ? sdk.sendMessageStream(SendMessageRequest.fromJSON(params))
        : sdk.resubscribeTask(SubscribeToTaskRequest.fromJSON(params))
    // The first event is waited for: until then it is not clear whether the peer refuses.
    let first: IteratorResult<StreamResponse, void>
    try {
      first = await events.next()
    } catch (error) {
      throw this.#failed(error, ours)
    }
    return this.#events(first, events, ours)
  }

  async *#events(
    first: IteratorResult<StreamResponse, void>,
    events: AsyncGenerator<StreamResponse, void, undefined>,
    ours: Ours,
  ): EventBatches {
    try {
      for (let step = first; step.done !== true; step = await events.next()) {
        const event: PeerEvent['event'] = parseStreamResponse(StreamResponse.toJSON(step.value))
        // Over HTTP+JSON the SDK (1.3) loses it on the way.
        if (ours.appends.shift() === true && event.artifactUpdate !== undefined) event.artifactUpdate.append = true
        yield [{ event }]
      }
    } catch (error) {
      throw this.#failed(error, ours)
    } finally {
      ours.body?.cancel()
      await events.return()
    }
  }

  /** A client of the SDK for one call: it holds nothing but where its requests go. */
  #sdk(ours: Ours): SdkTransport {
    const { url } = this.#options
    const options = {
      endpoint: this.#binding === 'JSONRPC' ? url : url.replace(/\/$/, ''),
      fetchImpl: ((target: string, init: RequestInit) => this.#fetch(target, init, ours)) as typeof fetch,
    }
    return this.#binding === 'JSONRPC' ? new LegacyJsonRpcTransport(options) : new LegacyRestTransport(options)
  }

  async #fetch(url: string, init: RequestInit, ours: Ours): Promise<Response> {
    const { link, limits } = this.#options
    const headers = { ...(init.headers as Record<string, string>), 'a2a-version': '0.3' }
    const request = {
      method: (init.method ?? 'GET') as 'GET' | 'POST' | 'DELETE',
      headers: lowerCased(headers),
      ...(typeof init.body === 'string' ? { body: this.#withBlocking(init.body) } : {}),
    }
    try {
      if (request.headers['accept'] !== 'text/event-stream') {
        return toResponse(this.#checked(await link.text(url, request, ours.exchange)))
      }
      const { contentType, body } = await link.open(url, request, ours.exchange)
      if (!contentType.startsWith('text/event-stream')) {
        const text = await body.text(limits.maxEventBytes, limits.idleTimeoutMs)
        return toResponse(this.#checked({ status: 200, headers: { 'content-type': contentType }, url, text }))
      }
      ours.body = body
      // Whole events, one at a time: the SDK's own reader takes quadratic time to put the pieces of a large one together.
      const events = readEvents(body, limits)
      const encoder = new TextEncoder()
      const stream = new ReadableStream<Uint8Array>(
        {
          pull: async (controller) => {
            try {
              const step = await events.next()
              if (step.done === true) return controller.close()
              for (const { data } of step.value) {
                if (data === '') continue
                this.#checkError(data)
                link.wireIn(url, data)
                ours.appends.push(isAppended(data))
                controller.enqueue(encoder.encode(`data: ${data.replaceAll('\n', '\ndata: ')}\n\n`))
              }
            } catch (error) {
              ours.failure = error
              // An event that tells a failure comes before the end of the stream, which nobody reads now.
              await events.return()
              controller.error(error)
            }
          },
          cancel: async () => {
            await events.return()
          },
        },
        { highWaterMark: 0 },
      )
      return new Response(stream, { status: 200, headers: { 'content-type': 'text/event-stream' } })
    } catch (error) {
      ours.failure = error
      throw error
    }
  }

  /** Over HTTP+JSON the SDK leaves `blocking: false` out, and servers take what is not there for true. */
  #withBlocking(body: string): string {
    if (this.#binding === 'JSONRPC' || !body.includes('"configuration"')) return body
    const request: unknown = JSON.parse(body)
    if (!isObject(request) || !isObject(request['configuration'])) return body
    return JSON.stringify({ ...request, configuration: { blocking: false, ...request['configuration'] } })
  }

  /** The answer, unless it tells a failure: those are thrown here, where nothing of them is lost. */
  #checked(answer: Answer): Answer {
    const { link } = this.#options
    if (answer.status < 200 || answer.status > 299) throw link.failure(answer.status, answer.text, answer.headers)
    this.#checkError(answer.text)
    return answer
  }

  /** Throws the error in a JSON-RPC answer, or in an error event of HTTP+JSON. */
  #checkError(text: string): void {
    const { link, peer } = this.#options
    // Parsed a second time by the SDK; an answer without the word is not parsed here.
    if (!text.includes('"error"') && !text.includes('"code"')) return
    let value: unknown
    try {
      value = JSON.parse(text)
    } catch {
      throw new PeerError('peer_failed', peer, 'What it answered is not valid JSON, or is cut off.')
    }
    if (!isObject(value)) return
    if (isObject(value['error'])) throw fromRpcError(peer, redacted(value['error'], link))
    if (typeof value['code'] === 'number' && typeof value['message'] === 'string')
      throw fromRpcError(peer, redacted(value, link))
  }

  #failed(error: unknown, ours: Ours): PeerError {
    const { peer, link } = this.#options
    const failure = ours.failure ?? error
    if (failure instanceof PeerError) return failure
    if (failure instanceof ConvokeError) {
      return new PeerError(failure.code, peer, failure.message, { retryable: failure.retryable, cause: failure })
    }
    const words = failure instanceof Error ? failure.message : String(failure)
    return new PeerError('peer_failed', peer, `What it answered is not A2A 0.3: ${link.redact(words).slice(0, 300)}`, {
      cause: failure,
    })
  }
}

function redacted(error: Record<string, unknown>, link: Link): Record<string, unknown> {
  return typeof error['message'] === 'string' ? { ...error, message: link.redact(error['message']) } : error
}

/** Whether an event of HTTP+JSON is an artifact whose parts go behind those of before. */
function isAppended(data: string): boolean {
  if (!data.includes('"append"')) return false
  const event: unknown = JSON.parse(data)
  const update = isObject(event) ? (event['artifactUpdate'] ?? event['artifact_update']) : undefined
  return isObject(update) && update['append'] === true
}

function toResponse({ status, headers, text }: Answer): Response {
  const type = headers['content-type']
  const isEmpty = status === 204 || status === 205 || status === 304
  return new Response(isEmpty ? null : text, {
    status,
    headers: { 'content-type': typeof type === 'string' ? type : 'application/json' },
  })
}

function lowerCased(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
}
