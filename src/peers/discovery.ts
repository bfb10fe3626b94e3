/** When peers are asked for their tools: at the start, every now and then, and those that a directory lists. */
import { isObject, parseJson } from '../base/json.ts'
import type { GuardedFetch } from '../base/guarded-fetch.ts'
import { inTurns } from '../base/in-turns.ts'
import type { Logger } from '../base/logger.ts'
import { maxTimerMs } from '../base/timer.ts'
import type { ClientManager } from './client-manager.ts'
import { isCardUrl } from './card-resolver.ts'
import type { PeerOptions } from './peer.ts'
import type { RemoteToolRegistry } from './remote-registry.ts'

export interface DiscoveryOptions {
  /** How often all peers are asked again, in milliseconds, 24 days at most; 0 never. Default: 0. */
  readonly intervalMs?: number
  /** Ask all peers, and start all MCP servers, when the node starts. Default: false, each is looked at with the first call to it. */
  readonly startup?: boolean
  /**
   * URLs of agent cards, or of JSON lists of them, in which to find peers. They are read when the node starts, and with
   * every round of discovery; agents that leave a list are forgotten. Default: none.
   */
  readonly directory?: readonly string[]
  /** Let the directory name addresses that are not of the public internet. Default: false. */
  readonly allowPrivate?: boolean
}

export interface DiscoveryServices {
  readonly clients: ClientManager
  readonly registry: RemoteToolRegistry
  /** The URLs of this node itself: a directory may list it, and it is no peer of its own. Asked once it listens. */
  readonly ownUrls: () => readonly string[]
  /** For the directory's own documents. */
  readonly fetch: GuardedFetch
  readonly log: Logger
}

/** How many peers are asked at the same time. */
const concurrency = 10
const firstScanMs = 5_000
const listTimeoutMs = 30_000
const maxListBytes = 16 * 1024 * 1024
/** Most agents that are taken from one directory. */
const maxListed = 1_000

/** A peer as a directory names it. */
interface Listing {
  readonly id?: string
  readonly url: string
}

/** A peer of ours that a directory named. */
interface Listed {
  readonly id: string
  readonly options: PeerOptions
}

export class Discovery {
  readonly #options: DiscoveryOptions
  readonly #services: DiscoveryServices
  readonly #stop = new AbortController()
  /** What each directory said when it could last be read. */
  readonly #directories = new Map<string, readonly Listing[]>()
  /** Peers of the directories, by {@link baseOf} their URL. */
  readonly #listed = new Map<string, Listed>()
  #timer: NodeJS.Timeout | undefined
  #scanning: Promise<void> | undefined

  constructor(options: DiscoveryOptions, services: DiscoveryServices) {
    this.#options = options
    this.#services = services
  }

  /** Begins what the options say. Nobody waits for it. */
  start(): void {
    const { startup = false, directory = [] } = this.#options
    const intervalMs = Math.min(this.#options.intervalMs ?? 0, maxTimerMs)
    if (startup) void this.scan()
    else if (directory.length > 0) void this.#once(() => this.#readDirectories())
    if (intervalMs > 0) this.#schedule(startup ? intervalMs : Math.min(firstScanMs, intervalMs), intervalMs)
  }

  /** Asks the directories and then all peers, a few at a time. A peer that fails keeps its tools, and stops no other. Never rejects. */
  scan(): Promise<void> {
    return this.#once(async () => {
      await this.#readDirectories()
      await this.#askPeers()
    })
  }

  /** Ends a scan under way, and begins no further one. */
  async close(): Promise<void> {
    this.#stop.abort()
    clearTimeout(this.#timer)
    await this.#scanning
  }

  #schedule(firstMs: number, intervalMs: number): void {
    this.#timer = setTimeout(() => {
      void this.scan().then(() => {
        if (!this.#stop.signal.aborted) this.#schedule(intervalMs, intervalMs)
      })
    }, firstMs)
    this.#timer.unref()
  }

  /** Whoever comes while something is under way waits for that. */
  #once(work: () => Promise<void>): Promise<void> {
    this.#scanning ??= work().finally(() => {
      this.#scanning = undefined
    })
    return this.#scanning
  }

  async #askPeers(): Promise<void> {
    const { clients, registry } = this.#services
    await inTurns(clients.ids, concurrency, async (id) => {
      // It may have been removed since the round began.
      if (this.#stop.signal.aborted || !clients.has(id)) return
      // The registry keeps the failure, and has logged it.
      await registry.discover(id, { signal: this.#stop.signal }).catch(() => {})
    })
  }

  async #readDirectories(): Promise<void> {
    const { directory = [] } = this.#options
    for (const url of directory) {
      try {
        this.#directories.set(url, await this.#readList(url))
      } catch (error) {
        // The agents that it named before stay.
        if (this.#stop.signal.aborted) return
        this.#services.log.warn({ directory: url, error }, 'A directory of peers could not be read.')
      }
    }
    await this.#follow([...this.#directories.values()].flat())
  }

  /** The peers in a document: a card is one itself; a list holds URLs, or `{id, url}`. */
  async #readList(url: string): Promise<readonly Listing[]> {
    const { fetch } = this.#services
    const { status, text } = await fetch.text(url, {
      method: 'GET',
      headers: { accept: 'application/json' },
      timeoutMs: listTimeoutMs,
      signal: this.#stop.signal,
      maxBytes: maxListBytes,
      maxRedirects: 3,
    })
    if (status !== 200) throw new Error(`It answered with ${status}.`)
    const document = parseJson(text)
    if (isObject(document) && typeof document['name'] === 'string' && Array.isArray(document['skills']))
      return [{ url }]
    const entries: unknown = isObject(document) ? (document['agents'] ?? document['peers']) : document
    if (!Array.isArray(entries)) throw new Error('It is neither an agent card nor a list.')
    const listings = entries.slice(0, maxListed).flatMap((entry: unknown) => toListing(entry, url) ?? [])
    const skipped = entries.length - listings.length
    if (skipped > 0) {
      const text = `Entries of a directory are not used: they name no agent, or there are more than ${maxListed}.`
      this.#services.log.warn({ directory: url, skipped }, text)
    }
    return listings
  }

  /** Adds the peers that are new, and removes those that no directory names any more. */
  async #follow(listings: readonly Listing[]): Promise<void> {
    const { clients, log } = this.#services
    const wanted = new Map(listings.map((listing) => [baseOf(listing.url), listing]))
    for (const [base, { id, options }] of [...this.#listed]) {
      if (wanted.has(base)) continue
      this.#listed.delete(base)
      // Unless it was removed by hand, and the id is another one's now.
      if (clients.optionsOf(id) === options) await clients.remove(id)
    }
    const own = this.#services.ownUrls().map(baseOf)
    const known = new Set([...own, ...clients.ids.map((id) => baseOf(clients.optionsOf(id)?.url ?? ''))])
    const freeId = idsBeside(clients)
    for (const [base, { id, url }] of wanted) {
      if (known.has(base) || this.#listed.has(base)) continue
      // What a list says is a stranger's word: it does not decide which addresses may be called.
      const listed = {
        id: freeId(id ?? new URL(url).hostname),
        options: { url, allowPrivate: this.#options.allowPrivate ?? false },
      }
      try {
        clients.add(listed.id, listed.options)
        this.#listed.set(base, listed)
      } catch (error) {
        log.warn({ url, error }, 'A peer of the directory cannot be used.')
      }
    }
  }
}

/** An entry of a directory: a URL, or an object with one, relative to the directory. Undefined for one that names no agent. */
function toListing(entry: unknown, directory: string): Listing | undefined {
  const { id, url, card } = isObject(entry) ? entry : { id: undefined, url: entry, card: undefined }
  const target = url ?? card
  if (typeof target !== 'string' || !URL.canParse(target, directory)) return undefined
  const { protocol, username, password, href } = new URL(target, directory)
  if (!/^https?:$/.test(protocol) || username !== '' || password !== '') return undefined
  return { url: href, ...(typeof id === 'string' ? { id } : {}) }
}

/** The URL that stands for an agent, whether its base or its card was named. */
function baseOf(url: string): string {
  if (!URL.canParse(url)) return url
  const base = isCardUrl(url) ? url.replace(/\/\.well-known\/agent(-card)?\.json$/, '') : url
  return base.replace(/\/$/, '')
}

/** Makes ids out of somebody's words, with a number behind those that are taken. */
function idsBeside(clients: ClientManager): (words: string) => string {
  const last = new Map<string, number>()
  return (words) => {
    const base =
      words
        .slice(0, 256)
        .replace(/[^A-Za-z0-9_-]+/g, '-')
        .replace(/^-+|-+$/g, '')
        .slice(0, 56) || 'peer'
    for (let number = (last.get(base) ?? 0) + 1; ; number++) {
      last.set(base, number)
      const id = number === 1 ? base : `${base}-${number}`
      if (!clients.has(id)) return id
    }
  }
}
