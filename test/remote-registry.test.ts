/** What is known of peers' tools: read from real cards, friendly and hostile ones. */
import { defineTool, type Json, type JsonObject, type Node, type NodeOptions, type RemoteToolChange } from 'convoke'
import { describe, expect, test, vi } from 'vitest'
import { PeerClient } from '../dist/peers/client.js'
import { cardOf, cardPath, skillOf, startCards, type CardAnswer, type CardServer } from './support/cards.ts'
import { startFaultProxy } from './support/fault-proxy.ts'
import { cleanup, startNode, until } from './support/lifetime.ts'

const noParams = { type: 'object', properties: {} } as const
const secret = 'token-nobody-else-may-see'

const sample = (name: string, traits = {}) =>
  defineTool({ name, description: `Says ${name}.`, input: noParams, traits, run: () => ({ said: name }) })

const failureOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => expect.fail('It did not fail.'),
    (error: unknown) => error,
  )

const lookup = async (node: Node, name: string) => await node.tools.resolve(name)

interface Stage {
  readonly node: Node
  readonly server: CardServer
  /** What the card says from now on. */
  readonly show: (skills: readonly Json[], changes?: JsonObject) => void
}

/** A node whose peer, bob, is what the test shows. */
async function startStage(skills: readonly Json[] = [], options: Partial<NodeOptions> = {}): Promise<Stage> {
  let card: (url: string) => JsonObject
  const show: Stage['show'] = (each, changes) => (card = (url) => cardOf(url, each, changes))
  show(skills)
  const server: CardServer = await startCards(({ path }) =>
    path === cardPath ? { body: card(server.url) } : undefined,
  )
  // What becomes of a tool that has changed is for the tool space to say, not for the registry.
  const node = await startNode({ peers: { bob: { url: server.url } }, pins: { policy: 'trust' }, ...options })
  return { node, server, show }
}

const listedUrl = (url: string): JsonObject => ({
  capabilities: { extensions: [{ uri: 'urn:convoke:tool-call:v1', params: { tools_url: url } }] },
})

describe('the card is the truth', () => {
  test('listeners are told of tools that came, changed and went', async () => {
    const { node, show } = await startStage([skillOf('a'), skillOf('b')])
    const changes: RemoteToolChange[] = []
    const stop = node.remoteTools.onChange((change) => changes.push(change))
    await node.remoteTools.discover('bob')
    const other = { type: 'object', properties: { n: { type: 'integer' } } }
    show([skillOf('b', { input_schema: other }), skillOf('c')])
    await node.remoteTools.discover('bob')
    expect(changes.map(({ type, tool }) => `${type} ${tool.name} ${tool.version}`)).toEqual([
      'added a 1',
      'added b 1',
      'removed a 1',
      'changed b 2',
      'added c 1',
    ])
    expect(changes[3]).toMatchObject({ before: { version: 1 } })
    expect(await failureOf(lookup(node, 'bob.a'))).toMatchObject({ code: 'not_found' })
    stop()
    show([])
    await node.remoteTools.discover('bob')
    expect(changes).toHaveLength(5)
  })

  test('a tool stays the same object until its card says something else', async () => {
    const { node, show } = await startStage([skillOf('a', { tags: ['tool', 'x'] })])
    const tool = await lookup(node, 'bob.a')
    const info = node.remoteTools.get('bob', 'a')
    await node.remoteTools.discover('bob')
    // Another order of keys is the same schema.
    show([skillOf('a', { tags: ['tool', 'x'], input_schema: { properties: {}, type: 'object' } })])
    await node.remoteTools.discover('bob')
    expect(await lookup(node, 'bob.a')).toBe(tool)
    const same = node.remoteTools.get('bob', 'a')
    expect(same).toMatchObject({ version: 1, schemaHash: info?.schemaHash })
    expect(same?.lastUpdated).toBeGreaterThanOrEqual(info?.lastUpdated ?? 0)

    let version = 1
    for (const change of [
      { description: 'Does more.' },
      { tags: ['tool', 'y'] },
      { input_schema: { type: 'object', properties: { n: {} } } },
      { output_schema: { type: 'string' } },
    ]) {
      show([skillOf('a', change)])
      await node.remoteTools.discover('bob')
      const now = node.remoteTools.get('bob', 'a')
      expect(now?.version).toBe(++version)
      const hasSchemas = 'input_schema' in change || 'output_schema' in change
      expect(now?.schemaHash === info?.schemaHash).toBe(!hasSchemas)
    }
    expect(await lookup(node, 'bob.a')).not.toBe(tool)
  })

  test('a listener that throws spoils nothing', async () => {
    const { node } = await startStage([skillOf('a'), skillOf('b')])
    node.remoteTools.onChange(() => {
      throw new Error('boom')
    })
    const told: string[] = []
    node.remoteTools.onChange(({ tool }) => told.push(tool.name))
    await node.remoteTools.discover('bob')
    expect(told).toEqual(['a', 'b'])
    expect(node.remoteTools.status('bob')).toMatchObject({ state: 'ok', tools: 2 })
  })

  test('what is known stays while the peer cannot be asked, and status says why', async () => {
    const bob = await startNode({ agent: { id: 'bob' }, tools: [sample('a')] })
    const proxy = await startFaultProxy(bob.url)
    const node = await startNode({ peers: { bob: { url: proxy.url } } })
    expect(node.remoteTools.status('bob')).toEqual({ peer: 'bob', state: 'never', tools: 0 })
    const tool = await lookup(node, 'bob.a')
    expect(node.remoteTools.status('bob')).toEqual({
      peer: 'bob',
      state: 'ok',
      tools: 1,
      lastDiscovery: expect.any(Number),
    })
    proxy.respond('HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n', 1)
    expect(await failureOf(node.remoteTools.discover('bob'))).toMatchObject({ code: 'unauthenticated' })
    expect(node.remoteTools.status('bob')).toMatchObject({
      state: 'failed',
      tools: 1,
      lastError: { code: 'unauthenticated', kind: 'auth', peer: 'bob' },
    })
    expect(await lookup(node, 'bob.a')).toBe(tool)
    await node.remoteTools.discover('bob')
    expect(node.remoteTools.status('bob')).toMatchObject({ state: 'ok' })
    expect(node.remoteTools.status('bob').lastError).toBe(undefined)
  })

  test('a peer that no longer knows a tool is asked what it has now, once for many calls', async () => {
    const bob = await startNode({ agent: { id: 'bob' }, tools: [sample('old')] })
    const proxy = await startFaultProxy(bob.url)
    const node = await startNode({ peers: { bob: { url: proxy.url } } })
    expect(await node.tools.call('bob.old')).toEqual({ said: 'old' })
    bob.registry.deregister('old')
    bob.registry.register(sample('new'))
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 2_000 })
    cleanup(() => vi.useRealTimers())
    const failures = await Promise.all(Array.from({ length: 20 }, () => failureOf(node.tools.call('bob.old'))))
    for (const failure of failures) expect(failure).toMatchObject({ code: 'not_found', peer: 'bob' })
    vi.useRealTimers()
    await until(() => node.remoteTools.get('bob', 'new'))
    expect(node.remoteTools.get('bob', 'old')).toBe(undefined)
    expect(await node.tools.call('bob.new')).toEqual({ said: 'new' })
    expect(proxy.sent.split(`GET ${cardPath}`)).toHaveLength(3)
  })

  test('one tool, or a whole peer, can be forgotten; what was added by hand stays', async () => {
    const { node, server } = await startStage([skillOf('a'), skillOf('b')])
    await node.remoteTools.discover('bob')
    node.remoteTools.register({ peer: 'bob', name: 'mine' })
    node.remoteTools.invalidate('bob', 'a')
    expect(node.remoteTools.find().map(({ name }) => name)).toEqual(['b', 'mine'])
    await lookup(node, 'bob.a')
    expect(server.count()).toBe(2)
    node.remoteTools.invalidate('bob')
    expect(node.remoteTools.find().map(({ name }) => name)).toEqual(['mine'])
    await lookup(node, 'bob.b')
    expect(server.count()).toBe(3)
    expect(node.remoteTools.deregister('bob', 'b')).toBe(true)
    expect(node.remoteTools.deregister('bob', 'b')).toBe(false)
    node.remoteTools.forget('bob')
    expect(node.remoteTools.find()).toEqual([])
  })
})

describe('finding', () => {
  async function startThree(tools: NodeOptions['tools'] = []): Promise<Node> {
    const skills: Record<string, Json[]> = {
      '/ann': [skillOf('count', { tags: ['tool', 'math', 'fast'] }), skillOf('say')],
      '/ben': [skillOf('count', { tags: ['tool', 'math'] })],
      '/cat': [skillOf('draw', { tags: ['tool', 'art', 'fast'] })],
    }
    const server: CardServer = await startCards(({ path }) => ({
      body: cardOf(server.url, skills[path.slice(0, 4)]),
    }))
    const peers = Object.fromEntries(['ann', 'ben', 'cat'].map((id) => [id, { url: `${server.url}/${id}` }]))
    const node = await startNode({ peers, tools })
    for (const id of node.peers.ids) await node.remoteTools.discover(id)
    return node
  }

  test('goes by name, peer, capabilities and tag', async () => {
    const { remoteTools } = await startThree()
    const handles = (filter?: Parameters<typeof remoteTools.find>[0]) =>
      remoteTools.find(filter).map(({ handle }) => handle)
    expect(handles()).toEqual(['ann.count', 'ann.say', 'ben.count', 'cat.draw'])
    expect(handles({ name: 'count' })).toEqual(['ann.count', 'ben.count'])
    expect(handles({ peer: 'ann' })).toEqual(['ann.count', 'ann.say'])
    expect(handles({ capabilities: ['math', 'fast'] })).toEqual(['ann.count'])
    expect(handles({ tag: 'fast' })).toEqual(['ann.count', 'cat.draw'])
    expect(handles({ tag: 'fast', peer: 'cat', name: 'draw', capabilities: ['art'] })).toEqual(['cat.draw'])
    expect(handles({ tag: 'tool' })).toEqual([])
    expect(handles({ peer: 'nobody' })).toEqual([])
  })

  test('takes a bare name that one peer has, and names the candidates of one that several have', async () => {
    const node = await startThree()
    expect((await lookup(node, 'draw')).name).toBe('cat.draw')
    expect(node.remoteTools.lookup('draw').handle).toBe('cat.draw')
    const sentence = 'Several peers have a tool "count"; say which one: ann.count, ben.count.'
    expect(() => node.remoteTools.lookup('count')).toThrow(sentence)
    const error = await failureOf(lookup(node, 'count'))
    expect(error).toMatchObject({ code: 'not_found', message: expect.stringContaining('ann.count, ben.count') })
    expect(() => node.remoteTools.lookup('nothing')).toThrow('No peer is known to have a tool "nothing".')
  })

  test("prefers the agent's own tool to a peer's of the same name", async () => {
    const node = await startThree([sample('draw'), sample('count')])
    expect((await lookup(node, 'draw')).kind).toBe('local')
    expect(await node.tools.call('count')).toEqual({ said: 'count' })
    expect((await lookup(node, 'cat.draw')).kind).toBe('a2a')
    expect(node.tools.list().map(({ name }) => name)).toEqual([
      'draw',
      'count',
      'ann.count',
      'ann.say',
      'ben.count',
      'cat.draw',
    ])
  })

  test('does not list every candidate where there are hundreds', async () => {
    const server: CardServer = await startCards(() => ({ body: cardOf(server.url, [skillOf('x')]) }))
    const peers = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`p${i}`, { url: `${server.url}/${i}` }]))
    const { remoteTools } = await startNode({ peers })
    await Promise.all(Object.keys(peers).map((id) => remoteTools.discover(id)))
    expect(() => remoteTools.lookup('x')).toThrow(/p0\.x, p1\.x, .*, p19\.x, …\.$/)
  })
})

describe('a tool by hand', () => {
  test('can be called at a peer whose card does not tell it, and nobody asks for the card', async () => {
    const { node, server } = await startStage()
    const info = node.remoteTools.register({
      peer: 'bob',
      name: 'secret',
      description: 'Not on the card.',
      capabilities: ['x'],
      parametersSchema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
      readOnly: true,
    })
    expect(info).toMatchObject({ handle: 'bob.secret', version: 1, traits: { readOnly: true, idempotent: false } })
    expect((await lookup(node, 'bob.secret')).input).toMatchObject({ required: ['n'] })
    expect(await failureOf(node.tools.call('bob.secret', {}))).toMatchObject({ code: 'invalid_params' })
    expect(server.count()).toBe(0)
    await node.remoteTools.discover('bob')
    expect(node.remoteTools.find().map(({ name }) => name)).toEqual(['secret'])
    expect(() => node.remoteTools.register({ peer: 'eve', name: 'x' })).toThrow('There is no peer "eve" here.')
    for (const name of ['', 'a\nb', 'x'.repeat(129), ' x']) {
      expect(() => node.remoteTools.register({ peer: 'bob', name })).toThrow('must be 1 to 128 visible characters')
    }
  })

  test('is told over by a card that has it, and goes with it', async () => {
    const { node, show } = await startStage()
    node.remoteTools.register({ peer: 'bob', name: 'x', description: 'Mine.' })
    show([skillOf('x')])
    await node.remoteTools.discover('bob')
    expect(node.remoteTools.get('bob', 'x')).toMatchObject({ description: 'The tool x.', version: 2 })
    show([])
    await node.remoteTools.discover('bob')
    expect(node.remoteTools.get('bob', 'x')).toBe(undefined)
  })

  test('has the names of the remote tool protocol as JSON', async () => {
    const { node, server } = await startStage([
      skillOf('count', { tags: ['tool', 'math'], output_schema: { type: 'integer' } }),
      { id: 'tool-bare', name: 'bare', description: 'Has no schema.', tags: ['tool'] },
    ])
    const [count, bare] = await node.remoteTools.discover('bob')
    expect(JSON.parse(JSON.stringify(count))).toEqual({
      name: 'count',
      description: 'The tool count.',
      agent_id: 'bob',
      agent_url: server.url,
      capabilities: ['math'],
      parameters_schema: noParams,
      return_schema: { type: 'integer' },
      last_updated: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
      read_only: false,
      idempotent: false,
      version: 1,
      schema_hash: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
    expect(Object.keys(bare?.toJSON() ?? {})).not.toContain('parameters_schema')
  })
})

describe('a large card', () => {
  test('has its schemas in a list that is read page by page', async () => {
    const description = 'x'.repeat(300)
    const tools = Array.from({ length: 1000 }, (_, i) =>
      defineTool({
        name: `t${i}`,
        description,
        input: { type: 'object', properties: { [`p${i}`]: { type: 'string' } } },
        run: () => i,
      }),
    )
    const bob = await startNode({ agent: { id: 'bob' }, tools })
    const proxy = await startFaultProxy(bob.url)
    const node = await startNode({ peers: { bob: { url: proxy.url } } })
    const found = await node.remoteTools.discover('bob')
    expect(found).toHaveLength(1000)
    expect(found[999]?.parametersSchema).toMatchObject({ properties: { p999: { type: 'string' } } })
    expect(proxy.sent.split('page_token=').length - 1).toBe(4)
    expect(await node.tools.call('bob.t7', { p7: 'a' })).toBe(7)
    const tool = await lookup(node, 'bob.t999')
    await node.remoteTools.discover('bob')
    expect(await lookup(node, 'bob.t999')).toBe(tool)
  })

  const startList = async (page: (token: string | null, server: CardServer) => CardAnswer) => {
    const server: CardServer = await startCards(({ path }) => {
      if (path === cardPath)
        return { body: cardOf(server.url, [skillOf('a'), skillOf('b')], listedUrl(`${server.url}/tools`)) }
      return page(new URL(path, server.url).searchParams.get('page_token'), server)
    })
    const { remoteTools } = await startNode({ peers: { bob: { url: server.url, requestTimeoutMs: 1_000 } } })
    return { server, remoteTools }
  }
  const entry = (name: string, n: number) => ({
    id: `tool-${name}`,
    input_schema: { type: 'object', maxProperties: n },
  })
  const violation = { field: 'page_token', description: 'No such page.' }
  const details = [{ '@type': 'type.googleapis.com/google.rpc.BadRequest', fieldViolations: [violation] }]
  const stale: CardAnswer = {
    status: 400,
    body: { error: { code: 400, status: 'INVALID_ARGUMENT', message: 'No such page.', details } },
  }

  test('is read anew when a page has lost its meaning', async () => {
    let isStale = true
    const { server, remoteTools } = await startList((token) => {
      if (token === null) return { body: { tools: [entry('a', isStale ? 1 : 2)], next_page_token: 'second' } }
      if (!isStale) return { body: { tools: [entry('b', 3)] } }
      isStale = false
      return stale
    })
    const found = await remoteTools.discover('bob')
    expect(found.map(({ parametersSchema }) => parametersSchema?.['maxProperties'])).toEqual([2, 3])
    expect(server.count()).toBe(5)
  })

  test('with pages that never have a meaning is given up', async () => {
    const { server, remoteTools } = await startList((token) =>
      token === null ? { body: { tools: [], next_page_token: 'x' } } : stale,
    )
    expect(await failureOf(remoteTools.discover('bob'))).toMatchObject({ code: 'invalid_params' })
    expect(server.count()).toBe(7)
  })

  test('with pages without end is given up', async () => {
    let pages = 0
    const { remoteTools } = await startList(() => ({
      body: { tools: [entry('a', 1)], next_page_token: `t${++pages}` },
    }))
    // By its time or by its number of pages, whichever comes first.
    await remoteTools.discover('bob').catch(() => {})
    expect(pages).toBeLessThanOrEqual(500)
    expect(remoteTools.status('bob').state).not.toBe('never')
  })

  test('cannot send the node to another origin for its list', async () => {
    const elsewhere = await startCards(() => ({ body: { tools: [] } }))
    const { node, show } = await startStage()
    show([skillOf('x')], listedUrl(`${elsewhere.url}/tools`))
    expect(await failureOf(node.remoteTools.discover('bob'))).toMatchObject({
      code: 'forbidden',
      message: `bob: Its card names a list of tools on another origin (${elsewhere.url}/tools), which is not asked.`,
    })
    expect(elsewhere.count()).toBe(0)
  })

  test('may name its list by another name of this machine', async () => {
    const server: CardServer = await startCards(({ path }) => {
      if (path !== cardPath) return { body: { tools: [entry('a', 1)] } }
      const url = `${server.url.replace('127.0.0.1', 'localhost')}/tools`
      return { body: cardOf(server.url, [skillOf('a')], listedUrl(url)) }
    })
    const node = await startNode({ peers: { bob: { url: server.url } } })
    expect(await node.remoteTools.discover('bob')).toMatchObject([{ parametersSchema: { maxProperties: 1 } }])
  })
})

describe('a card is kept', () => {
  const startClient = (server: CardServer, options: object = {}) => {
    const client = new PeerClient({ id: 'bob', url: server.url, ...options })
    cleanup(() => client.close())
    return client
  }

  test('as long as its Cache-Control says', async () => {
    let control = 'max-age=100'
    const server: CardServer = await startCards(() => ({
      headers: { 'cache-control': control },
      body: cardOf(server.url),
    }))
    const client = startClient(server)
    vi.useFakeTimers({ toFake: ['Date'] })
    cleanup(() => vi.useRealTimers())
    for (let i = 0; i < 5; i++) await client.card()
    expect(server.count()).toBe(1)
    vi.setSystemTime(Date.now() + 99_000)
    await client.card()
    expect(server.count()).toBe(1)
    vi.setSystemTime(Date.now() + 2_000)
    await client.card()
    expect(server.count()).toBe(2)
    await client.card({ again: true })
    expect(server.count()).toBe(3)
    for (control of ['no-store', 'no-cache, max-age=100', 'max-age=0', '']) {
      const before = server.count()
      await client.card({ again: true })
      await client.card()
      expect(server.count() - before, control).toBe(2)
    }
    // A year is a mistake.
    control = 'max-age=31536000'
    await client.card({ again: true })
    const before = server.count()
    vi.setSystemTime(Date.now() + 25 * 3_600_000)
    await client.card()
    expect(server.count()).toBe(before + 1)
  })

  test('and asked for with its ETag or its date, which costs no body', async () => {
    const date = 'Fri, 20 Nov 2026 10:00:00 GMT'
    const server: CardServer = await startCards(({ headers }) =>
      headers['if-none-match'] === 'W/"a"' && headers['if-modified-since'] === date
        ? { status: 304 }
        : { headers: { etag: 'W/"a"', 'last-modified': date }, body: cardOf(server.url, [skillOf('x')]) },
    )
    const client = startClient(server)
    const card = await client.card()
    expect(await client.card()).toBe(card)
    expect((await client.descriptors({ again: true })).map(({ name }) => name)).toEqual(['x'])
    expect(server.count()).toBe(3)
  })

  test('unless it is too large, a page, or no card', async () => {
    let body: unknown
    const server = await startCards(() => ({ body }))
    const { remoteTools } = await startNode({ peers: { bob: { url: server.url } } })
    const failure = async (each: unknown) => {
      body = each
      return await failureOf(remoteTools.discover('bob'))
    }
    const where = `${server.url}${cardPath}`
    expect(await failure(`{"name":"${'x'.repeat(17 * 1024 * 1024)}"}`)).toMatchObject({
      code: 'too_large',
      peer: 'bob',
    })
    expect(await failure('<html>')).toMatchObject({ message: `bob: Its agent card (${where}) is a page of HTML.` })
    expect(await failure('{"name":')).toMatchObject({
      message: `bob: Its agent card (${where}) is not valid JSON, or is cut off.`,
    })
    expect(await failure(`{"name":${'['.repeat(100_000)}`)).toMatchObject({
      code: 'peer_failed',
      message: `bob: Its agent card (${where}) nests too deep to be read.`,
    })
    for (const none of ['[]', 'null', '7', '{}', '{"name":7}']) {
      expect(await failure(none)).toMatchObject({
        code: 'peer_failed',
        message: `bob: What stands at ${where} is no agent card: it has no name.`,
      })
    }
  })
})

describe('credentials', () => {
  const task = { id: 't', contextId: 'c', status: { state: 'TASK_STATE_COMPLETED' } }
  const answerTask = { body: { jsonrpc: '2.0', id: 1, result: task } }
  const auth = { bearer: secret }
  const headers = { 'X-Tenant': 'acme-corporation' }
  const seenBy = (server: CardServer) => JSON.stringify(server.requests)

  test('do not follow the card to another origin, where interfaces are refused unless they are allowed', async () => {
    const elsewhere = await startCards(() => answerTask)
    const server = await startCards(() => ({ body: cardOf(`${elsewhere.url}/rpc`, [skillOf('x')]) }))
    const bob = { url: server.url, auth, headers }
    const strict = await startNode({ peers: { bob } })
    expect(await failureOf(strict.remoteTools.discover('bob'))).toMatchObject({
      code: 'forbidden',
      kind: 'protocol',
      message: `bob: Its card names interfaces on another origin only (${elsewhere.url}), which is refused; allow it by allowOrigins if it is meant.`,
    })
    expect(elsewhere.count()).toBe(0)
    expect(server.requests[0]?.headers).toMatchObject({
      authorization: `Bearer ${secret}`,
      'x-tenant': headers['X-Tenant'],
    })

    const open = await startNode({ peers: { bob: { ...bob, allowOrigins: [elsewhere.url] } } })
    expect(await open.peers.getTask('bob', 't')).toMatchObject({ id: 't' })
    expect(elsewhere.count('/rpc')).toBe(1)
    expect(seenBy(elsewhere)).not.toContain(secret)
    expect(seenBy(elsewhere)).not.toContain('acme')
  })

  test.each([
    { auth: { bearer: secret } },
    { auth: { apiKey: secret } },
    { auth: { apiKey: secret, header: 'X-Key' } },
    { headers: { 'X-Secret': secret } },
  ])('do not go along a redirect: %j', async (options) => {
    const target: CardServer = await startCards(({ method }) =>
      method === 'POST' ? answerTask : { body: cardOf(target.url, [skillOf('x')]) },
    )
    const server = await startCards(() => ({ status: 302, headers: { location: `${target.url}/moved.json` } }))
    const node = await startNode({ peers: { bob: { url: server.url, ...options } } })
    await node.remoteTools.discover('bob')
    await node.remoteTools.discover('bob')
    await node.peers.getTask('bob', 't')
    expect(seenBy(server)).toContain(secret)
    expect(target.count('/moved.json')).toBe(2)
    expect(target.requests.some(({ method }) => method === 'POST')).toBe(true)
    expect(seenBy(target)).not.toContain(secret)
  })

  test('go to every name of this machine, on the same port', async () => {
    const server: CardServer = await startCards(({ method }) =>
      method === 'POST' ? answerTask : { body: cardOf(server.url.replace('127.0.0.1', 'localhost')) },
    )
    const node = await startNode({ peers: { bob: { url: server.url, auth } } })
    await node.peers.getTask('bob', 't')
    expect(server.requests.map(({ headers: { authorization } }) => authorization)).toEqual([
      `Bearer ${secret}`,
      `Bearer ${secret}`,
    ])
  })

  test('and tools of two nodes in one process are not known to each other', async () => {
    const server: CardServer = await startCards(({ method, headers: { authorization = '' } }) =>
      method === 'POST' ? answerTask : { body: cardOf(server.url, [skillOf(`for_${authorization.slice(-1)}`)]) },
    )
    const one = await startNode({ peers: { bob: { url: server.url, auth: { bearer: `${secret}-1` } } } })
    const two = await startNode({ peers: { bob: { url: server.url, auth: { bearer: `${secret}-2` } } } })
    await lookup(one, 'bob.for_1')
    expect(two.remoteTools.find()).toEqual([])
    expect(two.peers.health()).toMatchObject([{ peer: 'bob', state: 'unknown' }])
    await lookup(two, 'bob.for_2')
    await two.peers.getTask('bob', 't')
    expect(one.tools.list().map(({ name }) => name)).toEqual(['bob.for_1'])
    expect(two.tools.list().map(({ name }) => name)).toEqual(['bob.for_2'])
    expect(server.requests.map(({ headers: { authorization } }) => authorization?.slice(-1))).toEqual(['1', '2', '2'])
    await one.stop()
    expect(await two.peers.getTask('bob', 't')).toMatchObject({ id: 't' })
  })

  test('that a card wants in the URL are in no message', async () => {
    let body: JsonObject | string
    const server = await startCards(() => ({ body }))
    body = cardOf(server.url, [], {
      securitySchemes: { key: { apiKeySecurityScheme: { location: 'query', name: 'key' } } },
    })
    const { remoteTools } = await startNode({ peers: { bob: { url: server.url, auth: { apiKey: secret } } } })
    await remoteTools.discover('bob')
    for (body of ['<html>', '{}']) {
      const error = await failureOf(remoteTools.discover('bob'))
      expect(server.requests.at(-1)?.path).toContain(secret)
      expect(error).toMatchObject({ code: 'peer_failed' })
      expect(String(error)).not.toContain(secret)
    }
  })
})

describe('a hostile card', () => {
  test('has names that are data, and tools without a usable name are passed over', async () => {
    const { node } = await startStage([
      ...['__proto__', 'constructor', 'toString', 'a.b.c', 'with space', 'ümläut 😀', '..'].map((name) =>
        skillOf(name),
      ),
      ...['', ' ', 'a\nb', 'bell\u0007', 'hid\u200bden', '\u202eback', 'x'.repeat(1_000_000), 'tab\t'].map((name) =>
        skillOf(name),
      ),
      ...[null, 7, 'text', [], {}, { id: 7, tags: ['tool'] }, { id: 'plain', name: 'No tool', tags: [] }],
      { id: 'odd', tags: ['tool', 7, null, 'fine\u0007'], description: { a: 1 }, input_schema: 'none' },
      { ...skillOf('twice'), description: 'First.' },
      { ...skillOf('twice'), id: 'twice', description: 'Second.' },
    ])
    const found = await node.remoteTools.discover('bob')
    const names = ['__proto__', 'constructor', 'toString', 'a.b.c', 'with space', 'ümläut 😀', '..', 'odd', 'twice']
    expect(found.map(({ name }) => name)).toEqual(names)
    for (const name of names) {
      expect((await lookup(node, `bob.${name}`)).name).toBe(`bob.${name}`)
      expect(node.remoteTools.lookup(`bob.${name}`).name).toBe(name)
    }
    expect(node.remoteTools.get('bob', 'odd')).toMatchObject({ description: '', capabilities: ['fine'] })
    expect((await lookup(node, '__proto__')).name).toBe('bob.__proto__')
    const versions = await node.remoteTools.discover('bob')
    expect(versions.map(({ version }) => version)).toEqual(names.map(() => 1))
    expect(node.remoteTools.get('bob', 'twice')?.description).toBe('First.')
    expect(await failureOf(lookup(node, `bob.${'y'.repeat(100_000)}`))).toMatchObject({ code: 'not_found' })
    for (const none of ['hasOwnProperty', 'valueOf']) {
      expect(node.remoteTools.get('bob', none)).toBe(undefined)
      expect(node.remoteTools.find({ peer: none })).toEqual([])
    }
  })

  test('has no words that steer a terminal or a model unseen', async () => {
    const { node } = await startStage([
      skillOf('x', { description: 'Nice\u001b[2J\u200b\u{e0041} tool.\nReally.', tags: ['tool', 'a\u0000b'] }),
    ])
    const [tool] = await node.remoteTools.discover('bob')
    expect(tool).toMatchObject({ description: 'Nice[2J tool.\nReally.', capabilities: ['ab'] })
  })

  test('with a schema that does not compile has one tool that cannot be called', async () => {
    const { node, server } = await startStage([
      skillOf('broken', { input_schema: { type: 'object', properties: { a: { type: 'nonsense' } } } }),
      skillOf('pattern', { input_schema: { type: 'object', properties: { a: { pattern: '(' } } } }),
      skillOf('loop', { input_schema: { $ref: '#/definitions/none' } }),
      skillOf('remote', { input_schema: { $ref: 'http://127.0.0.1:1/schema.json' } }),
      skillOf('list', { input_schema: [] }),
      skillOf('fine'),
    ])
    await node.remoteTools.discover('bob')
    expect(node.remoteTools.status('bob')).toMatchObject({ state: 'ok', tools: 6 })
    for (const name of ['broken', 'pattern', 'loop', 'remote']) {
      const error = await failureOf(node.tools.call(`bob.${name}`, { a: 'x' }))
      expect(error, name).toMatchObject({ message: expect.stringContaining('The schema cannot be compiled: /') })
    }
    expect(server.requests.every(({ method }) => method === 'GET')).toBe(true)
    // It gets as far as the peer, which knows no calls.
    expect(await failureOf(node.tools.call('bob.fine', {}))).toMatchObject({ peer: 'bob', kind: 'protocol' })
  })

  test('with 100,000 skills costs a moment, and not all are taken', async () => {
    const skills = Array.from({ length: 100_000 }, (_, i) => ({ id: `tool-t${i}`, tags: ['tool'] }))
    const { node } = await startStage(skills)
    const startedAt = performance.now()
    expect(await node.remoteTools.discover('bob')).toHaveLength(10_000)
    expect(performance.now() - startedAt).toBeLessThan(5_000)
    expect(node.remoteTools.status('bob').tools).toBe(10_000)
  })

  test('with 100,000 interfaces costs a moment', async () => {
    const { node, server, show } = await startStage()
    const supportedInterfaces = Array.from({ length: 100_000 }, (_, i) => ({
      url: `${server.url}/${i}`,
      protocolBinding: 'JSONRPC',
      protocolVersion: '1.0',
    }))
    show([skillOf('x')], { supportedInterfaces, name: `Eve\u001b[2J${'e'.repeat(10_000)}` })
    const startedAt = performance.now()
    await node.remoteTools.discover('bob')
    expect(performance.now() - startedAt).toBeLessThan(3_000)
    const [status] = node.peers.health()
    expect(status?.info?.url).toBe(`${server.url}/0`)
    expect(status?.info?.name).toMatch(/^Eve\[2Je{190,}…$/)
  })

  test('has interfaces that make no endless messages', async () => {
    const { node, show } = await startStage()
    const bindings = Array.from({ length: 10_000 }, (_, i) => ({ url: 'http://h', protocolBinding: `b${i}` }))
    show([], { supportedInterfaces: bindings })
    const error = (await failureOf(node.remoteTools.discover('bob'))) as Error
    expect(error).toMatchObject({ code: 'version_not_supported' })
    expect(error.message.length).toBeLessThan(500)
    const origins = Array.from({ length: 10_000 }, (_, i) => ({
      url: `http://h${i}.example.com`,
      protocolBinding: 'JSONRPC',
      protocolVersion: '1.0',
    }))
    show([], { supportedInterfaces: origins })
    const refusal = (await failureOf(node.remoteTools.discover('bob'))) as Error
    expect(refusal).toMatchObject({ code: 'forbidden' })
    expect(refusal.message.length).toBeLessThan(600)
  })

  test.each<JsonObject>([
    { skills: 'none' },
    { skills: { a: 1 } },
    { capabilities: null },
    { capabilities: { extensions: 'x' } },
    { capabilities: { extensions: [null, 7, { uri: 'urn:convoke:tool-call:v1', params: 'x' }] } },
    { capabilities: { extensions: [{ uri: 'urn:convoke:tool-call:v1', params: { tools: [] } }] } },
    { securitySchemes: [], securityRequirements: 'x' },
    { additionalInterfaces: 'x', url: 7 },
  ])('with members of other shapes is read as far as it goes: %j', async (changes) => {
    const { node, show } = await startStage()
    show([skillOf('x')], changes)
    const found = await node.remoteTools.discover('bob')
    expect(found.map(({ name }) => name)).toEqual('skills' in changes ? [] : ['x'])
  })
})
