/** The HTTP+JSON door of A2A 1.0 (section 11), and in front of it that of 0.3. */
import express, { type NextFunction, type Request, type Response, type Router } from 'express'
import { ConvokeError } from '../base/errors.ts'
import { isObject, parseJson } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import { toRestError } from '../protocol/wire-errors.ts'
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

export interface RestOptions {
  readonly operations: Operations
  readonly legacy: LegacyDoor
  readonly gatekeeper: Gatekeeper
  readonly log: Logger
  readonly maxBodyBytes: number
  readonly heartbeatMs: number
}

type Call = (params: Record<string, unknown>, context: CallContext) => string | Promise<string | EventStream>

const contentType = 'application/a2a+json'

export function createRestRouter(options: RestOptions): Router {
  const { operations } = options
  const router = express.Router()
  const answer = (call: Call) => (req: Request, res: Response) => respond(req, res, call, options)

  router.use('/v1', legacy(options))

  router.post(
    '{/:tenant}/message\\:send',
    answer((params, context) => operations.sendMessage(params, context)),
  )
  router.post(
    '{/:tenant}/message\\:stream',
    answer((params, context) => operations.sendStreamingMessage(params, context)),
  )
  router.get(
    '{/:tenant}/tasks',
    answer((params, context) => operations.listTasks(params, context)),
  )
  router.post(
    '{/:tenant}/tasks/:id\\:cancel',
    answer((params, context) => operations.cancelTask(params, context)),
  )
  // The specification's text says POST and its proto says GET.
  router.all(
    '{/:tenant}/tasks/:id\\:subscribe',
    answer((params, context) => operations.subscribeToTask(params, context)),
  )
  router.get(
    '{/:tenant}/tasks/:id',
    answer((params, context) => operations.getTask(params, context)),
  )

  const configs = '{/:tenant}/tasks/:taskId/pushNotificationConfigs'
  router.post(
    configs,
    answer((params, context) => operations.createPushConfig(params, context)),
  )
  router.get(
    configs,
    answer((params, context) => operations.listPushConfigs(params, context)),
  )
  router.get(
    `${configs}/:id`,
    answer((params, context) => operations.getPushConfig(params, context)),
  )
  router.delete(
    `${configs}/:id`,
    answer((params, context) => operations.deletePushConfig(params, context)),
  )
  router.get(
    '{/:tenant}/extendedAgentCard',
    answer((_params, context) => operations.getExtendedAgentCard(context)),
  )

  return router
}

async function respond(req: Request, res: Response, call: Call, options: RestOptions): Promise<void> {
  try {
    const caller = await admit(req, options.gatekeeper)
    if (requestedVersion(req) === '0.3') {
      throw new ConvokeError('version_not_supported', 'A2A 0.3 is spoken below /v1/ here; this path is of 1.0.')
    }
    // What the path says wins over the query and the body.
    const params = { ...req.query, ...(await bodyOf(req, options.maxBodyBytes)), ...req.params }
    const context: CallContext = { caller, signal: goneSignal(res), lastEventId: lastEventId(req), version: '1.0' }
    const result = await call(params, context)
    echoExtension(req, res)
    if (typeof result === 'string') return sendText(res, 200, contentType, result)
    await writeEvents(res, result, {
      prefix: '',
      suffix: '',
      heartbeatMs: options.heartbeatMs,
      onError: (error) => {
        options.log.error({ error }, 'An event stream broke off.')
        return JSON.stringify(toRestError(error).body)
      },
    })
  } catch (error) {
    sendError(req, res, error, options.log)
  }
}

/** Any error as the answer of an HTTP+JSON door. */
export function sendError(req: Request, res: Response, error: unknown, log: Logger): void {
  const { httpStatus, body } = toRestError(error)
  if (httpStatus === 500) log.error({ error }, 'An HTTP call failed for a reason of ours.')
  sendText(res, httpStatus, contentType, JSON.stringify(body), failureHeaders(req, httpStatus, error))
}

async function bodyOf(req: Request, maxBytes: number): Promise<Record<string, unknown>> {
  if (req.method !== 'POST') return {}
  const text = await readBody(req, maxBytes)
  if (text === '') return {}
  const type = req.headers['content-type'] ?? ''
  if (type !== '' && !/^application\/(a2a\+)?json\s*(;|$)/i.test(type)) {
    throw new ConvokeError('content_type_not_supported', `The body must be ${contentType}, got ${type.slice(0, 60)}.`)
  }
  const body = parseJson(text)
  // An empty request may be written as null: that is how some clients marshal nothing.
  if (body === null) return {}
  if (!isObject(body)) throw new ConvokeError('invalid_params', 'The body must be a JSON object.')
  return body
}

/**
 * What the SDK reads otherwise than its callers mean it: a push configuration may come as the whole request of the 0.3
 * proto, and a configuration without `blocking` waits, as none does.
 */
function normalise(body: Record<string, unknown>): Record<string, unknown> {
  if (isObject(body['config']) && 'parent' in body) return body['config']
  const { configuration } = body
  if (!isObject(configuration) || configuration['blocking'] !== undefined) return body
  return { ...body, configuration: { ...configuration, blocking: true } }
}

/** The SDK's router for 0.3 gets a caller that is known and a body that is parsed, within our limits. */
function legacy(options: RestOptions): (req: Request, res: Response, next: NextFunction) => Promise<void> {
  return async (req, res, next) => {
    try {
      const version = requestedVersion(req)
      if (version === '1.0') return next()
      const caller = await admit(req, options.gatekeeper)
      req.body = normalise(await bodyOf(req, options.maxBodyBytes))
      const context: CallContext = { caller, signal: goneSignal(res), lastEventId: lastEventId(req), version: '0.3' }
      const { baseUrl, url } = req
      options.legacy.prepareRest(req, res, context, () => {
        // The SDK's routes begin with the /v1 below which this middleware is mounted.
        req.url = baseUrl + url
        options.legacy.rest(req, res, (error?: unknown) => {
          req.url = url
          next(error)
        })
      })
    } catch (error) {
      sendError(req, res, error, options.log)
    }
  }
}
