/** From what a person names as the agent to a client that is connected to it. */
import { readFile, stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { createGuardedFetch, type GuardedFetch } from '../../base/guarded-fetch.ts'
import { isObject, parseJson, type JsonObject } from '../../base/json.ts'
import { CardResolver, interfacesOf } from '../../peers/card-resolver.ts'
import { securitySchemes } from '../../peers/card-security.ts'
import { PeerClient } from '../../peers/client.ts'
import { createCredentials } from '../../peers/credentials.ts'
import { PeerError } from '../../peers/errors.ts'
import { Link, originOf } from '../../peers/link.ts'
import type { Binding, PeerAuth, PeerInfo } from '../../peers/peer.ts'
import { storedCredentials } from '../credentials.ts'
import { ClientFailure, usageFailure } from './failure.ts'
import type { Session } from './session.ts'
import { parseServiceParameters, type ClientFlags } from './settings.ts'
import { quote } from './text.ts'

/** A client, and what is known of its agent. */
export interface Connection {
  readonly client: PeerClient
  readonly card: JsonObject
  readonly info: PeerInfo
}

/** What `--agent-card` names. */
export type AgentReference = { readonly file: string } | { readonly url: string }

/**
 * Runs `use` with a client that is connected to the agent of the settings, and closes it. Throws a ClientFailure or a
 * PeerError: without an agent, a card, or an interface that can be spoken to.
 */
export async function withClient(session: Session, use: (connection: Connection) => Promise<void>): Promise<void> {
  const { flags, signal } = session
  await withCard(session, async ({ card, url, named }, fetch) => {
    // A card may name any interface; credentials are for the agent that was named. One in a file speaks for itself.
    const home = named ?? interfacesOf(card)[0]?.url
    const auth = authOf(session, home)
    const client = new PeerClient({
      id: peerId,
      url: url ?? '',
      card,
      ...(home === undefined ? {} : { home }),
      fetch,
      headers: parseServiceParameters(flags.svcParam),
      versions: [flags.a2aVersion ?? '1.0'],
      onWire: (line) => session.debug(line.direction === 'out' ? '>' : '<', line),
      ...bindingsOf(flags),
      ...(auth === undefined ? {} : { auth }),
    })
    try {
      const info = await client.connect({ signal })
      session.isConnected = true
      session.debug('connected', info)
      warnOfOpenWires(session, info.url)
      await use({ client, card, info })
    } finally {
      await client.close()
    }
  })
}

/** Runs `use` with the agent's card as it stands there, and a way to its network. */
export async function withCard(
  session: Session,
  use: (found: FoundCard, fetch: GuardedFetch) => Promise<void>,
): Promise<void> {
  const { insecure } = session.flags
  // A person names the agent, so its address may be any.
  const fetch = createGuardedFetch({ allowPrivate: true, ...(insecure === true ? { tls: { insecure } } : {}) })
  try {
    const reference = await toReference(session.flags.agentCard)
    const found =
      'file' in reference ? { card: await readCard(reference.file) } : await fetchCard(session, reference.url, fetch)
    session.credentialsHint = credentialsHint(found.card, session.agentFlag)
    await use(found, fetch)
  } catch (error) {
    if (!session.isConnected && isNetworkError(error)) session.addressHint = await peerHint(session.flags.agentCard)
    throw error
  } finally {
    await fetch.close()
  }
}

function isNetworkError(error: unknown): boolean {
  return error instanceof PeerError && error.code === 'network'
}

/** A name that leads nowhere may be that of a peer, which other commands take. */
async function peerHint(name = ''): Promise<string | undefined> {
  if (!/^[\w-]{1,64}$/.test(name)) return undefined
  // The configuration loads the whole node with it.
  const { findConfigFile, loadConfigFile } = await import('../config.ts')
  const file = await findConfigFile()
  // What is wrong with a file that this command does not use is no matter here.
  const peers = file === undefined ? undefined : await loadConfigFile(file).catch(() => undefined)
  const peer = peers?.options.peers?.[name]
  if (peer === undefined) return undefined
  return `-a takes a URL: -a ${quote(peer.url)}. ${name} is a peer of ${file}; peers are for convoke tools, call and doctor.`
}

/** The name of the one peer there is; messages leave it out. */
const peerId = 'agent'

/** Throws `A2ACLI_ERR_USAGE` where no agent is named. */
export async function toReference(text: string | undefined): Promise<AgentReference> {
  if (text === undefined || text === '') {
    throw usageFailure('No agent is named.', 'Name one with -a/--agent-card, or set A2ACLI_AGENT_CARD.')
  }
  if (/^https?:\/\//i.test(text)) {
    if (!URL.canParse(text)) throw usageFailure(`The agent card ${JSON.stringify(text)} is not a URL.`)
    return { url: text }
  }
  if (text.startsWith('file://')) return { file: fileURLToPath(text) }
  const isFile = await stat(text).then(
    (found) => found.isFile(),
    () => false,
  )
  if (isFile || /^[./~\\]/.test(text) || /^[^/:]+\.json$/.test(text)) return { file: text }
  const url = hostUrl(text)
  if (url === undefined) throw usageFailure(`${JSON.stringify(text)} is no host, no URL and no card file.`)
  return { url }
}

/** The URL that a bare host means: https, but on this machine. */
export function hostUrl(text: string): string | undefined {
  const host = `http://${text}`
  if (!URL.canParse(host)) return undefined
  return isLoopbackHost(host) ? host : `https://${text}`
}

export function isLoopbackHost(url: string): boolean {
  return /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/.test(new URL(url).hostname)
}

async function readCard(file: string): Promise<JsonObject> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (cause) {
    throw new ClientFailure('A2ACLI_ERR_CARD_NOT_FOUND', `Cannot read the agent card ${file}.`, { cause })
  }
  const card = toCard(text)
  if (card === undefined) throw new ClientFailure('A2ACLI_ERR_CARD_INVALID', `${file} is no agent card.`)
  return card
}

function toCard(text: string): JsonObject | undefined {
  try {
    const card = parseJson(text)
    return isObject(card) && typeof card['name'] === 'string' ? (card as JsonObject) : undefined
  } catch {
    return undefined
  }
}

/** A card, and where it comes from if that is the network. */
export interface FoundCard {
  readonly card: JsonObject
  /** Where it stands, behind redirects. */
  readonly url?: string
  /** What the person named. */
  readonly named?: string
}

/** Without credentials: the card says which it wants. With them where it is closed itself. */
async function fetchCard(session: Session, url: string, fetch: GuardedFetch): Promise<FoundCard> {
  try {
    return await fetchCardAs(session, undefined, url, fetch)
  } catch (error) {
    const auth = authOf(session, url)
    const isClosed = error instanceof PeerError && (error.httpStatus === 401 || error.httpStatus === 403)
    if (!isClosed || auth === undefined) throw error
    warnOfOpenWires(session, url)
    return fetchCardAs(session, auth, url, fetch)
  }
}

const cardTimeoutMs = 30_000

async function fetchCardAs(
  session: Session,
  auth: PeerAuth | undefined,
  url: string,
  fetch: GuardedFetch,
): Promise<FoundCard> {
  const { flags, signal } = session
  const home = originOf(url)
  const link = new Link({
    peer: peerId,
    fetch,
    credentials: createCredentials(auth, home, fetch, peerId),
    home,
    headers: { ...parseServiceParameters(flags.svcParam), 'a2a-version': flags.a2aVersion ?? '1.0' },
    onWire: (line) => session.debug(line.direction === 'out' ? '>' : '<', line),
  })
  const exchange = { signal, timeoutMs: cardTimeoutMs }
  const { pathname } = new URL(url)
  if (pathname !== '/' && !pathname.endsWith('.json')) {
    // A URL with a path is that of a card, or of an agent that has its card below it.
    const request = { method: 'GET', headers: { accept: 'application/json' }, maxRedirects: 3 } as const
    const answer = await link.text(url, request, exchange)
    const card = answer.status === 200 ? toCard(answer.text) : undefined
    if (card !== undefined) return { card, url: answer.url, named: url }
  }
  const resolver = new CardResolver({ peer: peerId, url, link })
  const card = await resolver.card(exchange)
  return { card, url: resolver.url, named: url }
}

export function bindingsOf({ transport = [] }: ClientFlags): { bindings?: Binding[]; cardOrder?: boolean } {
  const spoken: readonly Binding[] = ['JSONRPC', 'HTTP+JSON']
  // What is wished for and not spoken here is passed over, as a binding is that the card does not offer.
  const wished = transport.filter((each): each is Binding => spoken.some((binding) => binding === each))
  if (wished.length === 0) return { cardOrder: true }
  return { bindings: [...new Set([...wished, ...spoken])] }
}

/**
 * The credential that was named more closely: a flag before a file. Of two from the same place, the bearer token. Without
 * any, what `convoke auth login` has kept for the origin of `url`, where requests go.
 */
export function authOf(session: Session<ClientFlags>, url: string | undefined): PeerAuth | undefined {
  const { flags, settings } = session
  const { bearer, apiKey } = flags
  const nearness = ['flag', 'environment', 'local', 'global', 'default']
  const rank = (name: string): number =>
    nearness.indexOf(settings.find((setting) => setting.name === name)?.source ?? 'default')
  if (apiKey !== undefined && (bearer === undefined || rank('api-key') < rank('bearer'))) return { apiKey }
  if (bearer !== undefined) return { bearer }
  const stored = url === undefined ? undefined : storedCredentials(url)
  session.isSignedIn = stored !== undefined
  return stored
}

/** Says when somebody on the way could read a credential. */
export function warnOfOpenWires(session: Session<ClientFlags>, url: string): void {
  const { insecure } = session.flags
  const carries = session.hasCredentials || (session.flags.svcParam ?? []).length > 0
  if (insecure === true) {
    session.note('WARNING: --insecure: certificates are not verified, anybody could be at the other end.')
    if (carries) session.note('WARNING: a credential is sent over this unverified connection.')
  }
  if (carries && url.startsWith('http:') && !isLoopbackHost(url)) {
    session.note(`WARNING: a credential is sent in clear text to ${new URL(url).host}; use https.`)
  }
}

/** What the card's security schemes ask for, as options of this tool. */
export function credentialsHint(card: JsonObject, agentFlag: string): string | undefined {
  const ways = securitySchemes(card).flatMap(({ members }) => {
    const type = members['type']
    if (members['apiKeySecurityScheme'] !== undefined || type === 'apiKey') return ['A2ACLI_API_KEY (or --api-key)']
    if (members['httpAuthSecurityScheme'] !== undefined || type === 'http') return ['A2ACLI_BEARER (or --bearer)']
    const isOAuth =
      members['oauth2SecurityScheme'] !== undefined ||
      members['openIdConnectSecurityScheme'] !== undefined ||
      type === 'oauth2' ||
      type === 'openIdConnect'
    return isOAuth ? [`convoke auth login${agentFlag}`] : []
  })
  return ways.length === 0 ? undefined : `The agent takes: ${[...new Set(ways)].join('; ')}.`
}
