/** Who calls: from the headers of a request to a {@link Caller}. */
import { ConvokeError } from '../../base/errors.ts'
import type { AuthOptions } from '../../options.ts'
import type { Caller } from '../../tools/tool.ts'
import type { CardSecurity } from '../../protocol/card.ts'
import { toCardSecurity } from './card-security.ts'
import { createJwtVerifier, rejected } from './jwt.ts'
import { isGrant } from '../../tools/scopes.ts'
import { hashToken, isTokenId } from './token.ts'

/** The headers that credentials come in; `IncomingMessage.headers` has them. */
export interface CredentialHeaders {
  readonly authorization?: string | undefined
  readonly 'x-api-key'?: string | string[] | undefined
}

export interface Authenticator {
  /** Whether a request without credentials is refused. */
  readonly required: boolean
  /**
   * The caller, at once for a token or API key, later for a JWT. Throws, or rejects with, `unauthenticated`
   * where credentials are missing or not accepted, and `unavailable` where a JWT cannot be checked now.
   * A caller is the same object each time for the same token.
   */
  authenticate(headers: CredentialHeaders): Caller | Promise<Caller>
  /** What the agent card says about it; undefined where no credentials are needed. */
  schemes(): CardSecurity | undefined
  close(): void
}

export const anonymous: Caller = { id: 'anonymous', scopes: ['*'] }
const everything = ['*'] as const

/**
 * Builds the authenticator of a node. Without options everyone is `anonymous` and may do everything. Options that
 * let nobody in (no tokens, no jwt) are a `config` error, since they look like protection that someone meant.
 */
export function createAuthenticator(options: AuthOptions | undefined): Authenticator {
  if (options === undefined) {
    return { required: false, authenticate: () => anonymous, schemes: () => undefined, close() {} }
  }
  const callers = new Map<string, Caller>()
  for (const [index, { id, sha256, scopes }] of (options.tokens ?? []).entries()) {
    const key = sha256.toLowerCase()
    // Nothing of the entries is in the messages: somebody may have put a token where its hash belongs.
    if (!/^[0-9a-f]{64}$/.test(key)) {
      throw new ConvokeError(
        'config',
        `server.auth.tokens[${index}].sha256 must be the SHA-256 of the token, 64 hex digits; convoke token makes one.`,
      )
    }
    if (!isTokenId(id)) {
      throw new ConvokeError(
        'config',
        `server.auth.tokens[${index}].id must be 1 to 128 letters, digits, _, -, . or @.`,
      )
    }
    if (scopes?.every(isGrant) === false) {
      throw new ConvokeError(
        'config',
        `server.auth.tokens[${index}].scopes must be *, message or tool:NAME (* in NAME stands for any characters).`,
      )
    }
    if (callers.has(key)) {
      throw new ConvokeError(
        'config',
        `server.auth.tokens[${index}] has the same hash as another one: give each caller a token of its own.`,
      )
    }
    callers.set(key, { id, scopes: scopes ?? everything })
  }
  if (callers.size === 0 && options.jwt === undefined) {
    throw new ConvokeError(
      'config',
      'server.auth has no tokens and no jwt, so nobody could call: add one of them, or leave auth out.',
    )
  }
  const jwt = options.jwt === undefined ? undefined : createJwtVerifier(options.jwt)
  const apiKey = callers.size > 0 ? ' or "X-API-Key: TOKEN"' : ''
  const missing = `This node needs credentials: send the header "Authorization: Bearer TOKEN"${apiKey}.`

  return {
    required: true,
    authenticate(headers) {
      const bearer = bearerToken(headers)
      const token = bearer ?? headers['x-api-key']
      if (typeof token !== 'string' || token === '') throw new ConvokeError('unauthenticated', missing)
      const caller = callers.get(hashToken(token))
      if (caller !== undefined) return caller
      if (jwt !== undefined && bearer !== undefined && looksLikeJwt(bearer)) return jwt.verify(bearer)
      throw rejected()
    },
    schemes: () => toCardSecurity(options),
    close() {
      jwt?.close()
    },
  }
}

/**
 * The `WWW-Authenticate` header of a 401 (RFC 6750, section 3): with `error="invalid_token"` when there was
 * a bearer token, so that a client knows it must get another one.
 */
export function wwwAuthenticate(headers: CredentialHeaders): string {
  return bearerToken(headers) === undefined ? 'Bearer realm="convoke"' : 'Bearer realm="convoke", error="invalid_token"'
}

/** The scheme's name has no case (RFC 9110, section 11.1). Other schemes are somebody else's, a proxy's perhaps. */
function bearerToken({ authorization }: CredentialHeaders): string | undefined {
  if (authorization === undefined || authorization.length < 8) return undefined
  if (!authorization.startsWith('Bearer ') && authorization.slice(0, 7).toLowerCase() !== 'bearer ') return undefined
  return authorization.slice(7).trim()
}

function looksLikeJwt(token: string): boolean {
  const first = token.indexOf('.')
  const second = token.indexOf('.', first + 1)
  return first > 0 && second > first + 1 && token.indexOf('.', second + 1) === -1
}
