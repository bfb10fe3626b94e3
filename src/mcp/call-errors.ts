/** What can go wrong with an MCP server, as errors of ours. Nothing behind this file knows the SDK's errors. */
import { ErrorCode as McpErrorCode, McpError } from '@modelcontextprotocol/sdk/types.js'
import { ConvokeError, type ErrorCode, type ErrorOptions } from '../base/errors.ts'
import { isObject } from '../base/json.ts'
import { NetworkError } from '../base/network-error.ts'
import { clip } from '../tools/value.ts'
import { SessionLost, saysUnknown } from './errors.ts'
import { statusOf } from './http-transport.ts'

/** The code of JSON-RPC with which a server asks for a visit to a web page before it goes on. */
const urlElicitationRequired = -32_042
const maxMessageLength = 4_000

/** Where an error happened. */
export interface ErrorPlace {
  readonly server: string
  /** The tool that was called, and whether it may run twice. */
  readonly tool?: { readonly name: string; readonly isRepeatable: boolean }
  /** How the server's process ended. */
  readonly ending?: string | undefined
  /** Takes the server's secrets out of a text. */
  readonly redact: (text: string) => string
}

/** The connection ended with a request under way. Whether it was carried out is not known. */
class ConnectionLost extends NetworkError {}

/** The server answered with a status that says no. */
export class StatusFailure extends ConvokeError {
  readonly status: number

  constructor(code: ErrorCode, status: number, message: string, options: ErrorOptions) {
    super(code, message, options)
    this.status = status
  }
}

/** A failure of a request, in our words. What a server has said is in it, and in its causes, without secrets. */
export function toMcpFailure(given: unknown, place: ErrorPlace): ConvokeError {
  if (given instanceof SessionLost || given instanceof ConnectionLost) return given
  const { server, redact } = place
  const cause = withoutSecrets(given, redact)
  if (given instanceof NetworkError) {
    return new NetworkError(given.reason, `The MCP server ${server}: ${redact(given.message)}`, {
      sent: given.sent,
      retryable: !given.sent || place.tool?.isRepeatable !== false,
      cause,
    })
  }
  if (given instanceof ConvokeError) {
    const { code, retryable } = given
    return new ConvokeError(code, `The MCP server ${server}: ${redact(given.message)}`, { cause, retryable })
  }
  if (given instanceof McpError) return toProtocolFailure(given, cause, place)
  const status = statusOf(given)
  if (status !== undefined) return toStatusFailure(status, cause, place)
  const said = clip(redact(given instanceof Error ? given.message : String(given)), maxMessageLength)
  return new ConvokeError('peer_failed', `The MCP server ${server} failed: ${said}`, { cause })
}

/** The error if there is no secret in it, otherwise a copy: it goes into the log with its stack and its causes. */
export function withoutSecrets(error: unknown, redact: (text: string) => string): unknown {
  if (!(error instanceof Error)) return typeof error === 'string' ? redact(error) : error
  const cause = error.cause === undefined ? undefined : withoutSecrets(error.cause, redact)
  const stack = redact(error.stack ?? '')
  const message = redact(error.message)
  if (cause === error.cause && stack === (error.stack ?? '') && message === error.message) return error
  const copy = new Error(message, cause === undefined ? undefined : { cause })
  copy.name = error.name
  copy.stack = stack
  return copy
}

/** The failure of a request that was under way when the connection ended. */
export function connectionLost({ server, tool, ending }: ErrorPlace, cause?: unknown): ConvokeError {
  const what = ending === undefined ? 'is gone' : ending
  const text = `The MCP server ${server} ${what} before it answered.`
  // `network`: a connection failed before an answer came. It is worth another try only where a second run does no harm.
  return new ConnectionLost('closed', text, { sent: true, retryable: tool === undefined || tool.isRepeatable, cause })
}

function toProtocolFailure(error: McpError, cause: unknown, place: ErrorPlace): ConvokeError {
  const { server, tool, redact } = place
  const { code } = error as { code: number }
  const said = clip(redact(error.message.replace(/^(MCP error -?\d+: )+/, '')), maxMessageLength)
  if (code === Number(McpErrorCode.ConnectionClosed)) return connectionLost(place, cause)
  if (code === Number(McpErrorCode.RequestTimeout)) {
    return new ConvokeError('timeout', `The MCP server ${server} did not answer in time.`, { cause })
  }
  if (tool !== undefined) {
    if (
      code === Number(McpErrorCode.MethodNotFound) ||
      (code === Number(McpErrorCode.InvalidParams) && saysUnknown(said))
    ) {
      return new ConvokeError('not_found', `The MCP server ${server} has no tool ${tool.name} any more: ${said}`, {
        cause,
      })
    }
    if (code === Number(McpErrorCode.InvalidParams)) return new ConvokeError('invalid_params', said, { cause })
    if (code === urlElicitationRequired) {
      return new ConvokeError('tool_failed', clip(`${said}${urlsOf(error.data)}`, maxMessageLength), { cause })
    }
    // What a tool throws comes as this from servers that do not turn it into a result.
    if (code === Number(McpErrorCode.InternalError)) return new ConvokeError('tool_failed', said, { cause })
  }
  return new ConvokeError('peer_failed', `The MCP server ${server} answered with error ${code}: ${said}`, {
    cause,
  })
}

function urlsOf(data: unknown): string {
  const asked: unknown = isObject(data) ? data['elicitations'] : undefined
  const urls = (Array.isArray(asked) ? asked : []).flatMap((each) =>
    isObject(each) && typeof each['url'] === 'string' ? [each['url']] : [],
  )
  return urls.length === 0 ? '' : ` Visit ${urls.join(' ')} first, and call again.`
}

function toStatusFailure(status: number, cause: unknown, { server, tool }: ErrorPlace): ConvokeError {
  const isOurs = status === 401 || status === 403
  const code =
    status === 401
      ? 'unauthenticated'
      : status === 403
        ? 'forbidden'
        : status === 429
          ? 'rate_limited'
          : status === 502 || status === 503 || status === 504
            ? 'unavailable'
            : 'peer_failed'
  const hint = isOurs ? ' Look at its headers in mcpServers.' : ''
  // A gateway may have lost the answer to a call that was carried out.
  const retryable = status === 504 && tool?.isRepeatable === false ? { retryable: false } : {}
  return new StatusFailure(code, status, `The MCP server ${server} answered with HTTP status ${status}.${hint}`, {
    cause,
    ...retryable,
  })
}
