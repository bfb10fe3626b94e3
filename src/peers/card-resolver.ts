/**
 * Agent cards of others: fetched raw, because typed parsers drop the schemas on skills, kept as long as the peer says,
 * and asked for again with their ETag.
 */
import { ConvokeError } from '../base/errors.ts'
import { isObject, parseJson, type JsonObject } from '../base/json.ts'
import { stripControls } from '../base/text.ts'
import { fromAgentCard, fromToolEntries, type ToolDescriptor } from '../protocol/card.ts'
import { clip, excerpt } from '../tools/value.ts'
import { PeerError } from './errors.ts'
import { originOf, type Answer, type Exchange, type Link } from './link.ts'
import type { Binding, PeerInfo, PeerVersion } from './peer.ts'
import { SharedWork } from '../base/shared-work.ts'

export const cardPath = '/.well-known/agent-card.json'
/** Where cards were before A2A 0.3. */
const oldCardPath = '/.well-known/agent.json'

/** Largest card, and largest page of a list of tools, in bytes. */
const maxCardBytes = 16 * 1024 * 1024
/** Interfaces that are looked at on a card. */
const maxInterfaces = 100
/** Pages of a list of tools; 200 tools each here. */
const maxPages = 500
/** All pages of a list together, in characters. */
const maxListLength = 64 * 1024 * 1024
/** How often a list is begun anew when a page token has lost its meaning, because the tools changed meanwhile. */
const maxListings = 3
const longestMaxAgeMs = 24 * 3_600_000

export interface CardResolverOptions {
  readonly peer: string
  /** The agent's base URL, or the URL of its card. */
  readonly url: string
  readonly link: Link
  /** A card that is at hand; nothing is fetched. */
  readonly card?: JsonObject | undefined
}

interface Cached {
  readonly card: JsonObject
  /** Behind redirects. */
  readonly url: string
  /** Before them: where it is asked for again, because redirects change. */
  readonly askedAt: string
  readonly etag: string | undefined
  readonly lastModified: string | undefined
  readonly freshUntil: number
}

/** One way into a peer, as its card tells it. */
export interface CardInterface {
  readonly url: string
  readonly binding: Binding
  readonly version: PeerVersion
  readonly tenant?: string
}

export class CardResolver {
  readonly #options: CardResolverOptions
  #cached: Cached | undefined
  readonly #fetching = new SharedWork<Cached>()

  constructor(options: CardResolverOptions) {
    this.#options = options
  }

  /** Where the card was found, behind redirects; where it is looked for, until then. */
  get url(): string {
    return this.#cached?.url ?? this.#candidates()[0] ?? this.#options.url
  }

  /**
   * The card as raw JSON. One that is fresh by the peer's Cache-Control comes without a request, unless `again`; any
   * other is asked for with If-None-Match. However many ask at the same time, one request goes out.
   * Throws PeerError: `not_found` without a card, `peer_failed` for one that is none.
   */
  async card(exchange: Exchange, again = false): Promise<JsonObject> {
    if (this.#options.card !== undefined) return this.#options.card
    if (!again && this.#cached !== undefined && Date.now() < this.#cached.freshUntil) return this.#cached.card
    const found = await this.#fetching.run((signal) => this.#fetch({ ...exchange, signal }), exchange.signal)
    return found.card
  }

  /** The card, and the tools on it with their schemas, from the list at its `tools_url` where it names one. */
  async tools(exchange: Exchange, again = false): Promise<{ card: JsonObject; tools: readonly ToolDescriptor[] }> {
    const card = await this.card(exchange, again)
    const { tools, toolsUrl } = fromAgentCard(card)
    if (toolsUrl === undefined) return { card, tools }
    const listed = await this.#list(toolsUrl, withDeadline(exchange))
    return { card, tools: tools.map((tool) => listed.get(tool.name) ?? tool) }
  }

  async #fetch(exchange: Exchange): Promise<Cached> {
    const { peer } = this.#options
    const cached = this.#cached
    // Where it was the last time comes first; an agent that is brought up to date moves its card to the other path.
    const candidates = this.#candidates().toSorted(
      (a, b) => Number(b === cached?.askedAt) - Number(a === cached?.askedAt),
    )
    let missing: PeerError | undefined
    for (const url of candidates) {
      const known = url === cached?.askedAt ? cached : undefined
      let answer = await this.#get(url, exchange, known)
      // A redirect leads somewhere else now, and its ETag means nothing there.
      if (answer.status === 304 && answer.url !== known?.url) answer = await this.#get(url, exchange, undefined)
      if (answer.status === 304 && known !== undefined) {
        return (this.#cached = { ...known, freshUntil: freshUntil(answer) })
      }
      if (answer.status === 200) return (this.#cached = this.#toCached(answer, url))
      const failure = this.#options.link.failure(answer.status, answer.text, answer.headers)
      // Only one that is not there may be somewhere else.
      if (answer.status !== 404 && answer.status !== 410) throw failure
      missing ??= new PeerError(
        'not_found',
        peer,
        `There is no agent card at ${shown(url)} (${answer.status}). Is this the URL of an agent?`,
        {
          kind: 'protocol',
          httpStatus: answer.status,
        },
      )
    }
    throw missing ?? new PeerError('not_found', peer, 'There is no agent card.')
  }

  #get(url: string, exchange: Exchange, cached: Cached | undefined): Promise<Answer> {
    return this.#options.link.text(
      url,
      {
        method: 'GET',
        headers: {
          accept: 'application/json',
          'accept-encoding': 'gzip',
          ...(cached?.etag === undefined ? {} : { 'if-none-match': cached.etag }),
          ...(cached?.lastModified === undefined ? {} : { 'if-modified-since': cached.lastModified }),
        },
        maxRedirects: 3,
        maxBytes: maxCardBytes,
      },
      exchange,
    )
  }

  #toCached(answer: Answer, askedAt: string): Cached {
    const { peer, link } = this.#options
    const url = clip(link.redact(shown(answer.url)), maxShown)
    let card: unknown
    try {
      card = parseJson(answer.text)
    } catch (cause) {
      const why = /^\s*</.test(answer.text) ? 'is a page of HTML' : whyNotJson(cause)
      throw new PeerError('peer_failed', peer, `Its agent card (${url}) ${why}.`, { cause })
    }
    if (!isObject(card) || typeof card['name'] !== 'string') {
      throw new PeerError('peer_failed', peer, `What stands at ${url} is no agent card: it has no name.`)
    }
    const { etag, 'last-modified': lastModified } = answer.headers
    return {
      card: card as JsonObject,
      url: answer.url,
      askedAt,
      etag: typeof etag === 'string' ? etag : undefined,
      lastModified: typeof lastModified === 'string' ? lastModified : undefined,
      freshUntil: freshUntil(answer),
    }
  }

  #candidates(): string[] {
    const { url } = this.#options
    if (isCardUrl(url) || !URL.canParse(url)) return [url]
    return [cardPath, oldCardPath].map((path) => {
      const candidate = new URL(url)
      candidate.pathname = candidate.pathname.replace(/\/$/, '') + path
      candidate.hash = ''
      return candidate.href
    })
  }

  /** The tools of the list, by name. */
  async #list(toolsUrl: string, limits: () => Exchange): Promise<Map<string, ToolDescriptor>> {
    // A card may name any URL; the list must stand where the card stands.
    if (originOf(toolsUrl) !== originOf(this.url)) {
      const text = `Its card names a list of tools on another origin (${clip(toolsUrl, maxShown)}), which is not asked.`
      throw new PeerError('forbidden', this.#options.peer, text, { kind: 'protocol' })
    }
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#pages(toolsUrl, limits)
      } catch (error) {
        const isStale = error instanceof PeerError && error.code === 'invalid_params'
        if (!isStale || attempt === maxListings) throw error
      }
    }
  }

  async #pages(toolsUrl: string, limits: () => Exchange): Promise<Map<string, ToolDescriptor>> {
    const { peer, link } = this.#options
    const tools = new Map<string, ToolDescriptor>()
    let length = 0
    let token = ''
    for (let page = 0; page < maxPages; page++) {
      const url = new URL(toolsUrl)
      if (token !== '') url.searchParams.set('page_token', token)
      const request = { method: 'GET', headers: { accept: 'application/json' }, maxBytes: maxCardBytes } as const
      const answer = await link.text(url.href, request, limits())
      if (answer.status !== 200) throw link.failure(answer.status, answer.text, answer.headers)
      length += answer.text.length
      if (length > maxListLength) throw new PeerError('too_large', peer, 'Its list of tools is too long to be read.')
      let body: unknown
      try {
        body = parseJson(answer.text)
      } catch (cause) {
        throw new PeerError('peer_failed', peer, `Its list of tools ${whyNotJson(cause)}.`, { cause })
      }
      for (const tool of fromToolEntries(body)) tools.set(tool.name, tool)
      const next: unknown = isObject(body) ? body['next_page_token'] : undefined
      if (typeof next !== 'string' || next === '' || next === token) break
      token = next
    }
    return tools
  }
}

/** How much of a stranger's URL or name is shown, and how much of other words on a card. */
const maxShown = 200
const maxShownWords = 300

/** Gives each of many requests what is left of the time of all. */
function withDeadline(exchange: Exchange): () => Exchange {
  const { timeoutMs } = exchange
  if (timeoutMs === undefined) return () => exchange
  const deadline = Date.now() + timeoutMs
  return () => ({ ...exchange, timeoutMs: Math.max(1, deadline - Date.now()) })
}

function whyNotJson(error: unknown): string {
  const isDeep = error instanceof ConvokeError && error.message.includes('deeper')
  return isDeep ? 'nests too deep to be read' : 'is not valid JSON, or is cut off'
}

/** Without its query, which may hold a secret. */
function shown(url: string): string {
  const { origin, pathname } = new URL(url)
  return origin + pathname
}

export function isCardUrl(url: string): boolean {
  return URL.canParse(url) && new URL(url).pathname.endsWith('.json')
}

/** What `Cache-Control` allows, a day at most; without it the next question goes out again. */
function freshUntil({ headers }: Answer): number {
  const control = String(headers['cache-control'] ?? '')
  if (/\b(no-store|no-cache)\b/i.test(control)) return 0
  const seconds = /\bmax-age=(\d{1,9})\b/i.exec(control)?.[1]
  return seconds === undefined ? 0 : Date.now() + Math.min(Number(seconds) * 1000, longestMaxAgeMs)
}

/** The ways into the agent that its card lists and that can be spoken here, in the card's order; a hundred at most. */
export function interfacesOf(card: JsonObject): CardInterface[] {
  const found = new Map<string, CardInterface>()
  const add = (url: unknown, binding: unknown, version: unknown, tenant?: unknown): void => {
    const spoken = toVersion(version)
    if (typeof url !== 'string' || !URL.canParse(url) || spoken === undefined) return
    if (binding !== 'JSONRPC' && binding !== 'HTTP+JSON') return
    const key = `${binding} ${spoken} ${url}`
    if (found.has(key)) return
    found.set(key, {
      url,
      binding,
      version: spoken,
      ...(typeof tenant === 'string' && tenant !== '' ? { tenant } : {}),
    })
  }
  const listed = listOf(card['supportedInterfaces'])
  for (const each of listed) {
    if (isObject(each)) add(each['url'], each['protocolBinding'], each['protocolVersion'] ?? '1.0', each['tenant'])
  }
  // What 0.3 says, where the card does not say it in the words of 1.0 already.
  const legacy = card['protocolVersion'] ?? (listed.length === 0 ? '0.3' : undefined)
  if (legacy !== undefined && typeof card['url'] === 'string') {
    add(card['url'], card['preferredTransport'] ?? 'JSONRPC', legacy)
    for (const each of listOf(card['additionalInterfaces'])) {
      if (isObject(each)) add(each['url'], each['transport'], legacy)
    }
  }
  return [...found.values()]
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value.slice(0, maxInterfaces) : []
}

/** 1.x is 1.0 on the wire; 0.2 is close enough to 0.3. */
function toVersion(version: unknown): PeerVersion | undefined {
  if (typeof version !== 'string') return undefined
  if (/^1(\.|$)/.test(version)) return '1.0'
  return /^0\.[23](\.|$)/.test(version) ? '0.3' : undefined
}

export interface Choice {
  readonly bindings: readonly Binding[]
  readonly versions: readonly PeerVersion[]
  /** Take the card's order of bindings before ours. */
  readonly cardOrder: boolean
  /** Whether an interface may stand at this URL. */
  readonly isAllowed: (url: string) => boolean
}

/** The interface to speak to. Throws PeerError that says what there is and why none of it will do. */
export function chooseInterface(peer: string, card: JsonObject, choice: Choice): CardInterface {
  const all = interfacesOf(card)
  const allowed = all.filter(({ url }) => choice.isAllowed(url))
  const versions = choice.versions
  for (const version of versions) {
    const ofVersion = allowed.filter((each) => each.version === version && choice.bindings.includes(each.binding))
    const [first] = choice.cardOrder
      ? ofVersion
      : ofVersion.toSorted((a, b) => choice.bindings.indexOf(a.binding) - choice.bindings.indexOf(b.binding))
    if (first !== undefined) return first
  }
  if (all.length > 0 && allowed.length === 0) {
    const origins = clip([...new Set(all.map(({ url }) => new URL(url).origin))].join(', '), maxShownWords)
    const text = `Its card names interfaces on another origin only (${origins}), which is refused; allow it by allowOrigins if it is meant.`
    throw new PeerError('forbidden', peer, text, { kind: 'protocol' })
  }
  const shown = describeInterfaces(card)
  const wanted = `${versions.join(' or ')} over ${choice.bindings.join(' or ')}`
  throw new PeerError('version_not_supported', peer, `It offers ${shown}; this side speaks A2A ${wanted}.`)
}

function describeInterfaces(card: JsonObject): string {
  const listed = [card['supportedInterfaces'], card['additionalInterfaces']].flatMap(listOf)
  const words = listed.flatMap((each) => {
    if (!isObject(each)) return []
    const { protocolBinding = each['transport'], protocolVersion = card['protocolVersion'] } = each
    return [[protocolBinding, protocolVersion].filter((word) => typeof word === 'string').join(' ')]
  })
  if (words.length === 0 && card['protocolVersion'] !== undefined) return `A2A ${excerpt(card['protocolVersion'])}`
  return words.length === 0 ? 'no interface' : clip([...new Set(words)].join(', '), maxShownWords)
}

/** What the card says that is not a matter of choice. */
export function toPeerInfo(
  card: JsonObject,
  { url, binding, version, tenant }: CardInterface,
  hasTools: boolean,
): PeerInfo {
  const capabilities = isObject(card['capabilities']) ? card['capabilities'] : {}
  return {
    name: typeof card['name'] === 'string' ? clip(stripControls(card['name']), maxShown) : '',
    version,
    binding,
    url,
    ...(tenant === undefined ? {} : { tenant }),
    streaming: capabilities['streaming'] === true,
    pushNotifications: capabilities['pushNotifications'] === true,
    convoke: hasTools,
  }
}

/** A card from somebody's hands rather than a URL. Throws `invalid_params`. */
export function checkCard(card: unknown): JsonObject {
  if (isObject(card) && typeof card['name'] === 'string') return card as JsonObject
  throw new ConvokeError('invalid_params', 'This is no agent card: it must be an object with a name.')
}
