/** What a configuration file holds: the node's options as far as text can say them. */
import type { NodeOptions } from '../options.ts'
import type { PeerOptions } from '../peers/peer.ts'

export type ConfigFile = Omit<NodeOptions, 'onMessage' | 'baseDir' | 'peers'> & {
  readonly $schema?: string
  readonly peers?: Readonly<Record<string, PeerInFile>> | undefined
}

interface PeerInFile extends Omit<PeerOptions, 'tls'> {
  readonly tls?: PeerOptions['tls'] & { readonly caFile?: string }
}

/** Where a file says none. */
export const defaultPort = 4120
