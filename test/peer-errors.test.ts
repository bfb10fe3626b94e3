/** Everything that can go wrong with a peer, and what its caller is told. */
import {
  ClientManager,
  connectPeer,
  PeerError,
  RemoteToolExecutor,
  RemoteToolRegistry,
  type ConnectOptions,
  type ConvokeError,
  type JsonObject,
  type PeerOptions,
} from 'convoke'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, createServer, type AddressInfo } from 'node:net'
import { inspect } from 'node:util'
import { beforeAll, describe, expect, test } from 'vitest'
import { createLog } from '../dist/base/log.js'
import { startFaultProxy } from './support/fault-proxy.ts'
import { cleanup, startNode, until } from './support/lifetime.ts'
import { grant, refusal, startOAuthServer } from './support/oauth-server.ts'
import {
  artifactOf,
  extension,
  resultArtifact,
  says,
  startScriptedPeer,
  statusOf,
  taskAs,
  type ScriptedExchange,
  type ScriptedPeer,
  type ScriptOptions,
} from './support/scripted-peer.ts'

const tlsFile = (name: string): string => readFileSync(new URL(`support/tls/${name}.pem`, import.meta.url), 'utf8')

/** What a call gives its caller, beside params. */
interface CallOptions {
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  readonly onTask?: () => void
}

/** A peer that fails, and how it is called. */
interface Scene {
  readonly url: string
  readonly options?: Partial<PeerOptions>
  /** How many calls reached it. */
  readonly calls?: () => number
  readonly peer?: ScriptedPeer
  /** Default: `add`, which may run twice only where the card says so. */
  readonly tool?: string
  readonly params?: JsonObject
  readonly call?: () => CallOptions
}

interface Row {
  readonly name: string
  readonly start: (card: JsonObject) => Promise<Scene>
  readonly code: string
  readonly kind: string
  readonly retryable: boolean
  readonly attempt: number
  /** How many times the call reached the peer. */
  readonly calls: number
  readonly taskId?: string
  /** It fails before there is a card, so that nobody can connect. */
  readonly beforeCard?: true
  readonly says: RegExp
}

const isCall = ({ method }: { method: string }): boolean =>
  method === 'SendMessage' || method === 'SendStreamingMessage'

/** Whatever the peer was given, said back. */
const echo = ({ headers, path }: ScriptedExchange): string => `I was asked ${path} with ${JSON.stringify(headers)}`

function scripted(script: (exchange: ScriptedExchange) => unknown, more: Partial<Scene> & ScriptOptions = {}) {
  return async (card: JsonObject): Promise<Scene> => {
    const peer = await startScriptedPeer((exchange) => (isCall(exchange) ? script(exchange) : other(exchange)), {
      ...more,
      card: (url) => ({ ...more.card?.(url), ...card }),
    })
    return { url: peer.url, peer, calls: () => peer.requests.filter(isCall).length, ...more }
  }
}

/** Tasks that are asked for are there, and end when they are told to. */
function other({ method, result }: ScriptedExchange): void {
  if (method === 'CancelTask') result(taskAs('t', 'TASK_STATE_CANCELED'))
  else if (method === 'GetTask') result(taskAs('t', 'TASK_STATE_WORKING'))
}

const answerWith = (status: number, headers: Record<string, string>, body: (exchange: ScriptedExchange) => string) =>
  scripted((exchange) => exchange.raw(status, headers, body(exchange)))

/** A task that ends so, with a failure in the words of the extension. */
const endsAs = (
  state: string,
  error: (exchange: ScriptedExchange) => JsonObject,
  more: Partial<Scene> & ScriptOptions = {},
) =>
  scripted(async (exchange) => {
    const body = error(exchange)
    const message = says(body['message'] as string, { _tool_error: body })
    await exchange.events({ task: taskAs('t', 'TASK_STATE_SUBMITTED') }, statusOf('t', state, message))
    exchange.res.end()
  }, more)

const repeatable = { card: () => ({ capabilities: extension() }) }

/** Where nobody listens: the port of somebody who calls himself, so that nobody else gets it meanwhile. */
async function closedPort(): Promise<string> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const caller = connect((server.address() as AddressInfo).port, '127.0.0.1')
  await once(caller, 'connect')
  cleanup(() => {
    caller.destroy()
    server.close()
  })
  return `http://127.0.0.1:${caller.localPort}`
}

const rows: readonly Row[] = [
  {
    name: 'a port that refuses',
    start: async () => ({ url: await closedPort() }),
    code: 'network',
    kind: 'connection',
    retryable: true,
    attempt: 4,
    calls: 0,
    beforeCard: true,
    says: /refused the connection/,
  },
  {
    name: 'a name that nobody knows',
    start: async () => ({ url: 'http://nobody.invalid' }),
    code: 'network',
    kind: 'connection',
    retryable: true,
    attempt: 4,
    calls: 0,
    beforeCard: true,
    says: /nobody\.invalid could not be resolved/,
  },
  {
    name: 'a certificate that nobody vouches for',
    start: scripted(() => {}, { tls: { key: tlsFile('key'), cert: tlsFile('certificate') } }),
    code: 'network',
    kind: 'connection',
    retryable: false,
    attempt: 1,
    calls: 0,
    beforeCard: true,
    says: /certificate of localhost:\d+ is self-signed/,
  },
  {
    name: 'a certificate that has expired',
    start: scripted(() => {}, {
      tls: { key: tlsFile('key'), cert: tlsFile('expired') },
      options: { tls: { ca: tlsFile('expired') } },
    }),
    code: 'network',
    kind: 'connection',
    retryable: false,
    attempt: 1,
    calls: 0,
    beforeCard: true,
    says: /certificate of localhost:\d+ has expired/,
  },
  {
    name: 'no TLS where it should be',
    start: async (card) => {
      const { url } = await scripted(() => {})(card)
      return { url: url.replace('http:', 'https:'), options: { allowPrivate: true } }
    },
    code: 'network',
    kind: 'connection',
    retryable: false,
    attempt: 1,
    calls: 0,
    beforeCard: true,
    says: /does not speak TLS/,
  },
  {
    name: 'a card that is not there',
    start: async () => {
      const { url } = await startScriptedPeer((exchange) => exchange.raw(404, {}, echo(exchange)))
      return { url }
    },
    code: 'not_found',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 0,
    beforeCard: true,
    says: /no agent card at http/,
  },
  {
    name: 'a card that is a page',
    start: async () => {
      const { url } = await startScriptedPeer((exchange) => exchange.raw(200, {}, `<html>${echo(exchange)}`))
      return { url }
    },
    code: 'peer_failed',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 0,
    beforeCard: true,
    says: /a page of HTML/,
  },
  {
    name: 'a card of a version that nobody speaks',
    start: scripted(() => {}, {
      card: (url) => ({ supportedInterfaces: [{ url, protocolBinding: 'JSONRPC', protocolVersion: '7.0' }] }),
    }),
    code: 'version_not_supported',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 0,
    beforeCard: true,
    says: /offers JSONRPC 7\.0/,
  },
  {
    name: '401',
    start: answerWith(401, { 'www-authenticate': 'Bearer' }, echo),
    code: 'unauthenticated',
    kind: 'auth',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /wants credentials/,
  },
  {
    name: '403',
    start: answerWith(403, {}, (exchange) => JSON.stringify({ error: { code: 403, message: echo(exchange) } })),
    code: 'forbidden',
    kind: 'auth',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /I was asked/,
  },
  {
    name: '404 for the call',
    start: answerWith(404, {}, echo),
    code: 'not_found',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /answered with 404/,
  },
  {
    name: '429 that says when to come back',
    start: answerWith(429, { 'retry-after': '0' }, echo),
    code: 'rate_limited',
    kind: 'connection',
    retryable: true,
    attempt: 4,
    calls: 4,
    says: /answered with 429/,
  },
  {
    name: '429 that says to stay away for long',
    start: answerWith(429, { 'retry-after': '3600' }, echo),
    code: 'rate_limited',
    kind: 'connection',
    retryable: true,
    attempt: 1,
    calls: 1,
    says: /answered with 429/,
  },
  {
    name: '503',
    start: answerWith(503, {}, echo),
    code: 'unavailable',
    kind: 'connection',
    retryable: true,
    attempt: 1,
    calls: 1,
    says: /answered with 503/,
  },
  {
    name: '503 to a call that may be repeated',
    start: scripted((exchange) => exchange.raw(503, {}, echo(exchange)), repeatable),
    code: 'unavailable',
    kind: 'connection',
    retryable: true,
    attempt: 4,
    calls: 4,
    says: /answered with 503/,
  },
  {
    name: '500 with a page',
    start: answerWith(500, { 'content-type': 'text/html' }, (exchange) => `<html>${echo(exchange)}</html>`),
    code: 'peer_failed',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /500 and a page of HTML/,
  },
  {
    name: 'malformed JSON',
    start: answerWith(200, { 'content-type': 'application/json' }, (exchange) => `{"result": "${echo(exchange)}`),
    code: 'peer_failed',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /not valid JSON/,
  },
  {
    name: 'a malformed event',
    start: answerWith(200, { 'content-type': 'text/event-stream' }, (exchange) => `data: {${echo(exchange)}\n\n`),
    code: 'peer_failed',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /not valid JSON/,
  },
  {
    name: 'JSON that is not A2A',
    start: scripted((exchange) => exchange.result({ task: { id: 't', status: echo(exchange) } })),
    code: 'peer_failed',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /is not A2A: task\.status is no object/,
  },
  {
    name: 'something that is not HTTP',
    start: async (card) => {
      const { url } = await startScriptedPeer(() => {})
      const proxy = await startFaultProxy(url)
      const patched = { supportedInterfaces: [{ url: proxy.url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }] }
      const scene = await scripted(() => {}, { card: () => patched, options: { allowOrigins: [proxy.url] } })(card)
      proxy.garbage()
      return { ...scene, calls: () => proxy.connections }
    },
    code: 'network',
    kind: 'connection',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /does not speak HTTP|may have begun/,
  },
  {
    name: 'a reset before the answer',
    start: scripted(({ res }) => res.socket?.resetAndDestroy()),
    code: 'network',
    kind: 'connection',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /The work may have begun; it is not sent again/,
  },
  {
    name: 'resets before each answer to a call that may be repeated',
    start: scripted(({ res }) => res.socket?.resetAndDestroy(), repeatable),
    code: 'network',
    kind: 'connection',
    retryable: true,
    attempt: 4,
    calls: 4,
    says: /before (the|its) answer was complete/,
  },
  {
    name: 'a stream that is cut off in its first event',
    start: scripted(({ res }) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write('data: {"jsonrpc":"2.0","id":1,"res', () => res.destroy())
    }),
    code: 'network',
    kind: 'connection',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /The work may have begun; it is not sent again/,
  },
  {
    name: 'a JSON-RPC error',
    start: scripted((exchange) => exchange.error(-32603, echo(exchange))),
    code: 'peer_failed',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /I was asked/,
  },
  {
    name: 'a JSON-RPC error that names fields',
    start: scripted((exchange) => {
      const fieldViolations = [{ field: 'message.parts', description: echo(exchange) }]
      exchange.error(-32602, 'Wrong.', [{ '@type': 'type.googleapis.com/google.rpc.BadRequest', fieldViolations }])
    }),
    code: 'invalid_params',
    kind: 'protocol',
    retryable: false,
    attempt: 1,
    calls: 1,
    says: /Wrong\./,
  },
  {
    name: 'a tool that fails',
    start: endsAs('TASK_STATE_FAILED', (exchange) => ({
      code: 'tool_failed',
      message: echo(exchange),
      retryable: false,
      tool_name: 'add',
      issues: [{ path: '/n', message: echo(exchange) }],
    })),
    code: 'tool_failed',
    kind: 'tool',
    retryable: false,
    attempt: 1,
    calls: 1,
    taskId: 't',
    says: /^bob\.add: I was asked/,
  },
  {
    name: 'a tool that says when it may go better',
    start: endsAs('TASK_STATE_FAILED', () => ({
      code: 'rate_limited',
      message: 'Too much.',
      retryable: true,
      retry_after_ms: 5,
      tool_name: 'add',
    })),
    code: 'rate_limited',
    kind: 'tool',
    retryable: true,
    attempt: 1,
    calls: 1,
    taskId: 't',
    says: /^bob\.add: Too much\.$/,
  },
  {
    name: 'an agent without the extension that fails',
    start: scripted(async (exchange) => {
      await exchange.events({ task: taskAs('t', 'TASK_STATE_WORKING') })
      await exchange.events(statusOf('t', 'TASK_STATE_FAILED', says(echo(exchange))))
      exchange.res.end()
    }),
    code: 'tool_failed',
    kind: 'tool',
    retryable: false,
    attempt: 1,
    calls: 1,
    taskId: 't',
    says: /I was asked/,
  },
  {
    name: 'params against the schema',
    start: async (card) => ({ ...(await scripted(() => {})(card)), params: { n: 'many' } }),
    code: 'invalid_params',
    kind: 'tool',
    retryable: false,
    attempt: 1,
    calls: 0,
    says: /\/n: must be an integer/,
  },
  {
    name: 'a tool that the peer does not know any more',
    start: endsAs('TASK_STATE_REJECTED', (exchange) => ({
      code: 'not_found',
      message: `No such tool. ${echo(exchange)}`,
      retryable: false,
      tool_name: 'add',
    })),
    code: 'not_found',
    kind: 'tool',
    retryable: false,
    attempt: 1,
    calls: 1,
    taskId: 't',
    says: /No such tool/,
  },
  {
    name: 'a result against the schema',
    start: scripted(async ({ method, events, result, res }) => {
      const artifact = resultArtifact({ sum: 'many' })
      if (method === 'SendMessage') {
        return result({ task: taskAs('t', 'TASK_STATE_COMPLETED', { artifacts: [artifact] }) })
      }
      await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
      await events({ artifactUpdate: { taskId: 't', contextId: 'c', artifact } }, statusOf('t', 'TASK_STATE_COMPLETED'))
      res.end()
    }, repeatable),
    code: 'invalid_result',
    kind: 'tool',
    retryable: false,
    attempt: 1,
    calls: 1,
    taskId: 't',
    says: /\/sum: must be an integer, got a string: "many"/,
  },
  {
    name: 'a tool that takes too long',
    start: scripted(
      async ({ events }) => {
        await events({ task: taskAs('t', 'TASK_STATE_WORKING') }, artifactOf('t', 'stream', [{ text: 'still' }]))
      },
      { call: () => ({ timeoutMs: 4_000 }) }, // all rows run at once: the call must be under way by then on a busy machine, too
    ),
    code: 'timeout',
    kind: 'timeout',
    retryable: true,
    attempt: 1,
    calls: 1,
    taskId: 't',
    says: /did not finish within \d+ ms/,
  },
  {
    name: 'a call that is cancelled',
    start: scripted(({ events }) => events({ task: taskAs('t', 'TASK_STATE_WORKING') }), {
      call: () => {
        const controller = new AbortController()
        return { signal: controller.signal, onTask: () => controller.abort() }
      },
    }),
    code: 'canceled',
    kind: 'canceled',
    retryable: false,
    attempt: 1,
    calls: 1,
    taskId: 't',
    says: /cancelled/,
  },
]

async function failureOf(work: () => Promise<unknown>): Promise<ConvokeError> {
  try {
    await work()
  } catch (error) {
    return error as ConvokeError
  }
  throw new Error('It did not fail.')
}

interface Failed {
  readonly error: ConvokeError
  readonly scene: Scene
  readonly calls: number
}

/** A registry and an executor, without a node. The tools are put in by hand where the card cannot be had. */
async function startClients(scene: Scene, row: Row, lines: string[] = []) {
  const log = createLog('debug', { pretty: false, write: (line) => lines.push(line) })
  const manager = new ClientManager({ peers: { bob: { url: scene.url, ...scene.options } }, log })
  cleanup(() => manager.close())
  const registry = new RemoteToolRegistry({ clients: manager, log })
  await know(registry, row)
  return { manager, registry, executor: new RemoteToolExecutor({ registry, log }) }
}

async function know(registry: RemoteToolRegistry, { beforeCard }: Row): Promise<void> {
  if (beforeCard === true) registry.register({ peer: 'bob', name: 'add' })
  else await registry.discover('bob')
}

async function drain(events: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of events);
}

const ways = {
  async executeRemoteTool(scene: Scene, row: Row) {
    const { executor } = await startClients(scene, row)
    return failureOf(() => executor.executeRemoteTool('bob', 'add', scene.params ?? { n: 1 }, scene.call?.()))
  },
  async executeRemoteToolStreaming(scene: Scene, row: Row) {
    const { executor } = await startClients(scene, row)
    const events = executor.executeRemoteToolStreaming('bob', 'add', scene.params ?? { n: 1 }, scene.call?.())
    return failureOf(() => drain(events))
  },
  async node(scene: Scene, row: Row) {
    // What a peer returns is checked as strictly as by those who call without a node.
    const toolCalls = { results: { foreign: 'strict' } } as const
    const node = await startNode({ peers: { bob: { url: scene.url, ...scene.options } }, toolCalls })
    await know(node.remoteTools, row)
    const { onTask, ...options } = scene.call?.() ?? {}
    // A call of a node does not tell the task; the peer does.
    if (onTask !== undefined) void until(() => scene.calls?.() === 1).then(onTask)
    return failureOf(() => node.tools.call('bob.add', scene.params ?? { n: 1 }, options))
  },
  async connectPeer(scene: Scene) {
    return failureOf(async () => {
      const { url, ...options } = { url: scene.url, id: 'bob', ...(scene.options as ConnectOptions) }
      const peer = await connectPeer(url, options)
      cleanup(() => peer.close())
      await peer.executeRemoteTool('add', scene.params ?? { n: 1 }, scene.call?.())
    })
  },
}

type Outcomes = Record<keyof typeof ways, Failed>

async function outcomesOf(row: Row): Promise<Outcomes> {
  const entries = Object.entries(ways).map(async ([way, call]): Promise<[string, Failed]> => {
    const scene = await row.start({})
    const error = await call(scene, row)
    return [way, { error, scene, calls: scene.calls?.() ?? 0 }]
  })
  return Object.fromEntries(await Promise.all(entries)) as Outcomes
}

describe('a failure says what it was, whoever called:', () => {
  const outcomes = new Map<Row, Outcomes>()

  // All at once, because some take their time to try again.
  beforeAll(async () => {
    await Promise.all(rows.map(async (row) => outcomes.set(row, await outcomesOf(row))))
  })

  test.each(rows)('$name is $code', (row) => {
    const failures = outcomes.get(row)!
    for (const [way, { error, calls }] of Object.entries(failures)) {
      expect(error.code, `${way}: ${inspect(error)}`).toBe(row.code)
      expect(error.message, way).toMatch(row.says)
      expect(error.retryable, way).toBe(row.retryable)
      expect(calls, way).toBe(row.calls)
    }
    const { kind, attempt, taskId } = row
    for (const { error } of [failures.executeRemoteTool, failures.executeRemoteToolStreaming]) {
      expect(error).toBeInstanceOf(PeerError)
      expect(error).toMatchObject({ kind, peer: 'bob', tool: 'add', attempt, taskId })
    }
  })
})

test('a tool that a peer does not know any more has the peer asked for its tools again, once for many calls', async () => {
  const { start } = rows.find(({ name }) => name === 'a tool that the peer does not know any more')!
  const scene = await start({})
  const { executor, registry } = await startClients(scene, rows[0]!)
  await registry.discover('bob')
  const cards = (): number => scene.peer!.count('GET')
  const before = cards()
  const call = () => failureOf(() => executor.executeRemoteTool('bob', 'add', { n: 1 }))
  const failures = await Promise.all([call(), call(), call()])
  expect(failures.map(({ code }) => code)).toEqual(['not_found', 'not_found', 'not_found'])
  await until(() => cards() > before, 'the card to be asked for')
  expect(cards()).toBe(before + 1)
})

test('a tool of a peer that cannot be asked is not found, and the cause says why and whether it may go better', async () => {
  const { url } = await startScriptedPeer(({ raw }) => raw(429, { 'retry-after': '3600' }, 'Too much.'))
  const node = await startNode({ peers: { bob: { url } } })
  const error = await failureOf(() => node.tools.call('bob.add'))
  expect(error).toMatchObject({
    code: 'not_found',
    retryable: true,
    cause: { code: 'rate_limited', peer: 'bob', attempt: 1 },
  })
})

test('an agent without tools says so, and takes messages', async () => {
  const peer = await startScriptedPeer(
    ({ method, result }) => {
      if (method === 'SendMessage') result({ message: says('Hello.') })
    },
    { card: () => ({ skills: [{ id: 'talk', name: 'Talk', description: 'Talks.', tags: ['talk'] }] }) },
  )
  const node = await startNode({ peers: { bob: { url: peer.url } } })
  const error = await failureOf(() => node.tools.call('bob.talk'))
  expect(error).toMatchObject({ code: 'not_found', retryable: false })
  expect(error.message).toBe('bob has no tools: it is an agent that takes messages only. Send it a message instead.')
  expect((await node.peers.sendTask('bob', 'Hi.')).message?.parts).toEqual([{ text: 'Hello.' }])
})

describe('no secret is shown by any failure, when it is', () => {
  const secret = 's3cr3t'
  const inQuery = { securitySchemes: { key: { type: 'apiKey', in: 'query', name: 'api_key' } } }
  const inCookie = { securitySchemes: { key: { type: 'apiKey', in: 'cookie', name: 'sid' } } }

  /** All that can be seen of an error, and where it was kept. */
  const shown = (error: Error, lines: readonly string[], more: readonly unknown[]): string => {
    const causes: unknown[] = []
    for (let each: unknown = error; each instanceof Error; each = each.cause) causes.push(each.message, each.stack)
    return [inspect(error, { depth: 9, showHidden: true }), JSON.stringify(error), String(error), ...causes, ...lines]
      .concat(more.map((each) => inspect(each, { depth: 9 })))
      .join('\n')
  }

  const kinds: readonly [string, Partial<PeerOptions>, JsonObject?][] = [
    ['a bearer token', { auth: { bearer: `${secret}.abc` } }],
    ['a bearer token from a function', { auth: { bearer: async () => `${secret}.abc` } }],
    ['an API key in a header', { auth: { apiKey: `k3y ${secret}/+"x` } }],
    ['an API key in the query', { auth: { apiKey: `k3y ${secret}/+"x` } }, inQuery],
    ['an API key in a cookie', { auth: { apiKey: `${secret}/+"x` } }, inCookie],
    ['a header', { headers: { 'x-auth-token': `${secret}/1` } }],
  ]

  test('a bearer token, an API key anywhere, or a header', async () => {
    const all = kinds.flatMap(([kind, options, card = {}]) => rows.map((row) => ({ kind, options, card, row })))
    await Promise.all(
      all.map(async ({ kind, options, card, row }) => {
        const what = `${kind}, ${row.name}`
        const scene = await row.start(card)
        const lines: string[] = []
        const clients = await startClients({ ...scene, options: { ...scene.options, ...options } }, row, lines)
        const { executor, manager, registry } = clients
        const call = executor.executeRemoteTool('bob', 'add', scene.params ?? { n: 1 }, scene.call?.())
        const error = await failureOf(() => call)
        expect(error.code, what).toBe(row.code)
        const asked = scene.peer?.requests.find(isCall)
        const sent = asked === undefined ? secret : JSON.stringify([asked.headers, asked.path])
        expect(sent, `${what}: it was sent`).toContain(secret)
        expect(shown(error, lines, [manager.health(), registry.status('bob')]), what).not.toContain(secret)
      }),
    )
  })

  test('the secret of an OAuth client, or a token that it got', async () => {
    const clientSecret = `${secret}/+"x`
    const encoded = Buffer.from(`alice:${new URLSearchParams({ '': clientSecret }).toString().slice(1)}`)
    for (const isRefused of [false, true]) {
      const oauth = await startOAuthServer(({ headers, text }) => {
        if (!isRefused) return grant(`${secret}.token`)
        return refusal('invalid_client', `You sent ${headers.authorization} with ${text}, which is ${clientSecret}.`)
      })
      const { tokenUrl } = oauth
      const auth = { oauth2: { tokenUrl, clientId: 'alice', clientSecret } }
      for (const name of ['a tool that fails', '401']) {
        const row = rows.find((each) => each.name === name)!
        const scene = await row.start({})
        const lines: string[] = []
        const { executor, manager, registry } = await startClients(
          { ...scene, options: { auth } },
          { ...row, ...(isRefused ? { beforeCard: true } : {}) },
          lines,
        )
        const error = await failureOf(() => executor.executeRemoteTool('bob', 'add', { n: 1 }))
        expect(error.code).toBe(isRefused ? 'unauthenticated' : row.code)
        const text = shown(error, lines, [manager.health(), registry.status('bob')])
        expect(text).not.toContain(secret)
        expect(text).not.toContain(encoded.toString('base64'))
      }
    }
  })

  test.each(['http://alice:s3cr3t@127.0.0.1:1', 'ftp://alice:s3cr3t@host', '//alice:s3cr3t@'])(
    'in a URL: %s',
    async (url) => {
      const error = await failureOf(async () => new ClientManager({ peers: { bob: { url } } }))
      expect(error.code).toBe('config')
      expect(shown(error, [], [])).not.toContain(secret)
      expect(shown(await failureOf(() => connectPeer(url)), [], [])).not.toContain(secret)
    },
  )

  test('in the query of the URL', async () => {
    const { url } = await startScriptedPeer((exchange) => exchange.raw(404, {}, echo(exchange)))
    const error = await failureOf(() => connectPeer(`${url}/card.json?key=${secret}`))
    expect(error.code).toBe('not_found')
    expect(shown(error, [], [])).not.toContain(secret)
  })
})
