/** When peers are asked for their tools, and when they are not. */
import type { Node, NodeOptions } from 'convoke'
import { defineTool } from 'convoke'
import { describe, expect, test, vi } from 'vitest'
import { cardOf, cardPath, skillOf, startCards, type CardAnswer, type CardServer } from './support/cards.ts'
import { startFaultProxy, type FaultProxy } from './support/fault-proxy.ts'
import { cleanup, deferred, startNode, until } from './support/lifetime.ts'
import { startPlainPeer } from './support/peers.ts'

const echo = defineTool({
  name: 'echo',
  description: 'Says it again.',
  input: { type: 'object', properties: { value: {} } },
  run: ({ value = null }) => ({ value }),
})

const failureOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => expect.fail('It did not fail.'),
    (error: unknown) => error,
  )

/** As a lookup in the node's tool space goes: it may throw at once. */
const lookup = async (node: Node, name: string) => await node.tools.resolve(name)

/** How often a card was asked for on the wire. */
const cardRequests = (proxy: FaultProxy): number => proxy.sent.split(`GET ${cardPath}`).length - 1

/** A node whose only peer, bob, is a real node behind a counting proxy. */
async function startPair(options: Partial<NodeOptions> = {}): Promise<{ alice: Node; bob: Node; proxy: FaultProxy }> {
  const bob = await startNode({ agent: { id: 'bob' }, tools: [echo] })
  const proxy = await startFaultProxy(bob.url)
  const alice = await startNode({ peers: { bob: { url: proxy.url } }, ...options })
  return { alice, bob, proxy }
}

/** A server on which each agent has a path of its own: `/a3/.well-known/agent-card.json`. */
function startAgents(answer?: (id: string) => CardAnswer | Promise<CardAnswer> | undefined): Promise<CardServer> {
  return startCards(async ({ path }) => {
    const id = /^\/(\w+)\/\.well-known\/agent-card\.json$/.exec(path)?.[1]
    if (id === undefined) return undefined
    return (await answer?.(id)) ?? { body: cardOf('http://127.0.0.1/', [skillOf(`${id}_tool`)]) }
  })
}

const peersOf = (server: CardServer, count: number, prefix = 'a') =>
  Object.fromEntries(
    Array.from({ length: count }, (_, i) => [
      `${prefix}${i}`,
      { url: `${server.url}/${prefix}${i}`, allowOrigins: ['http://127.0.0.1'] },
    ]),
  )

describe('the first lookup', () => {
  test('asks the peer once for twenty callers at once, and all of them get the tool', async () => {
    const { alice, proxy } = await startPair()
    expect(cardRequests(proxy)).toBe(0)
    const calls = Array.from({ length: 20 }, (_, i) => alice.tools.call('bob.echo', { value: i }))
    expect(await Promise.all(calls)).toEqual(Array.from({ length: 20 }, (_, i) => ({ value: i })))
    expect(cardRequests(proxy)).toBe(1)
    await alice.tools.call('bob.echo', { value: 'again' })
    expect(cardRequests(proxy)).toBe(1)
  })

  test('asks once where the card may not be cached, and once where it names a list of its tools', async () => {
    const server = await startCards(({ path }) => {
      if (path === '/tools') return { body: { tools: [{ id: 'tool-x', input_schema: { type: 'object' } }] } }
      const extension = { uri: 'urn:convoke:tool-call:v1', params: { tools_url: `${server.url}/tools` } }
      return {
        headers: { 'cache-control': 'no-store' },
        body: cardOf(server.url, [skillOf('x')], { capabilities: { extensions: [extension] } }),
      }
    })
    const node = await startNode({ peers: { bob: { url: server.url } } })
    await lookup(node, 'bob.x')
    expect([server.count(cardPath), server.count('/tools')]).toEqual([1, 1])
  })

  test('is the only one after a failure: fifty lookups are one request, and one more after an invalidate', async () => {
    const server = await startCards(() => ({ status: 500, body: 'broken' }))
    const node = await startNode({ peers: { bob: { url: server.url } } })
    for (let i = 0; i < 50; i++) {
      const error = await failureOf(lookup(node, 'bob.echo'))
      expect(error).toMatchObject({ code: 'not_found', cause: { peer: 'bob', httpStatus: 500 } })
    }
    expect(server.count()).toBe(1)
    node.remoteTools.invalidate('bob')
    for (let i = 0; i < 50; i++) await failureOf(lookup(node, 'bob.echo'))
    expect(server.count()).toBe(2)
    expect(node.remoteTools.status('bob')).toMatchObject({ state: 'failed', tools: 0, lastError: { httpStatus: 500 } })
  })

  test('asks again after a failure once the peer has answered something else', async () => {
    let isBroken = true
    const server = await startCards(({ method, path }) => {
      if (method === 'POST') {
        const status = { state: 'TASK_STATE_COMPLETED' }
        return { body: { jsonrpc: '2.0', id: 1, result: { id: 't', contextId: 'c', status } } }
      }
      if (path === '/tools') return isBroken ? { status: 500 } : { body: { tools: [] } }
      const extension = { uri: 'urn:convoke:tool-call:v1', params: { tools_url: `${server.url}/tools` } }
      return { body: cardOf(server.url, [skillOf('x')], { capabilities: { extensions: [extension] } }) }
    })
    const node = await startNode({ peers: { bob: { url: server.url } } })
    for (let i = 0; i < 5; i++) await failureOf(lookup(node, 'bob.x'))
    expect(server.count('/tools')).toBe(1)
    isBroken = false
    await node.peers.getTask('bob', 't')
    expect((await lookup(node, 'bob.x')).name).toBe('bob.x')
    await failureOf(lookup(node, 'bob.y'))
    expect(server.count('/tools')).toBe(2)
  })

  test('of a tool that is not on the card asks nobody, and says what was meant', async () => {
    const { alice, proxy } = await startPair()
    await expect(lookup(alice, 'bob.ecko')).rejects.toThrow('There is no tool "ecko" at bob. Did you mean "echo"?')
    for (let i = 0; i < 10; i++) await failureOf(lookup(alice, 'bob.ecko'))
    expect(cardRequests(proxy)).toBe(1)
  })

  test('at an agent without tools says that it takes messages', async () => {
    const { url } = await startPlainPeer()
    const node = await startNode({ peers: { bob: { url } } })
    await expect(lookup(node, 'bob.echo')).rejects.toThrow(
      'bob has no tools: it is an agent that takes messages only. Send it a message instead.',
    )
    const { task } = await node.peers.sendTask('bob', 'text Hello.')
    expect(task?.artifacts?.[0]?.parts[0]?.text).toBe('Hello.')
  })

  test('may be given up by one caller while another one waits on', async () => {
    const gate = deferred()
    const server = await startCards(async () => {
      await gate.promise
      return { body: cardOf(server.url, [skillOf('x')]) }
    })
    const { remoteTools } = await startNode({ peers: { bob: { url: server.url } } })
    const controller = new AbortController()
    const impatient = remoteTools.discover('bob', { signal: controller.signal })
    const patient = remoteTools.discover('bob')
    await until(() => server.count() === 1)
    controller.abort()
    expect(await failureOf(impatient)).toMatchObject({ code: 'canceled' })
    gate.resolve()
    expect((await patient).map(({ name }) => name)).toEqual(['x'])
    expect(server.count()).toBe(1)
    expect(remoteTools.status('bob').state).toBe('ok')
  })

  test('that everybody gave up is ended, and the next one asks anew', async () => {
    let isHeld = true
    const server = await startCards(() =>
      isHeld ? new Promise<CardAnswer>(() => {}) : { body: cardOf(server.url, [skillOf('x')]) },
    )
    const node = await startNode({ peers: { bob: { url: server.url } } })
    const controller = new AbortController()
    const given = [1, 2].map(() => failureOf(node.remoteTools.discover('bob', { signal: controller.signal })))
    await until(() => server.count() === 1)
    controller.abort()
    expect(await Promise.all(given)).toMatchObject([{ code: 'canceled' }, { code: 'canceled' }])
    isHeld = false
    expect((await lookup(node, 'bob.x')).name).toBe('bob.x')
    expect(server.count()).toBe(2)
  })
})

describe('discovery at start-up', () => {
  test('counts as the first lookup', async () => {
    const server = await startAgents((id) => (id === 'a1' ? { status: 500 } : undefined))
    const node = await startNode({ peers: peersOf(server, 3), discovery: { startup: true } })
    await until(() => ['a0', 'a1', 'a2'].every((id) => node.remoteTools.status(id).state !== 'never'))
    expect(node.remoteTools.find().map(({ handle }) => handle)).toEqual(['a0.a0_tool', 'a2.a2_tool'])
    await lookup(node, 'a0.a0_tool')
    for (const name of ['a0.none', 'a1.a1_tool', 'a2.none']) {
      expect(await failureOf(lookup(node, name))).toMatchObject({ code: 'not_found' })
    }
    expect(server.count()).toBe(3)
  })

  test('is not done unless it is asked for', async () => {
    const server = await startAgents()
    const node = await startNode({ peers: peersOf(server, 2) })
    expect(node.tools.list()).toEqual([])
    await lookup(node, 'a1.a1_tool')
    expect(server.requests.map(({ path }) => path)).toEqual([`/a1${cardPath}`])
  })

  test('asks ten peers at a time, and goes on behind those that fail', async () => {
    const gate = deferred()
    const server = await startAgents(async (id) => {
      await gate.promise
      return id === 'a7' ? { status: 500 } : id === 'a20' ? { body: '<html>' } : { body: cardOf('http://127.0.0.1/') }
    })
    const node = await startNode({ peers: peersOf(server, 40), discovery: { startup: true } })
    await until(() => server.count() === 10)
    gate.resolve()
    await until(() => node.peers.ids.every((id) => node.remoteTools.status(id).state !== 'never'))
    expect(server.count()).toBe(40)
    expect(server.mostAtOnce).toBe(10)
    const failed = node.peers.ids.filter((id) => node.remoteTools.status(id).state === 'failed')
    expect(failed).toEqual(['a7', 'a20'])
  })

  test('goes on when a peer is removed while it runs', async () => {
    const gate = deferred()
    const server = await startAgents(async () => {
      await gate.promise
      return { body: cardOf('http://127.0.0.1/', [skillOf('x')]) }
    })
    const node = await startNode({ peers: peersOf(server, 30), discovery: { startup: true } })
    await until(() => server.count() === 10)
    await node.peers.remove('a0')
    await node.peers.remove('a15')
    gate.resolve()
    await until(() => node.peers.ids.every((id) => node.remoteTools.status(id).state === 'ok'))
    expect(node.remoteTools.find()).toHaveLength(28)
    expect(server.count(`/a15${cardPath}`)).toBe(0)
  })

  test('ends with the node', async () => {
    const server = await startAgents(() => new Promise<CardAnswer>(() => {}))
    const node = await startNode({ peers: peersOf(server, 40), discovery: { startup: true } })
    await until(() => server.count() === 10)
    await node.stop()
    expect(server.count()).toBe(10)
  })
})

describe('periodic discovery', () => {
  /** From now on time goes on when the test says so. */
  function useFakeTimers() {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const timers = vi.spyOn(globalThis, 'setTimeout')
    cleanup(() => {
      timers.mockRestore()
      vi.useRealTimers()
    })
    return timers
  }

  test('begins shortly after the start, comes again, asks with the ETag, and ends with the node', async () => {
    const server = await startCards(({ headers }) =>
      headers['if-none-match'] === '"1"'
        ? { status: 304, headers: { etag: '"1"' } }
        : { headers: { etag: '"1"' }, body: cardOf(server.url, [skillOf('x')]) },
    )
    const timers = useFakeTimers()
    const node = await startNode({ peers: { bob: { url: server.url } }, discovery: { intervalMs: 60_000 } })
    await vi.advanceTimersByTimeAsync(4_999)
    expect(server.count()).toBe(0)
    await vi.advanceTimersByTimeAsync(1)
    await until(() => node.remoteTools.find().length === 1)
    const tool = node.tools.resolve('bob.x')
    for (let round = 2; round <= 4; round++) {
      // The next round is timed once the last one is over.
      await until(() => timers.mock.calls.filter(([, ms]) => ms === 60_000).length === round - 1)
      await vi.advanceTimersByTimeAsync(59_999)
      expect(server.count()).toBe(round - 1)
      await vi.advanceTimersByTimeAsync(1)
      await until(() => server.count() === round)
    }
    expect(server.requests.slice(1).map(({ headers }) => headers['if-none-match'])).toEqual(['"1"', '"1"', '"1"'])
    expect(node.tools.resolve('bob.x')).toBe(tool)
    await node.stop()
    await vi.advanceTimersByTimeAsync(600_000)
    expect(server.count()).toBe(4)
  })

  test('does not hammer peers when its interval is longer than timers can wait', async () => {
    const server = await startAgents()
    const timers = useFakeTimers()
    const node = await startNode({
      peers: peersOf(server, 1),
      discovery: { intervalMs: 3_000_000_000, startup: true },
    })
    await until(() => node.remoteTools.status('a0').state === 'ok')
    // A timer that overflows fires at once.
    const waits = timers.mock.calls.map(([, ms]) => ms)
    expect(waits).toContain(2 ** 31 - 1)
    expect(waits).not.toContain(3_000_000_000)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(server.count()).toBe(1)
  })
})

describe('peers that are added and removed at run time', () => {
  test('are found and forgotten, and told of', async () => {
    const server = await startAgents()
    const node = await startNode()
    const changes: string[] = []
    node.remoteTools.onChange(({ type, tool }) => changes.push(`${type} ${tool.handle}`))
    node.peers.add('a1', { url: `${server.url}/a1`, allowOrigins: ['http://127.0.0.1'] })
    await lookup(node, 'a1.a1_tool')
    expect(node.tools.list().map(({ name }) => name)).toEqual(['a1.a1_tool'])
    expect(await node.peers.remove('a1')).toBe(true)
    expect(node.tools.list()).toEqual([])
    expect(node.remoteTools.status('a1').state).toBe('never')
    expect(changes).toEqual(['added a1.a1_tool', 'removed a1.a1_tool'])
    expect(await failureOf(lookup(node, 'a1.a1_tool'))).toMatchObject({ code: 'not_found' })
    expect(await node.peers.remove('a1')).toBe(false)
  })

  test('leave nothing behind when they are removed while they are asked', async () => {
    const gate = deferred()
    const server = await startAgents(async () => {
      await gate.promise
      return { body: cardOf('http://127.0.0.1/', [skillOf('old')]) }
    })
    const node = await startNode({ peers: peersOf(server, 1) })
    const changes: string[] = []
    node.remoteTools.onChange(({ type, tool }) => changes.push(`${type} ${tool.handle}`))
    const asked = failureOf(node.remoteTools.discover('a0'))
    await until(() => server.count() === 1)
    await node.peers.remove('a0')
    node.peers.add('a0', { url: `${server.url}/b0`, allowOrigins: ['http://127.0.0.1'] })
    gate.resolve()
    await asked
    expect(node.remoteTools.status('a0')).toEqual({ peer: 'a0', state: 'never', tools: 0 })
    expect(changes).toEqual([])
  })
})

describe('a directory', () => {
  const startDirectory = async (document: () => CardAnswer | undefined, more?: (path: string) => CardAnswer) => {
    const server: CardServer = await startCards(({ path }) => {
      if (path === '/agents.json') return document()
      if (more !== undefined) return more(path)
      const id = /^\/(\w+)\//.exec(path)?.[1]
      return id === undefined ? undefined : { body: cardOf(`${server.url}/${id}`, [skillOf(`${id}_tool`)]) }
    })
    return server
  }
  const discovery = (server: CardServer, path = '/agents.json') => ({
    directory: [server.url + path],
    allowPrivate: true,
    startup: true,
  })
  const isAsked = (node: Node, id: string) => until(() => node.remoteTools.status(id).state !== 'never')

  test('may be one agent card', async () => {
    const server = await startCards(() => ({ body: cardOf(server.url, [skillOf('x')]) }))
    const node = await startNode({ discovery: discovery(server, cardPath) })
    await isAsked(node, '127-0-0-1')
    expect(node.remoteTools.find().map(({ handle }) => handle)).toEqual(['127-0-0-1.x'])
  })

  test('may be a list of URLs, relative ones among them', async () => {
    const server = await startDirectory(() => ({ body: [`${server.url}/ann`, '/ben', `${server.url}/cat${cardPath}`] }))
    const node = await startNode({ discovery: discovery(server) })
    await until(() => node.remoteTools.find().length === 3)
    expect(node.remoteTools.find().map(({ handle }) => handle)).toEqual([
      '127-0-0-1.ann_tool',
      '127-0-0-1-2.ben_tool',
      '127-0-0-1-3.cat_tool',
    ])
  })

  test('may be a list of agents with ids, which become ours as far as they may', async () => {
    const agents = () => [
      { id: 'ann', url: `${server.url}/ann` },
      { id: 'ann', url: `${server.url}/ben` },
      { id: 'cat the 1st!', url: `${server.url}/cat` },
      { id: 'x'.repeat(200), card: `${server.url}/dan${cardPath}` },
    ]
    const server = await startDirectory(() => ({ body: { agents: agents() } }))
    const node = await startNode({ discovery: discovery(server), peers: { cat: { url: `${server.url}/cat/` } } })
    await until(() => node.remoteTools.find().length === 4)
    expect(node.peers.ids).toEqual(['cat', 'ann', 'ann-2', 'x'.repeat(56)])
  })

  test('is read at the start without its peers being asked, unless start-up discovery is on', async () => {
    const server = await startDirectory(() => ({ body: { agents: [{ id: 'ann', url: '/ann' }] } }))
    const node = await startNode({ discovery: { directory: [`${server.url}/agents.json`], allowPrivate: true } })
    await until(() => node.peers.has('ann'))
    expect((await lookup(node, 'ann.ann_tool')).name).toBe('ann.ann_tool')
    expect(server.requests.map(({ path }) => path)).toEqual(['/agents.json', `/ann${cardPath}`])
  })

  test('cannot make the node call private addresses', async () => {
    const secret = await startAgents()
    const server = await startDirectory(() => ({
      body: [`${secret.url}/a0`, secret.url.replace('127.0.0.1', 'localhost'), 'http://[::1]:1/', 'http://10.0.0.1/'],
    }))
    const node = await startNode({ discovery: { ...discovery(server), allowPrivate: false } })
    expect(node.peers.ids).toEqual([])
    // The directory's own address is refused already: it is on a private network, and nobody allowed that.
    await node.stop()
    expect(server.count() + secret.count()).toBe(0)

    const url = [`${server.url}/agents.json`]
    const open = await startNode({ discovery: { directory: url, startup: true } })
    await until(() => open.peers.ids.length === 4 && open.peers.ids.every((id) => isFailed(open, id)))
    for (const id of open.peers.ids) {
      expect(open.remoteTools.status(id).lastError, id).toMatchObject({ code: 'forbidden' })
    }
    expect(secret.count()).toBe(0)
  })
  const isFailed = (node: Node, id: string) => node.remoteTools.status(id).state === 'failed'

  test.each<[string, CardAnswer]>([
    ['garbage', { body: '<html>' }],
    ['no list', { body: { hello: 1 } }],
    ['a failure', { status: 500 }],
    ['nothing that ends', { body: `["${'x'.repeat(17 * 1024 * 1024)}"]` }],
    ['depths', { body: '['.repeat(100_000) }],
  ])('that holds %s stops no other', async (_what, answer) => {
    const server = await startDirectory(
      () => ({ body: ['/ann'] }),
      (path) => (path === '/bad.json' ? answer : { body: cardOf(`${server.url}/ann`, [skillOf('x')]) }),
    )
    const directory = [`${server.url}/bad.json`, `${server.url}/agents.json`]
    const node = await startNode({ discovery: { directory, allowPrivate: true, startup: true } })
    await until(() => node.remoteTools.find().length === 1)
    expect(server.count('/bad.json')).toBe(1)
  })

  test('with entries that are none keeps the others', async () => {
    const entries = [
      'http://',
      'javascript:alert(1)',
      'file:///etc/passwd',
      'http://user:pw@127.0.0.1/x',
      7,
      null,
      [],
      {},
      { id: 'a' },
      { id: 'b', url: 9 },
      { id: '__proto__', url: '/ann' },
      { id: '\u0000', url: '/ben' },
    ]
    const server = await startDirectory(() => ({ body: { agents: entries } }))
    const node = await startNode({ discovery: discovery(server) })
    await until(() => node.remoteTools.find().length === 2)
    expect(node.peers.ids).toEqual(['__proto__', 'peer'])
  })

  test('with ten thousand agents is cut, and read in no time', async () => {
    const server = await startDirectory(
      () => ({ body: Array.from({ length: 10_000 }, (_, i) => `http://127.0.0.1:1/${i}`) }),
      () => ({ status: 404 }),
    )
    const startedAt = performance.now()
    const node = await startNode({ discovery: { directory: [`${server.url}/agents.json`], allowPrivate: true } })
    await until(() => node.peers.ids.length > 0)
    expect(node.peers.ids).toHaveLength(1000)
    expect(performance.now() - startedAt).toBeLessThan(3_000)
  })

  test('forgets the agents that it no longer lists, and keeps all while it cannot be read', async () => {
    let answer: CardAnswer = { body: ['/ann', '/ben'] }
    const server = await startDirectory(() => answer)
    const node = await startNode({
      discovery: { ...discovery(server), intervalMs: 5 },
      peers: { carol: { url: `${server.url}/carol` } },
    })
    const known = () => node.peers.ids.map((id) => node.peers.optionsOf(id)?.url.slice(server.url.length))
    await until(() => node.remoteTools.find().length === 3)
    const before = server.count('/agents.json')
    answer = { status: 500 }
    await until(() => server.count('/agents.json') > before + 2)
    expect(known()).toEqual(['/carol', '/ann', '/ben'])
    answer = { body: ['/ben', '/dan'] }
    await until(() => node.remoteTools.find({ name: 'dan_tool' }).length === 1)
    expect(known()).toEqual(['/carol', '/ben', '/dan'])
    expect(node.remoteTools.find({ name: 'ann_tool' })).toEqual([])
    answer = { body: [] }
    await until(() => node.peers.ids.length === 1)
    expect(node.peers.ids).toEqual(['carol'])
  })

  test('does not bring back what was removed by hand', async () => {
    const server = await startDirectory(() => ({ body: { agents: [{ id: 'ann', url: '/ann' }] } }))
    const node = await startNode({ discovery: { ...discovery(server), intervalMs: 5 } })
    await until(() => node.peers.has('ann'))
    await node.peers.remove('ann')
    const before = server.count('/agents.json')
    await until(() => server.count('/agents.json') > before + 2)
    expect(node.peers.ids).toEqual([])
  })
})

describe('features.delegate: false', () => {
  test('lets nothing out, and the node serves on', async () => {
    const server = await startAgents()
    const node = await startNode({
      peers: peersOf(server, 1),
      discovery: { startup: true, intervalMs: 1, directory: [`${server.url}/agents.json`] },
      features: { delegate: false },
      tools: [echo],
    })
    const refusal = { code: 'unsupported_operation', message: expect.stringContaining('features.delegate: false') }
    expect(await failureOf(lookup(node, 'a0.a0_tool'))).toMatchObject(refusal)
    expect(await failureOf(node.tools.call('a0.a0_tool'))).toMatchObject(refusal)
    expect(await failureOf(node.remoteTools.discover('a0'))).toMatchObject(refusal)
    expect(await failureOf(node.peers.sendTask('a0', 'Hello'))).toMatchObject(refusal)
    expect(await node.tools.call('echo', { value: 1 })).toEqual({ value: 1 })
    const other = await startNode({ agent: { id: 'other' }, peers: { alice: { url: node.url } } })
    expect(await other.tools.call('alice.echo', { value: 2 })).toEqual({ value: 2 })
    expect(server.count()).toBe(0)
  })
})

test('a thousand peers cost little until they are needed', async () => {
  const peers = Object.fromEntries(
    Array.from({ length: 1000 }, (_, i) => [`p${i}`, { url: `http://127.0.0.1:1/${i}`, auth: { bearer: 'x' } }]),
  )
  const startedAt = performance.now()
  const node = await startNode({ peers })
  expect(node.peers.health()).toHaveLength(1000)
  expect(new Set(node.peers.health().map(({ state }) => state))).toEqual(new Set(['unknown']))
  expect(performance.now() - startedAt).toBeLessThan(2_000)
})
