/**
 * The ways to speak to a peer, under one interface: the methods of A2A 1.0 by name, with parameters and results as its
 * JSON. Whoever calls a transport does not see which binding or version it speaks.
 */
import { ConvokeError } from '../base/errors.ts'
import { readEvents } from '../base/event-stream.ts'
import type { BodyStream } from '../base/guarded-fetch.ts'
import { isObject, parseJson } from '../base/json.ts'
import { parseStreamResponse } from '../protocol/responses.ts'
import { fromRpcError, PeerError } from './errors.ts'
import type { Exchange, Link } from './link.ts'
import type { PeerEvent } from './peer.ts'

export type Method =
  | 'SendMessage'
  | 'GetTask'
  | 'ListTasks'
  | 'CancelTask'
  | 'CreateTaskPushNotificationConfig'
  | 'GetTaskPushNotificationConfig'
  | 'ListTaskPushNotificationConfigs'
  | 'DeleteTaskPushNotificationConfig'
  | 'GetExtendedAgentCard'

export type StreamMethod = 'SendStreamingMessage' | 'SubscribeToTask'

/** Batches of events in order, as they came together. */
export type EventBatches = AsyncGenerator<readonly PeerEvent[], void, void>

export interface Transport {
  /** The result. Throws PeerError. */
  call(method: Method, params: Record<string, unknown>, exchange: Exchange): Promise<unknown>
  /** Resolves once the peer has begun to answer; what it refuses is thrown here. Leaving the events closes the connection. */
  open(method: StreamMethod, params: Record<string, unknown>, exchange: Exchange): Promise<EventBatches>
}

/** Limits on the streams of a peer. */
export interface StreamLimits {
  readonly idleTimeoutMs: number
  readonly maxEventBytes: number
}

export interface TransportOptions {
  readonly peer: string
  readonly url: string
  readonly link: Link
  readonly limits: StreamLimits
}

const version = { 'a2a-version': '1.0' }

/** JSON-RPC of A2A 1.0. */
export class JsonRpcTransport implements Transport {
  readonly #options: TransportOptions
  readonly #headers = { ...version, 'content-type': 'application/json', accept: 'application/json' }
  #lastId = 0

  constructor(options: TransportOptions) {
    this.#options = options
  }

  async call(method: Method, params: Record<string, unknown>, exchange: Exchange): Promise<unknown> {
    const { peer, url, link } = this.#options
    const answer = await link.text(
      url,
      { method: 'POST', headers: this.#headers, body: this.#body(method, params) },
      exchange,
    )
    if (answer.status !== 200) throw link.failure(answer.status, answer.text, answer.headers)
    return fromEnvelope(peer, parseBody(peer, answer.text), link)
  }

  async open(method: StreamMethod, params: Record<string, unknown>, exchange: Exchange): Promise<EventBatches> {
    const { peer, url, link, limits } = this.#options
    const { contentType, body } = await link.open(
      url,
      { method: 'POST', headers: this.#headers, body: this.#body(method, params) },
      exchange,
    )
    const read = (text: string): unknown => {
      link.wireIn(url, text)
      return fromEnvelope(peer, parseBody(peer, text), link)
    }
    return openEvents(peer, contentType, body, limits, read)
  }

  #body(method: string, params: Record<string, unknown>): string {
    return `{"jsonrpc":"2.0","id":${++this.#lastId},"method":"${method}","params":${JSON.stringify(params)}}`
  }
}

/** What stands in a JSON-RPC response; its error is thrown. */
function fromEnvelope(peer: string, envelope: unknown, link: Link): unknown {
  if (!isObject(envelope)) throw notA2A(peer)
  if (envelope['error'] !== undefined && envelope['error'] !== null) {
    const error = envelope['error']
    const safe = isObject(error) && typeof error['message'] === 'string'
    throw fromRpcError(peer, safe ? { ...error, message: link.redact(String(error['message'])) } : error)
  }
  if (envelope['result'] === undefined) throw notA2A(peer)
  return envelope['result']
}

/** HTTP+JSON of A2A 1.0, section 11. */
export class RestTransport implements Transport {
  readonly #options: TransportOptions
  readonly #headers = {
    ...version,
    'content-type': 'application/a2a+json',
    accept: 'application/a2a+json, application/json',
  }

  constructor(options: TransportOptions) {
    this.#options = options
  }

  async call(method: Method, params: Record<string, unknown>, exchange: Exchange): Promise<unknown> {
    const { peer, link } = this.#options
    const { url, request } = this.#request(method, params)
    const answer = await link.text(url, request, exchange)
    if (answer.status < 200 || answer.status > 299) throw link.failure(answer.status, answer.text, answer.headers)
    if (answer.text === '') return {}
    return parseBody(peer, answer.text)
  }

  async open(method: StreamMethod, params: Record<string, unknown>, exchange: Exchange): Promise<EventBatches> {
    const { peer, link, limits } = this.#options
    const { url, request } = this.#request(method, params)
    const { contentType, body } = await link.open(url, request, exchange)
    const read = (text: string): unknown => {
      link.wireIn(url, text)
      const value = parseBody(peer, text)
      // An error in a stream has the shape of an error body.
      if (isObject(value) && isObject(value['error'])) throw link.failure(500, text, {})
      return value
    }
    return openEvents(peer, contentType, body, limits, read)
  }

  #request(method: Method | StreamMethod, params: Record<string, unknown>) {
    const { tenant, ...rest } = params
    const base =
      this.#options.url.replace(/\/$/, '') + (typeof tenant === 'string' ? `/${encodeURIComponent(tenant)}` : '')
    const { verb, path, left } = toPath(method, rest)
    const hasBody = verb === 'POST' && method !== 'SubscribeToTask' && method !== 'CancelTask'
    const query = hasBody ? '' : toQuery(left)
    return {
      url: `${base}${path}${query}`,
      request: {
        method: verb,
        headers: this.#headers,
        ...(verb === 'POST' ? { body: hasBody ? JSON.stringify(left) : '{}' } : {}),
      },
    }
  }
}

interface Target {
  readonly verb: 'GET' | 'POST' | 'DELETE'
  readonly path: string
  /** The parameters that are not in the path. */
  readonly left: Record<string, unknown>
}

function toPath(method: Method | StreamMethod, params: Record<string, unknown>): Target {
  const { id, taskId, ...left } = params
  const task = `/tasks/${encodeURIComponent(String(taskId ?? id))}`
  const configs = `${task}/pushNotificationConfigs`
  switch (method) {
    case 'SendMessage':
      return { verb: 'POST', path: '/message:send', left: params }
    case 'SendStreamingMessage':
      return { verb: 'POST', path: '/message:stream', left: params }
    case 'GetTask':
      return { verb: 'GET', path: task, left }
    case 'ListTasks':
      return { verb: 'GET', path: '/tasks', left: params }
    case 'CancelTask':
      return { verb: 'POST', path: `${task}:cancel`, left }
    case 'SubscribeToTask':
      return { verb: 'POST', path: `${task}:subscribe`, left }
    case 'CreateTaskPushNotificationConfig':
      return { verb: 'POST', path: configs, left: params }
    case 'ListTaskPushNotificationConfigs':
      return { verb: 'GET', path: configs, left }
    case 'GetTaskPushNotificationConfig':
      return { verb: 'GET', path: `${configs}/${encodeURIComponent(String(id))}`, left }
    case 'DeleteTaskPushNotificationConfig':
      return { verb: 'DELETE', path: `${configs}/${encodeURIComponent(String(id))}`, left }
    case 'GetExtendedAgentCard':
      return { verb: 'GET', path: '/extendedAgentCard', left }
  }
}

function toQuery(params: Record<string, unknown>): string {
  const entries = Object.entries(params).flatMap<[string, string]>(([name, value]) =>
    typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? [[name, String(value)]] : [],
  )
  if (entries.length === 0) return ''
  return `?${new URLSearchParams(entries).toString()}`
}

/** The events of an answer: those of its stream, or the one event that it is where the peer does not stream. */
async function openEvents(
  peer: string,
  contentType: string,
  body: BodyStream,
  limits: StreamLimits,
  read: (text: string) => unknown,
): Promise<EventBatches> {
  if (contentType.startsWith('text/event-stream')) return eventsOf(peer, body, limits, read)
  const value = read(await body.text(limits.maxEventBytes, limits.idleTimeoutMs))
  return single(parseStreamResponse(isObject(value) && typeof value['id'] === 'string' ? { task: value } : value))
}

async function* single(event: PeerEvent['event']): EventBatches {
  yield await Promise.resolve([{ event }])
}

async function* eventsOf(
  peer: string,
  body: BodyStream,
  limits: StreamLimits,
  read: (text: string) => unknown,
): EventBatches {
  try {
    for await (const batch of readEvents(body, limits)) {
      const events: PeerEvent[] = []
      let failure: Error | undefined
      for (const { id, data } of batch) {
        if (data === '') continue
        try {
          const event = parseStreamResponse(read(data))
          const seq = id !== undefined && /^\d{1,15}$/.test(id) ? Number(id) : undefined
          events.push(seq === undefined ? { event } : { id: seq, event })
        } catch (error) {
          // What came before it counts.
          failure = error instanceof Error ? error : new Error(String(error))
          break
        }
      }
      if (events.length > 0) yield events
      if (failure !== undefined) throw failure
    }
  } catch (error) {
    if (error instanceof ConvokeError && !(error instanceof PeerError)) {
      const { code, message, retryable } = error
      throw new PeerError(code, peer, message, { retryable, cause: error })
    }
    throw error
  }
}

function parseBody(peer: string, text: string): unknown {
  try {
    return parseJson(text)
  } catch (cause) {
    throw notA2A(peer, cause)
  }
}

function notA2A(peer: string, cause?: unknown): PeerError {
  const hint = cause === undefined ? 'is no A2A answer' : 'is not valid JSON, or is cut off'
  return new PeerError('peer_failed', peer, `What it answered ${hint}.`, cause === undefined ? {} : { cause })
}
