/** What can go wrong with an MCP server, as errors of ours. Nothing behind this file knows the SDK's errors. */
import { McpError, ErrorCode } from '@modelcontextprotocol/sdk/types.js'
import { ConvokeError } from '../base/errors.ts'
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

/** A failure of a request, in our words. */
export function toMcpFailure(error: unknown, place: ErrorPlace): ConvokeError {
  const { server, redact } = place
  if (error instanceof SessionLost) return error
  if (error instanceof NetworkError) {
    return new NetworkError(error.reason, `The MCP server ${server}: ${redact(error.message)}`, {
      sent: error.sent,
      retryable: !error.sent || place.tool?.isRepeatable !== false,
      cause: error,
    })
  }
  if (error instanceof ConvokeError) {
    const { code, retryable } = error
    return new ConvokeError(code, `The MCP server ${server}: ${redact(error.message)}`, { cause: error, retryable })
  }
  if (error instanceof McpError) return toProtocolFailure(error, place)
  const status = statusOf(error)
  if (status !== undefined) return toStatusFailure(status, error, place)
  const said = error instanceof Error ? error.message : String(error)
  return new ConvokeError('peer_failed', `The MCP server ${server} failed: ${clip(redact(said), maxMessageLength)}`, {
    cause: error,
  })
}

/** The connection ended with a request under way. Whether it was carried out is not known. */
export function connectionLost({ server, tool, ending }: ErrorPlace, cause?: unknown): ConvokeError {
  const what = ending === undefined ? 'is gone' : ending
  const text = `The MCP server ${server} ${what} before it answered.`
  // `network`: a connection failed before an answer came. It is worth another try only where a second run does no harm.
  return new NetworkError('closed', text, { sent: true, retryable: tool === undefined || tool.isRepeatable, cause })
}

function toProtocolFailure(error: McpError, place: ErrorPlace): ConvokeError {
  const { server, tool, redact } = place
  const { code } = error as { code: number }
  const said = clip(redact(error.message.replace(/^(MCP error -?\d+: )+/, '')), maxMessageLength)
  if (code === Number(ErrorCode.ConnectionClosed)) return connectionLost(place, error)
  if (code === Number(ErrorCode.RequestTimeout)) {
    return new ConvokeError('timeout', `The MCP server ${server} did not answer in time.`, { cause: error })
  }
  if (tool !== undefined) {
    if (code === Number(ErrorCode.MethodNotFound) || (code === Number(ErrorCode.InvalidParams) && saysUnknown(said))) {
      return new ConvokeError('not_found', `The MCP server ${server} has no tool ${tool.name} any more: ${said}`, {
        cause: error,
      })
    }
    if (code === Number(ErrorCode.InvalidParams)) return new ConvokeError('invalid_params', said, { cause: error })
    if (code === urlElicitationRequired) {
      return new ConvokeError('tool_failed', clip(`${said}${urlsOf(error.data)}`, maxMessageLength), { cause: error })
    }
    // What a tool throws comes as this from servers that do not turn it into a result.
    if (code === Number(ErrorCode.InternalError)) return new ConvokeError('tool_failed', said, { cause: error })
  }
  return new ConvokeError('peer_failed', `The MCP server ${server} answered with error ${code}: ${said}`, {
    cause: error,
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
  return new ConvokeError(code, `The MCP server ${server} answered with HTTP status ${status}.${hint}`, {
    cause,
    ...retryable,
  })
}
