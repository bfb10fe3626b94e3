/** Failures of peers: one class that says who, what and which attempt, and what each foreign failure becomes. */
import { inspect } from 'node:util'
import { ConvokeError, type ErrorCode, type ErrorOptions } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import { parseRetryAfter } from '../base/retry-after.ts'
import { stripControls } from '../base/text.ts'
import { a2aName, codeOfStatus, readRestError, readRpcError, type ReadError } from '../protocol/wire-errors.ts'
import { clip } from '../tools/value.ts'

/**
 * What kind of failure it was. `connection`: no answer came, or not the whole of it. `auth`: the credentials. `protocol`:
 * the peer refused the request, or answered with something that is not A2A. `tool`: the tool itself failed, or its params
 * or result were wrong. Then `timeout` and `canceled`.
 */
export type PeerErrorKind = 'connection' | 'auth' | 'protocol' | 'tool' | 'timeout' | 'canceled'

/** What was under way when it failed. */
export interface PeerContext {
  readonly tool?: string
  readonly taskId?: string
  /** 1, or more when the request was sent again. */
  readonly attempt?: number
}

export interface PeerErrorOptions extends ErrorOptions, PeerContext {
  readonly kind?: PeerErrorKind
  readonly httpStatus?: number
  /** The number of the peer's JSON-RPC error. */
  readonly rpcCode?: number
}

/** A failure of a call to a peer. Its message begins with `PEER: ` or `PEER.TOOL: `. */
export class PeerError extends ConvokeError {
  readonly kind: PeerErrorKind
  readonly peer: string
  readonly tool: string | undefined
  readonly taskId: string | undefined
  readonly attempt: number | undefined
  readonly httpStatus: number | undefined
  readonly rpcCode: number | undefined
  /** The message without the peer's name. */
  readonly sentence: string

  constructor(code: ErrorCode, peer: string, sentence: string, options: PeerErrorOptions = {}) {
    // A stranger's words may hold what terminals obey.
    const words = stripControls(sentence)
    super(code, `${options.tool === undefined ? peer : `${peer}.${clip(options.tool, maxTool)}`}: ${words}`, options)
    this.kind = options.kind ?? kindOf(code)
    this.peer = peer
    this.tool = options.tool
    this.taskId = options.taskId
    this.attempt = options.attempt
    this.httpStatus = options.httpStatus
    this.rpcCode = options.rpcCode
    this.sentence = words
  }

  /** The name of the error in the A2A specification, such as `TaskNotFoundError`, where it has one. */
  get a2aName(): string | undefined {
    return a2aName(this.code)
  }

  /** Everything but stack and cause. */
  toJSON(): JsonObject {
    const { code, kind, message, retryable, retryAfterMs, peer, tool, taskId, attempt, httpStatus, issues } = this
    return {
      code,
      kind,
      message,
      retryable,
      peer,
      ...(tool === undefined ? {} : { tool }),
      ...(taskId === undefined ? {} : { task_id: taskId }),
      ...(attempt === undefined ? {} : { attempt }),
      ...(httpStatus === undefined ? {} : { http_status: httpStatus }),
      ...(retryAfterMs === undefined ? {} : { retry_after_ms: retryAfterMs }),
      ...(issues === undefined ? {} : { issues: issues.map(({ path, message: text }) => ({ path, message: text })) }),
    }
  }
}

const maxTool = 200

const kinds: Partial<Record<ErrorCode, PeerErrorKind>> = {
  network: 'connection',
  unavailable: 'connection',
  rate_limited: 'connection',
  unauthenticated: 'auth',
  forbidden: 'auth',
  timeout: 'timeout',
  canceled: 'canceled',
  tool_failed: 'tool',
  invalid_params: 'tool',
  invalid_result: 'tool',
  worker_lost: 'tool',
}

function kindOf(code: ErrorCode): PeerErrorKind {
  return kinds[code] ?? 'protocol'
}

/** Any failure on the way to a peer as a PeerError; one that is a PeerError already gets what it does not say yet. */
export function toPeerError(error: unknown, peer: string, context: PeerContext = {}): PeerError {
  if (error instanceof PeerError) {
    const { tool = context.tool, taskId = context.taskId, attempt = context.attempt } = error
    if (tool === error.tool && taskId === error.taskId && attempt === error.attempt) return error
    return new PeerError(error.code, error.peer, error.sentence, allOf(error, { tool, taskId, attempt }))
  }
  const known = ConvokeError.from(error)
  return new PeerError(known.code, peer, known.message, { ...optionsOf(known), ...context })
}

/** The error with its texts as `redact` gives them. A cause that would show what `redact` takes out is left behind. */
export function redactError(error: PeerError, redact: (text: string) => string): PeerError {
  const sentence = redact(error.sentence)
  const issues = error.issues?.map(({ path, message }) => ({ path: redact(path), message: redact(message) }))
  const cause = error.cause === undefined ? '' : inspect(error.cause)
  const isCauseClean = redact(cause) === cause
  if (isCauseClean && sentence === error.sentence && JSON.stringify(issues) === JSON.stringify(error.issues))
    return error
  const { cause: kept, ...options } = allOf(error, error)
  return new PeerError(error.code, error.peer, sentence, {
    ...options,
    ...(issues === undefined ? {} : { issues }),
    ...(isCauseClean ? { cause: kept } : {}),
  })
}

function allOf(
  error: PeerError,
  { tool, taskId, attempt }: Record<'tool' | 'taskId', string | undefined> & { attempt: number | undefined },
): PeerErrorOptions {
  return {
    ...optionsOf(error),
    kind: error.kind,
    ...(tool === undefined ? {} : { tool }),
    ...(taskId === undefined ? {} : { taskId }),
    ...(attempt === undefined ? {} : { attempt }),
    ...(error.httpStatus === undefined ? {} : { httpStatus: error.httpStatus }),
    ...(error.rpcCode === undefined ? {} : { rpcCode: error.rpcCode }),
  }
}

function optionsOf({ retryable, retryAfterMs, issues, cause }: ConvokeError): ErrorOptions {
  return {
    retryable,
    ...(cause === undefined ? {} : { cause }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(issues === undefined ? {} : { issues }),
  }
}

const maxSentence = 4000

/** An answer that is no success, as the error it tells. `retryAfter` is the header of that name. */
export function fromAnswer(peer: string, status: number, text: string, retryAfter: string | undefined): PeerError {
  const body = parsed(text)
  const rpc = typeof body === 'object' && body !== null && 'jsonrpc' in body && 'error' in body ? body.error : undefined
  const read = readRpcError(rpc) ?? readRestError(status, body)
  const retryAfterMs = read?.retryAfterMs ?? parseRetryAfter(retryAfter)
  if (read !== undefined)
    return fromReadError(peer, { ...read, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) }, status)
  const code = codeOfStatus(status)
  return new PeerError(code, peer, `It answered with ${status}${hintOf(status, text)}.`, {
    httpStatus: status,
    // A server that breaks is not mended by asking again at once; the statuses that say "later" have codes of their own.
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  })
}

/** A JSON-RPC error in an answer or a stream. */
export function fromRpcError(peer: string, error: unknown): PeerError {
  const read = readRpcError(error)
  if (read === undefined)
    return new PeerError('peer_failed', peer, 'It answered with an error that is no JSON-RPC error.')
  return fromReadError(peer, read)
}

function fromReadError(peer: string, read: ReadError, httpStatus?: number): PeerError {
  const { code, message, issues, retryAfterMs, rpcCode } = read
  return new PeerError(code, peer, clip(message, maxSentence), {
    // A request that the peer found wrong is no failure of a tool.
    ...(code === 'invalid_params' ? { kind: 'protocol' as const } : {}),
    ...(issues === undefined ? {} : { issues }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(rpcCode === undefined ? {} : { rpcCode }),
    ...(httpStatus === undefined ? {} : { httpStatus }),
  })
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Pages and plain words are told by their status.
    return undefined
  }
}

function hintOf(status: number, text: string): string {
  if (status >= 300 && status < 400) return ', a redirect, which is not followed here'
  if (status === 401) return ': it wants credentials, or other ones'
  if (status === 403) return ': these credentials may not do this'
  if (/^\s*</.test(text)) return ' and a page of HTML: is this the URL of an agent?'
  return text.trim() === '' ? ' and no words' : ' and something that is not A2A'
}
