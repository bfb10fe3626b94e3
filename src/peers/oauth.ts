/**
 * Tokens from an OAuth 2 authorization server: the client credentials, refresh token and device grants. The answers of
 * such a server are a stranger's words: they are checked, and what they say of a failure is stripped of secrets.
 */
import { abortReason, pause } from '../base/abort.ts'
import { createAddressMatcher } from '../base/address.ts'
import { ConvokeError } from '../base/errors.ts'
import type { GuardedFetch } from '../base/guarded-fetch.ts'
import { isObject, parseJson } from '../base/json.ts'

/** Who asks for tokens, and where. */
export interface OAuthClient {
  readonly tokenUrl: string
  readonly clientId: string
  /** Sent as HTTP Basic (`client_secret_basic`). Without one the client is a public one, and sends its id alone. */
  readonly clientSecret?: string
  readonly scopes?: readonly string[]
  /** Whom the token is for, at servers that ask for it. */
  readonly audience?: string
}

export interface OAuthToken {
  readonly accessToken: string
  /** When it ends, in milliseconds since 1970. Absent where the server does not say, which RFC 6749 only recommends. */
  readonly expiresAt?: number
  readonly refreshToken?: string
  /** What was granted, where the server says so or it was asked for. */
  readonly scopes?: readonly string[]
}

/** What a person has to do before {@link pollDeviceToken} gets a token. */
export interface DeviceGrant {
  readonly deviceCode: string
  readonly userCode: string
  readonly verificationUrl: string
  /** The same with the code in it. */
  readonly completeUrl?: string
  /** When the code ends, in milliseconds since 1970. */
  readonly expiresAt: number
  /** The least pause between two questions, in milliseconds. */
  readonly intervalMs: number
}

const requestTimeoutMs = 30_000
const maxAnswerBytes = 256 * 1024
/** RFC 8628, section 3.5: the interval where the server names none, and what `slow_down` adds to it. */
const defaultIntervalMs = 5_000
const slowDownMs = 5_000
/** How long a code is waited for where the server does not say, and at most. */
const defaultGrantMs = 900_000
const maxGrantMs = 86_400_000

/** A token for the client itself (RFC 6749, section 4.4). Throws `unauthenticated`, or the reason of the signal. */
export async function requestClientToken(
  fetch: GuardedFetch,
  client: OAuthClient,
  signal?: AbortSignal,
): Promise<OAuthToken> {
  const form = { grant_type: 'client_credentials', ...scopeOf(client), ...audienceOf(client) }
  return toToken(client, await post(fetch, client, client.tokenUrl, form, signal))
}

/**
 * A new token for one that ended (RFC 6749, section 6); the old refresh token stays good where the server sends no
 * other. Throws `unauthenticated`, retryable unless the server said no.
 */
export async function refreshToken(
  fetch: GuardedFetch,
  client: OAuthClient,
  token: string,
  signal?: AbortSignal,
): Promise<OAuthToken> {
  const form = { grant_type: 'refresh_token', refresh_token: token }
  return { refreshToken: token, ...toToken(client, await post(fetch, client, client.tokenUrl, form, signal), [token]) }
}

/** Begins a device grant (RFC 8628, section 3.1): answers what to show to the person. Throws `unauthenticated`. */
export async function requestDeviceGrant(
  fetch: GuardedFetch,
  client: OAuthClient,
  deviceUrl: string,
  signal?: AbortSignal,
): Promise<DeviceGrant> {
  // The endpoint knows public clients by the id in the form, and RFC 8628 wants it there from all of them.
  const form = { client_id: client.clientId, ...scopeOf(client), ...audienceOf(client) }
  const answer = await post(fetch, client, deviceUrl, form, signal)
  const { body } = answer
  if (body === undefined || answer.status !== 200 || isText(body['error'])) throw refusal(client, answer)
  const { device_code: deviceCode, user_code: userCode, verification_uri_complete: complete, interval } = body
  // Some servers wrote their answer after an early draft, which called it verification_url.
  const verificationUrl = body['verification_uri'] ?? body['verification_url']
  if (!isText(deviceCode) || !isPrintable(userCode) || !isWebUrl(verificationUrl)) {
    throw failed(answer.url, 'gave no device code, user code and verification URL')
  }
  return {
    deviceCode,
    userCode,
    verificationUrl,
    ...(isWebUrl(complete) ? { completeUrl: complete } : {}),
    expiresAt: Date.now() + Math.min(toLifetimeMs(body['expires_in']) ?? defaultGrantMs, maxGrantMs),
    intervalMs: typeof interval === 'number' && interval >= 0 ? interval * 1000 : defaultIntervalMs,
  }
}

/**
 * Asks until the person has decided (RFC 8628, sections 3.4 and 3.5). A server that cannot be reached, or is in trouble,
 * is asked again, less often. Throws `forbidden` if they said no, `timeout` when the code has ended, `unauthenticated`
 * for any other answer, and the reason of the signal when that aborts. Keeps the process alive.
 */
export async function pollDeviceToken(
  fetch: GuardedFetch,
  client: OAuthClient,
  grant: DeviceGrant,
  signal: AbortSignal,
): Promise<OAuthToken> {
  const { deviceCode, expiresAt } = grant
  const form = { grant_type: 'urn:ietf:params:oauth:grant-type:device_code', device_code: deviceCode }
  let { intervalMs } = grant
  for (;;) {
    await pause(Math.min(intervalMs, expiresAt - Date.now()), signal, { keepAlive: true })
    if (signal.aborted) throw abortReason(signal)
    if (Date.now() >= expiresAt) throw expired()
    try {
      const answer = await post(fetch, client, client.tokenUrl, form, signal)
      switch (answer.body?.['error']) {
        case 'authorization_pending':
          break
        case 'slow_down':
          intervalMs += slowDownMs
          break
        case 'access_denied':
          throw new ConvokeError('forbidden', 'The sign-in was declined.')
        case 'expired_token':
          throw expired()
        default:
          return toToken(client, answer, [deviceCode])
      }
    } catch (error) {
      if (signal.aborted || !(error instanceof ConvokeError && error.retryable)) throw error
      intervalMs += slowDownMs
    }
  }
}

function expired(): ConvokeError {
  return new ConvokeError('timeout', 'The code ended before it was confirmed. Sign in again.', { retryable: false })
}

const isLoopbackAddress = createAddressMatcher(['loopback'], 'loopback')

/** An endpoint that secrets may be sent to: https, or http on this machine. Throws `config` for any other. */
export function checkEndpoint(url: string, what: string): string {
  if (!URL.canParse(url)) throw new ConvokeError('config', `${what} is not a URL.`)
  const { protocol, hostname, username, password, hash } = new URL(url)
  if (username !== '' || password !== '' || hash !== '') {
    throw new ConvokeError('config', `${what} may not carry a user, a password or a fragment.`)
  }
  const host = hostname.replace(/^\[|\]$/g, '')
  const isLocal = host === 'localhost' || host.endsWith('.localhost') || isLoopbackAddress(host)
  if (protocol !== 'https:' && !(protocol === 'http:' && isLocal)) {
    throw new ConvokeError('config', `${what} must be https (or http on this machine); it is ${showUrl(url)}.`)
  }
  return url
}

/** Throws `config`, without the value, for what a request cannot carry. `whose` is put behind its name: ` of peer "bob"`. */
export function checkClient({ tokenUrl, clientId, clientSecret, scopes, audience }: OAuthClient, whose = ''): void {
  checkEndpoint(tokenUrl, `The tokenUrl${whose}`)
  const isPlain = (value: string): boolean => value !== '' && !/\p{Cc}/u.test(value)
  if (!isPlain(clientId)) throw unusable(`OAuth client id${whose}`)
  if (clientSecret !== undefined && !isPlain(clientSecret)) throw unusable(`OAuth client secret${whose}`)
  if (scopes !== undefined && !scopes.every(isTokenText)) throw unusable(`OAuth scope${whose}`)
  if (audience !== undefined && !isPlain(audience)) throw unusable(`OAuth audience${whose}`)
}

export function unusable(what: string): ConvokeError {
  const text = `The ${what} is empty, or has a character that a request cannot carry, such as a line break.`
  return new ConvokeError('config', text)
}

interface Answer {
  readonly url: string
  readonly status: number
  /** Undefined for an answer that is no JSON object. */
  readonly body: Record<string, unknown> | undefined
}

async function post(
  fetch: GuardedFetch,
  client: OAuthClient,
  url: string,
  form: Record<string, string>,
  signal: AbortSignal | undefined,
): Promise<Answer> {
  const { clientId, clientSecret } = client
  const headers = { accept: 'application/json', 'content-type': 'application/x-www-form-urlencoded' }
  const isPublic = clientSecret === undefined
  checkEndpoint(url, 'An OAuth endpoint')
  try {
    const { status, text } = await fetch.text(url, {
      method: 'POST',
      headers: isPublic ? headers : { ...headers, authorization: toBasic(clientId, clientSecret) },
      body: new URLSearchParams(isPublic ? { client_id: clientId, ...form } : form).toString(),
      timeoutMs: requestTimeoutMs,
      maxBytes: maxAnswerBytes,
      ...(signal === undefined ? {} : { signal }),
    })
    return { url, status, body: toObject(text) }
  } catch (error) {
    if (signal?.aborted === true) throw abortReason(signal)
    const { message, retryable } = ConvokeError.from(error)
    throw failed(url, `cannot be asked: ${message}`, { cause: error, retryable })
  }
}

/** What is wrong with the text stays unsaid: the text may be a token, and the parser's words quote it. */
function toObject(text: string): Record<string, unknown> | undefined {
  try {
    const value = parseJson(text)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** RFC 6749, section 2.3.1: both halves are form-encoded first, so that an id may hold a colon. */
function toBasic(id: string, secret: string): string {
  return `Basic ${Buffer.from(`${formEncode(id)}:${formEncode(secret)}`).toString('base64')}`
}

function formEncode(text: string): string {
  return new URLSearchParams({ '': text }).toString().slice(1)
}

function scopeOf({ scopes }: OAuthClient): Record<string, string> {
  return scopes === undefined || scopes.length === 0 ? {} : { scope: scopes.join(' ') }
}

function audienceOf({ audience }: OAuthClient): Record<string, string> {
  return audience === undefined ? {} : { audience }
}

function toToken(client: OAuthClient, answer: Answer, secrets: readonly string[] = []): OAuthToken {
  const { body, status, url } = answer
  // GitHub says no with status 200.
  if (body === undefined || status !== 200 || isText(body['error'])) throw refusal(client, answer, secrets)
  const { access_token: accessToken, token_type: type = 'Bearer', refresh_token: refresh, scope } = body
  if (!isTokenText(accessToken)) throw failed(url, 'gave no token')
  if (typeof type !== 'string' || type.toLowerCase() !== 'bearer') {
    throw failed(url, 'gave a token of another kind than Bearer')
  }
  const scopes = typeof scope === 'string' ? scope.split(' ').filter(isTokenText) : client.scopes
  const lifetimeMs = toLifetimeMs(body['expires_in'])
  return {
    accessToken,
    ...(lifetimeMs === undefined ? {} : { expiresAt: Date.now() + lifetimeMs }),
    ...(isText(refresh) ? { refreshToken: refresh } : {}),
    ...(scopes === undefined ? {} : { scopes }),
  }
}

/** More is as good as for ever, and soon no date any more. */
const maxLifetimeMs = 10 * 365 * 86_400_000

/** Some servers send the number as a text. */
function toLifetimeMs(seconds: unknown): number | undefined {
  const number = typeof seconds === 'string' && seconds !== '' ? Number(seconds) : seconds
  return typeof number === 'number' && number >= 0 ? Math.min(Math.round(number * 1000), maxLifetimeMs) : undefined
}

const marginMs = 30_000

/** Until when to use a token that was asked for then: 30 s before it ends, or a tenth of its life if that is shorter. */
export function freshUntil(expiresAt: number, askedAt: number): number {
  // A clock that was set back in between must not make it last longer.
  return expiresAt - Math.min(marginMs, Math.max(0, expiresAt - askedAt) / 10)
}

/** Whether a header can carry it: visible ASCII. */
export function isTokenText(value: unknown): value is string {
  return typeof value === 'string' && /^[\x21-\x7e]+$/.test(value)
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== ''
}

/** What is shown on a terminal may not steer it. */
function isPrintable(value: unknown): value is string {
  return isText(value) && !/[\p{Cc}\p{Cf}]/u.test(value)
}

function isWebUrl(value: unknown): value is string {
  return isPrintable(value) && URL.canParse(value) && /^https?:$/.test(new URL(value).protocol)
}

/** What the server said no with. */
function refusal(
  { clientId, clientSecret }: OAuthClient,
  { url, status, body }: Answer,
  sent: readonly string[] = [],
): ConvokeError {
  const retryable = status === 429 || status >= 500
  const { error, error_description: description } = body ?? {}
  if (!isPrintable(error)) {
    const what = body === undefined && status < 300 ? 'answered with no JSON' : `answered with HTTP status ${status}`
    const hint = status >= 300 && status < 400 ? '; redirects are not followed' : ''
    return failed(url, `${what}${hint}`, { retryable })
  }
  const said = [error, ...(isPrintable(description) ? [description] : [])].join(': ')
  const own = clientSecret === undefined ? [] : [clientSecret, toBasic(clientId, clientSecret).slice('Basic '.length)]
  return failed(url, `said no: ${redact(said, [...own, ...sent])}`, { retryable })
}

const maxWords = 300

/** A server may quote what it was sent, as it was sent or decoded. */
function redact(text: string, secrets: readonly string[]): string {
  const forms = secrets.flatMap((secret) => [secret, formEncode(secret)])
  const clean = forms.reduce((left, form) => left.replaceAll(form, '[redacted]'), text)
  return clean.length > maxWords ? `${clean.slice(0, maxWords)}…` : clean
}

function failed(
  url: string,
  what: string,
  options: { readonly cause?: unknown; readonly retryable?: boolean } = {},
): ConvokeError {
  return new ConvokeError(
    'unauthenticated',
    `The authorization server at ${showUrl(url)} ${what}`.replace(/\.?$/, '.'),
    options,
  )
}

/** Without its query, which may hold anything. */
function showUrl(url: string): string {
  const { origin, pathname, protocol } = new URL(url)
  return origin === 'null' ? protocol : `${origin}${pathname}`
}
