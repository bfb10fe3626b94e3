/** ConvokeErrors as JSON-RPC and HTTP+JSON errors: A2A specification 5.4, 9.5 and 11.6. */
import { ConvokeError, type ErrorCode, type Issue } from '../base/errors.ts'
import { isObject, type JsonObject } from '../base/json.ts'

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

/** The code of a JSON-RPC error's number; what a peer calls an internal error is `peer_failed` on this side. */
const codesByRpc: ReadonlyMap<number, ErrorCode> = new Map(
  Object.entries(wireErrors).map(([code, { rpc }]) => [rpc, code === 'internal' ? 'peer_failed' : (code as ErrorCode)]),
)

const codesByReason: ReadonlyMap<string, ErrorCode> = new Map(
  Object.entries(wireErrors).flatMap(([code, { reason }]) =>
    reason === undefined ? [] : [[reason, code as ErrorCode] as const],
  ),
)

/** What an HTTP status means where the body says no more. */
export function codeOfStatus(status: number): ErrorCode {
  switch (status) {
    case 400:
    case 422:
      return 'invalid_request'
    case 401:
      return 'unauthenticated'
    case 403:
      return 'forbidden'
    case 404:
    case 410:
      return 'not_found'
    case 413:
      return 'too_large'
    case 415:
      return 'content_type_not_supported'
    case 429:
      return 'rate_limited'
    case 408:
    case 502:
    case 503:
    case 504:
      return 'unavailable'
    default:
      return 'peer_failed'
  }
}

/** What a peer's error says: code, sentence, and what its details add. */
export interface ReadError {
  readonly code: ErrorCode
  readonly message: string
  readonly issues?: readonly Issue[]
  readonly retryAfterMs?: number
  /** The number of a JSON-RPC error. */
  readonly rpcCode?: number
}

/** A JSON-RPC error object as an error of ours; undefined where it is none. */
export function readRpcError(error: unknown): ReadError | undefined {
  if (!isObject(error) || typeof error['code'] !== 'number') return undefined
  const { code: rpcCode, message, data } = error
  const read = readDetails(data)
  return {
    code: read.code ?? codesByRpc.get(rpcCode) ?? 'peer_failed',
    message: typeof message === 'string' && message !== '' ? message : `The error ${rpcCode} without words.`,
    rpcCode,
    ...read.rest,
  }
}

/** The body of an HTTP+JSON error (`{error: {code, status, message, details}}`, or 0.3's `{code, message}`); undefined where it is none. */
export function readRestError(status: number, body: unknown): ReadError | undefined {
  const error = isObject(body) && isObject(body['error']) ? body['error'] : body
  if (!isObject(error) || typeof error['message'] !== 'string') return undefined
  // In 0.3 the code is that of JSON-RPC.
  if (typeof error['code'] === 'number' && error['code'] < 0) return readRpcError(error)
  const read = readDetails(error['details'])
  const known = Object.entries(wireErrors).find(
    ([, wire]) => wire.status === error['status'] && wire.http === status && wire.reason === undefined,
  )?.[0] as ErrorCode | undefined
  const code = read.code ?? (status === 400 && read.rest.issues !== undefined ? 'invalid_params' : known)
  return {
    code: code === undefined || code === 'internal' || code === 'parse_error' ? codeOfStatus(status) : code,
    message: error['message'],
    ...read.rest,
  }
}

function readDetails(details: unknown): { code?: ErrorCode; rest: Pick<ReadError, 'issues' | 'retryAfterMs'> } {
  let code: ErrorCode | undefined
  let issues: Issue[] | undefined
  let retryAfterMs: number | undefined
  for (const detail of Array.isArray(details) ? (details as unknown[]) : []) {
    if (!isObject(detail)) continue
    if (typeof detail['reason'] === 'string') code ??= codesByReason.get(detail['reason'])
    if (Array.isArray(detail['fieldViolations'])) {
      issues = detail['fieldViolations'].slice(0, 100).flatMap((violation: unknown) => {
        if (!isObject(violation) || typeof violation['field'] !== 'string') return []
        const message = typeof violation['description'] === 'string' ? violation['description'] : 'is wrong'
        return [{ path: `/${violation['field'].replaceAll('.', '/')}`, message }]
      })
    }
    const delay = typeof detail['retryDelay'] === 'string' ? /^(\d+(?:\.\d+)?)s$/.exec(detail['retryDelay']) : null
    if (delay?.[1] !== undefined) retryAfterMs = Number(delay[1]) * 1000
  }
  return {
    ...(code === undefined ? {} : { code }),
    rest: {
      ...(issues === undefined ? {} : { issues }),
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    },
  }
}

/** The name that A2A gives an error (specification 3.3.2), such as `TaskNotFoundError`; undefined for all that it does not name. */
export function a2aName(code: ErrorCode): string | undefined {
  const reason = wireErrors[code]?.reason
  if (reason === undefined) return undefined
  const words = reason.toLowerCase().split('_')
  return `${words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('')}Error`
}
