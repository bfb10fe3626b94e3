/** What `convoke auth` does. stdout says what came of it, stderr what a person has to do; no token is on either. */
import { text as readAll } from 'node:stream/consumers'
import { namesPrivateAddress } from '../base/address.ts'
import { ConvokeError } from '../base/errors.ts'
import { createGuardedFetch, NetworkError, type GuardedFetch } from '../base/guarded-fetch.ts'
import type { JsonObject } from '../base/json.ts'
import { interfacesOf } from '../peers/card-resolver.ts'
import { securitySchemes } from '../peers/card-security.ts'
import { PeerError } from '../peers/errors.ts'
import { originOf } from '../peers/link.ts'
import { discoverOAuth, type OAuthEndpoints, type OAuthFlow } from '../peers/oauth-discovery.ts'
import {
  checkClient,
  pollDeviceToken,
  requestClientToken,
  requestDeviceGrant,
  type DeviceGrant,
  type OAuthClient,
} from '../peers/oauth.ts'
import { toReference, withCard } from './a2a/connection.ts'
import { ClientFailure, usageFailure } from './a2a/failure.ts'
import type { Session } from './a2a/session.ts'
import type { AgentFlags } from './a2a/settings.ts'
import { field } from './a2a/text.ts'
import { forgetSignIns, isRenewable, keepSignIn, readSignIns, type SignIn } from './credentials.ts'
import { loadSources } from './environment.ts'

export interface LoginFlags extends AgentFlags {
  readonly flow?: OAuthFlow
  readonly clientId?: string
  readonly clientSecretStdin?: boolean
  readonly scope?: readonly string[]
  readonly audience?: string
  readonly tokenUrl?: string
  readonly deviceUrl?: string
}

export interface LogoutFlags extends AgentFlags {
  readonly all?: boolean
}

/** Gets a token and keeps it. Whoever stops the wait for a person leaves things as they were. */
export async function login(session: Session<LoginFlags>): Promise<void> {
  const { flags } = session
  const reference = await toReference(flags.agentCard)
  if (flags.clientId === undefined) {
    throw usageFailure('No client is named.', 'Name the one that the authorization server knows: --client-id ID')
  }
  const clientSecret = await findSecret(flags)
  const flow = flags.flow ?? (clientSecret === undefined ? 'device' : 'client-credentials')
  if (flow === 'client-credentials' && clientSecret === undefined) {
    throw usageFailure(
      'This flow needs the secret of the client.',
      'Set A2ACLI_CLIENT_SECRET, or use --client-secret-stdin.',
    )
  }
  const client = {
    clientId: flags.clientId,
    ...(clientSecret === undefined ? {} : { clientSecret }),
    ...(flags.scope === undefined ? {} : { scopes: flags.scope.flatMap((each) => each.split(' ')).filter(Boolean) }),
    ...(flags.audience === undefined ? {} : { audience: flags.audience }),
  }
  const isCardNeeded = flags.tokenUrl === undefined || (flow === 'device' && flags.deviceUrl === undefined)
  if (isCardNeeded || 'file' in reference) {
    return withCard(session, ({ card }, fetch) => {
      const origin = 'file' in reference ? originOfCard(card) : originOf(reference.url)
      warnOfOtherOrigin(session, card, origin)
      return signIn(session, { origin, card, flow, client, fetch })
    })
  }
  const fetch = createGuardedFetch({
    allowPrivate: true,
    ...(flags.insecure === true ? { tls: { insecure: true } } : {}),
  })
  try {
    await signIn(session, { origin: originOf(reference.url), card: {}, flow, client, fetch })
  } finally {
    await fetch.close()
  }
}

/** Forgets one sign-in, or all; it is no failure if there was none. */
export async function logout(session: Session<LogoutFlags>): Promise<void> {
  const { all, agentCard } = session.flags
  if (all !== true && agentCard === undefined) {
    throw usageFailure('No agent is named.', 'Name one with -a/--agent-card, or forget all tokens with --all.')
  }
  const origins = forgetSignIns(all === true ? [...readSignIns().keys()] : [await originOfAgent(session)])
  session.show({ origins }, () =>
    origins.length === 0 ? 'There was no sign-in.\n' : origins.map((each) => field('Signed out', each)).join(''),
  )
}

export async function showStatus(session: Session): Promise<void> {
  const origin = session.flags.agentCard === undefined ? undefined : await originOfAgent(session)
  const rows = [...readSignIns()].filter(([each]) => origin === undefined || each === origin).map(toRow)
  if (origin !== undefined && rows.length === 0) {
    const hint = `Sign in: convoke auth login${session.agentFlag}`
    throw new ClientFailure('A2ACLI_ERR_CREDENTIALS_MISSING', `Not signed in to ${origin}.`, { hint })
  }
  session.show(rows, () => rows.map(toText).join('\n') || 'Not signed in anywhere.\n')
}

interface SigningIn {
  readonly origin: string
  readonly card: JsonObject
  readonly flow: OAuthFlow
  readonly client: Omit<OAuthClient, 'tokenUrl'>
  readonly fetch: GuardedFetch
}

async function signIn(session: Session<LoginFlags>, { origin, card, flow, client, fetch }: SigningIn): Promise<void> {
  const { signal } = session
  const endpoints = await findEndpoints(session, origin, card, flow, fetch)
  const { tokenUrl, deviceUrl, scopes } = endpoints
  const complete: OAuthClient = { scopes, ...client, tokenUrl }
  checkClient(complete)
  session.debug('asking for a token', { flow, tokenUrl, deviceUrl, scopes: complete.scopes })
  try {
    let askedAt = Date.now()
    let token
    if (flow === 'device' && deviceUrl !== undefined) {
      const grant = await requestDeviceGrant(fetch, complete, deviceUrl, signal)
      session.note(toInstructions(origin, grant))
      token = await pollDeviceToken(fetch, complete, grant, signal)
      askedAt = Date.now()
    } else {
      token = await requestClientToken(fetch, complete, signal)
    }
    const made: SignIn = { flow, client: complete, token, askedAt }
    keepSignIn(origin, made)
    const row = toRow([origin, made])
    session.show({ origin, expiresAt: row.expiresAt, scopes: row.scopes }, () => toText(row))
  } catch (error) {
    throw toFailure(error)
  }
}

/** From stdin, or from where settings come from; never from a flag, which other users of the machine see. */
async function findSecret({ clientSecretStdin, config }: LoginFlags): Promise<string | undefined> {
  if (clientSecretStdin === true) {
    // `echo` puts a line break behind it.
    const secret = (await readAll(process.stdin)).replace(/\r?\n$/, '')
    if (secret === '') throw usageFailure('There is no client secret on stdin.')
    return secret
  }
  const sources = await loadSources(config)
  const found = sources.find(({ variables }) => variables['A2ACLI_CLIENT_SECRET'] !== undefined)
  return found?.variables['A2ACLI_CLIENT_SECRET'] || undefined
}

async function originOfAgent(session: Session): Promise<string> {
  const reference = await toReference(session.flags.agentCard)
  if ('url' in reference) return originOf(reference.url)
  let origin = ''
  await withCard(session, async ({ card }) => {
    origin = originOfCard(card)
  })
  return origin
}

/** A card from a file has no origin; its agent has. */
function originOfCard(card: JsonObject): string {
  const [first] = interfacesOf(card)
  if (first !== undefined) return originOf(first.url)
  throw new ClientFailure('A2ACLI_ERR_CARD_INVALID', 'The agent card does not say where its agent is.')
}

function warnOfOtherOrigin(session: Session, card: JsonObject, origin: string): void {
  const others = interfacesOf(card).map(({ url }) => originOf(url))
  if (others.length === 0 || others.includes(origin)) return
  session.note(`warning: the token will go to ${origin} only, but the agent takes requests at ${others.join(', ')}.`)
}

async function findEndpoints(
  { flags: { tokenUrl, deviceUrl }, signal }: Session<LoginFlags>,
  origin: string,
  card: JsonObject,
  flow: OAuthFlow,
  fetch: GuardedFetch,
): Promise<OAuthEndpoints> {
  const known = { ...(tokenUrl === undefined ? {} : { tokenUrl }), ...(deviceUrl === undefined ? {} : { deviceUrl }) }
  const endpointFlags = `--token-url URL${flow === 'device' ? ' --device-url URL' : ''}`
  const hint = `Name them if you know them: ${endpointFlags}`
  const check = (url: string): void => {
    if (!namesPrivateAddress(url) || namesPrivateAddress(origin)) return
    const where = new URL(url).origin
    throw usageFailure(`The card wants a token from ${where}, which is not of the public internet.`, hint)
  }
  try {
    return await discoverOAuth(card, flow, fetch, { known, check, signal })
  } catch (error) {
    if (!(error instanceof ConvokeError) || error.code !== 'not_found') throw error
    if (securitySchemes(card).length > 0) throw usageFailure(error.message, hint)
    throw usageFailure(
      'The agent asks for no credentials: its card names none.',
      `There is nothing to sign in to, unless you know better: ${endpointFlags}`,
    )
  }
}

/** What the authorization server answered is about credentials, whatever its own name for it. */
function toFailure(error: unknown): unknown {
  if (!(error instanceof ConvokeError) || error instanceof PeerError) return error
  const isUnreachable = error.cause instanceof NetworkError
  switch (error.code) {
    case 'unauthenticated':
    case 'forbidden':
    case 'timeout':
      return new ClientFailure(isUnreachable ? 'A2ACLI_ERR_UNREACHABLE' : 'A2ACLI_ERR_AUTH_FAILED', error.message, {
        cause: error,
      })
    default:
      return error
  }
}

function toInstructions(origin: string, { verificationUrl, completeUrl, userCode, expiresAt }: DeviceGrant): string {
  const minutes = Math.max(1, Math.round((expiresAt - Date.now()) / 60_000))
  const direct = completeUrl === undefined ? '' : `\nOr open this page, which has the code in it: ${completeUrl}\n`
  return `To sign in to ${origin}, open this page and enter the code:

  Page: ${verificationUrl}
  Code: ${userCode}
${direct}
Waiting for up to ${minutes} min; Ctrl-C stops.`
}

interface Row {
  readonly origin: string
  /** ISO 8601; null where the authorization server does not say. */
  readonly expiresAt: string | null
  readonly scopes: readonly string[]
  /** Whether commands get a new token by themselves. */
  readonly renewable: boolean
}

function toRow([origin, made]: [string, SignIn]): Row {
  const { expiresAt, scopes = [] } = made.token
  const end = expiresAt === undefined ? null : new Date(expiresAt).toISOString()
  return { origin, expiresAt: end, scopes, renewable: isRenewable(made) }
}

function toText({ origin, expiresAt, scopes, renewable }: Row): string {
  const isOver = expiresAt !== null && Date.parse(expiresAt) <= Date.now()
  const end = `${expiresAt ?? 'not told'}${isOver ? ' (over)' : ''}${renewable ? ', renewed by itself' : ''}`
  return field('Signed in', origin) + field('Expires', end) + field('Scopes', scopes.join(' ') || 'not told')
}
