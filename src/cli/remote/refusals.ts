/** Why one's own configuration lets a call not be made, as the failure of a command. */
import { ConvokeError } from '../../base/errors.ts'
import { PeerError } from '../../peers/errors.ts'
import { ClientFailure } from '../a2a/failure.ts'
import { quote } from '../a2a/text.ts'

interface About {
  readonly handle: string
  /** `-c FILE` for the command that is shown. */
  readonly flag: string
}

/** For a tool that is quarantined. */
export function changedFailure(message: string, { handle, flag }: About, cause?: unknown): ClientFailure {
  const hint = `See what changed, and take it or not: convoke pins diff ${quote(handle)}${flag}`
  return new ClientFailure('CONVOKE_ERR_TOOL', message, { hint, cause })
}

/** For a call that the tool policy denies, or for which there was no approval. */
export function forbiddenFailure(error: unknown, { handle, flag }: About): unknown {
  if (!(error instanceof ConvokeError)) return error
  const hint = `See which rule decides: convoke policy why local ${quote(handle)}${flag}`
  return new ClientFailure('CONVOKE_ERR_TOOL', sentenceOf(error), { hint, cause: error })
}

/** For a question of a call in this process that nobody was there to answer. */
export function unanswered(error: unknown): unknown {
  if (!(error instanceof ConvokeError)) return error
  return new ClientFailure('CONVOKE_ERR_QUESTION', sentenceOf(error), {
    hint: 'Call it on a terminal, or give the answer with --answer.',
    cause: error,
  })
}

function sentenceOf(error: ConvokeError): string {
  return error instanceof PeerError ? error.sentence : error.message
}
