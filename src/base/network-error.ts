/** Failures of the network, told by whether the request can have arrived. */
import { ConvokeError, type ErrorOptions } from './errors.ts'

/**
 * Where a connection failed: `refused`, `dns`, `tls` and `connect_timeout` while it was made; `reset` and `closed`
 * by the other side, or by the node that closes; `redirects` that lead nowhere; `other` for the rest.
 */
export type NetworkReason = 'refused' | 'dns' | 'tls' | 'connect_timeout' | 'reset' | 'closed' | 'redirects' | 'other'

export interface NetworkErrorOptions extends ErrorOptions {
  /** Whether bytes of the request may have gone out. */
  readonly sent: boolean
}

/** The error of code `network` that outgoing requests fail with. Its message names host and port, never a whole URL. */
export class NetworkError extends ConvokeError {
  readonly reason: NetworkReason
  /** False only when certainly no byte of the request went out: sending it again does nothing twice. */
  readonly sent: boolean

  constructor(reason: NetworkReason, message: string, { sent, ...options }: NetworkErrorOptions) {
    super('network', message, options)
    this.reason = reason
    this.sent = sent
  }
}

/** `host:port` of a URL, for messages. */
export function hostAndPort({ protocol, host, port }: Pick<URL, 'protocol' | 'host' | 'port'>): string {
  if (port !== '') return host
  return `${host}:${protocol === 'https:' ? 443 : 80}`
}
