/** ConvokeErrors as JSON-RPC and HTTP+JSON errors: A2A specification 5.4, 9.5 and 11.6. */
import { ConvokeError, type ErrorCode } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'

interface WireError {
  readonly rpc: number
  readonly http: number
  /** google.rpc code name. */
  readonly status: string
  /** `ErrorInfo.reason`; the specification's own errors only. */
  readonly reason?: string
}

const internal: WireError = { rpc: -32603, http: 500, status: 'INTERNAL' }

/** Codes that are not here are failures inside a task, and never leave as a protocol error. */
const wireErrors: Partial<Record<ErrorCode, WireError>> = {
  parse_error: { rpc: -32700, http: 400, status: 'INVALID_ARGUMENT' },
  invalid_request: { rpc: -32600, http: 400, status: 'INVALID_ARGUMENT' },
  method_not_found: { rpc: -32601, http: 404, status: 'NOT_FOUND' },
  invalid_params: { rpc: -32602, http: 400, status: 'INVALID_ARGUMENT' },
  internal,
  task_not_found: { rpc: -32001, http: 404, status: 'NOT_FOUND', reason: 'TASK_NOT_FOUND' },
  task_not_cancelable: { rpc: -32002, http: 400, status: 'FAILED_PRECONDITION', reason: 'TASK_NOT_CANCELABLE' },
  push_notification_not_supported: {
    rpc: -32003,
    http: 400,
    status: 'FAILED_PRECONDITION',
    reason: 'PUSH_NOTIFICATION_NOT_SUPPORTED',
  },
  unsupported_operation: { rpc: -32004, http: 400, status: 'FAILED_PRECONDITION', reason: 'UNSUPPORTED_OPERATION' },
  content_type_not_supported: {
    rpc: -32005,
    http: 400,
    status: 'INVALID_ARGUMENT',
    reason: 'CONTENT_TYPE_NOT_SUPPORTED',
  },
  extended_agent_card_not_configured: {
    rpc: -32007,
    http: 400,
    status: 'FAILED_PRECONDITION',
    reason: 'EXTENDED_AGENT_CARD_NOT_CONFIGURED',
  },
  extension_support_required: {
    rpc: -32008,
    http: 400,
    status: 'FAILED_PRECONDITION',
    reason: 'EXTENSION_SUPPORT_REQUIRED',
  },
  version_not_supported: { rpc: -32009, http: 400, status: 'FAILED_PRECONDITION', reason: 'VERSION_NOT_SUPPORTED' },
  unauthenticated: { rpc: -32050, http: 401, status: 'UNAUTHENTICATED' },
  forbidden: { rpc: -32051, http: 403, status: 'PERMISSION_DENIED' },
  rate_limited: { rpc: -32052, http: 429, status: 'RESOURCE_EXHAUSTED' },
  unavailable: { rpc: -32053, http: 503, status: 'UNAVAILABLE' },
  too_large: { rpc: -32054, http: 413, status: 'INVALID_ARGUMENT' },
}

/** Errors that HTTP itself has a word for keep their status even under JSON-RPC; all others ride on 200. */
const httpErrors = new Set<ErrorCode>(['unauthenticated', 'forbidden', 'rate_limited', 'unavailable', 'too_large'])

/** What a caller may see of any error: its own words if it is one of ours, otherwise that there was one. */
function visible(error: unknown): { known: ConvokeError; wire: WireError } {
  const known = ConvokeError.from(error)
  const wire = wireErrors[known.code]
  if (wire !== undefined) return { known, wire }
  return { known: ConvokeError.from(undefined), wire: internal }
}

function details(known: ConvokeError, wire: WireError): JsonObject[] {
  const list: JsonObject[] = []
  if (wire.reason !== undefined) {
    list.push({
      '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
      reason: wire.reason,
      domain: 'a2a-protocol.org',
      metadata: { timestamp: new Date().toISOString() },
    })
  }
  if (known.issues !== undefined) {
    list.push({
      '@type': 'type.googleapis.com/google.rpc.BadRequest',
      fieldViolations: known.issues.map(({ path, message }) => ({
        field: path.replace(/^\//, '').replaceAll('/', '.'),
        description: message,
      })),
    })
  }
  if (known.retryAfterMs !== undefined) {
    list.push({ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: `${known.retryAfterMs / 1000}s` })
  }
  return list
}

export interface RpcErrorBody {
  readonly httpStatus: number
  readonly error: { code: number; message: string; data?: JsonObject[] }
}

export function toRpcError(error: unknown): RpcErrorBody {
  const { known, wire } = visible(error)
  const data = details(known, wire)
  return {
    httpStatus: httpErrors.has(known.code) ? wire.http : 200,
    error: { code: wire.rpc, message: known.message, ...(data.length === 0 ? {} : { data }) },
  }
}

export interface RestErrorBody {
  readonly httpStatus: number
  readonly body: { error: { code: number; status: string; message: string; details: JsonObject[] } }
}

export function toRestError(error: unknown): RestErrorBody {
  const { known, wire } = visible(error)
  const code = wire.http
  return {
    httpStatus: code,
    body: { error: { code, status: wire.status, message: known.message, details: details(known, wire) } },
  }
}

/** Seconds for a `Retry-After` header, if the error says when to come back. */
export function retryAfterSeconds(error: unknown): number | undefined {
  if (!(error instanceof ConvokeError)) return undefined
  if (error.retryAfterMs !== undefined) return Math.max(1, Math.ceil(error.retryAfterMs / 1000))
  return error.code === 'unavailable' || error.code === 'rate_limited' ? 1 : undefined
}
