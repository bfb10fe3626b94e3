/** Where an agent's authorization server is: from its card, and from the server's own metadata where the card is silent. */
import { ConvokeError } from '../base/errors.ts'
import type { GuardedFetch } from '../base/guarded-fetch.ts'
import { isObject, parseJson, type JsonObject } from '../base/json.ts'
import { membersOf, securitySchemes } from './card-security.ts'
import { checkEndpoint } from './oauth.ts'

export type OAuthFlow = 'device' | 'client-credentials'

export interface OAuthEndpoints {
  readonly tokenUrl: string
  /** Where a device grant begins. Always there for that flow. */
  readonly deviceUrl?: string
  /** What the card requires. */
  readonly scopes: readonly string[]
}

/** What is known so far of one scheme's server. */
interface Known {
  readonly tokenUrl?: string
  readonly deviceUrl?: string
  readonly metadataUrl?: string
  readonly scopes: readonly string[]
}

const metadataTimeoutMs = 30_000
const maxMetadataBytes = 1024 * 1024

/**
 * The endpoints for one flow. What the card leaves out comes from the metadata that it points to (`oauth2MetadataUrl`,
 * `openIdConnectUrl`), or else from the well-known places of the token endpoint's origin (RFC 8414). `known` wins over
 * all of them. `check` sees every URL before it is used, and throws for one that may not be.
 *
 * Throws `not_found` where no endpoint can be found, and `config` for one that is neither https nor on this machine.
 */
export async function discoverOAuth(
  card: JsonObject,
  flow: OAuthFlow,
  fetch: GuardedFetch,
  options: {
    readonly known?: { readonly tokenUrl?: string; readonly deviceUrl?: string }
    readonly check?: (url: string) => void
    readonly signal?: AbortSignal
  } = {},
): Promise<OAuthEndpoints> {
  const { known = {}, check = () => {}, signal } = options
  const schemes = oauthSchemes(card, flow).map((scheme) => ({ ...scheme, ...known }))
  const isComplete = ({ tokenUrl, deviceUrl }: Omit<Known, 'scopes'>): boolean =>
    tokenUrl !== undefined && (flow !== 'device' || deviceUrl !== undefined)
  const found: Known = schemes.find(isComplete) ?? schemes[0] ?? { ...known, scopes: [] }
  const completed = isComplete(found) ? found : { ...found, ...(await askServer(found)) }
  const { tokenUrl, deviceUrl } = { ...completed, ...known }
  if (tokenUrl === undefined) throw missing('token endpoint')
  if (flow === 'device' && deviceUrl === undefined) throw missing('endpoint for devices')
  for (const url of [tokenUrl, deviceUrl]) if (url !== undefined) allow(url)
  return { tokenUrl, ...(deviceUrl === undefined ? {} : { deviceUrl }), scopes: found.scopes }

  function allow(url: string): string {
    checkEndpoint(url, "An endpoint of the agent's authorization server")
    // What the caller names himself needs no leave of his.
    if (url !== known.tokenUrl && url !== known.deviceUrl) check(url)
    return url
  }

  /** What the card says itself stays: the metadata only fills it up. */
  async function askServer(scheme: Known): Promise<Omit<Known, 'scopes'>> {
    for (const url of metadataUrls(scheme)) {
      const metadata = await readMetadata(allow(url))
      // RFC 8414, section 3.3: at a place that we have guessed, only the server itself may speak.
      if (scheme.metadataUrl === undefined && !isSameOrigin(metadata['issuer'], url)) continue
      const { token_endpoint: tokenUrl, device_authorization_endpoint: deviceUrl } = metadata
      const filled = { ...urls({ tokenUrl, deviceUrl }), ...urls({ ...scheme }) }
      if (isComplete(filled)) return filled
    }
    return {}
  }

  async function readMetadata(url: string): Promise<Record<string, unknown>> {
    const { status, text } = await fetch.text(url, {
      method: 'GET',
      headers: { accept: 'application/json' },
      timeoutMs: metadataTimeoutMs,
      maxBytes: maxMetadataBytes,
      ...(signal === undefined ? {} : { signal }),
    })
    if (status !== 200) return {}
    try {
      return membersOf(parseJson(text))
    } catch {
      // A page where metadata might have been is as good as none: what is missing is said in the end.
      return {}
    }
  }
}

function missing(what: string): ConvokeError {
  return new ConvokeError('not_found', `Neither the agent card nor its authorization server names a ${what}.`)
}

function oauthSchemes(card: JsonObject, flow: OAuthFlow): Known[] {
  return securitySchemes(card).flatMap(({ members, scopes }) => {
    const oauth = members['oauth2SecurityScheme'] ?? (members['type'] === 'oauth2' ? members : undefined)
    if (isObject(oauth)) {
      const flows = membersOf(oauth['flows'])
      const { tokenUrl, deviceAuthorizationUrl: deviceUrl } = membersOf(
        flows[flow === 'device' ? 'deviceCode' : 'clientCredentials'],
      )
      // One server has one token endpoint: 0.3 has no device flow, and another one tells where the server is.
      const elsewhere = Object.values(flows).map((each) => membersOf(each)['tokenUrl'])
      const token = [tokenUrl, ...(flow === 'device' ? elsewhere : [])].find(isUrl)
      return [{ ...urls({ tokenUrl: token, deviceUrl, metadataUrl: oauth['oauth2MetadataUrl'] }), scopes }]
    }
    const connect =
      members['openIdConnectSecurityScheme'] ?? (members['type'] === 'openIdConnect' ? members : undefined)
    if (isObject(connect)) return [{ ...urls({ metadataUrl: connect['openIdConnectUrl'] }), scopes }]
    return []
  })
}

function metadataUrls({ metadataUrl, tokenUrl, deviceUrl }: Known): string[] {
  if (metadataUrl !== undefined) return [metadataUrl]
  const at = tokenUrl ?? deviceUrl
  if (at === undefined) return []
  return ['oauth-authorization-server', 'openid-configuration'].map((name) => new URL(`/.well-known/${name}`, at).href)
}

function urls<Name extends string>(members: { [Key in Name]?: unknown }): { [Key in Name]?: string } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => isUrl(value))) as { [Key in Name]?: string }
}

/** Empty texts stand on cards for members that are not there. */
function isUrl(value: unknown): value is string {
  return typeof value === 'string' && URL.canParse(value)
}

function isSameOrigin(issuer: unknown, url: string): boolean {
  return isUrl(issuer) && new URL(issuer).origin === new URL(url).origin
}
