/**
 * Outgoing requests to addresses that strangers chose. The address is checked when the connection is made, so a name
 * that changes its mind between a check and the dial gains nothing. Redirects are never followed.
 */
import { lookup, type LookupAddress } from 'node:dns'
import { isIP } from 'node:net'
import { Agent, buildConnector, request } from 'undici'
import { isPublicAddress, namesPrivateAddress } from './address.ts'
import { ConvokeError } from './errors.ts'

export interface GuardedFetchOptions {
  /** Also connect to loopback, private, link-local and other addresses that are not of the public internet. */
  readonly allowPrivate: boolean
}

export interface GuardedRequest {
  readonly method: 'GET' | 'POST'
  readonly headers: Record<string, string>
  readonly body?: string
  /** For the whole exchange, in milliseconds. */
  readonly timeoutMs: number
  readonly signal?: AbortSignal
}

export interface GuardedResponse {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
}

export interface GuardedFetch {
  /**
   * Sends a request and throws the body of the answer away. Throws `forbidden` for an address that may not be called,
   * `timeout` and `network` for the rest.
   */
  send(url: string, request: GuardedRequest): Promise<GuardedResponse>
  /** Closes all connections. */
  close(): Promise<void>
}

export function createGuardedFetch({ allowPrivate }: GuardedFetchOptions): GuardedFetch {
  const connect = buildConnector({
    timeout: 10_000,
    ...(allowPrivate ? {} : { lookup: guardedLookup as never }),
  })
  const agent = new Agent({
    connect: (options, callback) => {
      // An address literal is never looked up, so it is checked here.
      if (
        !allowPrivate &&
        isIP(options.hostname.replace(/^\[|\]$/g, '')) !== 0 &&
        namesPrivateAddress(`http://${options.hostname}`)
      ) {
        return callback(refused(options.hostname), null)
      }
      connect(options, callback)
    },
    headersTimeout: 30_000,
    bodyTimeout: 30_000,
    keepAliveTimeout: 10_000,
  })
  return {
    async send(url, { method, headers, body, timeoutMs, signal }) {
      const timeout = AbortSignal.timeout(timeoutMs)
      try {
        const response = await request(url, {
          dispatcher: agent,
          method,
          headers,
          signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
          ...(body === undefined ? {} : { body }),
        })
        await response.body.dump({ limit: 64 * 1024 })
        return { status: response.statusCode, headers: response.headers }
      } catch (error) {
        if (error instanceof ConvokeError) throw error
        if (timeout.aborted)
          throw new ConvokeError('timeout', `The request took longer than ${timeoutMs} ms.`, { cause: error })
        throw new ConvokeError('network', 'The request failed before an answer came.', { cause: error })
      }
    },
    close: () => agent.destroy(),
  }
}

/** dns.lookup that fails when any of the addresses is not public: a mixed answer is an attack or a mistake. */
function guardedLookup(
  hostname: string,
  options: { all?: boolean },
  callback: (error: Error | null, address?: string | LookupAddress[], family?: number) => void,
): void {
  lookup(hostname, { ...options, all: true }, (error, addresses) => {
    if (error !== null) return callback(error)
    const first = addresses[0]
    if (first === undefined || addresses.some(({ address }) => !isPublicAddress(address)))
      return callback(refused(hostname))
    if (options.all === true) callback(null, addresses)
    else callback(null, first.address, first.family)
  })
}

function refused(hostname: string): ConvokeError {
  return new ConvokeError(
    'forbidden',
    `${hostname} is not an address of the public internet, and private ones are not allowed here.`,
  )
}
