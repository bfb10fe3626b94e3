/** `convoke auth`: signs in as a process of its own, against a real authorization server. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, readFile, readdir, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { createGuardedFetch, type GuardedFetch } from '../dist/base/guarded-fetch.js'
import { keepSignIn, storedCredentials, type SignIn } from '../dist/cli/credentials.js'
import { pollDeviceToken, requestDeviceGrant } from '../dist/peers/oauth.js'
import { discoverOAuth } from '../dist/peers/oauth-discovery.js'
import { cleanup, deferred, startNode, temporaryFolder, until, within } from './support/lifetime.ts'
import { grant, refusal, startOAuthServer, type OAuthAnswer, type OAuthRequest } from './support/oauth-server.ts'

const main = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const cardPath = '/.well-known/agent-card.json'
const secret = 's3cr3t-of-the-client'
const accessToken = 'access-token-1'
const refreshToken = 'refresh-token-1'

afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
})

interface Run {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

interface Running {
  readonly stderr: () => string
  readonly ended: Promise<Run>
  kill(signal: NodeJS.Signals): void
}

/** Without a terminal, as scripts run it; `stdin` is what it reads. */
function start(
  folder: string,
  args: string[],
  { env = {}, stdin = '' }: { env?: object; stdin?: string } = {},
): Running {
  const { PATH } = process.env
  const child = spawn(process.execPath, [main, ...args], {
    cwd: folder,
    env: { PATH, HOME: folder, XDG_CONFIG_HOME: join(folder, 'config'), ...env },
  })
  const exited = once(child, 'close').then(([code]) => code as number | null)
  cleanup(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await exited
  })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  child.stdin.on('error', () => {}).end(stdin)
  return {
    stderr: () => stderr,
    ended: within(exited, 'the command to end').then((code) => {
      for (const text of [secret, accessToken, refreshToken]) expect(stdout + stderr).not.toContain(text)
      return { code, stdout, stderr }
    }),
    kill: (signal) => child.kill(signal),
  }
}

function convoke(folder: string, args: string[], more: { env?: object; stdin?: string } = {}): Promise<Run> {
  return start(folder, ['auth', ...args], more).ended
}

function fileOf(folder: string): string {
  return join(folder, 'config', 'a2a-cli', 'credentials.json')
}

async function signInsIn(folder: string): Promise<Record<string, SignIn>> {
  return (JSON.parse(await readFile(fileOf(folder), 'utf8')) as { signIns: Record<string, SignIn> }).signIns
}

function modeOf(path: string): Promise<number> {
  return stat(path).then(({ mode }) => mode & 0o777)
}

interface Scripted {
  readonly card?: (origin: string) => object
  readonly token?: (request: OAuthRequest) => OAuthAnswer | Promise<OAuthAnswer>
  readonly device?: OAuthAnswer
}

const deviceAnswer: OAuthAnswer = {
  body: {
    device_code: 'device-code-1',
    user_code: 'WDJB-MJHT',
    verification_uri: 'https://auth.example/device',
    verification_uri_complete: 'https://auth.example/device?code=WDJB-MJHT',
    expires_in: 600,
    interval: 0,
  },
}

const fullGrant = (): OAuthAnswer => grant(accessToken, { refresh_token: refreshToken, scope: 'read write' })

/** An agent that is its own authorization server. */
async function startAgent({ card = oauthCard, token = fullGrant, device = deviceAnswer }: Scripted = {}) {
  const server = await startOAuthServer((request) => {
    const origin = `http://${request.headers.host}`
    if (request.path === cardPath) return { body: card(origin) }
    if (request.path === '/token') return token(request)
    if (request.path === '/a2a') return answerCall(request)
    return request.path === '/device' ? device : undefined
  })
  // Clients take the names of the loopback for one.
  return { ...server, home: server.origin.replace('127.0.0.1', 'localhost') }
}

/** Takes calls with an access token only, and has one task. */
function answerCall({ headers, text }: OAuthRequest): OAuthAnswer {
  const { id } = JSON.parse(text) as { id: string }
  if (!headers.authorization?.startsWith('Bearer access-token-')) return { status: 401, body: { error: 'no' } }
  const task = { id: 'task-1', contextId: 'context-1', status: { state: 'TASK_STATE_COMPLETED' } }
  return { body: { jsonrpc: '2.0', id, result: task } }
}

function oauthCard(origin: string): object {
  const tokenUrl = `${origin}/token`
  const scopes = { read: 'Read.' }
  const flows = {
    deviceCode: { deviceAuthorizationUrl: `${origin}/device`, tokenUrl, scopes },
    clientCredentials: { tokenUrl, scopes },
  }
  return {
    name: 'Bob',
    supportedInterfaces: [{ url: `${origin}/a2a`, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }],
    securitySchemes: { oauth: { oauth2SecurityScheme: { flows } } },
    securityRequirements: [{ schemes: { oauth: { list: ['read'] } } }],
  }
}

describe('auth login with the device flow', () => {
  test('tells what to do on stderr, waits for the person, and keeps the token for its owner alone', async () => {
    const answers = ['authorization_pending', 'authorization_pending']
    const agent = await startAgent({
      token: ({ call }) => (answers[call - 1] ? refusal(answers[call - 1]!) : fullGrant()),
    })
    const folder = await temporaryFolder()
    const run = await convoke(folder, ['login', '-a', agent.origin, '--client-id', 'my-cli', '-o', 'json'])
    expect(run.stderr).toContain('https://auth.example/device')
    expect(run.stderr).toContain('WDJB-MJHT')
    expect(run.code, run.stderr).toBe(0)
    const shown = JSON.parse(run.stdout)
    expect(shown).toEqual({ origin: agent.home, expiresAt: expect.any(String), scopes: ['read', 'write'] })
    expect(Date.parse(shown.expiresAt)).toBeGreaterThan(Date.now() + 3_000_000)
    expect(agent.requests('/device')[0]?.form).toEqual({ client_id: 'my-cli', scope: 'read' })
    expect(agent.requests('/token').map(({ form }) => form)).toEqual(
      Array(3).fill({
        client_id: 'my-cli',
        grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
        device_code: 'device-code-1',
      }),
    )
    expect((await signInsIn(folder))[agent.home]?.token).toMatchObject({ accessToken, refreshToken })
    expect(await modeOf(fileOf(folder))).toBe(0o600)
    expect(await modeOf(join(folder, 'config', 'a2a-cli'))).toBe(0o700)
    expect(await readdir(join(folder, 'config', 'a2a-cli'))).toEqual(['credentials.json'])
  })

  test.each([
    ['the person says no', refusal('access_denied'), /declined/],
    ['the code has ended', refusal('expired_token'), /ended before it was confirmed/],
    ['the server does not know the client', refusal('invalid_client', 'unknown', 401), /invalid_client: unknown/],
    ['the server talks nonsense', { body: '{"access_token":' }, /answered with no JSON/],
  ])('fails when %s, and keeps nothing', async (_name, answer, words) => {
    const agent = await startAgent({ token: () => answer })
    const folder = await temporaryFolder()
    const run = await convoke(folder, ['login', '-a', agent.origin, '--client-id', 'my-cli', '-o', 'json'])
    expect(run.code).toBe(4)
    const { error } = JSON.parse(run.stdout)
    expect(error).toMatchObject({ code: 'A2ACLI_ERR_AUTH_FAILED', message: expect.stringMatching(words) })
    await expect(stat(fileOf(folder))).rejects.toThrow('ENOENT')
  })

  test('warns when the agent takes requests where the token does not go', async () => {
    const elsewhere = [{ url: 'https://api.bob.example/a2a', protocolBinding: 'JSONRPC', protocolVersion: '1.0' }]
    const agent = await startAgent({ card: (origin) => ({ ...oauthCard(origin), supportedInterfaces: elsewhere }) })
    const run = await convoke(await temporaryFolder(), ['login', '-a', agent.origin, '--client-id', 'my-cli'])
    expect(run.code, run.stderr).toBe(0)
    expect(run.stderr).toContain(`warning: the token will go to ${agent.home} only`)
  })

  test('says which endpoints it lacks', async () => {
    const agent = await startAgent({ card: (origin) => ({ ...oauthCard(origin), securitySchemes: {} }) })
    const run = await convoke(await temporaryFolder(), ['login', '-a', agent.origin, '--client-id', 'my-cli'])
    expect(run.code).toBe(2)
    expect(run.stderr).toContain('--token-url URL --device-url URL')
  })

  test('says that an agent asks for no credentials', async () => {
    const { url } = await startNode({})
    const run = await convoke(await temporaryFolder(), ['login', '-a', url, '--client-id', 'my-cli'])
    expect(run).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('asks for no credentials: its card names none.'),
    })
  })

  test('fails when nobody is there', async () => {
    const args = ['login', '-a', 'http://127.0.0.1:1', '--client-id', 'my-cli']
    const folder = await temporaryFolder()
    expect((await convoke(folder, args)).code).toBe(3)
    const named = [...args, '--token-url', 'http://127.0.0.1:1/t', '--device-url', 'http://127.0.0.1:1/d']
    expect(await convoke(folder, named)).toMatchObject({ code: 3, stderr: expect.stringContaining('cannot be asked') })
  })

  test('stops on Ctrl-C, and keeps nothing', async () => {
    const gate = deferred()
    const agent = await startAgent({ token: () => gate.promise.then(() => refusal('authorization_pending')) })
    const folder = await temporaryFolder()
    const running = start(folder, ['auth', 'login', '-a', agent.origin, '--client-id', 'my-cli'])
    await until(() => agent.requests('/token').length > 0, 'the first question')
    running.kill('SIGINT')
    const run = await running.ended
    gate.resolve()
    expect(run.code).toBe(130)
    await expect(stat(fileOf(folder))).rejects.toThrow('ENOENT')
  })

  test('stays alive and can be stopped between two questions', async () => {
    const device = { body: { ...(deviceAnswer.body as object), interval: 600 } }
    const agent = await startAgent({ device })
    const running = start(await temporaryFolder(), ['auth', 'login', '-a', agent.origin, '--client-id', 'my-cli'])
    await until(() => running.stderr().includes('WDJB-MJHT'), 'the code')
    running.kill('SIGTERM')
    expect((await running.ended).code).toBe(130)
    expect(agent.requests('/token')).toEqual([])
  })

  test('shows nothing that could steer the terminal', async () => {
    const device = { body: { ...(deviceAnswer.body as object), user_code: '\u001b]0;evil\u0007' } }
    const agent = await startAgent({ device })
    const run = await convoke(await temporaryFolder(), ['login', '-a', agent.origin, '--client-id', 'my-cli'])
    expect(run.code).toBe(4)
    expect(run.stderr).not.toContain('\u001b')
  })
})

describe('auth login with client credentials', () => {
  const flags = ['--client-id', 'ci', '--flow', 'client-credentials']

  test('takes the secret from the environment, and asks for the scopes that are named', async () => {
    const agent = await startAgent({ token: () => grant(accessToken) })
    const folder = await temporaryFolder()
    const env = { A2ACLI_CLIENT_SECRET: secret, A2ACLI_AGENT_CARD: agent.origin, A2ACLI_CLIENT_ID: 'ci' }
    const run = await convoke(folder, ['login', '--scope', 'read', '--scope', 'tool:*'], { env })
    expect(run.code, run.stderr).toBe(0)
    expect(run.stdout).toContain(agent.home)
    const [request] = agent.requests('/token')
    expect(request?.headers.authorization).toBe(`Basic ${Buffer.from(`ci:${secret}`).toString('base64')}`)
    expect(request?.form).toEqual({ grant_type: 'client_credentials', scope: 'read tool:*' })
  })

  test('takes the secret from stdin', async () => {
    const agent = await startAgent()
    const args = ['login', '-a', agent.origin, ...flags, '--client-secret-stdin']
    const run = await convoke(await temporaryFolder(), args, { stdin: `${secret}\n` })
    expect(run.code, run.stderr).toBe(0)
    expect(agent.requests('/token')[0]?.headers.authorization).toBe(
      `Basic ${Buffer.from(`ci:${secret}`).toString('base64')}`,
    )
  })

  test.each([
    ['a wrong secret', refusal('invalid_client', `not ${secret}`, 401)],
    ['a page', { status: 500, body: `<h1>${secret}</h1>` }],
    ['nonsense', { body: secret }],
  ])('says what is wrong and never the secret: %s', async (_name, answer) => {
    const agent = await startAgent({ token: () => answer })
    const folder = await temporaryFolder()
    const run = await convoke(folder, ['login', '-a', agent.origin, ...flags], {
      env: { A2ACLI_CLIENT_SECRET: secret },
    })
    expect(run.code).toBe(4)
    expect(run.stderr).toContain('A2ACLI_ERR_AUTH_FAILED: The authorization server at')
    await expect(stat(fileOf(folder))).rejects.toThrow('ENOENT')
  })

  test('needs no card where the endpoint is named', async () => {
    const agent = await startAgent({ card: () => ({}) })
    const args = ['login', '-a', agent.origin, ...flags, '--token-url', agent.tokenUrl]
    const run = await convoke(await temporaryFolder(), args, { env: { A2ACLI_CLIENT_SECRET: secret } })
    expect(run.code, run.stderr).toBe(0)
    expect(agent.requests(cardPath)).toEqual([])
  })

  test.each([
    [['login', '--client-id', 'ci'], {}],
    [['login', '-a', 'bob.example'], {}],
    [['login', '-a', 'bob.example', ...flags], {}],
    [['login', '-a', 'bob.example', ...flags, '--client-secret-stdin'], {}],
    [['login', '-a', 'bob.example', ...flags, '--token-url', 'http://auth.example'], { A2ACLI_CLIENT_SECRET: secret }],
    [['login', '-a', 'http://127.0.0.1:1', '--client-id', 'a', '--flow', 'password'], {}],
    [['logout'], {}],
  ])('is told what is missing or wrong: %j', async (args, env) => {
    const run = await convoke(await temporaryFolder(), args, { env })
    expect(run).toMatchObject({ code: 2, stdout: '', stderr: expect.stringMatching(/A2ACLI_ERR_USAGE|error: /) })
  })
})

describe('auth status and auth logout', () => {
  async function signedIn(count: number) {
    const folder = await temporaryFolder()
    const agents = await Promise.all(Array.from({ length: count }, () => startAgent()))
    for (const { origin } of agents) {
      const run = await convoke(folder, ['login', '-a', origin, '--client-id', 'my-cli'])
      expect(run.code, run.stderr).toBe(0)
    }
    return { folder, agents }
  }

  test('tell where one is signed in, and forget one agent or all', async () => {
    const { folder, agents } = await signedIn(2)
    const rows = async () => JSON.parse((await convoke(folder, ['status', '-o', 'json'])).stdout)
    const row = (origin: string) => ({
      origin,
      expiresAt: expect.any(String),
      scopes: ['read', 'write'],
      renewable: true,
    })
    expect(await rows()).toEqual(agents.map(({ home }) => row(home)))
    expect((await convoke(folder, ['status', '-a', agents[0]!.origin])).stdout).toContain(agents[0]!.home)
    const out = await convoke(folder, ['logout', '-a', agents[0]!.origin, '-o', 'json'])
    expect(JSON.parse(out.stdout)).toEqual({ origins: [agents[0]!.home] })
    expect((await convoke(folder, ['status', '-a', agents[0]!.origin])).code).toBe(4)
    expect(await rows()).toEqual([row(agents[1]!.home)])
    expect((await convoke(folder, ['logout', '--all'])).code).toBe(0)
    expect(await rows()).toEqual([])
    expect(await modeOf(fileOf(folder))).toBe(0o600)
  })

  test('close a file that others can read, and say so', async () => {
    const { folder } = await signedIn(1)
    await chmod(fileOf(folder), 0o644)
    const run = await convoke(folder, ['status'])
    expect(run.code).toBe(0)
    expect(run.stderr).toMatch(/warning: .*credentials\.json was open to other users/)
    expect(await modeOf(fileOf(folder))).toBe(0o600)
    expect((await convoke(folder, ['status'])).stderr).toBe('')
  })

  test.each(['', '{"version":1', '[]', '{"version":1,"signIns":{"https://a":{"token":{}}}}'])(
    'leave alone a file that is not theirs: %j',
    async (text) => {
      const folder = await temporaryFolder()
      await mkdir(join(folder, 'config', 'a2a-cli'), { recursive: true })
      await writeFile(fileOf(folder), `${text}${text === '' ? '' : ` ${accessToken}`}`, { mode: 0o600 })
      const run = await convoke(folder, ['status'])
      expect(run.code).toBe(2)
      expect(run.stderr).toContain('credentials.json is not a file of sign-ins')
    },
  )
})

describe('client commands', () => {
  const getTask = (folder: string, url: string, ...more: string[]): Promise<Run> =>
    start(folder, ['task', 'get', 'task-1', '-a', url, '-o', 'json', ...more]).ended

  test('use the token of their agent, and renew it when it ends', async () => {
    const agent = await startAgent({
      token: ({ form }) => {
        const isFirst = form['grant_type'] !== 'refresh_token'
        return isFirst ? grant(accessToken, { refresh_token: refreshToken, expires_in: 0 }) : grant('access-token-2')
      },
    })
    const folder = await temporaryFolder()
    expect((await getTask(folder, agent.origin)).code, 'before the sign-in').toBe(4)
    expect((await convoke(folder, ['login', '-a', agent.origin, '--client-id', 'my-cli'])).code).toBe(0)
    const run = await getTask(folder, agent.origin, '--debug')
    expect(run.code, run.stderr).toBe(0)
    expect(JSON.parse(run.stdout)).toMatchObject({ id: 'task-1' })
    expect(run.stderr).not.toContain('access-token-2')
    expect((await getTask(folder, agent.origin)).code).toBe(0)
    const sent = agent.requests('/a2a').map(({ headers }) => headers.authorization)
    expect(sent).toEqual([undefined, 'Bearer access-token-2', 'Bearer access-token-2'])
    expect(agent.requests(cardPath).every(({ headers }) => headers.authorization === undefined)).toBe(true)
    const elsewhere = await startAgent()
    expect((await getTask(folder, elsewhere.origin)).code).toBe(4)
    expect(elsewhere.requests('/a2a').map(({ headers }) => headers.authorization)).toEqual([undefined])
  })

  test('use what they are given before a kept token', async () => {
    const agent = await startAgent()
    const folder = await temporaryFolder()
    expect((await convoke(folder, ['login', '-a', agent.origin, '--client-id', 'my-cli'])).code).toBe(0)
    expect((await getTask(folder, agent.origin, '--bearer', 'access-token-9')).code).toBe(0)
    expect(agent.requests('/a2a').map(({ headers }) => headers.authorization)).toEqual(['Bearer access-token-9'])
  })

  test('tell to sign in again when the token has ended for good', async () => {
    const agent = await startAgent({
      token: ({ form }) =>
        form['grant_type'] === 'refresh_token'
          ? refusal('invalid_grant')
          : grant(accessToken, { refresh_token: refreshToken, expires_in: 0 }),
    })
    const folder = await temporaryFolder()
    expect((await convoke(folder, ['login', '-a', agent.origin, '--client-id', 'my-cli'])).code).toBe(0)
    const run = await getTask(folder, agent.origin)
    expect(run.code).toBe(4)
    expect(JSON.parse(run.stdout).error.code).toBe('A2ACLI_ERR_AUTH_FAILED')
    expect(JSON.parse(run.stdout).error.message).toContain(`convoke auth login -a ${agent.home}`)
  })
})

describe('kept tokens', () => {
  async function keep(home: string, token: Partial<SignIn['token']>, more: Partial<SignIn> = {}): Promise<void> {
    vi.stubEnv('XDG_CONFIG_HOME', join(await temporaryFolder(), 'config'))
    const client = { tokenUrl: `${home}/token`, clientId: 'my-cli' }
    keepSignIn(home, {
      flow: 'device',
      client,
      token: { accessToken, ...token },
      askedAt: Date.now() - 3_600_000,
      ...more,
    })
  }

  const ask = (url: string): unknown => {
    const auth = storedCredentials(url)
    return auth !== undefined && 'bearer' in auth && typeof auth.bearer === 'function' ? auth.bearer() : auth
  }

  test('are for their origin only, and used at once while they last', async () => {
    const agent = await startAgent()
    await keep(agent.home, { expiresAt: Date.now() + 3_600_000 })
    expect(ask(`${agent.origin}/a2a`)).toBe(accessToken)
    for (const url of ['http://localhost:1', 'https://localhost', 'https://bob.example'])
      expect(ask(url)).toBe(undefined)
    await keep(agent.home, {})
    expect(ask(agent.origin), 'one that does not say when it ends').toBe(accessToken)
    expect(agent.requests()).toEqual([])
  })

  test('are renewed when they end, once for all who ask, and the new ones are kept', async () => {
    const agent = await startAgent({ token: ({ call }) => grant(`new-${call}`) })
    await keep(agent.home, { expiresAt: Date.now() - 1, refreshToken, scopes: ['read'] })
    const auth = storedCredentials(agent.origin) as { bearer: () => Promise<string> }
    expect(await Promise.all([auth.bearer(), auth.bearer(), auth.bearer()])).toEqual(['new-1', 'new-1', 'new-1'])
    expect(agent.requests('/token').map(({ form }) => form)).toEqual([
      { client_id: 'my-cli', grant_type: 'refresh_token', refresh_token: refreshToken },
    ])
    expect(ask(agent.origin), 'another command').toBe('new-1')
  })

  test('of a client are asked for anew with its secret', async () => {
    const agent = await startAgent({ token: () => grant('new') })
    const client = { tokenUrl: agent.tokenUrl, clientId: 'ci', clientSecret: secret, scopes: ['read'] }
    await keep(agent.home, { expiresAt: Date.now() - 1 }, { flow: 'client-credentials', client })
    expect(await ask(agent.origin)).toBe('new')
    expect(agent.requests('/token')[0]?.form).toEqual({ grant_type: 'client_credentials', scope: 'read' })
  })

  test('that another command has renewed meanwhile are taken from it', async () => {
    const agent = await startAgent({
      token: () => {
        const token = { accessToken: 'from-another', expiresAt: Date.now() + 3_600_000 }
        const client = { tokenUrl: agent.tokenUrl, clientId: 'my-cli' }
        keepSignIn(agent.home, { flow: 'device', client, token, askedAt: Date.now() })
        return refusal('invalid_grant')
      },
    })
    await keep(agent.home, { expiresAt: Date.now() - 1, refreshToken })
    expect(await ask(agent.origin)).toBe('from-another')
  })

  test.each([
    ['that cannot be renewed', {}, 0],
    ['whose renewal is refused', { refreshToken }, 1],
  ])('%s tell to sign in again', async (_name, more, requests) => {
    const agent = await startAgent({ token: () => refusal('invalid_grant', `no ${refreshToken}`) })
    await keep(agent.home, { expiresAt: Date.now() - 1, ...more })
    const error = await Promise.resolve(ask(agent.origin)).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code: 'unauthenticated', message: expect.stringContaining('convoke auth login') })
    expect(String(error)).not.toContain(refreshToken)
    expect(agent.requests('/token')).toHaveLength(requests)
  })
})

describe('a device grant', () => {
  const client = (tokenUrl: string) => ({ tokenUrl, clientId: 'my-cli' })

  function openFetch(): GuardedFetch {
    const fetch = createGuardedFetch({ allowPrivate: true })
    cleanup(() => fetch.close())
    return fetch
  }

  test('is asked about less often after slow_down, and while the server is in trouble', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] })
    const answers = [
      refusal('authorization_pending'),
      refusal('slow_down'),
      { status: 500, body: '<h1>Oh</h1>' },
      fullGrant(),
    ]
    const expected = [2_000, 2_000, 7_000, 12_000]
    const timers = vi.spyOn(globalThis, 'setTimeout')
    // The network has timers of its own, none of them this long.
    const pauses = () => timers.mock.calls.flatMap(([, ms = 0]) => (expected.includes(ms) ? [ms] : []))
    const asked: number[] = []
    const server = await startOAuthServer(({ path, call }) => {
      if (path === '/device') return { body: { ...(deviceAnswer.body as object), interval: 2 } }
      asked.push(Date.now())
      return answers[call - 1]
    })
    const fetch = openFetch()
    const begun = Date.now()
    const { signal } = new AbortController()
    const given = await requestDeviceGrant(fetch, client(server.tokenUrl), server.deviceUrl, signal)
    expect(given).toMatchObject({ intervalMs: 2_000, expiresAt: begun + 600_000 })
    const token = pollDeviceToken(fetch, client(server.tokenUrl), given, signal)
    for (const [index, ms] of expected.entries()) {
      while (pauses().length <= index) await new Promise((resolve) => setImmediate(resolve))
      vi.advanceTimersByTime(ms)
    }
    expect(await token).toMatchObject({ accessToken, refreshToken, scopes: ['read', 'write'] })
    expect(pauses()).toEqual(expected)
    expect(asked.map((at) => at - begun)).toEqual([2_000, 4_000, 11_000, 23_000])
  })

  test('ends with its code, without another question', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] })
    const server = await startOAuthServer(() => deviceAnswer)
    const grantOf = { deviceCode: 'a', userCode: 'b', verificationUrl: 'https://auth.example', intervalMs: 900_000 }
    const { signal } = new AbortController()
    const expiring = { ...grantOf, expiresAt: Date.now() + 60_000 }
    const failing = pollDeviceToken(openFetch(), client(server.tokenUrl), expiring, signal).catch(
      (error: unknown) => error,
    )
    vi.advanceTimersByTime(60_000)
    expect(await failing).toMatchObject({ code: 'timeout', retryable: false })
    expect(server.requests()).toEqual([])
  })
})

describe('the endpoints of an agent', () => {
  async function discover(script: (origin: string) => Record<string, unknown>, card: (origin: string) => object) {
    const server = await startOAuthServer(({ path, headers }) => {
      const body = script(`http://${headers.host}`)[path]
      return body === undefined ? undefined : { body: body as object }
    })
    const fetch = createGuardedFetch({ allowPrivate: true })
    cleanup(() => fetch.close())
    const found = await discoverOAuth(card(server.origin) as never, 'device', fetch)
    const text = JSON.stringify(found).replaceAll(server.origin, 'ORIGIN')
    return { found: JSON.parse(text), asked: server.requests().map(({ path }) => path) }
  }

  const metadata = (origin: string) => ({
    issuer: origin,
    token_endpoint: `${origin}/token`,
    device_authorization_endpoint: `${origin}/device`,
  })
  const both = { tokenUrl: 'ORIGIN/token', deviceUrl: 'ORIGIN/device' }
  const wellKnown = '/.well-known/oauth-authorization-server'

  test('are on a card of 1.0', async () => {
    expect(await discover(() => ({}), oauthCard)).toEqual({ found: { ...both, scopes: ['read'] }, asked: [] })
  })

  test.each([
    [
      'the metadata that a card of 1.0 points to',
      '/meta',
      (url: string) => ({ oauth2SecurityScheme: { flows: {}, oauth2MetadataUrl: url } }),
    ],
    [
      'the metadata that a card of 0.3 points to',
      '/meta',
      (url: string) => ({ type: 'oauth2', flows: {}, oauth2MetadataUrl: url }),
    ],
    ['OpenID Connect, 1.0', '/meta', (url: string) => ({ openIdConnectSecurityScheme: { openIdConnectUrl: url } })],
    ['OpenID Connect, 0.3', '/meta', (url: string) => ({ type: 'openIdConnect', openIdConnectUrl: url })],
  ])('come from %s', async (_name, path, scheme) => {
    const card = (origin: string) => ({ securitySchemes: { a: scheme(origin + path) }, security: [{ a: ['read'] }] })
    const { found, asked } = await discover((origin) => ({ [path]: metadata(origin) }), card)
    expect({ found, asked }).toEqual({ found: { ...both, scopes: ['read'] }, asked: [path] })
  })

  test('come from the well-known places of the token endpoint of another flow', async () => {
    const card = (origin: string) => ({
      securitySchemes: {
        a: { type: 'oauth2', flows: { clientCredentials: { tokenUrl: `${origin}/other`, scopes: {} } } },
      },
    })
    const { found, asked } = await discover((origin) => ({ [wellKnown]: metadata(origin) }), card)
    expect(found).toEqual({ tokenUrl: 'ORIGIN/other', deviceUrl: 'ORIGIN/device', scopes: [] })
    expect(asked).toEqual([wellKnown])
  })

  test.each([
    [
      'an issuer elsewhere',
      (origin: string) => ({ [wellKnown]: { ...metadata(origin), issuer: 'https://evil.example' } }),
      'not_found',
    ],
    ['nothing there', () => ({}), 'not_found'],
    [
      'plain http',
      (origin: string) => ({
        [wellKnown]: { ...metadata(origin), device_authorization_endpoint: 'http://auth.example/' },
      }),
      'config',
    ],
  ])('are refused or missing with %s', async (_name, script, code) => {
    const card = (origin: string) => ({
      securitySchemes: { a: { type: 'oauth2', flows: { password: { tokenUrl: `${origin}/t` } } } },
    })
    await expect(discover(script, card)).rejects.toMatchObject({ code })
  })

  test('on the own machine are not asked for an agent elsewhere, unless they are named', async () => {
    const agent = await startAgent()
    const folder = await temporaryFolder()
    const file = join(folder, 'card.json')
    const elsewhere = [{ url: 'https://bob.example/a2a', protocolBinding: 'JSONRPC', protocolVersion: '1.0' }]
    await writeFile(file, JSON.stringify({ ...oauthCard(agent.origin), supportedInterfaces: elsewhere }))
    const args = ['login', '-a', file, '--client-id', 'my-cli']
    const run = await convoke(folder, args)
    expect(run.code).toBe(2)
    expect(run.stderr).toContain('not of the public internet')
    expect(agent.requests()).toEqual([])
    const named = await convoke(folder, [...args, '--token-url', agent.tokenUrl, '--device-url', agent.deviceUrl])
    expect(named.code, named.stderr).toBe(0)
    expect(Object.keys(await signInsIn(folder))).toEqual(['https://bob.example'])
  })
})
