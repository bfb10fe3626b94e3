/** Which addresses are whose: the public internet, private networks, the networks that an operator names. */
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import { ConvokeError } from './errors.ts'

/**
 * Whether an address belongs to the public internet. IPv4 addresses inside of IPv6 ones (mapped, or NAT64 as IPv6-only
 * networks call the whole IPv4 internet) count as what they are; the obsolete ways to tunnel them are never public.
 */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false
  const parsed = ipaddr.process(address)
  if (parsed instanceof ipaddr.IPv4) return parsed.range() === 'unicast' && parsed.toString() !== azurePlatform
  if (parsed.match(nat64)) return isPublicAddress(parsed.toByteArray().slice(12).join('.'))
  // All that is assigned to the public is in here; outside are forms such as ::7f00:1, which some systems take as IPv4.
  return parsed.match(globalUnicast) && parsed.range() === 'unicast'
}

const globalUnicast = ipaddr.IPv6.parseCIDR('2000::/3')
const nat64 = ipaddr.IPv6.parseCIDR('64:ff9b::/96')
/** Azure's platform services, secrets of the machine among them, answer under this one public-looking address. */
const azurePlatform = '168.63.129.16'

/** Whether a URL names an address that is not public, as far as that shows without asking DNS. */
export function namesPrivateAddress(url: string): boolean {
  const host = new URL(url).hostname.replace(/^\[|\]$/g, '')
  return isIP(host) === 0 ? namesLocalhost(host) : !isPublicAddress(host)
}

/** Whether a host name is that of the machine itself, wherever a resolver leads (RFC 6761, section 6.3). */
export function namesLocalhost(hostname: string): boolean {
  return /^(.*\.)?localhost\.?$/i.test(hostname)
}

/**
 * Tells whether an address is in one of these networks: addresses, `10.0.0.0/8`, or `loopback`.
 * Throws `config` for an entry that is none; `what` names the setting in the message.
 */
export function createAddressMatcher(
  networks: readonly string[],
  what: string,
): (address: string | undefined) => boolean {
  const ranges = networks
    .flatMap((network) => (network === 'loopback' ? ['127.0.0.0/8', '::1/128'] : [network]))
    .map((network) => toRange(network, what))
  return (address) => {
    if (ranges.length === 0 || address === undefined || !ipaddr.isValid(address)) return false
    const parsed = ipaddr.process(address)
    return ranges.some(([network, bits]) => parsed.kind() === network.kind() && parsed.match(network, bits))
  }
}

function toRange(network: string, what: string): [ipaddr.IPv4 | ipaddr.IPv6, number] {
  try {
    if (network.includes('/')) return ipaddr.parseCIDR(network)
    const address = ipaddr.process(network)
    return [address, address.kind() === 'ipv4' ? 32 : 128]
  } catch (cause) {
    const text = `${what} takes addresses, networks such as 10.0.0.0/8, or "loopback"; got "${network}".`
    throw new ConvokeError('config', text, { cause })
  }
}
