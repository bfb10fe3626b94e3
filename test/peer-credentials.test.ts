/** What is put on requests to a peer, and what of it may show where. */
import { inspect } from 'node:util'
import { afterEach, describe, expect, test, vi } from 'vitest'
import type { ConvokeError } from '../dist/base/errors.js'
import { createGuardedFetch, type GuardedFetch } from '../dist/base/guarded-fetch.js'
import { createLog } from '../dist/base/log.js'
import { createCredentials, type Credentials } from '../dist/peers/credentials.js'
import type { PeerAuth } from '../dist/peers/peer.js'
import { cleanup, deferred } from './support/lifetime.ts'
import { grant, refusal, startOAuthServer, type OAuthServer } from './support/oauth-server.ts'

const home = 'https://bob.example'
const secret = 's3cr3t of bob: ü&+'

afterEach(() => {
  vi.useRealTimers()
})

function openFetch(): GuardedFetch {
  const fetch = createGuardedFetch({ allowPrivate: true })
  cleanup(() => fetch.close())
  return fetch
}

function credentialsOf(auth: PeerAuth | undefined): Credentials {
  return createCredentials(auth, home, openFetch(), 'bob')
}

function oauthOf({ tokenUrl }: { tokenUrl: string }, more: object = {}): Credentials {
  return credentialsOf({ oauth2: { tokenUrl, clientId: 'alice', clientSecret: secret, ...more } })
}

async function failureOf(work: () => unknown): Promise<ConvokeError> {
  try {
    await work()
  } catch (error) {
    return error as ConvokeError
  }
  throw new Error('It did not fail.')
}

/** Fails when one of the texts is anywhere in what an error can show. */
function expectHidden(error: ConvokeError, ...texts: string[]): void {
  const lines: string[] = []
  createLog('debug', { pretty: false, write: (line) => lines.push(line) }).error({ error }, error.message)
  const causes: unknown[] = []
  for (let each: unknown = error; each instanceof Error; each = each.cause) causes.push(each.message, each.stack)
  const shown = [
    inspect(error, { depth: null, showHidden: true }),
    JSON.stringify(error),
    String(error),
    ...lines,
    ...causes,
  ].join('\n')
  for (const text of texts) expect(shown).not.toContain(text)
}

describe('a bearer token', () => {
  test('goes to the origin of the peer, and to no other', () => {
    const credentials = credentialsOf({ bearer: 'abc.def' })
    expect(credentials.headers(home)).toEqual({ authorization: 'Bearer abc.def' })
    for (const other of ['http://bob.example', 'https://bob.example:8443', 'https://evil.example', 'null', '']) {
      expect(credentials.headers(other)).toEqual({})
      expect(credentials.query(other)).toEqual({})
    }
    expect(credentials.refused()).toBe(false)
  })

  test('is asked for before each request where it is a function', async () => {
    let count = 0
    const credentials = credentialsOf({ bearer: () => `token-${++count}` })
    expect(credentials.headers(home)).toEqual({ authorization: 'Bearer token-1' })
    expect(credentials.headers('https://evil.example')).toEqual({})
    expect(credentials.headers(home)).toEqual({ authorization: 'Bearer token-2' })
    const later = credentialsOf({ bearer: async () => 'token-3' })
    expect(await later.headers(home)).toEqual({ authorization: 'Bearer token-3' })
    expect([later.refused(), later.refused()], 'a refused one is asked for again, once').toEqual([true, false])
  })

  test('from a function that fails is told as that, in one way', async () => {
    const cause = new Error('The vault is closed.')
    const throwing = () => {
      throw cause
    }
    for (const bearer of [throwing, () => Promise.reject(cause)]) {
      const error = await failureOf(() => Promise.resolve(credentialsOf({ bearer }).headers(home)))
      expect(error).toMatchObject({ code: 'unauthenticated', message: expect.stringContaining('failed'), cause })
    }
  })

  test('from a function that never answers is waited for until the signal aborts', async () => {
    const credentials = credentialsOf({ bearer: () => deferred<string>().promise })
    const controller = new AbortController()
    const failing = failureOf(() => credentials.headers(home, controller.signal))
    controller.abort()
    expect((await failing).code).toBe('canceled')
  })

  test('that no header can carry is refused', async () => {
    for (const bearer of ['abc\r\nx-evil: 1', 'abc\n', 'a b', '', 'ü']) {
      const error = await failureOf(() => credentialsOf({ bearer }))
      expect(error).toMatchObject({ code: 'config', message: expect.stringContaining('bearer token of peer "bob"') })
      expect(error.message).not.toContain('abc')
      const asked = credentialsOf({ bearer: () => Promise.resolve(bearer) })
      const late = await failureOf(() => asked.headers(home))
      expect(late.code).toBe('unauthenticated')
      expectHidden(late, 'abc')
    }
  })

  test('shows in no picture of the credentials', () => {
    for (const auth of [{ bearer: 'hide-me' }, { apiKey: 'hide-me' }]) {
      expect(inspect(credentialsOf(auth), { depth: null, showHidden: true })).not.toContain('hide-me')
    }
  })
})

describe('an API key', () => {
  const key = 'key-1'

  test('goes into the configured header while no card says otherwise', () => {
    expect(credentialsOf({ apiKey: key }).headers(home)).toEqual({ 'X-API-Key': key })
    expect(credentialsOf({ apiKey: key, header: 'X-Bob' }).headers(home)).toEqual({ 'X-Bob': key })
    expect(credentialsOf({ apiKey: key }).headers('https://evil.example')).toEqual({})
  })

  test.each([
    ['1.0', 'header', { apiKeySecurityScheme: { location: 'header', name: 'X-Key' } }],
    ['1.0', 'query', { apiKeySecurityScheme: { location: 'query', name: 'key' } }],
    ['1.0', 'cookie', { apiKeySecurityScheme: { location: 'cookie', name: 'key' } }],
    ['0.3', 'header', { type: 'apiKey', in: 'header', name: 'X-Key' }],
    ['0.3', 'query', { type: 'apiKey', in: 'query', name: 'key' }],
    ['0.3', 'cookie', { type: 'apiKey', in: 'cookie', name: 'key' }],
  ])('goes where a card of %s says: %s', (_version, kind, scheme) => {
    const credentials = credentialsOf({ apiKey: key })
    credentials.useCard({ securitySchemes: { mine: scheme } })
    const sent = { headers: credentials.headers(home), query: credentials.query(home) }
    const places: Record<string, object> = {
      header: { headers: { 'X-Key': key }, query: {} },
      query: { headers: {}, query: { key } },
      cookie: { headers: { cookie: `key=${key}` }, query: {} },
    }
    expect(sent).toEqual(places[kind])
    expect(credentials.query('https://evil.example')).toEqual({})
    credentials.useCard({})
    expect(credentials.headers(home), 'a card without schemes').toEqual({ 'X-API-Key': key })
  })

  test('takes the scheme that the card requires before others', () => {
    const schemes = {
      first: { apiKeySecurityScheme: { location: 'header', name: 'X-First' } },
      second: { apiKeySecurityScheme: { location: 'header', name: 'X-Second' } },
    }
    const credentials = credentialsOf({ apiKey: key })
    credentials.useCard({ securitySchemes: schemes, securityRequirements: [{ schemes: { second: { list: [] } } }] })
    expect(credentials.headers(home)).toEqual({ 'X-Second': key })
    const old = {
      first: { type: 'apiKey', in: 'query', name: 'a' },
      second: { type: 'apiKey', in: 'query', name: 'b' },
    }
    credentials.useCard({ securitySchemes: old, security: [{ second: [] }] })
    expect(credentials.query(home)).toEqual({ b: key })
  })

  test('is never put where a card has no business', () => {
    const names = ['Host', 'content-length', 'Transfer-Encoding', 'cookie', 'A2A-Version', 'x y', 'x\r\ny', 'x:', '', 7]
    for (const name of names) {
      const credentials = credentialsOf({ apiKey: key })
      credentials.useCard({ securitySchemes: { mine: { apiKeySecurityScheme: { location: 'header', name } } } })
      expect(credentials.headers(home)).toEqual({ 'X-API-Key': key })
    }
    for (const card of [
      { securitySchemes: [] },
      { securitySchemes: { a: null } },
      { security: 'a' },
      { security: [7] },
    ]) {
      const credentials = credentialsOf({ apiKey: key })
      credentials.useCard(card)
      expect(credentials.headers(home)).toEqual({ 'X-API-Key': key })
    }
    const credentials = credentialsOf({ apiKey: key })
    credentials.useCard({ securitySchemes: { mine: { type: 'apiKey', in: 'body', name: 'key' } } })
    expect(credentials.headers(home)).toEqual({ 'X-API-Key': key })
    credentials.useCard({ securitySchemes: { mine: { type: 'apiKey', in: 'query', name: '__proto__' } } })
    expect(Object.keys(credentials.query(home))).toEqual(['__proto__'])
  })

  test('in a cookie cannot add another cookie', () => {
    const credentials = credentialsOf({ apiKey: 'a; admin=1' })
    credentials.useCard({ securitySchemes: { mine: { type: 'apiKey', in: 'cookie', name: 'key' } } })
    expect(credentials.headers(home)).toEqual({ cookie: 'key=a%3B%20admin%3D1' })
  })

  test('that no request can carry, or for a header that is none, is refused', async () => {
    expect((await failureOf(() => credentialsOf({ apiKey: 'abc\n' }))).message).not.toContain('abc')
    expect((await failureOf(() => credentialsOf({ apiKey: key, header: 'Host' }))).code).toBe('config')
    expect((await failureOf(() => credentialsOf({ apiKey: key, header: 'x\r\ny' }))).code).toBe('config')
  })
})

describe('OAuth client credentials', () => {
  test('ask with Basic, both halves form-encoded, and scopes and audience in the form', async () => {
    const server = await startOAuthServer(() => grant('t1'))
    const credentials = oauthOf(server, { clientId: 'alice:1', scopes: ['read', 'tool:*'], audience: 'bob' })
    expect(await credentials.headers(home)).toEqual({ authorization: 'Bearer t1' })
    const [request] = server.requests()
    const basic = Buffer.from(`alice%3A1:s3cr3t+of+bob%3A+%C3%BC%26%2B`).toString('base64')
    expect(request).toMatchObject({
      method: 'POST',
      headers: { authorization: `Basic ${basic}`, 'content-type': 'application/x-www-form-urlencoded' },
      form: { grant_type: 'client_credentials', scope: 'read tool:*', audience: 'bob' },
    })
    expect(JSON.stringify(request?.form)).not.toContain('s3cr3t')
  })

  test('make one request for all callers, then answer at once', async () => {
    const gate = deferred()
    const server = await startOAuthServer(async () => {
      await gate.promise
      return grant('t1')
    })
    const credentials = oauthOf(server)
    const asked = Array.from({ length: 50 }, async () => credentials.headers(home))
    expect(credentials.headers('https://evil.example'), 'another origin').toEqual({})
    gate.resolve()
    expect(new Set((await Promise.all(asked)).map((each) => each['authorization']))).toEqual(new Set(['Bearer t1']))
    expect(credentials.headers(home), 'not a promise').toEqual({ authorization: 'Bearer t1' })
    expect(server.requests()).toHaveLength(1)
  })

  test('let one caller go without stopping the others', async () => {
    const gate = deferred()
    const server = await startOAuthServer(async () => {
      await gate.promise
      return grant('t1')
    })
    const credentials = oauthOf(server)
    const controller = new AbortController()
    const leaving = failureOf(() => credentials.headers(home, controller.signal))
    const staying = credentials.headers(home, new AbortController().signal)
    controller.abort()
    expect((await leaving).code).toBe('canceled')
    gate.resolve()
    expect(await staying).toEqual({ authorization: 'Bearer t1' })
    expect((await failureOf(() => oauthOf(server).headers(home, AbortSignal.abort()))).code).toBe('canceled')
  })

  test.each([
    ['3600 s', 3600, 3570],
    ['100 s', 100, 90],
    ['no time', undefined, 270],
    ['a number as a text', '3600', 3570],
    ['nonsense', 'soon', 270],
    ['a negative number', -1, 270],
    ['longer than there are dates', 1e300, 10 * 365 * 86_400 - 30],
  ])('keep a token of %s until shortly before it ends', async (_name, seconds, keptS) => {
    vi.useFakeTimers({ toFake: ['Date'] })
    const server = await startOAuthServer(({ call }) => grant(`t${call}`, { expires_in: seconds }))
    const credentials = oauthOf(server)
    await credentials.headers(home)
    vi.advanceTimersByTime(keptS * 1000 - 1)
    expect(await credentials.headers(home)).toEqual({ authorization: 'Bearer t1' })
    vi.advanceTimersByTime(1)
    expect(await credentials.headers(home)).toEqual({ authorization: 'Bearer t2' })
  })

  test('take one new token for one that the peer refuses, and no more than one in ten seconds', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    const server = await startOAuthServer(({ call }) => grant(`t${call}`))
    const credentials = oauthOf(server)
    const first = await credentials.headers(home)
    expect(credentials.refused(first)).toBe(true)
    expect(credentials.refused(first), 'the next one is on its way').toBe(true)
    const second = await credentials.headers(home)
    expect(second).toEqual({ authorization: 'Bearer t2' })
    expect(credentials.refused(first), 'the next one is there').toBe(true)
    expect(credentials.headers(home)).toEqual(second)
    expect(credentials.refused(second), 'the new one is refused, too').toBe(false)
    expect(credentials.refused(), 'one of the two is refused').toBe(true)
    expect(credentials.headers(home)).toEqual(second)
    vi.advanceTimersByTime(10_000)
    expect(credentials.refused()).toBe(true)
    expect(await credentials.headers(home)).toEqual({ authorization: 'Bearer t3' })
  })

  test('remember a failure for one second, and try again then', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    const server = await startOAuthServer(({ call }) => (call === 1 ? refusal('temporarily_unavailable') : grant('t2')))
    const credentials = oauthOf(server)
    const failures = await Promise.all([1, 2, 3].map(() => failureOf(() => credentials.headers(home))))
    failures.push(await failureOf(() => credentials.headers(home)))
    expect(failures.map(({ code }) => code)).toEqual(Array(4).fill('unauthenticated'))
    expect(server.requests()).toHaveLength(1)
    vi.advanceTimersByTime(1_000)
    expect(await credentials.headers(home)).toEqual({ authorization: 'Bearer t2' })
  })

  const basic = Buffer.from('alice:s3cr3t+of+bob%3A+%C3%BC%26%2B').toString('base64')
  test.each([
    [
      'a wrong secret',
      refusal('invalid_client', `bad secret ${secret}`, 401),
      /invalid_client: bad secret \[redacted\]/,
      false,
    ],
    ['a quoted header', refusal('invalid_client', `got Basic ${basic}`, 401), /got Basic \[redacted\]/, false],
    ['an error that is the secret', refusal(secret), /said no: \[redacted\]/, false],
    ['no JSON', { body: `{"access_token": "hide-me ${secret}` }, /answered with no JSON/, false],
    ['a list', { body: ['hide-me'] }, /answered with no JSON/, false],
    ['a page', { status: 500, body: `<h1>${secret}</h1>` }, /HTTP status 500/, true],
    ['too many requests', { status: 429, body: '' }, /HTTP status 429/, true],
    [
      'a redirect',
      { status: 307, headers: { location: '/elsewhere' } },
      /HTTP status 307; redirects are not followed/,
      false,
    ],
    ['no token', { body: { token_type: 'Bearer' } }, /gave no token/, false],
    ['a token with a line break', grant('hide-me\r\nx: 1'), /gave no token/, false],
    ['a token of another kind', grant('hide-me', { token_type: 'mac' }), /another kind than Bearer/, false],
    [
      'a description that steers the terminal',
      refusal('invalid_scope', '\u001b[2J'),
      /said no: invalid_scope\.$/,
      false,
    ],
  ])('say what is wrong, and never a secret: %s', async (_name, answer, words, retryable) => {
    const server = await startOAuthServer(() => answer)
    const error = await failureOf(() => oauthOf(server).headers(home))
    expect(error).toMatchObject({ code: 'unauthenticated', message: expect.stringMatching(words), retryable })
    expect(error.message).toContain('No token for peer "bob"')
    expect(server.requests('/elsewhere')).toEqual([])
    expectHidden(error, secret, 's3cr3t', basic, 'hide-me')
  })

  test('say so when nobody answers', async () => {
    const server: OAuthServer = await startOAuthServer(() => grant('t1'))
    const fetch = createGuardedFetch({ allowPrivate: false })
    cleanup(() => fetch.close())
    const oauth2 = { tokenUrl: `${server.tokenUrl}?key=hide-me`, clientId: 'alice', clientSecret: secret }
    const error = await failureOf(() => createCredentials({ oauth2 }, home, fetch, 'bob').headers(home))
    expect(error).toMatchObject({ code: 'unauthenticated', message: expect.stringContaining('cannot be asked') })
    expectHidden(error, 's3cr3t', 'hide-me')
    expect(server.requests()).toEqual([])
  })

  test('go to https, or to this machine, only', async () => {
    const wrong = [
      'http://auth.example/token',
      'ftp://auth.example',
      'auth',
      'https://a:hide-me@auth.example/',
      'data:,x',
    ]
    for (const tokenUrl of wrong) {
      const error = await failureOf(() => oauthOf({ tokenUrl }))
      expect(error).toMatchObject({ code: 'config', message: expect.stringContaining('tokenUrl of peer "bob"') })
      expectHidden(error, 'hide-me', 's3cr3t')
    }
    for (const tokenUrl of [
      'https://auth.example/t',
      'http://localhost:1/t',
      'http://[::1]:1/t',
      'http://127.0.0.2/t',
    ]) {
      expect(oauthOf({ tokenUrl }).query(home)).toEqual({})
    }
  })

  test.each([
    { clientId: 'a\nhide-me' },
    { clientSecret: 'hide-me\n' },
    { scopes: ['hide-me\n'] },
    { audience: 'hide-me\0' },
  ])('with a control character are refused: %j', async (options) => {
    const error = await failureOf(() => oauthOf({ tokenUrl: 'https://auth.example' }, options))
    expect(error.code).toBe('config')
    expectHidden(error, 'hide-me')
  })

  test('show in no picture of the credentials', async () => {
    const server = await startOAuthServer(() => grant('hide-me'))
    const credentials = oauthOf(server)
    await credentials.headers(home)
    const picture = inspect(credentials, { depth: null, showHidden: true })
    for (const text of ['hide-me', 's3cr3t']) expect(picture).not.toContain(text)
  })
})

test('a peer without credentials is asked without', () => {
  const credentials = credentialsOf(undefined)
  credentials.useCard({ securitySchemes: { mine: { type: 'apiKey', in: 'header', name: 'X-Key' } } })
  expect([credentials.headers(home), credentials.query(home), credentials.refused()]).toEqual([{}, {}, false])
})
