/**
 * HTTP to one peer: every request gets the credentials that belong to its origin, and every failure becomes a PeerError
 * without them. The transports say what is asked; this says how it travels.
 */
import type { BodyStream, GuardedFetch, GuardedRequest } from '../base/guarded-fetch.ts'
import { ConvokeError } from '../base/errors.ts'
import { extensionUri } from '../protocol/extension.ts'
import type { Credentials } from './credentials.ts'
import { fromAnswer, PeerError } from './errors.ts'

/** What one request may cost, and who may stop it. */
export interface Exchange {
  readonly signal?: AbortSignal | undefined
  /** For the whole answer; for a stream up to its headers. In milliseconds. */
  readonly timeoutMs?: number | undefined
  /** Hears that the request goes out now; not called where it never does. */
  readonly onSent?: (() => void) | undefined
  /** For streams: the seq of the last event that is at hand. */
  readonly lastEventId?: number | undefined
}

export interface LinkRequest {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly headers?: Record<string, string>
  readonly body?: string
  readonly maxRedirects?: number
  /** Default: 64 MiB. */
  readonly maxBytes?: number
}

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Behind redirects. */
  readonly url: string
  readonly text: string
}

/** One line of the wire, for those who look for a fault. Credentials are not in it. */
export interface WireLine {
  readonly direction: 'out' | 'in'
  readonly method?: string
  readonly url: string
  readonly status?: number
  readonly text?: string
}

export interface LinkOptions {
  readonly peer: string
  readonly fetch: GuardedFetch
  readonly credentials: Credentials
  /** The origin that the credentials and headers are for, as {@link originOf} gives it. */
  readonly home: string
  readonly headers: Readonly<Record<string, string>>
  readonly onWire: ((line: WireLine) => void) | undefined
}

/** Largest answer that is not a stream, in bytes. */
const maxAnswerBytes = 64 * 1024 * 1024
/** How much of an answer that tells a failure is read. */
const maxErrorBytes = 1024 * 1024
/** A shorter one is found in any text. */
const shortestSecret = 6
/** Tokens are renewed now and then. */
const keptSecrets = 8

/** What lets a request in. */
interface Admission {
  readonly target: string
  readonly headers: Record<string, string>
  /** Those of the headers that are credentials. */
  readonly secret: Readonly<Record<string, string>>
}

export class Link {
  readonly #options: LinkOptions
  readonly #ownSecrets: Readonly<Record<string, string>>
  /** What was sent to be let in, newest first, each in all its spellings. */
  #secrets: (readonly string[])[] = []
  #lastUrl = ''
  #lastOrigin = ''

  constructor(options: LinkOptions) {
    this.#options = options
    this.#ownSecrets = Object.fromEntries(Object.entries(options.headers).filter(([name]) => secretHeader.test(name)))
  }

  /** The whole answer, whatever its status. */
  async text(url: string, request: LinkRequest, exchange: Exchange): Promise<Answer> {
    const { maxBytes = maxAnswerBytes, maxRedirects } = request
    const limits = { maxBytes, ...(maxRedirects === undefined ? {} : { maxRedirects }) }
    const answer = await this.#send(url, request, exchange, (target, outgoing) =>
      this.#options.fetch.text(target, { ...outgoing, ...limits }),
    )
    this.#wire({ direction: 'in', url, status: answer.status, text: answer.text })
    return answer
  }

  /** An answer as it comes. One that is no success is thrown as the error it tells. */
  async open(
    url: string,
    request: LinkRequest,
    exchange: Exchange,
  ): Promise<{ contentType: string; body: BodyStream }> {
    const { lastEventId, timeoutMs } = exchange
    const accepting = {
      ...request.headers,
      accept: 'text/event-stream, application/json',
      ...(lastEventId === undefined ? {} : { 'last-event-id': String(lastEventId) }),
    }
    const { status, headers, body } = await this.#send(
      url,
      { ...request, headers: accepting },
      exchange,
      (target, outgoing) => this.#options.fetch.open(target, outgoing),
    )
    this.#wire({ direction: 'in', url, status })
    if (status === 200) return { contentType: String(headers['content-type'] ?? ''), body }
    try {
      throw this.failure(status, await body.text(maxErrorBytes, timeoutMs), headers)
    } catch (error) {
      throw this.#failed(error)
    }
  }

  /** Sends with the credentials that belong to the URL. A 401 is tried again once where other ones can be had. */
  async #send<Given extends { readonly status: number; readonly body?: BodyStream }>(
    url: string,
    { method, body, headers: own }: LinkRequest,
    { timeoutMs, signal, onSent }: Exchange,
    go: (target: string, request: GuardedRequest) => Promise<Given>,
  ): Promise<Given> {
    try {
      for (let isFirst = true; ; isFirst = false) {
        const given = this.#credentials(url, signal)
        const { target, headers, secret } = given instanceof Promise ? await given : given
        this.#wire({ direction: 'out', method, url, ...(body === undefined ? {} : { text: body }) })
        const answer = await go(target, {
          method,
          headers: { ...headers, ...own },
          ...(body === undefined ? {} : { body }),
          ...(timeoutMs === undefined ? {} : { timeoutMs }),
          ...(signal === undefined ? {} : { signal }),
          ...(onSent === undefined ? {} : { onSent }),
        })
        if (!isFirst || answer.status !== 401 || !this.#options.credentials.refused(secret)) return answer
        answer.body?.cancel()
      }
    } catch (error) {
      throw this.#failed(error)
    }
  }

  /** An answer that is no success as the error it tells, without our credentials should the peer have said them. */
  failure(status: number, text: string, headers: Answer['headers']): PeerError {
    const retryAfter = headers['retry-after']
    return fromAnswer(
      this.#options.peer,
      status,
      this.redact(text),
      typeof retryAfter === 'string' ? retryAfter : undefined,
    )
  }

  /** A peer may say back what it was sent; credentials are taken out. */
  redact(text: string): string {
    let safe = text
    for (const spelling of this.#secrets.flat()) safe = safe.replaceAll(spelling, '[redacted]')
    return safe
  }

  wireIn(url: string, text: string): void {
    if (this.#options.onWire !== undefined) this.#wire({ direction: 'in', url, text })
  }

  #credentials(url: string, signal: AbortSignal | undefined): Admission | Promise<Admission> {
    const { credentials, home } = this.#options
    // Nearly all requests go to the same URL, and to take one apart costs as much as a tenth of the request.
    if (url !== this.#lastUrl) {
      this.#lastUrl = url
      this.#lastOrigin = originOf(url)
    }
    const origin = this.#lastOrigin
    const own = origin === home ? this.#options.headers : {}
    const query = credentials.query(origin)
    const given = credentials.headers(origin, signal)
    const put = (secret: Readonly<Record<string, string>>) => {
      this.#remember(secret)
      this.#remember(query)
      if (origin === home) this.#remember(this.#ownSecrets)
      return { target: withQuery(url, query), headers: { 'a2a-extensions': extensionUri, ...own, ...secret }, secret }
    }
    return given instanceof Promise ? given.then(put) : put(given)
  }

  #remember(values: Readonly<Record<string, string>>): void {
    for (const name in values) {
      const value = values[name] ?? ''
      // Behind the scheme of `authorization`, or the name of a cookie.
      const secret = /^authorization$/i.test(name)
        ? value.slice(value.indexOf(' ') + 1)
        : name === 'cookie'
          ? value.slice(value.indexOf('=') + 1)
          : value
      if (secret.length < shortestSecret || this.#secrets[0]?.[0] === secret) continue
      const others = this.#secrets.filter(([known]) => known !== secret)
      this.#secrets = [spellingsOf(secret), ...others].slice(0, keptSecrets)
    }
  }

  #wire(line: WireLine): void {
    const { onWire } = this.#options
    if (onWire === undefined) return
    onWire(line.text === undefined ? line : { ...line, text: this.redact(line.text) })
  }

  #failed(error: unknown): unknown {
    if (!(error instanceof ConvokeError) || error instanceof PeerError) return error
    const { code, message, retryable, retryAfterMs } = error
    return new PeerError(code, this.#options.peer, this.redact(message), {
      retryable,
      // It says whether anything was sent.
      cause: error,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    })
  }
}

/** An origin to compare by: the names of the loopback are one. Empty for what is no URL. */
export function originOf(url: string): string {
  if (!URL.canParse(url)) return ''
  const { protocol, hostname, port } = new URL(url)
  const isLoopback = hostname === 'localhost' || hostname === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(hostname)
  return `${protocol}//${isLoopback ? 'localhost' : hostname}${port === '' ? '' : `:${port}`}`
}

/** A secret as it stands in headers, in URLs, in forms and in JSON. */
function spellingsOf(secret: string): string[] {
  const form = new URLSearchParams({ '': secret }).toString().slice(1)
  return [...new Set([secret, encodeURIComponent(secret), form, JSON.stringify(secret).slice(1, -1)])]
}

/** Names of headers whose values are nobody's business. */
const secretHeader = /auth|key|token|secret|password|cookie/i

function withQuery(url: string, query: Readonly<Record<string, string>>): string {
  const entries = Object.entries(query)
  if (entries.length === 0) return url
  const target = new URL(url)
  for (const [name, value] of entries) target.searchParams.set(name, value)
  return target.href
}
