/** `convoke token`: makes a credential for a caller. */
import { isGrant } from '../tools/scopes.ts'
import { createToken, hashToken, isTokenId } from '../server/auth/token.ts'
import { CommandFailure } from './failure.ts'

export interface TokenFlags {
  readonly scopes?: readonly string[]
  readonly output: 'text' | 'json'
}

/** What a token may do whose entry does not say. */
const everything = ['*']

/** Prints a new token, which exists nowhere else, and what to put into the configuration for it. */
export function printToken(id: string, flags: TokenFlags): void {
  if (!isTokenId(id))
    throw new CommandFailure(2, `The id must be 1 to 128 letters, digits, _, -, . or @; it is ${JSON.stringify(id)}.`)
  const wrong = flags.scopes?.find((scope) => !isGrant(scope))
  if (wrong !== undefined) {
    throw new CommandFailure(
      2,
      `A scope is *, message or tool:NAME (* in NAME stands for any characters); one is ${JSON.stringify(wrong)}.`,
    )
  }
  const token = createToken()
  const entry = { id, sha256: hashToken(token), ...(flags.scopes === undefined ? {} : { scopes: flags.scopes }) }
  if (flags.output === 'json') {
    process.stdout.write(`${JSON.stringify({ token, ...entry, scopes: flags.scopes ?? everything })}\n`)
    return
  }
  // JSON is YAML, and its quotes keep an id such as `true` or `007` a text.
  const members = Object.entries(entry).map(([key, value]) => `${key}: ${JSON.stringify(value)}`)
  process.stdout.write(`The token of ${id}. It is shown this once; keep it where secrets are kept.

  ${token}

For the configuration of the node, which knows its hash only:

server:
  auth:
    tokens:
      - { ${members.join(', ')} }
`)
}
