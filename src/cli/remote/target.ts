/** From what a person names as a peer, an id of the configuration or a URL, to a peer that is connected to. */
import type { McpServerRegistry } from '../../mcp/server-registry.ts'
import { connectPeer, type Peer } from '../../peers/connect-peer.ts'
import type { NodeOptions } from '../../options.ts'
import type { PeerOptions } from '../../peers/peer.ts'
import { closest } from '../../tools/value.ts'
import { authOf, bindingsOf, hostUrl, warnOfOpenWires } from '../a2a/connection.ts'
import { usageFailure, type ClientFailure } from '../a2a/failure.ts'
import type { Session } from '../a2a/session.ts'
import { parseServiceParameters, type ClientFlags } from '../a2a/settings.ts'
import { quote } from '../a2a/text.ts'
import { findConfigFile, loadConfigFile } from '../config.ts'
import { CommandFailure } from '../failure.ts'
import { storedCredentials } from '../credentials.ts'

/** A peer before anything was sent to it. */
export interface Target {
  /** That of the configuration; `peer` for a URL. */
  readonly id: string
  readonly options: PeerOptions
  /** As it was named: what goes before the tool in commands that are shown. */
  readonly reference: string
}

/** What a configuration says of tools and peers, without anybody's flags. */
export interface Directory {
  /** Undefined where there is no configuration: then there are no peers. */
  readonly file: string | undefined
  /** The whole configuration, where there is one. */
  readonly options: NodeOptions | undefined
  readonly peers: ReadonlyMap<string, PeerOptions>
  /** What stands in the file where a text holds a `${env:NAME}`, by JSON pointers. */
  readonly variables: ReadonlyMap<string, string>
}

/** Throws `A2ACLI_ERR_USAGE` for a configuration that is wrong. */
export async function readDirectory(session: Session<ClientFlags>): Promise<Directory> {
  const file = session.flags.config ?? (await findConfigFile())
  if (file === undefined) return { file, options: undefined, peers: new Map(), variables: new Map() }
  try {
    const { options, variables } = await loadConfigFile(file)
    return { file, options, peers: new Map(Object.entries(options.peers ?? {})), variables }
  } catch (error) {
    const hint = `Check it: convoke config check${configFlag(session)}`
    if (error instanceof CommandFailure) throw usageFailure(error.message, hint)
    throw error
  }
}

/**
 * Whether an id is that of an MCP server of the configuration, disabled or not. Throws `A2ACLI_ERR_USAGE` for one that
 * makes no sense, with what is wrong with it.
 */
export async function isServer({ file, options }: Directory, id: string): Promise<boolean> {
  if (options?.mcpServers === undefined) return false
  const registry = await serversOf(options)
  if (!registry.has(id) && Object.hasOwn(options.mcpServers, id)) {
    const reason = registry.skipped.find((each) => each.includes(` ${id} `))
    if (reason !== undefined) throw usageFailure(reason, `Look at mcpServers.${id} in ${file ?? 'the configuration'}.`)
  }
  return registry.has(id)
}

/** The ids of the MCP servers of the configuration. */
export async function serverIds({ options }: Directory): Promise<string[]> {
  if (options?.mcpServers === undefined) return []
  return (await serversOf(options)).health().map(({ id }) => id)
}

/** The MCP servers of a configuration, to look at: nothing is started. */
async function serversOf({ mcpServers = {}, baseDir = '.' }: NodeOptions): Promise<McpServerRegistry> {
  const { McpServerRegistry } = await import('../../mcp/server-registry.ts')
  return new McpServerRegistry({ servers: mcpServers, baseDir })
}

/** `-c FILE` for commands that are shown, if this one was told so. */
export function configFlag({ flags: { config } }: Session<ClientFlags>): string {
  return config === undefined ? '' : ` -c ${quote(config)}`
}

/**
 * All peers of the configuration. What flags and variables say of credentials and headers is for one peer that is named;
 * to all of them goes what the configuration says, and what somebody has signed in with at their origin.
 */
export async function allTargets(session: Session<ClientFlags>): Promise<Target[]> {
  const { file, peers } = await readDirectory(session)
  if (file === undefined) throw usageFailure(noFile, fileOrUrl)
  if (peers.size === 0) {
    throw usageFailure(
      `There are no peers in ${file}.`,
      'Name one by its URL, or write it into the file: peers: { bob: { url: https://bob.example.com } }',
    )
  }
  return [...peers].map(([id, options]) => {
    const auth = options.auth ?? storedCredentials(options.url)
    return { id, reference: id, options: auth === undefined ? options : { ...options, auth } }
  })
}

/** One peer, with what the flags say of it. `given` is the configuration, where it was read already. Throws `A2ACLI_ERR_USAGE` for a name that means none. */
export async function findTarget(session: Session<ClientFlags>, reference: string, given?: Directory): Promise<Target> {
  const url = urlOf(reference)
  if (url !== undefined) return withFlags(session, { id: 'peer', reference, options: { url, allowPrivate: true } })
  const directory = given ?? (await readDirectory(session))
  const options = directory.peers.get(reference)
  if (options !== undefined) return withFlags(session, { id: reference, reference, options }, directory)
  const host = reference.includes('.') ? hostUrl(reference) : undefined
  if (host !== undefined)
    return withFlags(session, { id: 'peer', reference, options: { url: host, allowPrivate: true } })
  if (await isServer(directory, reference)) throw noPeer(session, reference, directory)
  throw await unknownPeer(reference, directory)
}

export const noFile = 'There is no convoke.yaml or convoke.json in this folder.'
export const fileOrUrl = 'Name a configuration: -c FILE, or a peer by its URL in place of its id.'

/** An MCP server, where only a peer will do. */
function noPeer(session: Session<ClientFlags>, id: string, { file = '' }: Directory): ClientFailure {
  const flag = configFlag(session)
  const hint = `See what it has, and how it is: convoke tools ${id}${flag}, convoke servers${flag}`
  return usageFailure(`${JSON.stringify(id)} is an MCP server of ${file}, and no peer.`, hint)
}

/** A name that means nobody: neither a peer nor an MCP server of the configuration. */
export async function unknownPeer(reference: string, directory: Directory): Promise<ClientFailure> {
  const { file, peers } = directory
  if (file === undefined) return usageFailure(`${JSON.stringify(reference)} is no URL. ${noFile}`, fileOrUrl)
  const servers = await serverIds(directory)
  const ids = [...peers.keys(), ...servers]
  const similar = closest(reference, ids)
  const meant = similar === undefined ? '' : ` Did you mean "${similar}"?`
  const known = ids.length === 0 ? `${file} has no peers.` : `There are: ${ids.slice(0, 20).join(', ')}.`
  const kinds = servers.length === 0 ? 'no peer' : 'no peer or MCP server'
  return usageFailure(
    `${JSON.stringify(reference)} is no URL and ${kinds} of ${file}.${meant} ${known}`,
    'Name a peer by its URL, or another configuration: -c FILE',
  )
}

/** The URL that a text is beyond doubt; a name with dots alone may be a peer's tool as well. */
export function urlOf(text: string): string | undefined {
  if (/^https?:\/\//i.test(text)) {
    if (!URL.canParse(text)) throw usageFailure(`${JSON.stringify(text)} is not a URL.`)
    return text
  }
  return text === 'localhost' || /^[^\s/]+:\d+(\/|$)|^[^\s/]+\.[^\s/]+\/|^\[/.test(text) ? hostUrl(text) : undefined
}

function withFlags(session: Session<ClientFlags>, { options, ...target }: Target, directory?: Directory): Target {
  const { flags, settings } = session
  const isFlag = settings.some(({ name, source }) => source === 'flag' && (name === 'bearer' || name === 'api-key'))
  // The configuration knows the peer better than a variable, which may be meant for another one.
  const auth = options.auth !== undefined && !isFlag ? options.auth : authOf(session, options.url)
  if (auth !== undefined) session.isSignedIn = true
  session.cardHint = 'Name the base URL of an agent, or that of its card, which ends in .json.'
  if (directory?.file !== undefined) {
    session.cardHint = `Check peers.${target.id}.url in ${directory.file}.`
    if (auth !== undefined && auth === options.auth) session.credentialsHint = authHint(target.id, directory)
  }
  session.agentUrl = options.url
  warnOfOpenWires(session, options.url)
  const tls = flags.insecure === true ? { tls: { ...options.tls, insecure: true } } : {}
  return {
    ...target,
    options: {
      ...options,
      ...tls,
      ...(auth === undefined ? {} : { auth }),
      ...(flags.a2aVersion === undefined ? {} : { versions: [flags.a2aVersion] }),
      headers: { ...options.headers, ...parseServiceParameters(flags.svcParam) },
    },
  }
}

/** Where credentials of the configuration come from, as nobody gave any others. */
function authHint(id: string, { file, variables }: Directory): string {
  const place = `/peers/${id}/auth`
  const texts = [...variables].flatMap(([path, text]) => (path.startsWith(`${place}/`) ? [text] : []))
  const names = texts.flatMap((text) => [...text.matchAll(/\$\{env:(\w+)\}/g)].map(([, name]) => name))
  const from = names.length === 0 ? '' : `, which takes ${[...new Set(names)].join(' and ')} from the environment`
  return `Check peers.${id}.auth in ${file}${from}.`
}

/** Connects to a peer, runs `use`, and closes the connection. Throws PeerError. */
export async function withPeer<Result>(
  session: Session<ClientFlags>,
  { id, options: { url, ...options } }: Target,
  use: (peer: Peer) => Promise<Result>,
): Promise<Result> {
  const peer = await connectPeer(url, {
    id,
    signal: session.signal,
    ...options,
    // The order of the card, unless somebody says otherwise.
    ...(options.bindings === undefined || session.flags.transport !== undefined ? bindingsOf(session.flags) : {}),
    onWire: (line) => session.debug(line.direction === 'out' ? '>' : '<', line),
  })
  try {
    return await use(peer)
  } finally {
    await peer.close()
  }
}
