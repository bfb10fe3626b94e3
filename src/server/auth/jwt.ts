/** JSON Web Tokens of an identity provider, checked against the keys it publishes. */
import { createRemoteJWKSet, customFetch, errors, jwtVerify } from 'jose'
import type { JWTPayload, JWTVerifyGetKey } from 'jose'
import { ConvokeError } from '../../base/errors.ts'
import type { JwtOptions } from '../../options.ts'
import type { Caller } from '../../tools/tool.ts'

/** All asymmetric. A shared secret or `none` would let anyone who knows the public key, or nothing, sign. */
const defaultAlgorithms = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
]

/** Clocks differ; more than this is somebody's mistake. */
const clockToleranceS = 5
const fetchTimeoutMs = 5_000
/** After it keys are fetched anew, so that a withdrawn key stops working. */
const keysMaxAgeMs = 600_000
/** A token with an unknown key makes us look for new keys, but strangers must not make us a hammer. */
const unknownKeyCooldownMs = 30_000
/** After a failed fetch, requests fail at once for so long. */
const failureCooldownMs = 5_000

export interface JwtVerifier {
  /**
   * Who a token was issued to: `ISSUER|SUBJECT`, with the scopes of its `scope` or `scp` claim, or `*` where it
   * has neither. Throws `unauthenticated` for a token that is not good, `unavailable` when the keys cannot be had.
   */
  verify(token: string): Promise<Caller>
  /** Ends a fetch that is under way. */
  close(): void
}

/** A verifier that fetches keys when the first token comes, and keeps them for ten minutes. */
export function createJwtVerifier(options: JwtOptions): JwtVerifier {
  const closing = new AbortController()
  let failedAt = Number.NEGATIVE_INFINITY

  const keys = createRemoteJWKSet(new URL(options.jwksUrl), {
    timeoutDuration: fetchTimeoutMs,
    cacheMaxAge: keysMaxAgeMs,
    cooldownDuration: unknownKeyCooldownMs,
    // jose waits after a success only: without this, each token would try a dead endpoint again.
    [customFetch]: async (url, init) => {
      if (performance.now() - failedAt < failureCooldownMs) throw unavailable(undefined)
      try {
        const response = await fetch(url, { ...init, signal: AbortSignal.any([init.signal, closing.signal]) })
        if (response.status === 200) return response
        await response.body?.cancel()
        throw new Error(`${options.jwksUrl} answered with status ${response.status}`)
      } catch (error) {
        failedAt = performance.now()
        throw unavailable(error)
      }
    },
  })
  const getKey: JWTVerifyGetKey = async (header, token) => {
    try {
      return await keys(header, token)
    } catch (error) {
      const isAboutToken =
        error instanceof errors.JWKSNoMatchingKey ||
        error instanceof errors.JWKSMultipleMatchingKeys ||
        error instanceof errors.JOSENotSupported
      if (isAboutToken || error instanceof ConvokeError) throw error
      failedAt = performance.now()
      throw unavailable(error)
    }
  }
  const checks = {
    issuer: options.issuer,
    audience: options.audience,
    algorithms: [...(options.algorithms ?? defaultAlgorithms)],
    clockTolerance: clockToleranceS,
    // Without `exp` a token that leaks is good for ever.
    requiredClaims: ['sub', 'exp'],
  }

  return {
    async verify(token) {
      try {
        const { payload } = await jwtVerify(token, getKey, checks)
        return toCaller(payload)
      } catch (error) {
        throw error instanceof ConvokeError ? error : rejected(error)
      }
    },
    close() {
      closing.abort()
    },
  }
}

/** The same words for every reason: which check a token failed is for our log, not for whoever tries tokens. */
export function rejected(cause?: unknown): ConvokeError {
  return new ConvokeError('unauthenticated', 'The credentials were not accepted.', { cause })
}

function unavailable(cause: unknown): ConvokeError {
  return new ConvokeError('unavailable', 'The token cannot be checked now: the keys of its issuer are out of reach.', {
    cause,
    retryAfterMs: failureCooldownMs,
  })
}

function toCaller(payload: JWTPayload): Caller {
  const { iss, sub } = payload
  if (typeof sub !== 'string' || sub === '') throw rejected(new Error('The token has no subject.'))
  // RFC 8693 has `scope`, a text; Okta and Entra ID have `scp`, a list or a text.
  const claim = payload['scope'] ?? payload['scp']
  const id = `${iss}|${sub}`
  if (claim === undefined) return { id, scopes: ['*'] }
  if (typeof claim === 'string') return { id, scopes: claim.split(' ').filter((scope) => scope !== '') }
  if (Array.isArray(claim)) return { id, scopes: claim.filter((scope) => typeof scope === 'string') }
  throw rejected(new Error('The scope claim is neither a text nor a list.'))
}
