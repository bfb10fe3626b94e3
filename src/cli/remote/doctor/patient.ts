/** The peer that is examined: what is known of it, and raw requests to it, as no client would send them. */
import type { Answer, BodyStream, GuardedFetch, GuardedRequest } from '../../../base/guarded-fetch.ts'
import { isObject, parseJson, type JsonObject } from '../../../base/json.ts'
import { interfacesOf, type CardInterface } from '../../../peers/card-resolver.ts'
import { PeerClient } from '../../../peers/client.ts'
import { createCredentials, type Credentials } from '../../../peers/credentials.ts'
import { originOf, type WireLine } from '../../../peers/link.ts'
import type { PeerOptions } from '../../../peers/peer.ts'
import { clip } from '../../../tools/value.ts'
import type { Findings } from './findings.ts'

export interface PatientOptions {
  readonly options: PeerOptions
  readonly fetch: GuardedFetch
  readonly signal: AbortSignal
  readonly findings: Findings
  /** Hears of each raw request and answer; no credentials are in it. */
  readonly onWire: (line: WireLine) => void
}

export interface RawRequest {
  readonly method: 'GET' | 'POST'
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** Send no credentials. Default: those there are. */
  readonly bare?: boolean
  readonly maxRedirects?: number
}

export type RawAnswer = Answer & { readonly text: string }

/** How long one request may take, in milliseconds. */
const requestTimeoutMs = 20_000
const peerId = 'peer'
/** Characters of a body that --debug shows. */
const maxShown = 2_000

export class Patient {
  readonly options: PeerOptions
  readonly findings: Findings
  readonly signal: AbortSignal
  readonly #fetch: GuardedFetch
  readonly #credentials: Credentials
  readonly #onWire: (line: WireLine) => void
  /** Set once the card was found. */
  card: JsonObject = {}
  /** Where it was found. */
  cardUrl: string

  constructor({ options, fetch, signal, findings, onWire }: PatientOptions) {
    this.options = options
    this.findings = findings
    this.signal = signal
    this.#fetch = fetch
    this.#onWire = onWire
    this.#credentials = createCredentials(options.auth, originOf(options.url), fetch, peerId)
    this.cardUrl = options.url
  }

  get hasCredentials(): boolean {
    return this.options.auth !== undefined
  }

  useCard(card: JsonObject, url: string): void {
    this.card = card
    this.cardUrl = url
    this.#credentials.useCard(card)
  }

  /** Ways in that may be used: those on the origin of the card, and those that the configuration allows. */
  get interfaces(): CardInterface[] {
    const { allowOrigins = [], url } = this.options
    const origins = new Set([url, this.cardUrl, ...allowOrigins].map(originOf))
    return interfacesOf(this.card).filter((each) => origins.has(originOf(each.url)))
  }

  /** Whatever is answered, whole. Throws what the network does. */
  async request(url: string, request: RawRequest): Promise<RawAnswer> {
    return this.#heard(url, request, (target, guarded) => this.#fetch.text(target, guarded))
  }

  /** An answer as it comes. */
  async open(url: string, request: RawRequest): Promise<Answer & { readonly body: BodyStream }> {
    return this.#heard(url, request, (target, guarded) => this.#fetch.open(target, guarded))
  }

  /** A client that knows this one way in. Close it. */
  client(way: CardInterface, onWire?: (line: WireLine) => void, bare = false): PeerClient {
    const { auth, headers } = this.options
    const card = {
      ...this.card,
      supportedInterfaces: [
        { url: way.url, protocolBinding: way.binding, protocolVersion: way.version, tenant: way.tenant ?? '' },
      ],
      url: null,
      protocolVersion: null,
      additionalInterfaces: null,
    }
    return new PeerClient({
      id: peerId,
      url: this.options.url,
      card,
      fetch: this.#fetch.share(),
      requestTimeoutMs,
      ...(headers === undefined ? {} : { headers }),
      onWire: (line) => {
        this.#onWire(line)
        onWire?.(line)
      },
      ...(auth === undefined || bare ? {} : { auth }),
    })
  }

  async #heard<Given extends Answer>(
    url: string,
    request: RawRequest,
    send: (target: string, guarded: GuardedRequest) => Promise<Given>,
  ): Promise<Given> {
    const { method, body, maxRedirects, bare = false } = request
    const origin = originOf(url)
    const own = origin === originOf(this.options.url) ? (this.options.headers ?? {}) : {}
    const secret = bare ? {} : await this.#credentials.headers(origin, this.signal)
    const target = new URL(url)
    const query = bare ? {} : this.#credentials.query(origin)
    for (const [name, value] of Object.entries(query)) target.searchParams.set(name, value)
    this.#onWire({ direction: 'out', method, url, ...(body === undefined ? {} : { text: clip(body, maxShown) }) })
    const answer = await send(target.href, {
      method,
      headers: { ...own, ...secret, ...request.headers },
      timeoutMs: requestTimeoutMs,
      signal: this.signal,
      ...(body === undefined ? {} : { body }),
      ...(maxRedirects === undefined ? {} : { maxRedirects }),
    })
    this.#onWire({ direction: 'in', url, status: answer.status })
    return answer
  }
}

/** A text as JSON; undefined where it is none. */
export function jsonOf(text: string): unknown {
  try {
    return parseJson(text)
  } catch {
    return undefined
  }
}

/** A header as one text; empty where it is not there. */
export function headerOf({ headers }: Answer, name: string): string {
  return [headers[name] ?? ''].flat().join(', ')
}

/** An object's member that is an object; an empty one else. */
export function part(value: unknown, key: string): Record<string, unknown> {
  const member = isObject(value) ? value[key] : undefined
  return isObject(member) ? member : {}
}
