/**
 * The tokens that `convoke auth login` got, in one file that only its owner can read. A token goes to the origin that it
 * was got for; client commands find it here and renew it when it ends.
 */
import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
  type Stats,
} from 'node:fs'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { ConvokeError } from '../base/errors.ts'
import { createGuardedFetch } from '../base/guarded-fetch.ts'
import { isObject } from '../base/json.ts'
import {
  freshUntil,
  isTokenText,
  refreshToken,
  requestClientToken,
  type OAuthClient,
  type OAuthToken,
} from '../peers/oauth.ts'
import { originOf } from '../peers/link.ts'
import type { OAuthFlow } from '../peers/oauth-discovery.ts'
import type { PeerAuth } from '../peers/peer.ts'
import { environment } from './environment.ts'

/** What is kept of a sign-in. The client's secret is among it, as there is no renewing the token without. */
export interface SignIn {
  readonly flow: OAuthFlow
  readonly client: OAuthClient
  readonly token: OAuthToken
  /** When the token was asked for, in milliseconds since 1970. */
  readonly askedAt: number
}

/** Where the tokens are: below `$XDG_CONFIG_HOME`, which counts if it is absolute, or `~/.config`. */
export function credentialsFile(): string {
  const configured = environment()['XDG_CONFIG_HOME'] ?? ''
  return join(isAbsolute(configured) ? configured : join(homedir(), '.config'), 'a2a-cli', 'credentials.json')
}

/**
 * All sign-ins by origin. A file that others can read is closed to them, with a warning. Throws `config` for one that
 * belongs to somebody else, or that is not ours by its content.
 */
export function readSignIns(): Map<string, SignIn> {
  const file = credentialsFile()
  const text = readPrivately(file)
  if (text === undefined) return new Map()
  const signIns = parse(text)
  if (signIns !== undefined) return signIns
  throw new ConvokeError('config', `${file} is not a file of sign-ins. Delete it, and sign in again.`)
}

export function isRenewable({ flow, token }: SignIn): boolean {
  return flow === 'client-credentials' || token.refreshToken !== undefined
}

/** Keeps a sign-in in place of the one there may be for that origin. */
export function keepSignIn(origin: string, signIn: SignIn): void {
  change((signIns) => signIns.set(origin, signIn))
}

/** Forgets sign-ins, and tells of which origins there were some. */
export function forgetSignIns(origins: readonly string[]): string[] {
  const known = readSignIns()
  const gone = origins.filter((origin) => known.has(origin))
  if (gone.length > 0) change((signIns) => gone.forEach((origin) => signIns.delete(origin)))
  return gone
}

/**
 * What a client command puts on its requests to the origin of a URL, if somebody has signed in there. The token is renewed shortly
 * before it ends, and kept; asking for it throws `unauthenticated` when that is not possible.
 */
export function storedCredentials(url: string): PeerAuth | undefined {
  const origin = originOf(url)
  let signIn = readSignIns().get(origin)
  if (signIn === undefined) return undefined
  let renewing: Promise<SignIn> | undefined
  return {
    bearer() {
      if (signIn !== undefined && isFresh(signIn)) return signIn.token.accessToken
      renewing ??= renew(origin).finally(() => (renewing = undefined))
      return renewing.then((renewed) => {
        signIn = renewed
        return renewed.token.accessToken
      })
    },
  }
}

/** One that cannot be renewed is used to its end. */
function isFresh(signIn: SignIn): boolean {
  const { expiresAt } = signIn.token
  if (expiresAt === undefined) return true
  return Date.now() < (isRenewable(signIn) ? freshUntil(expiresAt, signIn.askedAt) : expiresAt)
}

async function renew(origin: string): Promise<SignIn> {
  // Another command may have renewed it meanwhile.
  const known = readSignIns().get(origin)
  if (known !== undefined && isFresh(known)) return known
  if (known === undefined || !isRenewable(known)) throw ended(origin)
  const fetch = createGuardedFetch({ allowPrivate: true })
  const { client, flow, token } = known
  const askedAt = Date.now()
  try {
    const isClient = flow === 'client-credentials'
    const next = await (isClient
      ? requestClientToken(fetch, client)
      : refreshToken(fetch, client, token.refreshToken ?? ''))
    const renewed = { flow, client, token: { ...scopesOf(token), ...next }, askedAt }
    keepSignIn(origin, renewed)
    return renewed
  } catch (error) {
    // A refresh token may be good for one use only, and another command was faster.
    const latest = readSignIns().get(origin)
    if (latest !== undefined && isFresh(latest)) return latest
    if (error instanceof ConvokeError && error.retryable) throw error
    throw ended(origin, error)
  } finally {
    await fetch.close()
  }
}

function scopesOf({ scopes }: OAuthToken): Pick<OAuthToken, 'scopes'> {
  return scopes === undefined ? {} : { scopes }
}

function ended(origin: string, cause?: unknown): ConvokeError {
  const why = cause instanceof ConvokeError ? ` ${cause.message}` : ''
  const text = `The sign-in to ${origin} has ended.${why} Sign in again: convoke auth login -a ${origin}`
  return new ConvokeError('unauthenticated', text, { cause })
}

/** Nothing waits between reading and replacing, so that two commands hardly ever undo each other's change. */
function change(apply: (signIns: Map<string, SignIn>) => void): void {
  const signIns = readSignIns()
  apply(signIns)
  replacePrivately(
    credentialsFile(),
    `${JSON.stringify({ version: 1, signIns: Object.fromEntries(signIns) }, null, 2)}\n`,
  )
}

const others = 0o077
/** Windows has neither modes nor owners by number. */
const hasModes = process.platform !== 'win32'

function readPrivately(file: string): string | undefined {
  const found = stat(file)
  if (found === undefined) return undefined
  if (hasModes && found.uid !== process.getuid?.()) {
    throw new ConvokeError('config', `${file} belongs to another user, and is not used therefore.`)
  }
  if (hasModes && (found.mode & others) !== 0) {
    chmodSync(file, 0o600)
    process.stderr.write(`warning: ${file} was open to other users of this machine. It is closed now; sign in anew.\n`)
  }
  return readFileSync(file, 'utf8')
}

/** The new text is there in whole or not at all. */
function replacePrivately(file: string, text: string): void {
  const folder = dirname(file)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  if (hasModes && ((stat(folder)?.mode ?? 0) & others) !== 0) chmodSync(folder, 0o700)
  const fresh = `${file}.${randomBytes(6).toString('hex')}`
  try {
    const handle = openSync(fresh, 'wx', 0o600)
    try {
      writeSync(handle, text)
      fsyncSync(handle)
    } finally {
      closeSync(handle)
    }
    renameSync(fresh, file)
  } catch (error) {
    rmSync(fresh, { force: true })
    throw error
  }
}

function stat(path: string): Stats | undefined {
  return statSync(path, { throwIfNoEntry: false })
}

function parse(text: string): Map<string, SignIn> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    if (!isObject(value) || value['version'] !== 1 || !isObject(value['signIns'])) return undefined
    const entries = Object.entries(value['signIns'])
    return entries.every((entry): entry is [string, SignIn] => isSignIn(entry[1])) ? new Map(entries) : undefined
  } catch {
    // The parser's words quote the text, and the text holds tokens.
    return undefined
  }
}

/** As far as it matters where a token goes and what is sent. */
function isSignIn(value: unknown): boolean {
  if (!isObject(value)) return false
  const { client, token, flow, askedAt } = value
  if (!isObject(client) || !isObject(token)) return false
  const { tokenUrl, clientId, clientSecret } = client
  const { accessToken, expiresAt, refreshToken: refresh } = token
  return (
    (flow === 'device' || flow === 'client-credentials') &&
    typeof askedAt === 'number' &&
    isTokenText(accessToken) &&
    (expiresAt === undefined || (typeof expiresAt === 'number' && !Number.isNaN(new Date(expiresAt).getTime()))) &&
    [refresh, clientSecret].every((each) => each === undefined || typeof each === 'string') &&
    typeof tokenUrl === 'string' &&
    typeof clientId === 'string'
  )
}
