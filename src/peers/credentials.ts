/** What is put on a request to a peer so that it lets us in: a bearer token, an API key, or a token from OAuth. */
import { abortReason, onAbort } from '../base/abort.ts'
import { ConvokeError } from '../base/errors.ts'
import type { GuardedFetch } from '../base/guarded-fetch.ts'
import type { JsonObject } from '../base/json.ts'
import { membersOf, securitySchemes } from './card-security.ts'
import { checkClient, freshUntil, isTokenText, requestClientToken, unusable, type OAuthToken } from './oauth.ts'
import type { PeerAuth } from './peer.ts'

/** Shared between requests, and frozen therefore. */
type Fields = Readonly<Record<string, string>>

/** What belongs to one origin, and is given to no other. */
export interface Credentials {
  /**
   * Headers for a request to `origin`; empty where these credentials do not belong to that origin. A promise only where
   * something must be fetched. Rejects with `unauthenticated`, or with the reason of the signal; the signal ends the
   * wait of this caller, not the request that others wait for as well.
   */
  headers(origin: string, signal?: AbortSignal): Fields | Promise<Fields>
  /** Query parameters for a request to `origin`: the API key where the card wants it there. A cookie is a header. */
  query(origin: string): Fields
  /**
   * To be called after a 401: drops a cached token, and tells whether trying again, once, may help. `sent` is what was
   * put on the refused request: a token that has replaced that one meanwhile stays. At most one token in ten seconds is
   * dropped: a peer that refuses every token would drive us against its authorization server otherwise.
   */
  refused(sent?: Fields): boolean
  /**
   * Sends an API key as the card's security schemes say (1.0 and 0.3; those that the card requires come first). Schemes
   * with a place or a name that no request can have are passed over.
   */
  useCard(card: JsonObject): void
}

/**
 * Credentials for the origin of a peer's configured URL. `peer` is its name in messages. Throws `config`, without the
 * value, for one that no request can carry, or for a token URL that is neither https nor on this machine.
 */
export function createCredentials(
  auth: PeerAuth | undefined,
  origin: string,
  fetch: GuardedFetch,
  peer: string,
): Credentials {
  const home = new URL(origin).origin
  const scheme = createScheme(auth, fetch, peer)
  return {
    headers: (to, signal) => (to === home ? scheme.headers(signal) : nothing),
    query: (to) => (to === home ? (scheme.query?.() ?? nothing) : nothing),
    refused: (sent) => scheme.refused?.(sent) ?? false,
    useCard: (card) => scheme.useCard?.(card),
  }
}

/** Credentials that do not know yet where they belong. */
interface Scheme {
  headers(signal?: AbortSignal): Fields | Promise<Fields>
  query?(): Fields
  refused?(sent?: Fields): boolean
  useCard?(card: JsonObject): void
}

const nothing: Fields = Object.freeze({})

function createScheme(auth: PeerAuth | undefined, fetch: GuardedFetch, peer: string): Scheme {
  if (auth === undefined) return { headers: () => nothing }
  if ('apiKey' in auth) return createApiKey(auth, peer)
  if ('oauth2' in auth) return createOAuth(auth.oauth2, fetch, peer)
  const { bearer } = auth
  if (typeof bearer === 'function') return createAskedBearer(bearer, peer)
  if (!isTokenText(bearer)) throw unusable(`bearer token of peer "${peer}"`)
  const headers = toBearer(bearer)
  return { headers: () => headers }
}

function toBearer(token: string): Fields {
  return Object.freeze({ authorization: `Bearer ${token}` })
}

function createAskedBearer(ask: () => string | Promise<string>, peer: string): Scheme {
  const failed = (what: string, cause?: unknown): ConvokeError =>
    new ConvokeError('unauthenticated', `The function for the bearer token of peer "${peer}" ${what}.`, { cause })
  const toHeaders = (token: unknown): Fields => {
    if (isTokenText(token)) return toBearer(token)
    throw failed('gave no token')
  }
  const toRejection = (error: unknown): Promise<never> =>
    Promise.reject(error instanceof ConvokeError ? error : failed('failed', error))
  let refusedAt = -Infinity
  return {
    headers(signal) {
      try {
        const token = ask()
        if (typeof token === 'string') return toHeaders(token)
        return unlessAborted(token, signal).then(toHeaders).catch(toRejection)
      } catch (error) {
        return toRejection(error)
      }
    },
    refused() {
      if (Date.now() - refusedAt < renewalGapMs) return false
      refusedAt = Date.now()
      return true
    },
  }
}

interface Place {
  readonly in: 'header' | 'query' | 'cookie'
  readonly name: string
}

function createApiKey({ apiKey, header = 'X-API-Key' }: { apiKey: string; header?: string }, peer: string): Scheme {
  if (!/^[\x20-\x7e]+$/.test(apiKey) || apiKey.trim() !== apiKey) throw unusable(`API key of peer "${peer}"`)
  const configured = toPlace('header', header)
  if (configured === undefined) {
    const name = JSON.stringify(header)
    throw new ConvokeError('config', `The API key of peer "${peer}" cannot be sent in a header named ${name}.`)
  }
  let headers = nothing
  let query = nothing
  const use = ({ in: kind, name }: Place): void => {
    headers = query = nothing
    if (kind === 'query') query = Object.freeze({ [name]: apiKey })
    else if (kind === 'header') headers = Object.freeze({ [name]: apiKey })
    else headers = Object.freeze({ cookie: `${name}=${toCookie(apiKey)}` })
  }
  use(configured)
  return { headers: () => headers, query: () => query, useCard: (card) => use(placeOnCard(card) ?? configured) }
}

/** Where a card wants an API key: as the first fitting scheme says that it requires, or else that it knows. */
function placeOnCard(card: JsonObject): Place | undefined {
  for (const { members } of securitySchemes(card)) {
    const { location, name } = membersOf(members['apiKeySecurityScheme'])
    const old = members['type'] === 'apiKey' ? toPlace(members['in'], members['name']) : undefined
    const place = toPlace(location, name) ?? old
    if (place !== undefined) return place
  }
  return undefined
}

/** Headers that say what a request is, or how it travels; a card that wants a key in one of them breaks the request. */
const takenHeaders =
  /^(host|content-.*|transfer-encoding|connection|keep-alive|upgrade|te|trailer|expect|accept(-.*)?|cookie|date|via|origin|user-agent|last-event-id|a2a-.*|proxy-.*|sec-.*)$/i

function toPlace(kind: unknown, name: unknown): Place | undefined {
  if (kind !== 'header' && kind !== 'query' && kind !== 'cookie') return undefined
  if (typeof name !== 'string' || !/^[\w!#$%&'*+.^`|~-]{1,128}$/.test(name)) return undefined
  if (kind === 'header' && takenHeaders.test(name)) return undefined
  return { in: kind, name }
}

/** A cookie has no way to quote. Most servers decode what is percent-encoded, so that is done where it must be. */
function toCookie(value: string): string {
  return /^[^\s",;\\]+$/.test(value) ? value : encodeURIComponent(value)
}

type OAuthOptions = Extract<PeerAuth, { oauth2: unknown }>['oauth2']

function createOAuth(options: OAuthOptions, fetch: GuardedFetch, peer: string): Scheme {
  checkClient(options, ` of peer "${peer}"`)
  return new TokenCache(async () => {
    try {
      return await requestClientToken(fetch, options)
    } catch (error) {
      const { message, retryable } = ConvokeError.from(error)
      throw new ConvokeError('unauthenticated', `No token for peer "${peer}": ${message}`, { cause: error, retryable })
    }
  })
}

/** For a token that does not say how long it lives: too short a guess costs a request, too long a one a 401. */
const defaultLifetimeMs = 300_000
/** How long a failure stands for the answer to the same question. */
const failureMs = 1_000
const renewalGapMs = 10_000

/** Keeps one token: one request for any number of callers, and none while the last one failed just now. */
class TokenCache implements Scheme {
  readonly #request: () => Promise<OAuthToken>
  #token: { readonly headers: Fields; readonly freshUntil: number } | undefined
  #pending: Promise<Fields> | undefined
  #failure: { readonly error: ConvokeError; readonly until: number } | undefined
  #refusedAt = -Infinity

  constructor(request: () => Promise<OAuthToken>) {
    this.#request = request
  }

  headers(signal?: AbortSignal): Fields | Promise<Fields> {
    if (this.#token !== undefined && Date.now() < this.#token.freshUntil) return this.#token.headers
    if (this.#failure !== undefined && Date.now() < this.#failure.until) return Promise.reject(this.#failure.error)
    this.#pending ??= this.#fetchToken().finally(() => (this.#pending = undefined))
    return unlessAborted(this.#pending, signal)
  }

  refused(sent?: Fields): boolean {
    const current = this.#token?.headers
    if (current === undefined) return true
    if (sent !== undefined && sent['authorization'] !== current['authorization']) return true
    // Without `sent`, the refused token may be the one before this.
    if (Date.now() - this.#refusedAt < renewalGapMs) return sent === undefined
    this.#refusedAt = Date.now()
    this.#token = undefined
    return true
  }

  async #fetchToken(): Promise<Fields> {
    const askedAt = Date.now()
    try {
      const { accessToken, expiresAt = Date.now() + defaultLifetimeMs } = await this.#request()
      const headers = toBearer(accessToken)
      this.#token = { headers, freshUntil: freshUntil(expiresAt, askedAt) }
      return headers
    } catch (error) {
      const known = ConvokeError.from(error)
      this.#failure = { error: known, until: Date.now() + failureMs }
      throw known
    }
  }
}

/** The promise, until the signal aborts; what happens to the promise then is seen to, so that nothing is left unhandled. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise
  return new Promise((resolve, reject) => {
    const stop = onAbort(signal, () => reject(abortReason(signal)))
    promise.then(resolve, reject).finally(stop)
  })
}
