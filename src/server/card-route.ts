/** The agent card: made once per change of the tools, served as bytes from then on. */
import { createHash } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import { ConvokeError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import { toAgentCard, toToolEntry, type CardFlavor, type CardInput, type ToolDescriptor } from '../protocol/card.ts'
import { skillPrefix } from '../protocol/extension.ts'
import type { PublishedTool } from '../tools/published.ts'
import type { Caller } from '../tools/tool.ts'
import { requestedVersion, sendText } from './http.ts'

/** The tools that callers may name. A ToolManager is one. */
export interface CardTools {
  /** Goes up with each change. */
  readonly revision: number
  /** Without a caller those that are there for anybody. */
  published(caller?: Caller): readonly PublishedTool[]
}

export interface CardOptions {
  readonly tools: CardTools
  /** Who reads the public card; undefined where that could be anybody. */
  readonly reader: Caller | undefined
  readonly input: Omit<CardInput, 'url' | 'tools' | 'public' | 'toolsUrl'>
  /** What the card says of the agent where its template says nothing. */
  readonly describe: (hasTools: boolean) => string
  /** The base URL for a request. */
  readonly baseUrl: (req: IncomingMessage) => string
  /** Whether the base URL follows `X-Forwarded-*` headers. */
  readonly behindProxy: boolean
}

/** A card larger than this leaves its schemas to the list at `tools_url`. */
const maxCardBytes = 256 * 1024
/** How many renderings (of versions and base URLs) are kept. */
const maxRenderings = 32
const maxAgeSeconds = 60
const pageSize = 200

interface Rendering {
  readonly etag: string
  readonly body: Buffer
  gzip: Buffer | undefined
}

export class CardRoute {
  readonly #options: CardOptions
  readonly #renderings = new Map<string, Rendering>()
  readonly #vary: string
  #revision = -1
  #lastModifiedMs = 0
  #lastModified = ''

  constructor(options: CardOptions) {
    this.#options = options
    const forwarded = options.behindProxy ? ', X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix' : ''
    this.#vary = `A2A-Version, Accept-Encoding${forwarded}`
  }

  /** The public card as it stands now. */
  card(url: string, flavor: CardFlavor): JsonObject {
    return this.#make(url, this.#public(), flavor, true)
  }

  /** The card for one caller: the tools that it may call. Nothing of ours stands on its skills, since typed readers refuse it. */
  extendedCard(url: string, caller: Caller): string {
    return JSON.stringify(this.#make(url, this.#options.tools.published(caller), '1.0', false))
  }

  #public(): readonly PublishedTool[] {
    return this.#options.tools.published(this.#options.reader)
  }

  /** With its schemas if that is not too large, else with the place where they are listed. */
  #make(url: string, tools: readonly PublishedTool[], flavor: CardFlavor, isPublic: boolean): JsonObject {
    const { input: given, describe } = this.#options
    const template = { description: describe(tools.length > 0), ...given.template }
    const input = { ...given, template, url, tools: tools.map(toDescriptor), public: isPublic }
    const whole = toAgentCard(input, flavor)
    if (Buffer.byteLength(JSON.stringify(whole)) <= maxCardBytes) return whole
    return toAgentCard({ ...input, toolsUrl: `${url}/tools` }, flavor)
  }

  /** Answers GET and HEAD. Throws `version_not_supported`. */
  handle(req: IncomingMessage, res: ServerResponse): void {
    const flavor: CardFlavor = requestedVersion(req) ?? 'both'
    const rendering = this.#render(this.#options.baseUrl(req), flavor)
    const headers: Record<string, string | number> = {
      etag: rendering.etag,
      'cache-control': `public, max-age=${maxAgeSeconds}`,
      'last-modified': this.#lastModified,
      vary: this.#vary,
    }
    const isGzip = rendering.body.length > 1024 && acceptsGzip(req)
    // Other bytes, another tag: RFC 9110, section 8.8.3.3.
    if (isGzip) headers['etag'] = withGzip(rendering.etag)
    if (this.#isFresh(req, rendering)) {
      res.writeHead(304, headers)
      res.end()
      return
    }
    let { body } = rendering
    if (isGzip) {
      body = rendering.gzip ??= gzipSync(body)
      headers['content-encoding'] = 'gzip'
    }
    headers['content-type'] = 'application/json'
    headers['content-length'] = body.length
    res.writeHead(200, headers)
    res.end(req.method === 'HEAD' ? undefined : body)
  }

  /** One page of the tools with their schemas, for cards that are too large to hold them. Throws `invalid_params`. */
  handleTools(req: IncomingMessage, res: ServerResponse): void {
    const token = new URL(req.url ?? '/', 'http://node').searchParams.get('page_token') ?? ''
    const tools = this.#public()
    const from = token === '' ? 0 : tools.findIndex(({ name }) => name === token)
    if (from === -1) {
      const text = 'page_token names a tool that is gone; begin again without it.'
      throw new ConvokeError('invalid_params', text, { issues: [{ path: '/page_token', message: text }] })
    }
    const page = tools.slice(from, from + pageSize)
    const next = tools[from + pageSize]
    const entries = page.map((each) => {
      const descriptor = toDescriptor(each)
      return {
        id: skillPrefix + each.name,
        description: descriptor.description,
        tags: [...descriptor.tags],
        ...toToolEntry(descriptor),
      }
    })
    sendText(res, 200, 'application/json', JSON.stringify({ tools: entries, next_page_token: next?.name ?? '' }))
  }

  #render(url: string, flavor: CardFlavor): Rendering {
    const { revision } = this.#options.tools
    if (revision !== this.#revision) {
      this.#revision = revision
      this.#renderings.clear()
      this.#lastModifiedMs = Math.floor(Date.now() / 1000) * 1000
      this.#lastModified = new Date(this.#lastModifiedMs).toUTCString()
    }
    const key = `${flavor} ${url}`
    const known = this.#renderings.get(key)
    if (known !== undefined) return known
    const body = Buffer.from(JSON.stringify(this.card(url, flavor)))
    const etag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 27)}"`
    const rendering: Rendering = { body, etag, gzip: undefined }
    const [oldest] = this.#renderings.keys()
    if (this.#renderings.size >= maxRenderings && oldest !== undefined) this.#renderings.delete(oldest)
    this.#renderings.set(key, rendering)
    return rendering
  }

  /** RFC 9110, section 13.2.2: If-None-Match decides where it is given. */
  #isFresh(req: IncomingMessage, { etag }: Rendering): boolean {
    let match = req.headers['if-none-match']
    if (match !== undefined && match !== etag) match = match.replaceAll('-gzip"', '"')
    if (match !== undefined)
      return match === etag || match === '*' || match.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag)
    const since = req.headers['if-modified-since']
    // Dates have seconds only: in the second of a change they cannot tell before from after.
    return since !== undefined && Date.parse(since) >= this.#lastModifiedMs && Date.now() >= this.#lastModifiedMs + 1000
  }
}

function withGzip(etag: string): string {
  return `${etag.slice(0, -1)}-gzip"`
}

function acceptsGzip(req: IncomingMessage): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))/i.test(String(req.headers['accept-encoding'] ?? ''))
}

function toDescriptor({ name, tool }: PublishedTool): ToolDescriptor {
  const { category, tags = [], readOnly, idempotent } = tool.traits
  return {
    name,
    description: tool.description,
    tags: [...new Set(category === undefined ? tags : [category, ...tags])],
    inputSchema: tool.input,
    ...(tool.output === undefined ? {} : { outputSchema: tool.output }),
    annotations: { readOnlyHint: readOnly ?? false, idempotentHint: (readOnly ?? false) || (idempotent ?? false) },
  }
}
