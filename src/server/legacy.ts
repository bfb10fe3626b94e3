/**
 * A2A 0.3 at the same doors. The SDK translates between the versions; streams keep our own manners: event ids,
 * heartbeats, one event fetched only when the socket has taken the last.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { StreamResponse, Task } from '@a2a-js/sdk'
import { LegacyJsonRpcTransportHandler, V03PushNotificationSerializer } from '@a2a-js/sdk/compat/v0_3/server'
import { legacyRestRouter } from '@a2a-js/sdk/compat/v0_3/server/express'
import { ServerCallContext, UnauthenticatedUser } from '@a2a-js/sdk/server'
import type { NextFunction, Request, RequestHandler, Response } from 'express'
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { createA2AHandler } from './a2a-handler.ts'
import { echoExtension, sendText } from './http.ts'
import type { CallContext, EventStream, Operations } from './operations.ts'
import { drained, writeEvents } from './sse.ts'

export interface LegacyOptions {
  readonly operations: Operations
  readonly card: () => JsonObject
  readonly log: Logger
  readonly heartbeatMs: number
}

/** What a call of ours leaves in the SDK's context, where our handler finds it again. */
interface Ours {
  readonly context: CallContext
  readonly res: ServerResponse
  /** Of the event that the SDK is translating. */
  seq: number
  /** Whether the call came as far as our operations. */
  reached: boolean
  /** Whether the error that the SDK is about to tell is one of ours. */
  failed: boolean
  /** The HTTP status of our error, which the SDK has no word for. */
  httpStatus?: number
}

interface RpcError {
  readonly code: number
  readonly message: string
}

const internalError = -32603
const stateKey = 'convoke'
const interrupted = new Set(['input-required', 'auth-required'])

export class LegacyDoor {
  readonly #rpc: LegacyJsonRpcTransportHandler
  readonly #options: LegacyOptions
  /** By the headers object, the one thing of a request that the SDK's router hands to its context builder. */
  readonly #byHeaders = new WeakMap<object, Ours>()
  readonly rest: RequestHandler

  constructor(options: LegacyOptions) {
    this.#options = options
    const requestHandler = createA2AHandler({
      operations: options.operations,
      card: options.card,
      callContext: (context) => {
        const ours = oursOf(context)
        ours.reached = true
        return ours.context
      },
      onEvent: (context, seq) => {
        const ours = oursOf(context)
        ours.seq = seq
        return ours.res.writableNeedDrain ? drained(ours.res) : undefined
      },
      onError: (context, httpStatus, retryAfter) => {
        const ours = oursOf(context)
        ours.failed = true
        if (httpStatus !== 200) ours.httpStatus = httpStatus
        if (retryAfter !== undefined && !ours.res.headersSent) ours.res.setHeader('retry-after', String(retryAfter))
      },
    })
    this.#rpc = new LegacyJsonRpcTransportHandler(requestHandler)
    this.rest = legacyRestRouter({
      requestHandler,
      // Who calls is settled before the SDK's router is reached.
      userBuilder: () => Promise.resolve(new UnauthenticatedUser()),
      contextBuilder: ({ headers }) => contextOf(this.#byHeaders.get(headers)),
    })
  }

  /** Answers a JSON-RPC call of version 0.3 whose body is parsed. Rejects only before anything is sent. */
  async handleRpc(req: IncomingMessage, res: ServerResponse, body: unknown, context: CallContext): Promise<void> {
    const ours: Ours = { context, res, seq: 0, reached: false, failed: false }
    const request = normalise(body)
    const answer = await this.#rpc.handle(request, contextOf(ours))
    echoExtension(req, res, 'x-a2a-extensions')
    echoExtension(req, res)
    if (!(Symbol.asyncIterator in answer)) {
      if (!('error' in answer)) return sendText(res, 200, 'application/json', JSON.stringify(answer))
      const text = JSON.stringify({ ...answer, error: this.#safe(ours, answer.error) })
      return sendText(res, ours.httpStatus ?? 200, 'application/json', text)
    }
    const id: unknown = isObject(body) ? (body['id'] ?? null) : null
    const onError = (error: unknown): string => {
      const told = LegacyJsonRpcTransportHandler.mapToLegacyJSONRPCError(error)
      return JSON.stringify({ jsonrpc: '2.0', id, error: this.#safe(ours, told) })
    }
    const isSend = request['method'] === 'message/stream'
    const envelopes = answer
    async function* records(first: IteratorResult<unknown, unknown>): EventStream {
      for (let step = first; step.done !== true; step = await envelopes.next()) {
        yield [{ seq: ours.seq, text: JSON.stringify(isSend ? withFinal(step.value) : step.value) }]
      }
    }
    const options = { prefix: '', suffix: '', heartbeatMs: this.#options.heartbeatMs, onError }
    if (!isSend) {
      // Clients of 0.3 expect an event stream from tasks/resubscribe at once, whatever comes in it.
      return writeEvents(
        res,
        later(() => envelopes.next().then(records)),
        options,
      )
    }
    // The first event decides between a stream and a plain error.
    let first: IteratorResult<unknown, unknown>
    try {
      first = await envelopes.next()
    } catch (error) {
      return sendText(res, ours.httpStatus ?? 200, 'application/json', onError(error))
    }
    await writeEvents(res, records(first), options)
  }

  /** Stands in front of {@link rest}: hands it the call, and gives its streams ids and heartbeats. */
  prepareRest(req: Request, res: Response, context: CallContext, next: NextFunction): void {
    const ours: Ours = { context, res, seq: 0, reached: false, failed: false }
    this.#byHeaders.set(req.headers, ours)
    const status = res.status.bind(res)
    res.status = (code) => status(ours.httpStatus ?? code)
    const json = res.json.bind(res)
    res.json = (body: unknown) => {
      const told = isRpcError(body) ? this.#safe(ours, body) : body
      if (told !== body && !ours.reached) status(400)
      return json(told)
    }
    const write = res.write.bind(res) as (chunk: string) => boolean
    const heartbeat = setInterval(() => {
      if (res.headersSent && isStream(res) && !res.writableNeedDrain) write(':\n\n')
    }, this.#options.heartbeatMs)
    res.once('close', () => clearInterval(heartbeat))
    res.write = ((chunk: unknown, ...rest: unknown[]) => {
      if (typeof chunk !== 'string' || !chunk.startsWith('data: ') || ours.seq === 0) {
        return (write as (...all: unknown[]) => boolean)(chunk, ...rest)
      }
      heartbeat.refresh()
      return write(`id: ${ours.seq}\n${chunk}`)
    }) as typeof res.write
    next()
  }

  /**
   * The SDK tells a caller the message of whatever breaks while it translates. Before our operations that is the shape of
   * the request, behind them a defect.
   */
  #safe(ours: Ours, error: RpcError): RpcError {
    if (ours.failed || error.code !== internalError) return error
    if (!ours.reached) return { code: -32602, message: 'Invalid params: they do not have the shape of A2A 0.3.' }
    this.#options.log.error({ error }, 'A call of version 0.3 failed for a reason of ours.')
    return { code: internalError, message: ConvokeError.from(error).message }
  }
}

/** An event as a webhook of version 0.3 expects it: the whole task at every change of its status, nothing for chunks. */
export function toLegacyPushBody(event: string, task: string): string | undefined {
  const response = StreamResponse.fromJSON(JSON.parse(event))
  const { payload } = response
  if (payload?.$case === 'artifactUpdate') return undefined
  return new V03PushNotificationSerializer().serialize(response, Task.fromJSON(JSON.parse(task))).body
}

function contextOf(ours: Ours | undefined): ServerCallContext {
  return new ServerCallContext({ requestedVersion: '0.3', state: new Map([[stateKey, ours]]) })
}

function oursOf(context: ServerCallContext): Ours {
  return context.state.get(stateKey) as Ours
}

/**
 * A 0.3 caller that sends a configuration without `blocking` waits, as one that sends none does. `tasks/send` of 0.2 and
 * earlier means `message/send`, and there a part's kind was called its type.
 */
function normalise(body: unknown): Record<string, unknown> {
  if (!isObject(body)) return {}
  // The SDK looks at the params before the method, and would call an unknown one without any invalid params.
  if (body['params'] === undefined) return { ...body, params: {} }
  if (!isObject(body['params'])) return body
  const older = { 'tasks/send': 'message/send', 'tasks/sendSubscribe': 'message/stream' }[String(body['method'])]
  const params: Record<string, unknown> = { ...body['params'] }
  if (isObject(params['configuration']) && params['configuration']['blocking'] === undefined) {
    params['configuration'] = { ...params['configuration'], blocking: true }
  }
  if (older === undefined) return { ...body, params }
  const message = isObject(params['message']) ? params['message'] : {}
  const parts = Array.isArray(message['parts'])
    ? message['parts'].map((part: unknown) => (isObject(part) ? { kind: part['type'], ...part } : part))
    : message['parts']
  const messageId = message['messageId'] ?? params['id']
  const { contextId = params['sessionId'] } = message
  return {
    ...body,
    method: older,
    params: { metadata: params['metadata'], message: { ...message, kind: 'message', messageId, contextId, parts } },
  }
}

/** Version 0.3 tells the end of a stream by `final`; the stream of a message ends where its task waits for the caller, too. */
function withFinal(envelope: unknown): unknown {
  if (!isObject(envelope) || !isObject(envelope['result'])) return envelope
  const { result } = envelope
  if (result['kind'] !== 'status-update' || !isObject(result['status'])) return envelope
  if (!interrupted.has(String(result['status']['state']))) return envelope
  return { ...envelope, result: { ...result, final: true } }
}

async function* later(open: () => Promise<EventStream>): EventStream {
  yield* await open()
}

function isRpcError(body: unknown): body is RpcError {
  return isObject(body) && typeof body['code'] === 'number' && typeof body['message'] === 'string'
}

function isStream(res: Response): boolean {
  return String(res.getHeader('content-type')).startsWith('text/event-stream')
}
