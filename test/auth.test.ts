import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, exportSPKI, generateKeyPair, SignJWT } from 'jose'
import type { CryptoKey, JWK } from 'jose'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { createAuthenticator, wwwAuthenticate } from '../dist/server/auth/authenticator.js'
import type { Authenticator, CredentialHeaders } from '../dist/server/auth/authenticator.js'
import { createOriginGuard } from '../dist/server/auth/origin.js'
import { allows } from '../dist/tools/scopes.js'
import { createToken, hashToken } from '../dist/server/auth/token.js'

const closers: (() => unknown)[] = []
afterEach(async () => {
  vi.useRealTimers()
  for (const close of closers.splice(0).toReversed()) await close()
})

/** What authenticate throws or rejects with. */
async function failureOf(authenticator: Authenticator, headers: CredentialHeaders): Promise<unknown> {
  try {
    return { passed: await authenticator.authenticate(headers) }
  } catch (error) {
    return error
  }
}

const notAccepted = { code: 'unauthenticated', message: 'The credentials were not accepted.' }

describe('without auth', () => {
  test('everyone is anonymous and may do everything, and the card says nothing', () => {
    const authenticator = createAuthenticator(undefined)
    expect(authenticator.required).toBe(false)
    expect(authenticator.authenticate({ authorization: 'Bearer whatever' })).toEqual({ id: 'anonymous', scopes: ['*'] })
    expect(authenticator.authenticate({})).toBe(authenticator.authenticate({}))
    expect(authenticator.schemes()).toBeUndefined()
  })
})

describe('tokens', () => {
  const token = createToken()
  const limited = createToken()
  const authenticator = createAuthenticator({
    tokens: [
      { id: 'bob', sha256: hashToken(token).toUpperCase() },
      { id: 'carl', sha256: hashToken(limited), scopes: ['message'] },
    ],
  })

  test('let their caller in at once, as a bearer token and as an API key', () => {
    const bob = { id: 'bob', scopes: ['*'] }
    expect(authenticator.authenticate({ authorization: `Bearer ${token}` })).toEqual(bob)
    expect(authenticator.authenticate({ authorization: `bearer   ${token} ` })).toEqual(bob)
    expect(authenticator.authenticate({ 'x-api-key': token })).toEqual(bob)
    expect(authenticator.authenticate({ authorization: 'Basic eDp5', 'x-api-key': token })).toEqual(bob)
    expect(authenticator.authenticate({ 'x-api-key': limited })).toEqual({ id: 'carl', scopes: ['message'] })
  })

  test.each([
    { authorization: 'Bearer wrong' },
    { authorization: `Bearer ${token}x` },
    { authorization: `Bearer ${hashToken(token)}` },
    { authorization: 'Bearer __proto__' },
    { authorization: 'Bearer a.b.c' },
    { 'x-api-key': 'wrong' },
    { authorization: 'Bearer wrong', 'x-api-key': token },
  ])('are refused when wrong: %j', async (headers) => {
    expect(await failureOf(authenticator, headers)).toMatchObject(notAccepted)
  })

  test.each([
    {},
    { authorization: '' },
    { authorization: 'Bearer' },
    { authorization: 'Bearer ' },
    { authorization: 'Basic eDp5' },
    { 'x-api-key': '' },
  ])('are asked for when missing: %j', async (headers) => {
    expect(await failureOf(authenticator, headers)).toMatchObject({
      code: 'unauthenticated',
      message: 'This node needs credentials: send the header "Authorization: Bearer TOKEN" or "X-API-Key: TOKEN".',
    })
  })

  test('are long, random and safe in headers, and stored as their SHA-256', () => {
    expect(token).toMatch(/^cvk_[\w-]{43}$/)
    expect(createToken()).not.toBe(token)
    expect(hashToken('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')
  })

  test.each([
    [{}, 'server.auth has no tokens and no jwt, so nobody could call: add one of them, or leave auth out.'],
    [{ tokens: [] }, 'server.auth has no tokens and no jwt, so nobody could call: add one of them, or leave auth out.'],
    [
      { tokens: [{ id: 'bob', sha256: token }] },
      'server.auth.tokens[0].sha256 must be the SHA-256 of the token, 64 hex digits; convoke token makes one.',
    ],
    [
      { tokens: [{ id: 'b|b', sha256: hashToken(token) }] },
      'server.auth.tokens[0].id must be 1 to 128 letters, digits, _, -, . or @.',
    ],
    [
      { tokens: [{ id: 'bob', sha256: hashToken(token), scopes: ['tools:*'] }] },
      'server.auth.tokens[0].scopes must be *, message or tool:NAME (* in NAME stands for any characters).',
    ],
    [
      {
        tokens: [
          { id: 'bob', sha256: hashToken(token) },
          { id: 'carl', sha256: hashToken(token) },
        ],
      },
      'server.auth.tokens[1] has the same hash as another one: give each caller a token of its own.',
    ],
  ])('that protect nothing are a config error %#', (options, message) => {
    expect(() => createAuthenticator(options)).toThrow(expect.objectContaining({ code: 'config', message }))
  })
})

describe('WWW-Authenticate', () => {
  test('says invalid_token when there was a bearer token', () => {
    expect(wwwAuthenticate({})).toBe('Bearer realm="convoke"')
    expect(wwwAuthenticate({ 'x-api-key': 'wrong' })).toBe('Bearer realm="convoke"')
    expect(wwwAuthenticate({ authorization: 'Bearer wrong' })).toBe('Bearer realm="convoke", error="invalid_token"')
  })
})

describe('the card', () => {
  const sha256 = hashToken('x')
  const jwt = { issuer: 'https://idp.example.com', audience: 'alice', jwksUrl: 'https://idp.example.com/keys' }

  test('declares each way in, in the words of A2A 1.0 and 0.3, where any one is enough', () => {
    const { v1, v03 } = createAuthenticator({ tokens: [{ id: 'bob', sha256 }], jwt }).schemes() ?? {}
    expect(v1?.securitySchemes).toEqual({
      bearer: { httpAuthSecurityScheme: { description: expect.any(String), scheme: 'Bearer' } },
      apiKey: { apiKeySecurityScheme: { description: expect.any(String), location: 'header', name: 'X-API-Key' } },
      jwt: { httpAuthSecurityScheme: { description: expect.any(String), scheme: 'Bearer', bearerFormat: 'JWT' } },
    })
    expect(v1?.securityRequirements).toEqual([
      { schemes: { bearer: { list: [] } } },
      { schemes: { apiKey: { list: [] } } },
      { schemes: { jwt: { list: [] } } },
    ])
    expect(v03?.securitySchemes).toEqual({
      bearer: { type: 'http', description: expect.any(String), scheme: 'bearer' },
      apiKey: { type: 'apiKey', description: expect.any(String), in: 'header', name: 'X-API-Key' },
      jwt: { type: 'http', description: expect.any(String), scheme: 'bearer', bearerFormat: 'JWT' },
    })
    expect(v03?.security).toEqual([{ bearer: [] }, { apiKey: [] }, { jwt: [] }])
  })

  test('declares only what is configured', () => {
    expect(Object.keys(createAuthenticator({ jwt }).schemes()?.v1.securitySchemes ?? {})).toEqual(['jwt'])
    expect(
      Object.keys(createAuthenticator({ tokens: [{ id: 'bob', sha256 }] }).schemes()?.v03.securitySchemes ?? {}),
    ).toEqual(['bearer', 'apiKey'])
  })
})

/** An identity provider: publishes keys on a real port, and signs. */
async function startIssuer() {
  const keys: JWK[] = []
  let answer: (() => { status: number; body: string }) | undefined
  let fetches = 0
  const server = createServer((_request, response) => {
    fetches++
    const { status, body } = answer?.() ?? { status: 200, body: JSON.stringify({ keys }) }
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(body)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const stop = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve())
      server.closeAllConnections()
    })
  closers.push(stop)
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    url,
    stop,
    fetches: () => fetches,
    answer(with_: typeof answer) {
      answer = with_
    },
    async addKey(kid: string, alg = 'ES256') {
      const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true })
      keys.push({ ...(await exportJWK(publicKey)), kid, alg, use: 'sig' })
      return { publicKey, privateKey, kid, alg }
    },
    removeKeys: () => keys.splice(0),
  }
}

interface Key {
  readonly privateKey: CryptoKey | Uint8Array
  readonly kid: string
  readonly alg: string
}

describe('JWTs', () => {
  async function setUp(algorithms?: readonly string[]) {
    const issuer = await startIssuer()
    const key = await issuer.addKey('first')
    const authenticator = createAuthenticator({
      tokens: [{ id: 'bob', sha256: hashToken('static') }],
      jwt: {
        issuer: issuer.url,
        audience: 'alice',
        jwksUrl: `${issuer.url}/keys`,
        ...(algorithms === undefined ? {} : { algorithms }),
      },
    })
    closers.push(() => authenticator.close())
    const sign = (signer: Key, claims: Record<string, unknown> = {}) => {
      const now = Math.floor(Date.now() / 1000)
      const payload = { iss: issuer.url, aud: 'alice', sub: 'user-1', iat: now, exp: now + 60, ...claims }
      const defined = Object.fromEntries(Object.entries(payload).filter(([, value]) => value !== undefined))
      return new SignJWT(defined).setProtectedHeader({ alg: signer.alg, kid: signer.kid }).sign(signer.privateKey)
    }
    const headers = (jwt: string) => ({ authorization: `Bearer ${jwt}` })
    return { issuer, key, authenticator, sign, headers }
  }

  test('let in who the issuer names, with the scopes of the token, or all where it has none', async () => {
    const { issuer, key, authenticator, sign, headers } = await setUp()
    const id = `${issuer.url}|user-1`
    const callerOf = async (claims: Record<string, unknown>) =>
      authenticator.authenticate(headers(await sign(key, claims)))
    expect(await callerOf({})).toEqual({ id, scopes: ['*'] })
    expect(await callerOf({ aud: ['other', 'alice'] })).toEqual({ id, scopes: ['*'] })
    expect(await callerOf({ scope: 'tool:count_*  message' })).toEqual({ id, scopes: ['tool:count_*', 'message'] })
    expect(await callerOf({ scp: ['message'] })).toEqual({ id, scopes: ['message'] })
    expect(await callerOf({ scp: 'message openid' })).toEqual({ id, scopes: ['message', 'openid'] })
    expect(await callerOf({ scope: '' })).toEqual({ id, scopes: [] })
    expect(issuer.fetches()).toBe(1)
  })

  test('do not get in the way of tokens, which are still answered at once', async () => {
    const { authenticator, issuer } = await setUp()
    expect(authenticator.authenticate({ authorization: 'Bearer static' })).toEqual({ id: 'bob', scopes: ['*'] })
    expect(issuer.fetches()).toBe(0)
  })

  test('are not taken as API keys', async () => {
    const { key, authenticator, sign } = await setUp()
    expect(await failureOf(authenticator, { 'x-api-key': await sign(key) })).toMatchObject(notAccepted)
  })

  test.each<[string, Record<string, unknown>]>([
    ['expired', { exp: Math.floor(Date.now() / 1000) - 60 }],
    ['not yet valid', { nbf: Math.floor(Date.now() / 1000) + 60 }],
    ['valid for ever', { exp: undefined }],
    ['for another audience', { aud: 'mallory' }],
    ['for no audience', { aud: undefined }],
    ['from another issuer', { iss: 'https://mallory.example.com' }],
    ['without a subject', { sub: undefined }],
    ['with an empty subject', { sub: '' }],
    ['with scopes of an unknown form', { scope: 5 }],
  ])('that are %s are refused in the same words', async (_what, claims) => {
    const { key, authenticator, sign, headers } = await setUp()
    expect(await failureOf(authenticator, headers(await sign(key, claims)))).toMatchObject(notAccepted)
  })

  test('are taken within a small difference of the clocks', async () => {
    const { key, authenticator, sign, headers } = await setUp()
    const exp = Math.floor(Date.now() / 1000) - 2
    expect(await authenticator.authenticate(headers(await sign(key, { exp })))).toMatchObject({ scopes: ['*'] })
  })

  test('are refused when their signature, algorithm or key is not the issuer’s', async () => {
    const { key, authenticator, sign, headers } = await setUp()
    const good = await sign(key)
    const [header, payload, signature] = good.split('.')
    const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${payload}.`
    const noneSigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${payload}.${signature}`
    const other = await generateKeyPair('ES256')
    // The classic: a public key used as a shared secret.
    const shared = new TextEncoder().encode(await exportSPKI(key.publicKey))
    const forged = Buffer.from(JSON.stringify({ iss: 'x', sub: 'root' })).toString('base64url')
    for (const jwt of [
      none,
      noneSigned,
      `${header}.${payload}.${signature?.slice(0, -4)}AAAA`,
      `${header}.${forged}.${signature}`,
      await sign({ ...key, privateKey: other.privateKey }),
      await sign({ privateKey: shared, kid: 'first', alg: 'HS256' }),
      await sign({ privateKey: other.privateKey, kid: 'unknown', alg: 'ES256' }),
      'e30.e30.e30',
      '%%.%%.%%',
      'a..b',
    ]) {
      expect(await failureOf(authenticator, headers(jwt)), jwt).toMatchObject(notAccepted)
    }
    expect(await authenticator.authenticate(headers(good))).toMatchObject({ scopes: ['*'] })
  })

  test('are refused with an algorithm that is not on the list', async () => {
    const { issuer, key, authenticator, sign, headers } = await setUp(['RS256'])
    const rsa = await issuer.addKey('rsa', 'RS256')
    expect(await failureOf(authenticator, headers(await sign(key)))).toMatchObject(notAccepted)
    expect(await authenticator.authenticate(headers(await sign(rsa)))).toMatchObject({ id: `${issuer.url}|user-1` })
  })

  test('follow the issuer when it changes its keys', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'performance'] })
    const { issuer, key, authenticator, sign, headers } = await setUp()
    await authenticator.authenticate(headers(await sign(key)))
    issuer.removeKeys()
    const next = await issuer.addKey('second')
    // An unknown key makes us look again, but not more often than every 30 seconds.
    expect(await failureOf(authenticator, headers(await sign(next)))).toMatchObject(notAccepted)
    expect(issuer.fetches()).toBe(1)
    vi.setSystemTime(Date.now() + 31_000)
    expect(await authenticator.authenticate(headers(await sign(next)))).toMatchObject({ scopes: ['*'] })
    expect(issuer.fetches()).toBe(2)
    expect(await failureOf(authenticator, headers(await sign(key)))).toMatchObject(notAccepted)
  })

  test('stop working within ten minutes of the issuer withdrawing their key', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'performance'] })
    const { issuer, key, authenticator, sign, headers } = await setUp()
    await authenticator.authenticate(headers(await sign(key)))
    issuer.removeKeys()
    await issuer.addKey('second')
    vi.setSystemTime(Date.now() + 601_000)
    expect(await failureOf(authenticator, headers(await sign(key)))).toMatchObject(notAccepted)
  })

  test('cannot be checked while the keys are out of reach: unavailable, and no hammering', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'performance'] })
    const { issuer, key, authenticator, sign, headers } = await setUp()
    const unavailable = { code: 'unavailable', retryable: true, retryAfterMs: 5_000 }
    for (const [status, body] of [
      [500, ''],
      [302, ''],
      [200, 'not json'],
      [200, '{"no":"keys"}'],
    ] as const) {
      issuer.answer(() => ({ status, body }))
      const before = issuer.fetches()
      expect(await failureOf(authenticator, headers(await sign(key))), body).toMatchObject(unavailable)
      expect(await failureOf(authenticator, headers(await sign(key))), body).toMatchObject(unavailable)
      expect(issuer.fetches()).toBe(before + 1)
      vi.advanceTimersByTime(5_001)
    }
    issuer.answer(undefined)
    expect(await authenticator.authenticate(headers(await sign(key)))).toMatchObject({ scopes: ['*'] })
  })

  test('cannot be checked when the issuer is gone: unavailable', async () => {
    const { issuer, key, authenticator, sign, headers } = await setUp()
    await issuer.stop()
    expect(await failureOf(authenticator, headers(await sign(key)))).toMatchObject({ code: 'unavailable' })
  })

  test('that are many at once cause one fetch', async () => {
    const { issuer, key, authenticator, sign, headers } = await setUp()
    const jwt = await sign(key)
    await Promise.all(Array.from({ length: 20 }, async () => authenticator.authenticate(headers(jwt))))
    expect(issuer.fetches()).toBe(1)
  })
})

describe('scopes', () => {
  test.each([
    [['*'], 'tool:anything', true],
    [['*'], 'message', true],
    [[], 'message', false],
    [['message'], 'message', true],
    [['message'], 'tool:message', false],
    [['tool:*'], 'tool:echo', true],
    [['tool:*'], 'message', false],
    [['tool:echo'], 'tool:echo', true],
    [['tool:echo'], 'tool:echo2', false],
    [['tool:count_*'], 'tool:count_to', true],
    [['tool:count_*'], 'tool:count', false],
    [['tool:*_to'], 'tool:count_to', true],
    [['tool:a*b*c'], 'tool:a1b2c', true],
    [['tool:a*b*c'], 'tool:acb', false],
    [['tool:ab*ba'], 'tool:aba', false],
    [['tool:a*a*a'], 'tool:aa', false],
    [['tool:**'], 'tool:', true],
    [['openid', 'tool:x', 'message'], 'message', true],
    [['tool'], 'tool:x', false],
    [['t*'], 'tool:x', false],
  ] as const)('%j allow %s: %s', (scopes, scope, expected) => {
    expect(allows({ id: 'bob', scopes }, scope)).toBe(expected)
  })

  test('cost no more for a hostile glob', () => {
    const caller = { id: 'mallory', scopes: [`tool:${'*a'.repeat(2_000)}*b`] }
    expect(allows(caller, `tool:${'a'.repeat(2_000)}`)).toBe(false)
  })
})

describe('the guard of Host and Origin', () => {
  const refused = (guard: ReturnType<typeof createOriginGuard>, headers: { host?: string; origin?: string }) => {
    try {
      guard(headers)
      return false
    } catch (error) {
      expect(error).toMatchObject({ code: 'forbidden' })
      return true
    }
  }

  describe('on loopback without auth', () => {
    const guard = createOriginGuard({
      host: '127.0.0.1',
      publicUrl: 'https://Agents.Example.com:8443/alice',
      allowedHosts: ['console.local', 'dev.local:3000'],
      authRequired: false,
    })

    test.each([
      'localhost',
      'LOCALHOST:4120',
      'localhost.:1',
      '127.0.0.1:4120',
      '127.1.2.3',
      '[::1]',
      '[::1]:4120',
      'agents.example.com',
      'agents.example.com:9',
      'console.local:1234',
      'dev.local:3000',
    ])('answers to %s', (host) => {
      expect(refused(guard, { host })).toBe(false)
      expect(refused(guard, { host, origin: `http://${host}` })).toBe(false)
    })

    test.each([
      undefined,
      '',
      'evil.com',
      'evil.com:4120',
      '127.0.0.1.evil.com',
      'localhost.evil.com',
      'evil.com#127.0.0.1',
      'user@localhost',
      'localhost:4120:1',
      '0.0.0.0:4120',
      '10.0.0.1',
      'dev.local:3001',
      'dev.local',
      '[::2]',
    ])('does not answer to %s, however often', (host) => {
      for (let time = 0; time < 2; time++) expect(refused(guard, host === undefined ? {} : { host })).toBe(true)
    })

    test.each([
      'null',
      '',
      'http://evil.com',
      'https://evil.com:4120',
      'chrome-extension://abc',
      'http://localhost/x',
      'file://',
      'localhost',
    ])('takes nothing from pages of origin %s', (origin) => {
      expect(refused(guard, { host: 'localhost:4120', origin })).toBe(true)
    })

    test('forgets the names that strangers tried, and not the rules', () => {
      for (let n = 0; n < 1_000; n++) expect(refused(guard, { host: `h${n}.evil.com` })).toBe(true)
      expect(refused(guard, { host: 'localhost' })).toBe(false)
    })
  })

  test('with auth takes any Host, and only pages of its own host or an allowed one', () => {
    const guard = createOriginGuard({ host: '0.0.0.0', allowedHosts: ['console.example.com'], authRequired: true })
    expect(refused(guard, { host: 'whatever:4120' })).toBe(false)
    expect(refused(guard, { host: 'whatever:4120', origin: 'https://whatever:4120' })).toBe(false)
    expect(refused(guard, { host: 'whatever:4120', origin: 'https://console.example.com' })).toBe(false)
    expect(refused(guard, { host: 'whatever:4120', origin: 'https://evil.com' })).toBe(true)
    expect(refused(guard, { host: 'whatever:4120', origin: 'http://localhost:4120' })).toBe(true)
    expect(refused(guard, { host: 'whatever:4120', origin: 'null' })).toBe(true)
  })

  test('on a public address for everyone takes any Host until it is told its names', () => {
    const told = createOriginGuard({ host: '0.0.0.0', publicUrl: 'https://alice.example.com', authRequired: false })
    expect(refused(told, { host: 'alice.example.com' })).toBe(false)
    expect(refused(told, { host: '10.0.0.1:4120' })).toBe(true)
    const untold = createOriginGuard({ host: '0.0.0.0', authRequired: false })
    expect(refused(untold, { host: '10.0.0.1:4120' })).toBe(false)
    expect(refused(untold, { host: '10.0.0.1:4120', origin: 'http://evil.com' })).toBe(true)
  })

  test('refuses an allowed host that is no host', () => {
    expect(() => createOriginGuard({ host: '127.0.0.1', allowedHosts: ['https://x'], authRequired: false })).toThrow(
      expect.objectContaining({ code: 'config' }),
    )
  })
})
