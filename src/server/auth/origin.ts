/** Keeps web pages away from a node: DNS rebinding, and requests across origins. */
import { isIP } from 'node:net'
import { ConvokeError } from '../../base/errors.ts'

/** Whether only this machine can reach an address that is listened on. Names other than localhost count as public. */
export function isLoopback(host: string): boolean {
  const name = hostName(host.includes(':') && isIP(host) === 6 ? `[${host}]` : host)
  return name !== undefined && loopbackName.test(name)
}

const loopbackName = /^(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\]|\[::ffff:127\.\d{1,3}\.\d{1,3}\.\d{1,3}\])$/

export interface OriginGuardOptions {
  /** The address that the node listens on. */
  readonly host: string
  /** Its host is the node's own name. */
  readonly publicUrl?: string
  /** More names of the node: `example.com` for any port, `example.com:8443` for one. */
  readonly allowedHosts?: readonly string[]
  /** Whether callers need credentials. */
  readonly authRequired: boolean
}

/** The headers that the guard looks at; `IncomingMessage.headers` has them. */
export interface OriginHeaders {
  readonly host?: string | undefined
  readonly origin?: string | undefined
}

/** Throws `forbidden` for a request that the guard does not let in. */
export type OriginGuard = (headers: OriginHeaders) => void

/** How many Host and Origin values a guard remembers before it forgets them all. */
const maxRemembered = 256

/**
 * The guard of a node. The names of a node are those of the loopback interface if it listens there, the host
 * of its `publicUrl` and its `allowedHosts`.
 *
 * - Without auth, `Host` must be one of these names: a page that points its own domain at 127.0.0.1 (DNS
 *   rebinding) gets nothing. Only a public node without auth that was told no name (`allowAnonymous`) takes any.
 * - With auth, `Host` may be anything: credentials are what protects the node, and whatever name a proxy
 *   passes on must not lock its callers out.
 * - An `Origin`, which browsers send, must be one of these names or the `Host` of the same request; `null`
 *   never is. This holds with auth too: a page of another site has no business here unless `allowedHosts` says so.
 */
export function createOriginGuard(options: OriginGuardOptions): OriginGuard {
  const onLoopback = isLoopback(options.host)
  const names = new Set((options.allowedHosts ?? []).map(toAllowedName))
  if (options.publicUrl !== undefined) names.add(new URL(options.publicUrl).hostname)
  const isOurs = remembering((authority) => {
    const name = hostName(authority)
    if (name === undefined) return false
    return (onLoopback && loopbackName.test(name)) || names.has(name) || names.has(authority.toLowerCase())
  })
  const anyHost = options.authRequired || (!onLoopback && names.size === 0)

  return ({ host, origin }) => {
    if (!anyHost && (host === undefined || !isOurs(host))) {
      throw new ConvokeError(
        'forbidden',
        'This node does not answer to the name in the Host header. If the name is right, its operator adds it to server.allowedHosts.',
      )
    }
    if (origin === undefined) return
    const authority = /^https?:\/\/([^/]+)$/i.exec(origin)?.[1]
    if (authority === undefined || !(authority === host || isOurs(authority))) {
      throw new ConvokeError(
        'forbidden',
        'This node does not take requests from web pages of that origin. If it should, its operator adds the host to server.allowedHosts.',
      )
    }
  }
}

/** The name in `NAME`, `NAME:PORT`, `[V6]` or `[V6]:PORT`, in lower case; undefined for anything else. */
function hostName(authority: string): string | undefined {
  const name = /^(\[[0-9a-f:.]+\]|[^:/@\s[\]]+)(?::\d{1,5})?$/i.exec(authority)?.[1]
  return name?.toLowerCase().replace(/\.$/, '')
}

function toAllowedName(entry: string): string {
  if (hostName(entry) !== undefined) return entry.toLowerCase()
  throw new ConvokeError(
    'config',
    `server.allowedHosts takes names such as example.com or example.com:8443; one is ${JSON.stringify(entry)}.`,
  )
}

/** Callers use a handful of names; strangers who send new ones each time only cost themselves the cache. */
function remembering(decide: (text: string) => boolean): (text: string) => boolean {
  const known = new Map<string, boolean>()
  return (text) => {
    const before = known.get(text)
    if (before !== undefined) return before
    const decided = decide(text)
    if (known.size >= maxRemembered) known.clear()
    known.set(text, decided)
    return decided
  }
}
