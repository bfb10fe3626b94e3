/** Which addresses are whose: the public internet, private networks, the networks that an operator names. */
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import { ConvokeError } from './errors.ts'

/** Whether an address belongs to the public internet. IPv4 addresses inside of IPv6 ones count as what they are. */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false
  return ipaddr.process(address).range() === 'unicast'
}

/** Whether a URL names an address that is not public, as far as that shows without asking DNS. */
export function namesPrivateAddress(url: string): boolean {
  const host = new URL(url).hostname.replace(/^\[|\]$/g, '')
  if (isIP(host) !== 0) return !isPublicAddress(host)
  return host === 'localhost' || host.endsWith('.localhost')
}

/**
 * Tells whether an address is in one of these networks: addresses, `10.0.0.0/8`, or `loopback`.
 * Throws `config` for an entry that is none.
 */
export function createAddressMatcher(networks: readonly string[]): (address: string | undefined) => boolean {
  const ranges = networks
    .flatMap((network) => (network === 'loopback' ? ['127.0.0.0/8', '::1/128'] : [network]))
    .map(toRange)
  return (address) => {
    if (ranges.length === 0 || address === undefined || !ipaddr.isValid(address)) return false
    const parsed = ipaddr.process(address)
    return ranges.some(([network, bits]) => parsed.kind() === network.kind() && parsed.match(network, bits))
  }
}

function toRange(network: string): [ipaddr.IPv4 | ipaddr.IPv6, number] {
  try {
    if (network.includes('/')) return ipaddr.parseCIDR(network)
    const address = ipaddr.process(network)
    return [address, address.kind() === 'ipv4' ? 32 : 128]
  } catch (cause) {
    const text = `server.trustProxy takes addresses, networks such as 10.0.0.0/8, or "loopback"; got "${network}".`
    throw new ConvokeError('config', text, { cause })
  }
}
