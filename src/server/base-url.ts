/** Under which URL callers know the node: what the operator says, else what a trusted proxy says, else the Host header. */
import type { IncomingMessage } from 'node:http'
import { createAddressMatcher } from '../base/address.ts'

export interface BaseUrlOptions {
  readonly publicUrl: string | undefined
  /** `''`, or a path with a slash in front and none behind. */
  readonly basePath: string
  readonly trustProxy: readonly string[]
  /** The listening address, for requests without a Host header that makes sense. */
  readonly listening: () => string
}

const hostPattern = /^[A-Za-z0-9._-]+(:\d{1,5})?$|^\[[0-9a-fA-F:.]+\](:\d{1,5})?$/
const prefixPattern = /^(\/[A-Za-z0-9._~-]+)+$/

/** The base URL for a request, without a slash at the end. */
export function createBaseUrl(options: BaseUrlOptions): (req: IncomingMessage) => string {
  const { publicUrl, basePath } = options
  if (publicUrl !== undefined) return () => publicUrl
  const isTrusted = createAddressMatcher(options.trustProxy, 'server.trustProxy')
  return (req) => {
    const { host } = req.headers
    if (isTrusted(req.socket.remoteAddress)) {
      const forwardedHost = first(req, 'x-forwarded-host') ?? host
      if (forwardedHost !== undefined && hostPattern.test(forwardedHost)) {
        const proto = first(req, 'x-forwarded-proto') === 'https' ? 'https' : 'http'
        const prefix = first(req, 'x-forwarded-prefix')?.replace(/\/$/, '')
        return `${proto}://${forwardedHost}${prefix !== undefined && prefixPattern.test(prefix) ? prefix : basePath}`
      }
    }
    return host !== undefined && hostPattern.test(host) ? `http://${host}${basePath}` : options.listening() + basePath
  }
}

/** The value that the first proxy on the way put there. */
function first(req: IncomingMessage, name: string): string | undefined {
  const value = req.headers[name]
  return typeof value === 'string' ? value.split(',', 1)[0]?.trim() : undefined
}
