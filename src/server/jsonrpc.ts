/**
 * The JSON-RPC door, for A2A 1.0 and 0.3 on one URL. It stands in front of express: routing there costs more than the
 * whole call here.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { ConvokeError } from '../base/errors.ts'
import { isObject, parseJson } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { toRpcError } from '../protocol/wire-errors.ts'
import type { Caller } from '../tools/tool.ts'
import {
  admit,
  echoExtension,
  failureHeaders,
  goneSignal,
  lastEventId,
  readBody,
  requestedVersion,
  sendText,
  type Gatekeeper,
} from './http.ts'
import type { LegacyDoor } from './legacy.ts'
import type { CallContext, EventStream, Operations } from './operations.ts'
import { writeEvents } from './sse.ts'

export interface JsonRpcOptions {
  readonly operations: Operations
  readonly legacy: LegacyDoor
  readonly gatekeeper: Gatekeeper
  readonly log: Logger
  readonly maxBodyBytes: number
  readonly heartbeatMs: number
}

type Method = (operations: Operations, params: unknown, context: CallContext) => string | Promise<string | EventStream>

/** Every method of A2A 1.0, section 9.4. A text is the result, a stream is sent as one. */
const methods: Record<string, Method> = {
  SendMessage: (operations, params, context) => operations.sendMessage(params, context),
  SendStreamingMessage: (operations, params, context) => operations.sendStreamingMessage(params, context),
  GetTask: (operations, params, context) => operations.getTask(params, context),
  ListTasks: (operations, params, context) => operations.listTasks(params, context),
  CancelTask: (operations, params, context) => operations.cancelTask(params, context),
  SubscribeToTask: (operations, params, context) => operations.subscribeToTask(params, context),
  CreateTaskPushNotificationConfig: (operations, params, context) => operations.createPushConfig(params, context),
  GetTaskPushNotificationConfig: (operations, params, context) => operations.getPushConfig(params, context),
  ListTaskPushNotificationConfigs: (operations, params, context) => operations.listPushConfigs(params, context),
  DeleteTaskPushNotificationConfig: (operations, params, context) => operations.deletePushConfig(params, context),
  GetExtendedAgentCard: (operations, _params, context) => operations.getExtendedAgentCard(context),
}

type RpcId = string | number | null

interface RpcRequest {
  readonly id: RpcId
  readonly method: string
  readonly params: unknown
}

const json = 'application/json'

export class JsonRpcDoor {
  readonly #options: JsonRpcOptions

  constructor(options: JsonRpcOptions) {
    this.#options = options
  }

  /** Answers a POST. Never rejects. */
  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    let id: RpcId = null
    try {
      const admitted = admit(req, this.#options.gatekeeper)
      const caller = admitted instanceof Promise ? await admitted : admitted
      const version = requestedVersion(req)
      checkContentType(req)
      const body = parseJson(await readBody(req, this.#options.maxBodyBytes))
      id = idOf(body)
      const request = toRequest(body, id)
      // Who says no version speaks 0.3 by the specification; the names of the methods leave no doubt either way.
      const call = Object.hasOwn(methods, request.method) ? methods[request.method] : undefined
      if (version === '0.3' || (version === undefined && call === undefined)) {
        const context = new RequestContext(req, res, caller, '0.3')
        return await this.#options.legacy.handleRpc(req, res, body, context)
      }
      const { method, params } = request
      if (call === undefined) {
        throw new ConvokeError('method_not_found', `There is no method "${method.slice(0, 60)}".`)
      }
      if (params !== undefined && !isObject(params)) {
        throw new ConvokeError('invalid_params', 'params must be an object.')
      }
      const result = await call(this.#options.operations, params, new RequestContext(req, res, caller, '1.0'))
      echoExtension(req, res)
      const prefix = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":`
      if (typeof result === 'string') return sendText(res, 200, json, `${prefix}${result}}`)
      // It never rejects, and nothing of the call is needed any more: a stream may stay open for days.
      void this.#stream(res, result, prefix, id)
    } catch (error) {
      this.#fail(req, res, id, error)
    }
  }

  #stream(res: ServerResponse, events: EventStream, prefix: string, id: RpcId): Promise<void> {
    return writeEvents(res, events, {
      prefix,
      suffix: '}',
      heartbeatMs: this.#options.heartbeatMs,
      onError: (error) => {
        this.#options.log.error({ error }, 'An event stream broke off.')
        return JSON.stringify({ jsonrpc: '2.0', id, error: toRpcError(error).error })
      },
    })
  }

  #fail(req: IncomingMessage, res: ServerResponse, id: RpcId, error: unknown): void {
    const { httpStatus, error: body } = toRpcError(error)
    if (body.code === -32603) this.#options.log.error({ error }, 'A JSON-RPC call failed for a reason of ours.')
    sendText(
      res,
      httpStatus,
      json,
      JSON.stringify({ jsonrpc: '2.0', id, error: body }),
      failureHeaders(req, httpStatus, error),
    )
  }
}

/** What most calls never look at is made only when they do. */
class RequestContext implements CallContext {
  readonly caller: Caller
  readonly version: CallContext['version']
  readonly #req: IncomingMessage
  readonly #res: ServerResponse
  #signal: AbortSignal | undefined

  constructor(req: IncomingMessage, res: ServerResponse, caller: Caller, version: CallContext['version']) {
    this.#req = req
    this.#res = res
    this.caller = caller
    this.version = version
  }

  get signal(): AbortSignal {
    return (this.#signal ??= goneSignal(this.#res))
  }

  get lastEventId(): number | undefined {
    return lastEventId(this.#req)
  }
}

function checkContentType(req: IncomingMessage): void {
  const type = req.headers['content-type']
  if (type === undefined || type === json || /^application\/(json|a2a\+json)\s*(;|$)/i.test(type)) return
  throw new ConvokeError('content_type_not_supported', `The body must be application/json, got ${type.slice(0, 60)}.`)
}

function idOf(body: unknown): RpcId {
  if (!isObject(body)) return null
  const { id } = body
  return typeof id === 'string' || typeof id === 'number' ? id : null
}

function toRequest(body: unknown, id: RpcId): RpcRequest {
  if (!isObject(body)) {
    throw new ConvokeError('invalid_request', 'The body must be one JSON-RPC request object; batches are not taken.')
  }
  if (body['jsonrpc'] !== '2.0') throw new ConvokeError('invalid_request', 'jsonrpc must be "2.0".')
  if (body['id'] !== undefined && body['id'] !== null && id === null) {
    throw new ConvokeError('invalid_request', 'id must be a string or a number.')
  }
  const { method } = body
  if (typeof method !== 'string' || method === '')
    throw new ConvokeError('invalid_request', 'method must be the name of a method.')
  return { id, method, params: body['params'] }
}
