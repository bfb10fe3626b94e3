/**
 * Calls of tools over a connection. The SDK's client does all else; these are requests of our own beside its, because
 * each of its costs a timer and an AbortController, is parsed three times, and is told to the server as cancelled when a
 * signal aborts long after the answer: together as much as the rest of a call.
 */
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { McpError, type JSONRPCMessage, type RequestId } from '@modelcontextprotocol/sdk/types.js'
import { abortReason, onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'
import { cleanText } from '../tools/foreign.ts'
import type { Progress, ToolContext } from '../tools/tool.ts'
import { clip } from '../tools/value.ts'

/** A call of a tool. */
export interface McpCall extends Pick<ToolContext, 'ask' | 'notice'> {
  readonly tool: { readonly name: string; readonly isRepeatable: boolean }
  /** Stops the call; the server is told. Undefined where nothing ever does. */
  readonly signal: AbortSignal | undefined
  /** Undefined where nobody takes progress: the server is not asked for it. */
  readonly onProgress: ((progress: Progress) => void) | undefined
}

interface Pending {
  readonly call: McpCall
  readonly resolve: (result: JsonObject) => void
  readonly reject: (error: unknown) => void
  readonly ended: ((id: RequestId) => void) | undefined
  stopListening: (() => void) | undefined
}

/** The SDK counts its own requests from 0. */
const firstId = 1_000_000_000
/** Words of one progress message that are passed on. */
const maxProgressMessage = 1_000

/** Whether a request is one of a call. */
export function isCallId(id: RequestId): id is number {
  return typeof id === 'number' && id >= firstId
}

export class Calls {
  readonly #pending = new Map<RequestId, Pending>()
  #nextId = firstId

  /** The call of a request. */
  get(id: RequestId | undefined): McpCall | undefined {
    return id === undefined ? undefined : this.#pending.get(id)?.call
  }

  /**
   * Sends a call, and resolves with its result. Rejects with an McpError that the server gave, with what the transport
   * throws, and with the reason of the signal, at once, when that aborts; the server hears of it. `ended` hears the
   * request's id behind each call.
   */
  send(transport: Transport, params: JsonObject, call: McpCall, ended?: (id: RequestId) => void): Promise<JsonObject> {
    const id = this.#nextId++
    const { signal, tool } = call
    return new Promise((resolve, reject) => {
      const pending: Pending = { call, resolve, reject, ended, stopListening: undefined }
      this.#pending.set(id, pending)
      const request: JSONRPCMessage = {
        jsonrpc: '2.0',
        id,
        method: 'tools/call',
        params: {
          name: tool.name,
          arguments: params,
          ...(call.onProgress === undefined ? {} : { _meta: { progressToken: id } }),
        },
      }
      transport.send(request).catch((error: unknown) => this.#end(id)?.reject(error))
      if (signal === undefined) return
      pending.stopListening = onAbort(signal, () => {
        const reason = abortReason(signal)
        const about = { requestId: id, reason: reason.message }
        // Where it cannot be told, the server is gone, and the call with it.
        transport.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: about }).catch(() => {})
        this.#end(id)?.reject(reason)
      })
    })
  }

  /** Takes in what the server says of calls; false for all else. What it says of calls that have ended is dropped. */
  take(message: JSONRPCMessage): boolean {
    if ('method' in message) return message.method === 'notifications/progress' && this.#takeProgress(message.params)
    const { id } = message
    if (id === undefined || !isCallId(id)) return false
    const pending = this.#end(id)
    if (pending === undefined) return true
    if ('error' in message) {
      const { code, message: text, data } = message.error
      pending.reject(new McpError(code, text, data))
    } else if (isObject(message.result)) {
      pending.resolve(message.result as JsonObject)
    } else {
      pending.reject(new ConvokeError('peer_failed', 'It answered a call with something that is no result.'))
    }
    return true
  }

  /** Ends all calls with a failure: no answer can come any more. */
  fail(errorOf: (call: McpCall) => unknown): void {
    for (const id of [...this.#pending.keys()]) {
      const pending = this.#end(id)
      pending?.reject(errorOf(pending.call))
    }
  }

  #end(id: RequestId): Pending | undefined {
    const pending = this.#pending.get(id)
    if (pending === undefined) return undefined
    this.#pending.delete(id)
    pending.stopListening?.()
    pending.ended?.(id)
    return pending
  }

  #takeProgress(params: unknown): boolean {
    if (!isObject(params)) return false
    const { progressToken, progress, total, message } = params
    if (typeof progressToken !== 'number' || !isCallId(progressToken)) return false
    if (typeof progress !== 'number') return true
    this.#pending.get(progressToken)?.call.onProgress?.({
      progress,
      ...(typeof total === 'number' ? { total } : {}),
      ...(typeof message === 'string' ? { message: clip(cleanText(message), maxProgressMessage) } : {}),
    })
    return true
  }
}
