/** Is the card where it belongs, and is it right? */
import { ConvokeError } from '../../../base/errors.ts'
import { isObject, type JsonObject } from '../../../base/json.ts'
import { cardPath, interfacesOf, isCardUrl } from '../../../peers/card-resolver.ts'
import { originOf } from '../../../peers/link.ts'
import { describeIssues } from '../../../tools/issues.ts'
import { clip } from '../../../tools/value.ts'
import { cardIssues } from '../../a2a/card-schema.ts'
import { isLoopbackHost } from '../../a2a/connection.ts'
import { headerOf, jsonOf, type Patient, type RawAnswer } from './patient.ts'

const oldCardPath = '/.well-known/agent.json'
/** Larger cards take long to fetch and read; tools can be listed at a URL of their own. */
const maxCardBytes = 256 * 1024
const accept = { accept: 'application/json' }

/** Finds the card and looks at it from all sides. False where there is none to go on with. */
export async function checkCard(patient: Patient): Promise<boolean> {
  const answer = await findCard(patient)
  const card = answer === undefined ? undefined : readCard(patient, answer)
  if (answer === undefined || card === undefined) {
    patient.findings.isHopeless = true
    return false
  }
  patient.useCard(card, answer.url)
  checkFields(patient)
  await checkCaching(patient, answer)
  checkSize(patient, answer)
  checkSecrets(patient)
  return checkInterfaces(patient)
}

async function findCard(patient: Patient): Promise<RawAnswer | undefined> {
  const { findings, options } = patient
  const { url } = options
  const base = url.replace(/\/$/, '')
  const { origin, pathname } = new URL(url)
  const candidates = isCardUrl(url)
    ? [{ url, what: 'given' }]
    : [
        { url: base + cardPath, what: 'right' },
        { url: base + oldCardPath, what: 'old' },
        ...(pathname === '/' ? [] : [{ url: origin + cardPath, what: 'root' }]),
      ]
  let seen = ''
  let isReached = false
  for (const { url: candidate, what } of candidates) {
    let answer: RawAnswer
    try {
      answer = await getCard(patient, candidate)
    } catch (error) {
      if (patient.signal.aborted) throw error
      const { message } = ConvokeError.from(error)
      findings.fail(
        'card.path',
        `The peer cannot be reached: ${message}`,
        'Check the address and the port, and that the agent runs.',
      )
      return undefined
    }
    if (!isReached) checkUrl(patient)
    isReached = true
    if (answer.status !== 200) {
      seen ||= `${answer.status} at ${candidate}`
      continue
    }
    if (what === 'old') {
      const fix = `Serve it at ${cardPath}, where clients since A2A 0.3 look.`
      findings.warning('card.path', `The card is at the old path only: ${candidate}`, fix)
    } else if (what === 'root') {
      const fix = `Name the peer by ${origin}, or serve the card below ${base}.`
      findings.warning('card.path', `There is no card below ${base}, but one at ${candidate}.`, fix)
    } else findings.ok('card.path', `The card is at ${answer.url}.`)
    return answer
  }
  const fix = `Serve the card at ${base}${cardPath}, without credentials. Is this the URL of an agent?`
  findings.fail('card.path', `There is no agent card: ${seen}.`, fix)
  return undefined
}

function checkUrl({ findings, options: { url } }: Patient): void {
  const { protocol, pathname } = new URL(url)
  if (/\/\.well-known\//.test(pathname)) {
    const base = url.replace(/\/\.well-known\/.*$/, '')
    findings.warning(
      'url',
      'The URL is that of the card, not that of the agent.',
      `Name the agent by ${base}; the card is found there.`,
    )
  } else if (protocol === 'http:' && !isLoopbackHost(url)) {
    findings.warning(
      'url',
      'The URL is http: credentials and data can be read on the way.',
      'Serve the agent over https.',
    )
  } else findings.ok('url', `A server answers at ${url}.`)
}

/** Public, as it should be; with credentials where it is closed. Tells of redirects. */
async function getCard(patient: Patient, url: string): Promise<RawAnswer> {
  const { findings } = patient
  const get = (bare: boolean, maxRedirects: number): Promise<RawAnswer> =>
    patient.request(url, { method: 'GET', headers: accept, bare, maxRedirects })
  let answer = await get(true, 0)
  if ((answer.status === 401 || answer.status === 403) && patient.hasCredentials) {
    const fix =
      'Serve the card to everybody: it says which credentials are wanted. What is private belongs on the extended card.'
    findings.warning('card.public', `The card itself wants credentials (${answer.status}).`, fix)
    answer = await get(false, 0)
  }
  const location = headerOf(answer, 'location')
  if (answer.status < 300 || answer.status > 399 || answer.status === 304 || location === '') return answer
  findings.warning(
    'card.redirect',
    `The card is redirected (${answer.status}) to ${clip(location, 200)}.`,
    'Name the peer by the URL behind the redirect: it costs a request, and POSTs do not follow every one.',
  )
  return get(true, 3)
}

function readCard({ findings }: Patient, answer: RawAnswer): JsonObject | undefined {
  const type = headerOf(answer, 'content-type')
  const card = jsonOf(answer.text)
  if (!isObject(card)) {
    const what = /^\s*</.test(answer.text) ? 'a page of HTML' : 'no JSON object'
    findings.fail(
      'card.json',
      `What stands at ${answer.url} is ${what}.`,
      'Serve the card as JSON. A catch-all route of a website may answer in its place.',
    )
    return undefined
  }
  findings.ok('card.json', 'The card is valid JSON.')
  if (/^application\/(?:[\w.-]+\+)?json\b/.test(type)) findings.ok('card.content_type', `Its content type is ${type}.`)
  else
    findings.warning(
      'card.content_type',
      `Its content type is ${type === '' ? 'missing' : JSON.stringify(clip(type, 100))}.`,
      'Send Content-Type: application/json.',
    )
  return card as JsonObject
}

function checkFields({ findings, card }: Patient): void {
  const isOld = card['supportedInterfaces'] === undefined && card['url'] !== undefined
  if (isOld) {
    const wanted = [
      'name',
      'description',
      'url',
      'version',
      'protocolVersion',
      'capabilities',
      'defaultInputModes',
      'defaultOutputModes',
      'skills',
    ]
    const missing = wanted.filter((key) => card[key] === undefined)
    if (missing.length > 0)
      findings.fail(
        'card.fields',
        `The card of A2A 0.3 lacks ${missing.join(', ')}.`,
        'Add what is missing: parsers with types refuse the card.',
      )
    else findings.ok('card.fields', 'The card has the fields that A2A 0.3 requires.')
    return
  }
  const issues = cardIssues(card)
  if (issues.length === 0) findings.ok('card.fields', 'The card has the fields that A2A 1.0 requires.')
  else
    findings.fail(
      'card.fields',
      `The card breaks the schema of A2A 1.0: ${describeIssues(issues)}.`,
      'Mend these fields: parsers with types refuse the card.',
    )
}

async function checkCaching(patient: Patient, answer: RawAnswer): Promise<void> {
  const { findings } = patient
  const etag = headerOf(answer, 'etag')
  const control = headerOf(answer, 'cache-control')
  const missing = [...(etag === '' ? ['ETag'] : []), ...(control === '' ? ['Cache-Control'] : [])]
  if (missing.length > 0) {
    findings.warning(
      'card.caching',
      `The card comes without ${missing.join(' and ')}.`,
      'Send both, so that clients ask again cheaply and at the right time.',
    )
    return
  }
  const again = await patient.request(answer.url, { method: 'GET', headers: { ...accept, 'if-none-match': etag } })
  if (again.status === 304)
    findings.ok('card.caching', `It can be cached (${control}), and asked for again with its ETag.`)
  else
    findings.warning(
      'card.caching',
      `Asked again with its own ETag, the peer answered ${again.status} instead of 304.`,
      'Answer 304 to If-None-Match; a proxy may have changed or dropped the header.',
    )
}

function checkSize({ findings }: Patient, { text }: RawAnswer): void {
  const bytes = Buffer.byteLength(text)
  if (bytes <= maxCardBytes) findings.ok('card.size', `Its size is ${bytes} bytes.`)
  else
    findings.warning(
      'card.size',
      `Its size is ${bytes} bytes, more than ${maxCardBytes}.`,
      'List the tools at params.tools_url of the extension, a page at a time.',
    )
}

/** What tokens and keys of well-known makers look like. */
const secretShapes: readonly (readonly [what: string, shape: RegExp])[] = [
  ['a private key', /-----BEGIN [A-Z ]*PRIVATE KEY/],
  ['a key of AWS', /\bAKIA[0-9A-Z]{16}\b/],
  ['a token of GitHub', /\bgh[pousr]_[A-Za-z0-9]{36}/],
  ['an API key', /\bsk-[A-Za-z0-9_-]{20,}/],
  ['a token of Slack', /\bxox[abprs]-[A-Za-z0-9-]{10,}/],
  ['a key of Google', /\bAIza[\w-]{35}/],
  ['a signed token (JWT)', /\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}/],
  ['a token of Convoke', /\bcvk_[\w-]{43}/],
  ['a password in a URL', /:\/\/[^\s/@:]+:[^\s/@]+@/],
]
const secretNames = /^(password|passwd|client_?secret|api_?key|access_?token|refresh_?token|private_?key|secret)$/i

function checkSecrets({ findings, card }: Patient): void {
  const found = new Set<string>()
  const look = (value: unknown, path: string): void => {
    if (typeof value === 'string') {
      for (const [what, shape] of secretShapes) if (shape.test(value)) found.add(`${what} at ${path}`)
    } else if (typeof value === 'object' && value !== null) {
      for (const [key, member] of Object.entries(value)) {
        const here = `${path}/${clip(key, 60)}`
        // A schema may well have a member of this name; a text of eight characters is a value.
        if (secretNames.test(key) && typeof member === 'string' && member.length >= 8) found.add(`a value at ${here}`)
        look(member, here)
      }
    }
  }
  look(card, '')
  if (found.size === 0) findings.ok('card.secrets', 'Nothing on it looks like a secret.')
  else
    findings.fail(
      'card.secrets',
      `Everybody can read ${[...found].slice(0, 5).join(', ')}.`,
      'Take it off the card, and replace the secret: it is known by now.',
    )
}

function checkInterfaces(patient: Patient): boolean {
  const { findings, card, interfaces, cardUrl } = patient
  const all = interfacesOf(card)
  if (all.length === 0) {
    findings.fail(
      'interfaces',
      'The card names no interface of A2A 1.0 or 0.3 over JSON-RPC or HTTP+JSON.',
      'List one in supportedInterfaces, with an absolute url, its protocolBinding and protocolVersion.',
    )
    findings.isHopeless = true
    return false
  }
  const foreign = all.filter(
    (each) => !interfaces.includes(each) && !interfaces.some(({ url }) => originOf(url) === originOf(each.url)),
  )
  const downgraded = all.filter(({ url }) => cardUrl.startsWith('https:') && url.startsWith('http:'))
  if (downgraded.length > 0) {
    findings.fail(
      'interfaces.origin',
      `The card came over https and names ${downgraded[0]?.url ?? ''}.`,
      'Name the https URL: set the public URL of the agent, it likely stands behind a proxy.',
    )
  } else if (foreign.length > 0) {
    const origins = [...new Set(foreign.map(({ url }) => new URL(url).origin))].join(', ')
    const fix =
      "Name URLs on the card's own origin (the public URL of the agent), or allow them at the client: allowOrigins."
    if (interfaces.length === 0)
      findings.fail(
        'interfaces.origin',
        `All interfaces are on another origin (${origins}), where careful clients send no credentials.`,
        fix,
      )
    else findings.warning('interfaces.origin', `Some interfaces are on another origin: ${origins}.`, fix)
  } else findings.ok('interfaces.origin', 'All interfaces are on the origin of the card.')
  if (all.some(({ version }) => version === '1.0')) findings.ok('interfaces.version', 'A2A 1.0 is offered.')
  else findings.warning('interfaces.version', 'Only A2A 0.3 is offered.', 'Offer 1.0 as well; clients are moving on.')
  if (interfaces.length === 0) findings.isHopeless = true
  return interfaces.length > 0
}
