/**
 * Dials. The address is checked when the connection is made, so a name that changes its mind between a check and the
 * dial gains nothing. Failures of this phase are told here, where it is known that nothing was sent.
 */
import { lookup as systemLookup } from 'node:dns'
import { connect as connectTcp, isIP, type LookupFunction, type Socket } from 'node:net'
import {
  connect as connectTls,
  createSecureContext,
  rootCertificates,
  type SecureContext,
  type TLSSocket,
} from 'node:tls'
import { createAddressMatcher, isPublicAddress, namesLocalhost } from './address.ts'
import { ConvokeError } from './errors.ts'
import { hostAndPort, NetworkError } from './network-error.ts'

export interface GuardedConnectOptions {
  /** Also connect to loopback, private, link-local and other addresses that are not of the public internet. */
  readonly allowPrivate: boolean
  /** Networks to connect to beside the public internet: addresses, `10.0.0.0/8`, or `loopback`. Default: none. */
  readonly allow?: readonly string[]
  /** For DNS, TCP and TLS together, in milliseconds. Default: 10,000. */
  readonly connectTimeoutMs?: number
  readonly tls?: {
    /** PEM of further authorities, beside those that Node brings. */
    readonly ca?: string
    /** Do not verify certificates. For development. Default: false. */
    readonly insecure?: boolean
  }
  /** Resolves host names. Default: the operating system. */
  readonly lookup?: LookupFunction
}

/** What is dialled: the parts of a URL, and its host without the brackets of IPv6. */
export interface DialTarget {
  readonly protocol: string
  readonly host?: string
  readonly hostname: string
  readonly port: string
}

export interface GuardedConnector {
  /**
   * Connects, over TLS for `https:`. Fails with `forbidden` for an address that may not be called, otherwise with a
   * {@link NetworkError} whose `sent` is false.
   */
  connect(target: DialTarget, callback: (...outcome: [null, Socket] | [Error, null]) => void): void
  /** Ends the dials under way. */
  close(): void
}

const defaultConnectTimeoutMs = 10_000
/** How soon TCP asks an idle peer whether it is still there: streams are silent for long, and peers vanish. */
const keepAliveProbeMs = 30_000
const maxTlsSessions = 100

export function createGuardedConnector(options: GuardedConnectOptions): GuardedConnector {
  const { allowPrivate, connectTimeoutMs = defaultConnectTimeoutMs, tls = {} } = options
  const isNamed = createAddressMatcher(options.allow ?? [], 'allow')
  const isAllowed = (address: string): boolean => allowPrivate || isPublicAddress(address) || isNamed(address)
  const lookup = createGuardedLookup(options.lookup ?? systemLookup, isAllowed)
  const dialling = new Set<Socket>()
  const sessions = new Map<string, Buffer>()
  let context: SecureContext | undefined

  function dialTls(hostname: string, port: number): TLSSocket {
    // Made once: reading all authorities takes milliseconds, which tls.connect would spend on each connection.
    context ??= createSecureContext(tls.ca === undefined ? {} : { ca: [...rootCertificates, tls.ca] })
    const key = `${hostname}:${port}`
    const session = sessions.get(key)
    const socket = connectTls({
      host: hostname,
      port,
      lookup,
      secureContext: context,
      servername: isIP(hostname) === 0 ? hostname : '',
      rejectUnauthorized: tls.insecure !== true,
      ALPNProtocols: ['http/1.1'],
      ...(session === undefined ? {} : { session }),
    })
    socket.on('session', (fresh) => {
      if (sessions.size >= maxTlsSessions) sessions.clear()
      sessions.set(key, fresh)
    })
    return socket
  }

  return {
    connect(target, callback) {
      const { hostname, protocol } = target
      const where = hostAndPort({ host: hostname, ...target })
      // A literal is never looked up, and what localhost means is settled whatever a resolver says.
      const literal = isIP(hostname) !== 0 ? hostname : namesLocalhost(hostname) ? '127.0.0.1' : undefined
      if (literal !== undefined && !isAllowed(literal)) return callback(forbidden(hostname), null)

      const isTls = protocol === 'https:'
      const port = Number(target.port) || (isTls ? 443 : 80)
      const socket = isTls ? dialTls(hostname, port) : connectTcp({ host: hostname, port, lookup })
      socket.setKeepAlive(true, keepAliveProbeMs).setNoDelay(true)
      dialling.add(socket)
      const timer = setTimeout(() => {
        const text = `${where} could not be connected to within ${connectTimeoutMs} ms.`
        socket.destroy(new NetworkError('connect_timeout', text, { sent: false }))
      }, connectTimeoutMs)
      const settle = (): void => {
        clearTimeout(timer)
        dialling.delete(socket)
        socket.off('error', onError)
      }
      const onError = (error: NodeJS.ErrnoException): void => {
        settle()
        callback(toDialError(error, socket, where), null)
      }
      socket.on('error', onError).once(isTls ? 'secureConnect' : 'connect', () => {
        settle()
        callback(null, socket)
      })
    },
    close() {
      for (const socket of dialling) {
        socket.destroy(new NetworkError('closed', 'The node closed its connections.', { sent: false }))
      }
    },
  }
}

/** A lookup that fails when any of the addresses may not be called: a mixed answer is an attack or a mistake. */
function createGuardedLookup(lookup: LookupFunction, isAllowed: (address: string) => boolean): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, answer, family) => {
      if (error !== null) {
        const text = `The name ${hostname} could not be resolved${error.code === 'ENOTFOUND' ? ': it is not known' : ''}.`
        return callback(new NetworkError('dns', text, { sent: false, cause: error }), '')
      }
      const addresses = typeof answer === 'string' ? [{ address: answer, family: family ?? isIP(answer) }] : answer
      const [first] = addresses
      if (first === undefined) {
        return callback(new NetworkError('dns', `The name ${hostname} has no address.`, { sent: false }), '')
      }
      if (!addresses.every(({ address }) => isAllowed(address))) return callback(forbidden(hostname), '')
      if (options.all === true) callback(null, addresses)
      else callback(null, first.address, first.family)
    })
  }
}

function forbidden(hostname: string): ConvokeError {
  const text = `${hostname} is not an address of the public internet, and others may not be called without allowPrivate.`
  return new ConvokeError('forbidden', text)
}

const certificateFaults: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'has expired',
  CERT_NOT_YET_VALID: 'is not valid yet',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'is self-signed',
  ERR_TLS_CERT_ALTNAME_INVALID: 'is for another host name',
  SELF_SIGNED_CERT_IN_CHAIN: 'is signed by an authority that is not known here',
  UNABLE_TO_GET_ISSUER_CERT: 'is signed by an authority that is not known here',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'is signed by an authority that is not known here',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'is signed by an authority that is not known here',
}

function toDialError(error: NodeJS.ErrnoException, socket: Socket, where: string): ConvokeError {
  if (error instanceof ConvokeError) return error
  const { code = '' } = error
  const because = { sent: false, cause: error }
  // Set by Node, before it gives up the connection, when the certificate is at fault.
  if ('authorizationError' in socket && Boolean(socket.authorizationError)) {
    const fault = certificateFaults[code] ?? `was not accepted (${code})`
    return new NetworkError('tls', `The certificate of ${where} ${fault}.`, { ...because, retryable: false })
  }
  if (isTlsError(code)) {
    const text = `${where} does not speak TLS, or not in a way that suits this node.`
    return new NetworkError('tls', text, { ...because, retryable: false })
  }
  if (code === 'ECONNREFUSED') return new NetworkError('refused', `${where} refused the connection.`, because)
  if (code === 'ETIMEDOUT') return new NetworkError('connect_timeout', `${where} could not be connected to.`, because)
  if (code === 'ECONNRESET')
    return new NetworkError('reset', `${where} broke the connection off while it was made.`, because)
  return new NetworkError('other', `${where} could not be reached${code === '' ? '' : ` (${code})`}.`, because)
}

/** Whether an error code is one of the TLS layer; a refused client certificate shows only after the handshake. */
export function isTlsError(code: string): boolean {
  return code === 'EPROTO' || /^ERR_(SSL|TLS)_/.test(code)
}
