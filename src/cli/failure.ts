/** How a command fails: one line on stderr and an exit code. */
import { ConvokeError } from '../base/errors.ts'

/** 0 done, 1 could not do it, 2 called or configured wrongly. */
export type ExitCode = 0 | 1 | 2

/** Ends a command. The message is what the user reads; the cause is shown with `--log-level debug` only. */
export class CommandFailure extends Error {
  override readonly name = 'CommandFailure'
  readonly exitCode: ExitCode
  /** Whether to print stacks. */
  readonly debug: boolean

  constructor(exitCode: ExitCode, cause: unknown, debug = false) {
    super(toSentence(cause), { cause })
    this.exitCode = exitCode
    this.debug = debug
  }
}

/** What a user can read and act on. The system's own errors get the words that they lack. */
export function toSentence(error: unknown): string {
  if (typeof error === 'string') return error
  if (error instanceof CommandFailure) return error.message
  if (!(error instanceof Error)) return `Something that is no error was thrown: ${JSON.stringify(error)}`
  const chain: Error[] = []
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) chain.push(cause)
  const known = chain.map(systemSentence).find((sentence) => sentence !== undefined)
  // An internal error hides what happened from callers; here is the operator.
  const telling = chain.find((each) => !(each instanceof ConvokeError && each.code === 'internal')) ?? error
  const isLocked = chain.some((each) => 'code' in each && String(each.code).startsWith('SQLITE_BUSY'))
  return (
    known ?? `${telling.message}${isLocked ? ' If that is another node, give this one a store.url of its own.' : ''}`
  )
}

function systemSentence(error: NodeJS.ErrnoException & { address?: string; port?: number }): string | undefined {
  if (error.syscall !== 'listen' && error.syscall !== 'getaddrinfo') return undefined
  const where = `${error.address ?? 'the address'}${error.port === undefined ? '' : `:${error.port}`}`
  switch (error.code) {
    case 'EADDRINUSE':
      return `Another program listens on ${where} already. Stop it, or choose another port: --port N, where 0 picks a free one.`
    case 'EACCES':
      return `This user may not listen on ${where}. Choose a port from 1024 on: --port N.`
    case 'EADDRNOTAVAIL':
      return `This machine has no address ${error.address ?? ''}. Check server.host.`
    case 'ENOTFOUND':
      return `The name in server.host cannot be resolved.`
    default:
      return undefined
  }
}

/** Ends the process with this exit code: what went wrong has been told. */
export class ExitRequest extends Error {
  override readonly name = 'ExitRequest'
  readonly exitCode: number

  constructor(exitCode: number) {
    super(`exit ${exitCode}`)
    this.exitCode = exitCode
  }
}
