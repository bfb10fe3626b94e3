/** Peers that move, fall silent in the middle of an answer, or want to be left alone for a day. */
import { connectPeer, defineTool, type ConnectOptions, type Peer } from 'convoke'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { setTimeout as wait } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { cleanup, deferred, startNode, until, within } from './support/lifetime.ts'
import { says, startScriptedPeer, statusOf, taskAs } from './support/scripted-peer.ts'
import { range } from './support/wire.ts'

async function connect(url: string, options: ConnectOptions = {}): Promise<Peer> {
  const peer = await connectPeer(url, { id: 'bob', ...options })
  cleanup(() => peer.close())
  return peer
}

describe('a client that is closed', () => {
  test('does not wait out the pause that a peer asked for before its request is tried again', async () => {
    const scripted = await startScriptedPeer(({ method, raw }) => {
      if (method === 'GetTask') raw(503, { 'retry-after': '20' }, '')
    })
    const peer = await connect(scripted.url)
    const asked = peer.getTask('t').catch((error: unknown) => error)
    await until(() => scripted.count('GetTask') === 1)
    await peer.close()
    expect(await within(asked, 'the request to end')).toMatchObject({ code: 'canceled' })
  })

  test('does not wait until a cut stream is asked for again', async () => {
    const scripted = await startScriptedPeer(async ({ method, raw, events, res }) => {
      if (method === 'SubscribeToTask') return raw(503, { 'retry-after': '30' }, '')
      if (method !== 'SendStreamingMessage') return
      await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
      res.destroy()
    })
    const peer = await connect(scripted.url)
    const called = peer.executeRemoteTool('add', { n: 1 }).catch((error: unknown) => error)
    await until(() => scripted.count('SubscribeToTask') === 1)
    await peer.close()
    expect(await within(called, 'the call to end')).toMatchObject({ code: 'canceled' })
  })

  test('does not look at a task again that it waits for', async () => {
    const scripted = await startScriptedPeer(
      ({ method, result }) => {
        if (method === 'GetTask') result(taskAs('t', 'TASK_STATE_WORKING'))
      },
      { card: () => ({ capabilities: { streaming: false } }) },
    )
    const peer = await connect(scripted.url)
    const waited = peer.waitFor('t', { pollMs: 20_000 }).catch((error: unknown) => error)
    await until(() => scripted.count('GetTask') === 1)
    await peer.close()
    expect(await within(waited, 'the wait to end')).toMatchObject({ code: 'canceled' })
  })
})

describe('a peer that wants to be left alone', () => {
  test.each(['86400', '9999999999'])(
    'for %s s while its stream is cut has its wish, and the call fails',
    async (seconds) => {
      const scripted = await startScriptedPeer(async ({ method, raw, events, result, res }) => {
        if (method === 'SubscribeToTask') return raw(503, { 'retry-after': seconds }, '')
        if (method === 'CancelTask') return result(taskAs('t', 'TASK_STATE_CANCELED'))
        if (method !== 'SendStreamingMessage') return
        await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
        res.destroy()
      })
      const peer = await connect(scripted.url)
      const called = peer.executeRemoteTool('put', { n: 1 }).catch((error: unknown) => error)
      expect(await within(called, 'the call to end')).toMatchObject({
        code: 'unavailable',
        retryAfterMs: Number(seconds) * 1000,
        taskId: 't',
      })
      expect(scripted.count('SubscribeToTask')).toBe(1)
    },
  )
})

describe('an answer that falls silent in the middle', () => {
  const bindings = ['JSONRPC', 'HTTP+JSON'] as const
  const oldCard = (binding: string) => (url: string) => ({
    supportedInterfaces: null,
    protocolVersion: '0.3.0',
    url,
    preferredTransport: binding,
  })
  const newCard = (binding: string) => (url: string) => ({
    supportedInterfaces: [{ url, protocolBinding: binding, protocolVersion: '1.0' }],
  })
  const cards = bindings.flatMap((binding) => [
    [`1.0 over ${binding}`, newCard(binding)] as const,
    [`0.3 over ${binding}`, oldCard(binding)] as const,
  ])

  test.each(cards)('is no stream and no success ends the call: %s', async (_, card) => {
    for (const status of [200, 500]) {
      const scripted = await startScriptedPeer(
        ({ method, res }) => {
          if (method === 'GET') return
          res.writeHead(status, { 'content-type': 'application/json' }).write('{"jsonrpc":')
        },
        { card },
      )
      const peer = await connect(scripted.url, { idleTimeoutMs: 100, requestTimeoutMs: 100 })
      const called = peer.executeRemoteTool('put', { n: 1 }).catch((error: unknown) => error)
      expect(await within(called, 'the call to end')).toMatchObject({ code: 'network', kind: 'connection' })
    }
  })
})

describe('an agent that moves its card', () => {
  test('to the new path is found there', async () => {
    let path = '/.well-known/agent.json'
    const scripted = await startScriptedPeer((exchange) => {
      if (exchange.method === 'GET' && exchange.path !== path) exchange.raw(404, {}, '')
    })
    const peer = await connect(scripted.url)
    path = '/.well-known/agent-card.json'
    expect(await peer.listRemoteTools()).toHaveLength(2)
  })

  test('behind a redirect is found where that leads now, whatever its ETag', async () => {
    let path = '/one.json'
    const scripted = await startScriptedPeer(({ method, path: asked, headers, raw, res }) => {
      if (method !== 'GET') return
      if (asked === '/.well-known/agent-card.json') return raw(302, { location: path }, '')
      // Both agents count their versions from 1.
      if (headers['if-none-match'] === '"1"') return raw(304, {}, '')
      res.setHeader('etag', '"1"')
    })
    const peer = await connect(scripted.url)
    await peer.listRemoteTools()
    const { length } = scripted.requests
    path = '/two.json'
    expect(await peer.listRemoteTools()).toHaveLength(2)
    const asked = scripted.requests.slice(length)
    expect(asked.map((each) => [each.path, each.headers['if-none-match']])).toEqual([
      ['/.well-known/agent-card.json', '"1"'],
      ['/two.json', '"1"'],
      ['/.well-known/agent-card.json', undefined],
      ['/two.json', undefined],
    ])
  })
})

describe('options that make no sense', () => {
  const url = 'http://127.0.0.1:1'
  test.each([
    [undefined, {}, /must be a string, got undefined/],
    [null, {}, /got null/],
    [new URL(url), {}, /must be a string, got an object/],
    [url, { requestTimeoutMs: 0 }, /`requestTimeoutMs` of the peer "bob" must be above 0, got 0/],
    [url, { requestTimeoutMs: NaN }, /`requestTimeoutMs` .* got NaN/],
    [url, { idleTimeoutMs: -1 }, /`idleTimeoutMs` .* got -1/],
    [url, { timeoutMs: 0 }, /`timeoutMs` .* got 0/],
    [url, { timeoutMs: '5' }, /`timeoutMs` .* got "5"/],
    [url, { patienceMs: -1 }, /`patienceMs` .* got -1/],
  ])('are told before anything is sent: %s %j', async (where, options, words) => {
    const connected = connectPeer(where as string, { id: 'bob', ...(options as ConnectOptions) })
    await expect(connected).rejects.toMatchObject({ code: 'config', message: expect.stringMatching(words) as string })
  })
})

test('a silence without a limit is no cut', async () => {
  const scripted = await startScriptedPeer(async ({ method, events, res }) => {
    if (method !== 'SendStreamingMessage') return
    await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
    await wait(20)
    await events(statusOf('t', 'TASK_STATE_COMPLETED', says('done')))
    res.end()
  })
  const peer = await connect(scripted.url, { idleTimeoutMs: Infinity })
  expect(await peer.executeRemoteTool('put', { n: 1 })).toBe('done')
  expect(scripted.count('SubscribeToTask')).toBe(0)
})

test('the card of a URL with a query is asked for below its path, with the query', async () => {
  const scripted = await startScriptedPeer(({ method, path, raw }) => {
    if (method === 'GET' && path !== '/a/.well-known/agent-card.json?tenant=7') raw(404, {}, '')
  })
  expect((await connect(`${scripted.url}/a/?tenant=7#here`)).status.state).toBe('up')
})

test('one signal may stop any number of calls, without a warning', async () => {
  const scripted = await startScriptedPeer(async ({ method, events, result }) => {
    if (method === 'CancelTask') return result(taskAs('t', 'TASK_STATE_CANCELED'))
    if (method === 'SendStreamingMessage') await events({ task: taskAs('t', 'TASK_STATE_WORKING') })
  })
  const warnings: Error[] = []
  const note = (warning: Error): number => warnings.push(warning)
  process.on('warning', note)
  cleanup(() => process.off('warning', note))
  const peer = await connect(scripted.url)
  const stop = new AbortController()
  const calls = range(1, 20).map((n) => peer.executeRemoteTool('put', { n }, { signal: stop.signal }))
  await until(() => scripted.count('SendStreamingMessage') === 20)
  stop.abort()
  expect((await Promise.allSettled(calls)).every(({ status }) => status === 'rejected')).toBe(true)
  // Warnings come a turn later.
  await wait(0)
  expect(warnings).toEqual([])
})

test.each(['JSONRPC', 'HTTP+JSON'] as const)('a call that is aborted stops at a 0.3 peer over %s', async (binding) => {
  const began = deferred()
  const stopped = deferred()
  const hold = defineTool({
    name: 'hold',
    description: 'Runs until it is stopped.',
    input: { type: 'object' },
    async run(_, { signal }) {
      began.resolve()
      await once(signal, 'abort')
      stopped.resolve()
    },
  })
  const node = await startNode({ tools: [hold] })
  const peer = await connect(node.url, { versions: ['0.3'], bindings: [binding] })
  const stop = new AbortController()
  const called = peer.executeRemoteTool('hold', {}, { signal: stop.signal }).catch((error: unknown) => error)
  await within(began.promise, 'the tool to begin')
  stop.abort()
  expect(await called).toMatchObject({ code: 'canceled' })
  await within(stopped.promise, 'the tool to be stopped')
})

test.each([
  ['1.0', 'JSONRPC'],
  ['1.0', 'HTTP+JSON'],
  ['0.3', 'JSONRPC'],
  ['0.3', 'HTTP+JSON'],
] as const)(
  'a stream of %s over %s that is refused, or that its reader left, leaves no timer',
  async (version, binding) => {
    const echo = defineTool({
      name: 'echo',
      description: 'Says it.',
      input: { type: 'object' },
      run: (params) => params,
    })
    const node = await startNode({ tools: [echo] })
    const peer = await connect(node.url, { versions: [version], bindings: [binding] })
    const metadata = { _tool_call: { name: 'echo', params: {} } }
    const message = { messageId: randomUUID(), role: 'ROLE_USER' as const, parts: [{ text: 'Say it.' }], metadata }
    const { task } = await peer.sendTask(message)
    const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length
    const before = timers()
    // Where an ended task has no stream any more, it comes as it stands.
    const events = peer.subscribe(task?.id ?? '')
    expect((await events.next()).value?.event.task?.status.state).toBe('TASK_STATE_COMPLETED')
    await events.return()
    await until(() => timers() <= before, 'the timers of the stream to go')
  },
)

test('a call that is aborted stops at the peer, though its client is closed at once', async () => {
  const began = deferred()
  const stopped = deferred()
  const hold = defineTool({
    name: 'hold',
    description: 'Runs until it is stopped.',
    input: { type: 'object' },
    async run(_, { signal }) {
      began.resolve()
      await once(signal, 'abort')
      stopped.resolve()
    },
  })
  const node = await startNode({ tools: [hold] })
  const peer = await connect(node.url)
  const stop = new AbortController()
  const called = peer.executeRemoteTool('hold', {}, { signal: stop.signal }).catch((error: unknown) => error)
  await within(began.promise, 'the tool to begin')
  stop.abort()
  expect(await called).toMatchObject({ code: 'canceled' })
  await peer.close()
  await within(stopped.promise, 'the tool to be stopped')
})

test('a call that nobody stopped stops at the peer with its client, or its node', async () => {
  const [began, stopped] = [
    [deferred(), deferred()],
    [deferred(), deferred()],
  ]
  let calls = 0
  const hold = defineTool({
    name: 'hold',
    description: 'Runs until it is stopped.',
    input: { type: 'object' },
    async run(_, { signal }) {
      const call = calls++
      began[call]!.resolve()
      await once(signal, 'abort')
      stopped[call]!.resolve()
    },
  })
  const node = await startNode({ tools: [hold] })
  const peer = await connect(node.url)
  const first = peer.executeRemoteTool('hold').catch((error: unknown) => error)
  await within(began[0]!.promise, 'the tool to begin')
  await peer.close()
  expect(await first).toMatchObject({ code: 'canceled' })
  await within(stopped[0]!.promise, 'the tool to be stopped')

  const caller = await startNode({ agent: { id: 'alice' }, peers: { bob: { url: node.url } } })
  const second = caller.tools.call('bob.hold').catch((error: unknown) => error)
  await within(began[1]!.promise, 'the tool to begin again')
  await caller.stop()
  expect(await second).toMatchObject({ code: 'canceled' })
  await within(stopped[1]!.promise, 'the tool to be stopped again')
})

test('what a stream says of another task is not taken for news of this one', async () => {
  const scripted = await startScriptedPeer(async ({ method, events, res }) => {
    if (method !== 'SendStreamingMessage') return
    await events({ task: taskAs('t', 'TASK_STATE_WORKING') }, statusOf('other', 'TASK_STATE_COMPLETED'))
    await events(statusOf('t', 'TASK_STATE_COMPLETED', says('done')))
    res.end()
  })
  const peer = await connect(scripted.url)
  expect(await peer.executeRemoteTool('put', { n: 1 })).toBe('done')
})

test('a call without a limit may say so with Infinity', async () => {
  const when = defineTool({
    name: 'when',
    description: 'Tells its deadline.',
    input: { type: 'object' },
    run: (_, { deadline }) => ({ deadline: deadline ?? null }),
  })
  const node = await startNode({ tools: [when] })
  const peer = await connect(node.url, { timeoutMs: Infinity })
  expect(await peer.executeRemoteTool('when', {}, { timeoutMs: Infinity })).toEqual({ deadline: null })
  expect(await node.tools.call('when', {}, { timeoutMs: Infinity })).toEqual({ deadline: null })
})

test('a pattern on a card that takes time without end is matched in no time', async () => {
  const scripted = await startScriptedPeer(
    async ({ method, events, res }) => {
      if (method !== 'SendStreamingMessage') return
      await events(statusOf('t', 'TASK_STATE_COMPLETED', says(JSON.stringify({ a: `${'a'.repeat(50_000)}!` }))))
      res.end()
    },
    {
      card: () => ({
        skills: [
          {
            id: 'tool-odd',
            name: 'odd',
            description: 'Odd.',
            tags: ['tool'],
            input_schema: { type: 'object' },
            output_schema: { type: 'object', properties: { a: { type: 'string', pattern: '^(a+)+$' } } },
          },
        ],
      }),
    },
  )
  const peer = await connect(scripted.url)
  expect(await peer.executeRemoteTool('odd').catch((error: unknown) => error)).toMatchObject({
    code: 'invalid_result',
    issues: [{ path: '/a' }],
  })
})

test('what the one who should answer throws is told in its own words', async () => {
  const asks = defineTool({
    name: 'asks',
    description: 'Asks for a name.',
    input: { type: 'object' },
    run: async (_, { ask }) => await ask({ message: 'Who?' }),
  })
  const node = await startNode({ tools: [asks] })
  const peer = await connect(node.url)
  const ask = (): Promise<never> => Promise.reject(new Error('The keyboard is broken.'))
  const failure = await peer.executeRemoteTool('asks', {}, { ask }).catch((error: unknown) => error)
  expect(failure).toMatchObject({ code: 'tool_failed', message: expect.stringContaining('The keyboard is broken.') })
  await until(() => node.stats.running === 0, 'the task to be cancelled')
})
