/**
 * All requests that a node sends, to addresses that operators or strangers chose: where they may go, how long they may
 * take, how much may come back.
 */
import { Agent } from 'undici'
import { ConvokeError } from './errors.ts'
import { BodySink, TextSink, UnwantedSink, type Answer, type BodyStream } from './guarded-body.ts'
import { createGuardedConnector, type GuardedConnectOptions } from './guarded-connect.ts'
import { Exchange, type ExchangeRequest, type ResponseHeaders, type Target } from './guarded-exchange.ts'
import { hostAndPort, NetworkError, type NetworkReason } from './network-error.ts'

export { NetworkError, type Answer, type BodyStream, type NetworkReason, type ResponseHeaders }

export interface GuardedFetchOptions extends GuardedConnectOptions {
  /** How many connections to one origin there may be; further requests wait. Default: 256. */
  readonly maxConnections?: number
}

export interface GuardedRequest {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Those that frame a message (`host`, `content-length`, `connection` and so on) are refused. */
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
  /** For the whole exchange with its redirects; with `open` up to the headers. In milliseconds. Default: no limit. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** Hears that the first byte goes out now. */
  readonly onSent?: () => void
  /** Of the body, decompressed; `text` only. Default: 16 MiB. */
  readonly maxBytes?: number
  /** How many redirects to follow. Default: 0, and a redirect is an answer like others. */
  readonly maxRedirects?: number
  /** Hears where a redirect leads before it is followed, as a URL; what it throws ends the request. */
  readonly onRedirect?: (url: string) => void
}

/**
 * Requests over HTTP/1.1. They throw `forbidden` for an address that may not be called, `timeout`, the reason of their
 * signal, `too_large`, `invalid_params` for a URL or header that cannot be sent, and {@link NetworkError} for the rest.
 * A status is never an error.
 *
 * Redirects: a GET or HEAD follows any, a request with a body those that keep it what it is (307, 308); none lead from
 * https to http. One that leads to another origin takes along no header that could hold a secret; the body goes there.
 */
export interface GuardedFetch {
  /** The whole body as text, decompressed if need be. Compression is asked for with an `accept-encoding` header. */
  text(url: string, request: GuardedRequest): Promise<Answer & { readonly text: string }>
  /**
   * Resolves at the headers; the body is then read at the reader's pace, as it comes over the wire. An abort makes its
   * iteration throw the reason of the signal, a cut makes it throw a {@link NetworkError} behind what came before.
   */
  open(url: string, request: GuardedRequest): Promise<Answer & { readonly body: BodyStream }>
  /** Throws the body away. */
  send(url: string, request: GuardedRequest): Promise<Answer>
  /** Another one over the same connections, which stay when that one is closed: it ends only the requests of its own. */
  share(): GuardedFetch
  /** Ends all requests and connections at once. */
  close(): Promise<void>
}

/** Idle connections keep no process alive, and go after this time, or what the server says less a margin. */
const keepAliveTimeoutMs = 4_000
const defaultMaxConnections = 256

export function createGuardedFetch(options: GuardedFetchOptions): GuardedFetch {
  const connector = createGuardedConnector(options)
  const agent = new Agent({
    connect: (target, callback) => connector.connect(target, callback),
    connections: options.maxConnections ?? defaultMaxConnections,
    keepAliveTimeout: keepAliveTimeoutMs,
    // The time of a request is its caller's matter.
    headersTimeout: 0,
    bodyTimeout: 0,
  })
  return createFetch(agent, async () => {
    connector.close()
    await agent.destroy()
  })
}

/** `end` closes what only this one has. */
function createFetch(agent: Agent, end: () => Promise<void>): GuardedFetch {
  const live: Exchange[] = []
  return {
    text: (url, request) =>
      follow(url, request, (target, hop) => {
        return new Promise((resolve, reject) => {
          new Exchange(live, target, new TextSink(request.maxBytes, resolve, reject)).begin(agent, hop)
        })
      }),
    open: (url, request) =>
      follow(url, request, (target, hop) => {
        return new Promise((resolve, reject) => {
          new Exchange(live, target, new BodySink(resolve, reject)).begin(agent, hop)
        })
      }),
    send: (url, request) =>
      follow(url, request, (target, hop) => {
        return new Promise((resolve, reject) => {
          new Exchange(live, target, new UnwantedSink(resolve, reject)).begin(agent, hop)
        })
      }),
    share: () => createFetch(agent, () => Promise.resolve()),
    async close() {
      for (const exchange of [...live]) exchange.close()
      await end()
    },
  }
}

/** Asks, and asks on where redirects lead. */
async function follow<Given extends Answer & { body?: BodyStream }>(
  url: string,
  request: GuardedRequest,
  ask: (target: Target, hop: ExchangeRequest) => Promise<Given>,
): Promise<Given> {
  checkHeaders(request.headers)
  let target = parseTarget(url)
  const { maxRedirects = 0 } = request
  if (maxRedirects === 0) return ask(target, request)

  const deadline = request.timeoutMs === undefined ? undefined : performance.now() + request.timeoutMs
  let hop: ExchangeRequest = request
  for (let redirects = 0; ; redirects++) {
    const answer = await ask(target, hop)
    const location = redirectOf(answer, request.method)
    if (location === undefined) return answer
    answer.body?.cancel()
    if (redirects === maxRedirects) throw lost(target, `redirected more than ${maxRedirects} times`)
    const next = nextTarget(target, location)
    request.onRedirect?.(next.href)
    const headers = next.origin === target.origin ? hop.headers : harmlessHeaders(hop.headers)
    const left = deadline === undefined ? {} : { timeoutMs: Math.max(Math.ceil(deadline - performance.now()), 1) }
    hop = { ...hop, headers, ...left }
    target = next
  }
}

function redirectOf({ status, headers }: Answer, method: string): string | undefined {
  const { location } = headers
  if (typeof location !== 'string') return undefined
  if (status === 307 || status === 308) return method === 'DELETE' ? undefined : location
  return (method === 'GET' || method === 'HEAD') && (status === 301 || status === 302 || status === 303)
    ? location
    : undefined
}

function nextTarget(from: Target, location: string): Target {
  const next = parseUrl(location, from.href)
  if (next === undefined) throw lost(from, 'redirected to what is no URL')
  if (next.protocol !== 'https:' && (next.protocol !== 'http:' || from.protocol === 'https:')) {
    throw lost(from, `redirected to ${next.protocol}`)
  }
  return toTarget(next)
}

function lost(from: Target, what: string): NetworkError {
  return new NetworkError('redirects', `${from.where} ${what}.`, { sent: true, retryable: false })
}

/** All that may go to an origin that the caller did not name; anything else could hold a secret. */
const harmless = new Set(['accept', 'accept-encoding', 'content-type', 'user-agent', 'a2a-version', 'if-none-match'])

function harmlessHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => harmless.has(name.toLowerCase())))
}

/** Nodes call few URLs often, and taking one apart costs as much as a tenth of a small request. */
const targets = new Map<string, Target>()
const maxTargets = 256

function parseTarget(url: string): Target {
  const known = targets.get(url)
  if (known !== undefined) return known
  const parsed = parseUrl(url)
  if (parsed === undefined) throw new ConvokeError('invalid_params', 'What should be called is no URL.')
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') {
    throw new ConvokeError('forbidden', `Only http: and https: URLs may be called, not ${parsed.protocol}`)
  }
  const target = toTarget(parsed)
  if (targets.size >= maxTargets) targets.clear()
  targets.set(url, target)
  return target
}

function parseUrl(url: string, base?: string): URL | undefined {
  return URL.canParse(url, base) ? new URL(url, base) : undefined
}

function toTarget({ protocol, host, port, origin, pathname, search }: URL): Target {
  const path = pathname + search
  return { href: origin + path, protocol, origin, path, where: hostAndPort({ protocol, host, port }) }
}

const framing = /^(connection|content-length|expect|host|keep-alive|transfer-encoding|upgrade)$/i
const headerName = /^[\w!#$%&'*+.^`|~-]+$/
const notInValues = /[^\t\x20-\x7e\x80-\xff]/

/** undici would refuse these, too, but each refusal costs its pool a connection for good. */
function checkHeaders(headers: Readonly<Record<string, string>>): void {
  for (const name in headers) {
    if (!headerName.test(name) || framing.test(name) || notInValues.test(headers[name] ?? '')) {
      throw new ConvokeError('invalid_params', `The header ${JSON.stringify(name)} cannot be sent as it is.`)
    }
  }
}
