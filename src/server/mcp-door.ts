/** The door for MCP hosts, on one path, and the tasks of this node as that door needs them. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { ConvokeError } from '../base/errors.ts'
import { parseJson } from '../base/json.ts'
import type { Logger } from '../base/logger.ts'
import type { McpPublisher, TaskDoor } from '../mcp/publisher.ts'
import { toRpcError } from '../protocol/wire-errors.ts'
import type { Caller } from '../tools/tool.ts'
import { admit, failureHeaders, readBody, sendText, type Gatekeeper } from './http.ts'
import type { CallContext, Operations } from './operations.ts'

export interface McpDoorOptions {
  readonly publisher: McpPublisher
  /** Below the node's base path, with a slash in front and none behind. */
  readonly path: string
}

export interface McpDoorSurroundings {
  readonly gatekeeper: Gatekeeper
  readonly log: Logger
  readonly maxBodyBytes: number
}

const json = 'application/json'
/** MCP answers requests that never became a message with HTTP's own words. */
const statuses: Readonly<Record<string, number>> = {
  parse_error: 400,
  invalid_request: 400,
  content_type_not_supported: 415,
}

export class McpDoor {
  readonly #options: McpDoorOptions & McpDoorSurroundings

  constructor(options: McpDoorOptions & McpDoorSurroundings) {
    this.#options = options
  }

  /** Whether this URL is the door's. */
  isAt(url: string): boolean {
    const { path } = this.#options
    return url === path || url.startsWith(`${path}?`)
  }

  /** Answers any request to the path. Never rejects. */
  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { publisher, gatekeeper, maxBodyBytes } = this.#options
    try {
      const caller = await admit(req, gatekeeper)
      if (req.method !== 'POST') return await publisher.handle(req, res, caller, undefined)
      checkContentType(req)
      await publisher.handle(req, res, caller, parseJson(await readBody(req, maxBodyBytes)))
    } catch (error) {
      this.#fail(req, res, error)
    }
  }

  #fail(req: IncomingMessage, res: ServerResponse, error: unknown): void {
    const { httpStatus, error: body } = toRpcError(error)
    if (body.code === -32603)
      this.#options.log.error({ error }, 'A request of an MCP host failed for a reason of ours.')
    const status = statuses[ConvokeError.from(error).code] ?? (body.code === -32603 ? 500 : httpStatus)
    const text = JSON.stringify({ jsonrpc: '2.0', id: null, error: body })
    sendText(res, status, json, text, failureHeaders(req, status, error))
  }
}

function checkContentType(req: IncomingMessage): void {
  const type = req.headers['content-type'] ?? ''
  if (/^application\/json\s*(;|$)/i.test(type)) return
  throw new ConvokeError('content_type_not_supported', `The body must be application/json, got "${type.slice(0, 60)}".`)
}

/** Tasks by the operations that all doors share. */
export function createTaskDoor(operations: Operations): TaskDoor {
  const context = (caller: Caller, signal: AbortSignal): CallContext => ({ caller, signal, version: '1.0' })
  return {
    send: (message, caller, signal) => operations.sendStreamingMessage({ message }, context(caller, signal)),
    cancel: (id, caller) => operations.cancelTask({ id }, context(caller, never)),
    get: (id, caller) => operations.getTask({ id, historyLength: 0 }, context(caller, never)),
    subscribe: (id, caller, signal) => operations.subscribeToTask({ id }, context(caller, signal)),
  }
}

/** Of operations that take no time worth stopping. */
const never = new AbortController().signal
