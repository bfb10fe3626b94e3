/**
 * How a client command fails: the error envelope and the exit codes of the a2a-cli specification, sections 11.4 and
 * 11.6 and appendix D. What A2A has a name for keeps that name; the rest is one of the tool's own codes.
 */
import { ConvokeError, type ErrorCode, type Issue } from '../../base/errors.ts'
import type { JsonObject } from '../../base/json.ts'
import { PeerError } from '../../peers/errors.ts'

/** 1 could not do it, 2 called wrongly, 3 not reachable, 4 credentials, 5 timeout, 130 interrupted. */
export type ClientExitCode = 1 | 2 | 3 | 4 | 5 | 130

const exitCodes = {
  A2ACLI_ERR_USAGE: 2,
  A2ACLI_ERR_CARD_NOT_FOUND: 3,
  A2ACLI_ERR_CARD_INVALID: 1,
  A2ACLI_ERR_UNREACHABLE: 3,
  A2ACLI_ERR_CREDENTIALS_MISSING: 4,
  A2ACLI_ERR_AUTH_FAILED: 4,
  A2ACLI_ERR_TIMEOUT: 5,
  A2ACLI_ERR_INTERNAL: 1,
  // Those of the specification's registry end here; its prefix is closed to ours.
  CONVOKE_ERR_FILE: 1,
  CONVOKE_ERR_INTERRUPTED: 130,
  CONVOKE_ERR_TOOL: 1,
  CONVOKE_ERR_QUESTION: 1,
} as const satisfies Record<string, ClientExitCode>

export type LocalErrorCode = keyof typeof exitCodes

export interface ClientFailureOptions {
  /** What to do now, best a command to paste. */
  readonly hint?: string | undefined
  /** The number under which the peer reported it: JSON-RPC's, else the HTTP status. */
  readonly a2aCode?: number | undefined
  /** What is wrong with a value, in all places: a line each for people, part of the message in the envelope. */
  readonly issues?: readonly Issue[]
  readonly cause?: unknown
}

/** Ends a client command. `code` is the name of an A2A error, or a code of the tool. */
export class ClientFailure extends Error {
  override readonly name = 'ClientFailure'
  readonly code: string
  readonly hint: string | undefined
  readonly a2aCode: number | undefined
  /** The message without the issues. */
  readonly sentence: string
  readonly issues: readonly Issue[]

  constructor(code: string, sentence: string, { hint, a2aCode, issues = [], cause }: ClientFailureOptions = {}) {
    const details = issues.map(({ path, message }) => `${path === '' ? '/' : path}: ${message}`)
    super([sentence, details.join('; ')].filter((text) => text !== '').join(' '), { cause })
    this.code = code
    this.sentence = sentence
    this.issues = issues
    this.hint = hint
    this.a2aCode = a2aCode
  }

  get exitCode(): ClientExitCode {
    return Object.hasOwn(exitCodes, this.code) ? exitCodes[this.code as LocalErrorCode] : 1
  }

  toEnvelope(): JsonObject {
    return {
      error: { code: this.code, message: this.message, hint: this.hint ?? null, a2aCode: this.a2aCode ?? null },
    }
  }
}

export function usageFailure(message: string, hint?: string): ClientFailure {
  return new ClientFailure('A2ACLI_ERR_USAGE', message, { hint })
}

/** What the failed command knows and an error does not. */
export interface FailureContext {
  /** The card was not at hand yet. */
  readonly connecting: boolean
  readonly hasCredentials: boolean
  /** `-a REF`, where hints need it to be a command that works. */
  readonly agentFlag: string
  /** The task that the command was about, once it is known. */
  readonly taskId?: string | undefined
  /** The agent has stopped the work: there is nothing to come back to. */
  readonly isOver?: boolean
  /** How to get credentials that the agent takes. */
  readonly credentialsHint?: string | undefined
  /** How to name the agent so that its card is found. Default: by --agent-card. */
  readonly cardHint?: string | undefined
  /** What the name that led nowhere may have meant. */
  readonly addressHint?: string | undefined
  /** `convoke task get --help` */
  readonly helpCommand?: string
}

/** Any error as the failure that is shown. */
export function toClientFailure(error: unknown, context: FailureContext): ClientFailure {
  if (error instanceof ClientFailure) {
    const { code, sentence, hint = hintFor(code, context), a2aCode, issues } = error
    return new ClientFailure(code, sentence, { hint, a2aCode, issues, cause: error.cause })
  }
  if (!(error instanceof ConvokeError)) {
    const message = error instanceof Error ? error.message : 'Something that is no error was thrown.'
    return new ClientFailure('A2ACLI_ERR_INTERNAL', message, { cause: error })
  }
  const code = codeOf(error, context)
  return new ClientFailure(code, error instanceof PeerError ? error.sentence : error.message, {
    hint: isPlainHttp(error) ? plainHttpHint : hintFor(code, context),
    a2aCode: error instanceof PeerError ? (error.rpcCode ?? error.httpStatus) : undefined,
    cause: error,
  })
}

/** JSON-RPC's names for what A2A's own errors leave out (A2A 9.5); HTTP+JSON says the same by its status. */
const requestErrors: Partial<Record<ErrorCode, string>> = {
  parse_error: 'JSONParseError',
  invalid_request: 'InvalidRequestError',
  method_not_found: 'MethodNotFoundError',
  invalid_params: 'InvalidParamsError',
}

function codeOf(error: ConvokeError, { connecting, hasCredentials }: FailureContext): string {
  const named = error instanceof PeerError ? (error.a2aName ?? requestErrors[error.code]) : undefined
  if (named !== undefined && !connecting) return named
  switch (error.code) {
    case 'version_not_supported':
      return 'VersionNotSupportedError'
    case 'unauthenticated':
      return hasCredentials ? 'A2ACLI_ERR_AUTH_FAILED' : 'A2ACLI_ERR_CREDENTIALS_MISSING'
    case 'forbidden':
      return 'A2ACLI_ERR_AUTH_FAILED'
    case 'network':
      return 'A2ACLI_ERR_UNREACHABLE'
    case 'timeout':
      return 'A2ACLI_ERR_TIMEOUT'
    case 'config':
      return 'A2ACLI_ERR_USAGE'
    case 'canceled':
      return 'CONVOKE_ERR_INTERRUPTED'
    case 'peer_failed':
      if (connecting) return statusOf(error) < 400 ? 'A2ACLI_ERR_CARD_INVALID' : 'A2ACLI_ERR_CARD_NOT_FOUND'
      return reportsItself(error) ? 'InternalError' : 'InvalidAgentResponseError'
    default:
      return connecting ? 'A2ACLI_ERR_CARD_NOT_FOUND' : 'A2ACLI_ERR_INTERNAL'
  }
}

function statusOf(error: ConvokeError): number {
  return (error instanceof PeerError ? error.httpStatus : undefined) ?? 0
}

/** The peer said that it broke; otherwise what it said makes no sense. */
function reportsItself(error: ConvokeError): boolean {
  return (error instanceof PeerError && error.rpcCode !== undefined) || statusOf(error) >= 400
}

const plainHttpHint = 'The server there may speak plain http: name it by http:// in place of https://.'

/** Whether a server answered the first bytes of TLS with something else. */
function isPlainHttp(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const isOther = 'code' in error && /^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG)$/.test(String(error.code))
  return isOther || isPlainHttp(error.cause)
}

function hintFor(code: string, context: FailureContext): string | undefined {
  const { agentFlag, taskId, isOver, credentialsHint, cardHint, addressHint, helpCommand = '--help' } = context
  switch (code) {
    case 'TaskNotFoundError':
      return `See the tasks there are: convoke task list${agentFlag}`
    case 'TaskNotCancelableError':
      return taskId === undefined ? undefined : `See how it ended: convoke task get${agentFlag} ${taskId}`
    case 'VersionNotSupportedError':
      return 'If the agent speaks A2A 0.3 only, ask for it: --a2a-version 0.3'
    case 'UnsupportedOperationError':
    case 'PushNotificationNotSupportedError':
      return `See what the agent can do: convoke card get${agentFlag}`
    case 'A2ACLI_ERR_CREDENTIALS_MISSING':
    case 'A2ACLI_ERR_AUTH_FAILED':
      return credentialsHint ?? 'Set A2ACLI_BEARER or A2ACLI_API_KEY.'
    case 'A2ACLI_ERR_UNREACHABLE':
      return addressHint ?? 'Check the address, and that the agent runs. --debug shows what was tried.'
    case 'A2ACLI_ERR_CARD_NOT_FOUND':
    case 'A2ACLI_ERR_CARD_INVALID':
      return cardHint ?? 'Name a host, the URL of a card, or a card file: --agent-card REF'
    case 'A2ACLI_ERR_TIMEOUT':
    case 'CONVOKE_ERR_INTERRUPTED':
      if (isOver === true) return undefined
      return taskId === undefined
        ? `The agent may still be at it: convoke task list${agentFlag}`
        : `Wait on: convoke task get --wait${agentFlag} ${taskId}`
    case 'A2ACLI_ERR_USAGE':
      return `See ${helpCommand}.`
    default:
      return undefined
  }
}
